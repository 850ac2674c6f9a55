// Staged writes: over what was flushed, durable when they return, whatever goes then.

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/staged_file.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::ColumnSwitch;
using testing::ExpectIs;
using testing::kStageColumns;
using testing::kStageStripe;
using testing::kStageUnit;
using testing::Noise;
using testing::StagedColumns;
using testing::StagedFile;
using testing::TestColumns;

TEST(Raid5StageTest, ASyncedSmallWriteIsOneFlushOfTwoColumns) {
  StagedFile file(1);
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + 4096, 4096));
  TestColumns& columns = file.columns();
  EXPECT_EQ(columns.Sum(&ColumnSwitch::reads), 2u);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::writes), 2u);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), 2u);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::records), 2u);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::flushes), 2u);
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
}

TEST(Raid5StageTest, WhatHasNothingFlushedIsNotStagedNorWithAColumnMissing) {
  StagedFile file(7);
  TestColumns& columns = file.columns();
  const uint64_t end = 3 * kStageStripe;
  ASSERT_TRUE(file.Write(end, std::string(kStageStripe, 'a')).ok());
  ASSERT_TRUE(file.Write(end + 100, std::string(kStageUnit, 'b')).ok());
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), 0u) << "all of it is new until the next flush";
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  ASSERT_TRUE(file.Write(end + 200, std::string(100, 'b')).ok());
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), 2u);
  columns.column(0).dead = true;
  ASSERT_TRUE(file.Write(kStageStripe, std::string(kStageUnit + 1, 'c')).ok());  // finds that out
  columns.ResetCounters();
  ASSERT_TRUE(file.Write(2 * kStageStripe, std::string(100, 'd')).ok());
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), 0u);
}

TEST(Raid5StageTest, WithoutAJournalNothingIsStaged) {
  StagedFile file(7, 3, "off");
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(100, 100));
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe, kStageStripe));
  EXPECT_EQ(file.columns().Sum(&ColumnSwitch::staged), 0u);
  ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
}

// Also where nobody flushes: each is durable before anything of it is in its place.
TEST(Raid5StageTest, EachOfManyWithoutAFlushIsStaged) {
  StagedFile file(2);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(file.Write((9 - i) * 100, std::string(100, 'a')).ok());
    file.model().replace((9 - i) * 100, 100, 100, 'a');
  }
  EXPECT_EQ(file.columns().Sum(&ColumnSwitch::staged), 2u * 10);
  file.Recover(std::nullopt);
  ASSERT_NO_FATAL_FAILURE(ExpectIs(file.columns(), file.model()));
}

// Whole stripes without reads, one write to a column beside the place and one there.
TEST(Raid5StageTest, ManyStripesAreStagedAtOnce) {
  constexpr uint64_t kStripes = 2 * Raid5Layer::kStagedAtOnce + 3;
  StagedFile file(9, kStripes);
  TestColumns& columns = file.columns();
  const std::string text = Noise(file.random(), kStripes * kStageStripe);
  ASSERT_TRUE(file.Write(0, text).ok());
  file.model() = text;
  EXPECT_EQ(columns.Sum(&ColumnSwitch::reads), 0u);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), kStripes * kStageColumns);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::writes), 3 * kStageColumns) << "of each column, three times";
  EXPECT_EQ(columns.Sum(&ColumnSwitch::records), 3 * kStageColumns);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::written_bytes), text.size() / 4 * 5);
  file.Recover(1);
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
  ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
  ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
}

// The end of a file lies in a stripe that has something flushed: so a log whose appends are synced
// is never in doubt.
TEST(Raid5StageTest, WhatGrowsAFlushedStripeIsStagedAndTheRestIsNot) {
  StagedFile file(3);
  TestColumns& columns = file.columns();
  const uint64_t size = file.model().size();
  for (const uint64_t bytes : {uint64_t{100}, kStageUnit, 2 * kStageStripe}) {
    const std::string text = Noise(file.random(), bytes);
    columns.ResetCounters();
    const auto at = columns.top()->Append(Block::CopyOf(text), columns.Now());
    ASSERT_TRUE(at.ok()) << at.status();
    ASSERT_EQ(*at, file.model().size());
    EXPECT_EQ(columns.Sum(&ColumnSwitch::staged) > 0, *at > size)
        << "after a whole stripe it is new";
    file.model() += text;
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    file.Recover(bytes % kStageColumns);
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
    ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
  }
  ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
}

