#ifndef ABACUS_OBJFS_RAID_COLUMN_RECORD_H_
#define ABACUS_OBJFS_RAID_COLUMN_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "objfs/layer/version.h"
#include "objfs/raid/stripe_set.h"

namespace abacus::objfs {

// What each column of a file keeps as its attributes: what was so when the record was made. Of
// several columns' records the last one is believed: of the latest opening that made any of them
// the one with the highest sequence number.
//
// The bytes, little-endian; a change of their form is a new version, and old ones stay readable.
// Of a RAID-5 file:
//   "R5" · version u8 (4) · columns u8 · column u8 · missing u8 (255: none) · unit_bytes u32 ·
//   sequence u64 · durable u64 of each column · size u64 · changed u64 · ragged u8 (0 or 1) ·
//   written, missed, doubtful: count u16, then begin u32 and end u32 of each run, rising ·
//   staged: count u8, then stripe u32, at u32, bytes u32, slot u8, count u8 of crcs and then these,
//   u32, of each · inode: bytes u16, then they
// Of a mirrored one, whose stripes are runs of unit_bytes in all columns:
//   "MR" · version u8 (2) · columns u8 · column u8 · unit_bytes u32 ·
//   sequence u64 · durable u64 of each column · size u64 · changed u64 ·
//   lacking: count u8, then column u8 of each, rising ·
//   written, missed, inode: as above
// Version 3 of R5 had no `ragged`, and what was staged lay in one unit: stripe u32, at u32 (in the
// unit), bytes u32, two crcs u32, unit u8, slot u8. Version 2 had no `staged`. Version 1 had one
// number for all columns that lacked nothing, all_durable u64, and where `durable` is now, that and
// (R5) missing_durable u64, of the missing column; in `lacking` (MR) each column was followed by
// its own.
struct ColumnRecord {
  enum class Kind : uint8_t { kRaid5, kMirror };
  // A store's attributes have 4,096; what a column keeps beside its record takes 11 of them.
  static constexpr size_t kBytesMax = 4085;
  // With up to 13 columns this and the most runs of stripes fit together, with nothing staged.
  static constexpr size_t kInodeBytesMax = 2400;
  static constexpr size_t kWrittenRunsMax = 96, kMissedRunsMax = 32, kDoubtfulRunsMax = 64;
  static constexpr size_t kRunBytes = 8;
  static constexpr uint64_t kStripesMax = UINT32_MAX;
  static constexpr size_t kCopiesLeast = 2, kCopiesMost = 8;  // columns of a mirrored file
  static constexpr size_t kSlots = 32;                        // of staged writes
  static constexpr uint64_t kStagedBytesMost = 32 << 10;

  // A write to one stripe of a RAID-5 file whose new bytes, and those of the parity, are durable
  // beside their places: those of each unit in a slot of the unit's column, and those of the parity
  // in the slot of the same number of the parity's.
  struct Staged {
    uint64_t stripe = 0;
    uint64_t at = 0, bytes = 0;  // in the stripe's data
    size_t slot = 0;
    // CRC-32C of what is in the slots: of each unit's bytes, in order, and of the parity's.
    std::vector<uint32_t> crcs;

    friend bool operator==(const Staged&, const Staged&) = default;
  };

  Kind kind = Kind::kRaid5;
  size_t columns = 0;
  size_t column = 0;  // which of them has this record
  uint64_t unit_bytes = 0;
  uint64_t sequence = 0;  // of this record
  // By which opening of the file it was written: the column's server knows it, and it is not among
  // the bytes. 0: not told, as of columns that are no server's. An opening that had got no further
  // than to one column, which was away for the next one, may have counted further than that one.
  Version opening;
  // Of each column: the sequence of the newest record that it is known to have durable; 0: none. A
  // column that comes with an older one has lost what it had.
  std::vector<uint64_t> durable;
  uint64_t size = 0;              // of the file
  Version changed;                // size or inode, last
  bool ragged = false;            // of a RAID-5 file: its last stripe has to be cut off at its end
  std::optional<size_t> missing;  // the column that lacks something
  std::set<size_t> lacking;       // of a mirrored file: the columns that do
  // Since they were last flushed: their parity may not be that of their data, their copies may not
  // be the same.
  StripeSet written;
  StripeSet missed;    // what a missing column has of them is old; may have more than that
  StripeSet doubtful;  // what the missing column has of them nobody else knows
  // In the order in which they were made; where they lie in one place, the later one counts.
  std::vector<Staged> staged;
  std::string inode;  // the file system's

  // Records of one file rise in it as they are made.
  std::pair<Version, uint64_t> Order() const { return {opening, sequence}; }
  // REQUIRES: `durable` has a number of each column; Fits().
  std::string Encode() const;
  // Whether nothing is over its limit, nor all together, also when it grows by `spare` bytes.
  bool Fits(size_t spare = 0) const;
  // Bytes to be kept free for what a column misses that fails.
  size_t SpareForMissed() const { return missed.empty() ? kMissedRunsMax * kRunBytes : 0; }
  // How many stripes a file of that size takes; 0 where the record is none that Decode() takes.
  uint64_t Stripes() const;
  // Errors: kDataLoss - it is no record, or a damaged one; kFailedPrecondition - of a later
  // version.
  static absl::StatusOr<ColumnRecord> Decode(std::string_view bytes);

  friend bool operator==(const ColumnRecord&, const ColumnRecord&) = default;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_COLUMN_RECORD_H_
