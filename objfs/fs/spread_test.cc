// Files that are spread over servers: columns are made, found, shut and removed, and one server may
// be dead.

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/movables.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/spread/spread_layer.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::testing::Eventually;
using ::testing::ElementsAre;
using testing::FileSystemWorld;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Movables;

const Caller kRoot;
constexpr char kPlainRaid[] = "raid5(unit=8 KiB)/(isolation/storage)*3";
constexpr char kCachedRaid[] = "cache/raid5(unit=8 KiB)/(isolation/storage)*3";
constexpr char kMirror[] = "mirror(unit=8 KiB)/(isolation/storage)*2";
constexpr char kCachedMirror[] = "cache/mirror(unit=8 KiB)/(isolation/storage)*2";

std::string NoiseOf(uint32_t seed, size_t bytes) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Nodes: 0 the volume's server, 1 and 2 clients, 3 to 5 not used yet, 6 to 8 the servers of
// columns.
class SpreadTest : public ::testing::Test {
 protected:
  static constexpr size_t kSpare = 3;

  SpreadTest()
      : world_(
            9, nullptr,
            [this] {
              const auto now = std::chrono::steady_clock::now().time_since_epoch();
              return steady_ns_ + std::chrono::nanoseconds(now).count();
            },
            absl::Seconds(30), absl::Seconds(1), nullptr, 4) {}

  static FileHandle Create(FileSystem& at, const std::string& name, const std::string& stack) {
    const auto made = at.Create(kRoot, at.root(), name, S_IFREG | 0644, O_RDWR, stack);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->handle : 0;
  }
  static ObjectId Find(FileSystem& at, const std::string& name) {
    const auto node = at.Lookup(kRoot, at.root(), name);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? node->id : 0;
  }
  static FileHandle Open(FileSystem& at, const std::string& name, int flags = O_RDWR) {
    const auto handle = at.Open(kRoot, Find(at, name), flags);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : 0;
  }
  static void Write(FileSystem& at, FileHandle handle, uint64_t offset, const std::string& bytes) {
    const absl::Status written = at.Write(handle, offset, Block::CopyOf(bytes));
    EXPECT_TRUE(written.ok()) << written;
  }
  static std::string Read(FileSystem& at, FileHandle handle, uint64_t bytes = 1 << 20) {
    const auto read = at.Read(handle, 0, bytes);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->view()) : "an error";
  }
  static absl::Status RebuildAll(FileSystem& at, FileHandle handle) {
    for (;;) {
      const auto progress = at.Rebuild(handle, 0, 4);
      if (!progress.ok()) return progress.status();
      if (progress->left == 0) return absl::OkStatus();
    }
  }
  std::vector<ObjectId> ColumnsOfServer(size_t server) {
    const auto ids = world_.column_store(server).List(0, 1000);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.ok() ? *ids : std::vector<ObjectId>();
  }

  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  FileSystemWorld world_;
  size_t next_spare_ = kSpare;
};

