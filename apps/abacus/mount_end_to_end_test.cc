// A server, volumes and mounts as processes of their own: what a user of `abacus mount` gets.

#include "apps/abacus/testing/mount_end_to_end.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/abacus/testing/command.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/small_disk.h"

namespace abacus::apps::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(MountEndToEndTest, OrdinaryProgramsWorkAndASecondMountSeesAllOfIt) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home"), two = Mount("two", "home");
  const std::string source = folder_.Path("source");
  ASSERT_EQ(Run("mkdir -p " + source + "/a/b && head -c 3000000 /dev/urandom > " + source +
                "/a/b/big && seq 10000 > " + source + "/numbers && ln -s a/b " + source + "/link"),
            0);
  EXPECT_EQ(Run("cp -a " + source + " " + one + "/copy"), 0);
  EXPECT_EQ(Run("diff -r " + source + " " + two + "/copy"), 0);
  EXPECT_EQ(Run("tar -C " + two + " -cf - copy | tar -C " + one + " -xf - --transform s/copy/tar/"),
            0);
  EXPECT_EQ(Run("diff -r " + source + " " + two + "/tar"), 0);
  EXPECT_EQ(Run("sort -rn " + two + "/copy/numbers > " + one + "/sorted && mv " + one + "/sorted " +
                one + "/copy/numbers"),
            0);
  EXPECT_EQ(Run("test \"$(head -1 " + two + "/copy/numbers)\" = 10000"), 0);
  EXPECT_EQ(Run("rm -rf " + one + "/copy && test ! -e " + two + "/copy"), 0);
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
}

TEST_F(MountEndToEndTest, WhatWasSyncedOutlivesTheServer) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home");
  ASSERT_EQ(Run("mkdir " + one + "/d && echo kept > " + one + "/d/f && sync " + one + "/d/f"), 0);
  server_->Signal(SIGKILL);
  server_->Wait();
  RunAbacus({"umount", "--lazy", one});
  StartServer();
  const std::string two = Mount("two", "home");
  EXPECT_EQ(folder_.Read("two/d/f"), "kept\n");
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
}

// The file was made by a mount, so that a cache at the client is below grep. Nothing of this is
// over before somebody reads what the search prints: that is more than a pipe holds.
TEST_F(MountEndToEndTest, ASearchFindsWhatAMountWritesWhileItAndItsCacheAreMoved) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  ASSERT_EQ(Abacus({"engine", "--suspend"}).code, 0);
  const std::string one = Mount("one", "home");
  std::string text;
  for (int line = 0; line < 100000; ++line) text += "line " + std::to_string(line) + "\n";
  std::ofstream(one + "/text") << text;
  std::array<int, 2> printed;
  ASSERT_EQ(pipe2(printed.data(), O_CLOEXEC), 0);
  const std::string config = folder_.Write("client.toml", "[node]\nname = \"console\"\n");
  Command search(
      {"run", "grep", "--server", address_, "--config", config, "--quiet", "line", "text"},
      {.out_fd = printed[1]});
  close(printed[1]);
  // Those that are at the search's own node.
  std::map<std::string, std::string> rids;
  std::string server;
  while (search.Running() && rids.size() < 2) {
    Abacus({"status", "--objects", "1000", "--json", folder_.Path("status")});
    const auto status = nlohmann::json::parse(folder_.Read("status"), nullptr, false);
    if (status.is_discarded()) continue;
    for (const auto& object : status["objects"]) {
      const std::string kind = object["class"];
      if (kind == "objfs.VolumeSet") server = object["node_name"];
      const bool is_its_own = object["node_name"] == "console";
      if (is_its_own && (kind == "apps.Grep" || kind == "objfs.CacheLayer")) {
        rids[kind] = object["rid"];
      }
    }
  }
  ASSERT_EQ(rids.size(), 2u);
  const int file = open((one + "/text").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  const std::array<std::string, 3> nodes = {server, "console", server};
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const auto& [kind, rid] : rids) {
      const Outcome moved = Abacus({"move", rid, nodes[i]});
      EXPECT_EQ(moved.code, 0) << kind << ": " << moved.out << moved.err;
    }
    // Behind what the search can have reached; the cache has been promised the file.
    const size_t at = text.size() - 100 * (i + 1);
    ASSERT_EQ(pwrite(file, "LINE", 4, static_cast<off_t>(at)), 4);
    text.replace(at, 4, "LINE");
  }
  ASSERT_EQ(close(file), 0);
  std::string out;
  std::array<char, 65536> buffer;
  for (ssize_t n = 0; (n = read(printed[0], buffer.data(), buffer.size())) != 0;) {
    if (n > 0) out.append(buffer.data(), static_cast<size_t>(n));
  }
  close(printed[0]);
  EXPECT_EQ(search.Wait().code, 0);
  folder_.Write("expected", text);
  ASSERT_EQ(Run("LC_ALL=C grep -n line " + folder_.Path("expected") + " > " + folder_.Path("out")),
            0);
  EXPECT_TRUE(out == folder_.Read("out")) << out.size() << " bytes";
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
}

