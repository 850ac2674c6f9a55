// Volumes whose names and inodes are spread over several servers, as their users meet them: real
// processes that are killed and come back, real mounts, and a real etcd where the volume has a map.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/abacus/testing/etcd.h"
#include "apps/abacus/testing/servers_end_to_end.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMirrorStack[] = "cache/mirror(unit=8 KiB)/(isolation/storage)*2";

class ShardsEndToEndTest : public ServersEndToEndTest {
 protected:
  static constexpr size_t kServers = 3;
  // Of a lease, of a server that is taken for dead, and of looking for another one; doubled.
  static constexpr std::chrono::seconds kGap{30};

  ShardsEndToEndTest() : ServersEndToEndTest(kServers) {}

  std::string Servers(size_t count = kServers) const {
    return absl::StrJoin(addresses_.begin(), addresses_.begin() + static_cast<ptrdiff_t>(count),
                         ",");
  }
  Outcome Create(const std::string& shards, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {
        "volume", "create", "home", "--servers", Servers(), "--metadata-shards", shards};
    words.insert(words.end(), more.begin(), more.end());
    return Abacus(words);
  }
  // By all of its servers, whichever of them live.
  std::string MountAll(const std::string& name, const std::string& words) {
    const std::string directory = folder_.Path(name);
    mkdir(directory.c_str(), 0755);
    mounted_.push_back(directory);
    const Outcome mounted = Abacus({"mount", Servers() + "/home", directory, "-o", words});
    EXPECT_EQ(mounted.code, 0) << mounted.err;
    EXPECT_TRUE(IsMounted(directory));
    return directory;
  }
  // Of the last status, as a server tells that is alive.
  nlohmann::json StatusOf(size_t asked) {
    unlink(folder_.Path("status.json").c_str());
    const Outcome outcome =
        At(asked, {"volume", "status", "home", "--json", folder_.Path("status.json")});
    told_ = outcome.out + outcome.err;
    code_ = outcome.code;
    auto all = nlohmann::json::parse(folder_.Read("status.json"), nullptr, false);
    return all.is_object() ? all : nlohmann::json::object();
  }
  bool IsWhole(size_t asked) {
    StatusOf(asked);
    return code_ == 0;
  }
  nlohmann::json ListedHome() {
    const Outcome outcome = Abacus({"volume", "list", "--json", folder_.Path("list.json")});
    told_ = outcome.out + outcome.err;
    const auto all = nlohmann::json::parse(folder_.Read("list.json"), nullptr, false);
    return all.is_object() && all["volumes"].size() == 1 ? all["volumes"][0] : nlohmann::json();
  }

  // The shard that an inode is in; an identifier tells it by its upper 4 bits.
  static uint32_t ShardAt(const std::string& path) {
    struct stat seen = {};
    EXPECT_EQ(lstat(path.c_str(), &seen), 0) << path << ": errno " << errno;
    return static_cast<uint32_t>(uint64_t{seen.st_ino} >> 60);
  }
  static nlink_t LinksOf(const std::string& path) {
    struct stat seen = {};
    EXPECT_EQ(lstat(path.c_str(), &seen), 0) << path << ": errno " << errno;
    return seen.st_nlink;
  }
  static bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }
  // A directory in each of the shards, made in `parent`.
  static std::map<uint32_t, std::string> MakeOneInEach(const std::string& parent, size_t shards) {
    std::map<uint32_t, std::string> made;
    for (int i = 0; i < 100 && made.size() < shards; ++i) {
      const std::string path = absl::StrCat(parent, "/directory", i);
      EXPECT_EQ(mkdir(path.c_str(), 0755), 0) << path << ": errno " << errno;
      made.try_emplace(ShardAt(path), path);
    }
    EXPECT_EQ(made.size(), shards);
    return made;
  }
  static std::string Get(const std::string& path) {
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }
  // What a server's directory has of the volume.
  std::vector<std::string> LeftAt(size_t server) const {
    std::vector<std::string> left;
    std::error_code error;
    std::filesystem::directory_iterator entry(folder_.Path(DataOf(server)) + "/volumes", error),
        end;
    for (; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      // When it was scrubbed is forgotten a while later.
      if (absl::StrContains(name, "home") && !absl::StartsWith(name, ".scrub-")) {
        left.push_back(name);
      }
    }
    return left;
  }
  // The mount's process may end behind it.
  void ExpectDeleted() {
    Outcome deleted;
    EXPECT_TRUE(Eventually([&] {
      deleted = Abacus({"volume", "delete", "home"});
      return deleted.code == 0;
    })) << deleted.err;
    for (size_t i = 0; i < kServers; ++i) EXPECT_THAT(LeftAt(i), ::testing::IsEmpty()) << i;
  }

  int code_ = -1;  // of the last status
};

