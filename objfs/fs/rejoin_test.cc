// A client goes on when its volume has given it up, and when the server has died and come back.

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::MutexLock;
using runtime::testing::Eventually;
using testing::FileSystemWorld;

const Caller kAnybody;
constexpr char kWithCache[] = "cache(block=512 B)/isolation/storage";
constexpr int64_t kVolumeLeaseNs = int64_t{30} * 1'000'000'000;
// Nodes: the server, two clients, and where a second server begins.
constexpr size_t kSecondServer = 3;

class RejoinTest : public ::testing::Test {
 protected:
  RejoinTest()
      : world_(5, &disk_, [this] {
          const auto now = std::chrono::steady_clock::now().time_since_epoch();
          return steady_ns_ + std::chrono::nanoseconds(now).count();
        }) {
    world_.on_layer = [this](size_t, const runtime::Rid& rid) {
      MutexLock lock(mutex_);
      last_layer_ = rid;
    };
  }

  static ObjectId MakeFile(FileSystem& at, const std::string& name) {
    const auto made = at.Make(kAnybody, at.root(), name, S_IFREG | 0644, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->id : 0;
  }
  static FileHandle Open(FileSystem& at, ObjectId id) {
    const auto handle = at.Open(kAnybody, id, O_RDWR);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : 0;
  }
  static std::string Read(FileSystem& at, FileHandle handle) {
    const auto read = at.Read(handle, 0, 1 << 20);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->view()) : "an error";
  }
  static void Write(FileSystem& at, FileHandle handle, const std::string& bytes) {
    const absl::Status written = at.Write(handle, 0, Block::CopyOf(bytes));
    EXPECT_TRUE(written.ok()) << written;
  }
  static FsError ErrorOf(const absl::Status& status) { return FsErrorOf(status); }

  // The server is killed, and begins again at once.
  void KillServer() {
    disk_.CutPowerAfter(0);
    world_.LoseServer();
    disk_.PowerOn(1);
  }
  runtime::Rid LastLayer() {
    MutexLock lock(mutex_);
    return last_layer_;
  }
  // The open file's, made last, dies on a third node with more than was pushed.
  void LoseCacheOf(FileSystem& at, FileHandle handle) {
    Write(at, handle, "pushed");
    ASSERT_TRUE(at.Push(handle).ok());
    const auto moved = world_.cluster().Move(LastLayer(), 1, 4);
    ASSERT_TRUE(moved.ok() && moved->status.ok());
    Write(at, handle, "DIRTY");
    world_.cluster().Kill(4);
  }
  // The layer that was made last goes to the server.
  void MoveLayerToServer() {
    const runtime::Rid rid = LastLayer();
    const auto moved = world_.cluster().Move(rid, 1, FileSystemWorld::kServer);
    ASSERT_TRUE(moved.ok() && moved->status.ok());
    ASSERT_EQ(world_.cluster().HostOf(rid), FileSystemWorld::kServer);
  }
  // All clients sleep for so long that the volume gives them up.
  void SleepTooLong() {
    ASSERT_TRUE(Eventually([&] {
      steady_ns_ += 2 * kVolumeLeaseNs;
      const auto clients = world_.volume()->Clients();
      return clients.ok() && clients->empty();
    }));
  }

