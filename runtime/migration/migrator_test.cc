// Migration between real nodes, with calls under way.

#include "runtime/migration/migrator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

using ::testing::HasSubstr;

class Anchor : public AnchoredObject {
 public:
  absl::Status Poke() { return absl::OkStatus(); }
  ABACUS_OBJECT(Anchor, "test.Anchor", 1, Poke)
};

// Not every node is built with it.
class Rare : public MobileObject {
 public:
  absl::StatusOr<int64_t> Add(int64_t n) { return sum_ += n; }
  void Checkpoint(CheckpointWriter& writer) const override { writer.Write(sum_.load()); }
  absl::Status Restore(CheckpointReader& reader) override {
    sum_ = reader.Read<int64_t>();
    return reader.status();
  }
  ABACUS_OBJECT(Rare, "test.Rare", 1, Add)

 private:
  std::atomic<int64_t> sum_{0};
};

// Does not take its own state back.
class Stubborn : public Rare {
 public:
  absl::Status Poke() { return absl::OkStatus(); }
  absl::Status Restore(CheckpointReader&) override {
    return absl::FailedPreconditionError("I would rather not");
  }
  ABACUS_OBJECT(Stubborn, "test.Stubborn", 1, Poke)
};

// Takes nobody in.
class Refuser : public ObjectManager {
 public:
  absl::StatusOr<std::unique_ptr<MobileObject>> CreateObj(const ClassInfo&, size_t) override {
    return absl::ResourceExhaustedError("full");
  }
};

// The second node refuses it.
class Place : public Rendezvous {
 public:
  ABACUS_OBJECT(Place, "test.Place", 1, Meet)
};

// Has an object embedded, which moves with it, and references to others, which do not.
class Shelf : public MobileObject {
 public:
  absl::Status Init(Ref<Ledger> ledger, std::vector<Ref<Actor>> actors) {
    ledger_ = ledger;
    actors_ = std::move(actors);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> AddInside(int64_t n) { return embedded_.Add(n); }
  absl::StatusOr<uint64_t> RecordOutside(uint64_t number) { return ledger_->Record(1, number); }
  absl::StatusOr<int64_t> PlayOutside() {
    if (!actors_.at(0)) return absl::NotFoundError("the reference has become null");
    if (actors_.at(1)) return absl::InternalError("null has become a reference");
    return actors_[0]->Play("+", Actor::Cast());
  }
  absl::StatusOr<Ref<Ledger>> Outside() { return ledger_; }

  void Checkpoint(CheckpointWriter& writer) const override {
    embedded_.Checkpoint(writer);
    writer.Write(ledger_);
    writer.Write(actors_);
  }
  absl::Status Restore(CheckpointReader& reader) override {
    ABACUS_RETURN_IF_ERROR(embedded_.Restore(reader));
    reader.Read(ledger_);
    reader.Read(actors_);
    return reader.status();
  }
  ABACUS_OBJECT(Shelf, "test.Shelf", 1, AddInside, RecordOutside, PlayOutside, Outside)

 private:
  Rare embedded_;
  Ref<Ledger> ledger_;
  std::vector<Ref<Actor>> actors_;
};

// Bytes of this process's memory that are mapped from files in `directory`.
uint64_t MappedBytes(const std::string& directory) {
  std::ifstream maps("/proc/self/maps");
  uint64_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(directory) == std::string::npos) continue;
    size_t dash = 0;
    const uint64_t begin = std::stoull(line, &dash, 16);
    bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - begin;
  }
  return bytes;
}

class MigratorTest : public ::testing::Test {
 protected:
  ClusterOptions Options(size_t nodes = 3) {
    ClusterOptions options;
    options.nodes = nodes;
    options.types = [this](size_t node, TestPoints& points, ObjectTypes& types) {
      AddTestObjects(types, &points, node == 0 ? 10 : 0, &tenants_);
      types.Add<Anchor>().Add<Stubborn>().Add<Shelf>();
      if (node == 1) {
        types.Add<Place>([] { return std::make_unique<Refuser>(); });
      } else {
        types.Add<Place>();
      }
      if (node == 0) types.Add<Rare>();
    };
    return options;
  }
  void Start(const ClusterOptions& options) { cluster_ = std::make_unique<Cluster>(options); }
  Cluster& cluster() { return *cluster_; }
  ClusterNode& node(size_t i) { return (*cluster_)[i]; }
  absl::StatusOr<MigrationReport> Move(const Rid& rid, size_t from, size_t to) {
    return cluster_->Move(rid, from, to);
  }

