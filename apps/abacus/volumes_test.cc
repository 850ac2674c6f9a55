// Who is taken to have a volume, and what is done for each of its shards: by servers of this
// process.

#include "apps/abacus/volumes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "objfs/store/disk.h"
#include "objfs/store/local_disk.h"
#include "objfs/store/model_disk.h"
#include "objfs/volume/server_list.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/node/testing/node_fixture.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps {
namespace {

using runtime::testing::Eventually;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// What a server would leave of its volumes that is killed at a call to one of their disks.
// Thread-safety: thread-safe.
class Leftovers {
 public:
  explicit Leftovers(std::string of) : of_(std::move(of)) {}

  // Which every third call from now on leaves, a folder each.
  void Begin() {
    runtime::MutexLock lock(mutex_);
    is_on_ = true;
  }
  std::vector<std::string> End() {
    runtime::MutexLock lock(mutex_);
    is_on_ = false;
    return all_;
  }
  absl::Status Take() {
    runtime::MutexLock lock(mutex_);
    if (!is_on_ || calls_++ % 3 != 0) return absl::OkStatus();
    all_.push_back(absl::StrCat(of_, "-left", all_.size()));
    std::error_code error;
    std::filesystem::copy(of_, all_.back(), std::filesystem::copy_options::recursive, error);
    EXPECT_FALSE(error) << error.message();
    return absl::OkStatus();
  }

 private:
  const std::string of_;
  runtime::Mutex mutex_;
  bool is_on_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> all_ ABSL_GUARDED_BY(mutex_);
};

struct DiskBelow {
  std::unique_ptr<objfs::Disk> below;
};
class WatchedDisk final : private DiskBelow, public objfs::ModelDisk {
 public:
  WatchedDisk(std::unique_ptr<objfs::Disk> disk, objfs::DiskModel model)
      : DiskBelow{std::move(disk)}, ModelDisk(*below, std::move(model)) {}
};

class VolumesTest : public runtime::testing::NodeFixture {
 protected:
  VolumesTest() { AddFileSystemClasses(types_, nullptr); }
  void TearDown() override {
    sets_.clear();
    client_.reset();
    servers_.clear();
  }

  // Servers that know each other, and whose volumes nobody sees yet; a client.
  void Begin(size_t servers) {
    sets_.resize(servers);
    for (size_t i = 0; i < servers; ++i) {
      runtime::NodeOptions options = ServerOptions(absl::StrCat("server", i));
      if (i > 0) options.servers = {AddressOf(0)};
      servers_.push_back(Start(options));
      ASSERT_NE(servers_.back(), nullptr);
    }
    client_ = Start(ClientOptions("client", *servers_[0]));
    ASSERT_NE(client_, nullptr);
  }
  void Publish(size_t server) {
    auto set = PublishVolumes(*servers_[server], absl::StrCat(directory_, "/volumes", server), {});
    ASSERT_TRUE(set.ok()) << set.status();
    sets_[server] = *std::move(set);
  }
  void BeginAll(size_t servers) {
    ASSERT_NO_FATAL_FAILURE(Begin(servers));
    for (size_t i = 0; i < servers; ++i) ASSERT_NO_FATAL_FAILURE(Publish(i));
  }
  void End(size_t server) {
    sets_[server] = runtime::Ref<objfs::VolumeSet>();
    servers_[server].reset();
  }
  std::string AddressOf(size_t server) const { return servers_[server]->control_address(); }
  // Of two servers; the one at `first` is to have its inodes.
  void Create(const std::string& name, size_t first) {
    const std::vector<std::string> servers = {AddressOf(first), AddressOf(1 - first)};
    const absl::Status created =
        sets_[first]->Create(objfs::NewVolume{.name = name, .servers = servers});
    ASSERT_TRUE(created.ok()) << created;
  }
  // What is in a server's folder of volumes, by name.
  std::vector<std::string> LeftAt(size_t server) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(absl::StrCat(directory_, "/volumes", server), error)) {
      names.push_back(entry.path().filename().string());
    }
    EXPECT_FALSE(error) << error.message();
    return names;
  }

  std::vector<std::unique_ptr<runtime::Node>> servers_;
  std::vector<runtime::Ref<objfs::VolumeSet>> sets_;
};

