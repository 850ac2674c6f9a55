// The raid5 layer together with others: how it leaves a file to them, serves it, and is alone
// again.

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/raid/testing/shared_nodes.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::Ref;
using testing::ExpectIs;
using testing::Noise;
using testing::SharedNodes;
using ::testing::StartsWith;
using testing::TestColumns;

template <typename Layers>
std::string FactOf(const Layers& layer, const std::string& name) {
  const auto state = layer->Describe();
  if (!state.ok()) return std::string(state.status().message());
  for (const auto& [fact, value] : state->facts) {
    if (fact == name) return value;
  }
  return "";
}

ColumnRecord RecordOf(TestColumns& columns, size_t column) {
  const auto record = columns.RecordOf(column);
  EXPECT_TRUE(record.ok()) << record.status();
  return record.ok() ? *record : ColumnRecord();
}

bool ClosesToShare(TestColumns& columns) {
  const auto closed = columns.raid()->CloseToShare(columns.Now());
  return closed.ok() && *closed;
}

// -- from alone to together -----------------------------------------------------------------------

TEST(Raid5CloseToShareTest, AllHaveARecordThatTellsOfOneThatAllHad) {
  TestColumns columns(5, "8 KiB");
  std::mt19937 random(1);
  std::string model = Noise(random, 100'000);
  ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  // Over what was flushed: it is staged.
  ASSERT_TRUE(columns.top()->Write(9000, Block::CopyOf("staged"), columns.Now()).ok());
  model.replace(9000, 6, "staged");
  const auto before = columns.store(2).GetAttributes(columns.id(2));
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE(ClosesToShare(columns));
  const uint64_t sequence = RecordOf(columns, 0).sequence;
  for (size_t i = 0; i < 5; ++i) {
    const ColumnRecord record = RecordOf(columns, i);
    EXPECT_EQ(record.sequence, sequence) << i;
    EXPECT_TRUE(record.written.empty() && record.staged.empty() && record.doubtful.empty());
    EXPECT_FALSE(record.missing.has_value() || record.ragged);
    EXPECT_EQ(record.size, model.size());
    for (const uint64_t durable : record.durable) EXPECT_EQ(durable, sequence - 1);
  }
  // It is closed, and opened by who calls it, as after a close.
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
  ASSERT_TRUE(ClosesToShare(columns));
  // A column that comes back as it was before may lack anything that was written together.
  const VersionNumber now = columns.Now().value;
  ASSERT_TRUE(columns.store(2).SetAttributes(columns.id(2), before->blob, now).ok());
  ASSERT_TRUE(columns.store(2).Flush(columns.id(2)).ok());
  columns.Restart();
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
  EXPECT_THAT(FactOf(columns.top(), "missing"), StartsWith("column 2"));
}

TEST(Raid5CloseToShareTest, WhatWasGatheredIsWrittenFirst) {
  TestColumns columns(5, "8 KiB");
  std::mt19937 random(2);
  const std::string model = Noise(random, 3 * 4096);
  for (uint64_t at = 0; at < model.size(); at += 4096) {
    const Block piece = Block::CopyOf(model.substr(at, 4096));
    ASSERT_TRUE(columns.top()->Write(at, piece, columns.Now()).ok());
  }
  ASSERT_TRUE(ClosesToShare(columns));
  columns.Restart();  // what was not durable would be lost
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
}

TEST(Raid5CloseToShareTest, WithAColumnMissingNothingIsShared) {
  TestColumns columns(5, "8 KiB");
  std::mt19937 random(3);
  std::string model = Noise(random, 100'000);
  ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
  // It is missing before, or is found so by that.
  for (const bool before : {false, true}) {
    columns.column(1).dead = true;
    if (before) {
      ASSERT_TRUE(columns.top()->Write(500, Block::CopyOf("x"), columns.Now()).ok());
      model.replace(500, 1, "x");
    }
    EXPECT_FALSE(ClosesToShare(columns));
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
    columns.column(1).dead = false;
    ASSERT_TRUE(columns.RebuildAll().ok());
    EXPECT_TRUE(ClosesToShare(columns));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, model));
}

TEST(Raid5CloseToShareTest, AStripeThatCannotBeMendedIsNotShared) {
  TestColumns columns(5, "8 KiB", {{"journal", "off"}, {"gather", "off"}});
  std::mt19937 random(4);
  std::string model = Noise(random, size_t{4} * 8192);
  ASSERT_TRUE(columns.top()->Write(0, Block::CopyOf(model), columns.Now()).ok());
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  // The parity's column takes no bytes.
  columns.column(4).BeforeChange([](LayerCall call) -> absl::Status {
    if (call != LayerCall::kWrite) return absl::OkStatus();
    return absl::ResourceExhaustedError("the test has no room");
  });
  const std::string text(100, 't');
  EXPECT_FALSE(columns.top()->Write(0, Block::CopyOf(text), columns.Now()).ok());
  EXPECT_FALSE(ClosesToShare(columns));
  EXPECT_EQ(columns.top()->GetAttributes(columns.Now())->size, model.size());
  columns.column(4).BeforeChange(nullptr);
  // Mended by that.
  EXPECT_TRUE(ClosesToShare(columns));
  const auto scrubbed = testing::ScrubAll(columns);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
}

// -- together -------------------------------------------------------------------------------------

class Raid5SharedTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kUnit = 8192, kStripe = 4 * kUnit;
  const std::vector<Range> first_stripe_ = {Range{0, kUnit}};

  Raid5SharedTest() : nodes_(5, kUnit), a_(nodes_.Raid(0)), b_(nodes_.Raid(1)) {}
  // A file of noise, that both serve.
  void Make(uint64_t size = 3 * kStripe + 5000) {
    model_ = Noise(random_, size);
    ASSERT_TRUE(a_->Write(0, Block::CopyOf(model_), nodes_.Now()).ok());
    ASSERT_TRUE(a_->SetInode(std::string("inode"), nodes_.Now()).ok());
    const auto closed = a_->CloseToShare(nodes_.Now());
    ASSERT_TRUE(closed.ok()) << closed.status();
    ASSERT_TRUE(*closed);
    const absl::Status first = a_->TakeShared(nodes_.Share(0, 11, size));
    ASSERT_TRUE(first.ok()) << first;
    const absl::Status second = b_->TakeShared(nodes_.Share(1, 12, size));
    ASSERT_TRUE(second.ok()) << second;
  }
  void Write(const Ref<Raid5Layer>& raid, uint64_t at, uint64_t bytes) {
    const std::string text = Noise(random_, bytes);
    const absl::Status written = raid->Write(at, Block::CopyOf(text), nodes_.Now());
    ASSERT_TRUE(written.ok()) << written;
    model_.replace(at, bytes, text);
  }
  void ExpectReads(const Ref<Raid5Layer>& raid) {
    const auto read = raid->Read(0, model_.size() + 100, nodes_.Now());
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(read->bytes.view() == model_);
  }
  // The columns are one's alone.
  void OpenAlone(const Ref<Raid5Layer>& raid, size_t node) {
    nodes_.OpenAnew();
    ASSERT_TRUE(nodes_.NothingIsPending());
    ASSERT_TRUE(raid->TakeColumns(nodes_.Columns(node), Ref<Layer>()).ok());
  }
  void ExpectWhole(const Ref<Raid5Layer>& raid) {
    const auto scrubbed =
        testing::ScrubInSteps([&](uint64_t from) { return raid->Scrub(from, 8, nodes_.Now()); });
    ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
    EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
    ASSERT_NO_FATAL_FAILURE(ExpectReads(raid));
  }

  SharedNodes nodes_;
  Ref<Raid5Layer> a_, b_;
  std::mt19937 random_{7};
  std::string model_;
};

