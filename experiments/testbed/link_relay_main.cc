// abacus_link_relay: links of an emulated network for users who may make no network devices.
//
//     abacus_link_relay RATES  LISTEN TARGET DELAY_US THERE BACK  LISTEN TARGET ...
//
// RATES: bit/s of each part of the network (a wire's direction, a shared segment), as 10000000,...
// . Five words a way from one node to another: a TCP connection made to LISTEN (HOST:PORT) is
// carried on to TARGET. What it carries goes through the parts THERE, and what comes back through
// BACK, each a list of numbers into RATES from 0 on, as 0,2,5, and arrives DELAY_US later. A part
// that several ways name is one: all that they carry, in sum, has its rate. Prints "ready" when it
// listens everywhere, and goes on until its standard input ends or it is killed, with its
// connections.
//
// A part is a clock: each piece of bytes takes its time on it from when it is free. A piece leaves
// when the slowest part has carried it, as frames follow each other through switches. No more is
// read than the parts carry within kAhead, so that whoever sends faster finds its socket full, as
// it would before a full queue.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/testbed/descriptor.h"

namespace abacus::experiments {
namespace {

constexpr int64_t kNsInSecond = 1'000'000'000;
constexpr int64_t kNever = INT64_MAX;
constexpr int64_t kDelayUsMax = 2'000'000;
constexpr double kRateMin = 64e3, kRateMax = 10e9;  // bit/s: what a topology may say
// What is taken for the wire before it is free, so that it is not idle while this process wakes up.
constexpr int64_t kAheadNs = 2'000'000;
// Where bytes waited for the wire and this process woke up late, the wire was not idle: so much of
// its time is made up for. A longer sleep slows the wire.
constexpr int64_t kLateNsMax = 50'000'000;
constexpr double kPieceS = 0.0005;  // a piece takes so long, but has a frame's bytes at least
constexpr size_t kPayloadBytes = 1448, kHeaderBytes = 66;  // of a full frame of 1514 bytes
constexpr size_t kPieceBytesMax = 65536;
// Beyond what is on its way: read, due, and not yet taken by the receiver.
constexpr size_t kUntakenBytesMax = size_t{256} << 10;
constexpr int kReceiveBufferBytes = 64 << 10;
constexpr int kBacklog = 64;
constexpr int kNiceness = -10;  // where it may: the wire must not wait for the machines it joins

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNsInSecond + now.tv_nsec;
}

// Says what is wrong; returns false.
bool Fail(const std::string& what) {
  std::fprintf(stderr, "abacus_link_relay: %s\n", what.c_str());
  return false;
}

// A wire's direction, or a segment that all share.
class Part {
 public:
  explicit Part(double bits_per_second) : ns_per_byte_(8e9 / bits_per_second) {}

  // When the last bit of so many bytes on the wire has left, that could be sent from `since_ns` on.
  int64_t Reserve(size_t wire_bytes, int64_t since_ns) {
    free_ns_ = std::max(free_ns_, since_ns) +
               static_cast<int64_t>(static_cast<double>(wire_bytes) * ns_per_byte_);
    return free_ns_;
  }
  int64_t free_ns() const { return free_ns_; }
  double ns_per_byte() const { return ns_per_byte_; }

 private:
  const double ns_per_byte_;
  int64_t free_ns_ = 0;
};

struct Way {
  Descriptor listener;
  sockaddr_in target = {};
  int64_t delay_ns = 0;
  std::vector<Part*> there, back;
};

// What one end of a connection sends to the other.
class Flow {
 public:
  Flow(int from, int to, std::vector<Part*> parts, int64_t delay_ns)
      : from_(from), to_(to), parts_(std::move(parts)), delay_ns_(delay_ns) {
    double slowest = 0;
    for (const Part* part : parts_) slowest = std::max(slowest, part->ns_per_byte());
    const auto bytes = static_cast<size_t>(kPieceS * 1e9 / slowest);
    piece_bytes_ = std::clamp(bytes, kPayloadBytes, kPieceBytesMax);
  }

