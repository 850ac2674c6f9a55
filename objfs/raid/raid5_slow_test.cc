// The raid5 layer over a column that is slow or stands still.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/raid/testing/test_columns.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::ColumnSwitch;
using testing::ExpectIs;
using testing::Noise;
using testing::TestColumns;

double MsSinceThen(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

class Raid5SlowTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kUnit = 32 << 10, kStripe = 4 * kUnit;
  void Fill(size_t stripes) {
    model_ = Noise(random_, stripes * kStripe);
    ASSERT_TRUE(columns_.top()->Write(0, Block::CopyOf(model_), columns_.Now()).ok());
    ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    columns_.ResetCounters();
  }
  void Slow(size_t column, double ms) {
    columns_.column(column).read_ns = static_cast<int64_t>(ms * 1e6);
  }
  // How long it took.
  double Read(uint64_t offset, size_t bytes) {
    const auto begin = std::chrono::steady_clock::now();
    const auto read = columns_.top()->Read(offset, bytes, columns_.Now());
    const double ms = MsSinceThen(begin);
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read.ok() && read->bytes.view() == model_.substr(offset, bytes))
        << offset << "+" << bytes;
    return ms;
  }
  // The mean of reads of `bytes`, one of each unit of the file.
  double ReadAtEachUnit(size_t bytes) {
    double sum = 0;
    const uint64_t units = model_.size() / kUnit;
    for (uint64_t unit = 0; unit < units; ++unit) sum += Read(unit * kUnit, bytes);
    return sum / static_cast<double>(units);
  }
  void ExpectParity() {
    const auto scrubbed = testing::ScrubAll(columns_);
    ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
    EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
  }

  std::mt19937 random_{7};
  TestColumns columns_{5, "32 KiB"};
  std::string model_;
};

// Each of two servers that are dead, and not known to be yet, keeps its caller waiting: not one
// after the other.
TEST_F(Raid5SlowTest, AnOpeningWaitsForAllColumnsAtOnce) {
  Fill(2);
  ASSERT_TRUE(columns_.raid()->CloseColumns(columns_.Now()).ok());
  // Each answers when all have been asked, or not at all.
  struct All {
    runtime::Mutex mutex;
    runtime::CondVar changed;
    size_t asked ABSL_GUARDED_BY(mutex) = 0;
    size_t alone ABSL_GUARDED_BY(mutex) = 0;  // that gave up waiting for the others
  } all;
  const auto wait = [&all, count = columns_.count()](LayerCall) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    runtime::MutexLock lock(all.mutex);
    ++all.asked;
    all.changed.SignalAll();
    while (all.asked < count && all.alone == 0) {
      if (!all.changed.WaitUntil(all.mutex, end)) ++all.alone;
    }
    all.changed.SignalAll();
    return absl::UnavailableError("the server does not answer");
  };
  for (size_t i = 0; i < columns_.count(); ++i) columns_.column(i).BeforeLook(wait);
  EXPECT_TRUE(absl::IsUnavailable(columns_.top()->Read(0, 1, columns_.Now()).status()));
  {
    runtime::MutexLock lock(all.mutex);
    EXPECT_EQ(all.alone, 0u);
  }
  for (size_t i = 0; i < columns_.count(); ++i) columns_.column(i).BeforeLook(nullptr);
  Read(0, model_.size());
}

TEST_F(Raid5SlowTest, ASlowColumnDoesNotSlowReadsToItsSpeed) {
  Fill(20);
  const double small = ReadAtEachUnit(4096), large = ReadAtEachUnit(3 * kStripe / 2);
  // Far more than a read takes where instrumented code shares a busy core.
  constexpr double kSlowMs = 200;
  Slow(2, kSlowMs);
  const double slow_small = ReadAtEachUnit(4096), slow_large = ReadAtEachUnit(3 * kStripe / 2);
  // Once it is known to be slow it is asked to see whether it still is, and for no more.
  // Where another one is late for once it is asked in its place: one round of some has none such.
  bool spared = false;
  for (int round = 0; round < 10 && !spared; ++round) {
    columns_.ResetCounters();
    const auto begin = std::chrono::steady_clock::now();
    ReadAtEachUnit(4096);
    spared = static_cast<double>(columns_.column(2).reads) <= 2 + MsSinceThen(begin) / 1000;
  }
  EXPECT_TRUE(spared) << columns_.column(2).reads << " reads in the last round";
  printf(
      "reads of 4 KiB %.3f ms, of one and a half stripes %.3f ms; with a column that takes %.0f ms "
      "more %.3f and %.3f ms\n",
      small, large, kSlowMs, slow_small, slow_large);
  EXPECT_LE(slow_small * 2, kSlowMs / 5) << "what its share of the reads would cost at its speed";
  EXPECT_LE(slow_large * 2, kSlowMs);
  EXPECT_EQ(columns_.Sum(&ColumnSwitch::writes), 0u) << "reading changes nothing";
}

