// What the data plane costs beside bare sockets, measured in one run with the same pinning: null
// request and reply, replies of 1 MiB, and how exactly the rate limit holds.
//
//   abacus_transport_benchmark [--strict] [--json FILE] [--only TEXT] [--rounds N]
//
// Two processes, each pinned: "one core" has both on the same one, "two cores" apart. Rounds of the
// two sides alternate, and the median of each is reported, because the machine is shared.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/testing/bench_report.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/socket_transport.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr NodeInstance kClient{1, 1};
constexpr NodeInstance kServer{2, 1};
constexpr size_t kNullBytes = 64;
constexpr size_t kBigBytes = 1 << 20;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

void PinTo(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) Die("sched_setaffinity");
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

struct Setting {
  bool unix_socket = false;
  bool two_cores = false;
  bool hand_off = false;
  double rate_limit_mbit = 0;
  std::string address() const {
    return unix_socket ? "unix:/tmp/abacus-benchmark-" + std::to_string(getpid()) : "127.0.0.1:0";
  }
};

// A process of its own that serves until the pipe to it closes. `serve` gets the setting and
// returns the address to connect to, and then the process waits.
class Server {
 public:
  using Serve = std::function<std::string(const Setting&)>;

  Server(const Setting& setting, const Serve& serve) {
    int to_child[2], from_child[2];
    if (pipe(to_child) != 0 || pipe(from_child) != 0) Die("pipe");
    pid_ = fork();
    if (pid_ < 0) Die("fork");
    if (pid_ == 0) {
      close(to_child[1]);
      close(from_child[0]);
      PinTo(setting.two_cores ? 1 : 0);
      const std::string address = serve(setting);
      if (write(from_child[1], address.data(), address.size()) < 0) _exit(1);
      close(from_child[1]);
      char ignored;
      [[maybe_unused]] const ssize_t end = read(to_child[0], &ignored, 1);
      _exit(0);
    }
    close(to_child[0]);
    close(from_child[1]);
    char text[256];
    const ssize_t bytes = read(from_child[0], text, sizeof text);
    if (bytes <= 0) Die("the server process did not start");
    address_.assign(text, static_cast<size_t>(bytes));
    close(from_child[0]);
    stop_fd_ = to_child[1];
    PinTo(0);
  }
  ~Server() {
    close(stop_fd_);
    waitpid(pid_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  int stop_fd_ = -1;
  std::string address_;
};

// ---- Bare sockets ----

struct RawAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

RawAddress ParseRaw(const std::string& address) {
  RawAddress raw;
  if (address.starts_with("unix:")) {
    auto* un = reinterpret_cast<sockaddr_un*>(&raw.storage);
    un->sun_family = AF_UNIX;
    address.copy(un->sun_path, sizeof un->sun_path - 1, 5);
    raw.size = sizeof *un;
  } else {
    auto* in = reinterpret_cast<sockaddr_in*>(&raw.storage);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in->sin_port =
        htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    raw.size = sizeof *in;
  }
  return raw;
}

bool ReadAll(int fd, char* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, to, bytes, 0);
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const char* from, size_t bytes) {
  while (bytes > 0) {
    const ssize_t put = send(fd, from, bytes, MSG_NOSIGNAL);
    if (put <= 0) return false;
    from += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

void NoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// Answers each kNullBytes with `reply_bytes`, on a thread that inherits the pinning.
std::string ServeRaw(const Setting& setting, size_t reply_bytes) {
  const RawAddress at = ParseRaw(setting.address());
  if (setting.unix_socket) unlink(setting.address().c_str() + 5);
  const int listener = socket(at.storage.ss_family, SOCK_STREAM, 0);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&at.storage), at.size) != 0) Die("bind");
  if (listen(listener, 1) != 0) Die("listen");
  std::thread([listener, reply_bytes] {
    const int fd = accept(listener, nullptr, nullptr);
    NoDelay(fd);
    std::string request(kNullBytes, '\0');
    const std::string reply(reply_bytes, 'x');
    while (ReadAll(fd, request.data(), request.size()) &&
           WriteAll(fd, reply.data(), reply.size())) {
    }
  }).detach();
  if (setting.unix_socket) return setting.address();
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  return "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
}

