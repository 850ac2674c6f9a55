// What is left when processes end: killed under load at any moment, ended by SIGTERM, or a byte of
// the server's disk changed behind its back.

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apps/abacus/testing/command.h"
#include "apps/abacus/testing/mount_end_to_end.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

// One program that works in a directory of its own until a call fails, and knows what fsync(2)
// acknowledged. Of the one change that is under way when the power goes, or the process, anything
// is right.
class Worker {
 public:
  Worker(std::string name, uint64_t seed) : name_(std::move(name)), random_(seed) {}

  // `acknowledged` counts.
  void Work(const std::string& mount, std::atomic<uint64_t>& acknowledged) {
    directory_ = mount + "/" + name_;
    while (Step()) ++acknowledged;
  }

  // What is there is what was acknowledged, or what the last change would have made of it. That is
  // made durable, and is what has to be there from now on.
  void Check(const std::string& mount) {
    directory_ = mount + "/" + name_;
    std::vector<File> found;
    std::vector<std::string> seen;
    for (const File& file : files_) {
      std::vector<std::string> names;
      for (const std::string& name : file.names) {
        if (access(At(name).c_str(), F_OK) == 0) names.push_back(name);
      }
      if (names.empty() && file.may_be_gone) continue;
      ASSERT_EQ(names.size(), 1u) << "'" << file.names.front() << "' in " << directory_;
      File now = file;
      now.names = names;
      now.may_be_gone = false;
      ASSERT_NO_FATAL_FAILURE(CheckBytes(now));
      ASSERT_TRUE(Synced(At(names.front()), O_RDONLY)) << "errno " << errno;
      seen.push_back(names.front());
      found.push_back(now);
    }
    files_ = found;
    ASSERT_TRUE(Synced(directory_, O_RDONLY | O_DIRECTORY)) << "errno " << errno;
    // And nothing else.
    DIR* const directory = opendir(directory_.c_str());
    ASSERT_NE(directory, nullptr) << directory_ << ": errno " << errno;
    while (const dirent* entry = readdir(directory)) {
      if (entry->d_name[0] == '.') continue;
      EXPECT_NE(std::find(seen.begin(), seen.end(), entry->d_name), seen.end()) << entry->d_name;
    }
    closedir(directory);
  }
  size_t files() const { return files_.size(); }

 private:
  // `bytes` bytes, all one letter; of several names and letters any one.
  struct File {
    std::vector<std::string> names;
    std::string letters;
    size_t bytes = 0;
    bool may_be_gone = false;
    bool may_be_short = false;
  };
  static constexpr size_t kBlockBytes = 8192;

  std::string At(const std::string& name) const { return directory_ + "/" + name; }
  static bool Synced(const std::string& path, int flags) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC);
    if (fd < 0) return false;
    const bool synced = fsync(fd) == 0;
    close(fd);
    return synced;
  }
  bool Written(File& file, int flags, char letter) {
    const int fd = open(At(file.names.front()).c_str(), flags | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    const std::string bytes(file.bytes, letter);
    const bool synced =
        pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
        fsync(fd) == 0;
    close(fd);
    return synced;
  }

  bool Step() {
    const uint64_t draw = random_() % 8;
    const char letter = static_cast<char>('a' + random_() % 26);
    if (files_.empty() || (draw < 3 && files_.size() < 20)) {
      File made{.names = {std::to_string(++last_)},
                .letters = std::string(1, letter),
                .bytes = 1 + random_() % 30'000,
                .may_be_gone = true,
                .may_be_short = true};
      files_.push_back(made);
      if (!Written(files_.back(), O_CREAT | O_EXCL, letter)) return false;
      files_.back().may_be_gone = files_.back().may_be_short = false;
      return true;
    }
    const size_t place = random_() % files_.size();
    File& file = files_[place];
    if (draw < 5) {
      file.letters += letter;
      if (!Written(file, 0, letter)) return false;
      file.letters = letter;
      file.may_be_short = false;
    } else if (draw < 7) {
      file.names.push_back(std::to_string(++last_));
      if (rename(At(file.names[0]).c_str(), At(file.names[1]).c_str()) != 0) return false;
      if (!Synced(draw == 5 ? At(file.names[1]) : directory_, O_RDONLY)) return false;
      file.names.erase(file.names.begin());
    } else {
      file.may_be_gone = true;
      if (unlink(At(file.names[0]).c_str()) != 0) return false;
      if (!Synced(directory_, O_RDONLY | O_DIRECTORY)) return false;
      files_.erase(files_.begin() + static_cast<ptrdiff_t>(place));
    }
    return true;
  }

  // Each block is of one of the letters.
  void CheckBytes(const File& file) const {
    const std::string& name = file.names.front();
    std::ifstream stream(At(name), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(stream), {});
    if (!file.may_be_short) {
      ASSERT_EQ(bytes.size(), file.bytes) << name;
    }
    ASSERT_LE(bytes.size(), file.bytes) << name;
    for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
      const std::string block = bytes.substr(at, kBlockBytes);
      ASSERT_TRUE(block == std::string(block.size(), block[0])) << name << ", byte " << at;
      const bool is_hole = file.may_be_short && block[0] == 0;
      ASSERT_TRUE(is_hole || file.letters.find(block[0]) != std::string::npos)
          << name << ", byte " << at << ": '" << block[0] << "' and not of '" << file.letters
          << "'";
    }
  }

  const std::string name_;
  std::mt19937_64 random_;
  std::string directory_;
  std::vector<File> files_;
  uint64_t last_ = 0;
};

