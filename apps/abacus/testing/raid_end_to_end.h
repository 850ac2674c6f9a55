#ifndef ABACUS_APPS_ABACUS_TESTING_RAID_END_TO_END_H_
#define ABACUS_APPS_ABACUS_TESTING_RAID_END_TO_END_H_

// Servers as processes, one of which has the names and inodes of volumes over all of them, and a
// mount of one.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/testing/mount_end_to_end.h"

namespace abacus::apps::testing {

inline constexpr char kRaidStack[] = "cache/raid5(unit=8 KiB)/(isolation/storage)*3";
inline constexpr char kMirrorStack[] = "cache/mirror(unit=8 KiB)/(isolation/storage)*2";

class RaidServersTest : public MountEndToEndTest {
 protected:
  static constexpr size_t kServers = 4;  // the first, which has the inodes, and three for columns

  void SetUp() override {
    MountEndToEndTest::SetUp();
    if (IsSkipped()) return;
    addresses_.assign(kServers, "");
    others_.resize(kServers);
    addresses_[0] = address_;
    for (size_t i = 1; i < kServers; ++i) Start(i, "127.0.0.1:0");
  }
  void TearDown() override {
    MountEndToEndTest::TearDown();
    others_.clear();
  }

  void Start(size_t server, const std::string& control) {
    others_[server] =
        BeginServer(absl::StrCat("columns", server), control, {}, &addresses_[server]);
  }
  void Kill(size_t server) {
    others_[server]->Signal(SIGKILL);
    others_[server]->Wait();
  }
  std::string List() const {
    std::string list = addresses_[0];
    for (size_t i = 1; i < kServers; ++i) absl::StrAppend(&list, ",", addresses_[i]);
    return list;
  }
  // Written, and on the disks.
  void Put(const std::string& path, const std::string& bytes) {
    const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    ASSERT_GE(fd, 0) << path << ": errno " << errno;
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t put = write(fd, bytes.data() + at, bytes.size() - at);
      ASSERT_GT(put, 0) << path << ": errno " << errno;
      at += static_cast<size_t>(put);
    }
    EXPECT_EQ(fsync(fd), 0) << path << ": errno " << errno;
    EXPECT_EQ(close(fd), 0) << path << ": errno " << errno;
  }
  void ExpectAll(const std::string& directory) {
    for (const auto& [name, bytes] : files_) {
      std::ifstream file(directory + "/" + name);
      const std::string found((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
      EXPECT_TRUE(found == bytes) << directory << "/" << name << " has " << found.size()
                                  << " bytes";
    }
  }
  // Reading it is an error.
  static void ExpectNothing(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) {
      EXPECT_EQ(errno, EIO) << path;
      return;
    }
    alignas(4096) static char bytes[4096];
    EXPECT_EQ(read(fd, bytes, sizeof bytes), -1) << path;
    EXPECT_EQ(errno, EIO) << path;
    close(fd);
  }
  // Of volume `home`, as JSON. `code`: 0 where all files are whole.
  std::string StatusText(int code) {
    const std::string path = folder_.Path("status.json");
    const Outcome outcome = Abacus({"volume", "status", "home", "--json", path});
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    return folder_.Read("status.json");
  }
  // For who waits for something: whatever the code; empty where there is no answer.
  std::string StatusTextNow() {
    const std::string path = folder_.Path("status.json");
    std::ofstream(path).close();
    Abacus({"volume", "status", "home", "--json", path});
    return folder_.Read("status.json");
  }
  // Whether a server's directory has any of a volume.
  static bool HasColumns(const std::string& directory) {
    std::error_code error;
    std::filesystem::directory_iterator entry(directory + "/volumes", error), end;
    return std::any_of(entry, end, [](const std::filesystem::directory_entry& found) {
      return found.path().filename().string().rfind(".columns-", 0) == 0;
    });
  }

  // The list of a volume's servers as one of them keeps it.
  std::string ServersTold(const std::string& server) const {
    std::error_code error;
    std::filesystem::directory_iterator entry(folder_.Path(server) + "/volumes", error), end;
    for (; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.rfind(".columns-", 0) == 0 && entry->path().extension() == ".servers") {
        return folder_.Read(absl::StrCat(server, "/volumes/", name));
      }
    }
    return "";
  }

  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Command>> others_;
  std::map<std::string, std::string> files_;
};

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_ABACUS_TESTING_RAID_END_TO_END_H_
