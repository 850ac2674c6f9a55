// The mirror layer against a plain file in memory, with copies that are away, old, damaged or slow.

#include "objfs/raid/mirror_layer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
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
#include "objfs/store/memory_disk.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using ::testing::ElementsAre;
using testing::ExpectIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Noise;
using testing::Rot;
using testing::Step;
using testing::TestCopies;

constexpr uint64_t kUnit = 8192;

void ExpectSame(TestCopies& copies, size_t size) {
  const auto scrubbed = testing::ScrubAll(copies);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_TRUE(scrubbed->done);
  EXPECT_EQ(scrubbed->checked, (size + kUnit - 1) / kUnit);
  EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
}

// What a copy has, to be put back later: as of a server whose disk was restored from a backup.
class OldCopy {
 public:
  OldCopy(TestCopies& copies, size_t column) : column_(column) {
    const auto kept = copies.store(column).GetAttributes(copies.id(column));
    EXPECT_TRUE(kept.ok()) << kept.status();
    record_ = kept->blob;
    bytes_.resize(kept->size_bytes);
    EXPECT_TRUE(copies.store(column).Read(copies.id(column), 0, bytes_).ok());
  }
  void PutBack(TestCopies& copies) const {
    ObjectStore& store = copies.store(column_);
    const ObjectId id = copies.id(column_);
    const uint64_t now = copies.Now().value;
    EXPECT_TRUE(store.Truncate(id, 0, now).ok());
    EXPECT_TRUE(store.Write(id, 0, bytes_, now).ok());
    EXPECT_TRUE(store.SetAttributes(id, record_, now).ok());
    EXPECT_TRUE(store.Flush(id).ok());
  }

 private:
  const size_t column_;
  std::string record_, bytes_;
};

class MirrorModelTest : public ::testing::TestWithParam<int> {};

TEST_P(MirrorModelTest, IsItsModelWhicheverCopyIsAwayOldOrDamaged) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(100) + GetParam());
  std::mt19937 random(seed);
  const size_t count = GetParam() % 2 == 0 ? 2 : 3;
  TestCopies copies(count, "8 KiB");
  std::string model;
  const int rounds = runtime::testing::kSanitized ? 3 : 10;
  for (int round = 0; round < rounds; ++round) {
    const size_t dead = random() % count;
    const int fate = static_cast<int>(random() % 4);  // of its disk: nothing, lost, old, damaged
    const bool restarts = random() % 2 == 0;
    SCOPED_TRACE(
        absl::StrCat("seed ", seed, ", round ", round, ", column ", dead, ", fate ", fate));
    for (int i = 0; i < 15; ++i) ASSERT_NO_FATAL_FAILURE(Step(copies, random, &model)) << i;
    const OldCopy old(copies, dead);
    for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(Step(copies, random, &model)) << i;
    ASSERT_TRUE(copies.top()->Flush(copies.Now()).ok());
    copies.column(dead).dead = true;
    for (int i = 0; i < 15; ++i) ASSERT_NO_FATAL_FAILURE(Step(copies, random, &model)) << i;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(copies, model));
    if (restarts || fate == 1) {
      ASSERT_TRUE(copies.top()->Flush(copies.Now()).ok());
      fate == 1 ? copies.Replace(dead) : copies.Restart();
      ASSERT_NO_FATAL_FAILURE(ExpectIs(copies, model));
      for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(Step(copies, random, &model)) << i;
    }
    if (fate == 2) old.PutBack(copies);
    if (random() % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(copies.Move());
    }
    copies.column(dead).dead = false;
    for (;;) {
      const auto progress = copies.raid()->Rebuild(0, 1 + random() % 3, copies.Now());
      ASSERT_TRUE(progress.ok()) << progress.status();
      EXPECT_EQ(progress->damaged + progress->doubtful, 0u);
      if (progress->left == 0) break;
      ASSERT_NO_FATAL_FAILURE(Step(copies, random, &model));
    }
    EXPECT_THAT(copies.Lacking(), IsEmpty());
    // Noise, and not the zeros that the disk has elsewhere too.
    const size_t rots = model.size() < 64 ? 0 : random() % (model.size() - 63);
    if (fate == 3 && model.size() >= 64 && model.substr(rots, 64).find('\0') > 32) {
      Rot(copies, dead, model.substr(rots, 64));
      ASSERT_NO_FATAL_FAILURE(ExpectIs(copies, model));
      ASSERT_TRUE(testing::ScrubAll(copies).ok());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectIs(copies, model));
    ASSERT_NO_FATAL_FAILURE(ExpectSame(copies, model.size()));
    // Alone, the one that came back has it all.
    ASSERT_TRUE(copies.top()->Flush(copies.Now()).ok());
    for (size_t i = 0; i < count; ++i) copies.column(i).dead = i != dead;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(copies, model));
    for (size_t i = 0; i < count; ++i) copies.column(i).dead = false;
    ASSERT_TRUE(copies.RebuildAll().ok());
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, MirrorModelTest, ::testing::Range(0, 6));

