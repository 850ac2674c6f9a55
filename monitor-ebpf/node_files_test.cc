#include "monitor-ebpf/node_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "monitor-ebpf/testing/fake_root.h"

namespace abacus::monitor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadSmallFileTest, MissingFileIsNotFoundAndNamed) {
  const auto text = ReadSmallFile("/nonexistent/file");
  EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("/nonexistent/file"));
}

TEST(ReadSmallFileTest, DirectoryIsAnError) { EXPECT_FALSE(ReadSmallFile("/proc").ok()); }

TEST(ReadSmallFileTest, FileBeyondTheLimitIsResourceExhausted) {
  FakeRoot root;
  root.Write("proc/huge", std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(ReadSmallFile(root.proc() + "/huge").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ReadNumberTest, OnlyANumberIsANumber) {
  FakeRoot root;
  root.Write("proc/n", " 4711\n");
  EXPECT_EQ(*ReadNumber(root.proc() + "/n"), 4711u);
  for (const char* text : {"", "-1", "max", "12a", "1 2", "99999999999999999999999"}) {
    root.Write("proc/n", text);
    EXPECT_EQ(ReadNumber(root.proc() + "/n").status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST(FindKeyTest, TakesTheWholeKeyAtTheStartOfALine) {
  const char* text = "nr_periods 5\nthrottled_time_x 9\nthrottled_time 77\nMemTotal:   8 kB\nend";
  EXPECT_EQ(FindKey(text, "throttled_time"), 77u);
  EXPECT_EQ(FindKey(text, "MemTotal"), 8u);
  EXPECT_EQ(FindKey(text, "periods"), std::nullopt);
  EXPECT_EQ(FindKey(text, "end"), std::nullopt);
}

TEST(ParseCpuListTest, RangesAndSingles) {
  EXPECT_THAT(*ParseCpuList("\t0-2,5\n"), ElementsAre(0, 1, 2, 5));
  for (const char* text : {"", "a", "3-1", "0,,x", "-", "1-", "999999-9999999"}) {
    EXPECT_EQ(ParseCpuList(text), std::nullopt) << text;
  }
}

TEST(ParseMachineStatTest, IdleIsIdleAndIowaitOfEachProcessor) {
  const auto stat = ParseMachineStat(
      "cpu  9 9 9 9 9 9 9 9 9 9\n"
      "cpu0 10 0 20 700 30 1 2 4 0 0\n"
      "cpu3 10 0 20 500 0 1 2 0 0 0\n"
      "intr 5 5\nprocs_running 6\nprocs_blocked 0\n");
  ASSERT_TRUE(stat.ok());
  ASSERT_EQ(stat->cpus.size(), 2u);
  EXPECT_EQ(stat->cpus[0].idle, 730u);
  EXPECT_EQ(stat->cpus[0].steal, 4u);
  EXPECT_EQ(stat->cpus[1].cpu, 3);
  EXPECT_EQ(stat->procs_running, 6u);
}

TEST(ParseMachineStatTest, GarbageIsDataLoss) {
  for (const char* text : {"", "cpu", "cpu0", "cpu0 1 2 3", "cpuX 1 2 3 4 5 6 7 8",
                           "cpu0 1 2 3 x 5 6 7 8", "cpu9999 1 2 3 4 5 6 7 8"}) {
    EXPECT_EQ(ParseMachineStat(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST(ParseSchedstatTest, ThreeNumbersOrNothing) {
  const auto times = ParseSchedstat("100 200 3\n");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->run_ns, 100u);
  EXPECT_EQ(times->wait_ns, 200u);
  for (const char* text : {"", "1 2", "1 2 3 4", "a b c"}) {
    EXPECT_FALSE(ParseSchedstat(text)) << text;
  }
}

// As kernels of versions 15 to 17 write it: lines of scheduling domains follow each processor's.
TEST(ParseMachineSchedstatTest, RunAndWaitOfEachProcessor) {
  for (const char* version : {"15", "17"}) {
    const auto cpus = ParseMachineSchedstat(
        std::string("version ") + version +
        "\ntimestamp 4303049600\ncpu0 0 0 0 0 0 0 700 90 5\ndomain0 MC 03 1 2 3 4 5 6 7 8 9\n"
        "cpu3 1 2 3 4 5 6 800 91 8\n");
    ASSERT_TRUE(cpus.ok()) << cpus.status();
    ASSERT_EQ(cpus->size(), 2u);
    EXPECT_EQ((*cpus)[0].cpu, 0);
    EXPECT_EQ((*cpus)[0].times.run_ns, 700u);
    EXPECT_EQ((*cpus)[0].times.wait_ns, 90u);
    EXPECT_EQ((*cpus)[1].cpu, 3);
    EXPECT_EQ((*cpus)[1].times.wait_ns, 91u);
  }
}

TEST(ParseMachineSchedstatTest, WhatIsNotKnownForCertainIsDataLoss) {
  for (const char* text :
       {"", "version 15\n", "version x\ncpu0 0 0 0 0 0 0 700 90 5\n",
        "version 14\ncpu0 0 0 0 0 0 0 700 90 5\n", "version 99\ncpu0 0 0 0 0 0 0 700 90 5\n",
        "version 15\ncpu0 0 0 0 0 0 0 700 90\n", "version 15\ncpu0 0 0 0 0 0 0 700 x 5\n",
        "version 15\ncpux 0 0 0 0 0 0 700 90 5\n", "version 15\ncpu0 0 0 0 0 0 0 0 0 0\n",
        "version 15\ncpu0 0 0 0 0 0 0 700 90 5\ncpu1 cut sho"}) {
    EXPECT_EQ(ParseMachineSchedstat(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST(ParsePressureTest, TotalOfTheSomeLine) {
  EXPECT_EQ(ParsePressureSomeTotal("some avg10=0.00 avg60=0.04 avg300=0.19 total=5267395\n"
                                   "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
            5267395u);
  EXPECT_EQ(ParsePressureSomeTotal("full avg10=0.00 total=7\n"), std::nullopt);
  EXPECT_EQ(ParsePressureSomeTotal("some avg10=0.00\n"), std::nullopt);
  EXPECT_EQ(ParsePressureSomeTotal("some total=x\n"), std::nullopt);
}

// Whatever bytes stand in the files, the parsers come back; the sanitizers see to the rest.
TEST(ParsersTest, RandomDamageNeverCrashes) {
  const std::string good =
      "version 15\ncpu0 10 0 20 700 30 1 2 4 0\ncpu0 10 0 20 700 30 1 2 4 0 0\nprocs_running "
      "6\n4:cpu:/a\n1 2 3\n0-3,5\n"
      "31 23 0:28 / /sys rw - cgroup cgroup rw,cpu\nsome avg10=0 total=5\n";
  std::mt19937_64 random(20260401);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good.substr(random() % good.size());
    for (uint64_t i = 0; i < random() % 6; ++i) {
      if (!text.empty()) text[random() % text.size()] = static_cast<char>(random());
    }
    static_cast<void>(ParseMachineStat(text));
    static_cast<void>(ParseSchedstat(text));
    static_cast<void>(ParseMachineSchedstat(text));
    static_cast<void>(ParseCpuList(text));
    static_cast<void>(ParsePressureSomeTotal(text));
    static_cast<void>(FindKey(text, "procs_running"));
  }
}

// -- cgroups --------------------------------------------------------------------------------------

constexpr char kV1Mounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "36 31 0:33 / /cg/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n";

TEST(FindCgroupTest, MissingFilesAreAnError) {
  FakeRoot root;
  EXPECT_FALSE(FindCgroup(root.path()).ok());
  root.Write("proc/self/cgroup", "0::/\n");
  EXPECT_FALSE(FindCgroup(root.path()).ok());
}

TEST(FindCgroupTest, RootOfAllHierarchiesIsTheMachine) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "3:memory:/\n2:cpu,cpuacct:/\n0::/\n");
  root.Write("proc/self/mountinfo", kV1Mounts);
  root.Write("cg/cpu/release_agent", "");
  root.Write("cg/memory/release_agent", "");
  const auto cgroup = FindCgroup(root.path());
  ASSERT_TRUE(cgroup.ok());
  EXPECT_FALSE(cgroup->limits_cpu);
  EXPECT_EQ(cgroup->memory_dir, "");
}

TEST(FindCgroupTest, VersionOneReadsItsQuotaAtEveryLevel) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "3:memory:/\n2:cpu,cpuacct:/a/b\n0::/elsewhere\n");
  root.Write("proc/self/mountinfo", kV1Mounts);
  root.Write("cg/cpu/release_agent", "");
  root.Write("cg/memory/release_agent", "");
  root.Write("cg/cpu/a/cpu.cfs_quota_us", "50000\n");
  root.Write("cg/cpu/a/cpu.cfs_period_us", "100000\n");
  root.Write("cg/cpu/a/cpu.stat", "nr_periods 9\nthrottled_time 1000\n");
  root.Write("cg/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  root.Write("cg/cpu/a/b/cpu.cfs_period_us", "100000\n");
  root.Write("cg/cpu/a/b/cpu.stat", "nr_periods 9\nthrottled_time 11\n");
  root.Write("cg/cpu/a/b/cpuacct.usage", "123456\n");
  const auto cgroup = FindCgroup(root.path());
  ASSERT_TRUE(cgroup.ok());
  EXPECT_TRUE(cgroup->limits_cpu);
  EXPECT_EQ(cgroup->cpu_dir, root.path() + "/cg/cpu/a/b");
  EXPECT_DOUBLE_EQ(ReadQuotaCores(*cgroup).value(), 0.5);
  EXPECT_EQ(ReadThrottledNs(*cgroup), 1011u);
  EXPECT_EQ(*ReadCgroupUsageNs(*cgroup), 123456u);
}

TEST(FindCgroupTest, VersionTwoInAContainerThatSeesOnlyItsOwnPart) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "0::/\n");
  root.Write("proc/self/mountinfo", "41 31 0:38 /kube/pod7 /cg rw - cgroup2 cgroup2 rw\n");
  root.Write("cg/cgroup.type", "domain\n");
  root.Write("cg/cpu.max", "16000 100000\n");
  root.Write("cg/cpu.stat", "usage_usec 500\nnr_throttled 3\nthrottled_usec 42\n");
  const auto cgroup = FindCgroup(root.path());
  ASSERT_TRUE(cgroup.ok());
  EXPECT_TRUE(cgroup->limits_cpu);
  EXPECT_TRUE(cgroup->v2);
  EXPECT_DOUBLE_EQ(ReadQuotaCores(*cgroup).value(), 0.16);
  EXPECT_EQ(ReadThrottledNs(*cgroup), 42'000u);
  EXPECT_EQ(*ReadCgroupUsageNs(*cgroup), 500'000u);
  EXPECT_EQ(cgroup->memory_dir, root.path() + "/cg");
}

TEST(FindCgroupTest, NoQuotaAndGarbageQuotasAreNoQuota) {
  FakeRoot root;
  CgroupFiles cgroup;
  cgroup.v2 = true;
  cgroup.quota_dirs = {root.path()};
  for (const char* text : {"max 100000\n", "", "5\n", "0 100000\n", "5 0\n", "a b\n", "1 2 3\n"}) {
    root.Write("cpu.max", text);
    EXPECT_EQ(ReadQuotaCores(cgroup), std::nullopt) << text;
  }
}

TEST(FindCgroupTest, GarbageInItsFilesIsNoCgroup) {
  FakeRoot root;
  for (const char* text : {"", ":::\n", "garbage", "1:cpu\n", "\n\n::\n"}) {
    root.Write("proc/self/cgroup", text);
    root.Write("proc/self/mountinfo", text);
    const auto cgroup = FindCgroup(root.path());
    ASSERT_TRUE(cgroup.ok());
    EXPECT_FALSE(cgroup->limits_cpu) << text;
  }
}

TEST(FindCgroupTest, PathThatLeadsOutOfTheVisiblePartStaysAtItsTop) {
  FakeRoot root;
  root.Write("proc/self/cgroup", "0::/../../other\n");
  root.Write("proc/self/mountinfo", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n");
  root.Write("cg/cgroup.type", "domain\n");
  EXPECT_EQ(FindCgroup(root.path())->cpu_dir, root.path() + "/cg");
}

}  // namespace
}  // namespace abacus::monitor