  std::future<absl::StatusOr<int64_t>> PlayBeside(size_t from, size_t actor, std::string script,
                                                  const std::vector<Rid>& cast) {
    return std::async(std::launch::async, [this, from, actor, script, cast] {
      Actor::Cast refs;
      for (const Rid& rid : cast) refs.push_back(node(from).RefTo<Actor>(rid));
      return refs[actor]->Play(script, refs);
    });
  }
  uint64_t Counted(uint64_t Migrator::Core::Counters::*counter) {
    uint64_t sum = 0;
    for (size_t i = 0; i < cluster_->size(); ++i) sum += node(i).migrator().Counters().*counter;
    return sum;
  }

  TenantManager::Counts tenants_;
  std::unique_ptr<Cluster> cluster_;
};

#define ASSERT_SOON(future) \
  ASSERT_EQ((future).wait_for(kPatience), std::future_status::ready) << "it hangs"

// Clients that number their calls into one ledger until they are stopped.
class Clients {
 public:
  Clients(Cluster& cluster, const Rid& ledger, size_t count) : ledger_(ledger) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, i, &node = cluster[i % cluster.size()]] { Run(i + 1, node); });
    }
  }
  ~Clients() { Stop(); }
  // Waits until `calls` more have been answered.
  bool AwaitCalls(uint64_t calls) {
    const uint64_t goal = answered_ + calls;
    return Eventually([&] { return answered_ >= goal || failed_ > 0; }) && failed_ == 0;
  }
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  // After Stop(): the ledger has seen each call of each client once and in order.
  void Check(ClusterNode& node) {
    EXPECT_EQ(failed_, 0u);
    const Ref<Ledger> ledger = node.RefTo<Ledger>(ledger_);
    for (size_t i = 0; i < threads_.size(); ++i) {
      const absl::StatusOr<Ledger::Row> row = ledger->Read(i + 1);
      ASSERT_TRUE(row.ok()) << row.status();
      EXPECT_EQ(row->doubled, 0u) << "client " << i + 1;
      EXPECT_EQ(row->skipped, 0u) << "client " << i + 1;
      EXPECT_EQ(row->calls, sent_[i]) << "client " << i + 1;
    }
  }

 private:
  void Run(uint64_t client, ClusterNode& node) {
    const Ref<Ledger> ledger = node.RefTo<Ledger>(ledger_);
    uint64_t& number = sent_[client - 1];
    while (!stop_) {
      const absl::StatusOr<uint64_t> calls = ledger->Record(client, ++number);
      if (!calls.ok() || *calls != number) {
        ADD_FAILURE() << "client " << client << ", call " << number << ": "
                      << (calls.ok() ? absl::StrCat("is the ", *calls, "th")
                                     : calls.status().ToString());
        ++failed_;
        return;
      }
      ++answered_;
    }
  }

  const Rid ledger_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> answered_{0};
  std::atomic<uint64_t> failed_{0};
  std::array<uint64_t, 64> sent_{};
  std::vector<std::thread> threads_;
};

// -- with calls under way
// ---------------------------------------------------------------------------

TEST_F(MigratorTest, ObjectMovesAroundWithCallsRunningFromEveryNode) {
  Start(Options());
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  Clients clients(cluster(), ledger.rid(), 6);
  ASSERT_TRUE(clients.AwaitCalls(10));
  size_t at = 0;
  for (int i = 0; i < 30; ++i) {
    const size_t to = (at + 1 + static_cast<size_t>(i) % 2) % 3;
    const absl::StatusOr<MigrationReport> report = Move(ledger.rid(), at, to);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->from, node(at).self());
    EXPECT_EQ(report->to, node(to).self());
    EXPECT_GT(report->blackout, absl::ZeroDuration());
    EXPECT_GT(report->state_bytes, 0u);
    EXPECT_EQ(cluster().HostOf(ledger.rid()), to);
    ASSERT_TRUE(clients.AwaitCalls(20));
    at = to;
  }
  clients.Stop();
  clients.Check(node(1));
  EXPECT_EQ(Counted(&Migrator::Core::Counters::committed), 30u);
}

TEST_F(MigratorTest, CallsThatComeDuringAMoveRunAtTheTargetAndAreReported) {
  Start(Options());
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  node(0).points().Hold("move:checkpointed");
  auto moved = cluster().MoveBeside({ledger.rid()}, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitHeld("move:checkpointed"));
  std::vector<std::future<absl::StatusOr<uint64_t>>> calls;
  for (size_t i = 0; i < 3; ++i) {
    calls.push_back(std::async(
        std::launch::async, [&, i] { return node(i).RefTo<Ledger>(ledger.rid())->Record(i, 1); }));
  }
  ASSERT_TRUE(Eventually([&] { return node(0).binding().Counters().parked == 3; }));
  node(0).points().Release("move:checkpointed");
  for (auto& call : calls) {
    ASSERT_SOON(call);
    EXPECT_EQ(*call.get(), 1u);
  }
  const absl::StatusOr<MigrationReport> report = moved();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->had_calls);
  EXPECT_EQ(cluster().HostOf(ledger.rid()), 1u);
}

