#include "runtime/testing/benchmark/bench_node.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/time/clock.h"

namespace abacus::runtime {

absl::Status Subject::Fill(uint64_t bytes) {
  Block state = Block::Allocate(bytes);
  std::memset(state.mutable_data(), 'x', bytes);
  state_ = std::move(state);
  return absl::OkStatus();
}

absl::Status Sender::Send(const Rid& rid, const NodeInstance& target) {
  return node_->migrator->Move({rid}, target).status();
}

BenchNode::BenchNode(NodeInstance self, const std::string& listen_address) : self(self) {
  types.Add<Subject>().Add<Sender>();
  SocketTransportOptions options;
  options.self = self;
  options.listen_address = listen_address;
  transport = std::make_unique<SocketTransport>(options);
  binding =
      std::make_unique<BindingManager>(self, BindingOptions(), types, transport.get(), nullptr);
  migrator = std::make_unique<Migrator>(binding.get(), CheckpointOptions());
  if (const absl::Status status = transport->Start(binding.get()); !status.ok()) {
    std::cerr << status << "\n";
    std::exit(2);
  }
  binding->Start();
}

BenchNode::~BenchNode() {
  binding->Stop();
  transport->Stop();
}

void PinTo(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(processor), &set);
  sched_setaffinity(0, sizeof set, &set);
}

ServerProcess::ServerProcess(int processor, const std::string& listen,
                             const std::string& grpc_listen) {
  int to_child[2];
  int from_child[2];
  if (pipe(to_child) != 0 || pipe(from_child) != 0) std::abort();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(to_child[0], 0);
    dup2(from_child[1], 1);
    for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
    const std::string where = std::to_string(processor);
    execl("/proc/self/exe", "abacus_runtime_benchmark", "--serve", where.c_str(), listen.c_str(),
          grpc_listen.c_str(), nullptr);
    _exit(127);
  }
  close(to_child[0]);
  close(from_child[1]);
  to_child_ = to_child[1];
  FILE* lines = fdopen(from_child[0], "r");
  char data[256], grpc[256], subject_text[64], sender_text[64];
  if (fscanf(lines, "%255s %255s %63s %63s", data, grpc, subject_text, sender_text) != 4) {
    std::cerr << "the server process did not start\n";
    std::exit(2);
  }
  fclose(lines);
  address = data;
  grpc_address = grpc;
  subject = *Rid::Parse(subject_text);
  sender = *Rid::Parse(sender_text);
}

ServerProcess::~ServerProcess() {
  close(to_child_);  // the server ends at the end of its input
  waitpid(pid_, nullptr, 0);
}

namespace {

// Two connected sockets of this process.
void Connect(bool tcp, int ends[2]) {
  if (!tcp) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
    return;
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0 || connect(ends[0], generic, length) != 0 ||
      (ends[1] = accept(listener, nullptr, nullptr)) < 0) {
    std::abort();
  }
  close(listener);
  for (int i = 0; i < 2; ++i) {
    const int on = 1;
    setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
}

}  // namespace

double RawCopyMegabytesPerSecond(bool tcp, size_t bytes, int rounds, int server_processor) {
  int ends[2];
  Connect(tcp, ends);
  const pid_t child = fork();
  std::string buffer(bytes, 'x');
  const auto read_all = [&](int fd) {
    for (size_t got = 0; got < bytes;) {
      const ssize_t n = read(fd, buffer.data() + got, bytes - got);
      if (n <= 0) std::abort();
      got += static_cast<size_t>(n);
    }
  };
  if (child == 0) {
    PinTo(server_processor);
    close(ends[0]);
    for (char request; read(ends[1], &request, 1) == 1;) {
      for (size_t sent = 0; sent < bytes;) {
        const ssize_t n = write(ends[1], buffer.data() + sent, bytes - sent);
        if (n <= 0) _exit(1);
        sent += static_cast<size_t>(n);
      }
    }
    _exit(0);
  }
  close(ends[1]);
  const absl::Time begin = absl::Now();
  for (int i = 0; i < rounds; ++i) {
    if (write(ends[0], "x", 1) != 1) std::abort();
    read_all(ends[0]);
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return static_cast<double>(bytes) * rounds / seconds / 1e6;
}

}  // namespace abacus::runtime