class MappedShardsTest : public ShardsEndToEndTest {
 protected:
  void SetUp() override {
    if (!Etcd::IsInstalled()) GTEST_SKIP() << "no etcd (Debian's etcd-server)";
    ShardsEndToEndTest::SetUp();
    if (IsSkipped()) return;
    etcd_ = std::make_unique<Etcd>();
    const Outcome created = Create("3", {"--map", etcd_->url(), "--metadata-copies", "2"});
    ASSERT_EQ(created.code, 0) << created.err;
    ASSERT_TRUE(Eventually([&] { return IsWhole(0); })) << told_;
    mount_ = MountAll("mount", absl::StrCat("stack=", kMirrorStack));
    directories_ = MakeOneInEach(mount_, kServers);
  }
  std::string In(uint32_t shard, const std::string& name) {
    return absl::StrCat(directories_[shard], "/", name);
  }

  std::unique_ptr<Etcd> etcd_;
  std::map<uint32_t, std::string> directories_;  // one in each shard
};

TEST_F(MappedShardsTest, NamesLeadFromShardToShardAndAllIsOneVolume) {
  for (uint32_t shard = 0; shard < kServers; ++shard) {
    ASSERT_EQ(TryPut(In(shard, "file"), absl::StrCat("of shard ", shard)), 0);
    EXPECT_EQ(ShardAt(In(shard, "file")), shard) << "a file is where its directory is";
  }
  // Each shard has its directories and files, beside its root and its records.
  nlohmann::json listed = ListedHome();
  ASSERT_TRUE(listed.is_object()) << told_;
  EXPECT_EQ(listed["shards"], 3);
  ASSERT_EQ(listed["by_shard"].size(), kServers) << told_;
  for (const nlohmann::json& shard : listed["by_shard"]) EXPECT_GE(shard["objects"], 4) << told_;
  EXPECT_THAT(told_, Not(HasSubstr("home~"))) << "one row for all";
  nlohmann::json status = StatusOf(1);
  EXPECT_EQ(code_, 0) << told_;
  ASSERT_EQ(status["shards"].size(), kServers);
  for (size_t i = 0; i < kServers; ++i) {
    EXPECT_EQ(status["shards"][i]["map"]["primary"], addresses_[i]) << "each has another one first";
  }

  // A file: to another shard, under a second name in a third one, and gone.
  ASSERT_EQ(rename(In(1, "file").c_str(), In(2, "moved").c_str()), 0) << errno;
  EXPECT_FALSE(IsThere(In(1, "file")));
  EXPECT_EQ(Get(In(2, "moved")), "of shard 1");
  EXPECT_EQ(ShardAt(In(2, "moved")), 1u) << "the inode stays";
  ASSERT_EQ(link(In(2, "moved").c_str(), In(0, "hard").c_str()), 0) << errno;
  EXPECT_EQ(LinksOf(In(0, "hard")), 2u);
  // One that is replaced by one of another shard.
  ASSERT_EQ(rename(In(2, "moved").c_str(), In(2, "file").c_str()), 0) << errno;
  EXPECT_EQ(Get(In(2, "file")), "of shard 1");
  ASSERT_EQ(unlink(In(2, "file").c_str()), 0) << errno;
  EXPECT_EQ(LinksOf(In(0, "hard")), 1u);
  EXPECT_EQ(Get(In(0, "hard")), "of shard 1");
  // A directory, with what is in it.
  ASSERT_EQ(mkdir(In(1, "sub").c_str(), 0755), 0) << errno;
  ASSERT_EQ(TryPut(In(1, "sub/inside"), "inside"), 0);
  ASSERT_EQ(rename(In(1, "sub").c_str(), In(2, "sub").c_str()), 0) << errno;
  EXPECT_EQ(Get(In(2, "sub/inside")), "inside");
  EXPECT_EQ(ShardAt(In(2, "sub/..")), 2u);
  EXPECT_NE(rmdir(directories_[2].c_str()), 0) << "it is not empty";

  // Where a directory says so, too, those that are made in it are spread.
  ASSERT_EQ(mkdir(In(0, "tree").c_str(), 0755), 0) << errno;
  ASSERT_EQ(setxattr(In(0, "tree").c_str(), "user.abacus.spread", "yes", 3, 0), 0) << errno;
  for (const auto& [shard, path] : MakeOneInEach(In(0, "tree"), kServers)) {
    ASSERT_EQ(TryPut(path + "/file", "text"), 0);
    ASSERT_EQ(link((path + "/file").c_str(), absl::StrCat(In(0, "tree"), "/", shard).c_str()), 0);
  }
  const std::string second = MountAll("second", "rw");
  EXPECT_EQ(Run("rm -r " + second + In(0, "tree").substr(mount_.size())), 0);
  EXPECT_FALSE(IsThere(In(0, "tree")));

  const Outcome checked = Abacus({"fsck", "--volume", "home", address_});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_EQ(Abacus({"umount", second}).code, 0);
  EXPECT_EQ(Abacus({"umount", mount_}).code, 0);
  ExpectDeleted();
}

