// Groups over real nodes, sockets, threads and clocks; and how many flushes they share.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/commit_link.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/atomicity/group_writer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using runtime::testing::Cluster;
using runtime::testing::Eventually;
using Told = GroupOutcome::Kind;

constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
constexpr size_t kServers = 3;
constexpr ObjectId kObject = 7;

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
int64_t NowUs() { return absl::ToUnixMicros(absl::Now()); }

std::string Number(uint64_t number) {
  std::string bytes = absl::StrCat(number);
  bytes.resize(kBlock);
  return bytes;
}

// A disk's time, and that between two attempts.
void SpendTime(absl::Duration time) {
  runtime::Mutex mutex;
  runtime::CondVar nobody;
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  runtime::MutexLock lock(mutex);
  while (nobody.WaitUntil(mutex, end)) {
  }
}

GroupWriter::Host HostOf(std::shared_ptr<CommitPeers> peers) {
  return {.steady_ns = SteadyNs,
          .epoch = [] { return uint64_t{1}; },
          .wait = SpendTime,
          .peers = std::move(peers)};
}

// Three servers, one node for clients, and one that a server can begin again on.
class GroupNodesTest : public ::testing::Test {
 protected:
  static constexpr size_t kClientNode = kServers, kSpareNode = kServers + 1;

