#ifndef ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_STATE_H_
#define ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_STATE_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/atomicity/commit_core.h"

namespace abacus::objfs {

// What the records of a server's log come to. A record is a byte that says which it is and what
// follows: `c` and a CommitRecord, `e` and u64 an epoch, or `h` and a key, u64 the identifier and
// u64 the part: that group is committed and held. A snapshot is u64 the epoch, u64 the number of
// keys that are held, these, rising, and then a CommitEntries. Little-endian. Thread-compatible.
struct CommitLogState {
  uint64_t epoch = 0;
  CommitEntries commits;
  // Of the entries: committed without the word of all their members (CommitLog::Settle).
  std::set<CommitKey> held;

  static std::string CommitBytes(const CommitRecord& record);
  static std::string EpochBytes(uint64_t epoch);
  static std::string HeldBytes(const CommitKey& key);
  void ApplyCommit(const CommitRecord& record);
  // Does nothing where there is no such entry.
  void Hold(const CommitKey& key);
  // Errors: kDataLoss - it is no record, or the payload of a prepared group is no GroupPart.
  absl::Status Apply(std::string_view record);

  std::string Encode() const;
  // Errors: kDataLoss, as Apply().
  static absl::StatusOr<CommitLogState> Decode(std::string_view snapshot);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_COMMIT_LOG_STATE_H_
