#include "apps/column_aggregate/column_aggregate.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "apps/testing/file_at_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace abacus::apps {
namespace {

using ::testing::HasSubstr;

class ColumnAggregateTest : public testing::FileAtServer<ColumnAggregate> {
 protected:
  // What is wrong with a table.
  std::string ErrorOf(const AggregateOptions& options, std::string_view table) {
    const auto last = ReadAll(Make(options), Store(table), false);
    EXPECT_EQ(last.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(last.status().message());
  }
};

TEST_F(ColumnAggregateTest, AddsTheSameUpWhenItMovesBetweenAllBlocks) {
  const char* const kRegions[] = {"north", "south", "east", "west"};
  std::mt19937 random(5);
  std::string table = "region,day,turnover\n";
  Aggregate expected;
  for (int row = 0; row < 1000; ++row) {
    const std::string region = kRegions[random() % 4];
    const double turnover = static_cast<double>(random() % 20'000) / 100 - 50;
    absl::StrAppend(&table, region, ",", row, ",", turnover, row % 3 == 0 ? "\r\n" : "\n");
    if (region != "north") continue;
    expected.least = expected.rows == 0 ? turnover : std::min(expected.least, turnover);
    expected.most = expected.rows == 0 ? turnover : std::max(expected.most, turnover);
    expected.sum += turnover;
    ++expected.rows;
  }
  table += "north,1000,1.5";  // without a newline
  expected.sum += 1.5;
  ++expected.rows;
  ASSERT_GT(expected.rows, 200u);

  const objfs::Subgraph file = Store(table);
  for (const uint64_t read_bytes : {7, 100, 65536}) {
    const AggregateOptions options{.read_bytes = read_bytes,
                                   .skip_lines = 1,
                                   .where_column = 1,
                                   .where_value = "north",
                                   .value_column = 3};
    for (const bool moving : {false, true}) {
      const auto last = ReadAll(Make(options), file, moving && read_bytes == 100);
      ASSERT_TRUE(last.ok()) << last.status();
      EXPECT_EQ(last->so_far.rows, expected.rows);
      EXPECT_DOUBLE_EQ(last->so_far.sum, expected.sum);
      EXPECT_DOUBLE_EQ(last->so_far.least, expected.least);
      EXPECT_DOUBLE_EQ(last->so_far.most, expected.most);
      EXPECT_EQ(last->offset, table.size());
    }
  }
}

TEST_F(ColumnAggregateTest, AllRowsCountWhereNothingIsAskedOfThem) {
  const auto last = ReadAll(Make(AggregateOptions{.separator = " "}), Store("3 x\n-1 y\n"), false);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->so_far.rows, 2u);
  EXPECT_EQ(last->so_far.sum, 2);
  EXPECT_EQ(last->so_far.least, -1);
  EXPECT_EQ(last->so_far.most, 3);
}

TEST_F(ColumnAggregateTest, MistakesOfATableAreNamedWithTheirLine) {
  EXPECT_EQ(ErrorOf({}, "1\n2,b\nthree\n4\n"), "line 3: column 1 is 'three' and no number");
  EXPECT_EQ(ErrorOf({.value_column = 2}, "1,1\n2\n"), "line 2: it has no column 2");
  EXPECT_EQ(ErrorOf({.where_column = 4}, "1,2,3\n"), "line 1: it has no column 4");
  EXPECT_THAT(ErrorOf({}, "1\n" + std::string(ColumnAggregate::kLineBytesMax + 1, '1')),
              HasSubstr("line 2: it is longer than 1048576 bytes"));
}

TEST_F(ColumnAggregateTest, AfterAMistakeItDoesNotGoOn) {
  const objfs::Subgraph file = Store("1\nx\n3\n4\n5\n");
  const auto reader = Make(AggregateOptions{.read_bytes = 4});
  for (int i = 0; i < 3; ++i) {
    const auto chunk = reader->Next(file);
    EXPECT_EQ(std::string(chunk.status().message()), "line 2: column 1 is 'x' and no number");
    ASSERT_TRUE(
        cluster_->Move(reader.rid(), i % 2 == 0 ? kClient : kServer, i % 2 == 0 ? kServer : kClient)
            .ok());
  }
}

TEST_F(ColumnAggregateTest, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [this](const AggregateOptions& options) {
    return std::string(Refused(options).message());
  };
  EXPECT_THAT(refused({.read_bytes = 0}), HasSubstr("read_bytes is 0"));
  EXPECT_THAT(refused({.separator = ""}), HasSubstr("must be one character"));
  EXPECT_THAT(refused({.separator = "\n"}), HasSubstr("must be one character"));
  EXPECT_THAT(refused({.value_column = 0}), HasSubstr("counted from 1"));
}

}  // namespace
}  // namespace abacus::apps
