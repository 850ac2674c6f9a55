#include "monitor-ebpf/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "monitor-ebpf/thread_clock.h"

namespace abacus::monitor {
namespace {

TEST(CalibrationTest, TwoCalibrationsAgreeWithinAQuarter) {
  // A hypervisor may take the core away in the middle of one: not three times in a row.
  double least_ratio = 1e9;
  for (int attempt = 0; attempt < 3 && least_ratio >= 1.25; ++attempt) {
    const double first = CalibrateRate();
    const double second = CalibrateRate();
    ASSERT_GT(std::min(first, second), 0);
    least_ratio = std::min(least_ratio, std::max(first, second) / std::min(first, second));
  }
  EXPECT_LT(least_ratio, 1.25);
}

TEST(CachedRateTest, TheSecondProcessTakesWhatTheFirstOneFoundAndDamageIsMended) {
  const std::string directory = ::testing::TempDir() + "abacus_rate_test";
  const std::string path = directory + "/rate";
  std::filesystem::remove_all(directory);
  const double first = CachedRate(path);
  EXPECT_GT(first, 0);
  EXPECT_EQ(CachedRate(path), first);
  std::string machine;
  {
    std::ifstream file(path);
    std::getline(file, machine);
  }
  for (const std::string& text : std::vector<std::string>{
           "", machine, machine + "\n", machine + "\nnan\n", machine + "\n-1\n",
           machine + "\n1e999\n", "another machine\n5\n", std::string(5000, '\xff')}) {
    std::ofstream(path) << text;
    EXPECT_GT(CachedRate(path), first / 10) << text.substr(0, 80);
    EXPECT_EQ(CachedRate(path), CachedRate(path)) << "it was replaced";
  }
  std::filesystem::remove_all(directory);
}

TEST(CachedRateTest, AFileThatCannotBeWrittenIsDoneWithout) {
  EXPECT_GT(CachedRate("/proc/no/such/place"), 0);
  EXPECT_GT(CachedRate(""), 0);
}

// Of several: a hypervisor's neighbours share caches and frequency.
double BestRate() { return std::max({CalibrateRate(), CalibrateRate(), CalibrateRate()}); }

// As many busy neighbours as to halve this thread's share of every processor, at least.
TEST(CalibrationTest, RateUnderBusyNeighboursIsTheRateOfAnUncontendedCore) {
  const double alone = BestRate();
  std::atomic<bool> stop = false;
  std::vector<std::thread> neighbours;
  for (unsigned i = 0; i < 2 * std::max(1u, std::thread::hardware_concurrency()); ++i) {
    neighbours.emplace_back([&stop] {
      uint64_t n = 0;
      while (!stop.load(std::memory_order_relaxed)) ++n;
    });
  }
  const double contended = BestRate();
  stop = true;
  for (std::thread& neighbour : neighbours) neighbour.join();
  // By wall time it would be a third or less.
  EXPECT_GT(contended / alone, 0.6) << alone << " " << contended;
}

TEST(CalibrationTest, CalibrationUsesLessThanATenthOfASecondOfCpu) {
  const uint64_t before_ns = MachineTime::ThreadCpuNs();
  CalibrateRate();
  EXPECT_LT(MachineTime::ThreadCpuNs() - before_ns, 100'000'000u);
}

TEST(CalibrationTest, WorkDependsOnEveryUnit) {
  EXPECT_NE(internal::CalibrationWork(100, 1), internal::CalibrationWork(101, 1));
  EXPECT_NE(internal::CalibrationWork(100, 1), internal::CalibrationWork(100, 3));
  EXPECT_EQ(internal::CalibrationWork(100, 1), internal::CalibrationWork(100, 1));
}

}  // namespace
}  // namespace abacus::monitor
