#ifndef ABACUS_OBJFS_RAID_TESTING_STORED_STRIPES_H_
#define ABACUS_OBJFS_RAID_TESTING_STORED_STRIPES_H_

// A striped file as its columns' stores have it, without any layer.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/raid/striping.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs::testing {

// The first bytes of an object, and zeros from where it ends on.
inline std::string StoredBytes(ObjectStore& store, ObjectId id, uint64_t bytes) {
  std::string text(bytes, '\0');
  const auto read = store.Read(id, 0, std::span(text.data(), text.size()));
  EXPECT_TRUE(read.ok()) << read.status();
  if (!read.ok()) return text;
  std::fill(text.begin() + static_cast<int64_t>(*read), text.end(), '\0');
  return text;
}

// `columns`: all bytes of each, of so many stripes.
inline void ExpectParityOf(const Striping& striping, const std::vector<std::string>& columns) {
  const uint64_t bytes = columns.at(0).size();
  for (uint64_t at = 0; at < bytes; ++at) {
    char sum = 0;
    for (const std::string& column : columns) sum = static_cast<char>(sum ^ column[at]);
    ASSERT_EQ(sum, 0) << "parity of stripe " << at / striping.unit_bytes() << " is wrong at "
                      << at % striping.unit_bytes();
  }
}

// The file that they have, with what lies behind its end in the last stripe.
inline std::string FileOf(const Striping& striping, const std::vector<std::string>& columns) {
  const uint64_t stripes = columns.at(0).size() / striping.unit_bytes();
  std::string file;
  for (const Striping::Piece& piece : striping.Pieces(0, stripes * striping.stripe_bytes())) {
    file += columns[striping.ColumnOf(piece.stripe, piece.unit)].substr(
        striping.ColumnOffsetOf(piece.stripe) + piece.at, piece.bytes);
  }
  return file;
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_STORED_STRIPES_H_
