// abacus_link_delay: links with a delay, for kernels that have no netem.
//
//     abacus_link_delay NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B DELAY_US ...
//
// Five words a link: makes TAP device DEVICE_A in the network namespace at the path NAMESPACE_A,
// and DEVICE_B in NAMESPACE_B, and carries each frame that goes out of the one into the other
// DELAY_US later, in both directions and in order. Prints "ready" when all devices are there, and
// goes on until it is killed or a device is taken away; its devices go with it.
//
// Frames carry their virtio-net header, which is handed through as it is: the kernel gives and
// takes segments of up to 64 KiB with checksums still to be made, so that 1 Gbit/s costs a few
// thousand system calls a second. Bandwidth is the business of token buckets on the devices, so
// what waits here is no more than bandwidth x delay.

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "experiments/testbed/descriptor.h"

namespace abacus::experiments {
namespace {

constexpr int64_t kNanosecondsInMicrosecond = 1000;
constexpr int64_t kNanosecondsInSecond = 1'000'000'000;
constexpr size_t kFrameBytesMax = 65536 + 64;
constexpr int kFramesATurn = 64;                       // of one device, before others have theirs
constexpr size_t kWaitingBytesMax = 64 * 1024 * 1024;  // of one direction
constexpr int64_t kDelayUsMax = 2'000'000;
constexpr int kNiceness = -10;  // the emulated wire must not wait for the machines it joins

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanosecondsInSecond + now.tv_nsec;
}

// Says what failed, and why by errno; returns false.
bool Fail(const char* what, const std::string& on) {
  std::fprintf(stderr, "abacus_link_delay: %s %s: %s\n", what, on.c_str(), std::strerror(errno));
  return false;
}

// Makes TAP device `name` in the namespace at `path`. This process stays in that namespace.
bool MakeDevice(const std::string& path, const std::string& name, Descriptor* device) {
  const Descriptor space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (space.fd() < 0) return Fail("cannot open namespace", path);
  if (setns(space.fd(), CLONE_NEWNET) != 0) return Fail("cannot enter namespace", path);
  Descriptor made(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (made.fd() < 0) return Fail("cannot open", "/dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (name.size() >= sizeof(request.ifr_name)) {
    errno = ENAMETOOLONG;
    return Fail("cannot make device", name);
  }
  std::memcpy(request.ifr_name, name.c_str(), name.size() + 1);
  if (ioctl(made.fd(), TUNSETIFF, &request) != 0) return Fail("cannot make device", name);
  if (ioctl(made.fd(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
    return Fail("cannot take large segments on device", name);
  }
  *device = std::move(made);
  return true;
}

// Frames on their way from one device to another.
class Direction {
 public:
  Direction(int from, int to, int64_t delay_ns) : from_(from), to_(to), delay_ns_(delay_ns) {}

  int from() const { return from_; }
  // When the first frame is due; INT64_MAX where none waits.
  int64_t due_ns() const { return waiting_.empty() ? INT64_MAX : waiting_.front().due_ns; }

  // Takes what is at the device. False: the device is gone.
  bool Take() {
    for (int i = 0; i < kFramesATurn; ++i) {
      const ssize_t bytes = read(from_, buffer_.data(), buffer_.size());
      if (bytes < 0) return errno == EAGAIN || errno == EINTR;
      if (waiting_bytes_ + bytes > kWaitingBytesMax) {
        if (dropped_++ == 0) std::fprintf(stderr, "abacus_link_delay: frames are dropped\n");
        continue;
      }
      waiting_bytes_ += bytes;
      waiting_.push_back({NowNs() + delay_ns_, {buffer_.data(), buffer_.data() + bytes}});
    }
    return true;
  }

  // Hands on what is due at `now_ns`. False: the device is gone.
  bool Give(int64_t now_ns) {
    while (due_ns() <= now_ns) {
      const std::vector<char>& frame = waiting_.front().bytes;
      // A device that is down (EIO) loses the frame like a cable that is not plugged in.
      if (write(to_, frame.data(), frame.size()) < 0 && errno == EBADFD) return false;
      waiting_bytes_ -= frame.size();
      waiting_.pop_front();
    }
    return true;
  }

 private:
  struct Frame {
    int64_t due_ns;
    std::vector<char> bytes;
  };

  const int from_;
  const int to_;
  const int64_t delay_ns_;
  std::deque<Frame> waiting_;
  size_t waiting_bytes_ = 0;
  uint64_t dropped_ = 0;
  std::vector<char> buffer_ = std::vector<char>(kFrameBytesMax);
};

// Carries frames until a device is gone.
void Carry(std::vector<Direction>& directions) {
  std::vector<pollfd> polled;
  for (const Direction& direction : directions) polled.push_back({direction.from(), POLLIN, 0});
  while (true) {
    int64_t due_ns = INT64_MAX;
    for (const Direction& direction : directions) due_ns = std::min(due_ns, direction.due_ns());
    const int64_t wait_ns = due_ns == INT64_MAX ? 0 : std::max<int64_t>(0, due_ns - NowNs());
    const timespec wait = {wait_ns / kNanosecondsInSecond, wait_ns % kNanosecondsInSecond};
    if (ppoll(polled.data(), polled.size(), due_ns == INT64_MAX ? nullptr : &wait, nullptr) < 0 &&
        errno != EINTR) {
      return;
    }
    for (size_t i = 0; i < directions.size(); ++i) {
      if (polled[i].revents != 0 && !directions[i].Take()) return;
      if (!directions[i].Give(NowNs())) return;
    }
  }
}

int Main(int count, char** words) {
  if (count == 0 || count % 5 != 0) {
    std::fprintf(
        stderr,
        "usage: abacus_link_delay NAMESPACE_A DEVICE_A NAMESPACE_B DEVICE_B DELAY_US ...\n");
    return 2;
  }
  std::vector<Descriptor> devices;
  std::vector<Direction> directions;
  for (char** word = words; word < words + count; word += 5) {
    char* end = nullptr;
    const int64_t delay_us = std::strtoll(word[4], &end, 10);
    if (*word[4] == '\0' || *end != '\0' || delay_us < 0 || delay_us > kDelayUsMax) {
      std::fprintf(stderr, "abacus_link_delay: '%s' is no delay in us, 0 to %lld\n", word[4],
                   static_cast<long long>(kDelayUsMax));
      return 2;
    }
    Descriptor a;
    Descriptor b;
    if (!MakeDevice(word[0], word[1], &a) || !MakeDevice(word[2], word[3], &b)) return 1;
    directions.emplace_back(a.fd(), b.fd(), delay_us * kNanosecondsInMicrosecond);
    directions.emplace_back(b.fd(), a.fd(), delay_us * kNanosecondsInMicrosecond);
    devices.push_back(std::move(a));
    devices.push_back(std::move(b));
  }
  prctl(PR_SET_TIMERSLACK, 1);              // frames leave when they are due, not 50 us later
  setpriority(PRIO_PROCESS, 0, kNiceness);  // where it may not, delays are a little longer
  std::puts("ready");
  std::fflush(stdout);
  Carry(directions);
  return 0;
}

}  // namespace
}  // namespace abacus::experiments

int main(int argc, char** argv) { return abacus::experiments::Main(argc - 1, argv + 1); }