  PowerCutDisk disk_;
  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  FileSystemWorld world_;
  runtime::Mutex mutex_;
  runtime::Rid last_layer_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(RejoinTest, WhatAMovedCacheHadWhenItsServerDiedIsToldByOneSyncAndTheFileGoesOn) {
  const auto a = world_.Client(1, kWithCache);
  const ObjectId id = MakeFile(*a, "f"), other = MakeFile(*a, "g");
  const FileHandle untouched = Open(*a, other);
  Write(*a, untouched, "of g");
  ASSERT_TRUE(a->Sync(untouched).ok());
  const FileHandle handle = Open(*a, id);
  Write(*a, handle, "synced");
  ASSERT_TRUE(a->Sync(handle).ok());
  MoveLayerToServer();
  Write(*a, handle, "DIRTY");
  KillServer();
  EXPECT_FALSE(a->Stat(id).ok()) << "there is no server";
  world_.StartServer(kSecondServer);
  EXPECT_EQ(ErrorOf(a->Sync(handle)), FsError::kInputOutput);
  EXPECT_EQ(a->Sync(handle), absl::OkStatus()) << "it is told once";
  EXPECT_EQ(Read(*a, handle), "synced");
  EXPECT_EQ(a->Sync(untouched), absl::OkStatus()) << "nothing of it was lost";
  EXPECT_EQ(Read(*a, untouched), "of g");
  Write(*a, handle, "again");
  EXPECT_EQ(a->Sync(handle), absl::OkStatus());
  const auto b = world_.Client(2);
  EXPECT_EQ(Read(*b, Open(*b, id)), "againd");
  EXPECT_EQ(a->Release(handle), absl::OkStatus());
  EXPECT_EQ(a->Release(untouched), absl::OkStatus());
  EXPECT_EQ(a->StackOf(id).value_or(""), kWithCache);
}

// Carried in its checkpoint: the server is where the layer below is.
TEST_F(RejoinTest, WhatTravelledToAServerThatDiedIsToldByOneSyncOfEachFile) {
  const auto a = world_.Client(1, kWithCache);
  std::vector<FileHandle> handles;
  for (const std::string name : {"f", "g"}) {
    handles.push_back(Open(*a, MakeFile(*a, name)));
    Write(*a, handles.back(), "synced");
    ASSERT_TRUE(a->Sync(handles.back()).ok());
    Write(*a, handles.back(), "DIRTY");
    MoveLayerToServer();
  }
  KillServer();
  world_.StartServer(kSecondServer);
  for (const FileHandle handle : handles) {
    EXPECT_EQ(ErrorOf(a->Sync(handle)), FsError::kInputOutput);
    EXPECT_EQ(a->Sync(handle), absl::OkStatus()) << "it is told once";
    EXPECT_EQ(Read(*a, handle), "synced");
    Write(*a, handle, "again");
    EXPECT_EQ(a->Sync(handle), absl::OkStatus());
    EXPECT_EQ(a->Release(handle), absl::OkStatus());
  }
}

// Flushed before: the third node had nothing that the server has not.
TEST_F(RejoinTest, WhatWasFlushedBeforeAMoveOutlivesTheNodeOfTheCache) {
  const auto a = world_.Client(1, kWithCache);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle handle = Open(*a, id);
  Write(*a, handle, "dirty");
  const auto moved = world_.cluster().Move(LastLayer(), 1, 4);
  ASSERT_TRUE(moved.ok() && moved->status.ok());
  world_.cluster().Kill(4);
  // Whether it was lost the client cannot know: it may be told of more than was.
  const absl::Status synced = a->Sync(handle);
  EXPECT_TRUE(synced.ok() || ErrorOf(synced) == FsError::kInputOutput) << synced;
  EXPECT_EQ(a->Sync(handle), absl::OkStatus());
  EXPECT_EQ(Read(*a, handle), "dirty");
}

TEST_F(RejoinTest, WhatNobodySyncedBeforeAServerDiedIsToldOnEachStack) {
  for (const std::string stack : {"isolation/storage", kWithCache}) {
    SCOPED_TRACE(stack);
    static size_t server = kSecondServer;
    const auto a = world_.Client(1, stack);
    const ObjectId id = MakeFile(*a, "f" + stack.substr(0, 1));
    const FileHandle handle = Open(*a, id), read_only = Open(*a, id);
    ASSERT_TRUE(a->Sync(handle).ok());
    Write(*a, handle, "pushed");
    ASSERT_TRUE(a->Push(handle).ok());
    KillServer();
    world_.StartServer(server++);
    // The server had it in memory, or had flushed it by itself: nobody can tell.
    EXPECT_THAT(Read(*a, handle), ::testing::AnyOf("", "pushed"));
    EXPECT_EQ(ErrorOf(a->Sync(handle)), FsError::kInputOutput);
    EXPECT_EQ(a->Sync(handle), absl::OkStatus());
    EXPECT_EQ(a->Release(handle), absl::OkStatus());
    EXPECT_EQ(a->Release(read_only), absl::OkStatus());
  }
}

// The next server dies in the middle of it, so that a file is not open for a while.
TEST_F(RejoinTest, WhatIsLostIsToldAlsoWhereTheFileCannotBeOpenedAtOnce) {
  const auto a = world_.Client(1, kWithCache);
  std::vector<FileHandle> handles;
  for (const std::string name : {"f", "g"}) {
    handles.push_back(Open(*a, MakeFile(*a, name)));
    Write(*a, handles.back(), "synced");
    ASSERT_TRUE(a->Sync(handles.back()).ok());
    Write(*a, handles.back(), "DIRTY!");
  }
  KillServer();
  world_.StartServer(kSecondServer);
  int layers = 0;
  world_.on_layer = [&](size_t, const runtime::Rid&) {
    if (++layers == 1) KillServer();  // one file is open again
  };
  EXPECT_FALSE(a->Space().ok());
  world_.on_layer = nullptr;
  EXPECT_EQ(layers, 1);
  world_.StartServer(4);
  for (const FileHandle handle : handles) {
    EXPECT_EQ(ErrorOf(a->Sync(handle)), FsError::kInputOutput);
    EXPECT_EQ(a->Sync(handle), absl::OkStatus()) << "it is told once";
    EXPECT_EQ(Read(*a, handle), "synced");
    EXPECT_EQ(a->Release(handle), absl::OkStatus());
  }
}

TEST_F(RejoinTest, ACallThatTheServersDeathCutOffIsMadeAgain) {
  const auto a = world_.Client(1, kWithCache);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle handle = Open(*a, id);
  ASSERT_TRUE(a->Sync(handle).ok());
  KillServer();
  world_.StartServer(kSecondServer);
  EXPECT_EQ(a->Lookup(kAnybody, a->root(), "f")->id, id);
  EXPECT_NE(MakeFile(*a, "g"), 0u);
  Write(*a, handle, "x");
  EXPECT_EQ(a->Append(handle, Block::CopyOf("y")).value_or(99), 1u);
  EXPECT_TRUE(a->Rename(kAnybody, a->root(), "f", a->root(), "h", RenameRule::kReplace).ok());
  EXPECT_EQ(a->Sync(handle), absl::OkStatus());
  EXPECT_EQ(Read(*a, handle), "xy");
}

TEST_F(RejoinTest, AClientThatWasGivenUpJoinsAgainAndTellsWhatItLost) {
  const auto a = world_.Client(1, kWithCache);
  const ObjectId id = MakeFile(*a, "f"), clean = MakeFile(*a, "g");
  const FileHandle handle = Open(*a, id), at_clean = Open(*a, clean);
  Write(*a, handle, "synced");
  ASSERT_TRUE(a->Sync(handle).ok());
  Write(*a, at_clean, "pushed");
  ASSERT_TRUE(a->Push(at_clean).ok());
  Write(*a, handle, "KEPT");
  ASSERT_TRUE(a->Rename(kAnybody, a->root(), "f", a->root(), "renamed", RenameRule::kReplace).ok());
  SleepTooLong();
  const auto b = world_.Client(2, kWithCache);
  const FileHandle at_b = Open(*b, id);
  Write(*b, at_b, "theirs");
  EXPECT_EQ(Read(*a, handle), "theirs") << "what it kept is served to nobody";
  EXPECT_EQ(ErrorOf(a->Push(handle)), FsError::kInputOutput);
  EXPECT_EQ(a->Sync(handle), absl::OkStatus());
  EXPECT_EQ(a->Sync(at_clean), absl::OkStatus()) << "nothing of it was lost";
  EXPECT_EQ(Read(*a, at_clean), "pushed");
  Write(*a, handle, "mine");
  EXPECT_EQ(Read(*b, at_b), "miners") << "and they see each other as before";
  EXPECT_EQ(world_.volume()->Clients()->size(), 2u);
  EXPECT_EQ(a->Release(handle), absl::OkStatus());
  EXPECT_EQ(a->Release(at_clean), absl::OkStatus());
}

TEST_F(RejoinTest, JoinsAgainWithoutBeingCalled) {
  const auto a = world_.Client(1, kWithCache);
  SleepTooLong();
  ASSERT_TRUE(a->Renew().ok());
  EXPECT_EQ(world_.volume()->Clients()->size(), 1u);
}

TEST_F(RejoinTest, AFileThatWasRemovedMeanwhileIsStaleAndAnOpenOneIsKept) {
  const auto a = world_.Client(1), b = world_.Client(2);
  const ObjectId gone = MakeFile(*a, "gone"), kept = MakeFile(*a, "kept");
  const FileHandle at_gone = Open(*a, gone), at_kept = Open(*a, kept);
  Write(*a, at_kept, "kept");
  SleepTooLong();
  ASSERT_TRUE(b->Unlink(kAnybody, b->root(), "gone").ok());
  ASSERT_TRUE(Eventually([&] { return ErrorOf(b->Stat(gone).status()) == FsError::kStale; }));
  EXPECT_EQ(ErrorOf(a->Read(at_gone, 0, 10).status()), FsError::kStale);
  EXPECT_EQ(ErrorOf(a->Sync(at_gone)), FsError::kStale) << "each time";
  EXPECT_EQ(a->Release(at_gone), absl::OkStatus());
  // The open count is there again: the name goes and the file stays.
  ASSERT_EQ(Read(*a, at_kept), "kept");
  ASSERT_TRUE(b->Unlink(kAnybody, b->root(), "kept").ok());
  EXPECT_EQ(Read(*a, at_kept), "kept");
  EXPECT_EQ(a->Release(at_kept), absl::OkStatus());
}

TEST_F(RejoinTest, AFileWithoutANameOutlivesItsServerForWhoGoesOn) {
  const auto a = world_.Client(1);
  std::optional<std::unique_ptr<FileSystem>> b = world_.Client(2);
  const ObjectId id = MakeFile(*a, "f"), orphan = MakeFile(*a, "g");
  const FileHandle handle = Open(*a, id);
  Open(**b, orphan);
  Write(*a, handle, "kept");
  ASSERT_TRUE(a->Unlink(kAnybody, a->root(), "f").ok());
  ASSERT_TRUE(a->Unlink(kAnybody, a->root(), "g").ok());
  ASSERT_TRUE(a->Sync(handle).ok());
  ASSERT_TRUE(world_.store().FlushAll().ok());
  KillServer();
  b.reset();
  world_.StartServer(kSecondServer);
  EXPECT_EQ(Read(*a, handle), "kept");
  ASSERT_EQ(world_.volume()->Stat(std::vector<ObjectId>{orphan})->front().id, orphan);
  // The others' time is over.
  EXPECT_TRUE(Eventually([&] {
    steady_ns_ += kVolumeLeaseNs / 5;
    return a->Renew().ok() && ErrorOf(a->Stat(orphan).status()) == FsError::kStale;
  }));
  EXPECT_EQ(Read(*a, handle), "kept");
  EXPECT_EQ(a->Release(handle), absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return ErrorOf(a->Stat(id).status()) == FsError::kStale; }));
}

