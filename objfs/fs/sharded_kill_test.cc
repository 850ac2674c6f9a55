// Servers of a volume's shards that die while others work, and come back: each change has one
// outcome for all, what does not concern the dead server goes on, and nothing waits for ever.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/sharded_fixture.h"
#include "objfs/fs/testing/sharded_names_work.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::PointsToTry;
using testing::ShardDisks;
using testing::ShardedNamesWork;
using testing::ShardedWorld;

constexpr char kStops[] = "a call to the disk";

int64_t MsSince(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begun)
      .count();
}

// A file is renamed from shard 1 to shard 2, which coordinates that, and one of the two stops
// before the first thing that its disk is to keep of it.
class ShardedKillTest : public testing::ShardedFixture {
 protected:
  ShardedKillTest() : ShardedFixture(/*spares=*/4) {}
  ~ShardedKillTest() override { LetGo(); }

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ShardedFixture::SetUp());
    beside_ = ShardedWorld::MakeOneInEach(*a_, "beside");
    file_ = MakeFile(*a_, in_[1], "f", "bytes");
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      ASSERT_EQ(world_.store(shard).FlushAll(), absl::OkStatus());
    }
  }

  // Returns when it has come so far. The rename is a client's that waits.
  void StopRenameAt(uint32_t shard) {
    // What the shards have to do of earlier ones is over, or the next call would be of that.
    ASSERT_TRUE(disks_.AwaitQuiet());
    points_.Hold(kStops, 1);
    disks_.At(shard, 0, [this] { points_.Reach(kStops); });
    renamed_ =
        std::async(std::launch::async, [this] { return Rename(*a_, in_[1], "f", in_[2], "g"); });
    ASSERT_TRUE(points_.AwaitHeld(kStops));
  }
  // Whoever stands at a disk goes on.
  void LetGo() {
    disks_.At(0, 0, nullptr);
    points_.ReleaseAll();
  }
  // REQUIRES: nobody stands at its disk.
  void Kill(uint32_t shard) {
    disks_.CutPower(shard);
    world_.LoseServer(shard);
  }
  // It says nothing more to anybody, nor writes anything. REQUIRES: somebody stands at its disk.
  void KillAtItsDisk(uint32_t shard) {
    world_.Isolate(shard);
    disks_.CutPower(shard);
    LetGo();
    world_.LoseServer(shard);
  }
  void BringBack(uint32_t shard) {
    disks_.PowerOn(3, shard);
    world_.Return(shard);
    // Those who wait to hear of a group ask now.
    world_.LetPass(std::chrono::seconds(3));
  }
  // Both clients have joined all shards again.
  bool AllAreJoined() {
    return Eventually([this] { return a_->Renew().ok() && b_->Renew().ok(); });
  }
  // Of shards that live, in directories that the rename is not about. Returns how long it took.
  int64_t WorkBeside(const std::vector<uint32_t>& shards) {
    const auto begun = std::chrono::steady_clock::now();
    for (size_t i = 0; i < shards.size(); ++i) {
      const ObjectId directory = beside_[shards[i]];
      const ObjectId next = beside_[shards[(i + 1) % shards.size()]];
      MakeFile(*b_, directory, "beside", "others' work");
      EXPECT_EQ(Rename(*b_, directory, "beside", next, "moved"), absl::OkStatus());
      EXPECT_EQ(b_->Unlink(kRoot, next, "moved"), absl::OkStatus());
      EXPECT_EQ(ShardOf(MakeDirectory(*b_, directory, "d")), shards[i]);
      EXPECT_EQ(b_->RemoveDirectory(kRoot, directory, "d"), absl::OkStatus());
    }
    return MsSince(begun);
  }
  // The rename has happened or not, as all clients see it and go on seeing it; where its caller was
  // told that it did, it did. `happens`: where it is certain.
  void ExpectOneOutcome(std::optional<bool> happens = std::nullopt) {
    const absl::Status told = renamed_.get();
    ASSERT_TRUE(AllAreJoined());
    // What was held is free when it can be changed.
    const auto begun = std::chrono::steady_clock::now();
    for (const ObjectId id : {in_[1], in_[2], file_}) {
      const uint32_t permissions = id == file_ ? 0644 : 0755;
      const auto set = b_->Set(kRoot, id, {.permissions = permissions});
      EXPECT_TRUE(set.ok()) << set.status();
    }
    const int64_t free_ms = MsSince(begun);
    const bool happened = Named(*b_, in_[2], "g") == file_;
    std::cout << "the rename " << (happened ? "happened" : "did not happen")
              << ", its caller was told " << told << "; " << free_ms << " ms until all was free\n";
    EXPECT_TRUE(happened || !told.ok());
    if (happens.has_value()) {
      EXPECT_EQ(happened, *happens);
    }
    EXPECT_LT(free_ms, 30'000);
    const auto c = world_.Client(ShardedWorld::kTwo);
    ASSERT_NE(c, nullptr);
    for (FileSystem* const at : {a_.get(), b_.get(), c.get()}) {
      EXPECT_EQ(Named(*at, in_[1], "f"), happened ? 0 : file_);
      EXPECT_EQ(Named(*at, in_[2], "g"), happened ? file_ : 0);
      EXPECT_EQ(Links(*at, file_), 1u);
      EXPECT_EQ(ListAll(*at, in_[1]).size() + ListAll(*at, in_[2]).size(), 1u);
      EXPECT_EQ(Read(*at, file_), "bytes");
    }
    // And it can be done again, by another client.
    const ObjectId from = in_[happened ? 2 : 1], to = in_[happened ? 1 : 2];
    EXPECT_EQ(Rename(*b_, from, happened ? "g" : "f", to, "again"), absl::OkStatus());
    EXPECT_EQ(Named(*a_, to, "again"), file_);
  }

  std::array<ObjectId, kShards> beside_ = {};
  ObjectId file_ = 0;
  runtime::testing::TestPoints points_;
  std::future<absl::Status> renamed_;
};

