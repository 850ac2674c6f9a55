#include "objfs/cache/block_pool.h"

#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kBlock = 16;
constexpr uint64_t kAll = UINT64_MAX;

Version At(uint64_t ticks) { return Version::Of(ticks, 1); }
BlockPool::Found Of(char c, uint64_t ticks = 1) {
  return {Block::CopyOf(std::string(kBlock, c)), At(ticks)};
}

class BlockPoolTest : public ::testing::Test {
 protected:
  void Put(uint64_t index, char c) {
    pool_.EndFetch(file_, pool_.BeginFetch(file_, index, 1), {Of(c)});
  }
  void WriteAll(uint64_t index, char c, uint64_t ticks = 2) {
    EXPECT_TRUE(pool_.Write(file_, index, 0, std::string(kBlock, c), At(ticks), false));
  }
  // What is cached of a block; empty: it is not there.
  std::string Bytes(uint64_t index, BlockPool::FileId file) {
    const auto found = pool_.Find(file, index, 1);
    return found[0] ? std::string(found[0]->bytes.view()) : "";
  }
  std::string Bytes(uint64_t index) { return Bytes(index, file_); }

  BlockPool pool_{4 * kBlock};
  BlockPool::FileId file_ = pool_.Open(kBlock);
};

TEST_F(BlockPoolTest, TheLeastRecentlyUsedCleanBlockOfAllFilesMakesRoom) {
  const BlockPool::FileId other = pool_.Open(kBlock);
  pool_.EndFetch(other, pool_.BeginFetch(other, 7, 1), {Of('o')});
  for (uint64_t i = 0; i < 3; ++i) Put(i, static_cast<char>('a' + i));
  EXPECT_EQ(Bytes(0), std::string(kBlock, 'a'));  // used now
  Put(3, 'd');
  EXPECT_EQ(Bytes(7, other), "");
  Put(4, 'e');
  EXPECT_EQ(Bytes(1), "") << "block 0 was used after it";
  EXPECT_EQ(Bytes(0), std::string(kBlock, 'a'));
  EXPECT_EQ(pool_.used_bytes(), 4 * kBlock);
  pool_.Close(other);
}

TEST_F(BlockPoolTest, DirtyBlocksStayAndMayExceedTheBudget) {
  for (uint64_t i = 0; i < 6; ++i) WriteAll(i, 'x');
  EXPECT_EQ(pool_.used_bytes(), 6 * kBlock);
  EXPECT_FALSE(pool_.FitsDirty(0));
  const auto taken = pool_.TakeDirty(file_, 0, kAll, 100 * kBlock);
  ASSERT_THAT(taken, SizeIs(6));
  pool_.EndWriteBack(file_, taken, true);
  EXPECT_EQ(pool_.dirty_bytes(file_), 0u);
  EXPECT_EQ(pool_.used_bytes(), 4 * kBlock);
}

TEST_F(BlockPoolTest, TellsWhatIsWrittenOverFromWhatGoesOn) {
  EXPECT_EQ(pool_.Dirtiness(file_).bytes, 0u);
  const auto write = [&](uint64_t index, uint64_t offset, const std::string& bytes) {
    EXPECT_TRUE(pool_.Write(file_, index, offset, bytes, At(2), true));
  };
  for (uint64_t i = 0; i < 2; ++i) {
    for (uint64_t at = 0; at < kBlock; at += 4) write(i, at, "abcd");
  }
  EXPECT_EQ(pool_.Dirtiness(file_).bytes, 2 * kBlock);
  EXPECT_EQ(pool_.Dirtiness(file_).again, 0.0) << "each byte was written once";
  write(1, kBlock - 1, "x");
  EXPECT_EQ(pool_.Dirtiness(file_).again, 0.5);
  write(1, 0, "xy");
  write(1, 2, "z");
  EXPECT_EQ(pool_.Dirtiness(file_).again, 0.5) << "whatever goes on where that ended";
  pool_.EndWriteBack(file_, pool_.TakeDirty(file_, 0, kAll, 100 * kBlock), true);
  EXPECT_EQ(pool_.Dirtiness(file_).bytes, 0u);
  write(0, 3, "y");
  EXPECT_EQ(pool_.Dirtiness(file_).bytes, kBlock);
  EXPECT_EQ(pool_.Dirtiness(file_).again, 1.0) << "also what had been written back meanwhile";
}

