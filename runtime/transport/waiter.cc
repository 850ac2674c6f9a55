#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {
namespace {

uint32_t* Word(std::atomic<uint32_t>& state) {
  static_assert(sizeof state == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  return reinterpret_cast<uint32_t*>(&state);
}

void FutexWake(uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
}

// `deadline` is of CLOCK_MONOTONIC; null: none. False where it has passed.
bool FutexWait(uint32_t* word, uint32_t expected, const timespec* deadline) {
  const long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                              deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
  return result == 0 || errno != ETIMEDOUT;
}

timespec MonotonicIn(absl::Duration timeout) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::ToTimespec(absl::DurationFromTimespec(now) + timeout);
}

}  // namespace

void Waiter::Complete() {
  uint32_t* const word = Word(state_);
  const uint32_t old = state_.exchange(kDone, std::memory_order_acq_rel);
  // From here on only the address is used: waking a word that is something else by now, or nothing,
  // does no harm.
  if (old == kSleeping) {
    FutexWake(word);
  } else if ((old & ((1u << kStateBits) - 1)) == kPolling) {
    // The descriptor cannot be gone: EndPoll() waits for this write.
    const uint64_t one = 1;
    while (write(static_cast<int>(old >> kStateBits), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
}

bool Waiter::Sleep(absl::Duration timeout) {
  uint32_t expected = kIdle;
  if (!state_.compare_exchange_strong(expected, kSleeping, std::memory_order_acq_rel)) {
    if (expected == kNudged) {
      state_.compare_exchange_strong(expected, kIdle, std::memory_order_acq_rel);
    }
    return true;
  }
  timespec deadline;
  const bool forever = timeout == absl::InfiniteDuration();
  if (!forever) deadline = MonotonicIn(timeout);
  while (true) {
    const bool in_time = FutexWait(Word(state_), kSleeping, forever ? nullptr : &deadline);
    uint32_t now = state_.load(std::memory_order_acquire);
    if (now == kDone) return true;
    if (now == kNudged || !in_time) {
      // Only Complete() can come in between, and then this fails and the wait is over.
      if (state_.compare_exchange_strong(now, kIdle, std::memory_order_acq_rel)) {
        return now == kNudged;
      }
      if (now == kDone) return true;
    }
  }
}

void Waiter::Nudge() {
  uint32_t now = state_.load(std::memory_order_acquire);
  while (now == kIdle || now == kSleeping) {
    if (state_.compare_exchange_weak(now, kNudged, std::memory_order_acq_rel)) {
      if (now == kSleeping) FutexWake(Word(state_));
      return;
    }
  }
}

bool Waiter::BeginPoll(int event_fd) {
  const uint32_t polling = kPolling | static_cast<uint32_t>(event_fd) << kStateBits;
  uint32_t now = state_.load(std::memory_order_acquire);
  while (now != kDone) {
    if (state_.compare_exchange_weak(now, polling, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void Waiter::EndPoll(int event_fd) {
  uint32_t now = kPolling | static_cast<uint32_t>(event_fd) << kStateBits;
  if (state_.compare_exchange_strong(now, kIdle, std::memory_order_acq_rel)) return;
  // Complete() saw the descriptor and writes to it: take that in, so that it is not left to the
  // next user, and so that the descriptor outlives the write.
  uint64_t ignored;
  while (read(event_fd, &ignored, sizeof ignored) < 0 && errno == EINTR) {
  }
}

}  // namespace abacus::runtime