TEST_F(Raid5SharedTest, WhatOneLeavesTwoServeTogetherAndOneAlone) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_NO_FATAL_FAILURE(ExpectReads(b_));
  Write(b_, 100, 5000);
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  Write(a_, kStripe - 10, 2 * kStripe);
  Write(a_, model_.size() - 7, 7);
  ASSERT_NO_FATAL_FAILURE(ExpectReads(b_));
  ASSERT_NO_FATAL_FAILURE(nodes_.ExpectStored(model_));
  EXPECT_THAT(FactOf(a_, "together"), StartsWith("4 groups"));
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  ASSERT_TRUE(b_->CloseColumns(nodes_.Now()).ok());
  OpenAlone(b_, 1);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(b_));
  EXPECT_EQ(FactOf(b_, "together"), "");
  EXPECT_EQ(FactOf(b_, "missing"), "none");
  // And grows again.
  model_ += "more";
  ASSERT_TRUE(b_->Append(Block::CopyOf("more"), nodes_.Now()).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(b_));
}

TEST_F(Raid5SharedTest, WhatIsKnownOfTheFileIsWhatItWasWhenItWasShared) {
  ASSERT_NO_FATAL_FAILURE(Make());
  Write(b_, 0, 10);
  const auto size = a_->Size(nodes_.Now());
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(*size, model_.size());
  const auto attributes = a_->GetAttributes(nodes_.Now());
  ASSERT_TRUE(attributes.ok()) << attributes.status();
  EXPECT_EQ(attributes->size, model_.size());
  EXPECT_EQ(attributes->inode, "inode");
  EXPECT_GE(attributes->allocated, model_.size());
  const auto promise = a_->Claim(PromiseKind::kWrite, nodes_.Now());
  ASSERT_TRUE(promise.ok()) << promise.status();
  EXPECT_EQ(promise->kind, PromiseKind::kNone);
  // There is nothing that would have to go to the columns.
  EXPECT_TRUE(a_->Push(nodes_.Now()).ok());
  EXPECT_TRUE(a_->Flush(nodes_.Now()).ok());
  EXPECT_TRUE(a_->FlushData(nodes_.Now()).ok());
  nodes_.control(3).dead = true;
  EXPECT_TRUE(IsNeedsAlone(a_->GetAttributes(nodes_.Now()).status()));
  EXPECT_TRUE(a_->Size(nodes_.Now()).ok());
}

