// ./dev bench raid: parity of 4 data units against ISA-L's bare xor_gen, and against a copy; then
// the raid5 layer.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/raid/parity.h"
#include "objfs/raid/testing/raid5_benchmark.h"
#include "runtime/testing/bench_report.h"

extern "C" {
#include <isa-l/raid.h>
}

namespace abacus::objfs {
namespace {

constexpr size_t kSources = 4;

struct Run {
  size_t unit_bytes;
  size_t stripes;  // one after the other; together they are in the cache or not
  size_t shift;    // from the alignment
};

// Data units and parity of all stripes, in one piece of memory.
class Stripes {
 public:
  explicit Stripes(const Run& run)
      : run_(run),
        stride_(run.unit_bytes + kParityAlignment),
        room_(run.stripes * (kSources + 1) * stride_ + 2 * kParityAlignment, 'x') {
    const auto at = reinterpret_cast<uintptr_t>(room_.data());
    base_ = room_.data() + (kParityAlignment - at % kParityAlignment) + run.shift;
  }
  char* At(size_t stripe, size_t unit) {
    return base_ + (stripe * (kSources + 1) + unit) * stride_;
  }
  // Gigabytes of data a second, the best of several looks.
  double Rate(const std::function<void(size_t stripe)>& work) const {
    constexpr uint64_t kBytes = uint64_t{2} << 30;
    constexpr int kLooks = 5;
    const uint64_t stripe_bytes = run_.unit_bytes * kSources;
    const uint64_t rounds = std::max<uint64_t>(1, kBytes / kLooks / (stripe_bytes * run_.stripes));
    double best = 0;
    for (int look = 0; look < kLooks; ++look) {
      const auto begin = std::chrono::steady_clock::now();
      for (uint64_t round = 0; round < rounds; ++round) {
        for (size_t stripe = 0; stripe < run_.stripes; ++stripe) work(stripe);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      const auto bytes = static_cast<double>(rounds * run_.stripes * stripe_bytes);
      best = std::max(best, bytes / took.count() / 1e9);
    }
    return best;
  }

 private:
  const Run run_;
  const size_t stride_;
  std::string room_;
  char* base_;
};

void Add(runtime::BenchReport& report, const std::string& name, const std::string& baseline,
         double ours, double other, double goal) {
  runtime::BenchRow row{.name = name,
                        .value = ours,
                        .unit = "GB/s of data",
                        .baseline_name = baseline,
                        .baseline = other,
                        .ratio = ours / other};
  if (goal > 0) {
    row.goal = absl::StrCat(">= ", goal, " x");
    row.met = row.ratio >= goal;
  }
  report.Add(row);
}

double Ours(Stripes& stripes, size_t unit_bytes) {
  return stripes.Rate([&](size_t stripe) {
    const char* sources[kSources];
    for (size_t i = 0; i < kSources; ++i) sources[i] = stripes.At(stripe, i);
    XorOf(sources, stripes.At(stripe, kSources), unit_bytes);
  });
}

void Parity(runtime::BenchReport& report) {
  const Run in_cache{.unit_bytes = 32 << 10, .stripes = 1, .shift = 0};
  // 640 MiB: servers have hundreds of MiB of cache.
  const Run out_of_cache{.unit_bytes = 1 << 20, .stripes = 128, .shift = 0};
  for (const Run& run : {in_cache, out_of_cache}) {
    Stripes stripes(run);
    const std::string where =
        run.stripes == 1 ? "in cache, 32 KiB units" : "out of cache, 1 MiB units";
    const double ours = Ours(stripes, run.unit_bytes);
    const double raw = stripes.Rate([&](size_t stripe) {
      void* all[kSources + 1];
      for (size_t i = 0; i <= kSources; ++i) all[i] = stripes.At(stripe, i);
      xor_gen(kSources + 1, static_cast<int>(run.unit_bytes), all);
    });
    // Each source is copied to where the parity would be, which then stays in the cache.
    const double copy = stripes.Rate([&](size_t stripe) {
      for (size_t i = 0; i < kSources; ++i) {
        std::memcpy(stripes.At(stripe, kSources), stripes.At(stripe, i), run.unit_bytes);
      }
    });
    Add(report, absl::StrCat("parity of 4+1, ", where), "xor_gen", ours, raw,
        run.stripes == 1 ? 0.9 : 0);
    Add(report, absl::StrCat("parity of 4+1, ", where), "memcpy", ours, copy,
        run.stripes == 1 ? 0 : 0.8);
  }
  Stripes aligned(in_cache);
  const Run shifted{.unit_bytes = in_cache.unit_bytes, .stripes = 1, .shift = 8};
  Stripes unaligned(shifted);
  Add(report, "the same in cache, units that begin 8 bytes off", "aligned",
      Ours(unaligned, shifted.unit_bytes), Ours(aligned, in_cache.unit_bytes), 0);
}

}  // namespace
}  // namespace abacus::objfs

int main(int argc, char** argv) {
  return abacus::runtime::BenchMain(argc, argv, "raid", [](abacus::runtime::BenchReport& report) {
    abacus::objfs::Parity(report);
    abacus::objfs::MeasureRaid5Layer(report);
  });
}