TEST_F(BlockPoolTest, ASmallerBudgetIsThatOfNowOn) {
  for (uint64_t i = 0; i < 3; ++i) Put(i, 'c');
  WriteAll(3, 'x');
  pool_.SetBudget(2 * kBlock, 0.5);
  EXPECT_EQ(pool_.used_bytes(), 2 * kBlock);
  EXPECT_EQ(Bytes(3), std::string(kBlock, 'x')) << "dirty blocks stay";
  EXPECT_TRUE(pool_.FitsDirty(0));
  EXPECT_FALSE(pool_.FitsDirty(1)) << "half of the budget may be dirty";
  pool_.SetBudget(8 * kBlock, 0.5);
  EXPECT_TRUE(pool_.FitsDirty(3 * kBlock));
  EXPECT_FALSE(pool_.FitsDirty(4 * kBlock));
}

TEST_F(BlockPoolTest, ARunIsUnbrokenAndNoLongerThanAsked) {
  for (const uint64_t i : {1, 2, 3, 5}) WriteAll(i, 'x');
  auto first = pool_.TakeDirty(file_, 0, kAll, 2 * kBlock);
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_EQ(first[0].index, 1u);
  auto next = pool_.TakeDirty(file_, 3, kAll, 100 * kBlock);
  ASSERT_THAT(next, SizeIs(1)) << "block 4 is not dirty";
  EXPECT_THAT(pool_.TakeDirty(file_, 6, kAll, kBlock), IsEmpty());
  pool_.EndWriteBack(file_, first, true);
  pool_.EndWriteBack(file_, next, false);
  EXPECT_EQ(pool_.dirty_bytes(file_), 2 * kBlock) << "3, which failed, and 5";
}

TEST_F(BlockPoolTest, WhatIsWrittenDuringAWriteBackStaysDirty) {
  WriteAll(0, 'a');
  const auto taken = pool_.TakeDirty(file_, 0, 0, kBlock);
  WriteAll(0, 'b');
  EXPECT_EQ(taken[0].bytes.view(), std::string(kBlock, 'a')) << "what was taken does not change";
  pool_.EndWriteBack(file_, taken, true);
  EXPECT_EQ(pool_.dirty_bytes(file_), kBlock);
  EXPECT_EQ(Bytes(0), std::string(kBlock, 'b'));
}

