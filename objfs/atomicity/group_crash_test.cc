// Clients write groups over three servers; at each message, and at each call of each server to its
// disk, somebody dies. Then all live, a lease goes by, and what is there is judged: each group
// whole or not at all, as its client was told, and nothing pending.
//
//   ABACUS_LONG=1   more seeds of what a power cut leaves, and all pairs of deaths

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/testing/group_world.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using testing::GroupWorld;
using testing::kFromServer;
using testing::kGroupServers;
using testing::MessageFate;

using Told = GroupOutcome::Kind;

struct Death {
  enum class Kind { kNone, kMessage, kClient, kClientAfter, kDiskCall, kAgain };
  Kind kind = Kind::kNone;
  MessageFate fate = MessageFate::kArrives;  // kMessage
  uint64_t at = 0;    // the message, or the disk's call; kAgain: in the life after its first death
  size_t server = 0;  // kDiskCall, kAgain

  std::string Text() const {
    static constexpr const char* kNames[] = {
        "nobody", "message", "client before message", "client after message", "disk call", "again"};
    return absl::StrCat(kNames[static_cast<int>(kind)], " ", at, ", fate ", static_cast<int>(fate),
                        ", server ", server);
  }
};

struct Work {
  GroupPart part;
  std::optional<Told> told;  // nothing: the client died in it, or before
  Version id;
};

// Groups that are all written to blocks of their own, and some that have to do with the same ones.
std::vector<Work> TheWork() {
  std::vector<Work> work(4);
  for (uint64_t i = 0; i < work.size(); ++i) {
    work[i].part.writes.push_back(GroupWorld::WriteOf(10 + i, i + 1));
  }
  work[0].part.writes.push_back(GroupWorld::WriteOf(0, 1));
  work[1].part.writes.push_back(GroupWorld::WriteOf(1, 2));
  work[2].part.writes.push_back(GroupWorld::WriteOf(0, 3));
  work[2].part.writes.push_back(GroupWorld::WriteOf(1, 3));
  work[3].part.writes.push_back(GroupWorld::WriteOf(0, 4));
  return work;
}

class CrashRun {
 public:
  CrashRun(std::vector<Death> deaths, uint64_t seed, bool returns_soon)
      : deaths_(std::move(deaths)), seed_(seed), returns_soon_(returns_soon) {}

  // Of a run without deaths: how many points there are.
  uint64_t messages() const { return messages_; }
  uint64_t DiskCalls(size_t server) const { return calls_[server]; }

  void Run() {
    for (size_t i = 0; i < kGroupServers; ++i) calls_before_[i] = world_[i].disk->Calls();
    for (const Death& death : deaths_) {
      if (death.kind != Death::Kind::kDiskCall) continue;
      world_[death.server].disk->CutPowerAfter(death.at);
    }
    world_.fate = [this](uint64_t message, uint64_t from) { return FateOf(message, from); };
    uint64_t client = 1;
    for (Work& work : work_) {
      HybridClock clock = world_.Clock(static_cast<uint16_t>(client));
      const auto writer = world_.Client(client, &clock);
      const GroupOutcome outcome = writer->Write(GroupWorld::Everywhere(work.part));
      if (world_.dead_clients.contains(client)) {
        ++client;  // another one goes on
      } else {
        work.told = outcome.kind;
        work.id = outcome.id;
      }
      for (size_t i = 0; returns_soon_ && i < kGroupServers; ++i) Revive(i);
    }
    world_.fate = nullptr;
    // Where the second death comes only now, once more.
    for (size_t again = 0; again <= deaths_.size(); ++again) {
      for (size_t i = 0; i < kGroupServers; ++i) {
        for (int tries = 0; tries < 3; ++tries) Revive(i);
      }
      world_.PassALease();
    }
    messages_ = world_.messages();
    for (size_t i = 0; i < kGroupServers; ++i) {
      calls_[i] = world_[i].disk->Calls() - calls_before_[i];
      world_[i].disk->CutPowerAfter(kNever);  // it was not reached
    }
  }

