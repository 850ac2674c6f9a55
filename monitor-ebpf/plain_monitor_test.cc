#include "monitor-ebpf/plain_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "monitor-ebpf/testing/block_for.h"
#include "monitor-ebpf/testing/fake_root.h"

namespace abacus::monitor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMs = 1'000'000;

// A machine of two processors made of files, and its clock.
class FakeMachine {
 public:
  FakeMachine() {
    root_.Write("proc/self/cgroup", "0::/\n");
    root_.Write("proc/self/mountinfo", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n");
    root_.Write("proc/self/status", "Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n");
    root_.Write("proc/thread-self/schedstat", "1 2 3\n");
    root_.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\n");
    root_.Write("proc/self/statm", "500 100 30 0 0 0 0\n");
    root_.WriteTask(10, 10, 0, 0);
    root_.WriteTaskCpu(10, 10, 0);
    WriteStat();
  }

  const FakeRoot& root() const { return root_; }

  std::unique_ptr<Monitor> NewMonitor(absl::Duration window = absl::Seconds(1)) {
    return NewPlainMonitor(
        {.root = root_.path(), .rate = kRate, .window = window, .now_ns = [this] {
           return now_ns_;
         }});
  }

  // Lets time pass in which each processor was busy for the given part of it and one task waited.
  void Pass(uint64_t ns, double busy0, double busy1, double ready = 0) {
    now_ns_ += ns;
    const double ticks = static_cast<double>(ns) / 1e7;
    idle_[0] += (1 - busy0) * ticks;
    idle_[1] += (1 - busy1) * ticks;
    waited_ns_ += static_cast<uint64_t>(ready * static_cast<double>(ns));
    root_.WriteTask(10, 10, 0, waited_ns_);
    WriteStat();
  }

  // Puts this process into a cgroup of version 2 with a quota ("max" is none).
  void UseCgroup(const std::string& quota) {
    root_.Write("proc/self/cgroup", "0::/node\n");
    root_.Write("cg/node/cgroup.type", "domain\n");
    root_.Write("cg/node/cgroup.threads", "10\n");
    root_.Write("cg/node/cpu.max", quota + " 100000\n");
    PassInCgroup(0, 0, 0, 0);
  }
  void PassInCgroup(uint64_t ns, double running, double waiting, double stopped_cpus) {
    const auto span = static_cast<double>(ns);
    used_us_ += running * span / 1e3;
    stopped_us_ += stopped_cpus * span / 1e3;
    root_.Write("cg/node/cpu.stat", "usage_usec " +
                                        std::to_string(static_cast<uint64_t>(used_us_)) +
                                        "\nthrottled_usec " +
                                        std::to_string(static_cast<uint64_t>(stopped_us_)) + "\n");
    Pass(ns, 1, 1, waiting);
  }

  static constexpr double kRate = 1'000'000;

 private:
  void WriteStat() {
    std::string text = "cpu  1 1 1 1 1 1 1 1 1 1\n";
    for (int cpu : {0, 1}) {
      text += "cpu" + std::to_string(cpu) + " 5 0 5 " +
              std::to_string(static_cast<uint64_t>(idle_[cpu] + 0.5)) + " 0 0 0 0 0 0\n";
    }
    root_.Write("proc/stat", text + "procs_running " + std::to_string(procs_running) + "\n");
  }

 public:
  int procs_running = 1;

 private:
  FakeRoot root_;
  uint64_t now_ns_ = 5'000'000 * kMs;
  double idle_[2] = {1'000, 2'000};
  uint64_t waited_ns_ = 0;
  double used_us_ = 77'000;
  double stopped_us_ = 3'000;
};

TEST(PlainMonitorTest, ClockThatTheKernelGivesUpIsTold) {
  if (!MachineTime::ticks_are_cycles()) GTEST_SKIP() << "this machine has no counter to trust";
  const char* file = "sys/devices/system/clocksource/clocksource0/current_clocksource";
  FakeMachine machine;
  machine.root().Write(file, "tsc\n");
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 0, 0);
  EXPECT_EQ(monitor->Load()->degraded, "");
  machine.root().Write(file, "hpet\n");
  machine.Pass(1'000 * kMs, 0, 0);
  EXPECT_THAT(monitor->Load()->degraded, HasSubstr("cycle counters"));
}

TEST(PlainMonitorTest, IdleMachineHasLoadOne) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 0, 0);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_EQ(load->load, 1);
  EXPECT_NEAR(load->running, 0, 0.01);
  EXPECT_EQ(load->source, "proc-stat+task-schedstat");
  EXPECT_EQ(load->degraded, "");
  EXPECT_EQ(monitor->Cores(), 2);
  EXPECT_EQ(monitor->Rate(), FakeMachine::kRate);
}

