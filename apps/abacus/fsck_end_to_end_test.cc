// abacus fsck, as whoever keeps a server sees it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "apps/abacus/testing/command.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/names.h"
#include "objfs/volume/inode.h"
#include "objfs/volume/object_table.h"
#include "objfs/volume/server_list.h"

namespace abacus::apps::testing {
namespace {

using objfs::ObjectId;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class FsckServer {
 public:
  explicit FsckServer(const std::string& data) {
    std::array<int, 2> ready;
    if (pipe2(ready.data(), O_CLOEXEC) != 0) std::abort();
    command_ = std::make_unique<Command>(
        std::vector<std::string>{"serve", "--data", data, "--listen", "127.0.0.1:0", "--ready-fd",
                                 std::to_string(ready[1])},
        Command::Options{.keep_fd = ready[1]});
    close(ready[1]);
    for (char c = 0; read(ready[0], &c, 1) == 1 && c != '\n';) address_ += c;
    close(ready[0]);
  }
  const std::string& address() const { return address_; }
  std::string option() const { return "--server=" + address_; }
  void Stop() {
    command_->Signal(SIGTERM);
    EXPECT_EQ(command_->Wait().code, 0);
  }

 private:
  std::string address_;
  std::unique_ptr<Command> command_;
};

class FsckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    text_ = std::string(50'000, 't') + "\n";
    const std::string source = folder_.Write("source", text_);
    FsckServer server(data_);
    for (const char* name : {"home:/a/text", "home:/b", "home:/a/c"}) {
      if (name == std::string("home:/a/text")) {
        EXPECT_EQ(RunAbacus({"volume", "create", "home", server.option()}).code, 0);
      }
      const Outcome put = RunAbacus({"put", server.option(), name, source});
      EXPECT_EQ(put.code, 0) << put.err;
    }
    EXPECT_EQ(RunAbacus({"volume", "create", "work", server.option()}).code, 0);
    server.Stop();
  }

  Outcome Fsck(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "fsck");
    return RunAbacus(arguments);
  }
  nlohmann::json JsonOf(const std::string& name) const {
    return nlohmann::json::parse(folder_.Read(name));
  }

  // The newest file of the volume counts names that it has not.
  ObjectId CountWrong() const {
    ObjectId changed = 0;
    WithStore([&](objfs::LocalObjectStore& store, objfs::ObjectTable& table) {
      const auto ids = store.List(0, 100);
      ASSERT_TRUE(ids.ok());
      changed = ids->back();
      const auto node = table.Stat(changed);
      ASSERT_TRUE(node.ok()) << node.status();
      objfs::Inode inode = node->inode;
      inode.links += 3;
      ASSERT_TRUE(store.SetAttributes(changed, inode.Encode(), table.NextVersion().value).ok());
    });
    return changed;
  }
  void WithStore(
      const std::function<void(objfs::LocalObjectStore&, objfs::ObjectTable&)>& work) const {
    auto disk = objfs::LocalDisk::At(data_ + "/volumes/home");
    ASSERT_TRUE(disk.ok()) << disk.status();
    auto opened = objfs::LocalObjectStore::Open(**disk, {});
    ASSERT_TRUE(opened.ok()) << opened.status();
    const std::shared_ptr<objfs::LocalObjectStore> store(*std::move(opened));
    objfs::ObjectTable table(store, [] { return absl::GetCurrentTimeNanos(); });
    work(*store, table);
    ASSERT_TRUE(store->FlushAll().ok());
    ASSERT_TRUE(store->Checkpoint().ok());
  }

  const Folder folder_;
  const std::string data_ = folder_.Path("data");
  std::string text_;
};

TEST_F(FsckTest, WhatServersLeaveIsCleanInWordsAndJson) {
  const Outcome checked = Fsck({data_, "--data", "--json", folder_.Path("json")});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("home: clean: 2 directories, 3 files"));
  EXPECT_THAT(checked.out, HasSubstr("work: clean"));
  const auto json = JsonOf("json");
  EXPECT_EQ(json["exit_code"], 0);
  ASSERT_EQ(json["volumes"].size(), 2u);
  EXPECT_EQ(json["volumes"][0]["volume"], "home");
  EXPECT_EQ(json["volumes"][0]["found"], 0);
  EXPECT_EQ(json["volumes"][0]["files"], 3);
  EXPECT_EQ(json["volumes"][0]["names"], 4);
  EXPECT_GE(json["volumes"][0]["bytes_read"].get<uint64_t>(), 3 * text_.size());
  const Outcome one = Fsck({data_, "--volume", "work"});
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.out, Not(HasSubstr("home")));
}