  void Judge() {
    for (size_t i = 0; i < kGroupServers; ++i) ASSERT_TRUE(world_.IsUp(i)) << i;
    ASSERT_EQ(world_.Pending(), 0u);
    for (size_t i = 0; i < work_.size(); ++i) JudgeGroup(i);
    JudgeShared();
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    // And all goes on.
    HybridClock clock = world_.Clock(50);
    GroupPart last;
    for (const uint64_t block : {0, 1, 10}) {
      last.writes.push_back(GroupWorld::WriteOf(block, 25));
    }
    const auto outcome = world_.Client(50, &clock)->Write(GroupWorld::Everywhere(last));
    ASSERT_EQ(outcome.kind, Told::kCommitted) << outcome.why;
    for (size_t server = 0; server < kGroupServers; ++server) {
      ASSERT_EQ(world_.TagAt(server, 0), 25u);
    }
  }
  bool anybody_died() const { return died_; }

 private:
  void Revive(size_t i) {
    if (world_.IsUp(i)) return;
    died_ = true;
    ++restarts_[i];
    std::optional<uint64_t> again;
    for (const Death& death : deaths_) {
      const bool is_now = death.kind == Death::Kind::kAgain && restarts_[i] == 1;
      if (is_now && death.server == i) again = death.at;
    }
    world_.Restart(i, seed_ + i + 10 * restarts_[i], again);
  }
  MessageFate FateOf(uint64_t message, uint64_t from) {
    // A server that comes back does so while the others work.
    for (size_t i = 0; returns_soon_ && i < kGroupServers; ++i) {
      if (from < kFromServer && message % 3 == 0) Revive(i);
    }
    MessageFate fate = MessageFate::kArrives;
    for (const Death& death : deaths_) {
      if (death.kind >= Death::Kind::kDiskCall || death.at != message) continue;
      if (death.kind == Death::Kind::kMessage) fate = death.fate;
      if (from >= kFromServer) continue;
      if (death.kind == Death::Kind::kMessage) continue;
      world_.dead_clients.insert(from);
      fate = death.kind == Death::Kind::kClient ? MessageFate::kIsLost : MessageFate::kAnswerIsLost;
    }
    return fate;
  }
  void JudgeGroup(size_t i) {
    const Work& work = work_[i];
    size_t there = 0;
    for (size_t server = 0; server < kGroupServers; ++server) {
      const uint64_t tag = world_.TagAt(server, 10 + i);
      ASSERT_TRUE(tag == 0 || tag == i + 1);
      there += tag != 0;
    }
    ASSERT_TRUE(there == 0 || there == kGroupServers) << "group " << i << " at " << there;
    if (work.told == Told::kCommitted) {
      ASSERT_EQ(there, kGroupServers) << "group " << i << " is lost";
    }
    if (work.told == Told::kAborted) {
      ASSERT_EQ(there, 0u) << "group " << i << " was called off";
    }
  }
  // A block that several write has what the newest of them wrote, everywhere.
  void JudgeShared() {
    for (const uint64_t block : {0, 1}) {
      Version newest;
      uint64_t tag = 0;
      for (size_t i = 0; i < work_.size(); ++i) {
        const Version version = world_.VersionAt(0, 10 + i);
        const auto& writes = work_[i].part.writes;
        const bool has = std::any_of(writes.begin(), writes.end(),
                                     [&](const GroupWrite& write) { return write.block == block; });
        if (has && version > newest) {
          newest = version;
          tag = i + 1;
        }
      }
      for (size_t server = 0; server < kGroupServers; ++server) {
        ASSERT_EQ(world_.TagAt(server, block), tag) << "block " << block << " at " << server;
        ASSERT_EQ(world_.VersionAt(server, block), newest);
      }
    }
  }

