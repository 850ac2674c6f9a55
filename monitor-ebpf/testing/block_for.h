#ifndef ABACUS_MONITOR_EBPF_TESTING_BLOCK_FOR_H_
#define ABACUS_MONITOR_EBPF_TESTING_BLOCK_FOR_H_

#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>

namespace abacus::monitor {

// Blocks the calling thread in a read() of a timer, as it would block on a disk. Time off the
// processor is what these tests measure; it never stands for an order of events.
// Returns false where the kernel gives no timer.
inline bool BlockFor(uint64_t ns) {
  const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  if (fd < 0) return false;
  itimerspec when = {};
  when.it_value.tv_sec = static_cast<time_t>(ns / 1'000'000'000u);
  when.it_value.tv_nsec = static_cast<long>(ns % 1'000'000'000u);
  uint64_t expirations = 0;
  const bool blocked = timerfd_settime(fd, 0, &when, nullptr) == 0 &&
                       read(fd, &expirations, sizeof(expirations)) == sizeof(expirations);
  close(fd);
  return blocked;
}

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_TESTING_BLOCK_FOR_H_