TEST(PlainMonitorTest, LoadIsRunningPlusReadyTasks) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 1, 0.75, 0.5);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->running, 1.75, 0.01);
  EXPECT_NEAR(load->ready, 0.5, 0.01);
  EXPECT_NEAR(load->load, 2.25, 0.01);
}

TEST(PlainMonitorTest, LoadForgetsWhatIsOlderThanTheWindow) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  for (int i = 0; i < 8; ++i) {
    machine.Pass(250 * kMs, 1, 1, 3);
    ASSERT_TRUE(monitor->Load().ok());
  }
  EXPECT_NEAR(monitor->Load()->load, 5, 0.05);
  for (int i = 0; i < 4; ++i) {
    machine.Pass(250 * kMs, 0, 0);
    ASSERT_TRUE(monitor->Load().ok());
  }
  const auto load = monitor->Load();
  EXPECT_EQ(load->load, 1);
  EXPECT_EQ(load->window, absl::Seconds(1));
}

TEST(PlainMonitorTest, AnotherWindowHoldsFromTheNextLookOn) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  for (int i = 0; i < 4; ++i) {
    machine.Pass(250 * kMs, 1, 1, 1);
    ASSERT_TRUE(monitor->Load().ok());
  }
  monitor->SetWindow(absl::Milliseconds(400));
  for (int i = 0; i < 4; ++i) {
    machine.Pass(100 * kMs, 0, 0);
    ASSERT_TRUE(monitor->Load().ok());
  }
  EXPECT_EQ(monitor->Load()->window, absl::Milliseconds(400));
  EXPECT_EQ(monitor->Load()->running, 0);
  monitor->SetWindow(absl::Seconds(2));
  machine.Pass(800 * kMs, 0, 0);
  EXPECT_EQ(monitor->Load()->window, absl::Milliseconds(1200));
}

// Where the kernel sums up the waits of each processor's tasks itself, the tasks are not asked.
TEST(PlainMonitorTest, ReadyTimeOfAMachineIsTheKernelsOwnSumWhereItHasOne) {
  FakeMachine machine;
  const auto tell = [&machine](uint64_t wait0_ms, uint64_t wait1_ms) {
    machine.root().Write("proc/schedstat",
                         "version 17\ncpu0 0 0 0 0 0 0 9 " + std::to_string(wait0_ms * kMs) +
                             " 5\ncpu1 0 0 0 0 0 0 9 " + std::to_string(wait1_ms * kMs) + " 5\n");
  };
  tell(7, 8);
  const auto monitor = machine.NewMonitor();
  machine.root().Write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1\n");
  const auto of_one = machine.NewMonitor();  // bound to the second processor
  machine.Pass(1'000 * kMs, 1, 1, 0.9);
  tell(507, 258);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->ready, 0.75, 0.001);
  EXPECT_EQ(load->source, "proc-stat+schedstat");
  EXPECT_EQ(load->degraded, "");
  EXPECT_NEAR(of_one->Load()->ready, 0.25, 0.001);
  // A file that goes: what the tasks say is not comparable with it.
  machine.root().Remove("proc/schedstat");
  machine.Pass(1'000 * kMs, 1, 1, 0.9);
  EXPECT_EQ(monitor->Load()->window, absl::ZeroDuration());
  machine.Pass(1'000 * kMs, 1, 1, 0.9);
  EXPECT_NEAR(monitor->Load()->ready, 0.9, 0.001);
  EXPECT_EQ(monitor->Load()->source, "proc-stat+task-schedstat");
}

TEST(PlainMonitorTest, ReadyTimeOfACgroupIsThatOfItsTasksAlone) {
  FakeMachine machine;
  machine.UseCgroup("max");
  machine.root().Write("proc/schedstat", "version 17\ncpu0 0 0 0 0 0 0 9 0 5\n");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 1, 0.5, 0);
  EXPECT_NEAR(monitor->Load()->ready, 0.5, 0.001);
  EXPECT_EQ(monitor->Load()->source, "cgroup+task-schedstat");
}

TEST(PlainMonitorTest, WindowThatIsTooShortSaysNothing) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  machine.Pass(20 * kMs, 1, 1, 9);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_EQ(load->load, 1);
  EXPECT_EQ(load->window, absl::ZeroDuration());
  EXPECT_EQ(load->source, "proc-stat+task-schedstat");
}

