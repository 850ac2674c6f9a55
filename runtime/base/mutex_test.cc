#include "runtime/base/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

using Clock = std::chrono::steady_clock;

TEST(MutexTest, LetsOneThreadInAtATime) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20000;
  Mutex mutex;
  int count = 0;  // plain: ThreadSanitizer sees a mutex that does not exclude
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        MutexLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(mutex);
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(MutexTest, CountsLocksThatThisThreadHolds) {
  Mutex a;
  Mutex b;
  EXPECT_EQ(HeldLocks(), 0);
  {
    MutexLock lock_a(a);
    EXPECT_EQ(HeldLocks(), 1);
    {
      MutexLock lock_b(b);
      EXPECT_EQ(HeldLocks(), 2);
      std::thread([] { EXPECT_EQ(HeldLocks(), 0); }).join();
    }
    EXPECT_EQ(HeldLocks(), 1);
  }
  EXPECT_EQ(HeldLocks(), 0);
}

TEST(MutexTest, TryLockFailsWithoutCountingWhereAnotherHoldsIt) {
  Mutex mutex;
  mutex.Lock();
  std::thread([&] {
    const bool locked = mutex.TryLock();
    EXPECT_FALSE(locked);
    if (locked) mutex.Unlock();
    EXPECT_EQ(HeldLocks(), 0);
  }).join();
  mutex.Unlock();
  const bool locked = mutex.TryLock();
  ASSERT_TRUE(locked);
  if (locked) {
    EXPECT_EQ(HeldLocks(), 1);
    mutex.Unlock();
  }
  EXPECT_EQ(HeldLocks(), 0);
}

TEST(CondVarTest, WaitWakesForASignalAndHoldsTheLockAgain) {
  constexpr int kRounds = 2000;
  Mutex mutex;
  CondVar changed;
  int turn = 0;
  std::thread other([&] {
    for (int round = 0; round < kRounds; ++round) {
      MutexLock lock(mutex);
      while (turn % 2 == 0) changed.Wait(mutex);
      EXPECT_EQ(HeldLocks(), 1);
      ++turn;
      changed.Signal();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    MutexLock lock(mutex);
    while (turn % 2 == 1) changed.Wait(mutex);
    ++turn;
    changed.Signal();
  }
  other.join();
  MutexLock lock(mutex);
  EXPECT_EQ(turn, 2 * kRounds);
}

TEST(CondVarTest, SignalAllWakesEveryWaiter) {
  constexpr int kThreads = 4;
  Mutex mutex;
  CondVar changed;
  int waiting = 0;
  bool go = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      MutexLock lock(mutex);
      ++waiting;
      changed.SignalAll();
      while (!go) changed.Wait(mutex);
    });
  }
  {
    MutexLock lock(mutex);
    while (waiting < kThreads) changed.Wait(mutex);
    go = true;
    changed.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CondVarTest, WaitUntilReturnsFalseWhenTheDeadlinePassed) {
  Mutex mutex;
  CondVar never;
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(5);
  MutexLock lock(mutex);
  while (never.WaitUntil(mutex, deadline)) {
  }
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_EQ(HeldLocks(), 1);
}

TEST(CondVarTest, WaitUntilReturnsTrueForASignal) {
  Mutex mutex;
  CondVar changed;
  bool go = false;
  std::thread other;
  {
    MutexLock lock(mutex);
    other = std::thread([&] {
      MutexLock other_lock(mutex);
      go = true;
      changed.Signal();
    });
    const Clock::time_point far = Clock::now() + std::chrono::minutes(10);
    bool signalled = true;
    while (!go && signalled) signalled = changed.WaitUntil(mutex, far);
    EXPECT_TRUE(signalled);
  }
  other.join();
}

}  // namespace
}  // namespace abacus::runtime