TEST_F(RejoinTest, LocksThatAreLostAreToldOnceToTheFilesNextCall) {
  const auto a = world_.Client(1);
  const ObjectId id = MakeFile(*a, "f"), unlocked = MakeFile(*a, "g");
  const FileHandle handle = Open(*a, id), other = Open(*a, unlocked);
  LockRequest request;
  request.exclusive = true;
  request.owner = 5;
  std::optional<absl::Status> locked;
  const auto lock = [&](FileSystem& at, ObjectId file) {
    locked.reset();
    request.file = file;
    at.Lock(request, [&](const absl::Status& status) { locked = status; });
    return locked.value_or(absl::UnknownError("no answer"));
  };
  ASSERT_TRUE(lock(*a, id).ok());
  ASSERT_TRUE(lock(*a, unlocked).ok());
  ASSERT_TRUE(a->Unlock(request).ok());
  SleepTooLong();
  const auto b = world_.Client(2);
  request.owner = 6;
  ASSERT_TRUE(lock(*b, id).ok());
  EXPECT_EQ(ErrorOf(a->Read(handle, 0, 1).status()), FsError::kInputOutput);
  EXPECT_EQ(Read(*a, handle), "") << "told once";
  EXPECT_EQ(Read(*a, other), "") << "its lock had been given back";
  request.owner = 5;
  EXPECT_EQ(ErrorOf(lock(*a, id)), FsError::kWouldBlock);
  request.owner = 6;
  ASSERT_TRUE(b->Unlock(request).ok());
  request.owner = 5;
  EXPECT_EQ(lock(*a, id), absl::OkStatus());
  // The request itself may be the first call that meets the end.
  SleepTooLong();
  EXPECT_EQ(lock(*a, unlocked), absl::OkStatus());
}