TEST_F(MappedShardsTest, AServerIsKilledAndAllIsServedAndItComesBack) {
  for (uint32_t shard = 0; shard < kServers; ++shard) {
    ASSERT_EQ(TryPut(In(shard, "file"), std::string(50'000, static_cast<char>('a' + shard))), 0);
  }
  // It answers for shard 1, and keeps the copy of shard 0.
  End(1, SIGKILL);
  const auto killed = steady_clock::now();
  // What was under way when it died may fail once.
  for (uint32_t shard = 0; shard < kServers; ++shard) {
    EXPECT_TRUE(Eventually([&] { return TryPut(In(shard, "late"), "late") == 0; })) << shard;
    EXPECT_EQ(Get(In(shard, "file")).size(), 50'000u) << shard;
  }
  int tries = 0;
  EXPECT_TRUE(Eventually([&] {
    const std::string from = In(2, absl::StrCat("try", ++tries)), to = In(1, "renamed");
    return TryPut(from, "renamed") == 0 && rename(from.c_str(), to.c_str()) == 0;
  }));
  EXPECT_EQ(Get(In(1, "renamed")), "renamed");
  const std::chrono::duration<double> took = steady_clock::now() - killed;
  printf("a server killed: after %.1f s all shards were served\n", took.count());
  EXPECT_LT(took, kGap);
  ASSERT_EQ(rename(In(0, "file").c_str(), In(1, "file0").c_str()), 0) << errno;
  nlohmann::json status = StatusOf(0);
  EXPECT_EQ(code_, 1) << told_;
  ASSERT_EQ(status["shards"].size(), kServers) << told_;
  EXPECT_EQ(status["shards"][1]["map"]["primary"], addresses_[2]) << told_;
  EXPECT_EQ(status["shards"][0]["map"]["primary"], addresses_[0]) << told_;

  Restart(1);
  Outcome rebuilt;
  EXPECT_TRUE(Eventually([&] {
    rebuilt = Abacus({"rebuild", "home"});
    return rebuilt.code == 0;
  })) << rebuilt.out
      << rebuilt.err;
  ASSERT_TRUE(Eventually([&] { return IsWhole(0); })) << told_;
  const Outcome scrubbed = Abacus({"scrub", "home", "--json", folder_.Path("scrub.json")});
  EXPECT_EQ(scrubbed.code, 0) << scrubbed.out << scrubbed.err;
  EXPECT_THAT(scrubbed.out, HasSubstr("shard 2 of volume 'home'"));
  const auto told = nlohmann::json::parse(folder_.Read("scrub.json"), nullptr, false);
  ASSERT_TRUE(told.is_object() && told.contains("shards")) << scrubbed.out;
  ASSERT_EQ(told["shards"].size(), kServers) << told;
  for (size_t i = 0; i < kServers; ++i) {
    EXPECT_EQ(told["shards"][i]["shard"], i);
    EXPECT_GT(told["shards"][i]["files"], 0) << told;
    EXPECT_GE(told["shards"][i]["objects"], 3) << "its root, a directory and a file: " << told;
  }

  // And another one, which shard 1 is answered for by now.
  End(2, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return TryPut(In(1, "later"), "later") == 0; }));
  EXPECT_TRUE(Eventually([&] { return TryPut(In(2, "later"), "later") == 0; }));
  EXPECT_EQ(Get(In(1, "file0")), std::string(50'000, 'a'));
  EXPECT_EQ(Get(In(1, "renamed")), "renamed");
  Restart(2);
  EXPECT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  ASSERT_TRUE(Eventually([&] { return IsWhole(0); })) << told_;
  const Outcome checked = Abacus({"fsck", "--volume", "home", address_});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
}

TEST_F(MappedShardsTest, ServersAreReplacedAndDrainedForAllShards) {
  for (uint32_t shard = 0; shard < kServers; ++shard) {
    ASSERT_EQ(TryPut(In(shard, "file"), absl::StrCat("of shard ", shard)), 0);
  }
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  const Outcome drained = Abacus({"volume", "drain", "home", addresses_[1], "--to", spare});
  ASSERT_EQ(drained.code, 0) << drained.out << drained.err;
  EXPECT_THAT(drained.out, HasSubstr("shard 2 of volume 'home'"));
  EXPECT_THAT(drained.out, HasSubstr(addresses_[1] + " keeps nothing of volume 'home' any more"));
  // A server reads the map at its own times, and may have read it just before.
  EXPECT_TRUE(Eventually([&] { return IsWhole(0) && !absl::StrContains(told_, addresses_[1]); }))
      << told_;
  Outcome again;
  EXPECT_TRUE(Eventually([&] {
    again = Abacus({"volume", "drain", "home", addresses_[1], "--to", spare});
    return again.code == 2;
  })) << again.out
      << again.err;
  EXPECT_THAT(again.err, HasSubstr("is no server of volume 'home'"));
  End(1, SIGKILL);
  for (uint32_t shard = 0; shard < kServers; ++shard) {
    EXPECT_TRUE(Eventually([&] {
      return Get(In(shard, "file")) == absl::StrCat("of shard ", shard);
    })) << shard;
  }
  EXPECT_TRUE(Eventually([&] { return TryPut(In(1, "late"), "late") == 0; }));
}

class PlainShardsTest : public ShardsEndToEndTest {};

TEST_F(PlainShardsTest, FilesOfAllShardsHaveTheStackThatTheVolumeWasMadeWith) {
  const Outcome few = Create("3", {"--stack", "cache/raid5/(isolation/storage)*4"});
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err, HasSubstr("4 columns"));
  for (size_t i = 0; i < kServers; ++i) EXPECT_THAT(LeftAt(i), ::testing::IsEmpty()) << i;
  const Outcome created = Create("3", {"--stack", kMirrorStack});
  ASSERT_EQ(created.code, 0) << created.err;
  EXPECT_EQ(ListedHome()["stack"], kMirrorStack) << told_;
  const nlohmann::json status = StatusOf(0);
  ASSERT_TRUE(status.contains("shards")) << told_;
  ASSERT_EQ(status["shards"].size(), kServers) << told_;
  for (const nlohmann::json& shard : status["shards"]) {
    EXPECT_EQ(shard.value("stack", ""), kMirrorStack) << told_;
  }
  const std::string mount = MountAll("mount", "rw");
  for (const auto& [shard, path] : MakeOneInEach(mount, kServers)) {
    ASSERT_EQ(TryPut(path + "/file", "text"), 0) << shard;
    EXPECT_THAT(Abacus({"stack", path + "/file"}).out,
                ::testing::AllOf(HasSubstr(kMirrorStack), HasSubstr("column 1: object")))
        << shard;
  }
  EXPECT_EQ(Abacus({"umount", mount}).code, 0);
  ExpectDeleted();
}

TEST_F(PlainShardsTest, WithoutAMapAShardIsAwayWithItsServerAndTheOthersAreNot) {
  const Outcome created = Create("2");
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string mount = MountAll("mount", "rw");
  auto directories = MakeOneInEach(mount, 2);
  const std::string here = directories[0], there = directories[1];
  ASSERT_EQ(TryPut(here + "/file", "one"), 0);
  ASSERT_EQ(rename((here + "/file").c_str(), (there + "/file").c_str()), 0) << errno;
  // Without a mount it is the same volume, whichever of its servers is asked.
  const Command::Options asked{.environment = {"ABACUS_SERVER=" + addresses_[2]}};
  const std::string name = "home:" + there.substr(mount.size() + 1) + "/file";
  EXPECT_EQ(RunAbacus({"get", name}, asked).out, "one");

  // It alone has the names of a shard: it leaves none of them.
  const Outcome kept = Abacus({"volume", "drain", "home", addresses_[1], "--to", addresses_[2]});
  EXPECT_EQ(kept.code, 2);
  EXPECT_THAT(kept.err, HasSubstr(absl::StrCat("shard 1 of volume 'home': server ", addresses_[1],
                                               " answers for shard 1 of volume 'home'")));
  EXPECT_THAT(kept.out, Not(HasSubstr("files moved")));
  const nlohmann::json status = StatusOf(0);
  ASSERT_TRUE(status.contains("shards")) << told_;
  ASSERT_EQ(status["shards"].size(), 2u) << told_;
  for (const nlohmann::json& shard : status["shards"]) {
    EXPECT_EQ(shard["servers"].size(), kServers) << told_;
  }
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"rebuild", "home", "--to", addresses_[2]},
                                             {"volume", "add-server", "home", addresses_[2]}}) {
    const Outcome known = Abacus(words);
    EXPECT_EQ(known.code, 2) << words[0];
    EXPECT_THAT(known.err, HasSubstr(addresses_[2])) << words[0];
  }

  End(1, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return TryPut(there + "/late", "late") != 0; }));
  EXPECT_EQ(TryPut(here + "/late", "late"), 0);
  EXPECT_EQ(Get(here + "/late"), "late");
  nlohmann::json listed = ListedHome();
  EXPECT_EQ(listed["by_shard"].size(), 1u) << told_;
  EXPECT_THAT(told_, HasSubstr("1 of 2"));
  // What its directory has of the volume is nothing to be mounted, and living.
  for (const char* words : {"rw", "volume=home"}) {
    const Outcome local =
        Abacus({"mount", "--local", folder_.Path(DataOf(1)), folder_.Path("none"), "-o", words});
    EXPECT_EQ(local.code, 2) << words;
    EXPECT_THAT(local.err, HasSubstr("some shards of volume 'home' only")) << words;
    EXPECT_THAT(local.err, Not(HasSubstr("delete"))) << words;
  }
  Restart(1);
  EXPECT_TRUE(Eventually([&] { return TryPut(there + "/late", "late") == 0; }));
  EXPECT_EQ(Get(there + "/file"), "one");
  ASSERT_EQ(rename((there + "/file").c_str(), (here + "/file").c_str()), 0) << errno;
  const Outcome checked = Abacus({"fsck", "--volume", "home", address_});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_EQ(Abacus({"umount", mount}).code, 0);
  ExpectDeleted();
}