// Two clients, each a process, of a volume with a short lease.
class LostMountTest : public MountEndToEndTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr std::chrono::seconds kPatience{90};  // of a lease, with a machine that is busy

  void SetUp() override {
    MountEndToEndTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
    lost_ = BeginMount("lost", "home", std::string("stack=") + GetParam());
    other_ = BeginMount("other", "home", std::string("stack=") + GetParam());
    std::ofstream(Other("f")) << "the bytes of before";
    ASSERT_EQ(folder_.Read("lost/f"), "the bytes of before");
  }
  void TearDown() override {
    // It may be stopped, and then nothing in its mount ends.
    if (lost_ != nullptr) lost_->Signal(SIGKILL);
    if (other_ != nullptr) {
      other_->Signal(SIGTERM);
      other_->Wait();
    }
    MountEndToEndTest::TearDown();
  }
  std::vector<std::string> ServerOptions() const override { return {"--lease", "4"}; }

  std::string Lost(const std::string& name) const { return folder_.Path("lost/" + name); }
  std::string Other(const std::string& name) const { return folder_.Path("other/" + name); }
  std::string Clients() const { return Abacus({"volume", "list"}).out; }
  // False where it takes longer than any lease.
  template <typename Result>
  static bool IsReady(std::future<Result>& future) {
    return future.wait_for(kPatience) == std::future_status::ready;
  }
  // What pread(2) finds, or "error N".
  static std::string ReadOf(int fd) {
    std::array<char, 100> bytes = {};
    const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
    if (got < 0) return "error " + std::to_string(errno);
    return std::string(bytes.data(), static_cast<size_t>(got));
  }

  std::unique_ptr<Command> lost_, other_;
};

INSTANTIATE_TEST_SUITE_P(Stacks, LostMountTest,
                         ::testing::Values("isolation/storage", "cache/isolation/storage"),
                         [](const auto& stack) {
                           return std::string(stack.param[0] == 'c' ? "Cached" : "Plain");
                         });

TEST_P(LostMountTest, AStoppedClientServesNothingOld) {
  const int fd = open(Lost("f").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ReadOf(fd), "the bytes of before");
  lost_->Signal(SIGSTOP);
  // On a stack that keeps something, when the lease of the stopped one is over.
  auto written = std::async(std::launch::async, [&] {
    const int there = open(Other("f").c_str(), O_WRONLY | O_CLOEXEC);
    const ssize_t put = pwrite(there, "the bytes of after!", 19, 0);
    const int error = put < 0 ? errno : 0;
    close(there);
    return std::pair(put, error);
  });
  ASSERT_TRUE(IsReady(written));
  EXPECT_EQ(written.get(), std::pair(ssize_t{19}, 0));
  // Begun after that; it cannot end before the client goes on, unless by what the kernel keeps.
  std::atomic<int> begun{0};
  const auto read = [&](bool again) {
    const int own = again ? open(Lost("f").c_str(), O_RDONLY | O_CLOEXEC) : fd;
    ++begun;
    if (own < 0) return "error " + std::to_string(errno);
    std::string found = ReadOf(own);
    if (again) close(own);
    return found;
  };
  auto kept_open = std::async(std::launch::async, [&] { return read(false); });
  ASSERT_TRUE(runtime::testing::Eventually([&] { return begun == 1; }));
  lost_->Signal(SIGCONT);
  ASSERT_TRUE(IsReady(kept_open));
  // It may have been given up: then it knows nothing any more, but nothing old.
  using ::testing::AnyOf;
  using ::testing::StartsWith;
  EXPECT_THAT(kept_open.get(), AnyOf("the bytes of after!", StartsWith("error ")));
  for (const bool again : {false, true}) {
    auto later = std::async(std::launch::async, [&] { return read(again); });
    ASSERT_TRUE(IsReady(later));
    EXPECT_THAT(later.get(), AnyOf("the bytes of after!", StartsWith("error ")));
  }
  close(fd);
  EXPECT_EQ(folder_.Read("other/f"), "the bytes of after!");
}

