#include "apps/abacus/log_setup.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/sinks/syslog_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace abacus::apps {

namespace {

// What goes to standard error; null: the log goes to a file.
std::shared_ptr<spdlog::sinks::dist_sink_mt>& ErrorSink() {
  static std::shared_ptr<spdlog::sinks::dist_sink_mt> sink;
  return sink;
}

}  // namespace

absl::Status SetUpLog(const runtime::Config::Log& log) {
  spdlog::sink_ptr sink;
  ErrorSink() = nullptr;
  if (log.file.empty()) {
    ErrorSink() = std::make_shared<spdlog::sinks::dist_sink_mt>();
    ErrorSink()->add_sink(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    sink = ErrorSink();
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

void LeaveStandardError() {
  if (ErrorSink() == nullptr) return;
  auto syslog = std::make_shared<spdlog::sinks::syslog_sink_mt>("abacus", LOG_PID, LOG_DAEMON,
                                                                /*enable_formatting=*/false);
  ErrorSink()->set_sinks({std::move(syslog)});
}

}  // namespace abacus::apps
