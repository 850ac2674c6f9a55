// Location transparency and exactly once, by random graphs under random forced moves.
//
// A graph of pipes and counters carries byte streams; movers move random objects, singly and in
// sets, between three nodes for as long as the streams run. The bytes and the final state of every
// object must be those of the same graph that nobody moves. ABACUS_SEED repeats a run (as far as
// threads allow), ABACUS_LONG=1 makes towards 10^6 moves.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

// Adds up what passes, from whichever stream: the sum does not depend on their order.
class Counter : public MobileObject {
 public:
  absl::StatusOr<uint64_t> Add(uint64_t n) { return sum_ += n; }
  absl::StatusOr<uint64_t> Sum() { return sum_.load(); }

  void Checkpoint(CheckpointWriter& writer) const override { writer.Write(sum_.load()); }
  absl::Status Restore(CheckpointReader& reader) override {
    sum_ = reader.Read<uint64_t>();
    return reader.status();
  }
  ABACUS_OBJECT(Counter, "test.Counter", 1, Add, Sum)

 private:
  std::atomic<uint64_t> sum_{0};
};

// Changes the bytes that pass, by a key and by what has passed of the same stream before, and hands
// them to other pipes, which may hand them back: a call that is lost, run twice or run out of order
// changes every later byte of its stream.
class Pipe : public MobileObject {
 public:
  absl::Status Init(uint64_t key) {
    key_ = key;
    return absl::OkStatus();
  }
  absl::Status Connect(std::vector<Ref<Pipe>> pipes, std::vector<Ref<Counter>> counters) {
    pipes_ = std::move(pipes);
    counters_ = std::move(counters);
    return absl::OkStatus();
  }

  absl::StatusOr<Block> Pass(uint64_t stream, uint32_t hops, Block data) {
    uint64_t passed;
    Block out = Block::Allocate(data.size());
    {
      MutexLock lock(mutex_);
      uint64_t& state = passed_[stream];
      uint64_t mask = state ^ key_ ^ stream;
      for (size_t i = 0; i < data.size(); ++i) {
        if (i % 8 == 0) NextRandom(mask);
        out.mutable_data()[i] = static_cast<char>(data.data()[i] ^ (mask >> (i % 8 * 8)));
      }
      state = passed = HashBytes(out.view(), state + 1);
    }
    if (!counters_.empty()) {
      ABACUS_RETURN_IF_ERROR(counters_[passed % counters_.size()]->Add(out.size()).status());
    }
    if (hops == 0 || pipes_.empty()) return out;
    const Ref<Pipe>& next = pipes_[passed / 7 % pipes_.size()];
    // Branches run at the same time, so each is a stream of its own; those do not branch again.
    const bool fork = passed % 5 == 0 && (stream & kBranch) == 0;
    if (!fork) return next->Pass(stream, hops - 1, out);
    const Ref<Pipe>& beside = pipes_[passed / 11 % pipes_.size()];
    auto left = next.Fork<&Pipe::Pass>(kBranch | (stream ^ key_), hops - 1, out);
    auto right = beside.Fork<&Pipe::Pass>(kBranch | (stream ^ ~key_), hops - 1, out);
    ABACUS_ASSIGN_OR_RETURN(const Block joined_left, left.Join());
    ABACUS_ASSIGN_OR_RETURN(const Block joined_right, right.Join());
    Block both = Block::Allocate(out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      both.mutable_data()[i] = static_cast<char>(joined_left.data()[i] ^ joined_right.data()[i]);
    }
    return both;
  }
  absl::StatusOr<uint64_t> Digest() {
    MutexLock lock(mutex_);
    uint64_t digest = key_;
    for (const auto& [stream, state] : passed_) {
      digest = (digest ^ stream) * 1099511628211u;
      digest = (digest ^ state) * 1099511628211u;
    }
    return digest;
  }

  void Checkpoint(CheckpointWriter& writer) const override {
    MutexLock lock(mutex_);
    writer.Write(key_);
    writer.Write(pipes_);
    writer.Write(counters_);
    writer.Write(passed_);
  }
  absl::Status Restore(CheckpointReader& reader) override {
    MutexLock lock(mutex_);
    reader.Read(key_);
    reader.Read(pipes_);
    reader.Read(counters_);
    reader.Read(passed_);
    return reader.status();
  }
  ABACUS_OBJECT(Pipe, "test.Pipe", 1, Connect, Pass, Digest)

