#include "monitor-ebpf/task_scan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "monitor-ebpf/testing/block_for.h"
#include "monitor-ebpf/testing/fake_root.h"
#include "monitor-ebpf/thread_clock.h"

namespace abacus::monitor {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kQuarter = 250 * kNsPerMs;

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

// 120 of 1000 us are 0.12; what ran 1 us and waited 300 adds next to nothing to either sum.
TEST(TaskScanTest, ShareOfWorkIsThatOfTheTasksThatDidIt) {
  FakeRoot root;
  for (int tid : {10, 11, 12, 13}) root.WriteTask(10, tid, 0, 0);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  root.WriteTask(10, 10, 120'000, 880'000);
  for (int tid : {11, 12, 13}) root.WriteTask(10, tid, 1'000, 300'000);
  scan.Step(kQuarter);
  EXPECT_NEAR(scan.run_at_share_ns() / static_cast<double>(scan.total().run_ns), 0.12, 0.005);
}

TEST(TaskScanTest, NewTaskCountsFromItsBirth) {
  FakeRoot root;
  root.WriteTask(10, 10, 1, 1);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  root.WriteTask(20, 20, 3 * kNsPerMs, 4 * kNsPerMs);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().run_ns, 3 * kNsPerMs);
  EXPECT_EQ(scan.total().wait_ns, 4 * kNsPerMs);
}

TEST(TaskScanTest, OldTaskThatIsSeenForTheFirstTimeDoesNotBringItsPast) {
  FakeRoot root;
  root.WriteTask(10, 10, 1, 1);
  TaskScan scan({.proc_root = root.proc()});
  scan.Step(0);
  root.WriteTask(20, 20, 900'000 * kNsPerMs, 0);  // moved into the cgroup
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

// -- listing seldom -------------------------------------------------------------------------------

// A machine whose kernel tells the last id. Two rounds have passed, in which all tasks are listed.
class NewIdsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_.WriteTask(10, 10, 0, 0);
    TellLastId(100);
    scan_.Step(0);
    scan_.Step(kQuarter);
  }
  void TellLastId(int id) { root_.Write("proc/loadavg", "0.1 0.2 0.3 1/9 " + ToLine(id)); }
  // What waiting it finds of a task that has waited 7 ns.
  uint64_t WaitFoundOf(int id) {
    root_.WriteTask(id, id, 0, 7);
    const uint64_t before = scan_.total().wait_ns;
    scan_.Step(kQuarter);
    return scan_.total().wait_ns - before;
  }

  FakeRoot root_;
  TaskScan scan_{{.proc_root = root_.proc()}};

 private:
  static std::string ToLine(int id) { return std::to_string(id) + "\n"; }
};

TEST_F(NewIdsTest, NewTasksAreFoundByTheirIdsAndAllAreListedAtTimes) {
  EXPECT_EQ(WaitFoundOf(50), 0u);  // below the last id: listing alone would find it
  TellLastId(103);
  EXPECT_EQ(WaitFoundOf(102), 7u);
  EXPECT_EQ(WaitFoundOf(103), 7u);  // its id was given away before it could be seen
  EXPECT_EQ(WaitFoundOf(101), 0u);
  scan_.Step(TaskScan::kListingNs);
  EXPECT_EQ(scan_.total().wait_ns, 4 * 7u);
}

TEST_F(NewIdsTest, IdsThatBeginAgainFromBelowHaveAllListed) {
  TellLastId(60);
  EXPECT_EQ(WaitFoundOf(55), 7u);
}