TEST_F(VolumesTest, ThereIsNoVolumeWhereAllServersSaySoAndNotBefore) {
  ASSERT_NO_FATAL_FAILURE(Begin(2));
  ASSERT_NO_FATAL_FAILURE(Publish(0));
  const absl::Status silent = FirstServerOf(*client_, "home").status();
  EXPECT_TRUE(absl::IsUnavailable(silent)) << silent;
  EXPECT_THAT(Message(silent), HasSubstr("server1 does not tell of its volumes yet"));
  ASSERT_NO_FATAL_FAILURE(Publish(1));
  const absl::Status none = FirstServerOf(*client_, "home").status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_TRUE(HasNone(none));
  const auto names = ShardNames(*client_, "home");
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("home"));
}

TEST_F(VolumesTest, AVolumeIsNotGoneWithItsFirstServer) {
  ASSERT_NO_FATAL_FAILURE(BeginAll(2));
  ASSERT_NO_FATAL_FAILURE(Create("home", 1));
  {
    const auto found = FirstServerOf(*client_, "home");
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->rid(), sets_[1].rid());
  }
  const std::string address = AddressOf(1);
  End(1);
  const absl::Status away = FirstServerOf(*client_, "home").status();
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(Message(away), HasSubstr(address + " does not answer"));
  // The other one would keep something of other shards too.
  const auto names = ShardNames(*client_, "home");
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("home"));
  // Who knows of one shard only, by a change of servers that was broken off, knows who may have the
  // others.
  EXPECT_TRUE(absl::IsUnavailable(FirstServerOf(*client_, "home~1").status()));
}

TEST_F(VolumesTest, ShardsOfACreationThatWasBrokenOffAreNoVolume) {
  ASSERT_NO_FATAL_FAILURE(BeginAll(2));
  ASSERT_NO_FATAL_FAILURE(Create("home~1", 1));
  const absl::Status left = ShardNames(*client_, "home").status();
  EXPECT_TRUE(absl::IsNotFound(left)) << left;
  EXPECT_THAT(Message(left), HasSubstr("there is no volume 'home', but"));
  EXPECT_THAT(Message(left), HasSubstr("If nobody is creating it now"));
  EXPECT_THAT(Message(left), HasSubstr("abacus volume delete home"));
  const absl::Status other = VolumeIn({sets_[1]}, "home", "SERVER/VOLUME").status();
  EXPECT_TRUE(absl::IsNotFound(other)) << other;
  EXPECT_THAT(Message(other), HasSubstr("its first one is at another server"));
  EXPECT_THAT(Message(other), HasSubstr("all servers of the volume running"));
  EXPECT_THAT(Message(other), HasSubstr("abacus volume delete home"));

  // The first one was made, and does not say that it is one of several.
  ASSERT_NO_FATAL_FAILURE(Create("home", 0));
  EXPECT_TRUE(IsUnfinished(sets_[0], "home"));
  const absl::Status unfinished = ShardNames(*client_, "home").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(unfinished)) << unfinished;
  EXPECT_THAT(Message(unfinished), HasSubstr("abacus volume delete home"));

  ASSERT_NO_FATAL_FAILURE(Create("pair", 0));
  EXPECT_FALSE(IsUnfinished(sets_[0], "pair"));
  const auto names = ShardNames(*client_, "pair");
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("pair"));
}

TEST(VolumeTextsTest, TooFewServersForTheStackAreTold) {
  const std::string raid = "cache/raid5/(isolation/storage)*4";
  EXPECT_THAT(TooFewServersText("home", raid, 3),
              AllOf(HasSubstr("volume 'home' is to have 3 servers"), HasSubstr("takes 4"),
                    HasSubstr("abacus volume add-server home HOST:PORT")));
  EXPECT_EQ(TooFewServersText("home", raid, 4), "");
  EXPECT_EQ(TooFewServersText("home", "cache/isolation/storage", 1), "");
  EXPECT_EQ(TooFewServersText("home", "", 1), "");
  EXPECT_EQ(CountServers({"a:1", "-", "b:1"}), 2u);
}

