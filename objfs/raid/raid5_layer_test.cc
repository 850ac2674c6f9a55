// The raid5 layer against a plain file in memory, with a column missing now and then.

#include "objfs/raid/raid5_layer.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/raid/testing/test_columns.h"
#include "objfs/store/local_disk.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::ColumnSwitch;
using testing::ExpectIs;
using testing::Noise;
using testing::Rot;
using testing::Step;
using testing::TestColumns;

void ExpectParity(TestColumns& columns, size_t size, uint64_t stripe_bytes) {
  const auto scrubbed = testing::ScrubAll(columns);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_TRUE(scrubbed->done);
  EXPECT_EQ(scrubbed->checked, (size + stripe_bytes - 1) / stripe_bytes);
  EXPECT_EQ(scrubbed->mismatched, 0u);
  EXPECT_EQ(scrubbed->repaired + scrubbed->damaged, 0u);
}

class Raid5ModelTest : public ::testing::TestWithParam<int> {};

TEST_P(Raid5ModelTest, IsItsModelWhicheverColumnIsMissing) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(100) + GetParam());
  std::mt19937 random(seed);
  const size_t count = GetParam() % 2 == 0 ? 4 : 3;
  TestColumns columns(count, "8 KiB");
  const uint64_t stripe_bytes = (count - 1) * 8192;
  std::string model;
  const int rounds = runtime::testing::kSanitized ? 3 : 10;
  for (int round = 0; round < rounds; ++round) {
    const size_t dead = random() % count;
    const bool replaced = random() % 3 == 0, restarts = random() % 2 == 0;
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", round ", round, ", column ", dead));
    for (int i = 0; i < 15; ++i) ASSERT_NO_FATAL_FAILURE(Step(columns, random, &model)) << i;
    columns.column(dead).dead = true;
    for (int i = 0; i < 15; ++i) ASSERT_NO_FATAL_FAILURE(Step(columns, random, &model)) << i;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    if (restarts || replaced) {
      ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
      replaced ? columns.Replace(dead) : columns.Restart();
      ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
      for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(Step(columns, random, &model)) << i;
    }
    if (random() % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(columns.Move());
    }
    columns.column(dead).dead = false;
    for (;;) {
      const auto progress = columns.raid()->Rebuild(0, 1 + random() % 8, columns.Now());
      ASSERT_TRUE(progress.ok()) << progress.status();
      EXPECT_EQ(progress->damaged + progress->doubtful, 0u);
      if (progress->left == 0) break;
      ASSERT_NO_FATAL_FAILURE(Step(columns, random, &model));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    ASSERT_NO_FATAL_FAILURE(ExpectParity(columns, model.size(), stripe_bytes));
    // Each other column's bytes are found again from the rest, the rebuilt one's among them.
    const size_t other = (dead + 1 + random() % (count - 1)) % count;
    columns.column(other).dead = true;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    columns.column(other).dead = false;
    ASSERT_TRUE(columns.RebuildAll().ok());
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Raid5ModelTest, ::testing::Range(0, 6));

class Raid5Test : public ::testing::Test {
 protected:
  static constexpr uint64_t kUnit = 32 << 10, kStripe = 4 * kUnit;
  void Fill(size_t stripes) {
    model_ = Noise(random_, stripes * kStripe);
    ASSERT_TRUE(columns_.top()->Write(0, Block::CopyOf(model_), columns_.Now()).ok());
    ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    columns_.ResetCounters();
  }
  // Once over all of a file, in as many steps as that takes.
  absl::StatusOr<RebuildProgress> RebuildPass(uint64_t stripes) {
    RebuildProgress all;
    do {
      const auto step = columns_.raid()->Rebuild(all.next, stripes, columns_.Now());
      if (!step.ok()) return step;
      all.next = step->next;
      all.left = step->left;
      all.rebuilt += step->rebuilt;
      all.damaged += step->damaged;
    } while (all.next != 0);
    return all;
  }
  void Write(uint64_t offset, size_t bytes) {
    const std::string text = Noise(random_, bytes);
    const absl::Status written = columns_.top()->Write(offset, Block::CopyOf(text), columns_.Now());
    ASSERT_TRUE(written.ok()) << written;
    model_.resize(std::max(model_.size(), offset + bytes));
    model_.replace(offset, bytes, text);
  }

