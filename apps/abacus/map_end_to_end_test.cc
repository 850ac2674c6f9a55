// Volumes whose map is in a real etcd, as their users meet them: real processes that are killed and
// stopped.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <ios>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/testing/etcd.h"
#include "apps/abacus/testing/mount_end_to_end.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using ::testing::HasSubstr;

class MapEndToEndTest : public MountEndToEndTest {
 protected:
  void SetUp() override {
    if (!Etcd::IsInstalled()) GTEST_SKIP() << "no etcd (Debian's etcd-server)";
    MountEndToEndTest::SetUp();
    if (IsSkipped()) return;
    etcd_ = std::make_unique<Etcd>();
    other_ = BeginServer("other", "127.0.0.1:0", {}, &other_address_);
  }
  void TearDown() override {
    MountEndToEndTest::TearDown();
    other_.reset();
  }

  std::string Servers() const { return address_ + "," + other_address_; }
  Outcome Create(const std::string& map, const std::string& copies) {
    return Abacus({"volume", "create", "home", "--servers", Servers(), "--map", map,
                   "--metadata-copies", copies});
  }
  // As the JSON tells now.
  nlohmann::json Map() {
    unlink(folder_.Path("status.json").c_str());
    const Outcome outcome =
        Abacus({"volume", "status", "home", "--json", folder_.Path("status.json")});
    told_ = outcome.out + outcome.err;
    code_ = outcome.code;
    const auto all = nlohmann::json::parse(folder_.Read("status.json"), nullptr, false);
    return all.is_object() ? all["map"] : nlohmann::json::object();
  }
  // And the command's code is that.
  nlohmann::json Map(int code) {
    nlohmann::json map = Map();
    EXPECT_EQ(code_, code) << told_;
    return map;
  }
  bool AreCurrent() {
    const nlohmann::json map = Map();
    size_t current = 0;
    for (const auto& copy : map.value("copies", nlohmann::json::array())) {
      current += copy["current"].get<bool>() ? 1 : 0;
    }
    return map.value("serves", false) && current == 2;
  }
  // As told by the other server.
  Outcome AtOther(const std::vector<std::string>& arguments) const {
    return RunAbacus(arguments, {.environment = {"ABACUS_SERVER=" + other_address_}});
  }
  bool Remembers(const std::string& data, const std::string& line) const {
    return folder_.Read(data + "/volumes/.row-home").find(line) != std::string::npos;
  }
  // A byte of each place for a block changes that a store's objects have. Returns how many did.
  static int Rot(const std::string& store) {
    constexpr std::streamoff kBlock = 8192;
    int places = 0;
    std::error_code error;
    std::filesystem::recursive_directory_iterator entry(store, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() != ".d") continue;
      std::fstream file(entry->path(), std::ios::in | std::ios::out | std::ios::binary);
      for (std::streamoff at = 0;; at += kBlock) {
        const int byte = file.seekg(at).get();
        if (!file) break;
        file.seekp(at).put(static_cast<char>(~byte));
        places += file.flush().good() ? 1 : 0;
      }
    }
    return places;
  }
  static void Kill(Command& server) {
    server.Signal(SIGKILL);
    server.Wait();
  }
  bool Put(const std::string& name, const std::string& text) {
    return Abacus({"put", "home:" + name, folder_.Write("in", text)}).code == 0;
  }
  std::string Get(const std::string& name) { return Abacus({"get", "home:" + name}).out; }

  std::unique_ptr<Etcd> etcd_;
  std::unique_ptr<Command> other_;
  std::string other_address_;
  std::string told_;  // by the last status
  int code_ = -1;
};

