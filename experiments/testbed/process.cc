#include "experiments/testbed/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "experiments/testbed/descriptor.h"

namespace abacus::experiments {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(5);

int CodeOf(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Redirect(const std::string& path, int to) {
  if (path.empty()) return;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) _exit(126);
  dup2(fd, to);
  close(fd);
}

// A file in memory is opened by name: between fork and exec the child still has all descriptors.
std::string PathInChild(const Descriptor& file) {
  return absl::StrCat("/proc/self/fd/", file.fd());
}

std::string ContentOf(const Descriptor& file) {
  std::string content;
  char buffer[4096];
  ssize_t bytes = 0;
  while ((bytes = pread(file.fd(), buffer, sizeof buffer, content.size())) > 0) {
    content.append(buffer, bytes);
  }
  return content;
}

}  // namespace

absl::StatusOr<Process> Process::Start(const std::vector<std::string>& arguments,
                                       const ProcessOptions& options) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    // Nothing that is started here outlives who started it, however that one ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(125);
    Redirect(options.stdout_path, STDOUT_FILENO);
    Redirect(options.stderr_path, STDERR_FILENO);
    for (const std::string& variable : options.environment) {
      putenv(const_cast<char*>(variable.c_str()));
    }
    execvp(argv[0], argv.data());
    _exit(127);
  }
  return Process(pid);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), code_(other.code_) {}

Process::~Process() { Stop(); }

int Process::Wait() {
  if (pid_ > 0) {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    code_ = CodeOf(status);
    pid_ = -1;
  }
  return code_;
}

bool Process::Running() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  code_ = CodeOf(status);
  pid_ = -1;
  return false;
}

void Process::Stop(absl::Duration patience) {
  if (!Running()) return;
  kill(pid_, SIGTERM);
  const absl::Time deadline = absl::Now() + patience;
  while (Running() && absl::Now() < deadline) absl::SleepFor(kPoll);
  if (pid_ > 0) kill(pid_, SIGKILL);
  Wait();
}

absl::StatusOr<Output> RunForOutput(const std::vector<std::string>& arguments) {
  const Descriptor out(memfd_create("stdout", MFD_CLOEXEC));
  const Descriptor err(memfd_create("stderr", MFD_CLOEXEC));
  if (out.fd() < 0 || err.fd() < 0) return absl::ErrnoToStatus(errno, "a file in memory");
  absl::StatusOr<Process> process =
      Process::Start(arguments, {.stdout_path = PathInChild(out), .stderr_path = PathInChild(err)});
  if (!process.ok()) return process.status();
  const int code = process->Wait();
  return Output{.code = code, .out = ContentOf(out), .err = ContentOf(err)};
}

absl::Status RunCommand(const std::vector<std::string>& arguments) {
  absl::StatusOr<Output> ended = RunForOutput(arguments);
  if (!ended.ok()) return ended.status();
  if (ended->code == 0) return absl::OkStatus();
  absl::StripTrailingAsciiWhitespace(&ended->err);
  return absl::InternalError(absl::StrCat("`", absl::StrJoin(arguments, " "), "` exited with ",
                                          ended->code, ": ", ended->err));
}

}  // namespace abacus::experiments
