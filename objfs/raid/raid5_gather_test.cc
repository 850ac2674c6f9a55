// Small sequential writes, which the raid5 layer gathers into whole stripes.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::ColumnSwitch;
using testing::ExpectIs;
using testing::Noise;
using testing::TestColumns;

constexpr uint64_t kGatherUnit = 32 << 10, kGatherStripe = 4 * kGatherUnit, kPiece = 4096;

class Raid5GatherTest : public ::testing::Test {
 protected:
  void Write(uint64_t offset, size_t bytes) {
    const std::string text = Noise(random_, bytes);
    const absl::Status written = columns_.top()->Write(offset, Block::CopyOf(text), columns_.Now());
    ASSERT_TRUE(written.ok()) << written;
    model_.resize(std::max<size_t>(model_.size(), offset + bytes));
    model_.replace(offset, bytes, text);
  }
  // The next `pieces` pieces.
  void WriteOn(size_t pieces) {
    for (size_t i = 0; i < pieces; ++i, at_ += kPiece) Write(at_, kPiece);
  }
  void ExpectRead(uint64_t offset, uint64_t bytes) {
    const auto read = columns_.top()->Read(offset, bytes, columns_.Now());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->bytes.view() == model_.substr(offset, bytes)) << offset << "+" << bytes;
  }
  std::string Fact(const std::string& name) {
    const auto state = columns_.raid()->Describe();
    if (!state.ok()) return std::string(state.status().message());
    for (const auto& [key, value] : state->facts) {
      if (key == name) return value;
    }
    return "";
  }
  uint64_t Moved() const {
    return columns_.Sum(&ColumnSwitch::read_bytes) + columns_.Sum(&ColumnSwitch::written_bytes);
  }

  std::mt19937 random_{7};
  TestColumns columns_{5, "32 KiB"};
  std::string model_;
  uint64_t at_ = 0;
};

TEST_F(Raid5GatherTest, SmallSequentialWritesAreWholeStripesWithoutReads) {
  WriteOn(2 * kGatherStripe / kPiece);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), 0u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 10u) << "a unit at each column, of each stripe";
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::written_bytes), 10 * kGatherUnit);
  ExpectIs(columns_, model_);
  // Of what begins in the middle the first stripe is written in part.
  columns_.ResetCounters();
  at_ = kGatherStripe / 2;
  WriteOn((kGatherStripe / 2 + kGatherStripe) / kPiece);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 2 + 3 + 5u)
      << "the first piece, the rest, a stripe";
  ExpectIs(columns_, model_);
}

TEST_F(Raid5GatherTest, PiecesThatAreOfTwoStripesAreGatheredToo) {
  constexpr size_t kOdd = 12'345;
  while (at_ + kOdd < 4 * kGatherStripe) {
    Write(at_, kOdd);
    at_ += kOdd;
  }
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), 0u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 15u);
  // And large ones, of which most is whole stripes anyway.
  columns_.ResetCounters();
  Write(at_, 8 * kGatherStripe);
  at_ += 8 * kGatherStripe;
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), 0u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 10u);
  ExpectIs(columns_, model_);
  EXPECT_EQ(testing::ScrubAll(columns_)->mismatched, 0u);
}

TEST_F(Raid5GatherTest, WhatIsKeptIsSeenByEachCall) {
  for (int i = 0; i < 40; ++i) {
    WriteOn(3);
    EXPECT_EQ(columns_.top()->GetAttributes(columns_.Now())->size, model_.size());
    if (i % 2 == 0) {
      ExpectRead(at_ - kPiece - 100, 200);
    }
  }
  // Behind a gap, of which the columns know as little.
  Write(at_ + 1000, 100);
  at_ += 1100;
  WriteOn(1);
  ExpectRead(at_ - kPiece - 700, 700);
  WriteOn(1);
  // What comes later wins, and what lies elsewhere is none of its business.
  Write(at_ - 2000, 1000);
  WriteOn(2);
  Write(5000, 3000);
  ExpectRead(at_ - 3 * kPiece, 3 * kPiece);
  WriteOn(1);
  EXPECT_EQ(*columns_.raid()->Size(columns_.Now()), model_.size());
  WriteOn(1);
  const uint64_t cut = model_.size() - 1500;
  ASSERT_TRUE(columns_.top()->Truncate(cut, columns_.Now()).ok());
  model_.resize(cut);
  at_ = cut;
  Write(at_, 10);
  WriteOn(1);
  const auto appended = columns_.top()->Append(Block::CopyOf("appended"), columns_.Now());
  ASSERT_TRUE(appended.ok()) << appended.status();
  EXPECT_EQ(*appended, model_.size());
  model_ += "appended";
  at_ = model_.size();
  Write(at_, 10);
  Write(at_ + 10, 1000);
  ASSERT_TRUE(columns_.top()->Punch(Range{at_ + 5, 500}, columns_.Now()).ok());
  model_.replace(at_ + 5, 500, 500, '\0');
  ExpectIs(columns_, model_);
}

