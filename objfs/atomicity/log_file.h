#ifndef ABACUS_OBJFS_ATOMICITY_LOG_FILE_H_
#define ABACUS_OBJFS_ATOMICITY_LOG_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/atomicity/log_core.h"
#include "objfs/store/disk.h"

namespace abacus::objfs {

// The file of a server's log, `atomicity` beside its object store's: a header of kHeaderBytes, then
// LogCore's two halves. The header, little-endian: `ABACUSAL`, u32 version 1, u32 0, u64 the log's
// number, u64 bytes of a half, u64 the server's number in groups, u32 CRC32C of all that; zeros up
// to the halves. It is never changed.
// Thread-safety: thread-compatible. Blocking: disk I/O.
class LogFile {
 public:
  static constexpr uint64_t kHeaderBytes = 4096;
  static constexpr uint64_t kHalfBytesMin = uint64_t{64} << 10;
  static constexpr uint64_t kHalfBytesMax = uint64_t{1} << 30;

  struct Header {
    LogOptions log;
    uint64_t server = 0;  // whose answers are in it
  };

  // Opens the log that is there; where there is none makes one whose first checkpoint, durable, is
  // `first`, and whose halves have `half_bytes`. A crash leaves a whole log, or none.
  // Errors: kDataLoss - the header, or something that had been durable, is damaged.
  //         kFailedPrecondition - a version that is not known here, or another server's log.
  //         kInvalidArgument - `half_bytes` is beyond the limits, or cannot hold `first`. The
  //         disk's.
  static absl::StatusOr<std::unique_ptr<LogFile>> Open(Disk& disk, uint64_t server,
                                                       uint64_t half_bytes, std::string_view first);
  // Whose log is there; nullopt: there is none. Errors: as Open().
  static absl::StatusOr<std::optional<uint64_t>> ServerOf(Disk& disk);

  // Whether the log of a disk that nobody uses can be opened, where there is one; writes nothing.
  // Errors: as Open().
  static absl::Status Check(Disk& disk);

  // The name of a store's file that is none of the object store's.
  static const char* Name();

  static std::string EncodeHeader(const Header& header);
  // Errors: kDataLoss, kFailedPrecondition, as Open().
  static absl::StatusOr<Header> DecodeHeader(std::string_view bytes);

  const LogOptions& options() const { return options_; }
  // What was found, once.
  RecoveredLog TakeRecovered() { return std::move(recovered_); }
  // Errors: kResourceExhausted - the disk is full: the same may be written again later, and before
  // anything else. The disk's others: the log must be opened again.
  absl::Status Write(const LogWrite& write);
  // What was written is durable then. Errors: the disk's; the log must be opened again.
  absl::Status Flush() { return file_->Sync(); }

 private:
  LogFile(LogOptions options, std::shared_ptr<DiskFile> file)
      : options_(options), file_(std::move(file)) {}

  const LogOptions options_;
  const std::shared_ptr<DiskFile> file_;
  RecoveredLog recovered_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_LOG_FILE_H_