TEST(Raid5StageTest, WhatWasFlushedIsKnownAfterAMoveAndAnOpening) {
  StagedFile file(10);
  TestColumns& columns = file.columns();
  ASSERT_NO_FATAL_FAILURE(columns.Move());
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(2 * kStageStripe + 5, 2 * kStageUnit));
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), 4u) << "three units and the parity";
  file.Recover(std::nullopt);
  columns.ResetCounters();
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(2 * kStageStripe + 5, 100));
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), 2u);
  ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
}

// A write from `at` of the flushed file of some stripes: the power goes at each of its calls, with
// each column away then. All that was flushed is known, each stripe as it was or as it was to be.
void ExpectNothingFlushedIsInDoubt(uint64_t at, uint64_t bytes) {
  constexpr uint64_t kSize = 3 * kStageStripe + kStageUnit + 500;
  const uint64_t stride = runtime::testing::LongRun() ? 1 : runtime::testing::kSanitized ? 15 : 3;
  size_t news = 0, points = 0;
  for (uint64_t call = 1, ended = false; !ended; call += stride) {
    for (size_t absent = 0; absent <= kStageColumns; ++absent) {  // the last: none
      SCOPED_TRACE(absl::StrCat("call ", call, ", away ", absent));
      StagedFile file(static_cast<uint32_t>(call * 7 + absent), 4);
      TestColumns& columns = file.columns();
      ASSERT_TRUE(columns.top()->Truncate(kSize, columns.Now()).ok());
      ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
      file.model().resize(kSize);
      ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + kStageUnit, 100));
      std::atomic<uint64_t> calls{0};
      file.CutAt(call, &calls);
      const std::string text = Noise(file.random(), bytes);
      const bool acknowledged =
          file.Write(at, text).ok() && columns.top()->Flush(columns.Now()).ok() && calls < call;
      ended = calls < call;
      std::string with = file.model();
      with.resize(std::max<uint64_t>(kSize, at + bytes));
      with.replace(at, bytes, text);
      // Now and then it goes once more, in what mends that with all columns there.
      if (call % 2 == 1) {
        file.Recover(std::nullopt);
        std::atomic<uint64_t> mending{0};
        file.CutAt(1 + (call / 2 + 3 * absent) % 15, &mending);
        columns.top()->GetAttributes(columns.Now()).status().IgnoreError();
        file.Recover(absent < kStageColumns ? std::optional<size_t>(absent) : std::nullopt);
      } else {
        file.Recover(absent < kStageColumns ? std::optional<size_t>(absent) : std::nullopt);
      }
      const auto size = columns.top()->GetAttributes(columns.Now());
      ASSERT_TRUE(size.ok()) << size.status();
      ASSERT_TRUE(size->size >= kSize && size->size <= with.size()) << size->size;
      std::string found;
      for (uint64_t from = 0; from < kSize; from += kStageStripe) {
        const uint64_t stop = std::min(kSize, from + kStageStripe);
        const auto read = columns.top()->Read(from, stop - from, columns.Now());
        ASSERT_TRUE(read.ok()) << "stripe " << from / kStageStripe << ": " << read.status();
        const std::string_view is = read->bytes.view();
        const bool is_new = is == std::string_view(with).substr(from, stop - from);
        ASSERT_TRUE(is_new || is == std::string_view(file.model()).substr(from, stop - from));
        ASSERT_TRUE(is_new || !acknowledged);
        news += is_new && stop > at;
        ++points;
        found += is;
      }
      // And in the last of them it grows by what is there.
      const uint64_t grown = std::min(size->size, 4 * kStageStripe);
      if (grown > kSize) {
        const auto read = columns.top()->Read(kSize, grown - kSize, columns.Now());
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_TRUE(read->bytes.view() == std::string_view(with).substr(kSize, grown - kSize));
        ++news;
      }
      if (acknowledged) {
        ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, with));
      }
      ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
      ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
      file.Recover((absent + 1) % kStageColumns);
      const auto read = columns.top()->Read(0, kSize, columns.Now());
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_TRUE(read->bytes.view() == found) << "and from now on that, without any other column";
    }
  }
  EXPECT_GT(news, 0u);
  EXPECT_LT(news, points);
  ::testing::Test::RecordProperty("crash_points", static_cast<int>(points));
}

