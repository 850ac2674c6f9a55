// What crashes leave of files on each stack, over several servers: of names, bytes, and columns.
// Somebody dies at a call to a disk, or at a message.

#include <fcntl.h>
#include <sys/stat.h>

#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/file_work.h"
#include "objfs/fs/testing/message_points.h"
#include "objfs/fs/testing/names_work.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::CrashDisks;
using testing::CrashOptions;
using testing::CrashWorld;
using testing::FileWork;
using testing::MessagePoints;
using testing::NamesWork;
using testing::PointsToTry;

constexpr int kNamesSteps = 40, kFileSteps = 15;
constexpr int kTellsMax = 3;  // the front end, the cache and the layer over the columns
constexpr uint64_t kNever = UINT64_MAX / 2;
constexpr size_t kInodes = 0;  // the server that has them
constexpr const char* kStacks[] = {"isolation/storage",
                                   "cache/isolation/storage",
                                   "mirror(unit=8 KiB)/(isolation/storage)*2",
                                   "cache/mirror(unit=8 KiB)/(isolation/storage)*2",
                                   "raid5(unit=8 KiB)/(isolation/storage)*3",
                                   "cache/raid5(unit=8 KiB)/(isolation/storage)*3"};
constexpr const char* kRedundantStacks[] = {kStacks[2], kStacks[3], kStacks[4], kStacks[5]};
constexpr const char* kCachedRaid = kStacks[5];

class SpreadCrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  // How many calls to disks the work takes without a crash.
  uint64_t CountCalls() {
    CrashDisks disks;
    CrashWorld world(disks);
    const auto client = world->Client(1, GetParam());
    EXPECT_TRUE(world->store().FlushAll().ok());
    const uint64_t before = disks.calls();
    EXPECT_TRUE(NamesWork(*client, seed_).Work(kNamesSteps));
    return disks.calls() - before;
  }
  // And how many calls its client makes and gets.
  uint64_t CountMessages() {
    CrashDisks disks;
    MessagePoints messages;
    CrashWorld world(disks, 0, {.messages = &messages});
    const auto client = world->Client(1, GetParam());
    messages.At(1, kNever, /*answer=*/false, nullptr);
    EXPECT_TRUE(NamesWork(*client, seed_).Work(kNamesSteps));
    return messages.messages();
  }
  void HeirFindsAll(CrashWorld& world, NamesWork& work, FileSystem& heir);

  const uint64_t seed_ = runtime::testing::Seed(1);
};
INSTANTIATE_TEST_SUITE_P(Stacks, SpreadCrashTest, ::testing::ValuesIn(kStacks));

// The power of all servers goes before a call to one of their disks, from those of the first
// opening of columns on.
TEST_P(SpreadCrashTest, WhatWasSyncedIsThereAndTheRestIsWholeAfterAPowerCut) {
  uint64_t synced_writes = 0;
  const uint64_t points = CountCalls();
  const auto tried = PointsToTry(points, 40, seed_);
  for (const uint64_t call : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", call, ", cut at that call"));
    CrashDisks disks;
    std::optional<NamesWork> work;
    {
      CrashWorld world(disks);
      const auto client = world->Client(1, GetParam());
      ASSERT_TRUE(world->store().FlushAll().ok());
      work.emplace(*client, seed_);
      disks.At(call, [&] { disks.CutPower(); });
      if (work->Work(kNamesSteps)) disks.CutPower();
    }
    disks.At(0, nullptr);
    disks.PowerOn(seed_ + call);
    CrashWorld world(disks);
    const auto client = world->Client(1);
    ASSERT_NO_FATAL_FAILURE(work->Check(*client, world->store(), world->volume()));
    ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*client));
    synced_writes += work->synced_writes();
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the power was cut at " << tried.size() << " of " << points
            << " calls, behind " << synced_writes << " synced writes\n";
  EXPECT_GT(synced_writes, 0u);
}