TEST_F(MigratorTest, IdleMoveReportsNoCalls) {
  Start(Options(2));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  const absl::StatusOr<MigrationReport> report = Move(ledger.rid(), 0, 1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->had_calls);
}

TEST_F(MigratorTest, MoveWaitsForTheCallInside) {
  Start(Options(2));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  for (size_t from : {0, 1}) {  // co-located, and from another node
    node(0).points().Hold("inside");
    auto play = PlayBeside(from, 0, "@inside;+", cast);
    ASSERT_TRUE(node(0).points().AwaitHeld("inside"));
    const uint64_t drained = node(0).points().Reached("move:drained");
    auto moved = cluster().MoveBeside(cast, 0, 1);
    ASSERT_TRUE(node(0).points().AwaitReached("move:begun", drained + 1));
    EXPECT_EQ(node(0).points().Reached("move:drained"), drained);
    node(0).points().Release("inside");
    ASSERT_SOON(play);
    EXPECT_TRUE(play.get().ok());
    const absl::StatusOr<MigrationReport> report = moved();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->had_calls);
    ASSERT_TRUE(Move(cast[0], 1, 0).ok());
  }
  EXPECT_EQ(*node(1).RefTo<Actor>(cast[0])->Count(), 2);
}

TEST_F(MigratorTest, OneAtATimeObjectMovesWithCallersInLine) {
  Start(Options(3));
  const Ref<Solo> solo = cluster().Create<Solo>(0);
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  node(0).points().Hold("turn");
  std::vector<std::future<absl::StatusOr<int64_t>>> calls;
  calls.push_back(std::async(std::launch::async, [&] {
    const Ref<Actor> actor = node(0).RefTo<Actor>(cast[0]);
    return node(0).RefTo<Solo>(solo.rid())->PlayInside(actor, "@turn;", Actor::Cast());
  }));
  ASSERT_TRUE(node(0).points().AwaitHeld("turn"));
  for (size_t i = 0; i < 6; ++i) {
    calls.push_back(std::async(std::launch::async,
                               [&, i] { return node(i % 3).RefTo<Solo>(solo.rid())->Add(); }));
  }
  auto moved = cluster().MoveBeside({solo.rid()}, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitReached("move:begun", 1));
  node(0).points().Release("turn");
  for (auto& call : calls) {
    ASSERT_SOON(call);
    EXPECT_TRUE(call.get().ok());
  }
  EXPECT_TRUE(moved().ok());
  EXPECT_EQ(*solo->Add(), 8);
}

// -- sets
// -------------------------------------------------------------------------------------------

TEST_F(MigratorTest, SetMovesInOneStepWithAnActivityGoingAroundInIt) {
  Start(Options(3));
  std::vector<Rid> cast;
  for (int i = 0; i < 3; ++i) cast.push_back(cluster().Create<Actor>(0).rid());
  for (size_t from : {0, 2}) {
    node(0).points().Hold("inside");
    auto play = PlayBeside(from, 0, "@inside;1(+2(+0(+1(+))))", cast);
    ASSERT_TRUE(node(0).points().AwaitHeld("inside"));
    const uint64_t begun = node(0).points().Reached("move:begun");
    auto moved = cluster().MoveBeside(cast, 0, 1);
    ASSERT_TRUE(node(0).points().AwaitReached("move:begun", begun + 1));
    // All gates of the set are closed, and none of them stops who is inside already.
    node(0).points().Release("inside");
    ASSERT_SOON(play);
    EXPECT_EQ(*play.get(), 5);
    const absl::StatusOr<MigrationReport> report = moved();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->rids, cast);
    for (const Rid& rid : cast) EXPECT_EQ(cluster().HostOf(rid), 1u);
    ASSERT_TRUE(cluster().Move(cast, 1, 0).ok());
  }
}