  explicit Raid5Test(const std::string& journal = "on")
      : columns_(5, "32 KiB", {{"journal", journal}}) {}

  std::mt19937 random_{7};
  TestColumns columns_;
  std::string model_;
};

class Raid5InPlaceTest : public Raid5Test {
 protected:
  Raid5InPlaceTest() : Raid5Test("off") {}
};

TEST(Raid5CloseTest, WhatWasClosedIsWholeWhicheverColumnIsAwayWhenItIsOpenedAgain) {
  for (size_t dead = 0; dead < 3; ++dead) {
    SCOPED_TRACE(dead);
    TestColumns columns(3, "8 KiB");
    std::mt19937 random(static_cast<uint32_t>(dead));
    std::string model = Noise(random, 100'000);
    ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    columns.column(dead).dead = true;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    // Closed without the column, and opened with it there, which lacks what came since.
    const std::string more = Noise(random, 30'000);
    model.replace(20'000, more.size(), more);
    ASSERT_TRUE(columns.top()->Write(20'000, Block::CopyOf(more), columns.Now()).ok());
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    columns.column(dead).dead = false;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    const auto rebuilt = columns.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    ASSERT_NO_FATAL_FAILURE(ExpectParity(columns, model.size(), uint64_t{2} * 8192));
    // Where nothing was changed nothing is written.
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    columns.ResetCounters();
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    EXPECT_EQ(columns.Sum(&ColumnSwitch::writes), 0u);
  }
}

TEST_F(Raid5Test, ASmallWriteIsTwoReadsAndTwoWrites) {
  Fill(3);
  Write(kStripe + 4096, 4096);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), 2u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 2u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::read_bytes), 2 * 4096u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::written_bytes), 2 * 4096u);
  // What makes it durable, apart: a record of each of the two, and the bytes that it speaks of.
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::records), 2u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::staged), 2u);
}

// Of many without a flush one record is for all, at the begin.
TEST_F(Raid5InPlaceTest, ASmallWriteIsTwoReadsAndTwoWritesAndNothingElse) {
  Fill(3);
  Write(kStripe + 4096, 4096);
  columns_.ResetCounters();
  for (uint64_t i = 0; i < 8; ++i) Write(kStripe + (7 - i) * 4096, 4096);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), 8 * 2u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 8 * 2u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::records) + columns_.Sum(&ColumnSwitch::staged), 0u);
}

// Records are saved when the stripe is admitted and when it is flushed; in between, the bytes are.
// All that at the columns that are written.
TEST_F(Raid5InPlaceTest, OnlyTheColumnsThatAreWrittenAreAsked) {
  Fill(3);
  Write(kStripe + kUnit - 2048, 4096);  // two units and the parity
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::flushes), 3u);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::flushes), 3u + 3u + 3u);
  for (size_t i = 0; i < columns_.count(); ++i) {
    EXPECT_EQ(columns_.column(i).flushes, columns_.column(i).writes > 0 ? 3u : 0u) << i;
  }
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::flushes), 3u + 3u + 3u) << "nothing has changed";
}

// Each has a record before its first byte: by that it is known when it comes back without it.
TEST_F(Raid5Test, WhatComesBackEmptyIsKnownThoughOnlyTwoColumnsHadTheRecord) {
  constexpr uint64_t kSmallUnit = 8192;  // a stripe is written by units, one after the other
  for (size_t gone = 0; gone < 5; ++gone) {
    SCOPED_TRACE(absl::StrCat("column ", gone));
    TestColumns columns(5, "8 KiB", {{"gather", "off"}});
    std::mt19937 random(static_cast<uint32_t>(gone));
    const std::string model = Noise(random, 4 * kSmallUnit);
    for (uint64_t at = 0; at < model.size(); at += kSmallUnit) {
      const Block unit = Block::CopyOf(model.substr(at, kSmallUnit));
      ASSERT_TRUE(columns.top()->Write(at, unit, columns.Now()).ok());
    }
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.Replace(gone);
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    const auto rebuilt = columns.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    columns.column((gone + 1) % 5).dead = true;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
  }
}

