#ifndef ABACUS_OBJFS_ATOMICITY_LOG_CORE_H_
#define ABACUS_OBJFS_ATOMICITY_LOG_CORE_H_

// A server's log as a state machine without I/O: bytes to be written come out, and what a crash
// left of them goes in. README.md says how its place is used and why any cut can be read.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::objfs {

inline constexpr uint64_t kLogHeaderBytes = 32;
inline constexpr uint64_t kLogPayloadBytesMax = uint64_t{1} << 26;
// Between sequences before and after a recovery: more than one write can hold.
inline constexpr uint64_t kLogSequenceJump = uint64_t{1} << 32;

enum class LogKind : uint8_t { kCheckpoint = 1, kRecord = 2 };

// Little-endian: magic u32, CRC32C u32 (of the log's number and all that follows), payload length
// u32, kind u32, sequence u64, durable u64, payload.
struct LogRecordView {
  LogKind kind = LogKind::kRecord;
  uint64_t sequence = 0;  // kCheckpoint: of the last record that it covers
  uint64_t durable = 0;   // the last record that was known to be durable when this one was made
  std::string_view payload;
};
std::string EncodeLogRecord(uint64_t log, const LogRecordView& record);
// The record that `bytes` begin with; nullopt where it is cut short, damaged, none, or another
// log's.
std::optional<LogRecordView> DecodeLogRecord(uint64_t log, std::string_view bytes);

struct LogOptions {
  uint64_t log = 0;  // its number: what other logs left on the disk is not taken for ours
  uint64_t half_bytes = 1 << 20;  // the log takes twice that, and never more
};

struct RecoveredLog {
  std::string snapshot;
  std::vector<std::string> records;  // after it
  uint64_t last = 0;                 // sequence
  int half = 0;                      // where all this stands
};
// Reads what is left of a log: all that was durable, and perhaps some of what was under way.
// Errors: kDataLoss - no checkpoint is whole, or a record that had been durable is damaged.
absl::StatusOr<RecoveredLog> RecoverLog(const LogOptions& options, std::string_view bytes);

// Rules that the simulator breaks one at a time (cf. FaithfulCommitPolicy).
struct FaithfulLogPolicy {
  static constexpr bool kJumpSequence = true;
  static constexpr bool kReserveForSnapshot = true;
  static constexpr bool kOtherHalf = true;
  static constexpr bool kAcknowledgeFlushed = true;
};

// Bytes to be written, and then flushed.
struct LogWrite {
  uint64_t offset = 0;
  std::string bytes;
};

// Lifecycle: made with what was recovered, or anew; then each NextWrite() is followed by Written().
//
// Invariants:
// 1. A record is durable once a flush that began after it was written has ended, and records become
//    so in their order. All that wait when a flush ends ride on the next one.
// 2. At any time one half holds a whole checkpoint and all durable records after it.
// 3. A checkpoint always fits: what would let the snapshot grow over a half is refused before.
// Thread-safety: thread-compatible. Blocking: no.
template <typename Policy>
class LogCore {
 public:
  // `snapshot`: the state that all records appended so far come to; called inside NextWrite().
  // A log that is made or recovered begins with a checkpoint, and is not to be used before it is
  // durable.
  LogCore(const LogOptions& options, std::function<std::string()> snapshot,
          const RecoveredLog* recovered = nullptr);

  // Whether there is no room for records that let the snapshot grow to that size: what a checkpoint
  // will write counts, and not only what is there. Records that do not let it grow always fit.
  bool IsFull(uint64_t snapshot_bytes, uint64_t record_bytes) const;
  // Returns the record's sequence. It is durable when durable() has reached that.
  // Errors: kUnavailable - a write or flush has failed; the log must be recovered.
  //         kInvalidArgument - more than a half can hold.
  absl::StatusOr<uint64_t> Append(std::string_view payload);
  // What is to be written now; nullopt while a write is under way, or nothing waits.
  std::optional<LogWrite> NextWrite();
  // It is written and flushed, or has failed.
  void Written(const absl::Status& status);

  uint64_t appended() const { return appended_; }
  uint64_t durable() const { return durable_; }
  uint64_t checkpoints() const { return checkpoints_; }

 private:
  const LogOptions options_;
  const std::function<std::string()> snapshot_;
  int half_ = 1;            // the first checkpoint goes to the other one
  uint64_t used_ = 0;       // of the half
  std::string buffer_;      // records that are not yet written
  bool checkpoint_ = true;  // is to be written next
  bool writing_ = false;
  bool broken_ = false;
  uint64_t appended_ = 0;
  uint64_t written_ = 0;
  uint64_t durable_ = 0;
  uint64_t checkpoints_ = 0;
};

extern template class LogCore<FaithfulLogPolicy>;

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_LOG_CORE_H_