class RawClient {
 public:
  RawClient(const std::string& address, size_t reply_bytes) : reply_(reply_bytes, '\0') {
    const RawAddress to = ParseRaw(address);
    fd_ = socket(to.storage.ss_family, SOCK_STREAM, 0);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0) Die("connect");
    NoDelay(fd_);
  }
  ~RawClient() { close(fd_); }

  void Call() {
    char request[kNullBytes] = {};
    if (!WriteAll(fd_, request, sizeof request) || !ReadAll(fd_, reply_.data(), reply_.size())) {
      Die("raw call");
    }
  }

 private:
  int fd_ = -1;
  std::string reply_;
};

// ---- The transport ----

class BenchmarkServer : public FrameHandler {
 public:
  BenchmarkServer(const Setting& setting, size_t reply_bytes)
      : hand_off_(setting.hand_off),
        reply_(Block::CopyOf(std::string(reply_bytes, 'x'))),
        transport_({.self = kServer,
                    .listen_address = setting.address(),
                    .rate_limit_mbit = setting.rate_limit_mbit}) {
    if (const absl::Status started = transport_.Start(this); !started.ok()) {
      std::fprintf(stderr, "%s\n", started.ToString().c_str());
      _exit(1);
    }
  }
  std::string address() const { return transport_.address(); }

  void OnFrame(NodeInstance from, Frame frame) override {
    if (hand_off_) transport_.HandOffReading();
    Frame reply{.type = 2};
    if (reply_.size() > kNullBytes) {
      reply.payload.blocks.push_back(reply_);
    } else {
      reply.payload.inline_bytes = std::move(frame.payload.inline_bytes);
    }
    transport_.Send(from, Lane::kReply, std::move(reply));
  }
  void OnReconnected(NodeInstance) override {}
  void OnPeerReplaced(NodeInstance) override {}

 private:
  const bool hand_off_;
  const Block reply_;
  SocketTransport transport_;
};

std::string ServeTransport(const Setting& setting, size_t reply_bytes) {
  auto* server = new BenchmarkServer(setting, reply_bytes);  // lives until _exit()
  return server->address();
}

class TransportClient : public FrameHandler {
 public:
  explicit TransportClient(const std::string& server)
      : transport_({.self = kClient, .listen_address = "127.0.0.1:0"}) {
    if (!transport_.Start(this).ok()) Die("start");
    transport_.AddPeer(kServer, server);
  }
  ~TransportClient() override { transport_.Stop(); }

  void Call() {
    Waiter waiter;
    waiter_.store(&waiter, std::memory_order_release);
    Frame request{.type = 1};
    request.payload.inline_bytes.assign(kNullBytes - kFrameHeaderBytes, 'q');
    transport_.Send(kServer, Lane::kRequest, std::move(request));
    transport_.Wait(kServer, waiter);
    reply_ = {};  // the caller is done with it, as the bare loop is when it reads over it
  }
  void OnFrame(NodeInstance, Frame frame) override {
    reply_ = std::move(frame);
    waiter_.load(std::memory_order_acquire)->Complete();
  }
  void OnReconnected(NodeInstance) override {}
  void OnPeerReplaced(NodeInstance) override {}

 private:
  std::atomic<Waiter*> waiter_{nullptr};
  Frame reply_;
  SocketTransport transport_;
};

// ---- Rows ----

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Microseconds per call.
template <typename Client>
double TimeCalls(Client& client, int calls) {
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) client.Call();
  return Seconds(Clock::now() - start) * 1e6 / calls;
}

class Bench {
 public:
  Bench(BenchReport& report, std::string only, int rounds)
      : report_(report), only_(std::move(only)), rounds_(rounds) {}

  void NullCalls(const Setting& setting, const std::string& name, double goal_us) {
    Compare(setting, name, kNullBytes, 5000, [&](double ours_us, double raw_us) {
      report_.Add({.name = name,
                   .value = ours_us,
                   .unit = "us",
                   .baseline_name = "bare socket",
                   .baseline = raw_us,
                   .ratio = ours_us / raw_us});
      if (goal_us == 0) return;
      report_.Add({.name = name + ", absolute",
                   .value = ours_us,
                   .unit = "us",
                   .baseline_name = "",
                   .goal = absl::StrCat("<= ", goal_us, " us"),
                   .met = ours_us <= goal_us});
    });
  }