TEST_F(RejoinTest, AServerThatIsAwayIsAnErrorAndNoLoss) {
  const auto a = world_.Client(1, kWithCache);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle handle = Open(*a, id);
  ASSERT_TRUE(a->Sync(handle).ok());
  KillServer();
  EXPECT_EQ(ErrorOf(a->Renew()), FsError::kInputOutput);
  EXPECT_EQ(ErrorOf(a->Stat(id).status()), FsError::kInputOutput) << "nothing is known any more";
  world_.StartServer(kSecondServer);
  EXPECT_TRUE(a->Stat(id).ok());
  EXPECT_EQ(a->Sync(handle), absl::OkStatus());
}

// The volume is alive; only where its cache had been moved to died.
TEST_F(RejoinTest, ACacheThatDiesWithAThirdNodeIsMadeAnew) {
  const auto a = world_.Client(1, kWithCache);
  const ObjectId id = MakeFile(*a, "f"), here = MakeFile(*a, "g");
  const FileHandle at_here = Open(*a, here);
  Write(*a, at_here, "kept here");
  const FileHandle handle = Open(*a, id);
  LoseCacheOf(*a, handle);
  EXPECT_EQ(ErrorOf(a->Sync(handle)), FsError::kInputOutput);
  EXPECT_EQ(a->Sync(handle), absl::OkStatus());
  EXPECT_EQ(Read(*a, handle), "pushed");
  EXPECT_EQ(a->Sync(at_here), absl::OkStatus()) << "what other caches had is not lost";
  EXPECT_EQ(Read(*a, at_here), "kept here");
}