TEST_F(PlainShardsTest, WhatCannotBeIsToldAndNothingIsMade) {
  for (const char* shards : {"0", "1", "4", "17"}) {
    const Outcome refused = Create(shards);
    EXPECT_EQ(refused.code, 2) << shards;
    EXPECT_THAT(refused.err, HasSubstr("--metadata-shards takes 2 to 16")) << shards;
  }
  const Outcome alone = Abacus({"volume", "create", "home", "--metadata-shards", "2"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--metadata-shards goes with --servers"));
  const Outcome away = Abacus({"volume", "create", "home", "--metadata-shards", "3", "--servers",
                               absl::StrCat(Servers(2), ",127.0.0.1:1")});
  EXPECT_EQ(away.code, 2);
  EXPECT_THAT(away.err, HasSubstr("127.0.0.1:1"));
  const Outcome map = Create("3", {"--map", "zookeeper://127.0.0.1:1"});
  EXPECT_EQ(map.code, 2);
  EXPECT_THAT(map.err, HasSubstr("etcd://HOST:PORT"));
  for (size_t i = 0; i < kServers; ++i) EXPECT_THAT(LeftAt(i), ::testing::IsEmpty()) << i;

  ASSERT_EQ(Create("2").code, 0);
  EXPECT_THAT(Create("2").err, HasSubstr("there is a volume 'home'"));
  EXPECT_THAT(Create("3").err, HasSubstr("there is a volume 'home'"));
  // A shard is none of the volumes that people name.
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"volume", "create", "home~2"},
                                             {"volume", "delete", "home~1"},
                                             {"volume", "status", "home~1"},
                                             {"mount", address_ + "/home~1", folder_.Path("none")},
                                             {"get", "home~1:file"}}) {
    const Outcome refused = Abacus(words);
    EXPECT_EQ(refused.code, 2) << words[1];
    EXPECT_THAT(refused.err, HasSubstr("'~' is not for names")) << words[1];
  }
  EXPECT_THAT(Abacus({"volume", "delete", "home~1"}).err, HasSubstr("with the others: home"));
}