TEST(PlainMonitorTest, LoadAskedTooOftenRepeatsTheLastAnswer) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  machine.Pass(500 * kMs, 1, 1, 1);
  const double load = monitor->Load()->load;
  machine.Pass(5 * kMs, 0, 0);
  EXPECT_EQ(monitor->Load()->load, load);
}

TEST(PlainMonitorTest, ProcessBoundToOneProcessorSeesThatProcessorAlone) {
  FakeMachine machine;
  machine.root().Write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1\n");
  const auto monitor = machine.NewMonitor();
  EXPECT_EQ(monitor->Cores(), 1);
  machine.Pass(1'000 * kMs, 1, 0.25, 0.5);  // the waiting task is on the other one
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->running, 0.25, 0.01);
  EXPECT_EQ(load->ready, 0);
}

TEST(PlainMonitorTest, StolenTimeIsReported) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 1, 1);
  machine.root().Write("proc/stat", "cpu0 5 0 5 1000 0 0 0 50 0 0\ncpu1 5 0 5 2000 0 0 0 0 0 0\n");
  EXPECT_NEAR(monitor->Load()->stolen, 0.5, 0.01);
}

TEST(PlainMonitorTest, ProcessorThatComesOrGoesStartsTheWindowAnew) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 1, 1, 1);
  machine.root().Write("proc/stat", "cpu0 5 0 5 99 0 0 0 0 0 0\n");
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_EQ(load->window, absl::ZeroDuration());
  EXPECT_EQ(load->load, 1);
}

TEST(PlainMonitorTest, StatThatVanishesIsUnavailableAndNamedAndComesBack) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  for (const char* text : {"", "garbage", "cpu0 1 2\n"}) {
    machine.Pass(250 * kMs, 1, 1);
    machine.root().Write("proc/stat", text);
    const auto load = monitor->Load();
    EXPECT_EQ(load.status().code(), absl::StatusCode::kUnavailable) << text;
    EXPECT_THAT(std::string(load.status().message()), HasSubstr("proc/stat"));
  }
  machine.Pass(250 * kMs, 1, 1);
  EXPECT_TRUE(monitor->Load().ok());
}

TEST(PlainMonitorTest, EmptyRootNeverCrashesAndSaysWhatIsMissing) {
  FakeRoot root;
  const auto monitor = NewPlainMonitor({.root = root.path(), .rate = 1});
  EXPECT_EQ(monitor->Source(), "thread-clock");
  EXPECT_EQ(monitor->Load().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(monitor->Memory().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(monitor->Cores(), 1);
  EXPECT_EQ(monitor->Rate(), 1);
  EXPECT_TRUE(monitor->Links().empty());
}

TEST(PlainMonitorTest, WithoutCgroupFilesTheFiguresAreTheMachinesAndSaySo) {
  FakeMachine machine;
  machine.root().Remove("proc/self/cgroup");
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 1, 0);
  EXPECT_THAT(monitor->Load()->degraded, HasSubstr("no cgroup found"));
}

TEST(PlainMonitorTest, SourceLabelChangesWithoutSchedstat) {
  FakeMachine machine;
  EXPECT_EQ(machine.NewMonitor()->Source(), "schedstat+thread-clock");
  machine.root().Write("proc/thread-self/schedstat", "?\n");
  EXPECT_EQ(machine.NewMonitor()->Source(), "thread-clock");
}

TEST(PlainMonitorTest, WithoutTaskSchedstatPressureIsALowerBoundAndSaysSo) {
  FakeMachine machine;
  auto write_pressure = [&](uint64_t us) {
    machine.root().Write("proc/pressure/cpu", "some avg10=0 total=" + std::to_string(us) + "\n");
  };
  write_pressure(50);
  machine.root().Remove("proc/10");
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 1, 1);
  machine.root().Remove("proc/10");
  write_pressure(50 + 400'000);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->load, 2.4, 0.02);
  EXPECT_EQ(load->source, "proc-stat+pressure");
  EXPECT_THAT(load->degraded, HasSubstr("lower bound"));
}

TEST(PlainMonitorTest, WithoutSchedstatAndPressureTheRunQueueIsAGuessAndSaysSo) {
  FakeMachine machine;
  machine.root().Remove("proc/10");
  const auto monitor = machine.NewMonitor();
  machine.procs_running = 5;
  machine.Pass(1'000 * kMs, 1, 1);
  machine.root().Remove("proc/10");
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->load, 5, 0.02);
  EXPECT_EQ(load->source, "proc-stat+procs-running");
  EXPECT_THAT(load->degraded, HasSubstr("guess"));
}

// -- quota ----------------------------------------------------------------------------------------

TEST(PlainMonitorTest, ThrottledTimeLowersTheRateAndNotTheLoad) {
  FakeMachine machine;
  machine.UseCgroup("16000");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 0.16, 0.84, 0.84);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_EQ(load->source, "cgroup+task-schedstat");
  EXPECT_NEAR(load->load, 1, 0.01);
  EXPECT_NEAR(load->throttled, 0.84, 0.01);
  EXPECT_NEAR(load->rate_share, 0.16, 0.01);
  EXPECT_NEAR(monitor->Rate(), 0.16 * FakeMachine::kRate, 0.01 * FakeMachine::kRate);
}

