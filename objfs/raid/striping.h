#ifndef ABACUS_OBJFS_RAID_STRIPING_H_
#define ABACUS_OBJFS_RAID_STRIPING_H_

// Where the bytes of a striped file lie: arithmetic only.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace abacus::objfs {

// A file over columns: each stripe has one unit in each column, at the same offset in all of them;
// one unit is parity, in a column that goes one to the left with each stripe, and the data units
// begin behind it (left-symmetric), so that any `columns` units of data in a row are in all
// columns.
//
//   columns 4:   stripe 0   0  1  2  P        a number: the unit of the file's data
//                stripe 1   4  5  P  3
//                stripe 2   8  P  6  7
//                stripe 3   P  9 10 11
//
// Thread-safety: immutable. Source: Holland and Gibson, "Parity Declustering", 1992, for the name.
class Striping {
 public:
  static constexpr size_t kColumnsLeast = 3, kColumnsMost = 17;
  // What the store writes as one: a unit that was torn inside a block would be damaged.
  static constexpr uint64_t kStoreBlockBytes = 8 << 10;
  static constexpr uint64_t kUnitBytesMost = 1 << 20;

  // Errors: kInvalidArgument - columns out of range; units that are no power of two, or out of it.
  static absl::StatusOr<Striping> Make(size_t columns, uint64_t unit_bytes);

  size_t columns() const { return columns_; }
  size_t data_units() const { return columns_ - 1; }
  uint64_t unit_bytes() const { return unit_bytes_; }
  uint64_t stripe_bytes() const { return unit_bytes_ * data_units(); }

  uint64_t StripeOf(uint64_t offset) const { return offset / stripe_bytes(); }
  // How many stripes a file of that size takes.
  uint64_t Stripes(uint64_t size) const {
    return size / stripe_bytes() + (size % stripe_bytes() > 0);
  }
  uint64_t OffsetOf(uint64_t stripe) const { return stripe * stripe_bytes(); }
  uint64_t ColumnOffsetOf(uint64_t stripe) const { return stripe * unit_bytes_; }

  size_t ParityColumn(uint64_t stripe) const { return columns_ - 1 - stripe % columns_; }
  // REQUIRES: unit < data_units().
  size_t ColumnOf(uint64_t stripe, size_t unit) const {
    return (ParityColumn(stripe) + 1 + unit) % columns_;
  }
  // Which data unit of the stripe the column has; data_units() where it has the parity.
  size_t UnitIn(uint64_t stripe, size_t column) const {
    return (column + columns_ - ParityColumn(stripe) - 1) % columns_;
  }

  // A part of one data unit.
  struct Piece {
    uint64_t stripe = 0;
    size_t unit = 0;
    uint64_t at = 0;     // within the unit
    uint64_t bytes = 0;  // not 0
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  // The pieces of `bytes` bytes from `offset`, in the file's order.
  std::vector<Piece> Pieces(uint64_t offset, uint64_t bytes) const;
  // Where a piece begins in the file; the inverse of Pieces().
  uint64_t FileOffset(const Piece& piece) const {
    return OffsetOf(piece.stripe) + piece.unit * unit_bytes_ + piece.at;
  }

  friend bool operator==(const Striping&, const Striping&) = default;

 private:
  Striping(size_t columns, uint64_t unit_bytes) : columns_(columns), unit_bytes_(unit_bytes) {}

  size_t columns_;
  uint64_t unit_bytes_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_STRIPING_H_