// What has no room is asked for nothing that others are written with.
TEST_F(Raid5Test, AFullColumnHoldsUpNoWritesToOthers) {
  constexpr uint64_t kSmallUnit = 8192;
  constexpr size_t kFull = 2, kWrites = 20;
  TestColumns columns(5, "8 KiB", {{"gather", "off"}});
  std::mt19937 random(5);
  std::string model = Noise(random, kWrites * kSmallUnit);
  ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  columns.column(kFull).BeforeChange(
      [](LayerCall) { return absl::ResourceExhaustedError("the test has no room"); });
  size_t refused = 0;
  for (uint64_t at = 0; at < model.size(); at += kSmallUnit) {
    const std::string text = Noise(random, 100);
    const absl::Status written = columns.top()->Write(at, Block::CopyOf(text), columns.Now());
    if (written.ok()) {
      model.replace(at, text.size(), text);
      EXPECT_TRUE(columns.top()->Flush(columns.Now()).ok()) << at;
    } else {
      EXPECT_TRUE(absl::IsResourceExhausted(written)) << written;
      ++refused;
    }
  }
  EXPECT_EQ(refused, 2 * kWrites / 5) << "where it has the unit, and where it has the parity";
  columns.column(kFull).BeforeChange(nullptr);
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
}

// Of a small write: the old parity, what was there and what comes.
TEST_F(Raid5Test, ItsNodeIsToldOfEachParityWhereverItIs) {
  Fill(3);
  for (int i = 0; i < 2; ++i) {
    uint64_t before = columns_.parity_bytes();
    Write(kStripe + 4096, 4096);
    EXPECT_EQ(columns_.parity_bytes() - before, 3 * 4096u);
    before = columns_.parity_bytes();
    Write(0, kStripe);
    EXPECT_EQ(columns_.parity_bytes() - before, kStripe);
    columns_.column(0).dead = true;
    ExpectIs(columns_, model_);  // finds that the column is missing
    before = columns_.parity_bytes();
    ExpectIs(columns_, model_);
    EXPECT_EQ(columns_.parity_bytes() - before, 3 * 4 * kUnit) << "a unit of each stripe";
    columns_.column(0).dead = false;
    ASSERT_TRUE(columns_.RebuildAll().ok());
    ASSERT_NO_FATAL_FAILURE(columns_.Move());
  }
}

TEST_F(Raid5Test, WholeStripesAreWrittenWithoutReads) {
  Fill(3);
  Write(0, 2 * kStripe);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), 0u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 5u) << "one call to each column";
}

TEST_F(Raid5Test, MostOfAStripeIsWrittenByReadingTheRest) {
  Fill(3);
  Write(0, 3 * kUnit);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::read_bytes), kUnit);
}

// The parity of its stripes lies between what is wanted of a column.
TEST_F(Raid5Test, AReadOfManyStripesIsOneCallAColumn) {
  Fill(12);
  const auto read = columns_.top()->Read(kUnit / 2, 11 * kStripe, columns_.Now());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->bytes.view() == model_.substr(kUnit / 2, 11 * kStripe));
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::read_calls), 5u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::read_bytes), 11 * kStripe) << "and no parity";
}

TEST_F(Raid5Test, ADegradedReadOfAStripeReadsOnlyItsParityBesides) {
  Fill(1);
  columns_.column(0).dead = true;
  ExpectIs(columns_, model_);  // finds that the column is missing
  columns_.ResetCounters();
  ExpectIs(columns_, model_);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::read_bytes), 4 * kUnit);
}