class MirrorTest : public ::testing::Test {
 protected:
  void Fill(size_t units) {
    model_ = Noise(random_, units * kUnit);
    ASSERT_TRUE(copies_.top()->Write(0, Block::CopyOf(model_), copies_.Now()).ok());
    ASSERT_TRUE(Flush().ok());
    copies_.ResetCounters();
  }
  absl::Status TryWrite(uint64_t offset, const std::string& text) {
    return copies_.top()->Write(offset, Block::CopyOf(text), copies_.Now());
  }
  void Write(uint64_t offset, size_t bytes) {
    const std::string text = Noise(random_, bytes);
    const absl::Status written = TryWrite(offset, text);
    ASSERT_TRUE(written.ok()) << written;
    model_.resize(std::max(model_.size(), offset + bytes));
    model_.replace(offset, bytes, text);
  }
  absl::Status Flush() { return copies_.top()->Flush(copies_.Now()); }
  absl::StatusOr<ReadResult> Read() {
    return copies_.top()->Read(0, model_.size() + 1, copies_.Now());
  }

  std::mt19937 random_{7};
  TestCopies copies_{2, "8 KiB"};
  std::string model_;
};

TEST_F(MirrorTest, BytesThatADiskCannotReadAreReadFromTheOtherCopyAndWrittenAnew) {
  Fill(4);
  for (const size_t column : {0, 1}) {
    std::atomic<bool> bad{true};
    copies_.column(column).OnDisk([&](std::string_view call, const std::string& path) {
      if (!path.ends_with(".d")) return absl::OkStatus();
      if (call == "write") bad = false;
      return call == "read" && bad ? ReadError(EIO, path) : absl::OkStatus();
    });
    ASSERT_TRUE(testing::ScrubAll(copies_).ok());  // which reads both
    EXPECT_FALSE(bad) << "it was written anew";
    ASSERT_NO_FATAL_FAILURE(ExpectIs(copies_, model_));
    copies_.column(column).OnDisk(nullptr);
    ExpectSame(copies_, model_.size());
  }
}

TEST_F(MirrorTest, ACopyWhoseDiskFailsIsDoneWithoutAndMadeCurrentAgain) {
  Fill(4);
  for (const int error : {EROFS, EIO}) {
    SCOPED_TRACE(absl::StrCat("errno ", error));
    copies_.column(1).OnDisk([error](std::string_view call, const std::string& path) {
      if (call != "read") return DiskError(error, path);
      return error == EROFS ? absl::OkStatus() : ReadError(error, path);
    });
    ASSERT_NO_FATAL_FAILURE(ExpectIs(copies_, model_));
    for (int k = 0; k < 4; ++k) {
      ASSERT_NO_FATAL_FAILURE(Write(random_() % (3 * kUnit), 1 + random_() % kUnit));
    }
    const absl::Status flushed = Flush();
    ASSERT_TRUE(flushed.ok()) << flushed;
    ASSERT_NO_FATAL_FAILURE(ExpectIs(copies_, model_));
    copies_.column(1).OnDisk(nullptr);
    ASSERT_NO_FATAL_FAILURE(copies_.Restart());
    const auto rebuilt = copies_.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    EXPECT_GT(rebuilt->rebuilt, 0u) << "it had missed something";
    ASSERT_NO_FATAL_FAILURE(ExpectIs(copies_, model_));
    ExpectSame(copies_, model_.size());
  }
}