// Wherever the server is killed meanwhile.
TEST_F(VolumesTest, AVolumeIsFoundWithAllThatItIsMadeWithOrNotAtAll) {
  ASSERT_NO_FATAL_FAILURE(Begin(1));
  const std::string path = absl::StrCat(directory_, "/volumes");
  const auto left = std::make_shared<Leftovers>(path);
  VolumesOptions options;
  options.wrap_disk = [left](std::unique_ptr<objfs::Disk> disk) -> std::unique_ptr<objfs::Disk> {
    objfs::DiskModel model;
    model.wait = [](absl::Duration) {};
    model.fault = [left](std::string_view, const std::string&) { return left->Take(); };
    return std::make_unique<WatchedDisk>(std::move(disk), std::move(model));
  };
  auto set = PublishVolumes(*servers_[0], path, options);
  ASSERT_TRUE(set.ok()) << set.status();
  sets_[0] = *std::move(set);

  objfs::NewVolume made{.name = "home~1"};
  made.own_file_stack = "cache/(storage";
  made.shards = 2;
  made.shards_number = 4711;
  EXPECT_TRUE(absl::IsInvalidArgument(sets_[0]->Create(made)));
  EXPECT_TRUE(std::filesystem::is_empty(path)) << "something is left of it";
  made.own_file_stack = "cache/isolation/storage";
  left->Begin();
  const absl::Status created = sets_[0]->Create(made);
  const std::vector<std::string> all_left = left->End();
  ASSERT_TRUE(created.ok()) << created;
  size_t found = 0;
  for (const std::string& folder : all_left) {
    SCOPED_TRACE(folder);
    const auto opened = OpenVolumes(servers_[0]->binding(), folder);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const auto volumes = (*opened)->List();
    ASSERT_TRUE(volumes.ok()) << volumes.status();
    for (const objfs::VolumeSummary& volume : *volumes) {
      ++found;
      EXPECT_EQ(volume.name, made.name);
      EXPECT_EQ(volume.own_file_stack, made.own_file_stack);
      EXPECT_EQ(volume.shards, made.shards);
    }
  }
  EXPECT_GT(found, 0u);
  EXPECT_LT(found, all_left.size());
}

// Its disk takes nothing more, the server itself lives on.
TEST_F(VolumesTest, APrimaryWhoseDiskFailsLeavesTheVolumeToTheCopy) {
  ASSERT_NO_FATAL_FAILURE(Begin(3));
  const auto fails = std::make_shared<std::atomic<bool>>(false);
  VolumesOptions options;
  options.wrap_disk = [fails](std::unique_ptr<objfs::Disk> disk) -> std::unique_ptr<objfs::Disk> {
    objfs::DiskModel model;
    model.wait = [](absl::Duration) {};
    model.fault = [fails](std::string_view call, const std::string& path) {
      const bool changes = call != "read" && call != "open" && call != "list" && call != "space";
      return *fails && changes ? objfs::DiskError(EROFS, path) : absl::OkStatus();
    };
    return std::make_unique<WatchedDisk>(std::move(disk), std::move(model));
  };
  auto set = PublishVolumes(*servers_[0], absl::StrCat(directory_, "/volumes0"), options);
  ASSERT_TRUE(set.ok()) << set.status();
  sets_[0] = *std::move(set);
  for (const size_t server : {1, 2}) ASSERT_NO_FATAL_FAILURE(Publish(server));

  objfs::NewVolume made{.name = "home"};
  made.servers = {AddressOf(0), AddressOf(1)};
  made.map_url = absl::StrCat("abacus://", AddressOf(2));
  made.metadata_copies = 2;
  const absl::Status created = sets_[0]->Create(made);
  ASSERT_TRUE(created.ok()) << created;
  ASSERT_TRUE(Eventually([&] {
    const auto map = sets_[0]->Map("home");
    return map.ok() && map->may_serve && map->current.size() == 2;
  }));
  {
    const auto volume = sets_[0]->Open("home");
    ASSERT_TRUE(volume.ok()) << volume.status();
    ASSERT_TRUE((*volume)->KeepFileStack("isolation/storage").ok());
    *fails = true;
    const absl::Status refused = (*volume)->KeepFileStack("cache/isolation/storage");
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  }
  absl::Status why;
  ASSERT_TRUE(Eventually([&] {
    const auto volume = sets_[1]->Open("home");
    why = volume.status();
    return volume.ok();
  })) << why;
  const auto volume = sets_[1]->Open("home");
  ASSERT_TRUE(volume.ok()) << volume.status();
  const auto stack = (*volume)->OwnFileStack();
  ASSERT_TRUE(stack.ok()) << stack.status();
  // What was refused may be there, as of a server that died.
  EXPECT_THAT(*stack, AnyOf("isolation/storage", "cache/isolation/storage"));
  // It goes on alone, as the other one can keep no copy.
  const absl::Status kept = (*volume)->KeepFileStack("statistics/isolation/storage");
  EXPECT_TRUE(kept.ok()) << kept;
  EXPECT_TRUE(Eventually([&] {
    const auto map = sets_[1]->Map("home");
    return map.ok() && map->is_primary && map->current == std::vector<uint32_t>{1};
  }));

  // Mended, it catches up.
  *fails = false;
  EXPECT_TRUE(Eventually([&] {
    const auto map = sets_[1]->Map("home");
    return map.ok() && map->current.size() == 2;
  }));
  EXPECT_THAT(Message(sets_[0]->Open("home").status()), HasSubstr("keeps a copy of its metadata"));
  // As `serve` does; a primary that ends without would wait for its map, which ends too.
  for (const size_t server : {1, 0}) EXPECT_TRUE(sets_[server]->LetGo().ok());
}

