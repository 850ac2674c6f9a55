// Invocation between real nodes: threads, sockets and the protocol core together.

#include "runtime/binding/binding_manager.h"

#include <gmock/gmock.h>
#include <google/protobuf/wrappers.pb.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Row {
  int32_t key = 0;
  std::string name;
  std::vector<double> values;
  std::optional<uint64_t> next;
  ABACUS_FIELDS(key, name, values, next)
  bool operator==(const Row&) const = default;
};

// Gives back what it is given, changed a little, so that both directions are seen.
class Echo : public MobileObject {
 public:
  absl::StatusOr<std::string> Upper(std::string text) {
    for (char& c : text) c = static_cast<char>(toupper(c));
    return text;
  }
  absl::StatusOr<Block> Tail(Block block, uint64_t bytes) {
    return block.Slice(block.size() - bytes, bytes);
  }
  absl::StatusOr<Block> Make(uint64_t bytes) { return Block::Allocate(bytes); }
  absl::StatusOr<std::vector<int64_t>> Double(std::vector<int64_t> values) {
    for (int64_t& value : values) value *= 2;
    return values;
  }
  absl::StatusOr<Row> Next(Row row) {
    row.next = row.key;
    ++row.key;
    return row;
  }
  absl::StatusOr<Ref<Actor>> Choose(std::vector<Ref<Actor>> actors, uint32_t index) {
    if (index >= actors.size()) return absl::OutOfRangeError("no such actor");
    return actors[index];
  }
  absl::StatusOr<google::protobuf::StringValue> Wrap(google::protobuf::StringValue value) {
    value.set_value("<" + value.value() + ">");
    return value;
  }
  absl::Status Fail(int32_t code, std::string message) {
    return absl::Status(static_cast<absl::StatusCode>(code), message);
  }
  absl::StatusOr<const void*> NotListed() { return nullptr; }

  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Echo, "test.Echo", 1, Upper, Tail, Make, Double, Next, Choose, Wrap, Fail)
};

// Only some nodes are built with it.
class Rare : public AnchoredObject {
 public:
  absl::Status Poke() { return absl::OkStatus(); }
  ABACUS_OBJECT(Rare, "test.Rare", 1, Poke)
};

class BindingManagerTest : public ::testing::Test {
 protected:
  ClusterOptions Options(size_t nodes) {
    ClusterOptions options;
    options.nodes = nodes;
    options.types = [this](size_t node, TestPoints& points, ObjectTypes& types) {
      AddTestObjects(types, &points, 1, &tenants_);
      types.Add<Echo>();
      if (node == 0) types.Add<Rare>();
    };
    return options;
  }
  void Start(const ClusterOptions& options) { cluster_ = std::make_unique<Cluster>(options); }
  Cluster& cluster() { return *cluster_; }
  ClusterNode& node(size_t i) { return (*cluster_)[i]; }

  // A call that no Ref would make.
  absl::StatusOr<Payload> CallRaw(size_t from, const Rid& rid, MethodId method, Payload arguments) {
    BindingManager& binding = node(from).binding();
    ThreadContext& thread = ThreadContext::Of(binding);
    const RefBase ref(binding.Intern(rid));
    std::unique_ptr<OutgoingCall> call;
    absl::Status status;
    Payload result;
    auto route = binding.Start(
        thread, *ref.entry(), method, [&] { return std::move(arguments); }, &call, &status);
    if (route == Invoker::Route::kRemote) route = binding.Finish(thread, *call, &result, &status);
    if (!status.ok()) return status;
    return result;
  }

  // Plays a script on a thread of its own, with `cast` as node `from` knows it.
  std::future<absl::StatusOr<int64_t>> PlayBeside(size_t from, size_t actor, std::string script,
                                                  const std::vector<Rid>& cast) {
    return std::async(std::launch::async, [this, from, actor, script, cast] {
      Actor::Cast refs;
      for (const Rid& rid : cast) refs.push_back(node(from).RefTo<Actor>(rid));
      return refs[actor]->Play(script, refs);
    });
  }

  TenantManager::Counts tenants_;
  std::unique_ptr<Cluster> cluster_;
};

#define ASSERT_SOON(future) \
  ASSERT_EQ((future).wait_for(kPatience), std::future_status::ready) << "it hangs"

// -- arguments and results ------------------------------------------------------------------------

