// A volume over several servers, as its users meet it: real processes, a real mount, and servers
// that are killed.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/testing/command.h"
#include "apps/abacus/testing/mount_end_to_end.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using ::testing::HasSubstr;

constexpr char kRaidStack[] = "cache/raid5(unit=8 KiB)/(isolation/storage)*3";
constexpr char kMirrorStack[] = "cache/mirror(unit=8 KiB)/(isolation/storage)*2";

std::string RandomText(uint32_t seed, size_t bytes) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class RaidEndToEndTest : public MountEndToEndTest {
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
  // 0: all files are whole; as the JSON tells.
  nlohmann::json Status(int code) {
    const std::string path = folder_.Path("status.json");
    const Outcome outcome = Abacus({"volume", "status", "home", "--json", path});
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    return nlohmann::json::parse(folder_.Read("status.json"), nullptr, false);
  }

  // Whether a server's directory has any of a volume.
  static bool HasColumns(const std::string& directory) {
    std::error_code error;
    std::filesystem::directory_iterator entry(directory + "/volumes", error), end;
    return std::any_of(entry, end, [](const std::filesystem::directory_entry& found) {
      return found.path().filename().string().rfind(".columns-", 0) == 0;
    });
  }

  void ReadRoundEach(const std::string& stack, size_t columns);

  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Command>> others_;
  std::map<std::string, std::string> files_;
};