TEST_F(VolumesTest, ACreationThatFailsLeavesNothingAtAnyServer) {
  ASSERT_NO_FATAL_FAILURE(BeginAll(2));
  objfs::NewVolume made{.name = "home~1", .servers = {AddressOf(1), AddressOf(0)}};
  made.shards = 2;
  made.shards_number = 4711;
  made.quota_bytes = 1;  // a shard's records alone take more
  const absl::Status failed = sets_[1]->Create(made);
  EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
  for (size_t i = 0; i < 2; ++i) EXPECT_THAT(LeftAt(i), IsEmpty()) << i;
  made.quota_bytes = uint64_t{2} << 20;
  const absl::Status created = sets_[1]->Create(made);
  ASSERT_TRUE(created.ok()) << created;
  EXPECT_THAT(LeftAt(0), SizeIs(2)) << "its columns, and the list of its servers";
  EXPECT_THAT(LeftAt(1), AllOf(Contains("home~1"), Contains(".servers-home~1")));
}

// What a creation or deletion leaves of the volume `home` of two servers that is killed before the
// directory is there, or when it is no more.
class LeftListTest : public VolumesTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(BeginAll(2));
    list_ = {.key = 4711, .servers = {AddressOf(0), AddressOf(1)}};
    ASSERT_TRUE(list_.Save(ListPath()).ok());
    for (uint32_t place = 0; place < 2; ++place) {
      const absl::Status kept = sets_[place]->KeepColumns("home", list_.key, list_.servers, place);
      ASSERT_TRUE(kept.ok()) << kept;
    }
  }
  std::string ListPath() const { return absl::StrCat(directory_, "/volumes0/.servers-home"); }
  std::string Columns() const {
    return absl::StrCat(".columns-home-", absl::Hex(list_.key, absl::kZeroPad16));
  }
  void ExpectColumnsAtBoth() const {
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_THAT(LeftAt(i), AllOf(Contains(Columns()), Contains(Columns() + ".servers"))) << i;
    }
  }
  void ExpectNothingLeft() const {
    for (size_t i = 0; i < 2; ++i) EXPECT_THAT(LeftAt(i), IsEmpty()) << i;
  }

  objfs::ServerList list_;
};

TEST_F(LeftListTest, IsRemovedByADeletionWithAllColumns) {
  EXPECT_TRUE(absl::IsNotFound(sets_[1]->Delete("home"))) << "it keeps columns only";
  ExpectColumnsAtBoth();
  const absl::Status deleted = sets_[0]->Delete("home");
  EXPECT_TRUE(deleted.ok()) << deleted;
  ExpectNothingLeft();
  EXPECT_TRUE(absl::IsNotFound(sets_[0]->Delete("home")));
}

