#include "apps/abacus/testing/long_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <utility>
#include <vector>

namespace abacus::apps::testing {
namespace {

using Clock = std::chrono::steady_clock;

// What may be on the way in one direction; then the sender is not read any more.
constexpr size_t kOnTheWayMax = size_t{8} << 20;

[[noreturn]] void DieOfLink(const char* what) {
  perror(what);
  abort();
}

}  // namespace

// One connection: two sockets, and what is on the way between them.
class LongLink::Relay {
 public:
  Relay(int near, int far) : ways_{Way{near, far}, Way{far, near}} {}
  ~Relay() {
    close(ways_[0].from);
    close(ways_[0].to);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  bool ended() const { return ways_[0].done && ways_[1].done; }

  // What it waits for; `due` becomes the time of its next arrival where that is sooner.
  void AddTo(std::vector<pollfd>* polls, Clock::time_point now, Clock::time_point* due) const {
    for (const Way& way : ways_) {
      const bool reads = !way.closed && way.bytes < kOnTheWayMax;
      polls->push_back({way.from, static_cast<short>(reads ? POLLIN : 0), 0});
      const bool arrived = !way.pieces.empty() && way.pieces.front().due <= now;
      polls->push_back({way.to, static_cast<short>(arrived ? POLLOUT : 0), 0});
      if (!way.pieces.empty() && !arrived) *due = std::min(*due, way.pieces.front().due);
    }
  }
  // `polls`: the four that AddTo() added, as they came back.
  void Work(const pollfd* polls, Clock::time_point now, std::chrono::nanoseconds delay) {
    for (size_t i = 0; i < ways_.size(); ++i) {
      Way& way = ways_[i];
      if (!way.closed && (polls[2 * i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        Take(way, now + delay);
      }
      while (!way.pieces.empty() && way.pieces.front().due <= now && Deliver(way)) {
      }
      if (way.closed && way.pieces.empty() && !way.done) {
        way.done = true;
        shutdown(way.to, SHUT_WR);
      }
    }
  }

 private:
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  struct Way {
    int from, to;
    std::deque<Piece> pieces = {};
    size_t bytes = 0;
    bool closed = false;  // nothing more is read
    bool done = false;    // nor written
  };

  static void Take(Way& way, Clock::time_point due) {
    std::array<char, 65536> buffer;
    const ssize_t read = recv(way.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (read < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (read <= 0) {
      way.closed = true;
      return;
    }
    way.pieces.push_back({due, std::string(buffer.data(), static_cast<size_t>(read))});
    way.bytes += static_cast<size_t>(read);
  }
  // False where the receiver takes no more now.
  static bool Deliver(Way& way) {
    std::string& bytes = way.pieces.front().bytes;
    const ssize_t sent = send(way.to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (sent < 0) {
      way.closed = true;
      way.pieces.clear();
      return false;
    }
    way.bytes -= static_cast<size_t>(sent);
    bytes.erase(0, static_cast<size_t>(sent));
    if (!bytes.empty()) return false;
    way.pieces.pop_front();
    return true;
  }

  std::array<Way, 2> ways_;
};

LongLink::LongLink(std::string socket_path, std::chrono::nanoseconds delay)
    : socket_path_(std::move(socket_path)), delay_(delay) {
  listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(here);
  if (bind(listening_, reinterpret_cast<const sockaddr*>(&here), length) != 0 ||
      listen(listening_, 16) != 0 ||
      getsockname(listening_, reinterpret_cast<sockaddr*>(&here), &length) != 0) {
    DieOfLink("listen");
  }
  address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) DieOfLink("eventfd");
  thread_ = std::thread([this] { Run(); });
}

LongLink::~LongLink() {
  const uint64_t one = 1;
  if (write(stop_, &one, sizeof(one)) != sizeof(one)) DieOfLink("write");
  thread_.join();
  close(stop_);
  close(listening_);
}

void LongLink::Run() {
  std::list<Relay> relays;
  for (;;) {
    std::vector<pollfd> polls = {{stop_, POLLIN, 0}, {listening_, POLLIN, 0}};
    Clock::time_point due = Clock::time_point::max();
    for (const Relay& relay : relays) relay.AddTo(&polls, Clock::now(), &due);
    timespec wait{};
    if (due != Clock::time_point::max()) {
      const auto left = std::max(Clock::duration::zero(), due - Clock::now());
      wait.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
      wait.tv_nsec = (left % std::chrono::seconds(1)).count();
    }
    const bool forever = due == Clock::time_point::max();
    if (ppoll(polls.data(), polls.size(), forever ? nullptr : &wait, nullptr) < 0) {
      if (errno == EINTR) continue;
      DieOfLink("ppoll");
    }
    if (polls[0].revents != 0) return;
    const pollfd* of_relay = polls.data() + 2;
    for (auto relay = relays.begin(); relay != relays.end(); of_relay += 4) {
      relay->Work(of_relay, Clock::now(), delay_);
      relay = relay->ended() ? relays.erase(relay) : std::next(relay);
    }
    if (polls[1].revents == 0) continue;
    const int near = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (near < 0) continue;
    const int on = 1;
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_un there{};
    there.sun_family = AF_UNIX;
    strncpy(there.sun_path, socket_path_.c_str(), sizeof(there.sun_path) - 1);
    const int far = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(far, reinterpret_cast<const sockaddr*>(&there), sizeof(there)) != 0) {
      close(near);
      close(far);
      continue;
    }
    relays.emplace_back(near, far);
  }
}

}  // namespace abacus::apps::testing