// A reader that a message wakes while the quota has stopped the node waits as long as the task that
// computes, and runs for microseconds. Counted by their waits, three of them left 0.045 of 0.12.
TEST(PlainMonitorTest, ThreadsThatOnlyWaitForTheQuotaLeaveTheRateToTheOneThatComputes) {
  FakeMachine machine;
  machine.UseCgroup("12000");
  machine.root().Write("cg/node/cgroup.threads", "10\n20\n21\n22\n");
  const auto write_tasks = [&machine](uint64_t computes_ms, uint64_t waits_ms, uint64_t reads_us,
                                      uint64_t readers_wait_ms) {
    machine.root().WriteTask(20, 20, computes_ms * kMs, waits_ms * kMs);
    for (int reader : {10, 21, 22}) {
      machine.root().WriteTask(reader, reader, reads_us * 1'000, readers_wait_ms * kMs);
    }
  };
  write_tasks(0, 0, 0, 0);
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 0.12, 0, 0.88);
  write_tasks(118, 880, 700, 500);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(monitor->Rate() / FakeMachine::kRate, 0.12, 0.01);
}

TEST(PlainMonitorTest, TwoThrottledTasksShareTheQuota) {
  FakeMachine machine;
  machine.UseCgroup("16000");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 0.16, 1.84, 1.84);
  const auto load = monitor->Load();
  EXPECT_NEAR(load->load, 1, 0.01);
  EXPECT_NEAR(monitor->Rate() / FakeMachine::kRate, 0.08, 0.01);
}

// One that is busy and waits tells of neighbours; one that wakes now and then, and waits each time
// for a processor that slept, does not: (0.13 - 0.1) / 0.4 of its 0.05 count.
TEST(PlainMonitorTest, WaitingOfANodeThatRunsLittleIsNoNeighbours) {
  FakeMachine machine;
  machine.UseCgroup("max");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 0.3, 0.7, 0);
  ASSERT_TRUE(monitor->Load().ok());
  EXPECT_NEAR(monitor->Rate() / FakeMachine::kRate, 0.3, 0.01);
  for (int i = 0; i < 8; ++i) {  // the window forgets
    machine.PassInCgroup(250 * kMs, 0.08, 0.05, 0);
    ASSERT_TRUE(monitor->Load().ok());
  }
  EXPECT_NEAR(monitor->Rate() / FakeMachine::kRate, 0.955, 0.01);
}

// Three busy tasks, two processors, a quota of one core: each had a third of a core.
TEST(PlainMonitorTest, RateOfAnOverloadedAndThrottledNodeIsWhatItsTasksHad) {
  FakeMachine machine;
  machine.UseCgroup("100000");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 1.0, 2.0, 1.0);
  const auto load = monitor->Load();
  const double seen =
      monitor->Rate() / FakeMachine::kRate * std::min(1.0, monitor->Cores() / load->load);
  EXPECT_NEAR(seen, 1.0 / 3, 0.02);
}

