#ifndef ABACUS_OBJFS_RAID_COLUMN_RECORD_H_
#define ABACUS_OBJFS_RAID_COLUMN_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "objfs/layer/version.h"
#include "objfs/raid/stripe_set.h"

namespace abacus::objfs {

// What each column of a RAID-5 file keeps as its attributes: what was so when the record was made.
// Of several columns' records the one with the highest sequence number is believed.
//
// The bytes, little-endian; a change of their form is a new version, and old ones stay readable:
//   "R5" · version u8 (1) · columns u8 · column u8 · missing u8 (255: none) · unit_bytes u32 ·
//   sequence u64 · all_durable u64 · missing_durable u64 · size u64 · changed u64 ·
//   written, missed, doubtful: count u16, then begin u32 and end u32 of each run, rising ·
//   inode: bytes u16, then they
struct ColumnRecord {
  static constexpr size_t kBytesMax = 4096;  // of a store's attributes
  // 96 + 32 + 64 runs of 8 bytes, and 56 bytes, leave more than this.
  static constexpr size_t kInodeBytesMax = 2400;
  static constexpr size_t kWrittenRunsMax = 96, kMissedRunsMax = 32, kDoubtfulRunsMax = 64;
  static constexpr uint64_t kStripesMax = UINT32_MAX;

  size_t columns = 0;
  size_t column = 0;  // which of them has this record
  uint64_t unit_bytes = 0;
  uint64_t sequence = 0;          // of this record
  uint64_t all_durable = 0;       // of the newest that all live columns are known to have durable
  uint64_t missing_durable = 0;   // the same of the missing column, when it was there last
  uint64_t size = 0;              // of the file
  Version changed;                // size or inode, last
  std::optional<size_t> missing;  // the column that lacks something
  StripeSet written;   // since they were last flushed: their parity may not be that of their data
  StripeSet missed;    // what the missing column has of them is old; may have more than that
  StripeSet doubtful;  // what the missing column has of them nobody else knows
  std::string inode;   // the file system's

  // REQUIRES: nothing is over its limit; Fits().
  std::string Encode() const;
  bool Fits() const;
  // Errors: kDataLoss - it is no record, or a damaged one; kFailedPrecondition - of a later
  // version.
  static absl::StatusOr<ColumnRecord> Decode(std::string_view bytes);

  friend bool operator==(const ColumnRecord&, const ColumnRecord&) = default;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_COLUMN_RECORD_H_