  const std::vector<Death> deaths_;
  const uint64_t seed_;
  const bool returns_soon_;
  bool died_ = false;
  int restarts_[kGroupServers] = {};
  GroupWorld world_;
  std::vector<Work> work_ = TheWork();
  static constexpr uint64_t kNever = uint64_t{1} << 40;
  uint64_t messages_ = 0;
  uint64_t calls_before_[kGroupServers] = {}, calls_[kGroupServers] = {};
};

void Try(const std::vector<Death>& deaths, uint64_t seed, bool returns_soon, uint64_t* died) {
  std::string text = absl::StrCat("seed ", seed, returns_soon ? ", returns soon" : "");
  for (const Death& death : deaths) text += "; " + death.Text();
  SCOPED_TRACE(text);
  CrashRun run(deaths, seed, returns_soon);
  run.Run();
  run.Judge();
  *died += run.anybody_died();
}

std::vector<Death> AllPoints() {
  CrashRun clean({}, 1, false);
  clean.Run();
  clean.Judge();
  std::vector<Death> points;
  for (uint64_t at = 0; at < clean.messages(); ++at) {
    points.push_back({.kind = Death::Kind::kClient, .at = at});
    points.push_back({.kind = Death::Kind::kClientAfter, .at = at});
    for (const MessageFate fate : {MessageFate::kIsLost, MessageFate::kAnswerIsLost,
                                   MessageFate::kServerDiesBefore, MessageFate::kServerDiesAfter}) {
      points.push_back({.kind = Death::Kind::kMessage, .fate = fate, .at = at});
    }
  }
  for (size_t server = 0; server < kGroupServers; ++server) {
    for (uint64_t at = 0; at < clean.DiskCalls(server); ++at) {
      points.push_back({.kind = Death::Kind::kDiskCall, .at = at, .server = server});
    }
  }
  return points;
}

TEST(GroupCrash, AtEachPointAGroupIsWholeOrNotAtAll) {
  const std::vector<Death> points = AllPoints();
  const uint64_t seeds = runtime::testing::LongRun() ? 20 : 2;
  uint64_t died = 0;
  for (const Death& point : points) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      for (const bool returns_soon : {false, true}) {
        Try({point}, seed * 1000, returns_soon, &died);
        if (HasFatalFailure()) return;
      }
    }
  }
  std::cout << points.size() << " points, " << died << " deaths of servers\n";
  // Of these: three servers, some ten calls a group to each disk, nine messages a group.
  EXPECT_GE(points.size(), 200u);
  EXPECT_GE(died, points.size());
}

// A second one dies while the first death is dealt with, somewhere else or at the same server.
TEST(GroupCrash, AtTwoPointsAGroupIsWholeOrNotAtAll) {
  const std::vector<Death> points = AllPoints();
  const size_t step = runtime::testing::LongRun() ? 1 : 97;
  uint64_t died = 0, runs = 0;
  for (size_t pair = 0; pair < points.size() * points.size(); pair += step) {
    const Death& first = points[pair / points.size()];
    const Death& second = points[pair % points.size()];
    Try({first, second}, pair, pair % 2 == 0, &died);
    if (HasFatalFailure()) return;
    ++runs;
  }
  std::cout << runs << " pairs, " << died << " deaths of servers\n";
  EXPECT_GE(died, runs / 2);
}

// Servers die while they recover, too.
TEST(GroupCrash, AServerThatDiesAgainWhenItComesBackLosesNothing) {
  const std::vector<Death> points = AllPoints();
  const size_t step = runtime::testing::LongRun() ? 1 : 61;
  constexpr size_t kCalls = 24;
  uint64_t died = 0, runs = 0;
  for (size_t each = 0; each < points.size() * kGroupServers * kCalls; each += step) {
    const Death again{
        .kind = Death::Kind::kAgain, .at = each % kCalls, .server = each / kCalls % kGroupServers};
    const Death& first = points[each / kCalls / kGroupServers];
    const bool dies = first.kind == Death::Kind::kDiskCall ? first.server == again.server
                                                           : first.kind == Death::Kind::kMessage;
    if (!dies) continue;
    Try({first, again}, each, each % 2 == 0, &died);
    if (HasFatalFailure()) return;
    ++runs;
  }
  std::cout << runs << " runs, " << died << " deaths of servers\n";
  EXPECT_GE(died, runs / 4);
}