// The client does nothing meanwhile that would meet the loss.
TEST_F(RejoinTest, OthersGoOnWithAFileWhoseCacheDiedWithAThirdNode) {
  const auto a = world_.Client(1, kWithCache), b = world_.Client(2, kWithCache);
  const ObjectId id = MakeFile(*a, "f");
  const FileHandle handle = Open(*a, id);
  LoseCacheOf(*a, handle);
  const FileHandle at_b = Open(*b, id);
  EXPECT_EQ(Read(*b, at_b), "pushed");
  Write(*b, at_b, "theirs");
  EXPECT_EQ(ErrorOf(a->Sync(handle)), FsError::kInputOutput);
  EXPECT_EQ(a->Sync(handle), absl::OkStatus());
  EXPECT_EQ(Read(*a, handle), "theirs");
}

// One that pushes for longer than its lease is alive all the time.
TEST(LeaseTest, IsRenewedWhileSomethingIsPushed) {
  constexpr absl::Duration kLease = absl::Seconds(2);
  MemoryDisk memory;
  std::atomic<bool> held{false}, met{false};
  // The file's own contents only: where the journal hangs, nobody can make a name.
  ModelDisk disk(memory, {.fault = [&](std::string_view call, const std::string& path) {
                   const bool is_data = call == "write" && path.ends_with(".d");
                   if (is_data && held && !met.exchange(true)) held.wait(true);
                   return absl::OkStatus();
                 }});
  FileSystemWorld world(3, &disk, nullptr, kLease);
  const auto a = world.Client(1, kWithCache), b = world.Client(2);
  const auto made = a->Make(kAnybody, a->root(), "f", S_IFREG | 0644, 0, "");
  ASSERT_TRUE(made.ok()) << made.status();
  const auto handle = a->Open(kAnybody, made->id, O_RDWR);
  ASSERT_TRUE(handle.ok()) << handle.status();
  ASSERT_TRUE(a->Write(*handle, 0, Block::CopyOf("dirty")).ok());
  const auto let_go = [&held] {
    held = false;
    held.notify_all();
  };
  const absl::Cleanup at_end = let_go;
  held = true;
  world.wall_ahead_us += 600'000'000;  // and old
  ASSERT_TRUE(Eventually([&] { return met.load(); }));
  const auto until = std::chrono::steady_clock::now() + 3 * absl::ToChronoNanoseconds(kLease);
  uint64_t asked = 0;
  do {
    // Whoever is silent for a lease is given up when somebody changes what it knows.
    const std::string name = std::to_string(++asked);
    ASSERT_TRUE(b->Make(kAnybody, b->root(), name, S_IFREG | 0644, 0, "").ok());
    ASSERT_EQ(world.volume()->Clients()->size(), 2u) << "asked " << asked << " times";
  } while (std::chrono::steady_clock::now() < until);
  let_go();
  EXPECT_EQ(a->Sync(*handle), absl::OkStatus()) << "nothing was lost";
  EXPECT_EQ(a->Release(*handle), absl::OkStatus());
}

}  // namespace
}  // namespace abacus::objfs