TEST_F(BlockPoolTest, ABlockIsWithOneWriteBackAtATimeAndNotDroppedMeanwhile) {
  WriteAll(0, 'a');
  const auto taken = pool_.TakeDirty(file_, 0, 0, kBlock);
  WriteAll(0, 'b');
  std::atomic<bool> ended{false};
  std::vector<BlockPool::Dirty> second;
  std::thread writer([&] {
    second = pool_.TakeDirty(file_, 0, 0, kBlock);
    EXPECT_TRUE(ended) << "while the first one had it";
    pool_.EndWriteBack(file_, second, true);
  });
  std::thread dropper([&] {
    pool_.Drop(file_, 0, 0);
    EXPECT_TRUE(ended);
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  ended = true;
  pool_.EndWriteBack(file_, taken, true);
  writer.join();
  dropper.join();
  EXPECT_EQ(Bytes(0), "");
}

TEST_F(BlockPoolTest, AFetchDoesNotPutOldBytesOverNewOnes) {
  const uint64_t fetch = pool_.BeginFetch(file_, 0, 3);
  WriteAll(1, 'n');
  const auto taken = pool_.TakeDirty(file_, 1, 1, kBlock);
  pool_.EndWriteBack(file_, taken, true);
  pool_.Drop(file_, 1, 1);
  pool_.EndFetch(file_, fetch, {Of('o'), Of('o'), Of('o')});
  EXPECT_EQ(Bytes(0), "") << "dropping spoils a fetch that overlaps";
  EXPECT_EQ(Bytes(1), "");
  const uint64_t again = pool_.BeginFetch(file_, 0, 2);
  WriteAll(1, 'n');
  pool_.EndFetch(file_, again, {Of('o'), Of('o')});
  EXPECT_EQ(Bytes(0), std::string(kBlock, 'o'));
  EXPECT_EQ(Bytes(1), std::string(kBlock, 'n'));
}

TEST_F(BlockPoolTest, AFetchDoesNotBringBackWhatWasInvalidated) {
  const uint64_t fetch = pool_.BeginFetch(file_, 0, 2);
  pool_.Invalidate(file_, 1, 1, At(5));
  pool_.EndFetch(file_, fetch, {Of('o'), Of('o')});
  EXPECT_EQ(Bytes(1), "");
}

TEST_F(BlockPoolTest, InvalidateForgetsWhatIsOlderAndCleanOnly) {
  Put(0, 'o');
  WriteAll(1, 'd', 2);
  WriteAll(2, 'n', 9);
  const auto taken = pool_.TakeDirty(file_, 2, 2, kBlock);
  pool_.EndWriteBack(file_, taken, true);
  pool_.Invalidate(file_, 0, kAll, At(5));
  EXPECT_EQ(Bytes(0), "");
  EXPECT_EQ(Bytes(1), std::string(kBlock, 'd'));
  EXPECT_EQ(Bytes(2), std::string(kBlock, 'n'));
}

TEST_F(BlockPoolTest, APartOfABlockThatIsNotThereIsNotWritten) {
  EXPECT_FALSE(pool_.Write(file_, 0, 3, "abc", At(2), false));
  EXPECT_EQ(Bytes(0), "");
  EXPECT_TRUE(pool_.Write(file_, 0, 3, "abc", At(2), true));
  EXPECT_EQ(Bytes(0), std::string(3, '\0') + "abc" + std::string(10, '\0'));
}

TEST_F(BlockPoolTest, ACutForgetsWhatIsBehindAndZerosTheRest) {
  for (uint64_t i = 0; i < 3; ++i) WriteAll(i, 'x');
  pool_.Cut(file_, kBlock + 4);
  EXPECT_EQ(Bytes(0), std::string(kBlock, 'x'));
  EXPECT_EQ(Bytes(1), "xxxx" + std::string(12, '\0'));
  EXPECT_EQ(Bytes(2), "");
  EXPECT_EQ(pool_.dirty_bytes(file_), 2 * kBlock);
  EXPECT_EQ(pool_.LastDirty(file_), 1u);
}

// Every operation against a plain model, which knows what each block must be if it is there.
TEST_F(BlockPoolTest, IsItsModelWhateverTheOrder) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(5));
  std::mt19937 random(seed);
  std::map<uint64_t, std::string> newest, below;
  for (uint64_t i = 0; i < 8; ++i) newest[i] = below[i] = std::string(kBlock, '0');
  std::vector<std::pair<uint64_t, uint64_t>> fetches;  // and its block
  std::vector<std::pair<uint64_t, std::string>> fetched;
  std::vector<std::vector<BlockPool::Dirty>> write_backs;
  uint64_t ticks = 10;
  for (int step = 0; step < 20000; ++step) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", step " << step);
    const uint64_t index = random() % 8;
    switch (random() % 7) {
      case 0: {
        const std::string bytes(kBlock, static_cast<char>('a' + random() % 26));
        ASSERT_TRUE(pool_.Write(file_, index, 0, bytes, At(++ticks), false));
        newest[index] = bytes;
        break;
      }
      case 1:
        if (pool_.Write(file_, index, 2, "##", At(++ticks), false)) {
          newest[index].replace(2, 2, "##");
        }
        break;
      case 2:
        fetches.emplace_back(pool_.BeginFetch(file_, index, 1), index);
        fetched.emplace_back(index, below[index]);
        break;
      case 3: {
        if (fetches.empty()) break;
        const size_t which = random() % fetches.size();
        const BlockPool::Found block{Block::CopyOf(fetched[which].second), At(1)};
        if (random() % 2 == 0) {
          pool_.EndFetch(file_, fetches[which].first, {block});
        } else if (pool_.WriteFetched(file_, fetches[which].first, block, 5, "!", At(++ticks))) {
          newest[fetches[which].second].replace(5, 1, "!");
        }
        fetches.erase(fetches.begin() + static_cast<ptrdiff_t>(which));
        fetched.erase(fetched.begin() + static_cast<ptrdiff_t>(which));
        break;
      }
      case 4: {
        // One at a time in one thread: a second one could wait for itself.
        if (!write_backs.empty()) break;
        auto taken = pool_.TakeDirty(file_, index, kAll, 3 * kBlock);
        if (!taken.empty()) write_backs.push_back(std::move(taken));
        break;
      }
      case 5: {
        if (write_backs.empty()) break;
        const bool good = random() % 4 != 0;
        for (const auto& block : write_backs[0]) {
          if (good) below[block.index] = std::string(block.bytes.view());
        }
        pool_.EndWriteBack(file_, write_backs[0], good);
        write_backs.clear();
        break;
      }
      default: {
        const std::string cached = Bytes(index);
        if (!cached.empty()) {
          ASSERT_EQ(cached, newest[index]) << "block " << index;
        } else {
          ASSERT_EQ(below[index], newest[index]) << "block " << index << " is nowhere";
        }
      }
    }
    ASSERT_LE(pool_.used_bytes() - pool_.dirty_bytes(file_), 4 * kBlock);
  }
}

}  // namespace
}  // namespace abacus::objfs
