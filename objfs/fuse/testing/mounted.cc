#include "objfs/fuse/testing/mounted.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace abacus::objfs {
namespace {

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "cannot test a mount: %s\n", why.c_str());
  std::abort();
}

// Whether the process has been sent a SIGKILL that one of its threads has not died of yet. One that
// is closing what it had open has taken the signal already; then the others are gone, the first
// too.
bool IsBeingKilled(const std::filesystem::path& process) {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(process / "task", error)) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("State:\tZ", 0) == 0) return true;
      if (line.rfind("SigPnd:", 0) != 0 && line.rfind("ShdPnd:", 0) != 0) continue;
      const uint64_t pending = std::strtoull(line.c_str() + std::strlen("SigPnd:"), nullptr, 16);
      if ((pending >> (SIGKILL - 1) & 1) != 0) return true;
    }
  }
  return false;
}

// The guard of `path` for the process `guarded`. Has nothing of it open: neither the kernel's end
// of other mounts nor what ctest reads to the end.
[[noreturn]] void Guard(pid_t guarded, const std::string& path) {
  for (int fd = 0; fd < 1024; ++fd) close(fd);
  const std::filesystem::path process = "/proc/" + std::to_string(guarded);
  while (kill(guarded, 0) == 0 && !IsBeingKilled(process)) poll(nullptr, 0, 200);
  // Several may lie over one another. Forced, so that whoever waits there gets an error.
  while (umount2(path.c_str(), MNT_FORCE | MNT_DETACH) == 0) {
  }
  rmdir(path.c_str());  // nobody else is left to do it
  _exit(0);
}

// Begins a guard, and returns its process. It is no child of ours, as ctest kills those too.
pid_t BeginGuard(const std::string& path) {
  const pid_t guarded = getpid();
  std::array<int, 2> told = {};
  if (pipe(told.data()) != 0) Die("no pipe for the guard of " + path);
  const pid_t between = fork();
  if (between < 0) Die("no guard of " + path);
  if (between == 0) {
    setsid();
    const pid_t guard = fork();
    if (guard == 0) Guard(guarded, path);
    const bool written = write(told[1], &guard, sizeof guard) == sizeof guard;
    _exit(guard > 0 && written ? 0 : 1);
  }
  close(told[1]);
  pid_t guard = -1;
  const bool begun = read(told[0], &guard, sizeof guard) == sizeof guard && guard > 0;
  close(told[0]);
  waitpid(between, nullptr, 0);
  if (!begun) Die("no guard of " + path);
  return guard;
}

}  // namespace

std::string WhyNoMount() {
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) return "there is no /dev/fuse here, or it is not ours to open";
  close(device);
  return "";
}

MountPoint::MountPoint() {
  std::string name = (std::filesystem::temp_directory_path() / "abacus_mount_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) Die("no directory " + name);
  path_ = name;
  guard_ = BeginGuard(path_);
}

MountPoint::~MountPoint() {
  kill(guard_, SIGKILL);
  if (rmdir(path_.c_str()) == 0) return;
  while (Unmount(path_, true).ok()) {
  }
  rmdir(path_.c_str());
}

Mounted::Mounted(FileSystem& files, Mount::Options options) {
  auto mount = Mount::Make(files, point_.path(), std::move(options));
  if (!mount.ok()) Die(mount.status().ToString());
  mount_ = *std::move(mount);
  server_ = std::thread([this] { result_ = mount_->Run(); });
}

Mounted::~Mounted() { Stop().IgnoreError(); }

absl::Status Mounted::Stop() {
  mount_->Stop();
  return Wait();
}

absl::Status Mounted::Wait() {
  if (server_.joinable()) server_.join();
  return result_;
}

}  // namespace abacus::objfs