TEST_F(MigratorTest, ObjectsMoveInBothDirectionsAtOnce) {
  Start(Options(2));
  const Ref<Ledger> first = cluster().Create<Ledger>(0);
  const Ref<Ledger> second = cluster().Create<Ledger>(1);
  Clients to_first(cluster(), first.rid(), 2), to_second(cluster(), second.rid(), 2);
  size_t at = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(to_first.AwaitCalls(5) && to_second.AwaitCalls(5));
    for (size_t n : {0, 1}) node(n).points().Hold("move:checkpointed");
    auto one = cluster().MoveBeside({first.rid()}, at, 1 - at);
    auto two = cluster().MoveBeside({second.rid()}, 1 - at, at);
    // Both states are on their way before either arrives.
    for (size_t n : {0, 1}) ASSERT_TRUE(node(n).points().AwaitHeld("move:checkpointed"));
    for (size_t n : {0, 1}) node(n).points().Release("move:checkpointed");
    EXPECT_TRUE(one().ok());
    EXPECT_TRUE(two().ok());
    at = 1 - at;
  }
  to_first.Stop();
  to_second.Stop();
  to_first.Check(node(0));
  to_second.Check(node(0));
}

struct CallBack {
  const char* name;
  bool a_moves;
  bool b_moves;
  size_t b_at;
};
class CallBackTest : public MigratorTest, public ::testing::WithParamInterface<CallBack> {};
INSTANTIATE_TEST_SUITE_P(Moving, CallBackTest,
                         ::testing::Values(CallBack{"AMoves", true, false, 1},
                                           CallBack{"BMoves", false, true, 1},
                                           CallBack{"BothMove", true, true, 1},
                                           CallBack{"BothMoveFromOneNode", true, true, 0}),
                         [](const auto& info) { return info.param.name; });

TEST_P(CallBackTest, ActivityThatCallsBackIntoAMovingObjectDrains) {
  Start(Options(3));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid(),
                                 cluster().Create<Actor>(GetParam().b_at).rid()};
  ClusterNode& at_b = node(GetParam().b_at);
  for (size_t from : {0, 1, 2}) {
    at_b.points().Hold("in_b");
    auto play = PlayBeside(from, 0, "+1(+@in_b;0(+1(+))+)+", cast);
    ASSERT_TRUE(at_b.points().AwaitHeld("in_b"));
    std::vector<std::function<absl::StatusOr<MigrationReport>()>> moves;
    std::vector<uint64_t> begun(3);
    for (size_t i = 0; i < 3; ++i) begun[i] = node(i).points().Reached("move:begun");
    if (GetParam().a_moves) {
      moves.push_back(cluster().MoveBeside({cast[0]}, 0, 2));
      ++begun[0];
    }
    if (GetParam().b_moves) {
      moves.push_back(cluster().MoveBeside({cast[1]}, GetParam().b_at, 2));
      ++begun[GetParam().b_at];
    }
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(node(i).points().AwaitReached("move:begun", begun[i]));
    }
    at_b.points().Release("in_b");
    ASSERT_SOON(play);
    const absl::StatusOr<int64_t> steps = play.get();
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(*steps, 7);
    for (auto& moved : moves) {
      const absl::StatusOr<MigrationReport> report = moved();
      EXPECT_TRUE(report.ok()) << report.status();
    }
    if (GetParam().a_moves) {
      ASSERT_TRUE(Move(cast[0], 2, 0).ok());
    }
    if (GetParam().b_moves) {
      ASSERT_TRUE(Move(cast[1], 2, GetParam().b_at).ok());
    }
  }
  EXPECT_EQ(*node(0).RefTo<Actor>(cast[0])->Count(), 9);
  EXPECT_EQ(*node(0).RefTo<Actor>(cast[1])->Count(), 9);
}

TEST_F(MigratorTest, OfTwoSetsThatWaitForEachOtherTheOneWithTheHigherRidGivesWay) {
  Start(Options(3));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid(),
                                 cluster().Create<Actor>(1).rid()};
  for (size_t from : {0, 2}) {
    node(0).points().Hold("in_0");
    node(1).points().Hold("in_1");
    auto zero_to_one = PlayBeside(from, 0, "@in_0;1(+)", cast);
    auto one_to_zero = PlayBeside(from, 1, "@in_1;0(+)", cast);
    ASSERT_TRUE(node(0).points().AwaitHeld("in_0"));
    ASSERT_TRUE(node(1).points().AwaitHeld("in_1"));
    const uint64_t begun = node(0).points().Reached("move:begun");
    const uint64_t crossed = Counted(&Migrator::Core::Counters::cancelled_crossing);
    auto lower = cluster().MoveBeside({cast[0]}, 0, 2);
    auto higher = cluster().MoveBeside({cast[1]}, 1, 2);
    ASSERT_TRUE(node(0).points().AwaitReached("move:begun", begun + 1));
    ASSERT_TRUE(node(1).points().AwaitReached("move:begun", begun + 1));
    node(0).points().Release("in_0");
    node(1).points().Release("in_1");
    ASSERT_SOON(zero_to_one);
    ASSERT_SOON(one_to_zero);
    EXPECT_EQ(*zero_to_one.get(), 2);
    EXPECT_EQ(*one_to_zero.get(), 2);
    EXPECT_TRUE(lower().ok());
    EXPECT_EQ(KindOf(higher().status()), ErrorKind::kMoveCancelled);
    EXPECT_EQ(Counted(&Migrator::Core::Counters::cancelled_crossing), crossed + 1);
    ASSERT_TRUE(Move(cast[0], 2, 0).ok());
  }
  EXPECT_EQ(Counted(&Migrator::Core::Counters::cancelled_slow_drain), 0u);
}