TEST_F(MirrorTest, ACopyThatMissedAWriteIsNotBelievedUntilItIsRebuilt) {
  Fill(10);
  copies_.column(1).dead = true;
  Write(3 * kUnit + 5, 100);
  ASSERT_TRUE(Flush().ok());
  EXPECT_THAT(copies_.Lacking(), ElementsAre(1));
  // The other one is away now, and what is there is old.
  copies_.column(1).dead = false;
  copies_.column(0).dead = true;
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(absl::IsUnavailable(Read().status()));
    EXPECT_TRUE(absl::IsUnavailable(TryWrite(0, "x")));
    EXPECT_TRUE(absl::IsUnavailable(copies_.raid()->Rebuild(0, 1, copies_.Now()).status()));
    EXPECT_EQ(copies_.column(1).writes, 0u);
    copies_.Restart();
  }
  EXPECT_THAT(copies_.Lacking(), ElementsAre(1));
  copies_.column(0).dead = false;
  ExpectIs(copies_, model_);
  EXPECT_EQ(copies_.column(1).reads, 0u) << "it is not current, and serves no read";
  ASSERT_TRUE(copies_.RebuildAll().ok());
  EXPECT_THAT(copies_.Lacking(), IsEmpty());
  copies_.column(0).dead = true;
  ExpectIs(copies_, model_);
  copies_.Restart();
  ExpectIs(copies_, model_);
}

TEST_F(MirrorTest, AFlushIsNotAcknowledgedBeforeTheWitnessKnowsWhoMissedIt) {
  Fill(4);
  copies_.column(1).dead = true;
  copies_.column(2).dead = true;  // the witness
  EXPECT_TRUE(absl::IsUnavailable(TryWrite(2 * kUnit, "refused")));
  copies_.column(2).dead = false;
  Write(kUnit, 100);
  EXPECT_THAT(copies_.Lacking(), ElementsAre(1)) << "before another copy has bytes that it lacks";
  ASSERT_TRUE(Flush().ok());
  copies_.column(1).dead = false;
  ASSERT_TRUE(copies_.RebuildAll().ok());
  // It fails after it has taken the bytes: the flush is what it misses.
  Write(kUnit, 100);
  EXPECT_THAT(copies_.Lacking(), IsEmpty());
  copies_.column(1).dead = true;
  copies_.column(2).dead = true;
  EXPECT_TRUE(absl::IsUnavailable(Flush()));
  copies_.column(2).dead = false;
  ASSERT_TRUE(Flush().ok());
  EXPECT_THAT(copies_.Lacking(), ElementsAre(1));
}

TEST_F(MirrorTest, AWriteWaitsForTheWitnessAlsoOfACopyThatFailsMeanwhile) {
  TestCopies copies(3, "8 KiB");
  const std::string text(20 * kUnit, 'a');
  ASSERT_TRUE(copies.top()->Write(0, Block::CopyOf(text), copies.Now()).ok());
  ASSERT_TRUE(copies.top()->Flush(copies.Now()).ok());
  std::atomic<bool> told{false};
  copies.column(3).BeforeChange([&](LayerCall) {
    if (told.exchange(true)) return absl::OkStatus();
    // While it is told of the second copy, the third one is found not to serve either.
    copies.column(2).dead = true;
    std::thread reader([&] {
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(copies.top()->Read(0, 1, Version::Of(1'000'000, 2)).ok());
      }
    });
    reader.join();
    return absl::OkStatus();
  });
  copies.column(1).dead = true;
  // Not the stripe that is read, nor does the file grow: the two go on beside each other.
  ASSERT_TRUE(copies.top()->Write(9 * kUnit, Block::CopyOf("b"), copies.Now()).ok());
  EXPECT_TRUE(told);
  EXPECT_THAT(copies.Lacking(), ElementsAre(1, 2));
}

TEST_F(MirrorTest, WhatIsAwayWhileNothingIsChangedLacksNothing) {
  Fill(4);
  copies_.column(1).dead = true;
  ExpectIs(copies_, model_);
  ASSERT_TRUE(copies_.raid()->CloseColumns(copies_.Now()).ok());
  ExpectIs(copies_, model_);
  ASSERT_TRUE(copies_.raid()->CloseColumns(copies_.Now()).ok());
  EXPECT_THAT(copies_.Lacking(), IsEmpty());
  copies_.column(1).dead = false;
  copies_.column(0).dead = true;
  ExpectIs(copies_, model_);
}

TEST_F(MirrorTest, TheLastCopyThatIsCurrentIsNeverMarked) {
  Fill(4);
  copies_.column(0).dead = copies_.column(1).dead = true;
  EXPECT_TRUE(absl::IsUnavailable(TryWrite(0, "x")));
  EXPECT_TRUE(absl::IsUnavailable(Flush()) || Flush().ok());
  EXPECT_LT(copies_.Lacking().size(), 2u);
  copies_.column(0).dead = copies_.column(1).dead = false;
  copies_.Restart();
  ExpectIs(copies_, model_);
}

