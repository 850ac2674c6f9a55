#ifndef ABACUS_APPS_ABACUS_TESTING_MOUNT_END_TO_END_H_
#define ABACUS_APPS_ABACUS_TESTING_MOUNT_END_TO_END_H_

// A server as a process of its own, and mounts of its volumes.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/abacus/testing/command.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {

inline std::string RandomText(uint32_t seed, size_t bytes) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class MountEndToEndTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/fuse to mount with";
    StartServer();
  }
  virtual std::vector<std::string> ServerOptions() const { return {}; }
  // More of the servers' configuration.
  virtual std::string ServerConfig() const { return ""; }
  void TearDown() override {
    // A mount that a failed test left would outlive it.
    for (const std::string& directory : mounted_) {
      if (IsMounted(directory)) RunAbacus({"umount", "--lazy", directory});
    }
    // Its process ends behind it, and then the server has no client of that name any more.
    server_.reset();
  }

  // At `control`: where one was before that is to be found again.
  void StartServer(const std::string& control = "127.0.0.1:0") {
    server_ = BeginServer("data", control, ServerOptions(), &address_);
  }
  // One that keeps its files in the folder's `data`.
  std::unique_ptr<Command> BeginServer(const std::string& data, const std::string& control,
                                       const std::vector<std::string>& more, std::string* address) {
    const std::string config =
        folder_.Write(data + ".toml", "[node]\ncontrol_address = \"" + control +
                                          "\"\ndata_address = \"127.0.0.1:0\"\n" + ServerConfig());
    std::array<int, 2> ready;
    EXPECT_EQ(pipe2(ready.data(), O_CLOEXEC), 0);
    std::vector<std::string> words = {"serve", "--data",     folder_.Path(data),      "--config",
                                      config,  "--ready-fd", std::to_string(ready[1])};
    words.insert(words.end(), more.begin(), more.end());
    auto server = std::make_unique<Command>(words, Command::Options{.keep_fd = ready[1]});
    close(ready[1]);
    address->clear();
    for (char c = 0; read(ready[0], &c, 1) == 1 && c != '\n';) *address += c;
    close(ready[0]);
    EXPECT_NE(*address, "") << server->Wait().err;
    return server;
  }
  Outcome Abacus(std::vector<std::string> arguments) const {
    return RunAbacus(arguments, {.environment = {"ABACUS_SERVER=" + address_}});
  }
  static bool IsMounted(const std::string& directory) {
    std::ifstream mounts("/proc/self/mounts");
    for (std::string line; std::getline(mounts, line);) {
      if (line.find(" " + directory + " ") != std::string::npos) return true;
    }
    return false;
  }
  // Written, and on the disks; 0, or errno of what failed.
  static int TryPut(const std::string& path, const std::string& bytes) {
    const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    int failed = 0;
    for (size_t at = 0; at < bytes.size() && failed == 0;) {
      const ssize_t put = write(fd, bytes.data() + at, bytes.size() - at);
      if (put <= 0) failed = errno;
      at += static_cast<size_t>(std::max<ssize_t>(put, 0));
    }
    if (failed == 0 && fsync(fd) != 0) failed = errno;
    if (close(fd) != 0 && failed == 0) failed = errno;
    return failed;
  }
  // Where it is mounted. `words`: what -o says more.
  std::string Mount(const std::string& name, const std::string& volume,
                    const std::string& words = "rw") {
    const std::string directory = folder_.Path(name);
    mkdir(directory.c_str(), 0755);
    mounted_.push_back(directory);
    const Outcome mounted = Abacus({"mount", address_ + "/" + volume, directory, "-o", words});
    EXPECT_EQ(mounted.code, 0) << mounted.err;
    EXPECT_TRUE(IsMounted(directory));
    return directory;
  }
  // A process that the test has in its hand.
  std::unique_ptr<Command> BeginMount(const std::string& name, const std::string& volume,
                                      const std::string& words) {
    const std::string directory = folder_.Path(name);
    mkdir(directory.c_str(), 0755);
    mounted_.push_back(directory);
    auto begun = std::make_unique<Command>(std::vector<std::string>{
        "mount", "--foreground", "-o", words, address_ + "/" + volume, directory});
    EXPECT_TRUE(
        runtime::testing::Eventually([&] { return IsMounted(directory) || !begun->Running(); }));
    EXPECT_TRUE(begun->Running());
    return begun;
  }
  static int Run(const std::string& command) { return std::system(command.c_str()); }

  const Folder folder_;
  std::string address_;
  std::unique_ptr<Command> server_;
  std::vector<std::string> mounted_;
};

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_ABACUS_TESTING_MOUNT_END_TO_END_H_
