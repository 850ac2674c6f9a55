#include "runtime/object/entry.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

// The call of an activity at a level.
Turn::Caller Activity(uint64_t local, uint32_t level = 1) { return {{{1, 1}, local}, level}; }

TEST(TurnTest, LetsOneActivityInAtATime) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  Turn turn;
  int count = 0;  // plain: ThreadSanitizer sees a turn that does not exclude
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, root = Activity(static_cast<uint64_t>(i) + 1)] {
      for (int round = 0; round < kRounds; ++round) {
        turn.Enter(root, {});
        ++count;
        turn.Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(TurnTest, ActivityInsideEntersAgainAndOthersWaitUntilItHasLeftAsOften) {
  Turn turn;
  std::atomic<int> leaves{0};
  std::atomic<bool> began{false};
  turn.Enter(Activity(1, 1), {});
  turn.Enter(Activity(1, 2), {});  // would block for ever if it were not the holder's
  turn.Enter(Activity(1, 4), {});
  std::thread other([&] {
    began = true;
    turn.Enter(Activity(2), {});
    EXPECT_EQ(leaves.load(), 3) << "let in while another activity is inside";
    turn.Leave();
  });
  while (!began) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    ++leaves;
    turn.Leave();
  }
  other.join();
}

TEST(TurnTest, CallBackOnAnotherThreadOfTheSameActivityIsLetIn) {
  Turn turn;
  turn.Enter(Activity(1), {});
  // The call-back came from another node, so it runs on another thread than the call.
  std::thread([&] {
    turn.Enter(Activity(1, 3), {});
    turn.Leave();
  }).join();
  turn.Leave();
}

TEST(TurnTest, BranchThatWasForkedInsideIsLetInAndOneFromOutsideWaits) {
  Turn turn;
  const Turn::Caller holder = Activity(1, 3);
  turn.Enter(holder, {});
  // Forked by the call inside, itself and by a branch of its own.
  turn.Enter(Activity(2, 5), {{holder.activity, 3}});
  turn.Leave();
  turn.Enter(Activity(3, 6), {{holder.activity, 4}, {Activity(2).activity, 5}});
  turn.Leave();
  // Forked by the holder's activity before it came here: it runs beside the call, however deep.
  std::atomic<bool> began{false}, left{false};
  std::thread beside([&] {
    began = true;
    turn.Enter(Activity(4, 7), {{holder.activity, 2}});
    EXPECT_TRUE(left.load()) << "let in beside the call that is inside";
    turn.Leave();
  });
  while (!began) std::this_thread::yield();
  left = true;
  turn.Leave();
  beside.join();
}

TEST(TurnTest, BranchesOfOneForkTakeTurns) {
  constexpr int kRounds = 5000;
  Turn turn;
  int count = 0;  // plain: ThreadSanitizer sees a turn that does not exclude
  std::vector<std::thread> threads;
  for (uint64_t branch : {2, 3, 4}) {
    threads.emplace_back([&, branch] {
      const Lineage lineage = {{Activity(1).activity, 1}};
      for (int round = 0; round < kRounds; ++round) {
        turn.Enter(Activity(branch, 2 + static_cast<uint32_t>(branch)), lineage);
        ++count;
        turn.Leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 3 * kRounds);
}

TEST(TurnTest, EveryWaiterGetsItsTurn) {
  constexpr int kThreads = 8;
  Turn turn;
  std::atomic<int> done{0};
  turn.Enter(Activity(100), {});
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, root = Activity(static_cast<uint64_t>(i) + 1)] {
      turn.Enter(root, {});
      ++done;
      turn.Leave();
    });
  }
  EXPECT_EQ(done.load(), 0);
  turn.Leave();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.load(), kThreads);
}

}  // namespace
}  // namespace abacus::runtime