TEST_F(MapEndToEndTest, WorkGoesOnWithoutTheMapAndChangesOfTheMapWait) {
  const Outcome created = Create(etcd_->url(), "1");
  ASSERT_EQ(created.code, 0) << created.err;
  ASSERT_TRUE(Put("a", "one"));
  nlohmann::json map = Map(0);
  EXPECT_EQ(map["kind"], "etcd");
  EXPECT_EQ(map["address"], etcd_->url());
  EXPECT_EQ(map["epoch"], 2) << "the row was made in the first one";
  EXPECT_EQ(map["primary"], address_);
  EXPECT_EQ(map["reachable"], true);
  EXPECT_THAT(told_, HasSubstr("epoch 2, answered for by " + address_));

  etcd_->Signal(SIGSTOP);
  // Longer than any lease: nobody else could take over, so nobody has to stop.
  ASSERT_TRUE(Eventually([&] { return Map()["has_lease"] == false; }));
  EXPECT_TRUE(Put("b", "two"));
  EXPECT_EQ(Get("a") + Get("b"), "onetwo");
  map = Map(1);
  EXPECT_EQ(map["reachable"], false);
  EXPECT_EQ(map["serves"], true);
  EXPECT_THAT(told_, HasSubstr("reads and writes go on"));
  std::string more;
  const auto server = BeginServer("more", "127.0.0.1:0", {}, &more);
  const Outcome refused = Abacus({"volume", "add-server", "home", more});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("map cannot be changed now"));

  etcd_->Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] { return Map()["has_lease"] == true; }));
  // What could not be made may have been made since.
  const Outcome added = Abacus({"volume", "add-server", "home", more});
  EXPECT_TRUE(added.code == 0 || added.err.find("named twice") != std::string::npos) << added.err;
  EXPECT_EQ(Map(0)["epoch"], 2) << "nobody else was the primary meanwhile";
}

TEST_F(MapEndToEndTest, AServerThatComesBackBeginsANewEpochAndWaitsForItsMap) {
  ASSERT_EQ(Create(etcd_->url(), "1").code, 0);
  ASSERT_TRUE(Put("a", "one"));
  const std::string control = address_;
  server_->Signal(SIGKILL);
  server_->Wait();
  StartServer(control);
  ASSERT_TRUE(Eventually([&] { return Get("a") == "one"; }));
  EXPECT_EQ(Map(0)["epoch"], 3);

  etcd_->Signal(SIGSTOP);
  server_->Signal(SIGKILL);
  server_->Wait();
  StartServer(control);
  EXPECT_FALSE(Put("b", "two"));
  const Outcome status = Abacus({"volume", "status", "home"});
  EXPECT_EQ(status.code, 2);
  EXPECT_THAT(status.out, HasSubstr("has not been read yet"));
  EXPECT_THAT(status.err, HasSubstr("waits for its map"));
  etcd_->Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] { return Get("a") == "one"; }));
  EXPECT_EQ(Map(0)["epoch"], 4);

  EXPECT_EQ(Abacus({"volume", "delete", "home"}).code, 0);
  EXPECT_EQ(Create(etcd_->url(), "1").code, 0) << "nothing is left of the first one";
  EXPECT_EQ(Map(0)["epoch"], 2);
}

TEST_F(MapEndToEndTest, WhatCannotBeIsToldAndNothingIsMade) {
  const Outcome scheme = Create("zookeeper://127.0.0.1:1", "1");
  EXPECT_EQ(scheme.code, 2);
  EXPECT_THAT(scheme.err, HasSubstr("etcd://HOST:PORT"));
  const Outcome copies = Create(etcd_->url(), "3");
  EXPECT_EQ(copies.code, 2);
  EXPECT_THAT(copies.err, HasSubstr("copies of its metadata, not 3"));
  const Outcome nothing = Abacus({"volume", "restore-map", "home"});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("a volume 'home' made with --map"));
  const std::string url = etcd_->url();
  etcd_->Kill();
  const Outcome gone = Create(url, "1");
  EXPECT_EQ(gone.code, 2);
  EXPECT_THAT(gone.err, HasSubstr("does not answer"));
  etcd_->Begin();
  const Outcome alone = Abacus({"volume", "create", "home", "--map", url});
  EXPECT_THAT(alone.err, HasSubstr("--map goes with --servers"));
  EXPECT_EQ(Abacus({"volume", "list"}).out.find("home"), std::string::npos);
  ASSERT_TRUE(Eventually([&] { return Create(url, "1").code == 0; }));
  const Outcome again = Create(url, "1");
  EXPECT_EQ(again.code, 2);
  EXPECT_TRUE(Put("a", "one")) << "the first one is as it was";
}