// All others have prepared their parts, and nobody has decided.
TEST_F(ShardedKillTest, ACoordinatorDiesBeforeItDecides) {
  const FileHandle handle = Open(*b_, file_);
  ASSERT_NO_FATAL_FAILURE(StopRenameAt(2));
  // The directory that the other shard has prepared is held; bytes are not, and what is looked at
  // is as before.
  auto held = std::async(std::launch::async, [this] {
    return b_->Make(kRoot, in_[1], "waits", S_IFREG | 0644, 0, "").status();
  });
  const absl::Cleanup at_end = [this] { LetGo(); };  // or it would wait for ever
  EXPECT_EQ(Named(*b_, in_[1], "f"), file_);
  EXPECT_EQ(b_->Write(handle, 0, runtime::Block::CopyOf("BYTES")), absl::OkStatus());
  EXPECT_EQ(ReadOpen(*b_, handle), "BYTES");
  EXPECT_EQ(b_->Write(handle, 0, runtime::Block::CopyOf("bytes")), absl::OkStatus());
  EXPECT_EQ(b_->Release(handle), absl::OkStatus());
  const int64_t before_ms = WorkBeside({0, 1});
  EXPECT_EQ(held.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
      << "a directory that is held was changed";
  KillAtItsDisk(2);
  const int64_t dead_ms = WorkBeside({0, 1});
  EXPECT_EQ(held.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
      << "the shard that prepared its part has let go before it knew the outcome";
  // Its own objects are an error to who asks for them.
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(ErrorOf(b_->Make(kRoot, beside_[2], "x", S_IFREG | 0644, 0, "").status()),
            FsError::kInputOutput);
  std::cout << "others' work took " << before_ms << " ms while it was stopped, and " << dead_ms
            << " ms while it was dead; its own was refused in " << MsSince(begun) << " ms\n";
  BringBack(2);
  EXPECT_EQ(held.get(), absl::OkStatus());
  EXPECT_EQ(b_->Unlink(kRoot, in_[1], "waits"), absl::OkStatus());
  // Presumed abort: its disk has nothing of it.
  ExpectOneOutcome(false);
}

// It may never be back: who needs what is held is told so in the end, whether another transaction
// over shards is to change it or one of its shard alone.
TEST_F(ShardedKillTest, NobodyWaitsForEverForWhatADeadCoordinatorKnows) {
  const ObjectId other = MakeFile(*b_, in_[0], "h");
  ASSERT_NO_FATAL_FAILURE(StopRenameAt(2));
  std::array<std::future<absl::Status>, 2> held = {
      std::async(
          std::launch::async,
          [this] { return b_->Make(kRoot, in_[1], "waits", S_IFREG | 0644, 0, "").status(); }),
      std::async(std::launch::async, [this] { return Rename(*b_, in_[0], "h", in_[1], "h"); })};
  KillAtItsDisk(2);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(Eventually([&] {
    world_.LetPass(std::chrono::seconds(10));
    for (FileSystem* const at : {a_.get(), b_.get()}) at->Renew().IgnoreError();
    return std::all_of(held.begin(), held.end(), [](const std::future<absl::Status>& call) {
      return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
  }));
  std::cout << "that it is held was told after " << MsSince(begun) << " ms\n";
  BringBack(2);  // or they would not return
  for (std::future<absl::Status>& call : held) {
    const absl::Status told = call.get();
    EXPECT_TRUE(absl::IsUnavailable(told)) << told;
    EXPECT_TRUE(absl::StrContains(told.message(), "holds it")) << told;
  }
  EXPECT_EQ(Named(*b_, in_[1], "waits"), 0u);
  EXPECT_EQ(Named(*b_, in_[0], "h"), other);
  ExpectOneOutcome(false);
}

// It is asked to prepare its part, and cannot.
TEST_F(ShardedKillTest, AnotherShardDiesWhileItPrepares) {
  ASSERT_NO_FATAL_FAILURE(StopRenameAt(1));
  const int64_t before_ms = WorkBeside({0, 2});
  disks_.CutPower(1);
  LetGo();
  world_.LoseServer(1);
  const int64_t dead_ms = WorkBeside({0, 2});
  EXPECT_EQ(ErrorOf(b_->Make(kRoot, beside_[1], "x", S_IFREG | 0644, 0, "").status()),
            FsError::kInputOutput);
  std::cout << "others' work took " << before_ms << " ms while it was stopped, and " << dead_ms
            << " ms while it was dead\n";
  BringBack(1);
  ExpectOneOutcome();
}

// It has its part on its disk, and dies before it hears of the end.
TEST_F(ShardedKillTest, AnotherShardDiesInDoubtAndAsksWhenItIsBack) {
  ASSERT_NO_FATAL_FAILURE(StopRenameAt(2));
  Kill(1);
  LetGo();  // the coordinator decides, and has nobody to tell
  std::cout << "others' work took " << WorkBeside({0, 2}) << " ms\n";
  BringBack(1);
  ExpectOneOutcome(true);
}

// Who has prepared its part is back first, and has nobody to ask.
TEST_F(ShardedKillTest, BothDieAtOnce) {
  ASSERT_NO_FATAL_FAILURE(StopRenameAt(2));
  Kill(1);
  KillAtItsDisk(2);
  BringBack(1);
  // It lets nobody join for a while, as it cannot tell what was done: who comes waits.
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_NE(MakeFile(*b_, beside_[1], "x"), 0u);
  std::cout << "who came to the one that is back waited for " << MsSince(begun) << " ms\n";
  EXPECT_EQ(ErrorOf(b_->Make(kRoot, beside_[2], "x", S_IFREG | 0644, 0, "").status()),
            FsError::kInputOutput);
  std::cout << "others' work took " << WorkBeside({0}) << " ms\n";
  BringBack(2);
  ExpectOneOutcome(false);
}

// -- a shard that is away -------------------------------------------------------------------------

TEST_F(ShardedKillTest, AShardThatIsAwayIsAnErrorForItsObjectsOnly) {
  const FileHandle handle = Open(*a_, file_);
  MakeFile(*a_, in_[2], "h");
  ASSERT_EQ(a_->Link(kRoot, file_, in_[2], "also there").status(), absl::OkStatus());
  ASSERT_EQ(a_->Sync(handle), absl::OkStatus());
  Kill(1);
  const auto begun = std::chrono::steady_clock::now();
  for (FileSystem* const at : {a_.get(), b_.get()}) {
    EXPECT_EQ(ErrorOf(at->Make(kRoot, in_[1], "x", S_IFREG | 0644, 0, "").status()),
              FsError::kInputOutput);
    EXPECT_EQ(ErrorOf(at->Set(kRoot, file_, {.permissions = 0600}).status()),
              FsError::kInputOutput);
    // What a directory that is there says of it goes on being said.
    const auto listed = at->List(kRoot, Root(), 0, 100, true);
    ASSERT_TRUE(listed.ok()) << listed.status();
    EXPECT_EQ(listed->size(), size_t{2} + 2 * kShards);
  }
  EXPECT_EQ(ErrorOf(Rename(*b_, in_[2], "h", in_[1], "h")), FsError::kInputOutput);
  EXPECT_EQ(ErrorOf(b_->Unlink(kRoot, in_[2], "also there")), FsError::kInputOutput)
      << "its links are in the shard that is away";
  EXPECT_EQ(
      ErrorOf(b_->Make(kRoot, Root(), ShardedWorld::NameIn(1, Root(), "new"), S_IFDIR | 0755, 0, "")
                  .status()),
      FsError::kInputOutput);
  std::cout << "what the shard is needed for was refused in " << MsSince(begun) << " ms\n";
  // Directories are moved, and made, among the others.
  const ObjectId made = MakeDirectory(*b_, Root(), ShardedWorld::NameIn(2, Root(), "new"));
  EXPECT_EQ(ShardOf(made), 2u);
  EXPECT_EQ(Rename(*b_, Root(), ShardedWorld::NameIn(2, Root(), "new"), in_[0], "moved"),
            absl::OkStatus());
  EXPECT_EQ(Named(*a_, made, ".."), in_[0]);
  std::cout << "others' work took " << WorkBeside({0, 2}) << " ms\n";
  BringBack(1);
  EXPECT_TRUE(AllAreJoined());
  EXPECT_EQ(ReadOpen(*a_, handle), "bytes");
  EXPECT_EQ(a_->Release(handle), absl::OkStatus()) << "nothing of it was lost";
  EXPECT_EQ(Rename(*b_, in_[2], "h", in_[1], "h"), absl::OkStatus());
  EXPECT_EQ(b_->Unlink(kRoot, in_[2], "also there"), absl::OkStatus());
  EXPECT_EQ(Links(*a_, file_), 1u);
}

// Each look for a server that is away takes as long as it takes not to answer.
TEST_F(ShardedKillTest, WhoNeedsAShardThatIsAwayLooksForItOnce) {
  int looks = 0;  // of this thread
  world_.change_host = [&looks, self = std::this_thread::get_id()](size_t, FileSystem::Host& host) {
    host.find_volume = [&looks, self, find = host.find_volume](const std::string& name) {
      if (std::this_thread::get_id() == self) ++looks;
      return find(name);
    };
  };
  const auto c = world_.Client(ShardedWorld::kTwo);
  ASSERT_NE(c, nullptr);
  MakeFile(*c, in_[2], "h");
  Kill(1);
  looks = 0;
  EXPECT_EQ(ErrorOf(Rename(*c, in_[2], "h", in_[1], "h")), FsError::kInputOutput);
  // None, where a thread of the client's has just looked.
  EXPECT_LE(looks, 1);
}

// A listing with attributes looks at each of its entries.
TEST_F(ShardedKillTest, ManyCallsWaitForAShardThatIsAwayOnce) {
  std::atomic<bool> is_silent{false};
  std::atomic<int> looks{0};
  world_.change_host = [&](size_t, FileSystem::Host& host) {
    host.find_volume = [&, find = host.find_volume](const std::string& name) {
      if (!is_silent) return find(name);
      ++looks;
      runtime::Mutex mutex;
      runtime::CondVar nothing;
      runtime::MutexLock lock(mutex);
      const auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
      while (nothing.WaitUntil(mutex, due)) {
      }
      return absl::StatusOr<runtime::Ref<Volume>>(absl::UnavailableError("nobody answers"));
    };
  };
  const auto c = world_.Client(ShardedWorld::kTwo);
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(Links(*c, file_), 1u);
  Kill(1);
  is_silent = true;
  constexpr int kCalls = 40;
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(ErrorOf(c->Access(kRoot, in_[1], R_OK)), FsError::kInputOutput);
  }
  std::cout << looks << " looks for the shard in " << kCalls << " calls\n";
  EXPECT_LE(looks, kCalls / 4);
}

// The one with the root and the tree: what is below goes on for who knows it.
TEST_F(ShardedKillTest, WhileTheRootsShardIsAwayFilesOfOthersAreWorkedWith) {
  const ObjectId directory = MakeDirectory(*b_, in_[1], "d");
  Kill(0);
  EXPECT_EQ(ErrorOf(b_->Make(kRoot, Root(), "x", S_IFREG | 0644, 0, "").status()),
            FsError::kInputOutput);
  EXPECT_EQ(Rename(*b_, in_[1], "f", in_[2], "g"), absl::OkStatus());
  EXPECT_EQ(Named(*a_, in_[2], "g"), file_);
  EXPECT_EQ(Read(*a_, file_), "bytes");
  EXPECT_EQ(Rename(*b_, in_[1], "d", in_[2], "d"), absl::OkStatus()) << "its own is not asked";
  EXPECT_EQ(Named(*a_, directory, ".."), in_[2]);
  MakeFile(*a_, in_[2], "new", "bytes");
  EXPECT_NE(Named(*b_, in_[2], "new"), 0u);
  BringBack(0);
  EXPECT_TRUE(AllAreJoined());
  EXPECT_NE(MakeFile(*b_, Root(), "x"), 0u);
  EXPECT_EQ(Named(*a_, Root(), "x"), Named(*b_, Root(), "x"));
}

// -- messages -------------------------------------------------------------------------------------

class ShardedMessagesTest : public testing::ShardedFixture {
 protected:
  ShardedMessagesTest() : ShardedFixture(/*spares=*/0, runtime::FaultKnobs()) {}

  runtime::FaultTransport& FaultsOf(uint32_t shard) {
    return *world_.cluster()[world_.ServerNode(shard)].faults();
  }
  void SetKnobs(const runtime::FaultKnobs& knobs) {
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      for (const auto way : {runtime::FaultDirection::kSend, runtime::FaultDirection::kReceive}) {
        FaultsOf(shard).SetKnobs(way, knobs);
      }
    }
  }
};

// Each happens once, whatever is said twice or has to be said again.
TEST_F(ShardedMessagesTest, ChangesAreMadeOnceWhereMessagesAreLost) {
  const int rounds = runtime::testing::kSanitized ? 10 : 25;
  const ObjectId file = MakeFile(*a_, in_[0], "f");
  const ObjectId directory = MakeDirectory(*a_, in_[0], "d");
  SetKnobs({.lose = 0.02, .duplicate = 0.02, .delay = 0.02});
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) {
    SCOPED_TRACE(i);
    FileSystem& at = i % 2 == 0 ? *a_ : *b_;
    const ObjectId from = in_[i % kShards], to = in_[(i + 1) % kShards];
    ASSERT_EQ(Rename(at, from, "f", to, "f"), absl::OkStatus());
    ASSERT_EQ(Rename(at, from, "d", to, "d"), absl::OkStatus());
    ASSERT_EQ(at.Link(kRoot, file, from, "g").status(), absl::OkStatus());
    ASSERT_EQ(Links(at, file), 2u);
    ASSERT_EQ(at.Unlink(kRoot, from, "g"), absl::OkStatus());
  }
  const int64_t took_ms = MsSince(begun);
  SetKnobs({});
  uint64_t lost = 0;
  for (uint32_t shard = 0; shard < kShards; ++shard) lost += FaultsOf(shard).Counts().lost;
  std::cout << rounds << " rounds of 4 changes in " << took_ms << " ms; " << lost
            << " frames were lost\n";
  EXPECT_GT(lost, 0u);
  const ObjectId last = in_[rounds % kShards];
  for (FileSystem* const at : {a_.get(), b_.get()}) {
    for (const ObjectId one : in_) {
      EXPECT_EQ(ListAll(*at, one).size(), one == last ? 2u : 0u);
      EXPECT_EQ(Links(*at, one), one == last ? 3u : 2u);
    }
    EXPECT_EQ(Links(*at, file), 1u);
    EXPECT_EQ(Named(*at, directory, ".."), last);
  }
}

// Two servers that do not hear each other, though everybody hears both.
TEST_F(ShardedMessagesTest, WhatTwoShardsCannotAgreeAboutWaitsOrIsRefusedAndNothingElse) {
  const ObjectId file = MakeFile(*a_, in_[1], "f");
  const runtime::NodeId one = world_.cluster()[world_.ServerNode(1)].self().node;
  const runtime::NodeId two = world_.cluster()[world_.ServerNode(2)].self().node;
  FaultsOf(1).Partition(one, two);
  FaultsOf(2).Partition(one, two);
  auto renamed =
      std::async(std::launch::async, [this] { return Rename(*a_, in_[1], "f", in_[2], "g"); });
  const absl::Cleanup at_end = [&] {
    FaultsOf(1).HealAll();
    FaultsOf(2).HealAll();
  };
  const auto begun = std::chrono::steady_clock::now();
  const ObjectId other = MakeFile(*b_, in_[0], "h");
  // Each of them with the third, to and fro.
  EXPECT_EQ(Rename(*b_, in_[0], "h", Root(), "h"), absl::OkStatus());
  for (uint32_t shard = 1; shard < kShards; ++shard) {
    const ObjectId made = MakeDirectory(*b_, Root(), ShardedWorld::NameIn(shard, Root(), "new"));
    EXPECT_EQ(ShardOf(made), shard);
    EXPECT_EQ(Rename(*b_, Root(), "h", made, "h"), absl::OkStatus());
    EXPECT_EQ(Rename(*b_, made, "h", Root(), "h"), absl::OkStatus());
  }
  EXPECT_EQ(Named(*b_, Root(), "h"), other);
  std::cout << "others' work took " << MsSince(begun) << " ms\n";
  FaultsOf(1).HealAll();
  FaultsOf(2).HealAll();
  const absl::Status told = renamed.get();
  world_.LetPass(std::chrono::seconds(3));  // who is in doubt asks
  for (const ObjectId id : {in_[1], in_[2]}) {
    ASSERT_TRUE(b_->Set(kRoot, id, {.permissions = 0755}).ok());
  }
  const bool happened = Named(*b_, in_[2], "g") == file;
  std::cout << "the rename " << (happened ? "happened" : "did not happen")
            << ", its caller was told " << told << " after " << MsSince(begun) << " ms\n";
  EXPECT_TRUE(happened || !told.ok());
  EXPECT_EQ(Named(*b_, in_[1], "f"), happened ? 0 : file);
  EXPECT_EQ(Links(*a_, file), 1u);
}

// -- wherever one dies ----------------------------------------------------------------------------

// A server's power goes at a call to its disk, it dies, and another one begins on that disk; the
// client goes on with whatever it is doing.
class ShardedDeathsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kShards = ShardedWorld::kShards;
  static constexpr int kChanges = 8;  // beside one of each kind
  static constexpr uint64_t kNoDeath = UINT64_MAX / 2;

  void DieAt(uint32_t victim, uint64_t call) {
    ShardDisks disks(kShards);
    ShardedWorld world(1, &disks);
    const auto a = world.Client(ShardedWorld::kOne), b = world.Client(ShardedWorld::kTwo);
    ASSERT_TRUE(a != nullptr && b != nullptr);
    ShardedNamesWork work(*a, seed_);
    work.syncs_each = true;
    ASSERT_NO_FATAL_FAILURE(work.Begin(world));
    std::array<uint64_t, kShards> before = {};
    for (uint32_t shard = 0; shard < kShards; ++shard) before[shard] = disks.calls(shard);
    disks.At(victim, call, [&] { disks.CutPower(victim); });
    work.is_over = [&] { return disks.IsOver(); };
    std::thread death([&] {
      if (call == kNoDeath) return;
      EXPECT_TRUE(Eventually([&] { return disks.IsOver(); }));
      world.LoseServer(victim);
      disks.PowerOn(seed_ + call, victim);
      world.Return(victim);
      world.LetPass(std::chrono::seconds(3));  // who is in doubt asks
    });
    work.Work(kChanges);
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      points_[shard] = disks.calls(shard) - before[shard];
    }
    // The work may end before that call.
    if (call != kNoDeath && !disks.IsOver()) {
      disks.CutPower(victim);
      disks.At(victim, 0, nullptr);
    }
    death.join();
    ASSERT_FALSE(HasFailure());
    ASSERT_TRUE(Eventually([&] { return a->Renew().ok() && b->Renew().ok(); }));
    slowest_ = std::max(slowest_, work.ChangeAll(*a));
    for (FileSystem* const at : {b.get(), a.get()}) {
      work.Check(*at, world, {victim});
      if (HasFailure()) return;
    }
  }

  const uint64_t seed_ = runtime::testing::Seed(2);
  std::array<uint64_t, kShards> points_ = {};  // by shard: calls to its disk
  std::chrono::milliseconds slowest_{0};
};

TEST_F(ShardedDeathsTest, EachChangeHasOneOutcomeWhicheverServerDiesAndComesBack) {
  {
    SCOPED_TRACE("nobody dies");
    ASSERT_NO_FATAL_FAILURE(DieAt(0, kNoDeath));
  }
  const std::array<uint64_t, kShards> all = points_;
  for (uint32_t victim = 0; victim < kShards; ++victim) {
    const uint64_t points = all[victim];
    const auto tried = PointsToTry(points, 4, seed_ + victim);
    const auto begun = std::chrono::steady_clock::now();
    for (const uint64_t call : tried) {
      SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, ", shard ", victim, " at call ", call));
      DieAt(victim, call);
      if (HasFailure()) return;
    }
    std::cout << "shard " << victim << " died at " << tried.size() << " of " << points
              << " calls, in " << MsSince(begun) << " ms; the slowest change afterwards took "
              << slowest_.count() << " ms\n";
    EXPECT_GT(points, 10u);
    EXPECT_LT(slowest_, std::chrono::seconds(30)) << "something stayed held";
  }
}

}  // namespace
}  // namespace abacus::objfs