// The answers come from another node: that they are such travels.
TEST_F(Raid5SharedTest, WhatIsOnlyDoneAloneSaysSo) {
  ASSERT_NO_FATAL_FAILURE(Make());
  const Ref<Raid5Layer> raid = nodes_.cluster()[1].RefTo<Raid5Layer>(a_.rid());
  const Version now = nodes_.Now();
  EXPECT_TRUE(IsNeedsAlone(raid->Write(model_.size(), Block::CopyOf("x"), now)));
  EXPECT_TRUE(IsNeedsAlone(raid->Append(Block::CopyOf("x"), now).status()));
  EXPECT_TRUE(IsNeedsAlone(raid->Truncate(0, now)));
  EXPECT_TRUE(IsNeedsAlone(raid->Punch(Range{0, 10}, now)));
  EXPECT_TRUE(IsNeedsAlone(raid->Seek(0, true, now).status()));
  EXPECT_TRUE(IsNeedsAlone(raid->SetInode(std::string("other"), now)));
  EXPECT_TRUE(IsNeedsAlone(raid->SaveInode(std::string("other"), now)));
  EXPECT_TRUE(IsNeedsAlone(raid->Rebuild(0, 1, now).status()));
  EXPECT_TRUE(IsNeedsAlone(raid->Scrub(0, 1, now).status()));
  EXPECT_FALSE(*raid->CloseToShare(now));
  EXPECT_TRUE(absl::IsFailedPrecondition(raid->NoteMissed(first_stripe_, now)));
  ASSERT_NO_FATAL_FAILURE(ExpectReads(raid));
  ASSERT_NO_FATAL_FAILURE(nodes_.ExpectStored(model_));
  // What is another error is none of these.
  EXPECT_FALSE(IsNeedsAlone(absl::OkStatus()));
  EXPECT_FALSE(IsNeedsAlone(absl::FailedPreconditionError("of other columns")));
  EXPECT_FALSE(IsNeedsAlone(WouldBlock("somebody")));
  EXPECT_FALSE(IsWouldBlock(NeedsAlone("a test")));
}