class ArgumentsTest : public BindingManagerTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ClusterOptions options = Options(2);
    options.unix_sockets = true;
    Start(options);
    made_ = cluster().Create<Echo>(0);
    // Remote: the same object through the other node.
    from_ = GetParam() ? 1 : 0;
    echo_ = node(from_).RefTo<Echo>(made_.rid());
  }
  void TearDown() override {
    echo_ = made_ = Ref<Echo>();
    cluster_.reset();
  }
  Ref<Echo> made_;
  Ref<Echo> echo_;
  size_t from_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Place, ArgumentsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Remote" : "CoLocated"; });

TEST_P(ArgumentsTest, StringsTravel) {
  EXPECT_EQ(*echo_->Upper("abacus"), "ABACUS");
  EXPECT_EQ(*echo_->Upper(""), "");
  EXPECT_EQ(echo_->Upper(std::string(3 << 20, 'x'))->size(), 3u << 20);
}

TEST_P(ArgumentsTest, BlocksOfManySizesTravel) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{65536}, size_t{5} << 20}) {
    const Block block = MakeBytes(bytes, bytes + 1);
    const auto tail = echo_->Tail(block, bytes / 2);
    ASSERT_TRUE(tail.ok()) << tail.status();
    EXPECT_EQ(*tail, block.Slice(bytes - bytes / 2, bytes / 2)) << bytes;
  }
}

TEST_P(ArgumentsTest, VectorsAndStructsTravel) {
  EXPECT_THAT(*echo_->Double(std::vector<int64_t>{1, -2, int64_t{1} << 40}),
              ElementsAre(2, -4, int64_t{1} << 41));
  const Row row{.key = 7, .name = "seven", .values = {0.5, -1}};
  Row next = row;
  next.key = 8;
  next.next = 7;
  EXPECT_EQ(*echo_->Next(row), next);
}

TEST_P(ArgumentsTest, ReferencesTravelAndCanBeCalledWhereTheyArrive) {
  std::vector<Ref<Actor>> actors;
  for (size_t i = 0; i < 2; ++i) {
    actors.push_back(node(from_).RefTo<Actor>(cluster().Create<Actor>(i).rid()));
  }
  const auto chosen = echo_->Choose(actors, 1);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->rid(), actors[1].rid());
  EXPECT_EQ(*(*chosen)->Play("++", Actor::Cast()), 2);
  EXPECT_EQ(*actors[1]->Count(), 2);
  EXPECT_EQ(echo_->Choose(actors, 2).status(), absl::OutOfRangeError("no such actor"));
  EXPECT_FALSE(static_cast<bool>(*echo_->Choose(Actor::Cast{Ref<Actor>()}, 0)));
}

TEST_P(ArgumentsTest, ProtobufMessagesTravel) {
  google::protobuf::StringValue value;
  value.set_value("v");
  EXPECT_EQ(echo_->Wrap(value)->value(), "<v>");
}

TEST_P(ArgumentsTest, ErrorsOfMethodsTravelWithCodeAndMessage) {
  for (const auto code : {absl::StatusCode::kNotFound, absl::StatusCode::kDataLoss,
                          absl::StatusCode::kInternal, absl::StatusCode::kUnauthenticated}) {
    const absl::Status status = echo_->Fail(static_cast<int32_t>(code), "because");
    EXPECT_EQ(status, absl::Status(code, "because"));
    EXPECT_EQ(KindOf(status), ErrorKind::kNone) << "an object's own error is not the runtime's";
  }
  EXPECT_TRUE(echo_->Fail(0, "").ok());
}

TEST_P(ArgumentsTest, ErrorsFromFurtherDownKeepTheirKind) {
  Ref<Ledger> ledger = node(from_).RefTo<Ledger>(cluster().Create<Ledger>(0).rid());
  const Ref<Ledger> nobody = node(from_).RefTo<Ledger>(Rid{node(0).self(), 999999});
  const absl::Status status = ledger->RecordIn(nobody, 1, 1).status();
  EXPECT_EQ(KindOf(status), ErrorKind::kObjectNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("999999"));
}

// -- what does not exist, what does not decode ----------------------------------------------------