TEST(Raid5StageTest, AWriteOfTwoUnitsLeavesNothingFlushedInDoubt) {
  ExpectNothingFlushedIsInDoubt(kStageUnit - 300, 600);
}
TEST(Raid5StageTest, AWholeStripeLeavesNothingFlushedInDoubt) {
  ExpectNothingFlushedIsInDoubt(kStageStripe, kStageStripe);
}
TEST(Raid5StageTest, AWriteOfSeveralStripesInPartLeavesNothingFlushedInDoubt) {
  ExpectNothingFlushedIsInDoubt(kStageUnit + 10, kStageStripe);
}
TEST(Raid5StageTest, AWriteOverTheEndLeavesNothingFlushedInDoubt) {
  ExpectNothingFlushedIsInDoubt(3 * kStageStripe + 400, kStageStripe);
}
TEST(Raid5StageTest, WhatFollowsTheEndLeavesNothingFlushedInDoubt) {
  ExpectNothingFlushedIsInDoubt(3 * kStageStripe + kStageUnit + 500, 700);
}

// The power went when one column had not got it yet, and goes once more at each call of what mends
// that; then any one column is away.
TEST(Raid5StageTest, WhatOneColumnHadNotGotIsWholeBeforeItIsPutInItsPlace) {
  const Striping striping = *Striping::Make(kStageColumns, kStageUnit);
  const uint64_t stride = runtime::testing::kSanitized ? 7 : 3;
  const size_t involved[] = {striping.ColumnOf(1, 0), striping.ColumnOf(1, 1),
                             striping.ParityColumn(1)};
  for (const size_t lacking : involved) {
    for (uint64_t call = 1, ended = false; !ended; call += stride) {
      const size_t absent = (call + lacking) % kStageColumns;
      for (const size_t away : {absent, (absent + 2) % kStageColumns}) {
        SCOPED_TRACE(absl::StrCat("column ", lacking, ", call ", call, ", away ", away));
        StagedFile file(static_cast<uint32_t>(call));
        TestColumns& columns = file.columns();
        StagedColumns before(columns);
        const std::string text = Noise(file.random(), 2000);
        ASSERT_TRUE(file.Write(kStageStripe + kStageUnit - 1000, text).ok());
        std::string with = file.model();
        with.replace(kStageStripe + kStageUnit - 1000, 2000, text);
        columns.Stop();
        columns.Start();
        ASSERT_NO_FATAL_FAILURE(before.PutBackPlaces());
        ASSERT_NO_FATAL_FAILURE(before.PutBackRecord(lacking));
        ASSERT_NO_FATAL_FAILURE(before.LoseSlot(lacking, 0));
        std::atomic<uint64_t> calls{0};
        file.CutAt(call, &calls);
        columns.top()->GetAttributes(columns.Now()).status().IgnoreError();
        ended = calls < call;
        file.Recover(away);
        const auto read = columns.top()->Read(0, with.size(), columns.Now());
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_TRUE(read->bytes.view() == with || read->bytes.view() == file.model());
        ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
      }
    }
  }
}

// Two faults, a slot that rotted and a column that is away: what came later to the stripe rests on
// what is not known, and is not done, so that what the column has is what it was.
TEST(Raid5StageTest, NothingIsDoneThatRestsOnWhatIsNotKnown) {
  const Striping striping = *Striping::Make(kStageColumns, kStageUnit);
  StagedFile file(12);
  TestColumns& columns = file.columns();
  StagedColumns before(columns);
  ASSERT_TRUE(file.Write(kStageStripe, std::string(2000, 'a')).ok());
  ASSERT_TRUE(file.Write(kStageStripe + kStageUnit, std::string(2000, 'b')).ok());
  columns.Stop();
  columns.Start();
  ASSERT_NO_FATAL_FAILURE(before.PutBackPlaces());
  ASSERT_NO_FATAL_FAILURE(before.LoseSlot(striping.ColumnOf(1, 0), 0));
  file.Recover(striping.ColumnOf(1, 2));
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
}