TEST_F(Raid5GatherTest, WhatWasFlushedOrClosedIsThereAfterACrash) {
  for (const bool closes : {false, true}) {
    WriteOn(3);
    EXPECT_EQ(columns_.Sum(&ColumnSwitch::written_bytes), 0u) << "it is kept";
    const absl::Status done = closes ? columns_.raid()->CloseColumns(columns_.Now())
                                     : columns_.top()->Flush(columns_.Now());
    ASSERT_TRUE(done.ok()) << done;
    columns_.Restart();
    ExpectIs(columns_, model_);
    columns_.ResetCounters();
    columns_.Restart();
    at_ = 0;
  }
}

TEST_F(Raid5GatherTest, WhatIsRecalledIsAtTheColumns) {
  WriteOn(3);
  ASSERT_TRUE(columns_.top()->Recall(Range{}, columns_.Now()).ok());
  EXPECT_EQ(Fact("gathered").substr(0, 8), "0 bytes,");
  EXPECT_GT(columns_.Sum(&ColumnSwitch::written_bytes), 0u);
  ExpectIs(columns_, model_);
}

TEST_F(Raid5GatherTest, ItMovesWithTheObjectAndGoesOn) {
  WriteOn(5);
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(columns_.Move());
    WriteOn(3);
  }
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 0u);
  WriteOn(kGatherStripe / kPiece - 14);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::reads), 0u);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 5u) << "a whole stripe";
  WriteOn(1);
  ASSERT_NO_FATAL_FAILURE(columns_.Move());
  EXPECT_EQ(columns_.top()->GetAttributes(columns_.Now())->size, model_.size());
  ExpectIs(columns_, model_);
}

TEST_F(Raid5GatherTest, WhatCannotBeWrittenIsToldAndKept) {
  WriteOn(3);
  columns_.column(1).BeforeChange([](LayerCall call) -> absl::Status {
    if (call != LayerCall::kWrite) return absl::OkStatus();
    return absl::ResourceExhaustedError("the test has no room");
  });
  columns_.column(0).BeforeChange([](LayerCall call) -> absl::Status {
    if (call != LayerCall::kWrite) return absl::OkStatus();
    return absl::ResourceExhaustedError("the test has no room");
  });
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(columns_.top()->Flush(columns_.Now())));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(columns_.raid()->Size(columns_.Now()).status()));
  // Also where it has become a whole stripe meanwhile, and goes on.
  absl::Status refused;
  while (at_ < kGatherStripe + 2 * kPiece) {
    const std::string text = Noise(random_, kPiece);
    refused = columns_.top()->Write(at_, Block::CopyOf(text), columns_.Now());
    if (refused.ok() || at_ < kGatherStripe) model_ += text;
    at_ += kPiece;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  columns_.column(0).BeforeChange(nullptr);
  columns_.column(1).BeforeChange(nullptr);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  ExpectIs(columns_, model_);
  // Who closes is told, and the next opening knows nothing of it.
  at_ = model_.size();
  Write(at_, 100);
  Write(at_ + 100, 100);
  for (size_t i = 0; i < columns_.count(); ++i) {
    columns_.column(i).BeforeChange([](LayerCall call) -> absl::Status {
      if (call != LayerCall::kWrite) return absl::OkStatus();
      return absl::ResourceExhaustedError("the test has no room");
    });
  }
  EXPECT_TRUE(absl::IsResourceExhausted(columns_.raid()->CloseColumns(columns_.Now())));
  for (size_t i = 0; i < columns_.count(); ++i) columns_.column(i).BeforeChange(nullptr);
  // The file has grown for what could not be written, and has that or zeros there.
  EXPECT_EQ(columns_.top()->GetAttributes(columns_.Now())->size, at_ + 200);
  ExpectRead(0, at_ + 100);
  const auto last = columns_.top()->Read(at_ + 100, 200, columns_.Now());
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->bytes.view() == model_.substr(at_ + 100, 100) ||
              last->bytes.view() == std::string(100, '\0'));
}

