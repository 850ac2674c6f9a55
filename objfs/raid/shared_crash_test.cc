// Clients write stripes together, over three servers; at each message, and at each call of each
// server to its disk, somebody dies: a client, a server, or all of them. Then all live, a lease
// goes by, and what is there is judged: each stripe's part of a write whole or not at all, what was
// acknowledged there, and parity the XOR of data.
//
//   ABACUS_LONG=1   more seeds of what a power cut leaves

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/testing/group_world.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/raid/shared_stripes.h"
#include "objfs/raid/testing/stored_stripes.h"
#include "objfs/storage/storage_layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::GroupWorld;
using testing::kFromServer;
using testing::kGroupServers;
using testing::MessageFate;

constexpr uint64_t kUnit = ObjectStore::kBlockBytes, kStripe = 2 * kUnit;
constexpr uint64_t kSize = 2 * kStripe + kUnit + 1000;
constexpr uint64_t kNever = uint64_t{1} << 60;

// A server's column, whatever store it has now.
class WorldColumn final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"world-column", "test.WorldColumn", {}, 0, 0, true};
  WorldColumn(GroupWorld& world, size_t server) : world_(world), server_(server) {}
  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override {
    if (!world_.IsUp(server_)) return absl::UnavailableError("the server is down");
    StorageLayer storage(world_[server_].store, GroupWorld::kObject);
    return storage.Read(offset, bytes, now);
  }
  ABACUS_LAYER(WorldColumn, 1)

 private:
  GroupWorld& world_;
  const size_t server_;
};