TEST_F(MapEndToEndTest, AMapThatWasBegunAnewGetsItsRowBackAndAServerMayDieThen) {
  ASSERT_EQ(Create(etcd_->url(), "2").code, 0);
  ASSERT_TRUE(Put("a", "one"));
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  const Outcome there = Abacus({"volume", "restore-map", "home"});
  EXPECT_EQ(there.code, 2);
  EXPECT_THAT(there.err, HasSubstr("has a row of volume 'home', of epoch 2"));

  // Nobody who served before goes on when it is started again.
  etcd_->BeginAnew();
  const std::string control = address_, other_control = other_address_;
  Kill(*server_);
  Kill(*other_);
  StartServer(control);
  Outcome refused;
  ASSERT_TRUE(Eventually([&] {
    refused = Abacus({"get", "home:a"});
    return refused.err.find("abacus volume restore-map home") != std::string::npos;
  })) << refused.err;
  refused = Abacus({"volume", "restore-map", "home"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("server " + other_control + " does not answer"));
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  other_ = BeginServer("other", other_control, {}, &other_address_);
  Outcome restored;
  ASSERT_TRUE(Eventually([&] {
    restored = Abacus({"volume", "restore-map", "home"});
    return restored.code == 0;
  })) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr(control + " is to answer for it"));
  ASSERT_TRUE(Eventually([&] { return Get("a") == "one"; })) << told_;
  ASSERT_TRUE(Put("b", "two"));
  EXPECT_GT(Map()["epoch"].get<int>(), 2);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  EXPECT_THAT(Abacus({"volume", "restore-map", "home"}).err, HasSubstr("has a row of volume"));

  Kill(*server_);
  ASSERT_TRUE(Eventually([&] {
    return AtOther({"get", "home:a"}).out + AtOther({"get", "home:b"}).out == "onetwo";
  }));
}

TEST_F(MapEndToEndTest, WhoServesWhenTheMapLosesTheRowGoesOnAndIsTheOneInTheNewRow) {
  ASSERT_EQ(Create(etcd_->url(), "2").code, 0);
  ASSERT_TRUE(Put("a", "one"));
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  etcd_->BeginAnew();
  ASSERT_TRUE(Put("b", "two")) << "by what its copy has promised";
  const Outcome restored = AtOther({"volume", "restore-map", "home"});
  EXPECT_EQ(restored.code, 0) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr(address_ + " is to answer for it"));
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  EXPECT_EQ(Get("a") + Get("b"), "onetwo");
  EXPECT_EQ(Map()["primary"], address_);
}