class MountCrashTest : public MountEndToEndTest {
 protected:
  static constexpr size_t kWorkers = 3;

  std::vector<std::string> ServerOptions() const override { return {"--lease", "3"}; }

  // The workers work on `mount` until they have had that much acknowledged, and go on while
  // `kills` ends what they work with.
  template <typename Kills>
  void WorkUntilKilled(const std::string& mount, uint64_t enough, Kills kills) {
    std::atomic<uint64_t> acknowledged{0};
    std::atomic<size_t> working{workers_.size()};
    std::vector<std::thread> threads;
    for (Worker& worker : workers_) {
      threads.emplace_back([&] {
        worker.Work(mount, acknowledged);
        --working;
      });
    }
    while (acknowledged < enough && working > 0) std::this_thread::yield();
    EXPECT_EQ(working, workers_.size()) << "a call failed before anything was killed";
    kills();
    for (std::thread& thread : threads) thread.join();
    std::cout << acknowledged << " changes were acknowledged\n";
  }
  void Kill(Command& process) {
    process.Signal(SIGKILL);
    process.Wait();
  }

  std::vector<Worker> workers_;
};

// The server is killed, and the mount goes on; or the mount; or both.
TEST_F(MountCrashTest, WhatWasAcknowledgedIsThereWhoeverIsKilledAtWhateverMoment) {
  const uint64_t seed = runtime::testing::Seed(17);
  const int rounds = runtime::testing::LongRun() ? 60 : 3;
  std::mt19937_64 random(seed);
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  for (size_t i = 0; i < kWorkers; ++i) workers_.emplace_back("of-" + std::to_string(i), seed + i);
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    const bool kills_server = round % 3 != 1, kills_mount = round % 3 != 0;
    const std::string name = "m" + std::to_string(round), mount = folder_.Path(name);
    auto process = BeginMount(name, "home", "rw");
    if (round == 0) {
      for (size_t i = 0; i < kWorkers; ++i) {
        ASSERT_EQ(mkdir((mount + "/of-" + std::to_string(i)).c_str(), 0755), 0);
      }
      ASSERT_EQ(Run("sync " + mount), 0);
    }
    WorkUntilKilled(mount, 10 + random() % 100, [&] {
      if (kills_server) Kill(*server_);
      if (kills_mount) Kill(*process);
    });
    if (kills_server) {
      ASSERT_NO_FATAL_FAILURE(StartServer(address_));
    }
    if (kills_mount) RunAbacus({"umount", "--lazy", mount});
    const std::string fresh = Mount("fresh" + std::to_string(round), "home");
    for (Worker& worker : workers_) ASSERT_NO_FATAL_FAILURE(worker.Check(fresh));
    EXPECT_EQ(Abacus({"umount", fresh}).code, 0);
    if (kills_mount) continue;
    // The mount finds the new server by itself.
    ASSERT_TRUE(
        runtime::testing::Eventually([&] { return access((mount + "/of-0").c_str(), F_OK) == 0; }));
    for (Worker& worker : workers_) ASSERT_NO_FATAL_FAILURE(worker.Check(mount));
    process->Signal(SIGTERM);
    EXPECT_EQ(process->Wait().code, 0);
  }
  size_t files = 0;
  for (const Worker& worker : workers_) files += worker.files();
  EXPECT_GT(files, 0u);
}

TEST_F(MountCrashTest, AMountThatIsToldToEndBringsWhatItKeptToTheServer) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  auto process = BeginMount("one", "home", "stack=cache/isolation/storage");
  const int fd = open(folder_.Path("one/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(fd, 0);
  const std::string bytes(100'000, 'x');
  // Neither synced nor closed: only the mount's process has it.
  ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  process->Signal(SIGTERM);
  const Outcome ended = process->Wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(IsMounted(folder_.Path("one")));
  EXPECT_NE(pwrite(fd, "y", 1, 0), 1) << "who had it open gets errors";
  close(fd);
  const std::string two = Mount("two", "home");
  EXPECT_TRUE(folder_.Read("two/f") == bytes);
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
}

// A byte of an object's data below `directory` that holds `text` becomes another. Not of a journal,
// which may hold it too and is read only when the store is opened.
bool FlipAByteOf(const std::string& directory, const std::string& text) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".d") continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(stream), {});
    const size_t at = bytes.find(text);
    if (at == std::string::npos) continue;
    const int fd = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    const char flipped = static_cast<char>(bytes[at] ^ 1);
    const bool done = pwrite(fd, &flipped, 1, static_cast<off_t>(at)) == 1;
    close(fd);
    return done;
  }
  return false;
}

TEST_F(MountCrashTest, AByteThatChangedOnTheServersDiskIsAnErrorToTheReader) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home");
  const std::string text = "a text that is found again";
  ASSERT_EQ(
      Run("(head -c 20000 /dev/zero; echo '" + text + "') > " + one + "/damaged && echo y > " +
          one + "/whole && sync " + one + "/damaged " + one + "/whole"),
      0);
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  ASSERT_TRUE(FlipAByteOf(folder_.Path("data"), text));
  const std::string two = Mount("two", "home");
  const int fd = open((two + "/damaged").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::array<char, 100> bytes;
  EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 20'000), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()))
      << "its other blocks are as before";
  close(fd);
  EXPECT_EQ(folder_.Read("two/whole"), "y\n");
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
  // The server's log names the block.
  server_->Signal(SIGTERM);
  EXPECT_THAT(server_->Wait().err,
              ::testing::ContainsRegex("volume home: .*object [0-9]+ block 2"));
}

}  // namespace
}  // namespace abacus::apps::testing