// The directory may only be away.
TEST_F(LeftListTest, IsInTheWayOfACreationWhichChangesNothing) {
  const std::vector<std::string> before = LeftAt(0);
  objfs::NewVolume made{.name = "home"};
  for (const bool is_spread : {true, false}) {
    if (is_spread) made.servers = list_.servers;
    const absl::Status refused = sets_[0]->Create(made);
    EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
    EXPECT_THAT(Message(refused),
                AllOf(HasSubstr(ListPath()), HasSubstr("abacus volume delete home")));
    made.servers.clear();
  }
  const absl::Status copy =
      sets_[0]->KeepCopy("home", 0, "etcd://127.0.0.1:1", /*key=*/7, /*place=*/1);
  EXPECT_TRUE(absl::IsAlreadyExists(copy)) << copy;
  EXPECT_THAT(Message(copy), HasSubstr(ListPath()));
  EXPECT_THAT(LeftAt(0), ::testing::UnorderedElementsAreArray(before));
  ExpectColumnsAtBoth();
  ASSERT_TRUE(sets_[0]->Delete("home").ok());
  ASSERT_NO_FATAL_FAILURE(Create("home", 0));
  for (size_t i = 0; i < 2; ++i) EXPECT_THAT(LeftAt(i), Not(Contains(HasSubstr(Columns())))) << i;
}

TEST_F(LeftListTest, StaysUntilTheColumnsAreGoneAtAServerThatWasAway) {
  const std::string address = AddressOf(1);
  End(1);
  const absl::Status away = sets_[0]->Delete("home");
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(Message(away),
              AllOf(HasSubstr("left at " + address + " ("), HasSubstr("abacus volume delete home"),
                    HasSubstr("at " + AddressOf(0) + ", in the folder volumes"),
                    HasSubstr("remove .servers-home"), HasSubstr(Columns() + "*")));
  EXPECT_THAT(LeftAt(0), ElementsAre(".servers-home"));
  EXPECT_THAT(LeftAt(1), Contains(Columns()));
  runtime::NodeOptions options = ServerOptions("server1");
  options.config.node.control_address = address;
  options.servers = {AddressOf(0)};
  servers_[1] = Start(options);
  ASSERT_NE(servers_[1], nullptr);
  ASSERT_NO_FATAL_FAILURE(Publish(1));
  absl::Status deleted;
  EXPECT_TRUE(runtime::testing::Eventually([&] {
    deleted = sets_[0]->Delete("home");
    return deleted.ok();
  })) << deleted;
  ExpectNothingLeft();
}

TEST_F(LeftListTest, IsKeptWithTheColumnsWhereItCannotBeRead) {
  for (const bool is_later : {false, true}) {
    std::string text = list_.Encode();
    if (is_later) {
      text.replace(text.find(" 1\n"), 3, " 9\n");
    } else {
      text.resize(text.size() / 2);
    }
    ASSERT_TRUE(objfs::SaveDurably(ListPath(), text).ok());
    const absl::Status kept = sets_[0]->Delete("home");
    EXPECT_EQ(kept.code(),
              is_later ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kDataLoss)
        << kept;
    EXPECT_THAT(Message(kept), HasSubstr(ListPath()));
    if (!is_later) {
      EXPECT_THAT(Message(kept), HasSubstr(Columns() + ".servers"));
    }
    EXPECT_THAT(LeftAt(0), Contains(".servers-home"));
    ExpectColumnsAtBoth();
  }
  // The way out.
  const std::string folder = absl::StrCat(directory_, "/volumes0/");
  ASSERT_TRUE(std::filesystem::copy_file(folder + Columns() + ".servers", ListPath(),
                                         std::filesystem::copy_options::overwrite_existing));
  const absl::Status deleted = sets_[0]->Delete("home");
  EXPECT_TRUE(deleted.ok()) << deleted;
  ExpectNothingLeft();
}

