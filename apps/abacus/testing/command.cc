#include "apps/abacus/testing/command.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace abacus::apps::testing {
namespace {

constexpr uid_t kNobody = 65534;

[[noreturn]] void Die(const char* what) {
  perror(what);
  std::abort();
}

void Redirect(const std::string& path, int flags, int to) {
  const int fd = open(path.c_str(), flags, 0666);
  if (fd < 0 || dup2(fd, to) < 0) _exit(126);
  close(fd);
}

}  // namespace

Folder::Folder() {
  char path[] = "/tmp/abacus-test-XXXXXX";
  if (mkdtemp(path) == nullptr) Die("mkdtemp");
  path_ = path;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Folder::Write(const std::string& name, const std::string& bytes) const {
  std::ofstream(Path(name), std::ios::binary) << bytes;
  return Path(name);
}

std::string Folder::Read(const std::string& name) const {
  std::ifstream file(Path(name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string ProgramPath() { return ABACUS_PROGRAM; }

Command::Command(const std::vector<std::string>& arguments, const Options& options) {
  std::vector<char*> argv = {const_cast<char*>(ABACUS_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string out = folder_.Write("out", ""), err = folder_.Write("err", "");
  pid_ = fork();
  if (pid_ < 0) Die("fork");
  if (pid_ != 0) return;

  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing behind
  Redirect(options.in_path, O_RDONLY, STDIN_FILENO);
  if (options.out_fd < 0) {
    Redirect(out, O_WRONLY, STDOUT_FILENO);
  } else if (dup2(options.out_fd, STDOUT_FILENO) < 0) {
    _exit(126);
  }
  Redirect(err, O_WRONLY, STDERR_FILENO);
  if (options.keep_fd >= 0) fcntl(options.keep_fd, F_SETFD, 0);
  unsetenv("ABACUS_SERVER");
  for (const std::string& variable : options.environment) {
    const size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  if (options.as_nobody && geteuid() == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(126);
  }
  execv(argv[0], argv.data());
  _exit(127);
}

Command::~Command() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
}

void Command::Signal(int signal) const { kill(pid_, signal); }

bool Command::Running() {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

Outcome Command::Wait() {
  while (!ended_) {
    if (waitpid(pid_, &status_, 0) == pid_) ended_ = true;
  }
  return {.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_),
          .out = folder_.Read("out"),
          .err = folder_.Read("err")};
}

Outcome RunAbacus(const std::vector<std::string>& arguments, const Command::Options& options) {
  return Command(arguments, options).Wait();
}

}  // namespace abacus::apps::testing
