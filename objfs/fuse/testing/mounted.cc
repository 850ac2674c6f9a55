#include "objfs/fuse/testing/mounted.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace abacus::objfs {
namespace {

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "cannot test a mount: %s\n", why.c_str());
  std::abort();
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
}

MountPoint::~MountPoint() {
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
