#include "experiments/lab/processor.h"

#include <time.h>

#include <algorithm>

#include "experiments/lab/paper_node.h"

namespace abacus::lab {
namespace {

// A thread that sleeps wakes that late: measured on the virtual machines this is for.
constexpr int64_t kWakeNs = 50'000;

int64_t ReadNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void SleepUntil(int64_t monotonic_ns) {
  const timespec until{.tv_sec = static_cast<time_t>(monotonic_ns / 1'000'000'000),
                       .tv_nsec = static_cast<long>(monotonic_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

}  // namespace

void SpendCpu(absl::Duration cpu) {
  if (cpu <= absl::ZeroDuration()) return;
  const int64_t end_ns = ReadNs(CLOCK_THREAD_CPUTIME_ID) + absl::ToInt64Nanoseconds(cpu);
  volatile uint32_t sum = 0;
  while (ReadNs(CLOCK_THREAD_CPUTIME_ID) < end_ns) {
    for (int i = 0; i < 256; ++i) sum = sum * 31 + 7;
  }
}

absl::Duration Processor::TimeOf(absl::Duration at_paper, double share) {
  return at_paper * (kShare / share);
}

void Processor::Do(const Work& work) {
  const int64_t takes_ns = absl::ToInt64Nanoseconds(TimeOf(work.at_paper, share_));
  const int64_t now_ns = ReadNs(CLOCK_MONOTONIC);
  int64_t free_ns = free_at_ns_.load(std::memory_order_relaxed);
  int64_t end_ns = 0;
  do {
    end_ns = std::max(free_ns, now_ns) + takes_ns;
  } while (!free_at_ns_.compare_exchange_weak(free_ns, end_ns, std::memory_order_relaxed));
  cpu_ns_.fetch_add(absl::ToInt64Nanoseconds(work.cpu), std::memory_order_relaxed);
  SpendCpu(work.cpu);
  if (end_ns - ReadNs(CLOCK_MONOTONIC) > kWakeNs) SleepUntil(end_ns - kWakeNs);
}

}  // namespace abacus::lab