// The client has died.
void SpreadCrashTest::HeirFindsAll(CrashWorld& world, NamesWork& work, FileSystem& heir) {
  work.AllButWhatFailed();
  world.LetLeasesRunOut(heir);
  EXPECT_TRUE(Eventually([&] {
    const auto clients = world->volume()->Clients();
    return clients.ok() && clients->size() == 1;
  }));
  ASSERT_NO_FATAL_FAILURE(work.Check(heir, world->store(), world->volume()));
  ASSERT_NO_FATAL_FAILURE(world.CheckColumns(heir));
}

// A client dies about when a disk gets a call. Another one finds all that was synced, and all names
// but perhaps the last, once the dead one's lease is over.
TEST_P(SpreadCrashTest, AnotherClientTakesOverTheFilesOfOneThatDied) {
  const uint64_t points = CountCalls();
  const auto tried = PointsToTry(points, 4, seed_);
  for (const uint64_t call : tried) {
    SCOPED_TRACE(
        absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", call, ", dies at that call"));
    CrashDisks disks;
    CrashWorld world(disks);
    auto victim = world->Client(1, GetParam());
    const auto heir = world->Client(2);
    NamesWork work(*victim, seed_);
    std::promise<void> now;
    std::thread killer([&, said = now.get_future()]() mutable {
      said.wait();
      world->cluster().Kill(1);
    });
    disks.At(call, [&] { now.set_value(); });
    work.Work(kNamesSteps);
    if (disks.At(0, nullptr)) now.set_value();
    killer.join();
    ASSERT_NO_FATAL_FAILURE(HeirFindsAll(world, work, *heir));
    victim.reset();  // what it says now reaches nobody
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the client died at " << tried.size() << " of " << points
            << " calls\n";
}

// -- at messages ----------------------------------------------------------------------------------

// A call of the client's, or of one of its objects, is not sent any more; or it was executed, and
// its answer is not sent.
TEST_P(SpreadCrashTest, AnotherClientTakesOverTheFilesOfOneThatDiedAtAMessage) {
  const uint64_t points = 2 * CountMessages();
  const auto tried = PointsToTry(points, 4, seed_);
  uint64_t died = 0;
  for (const uint64_t point : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", point, ", dies at message ",
                              point / 2, point % 2 == 0 ? "" : ", when it was executed"));
    CrashDisks disks;
    MessagePoints messages;
    CrashWorld world(disks, 0, {.messages = &messages});
    auto victim = world->Client(1, GetParam());
    const auto heir = world->Client(2);
    NamesWork work(*victim, seed_);
    std::promise<void> now;
    std::thread killer([&, said = now.get_future()]() mutable {
      said.wait();
      world->cluster().Kill(1);
    });
    messages.At(1, point / 2, point % 2 == 1, [&] { now.set_value(); });
    work.Work(kNamesSteps);
    const bool is_dead = messages.Stop();
    died += is_dead;
    if (!is_dead) now.set_value();
    killer.join();
    ASSERT_NO_FATAL_FAILURE(HeirFindsAll(world, work, *heir));
    victim.reset();
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the client died at " << died << " of " << points << " messages\n";
  EXPECT_GT(died, 0u);
}

class MessageCrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  // A server of columns dies at that message, or none where it does not come.
  void LoseAt(uint64_t message, bool answer);
  // The server with the inodes does, and then the power of all others goes.
  void LoseInodesAt(uint64_t message, bool answer);
  // A client that has made the files, so that there is something at the servers.
  std::unique_ptr<FileSystem> Begin(CrashWorld& world, FileWork& work);
  void WorkUntilLost(CrashDisks& disks, MessagePoints& messages, CrashWorld& world, FileWork& work,
                     FileSystem& client, size_t victim, uint64_t message, bool answer);

  const uint64_t seed_ = runtime::testing::Seed(1);
  uint64_t messages_ = 0, died_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Stacks, MessageCrashTest, ::testing::ValuesIn(kRedundantStacks));

