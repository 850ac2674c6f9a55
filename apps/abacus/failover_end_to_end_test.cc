// Volumes whose metadata has two copies and whose map is in a real etcd: the server that answers
// for them is killed, stopped, and comes back, while a mount works.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/abacus/testing/etcd.h"
#include "apps/abacus/testing/servers_end_to_end.h"
#include "runtime/base/mutex.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr char kSpreadStack[] = "cache/raid5(unit=8 KiB)/(isolation/storage)*3";

class FailoverTest : public ServersEndToEndTest {
 protected:
  // The first two keep names and inodes, all but the first columns.
  static constexpr size_t kServers = 4;
  // Of a lease, of a server that is taken for dead, and of looking for another one; doubled.
  static constexpr std::chrono::seconds kGap{30};

  FailoverTest() : ServersEndToEndTest(kServers) {}

  void SetUp() override {
    if (!Etcd::IsInstalled()) GTEST_SKIP() << "no etcd (Debian's etcd-server)";
    ServersEndToEndTest::SetUp();
    if (IsSkipped()) return;
    etcd_ = std::make_unique<Etcd>();
    const Outcome created =
        Abacus({"volume", "create", "home", "--servers", absl::StrJoin(addresses_, ","), "--map",
                etcd_->url(), "--metadata-copies", "2"});
    ASSERT_EQ(created.code, 0) << created.err;
    ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
    mount_ = MountAll("mount");
  }
  // By all of its servers, whichever of them live.
  std::string MountAll(const std::string& name) {
    const std::string directory = folder_.Path(name);
    mkdir(directory.c_str(), 0755);
    mounted_.push_back(directory);
    const Outcome mounted = Abacus({"mount", absl::StrJoin(addresses_, ",") + "/home", directory,
                                    "-o", absl::StrCat("stack=", kSpreadStack)});
    EXPECT_EQ(mounted.code, 0) << mounted.err;
    return directory;
  }
  // As a server tells that is not `but`.
  nlohmann::json Map(size_t but) {
    unlink(folder_.Path("status.json").c_str());
    const Outcome outcome =
        At(but == 3 ? 2 : 3, {"volume", "status", "home", "--json", folder_.Path("status.json")});
    told_ = outcome.out + outcome.err;
    const auto all = nlohmann::json::parse(folder_.Read("status.json"), nullptr, false);
    return all.is_object() && all.contains("map") ? all["map"] : nlohmann::json::object();
  }
  bool AreCurrent(size_t count) {
    const nlohmann::json map = Map(0);
    size_t current = 0;
    for (const auto& copy : map.value("copies", nlohmann::json::array())) {
      current += copy["current"].get<bool>() ? 1 : 0;
    }
    return map.value("serves", false) && current == count;
  }

