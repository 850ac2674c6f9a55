// A volume over several servers, as its users meet it: real processes, a real mount, and servers
// that are killed.

#include "apps/abacus/testing/raid_end_to_end.h"

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
#include "runtime/testing/cluster.h"
#include "runtime/testing/small_disk.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RaidEndToEndTest : public RaidServersTest {
 protected:
  // 0: all files are whole.
  nlohmann::json Status(int code) {
    return nlohmann::json::parse(StatusText(code), nullptr, false);
  }
  nlohmann::json StatusNow() {
    auto status = nlohmann::json::parse(StatusTextNow(), nullptr, false);
    return status.is_object() ? status : nlohmann::json::object();
  }
  // What `abacus rebuild home` or `scrub` says as JSON.
  nlohmann::json Repaired(const std::string& command, Outcome* outcome) {
    const std::string path = folder_.Path("repaired.json");
    unlink(path.c_str());
    *outcome = Abacus({command, "home", "--json", path});
    return nlohmann::json::parse(folder_.Read("repaired.json"), nullptr, false);
  }
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
  EXPECT_EQ(Status(0)["without_columns"]["files"], 0);
  const std::string plain = Mount("plain", "home", "stack=isolation/storage");
  ASSERT_NO_FATAL_FAILURE(Put(plain + "/once", RandomText(4, 10'000)));
  const nlohmann::json once = Status(0)["without_columns"];
  EXPECT_EQ(once["files"], 1);
  EXPECT_GE(once["bytes"], 10'000);
  EXPECT_EQ(once["copies"], 1) << "it is at risk";
  // Any of its servers knows where the volume is.
  const Outcome asked =
      RunAbacus({"volume", "status", "home"}, {.environment = {"ABACUS_SERVER=" + addresses_[2]}});
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("at 1 server alone, and lost with its disk: 1, of "));

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
  Outcome repaired;
  nlohmann::json told;
  ASSERT_TRUE(Eventually([&] {
    told = Repaired("rebuild", &repaired);
    return repaired.code == 0;
  })) << repaired.err;
  ASSERT_TRUE(told.is_object());
  EXPECT_EQ(told["volume"], "home");
  EXPECT_EQ(told["failed"], 0);
  EXPECT_TRUE(told["stripes_rebuilt"].is_number()) << told;
  EXPECT_FALSE(told.contains("shard")) << "it has one only";
  EXPECT_EQ(Status(0)["whole"], 4);
  told = Repaired("scrub", &repaired);
  EXPECT_EQ(repaired.code, 0) << repaired.out << repaired.err;
  ASSERT_TRUE(told.is_object());
  EXPECT_EQ(told["files"], 4);
  EXPECT_GT(told["stripes"], 0);
  EXPECT_EQ(told["damaged"], 0);

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

TEST_F(RaidEndToEndTest, AServerWhoseDiskIsFullIsToldToTheWriterAndLosesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small disk";
  constexpr size_t kFull = 3, kDiskBytes = 24 << 20;
  others_[kFull].reset();
  const runtime::testing::SmallDisk disk(folder_.Path(absl::StrCat("columns", kFull)), kDiskBytes);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  Start(kFull, "127.0.0.1:0");
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  files_["before"] = RandomText(1, 4 << 20);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/before", files_["before"]));
  EXPECT_EQ(TryPut(mount + "/large", RandomText(2, 2 * kDiskBytes + (8 << 20))), ENOSPC);
  ExpectAll(mount);
  EXPECT_EQ(unlink((mount + "/large").c_str()), 0);
  files_["behind"] = RandomText(3, 4 << 20);
  EXPECT_TRUE(Eventually([&] { return TryPut(mount + "/behind", files_["behind"]) == 0; }));
  ExpectAll(mount);
  ExpectAll(Mount("second", "home"));
  EXPECT_EQ(Status(0)["whole"], 2);
  const std::string control = addresses_[kFull];
  Kill(kFull);
  Start(kFull, control);
  EXPECT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  EXPECT_EQ(Status(0)["whole"], 2);
  ExpectAll(mount);
  others_[kFull].reset();  // before its disk goes
}

// The server serves nothing of that volume then, says why, and what it says is the way out.
TEST_F(RaidEndToEndTest, AServerWhoseLogOfGroupsIsDamagedSaysSoAndIsMadeAnew) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  files_["file"] = RandomText(1, 300'000);
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  Kill(2);
  std::string columns;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.Path("columns2") + "/volumes")) {
    if (std::filesystem::exists(entry.path() / "atomicity")) columns = entry.path();
  }
  ASSERT_NE(columns, "");
  {
    std::fstream log(columns + "/atomicity", std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(log << "no log of groups");
  }
  Start(2, addresses_[2]);
  ExpectAll(Mount("second", "home"));
  // The first server has met it again, and asked it.
  EXPECT_TRUE(Eventually([&] {
    const nlohmann::json servers = StatusNow()["servers"];
    const std::string why = servers.size() > 2 ? servers[2].value("why", "") : "";
    return why.find("is damaged") != std::string::npos;
  }));
  EXPECT_EQ(Status(1)["degraded"], 1);
  others_[2]->Signal(SIGTERM);
  EXPECT_THAT(others_[2]->Wait().err,
              AllOf(HasSubstr("the log of groups atomicity in " + columns + " is damaged"),
                    HasSubstr("move that directory away"), HasSubstr("abacus rebuild home")));

  std::filesystem::rename(columns, folder_.Path("away"));
  Start(2, addresses_[2]);
  ASSERT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  EXPECT_EQ(Status(0)["whole"], 1);
  const Outcome scrubbed = Abacus({"scrub", "home"});
  EXPECT_EQ(scrubbed.code, 0) << scrubbed.out << scrubbed.err;
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
  ASSERT_TRUE(Eventually([&] { return StatusNow()["degraded"] == 2; }));
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

// Reads go round a server that stands still.
class StandStillTest : public RaidEndToEndTest {
 protected:
  void ReadRoundEach(const std::string& stack, size_t columns);
};

// A server of `columns` of a file stands still for a while, as one does whose disk does.
void StandStillTest::ReadRoundEach(const std::string& stack, size_t columns) {
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
    ASSERT_TRUE(Eventually([&] { return StatusNow()["whole"] == 1; }));
  }
  printf("200 reads of 4 KiB: the longest %.1f ms; with one server or another stopped %.1f ms\n",
         healthy, worst.count());
  EXPECT_LT(worst * 2, kStill);
  close(fd);
}

TEST_F(StandStillTest, ReadsGoRoundACopyThatStandsStill) {
  ReadRoundEach("mirror(unit=8 KiB)/(isolation/storage)*2", 2);
}
TEST_F(StandStillTest, ReadsGoRoundAColumnThatStandsStill) {
  ReadRoundEach("raid5(unit=8 KiB)/(isolation/storage)*3", 3);
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
  EXPECT_THAT(status.out, AllOf(HasSubstr(addresses_[1] + ": since it was started "),
                                HasSubstr(" damaged blocks were read and 0 damaged tables found")));
  EXPECT_THAT(status.out, Not(HasSubstr(addresses_[2] + ": since")));
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
  Outcome deleted;  // the mount's process leaves the volume a little after the directory is gone
  EXPECT_TRUE(Eventually([&] {
    deleted = Abacus({"volume", "delete", "home"});
    return deleted.code == 0;
  })) << deleted.out
      << deleted.err;
  const Outcome again = Abacus({"volume", "create", "home", "--servers", List()});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait().code, 0);
}

TEST_F(RaidEndToEndTest, FilesOfAVolumeThatIsMadeWithAStackHaveItWhereNobodySaysAnother) {
  const auto create = [&](const std::string& stack) {
    return Abacus({"volume", "create", "home", "--servers", List(), "--stack", stack});
  };
  const Outcome few = create("cache/raid5/(isolation/storage)*5");
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err, AllOf(HasSubstr("5 columns"), HasSubstr("the volume has 4")));
  const Outcome odd = create("cache/nonsense/storage");
  EXPECT_EQ(odd.code, 2);
  EXPECT_THAT(odd.err, HasSubstr("nonsense"));
  EXPECT_THAT(Abacus({"volume", "list"}).out, Not(HasSubstr("home")));

  const Outcome created = create(kRaidStack);
  ASSERT_EQ(created.code, 0) << created.err;
  EXPECT_THAT(created.out, Not(HasSubstr("kept once")));
  EXPECT_THAT(Abacus({"volume", "list"}).out, HasSubstr(kRaidStack));
  EXPECT_THAT(Abacus({"volume", "status", "home"}).out,
              HasSubstr(absl::StrCat("new files have ", kRaidStack, "\n")));
  const std::string mount = Mount("mount", "home");
  files_["mounted"] = RandomText(1, 300'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/mounted", files_["mounted"]));
  files_["stored"] = RandomText(2, 100'000);
  const Outcome stored = Abacus({"put", "home:stored", folder_.Write("source", files_["stored"])});
  ASSERT_EQ(stored.code, 0) << stored.err;
  for (const char* name : {"/mounted", "/stored"}) {
    EXPECT_THAT(Abacus({"stack", mount + name}).out,
                AllOf(HasSubstr(kRaidStack), HasSubstr("column 2: object")))
        << name;
  }
  const std::string other = Mount("other", "home", "stack=isolation/storage");
  ASSERT_NO_FATAL_FAILURE(Put(other + "/plain", "plain"));
  EXPECT_EQ(Abacus({"stack", mount + "/plain"}).out, "isolation/storage\n");
  nlohmann::json status = Status(0);
  EXPECT_EQ(status["whole"], 2);
  EXPECT_EQ(status["stack"], kRaidStack);
  Kill(2);
  ExpectAll(Mount("second", "home"));
  EXPECT_TRUE(Abacus({"get", "home:stored"}).out == files_["stored"]);
}

TEST_F(RaidEndToEndTest, WhoMakesAVolumeWithoutAStackIsToldThatFilesAreKeptOnce) {
  std::string list = addresses_[0];
  for (size_t servers = 2; servers <= kServers; ++servers) {
    absl::StrAppend(&list, ",", addresses_[servers - 1]);
    const std::string name = absl::StrCat("over", servers);
    const std::string example = servers == 2
                                    ? "cache/mirror/(isolation/storage)*2"
                                    : absl::StrCat("cache/raid5/(isolation/storage)*", servers);
    const Outcome plain = Abacus({"volume", "create", name, "--servers", list});
    ASSERT_EQ(plain.code, 0) << plain.err;
    EXPECT_THAT(plain.out, AllOf(HasSubstr("are kept once"),
                                 HasSubstr(absl::StrCat("--stack '", example, "'"))));
    const Outcome taken =
        Abacus({"volume", "create", name + "again", "--servers", list, "--stack", example});
    EXPECT_EQ(taken.code, 0) << taken.err;
    EXPECT_EQ(taken.out, "");
  }
  EXPECT_EQ(Abacus({"volume", "create", "alone"}).out, "");
}

TEST_F(RaidEndToEndTest, WhoDrainsAServerThatTheStackNeedsIsToldSo) {
  const auto drain = [&](const std::string& name) {
    return Abacus({"volume", "drain", name, addresses_[3], "--to", addresses_[2]});
  };
  const std::string whole = absl::StrCat("cache/raid5/(isolation/storage)*", kServers);
  ASSERT_EQ(Abacus({"volume", "create", "full", "--servers", List(), "--stack", whole}).code, 0);
  const Outcome full = drain("full");
  EXPECT_EQ(full.code, 0) << full.err;
  EXPECT_THAT(full.err, AllOf(HasSubstr("volume 'full' is to have 3 servers"), HasSubstr(whole)));
  ASSERT_EQ(Abacus({"volume", "create", "plain", "--servers", List()}).code, 0);
  const Outcome plain = drain("plain");
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_THAT(plain.err, Not(HasSubstr("is to have")));
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
