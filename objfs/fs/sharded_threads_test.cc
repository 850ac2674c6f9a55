// Names in a volume of several shards that several clients change at the same time.

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/sharded_fixture.h"

namespace abacus::objfs {
namespace {

using ::testing::AnyOf;
using testing::ShardedWorld;

using ShardedThreadsTest = testing::ShardedFixture;

// Two clients that move directories below each other: one is refused, or a part of the tree would
// hang on itself. Of two shards, and of one that is not the root's.
TEST_F(ShardedThreadsTest, CrossingRenamesOverShardsMakeNoCycle) {
  const int rounds = runtime::testing::kSanitized ? 4 : 25;
  for (const uint32_t of_second : {2u, 1u}) {
    for (int i = 0; i < rounds; ++i) {
      SCOPED_TRACE(absl::StrCat("shards 1 and ", of_second, ", round ", i));
      const ObjectId top = MakeDirectory(*a_, in_[1], absl::StrCat("top ", of_second, " ", i));
      const ObjectId x = MakeDirectory(*a_, top, "x"),
                     y = MakeForeignDirectory(of_second, top, "y");
      FsError first = FsError::kNone, second = FsError::kNone;
      std::thread one([&] { first = ErrorOf(Rename(*a_, top, "x", y, "x")); });
      std::thread two([&] { second = ErrorOf(Rename(*b_, top, "y", x, "y")); });
      one.join();
      two.join();
      // Who comes second finds its own directory above, or the other's name gone.
      EXPECT_NE(first == FsError::kNone, second == FsError::kNone)
          << FsErrorName(first) << " and " << FsErrorName(second);
      for (const FsError error : {first, second}) {
        EXPECT_THAT(error, AnyOf(FsError::kNone, FsError::kInvalid, FsError::kNoEntry));
      }
      EXPECT_EQ(NamesIn(*a_, top).size(), 1u);
      EXPECT_EQ(Links(*b_, top), 3u);
    }
  }
}

// The same where the two have no object in common: each looks at the other's way to the root, which
// is all in one shard, and changes its own.
TEST_F(ShardedThreadsTest, RenamesThatMeetOnTheirWaysToTheRootMakeNoCycle) {
  const int rounds = runtime::testing::kSanitized ? 6 : 60;
  int first_won = 0;
  for (int i = 0; i < rounds; ++i) {
    SCOPED_TRACE(i);
    const std::string name = absl::StrCat("moved ", i);
    const ObjectId a = MakeDirectory(*a_, in_[1], name), b = MakeDirectory(*a_, in_[2], name);
    const ObjectId below_a = MakeDirectory(*a_, a, "below"),
                   below_b = MakeDirectory(*a_, b, "below");
    FsError first = FsError::kNone, second = FsError::kNone;
    std::thread one([&] { first = ErrorOf(Rename(*a_, in_[1], name, below_b, name)); });
    std::thread two([&] { second = ErrorOf(Rename(*b_, in_[2], name, below_a, name)); });
    one.join();
    two.join();
    EXPECT_NE(first == FsError::kNone, second == FsError::kNone)
        << FsErrorName(first) << " and " << FsErrorName(second);
    const FsError refused = first == FsError::kNone ? second : first;
    EXPECT_EQ(refused, FsError::kInvalid) << FsErrorName(refused);
    if (first == FsError::kNone) ++first_won;
  }
  std::cout << "of " << rounds << " rounds the first one won " << first_won << "\n";
}

// Something is made in it at the same time: one of the two is refused.
TEST_F(ShardedThreadsTest, NoDirectoryIsRemovedWithWhatIsMadeInItMeanwhile) {
  const int rounds = runtime::testing::kSanitized ? 4 : 25;
  int removed = 0;
  for (int i = 0; i < rounds; ++i) {
    SCOPED_TRACE(i);
    const std::string name = ShardedWorld::NameIn(1 + i % 2, Root(), absl::StrCat("round", i, " "));
    const ObjectId d = MakeDirectory(*a_, Root(), name);
    FsError removal = FsError::kNone, making = FsError::kNone;
    std::thread one([&] { removal = ErrorOf(a_->RemoveDirectory(kRoot, Root(), name)); });
    std::thread two(
        [&] { making = ErrorOf(b_->Make(kRoot, d, "f", S_IFREG | 0644, 0, "").status()); });
    one.join();
    two.join();
    EXPECT_NE(removal == FsError::kNone, making == FsError::kNone)
        << FsErrorName(removal) << " and " << FsErrorName(making);
    if (removal == FsError::kNone) ++removed;
    EXPECT_EQ(Named(*b_, Root(), name), removal == FsError::kNone ? 0 : d);
  }
  std::cout << "of " << rounds << " directories " << removed << " were removed\n";
}

// Transactions over all pairs of shards that want the same objects: none waits for another for
// ever, and each name is in one directory.
TEST_F(ShardedThreadsTest, RenamesOfTheSameNamesByManyLoseNone) {
  constexpr int kFiles = 6, kThreads = 4;
  const int each = runtime::testing::kSanitized ? 12 : 60;
  const uint64_t seed = runtime::testing::Seed(41);
  std::vector<ObjectId> files;
  for (int i = 0; i < kFiles; ++i) {
    files.push_back(MakeFile(*a_, in_[i % kShards], absl::StrCat("f", i)));
  }
  std::atomic<int> moved{0}, missed{0};
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(t));
      FileSystem& at = t % 2 == 0 ? *a_ : *b_;
      for (int i = 0; i < each; ++i) {
        const std::string name = absl::StrCat("f", random() % kFiles);
        const ObjectId from = in_[random() % kShards], to = in_[random() % kShards];
        const absl::Status renamed = Rename(at, from, name, to, name);
        const FsError error = ErrorOf(renamed);
        EXPECT_THAT(error, AnyOf(FsError::kNone, FsError::kNoEntry)) << renamed;
        ++(error == FsError::kNone ? moved : missed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto took = std::chrono::steady_clock::now() - begun;
  std::cout << moved << " renames, " << missed << " of names that were elsewhere, in "
            << std::chrono::duration_cast<std::chrono::milliseconds>(took).count() << " ms\n";
  EXPECT_GT(moved, 0);
  const auto check = [&] {
    for (int i = 0; i < kFiles; ++i) {
      int names = 0;
      for (const ObjectId directory : in_) {
        if (Named(*b_, directory, absl::StrCat("f", i)) == files[i]) ++names;
      }
      EXPECT_EQ(names, 1) << "f" << i;
      EXPECT_EQ(Links(*a_, files[i]), 1u);
    }
    size_t all = 0;
    for (const ObjectId directory : in_) all += ListAll(*a_, directory).size();
    EXPECT_EQ(all, size_t{kFiles});
  };
  check();
  Restart();
  check();
}

// Names that several make in the root, in whichever shard, and take away again.
TEST_F(ShardedThreadsTest, DirectoriesThatManyMakeInTheRootAreEachMadeOnce) {
  constexpr int kThreads = 4;
  const int names = runtime::testing::kSanitized ? 8 : 40;
  std::atomic<int> made{0}, removed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      FileSystem& at = t % 2 == 0 ? *a_ : *b_;
      for (int i = 0; i < names; ++i) {
        const auto node = at.Make(kRoot, Root(), absl::StrCat("both ", i), S_IFDIR | 0755, 0, "");
        EXPECT_THAT(ErrorOf(node.status()), AnyOf(FsError::kNone, FsError::kExists))
            << node.status();
        if (node.ok()) ++made;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, names);
  EXPECT_EQ(Links(*a_, Root()), 2u + kShards + static_cast<uint32_t>(names));
  threads.clear();
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      FileSystem& at = t % 2 == 0 ? *a_ : *b_;
      for (int i = 0; i < names; ++i) {
        const absl::Status status = at.RemoveDirectory(kRoot, Root(), absl::StrCat("both ", i));
        EXPECT_THAT(ErrorOf(status), AnyOf(FsError::kNone, FsError::kNoEntry)) << status;
        if (status.ok()) ++removed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(removed, names);
  EXPECT_EQ(Links(*b_, Root()), 2u + kShards);
  EXPECT_EQ(ListAll(*b_, Root()).size(), kShards);
}

}  // namespace
}  // namespace abacus::objfs