TEST_F(Raid5Test, OnlyWhatWasMissedIsRebuilt) {
  Fill(20);
  columns_.column(2).dead = true;
  Write(3 * kStripe + 100, 100);
  Write(9 * kStripe, 2 * kStripe);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  columns_.Restart();
  columns_.column(2).dead = false;
  columns_.ResetCounters();
  const auto progress = columns_.RebuildAll();
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_LE(columns_.column(2).written_bytes, 3 * kUnit);
  ExpectIs(columns_, model_);
  ExpectParity(columns_, model_.size(), kStripe);
}

TEST_F(Raid5Test, ARebuildTakesRunsOfStripesInOneCallAColumn) {
  constexpr size_t kStripes = 36, kRuns = 5;  // of 256 KiB of a column
  Fill(kStripes);
  columns_.Replace(2);
  ASSERT_TRUE(columns_.top()->GetAttributes(columns_.Now()).ok());
  columns_.ResetCounters();
  const auto progress = columns_.RebuildAll(kStripes);
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), kRuns * 4);
  EXPECT_EQ(columns_.column(2).writes, kRuns);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), kRuns);
  columns_.column(0).dead = true;
  ExpectIs(columns_, model_);
}

// Of what is written while the next is read, and of what is not begun yet.
TEST_F(Raid5Test, ADamagedStripeKeepsNoneOfItsRunFromBeingRebuilt) {
  constexpr size_t kStripes = 24, kGone = 1;
  Fill(kStripes);
  columns_.Replace(kGone);
  columns_.Stop();
  const std::set<size_t> damaged = {3, 18};
  for (const size_t stripe : damaged) {
    const size_t other = Striping::Make(5, kUnit)->ColumnOf(stripe, 0);
    ASSERT_NE(other, kGone);
    ASSERT_TRUE(Rot(columns_, other, model_.substr(stripe * kStripe, 4096)));
  }
  columns_.Start();
  for (const uint64_t rebuilt : {kStripes - damaged.size(), size_t{0}}) {
    const auto pass = RebuildPass(kStripes);
    ASSERT_TRUE(pass.ok()) << pass.status();
    EXPECT_EQ(pass->rebuilt, rebuilt);
    EXPECT_EQ(pass->damaged, damaged.size());
    EXPECT_EQ(pass->left, damaged.size());
  }
  for (size_t stripe = 0; stripe < kStripes; ++stripe) {
    const auto read = columns_.top()->Read(stripe * kStripe, kStripe, columns_.Now());
    if (damaged.contains(stripe)) {
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status();
      continue;
    }
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->bytes.view() == model_.substr(stripe * kStripe, kStripe)) << stripe;
  }
}

// It goes for good, or has no room once.
TEST_F(Raid5Test, AColumnThatRefusesAPartOfARunIsRebuiltLater) {
  constexpr size_t kStripes = 30, kGone = 2;
  for (const bool goes : {true, false}) {
    for (const int refused : {0, 1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(goes, " ", refused));
      Fill(kStripes);
      columns_.Replace(kGone);
      int writes = 0;
      columns_.column(kGone).BeforeChange([&](LayerCall call) -> absl::Status {
        if (call != LayerCall::kWrite || writes++ != refused) return absl::OkStatus();
        columns_.column(kGone).dead = goes;
        return goes ? absl::UnavailableError("the test has the column gone")
                    : absl::ResourceExhaustedError("the test has no room");
      });
      const auto progress = columns_.RebuildAll(kStripes);
      EXPECT_EQ(progress.status().code(),
                goes ? absl::StatusCode::kUnavailable : absl::StatusCode::kResourceExhausted)
          << progress.status();
      ExpectIs(columns_, model_);
      columns_.column(kGone).BeforeChange(nullptr);
      columns_.column(kGone).dead = false;
      ASSERT_TRUE(columns_.RebuildAll(kStripes).ok());
      ExpectParity(columns_, model_.size(), kStripe);
      columns_.column(0).dead = true;
      ExpectIs(columns_, model_);
      columns_.column(0).dead = false;
      ASSERT_TRUE(columns_.RebuildAll(kStripes).ok());
    }
  }
}