// Whichever call the power goes at, and whichever column is away then: the file is known wholly,
// what was acknowledged is there, and the write that was under way is there or not.
TEST(Raid5StageTest, WhateverIsLostAtWhateverCallAllIsKnown) {
  const uint64_t stride = runtime::testing::kSanitized ? 3 : 1;
  size_t news = 0, points = 0;
  for (uint64_t call = 1, ended = false; !ended; call += stride) {
    for (size_t absent = 0; absent <= kStageColumns; ++absent) {  // the last: none
      SCOPED_TRACE(absl::StrCat("call ", call, ", away ", absent));
      StagedFile file(static_cast<uint32_t>(call * 7 + absent));
      // Two acknowledged ones, of which one is in the same stripe, and then one of the same place.
      ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + 100, 4096));
      ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + kStageUnit, kStageUnit));
      std::atomic<uint64_t> calls{0};
      file.CutAt(call, &calls);
      const std::string text = Noise(file.random(), 3000);
      const bool acknowledged = file.Write(kStageStripe + 200, text).ok() &&
                                file.columns().top()->Flush(file.columns().Now()).ok() &&
                                calls < call;
      ended = calls < call;
      std::string with = file.model();
      with.replace(kStageStripe + 200, text.size(), text);
      file.Recover(absent < kStageColumns ? std::optional<size_t>(absent) : std::nullopt);
      const auto read = file.columns().top()->Read(0, with.size(), file.columns().Now());
      ASSERT_TRUE(read.ok()) << read.status();
      const bool is_new = read->bytes.view() == with;
      ASSERT_TRUE(is_new || read->bytes.view() == file.model());
      ASSERT_TRUE(is_new || !acknowledged);
      news += is_new;
      ++points;
      const std::string found(read->bytes.view());
      ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
      ASSERT_NO_FATAL_FAILURE(ExpectIs(file.columns(), found));
      // And from now on that, without any other column.
      ASSERT_TRUE(file.columns().top()->Flush(file.columns().Now()).ok());
      file.Recover((absent + 1) % kStageColumns);
      ASSERT_NO_FATAL_FAILURE(ExpectIs(file.columns(), found));
    }
  }
  EXPECT_GT(news, points / 4);
  EXPECT_LT(news, points);
  RecordProperty("crash_points", static_cast<int>(points));
}

// More than there are slots, each synced, and a crash after any of them.
TEST(Raid5StageTest, SlotsAreUsedAgainWhenWhatTheyHadIsInItsPlace) {
  constexpr int kWrites = static_cast<int>(ColumnRecord::kSlots) * 3;
  const int stride = runtime::testing::kSanitized ? 19 : 3;
  for (int last = 1; last < kWrites; last += stride) {
    SCOPED_TRACE(absl::StrCat("the power goes after ", last));
    StagedFile file(static_cast<uint32_t>(last), 4);
    for (int i = 0; i < last; ++i) {
      const uint64_t block = file.random()() % (4 * kStageStripe / kStageUnit);
      const uint64_t bytes = 1 + file.random()() % 4000;
      ASSERT_NO_FATAL_FAILURE(file.WriteSynced(block * kStageUnit + 10, bytes));
    }
    EXPECT_GE(file.columns().Sum(&ColumnSwitch::staged), 2u * last);
    file.Recover(last % 2 == 0 ? std::optional<size_t>(last / 2 % kStageColumns) : std::nullopt);
    ASSERT_NO_FATAL_FAILURE(ExpectIs(file.columns(), file.model()));
    ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
    ASSERT_NO_FATAL_FAILURE(ExpectIs(file.columns(), file.model()));
  }
}

