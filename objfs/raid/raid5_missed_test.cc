// What a column missed is never read from it: small workloads of which every crash is tried. Each
// is the smallest that once failed.

#include <atomic>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::TestColumns;

constexpr size_t kColumns = 4, kGone = 1;
constexpr uint64_t kUnit = 8192, kStripe = 3 * kUnit, kSize = 5 * kStripe;

// A file of 'A's in all columns, and of 'B's in all but one.
class MissedFile {
 public:
  explicit MissedFile(const std::string& journal = "on")
      : columns_(kColumns, "8 KiB", {{"journal", journal}}) {}
  // `fails`: the column goes after it was written to, and before it was flushed. Else before that.
  void Make(bool fails) {
    Write(0, kSize, 'A');
    ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    if (!fails) columns_.column(kGone).dead = true;
    Write(0, kSize, 'B');
    columns_.column(kGone).dead = true;
    ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  }
  void Write(uint64_t offset, uint64_t bytes, char letter) {
    columns_.top()
        ->Write(offset, Block::CopyOf(std::string(bytes, letter)), columns_.Now())
        .IgnoreError();  // the power may have gone
  }
  // The next record but `after` is refused by column 0, which serves nevertheless.
  void RefuseRecord(int after) {
    columns_.column(0).BeforeChange(
        [left = std::make_shared<std::atomic<int>>(after)](LayerCall call) -> absl::Status {
          if (call != LayerCall::kSetInode || (*left)-- != 0) return absl::OkStatus();
          return absl::ResourceExhaustedError("the test has no room");
        });
  }
  void Truncate(uint64_t size) { columns_.top()->Truncate(size, columns_.Now()).IgnoreError(); }
  void Flush() { columns_.top()->Flush(columns_.Now()).IgnoreError(); }

  void CutAt(uint64_t call) {
    for (size_t i = 0; i < kColumns; ++i) {
      columns_.column(i).BeforeChange([this, call](LayerCall) {
        if (++calls_ != call) return absl::OkStatus();
        for (size_t j = 0; j < kColumns; ++j) columns_.disk(j).CutPower();
        return absl::OkStatus();
      });
    }
  }
  // True where the power did not go before: there are no more points.
  bool Recover(uint64_t call, uint64_t seed, bool back) {
    columns_.Stop();
    for (size_t i = 0; i < kColumns; ++i) {
      columns_.column(i).BeforeChange(nullptr);
      columns_.disk(i).CutPower();
      columns_.disk(i).PowerOn(seed * 100 + i);
    }
    columns_.column(kGone).dead = !back;
    columns_.Start();
    return calls_ < call;
  }
  std::string Read() {
    const auto read = columns_.top()->Read(0, 2 * kSize, columns_.Now());
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->bytes.view()) : "";
  }
  TestColumns& columns() { return columns_; }

 private:
  std::atomic<uint64_t> calls_{0};
  TestColumns columns_;
};

void EveryCrash(bool fails, const std::function<void(MissedFile&)>& work) {
  const uint64_t stride = runtime::testing::kSanitized ? 5 : 1;
  const uint64_t seeds = runtime::testing::LongRun() ? 8 : 2;
  bool ended = false;
  for (uint64_t call = 1; !ended; call += stride) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(absl::StrCat("call ", call, ", seed ", seed));
      MissedFile file;
      ASSERT_NO_FATAL_FAILURE(file.Make(fails));
      file.CutAt(call);
      work(file);
      const bool back = seed % 2 == 0;
      ended = file.Recover(call, call * 10 + seed, back);
      if (!back) {
        ASSERT_TRUE(file.columns().top()->GetAttributes(file.columns().Now()).ok());
        file.columns().column(kGone).dead = false;
        ASSERT_TRUE(file.columns().RebuildAll().ok());
      }
      ASSERT_EQ(file.Read().find('A'), std::string::npos);
    }
    ASSERT_LT(call, 500u);
  }
}

class Raid5MissedTest : public ::testing::TestWithParam<bool> {};

TEST_P(Raid5MissedTest, WhatWasCutOffAndIsNotAfterTheCrashIsAsItWas) {
  EveryCrash(GetParam(), [](MissedFile& file) { file.Truncate(kStripe / 2); });
}