 private:
  static constexpr uint64_t kBranch = uint64_t{1} << 63;
  uint64_t key_ = 0;
  std::vector<Ref<Pipe>> pipes_;
  std::vector<Ref<Counter>> counters_;
  mutable Mutex mutex_;
  std::map<uint64_t, uint64_t> passed_ ABSL_GUARDED_BY(mutex_);
};

// Counts what came of the moves.
struct MoveCounts : MigrationObserver {
  void OnMoved(const MigrationReport& report) override {
    ++ended;
    committed += report.status.ok();
    cancelled += KindOf(report.status) == ErrorKind::kMoveCancelled;
    with_calls += report.had_calls;
  }
  void Print(const char* name) const {
    std::printf(
        "%s: %llu moves committed, %llu cancelled (%llu crossing, %llu slow drains); "
        "%llu of %llu with a call inside or parked\n",
        name, static_cast<unsigned long long>(committed.load()),
        static_cast<unsigned long long>(cancelled.load()),
        static_cast<unsigned long long>(crossing.load()),
        static_cast<unsigned long long>(slow.load()),
        static_cast<unsigned long long>(with_calls.load()),
        static_cast<unsigned long long>(ended.load()));
  }
  // Adds why moves of this cluster were cancelled. Before it ends.
  void AddReasons(Cluster& cluster) {
    for (size_t i = 0; i < cluster.size(); ++i) {
      const Migrator::Core::Counters counters = cluster[i].migrator().Counters();
      slow += counters.cancelled_slow_drain;
      crossing += counters.cancelled_crossing;
    }
  }
  // What every forced-move test must show, or its moves have proved nothing.
  void Check(const char* name, uint64_t moves_min) const {
    Print(name);
    EXPECT_GE(ended, moves_min);
    EXPECT_EQ(ended, committed + cancelled) << "each move is committed or cancelled";
    EXPECT_GE(committed * 2, ended) << "under 50 % committed";
    EXPECT_GE(with_calls * 10, ended * 3) << "under 30 % with calls";
  }
  std::atomic<uint64_t> ended{0}, committed{0}, cancelled{0}, with_calls{0};
  std::atomic<uint64_t> slow{0}, crossing{0};
};

// Threads that move random ones of the objects to random nodes.
class Movers {
 public:
  // Between two moves of one thread, `progress` grows by `calls_between` at least: objects that are
  // always on their way serve nobody.
  Movers(Cluster& cluster, std::vector<Rid> objects, uint64_t seed, size_t threads,
         const std::atomic<uint64_t>& progress, uint64_t calls_between)
      : cluster_(cluster),
        objects_(std::move(objects)),
        progress_(progress),
        calls_between_(calls_between) {
    for (size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, seed, i] { Run(seed * 1000 + i); });
    }
  }
  ~Movers() { Stop(); }
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  std::optional<size_t> Host(const Rid& rid) {
    const auto hint = cluster_[rid.home.node - 1].binding().Locate(rid);
    if (!hint.has_value()) return std::nullopt;
    return hint->host.node - 1;
  }
  void Run(uint64_t random) {
    while (!stop_) {
      const Rid& first = objects_[NextRandom(random) % objects_.size()];
      const std::optional<size_t> host = Host(first);
      if (!host.has_value()) continue;
      std::vector<Rid> set = {first};
      if (NextRandom(random) % 4 == 0) {
        for (const Rid& rid : objects_) {
          const bool fits = rid != first && rid.home == first.home && set.size() < 3;
          if (fits && Host(rid) == host) set.push_back(rid);
        }
      }
      const size_t to = (*host + 1 + NextRandom(random) % (cluster_.size() - 1)) % cluster_.size();
      const absl::Status status = cluster_.Move(set, *host, to).status();
      // Another mover may have been there first.
      const bool known = status.ok() || KindOf(status) == ErrorKind::kMoveCancelled ||
                         KindOf(status) == ErrorKind::kObjectNotFound;
      if (!known) ADD_FAILURE() << "a move ended with " << status;
      const uint64_t goal = progress_ + calls_between_;
      while (!stop_ && progress_ < goal) std::this_thread::yield();
    }
  }

  Cluster& cluster_;
  const std::vector<Rid> objects_;
  const std::atomic<uint64_t>& progress_;
  const uint64_t calls_between_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

struct Load {
  size_t pipes = 8;
  size_t counters = 3;
  size_t streams = 6;
  size_t blocks = 60;  // of each stream
  size_t block_bytes_max = 4096;
  uint32_t hops = 4;
};

