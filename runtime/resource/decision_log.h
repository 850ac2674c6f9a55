#ifndef ABACUS_RUNTIME_RESOURCE_DECISION_LOG_H_
#define ABACUS_RUNTIME_RESOURCE_DECISION_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"

namespace abacus::runtime {

// A decision as people ask for it.
struct LoggedDecision {
  absl::Time at;
  std::vector<Rid> rids;  // the console first, then the objects that were decided on
  std::string outcome;
  std::string reason;
  std::string explanation;
  std::string details;   // every placement considered
  std::string snapshot;  // JSON
};

// What a server's engine decided, on disk: one JSON object a line, so that it can be asked for
// after a restart and read by other programs.
//
// The file at `path` holds the newest; when it would grow beyond bytes_max it becomes `path`.1, in
// place of the one before, so that at most twice bytes_max are used. A line that a crash cut short,
// or that is damaged, is passed over. Decisions are not synced to disk one by one: those of the
// last seconds before a power cut may be missing. Thread-safety: thread-safe. Blocking: a write, or
// a read of both files, of a local disk.
class DecisionLog {
 public:
  // Empty `path` or bytes_max of 0: nothing is kept.
  DecisionLog(std::string path, uint64_t bytes_max)
      : path_(std::move(path)), bytes_max_(bytes_max) {}

  // Appends them in their order. Errors: of the system, where the file cannot be written: to
  // `lost`, if given, is added how many of them are not there; the next Append() tries again.
  absl::Status Append(absl::Span<const LoggedDecision> decisions, uint64_t* lost = nullptr);

  // The last decisions on an object, newest first.
  std::vector<LoggedDecision> Find(const Rid& rid, size_t max) const;

 private:
  absl::Status Write(const std::string& lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const uint64_t bytes_max_;
  mutable Mutex mutex_;  // of the files
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_DECISION_LOG_H_