TEST_F(Raid5SharedTest, ColumnsThatWereGivenBackAreNotCalled) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  const uint64_t reads = nodes_.reads();
  EXPECT_TRUE(IsNeedsAlone(a_->Read(0, 10, nodes_.Now()).status()));
  EXPECT_TRUE(IsNeedsAlone(a_->Write(0, Block::CopyOf("x"), nodes_.Now())));
  EXPECT_EQ(nodes_.reads(), reads);
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectReads(b_));
  // Together again.
  ASSERT_TRUE(a_->TakeShared(nodes_.Share(0, 13, model_.size())).ok());
  Write(a_, 10, 10);
  ASSERT_NO_FATAL_FAILURE(ExpectReads(b_));
}

TEST_F(Raid5SharedTest, WhoIsShutOutIsToldSo) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_TRUE(b_->CloseColumns(nodes_.Now()).ok());
  OpenAlone(b_, 1);
  const absl::Status written = a_->Write(0, Block::CopyOf("x"), nodes_.Now());
  EXPECT_TRUE(absl::IsUnauthenticated(written)) << written;
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(b_));
}

// The clock that it goes on with where it comes to may be behind: of an identifier that came twice
// the second group would be taken for the first.
TEST_F(Raid5SharedTest, IdentifiersGoOnAfterAMove) {
  constexpr uint64_t kHalfAnHour = uint64_t{1800} * 1'000'000 / Version::kTickUs;
  ASSERT_NO_FATAL_FAILURE(Make());
  HybridClock clock(1, [] {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  });
  const Version ahead = Version::Of(clock.Next().ticks() + kHalfAnHour, 1);
  const auto version_of = [&](uint64_t stripe) {
    const size_t column = nodes_.striping().ColumnOf(stripe, 0);
    const auto versions = nodes_.store(column).ReadVersions(
        SharedNodes::kFile, stripe * kUnit / ObjectStore::kBlockBytes, 1);
    EXPECT_TRUE(versions.ok()) << versions.status();
    return versions.ok() ? Version{versions->front()} : Version();
  };
  ASSERT_TRUE(a_->Write(0, Block::CopyOf("before"), ahead).ok());
  EXPECT_GT(version_of(0), ahead);
  const auto moved = nodes_.cluster().Move(a_.rid(), 0, 1);
  ASSERT_TRUE(moved.ok() && moved->status.ok());
  ASSERT_TRUE(a_->Write(kStripe, Block::CopyOf("after"), nodes_.Now()).ok());
  EXPECT_GT(version_of(1), version_of(0));
}

TEST_F(Raid5SharedTest, ItMovesWhileOthersWrite) {
  ASSERT_NO_FATAL_FAILURE(Make());
  Write(a_, 50, 100);
  const auto moved = nodes_.cluster().Move(a_.rid(), 0, 1);
  ASSERT_TRUE(moved.ok() && moved->status.ok());
  Write(b_, 100, 100);
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  Write(a_, 2 * kStripe + 5, kUnit);
  ASSERT_NO_FATAL_FAILURE(ExpectReads(b_));
  EXPECT_TRUE(IsNeedsAlone(a_->Truncate(0, nodes_.Now())));
  // And given back it stays so.
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  const auto back = nodes_.cluster().Move(a_.rid(), 1, 0);
  ASSERT_TRUE(back.ok() && back->status.ok());
  EXPECT_TRUE(IsNeedsAlone(a_->Read(0, 10, nodes_.Now()).status()));
  ASSERT_NO_FATAL_FAILURE(nodes_.ExpectStored(model_));
}