  int from() const { return from_; }
  int to() const { return to_; }
  // Both ends know that nothing follows.
  bool over() const { return ended_ && waiting_.empty(); }

  // When more may be read; kNever where something else has to happen before.
  int64_t ReadsAt() const {
    if (ended_ || untaken_bytes_ > kUntakenBytesMax) return kNever;
    int64_t free_ns = 0;
    for (const Part* part : parts_) free_ns = std::max(free_ns, part->free_ns());
    return free_ns - kAheadNs;
  }
  // Whether bytes wait for the wire, as far as is known: said before and after each look for them.
  void SetBacklogged(bool backlogged) { backlogged_ = backlogged; }
  // When something is due; kNever where nothing is on its way.
  int64_t WritesAt() const { return waiting_.empty() ? kNever : waiting_.front().due_ns; }

  // Reads a piece. False: the connection is broken.
  bool Read() {
    char buffer[kPieceBytesMax];
    const ssize_t bytes = recv(from_, buffer, piece_bytes_, 0);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    const int64_t now_ns = NowNs();
    const auto size = static_cast<size_t>(bytes);
    const size_t frames = std::max<size_t>(1, (size + kPayloadBytes - 1) / kPayloadBytes);
    const int64_t since_ns = backlogged_ ? now_ns - kLateNsMax : now_ns;
    int64_t leaves_ns = now_ns;
    for (Part* part : parts_) {
      leaves_ns = std::max(leaves_ns, part->Reserve(size + frames * kHeaderBytes, since_ns));
    }
    ended_ = bytes == 0;
    waiting_.push_back({leaves_ns + delay_ns_, std::string(buffer, size)});
    return true;
  }

  // Hands on what is due. False: the connection is broken.
  bool Write(int64_t now_ns) {
    CountUntaken(now_ns);
    while (WritesAt() <= now_ns) {
      const Piece& piece = waiting_.front();
      if (piece.bytes.empty()) {  // the end, which goes the same way
        shutdown(to_, SHUT_WR);
      } else {
        const ssize_t bytes = send(to_, piece.bytes.data() + written_,
                                   piece.bytes.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (bytes < 0) return errno == EAGAIN || errno == EINTR;
        written_ += static_cast<size_t>(bytes);
        if (written_ < piece.bytes.size()) return true;
      }
      untaken_bytes_ -= piece.bytes.size();
      written_ = 0;
      --counted_;
      waiting_.pop_front();
    }
    return true;
  }

 private:
  struct Piece {
    int64_t due_ns;
    std::string bytes;  // empty: nothing follows
  };

  // What became due is the receiver's to take.
  void CountUntaken(int64_t now_ns) {
    for (; counted_ < waiting_.size() && waiting_[counted_].due_ns <= now_ns; ++counted_) {
      untaken_bytes_ += waiting_[counted_].bytes.size();
    }
  }

  const int from_, to_;
  const std::vector<Part*> parts_;
  const int64_t delay_ns_;
  size_t piece_bytes_ = 0;
  bool ended_ = false;
  bool backlogged_ = false;
  std::deque<Piece> waiting_;
  size_t counted_ = 0;  // of waiting_, in untaken_bytes_
  size_t untaken_bytes_ = 0;
  size_t written_ = 0;  // of the first piece
};

struct Connection {
  Descriptor caller, callee;
  Flow there, back;
  bool broken = false;