TEST_F(PlainShardsTest, WhatABrokenOffCreationLeftIsToldAndRemoved) {
  ASSERT_EQ(Create("2").code, 0);
  // As where it ended before its first shard, which is made last.
  End(0, SIGTERM);
  // Where nobody knows yet whether it did, nothing is removed.
  const Outcome kept = At(1, {"volume", "delete", "home"});
  EXPECT_EQ(kept.code, 2);
  EXPECT_THAT(kept.err, HasSubstr(addresses_[0] + " does not answer"));
  EXPECT_THAT(LeftAt(1), ::testing::Contains("home~1"));
  // The columns and the list are there when the directory comes to be.
  ASSERT_GT(std::filesystem::remove_all(folder_.Path(DataOf(0)) + "/volumes/home"), 0u);
  Restart(0);
  Outcome told;
  for (const char* shards : {"2", "3"}) {
    ASSERT_TRUE(Eventually([&] {
      told = Create(shards);
      return told.err.find("abacus volume delete home") != std::string::npos;
    })) << told.err;
    EXPECT_EQ(told.code, 2);
  }
  EXPECT_THAT(Abacus({"volume", "status", "home"}).err,
              HasSubstr("there is no volume 'home', but"));
  // The other server may not have met the one that was started again yet.
  ExpectDeleted();
  const Outcome nothing = Abacus({"volume", "delete", "home"});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("there is no volume 'home'"));
  const Outcome created = Create("3");
  EXPECT_EQ(created.code, 0) << created.err;
  EXPECT_EQ(ListedHome()["by_shard"].size(), 3u) << told_;
}

