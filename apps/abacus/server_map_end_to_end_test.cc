// Volumes over three servers, one of which keeps the map: each of them is killed in turn, and the
// map's is stopped and loses its file, while a mount works.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/abacus/testing/servers_end_to_end.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using ::testing::HasSubstr;

constexpr char kTwoCopies[] = "cache/mirror(unit=8 KiB)/(isolation/storage)*2";

class ServerMapTest : public ServersEndToEndTest {
 protected:
  // The first keeps the map, and so the two others the names and inodes.
  static constexpr size_t kServers = 3;

  ServerMapTest() : ServersEndToEndTest(kServers) {}

  std::string Url() const { return "abacus://" + addresses_[0]; }
  Outcome Create(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"volume", "create", "home"};
    words.insert(words.end(), more.begin(), more.end());
    return At(0, words);
  }
  // With its mount, and two copies of everything.
  void CreateAll() {
    const Outcome created = Create({"--servers", absl::StrJoin(addresses_, ","), "--map", Url(),
                                    "--metadata-copies", "2", "--stack", kTwoCopies});
    ASSERT_EQ(created.code, 0) << created.err;
    ASSERT_TRUE(Eventually([&] { return IsWhole(1); })) << told_;
    mount_ = MountAll("mount");
  }
  // By all of its servers, whichever of them live.
  std::string MountAll(const std::string& name) {
    const std::string directory = folder_.Path(name);
    mkdir(directory.c_str(), 0755);
    mounted_.push_back(directory);
    const Outcome mounted =
        At(1, {"mount", absl::StrJoin(addresses_, ",") + "/home", directory, "-o", "rw"});
    EXPECT_EQ(mounted.code, 0) << mounted.err;
    return directory;
  }
  nlohmann::json Map(size_t asked) {
    unlink(folder_.Path("status.json").c_str());
    const Outcome outcome =
        At(asked, {"volume", "status", "home", "--json", folder_.Path("status.json")});
    told_ = outcome.out + outcome.err;
    const auto all = nlohmann::json::parse(folder_.Read("status.json"), nullptr, false);
    return all.is_object() && all.contains("map") ? all["map"] : nlohmann::json::object();
  }
  // The map answers, and both copies of names and inodes are current.
  bool IsWhole(size_t asked) {
    const nlohmann::json map = Map(asked);
    size_t current = 0;
    for (const auto& copy : map.value("copies", nlohmann::json::array())) {
      current += copy["current"].get<bool>() ? 1 : 0;
    }
    return map.value("reachable", false) && map.value("has_lease", false) && current == 2;
  }
  // The lease in the map is over by now, and the volume is served all the same.
  bool GoesOnByPromise(size_t asked) {
    const nlohmann::json map = Map(asked);
    return !map.value("reachable", true) && !map.value("has_lease", true) &&
           map.value("serves", false);
  }

  void Rename(const std::string& from, const std::string& to) {
    EXPECT_EQ(rename((mount_ + "/" + from).c_str(), (mount_ + "/" + to).c_str()), 0) << errno;
    files_[to] = std::move(files_[from]);
    files_.erase(from);
  }
  // Makes, changes and renames files, and reads them all, also as a client that is new.
  void Work(const std::string& prefix, size_t asked) {
    for (int i = 0; i < 3; ++i) Put(absl::StrCat(prefix, i), 50'000 + i);
    Put("file0", 60'000);
    Rename(prefix + "1", prefix + "renamed");
    ExpectAll(mount_);
    ExpectAll(MountAll("mount-" + prefix));
    EXPECT_TRUE(At(asked, {"get", "home:" + prefix + "0"}).out == files_[prefix + "0"]);
    EXPECT_THAT(At(asked, {"ls", "home:"}).out, HasSubstr(prefix + "renamed"));
    const std::string in = folder_.Write("in", prefix);
    const Outcome stored = At(asked, {"put", "home:" + prefix + "stored", in});
    EXPECT_EQ(stored.code, 0) << stored.err;
    files_[prefix + "stored"] = prefix;
  }
};

TEST_F(ServerMapTest, TheMapsServerMayDieAndWhenItIsBackTheOneThatAnswersForTheVolume) {
  ASSERT_NO_FATAL_FAILURE(CreateAll());
  Put("file0", 100'000);
  const nlohmann::json before = Map(1);
  EXPECT_EQ(before["kind"], "server");
  EXPECT_EQ(before["address"], Url());
  EXPECT_EQ(before["primary"], addresses_[1]) << "the first that does not keep the map";
  EXPECT_EQ(before.dump().find("\"server\":\"" + addresses_[0] + "\""), std::string::npos)
      << before;

  Kill(0);
  ASSERT_TRUE(Eventually([&] { return GoesOnByPromise(2); })) << told_;
  EXPECT_THAT(told_, HasSubstr("the map's server " + addresses_[0] + " does not answer"));
  EXPECT_THAT(told_, HasSubstr("reads and writes go on"));
  Work("without", 2);

  Restart(0);
  ASSERT_TRUE(Eventually([&] { return IsWhole(1); })) << told_;
  EXPECT_EQ(Map(1)["epoch"], before["epoch"]) << "nobody has taken over meanwhile";
  ASSERT_TRUE(Eventually([&] { return At(1, {"rebuild", "home"}).code == 0; }));

  for (const size_t dies : {size_t{1}, size_t{2}}) {
    const size_t takes = 3 - dies;
    Kill(dies);
    ASSERT_TRUE(Eventually([&] {
      return Map(takes).value("primary", "") == addresses_[takes] &&
             TryPut(mount_ + "/taken", "over") == 0;
    })) << told_;
    files_["taken"] = "over";
    Work(absl::StrCat("after", dies, "-"), takes);
    Restart(dies);
    ASSERT_TRUE(Eventually([&] { return IsWhole(takes); })) << told_;
    EXPECT_EQ(Map(takes)["primary"], addresses_[takes]) << "who comes back takes nothing away";
    ASSERT_TRUE(Eventually([&] { return At(takes, {"rebuild", "home"}).code == 0; }));
  }
  EXPECT_EQ(Map(1)["epoch"].get<int>(), before["epoch"].get<int>() + 2);
}

TEST_F(ServerMapTest, AMapsServerThatStandsStillIsNotWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(CreateAll());
  Put("file0", 100'000);
  servers_[0]->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return GoesOnByPromise(1); })) << told_;
  Work("stopped", 1);
  // What would change the map says that it cannot; it may be done when the map answers.
  std::string more;
  const auto spare = BeginServer("spare", "127.0.0.1:0", {}, &more);
  const Outcome refused = At(1, {"volume", "add-server", "home", more});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("map cannot be changed now"));
  // The others take it for dead by now (runtime/node/membership.h): it is to be started again.
  Kill(0);
  Restart(0);
  ASSERT_TRUE(Eventually([&] { return IsWhole(1); })) << told_;
  ExpectAll(mount_);
}