  GroupNodesTest() {
    // Longer than a test's thread stands still on a busy machine.
    commit_.lease_ns = 3'000'000'000;
    commit_.resend_ns = 200'000'000;
    commit_.decide_ns = 1'000'000'000;
    runtime::testing::ClusterOptions options;
    options.nodes = kServers + 2;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<CommitLog>();
    };
    cluster_ = std::make_unique<Cluster>(options);
    for (size_t i = 0; i < kServers; ++i) {
      disks_[i] = std::make_shared<MemoryDisk>();
      Start(i, i);
    }
  }
  ~GroupNodesTest() override {
    for (size_t i = 0; i < kServers; ++i) {
      if (logs_[i]) End(i);
    }
    cluster_.reset();
  }

  void Start(size_t server, size_t node) {
    auto store = LocalObjectStore::Open(*disks_[server], {});
    ASSERT_TRUE(store.ok()) << store.status();
    stores_[server] = *std::move(store);
    stores_[server]->CreateAs(kObject, "", 1).IgnoreError();
    ASSERT_TRUE(stores_[server]->Flush(kObject).ok());
    CommitLog::Options options;
    options.server = server;
    options.commit = commit_;
    options.resolve_every = absl::Milliseconds(50);
    options.answer_wait = absl::Milliseconds(500);
    auto log = CommitLog::Open(
        disks_[server], stores_[server], options,
        {.steady_ns = SteadyNs, .now_us = NowUs, .peers = PeersOf(node), .epoch = nullptr});
    ASSERT_TRUE(log.ok()) << log.status();
    nodes_[server] = node;
    logs_[server] = (*cluster_)[node].binding().Adopt(*std::move(log));
    runtime::MutexLock lock(mutex_);
    published_[server] = logs_[server].rid();
  }
  void End(size_t server) {
    {
      runtime::MutexLock lock(mutex_);
      published_[server] = runtime::Rid();
    }
    (*cluster_)[nodes_[server]].binding().Destroy(logs_[server].rid()).IgnoreError();
    logs_[server] = Ref<CommitLog>();
  }
  void Lose(size_t server) {
    cluster_->Kill(nodes_[server]);
    End(server);
    stores_[server].reset();
  }
  std::shared_ptr<CommitPeers> PeersOf(size_t node) {
    return PeersThrough([this, node](uint64_t server) -> absl::StatusOr<Ref<CommitLog>> {
      runtime::MutexLock lock(mutex_);
      if (published_[server] == runtime::Rid()) return absl::UnavailableError("it is down");
      return (*cluster_)[node].RefTo<CommitLog>(published_[server]);
    });
  }
  std::unique_ptr<GroupWriter> Writer(HybridClock* clock, uint64_t seed = 1,
                                      bool until_applied = true) {
    return std::make_unique<GroupWriter>(GroupWriter::Options{.commit = commit_,
                                                              .give_up = absl::Seconds(30),
                                                              .until_applied = until_applied,
                                                              .seed = seed},
                                         HostOf(PeersOf(kClientNode)), clock);
  }
  uint64_t NumberAt(size_t server, uint64_t block) {
    std::string bytes(kBlock, '\0');
    const auto read =
        stores_[server]->Read(kObject, block * kBlock, std::span(bytes.data(), bytes.size()));
    EXPECT_TRUE(read.ok()) << read.status();
    return std::strtoull(bytes.c_str(), nullptr, 10);
  }
  // Adds one to the number in a block, the same at all servers, and rests on what it was.
  std::vector<ServerPart> PlanAddition(uint64_t block) {
    const auto version = stores_[0]->ReadVersions(kObject, block, 1);
    EXPECT_TRUE(version.ok());
    const uint64_t number = NumberAt(0, block);
    std::vector<ServerPart> parts;
    for (size_t i = 0; i < kServers; ++i) {
      GroupPart part;
      if (i == 0) part.reads.push_back({kObject, block, Version{(*version)[0]}});
      part.writes.push_back({kObject, block, Number(number + 1)});
      parts.push_back({i, part});
    }
    return parts;
  }
  bool NothingIsPending() {
    for (size_t i = 0; i < kServers; ++i) {
      const auto counts = logs_[i]->Counts();
      if (!counts.ok() || counts->pending != 0) return false;
    }
    return true;
  }

  CommitOptions commit_;
  std::unique_ptr<Cluster> cluster_;
  std::array<std::shared_ptr<MemoryDisk>, kServers> disks_;
  std::array<std::shared_ptr<ObjectStore>, kServers> stores_;
  std::array<Ref<CommitLog>, kServers> logs_;
  std::array<size_t, kServers> nodes_{};
  runtime::Mutex mutex_;
  std::array<runtime::Rid, kServers> published_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(GroupNodesTest, AdditionsOfSeveralClientsAreOneAfterTheOther) {
  constexpr uint64_t kClients = 4, kEach = 25;
  std::atomic<uint64_t> tried{0};
  std::array<std::atomic<uint64_t>, 2> in_doubt{};  // by block; where the machine stands still
  std::vector<std::thread> clients;
  for (uint64_t client = 1; client <= kClients; ++client) {
    clients.emplace_back([&, client] {
      HybridClock clock(static_cast<uint16_t>(client), NowUs);
      const auto writer = Writer(&clock, client);
      for (uint64_t done = 0; done < kEach;) {
        ++tried;
        const GroupOutcome outcome = writer->Write(PlanAddition(client % 2));
        done += outcome.kind == Told::kCommitted;
        in_doubt[client % 2] += outcome.kind == Told::kInDoubt;
        if (outcome.kind != Told::kAborted) continue;
        ASSERT_TRUE(absl::IsAborted(outcome.why)) << outcome.why;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return NothingIsPending(); }));
  for (size_t server = 0; server < kServers; ++server) {
    for (const uint64_t block : {0, 1}) {
      EXPECT_EQ(NumberAt(server, block), NumberAt(0, block));
      EXPECT_GE(NumberAt(server, block), kClients / 2 * kEach);
      EXPECT_LE(NumberAt(server, block), kClients / 2 * kEach + in_doubt[block]);
    }
  }
  std::cout << tried << " groups, of which " << kClients * kEach << " were committed\n";
}

TEST_F(GroupNodesTest, WhatAClientLeftBetweenPrepareAndCommitIsResolvedAfterTheLease) {
  HybridClock clock(1, NowUs);
  for (const size_t prepared : {kServers, kServers - 1}) {
    const Version id = clock.Next();
    CommitMessage question{.kind = CommitKind::kPrepare, .id = id};
    for (uint64_t i = 0; i < kServers; ++i) question.group.push_back({i, 0});
    GroupPart part;
    part.writes.push_back({kObject, prepared, Number(5)});
    question.payload = part.Encode();
    for (size_t i = 0; i < prepared; ++i) {
      question.part = {i, 0};
      const auto log = (*cluster_)[kClientNode].RefTo<CommitLog>(logs_[i].rid());
      const auto reply = log->Ask(1, question);
      ASSERT_TRUE(reply.ok()) << reply.status();
      ASSERT_EQ(reply->message.kind, CommitKind::kPrepared);
    }
    ASSERT_TRUE(Eventually([&] { return NothingIsPending(); }));
    // By any of them: who is first tells the others.
    uint64_t resolved = 0;
    for (size_t i = 0; i < kServers; ++i) resolved += logs_[i]->Counts()->resolved;
    EXPECT_GE(resolved, 1u);
    for (size_t i = 0; i < kServers; ++i) {
      EXPECT_EQ(NumberAt(i, prepared), prepared == kServers ? 5u : 0u);
    }
  }
}

TEST_F(GroupNodesTest, AServerThatDiesAndComesAgainLosesNothing) {
  std::atomic<uint64_t> committed{0};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> in_doubt{0};
  std::array<std::atomic<uint64_t>, 4> last{};  // that was committed, by block
  std::thread client([&] {
    HybridClock clock(1, NowUs);
    const auto writer = Writer(&clock, 1, /*until_applied=*/false);
    for (uint64_t number = 1; !stop; ++number) {
      std::vector<ServerPart> parts;
      GroupPart part;
      part.writes.push_back({kObject, number % 4, Number(number)});
      for (size_t i = 0; i < kServers; ++i) parts.push_back({i, part});
      const GroupOutcome outcome = writer->Write(parts);
      in_doubt += outcome.kind == Told::kInDoubt;
      if (outcome.kind != Told::kCommitted) continue;
      last[number % 4] = number;
      ++committed;
    }
  });
  EXPECT_TRUE(Eventually([&] { return committed >= 5; }));
  Lose(1);
  Start(1, kSpareNode);
  const uint64_t before = committed;
  EXPECT_TRUE(Eventually([&] { return committed >= before + 5; }));
  stop = true;
  client.join();
  ASSERT_TRUE(Eventually([&] { return NothingIsPending(); }));
  for (uint64_t block = 0; block < 4; ++block) {
    const uint64_t number = NumberAt(0, block);
    EXPECT_GE(number, last[block].load()) << "an acknowledged one is lost";
    for (size_t i = 1; i < kServers; ++i) EXPECT_EQ(NumberAt(i, block), number) << i;
  }
  std::cout << committed << " groups, " << in_doubt << " in doubt\n";
}

// -- group commit ---------------------------------------------------------------------------------

class OneServerPeers final : public CommitPeers {
 public:
  explicit OneServerPeers(CommitLog& log) : log_(log) {}
  void Ask(uint64_t epoch, const std::vector<CommitSend>& sends, absl::Duration,
           const Take& take) override {
    for (size_t i = 0; i < sends.size(); ++i) take(i, log_.Ask(epoch, sends[i].message));
  }

 private:
  CommitLog& log_;
};

struct Rate {
  double syncs_per_group = 0, groups_per_s = 0;
};

// `clients` at once, each on blocks of its own, on a disk that takes 5 ms for a flush.
Rate RateOf(size_t clients, uint64_t each, bool until_applied) {
  MemoryDisk memory;
  std::atomic<uint64_t> syncs{0};
  DiskModel model{.flush = absl::Milliseconds(5)};
  model.wait = SpendTime;
  model.fault = [&](std::string_view call, const std::string&) {
    syncs += call == "sync";
    return absl::OkStatus();
  };
  const auto disk = std::make_shared<ModelDisk>(memory, model);
  std::shared_ptr<ObjectStore> store = *LocalObjectStore::Open(*disk, {});
  for (size_t i = 1; i <= clients; ++i) EXPECT_TRUE(store->CreateAs(i, "", 1).ok());
  EXPECT_TRUE(store->FlushAll().ok());
  CommitLog::Options options;
  options.resolve_every = absl::ZeroDuration();
  options.answer_wait = absl::Seconds(60);
  const auto log = *CommitLog::Open(disk, store, options,
                                    {.steady_ns = SteadyNs, .now_us = NowUs, .peers = nullptr});
  syncs = 0;
  const int64_t begun = SteadyNs();
  std::vector<std::thread> threads;
  for (size_t i = 1; i <= clients; ++i) {
    threads.emplace_back([&, i] {
      HybridClock clock(static_cast<uint16_t>(i), NowUs);
      GroupWriter writer({.until_applied = until_applied, .seed = i},
                         HostOf(std::make_shared<OneServerPeers>(*log)), &clock);
      for (uint64_t number = 1; number <= each; ++number) {
        GroupPart part;
        part.writes.push_back({i, number % 3, Number(number)});
        const GroupOutcome outcome = writer.Write({{0, part}});
        EXPECT_EQ(outcome.kind, Told::kCommitted) << outcome.why;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double groups = static_cast<double>(clients * each);
  return {.syncs_per_group = static_cast<double>(syncs) / groups,
          .groups_per_s = groups * 1e9 / static_cast<double>(SteadyNs() - begun)};
}

std::string Text(const Rate& rate) {
  return absl::StrCat(rate.syncs_per_group, " syncs a group, ", rate.groups_per_s, " groups/s");
}

TEST(GroupCommit, SixtyFourClientsShareFlushes) {
  const Rate one = RateOf(1, 20, true);
  Rate many = RateOf(64, 10, true);
  // Where others use the processors, fewer come within one flush: once of several times.
  for (int i = 0; i < 4 && one.syncs_per_group < 10 * many.syncs_per_group; ++i) {
    many = RateOf(64, 10, true);
  }
  std::cout << "one client: " << Text(one) << "; 64: " << Text(many) << "\n";
  // The prepared record, the store's journal, and the committed record; what nobody waits for goes
  // along with the next group's.
  EXPECT_LE(one.syncs_per_group, 3.5);
  EXPECT_GE(one.syncs_per_group, 2);
  EXPECT_GE(one.syncs_per_group, 10 * many.syncs_per_group);
}

TEST(GroupCommit, WhoDoesNotWaitForReadersWaitsForOneFlush) {
  const Rate waits = RateOf(1, 20, true), goes_on = RateOf(1, 20, false);
  std::cout << "until applied: " << Text(waits) << "; until committed: " << Text(goes_on) << "\n";
  EXPECT_LE(goes_on.syncs_per_group, waits.syncs_per_group + 0.2);
}

}  // namespace
}  // namespace abacus::objfs
