#include "apps/multiphase/multiphase.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <set>
#include <string>

#include "objfs/fs/testing/file_system_world.h"

namespace abacus::apps {
namespace {

using objfs::FileHandle;
using objfs::FileSystem;
using objfs::testing::FileSystemWorld;
using ::testing::HasSubstr;

const objfs::Caller kOwner;
constexpr char kCached[] = "cache(block=8 KiB,ahead=0 B,through=on)/isolation/storage";

class MultiphaseTest : public ::testing::Test {
 protected:
  // The table of `client`, which makes it where it is not there.
  RecordTable Table(FileSystem& files, const TableShape& shape) {
    const auto made = files.Create(kOwner, files.root(), "table", S_IFREG | 0644, O_RDWR, kCached);
    FileHandle handle = 0;
    if (made.ok()) {
      handle = made->handle;
    } else {
      handle = files.Open(kOwner, files.Lookup(kOwner, files.root(), "table")->id, O_RDWR).value();
    }
    return RecordTable::Over(files, handle, shape).value();
  }
  static void Fill(RecordTable& table, uint64_t records) {
    for (uint64_t i = 0; i < records; ++i) ASSERT_TRUE(table.Insert(i, 0).ok());
  }

  FileSystemWorld world_{3};
};

TEST_F(MultiphaseTest, EachPhaseDoesItsOperationsAndScansFindWhatWasInserted) {
  const auto files = world_.Client(1, kCached);
  RecordTable table = Table(*files, {.records = 64});
  Fill(table, 64);
  uint64_t done = 0;
  const auto results = RunPhases(table,
                                 {{Phase::Kind::kInsert, 100},
                                  {Phase::Kind::kScan, 50},
                                  {Phase::Kind::kInsert, 20},
                                  {Phase::Kind::kScan, 200}},
                                 7, [&] { ++done; });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->size(), 4u);
  EXPECT_EQ(done, 370u);
}

TEST_F(MultiphaseTest, ARecordThatIsNotWhatWasInsertedLastIsAnError) {
  const auto files = world_.Client(1, kCached), others = world_.Client(2, kCached);
  RecordTable table = Table(*files, {.records = 1});
  RecordTable others_table = Table(*others, {.records = 1});
  uint64_t done = 0;
  const auto results =
      RunPhases(table, {{Phase::Kind::kInsert, 1}, {Phase::Kind::kScan, 1}}, 7, [&] {
        if (++done == 1) {
          EXPECT_TRUE(others_table.Insert(0, 99).ok());
        }
      });
  EXPECT_TRUE(absl::IsDataLoss(results.status())) << results.status();
  EXPECT_THAT(std::string(results.status().message()), HasSubstr("record 0"));
}

TEST_F(MultiphaseTest, AUserOfSeveralWorksOnItsOwnRecordsOnly) {
  const auto files = world_.Client(1, kCached);
  const RecordTable table = Table(*files, {.records = 11, .first = 2, .step = 4});
  std::mt19937_64 random(7);
  std::set<uint64_t> seen;
  for (int i = 0; i < 100; ++i) seen.insert(table.RandomRecord(random));
  EXPECT_EQ(seen, (std::set<uint64_t>{2, 6, 10}));
  EXPECT_TRUE(
      absl::IsInvalidArgument(RecordTable::Over(*files, 1, {.records = 2, .first = 2}).status()));
}

}  // namespace
}  // namespace abacus::apps