// -- moves that do not happen
// -----------------------------------------------------------------------

TEST_F(MigratorTest, DrainThatTakesTooLongIsCancelledAndTheObjectGoesOnServing) {
  ClusterOptions options = Options(2);
  options.binding.core.drain_deadline_ns = 100'000'000;
  Start(options);
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  node(0).points().Hold("inside");
  auto inside = PlayBeside(1, 0, "@inside;+", cast);
  ASSERT_TRUE(node(0).points().AwaitHeld("inside"));
  auto moved = cluster().MoveBeside(cast, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitReached("move:begun", 1));
  auto here = PlayBeside(0, 0, "+", cast);
  auto afar = PlayBeside(1, 0, "+", cast);
  // These run once the move is cancelled, while the first one is still inside.
  ASSERT_SOON(here);
  ASSERT_SOON(afar);
  EXPECT_TRUE(here.get().ok());
  EXPECT_TRUE(afar.get().ok());
  const absl::Status status = moved().status();
  EXPECT_EQ(KindOf(status), ErrorKind::kMoveCancelled) << status;
  EXPECT_EQ(node(0).migrator().Counters().cancelled_slow_drain, 1u);
  node(0).points().Release("inside");
  ASSERT_SOON(inside);
  EXPECT_TRUE(inside.get().ok());
  // Nobody is inside any more; a drain may still be slower than its 100 ms on a busy machine.
  EXPECT_TRUE(Eventually([&] { return Move(cast[0], 0, 1).ok(); }));
  EXPECT_EQ(*node(0).RefTo<Actor>(cast[0])->Count(), 3);
}

TEST_F(MigratorTest, ManagerOfTheTargetRefusesAndTheObjectGoesOnServing) {
  Start(Options(2));
  const Ref<Tenant> tenant = cluster().Create<Tenant>(0);
  EXPECT_EQ(*tenant->Add(1), 1);
  const absl::Status status = Move(tenant.rid(), 0, 1).status();
  EXPECT_EQ(KindOf(status), ErrorKind::kMoveCancelled) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("takes 0 tenants"));
  EXPECT_EQ(*tenant->Add(1), 2);
  EXPECT_EQ(*node(1).RefTo<Tenant>(tenant.rid())->Add(1), 3);
  EXPECT_EQ(cluster().HostOf(tenant.rid()), 0u);
  EXPECT_EQ(tenants_.tenants, 1);
}

TEST_F(MigratorTest, CallsThatAreLetInTogetherDoNotWaitForEachOther) {
  // Its home's answer is what opens the object again, on a thread that may run a call itself.
  Start(Options(3));
  const Ref<Place> place = cluster().Create<Place>(2);
  ASSERT_TRUE(Move(place.rid(), 2, 0).ok());
  node(0).points().Hold("move:checkpointed");
  auto moved = cluster().MoveBeside({place.rid()}, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitHeld("move:checkpointed"));
  std::vector<std::future<absl::StatusOr<bool>>> calls;
  for (size_t i = 0; i < 4; ++i) {
    calls.push_back(std::async(std::launch::async, [&, i] {
      return node(1 + i % 2).RefTo<Place>(place.rid())->Meet(4u);
    }));
  }
  ASSERT_TRUE(Eventually([&] { return node(0).binding().Counters().parked == 4; }));
  node(0).points().Release("move:checkpointed");
  for (auto& call : calls) {
    ASSERT_SOON(call);
    const absl::StatusOr<bool> met = call.get();
    EXPECT_TRUE(met.ok() && *met) << met.status();
  }
  EXPECT_EQ(KindOf(moved().status()), ErrorKind::kMoveCancelled);
}

