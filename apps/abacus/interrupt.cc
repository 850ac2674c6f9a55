#include "apps/abacus/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace abacus::apps {
namespace {

std::atomic<bool> interrupted{false};
// Can be read from the interruption on. -1: there is none, which poll() leaves out.
std::atomic<int> interruption{-1};

}  // namespace

void EndInOrder() {
  interruption = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct sigaction action = {};
  action.sa_handler = [](int) {
    const int error = errno;
    interrupted = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(interruption, &one, sizeof one);
    errno = error;
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return interrupted; }

bool AwaitInput(int fd) {
  pollfd ready[] = {{fd, POLLIN, 0}, {interruption, POLLIN, 0}};
  while (!interrupted && poll(ready, 2, -1) < 0 && errno == EINTR) {
  }
  return !interrupted;
}

}  // namespace abacus::apps