TEST_F(MirrorTest, OnlyWhatWasMissedIsRebuilt) {
  Fill(50);
  copies_.column(1).dead = true;
  Write(3 * kUnit + 100, 100);
  Write(9 * kUnit, 2 * kUnit);
  ASSERT_TRUE(Flush().ok());
  copies_.Restart();
  copies_.column(1).dead = false;
  copies_.ResetCounters();
  ASSERT_TRUE(copies_.RebuildAll().ok());
  EXPECT_LE(copies_.column(1).written_bytes, 3 * kUnit);
  EXPECT_GE(copies_.column(1).written_bytes, 2 * kUnit);
  ExpectIs(copies_, model_);
  ExpectSame(copies_, model_.size());
}

TEST_F(MirrorTest, ACopyThatLostItsDiskIsFilledAgainAndNeverTakenForANewFile) {
  Fill(20);
  copies_.SetSizeElsewhere(model_.size());
  copies_.Replace(1);
  copies_.column(0).dead = true;
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("no copy that is current"));
  EXPECT_TRUE(absl::IsUnavailable(TryWrite(0, "x")));
  copies_.column(0).dead = false;
  ExpectIs(copies_, model_);
  ASSERT_TRUE(copies_.RebuildAll().ok());
  EXPECT_EQ(copies_.column(1).written_bytes, model_.size());
  copies_.column(0).dead = true;
  ExpectIs(copies_, model_);
}

TEST_F(MirrorTest, ACopyThatReturnsWithOldDataIsNotBelieved) {
  Fill(20);
  const OldCopy old(copies_, 1);
  Write(5 * kUnit, 1000);
  ASSERT_TRUE(copies_.raid()->CloseColumns(copies_.Now()).ok());
  old.PutBack(copies_);  // the witness has it as current, and nobody was told
  ExpectIs(copies_, model_);
  ExpectIs(copies_, model_);
  EXPECT_EQ(copies_.column(1).reads, 0u);
  ASSERT_TRUE(copies_.RebuildAll().ok());
  copies_.column(0).dead = true;
  ExpectIs(copies_, model_);
}

TEST_F(MirrorTest, WhatRottedIsReadFromTheOtherCopyAndRepairedInPlace) {
  Fill(8);
  ASSERT_TRUE(Rot(copies_, 0, model_.substr(5000, 64)));
  ASSERT_TRUE(Rot(copies_, 1, model_.substr(3 * kUnit + 10, 64)));
  std::string own(kUnit, '\0');
  ASSERT_TRUE(absl::IsDataLoss(copies_.store(0).Read(copies_.id(0), 0, own).status()));
  for (int i = 0; i < 4; ++i) ExpectIs(copies_, model_);  // of one copy and of the other
  const auto scrubbed = testing::ScrubAll(copies_);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  ASSERT_TRUE(copies_.store(0).Read(copies_.id(0), 0, own).ok()) << "it was repaired";
  EXPECT_EQ(own, model_.substr(0, kUnit));
  ExpectSame(copies_, model_.size());
  const auto state = copies_.raid()->Describe();
  ASSERT_TRUE(state.ok());
  EXPECT_THAT(state->facts,
              ::testing::Contains(std::pair<std::string, std::string>("repaired", "2 blocks")));
  ASSERT_TRUE(Rot(copies_, 0, model_.substr(6 * kUnit + 9, 64)));
  EXPECT_EQ(testing::ScrubAll(copies_)->repaired, 1u);
  // In both at one place: an error, and nothing is made up.
  ASSERT_TRUE(Rot(copies_, 0, model_.substr(2 * kUnit + 9, 64)));
  ASSERT_TRUE(Rot(copies_, 1, model_.substr(2 * kUnit + 9, 64)));
  EXPECT_TRUE(absl::IsDataLoss(Read().status()));
  EXPECT_EQ(testing::ScrubAll(copies_)->damaged, 1u);
}