TEST_P(Raid5MissedTest, WhatFollowsWhatWasCutOffIsNewOrZeros) {
  EveryCrash(GetParam(), [](MissedFile& file) {
    file.Truncate(kStripe);
    file.Flush();
    file.Write(kStripe, kStripe, 'C');
    file.Write(3 * kStripe, 100, 'D');
  });
}

TEST_P(Raid5MissedTest, AHoleOverWhatWasCutOffIsZeros) {
  EveryCrash(GetParam(), [](MissedFile& file) {
    file.Truncate(kStripe / 2);
    file.Write(3 * kStripe, 100, 'C');
    file.Write(kStripe + 10, 100, 'D');
  });
}
INSTANTIATE_TEST_SUITE_P(All, Raid5MissedTest, ::testing::Bool());

// A stripe of which the column has the parity was rebuilt and written to; the crash comes in the
// middle of the flush, and the column stays away while the others go on.
TEST(Raid5RebuiltTest, TheParityOfARebuiltStripeIsNotBelievedAfterACrash) {
  MissedFile file;
  TestColumns& columns = file.columns();
  ASSERT_NO_FATAL_FAILURE(file.Make(false));
  columns.column(kGone).dead = false;
  for (int i = 0; i < 3; ++i) {  // all but the last two stripes
    ASSERT_TRUE(columns.raid()->Rebuild(0, 1, columns.Now()).ok());
  }
  file.Write(2 * kStripe, 100, 'C');  // column 1 has the parity of stripe 2, column 2 these bytes
  ASSERT_TRUE(columns.store(2).Flush(columns.id(2)).ok());
  file.Recover(1, 1, false);
  file.Flush();
  columns.column(kGone).dead = false;
  ASSERT_TRUE(columns.RebuildAll().ok());
  const auto scrubbed = testing::ScrubAll(columns);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_EQ(scrubbed->mismatched, 0u);
}

// Column 0 has records, durable, that no other column has when the power goes. They say nothing of
// what the others did without it.
TEST(Raid5RecordTest, AColumnThatRanAheadIsNotBelievedOverTheOthers) {
  TestColumns columns(kColumns, "8 KiB");
  const std::string before(kSize, 'A'), after(kSize, 'B');
  ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(before), columns.Now()).ok());
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(columns.top()->SetInode(absl::StrCat(i), columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Push(columns.Now()).ok());
  }
  ASSERT_TRUE(columns.store(0).Flush(columns.id(0)).ok());
  columns.Stop();
  for (size_t i = 0; i < kColumns; ++i) {
    columns.disk(i).CutPower();
    columns.disk(i).PowerOn(i);
  }
  columns.column(0).dead = true;
  columns.Start();
  ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(after), columns.Now()).ok());
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  columns.column(0).dead = false;
  columns.Restart();
  const auto read = columns.top()->Read(0, kSize, columns.Now());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->bytes.view() == after);
}

// The first record of all reached half of the columns.
TEST(Raid5RecordTest, AColumnWithoutARecordLacksNothingBeforeAllHadOne) {
  MissedFile file;
  TestColumns& columns = file.columns();
  for (const size_t column : {2, 3}) {
    columns.column(column).BeforeChange(
        [](LayerCall) { return absl::ResourceExhaustedError("the test has no room"); });
  }
  file.Truncate(50000);
  EXPECT_TRUE(absl::IsResourceExhausted(columns.top()->Push(columns.Now())));
  for (const size_t column : {2, 3}) columns.column(column).BeforeChange(nullptr);
  for (const size_t column : {0, 1}) {
    ASSERT_TRUE(columns.store(column).Flush(columns.id(column)).ok());
  }
  columns.Restart();
  EXPECT_TRUE(file.Read() == std::string(50000, '\0'));
}

// The column goes without notice, and the truncation is what finds that out. Its unit of the last
// stripe is put behind the file then, and is not what is cut off.
TEST(Raid5RecordTest, ATruncationThatFindsAColumnGoneKeepsWhatStandsInForIt) {
  for (size_t gone = 0; gone < kColumns; ++gone) {
    for (const uint64_t into : {uint64_t{1}, kUnit + 5, 2 * kUnit + 5}) {
      SCOPED_TRACE(absl::StrCat("column ", gone, ", ", into, " bytes into a stripe"));
      MissedFile file;
      TestColumns& columns = file.columns();
      file.Write(0, kSize, 'A');
      file.Flush();
      file.Truncate(kSize - 1);  // all columns know of stripes that are written
      file.Write(3 * kStripe - kUnit, 2 * kUnit, 'B');
      std::string expected(kSize, 'A');
      expected.replace(3 * kStripe - kUnit, 2 * kUnit, 2 * kUnit, 'B');
      columns.column(gone).dead = true;
      file.Truncate(3 * kStripe + into);
      expected.resize(3 * kStripe + into);
      EXPECT_TRUE(file.Read() == expected);
      file.Flush();
      columns.Restart();
      EXPECT_TRUE(file.Read() == expected) << "opened again";
    }
  }
}