  Connection(Descriptor from, Descriptor to, const Way& way)
      : caller(std::move(from)),
        callee(std::move(to)),
        there(caller.fd(), callee.fd(), way.there, way.delay_ns),
        back(callee.fd(), caller.fd(), way.back, way.delay_ns) {}
  bool over() const { return broken || (there.over() && back.over()); }
};

// --- what it was asked for -----------------------------------------------------------------------

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

bool ParseNumber(const std::string& text, double low, double high, double* value) {
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && *value >= low && *value <= high) return true;
  return Fail("'" + text + "' is no number from " + std::to_string(low) + " to " +
              std::to_string(high));
}

bool ParseRates(const std::string& text, std::vector<std::unique_ptr<Part>>* parts) {
  for (const std::string& word : Split(text)) {
    double rate = 0;
    if (!ParseNumber(word, kRateMin, kRateMax, &rate)) return false;
    parts->push_back(std::make_unique<Part>(rate));
  }
  return true;
}

bool ParseParts(const std::string& text, const std::vector<std::unique_ptr<Part>>& parts,
                std::vector<Part*>* chosen) {
  for (const std::string& word : Split(text)) {
    double number = 0;
    if (!ParseNumber(word, 0, static_cast<double>(parts.size() - 1), &number)) return false;
    if (number != std::floor(number)) return Fail("'" + word + "' is no number of a part");
    chosen->push_back(parts[static_cast<size_t>(number)].get());
  }
  return true;
}

bool ParseAddress(const std::string& text, sockaddr_in* address) {
  const size_t colon = text.rfind(':');
  double port = 0;
  address->sin_family = AF_INET;
  if (colon == std::string::npos ||
      inet_pton(AF_INET, text.substr(0, colon).c_str(), &address->sin_addr) != 1) {
    return Fail("'" + text + "' is no address: 127.0.0.1:7071 is");
  }
  if (!ParseNumber(text.substr(colon + 1), 1, 65535, &port)) return false;
  address->sin_port = htons(static_cast<uint16_t>(port));
  return true;
}

bool Listen(const std::string& text, Descriptor* listener) {
  sockaddr_in address = {};
  if (!ParseAddress(text, &address)) return false;
  *listener = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(listener->fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  // What is sent and not yet on the wire waits at the sender, as far as can be.
  setsockopt(listener->fd(), SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes,
             sizeof(kReceiveBufferBytes));
  if (bind(listener->fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener->fd(), kBacklog) != 0) {
    return Fail("cannot listen at " + text + ": " + std::strerror(errno));
  }
  return true;
}

// --- carrying ------------------------------------------------------------------------------------

class Relay {
 public:
  bool Parse(int count, char** words) {
    if (count < 6 || count % 5 != 1) {
      return Fail("usage: abacus_link_relay RATES LISTEN TARGET DELAY_US THERE BACK ...");
    }
    if (!ParseRates(words[0], &parts_)) return false;
    for (char** word = words + 1; word < words + count; word += 5) {
      Way way;
      double delay_us = 0;
      if (!ParseAddress(word[1], &way.target) || !ParseNumber(word[2], 0, kDelayUsMax, &delay_us) ||
          !ParseParts(word[3], parts_, &way.there) || !ParseParts(word[4], parts_, &way.back) ||
          !Listen(word[0], &way.listener)) {
        return false;
      }
      way.delay_ns = static_cast<int64_t>(delay_us * 1e3);
      ways_.push_back(std::move(way));
    }
    // The listeners are many and seldom called: one descriptor stands for them all.
    listeners_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    for (size_t i = 0; i < ways_.size(); ++i) {
      epoll_event event = {.events = EPOLLIN, .data = {.u64 = i}};
      if (epoll_ctl(listeners_.fd(), EPOLL_CTL_ADD, ways_[i].listener.fd(), &event) != 0) {
        return Fail(std::string("epoll: ") + std::strerror(errno));
      }
    }
    return true;
  }

  // Carries until standard input ends.
  void Carry() {
    while (true) {
      const int64_t now_ns = NowNs();
      int64_t wake_ns = kNever;
      polled_ = {{STDIN_FILENO, POLLIN, 0}, {listeners_.fd(), POLLIN, 0}};
      for (const auto& connection : connections_) {
        Watch(connection->there, now_ns, &wake_ns);
        Watch(connection->back, now_ns, &wake_ns);
      }
      const int64_t wait_ns = std::max<int64_t>(0, wake_ns - now_ns);
      const timespec wait = {wait_ns / kNsInSecond, wait_ns % kNsInSecond};
      if (ppoll(polled_.data(), polled_.size(), wake_ns == kNever ? nullptr : &wait, nullptr) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (polled_[0].revents != 0 && !StillWanted()) return;
      for (const auto& connection : connections_) {
        const int64_t then_ns = NowNs();
        if (!connection->there.Write(then_ns) || !connection->back.Write(then_ns)) {
          connection->broken = true;
        }
      }
      TakeTurns();
      if (polled_[1].revents != 0) Accept();
    }
  }

 private:
  // Two entries a flow, in the order of the flows.
  void Watch(Flow& flow, int64_t now_ns, int64_t* wake_ns) {
    const auto wants = [now_ns, wake_ns](int64_t at_ns) {
      if (at_ns > now_ns) *wake_ns = std::min(*wake_ns, at_ns);
      return at_ns <= now_ns;
    };
    const bool reads = wants(flow.ReadsAt());
    if (!reads) flow.SetBacklogged(true);  // until nothing is found when there is room
    // A negative descriptor is not looked at.
    polled_.push_back({reads ? flow.from() : -1, POLLIN, 0});
    polled_.push_back({wants(flow.WritesAt()) ? flow.to() : -1, POLLOUT, 0});
  }

  // One piece for each flow that has some and whose parts have room: a part that is full is had by
  // the next ones first when it has room again.
  void TakeTurns() {
    const size_t count = 2 * connections_.size();
    size_t last = next_;
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t i = (next_ + turn) % count;
      Connection& connection = *connections_[i / 2];
      Flow& flow = i % 2 == 0 ? connection.there : connection.back;
      const pollfd& polled = polled_[2 + 2 * i];
      if (polled.fd >= 0 && polled.revents == 0) flow.SetBacklogged(false);
      if (polled.revents == 0) continue;
      if (flow.ReadsAt() > NowNs()) continue;
      if (!flow.Read()) connection.broken = true;
      last = i + 1;
    }
    next_ = last;
    std::erase_if(connections_, [](const auto& connection) { return connection->over(); });
  }

  void Accept() {
    epoll_event event;
    if (epoll_wait(listeners_.fd(), &event, 1, 0) != 1) return;
    const Way& way = ways_[event.data.u64];
    Descriptor caller(accept4(way.listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (caller.fd() < 0) return;
    Descriptor callee(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int yes = 1;
    setsockopt(callee.fd(), SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes,
               sizeof(kReceiveBufferBytes));
    for (const int fd : {caller.fd(), callee.fd()}) {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    // Nobody there: the caller sees its connection end.
    if (connect(callee.fd(), reinterpret_cast<const sockaddr*>(&way.target), sizeof(way.target)) !=
            0 &&
        errno != EINPROGRESS) {
      return;
    }
    connections_.push_back(std::make_unique<Connection>(std::move(caller), std::move(callee), way));
  }

  static bool StillWanted() {
    char ignored[256];
    return read(STDIN_FILENO, ignored, sizeof(ignored)) > 0;
  }

  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<Way> ways_;
  Descriptor listeners_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<pollfd> polled_;
  size_t next_ = 0;  // the flow whose turn is first
};

int Main(int count, char** words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_TIMERSLACK, 1);  // pieces leave when they are due, not 50 us later
  setpriority(PRIO_PROCESS, 0, kNiceness);
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);  // a way has a descriptor
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  Relay relay;
  if (!relay.Parse(count, words)) return 1;
  std::puts("ready");
  std::fflush(stdout);
  relay.Carry();
  return 0;
}

}  // namespace
}  // namespace abacus::experiments

int main(int argc, char** argv) { return abacus::experiments::Main(argc - 1, argv + 1); }