TEST_F(Raid5Test, WhatAStepRebuiltIsDurableBeforeARecordSaysThatItIsThere) {
  constexpr size_t kSteps = 3, kStripes = 8 * kSteps, kGone = 2;
  Fill(kStripes);
  columns_.Replace(kGone);
  std::atomic<bool> dirty = false;
  std::atomic<int> flushed = 0;  // what was dirty
  columns_.column(kGone).BeforeChange([&](LayerCall call) {
    if (call == LayerCall::kWrite) dirty = true;
    if (call == LayerCall::kFlush) flushed += dirty.exchange(false);
    return absl::OkStatus();
  });
  std::atomic<int> records_of_dirty = 0;
  for (size_t other = 0; other < 5; ++other) {
    if (other == kGone) continue;
    columns_.column(other).BeforeChange([&](LayerCall call) {
      records_of_dirty += call == LayerCall::kSetInode && dirty;
      return absl::OkStatus();
    });
  }
  ASSERT_TRUE(columns_.RebuildAll(kStripes / kSteps).ok());
  EXPECT_GE(flushed, static_cast<int>(kSteps));
  EXPECT_EQ(records_of_dirty, 0);
  for (size_t column = 0; column < 5; ++column) columns_.column(column).BeforeChange(nullptr);
}

TEST_F(Raid5Test, ASecondMissingColumnIsUnavailableAndHarmsNothing) {
  Fill(4);
  columns_.column(1).dead = true;
  Write(100, 100);
  columns_.column(3).dead = true;
  EXPECT_TRUE(absl::IsUnavailable(columns_.top()->Read(0, 200000, columns_.Now()).status()));
  EXPECT_TRUE(
      absl::IsUnavailable(columns_.top()->Write(3 * kStripe, Block::CopyOf("x"), columns_.Now())));
  EXPECT_TRUE(absl::IsUnavailable(columns_.raid()->Rebuild(0, 1, columns_.Now()).status()));
  columns_.column(3).dead = false;
  ExpectIs(columns_, model_);
  columns_.column(1).dead = false;
  ASSERT_TRUE(columns_.RebuildAll().ok());
  ExpectIs(columns_, model_);
  ExpectParity(columns_, model_.size(), kStripe);
}

