#include "monitor-ebpf/task_scan.h"

#include <gtest/gtest.h>

#include <string>

#include "monitor-ebpf/testing/fake_root.h"

namespace abacus::monitor {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kQuarter = 250 * kMs;

TEST(TaskScanTest, SumsWhatEachTaskDidSinceTheFirstStep) {
  FakeRoot root;
  root.WriteTask(10, 10, 5'000, 7'000);
  root.WriteTask(10, 11, 100, 200);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  EXPECT_TRUE(scan.works());
  EXPECT_EQ(scan.total().wait_ns, 0u);
  root.WriteTask(10, 10, 5'500, 7'030);
  root.WriteTask(10, 11, 101, 202);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().run_ns, 501u);
  EXPECT_EQ(scan.total().wait_ns, 32u);
}

TEST(TaskScanTest, NewTaskCountsFromItsBirth) {
  FakeRoot root;
  root.WriteTask(10, 10, 1, 1);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  root.WriteTask(20, 20, 3 * kMs, 4 * kMs);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().run_ns, 3 * kMs);
  EXPECT_EQ(scan.total().wait_ns, 4 * kMs);
}

TEST(TaskScanTest, OldTaskThatIsSeenForTheFirstTimeDoesNotBringItsPast) {
  FakeRoot root;
  root.WriteTask(10, 10, 1, 1);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  root.WriteTask(20, 20, 900'000 * kMs, 0);  // moved into the cgroup
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().run_ns, kQuarter);
}

TEST(TaskScanTest, ThreadIdThatIsUsedAgainStartsFromZero) {
  FakeRoot root;
  root.WriteTask(10, 10, 800, 900);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  root.WriteTask(10, 10, 30, 40);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().run_ns, 30u);
  EXPECT_EQ(scan.total().wait_ns, 40u);
}

TEST(TaskScanTest, EndedTaskKeepsWhatItWasCountedFor) {
  FakeRoot root;
  root.WriteTask(10, 10, 1, 1);
  root.WriteTask(11, 11, 1, 1);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  root.WriteTask(11, 11, 500, 600);
  scan.Step(kQuarter);
  root.Remove("proc/11");
  scan.Step(kQuarter);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().run_ns, 499u);
  EXPECT_EQ(scan.total().wait_ns, 599u);
}

TEST(TaskScanTest, StepLooksAtABoundedNumberOfTasksAndTheNextOneGoesOn) {
  FakeRoot root;
  for (int pid = 1; pid <= 30; ++pid) root.WriteTask(pid, pid, 1'000, 1'000);
  TaskScan scan({.proc_root = root.proc(), .tasks_per_step = 20});
  for (int step = 0; step < 3; ++step) scan.Step(kQuarter);  // 30 lists and 30 tasks: one round
  for (int pid = 1; pid <= 30; ++pid) root.WriteTask(pid, pid, 1'000, 1'010);
  scan.Step(kQuarter);
  EXPECT_GT(scan.total().wait_ns, 0u);
  EXPECT_LT(scan.total().wait_ns, 300u);
  scan.Step(kQuarter);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().wait_ns, 300u);
}

TEST(TaskScanTest, OnlyTasksOnTheGivenProcessorsCount) {
  FakeRoot root;
  for (int pid : {10, 11, 12}) root.WriteTask(pid, pid, 0, 0);
  TaskScan scan({.proc_root = root.proc(), .cpus = {2, 3}});
  scan.Step(0);
  root.WriteTask(10, 10, 1, 10);
  root.WriteTaskCpu(10, 10, 3);
  root.WriteTask(11, 11, 1, 100);
  root.WriteTaskCpu(11, 11, 0);
  root.WriteTask(12, 12, 1, 1'000);
  root.Write("proc/12/task/12/stat", "12 (cut short) S 1\n");
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().wait_ns, 10u);
}

TEST(TaskScanTest, CgroupCountsItsOwnTasksAndThoseBelowInBothVersions) {
  FakeRoot root;
  root.Write("cg/node/tasks", "10\n11\n");
  root.Write("cg/node/below/cgroup.threads", "12\n");
  for (int pid : {10, 11, 12, 99}) root.WriteTask(pid, pid, 0, 0);
  TaskScan scan({.proc_root = root.proc(), .cgroup_dir = root.path() + "/cg/node"});
  scan.Step(0);
  root.WriteTask(10, 10, 0, 1);
  root.WriteTask(11, 11, 0, 10);
  root.WriteTask(12, 12, 0, 100);
  root.WriteTask(99, 99, 0, 1'000);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().wait_ns, 111u);
}

TEST(TaskScanTest, KernelWithoutSchedstatDoesNotWork) {
  FakeRoot root;
  root.Write("proc/10/task/10/stat", "10 (x) S\n");
  root.Write("proc/11/task/11/schedstat", "garbage\n");
  root.Write("proc/not_a_pid/task/1/schedstat", "1 2 3\n");
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  scan.Step(kQuarter);
  EXPECT_FALSE(scan.works());
}

TEST(TaskScanTest, MissingProcAndMissingCgroupAreNoTasks) {
  TaskScan nothing({.proc_root = "/nonexistent"});
  nothing.Step(0);
  EXPECT_FALSE(nothing.works());
  TaskScan no_cgroup({.proc_root = "/proc", .cgroup_dir = "/nonexistent"});
  no_cgroup.Step(0);
  EXPECT_FALSE(no_cgroup.works());
}

}  // namespace
}  // namespace abacus::monitor
