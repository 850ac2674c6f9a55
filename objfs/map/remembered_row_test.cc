#include "objfs/map/remembered_row.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/map/testing/fake_map.h"
#include "objfs/volume/server_list.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::MutexLock;
using runtime::testing::Eventually;
using testing::FakeMap;
using ::testing::HasSubstr;

RememberedRow Sample() {
  return {.row = {.key = 0xabc,
                  .epoch = 7,
                  .primary = 1,
                  .servers = {"127.0.0.1:7070", "s2:7070", "s3:7070"},
                  .copies = {{0, false}, {1, true}},
                  .former = {}},
          .revision = 12};
}

// What is on disks must be read by every later build.
TEST(RememberedRowTest, TheTextIsThatOfVersionOne) {
  EXPECT_EQ(Sample().Encode(),
            "abacus remembered row 1\nrevision 12\n"
            "abacus volume map 1\nkey 0000000000000abc\nepoch 7\nprimary 1\ncopy 0 behind\n"
            "copy 1 current\nserver 127.0.0.1:7070\nserver s2:7070\nserver s3:7070\nend\n"
            "crc 5274e12c\n");
  EXPECT_EQ(*RememberedRow::Decode(Sample().Encode()), Sample());
}

TEST(RememberedRowTest, WhatIsCutOffLongerOrDamagedInAnyByteIsRefused) {
  const std::string text = Sample().Encode();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(RememberedRow::Decode(text.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(RememberedRow::Decode(text + "\n").ok());
  EXPECT_FALSE(RememberedRow::Decode(text + text).ok());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      EXPECT_FALSE(RememberedRow::Decode(other).ok()) << i << " " << bit;
    }
  }
  std::string later = text;
  later.replace(later.find(" 1\n"), 3, " 2\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(RememberedRow::Decode(later).status()));
}

class RowMemoryTest : public ::testing::Test {
 protected:
  RowMemoryTest() {
    std::filesystem::remove(path_);
    {
      MutexLock lock(map_->mutex);
      map_->row = testing::RowOfTwo();
    }
    keeper_ = std::make_unique<MapKeeper>(std::make_unique<FakeMap>(map_), LeaseOptions(), 0,
                                          testing::HostAlone());
  }
  ~RowMemoryTest() override { std::filesystem::remove(path_); }
  void CallCurrent() {
    ASSERT_TRUE(keeper_
                    ->Edit([](VolumeRow& row) {
                      row.SetCurrent(1, true);
                      return absl::OkStatus();
                    })
                    .ok());
  }
  void Remember(const RememberedRow& row) { ASSERT_TRUE(SaveDurably(path_, row.Encode()).ok()); }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/", getpid(), ".",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".row");
  const std::shared_ptr<FakeMap::State> map_ = std::make_shared<FakeMap::State>();
  std::unique_ptr<MapKeeper> keeper_;
};

TEST_F(RowMemoryTest, HasTheRowThatTheMapHasAlsoInAnotherProcess) {
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  RowMemory memory(path_, 1);
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  const auto first = *RowMemory(path_, 1).Get();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->row, keeper_->Get().row);
  EXPECT_EQ(first->revision, keeper_->Get().revision);
  CallCurrent();
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  EXPECT_TRUE((*memory.Get())->row.IsCurrent(1));
  EXPECT_FALSE(RowMemory(path_, 2).Get()->has_value()) << "another volume had that name";
}

TEST_F(RowMemoryTest, WritesNothingThatIsThere) {
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  RowMemory memory(path_, 1);
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  std::filesystem::remove(path_);
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(RowMemoryTest, AMapThatWasSetBackDoesNotTakeALaterEpochAway) {
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  RememberedRow later = Sample();
  later.row.key = 1;
  Remember(later);
  RowMemory memory(path_, 1);
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  EXPECT_EQ(**memory.Get(), later);
}

TEST_F(RowMemoryTest, WhatIsDamagedIsToldAndWrittenAnew) {
  std::ofstream(path_) << "abacus remembered row 1\n";
  RowMemory memory(path_, 1);
  EXPECT_TRUE(absl::IsDataLoss(memory.Get().status()));
  EXPECT_THAT(std::string(memory.Get().status().message()), HasSubstr(path_));
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  EXPECT_TRUE(memory.Get()->has_value());
}

TEST_F(RowMemoryTest, WhatCannotBeWrittenIsAnError) {
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  RowMemory memory(path_ + "/nowhere", 1);
  EXPECT_THAT(memory.Follow(*keeper_).ToString(), HasSubstr("cannot be remembered"));
}

TEST_F(RowMemoryTest, WhatIsForgottenStaysSo) {
  ASSERT_TRUE(Eventually([&] { return keeper_->MayServe(); }));
  RowMemory memory(path_, 1);
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  memory.Forget();
  CallCurrent();  // another row
  ASSERT_TRUE(memory.Follow(*keeper_).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace abacus::objfs
