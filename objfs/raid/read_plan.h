#ifndef ABACUS_OBJFS_RAID_READ_PLAN_H_
#define ABACUS_OBJFS_RAID_READ_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace abacus::objfs {

// Bytes of a column.
struct ColumnRead {
  size_t column = 0;
  uint64_t offset = 0, bytes = 0;
  friend bool operator==(const ColumnRead&, const ColumnRead&) = default;
};

// What is read of columns to have pieces of a file, each of which is the XOR of some bytes there:
// of one run of them where its column has it, of several where it is computed from the others.
// Thread-safety: immutable.
struct ReadPlan {
  // Where in which of `reads`.
  struct Source {
    size_t read = 0;
    uint64_t at = 0;
    friend bool operator==(const Source&, const Source&) = default;
  };

  // `pieces`: of each what it is the XOR of, as many bytes each; nothing: the piece is not to be
  // had so. What touches or overlaps in a column is one read, and is read once.
  static ReadPlan Of(const std::vector<std::vector<ColumnRead>>& pieces);
  // `reads` in their order, those of a column together.
  std::vector<std::vector<ColumnRead>> ByColumn() const;

  std::vector<ColumnRead> reads;             // by column and offset; they do not touch
  std::vector<std::vector<Source>> sources;  // of each piece, in the order it was given in
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_READ_PLAN_H_