  // Bytes of both places for the first page change of each table of a store. Returns of how many.
  static int RotTables(const std::string& store) {
    int tables = 0;
    std::error_code error;
    std::filesystem::recursive_directory_iterator entry(store, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() != ".t") continue;
      std::fstream file(entry->path(), std::ios::in | std::ios::out | std::ios::binary);
      for (const std::streamoff at : {20, 8192 + 20}) file.seekp(at).write("rot", 3);
      tables += file.flush().good() ? 1 : 0;
    }
    return tables;
  }
  // Makes and renames files, one after the other, until `done`; what was acknowledged is in files_
  // then. Returns how long the longest took.
  std::chrono::duration<double> Work(const std::string& prefix, const std::atomic<bool>& done) {
    std::chrono::duration<double> longest{0};
    for (int i = 0; !done; ++i) {
      const auto begin = steady_clock::now();
      const std::string name = absl::StrCat(prefix, i), text = RandomText(1000 + i, 10'000 + i);
      const std::string whole = mount_ + "/" + name;
      const int failed = TryPut(whole + ".new", text);
      const bool renamed = failed == 0 && rename((whole + ".new").c_str(), whole.c_str()) == 0;
      const int directory = renamed ? open(mount_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
      const bool synced = directory >= 0 && fsync(directory) == 0;
      if (synced) {
        files_[name] = text;
      } else {
        ++failures_;
        printf("%s failed: errno %d\n", name.c_str(), failed != 0 ? failed : errno);
      }
      if (directory >= 0) close(directory);
      longest = std::max<std::chrono::duration<double>>(longest, steady_clock::now() - begin);
      ++worked_;
    }
    return longest;
  }

  std::unique_ptr<Etcd> etcd_;
  std::atomic<int> failures_{0}, worked_{0};
};

TEST_F(FailoverTest, TheCopyTakesOverAndThenTheOldPrimaryFromIt) {
  for (int i = 0; i < 3; ++i) Put(absl::StrCat("file", i), 100'000 + i);
  const int kept = open((mount_ + "/file0").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(kept, 0) << errno;
  const nlohmann::json before = Map(3);
  EXPECT_EQ(before["primary"], addresses_[0]);

  for (const size_t dies : {size_t{0}, size_t{1}}) {
    const size_t takes = 1 - dies;
    std::atomic<bool> done{false};
    std::chrono::duration<double> longest{0};
    failures_ = worked_ = 0;
    std::thread worker([&] { longest = Work(absl::StrCat("work", dies, "-"), done); });
    EXPECT_TRUE(Eventually([&] { return worked_ >= 5; }));
    Kill(dies);
    const int then = worked_;
    EXPECT_TRUE(Eventually([&] { return worked_ >= then + 10; }));
    done = true;
    worker.join();
    printf("server %zu killed: the longest of %d files took %.1f s, %d failed\n", dies,
           worked_.load(), longest.count(), failures_.load());
    EXPECT_LT(longest, kGap);
    // Only what was under way when it died may fail.
    EXPECT_LE(failures_, 1);
    ExpectAll(mount_);
    const nlohmann::json after = Map(dies);
    EXPECT_EQ(after["primary"], addresses_[takes]) << told_;
    EXPECT_THAT(told_, HasSubstr("behind, cannot take over"));
    EXPECT_TRUE(Eventually([&] { return Map(dies).value("copy_why", "") != ""; })) << told_;

    // An open file goes on.
    const std::string more = RandomText(77, 5000);
    EXPECT_EQ(pwrite(kept, more.data(), more.size(), 20'000), 5000) << errno;
    // What was lost with the primary is told once.
    if (fsync(kept) != 0) {
      EXPECT_EQ(fsync(kept), 0) << errno;
    }
    files_["file0"].replace(20'000, 5000, more);
    ExpectAll(MountAll(absl::StrCat("second", dies)));

    Restart(dies);
    ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
    EXPECT_EQ(Map(3)["primary"], addresses_[takes]) << "who comes back does not take it away";
    ASSERT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  }
  close(kept);
  EXPECT_EQ(Map(3)["epoch"].get<int>(), before["epoch"].get<int>() + 2);
}

TEST_F(FailoverTest, APrimaryThatIsStoppedForGoodLeavesTheVolumeToItsCopy) {
  Put("a", 50'000);
  servers_[0]->Signal(SIGTERM);
  EXPECT_EQ(servers_[0]->Wait().code, 0);
  EXPECT_TRUE(Eventually([&] { return TryPut(mount_ + "/b", "text") == 0; }));
  EXPECT_EQ(Map(0)["primary"], addresses_[1]) << told_;
  ExpectAll(mount_);
  // By whichever of its servers it is asked for.
  const Command::Options asked{.environment = {"ABACUS_SERVER=" + addresses_[3]}};
  EXPECT_EQ(RunAbacus({"get", "home:a"}, asked).out, files_["a"]);
}

TEST_F(FailoverTest, APrimaryThatLostItsDirectoryLeavesTheVolumeToItsCopyAndIsFilledFromIt) {
  Put("a", 50'000);
  Kill(0);
  ASSERT_GT(std::filesystem::remove_all(folder_.Path("data") + "/volumes/home"), 0u);
  Restart(0);  // before its lease is over
  ASSERT_TRUE(Eventually([&] { return Map(0).value("primary", "") == addresses_[1]; })) << told_;
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/b", "text") == 0; })) << told_;
  files_["b"] = "text";
  ExpectAll(mount_);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
  Kill(1);
  ASSERT_TRUE(Eventually([&] { return Map(1).value("primary", "") == addresses_[0]; })) << told_;
  ExpectAll(MountAll("second"));
}

TEST_F(FailoverTest,
       APrimaryWhoseTablesRottedWhileItWasDownLeavesTheVolumeToItsCopyAndIsFilledFromIt) {
  Put("a", 50'000);
  // What is in its journal comes into tables when it is opened.
  const int epoch = Map(0).value("epoch", 0);
  Kill(0);
  Restart(0);
  ASSERT_TRUE(Eventually([&] { return Map(0).value("epoch", 0) > epoch && AreCurrent(2); }))
      << told_;
  // The first one, unless that took it longer than its lease.
  const size_t rotten = Map(0).value("primary", "") == addresses_[0] ? 0 : 1, other = 1 - rotten;
  Kill(rotten);
  ASSERT_GT(RotTables(folder_.Path(rotten == 0 ? "data" : "server1") + "/volumes/home"), 0);
  Restart(rotten);
  ASSERT_TRUE(Eventually([&] { return Map(rotten).value("primary", "") == addresses_[other]; }))
      << told_;
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/b", "text") == 0; })) << told_;
  files_["b"] = "text";
  ExpectAll(mount_);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
  Kill(other);
  ASSERT_TRUE(Eventually([&] { return Map(other).value("primary", "") == addresses_[rotten]; }))
      << told_;
  ExpectAll(MountAll("second"));
}

TEST_F(FailoverTest, AStoppedPrimaryThatGoesOnChangesNothingAnyMore) {
  Put("a", 50'000);
  servers_[0]->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return Map(0).value("primary", "") == addresses_[1]; })) << told_;
  Put("b", 50'000);
  servers_[0]->Signal(SIGCONT);
  for (int i = 0; i < 20; ++i) Put(absl::StrCat("after", i), 20'000);
  EXPECT_EQ(Map(0)["primary"], addresses_[1]);
  ExpectAll(mount_);
  // The others take it for dead (runtime/node/membership.h): it is to be started again.
  Kill(0);
  Restart(0);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
  EXPECT_EQ(Map(3)["primary"], addresses_[1]);
  Kill(1);
  ASSERT_TRUE(Eventually([&] { return Map(1).value("primary", "") == addresses_[0]; })) << told_;
  ExpectAll(MountAll("second"));
}

TEST_F(FailoverTest, AnotherServerKeepsTheCopyOfOneThatIsLost) {
  Put("a", 50'000);
  std::string spare;
  const auto server = BeginServer("spare", "127.0.0.1:0", {}, &spare);
  const auto replaced = [&] {
    return Abacus({"volume", "replace-server", "home", addresses_[1], spare});
  };
  EXPECT_THAT(replaced().err, HasSubstr("Stop it first"));
  EXPECT_THAT(Abacus({"volume", "replace-server", "home", addresses_[0], spare}).err,
              HasSubstr("answers for volume 'home'"));
  // Nobody else could keep this one's.
  const Outcome pair =
      Abacus({"volume", "create", "pair", "--servers", addresses_[0] + "," + addresses_[1], "--map",
              etcd_->url(), "--metadata-copies", "2"});
  ASSERT_EQ(pair.code, 0) << pair.err;
  Kill(1);
  Put("b", 50'000);
  Outcome outcome;
  ASSERT_TRUE(Eventually([&] {
    outcome = replaced();
    return outcome.code == 0;
  })) << outcome.err;
  EXPECT_TRUE(Eventually([&] {
    outcome = Abacus({"volume", "replace-server", "pair", addresses_[1], spare});
    return outcome.err.find("abacus volume add-server pair") != std::string::npos;
  })) << outcome.err;
  ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
  EXPECT_THAT(Map(0).dump(), HasSubstr(absl::StrCat("\"server\":\"", addresses_[2], "\"")));
  ASSERT_TRUE(Eventually([&] { return Abacus({"rebuild", "home"}).code == 0; }));
  Put("c", 50'000);
  // The lost one comes back with what it had, and nobody believes it, also not when the primary
  // dies.
  Restart(1);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
  Kill(0);
  ASSERT_TRUE(Eventually([&] { return Map(0).value("primary", "") == addresses_[2]; })) << told_;
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/d", "text") == 0; })) << told_;
  files_["d"] = "text";
  ExpectAll(mount_);
}

TEST_F(FailoverTest, ServersThatKeepNamesAreDrainedThePrimaryToo) {
  for (int i = 0; i < 3; ++i) Put(absl::StrCat("file", i), 100'000 + i);
  std::vector<std::string> spares(2);
  std::vector<std::unique_ptr<Command>> more;
  for (size_t i = 0; i < 2; ++i) {
    more.push_back(BeginServer(absl::StrCat("spare", i), "127.0.0.1:0", {}, &spares[i]));
  }
  std::atomic<bool> done{false};
  std::chrono::duration<double> longest{0};
  std::thread worker([&] { longest = Work("work", done); });
  EXPECT_TRUE(Eventually([&] { return worked_ >= 3; }));
  const auto begun = steady_clock::now();
  // The second keeps names and columns, the first answers for the volume.
  const Outcome copy = Abacus({"volume", "drain", "home", addresses_[1], "--to", spares[0]});
  const std::chrono::duration<double> took = steady_clock::now() - begun;
  const nlohmann::json between = Map(0);
  const Outcome primary = Abacus({"volume", "drain", "home", addresses_[0], "--to", spares[1]});
  const int then = worked_;
  EXPECT_TRUE(Eventually([&] { return worked_ >= then + 3; }));
  done = true;
  worker.join();
  printf("drained in %.1f s and %.1f s; the longest of %d files took %.1f s, %d failed\n",
         took.count(),
         std::chrono::duration<double>(steady_clock::now() - begun).count() - took.count(),
         worked_.load(), longest.count(), failures_.load());
  ASSERT_EQ(copy.code, 0) << copy.out << copy.err;
  EXPECT_EQ(between["primary"], addresses_[0]);
  EXPECT_THAT(between.dump(), HasSubstr(absl::StrCat("\"server\":\"", spares[0], "\"")));
  ASSERT_EQ(primary.code, 0) << primary.out << primary.err;
  EXPECT_LT(longest, kGap);
  EXPECT_LE(failures_, 1) << "only what was under way when another one took over";
  const std::string map = Map(0).dump();
  EXPECT_EQ(Map(0)["primary"], spares[0]) << told_;
  EXPECT_THAT(map, HasSubstr(spares[1]));
  EXPECT_EQ(told_.find(addresses_[0]) + told_.find(addresses_[1]), 2 * std::string::npos) << told_;

  Kill(0);
  Kill(1);
  ExpectAll(mount_);
  addresses_[0] = spares[0];
  addresses_[1] = spares[1];
  address_ = spares[1];
  ExpectAll(MountAll("second"));
  more[0]->Signal(SIGKILL);
  more[0]->Wait();
  ASSERT_TRUE(Eventually([&] { return Map(0).value("primary", "") == spares[1]; })) << told_;
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/late", "text") == 0; })) << told_;
  files_["late"] = "text";
  ExpectAll(mount_);
}

TEST_F(FailoverTest, WithoutEtcdWorkGoesOnAsLongAsThePrimaryAndItsCopyAreInTouch) {
  Put("a", 50'000);
  etcd_->Signal(SIGSTOP);
  // By its copy's promise; a moment between two of them passes.
  ASSERT_TRUE(Eventually([&] {
    const nlohmann::json map = Map(0);
    return map.value("has_lease", true) == false && map.value("serves", false);
  })) << told_;
  EXPECT_THAT(told_, HasSubstr("reads and writes go on"));
  const auto until = steady_clock::now() + std::chrono::seconds(8);  // more than a lease
  for (int i = 0; steady_clock::now() < until; ++i) Put(absl::StrCat("without", i), 20'000);
  ExpectAll(mount_);

  // With the copy away too nobody knows that it does not take over.
  Kill(1);
  EXPECT_TRUE(Eventually([&] { return Map(1).value("serves", true) == false; })) << told_;
  EXPECT_NE(TryPut(mount_ + "/refused", "text"), 0);
  etcd_->Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/b", "text") == 0; })) << told_;
  ExpectAll(mount_);
  EXPECT_EQ(Map(1)["primary"], addresses_[0]);

  Restart(1);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(2); })) << told_;
  // Without etcd nobody takes over; with it again, the copy does.
  etcd_->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return Map(0)["has_lease"] == false; }));
  Kill(0);
  EXPECT_TRUE(Eventually([&] { return Map(0).value("serves", true) == false; })) << told_;
  etcd_->Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] { return Map(0).value("primary", "") == addresses_[1]; })) << told_;
  ASSERT_TRUE(Eventually([&] { return TryPut(mount_ + "/c", "text") == 0; }));
  ExpectAll(mount_);
}

}  // namespace
}  // namespace abacus::apps::testing