TEST_F(FsckTest, ADirectoryThatIsInUseIsRefusedWithTheWayOut) {
  FsckServer server(data_);
  for (const bool repair : {false, true}) {
    std::vector<std::string> arguments = {data_};
    if (repair) arguments.push_back("--repair");
    const Outcome refused = Fsck(arguments);
    EXPECT_EQ(refused.code, 8);
    EXPECT_THAT(refused.err, HasSubstr("in use"));
    EXPECT_THAT(refused.err, HasSubstr("fsck --volume NAME HOST:PORT"));
  }
  server.Stop();
  EXPECT_EQ(Fsck({data_}).code, 0);
}

TEST_F(FsckTest, MistakesAreToldWithWhatWasMeant) {
  const Outcome unknown = Fsck({data_, "--volume", "hme"});
  EXPECT_EQ(unknown.code, 8);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'home'?"));
  const Outcome option = Fsck({data_, "--repar"});
  EXPECT_EQ(option.code, 16);
  EXPECT_THAT(option.err, HasSubstr("did you mean '--repair'?"));
  EXPECT_EQ(Fsck({}).code, 16);
  EXPECT_EQ(Fsck({folder_.Path("nothing")}).code, 8);
  const Outcome own = Fsck({data_ + "/volumes/home"});
  EXPECT_EQ(own.code, 8);
  EXPECT_THAT(own.err, HasSubstr("abacus fsck " + data_ + " --volume home"));
  const Outcome other = Fsck({folder_.path()});
  EXPECT_EQ(other.code, 8);
  EXPECT_THAT(other.err, HasSubstr("has no volumes"));
}

TEST_F(FsckTest, ThatThereIsNoVolumeIsSaid) {
  const std::string empty = folder_.Path("empty");
  ASSERT_EQ(mkdir(empty.c_str(), 0755), 0);
  ASSERT_EQ(mkdir((empty + "/volumes").c_str(), 0755), 0);
  const Outcome none = RunAbacus({"fsck", empty});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, HasSubstr(empty + " has no volume: nothing was checked"));
}

TEST_F(FsckTest, AWrongCountIsToldThenRepairedThenGone) {
  const ObjectId changed = CountWrong();
  const Outcome found = Fsck({data_, "--json", folder_.Path("json")});
  EXPECT_EQ(found.code, 4) << found.err;
  EXPECT_THAT(found.out, HasSubstr("home: links: "));
  EXPECT_THAT(found.out, HasSubstr("abacus fsck " + data_ + " --volume home --repair"));
  const auto json = JsonOf("json");
  EXPECT_EQ(json["exit_code"], 4);
  EXPECT_EQ(json["volumes"][0]["left"], 1);
  const auto& fault = json["volumes"][0]["faults"][0];
  EXPECT_EQ(fault["kind"], "links");
  EXPECT_EQ(fault["object"], changed);
  EXPECT_EQ(fault["path"], "/a/c");
  EXPECT_EQ(fault["repaired"], false);

  const Outcome repaired = Fsck({data_, "--repair"});
  EXPECT_EQ(repaired.code, 1) << repaired.out << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("count set right"));
  EXPECT_EQ(Fsck({data_}).code, 0);
  FsckServer server(data_);
  EXPECT_EQ(RunAbacus({"get", server.option(), "home:/a/c"}).out, text_);
  server.Stop();
}

TEST_F(FsckTest, BytesThatRotAreFoundByTheirChecksum) {
  const std::string path = data_ + "/volumes/home/" + objfs::DataPath([&] {
                             ObjectId last = 0;
                             WithStore([&](objfs::LocalObjectStore& store, objfs::ObjectTable&) {
                               last = store.List(0, 100)->back();
                             });
                             return last;
                           }());
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file) << path;
  file.seekp(100);
  file.put('#');
  file.close();
  EXPECT_EQ(Fsck({data_}).code, 0);
  const Outcome found = Fsck({data_, "--data", "--repair", "--json", folder_.Path("json")});
  EXPECT_EQ(found.code, 4);
  EXPECT_THAT(found.out, HasSubstr("home: data: /a/c "));
  EXPECT_EQ(JsonOf("json")["volumes"][0]["faults"][0]["kind"], "data");
}

