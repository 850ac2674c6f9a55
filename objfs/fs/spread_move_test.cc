// A column of a file goes to another server while the one that has it serves.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/raid/testing/scrub_all.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::Ref;
using runtime::testing::Eventually;
using testing::FileSystemWorld;

constexpr char kMovedRaid[] = "raid5(unit=8 KiB)/(isolation/storage)*3";
constexpr char kCachedMovedRaid[] = "cache/raid5(unit=8 KiB)/(isolation/storage)*3";
constexpr char kMovedMirror[] = "cache/mirror(unit=8 KiB)/(isolation/storage)*2";

std::string MoveNoise(uint64_t seed, size_t bytes) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Nodes: 0 the volume's server, 1 and 2 clients, 5 to 8 the servers of columns.
class SpreadMoveTest : public ::testing::Test {
 protected:
  static constexpr size_t kServers = 5;

  SpreadMoveTest()
      : world_(9, nullptr, nullptr, absl::Seconds(30), absl::Seconds(1), nullptr, kServers) {}

  void SetUp() override {
    const auto joined = world_.volume()->Join(std::string("mover"), Ref<ClientEnd>());
    ASSERT_TRUE(joined.ok()) << joined.status();
    writer_ = joined->writer;
  }

  static FileHandle Create(FileSystem& at, const std::string& name, const std::string& stack) {
    const auto made = at.Create(Caller(), at.root(), name, S_IFREG | 0644, O_RDWR, stack);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->handle : 0;
  }
  static void Write(FileSystem& at, FileHandle handle, uint64_t offset, const std::string& bytes) {
    const absl::Status written = at.Write(handle, offset, Block::CopyOf(bytes));
    EXPECT_TRUE(written.ok()) << written;
  }
  static std::string Read(FileSystem& at, FileHandle handle) {
    const auto read = at.Read(handle, 0, 1 << 22);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->view()) : "an error";
  }
  Node FileOf(FileSystem& at, const std::string& name) {
    const auto node = at.Lookup(Caller(), at.root(), name);
    EXPECT_TRUE(node.ok()) << node.status();
    const auto nodes = world_.volume()->Stat(std::vector<ObjectId>{node.ok() ? node->id : 0});
    EXPECT_TRUE(nodes.ok()) << nodes.status();
    return nodes.ok() ? nodes->front() : Node();
  }
  // The first server but that of the names that has no column of the file.
  static uint32_t FreeOf(const Node& file) {
    uint32_t server = 1;
    while (std::count(file.inode.columns.begin(), file.inode.columns.end(), server) > 0) ++server;
    return server;
  }
  bool IsAt(uint32_t server, ObjectId id) {
    return world_.column_store(server).GetAttributes(id).ok();
  }
  Ref<ColumnStore> ColumnsAt(uint32_t server) {
    const auto columns = world_.volume()->ColumnsAt(server);
    EXPECT_TRUE(columns.ok()) << columns.status();
    return columns.value_or(Ref<ColumnStore>());
  }
  // By a client of its own, as often as it has to be said.
  absl::Status Move(ObjectId id, const ColumnMove& move) {
    const absl::Status opened = world_.volume()->Open(writer_, id).status();
    if (!opened.ok()) return opened;
    absl::Status moved;
    EXPECT_TRUE(Eventually([&] {
      moved = world_.volume()->MoveColumn(writer_, id, move);
      return !IsWouldBlock(moved);
    }));
    EXPECT_TRUE(world_.volume()->Close(writer_, id).ok());
    return moved;
  }
  void MovesAndIsWhole(const char* stack);

  FileSystemWorld world_;
  uint16_t writer_ = 0;
};