TEST_F(SpreadTest, AFileHasAColumnAtEachOfItsServersAndItsInodeAtTheFirst) {
  const auto client = world_.Client(1), other = world_.Client(2);
  const std::string text = NoiseOf(1, 300'000);
  const FileHandle handle = Create(*client, "file", kPlainRaid);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  const ObjectId id = Find(*client, "file");
  EXPECT_THAT(ColumnsOfServer(0), IsEmpty());
  for (size_t server = 1; server < 4; ++server)
    EXPECT_THAT(ColumnsOfServer(server), ElementsAre(id));
  EXPECT_EQ(world_.store().GetAttributes(id)->allocated_bytes, 0u);
  EXPECT_EQ(world_.store().GetAttributes(id)->size_bytes, text.size());
  const auto columns = client->GetXattr(kRoot, id, kColumnsXattr);
  ASSERT_TRUE(columns.ok()) << columns.status();
  for (size_t server = 1; server < 4; ++server) {
    EXPECT_THAT(*columns, HasSubstr(absl::StrCat("object ", id, " at server ", server)));
  }
  EXPECT_EQ(*client->StackOf(id), kPlainRaid);
  EXPECT_EQ(other->Stat(id)->size, text.size());
  const FileHandle there = Open(*other, "file");
  EXPECT_EQ(Read(*other, there), text);
  EXPECT_TRUE(other->Release(there).ok());
  EXPECT_TRUE(client->Release(handle).ok());
}

// As of a server that answered for the volume before, and was held up while it opened the file.
TEST_F(SpreadTest, ServersThatWereStartedAgainRefuseAnEarlierOpening) {
  const auto client = world_.Client(1);
  const std::string text = NoiseOf(4, 100'000);
  const FileHandle handle = Create(*client, "file", kCachedRaid);
  const ObjectId id = Find(*client, "file");
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  ASSERT_TRUE(client->Release(handle).ok());
  for (size_t server = 1; server < 4; ++server) {
    world_.LoseColumns(server);
    world_.StartColumns(server, next_spare_++);
    const auto columns = world_.volume()->ColumnsAt(server);
    ASSERT_TRUE(columns.ok()) << columns.status();
    EXPECT_TRUE(absl::IsUnauthenticated((*columns)->Open(id, Version{1}).status())) << server;
  }
  const FileHandle again = Open(*client, "file");
  EXPECT_EQ(Read(*client, again), text);
  EXPECT_TRUE(client->Release(again).ok());
}

TEST_F(SpreadTest, ParityGoesRoundAmongServersFromFileToFile) {
  const auto client = world_.Client(1);
  std::set<std::string> orders;
  for (int i = 0; i < 3; ++i) {
    const std::string name = absl::StrCat("file", i);
    ASSERT_TRUE(client->Release(Create(*client, name, kPlainRaid)).ok());
    const auto columns = client->GetXattr(kRoot, Find(*client, name), kColumnsXattr);
    ASSERT_TRUE(columns.ok());
    orders.insert(columns->substr(columns->find(" at "), 12));  // where column 0 is
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST_F(SpreadTest, AStackWithMoreColumnsThanServersIsRefusedBeforeAnythingIsMade) {
  const auto client = world_.Client(1);
  const uint64_t objects = world_.volume()->Space()->objects;
  const auto made = client->Create(kRoot, client->root(), "file", S_IFREG | 0644, O_RDWR,
                                   "raid5/(isolation/storage)*5");
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("5 columns"));
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("--servers"));
  const auto odd = client->Create(kRoot, client->root(), "file", S_IFREG | 0644, O_RDWR,
                                  "raid5/(cache/isolation/storage)*3");
  EXPECT_FALSE(odd.ok());
  EXPECT_FALSE(
      client->SetXattr(kRoot, client->root(), kStackXattr, "raid5/(storage)*5", XattrRule::kAny)
          .ok());
  EXPECT_EQ(world_.volume()->Space()->objects, objects);
  // As many as there are: the first server takes one as well.
  const FileHandle four = Create(*client, "four", "raid5/(storage)*4");
  Write(*client, four, 0, "x");
  EXPECT_EQ(ColumnsOfServer(0).size(), 1u);
  EXPECT_TRUE(client->Release(four).ok());
}

TEST_F(SpreadTest, FilesHaveTheColumnsOfTheirVolumesOwnStack) {
  ASSERT_TRUE(world_.volume()->KeepFileStack(std::string(kCachedRaid)).ok());
  const auto client = world_.Client(1);
  const std::string text = NoiseOf(6, 100'000);
  const FileHandle handle = Create(*client, "file", "");
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  const ObjectId id = Find(*client, "file");
  EXPECT_EQ(*client->StackOf(id), kCachedRaid);
  for (size_t server = 1; server < 4; ++server)
    EXPECT_THAT(ColumnsOfServer(server), ElementsAre(id));
  EXPECT_EQ(Read(*client, handle), text);
  EXPECT_TRUE(client->Release(handle).ok());
}

// As where servers were drained since it was made.
TEST_F(SpreadTest, AVolumeThatHasTooFewServersForItsOwnStackIsJoinedAndMakesNoFilesOfIt) {
  ASSERT_TRUE(world_.volume()->KeepFileStack(std::string("raid5/(storage)*5")).ok());
  const auto client = world_.Client(1);
  ASSERT_NE(client, nullptr);
  const uint64_t objects = world_.volume()->Space()->objects;
  const auto made =
      client->Create(kRoot, client->root(), "file", S_IFREG | 0644, O_RDWR, std::string());
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("5 columns"));
  EXPECT_EQ(world_.volume()->Space()->objects, objects);
  EXPECT_TRUE(client->Release(Create(*client, "file", kPlainRaid)).ok());
}

TEST_F(SpreadTest, WhatIsRemovedLeavesNoColumns) {
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kCachedRaid);
  Write(*client, handle, 0, NoiseOf(2, 100'000));
  ASSERT_TRUE(client->Sync(handle).ok());
  ASSERT_TRUE(client->Unlink(kRoot, client->root(), "file").ok());
  EXPECT_EQ(ColumnsOfServer(1).size(), 1u);  // it is open
  ASSERT_TRUE(client->Release(handle).ok());
  for (size_t server = 1; server < 4; ++server) {
    EXPECT_TRUE(Eventually([&] { return ColumnsOfServer(server).empty(); })) << server;
  }
}

TEST_F(SpreadTest, ColumnsThatNoFileHasAreFoundAndTakenBack) {
  // Of a file that no name had become durable of when the volume's server died.
  ASSERT_TRUE(world_.column_store(1).CreateAs(4711, "", 1).ok());
  ASSERT_TRUE(world_.column_store(1).FlushAll().ok());
  std::string text;
  {
    const auto client = world_.Client(1);
    const FileHandle handle = Create(*client, "file", kPlainRaid);
    text = NoiseOf(3, 50'000);
    Write(*client, handle, 0, text);
    ASSERT_TRUE(client->Sync(handle).ok());
    ASSERT_TRUE(client->Release(handle).ok());
  }
  world_.Restart();
  EXPECT_TRUE(Eventually([&] { return ColumnsOfServer(1).size() == 1; }));
  const auto client = world_.Client(1);
  const FileHandle handle = Open(*client, "file");
  EXPECT_EQ(Read(*client, handle), text);
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadTest, ClientsTakeTurnsAndSeeWhatTheOthersWrote) {
  for (const char* stack : {kPlainRaid, kCachedRaid, kMirror, kCachedMirror}) {
    SCOPED_TRACE(stack);
    const auto one = world_.Client(1), two = world_.Client(2);
    const std::string name = absl::StrCat("file", std::string(stack).size());
    std::vector<std::pair<FileSystem*, FileHandle>> clients;
    clients.emplace_back(one.get(), Create(*one, name, stack));
    clients.emplace_back(two.get(), Open(*two, name));
    std::mt19937 random(static_cast<uint32_t>(runtime::testing::Seed(5)));
    std::string model;
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(i);
      auto& [at, handle] = clients[random() % 2];
      const uint64_t offset = random() % 60'000;
      switch (random() % 5) {
        case 0: {
          const auto cut = at->Set(kRoot, Find(*at, name), {.size = offset});
          ASSERT_TRUE(cut.ok()) << cut.status();
          ASSERT_EQ(cut->size, offset);
          model.resize(offset);
          break;
        }
        case 1: {
          const std::string text = NoiseOf(static_cast<uint32_t>(random()), random() % 9'000 + 1);
          const auto put = at->Append(handle, Block::CopyOf(text));
          ASSERT_TRUE(put.ok()) << put.status();
          ASSERT_EQ(*put, model.size());
          model += text;
          break;
        }
        case 2: {
          const std::string text = NoiseOf(static_cast<uint32_t>(random()), random() % 30'000 + 1);
          Write(*at, handle, offset, text);
          model.resize(std::max(model.size(), offset + text.size()));
          model.replace(offset, text.size(), text);
          break;
        }
        case 3:
          ASSERT_EQ(at->Stat(Find(*at, name))->size, model.size());
          break;
        default:
          ASSERT_TRUE(Read(*at, handle) == model);
      }
    }
    for (auto& [at, handle] : clients) {
      ASSERT_TRUE(Read(*at, handle) == model);
      ASSERT_TRUE(at->Release(handle).ok());
    }
  }
}

class SpreadMovesTest : public SpreadTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Stacks, SpreadMovesTest, ::testing::Values(kCachedRaid, kCachedMirror));

TEST_P(SpreadMovesTest, LayersMoveWhileTheyWork) {
  Movables movables(world_);
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", GetParam());
  std::string model;
  for (uint32_t i = 0; i < 40; ++i) {
    const std::string text = NoiseOf(i, 20'000);
    Write(*client, handle, i * 7'000, text);
    model.resize(std::max(model.size(), i * 7'000 + text.size()));
    model.replace(i * 7'000, text.size(), text);
    const absl::Status moved = movables.MoveOne(i * 131 + 7);
    ASSERT_TRUE(moved.ok()) << moved;
    if (i % 10 == 9) {
      ASSERT_TRUE(client->Sync(handle).ok());
    }
    ASSERT_TRUE(Read(*client, handle) == model) << i;
  }
  EXPECT_GT(movables.moves(Movables::kLayer), 5u);
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadTest, AServerDiesAndWorkGoesOnUntilItIsBackAndAnotherMayDie) {
  const auto client = world_.Client(1), other = world_.Client(2);
  const FileHandle handle = Create(*client, "file", kCachedRaid);
  std::string text = NoiseOf(7, 400'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  world_.LoseColumns(2);
  EXPECT_TRUE(Read(*client, handle) == text);
  const std::string more = NoiseOf(8, 150'000);
  Write(*client, handle, 100'000, more);
  text.replace(100'000, more.size(), more);
  ASSERT_TRUE(client->Sync(handle).ok());
  const FileHandle there = Open(*other, "file");
  EXPECT_TRUE(Read(*other, there) == text);
  // A file that is made without it lacks the column that is there.
  const FileHandle late = Create(*client, "late", kPlainRaid);
  Write(*client, late, 0, "made without it");
  ASSERT_TRUE(client->Sync(late).ok());

  world_.StartColumns(2, kSpare);
  ASSERT_TRUE(client->Release(handle).ok());
  ASSERT_TRUE(client->Release(late).ok());
  const absl::Status rebuilt = RebuildAll(*other, there);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt;
  const FileHandle late_there = Open(*other, "late");
  ASSERT_TRUE(RebuildAll(*other, late_there).ok());
  ASSERT_TRUE(other->Release(there).ok());
  ASSERT_TRUE(other->Release(late_there).ok());

  world_.LoseColumns(3);
  const FileHandle again = Open(*client, "file"), late_again = Open(*client, "late");
  EXPECT_TRUE(Read(*client, again) == text);
  EXPECT_EQ(Read(*client, late_again), "made without it");
  EXPECT_TRUE(client->Release(again).ok());
  EXPECT_TRUE(client->Release(late_again).ok());
}

TEST_F(SpreadTest, ACopyThatMissedSomethingIsNotBelievedUntilItIsRebuilt) {
  const auto client = world_.Client(1), other = world_.Client(2);
  FileHandle handle = Create(*client, "file", kCachedMirror);
  std::string text = NoiseOf(7, 400'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  std::vector<size_t> at;
  for (size_t server = 1; server < 4; ++server) {
    if (!ColumnsOfServer(server).empty()) at.push_back(server);
  }
  ASSERT_EQ(at.size(), 2u);
  const auto lacking = [&] {
    const auto files = world_.volume()->Spread(0, 1000);
    EXPECT_TRUE(files.ok() && files->files.size() == 1);
    return files->files.front().inode.lacking;
  };
  EXPECT_THAT(lacking(), IsEmpty());

  world_.LoseColumns(at[0]);
  EXPECT_TRUE(Read(*client, handle) == text);
  const std::string more = NoiseOf(8, 50'000);
  Write(*client, handle, 100'000, more);
  text.replace(100'000, more.size(), more);
  ASSERT_TRUE(client->Sync(handle).ok());
  EXPECT_EQ(lacking().size(), 1u);
  ASSERT_TRUE(client->Release(handle).ok());

  // What is there is old, and nobody is told so by it.
  world_.StartColumns(at[0], kSpare);
  world_.LoseColumns(at[1]);
  handle = Open(*other, "file");
  for (int i = 0; i < 2; ++i) {
    const auto nothing = other->Read(handle, 0, 1 << 20);
    ASSERT_FALSE(nothing.ok());
    EXPECT_EQ(FsErrorOf(nothing.status()), FsError::kInputOutput) << nothing.status();
    EXPECT_FALSE(RebuildAll(*other, handle).ok());
  }
  world_.StartColumns(at[1], kSpare + 1);
  EXPECT_TRUE(Eventually([&] { return other->Read(handle, 0, 1).ok(); }));
  EXPECT_TRUE(Read(*other, handle) == text);
  EXPECT_EQ(lacking().size(), 1u);
  const absl::Status rebuilt = RebuildAll(*other, handle);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt;
  EXPECT_THAT(lacking(), IsEmpty());
  ASSERT_TRUE(other->Release(handle).ok());

  world_.LoseColumns(at[1]);
  handle = Open(*client, "file");
  EXPECT_TRUE(Read(*client, handle) == text);
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadTest, WithTwoServersDeadCallsFailUntilOneIsBackAndAllOfItIsThere) {
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kPlainRaid);
  const std::string text = NoiseOf(9, 200'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  world_.LoseColumns(1);
  EXPECT_TRUE(Read(*client, handle) == text);
  world_.LoseColumns(2);
  const auto nothing = client->Read(handle, 0, 1 << 20);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(FsErrorOf(nothing.status()), FsError::kInputOutput) << nothing.status();
  world_.StartColumns(2, kSpare);
  EXPECT_TRUE(Eventually([&] { return client->Read(handle, 0, 1).ok(); }));
  EXPECT_TRUE(Read(*client, handle) == text);
  EXPECT_TRUE(client->Release(handle).ok());
}

// The columns are opened anew under the same promise: nobody else has written meanwhile.
TEST_F(SpreadTest, WhatWasAcknowledgedAndNotSyncedIsThereWhenServersAreBack) {
  const auto client = world_.Client(1), other = world_.Client(2);
  const FileHandle handle = Create(*client, "file", kPlainRaid);
  std::string text = NoiseOf(12, 200'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  for (uint32_t i = 0; i < 5; ++i) {
    const std::string piece = NoiseOf(13 + i, 1000);
    Write(*client, handle, text.size(), piece);
    text += piece;
  }
  world_.LoseColumns(1);
  world_.LoseColumns(2);
  EXPECT_FALSE(client->Read(handle, 0, 1 << 20).ok());
  EXPECT_FALSE(client->Read(handle, 0, 1 << 20).ok());
  world_.StartColumns(1, kSpare);
  world_.StartColumns(2, kSpare + 1);
  EXPECT_TRUE(Eventually([&] { return client->Read(handle, 0, 1).ok(); }));
  EXPECT_TRUE(Read(*client, handle) == text);
  // That a server went with what was not durable is told once.
  EXPECT_FALSE(client->Sync(handle).ok());
  EXPECT_TRUE(client->Sync(handle).ok());
  const FileHandle there = Open(*other, "file");
  EXPECT_TRUE(Read(*other, there) == text);
  EXPECT_TRUE(other->Release(there).ok());
  EXPECT_TRUE(client->Release(handle).ok());
}

// Nothing but the sync looks whether they are back.
TEST_F(SpreadTest, ASyncFindsTheServersThatAreBack) {
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kCachedRaid);
  const std::string text = NoiseOf(14, 100'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Push(handle).ok());
  world_.LoseColumns(1);
  world_.LoseColumns(2);
  EXPECT_FALSE(client->Sync(handle).ok());
  world_.StartColumns(1, kSpare);
  world_.StartColumns(2, kSpare + 1);
  EXPECT_TRUE(Eventually([&] { return client->Sync(handle).ok(); }));
  EXPECT_TRUE(Read(*client, handle) == text);
  EXPECT_TRUE(client->Release(handle).ok());
}

// The columns are opened anew for what is to be written back, under the promise that breaks.
TEST_F(SpreadTest, WhatIsKeptIsWrittenBackForAnotherClientToServersThatAreBack) {
  const auto client = world_.Client(1), other = world_.Client(2);
  const FileHandle handle = Create(*client, "file", kCachedRaid);
  ASSERT_TRUE(client->Sync(handle).ok());
  const std::string text = NoiseOf(18, 100'000);
  Write(*client, handle, 0, text);
  world_.LoseColumns(1);
  world_.LoseColumns(2);
  EXPECT_FALSE(client->Sync(handle).ok());
  world_.StartColumns(1, kSpare);
  world_.StartColumns(2, kSpare + 1);
  const FileHandle there = Open(*other, "file");
  EXPECT_TRUE(Read(*other, there) == text);
  // Of what the servers had when they died the layer cannot know: it may tell of more than was
  // lost.
  const absl::Status told = client->Sync(handle);
  EXPECT_TRUE(told.ok() || FsErrorOf(told) == FsError::kInputOutput) << told;
  EXPECT_TRUE(client->Sync(handle).ok());
  EXPECT_TRUE(Read(*client, handle) == text);
  EXPECT_TRUE(other->Release(there).ok());
  EXPECT_TRUE(client->Release(handle).ok());
}

// A client that died had not told the size.
TEST_F(SpreadTest, TheSizeOfAFileIsThatOfWhatIsRead) {
  const auto client = world_.Client(1), other = world_.Client(2);
  const FileHandle handle = Create(*client, "file", kPlainRaid);
  ASSERT_TRUE(client->Sync(handle).ok());
  Write(*client, handle, 0, NoiseOf(15, 100'000));
  world_.cluster().Kill(1);
  EXPECT_TRUE(Eventually([&] {
    steady_ns_ += absl::ToInt64Nanoseconds(absl::Seconds(10));
    const auto clients = world_.volume()->Clients();
    return other->Renew().ok() && clients.ok() && clients->size() == 1;
  }));
  const FileHandle there = Open(*other, "file");
  EXPECT_TRUE(other->Stat(Find(*other, "file")).ok());  // what is told then is known from then on
  const size_t size = Read(*other, there).size();
  EXPECT_EQ(other->Stat(Find(*other, "file"))->size, size);
  EXPECT_TRUE(other->Release(there).ok());
}

// The client is known to all servers; only the layer over a file's columns was at a node that died,
// and with it a size that no server has.
TEST_F(SpreadTest, ASizeThatDiedWithALayerIsToldByOneSyncAndNoOtherFileLosesAny) {
  std::vector<runtime::Rid> layers;  // the one over the columns first
  world_.on_layer = [&](size_t, const runtime::Rid& rid) { layers.push_back(rid); };
  const auto client = world_.Client(1), other = world_.Client(2);
  const std::string text = NoiseOf(16, 100'000);
  for (const char* stack : {kPlainRaid, kCachedRaid, kCachedMirror}) {
    SCOPED_TRACE(stack);
    const std::string name = absl::StrCat("file-", layers.size());
    const FileHandle here = Create(*client, name + "-here", stack);
    Write(*client, here, 0, text);
    layers.clear();
    const FileHandle handle = Create(*client, name, stack);
    Write(*client, handle, 0, text);
    ASSERT_TRUE(client->Sync(handle).ok());
    ASSERT_FALSE(layers.empty());
    const size_t node = next_spare_++;
    const auto moved = world_.cluster().Move(layers.front(), 1, node);
    ASSERT_TRUE(moved.ok() && moved->status.ok()) << moved.status();
    ASSERT_TRUE(client->Set(kRoot, Find(*client, name), {.size = 50'000}).ok());
    ASSERT_TRUE(client->Set(kRoot, Find(*client, name + "-here"), {.size = 70'000}).ok());
    world_.cluster().Kill(node);
    const absl::Status told = client->Sync(handle);
    EXPECT_EQ(FsErrorOf(told), FsError::kInputOutput) << told;
    EXPECT_TRUE(client->Sync(handle).ok()) << "it is told once";
    const size_t size = Read(*client, handle).size();
    EXPECT_TRUE(size == 50'000 || size == 100'000) << size;
    EXPECT_EQ(client->Stat(Find(*client, name))->size, size);
    EXPECT_TRUE(client->Sync(here).ok()) << "nothing of it was lost";
    EXPECT_TRUE(Read(*client, here) == text.substr(0, 70'000));
    const FileHandle there = Open(*other, name + "-here");
    EXPECT_TRUE(Read(*other, there) == text.substr(0, 70'000));
    EXPECT_TRUE(other->Release(there).ok());
    EXPECT_TRUE(client->Release(handle).ok());
    EXPECT_TRUE(client->Release(here).ok());
  }
  world_.on_layer = nullptr;
}

// The server takes what it was not told yet along, which is times and nothing that was synced.
TEST_F(SpreadTest, WhatWasSyncedIsNotToldAsLostWithTheServer) {
  const auto client = world_.Client(1);
  const std::string text = NoiseOf(17, 100'000);
  const FileHandle handle = Create(*client, "file", kCachedRaid);
  ASSERT_TRUE(client->Sync(handle).ok());
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->SyncData(handle).ok());
  world_.LoseServer();
  world_.StartServer(kSpare);
  const absl::Status synced = client->Sync(handle);
  EXPECT_TRUE(synced.ok()) << synced;
  EXPECT_TRUE(Read(*client, handle) == text);
  EXPECT_TRUE(client->Release(handle).ok());
}

// Times only are left for later, and told then.
TEST_F(SpreadTest, ASyncOfDataTellsTheSizeAndLeavesTimes) {
  const auto client = world_.Client(1);
  int files = 0;
  for (const char* stack : {kPlainRaid, kCachedRaid, kMirror}) {
    SCOPED_TRACE(stack);
    const std::string name = absl::StrCat("file", ++files);
    const FileHandle handle = Create(*client, name, stack);
    Write(*client, handle, 0, NoiseOf(16, 50'000));
    ASSERT_TRUE(client->SyncData(handle).ok());
    const ObjectId id = Find(*client, name);
    const auto there = [&] { return world_.volume()->Stat(std::vector<ObjectId>{id})->front(); };
    const Node made = there();
    EXPECT_EQ(made.size, 50'000u);
    Write(*client, handle, 100, NoiseOf(17, 1000));
    ASSERT_TRUE(client->SyncData(handle).ok());
    EXPECT_EQ(there().version, made.version) << "nothing but times";
    Write(*client, handle, 50'000, NoiseOf(18, 1000));
    ASSERT_TRUE(client->SyncData(handle).ok());
    EXPECT_EQ(there().size, 51'000u);
    const Node grown = there();
    Write(*client, handle, 100, NoiseOf(19, 1000));
    ASSERT_TRUE(client->SyncData(handle).ok());
    ASSERT_TRUE(client->Sync(handle).ok());
    EXPECT_GT(there().version, grown.version);
    // A size that went away and came back, as a journal's does.
    ASSERT_TRUE(client->Set(kRoot, id, {.size = 0}).ok());
    Write(*client, handle, 0, NoiseOf(20, 51'000));
    ASSERT_TRUE(client->SyncData(handle).ok());
    EXPECT_EQ(there().size, 51'000u);
    EXPECT_TRUE(client->Release(handle).ok());
  }
}

// And what could not be written when the promise ended is not written over what others wrote.
TEST_F(SpreadTest, WhatIsLeftWhenThePromiseEndsIsToldAndForgotten) {
  const auto client = world_.Client(1), other = world_.Client(2);
  const FileHandle handle = Create(*client, "file", kPlainRaid);
  std::string text = NoiseOf(12, 200'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  Write(*client, handle, text.size(), "lost");
  world_.LoseColumns(1);
  world_.LoseColumns(2);
  EXPECT_FALSE(client->Read(handle, 0, 1 << 20).ok());
  EXPECT_FALSE(client->Read(handle, 0, 1 << 20).ok());
  const FileHandle there = Open(*other, "file");
  EXPECT_FALSE(other->Read(there, 0, 1).ok());
  world_.StartColumns(1, kSpare);
  world_.StartColumns(2, kSpare + 1);
  EXPECT_TRUE(Eventually([&] { return other->Read(there, 0, 1).ok(); }));
  Write(*other, there, text.size(), "new!");
  text += "new!";
  EXPECT_TRUE(Read(*client, handle) == text);
  EXPECT_FALSE(client->Sync(handle).ok());
  EXPECT_TRUE(client->Sync(handle).ok());
  EXPECT_TRUE(Read(*client, handle) == text);
  EXPECT_TRUE(other->Release(there).ok());
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadTest, AServerThatLostItsDiskIsFilledAgain) {
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kPlainRaid);
  const std::string text = NoiseOf(10, 200'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Release(handle).ok());
  world_.LoseColumns(1);
  world_.StartColumns(1, kSpare, /*is_empty=*/true);
  const FileHandle again = Open(*client, "file");
  ASSERT_TRUE(RebuildAll(*client, again).ok());
  const auto scrubbed =
      testing::ScrubInSteps([&](uint64_t from) { return client->Scrub(again, from, UINT64_MAX); });
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_TRUE(scrubbed->done);
  EXPECT_EQ(scrubbed->mismatched + scrubbed->damaged + scrubbed->repaired, 0u);
  ASSERT_TRUE(client->Release(again).ok());
  world_.LoseColumns(3);
  const FileHandle last = Open(*client, "file");
  EXPECT_TRUE(Read(*client, last) == text);
  EXPECT_TRUE(client->Release(last).ok());
}

TEST_F(SpreadTest, TheVolumesServerDiesAndComesAgain) {
  auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kCachedRaid);
  const std::string text = NoiseOf(11, 100'000);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  ASSERT_TRUE(client->Release(handle).ok());
  client.reset();
  world_.Restart();
  client = world_.Client(1);
  const FileHandle again = Open(*client, "file");
  EXPECT_TRUE(Read(*client, again) == text);
  EXPECT_TRUE(client->Release(again).ok());
}

// Columns whose bytes come when the test says, and which lose what they have when they are closed.
struct LateColumnsControl {
  std::promise<void> writing, may_write;
};
class LateColumns final : public ColumnsLayer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"test-late", "test.LateColumns", {}, 0, 0, true};
  explicit LateColumns(LateColumnsControl* control) : control_(control) {}

  absl::Status Write(uint64_t, const Block&, Version) override {
    control_->writing.set_value();
    control_->may_write.get_future().wait();
    return absl::OkStatus();
  }
  absl::Status Flush(Version) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> Size(Version) override { return 0; }
  absl::Status TakeColumns(const std::vector<runtime::Ref<Layer>>&,
                           const runtime::Ref<Layer>&) override {
    return absl::OkStatus();
  }
  absl::Status CloseColumns(Version) override { return absl::DataLossError("of the test"); }
  ABACUS_COLUMNS_LAYER(LateColumns, 1)

 private:
  LateColumnsControl* const control_;
};

// Columns that are as long as what was written to them.
class GrowingColumns final : public ColumnsLayer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"test-growing", "test.GrowingColumns", {}, 0, 0, true};

  absl::Status Write(uint64_t offset, const Block& bytes, Version) override {
    size_ = offset + bytes.size();
    return absl::OkStatus();
  }
  absl::Status Flush(Version) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> Size(Version) override { return size_.load(); }
  absl::Status TakeColumns(const std::vector<runtime::Ref<Layer>>&,
                           const runtime::Ref<Layer>&) override {
    return absl::OkStatus();
  }
  absl::Status CloseColumns(Version) override { return absl::OkStatus(); }
  ABACUS_COLUMNS_LAYER(GrowingColumns, 1)

 private:
  std::atomic<uint64_t> size_{0};
};

// The sizes that an inode is told, of which one takes as long as the test says.
struct ToldSizes {
  void Hold(uint64_t size) { hold = size; }
  void Tell(uint64_t size) {
    if (hold.exchange(0) == size && size > 0) {
      held.set_value();
      may_go_on.get_future().wait();
    }
    last = size;
  }
  std::atomic<uint64_t> hold{0}, last{0};
  std::promise<void> held, may_go_on;
};

// Has a promise, and is no file.
class PromiseOnly final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"test-promise", "test.PromiseOnly", {}, 0, 0, true};
  explicit PromiseOnly(ToldSizes* told = nullptr) : told_(told) {}
  absl::Status Truncate(uint64_t size, Version) override {
    if (told_ != nullptr) told_->Tell(size);
    return absl::OkStatus();
  }
  absl::Status Flush(Version) override { return absl::OkStatus(); }
  absl::StatusOr<Promise> Claim(PromiseKind kind, Version) override {
    return Promise{kind, Version{1}};
  }
  ABACUS_LAYER(PromiseOnly, 1)

 private:
  ToldSizes* const told_;
};

// A layer of a client that has been promised a file, over what the test puts below it.
class SpreadLayerTest : public ::testing::Test {
 protected:
  SpreadLayerTest()
      : world_(
            7, nullptr, nullptr, absl::Seconds(30), absl::Seconds(1),
            [](runtime::ObjectTypes& types) {
              types.Add<LateColumns>().Add<GrowingColumns>().Add<PromiseOnly>();
            },
            4) {}

  void SetUp() override {
    client_ = world_.Client(1);
    const auto made =
        client_->Create(kRoot, client_->root(), "file", S_IFREG | 0644, O_RDWR, kPlainRaid);
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(client_->Write(made->handle, 0, Block::CopyOf("x")).ok());  // it is promised now
    id_ = client_->Lookup(kRoot, client_->root(), "file")->id;
    while (writer_ < 100 && !world_.volume()->OpenColumns(writer_, id_).ok()) ++writer_;
  }
  template <typename Kind>
  runtime::Ref<Layer> Adopt(std::unique_ptr<Kind> layer) {
    EXPECT_TRUE(layer->Init({}, {}).ok());
    return runtime::Ref<Layer>(world_.cluster()[1].binding().Adopt(std::move(layer)).base());
  }
  template <typename Columns>
  runtime::Ref<SpreadLayer> Over(std::unique_ptr<Columns> columns,
                                 std::unique_ptr<PromiseOnly> promise) {
    const runtime::Ref<Layer> below = Adopt(std::move(promise));
    const runtime::Ref<ColumnsLayer> over(Adopt(std::move(columns)).base());
    const auto spread =
        world_.cluster().Create<SpreadLayer>(1, std::vector<runtime::Ref<Layer>>{below},
                                             std::vector<std::pair<std::string, std::string>>());
    const auto volume = world_.cluster()[1].RefTo<Volume>(world_.volume().rid());
    EXPECT_TRUE(spread->Bind(volume, over, id_, writer_).ok());
    return spread;
  }

  FileSystemWorld world_;
  std::unique_ptr<FileSystem> client_;
  ObjectId id_ = 0;
  uint16_t writer_ = 1;
};

TEST_F(SpreadLayerTest, WhatIsWrittenBesideAFlushIsNotTakenForFlushed) {
  LateColumnsControl control;
  const auto spread =
      Over(std::make_unique<LateColumns>(&control), std::make_unique<PromiseOnly>());
  std::thread writing([&] {
    const absl::Status written = spread->Write(0, Block::CopyOf("late"), Version{100});
    EXPECT_TRUE(written.ok()) << written;
  });
  control.writing.get_future().wait();
  EXPECT_TRUE(spread->Flush(Version{101}).ok());
  control.may_write.set_value();
  writing.join();
  EXPECT_TRUE(absl::IsDataLoss(spread->GiveUp(Version{102})));
  EXPECT_TRUE(spread->Flush(Version{103}).ok()) << "it has been told";
}

TEST_F(SpreadLayerTest, OfTwoSizesThatAreToldAtOnceTheNewerOneIsTheLast) {
  ToldSizes told;
  const auto spread =
      Over(std::make_unique<GrowingColumns>(), std::make_unique<PromiseOnly>(&told));
  ASSERT_TRUE(spread->Write(0, Block::CopyOf(std::string(100, 'a')), Version{100}).ok());
  told.Hold(100);
  std::thread first([&] { EXPECT_TRUE(spread->Flush(Version{101}).ok()); });
  told.held.get_future().wait();
  ASSERT_TRUE(spread->Write(100, Block::CopyOf(std::string(100, 'b')), Version{102}).ok());
  std::promise<void> flushed;
  std::thread second([&] {
    EXPECT_TRUE(spread->Flush(Version{103}).ok());
    flushed.set_value();
  });
  // It does not end before the first one has been told; what is waited for is that it does.
  flushed.get_future().wait_for(std::chrono::milliseconds(200));
  told.may_go_on.set_value();
  first.join();
  second.join();
  EXPECT_EQ(told.last, 200u);
}

// Whoever is shut out learns so by its next call, and whoever came later has the column.
TEST(ColumnStoreTest, AColumnIsItsLastOpenersOnly) {
  FileSystemWorld world(6, nullptr, nullptr, absl::Seconds(30), absl::Seconds(1), nullptr, 2);
  const auto found = world.volume()->ColumnsAt(1);
  ASSERT_TRUE(found.ok()) << found.status();
  // Of an object that there is: columns of others are swept away once the server has been found.
  const ObjectId id = world.Client(1)->root();
  const auto first = (*found)->Open(id, Version{10});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE((*first)->Write(0, Block::CopyOf("one"), Version{11}).ok());
  const auto second = (*found)->Open(id, Version{20});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(IsNoClient((*first)->Write(0, Block::CopyOf("two"), Version{12})));
  EXPECT_TRUE(IsNoClient((*first)->Read(0, 10, Version{12}).status()));
  EXPECT_TRUE(IsNoClient((*first)->SetInode("r", Version{12})));
  EXPECT_TRUE(IsNoClient((*found)->Open(id, Version{15}).status()));
  EXPECT_EQ((*second)->Read(0, 10, Version{21})->bytes.view(), "one");
  ASSERT_TRUE((*found)->Close(id, Version{10}).ok());  // late, of the first
  EXPECT_TRUE((*second)->Read(0, 10, Version{22}).ok());
}

}  // namespace
}  // namespace abacus::objfs