class InodesMessageCrashTest : public MessageCrashTest {};
INSTANTIATE_TEST_SUITE_P(Stacks, InodesMessageCrashTest, ::testing::ValuesIn(kStacks));

void MessageCrashTest::WorkUntilLost(CrashDisks& disks, MessagePoints& messages, CrashWorld& world,
                                     FileWork& work, FileSystem& client, size_t victim,
                                     uint64_t message, bool answer) {
  std::promise<bool> now;
  std::thread killer([&, said = now.get_future()]() mutable {
    if (!said.get()) return;
    if (victim == kInodes) {
      world->cluster().Kill(world.NodeOf(kInodes));
    } else {
      world.Lose(victim);
    }
  });
  messages.At(world.NodeOf(victim), message, answer, [&] {
    disks.CutPowerOf(victim);
    if (victim == kInodes) disks.CutPowerOfInodes();
    now.set_value(true);
  });
  bool was_refused = false;
  for (int i = 0; i < kFileSteps; ++i) was_refused |= !work.Step(client).ok();
  messages_ = messages.messages();
  const bool is_dead = messages.Stop();
  if (!is_dead) now.set_value(false);
  killer.join();
  died_ += is_dead;
  EXPECT_TRUE(is_dead || !was_refused);
}

std::unique_ptr<FileSystem> MessageCrashTest::Begin(CrashWorld& world, FileWork& work) {
  auto client = world->Client(1, GetParam());
  if (client == nullptr) return nullptr;
  work.Make(*client);
  if (HasFatalFailure()) return nullptr;
  const absl::Status begun = work.Work(*client, 5);
  EXPECT_TRUE(begun.ok()) << begun;
  return client;
}

void MessageCrashTest::LoseAt(uint64_t message, bool answer) {
  CrashDisks disks;
  MessagePoints messages;
  FileWork work(seed_);
  CrashWorld world(disks, 1, {.messages = &messages});
  const auto client = Begin(world, work);
  ASSERT_NE(client, nullptr);
  const size_t victim = world.Server(0);  // the first file has a column there
  WorkUntilLost(disks, messages, world, work, *client, victim, message, answer);
  const bool is_lost = !world.lost().empty();
  if (is_lost) work.NodeDied();
  // What was lost is told.
  absl::Status synced;
  int tells = 0;
  do {
    synced = work.SyncAll(*client);
  } while (!synced.ok() && is_lost && ++tells <= kTellsMax);
  ASSERT_TRUE(synced.ok()) << synced;
  ASSERT_NO_FATAL_FAILURE(work.Check(*client));
  if (is_lost) world.Return(*world.lost().begin(), seed_ + message);
  const absl::Status rebuilt = work.RebuildAll(*client);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt;
  ASSERT_NO_FATAL_FAILURE(work.Check(*client));
  ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*client));
}

void MessageCrashTest::LoseInodesAt(uint64_t message, bool answer) {
  CrashDisks disks;
  FileWork work(seed_);
  {
    MessagePoints messages;
    CrashWorld world(disks, 0, {.messages = &messages});
    auto client = Begin(world, work);
    ASSERT_NE(client, nullptr);
    WorkUntilLost(disks, messages, world, work, *client, kInodes, message, answer);
    client.reset();
    disks.CutPower();
  }
  disks.PowerOn(seed_ + message);
  work.Crashed();
  CrashWorld world(disks);
  const auto client = world->Client(2, GetParam());
  ASSERT_NE(client, nullptr);
  ASSERT_NO_FATAL_FAILURE(work.Check(*client));
  ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*client));
}