// What a run has to show: equal in two runs of one load and seed, whatever was moved.
struct Outcome {
  std::vector<uint64_t> streams;
  std::vector<uint64_t> pipes;
  std::vector<uint64_t> counters;
  bool operator==(const Outcome&) const = default;
};

class ForcedMovesTest : public ::testing::Test {
 protected:
  ClusterOptions Options(size_t nodes) {
    ClusterOptions options;
    options.nodes = nodes;
    options.types = [this](size_t, TestPoints& points, ObjectTypes& types) {
      AddTestObjects(types, &points, 0, &tenants_);
      types.Add<Pipe>().Add<Counter>();
    };
    // A drain that waits for a call deep in the graph gives up soon and is made again.
    options.binding.core.drain_deadline_ns = 500'000'000;
    // Branches are activities: a resent one must be told from those that came after it.
    options.binding.core.dedup.entries_max = 1 << 16;
    return options;
  }

  static void Watch(Cluster& cluster, MoveCounts* counts) {
    for (size_t i = 0; i < cluster.size(); ++i) cluster[i].migrator().set_observer(counts);
  }

  // Runs the load; with `moves`, under forced moves.
  Outcome Run(Cluster& cluster, const Load& load, uint64_t seed, MoveCounts* moves) {
    uint64_t random = seed;
    std::vector<Ref<Pipe>> pipes;
    std::vector<Ref<Counter>> counters;
    for (size_t i = 0; i < load.pipes; ++i) {
      pipes.push_back(cluster.Create<Pipe>(i % cluster.size(), NextRandom(random)));
    }
    for (size_t i = 0; i < load.counters; ++i) {
      counters.push_back(cluster.Create<Counter>(i % cluster.size()));
    }
    std::vector<Rid> objects;
    for (const auto& pipe : pipes) objects.push_back(pipe.rid());
    for (const auto& counter : counters) objects.push_back(counter.rid());
    for (size_t i = 0; i < load.pipes; ++i) {
      ClusterNode& home = cluster[i % cluster.size()];
      std::vector<Ref<Pipe>> out;
      std::vector<Ref<Counter>> in;
      for (int n = 0; n < 3; ++n) {
        out.push_back(home.RefTo<Pipe>(objects[NextRandom(random) % load.pipes]));
      }
      in.push_back(home.RefTo<Counter>(objects[load.pipes + NextRandom(random) % load.counters]));
      EXPECT_TRUE(pipes[i]->Connect(out, in).ok());
    }

    Outcome outcome;
    outcome.streams.resize(load.streams);
    {
      std::unique_ptr<Movers> movers;
      if (moves != nullptr) {
        movers = std::make_unique<Movers>(cluster, objects, seed, 2, progress_, 1);
      }
      std::vector<std::thread> drivers;
      for (size_t i = 0; i < load.streams; ++i) {
        drivers.emplace_back([&, i] { Drive(cluster, load, objects, seed, i, outcome); });
      }
      for (std::thread& driver : drivers) driver.join();
    }
    for (const auto& pipe : pipes) {
      const absl::StatusOr<uint64_t> digest = pipe->Digest();
      EXPECT_TRUE(digest.ok()) << digest.status();
      outcome.pipes.push_back(digest.value_or(0));
    }
    for (const auto& counter : counters) {
      const absl::StatusOr<uint64_t> sum = counter->Sum();
      EXPECT_TRUE(sum.ok()) << sum.status();
      outcome.counters.push_back(sum.value_or(0));
    }
    for (const Rid& rid : objects) {
      EXPECT_TRUE(Eventually([&] { return cluster.HostOf(rid).has_value(); })) << "not one copy";
    }
    return outcome;
  }

  void Drive(Cluster& cluster, const Load& load, const std::vector<Rid>& objects, uint64_t seed,
             size_t stream, Outcome& outcome) {
    uint64_t random = seed ^ (stream + 1) * 0x10001;
    ClusterNode& node = cluster[stream % cluster.size()];
    std::vector<Ref<Pipe>> pipes;
    for (size_t i = 0; i < load.pipes; ++i) pipes.push_back(node.RefTo<Pipe>(objects[i]));
    uint64_t digest = 0;
    for (size_t n = 0; n < load.blocks; ++n) {
      const Block data = MakeBytes(1 + NextRandom(random) % load.block_bytes_max, random);
      const Ref<Pipe>& first = pipes[NextRandom(random) % load.pipes];
      const absl::StatusOr<Block> out = first->Pass(stream, load.hops, data);
      if (!out.ok()) {
        ADD_FAILURE() << "stream " << stream << ", block " << n << ": " << out.status();
        return;
      }
      digest = HashBytes(out->view(), digest + 1);
      ++progress_;
    }
    outcome.streams[stream] = digest;
  }