// Three servers with a column each, on the world's clock.
class SharedWorld {
 public:
  SharedWorld() {
    runtime::testing::ClusterOptions options;
    options.nodes = 1;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<WorldColumn>();
    };
    node_ = std::make_unique<runtime::testing::Cluster>(options);
    for (size_t i = 0; i < kGroupServers; ++i) {
      auto column = std::make_unique<WorldColumn>(world_, i);
      EXPECT_TRUE(column->Init({}, {}).ok());
      columns_.push_back((*node_)[0].binding().Adopt(std::move(column)));
    }
  }

  GroupWorld& world() { return world_; }
  const Striping& striping() const { return striping_; }

  std::unique_ptr<SharedStripes> Client(uint16_t number) {
    return Client(number, world_.PeersOf(number));
  }
  std::unique_ptr<SharedStripes> Client(uint16_t number, std::shared_ptr<CommitPeers> peers) {
    SharedColumns shared;
    for (size_t i = 0; i < kGroupServers; ++i) {
      shared.columns.push_back(runtime::Ref<Layer>(columns_[i].base()));
      shared.logs.emplace_back();
      shared.servers.push_back(static_cast<uint32_t>(i));
    }
    shared.id = GroupWorld::kObject;
    shared.opening = Version{1};
    shared.writer = number;
    shared.size = kSize;
    EXPECT_TRUE(SharedStripes::Check(striping_, shared).ok());
    SharedStripes::Host host;
    host.steady_ns = [this] { return world_.now_ns(); };
    host.now_us = [this] { return int64_t{1'700'000'000'000'000} + world_.now_ns() / 1000; };
    host.wait = [this](absl::Duration wait) { world_.Pass(absl::ToInt64Nanoseconds(wait)); };
    host.peers = std::move(peers);
    return std::make_unique<SharedStripes>(striping_, std::move(shared), ParityWork(),
                                           std::move(host));
  }
  static Version Now() { return Version::Of(1, 1); }

  // The whole of the last stripe, too. Fails where parity is wrong.
  std::string File() {
    std::vector<std::string> columns;
    for (size_t i = 0; i < kGroupServers; ++i) {
      columns.push_back(testing::StoredBytes(*world_[i].store, GroupWorld::kObject,
                                             striping_.ColumnOffsetOf(striping_.Stripes(kSize))));
    }
    testing::ExpectParityOf(striping_, columns);
    return testing::FileOf(striping_, columns);
  }

 private:
  GroupWorld world_;
  const Striping striping_ = *Striping::Make(kGroupServers, kUnit);
  std::unique_ptr<runtime::testing::Cluster> node_;
  std::vector<runtime::Ref<WorldColumn>> columns_;
};

struct Death {
  // kServer, kAll: at the disk's call of `server`; the others at the next message of a client's.
  enum class Kind { kNobody, kClient, kClientAfter, kServer, kAll };
  Kind kind = Kind::kNobody;
  uint64_t at = 0;  // the message, or the disk's call
  size_t server = 0;

  std::string Text() const {
    static constexpr const char* kNames[] = {"nobody", "client before message",
                                             "client after message", "server at disk call",
                                             "all at disk call"};
    return absl::StrCat(kNames[static_cast<int>(kind)], " ", at, ", server ", server);
  }
};

// What of a write is in one stripe, or in several whole ones: one group.
struct Segment {
  uint64_t begin = 0, end = 0;
  char letter = 0;
  bool is_there = false;  // else it may be
};

class CrashRun {
 public:
  CrashRun(const Death& death, uint64_t seed) : death_(death), seed_(seed) {}

  uint64_t messages() const { return messages_; }
  uint64_t DiskCalls(size_t server) const { return calls_[server]; }

  void Run() {
    GroupWorld& world = shared_.world();
    uint64_t before[kGroupServers];
    for (size_t i = 0; i < kGroupServers; ++i) before[i] = world[i].disk->Calls();
    if (death_.kind >= Death::Kind::kServer) world[death_.server].disk->CutPowerAfter(death_.at);
    world.fate = [this](uint64_t message, uint64_t from) { return FateOf(message, from); };
    Work();
    messages_ = world.messages();
    world.fate = nullptr;
    for (size_t i = 0; i < kGroupServers; ++i) {
      calls_[i] = world[i].disk->Calls() - before[i];
      if (death_.kind == Death::Kind::kAll && world.IsUp(i)) world.Kill(i);
      for (int tries = 0; tries < 3 && !world.IsUp(i); ++tries) world.Restart(i, seed_ + i);
      world[i].disk->CutPowerAfter(kNever);  // it was not reached
    }
    for (int i = 0; i < 2; ++i) world.PassALease();
  }

  void Judge() {
    GroupWorld& world = shared_.world();
    for (size_t i = 0; i < kGroupServers; ++i) ASSERT_TRUE(world.IsUp(i)) << i;
    ASSERT_EQ(world.Pending(), 0u);
    const std::string file = shared_.File();
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    std::vector<size_t> in_doubt;
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (!segments_[i].is_there) in_doubt.push_back(i);
    }
    ASSERT_LT(in_doubt.size(), 16u);
    bool is_one = false;
    for (uint64_t which = 0; which < uint64_t{1} << in_doubt.size() && !is_one; ++which) {
      std::string model(file.size(), '\0');
      for (size_t i = 0, next = 0; i < segments_.size(); ++i) {
        const Segment& segment = segments_[i];
        if (!segment.is_there && ((which >> next++) & 1) == 0) continue;
        std::fill(model.begin() + static_cast<int64_t>(segment.begin),
                  model.begin() + static_cast<int64_t>(segment.end), segment.letter);
      }
      is_one = model == file;
    }
    ASSERT_TRUE(is_one) << "the file is none that whole writes leave, of which " << in_doubt.size()
                        << " are in doubt";
    // And all goes on.
    const auto client = shared_.Client(50);
    const absl::Status written =
        client->Write(10, Block::CopyOf(std::string(kSize - 10, 'z')), SharedWorld::Now());
    ASSERT_TRUE(written.ok()) << written;
    EXPECT_EQ(shared_.File().substr(10),
              std::string(kSize - 10, 'z') + std::string(file.size() - kSize, '\0'));
  }

 private:
  void Work() {
    struct What {
      uint64_t offset, bytes;
    };
    // A block in part; a whole stripe; both units of one; two stripes; the end; the first again.
    static constexpr What kWork[] = {{100, 3000},        {kStripe, kStripe},
                                     {kUnit - 192, 400}, {kStripe + kUnit - 10, kUnit + 800},
                                     {kSize - 50, 50},   {200, 100}};
    uint16_t number = 1;
    auto client = shared_.Client(number);
    char letter = 'a';
    for (const What& what : kWork) {
      const absl::Status status = client->Write(
          what.offset, Block::CopyOf(std::string(what.bytes, letter)), SharedWorld::Now());
      const bool is_dead = shared_.world().dead_clients.contains(number);
      EXPECT_TRUE(status.ok() || IsNeedsAlone(status)) << status;
      for (uint64_t at = what.offset, end = what.offset + what.bytes; at < end;) {
        const uint64_t next = std::min(end, (at / kStripe + 1) * kStripe);
        segments_.push_back({at, next, letter, status.ok() && !is_dead});
        at = next;
      }
      ++letter;
      if (all_are_dead_) return;
      // Another one goes on, beside it or in its place.
      client = shared_.Client(++number);
    }
  }
  MessageFate FateOf(uint64_t message, uint64_t from) {
    GroupWorld& world = shared_.world();
    if (from >= kFromServer) return MessageFate::kArrives;
    if (death_.kind == Death::Kind::kAll && !world.IsUp(death_.server)) {
      for (size_t i = 0; i < kGroupServers; ++i) {
        if (world.IsUp(i)) world.Kill(i);
      }
      all_are_dead_ = true;
    }
    const bool dies =
        (death_.kind == Death::Kind::kClient || death_.kind == Death::Kind::kClientAfter) &&
        death_.at == message;
    if (!dies) return MessageFate::kArrives;
    world.dead_clients.insert(from);
    return death_.kind == Death::Kind::kClient ? MessageFate::kIsLost : MessageFate::kAnswerIsLost;
  }

  const Death death_;
  const uint64_t seed_;
  SharedWorld shared_;
  std::vector<Segment> segments_;
  bool all_are_dead_ = false;
  uint64_t messages_ = 0;
  uint64_t calls_[kGroupServers] = {};
};

