#include "runtime/resource/decision_log.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace abacus::runtime {
namespace {

using Json = nlohmann::json;

// A snapshot of a graph of the largest size takes about so much; longer lines are damage.
constexpr size_t kLineBytesMax = size_t{16} << 20;

std::string LineOf(const LoggedDecision& decision) {
  Json rids = Json::array();
  for (const Rid& rid : decision.rids) rids.push_back(rid.ToString());
  const Json json = {{"unix_ns", absl::ToUnixNanos(decision.at)},
                     {"objects", std::move(rids)},
                     {"outcome", decision.outcome},
                     {"reason", decision.reason},
                     {"explanation", decision.explanation},
                     {"details", decision.details},
                     {"snapshot", decision.snapshot}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<LoggedDecision> Parse(const std::string& line) {
  // The library reports by exceptions, which end here.
  try {
    const Json json = Json::parse(line);
    LoggedDecision decision{.at = absl::FromUnixNanos(json.at("unix_ns").get<int64_t>()),
                            .outcome = json.at("outcome"),
                            .reason = json.at("reason"),
                            .explanation = json.at("explanation"),
                            .details = json.at("details"),
                            .snapshot = json.at("snapshot")};
    for (const std::string text : json.at("objects")) {
      const auto rid = Rid::Parse(text);
      if (!rid) return std::nullopt;
      decision.rids.push_back(*rid);
    }
    return decision;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

absl::Status DecisionLog::Append(absl::Span<const LoggedDecision> decisions, uint64_t* lost) {
  if (path_.empty() || bytes_max_ == 0 || decisions.empty()) return absl::OkStatus();
  std::vector<std::string> made;
  made.reserve(decisions.size());
  for (const LoggedDecision& decision : decisions) made.push_back(LineOf(decision));
  MutexLock lock(mutex_);
  std::error_code none;
  uint64_t bytes = std::filesystem::file_size(path_, none);
  if (none) bytes = 0;
  absl::Status status;
  std::string lines;
  uint64_t count = 0;
  const auto write = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Status written = Write(lines);
    if (!written.ok() && lost != nullptr) *lost += count;
    status.Update(written);
    lines.clear();
    count = 0;
  };
  for (const std::string& line : made) {
    if (bytes > 0 && bytes + line.size() > bytes_max_) {
      write();
      std::filesystem::rename(path_, path_ + ".1", none);
      bytes = 0;
    }
    lines += line;
    bytes += line.size();
    ++count;
  }
  write();
  return status;
}

absl::Status DecisionLog::Write(const std::string& lines) {
  if (lines.empty()) return absl::OkStatus();
  FILE* file = fopen(path_.c_str(), "ae");
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path_));
  // After a line that a crash cut short the next one begins on a line of its own.
  fseek(file, 0, SEEK_END);
  bool good = true;
  if (ftell(file) > 0) {
    std::ifstream tail(path_, std::ios::binary);
    tail.seekg(-1, std::ios::end);
    if (tail.get() != '\n') good = fputc('\n', file) != EOF;
  }
  good = good && fwrite(lines.data(), 1, lines.size(), file) == lines.size();
  const int error = errno;
  if (fclose(file) != 0 || !good) {
    return absl::ErrnoToStatus(good ? errno : error, absl::StrCat("cannot write ", path_));
  }
  return absl::OkStatus();
}

std::vector<LoggedDecision> DecisionLog::Find(const Rid& rid, size_t max) const {
  std::vector<LoggedDecision> found;
  if (path_.empty()) return found;
  const std::string quoted = absl::StrCat("\"", rid.ToString(), "\"");
  MutexLock lock(mutex_);
  for (const std::string& path : {path_, path_ + ".1"}) {
    std::vector<LoggedDecision> of_file;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      // Most lines are of other objects: looking is cheaper than parsing.
      if (line.size() > kLineBytesMax || line.find(quoted) == std::string::npos) continue;
      std::optional<LoggedDecision> decision = Parse(line);
      if (!decision) continue;
      const auto& rids = decision->rids;
      if (std::find(rids.begin(), rids.end(), rid) == rids.end()) continue;
      of_file.push_back(*std::move(decision));
    }
    std::move(of_file.rbegin(), of_file.rend(), std::back_inserter(found));
    if (found.size() >= max) break;
  }
  if (found.size() > max) found.resize(max);
  return found;
}

}  // namespace abacus::runtime