  // Runs graphs until that many moves have been made.
  void CompareWithUnmoved(const ClusterOptions& options, const Load& load, uint64_t moves_min,
                          const char* name) {
    const uint64_t seed = Seed(20260711);
    MoveCounts counts;
    for (uint64_t round = 0; counts.ended < moves_min || round == 0; ++round) {
      Outcome still;
      {
        Cluster one(Options(1));
        still = Run(one, load, seed + round, nullptr);
      }
      Cluster cluster(options);
      Watch(cluster, &counts);
      const Outcome moved = Run(cluster, load, seed + round, &counts);
      counts.AddReasons(cluster);
      ASSERT_EQ(moved.streams, still.streams) << "ABACUS_SEED=" << seed + round;
      ASSERT_EQ(moved.pipes, still.pipes) << "ABACUS_SEED=" << seed + round;
      ASSERT_EQ(moved.counters, still.counters) << "ABACUS_SEED=" << seed + round;
      if (HasFailure()) return;
    }
    counts.Check(name, moves_min);
  }

  TenantManager::Counts tenants_;
  std::atomic<uint64_t> progress_{0};  // calls of drivers and clients that have been answered
};

TEST_F(ForcedMovesTest, GraphGivesTheSameBytesOnOneNodeAndOnThree) {
  Cluster one(Options(1)), three(Options(3));
  const Load load;
  EXPECT_EQ(Run(one, load, 7, nullptr), Run(three, load, 7, nullptr));
  Cluster other(Options(1));
  EXPECT_NE(Run(other, load, 8, nullptr), Run(three, load, 8 + 1, nullptr)) << "it tells nothing";
}

TEST_F(ForcedMovesTest, Invariant4GraphUnderForcedMovesGivesTheBytesOfAnUnmovedOne) {
  Load load;
  load.blocks = kSanitized ? 40 : 150;
  CompareWithUnmoved(Options(3), load,
                     LongRun()    ? 500'000
                     : kSanitized ? 100
                                  : 600,
                     "forced moves");
}

TEST_F(ForcedMovesTest, FaultyNetworkDoesNotChangeTheBytesEither) {
  ClusterOptions options = Options(3);
  options.faults = FaultKnobs{.lose = 0.003,
                              .duplicate = 0.01,
                              .reorder = 0.01,
                              .delay = 0.02,
                              .cut = 0.0005,
                              .delay_min = absl::Microseconds(200),
                              .delay_max = absl::Milliseconds(3)};
  options.seed = Seed(20260712);
  Load load;
  load.blocks = kSanitized ? 15 : 40;
  CompareWithUnmoved(options, load,
                     LongRun()    ? 20'000
                     : kSanitized ? 20
                                  : 60,
                     "forced moves over a faulty network");
}

// Clients number their calls: directly, through another ledger, and as branches of a fork.
class ManyCallsTest : public ForcedMovesTest {
 protected:
  void Run(const ClusterOptions& options, uint64_t moves_min, const char* name) {
    Cluster cluster(options);
    MoveCounts counts;
    Watch(cluster, &counts);
    std::vector<Rid> ledgers;
    for (size_t i = 0; i < 3; ++i) ledgers.push_back(cluster.Create<Ledger>(i).rid());
    constexpr size_t kClients = 6;
    std::array<uint64_t, kClients> sent{};
    std::atomic<bool> stop{false};
    std::vector<std::thread> clients;
    for (size_t i = 0; i < kClients; ++i) {
      clients.emplace_back([&, i] { Call(cluster[i % 3], ledgers, i, stop, &sent[i]); });
    }
    {
      Movers movers(cluster, ledgers, Seed(20260713), 2, progress_, 4);
      EXPECT_TRUE(Eventually([&] { return HasFailure() || counts.ended >= moves_min; },
                             LongRun() ? std::chrono::hours(2) : kPatience));
    }
    stop = true;
    for (std::thread& client : clients) client.join();
    counts.AddReasons(cluster);
    uint64_t calls = 0, lost = 0, doubled = 0, reordered = 0;
    for (const Rid& rid : ledgers) {
      const Ref<Ledger> ledger = cluster[0].RefTo<Ledger>(rid);
      for (size_t i = 0; i < 2 * kClients; ++i) {
        const absl::StatusOr<Ledger::Row> row = ledger->Read(i);
        ASSERT_TRUE(row.ok()) << row.status();
        calls += row->calls;
        doubled += row->doubled;
        reordered += row->skipped;
        lost += sent[i % kClients] - std::min(row->last, sent[i % kClients]);
      }
    }
    std::printf("%s: %llu invocations, lost %llu, doubled %llu, reordered %llu\n", name,
                static_cast<unsigned long long>(calls), static_cast<unsigned long long>(lost),
                static_cast<unsigned long long>(doubled),
                static_cast<unsigned long long>(reordered));
    EXPECT_EQ(lost, 0u);
    EXPECT_EQ(doubled, 0u);
    EXPECT_EQ(reordered, 0u);
    counts.Check(name, moves_min);
  }