TEST(PlainMonitorTest, QuotaBelowOneCoreLowersTheRateOfAnIdleNodeToo) {
  FakeMachine machine;
  machine.UseCgroup("25000");
  const auto monitor = machine.NewMonitor();
  EXPECT_EQ(monitor->Rate(), 0.25 * FakeMachine::kRate);
  machine.PassInCgroup(1'000 * kMs, 0, 0, 0);
  ASSERT_TRUE(monitor->Load().ok());
  EXPECT_EQ(monitor->Rate(), 0.25 * FakeMachine::kRate);
}

// What one more task would have, by the quota alone: nothing has run yet.
TEST(PlainMonitorTest, QuotaOfOneCoreOrMoreIsSeenWhileIdle) {
  FakeMachine machine;
  machine.UseCgroup("100000");
  const auto monitor = machine.NewMonitor();
  EXPECT_EQ(monitor->Cores(), 1);
  EXPECT_EQ(monitor->Rate(), FakeMachine::kRate);
  machine.PassInCgroup(1'000 * kMs, 0, 0, 0);
  ASSERT_TRUE(monitor->Load().ok());
  EXPECT_EQ(monitor->Cores(), 1);
  EXPECT_EQ(monitor->Rate(), FakeMachine::kRate);
}

TEST(PlainMonitorTest, QuotaThatChangesIsTakenOver) {
  FakeMachine machine;
  machine.UseCgroup("150000");
  const auto monitor = machine.NewMonitor();
  EXPECT_EQ(monitor->Cores(), 1.5);
  const std::pair<const char*, double> quotas[] = {
      {"400000 100000\n", 2},  // more than there are processors
      {"max 100000\n", 2},
      {"125000 100000\n", 1.25},
      {"50000 100000\n", 1}};  // half a core: the rate says so
  for (const auto& [quota, cores] : quotas) {
    machine.root().Write("cg/node/cpu.max", quota);
    machine.PassInCgroup(1'000 * kMs, 0, 0, 0);
    ASSERT_TRUE(monitor->Load().ok());
    EXPECT_EQ(monitor->Cores(), cores) << quota;
  }
  EXPECT_EQ(monitor->Rate(), 0.5 * FakeMachine::kRate);
}

// Three busy tasks on two processors under a quota of one and a half: each had half a core.
TEST(PlainMonitorTest, QuotaAboveOneCoreIsNotCountedTwice) {
  FakeMachine machine;
  machine.UseCgroup("150000");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 1.5, 1.5, 0.5);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  const double seen =
      monitor->Rate() / FakeMachine::kRate * std::min(1.0, monitor->Cores() / load->load);
  EXPECT_NEAR(seen, 0.5, 0.02);
}

TEST(PlainMonitorTest, QuotaAboveTheUseLeavesTheRateAlone) {
  FakeMachine machine;
  machine.UseCgroup("150000");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 1.2, 0, 0);
  ASSERT_TRUE(monitor->Load().ok());
  EXPECT_EQ(monitor->Rate(), FakeMachine::kRate);
}

// One busy task that had 0.3 of a core, with no quota: somebody outside the cgroup had the rest.
TEST(PlainMonitorTest, NeighboursOutsideTheCgroupLowerTheRateAndNotTheLoad) {
  FakeMachine machine;
  machine.UseCgroup("max");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 0.3, 0.7, 0);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->load, 1, 0.01);
  EXPECT_NEAR(monitor->Rate() / FakeMachine::kRate, 0.3, 0.01);
}

TEST(PlainMonitorTest, TasksOfTheCgroupThatWaitForEachOtherLeaveTheRateAlone) {
  FakeMachine machine;
  machine.UseCgroup("max");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 2, 4, 0);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->load, 6, 0.01);
  EXPECT_NEAR(monitor->Rate() / FakeMachine::kRate, 1, 0.01);
}

TEST(PlainMonitorTest, IdleCgroupIsNoEvidenceForNeighbours) {
  FakeMachine machine;
  machine.UseCgroup("max");
  const auto monitor = machine.NewMonitor();
  machine.PassInCgroup(1'000 * kMs, 0.01, 0.05, 0);
  ASSERT_TRUE(monitor->Load().ok());
  EXPECT_EQ(monitor->Rate(), FakeMachine::kRate);
}

TEST(PlainMonitorTest, CgroupWithoutUsageFileFallsBackToTheTasksThemselves) {
  FakeMachine machine;
  machine.UseCgroup("max");
  machine.root().Remove("cg/node/cpu.stat");
  const auto monitor = machine.NewMonitor();
  machine.Pass(1'000 * kMs, 1, 1);
  machine.root().WriteTask(10, 10, 700 * kMs, 500 * kMs);
  const auto load = monitor->Load();
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->load, 1.2, 0.01);
}

TEST(PlainMonitorTest, CgroupWithNothingReadableIsUnavailable) {
  FakeMachine machine;
  machine.UseCgroup("max");
  machine.root().Remove("cg/node/cpu.stat");
  machine.root().Remove("cg/node/cgroup.threads");
  const auto monitor = machine.NewMonitor();
  EXPECT_EQ(monitor->Load().status().code(), absl::StatusCode::kUnavailable);
}

// -- memory ---------------------------------------------------------------------------------------

TEST(PlainMonitorTest, MemoryIsTheMachinesWithoutALimit) {
  FakeMachine machine;
  const auto memory = machine.NewMonitor()->Memory();
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->total_bytes, 1000u * 1024);
  EXPECT_EQ(memory->available_bytes, 600u * 1024);
  EXPECT_EQ(memory->process_resident_bytes, 100u * static_cast<unsigned>(getpagesize()));
}

