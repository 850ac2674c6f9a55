#include "apps/abacus/testing/etcd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/testing/cluster.h"

extern char** environ;

namespace abacus::apps::testing {
namespace {

constexpr char kEtcdProgram[] = "/usr/bin/etcd";

[[noreturn]] void EtcdFails(const char* what) {
  perror(what);
  abort();
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// That nobody listens at now.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    EtcdFails("a port for etcd");
  }
  close(fd);
  return ntohs(address.sin_port);
}

// Whether it has a leader and answers a read; it listens long before.
bool IsHealthy(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string ask = "GET /health HTTP/1.0\r\n\r\n";
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, ask.data(), ask.size(), MSG_NOSIGNAL) > 0) {
    char bytes[512];
    for (ssize_t n = 0; (n = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
      answer.append(bytes, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer.find("\"health\":\"true\"") != std::string::npos;
}

}  // namespace

bool Etcd::IsInstalled() { return access(kEtcdProgram, X_OK) == 0; }

Etcd::Etcd() : client_port_(FreePort()), peer_port_(FreePort()) { Begin(); }

Etcd::~Etcd() { Kill(); }

std::string Etcd::url() const { return absl::StrCat("etcd://127.0.0.1:", client_port_); }

void Etcd::Signal(int signal) const {
  kill(pid_, signal);
  // Its threads stop one by one, and may answer until the last has.
  if (signal == SIGSTOP) waitpid(pid_, nullptr, WUNTRACED);
}

void Etcd::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Etcd::BeginAnew() {
  Kill();
  std::filesystem::remove_all(folder_.Path("etcd"));
  Begin();
}

void Etcd::Begin() {
  const std::string client = absl::StrCat("http://127.0.0.1:", client_port_);
  const std::string peer = absl::StrCat("http://127.0.0.1:", peer_port_);
  std::vector<std::string> words = {kEtcdProgram,
                                    "--data-dir=" + folder_.Path("etcd"),
                                    "--listen-client-urls=" + client,
                                    "--advertise-client-urls=" + client,
                                    "--listen-peer-urls=" + peer,
                                    "--initial-advertise-peer-urls=" + peer,
                                    "--initial-cluster=default=" + peer,
                                    "--logger=zap",
                                    "--log-outputs=" + folder_.Path("log")};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) EtcdFails("fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that was killed leaves none behind
    execve(kEtcdProgram, arguments.data(), environ);
    _exit(127);
  }
  if (!runtime::testing::Eventually([this] { return IsHealthy(client_port_); })) {
    EtcdFails(("etcd does not answer: " + folder_.Read("log")).c_str());
  }
}

}  // namespace abacus::apps::testing