// A column that said that it had flushed and had not: what it lost is known by the other one.
TEST(Raid5StageTest, WhatOneOfTheTwoHasLostComesFromTheOther) {
  constexpr uint64_t kAt = kStageStripe + 50;
  const Striping striping = *Striping::Make(kStageColumns, kStageUnit);
  const size_t both[] = {striping.ColumnOf(1, 0), striping.ParityColumn(1)};
  for (const size_t lost : both) {
    SCOPED_TRACE(absl::StrCat("column ", lost));
    StagedFile file(static_cast<uint32_t>(lost));
    TestColumns& columns = file.columns();
    const std::string record = columns.store(lost).GetAttributes(columns.id(lost))->blob;
    std::string unit(kStageUnit, '\0');
    const uint64_t place = striping.ColumnOffsetOf(1);
    ASSERT_TRUE(columns.store(lost).Read(columns.id(lost), place, {unit.data(), unit.size()}).ok());
    ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kAt, 2000));
    columns.Stop();
    columns.Start();
    // As it was before.
    ObjectStore& store = columns.store(lost);
    const VersionNumber now = columns.Now().value;
    ASSERT_TRUE(store.Write(columns.id(lost), place, unit, now).ok());
    ASSERT_TRUE(store.Punch(columns.id(lost), Raid5Layer::kStageAt, 8192, now).ok());
    ASSERT_TRUE(store.SetAttributes(columns.id(lost), record, now).ok());
    ASSERT_TRUE(store.Flush(columns.id(lost)).ok());
    ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
  }
}

// A slot that rotted, and another write to the stripe since: the parity is that of both.
TEST(Raid5StageTest, WhatOneHasLostIsComputedWhenAllOthersAreInTheirPlaces) {
  const Striping striping = *Striping::Make(kStageColumns, kStageUnit);
  const size_t lost = striping.ColumnOf(1, 0);
  StagedFile file(8);
  TestColumns& columns = file.columns();
  std::string unit(kStageUnit, '\0');
  const uint64_t place = striping.ColumnOffsetOf(1);
  ASSERT_TRUE(columns.store(lost).Read(columns.id(lost), place, {unit.data(), unit.size()}).ok());
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + 50, 2000));
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + kStageUnit + 40, 2020));
  for (size_t i = 0; i < kStageColumns; ++i) {  // they are in their places
    ASSERT_TRUE(columns.store(i).Flush(columns.id(i)).ok());
  }
  columns.Stop();
  columns.Start();
  ObjectStore& store = columns.store(lost);
  const VersionNumber now = columns.Now().value;
  ASSERT_TRUE(store.Write(columns.id(lost), place, unit, now).ok());
  ASSERT_TRUE(store.Punch(columns.id(lost), Raid5Layer::kStageAt, 8192, now).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
  ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
}

// A column that comes back has nothing in its slots, and others are written to before a crash.
TEST(Raid5StageTest, WhatIsStagedWhenAColumnComesBackIsThereAfterACrash) {
  const Striping striping = *Striping::Make(kStageColumns, kStageUnit);
  for (size_t absent = 0; absent <= kStageColumns; ++absent) {
    for (const size_t gone : {striping.ColumnOf(1, 0), striping.ParityColumn(1)}) {
      SCOPED_TRACE(absl::StrCat("column ", gone, ", away ", absent));
      StagedFile file(static_cast<uint32_t>(absent));
      TestColumns& columns = file.columns();
      ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + 50, 2000));
      columns.column(gone).dead = true;
      ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
      ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
      ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + kStageUnit + 40, 2020));
      for (size_t i = 0; i < kStageColumns; ++i) {
        ASSERT_TRUE(columns.store(i).Flush(columns.id(i)).ok());
      }
      file.Recover(absent < kStageColumns ? std::optional<size_t>(absent) : std::nullopt);
      ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
      ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
      ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
    }
  }
}

// The power goes at each call of a truncation. What it cut off is zeros when the file grows again.
TEST(Raid5StageTest, WhatIsCutOffWhileItIsStagedIsNeverSeenAgain) {
  const uint64_t stride = runtime::testing::kSanitized ? 3 : 1;
  size_t cuts = 0;
  for (const uint64_t to : {uint64_t{0}, kStageStripe, kStageStripe + 1000}) {
    for (uint64_t call = 1, ended = false; !ended; call += stride) {
      SCOPED_TRACE(absl::StrCat("to ", to, ", call ", call));
      StagedFile file(static_cast<uint32_t>(call));
      ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + 500, 2000));
      const std::string before = file.model();
      std::atomic<uint64_t> calls{0};
      file.CutAt(call, &calls);
      const absl::Status cut = file.columns().top()->Truncate(to, file.columns().Now());
      ended = calls < call;
      EXPECT_TRUE(cut.ok() || !ended) << cut;
      file.Recover(std::nullopt);
      TestColumns& columns = file.columns();
      const auto attributes = columns.top()->GetAttributes(columns.Now());
      ASSERT_TRUE(attributes.ok()) << attributes.status();
      ASSERT_TRUE(attributes->size == before.size() || attributes->size == to);
      cuts += attributes->size == to;
      ASSERT_TRUE(columns.top()->Truncate(before.size(), columns.Now()).ok());
      std::string expected = before;
      if (attributes->size == to) expected.replace(to, std::string::npos, before.size() - to, '\0');
      ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, expected));
    }
  }
  EXPECT_GT(cuts, 3u);
}