TEST_F(NewIdsTest, ManyNewIdsHaveAllListed) {
  TellLastId(5'000);
  EXPECT_EQ(WaitFoundOf(50), 7u);
}

TEST_F(NewIdsTest, GarbageInPlaceOfTheLastIdHasAllListed) {
  for (const char* text : {"", "\n", "7", "0.1 0.2 0.3 1/9 x\n", "0.1 0.2 0.3 1/9 -4\n"}) {
    root_.Write("proc/loadavg", text);
    root_.Remove("proc/50");
    scan_.Step(kQuarter);
    EXPECT_EQ(WaitFoundOf(50), 7u) << text;
  }
}

TEST_F(NewIdsTest, ProcOfAnotherPidNamespaceHasAllListed) {
  root_.Remove("proc/self");
  std::filesystem::create_symlink("1", root_.proc() + "/self");
  TaskScan scan({.proc_root = root_.proc()});
  for (int i = 0; i < 3; ++i) scan.Step(kQuarter);
  root_.WriteTask(50, 50, 0, 7);
  scan.Step(kQuarter);
  EXPECT_EQ(scan.total().wait_ns, 7u);
}

TEST(TaskScanTest, FilesThatStayOpenAreNoMoreThanAllowedAndAreClosed) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  FakeRoot root;
  for (int pid = 1; pid <= 30; ++pid) root.WriteTask(pid, pid, 0, 0);
  const auto before = open_files();
  {
    TaskScan scan({.proc_root = root.proc(), .files_max = 20});
    scan.Step(0);
    EXPECT_EQ(open_files(), before + 20);
    for (int pid = 1; pid <= 30; ++pid) root.WriteTask(pid, pid, 0, 1);
    scan.Step(kQuarter);
    EXPECT_EQ(scan.total().wait_ns, 30u);
    for (int pid = 6; pid <= 30; ++pid) root.Remove("proc/" + std::to_string(pid));
    for (int i = 0; i < 2; ++i) scan.Step(kQuarter);
    EXPECT_LE(open_files(), before + 5);
  }
  EXPECT_EQ(open_files(), before);
}

// What a scan that keeps files open and looks for new ids finds in one second, beside one that
// lists and opens all each time. Threads live for 100 ms each, more of them than processors:
// whoever does not find the new ones finds next to nothing.
struct Found {
  double cached_run_ms, plain_run_ms, cached_wait_ms, plain_wait_ms;

  bool Same() const {
    return plain_run_ms > 200 &&
           std::abs(cached_run_ms - plain_run_ms) <= 0.25 * plain_run_ms + 50 &&
           std::abs(cached_wait_ms - plain_wait_ms) <= 0.25 * plain_wait_ms + 50;
  }
};

Found ScanShortThreads() {
  TaskScan cached({});
  TaskScan plain({.files_max = 0, .list_always = true});
  std::atomic<bool> stop{false};
  std::vector<std::thread> parents;
  for (int i = 0; i < 5; ++i) {
    parents.emplace_back([&stop] {
      while (!stop) {
        std::thread([] {
          const uint64_t end_ns = MachineTime::MonotonicNs() + 100 * kNsPerMs;
          while (MachineTime::MonotonicNs() < end_ns) {
          }
        }).join();
      }
    });
  }
  uint64_t last_ns = MachineTime::MonotonicNs();
  for (int i = 0; i < 40; ++i) {
    BlockFor(25 * kNsPerMs);
    const uint64_t now_ns = MachineTime::MonotonicNs();
    cached.Step(now_ns - last_ns);
    plain.Step(now_ns - last_ns);
    last_ns = now_ns;
  }
  stop = true;
  for (std::thread& parent : parents) parent.join();
  const auto ms = [](uint64_t ns) { return static_cast<double>(ns) / kNsPerMs; };
  return {ms(cached.total().run_ns), ms(plain.total().run_ns), ms(cached.total().wait_ns),
          ms(plain.total().wait_ns)};
}

// The two do not look at the same moment, and threads of 100 ms end between their looks: where the
// scanning thread is kept from running, they see unlike ones. One second of some must be without.
TEST(RealTaskScanTest, FilesKeptOpenAndIdsSayTheSameAsListingAndOpeningAll) {
  if (access("/proc/thread-self/schedstat", R_OK) != 0)
    GTEST_SKIP() << "no schedstat of tasks here";
  bool same = false;
  for (int attempt = 0; attempt < 8 && !same; ++attempt) {
    const Found found = ScanShortThreads();
    std::cout << "run " << found.cached_run_ms << " and " << found.plain_run_ms << " ms, wait "
              << found.cached_wait_ms << " and " << found.plain_wait_ms << " ms\n";
    same = found.Same();
  }
  EXPECT_TRUE(same);
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
