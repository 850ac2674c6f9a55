#include "monitor-ebpf/calibration.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "monitor-ebpf/thread_clock.h"

namespace abacus::monitor {
namespace {

constexpr size_t kTableWords =
    size_t{32} * 1024;  // 256 KiB: within the second-level cache of any server
constexpr size_t kWordsPerUnit = 8;
constexpr size_t kPieces = 80;
constexpr size_t kPiecesMin = 20;
constexpr uint64_t kPieceCpuNs = 500'000;
// Before the first piece: the table comes into the cache, the core out of its idle state.
constexpr uint64_t kWarmUpCpuNs = 4'000'000;
constexpr uint64_t kWallMaxNs = 200'000'000;
constexpr uint64_t kChunkUnits = 4'096;

std::vector<uint64_t> MakeTable() {
  std::vector<uint64_t> table(kTableWords);
  uint64_t state = 0x2545f4914f6cdd1du;
  for (uint64_t& word : table) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    word = state;
  }
  return table;
}

uint64_t Work(const std::vector<uint64_t>& table, uint64_t units, uint64_t seed) {
  uint64_t hash = seed | 1;
  size_t at = seed % (kTableWords - kWordsPerUnit);
  for (uint64_t unit = 0; unit < units; ++unit) {
    for (size_t i = 0; i < kWordsPerUnit; ++i) {
      hash = std::rotl((hash ^ table[at + i]) * 0x9e3779b97f4a7c15u, 29);
    }
    // The next line depends on this one, as in a parser or a hash join.
    at = static_cast<size_t>(hash >> 20) % (kTableWords - kWordsPerUnit);
  }
  return hash;
}

}  // namespace

namespace internal {

uint64_t CalibrationWork(uint64_t units, uint64_t seed) { return Work(MakeTable(), units, seed); }

double CalibrateRate(const CalibrationParts& parts) {
  uint64_t hash = 1;
  // Units per second of a piece of at least so much CPU time.
  const auto piece = [&](uint64_t cpu_ns) {
    const uint64_t start_ns = parts.cpu_ns();
    uint64_t units = 0;
    uint64_t spent_ns = 0;
    while (spent_ns < cpu_ns) {
      hash = parts.work(kChunkUnits, hash);
      units += kChunkUnits;
      spent_ns = parts.cpu_ns() - start_ns;
    }
    return static_cast<double>(units) * 1e9 / static_cast<double>(spent_ns);
  };
  const uint64_t wall_start_ns = parts.wall_ns();
  piece(kWarmUpCpuNs);
  std::vector<double> rates;
  while (rates.size() < kPieces &&
         (rates.size() < kPiecesMin || parts.wall_ns() - wall_start_ns < kWallMaxNs)) {
    rates.push_back(piece(kPieceCpuNs));
  }
  // Without a use of its result the compiler may leave the work out.
  if (hash == 0) rates.front() += 1;
  const auto at = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() * 9 / 10);
  std::nth_element(rates.begin(), at, rates.end());
  return *at;
}

}  // namespace internal

double CalibrateRate() {
  const std::vector<uint64_t> table = MakeTable();
  return internal::CalibrateRate(
      {.cpu_ns = MachineTime::ThreadCpuNs,
       .wall_ns = MachineTime::MonotonicNs,
       .work = [&table](uint64_t units, uint64_t seed) { return Work(table, units, seed); }});
}

namespace {

// Changes with the calibration: rates of another one mean something else.
constexpr const char* kFormat = "abacus-rate-2";

std::string FirstLine(const std::string& path, const std::string& beginning) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(beginning)) return line;
  }
  return {};
}

// What the rate is of. Empty where it cannot be told, and then nothing is kept.
std::string ThisMachine() {
  const std::string boot = FirstLine("/proc/sys/kernel/random/boot_id", "");
  const std::string model = FirstLine("/proc/cpuinfo", "model name");
  return boot.empty() || model.empty() ? "" : absl::StrCat(kFormat, " | ", boot, " | ", model);
}

std::optional<double> ReadRate(const std::string& path, const std::string& machine) {
  std::ifstream file(path);
  std::string of_machine, text;
  double rate = 0;
  if (!std::getline(file, of_machine) || !std::getline(file, text) || of_machine != machine ||
      !absl::SimpleAtod(text, &rate) || !std::isfinite(rate) || rate <= 0) {
    return std::nullopt;
  }
  return rate;
}

void WriteRate(const std::string& path, const std::string& machine, double rate) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string fresh = absl::StrCat(path, ".", getpid());
  {
    std::ofstream file(fresh);
    file << machine << "\n" << absl::StrFormat("%.17g", rate) << "\n";
    if (!file.flush()) {
      unlink(fresh.c_str());
      return;
    }
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) unlink(fresh.c_str());
}

}  // namespace

double CachedRate(const std::string& path) {
  const std::string machine = path.empty() ? "" : ThisMachine();
  if (machine.empty()) return CalibrateRate();
  if (const auto rate = ReadRate(path, machine)) return *rate;
  const double rate = CalibrateRate();
  WriteRate(path, machine, rate);
  return rate;
}

}  // namespace abacus::monitor