TEST_F(Raid5SharedTest, ItsNodeIsToldOfParitiesThatAreComputedTogether) {
  ASSERT_NO_FATAL_FAILURE(Make());
  const uint64_t before = nodes_.parity_bytes();
  Write(a_, 0, 100);
  // What was there goes out of the parity, and what is written into it.
  EXPECT_EQ(nodes_.parity_bytes() - before, 2 * ObjectStore::kBlockBytes);
}

TEST_F(Raid5SharedTest, WhatIsKeptToBeWrittenIsWrittenAloneFirst) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  OpenAlone(a_, 0);
  // Two pieces in a row: what of them is of a stripe in part is gathered.
  Write(a_, kStripe, 100);
  Write(a_, kStripe + 100, 100);
  EXPECT_TRUE(IsNeedsAlone(a_->TakeShared(nodes_.Share(0, 14, model_.size()))));
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  ASSERT_TRUE(*a_->CloseToShare(nodes_.Now()));
  ASSERT_TRUE(a_->TakeShared(nodes_.Share(0, 15, model_.size())).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
}

TEST_F(Raid5SharedTest, ColumnsThatAreNoneAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Make());
  SharedColumns shared = nodes_.Share(0, 16, model_.size());
  shared.logs.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(a_->TakeShared(shared)));
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
}

// -- alone again, without a column ----------------------------------------------------------------

// What a group did not reach at the server that is away.
class Raid5MissedTogetherTest : public Raid5SharedTest {
 protected:
  // A write of one stripe, which that column has not got.
  void MakeOneThat(size_t column, uint64_t stripe) {
    ASSERT_NO_FATAL_FAILURE(Make(6 * kStripe));
    const std::string before = nodes_.Stored(model_.size())[column];
    Write(b_, stripe * kStripe + 100, kStripe - 200);
    const std::string after = nodes_.Stored(model_.size())[column];
    ASSERT_NE(before, after);
    const VersionNumber version = nodes_.Now().value;
    ASSERT_TRUE(nodes_.store(column)
                    .Write(SharedNodes::kFile, stripe * kUnit, before.substr(stripe * kUnit, kUnit),
                           version)
                    .ok());
    ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
    nodes_.control(column).dead = true;
    OpenAlone(a_, 0);
    // In part, as groups write: the stripes of these ranges.
    const std::vector<Range> ranges = {Range{stripe * kUnit + 8191, 1}};
    const absl::Status noted = a_->NoteMissed(ranges, nodes_.Now());
    ASSERT_TRUE(noted.ok()) << noted;
  }
  void ExpectOneIsRebuilt(size_t column) {
    nodes_.control(column).dead = false;
    uint64_t rebuilt = 0;
    for (;;) {
      const auto progress = a_->Rebuild(0, 2, nodes_.Now());
      ASSERT_TRUE(progress.ok()) << progress.status();
      rebuilt += progress->rebuilt;
      if (progress->left == 0) break;
    }
    EXPECT_EQ(rebuilt, 1u);
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(a_));
    // Also where another one is away: what was rebuilt is right, and the parity with it.
    ASSERT_TRUE(a_->Flush(nodes_.Now()).ok());
    nodes_.control((column + 1) % 5).dead = true;
    ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  }
};

TEST_F(Raid5MissedTogetherTest, WhatADataColumnMissedIsReadFromParityAndRebuilt) {
  const size_t column = nodes_.striping().ColumnOf(2, 1);
  ASSERT_NO_FATAL_FAILURE(MakeOneThat(column, 2));
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  EXPECT_EQ(FactOf(a_, "missed"), "1 stripes");
  EXPECT_EQ(FactOf(a_, "doubtful"), "0 stripes");
  ASSERT_NO_FATAL_FAILURE(ExpectOneIsRebuilt(column));
}