TEST_F(LeftListTest, WhereItIsNoMoreTheColumnsAreNamedByTheServersThatHaveThem) {
  const auto with_list = sets_[0]->LeftColumns("home");
  ASSERT_TRUE(with_list.ok()) << with_list.status();
  EXPECT_THAT(*with_list, IsEmpty());
  ASSERT_TRUE(std::filesystem::remove(ListPath()));
  for (size_t i = 0; i < 2; ++i) {
    const auto left = sets_[i]->LeftColumns("home");
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_THAT(*left, ElementsAre(Columns() + "*")) << i;
  }
  ASSERT_NO_FATAL_FAILURE(Create("other", 0));
  const auto others = sets_[0]->LeftColumns("other");
  ASSERT_TRUE(others.ok()) << others.status();
  EXPECT_THAT(*others, IsEmpty()) << "it has their names and inodes";
}

// -- work for each shard --------------------------------------------------------------------------

// Answers so for the shards in turn.
class Answers {
 public:
  explicit Answers(std::vector<absl::Status> answers) : answers_(std::move(answers)) {}

  absl::Status Run(const ShardWork& rules = {}) {
    std::vector<std::string> names = {"home"};
    for (size_t i = 1; i < answers_.size(); ++i) names.push_back(absl::StrCat("home~", i));
    ShardWork work = rules;
    work.run = [this](const std::string& shard) {
      asked_.push_back(shard);
      return answers_[asked_.size() - 1];
    };
    return WithShards(names, work);
  }
  const std::vector<std::string>& asked() const { return asked_; }

 private:
  const std::vector<absl::Status> answers_;
  std::vector<std::string> asked_;
};

absl::Status Done() { return absl::OkStatus(); }
absl::Status Away() { return absl::UnavailableError("away"); }
absl::Status Known() { return absl::InvalidArgumentError("known"); }
ShardWork KnownWasDone() { return {.run = {}, .was_done = absl::IsInvalidArgument}; }

std::string Text(const absl::Status& status) {
  return std::string(runtime::ToStd(status.message()));
}

TEST(WithShardsTest, AnErrorNamesItsShardAndEndsTheWork) {
  Answers answers({Done(), Away(), Done()});
  const absl::Status status = answers.Run();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(Text(status), "shard 1 of volume 'home': away");
  EXPECT_THAT(answers.asked(), ElementsAre("home", "home~1"));
}

TEST(WithShardsTest, AVolumeWithOneShardIsNamedAsItIs) {
  Answers answers({Known()});
  EXPECT_EQ(Text(answers.Run(KnownWasDone())), "known");
}

TEST(WithShardsTest, WorkThatGoesOnTellsTheFirstErrorAtTheEnd) {
  Answers answers({Away(), Known(), absl::AbortedError("changed")});
  ShardWork rules = KnownWasDone();
  rules.goes_on = true;
  EXPECT_EQ(Text(answers.Run(rules)), "shard 0 of volume 'home': away");
  EXPECT_THAT(answers.asked(), ElementsAre("home", "home~1", "home~2"));
}

TEST(WithShardsTest, WhatWasDoneBeforeIsNoErrorWhereSomethingWasToBeDone) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(Answers({Known(), Done()}).Run(KnownWasDone()).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "done before: shard 0 of volume 'home': known\n");
  EXPECT_TRUE(Answers({Done(), Known()}).Run(KnownWasDone()).ok());
  EXPECT_EQ(Text(Answers({Known(), Known()}).Run(KnownWasDone())),
            "shard 0 of volume 'home': known");
  EXPECT_TRUE(absl::IsUnavailable(Answers({Known(), Away()}).Run(KnownWasDone())));
}

TEST(WithShardsTest, NoOtherErrorIsTakenForThat) {
  EXPECT_TRUE(absl::IsInvalidArgument(Answers({Done(), Known()}).Run()));
  EXPECT_TRUE(absl::IsAlreadyExists(
      Answers({Done(), absl::AlreadyExistsError("it cannot keep the copy")}).Run(KnownWasDone())));
  const absl::Status other_build =
      runtime::MakeError(runtime::ErrorKind::kBadArguments, "the arguments do not decode");
  EXPECT_TRUE(absl::IsInvalidArgument(Answers({Done(), other_build}).Run(KnownWasDone())));
}

}  // namespace
}  // namespace abacus::apps