TEST_F(MigratorTest, SetOfWhichOneIsRefusedStaysAsAWhole) {
  Start(Options(2));
  const Ref<Tenant> tenant = cluster().Create<Tenant>(0);
  const std::vector<Rid> set = {cluster().Create<Ledger>(0).rid(), tenant.rid(),
                                cluster().Create<Ledger>(0).rid()};
  EXPECT_EQ(KindOf(cluster().Move(set, 0, 1).status()), ErrorKind::kMoveCancelled);
  for (const Rid& rid : set) EXPECT_EQ(cluster().HostOf(rid), 0u);
  EXPECT_EQ(*node(1).RefTo<Ledger>(set[0])->Record(1, 1), 1u);
  EXPECT_TRUE(node(1).binding().Objects(10).empty());
}

TEST_F(MigratorTest, TargetWithoutTheClassRefusesAndTheObjectGoesOnServing) {
  Start(Options(2));
  const Ref<Rare> rare = cluster().Create<Rare>(0);
  const absl::Status status = Move(rare.rid(), 0, 1).status();
  EXPECT_EQ(KindOf(status), ErrorKind::kMoveCancelled) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("test.Rare"));
  EXPECT_EQ(*rare->Add(5), 5);
}

TEST_F(MigratorTest, ObjectThatDoesNotTakeItsStateBackGoesOnServingWhereItWas) {
  Start(Options(2));
  const Ref<Stubborn> stubborn = cluster().Create<Stubborn>(0);
  const absl::Status status = Move(stubborn.rid(), 0, 1).status();
  EXPECT_EQ(KindOf(status), ErrorKind::kMoveCancelled) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("I would rather not"));
  EXPECT_TRUE(stubborn->Poke().ok());
}

TEST_F(MigratorTest, CheckpointThatCannotBeWrittenCancelsTheMove) {
  ClusterOptions options = Options(2);
  options.checkpoints.memory_bytes_max = 1 << 20;
  options.checkpoints.spill_directory = "/nonexistent/directory";
  Start(options);
  const Ref<Store> store = cluster().Create<Store>(0);
  ASSERT_TRUE(store->Fill(4 << 20, 1, 0).ok());
  const absl::Status status = Move(store.rid(), 0, 1).status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(store->Digest().ok());
  EXPECT_EQ(cluster().HostOf(store.rid()), 0u);
}

TEST_F(MigratorTest, MovesThatMakeNoSenseAreRefusedAndChangeNothing) {
  Start(Options(3));
  const Ref<Anchor> anchor = cluster().Create<Anchor>(0);
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  const Ref<Ledger> guest = cluster().Create<Ledger>(1);
  ASSERT_TRUE(Move(guest.rid(), 1, 0).ok());
  const auto code = [&](const std::vector<Rid>& rids, size_t to) {
    return cluster().Move(rids, 0, to).status().code();
  };
  EXPECT_EQ(code({anchor.rid()}, 1), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({ledger.rid(), anchor.rid()}, 1), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({ledger.rid()}, 0), absl::StatusCode::kFailedPrecondition) << "to itself";
  EXPECT_EQ(code({ledger.rid(), guest.rid()}, 1), absl::StatusCode::kFailedPrecondition)
      << "of two homes";
  EXPECT_EQ(code({}, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({Rid{node(0).self(), 9999}}, 1), absl::StatusCode::kNotFound);
  EXPECT_EQ(KindOf(cluster().Move(ledger.rid(), 1, 2).status()), ErrorKind::kObjectNotFound)
      << "not on that node";
  cluster().Kill(2);
  EXPECT_EQ(code({ledger.rid()}, 2), absl::StatusCode::kFailedPrecondition) << "to a dead node";
  EXPECT_TRUE(anchor->Poke().ok());
  EXPECT_EQ(*ledger->Record(1, 1), 1u);
  EXPECT_EQ(cluster().HostOf(ledger.rid()), 0u);
}

TEST_F(MigratorTest, ObjectIsMovedOnceAtATimeAndNotDestroyedMeanwhile) {
  Start(Options(3));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  node(0).points().Hold("move:checkpointed");
  auto moved = cluster().MoveBeside({ledger.rid()}, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitHeld("move:checkpointed"));
  EXPECT_EQ(KindOf(Move(ledger.rid(), 0, 2).status()), ErrorKind::kMoveCancelled);
  EXPECT_EQ(node(0).binding().Destroy(ledger.rid()).code(), absl::StatusCode::kUnavailable);
  node(0).points().Release("move:checkpointed");
  EXPECT_TRUE(moved().ok());
  EXPECT_EQ(cluster().HostOf(ledger.rid()), 1u);
}

// -- state
// ------------------------------------------------------------------------------------------

class LargeStateTest : public MigratorTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Form, LargeStateTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Blocks" : "Numbers"; });

TEST_P(LargeStateTest, StateLargerThanMemoryGoesThroughFiles) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  ClusterOptions options = Options(2);
  options.checkpoints.memory_bytes_max = 2 << 20;
  options.bulk_memory_bytes_max = 2 << 20;
  Start(options);
  const bool blocks = GetParam();
  const Ref<Store> store = cluster().Create<Store>(0);
  ASSERT_TRUE(store->Fill(kBytes, 42, blocks ? 64 : 0).ok());
  const uint64_t digest = *store->Digest();

  node(0).points().Hold("move:checkpointed");
  node(1).points().Hold("move:restoring");
  auto moved = cluster().MoveBeside({store.rid()}, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitHeld("move:checkpointed"));
  const uint64_t at_source = MappedBytes(cluster().directory());
  if (blocks) {
    EXPECT_EQ(at_source, 0u) << "blocks go as they are, without a copy";
  } else {
    EXPECT_GE(at_source, kBytes - (4 << 20));
  }
  node(0).points().Release("move:checkpointed");
  ASSERT_TRUE(node(1).points().AwaitHeld("move:restoring"));
  EXPECT_GE(MappedBytes(cluster().directory()), at_source + kBytes - (4 << 20));
  node(1).points().Release("move:restoring");
  const absl::StatusOr<MigrationReport> report = moved();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GE(report->state_bytes, kBytes);
  EXPECT_EQ(*node(0).RefTo<Store>(store.rid())->Digest(), digest);
  EXPECT_EQ(cluster().HostOf(store.rid()), 1u);
  if (!blocks) {
    EXPECT_TRUE(Eventually([&] { return MappedBytes(cluster().directory()) == 0; }))
        << "the files outlive the move";
  }
}