TEST(PlainMonitorTest, MemoryLimitOfTheCgroupCountsLessWhatCanBeReclaimed) {
  FakeMachine machine;
  machine.UseCgroup("max");
  machine.root().Write("cg/node/memory.max", "500000\n");
  machine.root().Write("cg/node/memory.current", "400000\n");
  machine.root().Write("cg/node/memory.stat", "anon 1\ninactive_file 100000\n");
  const auto memory = machine.NewMonitor()->Memory();
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->total_bytes, 500'000u);
  EXPECT_EQ(memory->available_bytes, 200'000u);
}

TEST(PlainMonitorTest, GarbageInMeminfoIsUnavailable) {
  FakeMachine machine;
  const auto monitor = machine.NewMonitor();
  for (const char* text : {"", "MemTotal: x\n", "MemTotal: 5 kB\nMemAvailable: 6 kB\n",
                           "MemTotal: 9223372036854775000 kB\nMemAvailable: 6 kB\n"}) {
    machine.root().Write("proc/meminfo", text);
    EXPECT_EQ(monitor->Memory().status().code(), absl::StatusCode::kUnavailable) << text;
  }
}

// -- the real machine -----------------------------------------------------------------------------

class BusyThreads {
 public:
  explicit BusyThreads(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        uint64_t n = 0;
        while (!stop_.load(std::memory_order_relaxed)) ++n;
      });
    }
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

// Three busy threads a processor make a load of at least two a processor, whatever else runs; but
// in a second in which the machine itself was held up they make less: one of some must be without.
TEST(RealPlainMonitorTest, OverloadedMachineShowsReadyTime) {
  const auto monitor = NewPlainMonitor({.rate = 1});
  const auto cores = static_cast<size_t>(monitor->Cores());
  BusyThreads busy(3 * cores);
  double most = 0;
  for (int second = 0; second < 8 && most <= 2.0 * static_cast<double>(cores); ++second) {
    for (int i = 0; i < 12; ++i) {  // until the window is full of it
      ASSERT_TRUE(BlockFor(100 * kMs));
      ASSERT_TRUE(monitor->Load().ok());
    }
    const auto load = monitor->Load();
    ASSERT_TRUE(load.ok()) << load.status();
    if (load->source.find("schedstat") == std::string::npos) {
      GTEST_SKIP() << "no schedstat of tasks here: " << load->degraded;
    }
    if (load->throttled > 0) GTEST_SKIP() << "a CPU quota is in force here";
    std::cout << "running " << load->running << ", ready " << load->ready << ", stolen "
              << load->stolen << " of " << cores << " processors, by " << load->source << "\n";
    most = std::max(most, load->load);
  }
  EXPECT_GT(most, 2.0 * static_cast<double>(cores));
}

TEST(RealPlainMonitorTest, LoadCostsFewMillisecondsOfCpu) {
  uint64_t now_ns = 1'000 * kMs;
  const auto monitor = NewPlainMonitor({.rate = 1, .now_ns = [&now_ns] { return now_ns; }});
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    now_ns += 250 * kMs;
    const uint64_t before_ns = MachineTime::ThreadCpuNs();
    ASSERT_TRUE(monitor->Load().ok());
    least_ns = std::min(least_ns, MachineTime::ThreadCpuNs() - before_ns);
  }
  RecordProperty("load_cpu_ns", std::to_string(least_ns));
  // 0.1-0.2 ms; the bound leaves room for a sanitizer's interceptors and cold caches.
  EXPECT_LT(least_ns, 10 * kMs);
}

TEST(RealPlainMonitorTest, MemoryOfThisProcessIsPlausible) {
  const auto memory = NewPlainMonitor({.rate = 1})->Memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GT(memory->process_resident_bytes, 1u << 20);
  EXPECT_LE(memory->available_bytes, memory->total_bytes);
}

}  // namespace
}  // namespace abacus::monitor