// What cannot be written does not keep the rest from being durable.
TEST_F(Raid5GatherTest, AFlushThatCannotWriteAllFlushesTheRest) {
  Write(0, 2 * kGatherStripe + 5000);
  at_ = model_.size();
  ASSERT_TRUE(columns_.top()->Push(columns_.Now()).ok());
  // All of it is of stripes that were admitted: to admit one flushes too.
  Write(100, 5000);
  WriteOn(3);
  const auto refuse = [](LayerCall call) -> absl::Status {
    if (call != LayerCall::kWrite) return absl::OkStatus();
    return absl::ResourceExhaustedError("the test has no room");
  };
  for (size_t i = 0; i < columns_.count(); ++i) columns_.column(i).BeforeChange(refuse);
  columns_.ResetCounters();
  EXPECT_TRUE(absl::IsResourceExhausted(columns_.top()->Flush(columns_.Now())));
  for (size_t i = 0; i < columns_.count(); ++i) {
    EXPECT_GT(columns_.column(i).flushes, 0u) << i;
    columns_.column(i).BeforeChange(nullptr);
    columns_.disk(i).CutPower();
  }
  columns_.Stop();
  for (size_t i = 0; i < columns_.count(); ++i) columns_.disk(i).PowerOn(i);
  columns_.Start();
  ExpectRead(0, at_ - 2 * kPiece);
  EXPECT_EQ(testing::ScrubAll(columns_)->mismatched, 0u);
}

// Full disks keep nobody from reading, cutting off and punching, which makes room.
TEST_F(Raid5GatherTest, WhatCannotBeWrittenIsReadAndCanBeRemoved) {
  const auto fill = [&](bool full) {
    for (size_t column = 0; column < columns_.count(); ++column) {
      columns_.column(column).BeforeChange([full](LayerCall call) -> absl::Status {
        if (!full || call != LayerCall::kWrite) return absl::OkStatus();
        return absl::ResourceExhaustedError("the test has no room");
      });
    }
  };
  Write(0, 2 * kGatherStripe + 5000);
  at_ = model_.size();
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  WriteOn(3);
  columns_.ResetCounters();
  ASSERT_TRUE(columns_.top()->Punch(Range{at_ - kPiece, 100}, columns_.Now()).ok());
  model_.replace(at_ - kPiece, 100, 100, '\0');
  ASSERT_TRUE(columns_.top()->Truncate(at_ - 1000, columns_.Now()).ok());
  model_.resize(at_ - 1000);
  at_ = model_.size();
  EXPECT_EQ(Fact("gathered").substr(0, 12), "11288 bytes,");
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 0u);
  fill(true);
  EXPECT_TRUE(absl::IsResourceExhausted(columns_.top()->Flush(columns_.Now())));
  ExpectRead(at_ - 2 * kPiece - 700, kPiece);
  ExpectRead(at_ - 3 * kPiece, 3 * kPiece);
  ExpectIs(columns_, model_);
  ASSERT_TRUE(columns_.top()->Punch(Range{0, kGatherStripe}, columns_.Now()).ok());
  model_.replace(0, kGatherStripe, kGatherStripe, '\0');
  ExpectIs(columns_, model_);
  ASSERT_TRUE(columns_.top()->Punch(Range{2 * kGatherStripe, 0}, columns_.Now()).ok());
  std::fill(model_.begin() + 2 * kGatherStripe, model_.end(), '\0');
  EXPECT_EQ(Fact("gathered").substr(0, 8), "0 bytes,");
  ExpectIs(columns_, model_);
  at_ = model_.size();
  fill(false);
  Write(at_, 10);
  at_ += 10;
  WriteOn(2);
  fill(true);
  EXPECT_TRUE(absl::IsResourceExhausted(columns_.top()->Flush(columns_.Now())));
  ASSERT_TRUE(columns_.top()->Truncate(0, columns_.Now()).ok());
  model_.clear();
  EXPECT_EQ(Fact("gathered").substr(0, 8), "0 bytes,");
  EXPECT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  fill(false);
  at_ = 0;
  WriteOn(2);
  ExpectIs(columns_, model_);
  EXPECT_EQ(testing::ScrubAll(columns_)->mismatched, 0u);
}

