#include "objfs/raid/striping.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace abacus::objfs {

absl::StatusOr<Striping> Striping::Make(size_t columns, uint64_t unit_bytes) {
  if (columns < kColumnsLeast || columns > kColumnsMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stripe over ", columns, " columns: ", kColumnsLeast, " to ", kColumnsMost));
  }
  if (!std::has_single_bit(unit_bytes) || unit_bytes < kStoreBlockBytes ||
      unit_bytes > kUnitBytesMost) {
    return absl::InvalidArgumentError(absl::StrCat("units of ", unit_bytes,
                                                   " bytes: a power of two from ", kStoreBlockBytes,
                                                   " to ", kUnitBytesMost));
  }
  return Striping(columns, unit_bytes);
}

std::vector<Striping::Piece> Striping::Pieces(uint64_t offset, uint64_t bytes) const {
  std::vector<Piece> pieces;
  while (bytes > 0) {
    const uint64_t in_stripe = offset % stripe_bytes(), at = in_stripe % unit_bytes_;
    const uint64_t part = std::min(bytes, unit_bytes_ - at);
    pieces.push_back({StripeOf(offset), static_cast<size_t>(in_stripe / unit_bytes_), at, part});
    offset += part;
    bytes -= part;
  }
  return pieces;
}

}  // namespace abacus::objfs
