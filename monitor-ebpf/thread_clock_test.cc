#include "monitor-ebpf/thread_clock.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <string>
#include <thread>

#include "monitor-ebpf/testing/block_for.h"

namespace abacus::monitor {
namespace {

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;

// A machine whose clocks the test moves. One tick is half a nanosecond, so that a forgotten
// conversion shows.
struct ScriptedTime {
  static constexpr double kNsPerTick = 0.5;
  static inline uint64_t ns = 0;
  static inline uint64_t cpu_ns = 0;
  static inline uint64_t voluntary = 0;
  static inline int64_t tick_offset = 0;  // another processor's counter

  static uint64_t Ticks() {
    return static_cast<uint64_t>(static_cast<int64_t>(2 * ns) + tick_offset);
  }
  static uint64_t MonotonicNs() { return ns; }
  static uint64_t ThreadCpuNs() { return cpu_ns; }
  static uint64_t VoluntarySwitches() { return voluntary; }
  static double NsPerTick() { return kNsPerTick; }

  static void Run(uint64_t for_ns) {
    ns += for_ns;
    cpu_ns += for_ns;
  }
  static void Sleep(uint64_t for_ns) {
    ns += for_ns;
    ++voluntary;
  }
  // Not running, and not by the thread's own will.
  static void TakeAway(uint64_t for_ns) { ns += for_ns; }
};

using ScriptedClock = BasicThreadClock<ScriptedTime>;

uint64_t Ticks(uint64_t ns) { return 2 * ns; }
uint64_t Ns(uint64_t ticks) { return ticks / 2; }

// Runs each test on scripted time, with a fake /proc whose schedstat the test writes.
class ThreadClockTest : public ::testing::Test {
 protected:
  ThreadClockTest()
      : root_(::testing::TempDir() + "/thread_clock_" + TestName() + std::to_string(getpid())) {
    ScriptedTime::ns = 1'000 * kMs;
    ScriptedTime::cpu_ns = 77 * kMs;
    ScriptedTime::tick_offset = 0;
    std::filesystem::create_directories(root_ + "/thread-self");
  }
  ~ThreadClockTest() override { std::filesystem::remove_all(root_); }

  static std::string TestName() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void WriteSchedstat(const std::string& text) {
    std::ofstream(root_ + "/thread-self/schedstat", std::ios::trunc) << text;
  }
  void SetRunDelay(uint64_t ns) { WriteSchedstat("123456 " + std::to_string(ns) + " 9\n"); }

  static ThreadClockOptions WithoutSchedstat() { return {.proc_root = ""}; }
  ThreadClockOptions WithSchedstat() const { return {.proc_root = root_}; }