// What was acknowledged and is in its place may be lost there with the column, until it is flushed.
TEST(Raid5StageTest, WhatAColumnHadNotFlushedInItsPlaceWhenItDiedIsRebuilt) {
  const Striping striping = *Striping::Make(kStageColumns, kStageUnit);
  const size_t both[] = {striping.ColumnOf(1, 2), striping.ParityColumn(1)};
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    const size_t died = both[seed % 2];
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", column ", died));
    StagedFile file(seed);
    TestColumns& columns = file.columns();
    ASSERT_NO_FATAL_FAILURE(file.WriteSynced(kStageStripe + 2 * kStageUnit + 77, 5000));
    columns.column(died).dead = true;
    // Of another stripe, and not staged: its flush ends what is.
    ASSERT_NO_FATAL_FAILURE(file.WriteSynced(2 * kStageStripe + 100, kStageUnit));
    columns.Stop();
    columns.disk(died).CutPower();
    columns.disk(died).PowerOn(seed);
    columns.column(died).dead = false;
    columns.Start();
    ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
  }
}

TEST(Raid5StageTest, WhatIsStagedMovesWithTheObjectAndItsSlotsStayTaken) {
  StagedFile file(4);
  for (int i = 0; i < 40; ++i) {
    ASSERT_NO_FATAL_FAILURE(file.WriteSynced(file.random()() % 12 * kStageUnit + 1, 500));
    if (i % 5 == 0) {
      ASSERT_NO_FATAL_FAILURE(file.columns().Move());
    }
  }
  file.Recover(2);
  ASSERT_NO_FATAL_FAILURE(ExpectIs(file.columns(), file.model()));
  ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
}

// What is staged lies behind the end of the file, and is no part of it.
TEST(Raid5StageTest, WhatIsClosedTakesNoRoomForSlotsAndNothingIsStagedThen) {
  StagedFile file(5);
  TestColumns& columns = file.columns();
  const uint64_t before = columns.top()->GetAttributes(columns.Now())->allocated;
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(7, 100));
  EXPECT_GT(columns.top()->GetAttributes(columns.Now())->allocated, before);
  ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
  for (size_t i = 0; i < kStageColumns; ++i) {
    const auto record = columns.RecordOf(i);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_TRUE(record->staged.empty()) << i;
  }
  columns.ResetCounters();
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
  EXPECT_EQ(columns.Sum(&ColumnSwitch::writes) + columns.Sum(&ColumnSwitch::staged), 0u);
  EXPECT_EQ(columns.top()->GetAttributes(columns.Now())->allocated, before);
}

// A write that could not be put in its place is told, and the stripe is whole after the next flush.
TEST(Raid5StageTest, WhatCannotBePutInItsPlaceIsToldAndTheStripeIsMended) {
  StagedFile file(6);
  TestColumns& columns = file.columns();
  const Striping striping = *Striping::Make(kStageColumns, kStageUnit);
  const size_t column = striping.ColumnOf(0, 0);
  columns.column(column).BeforeChange([n = std::make_shared<std::atomic<int>>(0)](LayerCall call) {
    // The slot, then the record and its flush, and then the place.
    const bool in_place = call == LayerCall::kWrite && (*n)++ == 1;
    return in_place ? absl::ResourceExhaustedError("the test has no room") : absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsResourceExhausted(file.Write(5, "refused")));
  columns.column(column).BeforeChange(nullptr);
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  const auto read = columns.top()->Read(0, file.model().size(), columns.Now());
  ASSERT_TRUE(read.ok()) << read.status();
  const std::string found(read->bytes.view());
  std::string with = file.model();
  with.replace(5, 7, "refused");
  EXPECT_TRUE(found == file.model() || found == with);
  ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
  file.Recover(column);
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, found));
}

}  // namespace
}  // namespace abacus::objfs