// The same of what is punched: what stands in for the column's units is zeros, too.
TEST(Raid5RecordTest, APunchThatFindsAColumnGoneLeavesZeros) {
  for (size_t gone = 0; gone < kColumns; ++gone) {
    SCOPED_TRACE(absl::StrCat("column ", gone));
    MissedFile file;
    TestColumns& columns = file.columns();
    file.Write(0, kSize, 'A');
    file.Flush();
    columns.column(gone).dead = true;
    ASSERT_TRUE(columns.top()->Punch(Range{5, kSize - 10}, columns.Now()).ok());
    std::string expected(kSize, 'A');
    expected.replace(5, kSize - 10, kSize - 10, '\0');
    EXPECT_TRUE(file.Read() == expected);
    file.Flush();
    columns.Restart();
    EXPECT_TRUE(file.Read() == expected) << "opened again";
  }
}

TEST(Raid5RecordTest, AStripeIsNotAdmittedByARecordThatWasRefused) {
  MissedFile file("off");
  TestColumns& columns = file.columns();
  file.Write(0, kSize, 'A');
  file.Flush();
  file.RefuseRecord(0);
  const Block text = Block::CopyOf(std::string(kUnit + 1, 'B'));
  EXPECT_TRUE(absl::IsResourceExhausted(columns.top()->Write(0, text, columns.Now())));
  ASSERT_TRUE(columns.top()->Write(0, text, columns.Now()).ok());
  for (const size_t changed : {size_t{0}, size_t{1}, kColumns - 1}) {  // units', and the parity's
    const auto record = columns.RecordOf(changed);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_TRUE(record->written.Contains(0)) << "column " << changed;
  }
}

// The record of a flush has reached one column when the client dies. Who opens the file then, and
// syncs it, has been told that what he read is durable.
TEST(Raid5RecordTest, WhatAnOpeningFoundAndSyncedIsThereWithoutTheColumnThatToldIt) {
  for (size_t alone = 0; alone < kColumns; ++alone) {
    SCOPED_TRACE(absl::StrCat("column ", alone));
    MissedFile file;
    TestColumns& columns = file.columns();
    file.Write(0, kSize - kStripe, 'A');
    file.Flush();
    file.Write(kSize - kStripe + 10, 100, 'B');  // not where the last one ended: not gathered
    for (size_t i = 0; i < kColumns; ++i) {
      if (i == alone) continue;
      columns.column(i).BeforeChange([](LayerCall call) -> absl::Status {
        if (call != LayerCall::kSetInode) return absl::OkStatus();
        return absl::ResourceExhaustedError("the test has no room");
      });
    }
    file.Flush();
    for (size_t i = 0; i < kColumns; ++i) columns.column(i).BeforeChange(nullptr);
    columns.Restart();
    const std::string found = file.Read();
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    columns.column(alone).dead = true;
    columns.Restart();
    EXPECT_TRUE(file.Read() == found) << file.Read().size() << " bytes of " << found.size();
  }
}

// The client died in the first write, and what it wrote was found, and repaired where it was torn.
// Then a server is replaced by an empty one.
TEST(Raid5RecordTest, WhatComesBackEmptyAfterARecoveryIsKnown) {
  for (size_t gone = 0; gone < kColumns; ++gone) {
    SCOPED_TRACE(absl::StrCat("column ", gone));
    MissedFile file;
    TestColumns& columns = file.columns();
    file.Truncate(kSize);
    file.Write(kStripe, 100, 'A');
    for (size_t i = 0; i < kColumns; ++i) {
      ASSERT_TRUE(columns.store(i).Flush(columns.id(i)).ok());
    }
    columns.Restart();
    const std::string found = file.Read();
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    columns.Replace(gone);
    EXPECT_TRUE(file.Read() == found);
    ASSERT_TRUE(columns.RebuildAll().ok());
    columns.column((gone + 1) % kColumns).dead = true;
    EXPECT_TRUE(file.Read() == found);
  }
}