  const std::string root_;
};

TEST_F(ThreadClockTest, LapWhileTheThreadRunsIsAllBusy) {
  ScriptedClock clock(WithoutSchedstat());
  ScriptedTime::Run(700);
  const Interval interval = clock.Lap();
  EXPECT_EQ(interval.busy_ticks, Ticks(700));
  EXPECT_EQ(interval.wall_ticks(), Ticks(700));
}

TEST_F(ThreadClockTest, LapAfterALongBlockChargesItToThatVeryInterval) {
  ScriptedClock clock(WithoutSchedstat());
  ScriptedTime::Run(10 * kUs);
  EXPECT_EQ(clock.Lap().blocked_ticks, 0u);
  ScriptedTime::Run(20 * kUs);
  ScriptedTime::Sleep(400 * kUs);
  const Interval blocked = clock.Lap();
  EXPECT_EQ(blocked.busy_ticks, Ticks(20 * kUs));
  EXPECT_EQ(blocked.blocked_ticks, Ticks(400 * kUs));
  ScriptedTime::Run(30 * kUs);
  EXPECT_EQ(clock.Lap().busy_ticks, Ticks(30 * kUs));
}

TEST_F(ThreadClockTest, LapOfALongComputationIsAllBusy) {
  ScriptedClock clock(WithoutSchedstat());
  ScriptedTime::Run(10'000 * kMs);
  const Interval interval = clock.Lap();
  EXPECT_EQ(interval.busy_ticks, Ticks(10'000 * kMs));
}

TEST_F(ThreadClockTest, ManyShortBlocksAreFoundByThePeriodicSync) {
  ScriptedClock clock(WithoutSchedstat());
  Interval sum;
  for (int i = 0; i < 1'000; ++i) {
    ScriptedTime::Run(10 * kUs);
    ScriptedTime::Sleep(10 * kUs);
    const Interval lap = clock.Lap();
    sum.busy_ticks += lap.busy_ticks;
    sum.blocked_ticks += lap.blocked_ticks;
  }
  EXPECT_EQ(sum.wall_ticks(), Ticks(20 * kMs));
  // At most one sync period is still unseen and as much again owed.
  EXPECT_GT(Ns(sum.blocked_ticks), 8 * kMs);
  EXPECT_LE(Ns(sum.blocked_ticks), 10 * kMs);
}

TEST_F(ThreadClockTest, OffTimeFoundLateIsChargedOnceAndTheRestIsOwed) {
  ScriptedClock clock({.proc_root = "", .long_interval_ns = 100 * kUs, .sync_period_ns = kMs});
  // 990 us of laps that are each too short to look: 90 us asleep, 10 us busy.
  for (int i = 0; i < 10; ++i) {
    ScriptedTime::Run(9 * kUs);
    ScriptedTime::Sleep(90 * kUs);
    EXPECT_EQ(clock.Lap().blocked_ticks, 0u);
  }
  uint64_t blocked_ns = 0;
  for (int i = 0; i < 40; ++i) {
    ScriptedTime::Run(50 * kUs);
    const Interval lap = clock.Lap();
    EXPECT_EQ(lap.wall_ticks(), Ticks(50 * kUs));
    blocked_ns += Ns(lap.blocked_ticks);
  }
  EXPECT_EQ(blocked_ns, 900 * kUs);
}

TEST_F(ThreadClockTest, RunQueueWaitIsToldApartFromBlocking) {
  SetRunDelay(5 * kMs);
  ScriptedClock clock(WithSchedstat());
  EXPECT_EQ(clock.Source(), "schedstat+thread-clock");
  ScriptedTime::Run(100 * kUs);
  ScriptedTime::Sleep(500 * kUs);
  SetRunDelay(5 * kMs + 200 * kUs);
  const Interval lap = clock.Lap();
  EXPECT_EQ(lap.busy_ticks, Ticks(100 * kUs));
  EXPECT_EQ(lap.ready_ticks, Ticks(200 * kUs));
  EXPECT_EQ(lap.blocked_ticks, Ticks(300 * kUs));
}

TEST_F(ThreadClockTest, RunQueueWaitNeverExceedsTheTimeOffTheProcessor) {
  SetRunDelay(0);
  ScriptedClock clock(WithSchedstat());
  ScriptedTime::Sleep(200 * kUs);
  SetRunDelay(900 * kMs);
  const Interval lap = clock.Lap();
  EXPECT_EQ(lap.ready_ticks, Ticks(200 * kUs));
  EXPECT_EQ(lap.wall_ticks(), Ticks(200 * kUs));
}

TEST_F(ThreadClockTest, WhatAHypervisorTakesIsReadyAndNotBlocked) {
  SetRunDelay(1'000);
  ScriptedClock clock(WithSchedstat());
  ScriptedTime::Run(10 * kMs);
  ScriptedTime::TakeAway(15 * kMs);  // the run queue knows nothing of it
  const Interval interval = clock.Lap();
  EXPECT_EQ(interval.busy_ticks, Ticks(10 * kMs));
  EXPECT_EQ(interval.blocked_ticks, 0u);
  EXPECT_EQ(interval.ready_ticks, Ticks(15 * kMs));
}

TEST_F(ThreadClockTest, BlockBeforeAHypervisorTakesTimeStaysBlocked) {
  SetRunDelay(1'000);
  ScriptedClock clock(WithSchedstat());
  ScriptedTime::Sleep(3 * kMs);
  EXPECT_EQ(clock.Lap().blocked_ticks, Ticks(3 * kMs));
  ScriptedTime::TakeAway(2 * kMs);
  EXPECT_EQ(clock.Lap().ready_ticks, Ticks(2 * kMs));
  ScriptedTime::Sleep(kMs);
  EXPECT_EQ(clock.Lap().blocked_ticks, Ticks(kMs));
}

TEST_F(ThreadClockTest, SwitchesOfADeclaredWaitDoNotMakeStolenTimeBlocked) {
  SetRunDelay(1'000);
  ScriptedClock clock(WithSchedstat());
  clock.BeginWait();
  ScriptedTime::Sleep(5 * kMs);
  clock.EndWait();
  ScriptedTime::Run(kMs);
  ScriptedTime::TakeAway(2 * kMs);
  const Interval interval = clock.Lap();
  EXPECT_EQ(interval.ready_ticks, Ticks(2 * kMs));
  EXPECT_EQ(interval.blocked_ticks, 0u);
}

TEST_F(ThreadClockTest, GarbageInSchedstatLeavesTheThreadClockAlone) {
  for (const std::string text : {"", "garbage\n", "123456", "123456 \n", "-\n", "1 x 2\n"}) {
    WriteSchedstat(text);
    ScriptedClock clock(WithSchedstat());
    EXPECT_EQ(clock.Source(), "thread-clock") << text;
    ScriptedTime::Sleep(200 * kUs);
    EXPECT_EQ(clock.Lap().blocked_ticks, Ticks(200 * kUs));
  }
}

TEST_F(ThreadClockTest, SchedstatThatTurnsToGarbageCountsAllAsBlocked) {
  SetRunDelay(0);
  ScriptedClock clock(WithSchedstat());
  WriteSchedstat("no numbers any more\n");
  ScriptedTime::Sleep(200 * kUs);
  const Interval lap = clock.Lap();
  EXPECT_EQ(lap.blocked_ticks, Ticks(200 * kUs));
  EXPECT_EQ(lap.ready_ticks, 0u);
}

TEST_F(ThreadClockTest, MissingSchedstatShowsInTheSource) {
  ScriptedClock clock({.proc_root = root_ + "/nowhere"});
  EXPECT_EQ(clock.Source(), "thread-clock");
}

TEST_F(ThreadClockTest, DeclaredWaitIsInNoInterval) {
  ScriptedClock clock(WithoutSchedstat());
  ScriptedTime::Run(30 * kUs);
  EXPECT_EQ(clock.BeginWait().busy_ticks, Ticks(30 * kUs));
  ScriptedTime::Sleep(5 * kMs);
  EXPECT_EQ(clock.EndWait(), Ticks(5 * kMs));
  ScriptedTime::Run(3 * kMs);
  const Interval after = clock.Lap();
  EXPECT_EQ(after.busy_ticks, Ticks(3 * kMs));
  EXPECT_EQ(after.blocked_ticks, 0u);
}

TEST_F(ThreadClockTest, SpinningForAReplyIsWaitAndNotCpu) {
  ScriptedClock clock(WithoutSchedstat());
  uint64_t waited = 0;
  Interval sum;
  for (int i = 0; i < 500; ++i) {
    ScriptedTime::Run(10 * kUs);
    sum.busy_ticks += clock.BeginWait().busy_ticks;
    ScriptedTime::Run(40 * kUs);
    waited += clock.EndWait(WaitKind::kSpun);
  }
  EXPECT_EQ(waited, Ticks(500u * 40u * kUs));
  EXPECT_EQ(sum.busy_ticks, Ticks(500u * 10u * kUs));
  EXPECT_EQ(clock.counters().blocked_ns.load(), 0u);
}

TEST_F(ThreadClockTest, SpinThatEndsInSleepDoesNotHideARealBlock) {
  ScriptedClock clock(WithoutSchedstat());
  clock.BeginWait();
  ScriptedTime::Run(50 * kUs);
  clock.Spun();
  ScriptedTime::Sleep(30 * kUs);
  EXPECT_EQ(clock.EndWait(), Ticks(80 * kUs));
  ScriptedTime::Sleep(300 * kUs);
  EXPECT_EQ(clock.Lap().blocked_ticks, Ticks(300 * kUs));
}

TEST_F(ThreadClockTest, SpinnerThatWasPreemptedIsNotBelieved) {
  ScriptedClock clock(WithoutSchedstat());
  clock.BeginWait();
  ScriptedTime::Run(20 * kUs);
  ScriptedTime::Sleep(4 * kMs);  // preempted while it span
  clock.EndWait(WaitKind::kSpun);
  ScriptedTime::Run(2 * kMs);
  const Interval lap = clock.Lap();
  EXPECT_EQ(lap.busy_ticks, Ticks(2 * kMs));
}

TEST_F(ThreadClockTest, CpuUsedInsideWaitsDoesNotHideLaterBlocksForEver) {
  ScriptedClock clock(WithoutSchedstat());
  for (int i = 0; i < 10'000; ++i) {
    clock.BeginWait();
    ScriptedTime::Run(5 * kUs);  // the kernel's work of putting the thread to sleep
    ScriptedTime::Sleep(20 * kUs);
    clock.EndWait();
  }
  ScriptedTime::Sleep(500 * kUs);
  const Interval lap = clock.Lap();
  EXPECT_GE(Ns(lap.blocked_ticks), 400 * kUs);
  EXPECT_EQ(lap.wall_ticks(), Ticks(500 * kUs));
}

TEST_F(ThreadClockTest, RunQueueWaitAfterALongDeclaredWaitIsNotChargedToTheNextObject) {
  SetRunDelay(0);
  ScriptedClock clock(WithSchedstat());
  clock.BeginWait();
  ScriptedTime::Sleep(800 * kUs);
  SetRunDelay(700 * kUs);  // woken early, got a processor late
  clock.EndWait();
  ScriptedTime::Sleep(200 * kUs);
  const Interval lap = clock.Lap();
  EXPECT_EQ(lap.ready_ticks, 0u);
  EXPECT_EQ(lap.blocked_ticks, Ticks(200 * kUs));
}

TEST_F(ThreadClockTest, LapIsNeverNegativeWhenTheCounterGoesBackwards) {
  ScriptedClock clock(WithoutSchedstat());
  ScriptedTime::Run(50 * kUs);
  clock.Lap();
  ScriptedTime::tick_offset = -static_cast<int64_t>(Ticks(200 * kUs));
  const Interval backwards = clock.Lap();
  EXPECT_EQ(backwards.wall_ticks(), 0u);
  clock.BeginWait();
  ScriptedTime::tick_offset -= 1'000;
  EXPECT_EQ(clock.EndWait(), 0u);
  ScriptedTime::Run(50 * kUs);
  EXPECT_EQ(clock.Lap().wall_ticks(), Ticks(50 * kUs));
}

TEST_F(ThreadClockTest, ExternalCountersAreChargedToTheIntervalInWhichTheyMove) {
  ThreadCounters page;
  page.blocked_ns = 40 * kMs;  // before this thread got the slot
  ScriptedClock clock(WithoutSchedstat());
  clock.UseCounters(&page);
  EXPECT_EQ(clock.Source(), "external");
  ScriptedTime::Run(5 * kUs);
  EXPECT_EQ(clock.Lap().busy_ticks, Ticks(5 * kUs));
  ScriptedTime::Sleep(60 * kUs);
  page.blocked_ns += 40 * kUs;
  page.disk_ns += 30 * kUs;
  page.ready_ns += 20 * kUs;
  page.changes += 2;
  ScriptedTime::Run(1 * kUs);
  const Interval lap = clock.Lap();
  EXPECT_EQ(lap.busy_ticks, Ticks(1 * kUs));
  EXPECT_EQ(lap.blocked_ticks, Ticks(40 * kUs));
  EXPECT_EQ(lap.disk_ticks, Ticks(30 * kUs));
  EXPECT_EQ(lap.ready_ticks, Ticks(20 * kUs));
}

TEST_F(ThreadClockTest, ExternalCountersThatMoveInsideADeclaredWaitAreNotChargedAgain) {
  ThreadCounters page;
  ScriptedClock clock(WithoutSchedstat());
  clock.UseCounters(&page);
  clock.BeginWait();
  ScriptedTime::Sleep(2 * kMs);
  page.blocked_ns += 2 * kMs;
  page.changes += 1;
  EXPECT_EQ(clock.EndWait(), Ticks(2 * kMs));
  ScriptedTime::Run(10 * kUs);
  const Interval lap = clock.Lap();
  EXPECT_EQ(lap.busy_ticks, Ticks(10 * kUs));
  EXPECT_EQ(lap.blocked_ticks, 0u);
}

// Found when it leaves its processor the next time, in a lap that is too short for it.
TEST_F(ThreadClockTest, WhatAHypervisorTookInTheLapThatFoundTheCountersMovedIsOwed) {
  ThreadCounters page;
  ScriptedClock clock(WithoutSchedstat());
  clock.UseCounters(&page);
  page.changes += 1;
  ScriptedTime::Run(1 * kMs);
  ScriptedTime::TakeAway(5 * kMs);
  ScriptedTime::Run(4 * kMs);
  EXPECT_EQ(clock.Lap().busy_ticks, Ticks(10 * kMs));
  clock.BeginWait();
  EXPECT_EQ(clock.EndWait(WaitKind::kSpun), 0u) << "in which nothing moved";
  ScriptedTime::Run(1 * kMs);
  ScriptedTime::TakeAway(2 * kMs);
  page.ready_ns += 7 * kMs;
  page.changes += 1;
  ScriptedTime::Run(1 * kMs);
  EXPECT_EQ(clock.Lap().ready_ticks, Ticks(4 * kMs));
  clock.BeginWait();
  EXPECT_EQ(clock.EndWait(WaitKind::kSpun), 0u);
  ScriptedTime::Run(10 * kMs);
  EXPECT_EQ(clock.Lap().ready_ticks, Ticks(3 * kMs));
}

TEST_F(ThreadClockTest, AWaitInWhichExternalCountersDoNotMoveForgivesNothingWhileThereIsADebt) {
  ThreadCounters page;
  ScriptedClock clock(WithoutSchedstat());
  clock.UseCounters(&page);
  ScriptedTime::Run(100 * kMs);
  clock.Lap();
  page.ready_ns += 50 * kMs;
  page.changes += 1;
  ScriptedTime::Run(1 * kMs);
  EXPECT_EQ(clock.Lap().ready_ticks, Ticks(1 * kMs));
  ScriptedTime::TakeAway(6 * kMs);
  EXPECT_EQ(clock.Lap().ready_ticks, Ticks(6 * kMs)) << "of the debt of 49";
  clock.BeginWait();
  EXPECT_EQ(clock.EndWait(), 0u);
  ScriptedTime::Run(1 * kMs);
  page.ready_ns += 5 * kMs;  // of before that wait
  page.changes += 1;
  EXPECT_EQ(clock.Lap().ready_ticks, Ticks(1 * kMs));
  ScriptedTime::Run(100 * kMs);
  EXPECT_EQ(clock.Lap().ready_ticks, Ticks((50 + 5 - 1 - 6 - 1) * kMs));
}

// A hypervisor stops a thread after it was woken and before it says that its wait is over; that is
// found when it leaves its processor the next time.
TEST_F(ThreadClockTest, WhatExternalCountersFindOfAWaitLaterComesOffNoMoreThanTheLapsSinceTheWait) {
  ThreadCounters page;
  ScriptedClock clock(WithoutSchedstat());
  clock.UseCounters(&page);
  ScriptedTime::Run(7 * kMs);
  EXPECT_EQ(clock.BeginWait().busy_ticks, Ticks(7 * kMs));
  ScriptedTime::Sleep(2 * kMs);
  page.blocked_ns += 2 * kMs;
  page.changes += 1;
  ScriptedTime::Sleep(30 * kMs);
  EXPECT_EQ(clock.EndWait(), Ticks(32 * kMs));
  ScriptedTime::Run(3 * kMs);
  EXPECT_EQ(clock.Lap().busy_ticks, Ticks(3 * kMs));
  ScriptedTime::Run(1 * kMs);
  ScriptedTime::Sleep(1 * kMs);
  page.ready_ns += 30 * kMs;
  page.blocked_ns += 1 * kMs;
  page.changes += 1;
  Interval lap = clock.Lap();
  EXPECT_EQ(lap.blocked_ticks, Ticks(1 * kMs)) << "which is no hypervisor's";
  EXPECT_EQ(lap.ready_ticks, Ticks(1 * kMs)) << "may have been here";
  ScriptedTime::Run(5 * kMs);
  lap = clock.Lap();
  EXPECT_EQ(lap.ready_ticks, Ticks(3 * kMs)) << "or in the lap before, but not in the wait";
  EXPECT_EQ(lap.busy_ticks, Ticks(2 * kMs));
  ScriptedTime::Run(10 * kMs);
  EXPECT_EQ(clock.Lap().busy_ticks, Ticks(10 * kMs));
}

// Where neither the wake-up at a wait's end nor the switch is seen, the time is found when the
// thread is set aside.
TEST_F(ThreadClockTest, WaitsWhoseEndWasNotSeenAreNotTakenOffWhatIsComputedLater) {
  ThreadCounters page;
  ScriptedClock clock(WithoutSchedstat());
  clock.UseCounters(&page);
  uint64_t busy_ticks = 0;
  for (int i = 0; i < 50; ++i) {
    clock.BeginWait();
    ScriptedTime::Sleep(200 * kMs);
    page.blocked_ns += 200 * kMs;
    if (i % 10 != 5) page.changes += 1;
    EXPECT_EQ(clock.EndWait(), Ticks(200 * kMs));
    ScriptedTime::Run(4 * kMs);
    if (i % 10 == 5) page.changes += 1;  // it was set aside for an instant
    busy_ticks += clock.Lap().busy_ticks;
  }
  EXPECT_GE(busy_ticks, Ticks(40 * 4 * kMs)) << "one round of ten, and the one after it";
}

TEST_F(ThreadClockTest, ExternalCountersThatGoBackwardsChargeNothing) {
  ThreadCounters page;
  page.blocked_ns = 10 * kMs;
  ScriptedClock clock(WithoutSchedstat());
  clock.UseCounters(&page);
  page.blocked_ns = 1;
  page.changes += 1;
  ScriptedTime::Run(10 * kUs);
  EXPECT_EQ(clock.Lap().busy_ticks, Ticks(10 * kUs));
}

// -- on the real machine: bounds only where the outcomes differ by a factor -----------------------

uint64_t RealNs(uint64_t ticks) {
  return static_cast<uint64_t>(static_cast<double>(ticks) * MachineTime::NsPerTick());
}

Interval& operator+=(Interval& sum, const Interval& lap) {
  sum.busy_ticks += lap.busy_ticks;
  sum.blocked_ticks += lap.blocked_ticks;
  sum.ready_ticks += lap.ready_ticks;
  return sum;
}

uint64_t BurnCpu(uint64_t cpu_ns) {
  const uint64_t end = MachineTime::ThreadCpuNs() + cpu_ns;
  uint64_t rounds = 0;
  while (MachineTime::ThreadCpuNs() < end) ++rounds;
  return rounds;
}

TEST(MachineTimeTest, TicksAdvanceAtTheStatedRate) {
  const double ns_per_tick = MachineTime::NsPerTick();
  const uint64_t ticks = MachineTime::Ticks();
  const uint64_t ns = MachineTime::MonotonicNs();
  BurnCpu(20 * kMs);
  const double by_ticks = static_cast<double>(MachineTime::Ticks() - ticks) * ns_per_tick;
  const double by_clock = static_cast<double>(MachineTime::MonotonicNs() - ns);
  EXPECT_NEAR(by_ticks / by_clock, 1.0, 0.05);
}

TEST(RealThreadClockTest, BusyLoopIsBusyEvenWhenItCompetes) {
  std::thread([] {
    ThreadClock clock;
    Interval sum;
    const uint64_t cpu_before = MachineTime::ThreadCpuNs();
    for (int i = 0; i < 100; ++i) {
      BurnCpu(kMs);
      sum += clock.Lap();
    }
    const double cpu_ns = static_cast<double>(MachineTime::ThreadCpuNs() - cpu_before);
    EXPECT_NEAR(static_cast<double>(RealNs(sum.busy_ticks)) / cpu_ns, 1.0, 0.25);
    // Without schedstat the time in which a competitor ran counts as blocked.
    if (clock.Source() != "thread-clock") {
      EXPECT_LT(RealNs(sum.blocked_ticks), 50 * kMs);
    }
  }).join();
}

TEST(RealThreadClockTest, WaitOnALockThatTheRuntimeDoesNotKnowOfIsBlocked) {
  std::mutex mutex;
  std::condition_variable released;
  bool go = false;
  std::latch begun(1);
  std::thread waiter([&] {
    ThreadClock clock;
    const uint64_t cpu_before = MachineTime::ThreadCpuNs();
    begun.count_down();
    {
      std::unique_lock<std::mutex> lock(mutex);
      released.wait(lock, [&] { return go; });
    }
    const Interval lap = clock.Lap();
    // A hypervisor's theft may stand in it, and in the thread's own clock.
    const uint64_t cpu_ns = MachineTime::ThreadCpuNs() - cpu_before;
    EXPECT_GT(RealNs(lap.blocked_ticks + lap.ready_ticks), 80 * kMs);
    EXPECT_LT(RealNs(lap.busy_ticks), cpu_ns + 20 * kMs);
  });
  begun.wait();
  ASSERT_TRUE(BlockFor(120 * kMs));
  {
    std::lock_guard<std::mutex> lock(mutex);
    go = true;
  }
  released.notify_one();
  waiter.join();
}

TEST(RealThreadClockTest, BlockAndComputeInOneIntervalAreTakenApart) {
  std::thread([] {
    ThreadClock clock;
    const uint64_t cpu_before = MachineTime::ThreadCpuNs();
    BurnCpu(40 * kMs);
    // More where a hypervisor stopped the processor unseen.
    const uint64_t cpu = MachineTime::ThreadCpuNs() - cpu_before;
    ASSERT_TRUE(BlockFor(80 * kMs));
    const Interval lap = clock.Lap();
    EXPECT_GT(RealNs(lap.busy_ticks), 30 * kMs);
    EXPECT_LT(RealNs(lap.busy_ticks), cpu + 20 * kMs);
    EXPECT_GT(RealNs(lap.blocked_ticks + lap.ready_ticks), 70 * kMs);
  }).join();
}

// Two threads that share one processor: each is ready, not blocked, for about half of the time.
TEST(RealThreadClockTest, CompetitionForAProcessorIsReadyTime) {
  int cpu = sched_getcpu();
  if (cpu < 0) GTEST_SKIP() << "the kernel does not tell which processor this thread is on";
  std::atomic<bool> stop = false;
  auto pin = [cpu] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(cpu), &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
  };
  std::thread rival([&] {
    pin();
    while (!stop.load(std::memory_order_relaxed)) BurnCpu(kMs / 10);
  });
  bool has_schedstat = false;
  Interval sum;
  std::thread([&] {
    ASSERT_TRUE(pin());
    ThreadClock clock;
    has_schedstat = clock.Source() == "schedstat+thread-clock";
    for (int i = 0; i < 200; ++i) {
      BurnCpu(kMs);
      sum += clock.Lap();
    }
  }).join();
  stop = true;
  rival.join();
  if (!has_schedstat) GTEST_SKIP() << "no /proc/thread-self/schedstat on this kernel";
  EXPECT_GT(RealNs(sum.ready_ticks), 60 * kMs);
  EXPECT_LT(sum.blocked_ticks, sum.ready_ticks / 2);
}

}  // namespace
}  // namespace abacus::monitor
