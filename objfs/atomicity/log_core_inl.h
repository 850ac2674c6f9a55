#ifndef ABACUS_OBJFS_ATOMICITY_LOG_CORE_INL_H_
#define ABACUS_OBJFS_ATOMICITY_LOG_CORE_INL_H_

// The bodies of log_core.h's template.

#include <utility>

#include "objfs/atomicity/log_core.h"

namespace abacus::objfs {

template <typename Policy>
LogCore<Policy>::LogCore(const LogOptions& options, std::function<std::string()> snapshot,
                         const RecoveredLog* recovered)
    : options_(options), snapshot_(std::move(snapshot)) {
  if (recovered == nullptr) {
    appended_ = 1;
    return;
  }
  half_ = recovered->half;
  // What a torn write left behind the recovered records can be whole, and must not continue ours.
  appended_ = recovered->last + (Policy::kJumpSequence ? kLogSequenceJump : 1);
}

template <typename Policy>
bool LogCore<Policy>::IsFull(uint64_t snapshot_bytes, uint64_t record_bytes) const {
  const uint64_t needed = Policy::kReserveForSnapshot ? snapshot_bytes : 0;
  return needed > kLogPayloadBytesMax ||
         2 * kLogHeaderBytes + needed + record_bytes > options_.half_bytes;
}

template <typename Policy>
absl::StatusOr<uint64_t> LogCore<Policy>::Append(std::string_view payload) {
  if (broken_) return absl::UnavailableError("the log could not be written; recover it");
  const uint64_t bytes = kLogHeaderBytes + payload.size();
  if (payload.size() > kLogPayloadBytesMax || bytes > options_.half_bytes) {
    return absl::InvalidArgumentError("a log record is larger than half of the log");
  }
  ++appended_;
  if (used_ + buffer_.size() + bytes > options_.half_bytes) checkpoint_ = true;
  // A snapshot that is taken later has it.
  if (checkpoint_) return appended_;
  buffer_ += EncodeLogRecord(options_.log, {LogKind::kRecord, appended_, durable_, payload});
  return appended_;
}

template <typename Policy>
std::optional<LogWrite> LogCore<Policy>::NextWrite() {
  if (writing_ || broken_) return std::nullopt;
  LogWrite write;
  if (checkpoint_) {
    const std::string snapshot = snapshot_();
    if (kLogHeaderBytes + snapshot.size() > options_.half_bytes) {
      broken_ = true;  // IsFull() was not asked
      return std::nullopt;
    }
    if (Policy::kOtherHalf) half_ = 1 - half_;
    write.bytes =
        EncodeLogRecord(options_.log, {LogKind::kCheckpoint, appended_, durable_, snapshot});
    write.offset = static_cast<uint64_t>(half_) * options_.half_bytes;
    used_ = 0;
    buffer_.clear();
    checkpoint_ = false;
    ++checkpoints_;
  } else {
    if (buffer_.empty()) return std::nullopt;
    write.bytes = std::exchange(buffer_, "");
    write.offset = static_cast<uint64_t>(half_) * options_.half_bytes + used_;
  }
  used_ += write.bytes.size();
  writing_ = true;
  written_ = appended_;
  if (!Policy::kAcknowledgeFlushed) durable_ = written_;
  return write;
}

template <typename Policy>
void LogCore<Policy>::Written(const absl::Status& status) {
  writing_ = false;
  broken_ = broken_ || !status.ok();
  if (!broken_) durable_ = written_;
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_LOG_CORE_INL_H_