TEST_F(RaidEndToEndTest, OneServerMayDieAndThenAnotherWhenTheFirstIsWholeAgain) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  for (uint32_t i = 0; i < 3; ++i) {
    const std::string name = absl::StrCat("file", i);
    files_[name] = RandomText(i, 300'000 + i);
    ASSERT_NO_FATAL_FAILURE(Put(mount + "/" + name, files_[name]));
  }
  const Outcome stack = Abacus({"stack", mount + "/file0"});
  EXPECT_THAT(stack.out, HasSubstr(kRaidStack));
  EXPECT_THAT(stack.out, HasSubstr("column 2: object"));
  EXPECT_EQ(Status(0)["whole"], 3);
  // Any of its servers knows where the volume is.
  const Outcome asked =
      RunAbacus({"volume", "status", "home"}, {.environment = {"ABACUS_SERVER=" + addresses_[2]}});
  EXPECT_EQ(asked.code, 0) << asked.err;

  Kill(2);
  const auto killed = std::chrono::steady_clock::now();
  ExpectAll(mount);
  files_["file1"].replace(100'000, 50'000, RandomText(7, 50'000));
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file1", files_["file1"]));
  files_["late"] = RandomText(8, 100'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/late", files_["late"]));
  // A node is dead to the others after 5 s; nothing waits for longer than that.
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(30));
  ExpectAll(mount);
  EXPECT_GT(Status(1)["degraded"], 0);

  Start(2, addresses_[2]);
  ASSERT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  EXPECT_EQ(Status(0)["whole"], 4);
  const Outcome scrubbed = Abacus({"scrub", "home"});
  EXPECT_EQ(scrubbed.code, 0) << scrubbed.out << scrubbed.err;

  Kill(3);
  const std::string second = Mount("second", "home");
  ExpectAll(second);
  ExpectAll(mount);

  Kill(1);
  ExpectNothing(second + "/file0");
  Start(1, addresses_[1]);
  EXPECT_TRUE(Eventually(
      [&] { return Run("cmp -s " + second + "/file0 " + mount + "/file0 2>/dev/null") == 0; }));
  ExpectAll(second);
}

TEST_F(RaidEndToEndTest, AnotherServerTakesThePlaceOfOneThatIsLostForGood) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  files_["file"] = RandomText(1, 300'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  const auto replace = [&](const std::string& lost, const std::string& now) {
    return Abacus({"volume", "replace-server", "home", lost, now});
  };

  // What must not be, and is told why.
  const Outcome healthy = replace(addresses_[2], spare);
  EXPECT_EQ(healthy.code, 2);
  EXPECT_THAT(healthy.err, HasSubstr("--force"));
  const Outcome first = replace(addresses_[0], spare);
  EXPECT_EQ(first.code, 2);
  EXPECT_THAT(first.err, HasSubstr("alone has the names and inodes"));
  const Outcome unknown = replace("127.0.0.1:1", spare);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr(addresses_[3]));
  EXPECT_EQ(Status(0)["whole"], 1);

  Kill(2);
  ASSERT_TRUE(Eventually([&] { return !Status(1)["servers"][2]["answers"].get<bool>(); }));
  const Outcome twice = replace(addresses_[2], addresses_[1]);
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("named twice"));
  const Outcome replaced = replace(addresses_[2], spare);
  ASSERT_EQ(replaced.code, 0) << replaced.err;
  const nlohmann::json status = Status(1);
  EXPECT_EQ(status["servers"][2]["address"], spare);
  EXPECT_EQ(status["degraded"], 1);
  ExpectAll(mount);
  const Outcome rebuilt = Abacus({"rebuild", "home"});
  ASSERT_EQ(rebuilt.code, 0) << rebuilt.out << rebuilt.err;
  EXPECT_EQ(Status(0)["whole"], 1);

  // The lost one comes back with what it had: nobody asks it any more.
  Start(2, addresses_[2]);
  files_["file"].replace(50'000, 10'000, RandomText(2, 10'000));
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  Kill(3);
  const std::string second = Mount("second", "home");
  ExpectAll(second);
}

TEST_F(RaidEndToEndTest, NewFilesMayBeSpreadOverOneServerMore) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  std::string more;
  const auto server = BeginServer("more", "127.0.0.1:0", {}, &more);
  const Outcome added = Abacus({"volume", "add-server", "home", more});
  ASSERT_EQ(added.code, 0) << added.err;
  const std::string mount =
      Mount("mount", "home", "stack=cache/raid5(unit=8 KiB)/(isolation/storage)*4");
  files_["file"] = RandomText(1, 300'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  EXPECT_THAT(Abacus({"stack", mount + "/file"}).out, HasSubstr(more));
  Kill(1);
  ExpectAll(mount);
  EXPECT_THAT(Abacus({"volume", "add-server", "home", more}).err, HasSubstr("named twice"));
}

TEST_F(RaidEndToEndTest, ACopyThatWasAwayIsNotBelievedUntilItIsRebuilt) {
  Kill(3);
  const std::string list = absl::StrCat(addresses_[0], ",", addresses_[1], ",", addresses_[2]);
  const Outcome created = Abacus({"volume", "create", "home", "--servers", list});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kMirrorStack));
  for (uint32_t i = 0; i < 3; ++i) {
    const std::string name = absl::StrCat("file", i);
    files_[name] = RandomText(i, 300'000 + i);
    ASSERT_NO_FATAL_FAILURE(Put(mount + "/" + name, files_[name]));
  }
  EXPECT_EQ(Status(0)["whole"], 3);

  Kill(1);
  ExpectAll(mount);
  files_["file1"].replace(100'000, 50'000, RandomText(7, 50'000));
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file1", files_["file1"]));
  files_["late"] = RandomText(8, 100'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/late", files_["late"]));
  ExpectAll(mount);
  EXPECT_EQ(Status(1)["degraded"], 4);

  // It is back, and the other one is away: what it missed it does not pretend to have.
  Start(1, addresses_[1]);
  ASSERT_TRUE(Eventually([&] { return Status(1)["degraded"] == 2; }));
  Kill(2);
  const std::string second = Mount("second", "home");
  ExpectNothing(second + "/file1");
  ExpectNothing(second + "/late");
  EXPECT_EQ(Status(1)["unavailable"], 2);
  EXPECT_NE(Abacus({"rebuild", "home"}).code, 0);
  EXPECT_EQ(Run("cmp -s " + second + "/file0 " + mount + "/file0"), 0) << "it missed nothing there";

  Start(2, addresses_[2]);
  EXPECT_TRUE(Eventually(
      [&] { return Run("cmp -s " + second + "/file1 " + mount + "/file1 2>/dev/null") == 0; }));
  ASSERT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  EXPECT_EQ(Status(0)["whole"], 4);
  const Outcome scrubbed = Abacus({"scrub", "home"});
  EXPECT_EQ(scrubbed.code, 0) << scrubbed.out << scrubbed.err;
  Kill(2);
  const std::string third = Mount("third", "home");
  ExpectAll(third);
}

// A server of `columns` of a file stands still for a while, as one does whose disk does.
void RaidEndToEndTest::ReadRoundEach(const std::string& stack, size_t columns) {
  constexpr std::chrono::milliseconds kStill(3000);
  std::string list = addresses_[0];
  for (size_t i = 1; i < kServers; ++i) {
    i <= columns ? absl::StrAppend(&list, ",", addresses_[i]) : Kill(i);
  }
  const Outcome created = Abacus({"volume", "create", "home", "--servers", list});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", stack));
  files_["file"] = RandomText(1, 1 << 20);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  // An object over columns that had moved to the server would stand still with it.
  for (size_t server = 0; server <= columns; ++server) {
    const Outcome suspended = RunAbacus({"engine", "--suspend"},
                                        {.environment = {"ABACUS_SERVER=" + addresses_[server]}});
    ASSERT_EQ(suspended.code, 0) << suspended.err;
  }
  const int fd = open((mount + "/file").c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  ASSERT_GE(fd, 0) << errno;
  alignas(4096) static char bytes[4096];
  std::chrono::duration<double, std::milli> worst{0};
  const auto read_some = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_EQ(pread(fd, bytes, sizeof bytes, i % 256 * 4096), 4096) << errno;
      worst = std::max<std::chrono::duration<double, std::milli>>(
          worst, std::chrono::steady_clock::now() - begin);
      ASSERT_EQ(files_["file"].compare(i % 256 * 4096, 4096, bytes, sizeof bytes), 0);
    }
  };
  ASSERT_NO_FATAL_FAILURE(read_some(200));
  const double healthy = worst.count();
  worst = {};
  for (size_t server = 1; server <= columns; ++server) {
    const auto stopped = std::chrono::steady_clock::now();
    others_[server]->Signal(SIGSTOP);
    ASSERT_NO_FATAL_FAILURE(read_some(200));
    others_[server]->Signal(SIGCONT);
    EXPECT_LT(std::chrono::steady_clock::now() - stopped, kStill);
    // What it was asked for meanwhile is answered, and it is as quick as before.
    ASSERT_TRUE(Eventually([&] { return Status(0)["whole"] == 1; }));
  }
  printf("200 reads of 4 KiB: the longest %.1f ms; with one server or another stopped %.1f ms\n",
         healthy, worst.count());
  EXPECT_LT(worst * 2, kStill);
  close(fd);
}

TEST_F(RaidEndToEndTest, ReadsGoRoundACopyThatStandsStill) {
  ReadRoundEach("mirror(unit=8 KiB)/(isolation/storage)*2", 2);
}
TEST_F(RaidEndToEndTest, ReadsGoRoundAColumnThatStandsStill) {
  ReadRoundEach("raid5(unit=8 KiB)/(isolation/storage)*3", 3);
}

TEST_F(RaidEndToEndTest, ALostServerIsRebuiltToAnother) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  files_["file"] = RandomText(1, 300'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  const Outcome none = Abacus({"rebuild", "home", "--to", spare});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("all servers answer"));
  const Outcome own = Abacus({"rebuild", "home", "--to", addresses_[1]});
  EXPECT_EQ(own.code, 2);
  EXPECT_THAT(own.err, HasSubstr("already"));
  Kill(2);
  ASSERT_TRUE(Eventually([&] { return !Status(1)["servers"][2]["answers"].get<bool>(); }));
  const Outcome rebuilt = Abacus({"rebuild", "home", "--to", spare});
  ASSERT_EQ(rebuilt.code, 0) << rebuilt.out << rebuilt.err;
  EXPECT_THAT(rebuilt.out, HasSubstr(absl::StrCat(spare, " is in the place of ", addresses_[2])));
  const nlohmann::json status = Status(0);
  EXPECT_EQ(status["servers"][2]["address"], spare);
  EXPECT_EQ(status["whole"], 1);
  Kill(3);
  ExpectAll(Mount("second", "home"));
}

// Written before and during; then it is switched off, and any other one may die.
TEST_F(RaidEndToEndTest, AServerThatLivesIsDrainedAndMayBeSwitchedOff) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  for (uint32_t i = 0; i < 8; ++i) {
    const std::string name = absl::StrCat("file", i);
    files_[name] = RandomText(i, i == 0 ? 6'000'000 : 50'000 + i);
    ASSERT_NO_FATAL_FAILURE(Put(mount + "/" + name, files_[name]));
  }
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  const auto drain = [&](const std::string& leaves, const std::string& to) {
    return Abacus({"volume", "drain", "home", leaves, "--to", to});
  };
  // What must not be, and is told why.
  EXPECT_THAT(drain(addresses_[0], spare).err, HasSubstr("alone has its names and inodes"));
  EXPECT_THAT(drain("127.0.0.1:1", spare).err, HasSubstr(addresses_[3]));
  EXPECT_THAT(drain(addresses_[2], addresses_[2]).err, HasSubstr("another server"));
  EXPECT_EQ(Status(0)["servers"].size(), kServers) << "nothing was changed";

  std::atomic<bool> done{false};
  std::atomic<int> written{0};
  std::thread writing([&] {
    for (uint32_t i = 0; !done; ++i, ++written) {
      const std::string name = absl::StrCat("file", i % 8), made = absl::StrCat("made", i);
      std::string& bytes = files_[name];
      const int fd = open((mount + "/" + name).c_str(), O_WRONLY | O_CLOEXEC);
      const uint64_t at = i * 7919 % (bytes.size() - 20'000);
      const std::string part = RandomText(100 + i, 20'000);
      EXPECT_EQ(pwrite(fd, part.data(), part.size(), static_cast<off_t>(at)), 20'000) << errno;
      EXPECT_EQ(close(fd), 0) << name << ": errno " << errno;
      bytes.replace(at, part.size(), part);
      files_[made] = RandomText(i, 30'000);
      Put(absl::StrCat(mount, "/", made), files_[made]);
    }
  });
  EXPECT_TRUE(Eventually([&] { return written >= 2; }));
  const Outcome drained = drain(addresses_[2], spare);
  const int then = written;
  EXPECT_TRUE(Eventually([&] { return written >= then + 2; }));
  done = true;
  writing.join();
  ASSERT_EQ(drained.code, 0) << drained.out << drained.err;
  EXPECT_THAT(drained.out, HasSubstr("can be switched off"));
  const nlohmann::json status = Status(0);
  EXPECT_EQ(status["whole"], status["files"]);
  EXPECT_EQ(status.dump().find(addresses_[2]), std::string::npos);
  EXPECT_FALSE(HasColumns(folder_.Path("columns2")));
  EXPECT_THAT(drain(addresses_[2], spare).err, HasSubstr("no server of volume"));

  Kill(2);
  ExpectAll(mount);
  Kill(3);
  ExpectAll(Mount("second", "home"));
  ExpectAll(mount);
  EXPECT_THAT(drain(addresses_[3], addresses_[2]).err, HasSubstr("replace-server"));
}

// Where what is left of the drain's work is done by the next one.
TEST_F(RaidEndToEndTest, ADrainThatWasKilledGoesOnWhenItIsSaidAgain) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  for (uint32_t i = 0; i < 30; ++i) {
    const std::string name = absl::StrCat("file", i);
    files_[name] = RandomText(i, i % 10 == 0 ? 4'000'000 : 100'000 + i);
    ASSERT_NO_FATAL_FAILURE(Put(mount + "/" + name, files_[name]));
  }
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  const std::vector<std::string> words = {"volume", "drain", "home", addresses_[1], "--to", spare};
  // With files at both.
  const auto moved = [&] {
    const nlohmann::json status = Status(0);
    return status["servers"].size() > kServers ? status["servers"][kServers]["columns"].get<int>()
                                               : 0;
  };
  Command begun(words, {.environment = {"ABACUS_SERVER=" + address_}});
  ASSERT_TRUE(Eventually([&] { return moved() > 3; }));
  begun.Signal(SIGKILL);
  begun.Wait();
  ExpectAll(mount);
  const Outcome again = Abacus(words);
  ASSERT_EQ(again.code, 0) << again.out << again.err;
  EXPECT_EQ(Status(0)["whole"], 30);
  EXPECT_FALSE(HasColumns(folder_.Path("columns1")));
  Kill(1);
  Kill(2);
  ExpectAll(Mount("second", "home"));
}

class ScheduledScrubTest : public RaidEndToEndTest {
 protected:
  std::string ServerConfig() const override { return "[scrub]\nevery = \"3s\"\n"; }
  void SetUp() override {
    RaidEndToEndTest::SetUp();
    if (IsSkipped()) return;
    const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
    ASSERT_EQ(created.code, 0) << created.err;
    mount_ = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
    for (uint32_t i = 0; i < 2; ++i) {
      const std::string name = absl::StrCat("file", i);
      files_[name] = RandomText(i, 300'000 + i);
      ASSERT_NO_FATAL_FAILURE(Put(absl::StrCat(mount_, "/", name), files_[name]));
    }
  }
  // What the status tells of it; null: nothing.
  nlohmann::json Scrub() {
    const std::string path = folder_.Path("scrub.json");
    unlink(path.c_str());
    Abacus({"volume", "status", "home", "--json", path});
    const auto status = nlohmann::json::parse(folder_.Read("scrub.json"), nullptr, false);
    return status.is_object() ? status.value("scrub", nlohmann::json()) : nlohmann::json();
  }
  // Of the last one; -1: there was none.
  int Last(const char* what) {
    const nlohmann::json scrub = Scrub();
    if (!scrub.is_object() || scrub["finished"].is_null()) return -1;
    return scrub["last"].value(what, -1);
  }
  // A byte of a unit of the file's changes wherever it lies in a server's contents of columns.
  static bool Rot(const std::string& directory, const std::string& bytes) {
    constexpr size_t kUnit = 8192;
    bool found = false;
    std::error_code error;
    std::filesystem::recursive_directory_iterator entry(directory, error), end;
    for (; !error && entry != end && !found; entry.increment(error)) {
      if (entry->path().extension() != ".d") continue;
      std::fstream file(entry->path(), std::ios::in | std::ios::out | std::ios::binary);
      const std::string all((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
      for (size_t at = 0; at + 64 < bytes.size() && !found; at += kUnit) {
        const std::string piece = bytes.substr(at, 64);
        for (size_t where = all.find(piece); where != std::string::npos;
             where = all.find(piece, where + 1)) {
          file.clear();
          file.seekp(static_cast<std::streamoff>(where));
          file.put(static_cast<char>(~all[where]));
          found = file.flush().good();
        }
      }
    }
    return found;
  }

  std::string mount_;
};

TEST_F(ScheduledScrubTest, TheFirstServerScrubsWhenItIsTimeAndRepairs) {
  ASSERT_TRUE(Rot(folder_.Path("columns1"), files_["file1"]));
  ASSERT_TRUE(Eventually([&] { return Last("repaired") == 1; }));
  // It was found and repaired once, and the next one finds nothing.
  ASSERT_TRUE(Eventually([&] { return Last("repaired") == 0; }));
  EXPECT_EQ(Last("files"), 2);
  EXPECT_EQ(Last("failed"), 0);
  // It does so beside who uses the files.
  files_["file0"].replace(10'000, 5'000, RandomText(9, 5'000));
  ASSERT_NO_FATAL_FAILURE(Put(mount_ + "/file0", files_["file0"]));
  ExpectAll(mount_);
  const Outcome status = Abacus({"volume", "status", "home"});
  EXPECT_THAT(status.out, HasSubstr("last scrubbed "));
  // What was found is known after a restart, and by whoever asks another server.
  const nlohmann::json before = Scrub();
  const Outcome asked =
      RunAbacus({"volume", "status", "home"}, {.environment = {"ABACUS_SERVER=" + addresses_[2]}});
  EXPECT_THAT(asked.out, HasSubstr("last scrubbed "));
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait().code, 0);
  StartServer(address_);
  ASSERT_TRUE(Eventually([&] { return Scrub().is_object(); }));
  EXPECT_EQ(Scrub()["since"], before["since"]);
  // What a server that is away has of the files is not looked at, and that is said.
  Kill(3);
  ASSERT_TRUE(Eventually([&] { return Last("partial") > 0; }));
}

class SlowScrubTest : public ScheduledScrubTest {
 protected:
  std::string ServerConfig() const override {
    return "[scrub]\nevery = \"500ms\"\nrate = \"4 KiB\"\n";  // a file takes minutes
  }
};

TEST_F(SlowScrubTest, KeepsNoVolumeFromBeingDeletedNorAServerFromStopping) {
  ASSERT_TRUE(Eventually([&] {
    const nlohmann::json scrub = Scrub();
    return scrub.is_object() && !scrub["begun"].is_null();
  }));
  EXPECT_EQ(Abacus({"umount", mount_}).code, 0);
  EXPECT_EQ(Last("files"), -1) << "it reads faster than it may";
  const Outcome deleted = Abacus({"volume", "delete", "home"});
  EXPECT_EQ(deleted.code, 0) << deleted.out << deleted.err;
  const Outcome again = Abacus({"volume", "create", "home", "--servers", List()});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait().code, 0);
}

TEST_F(RaidEndToEndTest, AVolumeOverServersThatDoNotAnswerIsNotMade) {
  const std::string gone = addresses_[3];
  Kill(3);
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  EXPECT_EQ(created.code, 2);
  EXPECT_THAT(created.err, HasSubstr(gone));
  EXPECT_EQ(Abacus({"volume", "list"}).out.find("home"), std::string::npos);
}

}  // namespace
}  // namespace abacus::apps::testing