TEST_F(PlainShardsTest, WhatAKilledDeletionLeftIsToldAndRemoved) {
  ASSERT_EQ(Create("2").code, 0);
  // As where each shard's server was killed when it had removed names and inodes only.
  for (size_t i = 0; i < 2; ++i) {
    End(i, SIGTERM);
    const std::string shard = i == 0 ? "home" : "home~1";
    const std::string path = absl::StrCat(folder_.Path(DataOf(i)), "/volumes/", shard);
    ASSERT_GT(std::filesystem::remove_all(path), 0u);
  }
  for (size_t i = 0; i < 2; ++i) Restart(i);
  Outcome told;
  ASSERT_TRUE(Eventually([&] {
    told = Abacus({"volume", "create", "home"});
    return absl::StrContains(told.err, "abacus volume delete home");
  })) << told.err;
  // They may not have met each other again yet.
  ExpectDeleted();
  const Outcome created = Create("3");
  EXPECT_EQ(created.code, 0) << created.err;
  EXPECT_EQ(ListedHome()["by_shard"].size(), 3u) << told_;
}

TEST_F(PlainShardsTest, WhatNoListTellsOfIsNamedWhereItIsAndIsInNobodysWayThen) {
  ASSERT_EQ(Create("2").code, 0);
  // As where its server's disk is a new one.
  End(1, SIGTERM);
  const std::string volumes = folder_.Path(DataOf(1)) + "/volumes";
  ASSERT_GT(std::filesystem::remove_all(volumes + "/home~1"), 0u);
  ASSERT_TRUE(std::filesystem::remove(volumes + "/.servers-home~1"));
  Restart(1);
  Outcome named;
  ASSERT_TRUE(Eventually([&] {
    named = Abacus({"volume", "delete", "home"});
    if (absl::StrContains(named.err, ".servers-home")) return false;  // they have not met yet
    return std::all_of(addresses_.begin(), addresses_.end(), [&](const std::string& address) {
      return absl::StrContains(named.err, absl::StrCat("at ", address, " .columns-home~1-"));
    });
  })) << named.err;
  EXPECT_EQ(named.code, 2);
  for (size_t i = 0; i < kServers; ++i) {
    EXPECT_THAT(LeftAt(i), ::testing::AllOf(Not(::testing::IsEmpty()),
                                            ::testing::Each(HasSubstr(".columns-home~1-"))))
        << i;
  }
  EXPECT_THAT(Abacus({"volume", "create", "home"}).err, HasSubstr("abacus volume delete home"));
  for (size_t i = 0; i < kServers; ++i) {
    for (const std::string& left : LeftAt(i)) {
      std::filesystem::remove_all(absl::StrCat(folder_.Path(DataOf(i)), "/volumes/", left));
    }
  }
  EXPECT_THAT(Abacus({"volume", "delete", "home"}).err, HasSubstr("there is no volume 'home'"));
  EXPECT_EQ(Create("3").code, 0);
  ExpectDeleted();
}