TEST_F(BindingManagerTest, ReferenceToNothingIsAnError) {
  Start(Options(1));
  EXPECT_EQ(Ref<Echo>()->Upper("x").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BindingManagerTest, UnknownRidIsNotFoundAtItsHomeAndFromAfar) {
  Start(Options(2));
  for (size_t from : {0, 1}) {
    const Ref<Echo> nobody = node(from).RefTo<Echo>(Rid{node(0).self(), 12345});
    EXPECT_EQ(KindOf(nobody->Upper("x").status()), ErrorKind::kObjectNotFound);
  }
}

TEST_F(BindingManagerTest, UnknownMethodIsATypedErrorAndTheNodeGoesOnServing) {
  Start(Options(2));
  const Ref<Echo> echo = node(1).RefTo<Echo>(cluster().Create<Echo>(0).rid());
  EXPECT_EQ(KindOf(CallRaw(1, echo.rid(), 0xdeadbeef, Payload()).status()),
            ErrorKind::kNoSuchMethod);
  EXPECT_EQ(*echo->Upper("on"), "ON");
}

TEST_F(BindingManagerTest, UnknownClassCannotBeCreated) {
  Start(Options(2));
  EXPECT_TRUE(node(0).binding().Create<Rare>().ok());
  EXPECT_EQ(KindOf(node(1).binding().Create<Rare>().status()), ErrorKind::kNoSuchClass);
}

TEST_F(BindingManagerTest, ArgumentsThatDoNotDecodeAreRefusedAndTheNodeGoesOnServing) {
  Start(Options(2));
  const Ref<Echo> echo = node(1).RefTo<Echo>(cluster().Create<Echo>(0).rid());
  const MethodId upper = internal::MethodIdOf<&Echo::Upper>();
  Payload longer = internal::MethodTraits<decltype(&Echo::Upper)>::EncodeArguments("text");
  Payload shorter = longer;
  longer.inline_bytes.append("x");
  shorter.inline_bytes.pop_back();
  Payload block_missing = internal::MethodTraits<decltype(&Echo::Tail)>::EncodeArguments(
      MakeBytes(1 << 20, 1), uint64_t{5});
  block_missing.blocks.clear();
  EXPECT_EQ(KindOf(CallRaw(1, echo.rid(), upper, longer).status()), ErrorKind::kBadArguments);
  EXPECT_EQ(KindOf(CallRaw(1, echo.rid(), upper, shorter).status()), ErrorKind::kBadArguments);
  EXPECT_EQ(KindOf(CallRaw(1, echo.rid(), upper, Payload()).status()), ErrorKind::kBadArguments);
  EXPECT_EQ(
      KindOf(CallRaw(1, echo.rid(), internal::MethodIdOf<&Echo::Tail>(), block_missing).status()),
      ErrorKind::kBadArguments);
  EXPECT_EQ(*echo->Upper("on"), "ON");
}

TEST_F(BindingManagerTest, GarbageFramesAreCountedAndChangeNothing) {
  Start(Options(2));
  const Ref<Echo> echo = node(1).RefTo<Echo>(cluster().Create<Echo>(0).rid());
  EXPECT_EQ(*echo->Upper("a"), "A");
  uint64_t sent = 0;
  for (uint16_t type = 0; type < 64; ++type) {
    for (const size_t bytes : {0, 3, 40}) {
      Frame frame;
      frame.type = type;
      frame.payload.inline_bytes = std::string(MakeBytes(bytes, type + 1).view());
      node(1).transport().Send(node(0).self(), Lane::kRequest, std::move(frame));
      ++sent;
    }
  }
  EXPECT_TRUE(Eventually([&] { return node(0).binding().Counters().bad_frames == sent; }))
      << node(0).binding().Counters().bad_frames << " of " << sent;
  EXPECT_EQ(*echo->Upper("b"), "B");
}

TEST_F(BindingManagerTest, CallsOfAConsoleFailHereAndFromAfar) {
  Start(Options(2));
  const RefBase console = node(0).binding().NewConsole();
  EXPECT_EQ(KindOf(node(0).RefTo<Echo>(console.rid())->Upper("x").status()),
            ErrorKind::kNoSuchMethod);
  EXPECT_EQ(KindOf(node(1).RefTo<Echo>(console.rid())->Upper("x").status()),
            ErrorKind::kNoSuchMethod);
}

// -- places ---------------------------------------------------------------------------------------

TEST_F(BindingManagerTest, Invariant3StaleHintsCostARedirectionAndDoNoHarm) {
  Start(Options(4));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  const Ref<Ledger> afar = node(3).RefTo<Ledger>(ledger.rid());
  uint64_t number = 0;
  EXPECT_EQ(*afar->Record(1, ++number), number);
  size_t at = 0;
  for (size_t to : {1, 2, 1, 0, 2, 0, 1}) {
    ASSERT_TRUE(cluster().Move(ledger.rid(), at, to).ok());
    at = to;
    EXPECT_EQ(*afar->Record(1, ++number), number) << "at node " << to;
    EXPECT_EQ(node(3).binding().Locate(ledger.rid())->host, node(to).self());
  }
  EXPECT_GE(node(3).binding().Counters().redirects, 1u);
  EXPECT_EQ(*afar->Read(1), (Ledger::Row{.last = number, .calls = number}));
}

TEST_F(BindingManagerTest, ObjectsAndTheirPlacesAreListed) {
  Start(Options(2));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  ASSERT_EQ(node(0).binding().Objects(10).size(), 1u);
  EXPECT_EQ(node(0).binding().Objects(10)[0].class_name, "test.Ledger");
  EXPECT_EQ(node(0).binding().Objects(0).size(), 0u);
  ASSERT_TRUE(cluster().Move(ledger.rid(), 0, 1).ok());
  EXPECT_EQ(node(0).binding().Objects(10).size(), 0u);
  ASSERT_EQ(node(1).binding().Objects(10).size(), 1u);
  const auto status = node(1).binding().Objects(10)[0];
  EXPECT_EQ(status.rid, ledger.rid());
  EXPECT_EQ(status.epoch, 2u);
  EXPECT_TRUE(status.hosted);
  EXPECT_EQ(node(1).binding().Slot(status.slot).rid, ledger.rid());
}

// -- object managers
// --------------------------------------------------------------------------------

TEST_F(BindingManagerTest, ManagersAreMadeOnDemandAndRefuseObjects) {
  Start(Options(2));
  EXPECT_EQ(tenants_.managers, 0);
  const absl::StatusOr<Ref<Tenant>> first = node(0).binding().Create<Tenant>();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(tenants_.managers, 1);
  EXPECT_EQ(node(0).binding().Create<Tenant>().status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(tenants_.managers, 1);

  // An object that goes gives its place free.
  ASSERT_TRUE(node(0).binding().Destroy(first->rid()).ok());
  EXPECT_TRUE(Eventually([&] { return tenants_.tenants == 0; }));
  EXPECT_TRUE(node(0).binding().Create<Tenant>().ok());
}

// -- many at once
// -----------------------------------------------------------------------------------

TEST_F(BindingManagerTest, ManyThreadsAreInsideOneObjectAtOnce) {
  Start(Options(2));
  const Ref<Rendezvous> made = cluster().Create<Rendezvous>(0);
  std::vector<std::thread> threads;
  std::atomic<int> met{0};
  for (size_t i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      const Ref<Rendezvous> place = node(i % 2).RefTo<Rendezvous>(made.rid());
      const absl::StatusOr<bool> all = place->Meet(16);
      met += all.ok() && *all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, 16);
}

TEST_F(BindingManagerTest, OneAtATimeClassLetsOneActivityInAndItsOwnCallBacks) {
  Start(Options(2));
  const Ref<Solo> solo = cluster().Create<Solo>(0);
  const Ref<Solo> here = cluster().Create<Solo>(0);
  const Ref<Solo> there = cluster().Create<Solo>(1);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const Ref<Solo> mine = node(i % 2).RefTo<Solo>(solo.rid());
      const Ref<Solo> via = node(i % 2).RefTo<Solo>((i % 4 < 2 ? here : there).rid());
      for (int n = 0; n < 25; ++n) {
        // Into `solo`, out to `via`, and back into `solo`, which the activity has not left.
        failed += !mine->Add().ok() + !mine->AddThrough(via, 2).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(*solo->Add(), 8 * 50 + 1);
}

TEST_F(BindingManagerTest, BranchesOfOneForkIntoAOneAtATimeObjectTakeTurns) {
  Start(Options(2));
  const Ref<Solo> far = node(0).RefTo<Solo>(cluster().Create<Solo>(1).rid());
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    auto first = far.Fork<&Solo::Add>();
    auto second = far.Fork<&Solo::Add>();
    EXPECT_TRUE(first.Join().ok());
    EXPECT_TRUE(second.Join().ok());
  }
  EXPECT_EQ(*far->Add(), 2 * kRounds + 1);
}

TEST_F(BindingManagerTest, ArgumentsAndResultsThatFitIntoNoMessageAreTypedErrors) {
  ClusterOptions options = Options(2);
  options.frame_bytes_max = 256 * 1024;
  Start(options);
  const Ref<Echo> far = node(0).RefTo<Echo>(cluster().Create<Echo>(1).rid());
  const auto kind = [&](size_t bytes) {
    return KindOf(far->Tail(Block::Allocate(bytes), 1).status());
  };
  EXPECT_EQ(kind(100 * 1024), ErrorKind::kNone);
  EXPECT_EQ(kind(300 * 1024), ErrorKind::kTooLarge);
  // The arguments of this one are small.
  EXPECT_EQ(KindOf(far->Make(300 * 1024).status()), ErrorKind::kTooLarge);
  EXPECT_EQ(kind(1000), ErrorKind::kNone) << "and things go on";
}

// -- fork and join --------------------------------------------------------------------------------

TEST_F(BindingManagerTest, RemoteBranchesOverlapInTime) {
  Start(Options(3));
  const Ref<Rendezvous> far = node(0).RefTo<Rendezvous>(cluster().Create<Rendezvous>(1).rid());
  // Neither branch returns before both are inside.
  auto first = far.Fork<&Rendezvous::Meet>(2u);
  auto second = far.Fork<&Rendezvous::Meet>(2u);
  const absl::StatusOr<bool> met_second = second.Join(), met_first = first.Join();
  EXPECT_TRUE(met_first.ok() && *met_first);
  EXPECT_TRUE(met_second.ok() && *met_second);
}

TEST_F(BindingManagerTest, BranchesOfAMethodToTwoNodesAndToOneObjectJoin) {
  Start(Options(3));
  std::vector<Rid> cast;
  for (size_t i : {0, 1, 2}) cast.push_back(cluster().Create<Actor>(i).rid());
  auto play = PlayBeside(0, 0, "[1(++2(+))2(+)1(+)0(+)]+", cast);
  ASSERT_SOON(play);
  EXPECT_EQ(*play.get(), 7);
  EXPECT_EQ(*node(1).RefTo<Actor>(cast[1])->Count(), 3);
  EXPECT_EQ(*node(2).RefTo<Actor>(cast[2])->Count(), 2);
}

TEST_F(BindingManagerTest, BranchThatFailsFailsTheJoinAndNotTheOther) {
  Start(Options(2));
  const Ref<Echo> echo = node(1).RefTo<Echo>(cluster().Create<Echo>(0).rid());
  auto good = echo.Fork<&Echo::Upper>("x");
  auto bad = echo.Fork<&Echo::Fail>(5, "no");
  EXPECT_EQ(bad.Join(), absl::NotFoundError("no"));
  EXPECT_EQ(*good.Join(), "X");
  EXPECT_EQ(Ref<Echo>().Fork<&Echo::Upper>("x").Join().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(BindingManagerTest, AbandonedBranchRunsOnAndItsResultIsDropped) {
  Start(Options(2));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid(),
                                 cluster().Create<Actor>(1).rid()};
  node(1).points().Hold("slow");
  auto play = PlayBeside(0, 0, "[1(@slow;+)]!+", cast);
  ASSERT_SOON(play);
  EXPECT_EQ(*play.get(), 1);
  ASSERT_TRUE(node(1).points().AwaitHeld("slow"));
  EXPECT_EQ(*node(0).RefTo<Actor>(cast[1])->Count(), 0);
  node(1).points().Release("slow");
  const Ref<Actor> hedge = node(0).RefTo<Actor>(cast[1]);
  EXPECT_TRUE(Eventually([&] { return *hedge->Count() == 1; }));
}

TEST_F(BindingManagerTest, BranchesFollowAnObjectThatMoves) {
  Start(Options(3));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  const Ref<Ledger> afar = node(2).RefTo<Ledger>(ledger.rid());
  EXPECT_EQ(*afar->Record(9, 1), 1u);
  node(0).points().Hold("move:checkpointed");
  auto moved = cluster().MoveBeside({ledger.rid()}, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitHeld("move:checkpointed"));
  auto one = afar.Fork<&Ledger::Record>(uint64_t{1}, uint64_t{1});
  auto two = afar.Fork<&Ledger::Record>(uint64_t{2}, uint64_t{1});
  node(0).points().Release("move:checkpointed");
  EXPECT_EQ(*one.Join(), 1u);
  EXPECT_EQ(*two.Join(), 1u);
  EXPECT_TRUE(moved().ok());
}

// -- limits
// -----------------------------------------------------------------------------------------

TEST_F(BindingManagerTest, NestedCallsAtTheWorkerLimitOnThreeNodesDoNotDeadlock) {
  ClusterOptions options = Options(3);
  options.binding.workers_max = 1;
  Start(options);
  std::vector<Rid> cast;
  for (size_t i = 0; i < 3; ++i) cast.push_back(cluster().Create<Actor>(i).rid());
  // Each node's one worker is taken before any of the three goes on to the next node.
  std::vector<std::future<absl::StatusOr<int64_t>>> plays;
  for (size_t i = 0; i < 3; ++i) {
    const size_t first = (i + 1) % 3, second = (i + 2) % 3;
    node(first).points().Hold("full");
    plays.push_back(PlayBeside(
        i, first, absl::StrCat("@full;", second, "(+", i, "(+", first, "(+", second, "(+))))"),
        cast));
  }
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(node(i).points().AwaitHeld("full"));
  for (size_t i = 0; i < 3; ++i) node(i).points().Release("full");
  for (auto& play : plays) {
    ASSERT_SOON(play);
    const absl::StatusOr<int64_t> steps = play.get();
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(*steps, 5);
  }
}

TEST_F(BindingManagerTest, ManyActivitiesOverFewWorkersAllEnd) {
  ClusterOptions options = Options(3);
  options.binding.workers_max = 2;
  Start(options);
  std::vector<Rid> cast;
  for (size_t i = 0; i < 3; ++i) cast.push_back(cluster().Create<Actor>(i).rid());
  std::vector<std::future<absl::StatusOr<int64_t>>> plays;
  for (size_t i = 0; i < 12; ++i) {
    std::string script;
    for (int n = 0; n < 10; ++n) script += "1(+2(+0(+1(+))))2(+0(+))";
    plays.push_back(PlayBeside(i % 3, 0, script, cast));
  }
  for (auto& play : plays) {
    ASSERT_SOON(play);
    const absl::StatusOr<int64_t> steps = play.get();
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(*steps, 60);
  }
}

TEST_F(BindingManagerTest, FullAdmissionQueueIsTypedBackPressure) {
  ClusterOptions options = Options(2);
  options.binding.workers_max = 1;
  options.binding.admission_queue_max = 1;
  Start(options);
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  node(0).points().Hold("busy");
  auto running = PlayBeside(1, 0, "@busy;+", cast);
  ASSERT_TRUE(node(0).points().AwaitHeld("busy"));
  auto queued = PlayBeside(1, 0, "+", cast);
  ASSERT_TRUE(Eventually([&] { return node(0).binding().Counters().calls_executed == 2; }));
  auto refused = PlayBeside(1, 0, "+", cast);
  ASSERT_SOON(refused);
  const absl::Status status = refused.get().status();
  EXPECT_EQ(KindOf(status), ErrorKind::kBackPressure) << status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(node(0).binding().refused_for_back_pressure(), 1u);
  node(0).points().Release("busy");
  ASSERT_SOON(running);
  ASSERT_SOON(queued);
  EXPECT_TRUE(running.get().ok());
  EXPECT_TRUE(queued.get().ok());
  EXPECT_EQ(*node(0).RefTo<Actor>(cast[0])->Count(), 2) << "the refused call did not run";
}

TEST_F(BindingManagerTest, NestingTooDeepIsTypedHereAndOverNodes) {
  Start(Options(2));
  const Ref<Actor> actor = cluster().Create<Actor>(0);
  for (size_t i : {0, 1}) {
    const Ref<Actor> other = node(0).RefTo<Actor>(cluster().Create<Actor>(i).rid());
    const absl::StatusOr<int64_t> within = actor->Bounce(other, kNestingMax);
    ASSERT_TRUE(within.ok()) << within.status();
    EXPECT_EQ(*within, kNestingMax) << "partner at node " << i;
    const absl::Status beyond = actor->Bounce(other, kNestingMax + 1).status();
    EXPECT_EQ(KindOf(beyond), ErrorKind::kNestingTooDeep) << beyond;
  }
}

TEST_F(BindingManagerTest, CallThatTheObjectCannotTellFromAnOldOneRunsOnceUnderAnotherName) {
  ClusterOptions options = Options(2);
  options.binding.core.dedup.entries_max = 4;
  options.binding.core.probe_interval_ns = 60'000'000'000;  // the late call is sent once
  options.faults = FaultKnobs();
  Start(options);
  const Ref<Ledger> made = cluster().Create<Ledger>(0);
  const Ref<Ledger> ledger = node(1).RefTo<Ledger>(made.rid());
  EXPECT_EQ(*ledger->Record(1, 1), 1u);
  // The call, its answer and the acknowledgement, which would be held up as well.
  ASSERT_TRUE(Eventually([&] { return node(1).faults()->Counts().frames >= 3; }));

  FaultKnobs slow;
  slow.delay = 1;
  slow.delay_min = slow.delay_max = absl::Seconds(3);  // longer than the calls below take
  node(1).faults()->SetKnobs(FaultDirection::kSend, slow);
  auto late = std::async(std::launch::async, [&] { return ledger->Record(2, 1); });
  ASSERT_TRUE(Eventually([&] { return node(1).faults()->Counts().delayed == 1; }));
  node(1).faults()->SetKnobs(FaultDirection::kSend, FaultKnobs());
  // Each thread is an activity of its own: the object forgets the first of them.
  for (uint64_t i = 0; i < 16; ++i) {
    std::thread([&] { EXPECT_EQ(*ledger->Record(100 + i, 1), 1u); }).join();
  }
  ASSERT_SOON(late);
  const absl::StatusOr<uint64_t> calls = late.get();
  ASSERT_TRUE(calls.ok()) << calls.status();
  EXPECT_EQ(*calls, 1u);
  EXPECT_EQ(node(0).binding().Counters().dedup.refused, 1u);
  EXPECT_EQ(*ledger->Record(1, 2), 2u) << "an activity that was idle for long goes on";
}

// -- the end of objects and nodes
// -------------------------------------------------------------------

TEST_F(BindingManagerTest, DestroyWaitsForTheCallsInsideAndRefusesOthers) {
  Start(Options(2));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  node(0).points().Hold("inside");
  auto here = PlayBeside(0, 0, "@inside;+", cast);
  auto afar = PlayBeside(1, 0, "@inside;+", cast);
  ASSERT_TRUE(node(0).points().AwaitHeld("inside", 2));
  ASSERT_TRUE(node(0).binding().Destroy(cast[0]).ok());

  auto late_here = PlayBeside(0, 0, "+", cast);
  auto late_afar = PlayBeside(1, 0, "+", cast);
  node(0).points().Release("inside");
  for (auto* play : {&here, &afar}) {
    ASSERT_SOON(*play);
    const absl::StatusOr<int64_t> steps = play->get();
    EXPECT_TRUE(steps.ok()) << steps.status();
  }
  for (auto* play : {&late_here, &late_afar}) {
    ASSERT_SOON(*play);
    const absl::Status status = play->get().status();
    EXPECT_EQ(KindOf(status), ErrorKind::kObjectNotFound) << status;
  }
  EXPECT_TRUE(Eventually([&] { return node(0).binding().Objects(10).empty(); }));
  for (size_t i : {0, 1}) {
    EXPECT_EQ(KindOf(node(i).RefTo<Actor>(cast[0])->Count().status()), ErrorKind::kObjectNotFound);
  }
  EXPECT_EQ(KindOf(node(0).binding().Destroy(cast[0])), ErrorKind::kObjectNotFound);
}

TEST_F(BindingManagerTest, ObjectDestroyedAwayFromItsHomeIsNotFoundEverywhere) {
  Start(Options(3));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  EXPECT_EQ(*node(2).RefTo<Ledger>(ledger.rid())->Record(1, 1), 1u);
  ASSERT_TRUE(cluster().Move(ledger.rid(), 0, 1).ok());
  EXPECT_EQ(KindOf(node(0).binding().Destroy(ledger.rid())), ErrorKind::kObjectNotFound);
  ASSERT_TRUE(node(1).binding().Destroy(ledger.rid()).ok());
  for (size_t i : {0, 1, 2}) {
    const absl::Status status = node(i).RefTo<Ledger>(ledger.rid())->Read(1).status();
    EXPECT_EQ(KindOf(status), ErrorKind::kObjectNotFound) << "node " << i << ": " << status;
  }
}

TEST_F(BindingManagerTest, StopFailsTheCallsThatWait) {
  Start(Options(2));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  node(0).points().Hold("never");
  auto waiting = PlayBeside(1, 0, "@never;+", cast);
  ASSERT_TRUE(node(0).points().AwaitHeld("never"));
  node(1).binding().Stop();
  ASSERT_SOON(waiting);
  const absl::Status status = waiting.get().status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(KindOf(status), ErrorKind::kNone) << status;
  auto later = PlayBeside(1, 0, "+", cast);
  ASSERT_SOON(later);
  EXPECT_EQ(KindOf(later.get().status()), ErrorKind::kNodeUnreachable);
}

TEST_F(BindingManagerTest, StopLetsGoCallsThatWaitForAMove) {
  Start(Options(2));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  node(0).points().Hold("move:checkpointed");
  auto moved = cluster().MoveBeside(cast, 0, 1);
  ASSERT_TRUE(node(0).points().AwaitHeld("move:checkpointed"));
  auto parked = PlayBeside(0, 0, "+", cast);
  ASSERT_TRUE(Eventually([&] { return node(0).binding().Counters().parked == 1; }));
  std::thread stopper([&] { node(0).binding().Stop(); });
  ASSERT_SOON(parked);
  EXPECT_EQ(KindOf(parked.get().status()), ErrorKind::kNodeUnreachable);
  EXPECT_EQ(KindOf(moved().status()), ErrorKind::kNodeUnreachable);
  node(0).points().ReleaseAll();
  stopper.join();
}

TEST_F(BindingManagerTest, FencedNodeLetsNobodyInUntilItIsUnfenced) {
  Start(Options(2));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  const Ref<Actor> here = node(0).RefTo<Actor>(cast[0]);
  node(0).points().Hold("inside");
  auto inside = PlayBeside(0, 0, "@inside;+", cast);
  ASSERT_TRUE(node(0).points().AwaitHeld("inside"));
  node(0).binding().Fence(MakeError(ErrorKind::kNodeFenced, "taken for dead"), false);
  EXPECT_EQ(KindOf(here->Count().status()), ErrorKind::kNodeFenced);
  auto afar = PlayBeside(1, 0, "+", cast);
  ASSERT_TRUE(Eventually([&] { return node(1).binding().Counters().probes > 0; }));
  node(0).points().Release("inside");
  ASSERT_SOON(inside);
  EXPECT_TRUE(inside.get().ok()) << "those that are inside run on";

  node(0).binding().Unfence();
  ASSERT_SOON(afar);
  EXPECT_TRUE(afar.get().ok());
  EXPECT_EQ(*here->Count(), 2);
  node(0).binding().Fence(MakeError(ErrorKind::kNodeFenced, "dead"), true);
  node(0).binding().Unfence();
  EXPECT_EQ(KindOf(here->Count().status()), ErrorKind::kNodeFenced) << "for good";
}

TEST_F(BindingManagerTest, CallInsideADeadNodeHasAnUnknownOutcome) {
  Start(Options(2));
  const std::vector<Rid> cast = {cluster().Create<Actor>(0).rid()};
  node(0).points().Hold("dying");
  auto inside = PlayBeside(1, 0, "@dying;+", cast);
  ASSERT_TRUE(node(0).points().AwaitHeld("dying"));
  cluster().Kill(0);
  ASSERT_SOON(inside);
  const absl::Status status = inside.get().status();
  EXPECT_TRUE(IsOutcomeUnknown(status)) << status;
  const absl::Status after = node(1).RefTo<Actor>(cast[0])->Count().status();
  EXPECT_EQ(after.code(), absl::StatusCode::kUnavailable) << after;
}

TEST_F(BindingManagerTest, ObjectsOfADeadHostAreLostAtTheirHome) {
  Start(Options(3));
  const Ref<Ledger> ledger = cluster().Create<Ledger>(0);
  ASSERT_TRUE(cluster().Move(ledger.rid(), 0, 1).ok());
  EXPECT_EQ(*node(2).RefTo<Ledger>(ledger.rid())->Record(1, 1), 1u);
  cluster().Kill(1);
  for (size_t i : {0, 2}) {
    const absl::Status status = node(i).RefTo<Ledger>(ledger.rid())->Read(1).status();
    EXPECT_EQ(KindOf(status), ErrorKind::kObjectLost) << "node " << i << ": " << status;
  }
}

TEST_F(BindingManagerTest, CallsGoOnWhenTheConnectionIsCutAgainAndAgain) {
  Start(Options(2));
  const Ref<Ledger> made = cluster().Create<Ledger>(0);
  std::atomic<bool> over{false};
  std::thread cutter([&] {
    for (uint64_t cut = 0; !over; ++cut) {
      // Each cut meets calls under way.
      const uint64_t executed = node(0).binding().Counters().calls_executed;
      (void)Eventually(
          [&] { return over || node(0).binding().Counters().calls_executed > executed + 3; });
      node(cut % 2).sockets().CutConnections(node((cut + 1) % 2).self());
    }
  });
  std::vector<std::thread> clients;
  for (uint64_t client = 1; client <= 3; ++client) {
    clients.emplace_back([&, client] {
      const Ref<Ledger> ledger = node(1).RefTo<Ledger>(made.rid());
      for (uint64_t number = 1; number <= 40; ++number) {
        const absl::StatusOr<uint64_t> calls = ledger->Record(client, number);
        ASSERT_TRUE(calls.ok()) << calls.status();
        ASSERT_EQ(*calls, number);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  over = true;
  cutter.join();
  for (uint64_t client = 1; client <= 3; ++client) {
    EXPECT_EQ(*made->Read(client), (Ledger::Row{.last = 40, .calls = 40}));
  }
}

}  // namespace
}  // namespace abacus::runtime::testing
