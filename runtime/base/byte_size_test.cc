#include "runtime/base/byte_size.h"

#include <optional>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

TEST(ByteSizeTest, SizesAreWholeNumbersOfBinaryUnits) {
  EXPECT_EQ(ParseBytes("0 B"), 0u);
  EXPECT_EQ(ParseBytes("64 KiB"), 65536u);
  EXPECT_EQ(ParseBytes("64KiB"), 65536u);
  EXPECT_EQ(ParseBytes("3 TiB"), uint64_t{3} << 40);
  for (const char* text : {"", "64", "KiB", "-1 B", "64 KB", "64 kib", "1.5 MiB", "64  KiB",
                           "64 KiB ", " 64 KiB", "99999999999999999999 B", "16777217 TiB"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(ByteSizeTest, WhatIsPrintedReadsBack) {
  EXPECT_EQ(FormatBytes(65536), "64 KiB");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1536},
                               uint64_t{8} << 20, uint64_t{5} << 40, UINT64_MAX}) {
    EXPECT_EQ(ParseBytes(FormatBytes(bytes)), bytes);
  }
}

}  // namespace
}  // namespace abacus::runtime