void RunAndJudge(const Death& death, uint64_t seed) {
  SCOPED_TRACE(absl::StrCat(death.Text(), ", seed ", seed));
  CrashRun run(death, seed);
  run.Run();
  run.Judge();
}

TEST(SharedCrashTest, WhoeverDiesAtWhateverPointEachWriteIsWholeAndParityIsRight) {
  const uint64_t seeds = runtime::testing::LongRun() ? 5 : 1;
  const uint64_t stride = runtime::testing::kSanitized ? 7 : 1;
  CrashRun whole(Death{}, 1);
  whole.Run();
  ASSERT_NO_FATAL_FAILURE(whole.Judge());
  uint64_t points = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const auto kind : {Death::Kind::kClient, Death::Kind::kClientAfter}) {
      for (uint64_t at = 0; at < whole.messages(); at += stride, ++points) {
        ASSERT_NO_FATAL_FAILURE(RunAndJudge({kind, at, 0}, seed));
      }
    }
    for (const auto kind : {Death::Kind::kServer, Death::Kind::kAll}) {
      for (size_t server = 0; server < kGroupServers; ++server) {
        for (uint64_t at = 1; at <= whole.DiskCalls(server); at += stride, ++points) {
          ASSERT_NO_FATAL_FAILURE(RunAndJudge({kind, at, server}, seed));
        }
      }
    }
  }
  std::cout << points << " points\n";
  // Of Work()'s seven groups four change one data block and its parity, and three have to do with
  // all columns. Each member is asked three times, and for that its log is written twice and its
  // store once, each with a sync. Clients die before and after a message, servers alone and all at
  // once.
  constexpr uint64_t kMembers = 4 * 2 + 3 * 3;
  EXPECT_GE(points * stride, seeds * kMembers * (2 * 3 + 2 * 6));
}

// -- messages by hand -----------------------------------------------------------------------------

// Passes messages on, and says which of them are lost.
class WatchedPeers final : public CommitPeers {
 public:
  struct Asked {
    CommitKind kind;
    uint64_t server;
  };
  using Fate = std::function<bool(const CommitSend& send)>;  // whether it arrives

  WatchedPeers(std::shared_ptr<CommitPeers> below, Fate fate)
      : below_(std::move(below)), fate_(std::move(fate)) {}
  void Ask(uint64_t epoch, const std::vector<CommitSend>& sends, absl::Duration wait,
           const Take& take) override {
    for (size_t i = 0; i < sends.size(); ++i) {
      asked.push_back({sends[i].message.kind, sends[i].to});
      if (!fate_(sends[i])) {
        take(i, absl::DeadlineExceededError("no answer"));
        continue;
      }
      below_->Ask(epoch, {sends[i]}, wait,
                  [&](size_t, const absl::StatusOr<CommitReply>& reply) { take(i, reply); });
    }
  }
  std::vector<Asked> asked;

 private:
  const std::shared_ptr<CommitPeers> below_;
  const Fate fate_;
};

absl::Status WriteLetter(SharedStripes& client, uint64_t at, uint64_t bytes, char letter) {
  return client.Write(at, Block::CopyOf(std::string(bytes, letter)), SharedWorld::Now());
}

// Who finds a group prepared at the parity's server, and cannot ask another one, may go on with it.
TEST(SharedGroupsTest, TheParitysServerPreparesAPartOfAStripeLast) {
  SharedWorld shared;
  bool answers = true;
  auto peers = std::make_shared<WatchedPeers>(
      shared.world().PeersOf(1),
      [&](const CommitSend& send) { return answers || send.message.kind != CommitKind::kPrepare; });
  const auto client = shared.Client(1, peers);
  const uint64_t parity = shared.striping().ParityColumn(0);
  // Both units and the parity.
  ASSERT_TRUE(WriteLetter(*client, kUnit - 100, 200, 'a').ok());
  ASSERT_GE(peers->asked.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(peers->asked[i].kind, CommitKind::kPrepare);
    EXPECT_EQ(peers->asked[i].server == parity, i == 2) << i;
  }
  // It is not asked at all where one of the others does not answer.
  peers->asked.clear();
  answers = false;
  EXPECT_TRUE(IsNeedsAlone(WriteLetter(*client, 0, 100, 'b')));
  ASSERT_FALSE(peers->asked.empty());
  for (const auto& asked : peers->asked) {
    EXPECT_FALSE(asked.kind == CommitKind::kPrepare && asked.server == parity);
  }
  shared.world().PassALease();
  EXPECT_EQ(shared.world().Pending(), 0u);
  EXPECT_EQ(shared.File()[0], '\0');
  // Whole stripes rest on nothing: all at once.
  peers->asked.clear();
  answers = true;
  ASSERT_TRUE(WriteLetter(*client, 0, kStripe, 'c').ok());
  EXPECT_EQ(peers->asked[0].server, 0u);
  EXPECT_EQ(shared.File().substr(0, kStripe), std::string(kStripe, 'c'));
}