TEST_F(MirrorTest, APartOfADamagedBlockIsWrittenRoundTheDamage) {
  Fill(8);
  ASSERT_TRUE(Rot(copies_, 1, model_.substr(2 * kUnit + 5000, 64)));
  Write(2 * kUnit + 100, 50);
  ASSERT_TRUE(Rot(copies_, 0, model_.substr(3 * kUnit + 5000, 64)));
  ASSERT_TRUE(copies_.top()->Punch(Range{3 * kUnit + 10, 20}, copies_.Now()).ok());
  model_.replace(3 * kUnit + 10, 20, 20, '\0');
  ASSERT_TRUE(Rot(copies_, 1, model_.substr(6 * kUnit + 5000, 64)));
  ASSERT_TRUE(copies_.top()->Truncate(6 * kUnit + 5100, copies_.Now()).ok());
  model_.resize(6 * kUnit + 5100);
  ASSERT_TRUE(Flush().ok());
  ExpectIs(copies_, model_);
  ExpectSame(copies_, model_.size());
}

TEST_F(MirrorTest, ScrubMakesCopiesThatDifferTheSame) {
  Fill(3);
  // The store believes what it is given.
  ASSERT_TRUE(copies_.store(1).Write(copies_.id(1), kUnit, "wrong", copies_.Now().value).ok());
  EXPECT_EQ(copies_.raid()->Scrub(0, 3, copies_.Now())->mismatched, 1u);
  ExpectSame(copies_, model_.size());
  ExpectIs(copies_, model_);
}

TEST_F(MirrorTest, AWriteThatOneCopyRefusedIsReadTheSameEachTimeAndFlushedWhenItCan) {
  Fill(4);
  copies_.column(1).BeforeChange([](LayerCall call) -> absl::Status {
    if (call != LayerCall::kWrite) return absl::OkStatus();
    return absl::ResourceExhaustedError("the test has no room");
  });
  EXPECT_TRUE(absl::IsResourceExhausted(TryWrite(kUnit, std::string(kUnit, 'x'))));
  const auto first = Read();
  ASSERT_TRUE(first.ok()) << first.status();
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(Read()->bytes.view() == first->bytes.view()) << i;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Flush()));
  EXPECT_THAT(copies_.Lacking(), IsEmpty());
  copies_.column(1).BeforeChange(nullptr);
  ASSERT_TRUE(Flush().ok());
  model_ = std::string(first->bytes.view());
  ExpectSame(copies_, model_.size());
}

TEST_F(MirrorTest, WithoutAWitnessNothingIsServed) {
  Fill(1);
  runtime::testing::ClusterOptions options;
  options.nodes = 1;
  options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<MirrorLayer>().Add<StorageLayer>();
  };
  MemoryDisk disk;
  runtime::testing::Cluster cluster(options);  // whose layers have the store, and that the disk
  auto store = LocalObjectStore::Open(disk, {});
  ASSERT_TRUE(store.ok());
  const std::shared_ptr<ObjectStore> shared = *std::move(store);
  std::vector<runtime::Ref<Layer>> below;
  for (int i = 0; i < 2; ++i) {
    const auto id = shared->Create("", 1);
    ASSERT_TRUE(id.ok());
    below.emplace_back(
        cluster[0].binding().Adopt(std::make_unique<StorageLayer>(shared, *id)).base());
  }
  const std::vector<std::pair<std::string, std::string>> none;
  const auto mirror = cluster.Create<MirrorLayer>(0, below, none);
  const absl::Status status = mirror->Read(0, 1, Version{1}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("volume over several servers"));
}

// -- slow copies ----------------------------------------------------------------------------------

double MsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

TEST_F(MirrorTest, ASlowCopyDoesNotSlowReadsToItsSpeed) {
  Fill(16);
  constexpr double kSlowMs = 20;
  constexpr int kReads = 100;
  copies_.column(0).read_ns = static_cast<int64_t>(kSlowMs * 1e6);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kReads; ++i) {
    const auto read = copies_.top()->Read((i % 16) * kUnit, 4096, copies_.Now());
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->bytes.view(), model_.substr((i % 16) * kUnit, 4096));
  }
  const double each_ms = MsSince(begin) / kReads;
  printf("one copy takes %.0f ms a read: %.2f ms a read of 4 KiB, %.0f times as fast\n", kSlowMs,
         each_ms, kSlowMs / each_ms);
  EXPECT_LE(each_ms * 2, kSlowMs);
}