TEST_F(Raid5GatherTest, NotMoreThanAStripeIsKeptAndNoneThatIsTooLarge) {
  WriteOn(3);
  EXPECT_EQ(Fact("gathered"), "12288 bytes, after 3 writes");
  WriteOn(kGatherStripe / kPiece);
  EXPECT_EQ(Fact("gathered"),
            absl::StrCat("12288 bytes, after ", 3 + kGatherStripe / kPiece, " writes"));
  TestColumns large(6, "1 MiB");
  ASSERT_TRUE(large.top()->Write(0, Block::CopyOf("x"), large.Now()).ok());
  EXPECT_GT(large.Sum(&ColumnSwitch::writes), 0u);
  TestColumns off(3, "8 KiB", {{"gather", "off"}});
  ASSERT_TRUE(off.top()->Write(0, Block::CopyOf("x"), off.Now()).ok());
  EXPECT_GT(off.Sum(&ColumnSwitch::writes), 0u);
}

// Of columns that are taken anew under what is kept; and closing ends that.
TEST_F(Raid5GatherTest, OtherColumnsGetWhatTheOldOnesDidNot) {
  WriteOn(3);
  const auto below = columns_.below();
  columns_.column(0).dead = columns_.column(1).dead = true;
  EXPECT_TRUE(absl::IsUnavailable(columns_.top()->Flush(columns_.Now())));
  columns_.column(0).dead = columns_.column(1).dead = false;
  ASSERT_TRUE(columns_.raid()->TakeColumns(below, columns_.witness()).ok());
  ExpectIs(columns_, model_);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  WriteOn(2);
  columns_.column(0).dead = columns_.column(1).dead = true;
  EXPECT_TRUE(absl::IsUnavailable(columns_.top()->Flush(columns_.Now())));
  ASSERT_TRUE(columns_.raid()->TakeColumns(below, columns_.witness()).ok());
  EXPECT_TRUE(absl::IsUnavailable(columns_.raid()->CloseColumns(columns_.Now())));
  columns_.column(0).dead = columns_.column(1).dead = false;
  model_.resize(3 * kPiece);
  ExpectIs(columns_, model_);
}

// The size is asked while what is kept goes to the columns, again and again.
TEST_F(Raid5GatherTest, TheSizeNeverGoesBack) {
  Write(0, kGatherUnit);
  at_ = kGatherUnit;
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  // What follows has parity with that, which is read: the columns' size is looked at before.
  for (size_t i = 0; i < columns_.count(); ++i) columns_.column(i).read_ns = 300'000;
  std::atomic<uint64_t> written{0}, asked{0};
  std::atomic<bool> stop{false};
  std::thread asker([&] {
    for (uint64_t i = 1; !stop; ++i) {
      const uint64_t known = written;
      asked = known;
      const auto got = columns_.top()->GetAttributes(Version::Of(1'000'000 + i, 2));
      EXPECT_TRUE(got.ok()) << got.status();
      EXPECT_GE(got.ok() ? got->size : 0, known);
    }
  });
  const uint64_t rounds = runtime::testing::kSanitized ? 100 : 400;
  for (uint64_t i = 1; i <= rounds; ++i) {
    const Version now = Version::Of(1'000'000 + i, 9);
    EXPECT_TRUE(columns_.top()->Write(at_, Block::CopyOf("some bytes"), now).ok());
    at_ += 10;
    written = at_;
    while (asked < at_) std::this_thread::yield();  // it knows of this write, and is looking
    EXPECT_TRUE(columns_.raid()->Size(now).ok());
  }
  stop = true;
  asker.join();
}

// Where a column is missing there is no parity that is saved anything.
TEST_F(Raid5GatherTest, WithAColumnMissingNothingIsKept) {
  WriteOn(3);
  columns_.column(2).dead = true;
  WriteOn(kGatherStripe / kPiece - 3);  // finds that out
  WriteOn(3);
  EXPECT_EQ(Fact("gathered").substr(0, 8), "0 bytes,");
  ExpectIs(columns_, model_);
  columns_.column(2).dead = false;
  ASSERT_TRUE(columns_.RebuildAll().ok());
  WriteOn(7);
  ExpectIs(columns_, model_);
  EXPECT_EQ(testing::ScrubAll(columns_)->mismatched, 0u);
}

