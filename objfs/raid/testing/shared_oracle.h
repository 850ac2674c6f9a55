#ifndef ABACUS_OBJFS_RAID_TESTING_SHARED_ORACLE_H_
#define ABACUS_OBJFS_RAID_TESTING_SHARED_ORACLE_H_

// What blocks of shared stripes may be: each write has a value of its own for each block, so that
// whoever sees one knows whose it is.

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace abacus::objfs::testing {

// Checked, of a row of two data blocks: each is one that was written there; a write of both is seen
// in both, but where a later one came over it; what was acknowledged is there, but where a later
// one came over it, and is later than all that was acknowledged when it began.
class SharedOracle {
 public:
  static constexpr size_t kCells = 2;  // data blocks of a row

  // Writes are one after the other in this order: what is written alone by an opening, and then
  // what is written by groups of it, by their identifiers.
  struct Order {
    uint64_t opening = 0;
    bool is_group = false;
    uint64_t number = 0;
    friend auto operator<=>(const Order&, const Order&) = default;
  };

  explicit SharedOracle(uint64_t rows) : acknowledged_(rows) {}

  // Returns its number.
  size_t Begin(uint64_t row, std::vector<size_t> cells) {
    Write write{.row = row, .cells = std::move(cells), .order = {}, .after = {}};
    for (const size_t cell : write.cells) {
      write.after = std::max(write.after, acknowledged_[row][cell]);
    }
    writes_.push_back(std::move(write));
    const size_t number = writes_.size() - 1;
    for (const size_t cell : writes_[number].cells) owners_[ValueOf(number, cell)] = {number, cell};
    return number;
  }
  // Never 0, and no XOR of others.
  static uint64_t ValueOf(size_t write, size_t cell) {
    uint64_t z = (write * kCells + cell + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) | 1;
  }
  // Before any of it can be seen.
  void SetOrder(size_t write, Order order) { writes_[write].order = order; }
  void Acknowledged(size_t number) {
    const Write& write = writes_[number];
    if (!(write.after < write.order)) {
      Break(absl::StrCat("lost: write ", number, " is acknowledged, and under an earlier one"));
    }
    for (const size_t cell : write.cells) {
      Order& newest = acknowledged_[write.row][cell];
      newest = std::max(newest, write.order);
    }
  }

  // Where nothing of this row is pending.
  void CheckRow(uint64_t row, const std::array<uint64_t, kCells>& values) {
    std::array<const Write*, kCells> seen = {};
    for (size_t cell = 0; cell < kCells; ++cell) {
      if (values[cell] != 0) {
        const auto owner = owners_.find(values[cell]);
        if (owner == owners_.end() || owner->second.second != cell ||
            writes_[owner->second.first].row != row) {
          return Break(absl::StrCat("damaged: nobody wrote what is in row ", row));
        }
        seen[cell] = &writes_[owner->second.first];
      }
      const Order order = seen[cell] == nullptr ? Order() : seen[cell]->order;
      if (order < acknowledged_[row][cell]) {
        return Break(absl::StrCat("lost: an acknowledged write to row ", row, " is gone"));
      }
    }
    for (size_t cell = 0; cell < kCells; ++cell) {
      const Write* const whole = seen[cell];
      if (whole == nullptr || whole->cells.size() < kCells) continue;
      const Write* const other = seen[1 - cell];
      if (other == whole || (other != nullptr && whole->order < other->order)) continue;
      return Break(absl::StrCat("atomic: half of a write to row ", row));
    }
  }

  void Break(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }
  // The first promise that was broken, and how; empty: none.
  const std::string& broken() const { return broken_; }

 private:
  struct Write {
    uint64_t row = 0;
    std::vector<size_t> cells;
    Order order;
    Order after;  // the latest one that was acknowledged when it began
  };
  std::vector<Write> writes_;
  std::map<uint64_t, std::pair<size_t, size_t>> owners_;  // of values: the write and the cell
  std::vector<std::array<Order, kCells>> acknowledged_;   // the latest, by row
  std::string broken_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_SHARED_ORACLE_H_
