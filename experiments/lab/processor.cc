#include "experiments/lab/processor.h"

#include <time.h>

#include <algorithm>

#include "experiments/lab/paper_node.h"

namespace abacus::lab {
namespace {

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

int64_t Processor::WaitsUntil(int64_t longer_ns) {
  const runtime::MutexLock lock(mutex_);
  owed_ns_ += longer_ns;
  if (owed_ns_ >= absl::ToInt64Nanoseconds(kPiece)) {
    free_at_ns_ = std::max(free_at_ns_, ReadNs(CLOCK_MONOTONIC)) + owed_ns_;
    owed_ns_ = 0;
  }
  return free_at_ns_;
}

// The node has had that time, so the next work has less to wait for.
void Processor::WokeLate(int64_t late_ns) {
  const runtime::MutexLock lock(mutex_);
  owed_ns_ = std::max(owed_ns_ - late_ns, -absl::ToInt64Nanoseconds(kPiece));
}

void Processor::Do(const Work& work) {
  const int64_t begun_ns = ReadNs(CLOCK_MONOTONIC);
  const absl::Duration cpu = work.cpu * machine_;
  cpu_ns_.fetch_add(absl::ToInt64Nanoseconds(cpu), std::memory_order_relaxed);
  SpendCpu(cpu);
  const int64_t now_ns = ReadNs(CLOCK_MONOTONIC);
  const int64_t takes_ns = absl::ToInt64Nanoseconds(TimeOf(work.at_paper, share_));
  const int64_t until_ns = WaitsUntil(std::max<int64_t>(takes_ns - (now_ns - begun_ns), 0));
  if (until_ns <= now_ns) return;
  SleepUntil(until_ns);
  WokeLate(ReadNs(CLOCK_MONOTONIC) - until_ns);
}

}  // namespace abacus::lab