TEST_F(Raid5GatherTest, AReaderBesideTheWriterSeesWhatWasAcknowledged) {
  std::atomic<uint64_t> written{0};
  std::atomic<bool> stop{false};
  const auto byte_at = [](uint64_t at) { return static_cast<char>('a' + at / 1000 % 23); };
  std::vector<std::thread> readers;
  for (uint16_t t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      std::mt19937 random(t);
      for (uint64_t i = 1; !stop; ++i) {
        const uint64_t known = written;
        if (known == 0) continue;
        const uint64_t at = random() % 2 == 0
                                ? known - 1 - random() % std::min<uint64_t>(known, 9000)
                                : random() % known;
        const Version now = Version::Of(1'000'000 + i, static_cast<uint16_t>(t + 2));
        const auto read = columns_.top()->Read(at, known - at, now);
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_EQ(read->bytes.size(), known - at);
        ASSERT_EQ(read->bytes.view()[0], byte_at(at));
        ASSERT_EQ(read->bytes.view().back(), byte_at(known - 1));
        ASSERT_GE(columns_.top()->GetAttributes(now)->size, known);
      }
    });
  }
  const uint64_t rounds = runtime::testing::kSanitized ? 300 : 1500;
  for (uint64_t i = 1; i <= rounds; ++i) {
    std::string text(1 + random_() % 3000, '\0');
    for (size_t j = 0; j < text.size(); ++j) text[j] = byte_at(at_ + j);
    const Version now = Version::Of(1'000'000 + i, 9);
    ASSERT_TRUE(columns_.top()->Write(at_, Block::CopyOf(text), now).ok());
    model_ += text;
    at_ += text.size();
    written = at_;
  }
  stop = true;
  for (auto& reader : readers) reader.join();
  ExpectIs(columns_, model_);
  EXPECT_EQ(testing::ScrubAll(columns_)->mismatched, 0u);
}

// What a sequential writer of 4 KiB costs: in the columns' I/Os, and beneath a cache.
TEST_F(Raid5GatherTest, ItSavesMostOfWhatIsMoved) {
  constexpr uint64_t kBytes = 4 << 20;
  const std::string piece = Noise(random_, kPiece);
  uint64_t moved[2] = {};
  for (const bool gathers : {false, true}) {
    TestColumns columns(5, "32 KiB", {{"gather", gathers ? "on" : "off"}});
    const auto begin = std::chrono::steady_clock::now();
    for (uint64_t at = 0; at < kBytes; at += kPiece) {
      ASSERT_TRUE(columns.top()->Write(at, Block::CopyOf(piece), columns.Now()).ok());
    }
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const uint64_t read = columns.Sum(&ColumnSwitch::read_bytes);
    const uint64_t put = columns.Sum(&ColumnSwitch::written_bytes);
    moved[gathers] = read + put;
    printf(
        "gather=%s: of 4 MiB in pieces of 4 KiB %.2f read, %.2f written, in %llu + %llu I/Os; "
        "%.0f MB/s\n",
        gathers ? "on" : "off", static_cast<double>(read) / kBytes,
        static_cast<double>(put) / kBytes,
        static_cast<unsigned long long>(columns.Sum(&ColumnSwitch::reads)),
        static_cast<unsigned long long>(columns.Sum(&ColumnSwitch::writes)),
        kBytes / took.count() / 1e6);
  }
  EXPECT_EQ(moved[1], kBytes / 4 * 5);
  EXPECT_GE(moved[0], 2 * moved[1]);
  // Beneath a cache they come as whole stripes anyway.
  TestColumns cached(5, "32 KiB", {{"gather", "off"}});
  const auto cache = cached.CacheAbove();
  for (uint64_t at = 0; at < kBytes; at += kPiece) {
    ASSERT_TRUE(cache->Write(at, Block::CopyOf(piece), cached.Now()).ok());
  }
  ASSERT_TRUE(cache->Flush(cached.Now()).ok());
  printf("gather=off beneath a cache: %.2f read, %.2f written\n",
         static_cast<double>(cached.Sum(&ColumnSwitch::read_bytes)) / kBytes,
         static_cast<double>(cached.Sum(&ColumnSwitch::written_bytes)) / kBytes);
}

}  // namespace
}  // namespace abacus::objfs