TEST(SharedGroupsTest, WhatADeadClientLeftIsResolvedAndParityIsRight) {
  // Only the data's server has prepared it; both have.
  for (const uint64_t arrive : {1, 2}) {
    SCOPED_TRACE(arrive);
    SharedWorld shared;
    uint64_t passed = 0;
    auto peers = std::make_shared<WatchedPeers>(
        shared.world().PeersOf(1), [&](const CommitSend&) { return ++passed <= arrive; });
    EXPECT_TRUE(IsNeedsAlone(WriteLetter(*shared.Client(1, peers), 0, kUnit, 'a')));
    EXPECT_GT(shared.world().Pending(), 0u);
    // Until it is resolved others are kept off the block, and told so.
    EXPECT_TRUE(IsNeedsAlone(WriteLetter(*shared.Client(2), 0, 10, 'b')));
    shared.world().PassALease();
    EXPECT_EQ(shared.world().Pending(), 0u);
    EXPECT_EQ(shared.File()[0], arrive == 1 ? '\0' : 'a');
    ASSERT_TRUE(WriteLetter(*shared.Client(3), 0, 10, 'c').ok());
    EXPECT_EQ(shared.File()[0], 'c');
  }
}

// A reader at a server that has promised the write, and does not know that all have, would see what
// was there before.
TEST(SharedGroupsTest, WhatIsNotSeenEverywhereYetIsNotAcknowledged) {
  SharedWorld shared;
  shared.world().resolves_meanwhile = false;
  const uint64_t column = shared.striping().ColumnOf(0, 0);
  auto peers =
      std::make_shared<WatchedPeers>(shared.world().PeersOf(1), [&](const CommitSend& send) {
        return send.message.kind != CommitKind::kCommit || send.to != column;
      });
  const auto client = shared.Client(1, peers);
  EXPECT_TRUE(IsNeedsAlone(WriteLetter(*client, 0, kUnit, 'a')));
  const auto read = shared.Client(2)->Read(0, 1, SharedWorld::Now());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes.view(), std::string(1, '\0'));
  shared.world().PassALease();
  EXPECT_EQ(shared.File()[0], 'a');
}

TEST(SharedGroupsTest, AnotherWriteBetweenReadAndPrepareIsSeenAndTheWritePlannedAgain) {
  SharedWorld shared;
  const auto other = shared.Client(2);
  bool was_there = false;
  auto peers = std::make_shared<WatchedPeers>(shared.world().PeersOf(1), [&](const CommitSend&) {
    // The other unit of the same stripe: they share the parity's block.
    if (!std::exchange(was_there, true)) {
      EXPECT_TRUE(WriteLetter(*other, kUnit, 100, 'b').ok());
    }
    return true;
  });
  const auto client = shared.Client(1, peers);
  ASSERT_TRUE(WriteLetter(*client, 0, 100, 'a').ok());
  EXPECT_EQ(client->counts().again, 1u);
  const std::string file = shared.File();
  EXPECT_EQ(file.substr(0, 101), std::string(100, 'a') + std::string(1, '\0'));
  EXPECT_EQ(file.substr(kUnit, 100), std::string(100, 'b'));
}

TEST(SharedGroupsTest, WhoIsAlwaysTooLateLeavesItToWhoIsAlone) {
  SharedWorld shared;
  const auto other = shared.Client(2);
  uint64_t planned = 0;
  auto peers =
      std::make_shared<WatchedPeers>(shared.world().PeersOf(1), [&](const CommitSend& send) {
        const uint64_t data = shared.striping().ColumnOf(0, 0);
        if (send.message.kind == CommitKind::kPrepare && send.to == data) {
          ++planned;
          EXPECT_TRUE(WriteLetter(*other, kUnit, 100, 'b').ok());
        }
        return true;
      });
  const auto client = shared.Client(1, peers);
  EXPECT_TRUE(IsNeedsAlone(WriteLetter(*client, 0, 100, 'a')));
  EXPECT_LE(planned, static_cast<uint64_t>(SharedStripes::kTriesMost));
  EXPECT_GT(planned, 10u);
  EXPECT_EQ(shared.File()[0], '\0');
}

}  // namespace
}  // namespace abacus::objfs
