#include "objfs/layer/version.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::objfs {
namespace {

constexpr int64_t kEpochUs = int64_t{1'577'836'800} * 1'000'000;  // the first second of 2020, UTC

}  // namespace

std::string Version::ToString() const { return absl::StrCat(ticks(), ".", writer()); }

HybridClock::HybridClock(uint16_t writer, std::function<int64_t()> now_us)
    : writer_(writer), now_us_(std::move(now_us)) {}

uint64_t HybridClock::PhysicalTicks() const {
  const int64_t us = std::max<int64_t>(now_us_() - kEpochUs, 0);
  // Above 0 for a machine that believes to be in 1970, and below the end for one in 2200.
  return std::clamp<uint64_t>(static_cast<uint64_t>(us / Version::kTickUs), 1,
                              Version::kTicksMax / 2);
}

Version HybridClock::Next() {
  const uint64_t physical = PhysicalTicks();
  uint64_t last = last_.load(std::memory_order_relaxed);
  uint64_t next;
  do {
    next = std::max(physical, last + 1);
  } while (!last_.compare_exchange_weak(last, next, std::memory_order_relaxed));
  return Version::Of(next, writer_);
}

absl::Status HybridClock::Observe(Version seen) {
  const uint64_t physical = PhysicalTicks();
  if (seen.ticks() > physical + kAheadTicksMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "version ", seen.ToString(), " is ",
        (seen.ticks() - physical) / (1'000'000 / Version::kTickUs),
        " s ahead of this machine's clock: set the clocks of client and server right"));
  }
  Follow(seen);
  return absl::OkStatus();
}

void HybridClock::Follow(Version own) {
  uint64_t last = last_.load(std::memory_order_relaxed);
  while (last < own.ticks() &&
         !last_.compare_exchange_weak(last, own.ticks(), std::memory_order_relaxed)) {
  }
}

}  // namespace abacus::objfs
