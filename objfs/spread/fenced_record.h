#ifndef ABACUS_OBJFS_SPREAD_FENCED_RECORD_H_
#define ABACUS_OBJFS_SPREAD_FENCED_RECORD_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "objfs/layer/version.h"

namespace abacus::objfs {

// What a server keeps as a column's attributes: the record of the layer above the column, and by
// which opening it was written. So a server that was started again knows whom to refuse, without
// one sync more: what an opening changes of a column it tells in a record there first, so that who
// wrote no record has nothing yet that an earlier one could destroy.
//
// The bytes, little-endian; a change of their form is a new version, and old ones stay readable:
//   "CF" · version u8 (1) · opening u64 · the record, up to the end
// What does not begin with "CF" is a record of an earlier build, which told no opening.
struct FencedRecord {
  // More than the record has.
  static constexpr size_t kBytesMore = 2 + 1 + 8;

  Version opening;  // 0: not told
  std::string record;

  std::string Encode() const;
  // Errors: kDataLoss - cut off, or damaged; kFailedPrecondition - of a later version.
  static absl::StatusOr<FencedRecord> Decode(std::string_view bytes);

  friend bool operator==(const FencedRecord&, const FencedRecord&) = default;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_FENCED_RECORD_H_