TEST_F(MirrorTest, AReadThatIsLateIsAskedForAtTheOtherCopy) {
  Fill(16);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Read().ok());  // both are known
  constexpr double kStallMs = 1000;
  const size_t writes = copies_.column(0).writes;
  double worst_ms = 0;
  // Whichever is asked first stalls, once with either.
  for (size_t slow = 0; slow < 2; ++slow) {
    copies_.column(slow).read_ns = static_cast<int64_t>(kStallMs * 1e6);
    for (int i = 0; i < 10; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const auto read = Read();
      worst_ms = std::max(worst_ms, MsSince(begin));
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_TRUE(read->bytes.view() == model_);
    }
    copies_.column(slow).read_ns = 0;
  }
  printf("a copy stalls for %.0f ms: the longest read took %.1f ms\n", kStallMs, worst_ms);
  EXPECT_LE(worst_ms * 2, kStallMs);
  EXPECT_EQ(copies_.column(0).writes, writes) << "reading changes nothing";
  EXPECT_THAT(copies_.Lacking(), IsEmpty());
}

TEST_F(MirrorTest, ReadsAtOnceGoToBothCopies) {
  Fill(16);
  copies_.column(0).read_ns = copies_.column(1).read_ns = 1'000'000;
  uint64_t first = 0, second = 0;
  // Once of several times: a copy that a busy machine made late is left alone for a second.
  for (int i = 0; i < 5 && std::min(first, second) * 4 <= first + second; ++i) {
    if (i > 0) copies_.Restart();  // a layer that knows nothing of that
    copies_.ResetCounters();
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t r = 0; r < 50; ++r) {
          const auto read =
              copies_.top()->Read((r + t) % 16 * kUnit, 4096, Version::Of(1000 + r, 2));
          ASSERT_TRUE(read.ok()) << read.status();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    first = copies_.column(0).reads;
    second = copies_.column(1).reads;
  }
  EXPECT_GE(std::min(first, second) * 4, first + second) << first << " and " << second;
}

TEST_F(MirrorTest, ReadersAndWritersAtOnceWhileACopyGoesAndComes) {
  Fill(32);
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
        const std::string text(1000, static_cast<char>('A' + i % 26));
        const Version now = Version::Of(1'000'000 + i, static_cast<uint16_t>(t + 2));
        const absl::Status written =
            copies_.top()->Write(unit * kUnit + t * 1000, Block::CopyOf(text), now);
        ASSERT_TRUE(written.ok()) << written;
        last[unit] = text[0], known[unit] = true;
        const size_t look = random() % 32;
        const auto read = copies_.top()->Read(look * kUnit + t * 1000, 1000, now);
        ASSERT_TRUE(read.ok()) << read.status();
        if (known[look]) {
          ASSERT_EQ(read->bytes.view(), std::string(1000, last[look]));
        }
      }
    });
  }
  const int rounds = runtime::testing::kSanitized ? 2 : 5;
  for (int i = 0; i < rounds; ++i) {
    copies_.column(i % 2).dead = true;
    EXPECT_TRUE(Flush().ok());
    copies_.column(i % 2).dead = false;
    const auto rebuilt = copies_.RebuildAll();
    EXPECT_TRUE(rebuilt.ok()) << rebuilt.status();
    EXPECT_THAT(copies_.Lacking(), IsEmpty());
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  ExpectSame(copies_, model_.size());
}

// All copies refuse to cut; what was to be cut off is not seen again, whatever is flushed and
// opened before the file grows.
TEST(MirrorCutTest, WhatATruncationThatFailedHadToCutOffIsNeverSeenAgain) {
  TestCopies copies(2, "8 KiB");
  const std::string text(3 * kUnit, 'o');
  ASSERT_TRUE(copies.top()->Write(0, Block::CopyOf(text), copies.Now()).ok());
  ASSERT_TRUE(copies.top()->Flush(copies.Now()).ok());
  for (size_t i = 0; i < 2; ++i) {
    copies.column(i).BeforeChange([](LayerCall call) {
      return call == LayerCall::kTruncate ? absl::ResourceExhaustedError("the test has no room")
                                          : absl::OkStatus();
    });
  }
  ASSERT_FALSE(copies.top()->Truncate(kUnit, copies.Now()).ok());
  for (size_t i = 0; i < 2; ++i) copies.column(i).BeforeChange(nullptr);
  ASSERT_TRUE(copies.top()->Flush(copies.Now()).ok());
  const uint64_t size = copies.top()->GetAttributes(copies.Now())->size;
  ASSERT_EQ(size, kUnit);
  copies.Restart();
  ASSERT_TRUE(copies.top()->Truncate(text.size(), copies.Now()).ok());
  std::string model = text.substr(0, size);
  model.resize(text.size());
  ASSERT_NO_FATAL_FAILURE(ExpectIs(copies, model));
}

}  // namespace
}  // namespace abacus::objfs