TEST_F(Raid5MissedTogetherTest, AParityThatWasMissedIsComputedAnew) {
  const size_t column = nodes_.striping().ParityColumn(3);
  ASSERT_NO_FATAL_FAILURE(MakeOneThat(column, 3));
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  ASSERT_NO_FATAL_FAILURE(ExpectOneIsRebuilt(column));
}

// What was noted goes with the object before it opens, and is in the first record after it has.
TEST_F(Raid5MissedTogetherTest, WhatWasMissedIsKnownAfterAMoveAndANewOpening) {
  const size_t column = nodes_.striping().ColumnOf(1, 0);
  ASSERT_NO_FATAL_FAILURE(MakeOneThat(column, 1));
  const auto moved = nodes_.cluster().Move(a_.rid(), 0, 1);
  ASSERT_TRUE(moved.ok() && moved->status.ok());
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  EXPECT_TRUE(absl::IsFailedPrecondition(a_->NoteMissed(first_stripe_, nodes_.Now())));
  Write(a_, 5 * kStripe, 100);  // so that it has to be known that a column is missing
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  ASSERT_TRUE(b_->CloseColumns(nodes_.Now()).ok());
  nodes_.control(column).dead = false;
  ASSERT_TRUE(b_->TakeColumns(nodes_.Columns(1), Ref<Layer>()).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectReads(b_));
  for (uint64_t from = 0, left = 1; left > 0;) {  // steps end by time
    const auto rebuilt = b_->Rebuild(from, 100, nodes_.Now());
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    ASSERT_TRUE(rebuilt->rebuilt > 0 || rebuilt->left == 0);
    from = rebuilt->next, left = rebuilt->left;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(b_));
}

// As after two failures, of which nobody is away any more: the data are what they are.
TEST_F(Raid5MissedTogetherTest, WithAllColumnsThereTheParityIsComputedAnew) {
  constexpr uint64_t kStripeOf = 2;
  ASSERT_NO_FATAL_FAILURE(Make(6 * kStripe));
  const size_t parity = nodes_.striping().ParityColumn(kStripeOf);
  const std::string before = nodes_.Stored(model_.size())[parity].substr(kStripeOf * kUnit, kUnit);
  Write(b_, kStripeOf * kStripe + 100, kStripe - 200);
  const VersionNumber version = nodes_.Now().value;
  ASSERT_TRUE(
      nodes_.store(parity).Write(SharedNodes::kFile, kStripeOf * kUnit, before, version).ok());
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  OpenAlone(a_, 0);
  const std::vector<Range> ranges = {Range{kStripeOf * kUnit, 1}};
  ASSERT_TRUE(a_->NoteMissed(ranges, nodes_.Now()).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
  ASSERT_TRUE(a_->Flush(nodes_.Now()).ok());
  ASSERT_NO_FATAL_FAILURE(nodes_.ExpectStored(model_));
  nodes_.control((parity + 1) % 5).dead = true;
  ASSERT_NO_FATAL_FAILURE(ExpectReads(a_));
}

// Of other columns nothing is forgotten by it.
TEST_F(Raid5MissedTogetherTest, WithAllColumnsThereNothingIsMissed) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_TRUE(a_->CloseColumns(nodes_.Now()).ok());
  OpenAlone(a_, 0);
  const std::vector<Range> ranges = {Range{0, 0}, Range{Raid5Layer::kSpillAt, 8192}};
  ASSERT_TRUE(a_->NoteMissed(ranges, nodes_.Now()).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(a_));
  EXPECT_EQ(FactOf(a_, "missing"), "none");
  EXPECT_EQ(FactOf(a_, "missed"), "0 stripes");
}

}  // namespace
}  // namespace abacus::objfs