TEST_F(Raid5SlowTest, AReadThatIsLateIsComputedFromTheOthers) {
  Fill(20);
  ReadAtEachUnit(4096);  // so that it is known how long each takes
  constexpr double kStallMs = 1000;
  double worst = 0;
  for (size_t column = 0; column < 5; ++column) {
    Slow(column, kStallMs);
    for (uint64_t i = 0; i < 20; ++i) worst = std::max(worst, Read(i * kUnit, 4096));
    for (uint64_t i = 0; i < 3; ++i) worst = std::max(worst, Read(i * 7000, 5 * kStripe));
    Slow(column, 0);
    columns_.Restart();  // a new one, which does not know that it was slow
    ReadAtEachUnit(4096);
  }
  printf("a column stalls for %.0f ms: the longest read took %.1f ms\n", kStallMs, worst);
  EXPECT_LE(worst * 2, kStallMs);
}

// Two columns are late: the read ends when the first of them has answered.
TEST_F(Raid5SlowTest, OfTwoThatAreLateOneIsWaitedFor) {
  Fill(4);
  for (int i = 0; i < 10; ++i) Read(0, kStripe);
  Slow(0, 1000);
  Slow(1, 60);
  const double ms = Read(0, kStripe);
  EXPECT_GE(ms, 50);
  EXPECT_LE(ms * 2, 1000);
}

// The parity of a torn stripe is not that of its data.
TEST_F(Raid5SlowTest, ATornStripeIsNotReadRound) {
  Fill(4);
  for (int i = 0; i < 10; ++i) ReadAtEachUnit(4096);
  // Stripe 0 has its parity in column 4, and unit 1 in column 1.
  columns_.column(4).BeforeChange([](LayerCall call) -> absl::Status {
    if (call != LayerCall::kWrite) return absl::OkStatus();
    return absl::ResourceExhaustedError("the test has no room");
  });
  const std::string text = Noise(random_, 4096);
  EXPECT_TRUE(
      absl::IsResourceExhausted(columns_.top()->Write(0, Block::CopyOf(text), columns_.Now())));
  model_.replace(0, text.size(), text);
  Slow(1, 100);
  for (int i = 0; i < 3; ++i) EXPECT_GE(Read(kUnit, 4096), 90);
  Slow(1, 0);
  columns_.column(4).BeforeChange(nullptr);
  ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
  ExpectIs(columns_, model_);
  ExpectParity();
}

TEST_F(Raid5SlowTest, SoManyReadsAtOnceGoRoundAndNotMore) {
  Fill(4);
  Slow(0, 2000);
  Slow(1, 20);  // where it is seen how many there are
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t t = 0; t < 40; ++t) {
    threads.emplace_back([&, t] {
      const auto read = columns_.top()->Read(t * 128, 128, Version::Of(1000 + t, 2));
      wrong += !read.ok() || read->bytes.view() != model_.substr(t * 128, 128);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(MsSinceThen(begin) * 2, 2000);
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(columns_.column(1).reading_most, 2);
  EXPECT_LE(columns_.column(1).reading_most, Raid5Layer::kReadsRoundMost);
}

TEST_F(Raid5SlowTest, WhatIsReadRoundIsWhatWasWrittenBeside) {
  Fill(8);
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> reads{0};
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      // Each has its own 1,000 bytes of every unit, so that stripes are shared and bytes are not.
      std::mt19937 random(static_cast<uint32_t>(t));
      std::vector<char> last(32, 0);
      std::vector<bool> known(32, false);
      for (uint64_t i = 1; !stop; ++i) {
        const size_t unit = random() % 32;
        const std::string text(1000, static_cast<char>('A' + i % 26));
        const Version now = Version::Of(1'000'000 + i, static_cast<uint16_t>(t + 2));
        const absl::Status written =
            columns_.top()->Write(unit * kUnit + t * 1000, Block::CopyOf(text), now);
        ASSERT_TRUE(written.ok()) << written;
        last[unit] = text[0], known[unit] = true;
        const size_t look = random() % 32;
        const bool all = random() % 4 == 0;
        const uint64_t at = look * kUnit + t * 1000;
        const auto read = columns_.top()->Read(all ? 0 : at, all ? 32 * kUnit : 1000, now);
        ASSERT_TRUE(read.ok()) << read.status();
        ++reads;
        if (known[look]) {
          ASSERT_EQ(read->bytes.view().substr(all ? at : 0, 1000), std::string(1000, last[look]));
        }
      }
    });
  }
  const int rounds = runtime::testing::kSanitized ? 3 : 10;
  for (size_t i = 0; i < static_cast<size_t>(rounds); ++i) {
    Slow(i % 5, 15);
    const uint64_t before = reads;
    while (reads < before + 60) std::this_thread::yield();
    if (i % 2 == 0) {
      EXPECT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    }
    Slow(i % 5, 0);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  const auto state = columns_.raid()->Describe();
  ASSERT_TRUE(state.ok());
  EXPECT_THAT(state->facts, ::testing::Not(::testing::Contains(
                                std::pair<std::string, std::string>("read round", "0 reads"))));
  ExpectParity();
}

}  // namespace
}  // namespace abacus::objfs