TEST_F(MigratorTest, StateThatFitsIntoNoMessageCancelsTheMove) {
  ClusterOptions options = Options(2);
  options.frame_bytes_max = 1 << 20;
  Start(options);
  const Ref<Store> store = cluster().Create<Store>(0);
  ASSERT_TRUE(store->Fill(2 << 20, 42, 2).ok());
  const absl::Status status = Move(store.rid(), 0, 1).status();
  EXPECT_EQ(KindOf(status), ErrorKind::kTooLarge) << status;
  EXPECT_TRUE(store->Digest().ok());
  EXPECT_EQ(cluster().HostOf(store.rid()), 0u);
}

// Sending takes a second, and messages are repeated every 100 ms until they are answered.
TEST_F(MigratorTest, TransferOverASlowLinkIsSentOnceAndHoldsUpNobodyElse) {
  ClusterOptions options = Options(3);
  options.rate_limit_mbit = 16;
  Start(options);
  constexpr uint64_t kBytes = 2 << 20;
  const Ref<Store> store = cluster().Create<Store>(0);
  ASSERT_TRUE(store->Fill(kBytes, 42, 2).ok());
  const uint64_t digest = *store->Digest();
  auto moved = cluster().MoveBeside({store.rid()}, 0, 1);
  const absl::StatusOr<MigrationReport> report = moved();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(*node(2).RefTo<Store>(store.rid())->Digest(), digest);
  uint64_t sent = 0;
  for (const PeerTraffic& traffic : node(0).sockets().Traffic()) sent += traffic.sent_bytes;
  std::printf("%llu bytes of state, %llu bytes sent\n", static_cast<unsigned long long>(kBytes),
              static_cast<unsigned long long>(sent));
  EXPECT_LT(sent, 2 * kBytes);
}

TEST_F(MigratorTest, EmbeddedObjectsGoAlongAndReferencesPointWhereTheyDid) {
  Start(Options(3));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  const Ref<Actor> actor = cluster().Create<Actor>(0);
  const Ref<Shelf> shelf =
      cluster().Create<Shelf>(0, ledger, std::vector<Ref<Actor>>{actor, Ref<Actor>()});
  int64_t number = 0;
  size_t at = 0;
  for (const size_t to : {1, 2, 0, 2, 1, 0}) {
    ASSERT_TRUE(Move(shelf.rid(), at, to).ok());
    at = to;
    ++number;
    EXPECT_EQ(*shelf->AddInside(1), number);
    EXPECT_EQ(*shelf->RecordOutside(static_cast<uint64_t>(number)), static_cast<uint64_t>(number));
    EXPECT_TRUE(shelf->PlayOutside().ok()) << shelf->PlayOutside().status();
    EXPECT_EQ(shelf->Outside()->rid(), ledger.rid());
    if (number == 2) {
      ASSERT_TRUE(Move(ledger.rid(), 0, 1).ok());
    }
  }
  EXPECT_EQ(*ledger->Read(1), (Ledger::Row{.last = 6, .calls = 6}));
}