TEST_F(FsckTest, WhatTheStoreKnowsOfItselfIsMadeAnew) {
  const std::string superblock = data_ + "/volumes/home/" + objfs::kSuperblockName;
  {
    std::fstream file(superblock, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(20) << std::string(300, '#');
  }
  const Outcome found = Fsck({data_, "--json", folder_.Path("json")});
  EXPECT_EQ(found.code, 4) << found.out << found.err;
  EXPECT_THAT(found.out, HasSubstr("home: superblock: superblock, bytes 0 to 4096: it is damaged"));
  EXPECT_THAT(found.out, HasSubstr("home: 1 faults, 0 repaired, 1 left: 2 directories, 3 files"));
  const auto fault = JsonOf("json")["volumes"][0]["faults"][0];
  EXPECT_EQ(fault["kind"], "superblock");
  EXPECT_EQ(fault["place"], "superblock, bytes 0 to 4096");
  EXPECT_EQ(fault["repaired"], false);
  const Outcome served = RunAbacus({"serve", "--data", data_, "--listen", "127.0.0.1:0"});
  EXPECT_NE(served.code, 0);
  EXPECT_THAT(served.err, HasSubstr("volume home is damaged: "));
  EXPECT_THAT(served.err, HasSubstr("abacus fsck DIRECTORY --volume home"));
  const Outcome repaired = Fsck({data_, "--repair", "--data"});
  EXPECT_EQ(repaired.code, 1) << repaired.out << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("made anew from the journals"));
  EXPECT_EQ(Fsck({data_, "--data"}).code, 0);
  FsckServer server(data_);
  EXPECT_EQ(RunAbacus({"get", server.option(), "home:/a/c"}).out, text_);
  // And while it is in use, from memory.
  { std::ofstream(superblock, std::ios::binary) << std::string(4096, '#'); }
  EXPECT_EQ(Fsck({"--volume", "home", server.address()}).code, 4);
  EXPECT_EQ(Fsck({"--volume", "home", "--repair", server.address()}).code, 1);
  server.Stop();
  EXPECT_EQ(Fsck({data_}).code, 0);
}

TEST_F(FsckTest, AServerIsAskedWhileItServes) {
  CountWrong();
  FsckServer server(data_);
  const Outcome found = Fsck({"--volume", "home", server.address(), "--data"});
  EXPECT_EQ(found.code, 4) << found.out << found.err;
  EXPECT_THAT(found.out, HasSubstr("home: links: /a/c "));
  const Outcome repaired = Fsck({"--volume", "home", "--repair", server.address()});
  EXPECT_EQ(repaired.code, 1) << repaired.out << repaired.err;
  const Outcome again =
      Fsck({"--volume", "home", server.address(), "--json", folder_.Path("json")});
  EXPECT_EQ(again.code, 0) << again.out;
  EXPECT_EQ(JsonOf("json")["volumes"][0]["found"], 0);
  const Outcome unknown = Fsck({"--volume", "hoe", server.address()});
  EXPECT_EQ(unknown.code, 8);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean 'home'?"));
  EXPECT_EQ(Fsck({server.address()}).code, 16);
  server.Stop();
  EXPECT_EQ(Fsck({data_}).code, 0);
}

TEST_F(FsckTest, ADamagedListOfServersIsWrittenAnewFromTheOther) {
  // As a volume over several servers has them.
  const std::string list =
      objfs::ServerList{.key = 7, .servers = {"127.0.0.1:1", "127.0.0.1:2"}}.Encode();
  const std::string own = data_ + "/volumes/.servers-home";
  const std::string other = data_ + "/volumes/.columns-home-0000000000000007.servers";
  std::ofstream(own) << list.substr(0, 20);
  std::ofstream(other) << list;
  EXPECT_EQ(Fsck({data_}).code, 4);
  const Outcome repaired = Fsck({data_, "--repair"});
  EXPECT_EQ(repaired.code, 1) << repaired.out << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("servers: "));
  EXPECT_EQ(Fsck({data_}).code, 0);
}

}  // namespace
}  // namespace abacus::apps::testing