// A write of one block, under an opening.
constexpr uint64_t kHeldBlock = 5;
CommitMessage PrepareAt(uint64_t server, Version id, const std::vector<CommitPart>& group) {
  GroupPart part;
  part.fences.push_back({GroupWorld::kObject, Version{1}});
  part.writes.push_back(GroupWorld::WriteOf(kHeldBlock, 1));
  CommitMessage prepare{.kind = CommitKind::kPrepare, .id = id, .part = {server, 0}};
  prepare.group = group;
  prepare.payload = part.Encode();
  return prepare;
}
absl::Status Hold(CommitLog& log, Version id) {
  const GroupFence by{GroupWorld::kObject, Version{2}};
  return log.Settle(by, {{id, GroupFate::kCommitHeld}});
}

// An opening holds a group without the word of all. Who finds it only prepared after a crash may
// abort it: nothing of it may be in the store then.
TEST(GroupCrash, WhatIsHeldIsInTheLogBeforeItIsInTheStore) {
  uint64_t calls = 0;
  for (bool is_done = false; !is_done; ++calls) {
    SCOPED_TRACE(absl::StrCat("the power goes at call ", calls));
    GroupWorld world;
    world.Pass(GroupWorld::kSecond);  // its log refuses what is as old as it is
    const Version id = world.Clock(1).Next();
    const auto reply = world[0].log->Ask(world.epoch, PrepareAt(0, id, {{0, 0}, {1, 0}}));
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->message.kind, CommitKind::kPrepared) << reply->why;
    world[0].disk->CutPowerAfter(calls);
    is_done = Hold(*world[0].log, id).ok();
    world.Restart(0, calls + 1);
    ASSERT_TRUE(world.IsUp(0));
    const auto pending = world[0].log->PendingOf(GroupWorld::kObject);
    ASSERT_TRUE(pending.ok()) << pending.status();
    ASSERT_EQ(pending->size(), 1u);
    EXPECT_EQ(world.TagAt(0, kHeldBlock) != 0, pending->front().held);
    EXPECT_TRUE(pending->front().held || !is_done);
  }
  // The log is written twice and the store once, each with a sync.
  EXPECT_GE(calls, 6u);
}

// Who opened the object has died when one of two servers held the group, and the third one never
// prepared it. If the second one wrote it and forgot it, nobody would know that it has it.
TEST(GroupCrash, WhatIsHeldIsPassedOnByOrdersOnly) {
  GroupWorld world;
  world.Pass(GroupWorld::kSecond);
  const Version id = world.Clock(1).Next();
  for (const uint64_t server : {0, 1}) {
    const CommitMessage prepare = PrepareAt(server, id, {{0, 0}, {1, 0}, {2, 0}});
    const auto reply = world[server].log->Ask(world.epoch, prepare);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->message.kind, CommitKind::kPrepared) << reply->why;
  }
  ASSERT_TRUE(Hold(*world[0].log, id).ok());
  world.PassALease();
  EXPECT_EQ(world.TagAt(0, kHeldBlock), 1u);
  EXPECT_EQ(world.TagAt(1, kHeldBlock), 0u);
  const auto pending = world[0].log->PendingOf(GroupWorld::kObject);
  ASSERT_TRUE(pending.ok()) << pending.status();
  ASSERT_EQ(pending->size(), 1u);
  EXPECT_TRUE(pending->front().held);
}

}  // namespace
}  // namespace abacus::objfs