TEST_P(LostMountTest, AKilledClientHangsNobodyAndItsLocksAndPromisesEnd) {
  // Bytes that nobody has but the client, a lock, and a file that lives as long as it is open.
  const int fd = open(Lost("f").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(pwrite(fd, "THE BYTES OF THE DEAD", 21, 0), 21);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  lost_->Signal(SIGKILL);
  lost_.reset();
  struct stat seen = {};
  EXPECT_EQ(stat(Lost("f").c_str(), &seen) == 0 ? 0 : errno, ENOTCONN);
  EXPECT_EQ(ReadOf(fd), "error " + std::to_string(ENOTCONN));
  close(fd);

  const int there = open(Other("f").c_str(), O_RDWR | O_CLOEXEC);
  auto locked = std::async(std::launch::async, [&] { return flock(there, LOCK_EX); });
  auto read = std::async(std::launch::async, [&] { return ReadOf(there); });
  ASSERT_TRUE(IsReady(read));
  // All of the write or nothing of it.
  EXPECT_THAT(read.get(), ::testing::AnyOf("the bytes of before", "THE BYTES OF THE DEAD"));
  ASSERT_TRUE(IsReady(locked));
  EXPECT_EQ(locked.get(), 0);
  auto written = std::async(std::launch::async, [&] { return pwrite(there, "again", 5, 0); });
  ASSERT_TRUE(IsReady(written));
  EXPECT_EQ(written.get(), 5);
  EXPECT_EQ(ReadOf(there).substr(0, 5), "again");
  close(there);
  EXPECT_TRUE(runtime::testing::Eventually(
      [&] { return Clients().find(":" + folder_.Path("lost")) == std::string::npos; }, kPatience))
      << Clients();
  // The directory is there to be mounted on again.
  EXPECT_EQ(RunAbacus({"umount", folder_.Path("lost")}).code, 0);
  const std::string again = Mount("lost", "home");
  EXPECT_EQ(folder_.Read("lost/f").substr(0, 5), "again");
  EXPECT_EQ(Abacus({"umount", again}).code, 0);
}

// The mount and what is open in it stay; what nobody had synced is told by one fsync(2).
TEST_F(MountEndToEndTest, AMountGoesOnWithAServerThatWasKilledAndStartedAgain) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home");
  ASSERT_EQ(Run("mkdir " + one + "/cached"), 0);
  ASSERT_EQ(Abacus({"stack", "--set", "cache/isolation/storage", one + "/cached"}).code, 0);
  const int file = open((one + "/cached/f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, "synced", 6), 6);
  ASSERT_EQ(fsync(file), 0);
  ASSERT_EQ(pwrite(file, "DIRTY", 5, 0), 5);
  server_->Signal(SIGKILL);
  server_->Wait();
  StartServer(address_);
  // First an error for as long as the mount has not found the server, and then the one of the loss.
  ASSERT_TRUE(
      runtime::testing::Eventually([&] { return access((one + "/cached/f").c_str(), F_OK) == 0; }));
  EXPECT_EQ(fsync(file), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(fsync(file), 0) << "told once";
  ASSERT_EQ(pwrite(file, "again", 5, 0), 5);
  EXPECT_EQ(fsync(file), 0);
  EXPECT_EQ(close(file), 0);
  const std::string two = Mount("two", "home");
  EXPECT_EQ(folder_.Read("two/cached/f").substr(0, 5), "again");
  EXPECT_EQ(Run("echo x > " + one + "/g && cmp " + one + "/g " + two + "/g"), 0);
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
}

TEST_F(MountEndToEndTest, AQuotaRefusesIsShownAndOutlivesTheServer) {
  EXPECT_THAT(Abacus({"volume", "create", "--quota", "much", "home"}).err, HasSubstr("--quota"));
  ASSERT_EQ(Abacus({"volume", "create", "--quota", "1 MiB", "home"}).code, 0);
  EXPECT_EQ(folder_.Read("data/volumes/.quota-home"), "1048576\n");
  server_->Signal(SIGTERM);
  server_->Wait();
  StartServer();
  const std::string one = Mount("one", "home");
  struct statvfs space;
  ASSERT_EQ(statvfs(one.c_str(), &space), 0);
  EXPECT_EQ(space.f_blocks * space.f_frsize, 1048576u);
  ASSERT_EQ(Run("head -c 500000 /dev/urandom > " + folder_.Path("half") + " && cp " +
                folder_.Path("half") + " " + one + "/first"),
            0);
  // Not before the end: what is kept back is refused when it is written.
  EXPECT_NE(Run("cat " + folder_.Path("half") + " " + folder_.Path("half") + " 2> /dev/null > " +
                one + "/second && sync " + one + "/second"),
            0);
  EXPECT_EQ(Run("cmp " + folder_.Path("half") + " " + one + "/first"), 0) << "nothing is torn";
  EXPECT_EQ(Run("rm " + one + "/second && cp " + folder_.Path("half") + " " + one + "/third"), 0);
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  Outcome deleted;  // the mount's process leaves the volume a little after the directory is gone
  EXPECT_TRUE(runtime::testing::Eventually([&] {
    deleted = Abacus({"volume", "delete", "home"});
    return deleted.code == 0;
  })) << deleted.err;
  EXPECT_NE(access(folder_.Path("data/volumes/.quota-home").c_str(), F_OK), 0);
}

// Also where others have used up what is not kept for that.
TEST_F(MountEndToEndTest, FromADiskThatIsFullFilesCanBeRemovedBeforeARestartAndAfterIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small disk";
  server_.reset();
  constexpr size_t kDiskBytes = 24 << 20;
  const runtime::testing::SmallDisk disk(folder_.Path("full"), kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  const auto start = [&] { server_ = BeginServer("full/data", "127.0.0.1:0", {}, &address_); };
  start();
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home");
  constexpr int kDirectories = 4, kFiles = 5;
  const auto file = [](const std::string& mount, int directory, int i) {
    return mount + "/" + std::to_string(directory) + "/" + std::to_string(i);
  };
  for (int directory = 0; directory < kDirectories; ++directory) {
    ASSERT_EQ(mkdir((one + "/" + std::to_string(directory)).c_str(), 0755), 0);
    for (int i = 0; i < kFiles; ++i) ASSERT_EQ(TryPut(file(one, directory, i), "kept"), 0);
  }
  EXPECT_EQ(TryPut(one + "/large", RandomText(1, 2 * kDiskBytes)), ENOSPC);
  disk.FillBrim();
  const int changed = open(file(one, 0, 0).c_str(), O_RDONLY | O_CLOEXEC);
  int failed = 0;
  for (mode_t i = 0; i < 100'000 && failed == 0; ++i) {
    if (fchmod(changed, 0600 | (i & 1)) != 0 || fsync(changed) != 0) failed = errno;
  }
  close(changed);
  EXPECT_EQ(failed, ENOSPC);
  const auto remove_names = [&](const std::string& mount, int first, int end) {
    for (int directory = first; directory < end; ++directory) {
      for (int i = 2; i < kFiles; ++i) {
        EXPECT_EQ(unlink(file(mount, directory, i).c_str()), 0) << directory << i << errno;
        disk.FillBrim();
      }
      EXPECT_EQ(rename(file(mount, directory, 0).c_str(), file(mount, directory, 1).c_str()), 0)
          << directory << ": " << errno;
    }
    EXPECT_EQ(Run("sync " + mount + "/0"), 0);
  };
  remove_names(one, 0, 2);
  server_->Signal(SIGKILL);
  server_->Wait();
  RunAbacus({"umount", "--lazy", one});
  disk.FillBrim();
  start();
  disk.FillBrim();
  const std::string two = Mount("two", "home");
  EXPECT_EQ(Run("test \"$(ls " + two + "/0 " + two + "/1 | grep -c '^[0-9]$')\" = 2"), 0);
  remove_names(two, 2, kDirectories);
  for (int i = 0; i < kDirectories; ++i) EXPECT_EQ(folder_.Read(file("two", i, 1)), "kept");
  EXPECT_EQ(unlink((two + "/large").c_str()), 0) << errno;
  const std::string bytes = RandomText(2, 3 << 20);
  EXPECT_TRUE(runtime::testing::Eventually([&] { return TryPut(two + "/behind", bytes) == 0; }));
  EXPECT_EQ(folder_.Read("two/behind"), bytes);
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
  server_.reset();  // before its disk goes
}

TEST_F(MountEndToEndTest, VolumesAreMadeListedAndDeletedWhenNobodyUsesThem) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  EXPECT_THAT(Abacus({"volume", "create", "home"}).err, HasSubstr("there is a volume 'home'"));
  EXPECT_THAT(Abacus({"volume", "create", "a/b"}).err, HasSubstr("is no name of a volume"));
  const std::string one = Mount("one", "home");
  const std::string list = Abacus({"volume", "list"}).out;
  EXPECT_THAT(list, HasSubstr("home"));
  // Whose mount it is: several of one host have names of their own.
  EXPECT_THAT(list, HasSubstr(":" + one));
  const Outcome refused = Abacus({"volume", "delete", "home"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("unmount it"));
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  // Its process leaves the volume after the directory is gone.
  Outcome deleted;
  EXPECT_TRUE(runtime::testing::Eventually([&] {
    deleted = Abacus({"volume", "delete", "home"});
    return deleted.code == 0;
  })) << deleted.err;
  EXPECT_THAT(Abacus({"mount", address_ + "/home", one}).err, HasSubstr("there is no volume"));
}

TEST_F(MountEndToEndTest, AVolumeIsFoundAtWhicheverServerItIs) {
  std::string second;
  const auto other = BeginServer("other", "127.0.0.1:0", {}, &second);
  const auto at_second = [&](std::vector<std::string> words) {
    return RunAbacus(words, {.environment = {"ABACUS_SERVER=" + second}});
  };
  ASSERT_EQ(Abacus({"volume", "create", "here"}).code, 0);
  ASSERT_EQ(at_second({"volume", "create", "there"}).code, 0);
  const std::string first = address_;
  address_ = first + "," + second;
  const std::string one = Mount("one", "there"), two = Mount("two", "here");
  ASSERT_EQ(Run("echo x > " + one + "/f"), 0);
  EXPECT_FALSE(std::filesystem::exists(two + "/f"));
  const std::string three = folder_.Path("three");
  mkdir(three.c_str(), 0755);
  EXPECT_THAT(Abacus({"mount", address_ + "/nowhere", three}).err,
              HasSubstr("there is no volume 'nowhere'. There are: here, there"));
  EXPECT_THAT(Abacus({"mount", address_, three}).err, HasSubstr("which volume?"));
  for (const std::string& mounted : {one, two}) EXPECT_EQ(Abacus({"umount", mounted}).code, 0);
}

TEST_F(MountEndToEndTest, StackTellsAFilesLayersAndSetsThoseOfNewOnes) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home");
  ASSERT_EQ(Run("echo x > " + one + "/default && mkdir " + one + "/cached " + one + "/plain"), 0);
  EXPECT_EQ(Abacus({"stack", one + "/default"}).out, "cache/isolation/storage\n");
  EXPECT_EQ(Abacus({"stack", "--set", "isolation/storage", one + "/plain"}).code, 0);
  ASSERT_EQ(Run("echo z > " + one + "/plain/f"), 0);
  EXPECT_EQ(Abacus({"stack", one + "/plain/f"}).out, "isolation/storage\n");
  EXPECT_EQ(
      Abacus({"stack", "--set", "cache(block=4 KiB)/isolation/storage", one + "/cached"}).code, 0);
  // The mistake is shown with its place.
  const Outcome wrong = Abacus({"stack", "--set", "cache/nonsense/storage", one + "/cached"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_THAT(wrong.err, HasSubstr("cache/nonsense/storage\n"));
  EXPECT_THAT(wrong.err, HasSubstr("      ^"));
  ASSERT_EQ(Run("echo y > " + one + "/cached/f"), 0);
  EXPECT_EQ(Abacus({"stack", one + "/cached/f"}).out, "cache(block=4 KiB)/isolation/storage\n");
  // Of names like a pattern only, and in directories that are made there.
  EXPECT_EQ(
      Abacus({"stack", "--set", "trace/isolation/storage", "--for", "*.log", one + "/cached"}).code,
      0);
  ASSERT_EQ(Run("mkdir " + one + "/cached/below && echo y > " + one + "/cached/below/a.log"), 0);
  EXPECT_EQ(Abacus({"stack", one + "/cached/below/a.log"}).out, "trace/isolation/storage\n");
  const std::string source = folder_.Write("source", "bytes");
  EXPECT_EQ(Abacus({"put", "home:cached/put.log", source}).code, 0);
  EXPECT_EQ(Abacus({"stack", one + "/cached/put.log"}).out, "trace/isolation/storage\n");
  EXPECT_EQ(Abacus({"stack", one + "/cached"}).out,
            "isolation/storage\nnew files like *.log: trace/isolation/storage\n"
            "other files: cache(block=4 KiB)/isolation/storage\n");
  EXPECT_EQ(Abacus({"stack", "--unset", "--for", "*.log", one + "/cached"}).code, 0);
  EXPECT_THAT(Abacus({"stack", "--unset", "--for", "*.log", one + "/cached"}).err,
              HasSubstr("there is no rule for '*.log'"));
  EXPECT_THAT(Abacus({"stack", "--set", "isolation/storage", "--for", "", one + "/cached"}).err,
              HasSubstr("give it a pattern"));
  EXPECT_EQ(Abacus({"stack", "--unset", one + "/cached"}).code, 0);
  EXPECT_EQ(Abacus({"stack", one + "/cached"}).out, "isolation/storage\n");
  EXPECT_THAT(Abacus({"stack", "--set", "isolation/storage", one + "/default"}).err,
              HasSubstr("is no directory"));
  // What layers tell of themselves, while the file is open.
  {
    std::ofstream open(one + "/cached/below/a.log", std::ios::app);
    open << "line" << std::flush;
    const std::string state = Abacus({"stack", "--state", one + "/cached/below/a.log"}).out;
    EXPECT_THAT(state, HasSubstr("trace\n"));
    EXPECT_THAT(state, HasSubstr(": append 0+4"));
    EXPECT_THAT(state, HasSubstr("isolation\n"));
  }
  EXPECT_THAT(Abacus({"stack", "--kinds"}).out, HasSubstr("the calls"));
  const std::string two = Mount("two", "home", "stack=isolation/storage");
  ASSERT_EQ(Run("echo x > " + two + "/by-its-mount"), 0);
  EXPECT_EQ(Abacus({"stack", one + "/by-its-mount"}).out, "isolation/storage\n");
  // A comma in parentheses is the stack's.
  const std::string config = folder_.Write("mount.toml", "[log]\nlevel = \"error\"\n");
  const std::string three =
      Mount("three", "home",
            "rw,stack=cache(block=4 KiB,ahead=64 KiB)/isolation/storage,config=" + config);
  ASSERT_EQ(Run("echo x > " + three + "/two-options"), 0);
  EXPECT_EQ(Abacus({"stack", one + "/two-options"}).out,
            "cache(block=4 KiB,ahead=64 KiB)/isolation/storage\n");
  EXPECT_EQ(Abacus({"umount", three}).code, 0);
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
}

// How long the kernel keeps what it was told is the user's to say; unless he does, it asks.
TEST_F(MountEndToEndTest, NamesAndAttributesAreKeptForAsLongAsTheMountSays) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home");
  const std::string asks = Mount("asks", "home");
  const std::string keeps = Mount("keeps", "home", "attr_timeout=30,entry_timeout=30");
  const auto size_on = [](const std::string& mount) {
    struct stat attributes = {};
    return stat((mount + "/file").c_str(), &attributes) == 0 ? attributes.st_size : -1;
  };
  ASSERT_EQ(Run("printf 12 > " + one + "/file"), 0);
  EXPECT_EQ(size_on(asks), 2);
  EXPECT_EQ(size_on(keeps), 2);
  ASSERT_EQ(Run("chmod 600 " + one + "/file && rm " + one + "/file"), 0);
  EXPECT_EQ(size_on(asks), -1);
  EXPECT_EQ(size_on(keeps), 2) << "it has not asked";
  const std::string none = folder_.Path("none");
  mkdir(none.c_str(), 0755);
  for (const char* word : {"attr_timeout", "attr_timeout=", "entry_timeout=soon",
                           "entry_timeout=-1", "attr_timeout=31", "attr_timeout=nan"}) {
    const Outcome refused = Abacus({"mount", address_ + "/home", none, "-o", word});
    EXPECT_NE(refused.code, 0) << word;
    EXPECT_THAT(refused.err, HasSubstr("is a number of seconds from 0 to 30")) << word;
    EXPECT_FALSE(IsMounted(none)) << word;
  }
  for (const char* word : {"known_inodes", "known_inodes=0", "known_inodes=many", "known_inodes=-1",
                           "known_inodes=262145"}) {
    const Outcome refused = Abacus({"mount", address_ + "/home", none, "-o", word});
    EXPECT_NE(refused.code, 0) << word;
    EXPECT_THAT(refused.err, HasSubstr("known_inodes is a number from 1 to 262144")) << word;
    EXPECT_FALSE(IsMounted(none)) << word;
  }
  const std::string few = Mount("few", "home", "known_inodes=3");
  ASSERT_EQ(Run("for i in 1 2 3 4 5 6; do mkdir " + few + "/d$i && touch " + few +
                "/d$i/f; done && ls -lR " + few + " && rm -r " + few + "/d*"),
            0);
}

TEST_F(MountEndToEndTest, WhoCountsUnderALockOnTwoMountsCountsRight) {
  constexpr int kRounds = 15;
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = Mount("one", "home"), two = Mount("two", "home");
  const auto count = [](const std::string& at) {
    return "for i in $(seq " + std::to_string(kRounds) + "); do flock " + at +
           "/lock sh -c 'n=$(cat " + at + "/count) && echo $((n + 1)) > " + at +
           "/count' || exit 1; done";
  };
  ASSERT_EQ(Run("touch " + one + "/lock && echo 0 > " + one + "/count"), 0);
  EXPECT_EQ(Run("( " + count(one) + " ) & a=$!; ( " + count(two) + " ) & b=$!; wait $a && wait $b"),
            0);
  EXPECT_EQ(folder_.Read("two/count"), std::to_string(2 * kRounds) + "\n");
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  EXPECT_EQ(Abacus({"umount", two}).code, 0);
}

TEST_F(MountEndToEndTest, ALocalMountHasItsStoreForItselfAndAServerServesItAfterwards) {
  const std::string store = folder_.Path("data"), one = folder_.Path("one");
  mkdir(one.c_str(), 0755);
  const std::vector<std::string> mount = {"mount", "--local", store, one};
  // The server has it.
  const Outcome refused = RunAbacus(mount);
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("another process uses the data directory"));
  EXPECT_THAT(refused.err, HasSubstr("mounted from there"));
  server_->Signal(SIGTERM);
  server_->Wait();
  mounted_.push_back(one);
  const Outcome mounted = RunAbacus(mount);
  ASSERT_EQ(mounted.code, 0) << mounted.err;
  EXPECT_TRUE(IsMounted(one));
  EXPECT_EQ(Run("mkdir " + one + "/d && seq 100000 > " + one + "/d/numbers && cd " + one +
                " && mv d e && ln e/numbers again"),
            0);
  EXPECT_EQ(Run("seq 100000 | cmp - " + one + "/again"), 0);
  // Another mount and a server find it in use.
  const std::string two = folder_.Path("two");
  mkdir(two.c_str(), 0755);
  EXPECT_THAT(RunAbacus({"mount", "--local", store, two}).err, HasSubstr("another process uses"));
  EXPECT_NE(RunAbacus({"serve", "--data", store, "--listen", "127.0.0.1:0"}).code, 0);
  EXPECT_EQ(RunAbacus({"umount", one}).code, 0);
  // The process ends behind the directory, and with it the store is free.
  Outcome again;
  EXPECT_TRUE(runtime::testing::Eventually([&] {
    again = RunAbacus({"mount", "--local", "-o", "volume=home", store, one});
    return again.code == 0;
  })) << again.err;
  EXPECT_EQ(Run("seq 100000 | cmp - " + one + "/e/numbers"), 0);
  EXPECT_EQ(RunAbacus({"umount", one}).code, 0);
  ASSERT_TRUE(runtime::testing::Eventually([&] {
    return RunAbacus({"mount", "--local", "-o", "volume=absent", store, one})
               .err.find("there is no volume 'absent'") != std::string::npos;
  }));
  StartServer();
  const std::string served = Mount("served", "home");
  EXPECT_EQ(Run("seq 100000 | cmp - " + served + "/again"), 0);
  EXPECT_EQ(Abacus({"umount", served}).code, 0);
}

// The process that serves it is stopped, and what the kernel knows of the file is told
// nevertheless.
TEST_F(MountEndToEndTest, OfALocalMountTheKernelKeepsNamesAndAttributes) {
  const std::string store = folder_.Path("store"), one = folder_.Path("one");
  mkdir(one.c_str(), 0755);
  mounted_.push_back(one);
  Command mount({"mount", "--foreground", "--local", store, one});
  ASSERT_TRUE(runtime::testing::Eventually([&] { return IsMounted(one); }));
  ASSERT_EQ(Run("seq 1000 > " + one + "/numbers && stat " + one + "/numbers > /dev/null"), 0);
  mount.Signal(SIGSTOP);
  // Without an answer it would wait for one; only a kill ends that.
  EXPECT_EQ(Run("test $(timeout --signal=KILL 20 stat --format=%s " + one + "/numbers) = 3893"), 0);
  mount.Signal(SIGCONT);
  EXPECT_EQ(RunAbacus({"umount", one}).code, 0);
  EXPECT_EQ(mount.Wait().code, 0);
}

// As mount(8) calls it for the type fuse.abacus, once it is linked to under /sbin.
TEST_F(MountEndToEndTest, ServesAsTheHelperOfMount) {
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string helper = folder_.Path("mount.fuse.abacus"), one = folder_.Path("one");
  std::filesystem::create_symlink(ProgramPath(), helper);
  mkdir(one.c_str(), 0755);
  mounted_.push_back(one);
  EXPECT_EQ(Run(helper + " " + address_ + "/home " + one + " -o rw,_netdev,noatime"), 0);
  EXPECT_TRUE(IsMounted(one));
  EXPECT_EQ(Run("echo x > " + one + "/f"), 0);
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  // The words that tools write into fstab.
  EXPECT_EQ(Run(helper + " " + address_ + "/home " + one + " -o rw,relatime,users,nofail"), 0);
  EXPECT_TRUE(IsMounted(one));
  EXPECT_EQ(Abacus({"umount", one}).code, 0);
  EXPECT_NE(Run(helper + " " + address_ + "/home 2> /dev/null"), 0);
}

// A name under /sbin, for as long as it lives.
class SbinLink {
 public:
  explicit SbinLink(const std::string& to) {
    is_ours_ = symlink(to.c_str(), kPath) == 0;
    why_ = is_ours_ ? "" : std::string(kPath) + ": " + strerror(errno);
  }
  ~SbinLink() {
    if (is_ours_) unlink(kPath);
  }
  SbinLink(const SbinLink&) = delete;
  SbinLink& operator=(const SbinLink&) = delete;
  // Why it is not there by us; empty: it is.
  const std::string& why() const { return why_; }

 private:
  static constexpr char kPath[] = "/sbin/mount.fuse.abacus";
  bool is_ours_ = false;
  std::string why_;
};

TEST_F(MountEndToEndTest, MountAndFstabKnowItsType) {
  if (geteuid() != 0) GTEST_SKIP() << "only root calls mount(8)";
  const SbinLink link(ProgramPath());
  if (!link.why().empty()) GTEST_SKIP() << "the helper cannot be linked: " << link.why();
  ASSERT_EQ(Abacus({"volume", "create", "home"}).code, 0);
  const std::string one = folder_.Path("one"), source = address_ + "/home";
  mkdir(one.c_str(), 0755);
  mounted_.push_back(one);
  ASSERT_EQ(
      Run("mount -t fuse.abacus " + source + " " + one + " -o noatime,stack=isolation/storage"), 0);
  EXPECT_TRUE(IsMounted(one));
  EXPECT_EQ(
      Run("echo x > " + one + "/f && test \"$(findmnt -n -o FSTYPE " + one + ")\" = fuse.abacus"),
      0);
  EXPECT_EQ(Abacus({"stack", one + "/f"}).out, "isolation/storage\n");
  EXPECT_EQ(Run("umount " + one), 0);
  EXPECT_FALSE(IsMounted(one));
  const std::string fstab =
      folder_.Write("fstab", source + " " + one + " fuse.abacus _netdev,noauto,rw 0 0\n");
  ASSERT_EQ(Run("mount --fstab " + fstab + " " + one), 0);
  EXPECT_EQ(folder_.Read("one/f"), "x\n");
  EXPECT_EQ(Run("umount " + one), 0);
  EXPECT_NE(Run("mount -t fuse.abacus " + address_ + "/absent " + one + " 2> /dev/null"), 0);
  EXPECT_FALSE(IsMounted(one));
}

}  // namespace
}  // namespace abacus::apps::testing
