#include "apps/abacus/log_setup.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace abacus::apps {

absl::Status SetUpLog(const runtime::Config::Log& log) {
  spdlog::sink_ptr sink;
  if (log.file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    // The library reports by exceptions, which end here.
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(log.file);
    } catch (const spdlog::spdlog_ex& error) {
      return absl::UnavailableError(
          absl::StrCat("log.file: ", error.what(), " (is the directory there and writable?)"));
    }
  }
  auto logger = std::make_shared<spdlog::logger>("abacus", std::move(sink));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->set_level(spdlog::level::from_str(log.level));
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace abacus::apps
