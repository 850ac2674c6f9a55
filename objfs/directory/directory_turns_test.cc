#include "objfs/directory/directory_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace abacus::objfs {
namespace {

const DirectoryTurns::Directory kOne{{{1, 1}, 1}, 7};

TEST(DirectoryTurnsTest, WhoIsAloneTakesNone) {
  DirectoryTurns turns;
  const DirectoryTurns::Member first(&turns, kOne);
  const DirectoryTurns::Member of_another(&turns, {kOne.volume, 8});
  const DirectoryTurns::Member of_another_volume(&turns, {{{1, 1}, 2}, 7});
  const DirectoryTurns::Turn turn(first);
  EXPECT_FALSE(turn.taken());
  const DirectoryTurns::Turn beside(first);
  EXPECT_FALSE(beside.taken());
}

TEST(DirectoryTurnsTest, WhoMovedIsCountedOnce) {
  DirectoryTurns turns;
  DirectoryTurns::Member first(&turns, kOne);
  DirectoryTurns::Member moved(std::move(first));
  first = std::move(moved);
  {
    const DirectoryTurns::Turn turn(first);
    EXPECT_FALSE(turn.taken());
  }
  const DirectoryTurns::Member second(&turns, kOne);
  const DirectoryTurns::Turn turn(first);
  EXPECT_TRUE(turn.taken());
}

TEST(DirectoryTurnsTest, OfSeveralOneAtATimeHasTheTurn) {
  constexpr int kThreads = 4, kRounds = 2000;
  DirectoryTurns turns;
  const DirectoryTurns::Member first(&turns, kOne), second(&turns, kOne);
  int plain = 0;  // not atomic: the turn is what orders its changes
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const DirectoryTurns::Turn turn(i % 2 == 0 ? first : second);
        EXPECT_TRUE(turn.taken());
        EXPECT_EQ(++inside, 1);
        ++plain;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(plain, kThreads * kRounds);
}

}  // namespace
}  // namespace abacus::objfs