TEST_F(ServerMapTest, AMapThatWasLostGetsItsRowBackAndAServerMayDieThen) {
  ASSERT_NO_FATAL_FAILURE(CreateAll());
  Put("file0", 100'000);
  Kill(0);
  ASSERT_GT(std::filesystem::remove_all(folder_.Path(DataOf(0)) + "/volumes/.kept-maps"), 0u);
  Restart(0);
  ASSERT_TRUE(Eventually([&] {
    Map(1);
    return told_.find("abacus volume restore-map home") != std::string::npos;
  })) << told_;
  Put("file1", 100'000);
  Outcome restored;
  ASSERT_TRUE(Eventually([&] {
    restored = At(2, {"volume", "restore-map", "home"});
    return restored.code == 0;
  })) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr("the map at " + Url() + " has a row"));
  EXPECT_THAT(restored.out, HasSubstr(addresses_[1] + " is to answer for it"));
  ASSERT_TRUE(Eventually([&] { return IsWhole(1); })) << told_;
  EXPECT_THAT(At(1, {"volume", "restore-map", "home"}).err, HasSubstr("has a row of volume"));
  Kill(1);
  ASSERT_TRUE(Eventually([&] { return Map(2).value("primary", "") == addresses_[2]; })) << told_;
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/file2", "text") == 0; })) << told_;
  files_["file2"] = "text";
  ExpectAll(mount_);
}

// As where a deletion has removed it, and was not told so.
TEST_F(ServerMapTest, AVolumeWhoseRowIsGoneCanBeDeleted) {
  const std::vector<std::string> words = {
      "--servers", absl::StrJoin(addresses_, ","), "--map", Url(), "--metadata-copies", "2"};
  const Outcome created = Create(words);
  ASSERT_EQ(created.code, 0) << created.err;
  ASSERT_TRUE(Eventually([&] { return IsWhole(1); })) << told_;
  Kill(0);
  ASSERT_GT(std::filesystem::remove_all(folder_.Path(DataOf(0)) + "/volumes/.kept-maps"), 0u);
  Restart(0);
  ASSERT_TRUE(Eventually([&] {
    Map(1);
    return told_.find("abacus volume restore-map home") != std::string::npos;
  })) << told_;
  const Outcome deleted = At(1, {"volume", "delete", "home"});
  EXPECT_EQ(deleted.code, 0) << deleted.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.Path(DataOf(2)) + "/volumes/home"));
  const Outcome again = Create(words);
  EXPECT_EQ(again.code, 0) << again.err;
}