TEST_F(MapEndToEndTest, WithoutThePrimaryARowIsPutBackByForceOnlyAndNeverForACopyThatIsBehind) {
  ASSERT_EQ(Create(etcd_->url(), "2").code, 0);
  ASSERT_TRUE(Put("a", "one"));
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  ASSERT_TRUE(Eventually([&] { return Remembers("other", "copy 1 current"); }));
  const std::string control = address_;
  Kill(*server_);
  etcd_->BeginAnew();
  const Outcome refused = AtOther({"volume", "restore-map", "home"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("server " + control + " does not answer"));
  EXPECT_THAT(refused.err, HasSubstr("is lost for good"));
  const Outcome forced = AtOther({"volume", "restore-map", "home", "--force"});
  ASSERT_EQ(forced.code, 0) << forced.err;
  EXPECT_THAT(forced.err, HasSubstr("server " + control + " does not answer"));
  ASSERT_TRUE(Eventually([&] { return AtOther({"get", "home:a"}).out == "one"; }));
  // Who comes back is filled from it, and takes nothing away.
  StartServer(control);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  EXPECT_EQ(Map()["primary"], other_address_);
  ASSERT_TRUE(Eventually([&] { return Remembers("data", "copy 0 current"); }));

  // This one goes on alone, and remembers that before it acknowledges anything.
  Kill(*server_);
  ASSERT_TRUE(Eventually([&] {
    return AtOther({"put", "home:b", folder_.Write("in", "two")}).code == 0;
  }));
  EXPECT_TRUE(Remembers("other", "copy 0 behind"));
  Kill(*other_);
  etcd_->BeginAnew();
  StartServer(control);
  const std::string other_control = other_address_;
  // What the first one remembers is from when it was current: not without force.
  const Outcome old = Abacus({"volume", "restore-map", "home"});
  EXPECT_EQ(old.code, 2);
  EXPECT_THAT(old.err, HasSubstr("server " + other_control + " does not answer"));
  EXPECT_THAT(old.err, HasSubstr("is lost for good"));
  // The other one is never made to wait for it, and alone has all.
  Kill(*server_);
  other_ = BeginServer("other", other_control, {}, &other_address_);
  const Outcome alone = AtOther({"volume", "restore-map", "home", "--force"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr(other_control + " is to answer for it"));
  ASSERT_TRUE(Eventually([&] { return AtOther({"get", "home:b"}).out == "two"; }));
  StartServer(control);
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  EXPECT_EQ(Get("a") + Get("b"), "onetwo");
}

TEST_F(MapEndToEndTest, WhatRotsOfNamesAndInodesIsPutBackAtEitherServerByAScrub) {
  ASSERT_EQ(Create(etcd_->url(), "2").code, 0);
  ASSERT_TRUE(Put("a", "one"));
  ASSERT_TRUE(Eventually([&] { return AreCurrent(); })) << told_;
  EXPECT_EQ(Map(0)["repaired_blocks"], 0);
  ASSERT_GT(Rot(folder_.Path("data/volumes/home")), 0) << "the root has a block of names";
  const auto scrub = [&] {
    const Outcome scrubbed = Abacus({"scrub", "home", "--json", folder_.Path("scrub.json")});
    EXPECT_EQ(scrubbed.code, 0) << scrubbed.out << scrubbed.err;
    EXPECT_THAT(scrubbed.out, HasSubstr("names and inodes: "));
    const auto told = nlohmann::json::parse(folder_.Read("scrub.json"), nullptr, false);
    return told.is_object() ? told : nlohmann::json::object();
  };
  nlohmann::json found = scrub();
  EXPECT_GE(found["objects"], 2) << "the root and the file";
  EXPECT_GE(found["blocks_repaired"], 1) << found;
  EXPECT_EQ(found["blocks_damaged"], 0) << found;
  EXPECT_GE(Map(0)["repaired_blocks"], 1);
  EXPECT_THAT(told_, HasSubstr("put back from the copy: "));
  found = scrub();
  EXPECT_EQ(found["blocks_repaired"], 0) << "they are whole";
  EXPECT_GE(found["copy_objects"], 2) << found;
  EXPECT_EQ(found["copy_repaired"], 0) << found;
  ASSERT_GT(Rot(folder_.Path("other/volumes/home")), 0);
  found = scrub();
  EXPECT_GE(found["copy_repaired"], 1) << found;
  EXPECT_EQ(found["copy_damaged"], 0) << found;
  EXPECT_EQ(found["copy_missed"], 0) << found;
  EXPECT_EQ(found["blocks_repaired"], 0) << found;
  found = scrub();
  EXPECT_EQ(found["copy_repaired"], 0) << "it is whole";
  EXPECT_EQ(Get("a"), "one");
}

}  // namespace
}  // namespace abacus::apps::testing