  // Records each number in each ledger once by each of the two names that a client has.
  void Call(ClusterNode& node, const std::vector<Rid>& rids, size_t client,
            const std::atomic<bool>& stop, uint64_t* sent) {
    constexpr size_t kClients = 6;
    std::vector<Ref<Ledger>> ledgers;
    for (const Rid& rid : rids) ledgers.push_back(node.RefTo<Ledger>(rid));
    while (!stop) {
      const uint64_t number = ++*sent;
      for (size_t i = 0; i < ledgers.size(); ++i) {
        const Ref<Ledger>& other = ledgers[(i + 1) % ledgers.size()];
        auto branch = ledgers[i].Fork<&Ledger::Record>(client, number);
        const absl::StatusOr<uint64_t> nested =
            other->RecordIn(ledgers[i], kClients + client, number);
        const absl::StatusOr<uint64_t> forked = branch.Join();
        if (!nested.ok() || !forked.ok()) {
          ADD_FAILURE() << nested.status() << "; " << forked.status();
          return;
        }
        progress_ += 2;
      }
    }
  }
};

TEST_F(ManyCallsTest, Invariant2NoInvocationIsLostDoubledOrReordered) {
  Run(Options(3), LongRun() ? 500'000 : kSanitized ? 100 : 1000, "many calls");
}

TEST_F(ManyCallsTest, NoInvocationIsLostDoubledOrReorderedOverAFaultyNetwork) {
  ClusterOptions options = Options(3);
  options.faults = FaultKnobs{.lose = 0.005,
                              .duplicate = 0.02,
                              .reorder = 0.02,
                              .delay = 0.02,
                              .cut = 0.001,
                              .delay_min = absl::Microseconds(200),
                              .delay_max = absl::Milliseconds(3)};
  options.seed = Seed(20260714);
  Run(options, LongRun() ? 20'000 : kSanitized ? 20 : 100, "many calls over a faulty network");
}

// From its creation on, also before whoever creates it has its reference. What would go wrong is
// seen by the sanitizers for certain, and mostly as a crash without them.
TEST_F(ForcedMovesTest, AnObjectThatIsMovedWhileItIsMadeIsThere) {
  Cluster cluster(Options(2));
  const int count = LongRun() ? 100'000 : kSanitized ? 500 : 3000;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> moved{0};
  std::thread mover([&] {
    while (!stop) {
      for (const auto& object : cluster[0].binding().Objects(100)) {
        if (object.anchored || !object.hosted || object.moving) continue;
        const auto report = cluster.Move(object.rid, 0, 1);
        if (report.ok() && report->status.ok()) ++moved;
      }
    }
  });
  // On a busy machine it takes more of them until one is met by a move.
  int made = 0;
  for (; (made < count || moved == 0) && made < 100 * count && !HasFailure(); ++made) {
    const Ref<Counter> counter = cluster.Create<Counter>(0);
    EXPECT_EQ(counter->Add(7).value_or(0), 7u);
    const Rid rid = counter.rid();
    EXPECT_TRUE(Eventually([&] {  // it is at either, or between them
      return cluster[0].binding().Destroy(rid).ok() || cluster[1].binding().Destroy(rid).ok();
    }));
  }
  stop = true;
  mover.join();
  std::printf("%d objects, %llu moves\n", made, static_cast<unsigned long long>(moved.load()));
  EXPECT_GT(moved, 0u);
}

}  // namespace
}  // namespace abacus::runtime::testing