// A server in the place of a lost copy keeps its columns, and another one the names and inodes.
TEST_F(ServerMapTest, ACopyThatIsLostIsReplacedWithTwoNewServers) {
  ASSERT_NO_FATAL_FAILURE(CreateAll());
  Put("file0", 100'000);
  std::string added, put;
  const auto first = BeginServer("first", "127.0.0.1:0", {}, &added);
  const auto second = BeginServer("second", "127.0.0.1:0", {}, &put);
  Kill(2);
  Outcome outcome;
  const auto replaced_by = [&](const std::string& now) {
    outcome = At(1, {"volume", "replace-server", "home", addresses_[2], now});
    return outcome;
  };
  ASSERT_TRUE(Eventually([&] {
    return replaced_by(added).err.find("two new servers are needed") != std::string::npos;
  })) << outcome.err;
  outcome = At(1, {"volume", "add-server", "home", added});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(replaced_by(added).err, HasSubstr("comes one that is none of them"));
  ASSERT_TRUE(Eventually([&] { return replaced_by(put).code == 0; })) << outcome.err;
  ASSERT_TRUE(Eventually([&] { return IsWhole(1); })) << told_;
  ASSERT_TRUE(Eventually([&] {
    outcome = At(1, {"rebuild", "home"});
    return outcome.code == 0;
  })) << outcome.err;
  ExpectAll(mount_);
}

TEST_F(ServerMapTest, AServerThatKeepsTheMapKeepsItWhenItIsDrained) {
  ASSERT_NO_FATAL_FAILURE(CreateAll());
  for (int i = 0; i < 3; ++i) Put(absl::StrCat("file", i), 50'000);
  std::string more;
  const auto spare = BeginServer("spare", "127.0.0.1:0", {}, &more);
  // Nobody else could keep the names and inodes of one that does.
  const Outcome names = At(1, {"volume", "drain", "home", addresses_[2], "--to", addresses_[0]});
  EXPECT_EQ(names.code, 2);
  EXPECT_THAT(names.err, HasSubstr("or keep its map: add one first"));
  const Outcome drained = At(1, {"volume", "drain", "home", addresses_[0], "--to", more});
  ASSERT_EQ(drained.code, 0) << drained.out << drained.err;
  EXPECT_THAT(drained.out, HasSubstr("any more but its map, which stays there"));
  EXPECT_EQ(Map(1)["address"], Url());
  EXPECT_THAT(told_, HasSubstr(addresses_[0] + " is none of the volume's servers"));
  Kill(1);
  ASSERT_TRUE(Eventually([&] { return Map(2).value("primary", "") == addresses_[2]; })) << told_;
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/late", "text") == 0; })) << told_;
  files_["late"] = "text";
  ExpectAll(mount_);
}

TEST_F(ServerMapTest, WhatCannotBeIsToldAndNothingIsMade) {
  const std::string all = absl::StrJoin(addresses_, ",");
  const Outcome two = Create(
      {"--servers", addresses_[0] + "," + addresses_[1], "--map", Url(), "--metadata-copies", "2"});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("need one server more than"));
  EXPECT_THAT(two.err, HasSubstr(addresses_[0] + ", which keeps its map, keeps none of them"));
  const Outcome scheme = Create({"--servers", all, "--map", "zookeeper://127.0.0.1:1"});
  EXPECT_EQ(scheme.code, 2);
  EXPECT_THAT(scheme.err, HasSubstr("etcd://HOST:PORT[,HOST:PORT...] or abacus://HOST:PORT"));
  const Outcome shards = Create({"--servers", all, "--map", Url(), "--metadata-shards", "3"});
  EXPECT_EQ(shards.code, 2);
  EXPECT_THAT(shards.err, HasSubstr("2 servers of --servers that do not keep the map"));
  const Outcome away = Create({"--servers", all, "--map", "abacus://127.0.0.1:1"});
  EXPECT_EQ(away.code, 2);
  EXPECT_THAT(away.err, HasSubstr("127.0.0.1:1 does not answer"));
  EXPECT_EQ(At(1, {"volume", "list"}).out.find("home"), std::string::npos);

  const Outcome without = Create({"--servers", all});
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_THAT(without.err, HasSubstr("--map abacus://" + addresses_[2] + " --metadata-copies 2"));
  EXPECT_EQ(At(0, {"volume", "delete", "home"}).code, 0);
  // One copy of names and inodes is not at the map's server either, and two will do for it.
  const Outcome one = Create({"--servers", addresses_[0] + "," + addresses_[1], "--map", Url()});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(Map(1)["primary"], addresses_[1]);
  EXPECT_EQ(At(1, {"volume", "delete", "home"}).code, 0);
}

TEST_F(ServerMapTest, ShardsAreAtServersThatDoNotKeepTheMap) {
  const Outcome created =
      Create({"--servers", absl::StrJoin(addresses_, ","), "--map", Url(), "--metadata-copies", "2",
              "--metadata-shards", "2", "--stack", kTwoCopies});
  ASSERT_EQ(created.code, 0) << created.err;
  mount_ = MountAll("mount");
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(mkdir(absl::StrCat(mount_, "/dir", i).c_str(), 0755), 0) << errno;
    Put(absl::StrCat("dir", i, "/file"), 20'000);
  }
  for (const size_t dies : {size_t{0}, size_t{1}}) {
    // Whoever dies next has to have another one.
    ASSERT_TRUE(Eventually([&] {
      const Outcome status = At(2, {"volume", "status", "home"});
      told_ = status.out + status.err;
      return status.code == 0;
    })) << told_;
    Kill(dies);
    ASSERT_TRUE(Eventually(
        [&] { return TryPut(absl::StrCat(mount_, "/dir", dies, "/more"), "text") == 0; }));
    files_[absl::StrCat("dir", dies, "/more")] = "text";
    ASSERT_TRUE(Eventually([&] { return At(2, {"ls", "home:dir0"}).code == 0; }));
    ExpectAll(mount_);
    Restart(dies);
    ASSERT_TRUE(Eventually([&] { return At(2, {"rebuild", "home"}).code == 0; }));
  }
}

}  // namespace
}  // namespace abacus::apps::testing