// What is not flushed yet, too; and then the redundancy is as it was.
void SpreadMoveTest::MovesAndIsWhole(const char* stack) {
  const auto client = world_.Client(1), other = world_.Client(2);
  const std::string text = MoveNoise(1, 300'000);
  const FileHandle handle = Create(*client, "file", stack);
  Write(*client, handle, 0, text);
  const Node file = FileOf(*client, "file");
  const uint32_t from = file.inode.columns[1], to = FreeOf(file);
  const absl::Status moved = Move(file.id, {from, to, 0});
  ASSERT_TRUE(moved.ok()) << moved;
  EXPECT_TRUE(IsAt(to, file.id));
  EXPECT_FALSE(IsAt(from, file.id));
  EXPECT_EQ(FileOf(*client, "file").inode.columns[1], to);
  // Said again it was done.
  EXPECT_TRUE(Move(file.id, {from, to, 0}).ok());
  EXPECT_TRUE(Read(*client, handle) == text);
  world_.LoseColumns(from);
  const std::string more = MoveNoise(2, 50'000);
  Write(*client, handle, 100'000, more);
  ASSERT_TRUE(client->Sync(handle).ok());
  const std::string whole = text.substr(0, 100'000) + more + text.substr(150'000);
  world_.LoseColumns(file.inode.columns[0]);
  const auto again = other->Open(Caller(), file.id, O_RDWR);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(Read(*other, *again) == whole) << "with the moved one, and without another";
  EXPECT_TRUE(other->Release(*again).ok());
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadMoveTest, AColumnIsMovedWithWhatItsClientKeepsAndTheFileIsAsRedundantAsBefore) {
  MovesAndIsWhole(kCachedMovedRaid);
}
TEST_F(SpreadMoveTest, ACopyIsMovedLikewise) { MovesAndIsWhole(kMovedMirror); }

TEST_F(SpreadMoveTest, AFileWhoseBytesWereNeverAskedForIsMoved) {
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kMovedRaid);
  const Node file = FileOf(*client, "file");
  const uint32_t from = file.inode.columns[0], to = FreeOf(file);
  const absl::Status moved = Move(file.id, {from, to, 0});
  ASSERT_TRUE(moved.ok()) << moved;
  Write(*client, handle, 0, "text");
  ASSERT_TRUE(client->Sync(handle).ok());
  EXPECT_TRUE(IsAt(to, file.id));
  EXPECT_FALSE(IsAt(from, file.id));
  EXPECT_EQ(Read(*client, handle), "text");
  EXPECT_TRUE(client->Release(handle).ok());
}

// Where it is not known to be old, a client writes all the while.
TEST_F(SpreadMoveTest, WhatIsWrittenWhileItIsCopiedIsThere) {
  const auto client = world_.Client(1);
  std::string text = MoveNoise(3, 3'000'000);
  const FileHandle handle = Create(*client, "file", kMovedRaid);
  Write(*client, handle, 0, text);
  std::atomic<bool> done{false};
  std::thread writing([&] {
    std::mt19937_64 random(4);
    while (!done) {
      const uint64_t at = random() % (text.size() - 20'000);
      const std::string bytes = MoveNoise(random(), 1 + random() % 20'000);
      Write(*client, handle, at, bytes);
      text.replace(at, bytes.size(), bytes);
    }
  });
  const Node before = FileOf(*client, "file");
  for (int i = 0; i < 6; ++i) {
    const Node file = FileOf(*client, "file");
    const uint32_t from = file.inode.columns[i % 3], to = FreeOf(file);
    const Ref<ColumnStore> source = ColumnsAt(from), target = ColumnsAt(to);
    CopyProgress progress;
    while (!progress.whole) {
      const auto step = target->CopyFrom(source, file.id, progress.copy, progress.next, 100'000);
      ASSERT_TRUE(step.ok()) << step.status();
      progress = *step;
    }
    ASSERT_TRUE(target->FollowFrom(source, file.id, progress.copy).ok());
    const absl::Status moved = Move(file.id, {from, to, progress.copy});
    ASSERT_TRUE(moved.ok()) << moved;
  }
  done = true;
  writing.join();
  EXPECT_TRUE(Read(*client, handle) == text);
  const auto scrubbed =
      testing::ScrubInSteps([&](uint64_t from) { return client->Scrub(handle, from, UINT64_MAX); });
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
  EXPECT_TRUE(client->Release(handle).ok());
}

// Whatever is done to a column between the steps, the copy is it byte for byte, holes and all.
TEST_F(SpreadMoveTest, ACopyIsItsColumnWhateverIsChangedMeanwhile) {
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kMovedRaid);
  const Node file = FileOf(*client, "file");
  const uint32_t from = file.inode.columns[0], to = FreeOf(file);
  const Ref<ColumnStore> source = ColumnsAt(from), target = ColumnsAt(to);
  constexpr uint64_t kFar = uint64_t{8} << 40, kMost = 2'000'000;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto layer = source->Open(file.id, Version{seed});
    ASSERT_TRUE(layer.ok()) << layer.status();
    const auto change = [&] {
      const uint64_t at = (random() % 8 == 0 ? kFar : 0) + random() % kMost;
      const Version now{100 + seed};
      switch (random() % 5) {
        case 0:
          return (*layer)->Truncate(random() % 2 == 0 ? at : at % kMost, now);
        case 1:
          return (*layer)->Punch(Range{at, random() % 4 == 0 ? 0 : 1 + random() % 300'000}, now);
        default:
          return (*layer)->Write(at, Block::CopyOf(MoveNoise(random(), 1 + random() % 200'000)),
                                 now);
      }
    };
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(change().ok());
    CopyProgress progress;
    while (!progress.whole) {
      const auto step = target->CopyFrom(source, file.id, progress.copy, progress.next, 200'000);
      ASSERT_TRUE(step.ok()) << step.status();
      progress = *step;
      if (random() % 2 == 0) {
        ASSERT_TRUE(change().ok());
      }
    }
    ASSERT_TRUE(target->FollowFrom(source, file.id, progress.copy).ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(change().ok());
    ASSERT_TRUE((*layer)->SetInode(absl::StrCat("record ", seed), Version{200 + seed}).ok());
    const absl::Status finished = target->FinishFrom(source, file.id, progress.copy);
    ASSERT_TRUE(finished.ok()) << finished;

    ObjectStore &one = world_.column_store(from), &two = world_.column_store(to);
    const auto there = one.GetAttributes(file.id), here = two.GetAttributes(file.id);
    ASSERT_TRUE(there.ok() && here.ok());
    EXPECT_EQ(here->size_bytes, there->size_bytes) << "seed " << seed;
    EXPECT_EQ(here->blob, there->blob);
    EXPECT_EQ(here->allocated_bytes, there->allocated_bytes) << "seed " << seed;
    for (uint64_t at = 0; at < there->size_bytes;) {
      const auto data = one.NextData(file.id, at);
      ASSERT_EQ(two.NextData(file.id, at).value_or(0), data.value_or(0)) << "seed " << seed;
      if (!data.ok()) break;
      std::string a(8192, '\0'), b(8192, '\0');
      const auto read = one.Read(file.id, *data, {a.data(), a.size()});
      ASSERT_EQ(two.Read(file.id, *data, {b.data(), b.size()}).value_or(0), read.value_or(1));
      ASSERT_TRUE(a == b) << "seed " << seed << " at " << *data;
      at = *data + *read;
    }
    ASSERT_TRUE(target->Remove(std::vector<ObjectId>{file.id}).ok());
  }
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadMoveTest, ACopyThatIsNotTheOneThatWasBegunIsRefused) {
  const auto client = world_.Client(1);
  const FileHandle handle = Create(*client, "file", kMovedRaid);
  Write(*client, handle, 0, MoveNoise(5, 100'000));
  ASSERT_TRUE(client->Sync(handle).ok());
  const Node file = FileOf(*client, "file");
  const uint32_t from = file.inode.columns[0], to = FreeOf(file);
  const Ref<ColumnStore> source = ColumnsAt(from), target = ColumnsAt(to);
  const auto first = target->CopyFrom(source, file.id, 0, 0, 1000);
  ASSERT_TRUE(first.ok()) << first.status();
  // Somebody else begins another one, and is not at its end.
  ASSERT_TRUE(target->CopyFrom(source, file.id, 0, 0, 1000).ok());
  EXPECT_TRUE(absl::IsCancelled(
      target->CopyFrom(source, file.id, first->copy, first->next, 1 << 20).status()));
  EXPECT_TRUE(absl::IsCancelled(Move(file.id, {from, to, first->copy})));
  // A column that the file has, or that others use, is not taken away.
  EXPECT_TRUE(absl::IsAlreadyExists(
      ColumnsAt(file.inode.columns[1])->CopyFrom(source, file.id, 0, 0, 1000).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(Move(file.id, {from, file.inode.columns[1], 0})));
  EXPECT_TRUE(absl::IsNotFound(Move(file.id, {to, 0, 0})));
  EXPECT_EQ(Read(*client, handle), MoveNoise(5, 100'000));
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadMoveTest, WhatCannotBeMovedStays) {
  const auto client = world_.Client(1);
  const std::string text = MoveNoise(6, 100'000);
  const FileHandle handle = Create(*client, "file", kCachedMovedRaid);
  Write(*client, handle, 0, text);
  ASSERT_TRUE(client->Sync(handle).ok());
  const Node file = FileOf(*client, "file");
  const uint32_t from = file.inode.columns[0], to = FreeOf(file);
  world_.LoseColumns(to);
  EXPECT_TRUE(absl::IsUnavailable(Move(file.id, {from, to, 0})));
  EXPECT_EQ(FileOf(*client, "file").inode.columns, file.inode.columns);
  Write(*client, handle, 0, "new");
  ASSERT_TRUE(client->Sync(handle).ok());
  EXPECT_EQ(Read(*client, handle).substr(0, 3), "new");
  // Who is no client any more moves nothing.
  ASSERT_TRUE(world_.volume()->Leave(writer_).ok());
  EXPECT_FALSE(world_.volume()->MoveColumn(writer_, file.id, ColumnMove{from, to, 0}).ok());
  EXPECT_TRUE(client->Release(handle).ok());
}

TEST_F(SpreadMoveTest, NoNewFileHasAColumnAtAServerThatIsAvoided) {
  const auto client = world_.Client(1);
  std::atomic<bool> done{false};
  std::atomic<int> made{0};
  std::thread making([&] {
    for (int i = 0; !done; ++i, ++made) {
      const FileHandle handle = Create(*client, absl::StrCat("before", i), kMovedRaid);
      EXPECT_TRUE(client->Release(handle).ok());
    }
  });
  ASSERT_TRUE(Eventually([&] { return made >= 4; }));
  ASSERT_TRUE(world_.volume()->AvoidServer(2).ok());
  // All that have one are known now.
  const auto count = [&] {
    const auto files = world_.volume()->Spread(0, 100'000);
    EXPECT_TRUE(files.ok()) << files.status();
    size_t there = 0;
    for (const Node& file : files->files) {
      there +=
          static_cast<size_t>(std::count(file.inode.columns.begin(), file.inode.columns.end(), 2u));
    }
    return there;
  };
  const size_t then = count();
  EXPECT_GT(then, 0u);
  const int so_far = made;
  ASSERT_TRUE(Eventually([&] { return made >= so_far + 20; }));
  done = true;
  making.join();
  EXPECT_EQ(count(), then);
}

// What was begun with it before is there, or is not, when it is said to be avoided.
TEST_F(SpreadMoveTest, WhoAvoidsAServerWaitsForWhatIsBeingMadeThere) {
  runtime::BindingManager& binding = world_.cluster()[1].binding();
  ColumnServers::Host host;
  host.find = [](size_t) { return absl::UnavailableError("none is there"); };
  host.adopt = [&binding](std::unique_ptr<AbsentColumn> column) {
    return Ref<Layer>(binding.Adopt(std::move(column)).base());
  };
  host.end = [](const Ref<Layer>&) {};
  ColumnServers servers(
      std::make_shared<ServerAddresses>(std::vector<std::string>{"a:1", "-", "c:1", "d:1"}), host);
  EXPECT_FALSE(servers.Choose(4).ok()) << "one place is vacant";
  auto made = std::make_unique<ColumnServers::Making>(&servers);
  std::future<void> avoided = std::async(std::launch::async, [&] { servers.Avoid(2); });
  ASSERT_TRUE(Eventually([&] { return !servers.Choose(3).ok(); }));
  // What begins now does not count.
  const ColumnServers::Making later(&servers);
  EXPECT_EQ(avoided.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  made.reset();
  avoided.get();
  EXPECT_THAT(*servers.Choose(1), ::testing::ElementsAre(3u));
}

}  // namespace
}  // namespace abacus::objfs