  void BigReplies(const Setting& setting, const std::string& name) {
    Compare(setting, name, kBigBytes, 200, [&](double ours_us, double raw_us) {
      constexpr double kGoal = 0.8;
      const double bytes = static_cast<double>(kBigBytes) / 1e3;  // over us: GB/s
      const double ratio = raw_us / ours_us;
      report_.Add({.name = name,
                   .value = bytes / ours_us,
                   .unit = "GB/s",
                   .baseline_name = "bare socket copy loop",
                   .baseline = bytes / raw_us,
                   .ratio = ratio,
                   .goal = absl::StrCat(">= ", kGoal, " x"),
                   .met = ratio >= kGoal});
    });
  }

  // How far the measured rate is from the limit, per cent.
  void RateLimit(double mbit, const std::string& name) {
    if (Skipped(name)) return;
    const Setting setting{.two_cores = true, .rate_limit_mbit = mbit};
    Server server(setting, [](const Setting& s) { return ServeTransport(s, kBigBytes); });
    TransportClient client(server.address());
    client.Call();
    const int calls = std::max(1, static_cast<int>(2 * mbit / 8));  // about 2 s
    const double us = TimeCalls(client, calls);
    const double measured = 8.0 * (kBigBytes + 40) / us;
    constexpr double kGoal = 2;
    const double error = 100 * std::abs(measured / mbit - 1);
    report_.Add({.name = name,
                 .value = error,
                 .unit = "%",
                 .baseline_name = "",
                 .goal = absl::StrCat("<= ", kGoal, " %"),
                 .met = error <= kGoal});
  }

 private:
  bool Skipped(const std::string& name) const { return name.find(only_) == std::string::npos; }

  void Compare(const Setting& setting, const std::string& name, size_t reply_bytes, int calls,
               const std::function<void(double, double)>& report) {
    if (Skipped(name)) return;
    std::vector<double> raw_us, ours_us;
    for (int round = 0; round < rounds_; ++round) {
      {
        Server server(setting, [&](const Setting& s) { return ServeRaw(s, reply_bytes); });
        RawClient client(server.address(), reply_bytes);
        TimeCalls(client, calls / 10);
        raw_us.push_back(TimeCalls(client, calls));
      }
      Server server(setting, [&](const Setting& s) { return ServeTransport(s, reply_bytes); });
      TransportClient client(server.address());
      TimeCalls(client, calls / 10);
      ours_us.push_back(TimeCalls(client, calls));
    }
    report(Median(ours_us), Median(raw_us));
  }

  BenchReport& report_;
  const std::string only_;
  const int rounds_;
};

int Main(int argc, char** argv) {
  std::string json, only;
  int rounds = 7;
  bool strict = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--strict") {
      strict = true;
      continue;
    }
    if (i + 1 == argc || (option != "--json" && option != "--only" && option != "--rounds")) {
      std::fprintf(stderr, "usage: %s [--strict] [--json FILE] [--only TEXT] [--rounds N]\n",
                   argv[0]);
      return 2;
    }
    const char* const value = argv[++i];
    if (option == "--json") json = value;
    if (option == "--only") only = value;
    if (option == "--rounds") rounds = std::max(1, std::atoi(value));
  }
  BenchReport report("transport");
  report.Note(absl::StrCat("two processes, each pinned; medians of ", rounds, " rounds"));
  Bench bench(report, only, rounds);
  const bool two = std::thread::hardware_concurrency() > 1;
  for (const bool unix_socket : {false, true}) {
    const std::string over = unix_socket ? "unix" : "TCP";
    bench.NullCalls({.unix_socket = unix_socket}, "null call, " + over + ", one core", 12);
    bench.NullCalls({.unix_socket = unix_socket, .hand_off = true},
                    "null call, " + over + ", one core, handed off", 0);
    bench.BigReplies({.unix_socket = unix_socket}, "1 MiB replies, " + over + ", one core");
    if (!two) continue;
    bench.NullCalls({.unix_socket = unix_socket, .two_cores = true},
                    "null call, " + over + ", two cores", 0);
    bench.NullCalls({.unix_socket = unix_socket, .two_cores = true, .hand_off = true},
                    "null call, " + over + ", two cores, handed off", 0);
    bench.BigReplies({.unix_socket = unix_socket, .two_cores = true},
                     "1 MiB replies, " + over + ", two cores");
  }
  bench.RateLimit(10, "rate limit of 10 Mbit/s, error");
  bench.RateLimit(100, "rate limit of 100 Mbit/s, error");
  bench.RateLimit(1000, "rate limit of 1000 Mbit/s, error");
  return FinishBench(report, json, strict);
}

}  // namespace
}  // namespace abacus::runtime

int main(int argc, char** argv) { return abacus::runtime::Main(argc, argv); }