// A call to it is not sent any more, or it was executed there and is not answered.
TEST_P(MessageCrashTest, NothingIsLostWithAServerThatDiesAtAMessage) {
  {
    SCOPED_TRACE("at no message");
    ASSERT_NO_FATAL_FAILURE(LoseAt(kNever, false));
  }
  const uint64_t points = 2 * messages_;
  const auto tried = PointsToTry(points, 8, seed_);
  for (const uint64_t point : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", point, ", dies at message ",
                              point / 2, point % 2 == 0 ? "" : ", when it was executed"));
    LoseAt(point / 2, point % 2 == 1);
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": a server died at " << died_ << " of " << points << " messages\n";
  EXPECT_GT(died_, 0u);
}

// At a call that it gets or makes, or at the answer to one.
TEST_P(InodesMessageCrashTest, WhatWasSyncedIsThereWhenTheServerDiesAtAMessage) {
  {
    SCOPED_TRACE("at no message");
    ASSERT_NO_FATAL_FAILURE(LoseInodesAt(kNever, false));
  }
  const uint64_t points = 2 * messages_;
  const auto tried = PointsToTry(points, 8, seed_);
  for (const uint64_t point : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed_, " ABACUS_POINT=", point, ", dies at message ",
                              point / 2, point % 2 == 0 ? "" : ", when it was executed"));
    LoseInodesAt(point / 2, point % 2 == 1);
    if (HasFailure()) return;
  }
  std::cout << GetParam() << ": the server with the inodes died at " << died_ << " of " << points
            << " messages\n";
  EXPECT_GT(died_, 0u);
}

// -- with a copy of the inodes --------------------------------------------------------------------

// The power of the server with the inodes goes before a call to a disk of whichever server; those
// of columns live.
TEST(CopiedSpreadCrashTest, TheCopyHasWhatWasSyncedAndColumnsAreWholeWhereverThePrimaryDies) {
  const uint64_t seed = runtime::testing::Seed(1);
  const CrashOptions options{.has_copy = true};
  uint64_t points = 0, synced_writes = 0;
  {
    CrashDisks disks;
    CrashWorld world(disks, 0, options);
    const auto client = world->Client(1, kCachedRaid);
    ASSERT_TRUE(world->store().FlushAll().ok());
    const uint64_t before = disks.calls();
    EXPECT_TRUE(NamesWork(*client, seed).Work(kNamesSteps));
    points = disks.calls() - before;
  }
  const auto tried = PointsToTry(points, 40, seed);
  for (const uint64_t call : tried) {
    SCOPED_TRACE(absl::StrCat("ABACUS_SEED=", seed, " ABACUS_POINT=", call, ", dies at that call"));
    CrashDisks disks;
    CrashWorld world(disks, 1, options);
    auto client = world->Client(1, kCachedRaid);
    ASSERT_TRUE(world->store().FlushAll().ok());
    NamesWork work(*client, seed);
    disks.At(call, [&] { disks.CutPowerOfInodes(); });
    work.Work(kNamesSteps);
    disks.At(0, nullptr);
    client.reset();
    ASSERT_NO_FATAL_FAILURE(world.TakeOver());
    const auto heir = world->Client(2, kCachedRaid);
    ASSERT_NE(heir, nullptr);
    ASSERT_NO_FATAL_FAILURE(work.Check(*heir, world->store(), world->volume()));
    // It is a volume to work on.
    const auto made = heir->Create(Caller(), heir->root(), "after", S_IFREG | 0644, O_RDWR, "");
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(heir->Write(made->handle, 0, runtime::Block::CopyOf("text")).ok());
    EXPECT_TRUE(heir->Sync(made->handle).ok());
    EXPECT_TRUE(heir->Release(made->handle).ok());
    ASSERT_NO_FATAL_FAILURE(world.CheckColumns(*heir));
    synced_writes += work.synced_writes();
    if (HasFailure()) return;
  }
  std::cout << "the primary died at " << tried.size() << " of " << points << " calls, behind "
            << synced_writes << " synced writes\n";
  EXPECT_GT(synced_writes, 0u);
}

}  // namespace
}  // namespace abacus::objfs
