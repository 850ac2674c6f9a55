#include "runtime/base/block.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

TEST(BlockTest, DefaultIsEmptyAndHarmless) {
  Block block;
  EXPECT_TRUE(block.empty());
  EXPECT_EQ(block.size(), 0u);
  EXPECT_EQ(block.view(), "");
  const Block copy = block;
  EXPECT_EQ(copy, block);
  EXPECT_EQ(block.Slice(0, 0), block);
  block = Block::CopyOf("x");
  EXPECT_EQ(block.view(), "x");
}

TEST(BlockTest, CopyOfCopiesAndFromStringTakesOver) {
  std::string text(10000, 'a');
  const Block copied = Block::CopyOf(text);
  EXPECT_NE(copied.data(), text.data());
  const char* bytes = text.data();
  const Block taken = Block::FromString(std::move(text));
  EXPECT_EQ(taken.data(), bytes);
  EXPECT_EQ(taken, copied);
  EXPECT_EQ(Block::CopyOf("").size(), 0u);
  EXPECT_EQ(Block::FromString("").size(), 0u);
  // A text that is kept inside of the string itself has to follow the string.
  EXPECT_EQ(Block::FromString("short").view(), "short");
}

TEST(BlockTest, CopiesShareTheBytes) {
  const Block block = Block::CopyOf("some bytes");
  const Block copy = block;
  EXPECT_EQ(copy.data(), block.data());
  Block assigned = Block::CopyOf("other bytes");
  assigned = copy;
  EXPECT_EQ(assigned.data(), block.data());
}

TEST(BlockTest, MovedFromBlockIsEmpty) {
  Block block = Block::CopyOf("some bytes");
  const char* bytes = block.data();
  const Block moved = std::move(block);
  EXPECT_EQ(moved.data(), bytes);
  EXPECT_TRUE(block.empty());  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(block.data(), nullptr);
}

TEST(BlockTest, BytesLiveAsLongAsTheLastBlockOverThem) {
  Block slice;
  {
    Block block = Block::FromString(std::string(5000, 'q'));
    slice = block.Slice(4000, 500);
    block = Block();
  }
  EXPECT_EQ(slice.view(), std::string(500, 'q'));
}

TEST(BlockTest, SelfAssignmentKeepsTheBytes) {
  Block block = Block::CopyOf("some bytes");
  const Block& same = block;
  block = same;
  EXPECT_EQ(block.view(), "some bytes");
}

TEST(BlockTest, SliceIsAPartOfTheSameBytes) {
  const Block block = Block::CopyOf("0123456789");
  const Block middle = block.Slice(3, 4);
  EXPECT_EQ(middle.view(), "3456");
  EXPECT_EQ(middle.data(), block.data() + 3);
  EXPECT_EQ(middle.Slice(1, 2).view(), "45");
  EXPECT_EQ(block.Slice(10, 0).size(), 0u);
  EXPECT_EQ(block.Slice(0, 10), block);
}

TEST(BlockDeathTest, SliceBeyondTheEndAborts) {
  const Block block = Block::CopyOf("0123456789");
  EXPECT_DEATH(block.Slice(11, 0), "");
  EXPECT_DEATH(block.Slice(3, 8), "");
  EXPECT_DEATH(block.Slice(3, std::numeric_limits<size_t>::max()), "");
  EXPECT_DEATH(Block().Slice(0, 1), "");
}

TEST(BlockTest, ComparesByBytes) {
  EXPECT_EQ(Block::CopyOf("ab"), Block::FromString("ab"));
  EXPECT_EQ(Block(), Block::Allocate(0));
  EXPECT_FALSE(Block::CopyOf("ab") == Block::CopyOf("ac"));
  EXPECT_FALSE(Block::CopyOf("ab") == Block::CopyOf("abc"));
}

TEST(BlockTest, AllocatedBytesCanBeWritten) {
  Block block = Block::Allocate(1 << 20);
  ASSERT_EQ(block.size(), size_t{1} << 20);
  std::memset(block.mutable_data(), 'z', block.size());
  EXPECT_EQ(block.view().front(), 'z');
  EXPECT_EQ(block.view().back(), 'z');
}

TEST(BlockTest, BytesBeginAtALineOfTheCache) {
  std::vector<Block> blocks;
  for (const size_t bytes : {0, 1, 7, 63, 64, 100, 4096, 32768, 32769, 1 << 20}) {
    for (int i = 0; i < 20; ++i) {
      blocks.push_back(Block::Allocate(bytes + static_cast<size_t>(i)));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().data()) % Block::kAlignment, 0u) << bytes;
      std::memset(blocks.back().mutable_data(), 'z', blocks.back().size());
    }
    blocks.push_back(Block::CopyOf(std::string(bytes, 'a')));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().data()) % Block::kAlignment, 0u) << bytes;
  }
}

class BlockInFileTest : public testing::Test {
 protected:
  BlockInFileTest() {
    std::string path = testing::TempDir() + "/abacus-block-XXXXXX";
    directory_ = mkdtemp(path.data());
  }
  ~BlockInFileTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(BlockInFileTest, HoldsBytesAndLeavesNoFileBehind) {
  absl::StatusOr<Block> block = Block::AllocateInFile(3 << 20, directory_);
  ASSERT_TRUE(block.ok()) << block.status();
  ASSERT_EQ(block->size(), size_t{3} << 20);
  std::memset(block->mutable_data(), 'f', block->size());
  const Block slice = block->Slice(2 << 20, 100);
  block = Block();
  EXPECT_EQ(slice.view(), std::string(100, 'f'));
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(BlockInFileTest, EmptyBlockNeedsNoFile) {
  const absl::StatusOr<Block> block = Block::AllocateInFile(0, directory_ + "/missing");
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(block->empty());
}

TEST_F(BlockInFileTest, MissingDirectoryIsNotFoundAndNamed) {
  const absl::StatusOr<Block> block = Block::AllocateInFile(10, directory_ + "/missing");
  EXPECT_EQ(block.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(block.status().ToString().find(directory_ + "/missing"), std::string::npos)
      << block.status();
}

TEST_F(BlockInFileTest, DirectoryWithoutPermissionIsDenied) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  ASSERT_EQ(chmod(directory_.c_str(), 0500), 0);
  EXPECT_EQ(Block::AllocateInFile(10, directory_).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(BlockInFileTest, SpaceThatCannotBeReservedIsAnErrorAtOnceAndLeavesNoFile) {
  // A limit on file sizes stands for the full disk: the space is asked for, and refused.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::StatusOr<Block> block = Block::AllocateInFile(1 << 20, directory_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);

  ASSERT_FALSE(block.ok());
  EXPECT_NE(block.status().ToString().find("1048576 bytes"), std::string::npos) << block.status();
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST(BlockTest, ThreadsMayCopyAndDropTheSameBytes) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20000;
  Block block = Block::FromString(std::string(4096, 't'));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([mine = block] {
      size_t bytes = 0;
      for (int round = 0; round < kRounds; ++round) {
        const Block copy = mine;
        const Block slice = copy.Slice(static_cast<size_t>(round) % 4096, 1);
        bytes += slice.view().front() == 't' ? 1 : 0;
      }
      EXPECT_EQ(bytes, static_cast<size_t>(kRounds));
    });
  }
  block = Block();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace abacus::runtime