TEST_F(PlainShardsTest, AServerThatIsGoneForGoodIsInNobodysWayForEver) {
  ASSERT_EQ(Create("2").code, 0);
  End(2, SIGKILL);
  const Outcome told = Abacus({"volume", "delete", "home"});
  EXPECT_EQ(told.code, 2);
  EXPECT_THAT(told.err, ::testing::AllOf(HasSubstr("remove .servers-home;"),
                                         HasSubstr("remove .servers-home~1;")));
  EXPECT_THAT(LeftAt(0), ::testing::ElementsAre(".servers-home"));
  EXPECT_THAT(LeftAt(1), ::testing::ElementsAre(".servers-home~1"));
  // Said again it is told again.
  const Outcome again = Abacus({"volume", "delete", "home"});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("remove .servers-home;"));
  for (size_t i = 0; i < 2; ++i) {
    const std::string list = i == 0 ? "/.servers-home" : "/.servers-home~1";
    ASSERT_TRUE(std::filesystem::remove(folder_.Path(DataOf(i)) + "/volumes" + list));
  }
  Outcome made;
  EXPECT_TRUE(Eventually([&] {
    made = Abacus({"volume", "create", "home", "--servers", Servers(2)});
    return made.code == 0;
  })) << made.err;
}

}  // namespace
}  // namespace abacus::apps::testing
