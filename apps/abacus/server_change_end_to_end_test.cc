// Servers come to a volume, are replaced and drained, as whoever keeps them does it: real processes
// and a real mount.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/testing/raid_end_to_end.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using ::testing::HasSubstr;

class ServerChangeTest : public RaidServersTest {
 protected:
  // 0: all files are whole.
  nlohmann::json Status(int code) {
    return nlohmann::json::parse(StatusText(code), nullptr, false);
  }
  nlohmann::json StatusNow() {
    auto status = nlohmann::json::parse(StatusTextNow(), nullptr, false);
    return status.is_object() ? status : nlohmann::json::object();
  }
  // By the log of groups beside a server's columns: at which place it is in the volume's list of
  // servers (LogFile). -1: it has none.
  int64_t PlaceOfLog(const std::string& server) const {
    constexpr size_t kPlaceAt = 32;
    std::error_code error;
    std::filesystem::directory_iterator entry(folder_.Path(server) + "/volumes", error), end;
    for (; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.rfind(".columns-", 0) != 0 || !entry->is_directory()) continue;
      const std::string log = folder_.Read(absl::StrCat(server, "/volumes/", name, "/atomicity"));
      if (log.size() < kPlaceAt + sizeof(int64_t)) return -1;
      int64_t place = -1;
      std::memcpy(&place, log.data() + kPlaceAt, sizeof place);
      return place;
    }
    return -1;
  }
};

TEST_F(ServerChangeTest, AnotherServerTakesThePlaceOfOneThatIsLostForGood) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  files_["file"] = RandomText(1, 300'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  EXPECT_EQ(PlaceOfLog("data"), 0);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(PlaceOfLog(absl::StrCat("columns", i)), i);
  EXPECT_EQ(PlaceOfLog("spare"), -1);
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
  ASSERT_TRUE(Eventually([&] {
    return !StatusNow().value(nlohmann::json::json_pointer("/servers/2/answers"), true);
  }));
  const Outcome twice = replace(addresses_[2], addresses_[1]);
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("named twice"));
  const Outcome replaced = replace(addresses_[2], spare);
  ASSERT_EQ(replaced.code, 0) << replaced.err;
  EXPECT_EQ(PlaceOfLog("spare"), 2);
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

// The row has changed, and then the first server was gone: nobody was told.
TEST_F(ServerChangeTest, AReplacementThatWasNotAnsweredIsFinishedWhenItIsSaidAgain) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  files_["file"] = RandomText(1, 300'000);
  ASSERT_NO_FATAL_FAILURE(Put(mount + "/file", files_["file"]));
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  Kill(2);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait().code, 0);
  const std::string path = folder_.Path("data") + "/volumes/.servers-home";
  std::string list = folder_.Read("data/volumes/.servers-home");
  ASSERT_NE(list.find(addresses_[2]), std::string::npos);
  list.replace(list.find(addresses_[2]), addresses_[2].size(), spare);
  std::ofstream(path) << list;
  StartServer(address_);

  const auto replace = [&](const std::string& lost) {
    return Abacus({"volume", "replace-server", "home", lost, spare});
  };
  Outcome outcome;
  EXPECT_TRUE(Eventually([&] { return (outcome = replace("127.0.0.1:1")).code == 2; }));
  EXPECT_THAT(outcome.err, HasSubstr("no server of volume")) << "that one never was";
  ASSERT_TRUE(Eventually([&] { return (outcome = replace(addresses_[2])).code == 0; }))
      << outcome.err;
  EXPECT_EQ(ServersTold("columns3"), ServersTold("data"));
  EXPECT_THAT(ServersTold("columns3"), HasSubstr(spare));
  EXPECT_THAT(ServersTold("spare"), HasSubstr(spare));
  EXPECT_THAT(replace(addresses_[2]).err, HasSubstr("no server of volume")) << "all know now";
  ASSERT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  Kill(3);
  ExpectAll(Mount("second", "home"));
}

TEST_F(ServerChangeTest, NewFilesMayBeSpreadOverOneServerMore) {
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

TEST_F(ServerChangeTest, ALostServerIsRebuiltToAnother) {
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
  ASSERT_TRUE(Eventually([&] {
    return !StatusNow().value(nlohmann::json::json_pointer("/servers/2/answers"), true);
  }));
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
TEST_F(ServerChangeTest, AServerThatLivesIsDrainedAndMayBeSwitchedOff) {
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
  EXPECT_THAT(drained.out, HasSubstr(addresses_[2] + " keeps nothing of volume 'home' any more"));
  const nlohmann::json status = Status(0);
  EXPECT_EQ(status["whole"], status["files"]);
  EXPECT_EQ(status.dump().find(addresses_[2]), std::string::npos);
  EXPECT_FALSE(HasColumns(folder_.Path("columns2")));
  const std::string gone = drain(addresses_[2], spare).err;
  EXPECT_THAT(gone, HasSubstr("no server of volume"));
  EXPECT_EQ(gone.find("-,"), std::string::npos) << "its vacant place is no server: " << gone;

  Kill(2);
  ExpectAll(mount);
  Kill(3);
  ExpectAll(Mount("second", "home"));
  ExpectAll(mount);
  EXPECT_THAT(drain(addresses_[3], addresses_[2]).err, HasSubstr("replace-server"));
}

// Where what is left of the drain's work is done by the next one.
TEST_F(ServerChangeTest, ADrainThatWasKilledGoesOnWhenItIsSaidAgain) {
  const Outcome created = Abacus({"volume", "create", "home", "--servers", List()});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = Mount("mount", "home", absl::StrCat("stack=", kRaidStack));
  for (uint32_t i = 0; i < 30; ++i) {
    const std::string name = absl::StrCat("file", i);
    // Enough for a drain that goes on for a while.
    files_[name] = RandomText(i, i % 3 == 0 ? 4'000'000 : 100'000 + i);
    ASSERT_NO_FATAL_FAILURE(Put(mount + "/" + name, files_[name]));
  }
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  const std::vector<std::string> words = {"volume", "drain", "home", addresses_[1], "--to", spare};
  // With files at both.
  const auto moved = [&] {
    // Which columns there are is asked before which files: one that is moved in between is not
    // where it is looked for, and the status says so, with another code.
    nlohmann::json status = StatusNow();
    return status["servers"].size() > kServers ? status["servers"][kServers]["columns"].get<int>()
                                               : 0;
  };
  Command begun(words, {.environment = {"ABACUS_SERVER=" + address_}});
  ASSERT_TRUE(Eventually([&] { return moved() > 3; }));
  begun.Signal(SIGKILL);
  ASSERT_NE(begun.Wait().code, 0) << "it was over before";
  ExpectAll(mount);
  const Outcome again = Abacus(words);
  ASSERT_EQ(again.code, 0) << again.out << again.err;
  EXPECT_EQ(Status(0)["whole"], 30);
  EXPECT_FALSE(HasColumns(folder_.Path("columns1")));
  Kill(1);
  Kill(2);
  ExpectAll(Mount("second", "home"));
}

}  // namespace
}  // namespace abacus::apps::testing
