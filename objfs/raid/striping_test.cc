#include "objfs/raid/striping.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kUnit = 8 << 10;

TEST(StripingTest, IsLeftSymmetric) {
  const std::vector<std::vector<std::string>> tables[] = {
      {{"0", "1", "P"}, {"3", "P", "2"}, {"P", "4", "5"}, {"6", "7", "P"}},
      {{"0", "1", "2", "P"},
       {"4", "5", "P", "3"},
       {"8", "P", "6", "7"},
       {"P", "9", "10", "11"},
       {"12", "13", "14", "P"}},
  };
  for (const auto& table : tables) {
    const auto striping = Striping::Make(table[0].size(), kUnit);
    ASSERT_TRUE(striping.ok());
    for (uint64_t stripe = 0; stripe < table.size(); ++stripe) {
      for (size_t column = 0; column < table[stripe].size(); ++column) {
        const size_t unit = striping->UnitIn(stripe, column);
        const std::string found = unit == striping->data_units()
                                      ? "P"
                                      : absl::StrCat(stripe * striping->data_units() + unit);
        EXPECT_EQ(found, table[stripe][column]) << "stripe " << stripe << ", column " << column;
      }
    }
  }
}

TEST(StripingTest, PiecesCoverTheRangeAndLeadBack) {
  std::mt19937_64 random(5);
  for (size_t columns = Striping::kColumnsLeast; columns <= Striping::kColumnsMost; ++columns) {
    for (int i = 0; i < 300; ++i) {
      const uint64_t unit = kUnit << random() % 4;
      const Striping striping = *Striping::Make(columns, unit);
      const uint64_t offset = i % 2 == 0 ? random() % (uint64_t{1} << 61) : random() % (8 * unit);
      const uint64_t bytes = random() % (3 * striping.stripe_bytes());
      uint64_t next = offset;
      for (const Striping::Piece& piece : striping.Pieces(offset, bytes)) {
        ASSERT_GT(piece.bytes, 0u);
        ASSERT_LE(piece.at + piece.bytes, unit);
        ASSERT_LT(piece.unit, striping.data_units());
        ASSERT_EQ(striping.FileOffset(piece), next);
        ASSERT_EQ(striping.StripeOf(next), piece.stripe);
        const size_t column = striping.ColumnOf(piece.stripe, piece.unit);
        ASSERT_NE(column, striping.ParityColumn(piece.stripe));
        ASSERT_EQ(striping.UnitIn(piece.stripe, column), piece.unit);
        next += piece.bytes;
      }
      ASSERT_EQ(next, offset + bytes);
    }
  }
}

TEST(StripingTest, UnitsInARowAreInAllColumns) {
  const Striping striping = *Striping::Make(5, kUnit);
  for (uint64_t first = 0; first < 40; ++first) {
    std::set<size_t> columns;
    for (const auto& piece : striping.Pieces(first * kUnit, 5 * kUnit)) {
      columns.insert(striping.ColumnOf(piece.stripe, piece.unit));
    }
    EXPECT_EQ(columns.size(), 5u) << "from unit " << first;
  }
}

TEST(StripingTest, CountsStripes) {
  const Striping striping = *Striping::Make(5, 32 << 10);
  EXPECT_EQ(striping.stripe_bytes(), 128u << 10);
  EXPECT_EQ(striping.Stripes(0), 0u);
  EXPECT_EQ(striping.Stripes(1), 1u);
  EXPECT_EQ(striping.Stripes(128 << 10), 1u);
  EXPECT_EQ(striping.Stripes((128 << 10) + 1), 2u);
}

TEST(StripingTest, RefusesWhatCannotBe) {
  EXPECT_FALSE(Striping::Make(2, kUnit).ok());
  EXPECT_FALSE(Striping::Make(18, kUnit).ok());
  EXPECT_FALSE(Striping::Make(5, 4 << 10).ok());
  EXPECT_FALSE(Striping::Make(5, 24 << 10).ok());
  EXPECT_FALSE(Striping::Make(5, 2 << 20).ok());
  EXPECT_FALSE(Striping::Make(5, 0).ok());
  EXPECT_TRUE(Striping::Make(17, 1 << 20).ok());
}

}  // namespace
}  // namespace abacus::objfs