TEST_F(MigratorTest, ObserverIsToldOfEveryEnd) {
  struct Told : MigrationObserver {
    void OnMoved(const MigrationReport& report) override { reports.push_back(report); }
    std::vector<MigrationReport> reports;
  } told;
  Start(Options(2));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  const Ref<Tenant> tenant = cluster().Create<Tenant>(0);
  node(0).migrator().set_observer(&told);
  EXPECT_TRUE(Move(ledger.rid(), 0, 1).ok());
  EXPECT_FALSE(Move(tenant.rid(), 0, 1).ok());
  ASSERT_EQ(told.reports.size(), 2u);
  EXPECT_TRUE(told.reports[0].status.ok());
  EXPECT_EQ(KindOf(told.reports[1].status), ErrorKind::kMoveCancelled);
  EXPECT_EQ(told.reports[1].rids, std::vector<Rid>{tenant.rid()});
}

// -- deaths (in one process; crash_test.cc kills real ones)
// ------------------------------------------

struct Death {
  const char* name;
  size_t home, source, target, victim;
  const char* point;  // reached at `at`
  size_t at;
  std::optional<size_t> host;  // who has the object in the end; nothing: it is lost
};
class DeathTest : public MigratorTest, public ::testing::WithParamInterface<Death> {};
INSTANTIATE_TEST_SUITE_P(
    During, DeathTest,
    ::testing::Values(
        Death{"TargetWhileRestoring", 2, 0, 1, 1, "move:restoring", 1, 0},
        Death{"TargetAfterRestoring", 0, 0, 1, 1, "move:restored", 1, 0},
        Death{"SourceWhileCheckpointing", 2, 0, 1, 0, "move:checkpointed", 0, std::nullopt},
        Death{"SourceAfterTransfer", 2, 0, 1, 0, "move:restored", 1, 1},
        Death{"SourceAfterTransferFromTargetsHome", 1, 0, 1, 0, "move:restored", 1, 1},
        Death{"HomeBeforeTransfer", 2, 0, 1, 2, "move:checkpointed", 0, 0},
        Death{"HomeAfterTransfer", 2, 0, 1, 2, "move:restored", 1, 0},
        Death{"HomeThatIsTheTarget", 1, 0, 1, 1, "move:restored", 1, 0}),
    [](const auto& info) { return info.param.name; });

TEST_P(DeathTest, LeavesOneCopyOrATypedLoss) {
  const Death& death = GetParam();
  Start(Options(4));  // node 3 is the caller
  const Ref<Ledger> made = cluster().Create<Ledger>(death.home);
  if (death.home != death.source) {
    ASSERT_TRUE(Move(made.rid(), death.home, death.source).ok());
  }
  const Ref<Ledger> ledger = node(3).RefTo<Ledger>(made.rid());
  EXPECT_EQ(*ledger->Record(1, 1), 1u);

  node(death.at).points().Hold(death.point);
  auto moved = cluster().MoveBeside({made.rid()}, death.source, death.target);
  ASSERT_TRUE(node(death.at).points().AwaitHeld(death.point));
  auto parked = std::async(std::launch::async, [&] { return ledger->Record(1, 2); });
  cluster().Kill(death.victim);
  node(death.at).points().Release(death.point);
  EXPECT_FALSE(moved().ok());
  ASSERT_SOON(parked);
  const absl::StatusOr<uint64_t> second = parked.get();
  ASSERT_TRUE(Eventually([&] { return cluster().HostOf(made.rid()) == death.host; }));
  if (!death.host.has_value()) {
    EXPECT_FALSE(second.ok());
    EXPECT_NE(KindOf(second.status()), ErrorKind::kNone) << second.status();
    EXPECT_EQ(KindOf(ledger->Read(1).status()), ErrorKind::kObjectLost);
    return;
  }
  // The call was sent to a node that died, or waited and was sent on.
  EXPECT_TRUE(second.ok() || IsOutcomeUnknown(second.status())) << second.status();
  const absl::StatusOr<Ledger::Row> row = node(*death.host).RefTo<Ledger>(made.rid())->Read(1);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->doubled, 0u);
  EXPECT_EQ(row->skipped, 0u);
  if (second.ok()) {
    EXPECT_EQ(row->calls, 2u);
  }
}

}  // namespace
}  // namespace abacus::runtime::testing