TEST(Raid5RecordTest, WhatWasPutAsideForAWriteThatWasRefusedIsNotFoundLater) {
  MissedFile file;
  TestColumns& columns = file.columns();
  file.Write(0, kSize, 'A');
  file.Flush();
  columns.column(kGone).dead = true;
  ASSERT_TRUE(file.Read() == std::string(kSize, 'A'));  // and it is known to be missing
  file.Flush();
  file.RefuseRecord(0);
  EXPECT_TRUE(
      absl::IsResourceExhausted(columns.top()->Write(10, Block::CopyOf("B"), columns.Now())));
  columns.column(kGone).dead = false;
  ASSERT_TRUE(columns.RebuildAll().ok());
  file.Write(0, kSize, 'C');
  file.Flush();
  columns.column(kGone).dead = true;
  EXPECT_TRUE(file.Read() == std::string(kSize, 'C'));
  columns.Restart();
  EXPECT_TRUE(file.Read() == std::string(kSize, 'C'));
}

// It is left, however often it is tried.
TEST(Raid5RecordTest, AStripeThatOnlyTheLostColumnKnewIsNotCountedAsRebuilt) {
  MissedFile file("off");
  TestColumns& columns = file.columns();
  file.Write(0, kSize, 'A');
  file.Flush();
  file.Write(10, 100, 'B');  // in its place, and in doubt from here on
  columns.Replace(Striping::Make(kColumns, kUnit)->ColumnOf(0, 1));
  const auto first = columns.raid()->Rebuild(0, kSize / kStripe, columns.Now());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->rebuilt, kSize / kStripe - 1);
  EXPECT_EQ(first->left, 1u);
  EXPECT_EQ(first->doubtful, 1u);
  const auto again = columns.raid()->Rebuild(0, kSize / kStripe, columns.Now());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->rebuilt, 0u);
  EXPECT_EQ(again->left, 1u);
}

// Clients die one after the other when their first record is at one column alone, and another
// column is away. It comes back, that one goes, and somebody writes. The dead have counted further
// than he has, who did not see it, and he is believed.
TEST(Raid5RecordTest, OpeningsThatDiedAreNotBelievedOverALaterOneThatDidNotSeeThem) {
  constexpr size_t kAway = kColumns - 1, kAlone = 0;
  for (int deaths = 1; deaths <= 3; ++deaths) {
    SCOPED_TRACE(absl::StrCat(deaths, " deaths"));
    MissedFile file;
    TestColumns& columns = file.columns();
    file.Write(0, kSize, 'A');
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    columns.column(kAway).dead = true;
    for (int i = 0; i < deaths; ++i) {
      columns.Restart();
      for (size_t column = 0; column < kColumns; ++column) {
        columns.column(column).BeforeChange([column](LayerCall call) {
          return column == kAlone && (call == LayerCall::kSetInode || call == LayerCall::kFlush)
                     ? absl::OkStatus()
                     : absl::UnavailableError("the client is dead");
        });
      }
      const Block text = Block::CopyOf(std::string(kStripe, 'X'));
      EXPECT_FALSE(columns.top()->Write(0, text, columns.Now()).ok());
      const auto alone = columns.RecordOf(kAlone), other = columns.RecordOf(1);
      ASSERT_TRUE(alone.ok() && other.ok()) << alone.status() << other.status();
      EXPECT_GT(alone->sequence, other->sequence);
      columns.Stop();
      for (size_t column = 0; column < kColumns; ++column) {
        columns.column(column).BeforeChange(nullptr);
      }
    }
    columns.column(kAway).dead = false;
    columns.column(kAlone).dead = true;
    columns.Start();
    file.Write(0, kStripe, 'B');
    ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
    columns.column(kAlone).dead = false;
    columns.Restart();
    const std::string expected = std::string(kStripe, 'B') + std::string(kSize - kStripe, 'A');
    EXPECT_TRUE(file.Read() == expected);
    ASSERT_TRUE(columns.RebuildAll().ok());
    columns.column(kAway).dead = true;
    EXPECT_TRUE(file.Read() == expected);
  }
}

}  // namespace
}  // namespace abacus::objfs
