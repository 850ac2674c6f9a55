#ifndef ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_STATE_H_
#define ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_STATE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/atomicity/commit_core.h"

namespace abacus::objfs {

// What the records of a server's log come to. A record is a byte that says which it is and what
// follows: `c` and a CommitRecord, or `e` and u64 an epoch. A snapshot is u64 the epoch, and then a
// CommitState. Little-endian. Thread-compatible.
struct CommitLogState {
  uint64_t epoch = 0;
  CommitState commits;

  static std::string CommitBytes(const CommitRecord& record);
  static std::string EpochBytes(uint64_t epoch);
  // Errors: kDataLoss - it is no record, or the payload of a prepared group is no GroupPart.
  absl::Status Apply(std::string_view record);

  std::string Encode() const;
  // Errors: kDataLoss, as Apply().
  static absl::StatusOr<CommitLogState> Decode(std::string_view snapshot);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_STATE_H_
