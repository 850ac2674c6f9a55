#include "monitor-ebpf/calibration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "monitor-ebpf/thread_clock.h"

namespace abacus::monitor {
namespace {

// A machine on which a unit takes 10 ns of CPU time, and more while somebody disturbs.
class ScriptedMachine {
 public:
  // The share of a unit's speed that is left at that CPU time.
  using Speed = std::function<double(uint64_t cpu_ns)>;

  explicit ScriptedMachine(Speed speed, double share_of_processor = 1)
      : speed_(std::move(speed)), share_(share_of_processor) {}

  double Calibrate() {
    return internal::CalibrateRate(
        {.cpu_ns = [this] { return cpu_ns_; },
         .wall_ns = [this] { return static_cast<uint64_t>(static_cast<double>(cpu_ns_) / share_); },
         .work =
             [this](uint64_t units, uint64_t seed) {
               cpu_ns_ += static_cast<uint64_t>(static_cast<double>(units) * 10 / speed_(cpu_ns_));
               return seed + 1;
             }});
  }
  uint64_t cpu_ns() const { return cpu_ns_; }

 private:
  const Speed speed_;
  const double share_;
  uint64_t cpu_ns_ = 0;
};
constexpr double kUndisturbed = 1e8;  // units a second

TEST(CalibrationTest, RateIsThatOfThePiecesThatNobodyDisturbed) {
  // Three of four stretches of 2 ms run at a third of the speed: a mean would find a half of R.
  ScriptedMachine machine(
      [](uint64_t cpu_ns) { return cpu_ns / 2'000'000 % 4 == 0 ? 1.0 : 1.0 / 3; });
  EXPECT_NEAR(machine.Calibrate(), kUndisturbed, kUndisturbed / 1e3);
}

TEST(CalibrationTest, AFewReadingsThatAreTooGoodDoNotCount) {
  // Two stretches of half a millisecond seem ten times as fast.
  ScriptedMachine machine([](uint64_t cpu_ns) { return cpu_ns / 500'000 % 45 == 44 ? 10.0 : 1.0; });
  EXPECT_NEAR(machine.Calibrate(), kUndisturbed, kUndisturbed / 1e3);
}

TEST(CalibrationTest, ASlowMachineIsSlowAndNotDisturbed) {
  ScriptedMachine machine([](uint64_t) { return 0.25; });
  EXPECT_NEAR(machine.Calibrate(), kUndisturbed / 4, kUndisturbed / 1e3);
}

TEST(CalibrationTest, ItIsShorterWhereTheProcessorIsContendedAndNeverEndless) {
  const auto cpu_ms = [](double share_of_processor) {
    ScriptedMachine machine([](uint64_t) { return 1.0; }, share_of_processor);
    EXPECT_NEAR(machine.Calibrate(), kUndisturbed, kUndisturbed / 1e3);
    return machine.cpu_ns() / 1'000'000;
  };
  const uint64_t alone = cpu_ms(1);
  EXPECT_GE(alone, 40u);
  EXPECT_LE(alone, 100u);
  EXPECT_EQ(cpu_ms(0.5), alone) << "half of the processor is enough for all of it";
  const uint64_t crowded = cpu_ms(0.01);
  EXPECT_GE(crowded, 10u) << "20 pieces at least";
  EXPECT_LT(crowded, alone / 2);
}

TEST(CalibrationTest, TwoCalibrationsAgreeWithinAFactorOfTwo) {
  double ratio = INFINITY;  // of the best of five pairs: others may take the processor meanwhile
  for (int attempt = 0; attempt < 5 && ratio >= 2; ++attempt) {
    const double first = CalibrateRate();
    const double second = CalibrateRate();
    ASSERT_GT(std::min(first, second), 0);
    std::cout << first << " and " << second << " units/s\n";
    ratio = std::max(first, second) / std::min(first, second);
  }
  EXPECT_LT(ratio, 2);
}

TEST(CachedRateTest, TheSecondProcessTakesWhatTheFirstOneFoundAndDamageIsMended) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "abacus_rate_test.", getpid());
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

// As many busy neighbours as to halve this thread's share of every processor, at least.
TEST(CalibrationTest, RateUnderBusyNeighboursIsTheRateOfAnUncontendedCore) {
  double ratio = 0;  // by wall time it would be a third or less, in each of five attempts
  for (int attempt = 0; attempt < 5 && ratio <= 0.5; ++attempt) {
    const double alone = CalibrateRate();
    std::atomic<bool> stop = false;
    std::vector<std::thread> neighbours;
    for (unsigned i = 0; i < 2 * std::max(1u, std::thread::hardware_concurrency()); ++i) {
      neighbours.emplace_back([&stop] {
        uint64_t n = 0;
        while (!stop.load(std::memory_order_relaxed)) ++n;
      });
    }
    const double contended = CalibrateRate();
    stop = true;
    for (std::thread& neighbour : neighbours) neighbour.join();
    std::cout << alone << " units/s alone, " << contended << " beside busy neighbours\n";
    ratio = contended / alone;
  }
  EXPECT_GT(ratio, 0.5);
}

TEST(CalibrationTest, CalibrationUsesLessThanATenthOfASecondOfCpu) {
  uint64_t least_ns = UINT64_MAX;  // a hypervisor's theft may stand in the others
  for (int attempt = 0; attempt < 5; ++attempt) {
    const uint64_t before_ns = MachineTime::ThreadCpuNs();
    CalibrateRate();
    least_ns = std::min(least_ns, MachineTime::ThreadCpuNs() - before_ns);
  }
  EXPECT_LT(least_ns, 100'000'000u);
}

TEST(CalibrationTest, WorkDependsOnEveryUnit) {
  EXPECT_NE(internal::CalibrationWork(100, 1), internal::CalibrationWork(101, 1));
  EXPECT_NE(internal::CalibrationWork(100, 1), internal::CalibrationWork(100, 3));
  EXPECT_EQ(internal::CalibrationWork(100, 1), internal::CalibrationWork(100, 1));
}

}  // namespace
}  // namespace abacus::monitor