// Who opened the file without it, or read it, has it down as missing; nobody wrote.
TEST_F(Raid5Test, OfTwoThatDiedTheFirstIsEnoughWhereNothingWasWrittenWithoutIt) {
  for (size_t first = 0; first < 5; ++first) {
    SCOPED_TRACE(absl::StrCat("column ", first));
    const size_t second = (first + 2) % 5;
    TestColumns columns(5, "32 KiB");
    std::mt19937 random(static_cast<uint32_t>(first));
    std::string model = Noise(random, 4 * kStripe + 5000);
    ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.column(first).dead = true;
    columns.Restart();
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.column(second).dead = true;
    columns.Restart();
    EXPECT_TRUE(absl::IsUnavailable(columns.top()->Read(0, 1, columns.Now()).status()));
    columns.column(first).dead = false;
    columns.Restart();
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    const std::string text = Noise(random, kStripe + 300);
    model.replace(kStripe - 100, text.size(), text);
    ASSERT_TRUE(columns.top()->Write(kStripe - 100, Block::CopyOf(text), columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.Restart();
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    columns.column(second).dead = false;
    const auto rebuilt = columns.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    ASSERT_NO_FATAL_FAILURE(ExpectParity(columns, model.size(), kStripe));
    columns.column(first).dead = true;
    columns.Restart();
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
  }
}

TEST_F(Raid5Test, OfTwoThatDiedTheFirstIsNotEnoughWhereSomethingWasWrittenWithoutIt) {
  Fill(4);
  columns_.column(1).dead = true;
  Write(kUnit + 100, 100);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  columns_.column(3).dead = true;
  columns_.Restart();
  columns_.column(1).dead = false;
  columns_.Restart();
  EXPECT_TRUE(absl::IsUnavailable(columns_.top()->Read(0, 1, columns_.Now()).status()));
  columns_.column(3).dead = false;
  columns_.Restart();
  ExpectIs(columns_, model_);
  ASSERT_TRUE(columns_.RebuildAll().ok());
  ExpectParity(columns_, model_.size(), kStripe);
}

// What it has behind the end is of before the file was cut off.
TEST_F(Raid5Test, OfTwoThatDiedTheFirstHasNothingBehindTheEnd) {
  Fill(4);
  columns_.column(1).dead = true;
  ASSERT_TRUE(columns_.top()->Truncate(2 * kStripe, columns_.Now()).ok());
  model_.resize(2 * kStripe);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  columns_.column(3).dead = true;
  columns_.column(1).dead = false;
  columns_.Restart();
  ExpectIs(columns_, model_);
  model_.resize(4 * kStripe);
  ASSERT_TRUE(columns_.top()->Truncate(4 * kStripe, columns_.Now()).ok());
  ExpectIs(columns_, model_);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  columns_.column(3).dead = false;
  ASSERT_TRUE(columns_.RebuildAll().ok());
  ExpectIs(columns_, model_);
  ExpectParity(columns_, model_.size(), kStripe);
}

// Its record would have it believed: the others know first that it lacks all.
TEST_F(Raid5Test, AColumnThatCameBackEmptyIsNotBelievedByTheFirstRecordOfItsRebuild) {
  for (size_t empty = 0; empty < 5; ++empty) {
    SCOPED_TRACE(absl::StrCat("column ", empty));
    TestColumns columns(5, "32 KiB");
    std::mt19937 random(static_cast<uint32_t>(empty));
    std::string model = Noise(random, 4 * kStripe);
    ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.Replace(empty);
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    // All others die with its first record under way.
    std::atomic<bool> had_one{false};
    columns.column(empty).BeforeChange([&](LayerCall call) {
      if (call == LayerCall::kSetInode && !had_one.exchange(true)) {
        for (size_t i = 0; i < columns.count(); ++i) columns.column(i).dead = i != empty;
      }
      return absl::OkStatus();
    });
    EXPECT_FALSE(columns.raid()->Rebuild(0, 1, columns.Now()).ok());
    ASSERT_TRUE(had_one);
    columns.column(empty).BeforeChange(nullptr);
    for (size_t i = 0; i < columns.count(); ++i) columns.column(i).dead = i == empty;
    columns.Restart();
    const std::string text = Noise(random, kStripe);
    model.replace(kStripe, text.size(), text);
    ASSERT_TRUE(columns.top()->Write(kStripe, Block::CopyOf(text), columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.column(empty).dead = false;
    columns.Restart();
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    const auto rebuilt = columns.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    ASSERT_NO_FATAL_FAILURE(ExpectParity(columns, model.size(), kStripe));
    columns.column((empty + 1) % 5).dead = true;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
  }
}

TEST_F(Raid5Test, WhatWasCutOffIsSoAfterACrashWhereTheFileGrewAgain) {
  for (size_t full = 0; full < 5; ++full) {
    SCOPED_TRACE(absl::StrCat("column ", full));
    TestColumns columns(5, "32 KiB");
    std::mt19937 random(static_cast<uint32_t>(full));
    std::string model = Noise(random, 4 * kStripe);
    ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.column(full).BeforeChange([](LayerCall call) {
      return call == LayerCall::kTruncate ? absl::ResourceExhaustedError("the test has no room")
                                          : absl::OkStatus();
    });
    EXPECT_FALSE(columns.top()->Truncate(2 * kStripe, columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    columns.column(full).BeforeChange(nullptr);
    ASSERT_TRUE(columns.top()->Truncate(4 * kStripe, columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    model.replace(2 * kStripe, 2 * kStripe, 2 * kStripe, '\0');
    for (size_t i = 0; i <= columns.count(); ++i) columns.disk(i).CutPower();
    columns.Stop();
    for (size_t i = 0; i <= columns.count(); ++i) columns.disk(i).PowerOn(i);
    columns.Start();
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    ASSERT_NO_FATAL_FAILURE(ExpectParity(columns, model.size(), kStripe));
  }
}

TEST_F(Raid5Test, WhatRottedIsFoundByItsChecksumAndRepairedFromTheRest) {
  Fill(3);
  // Unit 0 of stripe 0 is in column 0, stripe 1's parity in column 3, unit 2 of it in column 1.
  ASSERT_TRUE(Rot(columns_, 0, model_.substr(5000, 64)));
  ASSERT_TRUE(Rot(columns_, 1, model_.substr(kStripe + 2 * kUnit + 10, 64)));
  std::string first(kUnit, '\0');
  ASSERT_TRUE(absl::IsDataLoss(columns_.store(0).Read(columns_.id(0), 0, first).status()));
  ExpectIs(columns_, model_);
  std::string own(kUnit, '\0');
  ASSERT_TRUE(columns_.store(0).Read(columns_.id(0), 0, own).ok()) << "it was repaired";
  EXPECT_EQ(own, model_.substr(0, kUnit));
  ExpectParity(columns_, model_.size(), kStripe);
  ASSERT_TRUE(Rot(columns_, 2, model_.substr(2 * kUnit + 9000, 64)));
  const auto scrubbed = testing::ScrubAll(columns_);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_EQ(scrubbed->repaired, 1u);
  ExpectParity(columns_, model_.size(), kStripe);
}

// A bad sector: it cannot be read, and can again once it was written.
TEST_F(Raid5Test, BytesThatADiskCannotReadAreReadFromTheRestAndWrittenAnew) {
  Fill(3);
  for (const size_t column : {0, 3}) {  // data and parity
    std::atomic<bool> bad{true};
    columns_.column(column).OnDisk([&](std::string_view call, const std::string& path) {
      if (!path.ends_with(".d")) return absl::OkStatus();
      if (call == "write") bad = false;
      return call == "read" && bad ? ReadError(EIO, path) : absl::OkStatus();
    });
    std::string own(kUnit, '\0');
    ASSERT_TRUE(
        absl::IsDataLoss(columns_.store(column).Read(columns_.id(column), 0, own).status()));
    ExpectIs(columns_, model_);
    if (bad) {  // a parity is read by a scrub
      ASSERT_TRUE(testing::ScrubAll(columns_).ok());
    }
    EXPECT_FALSE(bad) << "it was written anew";
    EXPECT_TRUE(columns_.store(column).Read(columns_.id(column), 0, own).ok());
    columns_.column(column).OnDisk(nullptr);
    ExpectParity(columns_, model_.size(), kStripe);
  }
}

// Whatever error it is by which a disk takes nothing more, and whether it can still be read.
TEST_F(Raid5Test, AColumnWhoseDiskFailsIsDoneWithoutAndRebuilt) {
  Fill(6);
  const std::vector<std::pair<int, bool>> faults = {{EROFS, true}, {EIO, false}, {ENODEV, false}};
  for (size_t i = 0; i < faults.size(); ++i) {
    const int error = faults[i].first;
    const bool reads = faults[i].second;
    const size_t column = i + 1;
    SCOPED_TRACE(absl::StrCat("errno ", error, ", column ", column));
    columns_.column(column).OnDisk(
        [error, reads](std::string_view call, const std::string& path) -> absl::Status {
          if (call == "read") return reads ? absl::OkStatus() : ReadError(error, path);
          return reads && (call == "open" || call == "list" || call == "space")
                     ? absl::OkStatus()
                     : DiskError(error, path);
        });
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns_, model_));
    for (int k = 0; k < 6; ++k) {
      ASSERT_NO_FATAL_FAILURE(Write(random_() % (5 * kStripe), 1 + random_() % kStripe));
    }
    const absl::Status flushed = columns_.top()->Flush(columns_.Now());
    ASSERT_TRUE(flushed.ok()) << flushed;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns_, model_));
    // The disk is replaced, or mended; its server is started again.
    columns_.column(column).OnDisk(nullptr);
    ASSERT_NO_FATAL_FAILURE(columns_.Restart());
    const auto rebuilt = columns_.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    EXPECT_GT(rebuilt->rebuilt, 0u) << "it had missed something";
    EXPECT_EQ(rebuilt->damaged + rebuilt->doubtful, 0u);
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns_, model_));
    ExpectParity(columns_, model_.size(), kStripe);
  }
}

TEST_F(Raid5Test, ScrubMakesAWrongParityRight) {
  Fill(3);
  // Column 4 has the parity of stripe 0; the store believes what it is given.
  ASSERT_TRUE(columns_.store(4).Write(columns_.id(4), 0, "wrong", columns_.Now().value).ok());
  EXPECT_EQ(columns_.raid()->Scrub(0, 1, columns_.Now())->mismatched, 1u);
  ExpectParity(columns_, model_.size(), kStripe);
}

// Who closes the file waits for no more than a step.
TEST_F(Raid5Test, AStepOfAScrubOfSlowColumnsIsShort) {
  constexpr uint64_t kStripes = 40;
  Fill(kStripes);
  constexpr int64_t kReadMs = 20;
  for (size_t i = 0; i < columns_.count(); ++i) columns_.column(i).read_ns = kReadMs * 1'000'000;
  uint64_t steps = 0;
  const auto all = testing::ScrubInSteps([&](uint64_t from) {
    const auto step = columns_.raid()->Scrub(from, kStripes, columns_.Now());
    EXPECT_TRUE(step.ok()) << step.status();
    if (step.ok()) {
      EXPECT_EQ(step->next, from + step->checked);
      EXPECT_GE(step->checked, 1u);
      EXPECT_LE(step->checked, 100u / kReadMs);  // each takes as long as a read, at least
      EXPECT_EQ(step->done, step->next == kStripes);
    }
    ++steps;
    return step;
  });
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->checked, kStripes);
  EXPECT_EQ(all->mismatched + all->repaired + all->damaged, 0u);
  EXPECT_GE(steps, kStripes * kReadMs / 100);
  // Whoever asks for one gets one.
  EXPECT_EQ(columns_.raid()->Scrub(3, 1, columns_.Now())->next, 4u);
}

TEST_F(Raid5Test, ColumnsOfAnotherFileAreRefused) {
  Fill(1);
  columns_.Restart();  // it has not looked at its columns yet
  const auto other = columns_.store(1).GetAttributes(columns_.id(1));
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(
      columns_.store(0).SetAttributes(columns_.id(0), other->blob, columns_.Now().value).ok());
  const absl::Status status = columns_.top()->Read(0, 1, columns_.Now()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("is column 1 of 5"));
}

TEST_F(Raid5Test, ReadersAndWritersAtOnceWhileAColumnGoesAndComes) {
  Fill(8);
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      // Each has its own 1,000 bytes of every unit, so that stripes are shared and bytes are not.
      std::mt19937 random(static_cast<uint32_t>(t));
      std::vector<char> last(32, 0);
      std::vector<bool> known(32, false);
      for (uint64_t i = 1; !stop; ++i) {
        const size_t unit = random() % 32;
        const uint64_t at = unit * kUnit + t * 1000;
        const std::string text(1000, static_cast<char>('A' + i % 26));
        const Version now = Version::Of(1'000'000 + i, static_cast<uint16_t>(t + 2));
        const absl::Status written = columns_.top()->Write(at, Block::CopyOf(text), now);
        ASSERT_TRUE(written.ok()) << written;
        last[unit] = text[0], known[unit] = true;
        const size_t look = random() % 32;
        const auto read = columns_.top()->Read(look * kUnit + t * 1000, 1000, now);
        ASSERT_TRUE(read.ok()) << read.status();
        if (known[look]) {
          ASSERT_EQ(read->bytes.view(), std::string(1000, last[look]));
        }
      }
    });
  }
  const int rounds = runtime::testing::kSanitized ? 2 : 5;
  for (int i = 0; i < rounds; ++i) {
    columns_.column(i % 5).dead = true;
    EXPECT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    columns_.column(i % 5).dead = false;
    const auto rebuilt = columns_.RebuildAll();
    EXPECT_TRUE(rebuilt.ok()) << rebuilt.status();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  ExpectParity(columns_, model_.size(), kStripe);
}

}  // namespace
}  // namespace abacus::objfs
