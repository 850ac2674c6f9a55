// The straight call, and every way out of it.

#include "runtime/object/ref.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/testing/count_allocations.h"
#include "runtime/object/testing/fake_invoker.h"

namespace abacus::runtime {
namespace {

using testing::FakeInvoker;
using testing::ThreadAllocations;
using Route = Invoker::Route;

// Keeps the thread busy; not by wall time, so that being preempted does not count.
void Burn(int64_t cpu_us) {
  const auto now_ns = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  for (const int64_t end_ns = now_ns() + cpu_us * 1000; now_ns() < end_ns;) {
  }
}

class Stateless : public MobileObject {
 public:
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
};

// Does what it is told, and can be one of a chain.
class Node : public Stateless {
 public:
  absl::StatusOr<int64_t> Add(int64_t a, int64_t b) { return a + b; }
  absl::StatusOr<uint64_t> Length(const std::string& text) const { return text.size(); }
  absl::StatusOr<uint64_t> ViewLength(std::string_view text) const { return text.size(); }
  absl::StatusOr<Block> Through(Block block) { return block; }
  absl::StatusOr<uint64_t> Sum(const std::vector<uint64_t>& numbers) const {
    uint64_t sum = 0;
    for (const uint64_t number : numbers) sum += number;
    return sum;
  }
  absl::Status Fail() { return absl::OutOfRangeError("as asked"); }
  absl::StatusOr<std::string> Echo(std::string text) { return text; }
  // Works, calls the next of the chain, and works again.
  absl::StatusOr<int64_t> Relay(int64_t n) {
    Burn(burn_us / 2);
    if (on_relay) on_relay();
    int64_t below = 0;
    if (next) {
      absl::StatusOr<int64_t> answer = next->Relay(n);
      if (!answer.ok()) return answer;
      below = *answer;
    }
    Burn(burn_us / 2);
    return below + n;
  }
  absl::StatusOr<uint32_t> Recurse(uint32_t depth) {
    deepest = std::max(deepest, depth);
    return next->Recurse(depth + 1);
  }
  ABACUS_OBJECT(Node, "test.Node", 1, Add, Length, ViewLength, Through, Sum, Fail, Echo, Relay,
                Recurse)

  Ref<Node> next;
  int64_t burn_us = 0;
  uint32_t deepest = 0;
  std::function<void()> on_relay;
};

class RefTest : public ::testing::Test {
 protected:
  RefTest() : thread_(ThreadContext::Of(invoker_)) {}

  static EdgeKey KeyOf(const Ref<Node>& caller, const Ref<Node>& callee) {
    return EdgeKey{SlotOf(caller)} << 32 | SlotOf(callee);
  }
  static uint32_t SlotOf(const Ref<Node>& ref) {
    return ref ? ref.base().entry()->slot : kOutsideSlot;
  }
  void SetGate(const Ref<Node>& ref, Gate gate) { ref.base().entry()->gate = gate; }
  EdgeSums Edge(const Ref<Node>& caller, const Ref<Node>& callee) {
    return invoker_.threads().CollectAccounts()[KeyOf(caller, callee)];
  }

  FakeInvoker invoker_;
  ThreadContext& thread_;
  const Ref<Node> outside_;
  Node a_, b_, c_;
};

// -- the straight call ----------------------------------------------------------------------------

TEST_F(RefTest, CallOfAnObjectThatIsHereReturnsWhatTheMethodReturns) {
  const Ref<Node> a = invoker_.Host(a_);
  EXPECT_EQ(*a->Add(2, 3), 5);
  EXPECT_EQ(*a->Length("four"), 4u);
  EXPECT_EQ(a->Fail(), absl::OutOfRangeError("as asked"));
  EXPECT_EQ(invoker_.starts, 0);
  EXPECT_EQ(invoker_.lefts, 0);
  EXPECT_EQ(thread_.depth(), 0u);
}

TEST_F(RefTest, StraightCallsAllocateNothing) {
  const Ref<Node> a = invoker_.Host(a_);
  const std::string text(1000, 't');
  const Block block = Block::FromString(std::string(1 << 20, 'b'));
  const std::vector<uint64_t> numbers(1000, 1);
  for (const bool accounting : {true, false}) {
    invoker_.set_accounting(accounting);
    a->Add(1, 2).IgnoreError();  // the first call of a thread makes its context
    int64_t right = 0;
    const uint64_t before = ThreadAllocations();
    for (int i = 0; i < 100; ++i) {
      right += *a->Add(i, 1) == i + 1 ? 1 : 0;
      right += *a->Length(text) == 1000 ? 1 : 0;
      right += *a->ViewLength("a literal that is longer than a short string can be") == 51 ? 1 : 0;
      right += *a->ViewLength(text) == 1000 ? 1 : 0;
      right += a->Through(block)->data() == block.data() ? 1 : 0;
      right += *a->Sum(numbers) == 1000 ? 1 : 0;
    }
    EXPECT_EQ(ThreadAllocations() - before, 0u) << "accounting " << accounting;
    EXPECT_EQ(right, 600);
  }
}

TEST_F(RefTest, NestedCallsAllocateNothing) {
  const Ref<Node> a = invoker_.Host(a_);
  a_.next = invoker_.Host(b_);
  b_.next = invoker_.Host(c_);
  for (const bool accounting : {true, false}) {
    invoker_.set_accounting(accounting);
    a->Relay(1).IgnoreError();
    const uint64_t before = ThreadAllocations();
    int64_t sum = 0;
    for (int i = 0; i < 100; ++i) sum += *a->Relay(1);
    EXPECT_EQ(ThreadAllocations() - before, 0u) << "accounting " << accounting;
    EXPECT_EQ(sum, 300);
  }
}

TEST_F(RefTest, AllocationsAreCounted) {
  const uint64_t before = ThreadAllocations();
  const std::vector<int> one(100);
  const auto other = std::make_unique<std::string>(100, 'x');
  struct alignas(128) Aligned {
    char bytes[128];
  };
  const auto aligned = std::make_unique<Aligned>();
  EXPECT_EQ(ThreadAllocations() - before, 4u) << "the tests above would see nothing";
}

TEST_F(RefTest, ArgumentsGoByReferenceAndBlocksByCount) {
  const Ref<Node> a = invoker_.Host(a_);
  std::string text(1000, 't');
  const char* bytes = text.data();
  // By value and moved in, moved out: the very same bytes.
  const absl::StatusOr<std::string> echoed = a->Echo(std::move(text));
  EXPECT_EQ(echoed->data(), bytes);
}

TEST_F(RefTest, FramesArePushedWhileInsideAndPoppedInOrder) {
  const Ref<Node> a = invoker_.Host(a_);
  const Ref<Node> b = invoker_.Host(b_);
  a_.next = b;
  int visits = 0;
  a_.on_relay = [&] {
    ++visits;
    EXPECT_EQ(thread_.depth(), 1u);
    EXPECT_EQ(thread_.slot(), SlotOf(a));
    EXPECT_TRUE(thread_.IsInside(a.base().entry()));
    EXPECT_FALSE(thread_.IsInside(b.base().entry()));
  };
  b_.on_relay = [&] {
    ++visits;
    EXPECT_EQ(thread_.depth(), 2u);
    EXPECT_EQ(thread_.slot(), SlotOf(b));
    EXPECT_TRUE(thread_.IsInside(a.base().entry()));
    EXPECT_TRUE(thread_.IsInside(b.base().entry()));
  };
  EXPECT_EQ(*a->Relay(1), 2);
  EXPECT_EQ(visits, 2);
  EXPECT_EQ(thread_.depth(), 0u);
  EXPECT_FALSE(thread_.IsInside(a.base().entry()));
}

TEST_F(RefTest, LeavingAnObjectWhoseGateHasClosedIsTold) {
  const Ref<Node> a = invoker_.Host(a_);
  a_.on_relay = [&] { SetGate(a, Gate::kClosed); };
  EXPECT_EQ(*a->Relay(4), 4);
  EXPECT_EQ(invoker_.lefts, 1);
  EXPECT_EQ(invoker_.starts, 0);
}

TEST_F(RefTest, NullReferenceIsAnErrorThatNamesTheMethod) {
  const Ref<Node> null;
  EXPECT_FALSE(null);
  EXPECT_FALSE(null.rid().valid());
  const absl::Status status = null->Add(1, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(ToStd(status.message()).find("Add()"), std::string_view::npos) << status;
  EXPECT_EQ(null.Fork<&Node::Add>(1, 2).Join().status(), status);
}

TEST_F(RefTest, NestingBeyondTheLimitIsRefused) {
  const Ref<Node> a = invoker_.Host(a_);
  a_.next = a;
  EXPECT_EQ(KindOf(a->Recurse(1).status()), ErrorKind::kNestingTooDeep);
  EXPECT_EQ(a_.deepest, kNestingMax);
  EXPECT_EQ(thread_.depth(), 0u);

  // Levels that the activity has used on other nodes count too.
  const ActivityId activity = thread_.activity;
  a_.deepest = 0;
  thread_.SetActivity(activity, activity, kNestingMax - 10, 0);
  EXPECT_EQ(KindOf(a->Recurse(1).status()), ErrorKind::kNestingTooDeep);
  EXPECT_EQ(a_.deepest, 10u);
  thread_.SetActivity(activity, activity, kNestingMax, 0);
  EXPECT_EQ(KindOf(a->Add(1, 2).status()), ErrorKind::kNestingTooDeep);
  a_.next = {};
}

TEST_F(RefTest, LockHeldAcrossACallEndsTheProgramWhereAssertionsAreOn) {
#ifdef NDEBUG
  GTEST_SKIP() << "this build has no assertions";
#else
  const Ref<Node> a = invoker_.Host(a_);
  Mutex mutex;
  EXPECT_DEATH(
      {
        MutexLock lock(mutex);
        a->Add(1, 2).IgnoreError();
      },
      "a lock is held across a call");
#endif
}

// -- accounts -------------------------------------------------------------------------------------

TEST_F(RefTest, CallsAndBytesAreCountedOnTheirEdges) {
  const Ref<Node> a = invoker_.Host(a_);
  const Ref<Node> b = invoker_.Host(b_);
  a_.next = b;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a->Relay(1).ok());
  ASSERT_TRUE(b->Through(Block::Allocate(5000)).ok());
  ASSERT_TRUE(b->Length("four").ok());
  EXPECT_FALSE(b->Fail().ok());

  const EdgeSums to_a = Edge(outside_, a);
  EXPECT_EQ(to_a.calls, 3u);
  EXPECT_EQ(to_a.request_bytes, 3 * sizeof(int64_t));
  EXPECT_EQ(to_a.reply_bytes, 3 * sizeof(int64_t));
  const EdgeSums a_to_b = Edge(a, b);
  EXPECT_EQ(a_to_b.calls, 3u);
  EXPECT_EQ(a_to_b.request_bytes, 3 * sizeof(int64_t));
  const EdgeSums to_b = Edge(outside_, b);
  EXPECT_EQ(to_b.calls, 3u);
  EXPECT_EQ(to_b.request_bytes, 5000u + 4u);
  EXPECT_EQ(to_b.reply_bytes, 5000u + sizeof(uint64_t));
  EXPECT_EQ(invoker_.threads().CollectAccounts().size(), 3u);
}

TEST_F(RefTest, CallsFromAConsoleAreItsOwn) {
  const Ref<Node> console = invoker_.Host(a_);
  const Ref<Node> b = invoker_.Host(b_);
  thread_.SetBase(SlotOf(console));
  EXPECT_EQ(thread_.base_slot(), SlotOf(console));
  ASSERT_TRUE(b->Add(1, 2).ok());
  EXPECT_EQ(Edge(console, b).calls, 1u);
  EXPECT_EQ(Edge(outside_, b).calls, 0u);
  thread_.SetBase(kOutsideSlot);
}

TEST_F(RefTest, NothingIsCountedWhileAccountingIsOff) {
  const Ref<Node> a = invoker_.Host(a_);
  invoker_.set_accounting(false);
  ASSERT_TRUE(a->Add(1, 2).ok());
  EXPECT_TRUE(invoker_.threads().CollectAccounts().empty());
  invoker_.set_accounting(true);
  ASSERT_TRUE(a->Add(1, 2).ok());
  EXPECT_EQ(Edge(outside_, a).calls, 1u);
}

TEST_F(RefTest, EachObjectIsChargedForItsOwnTimeOnly) {
  const Ref<Node> a = invoker_.Host(a_);
  const Ref<Node> b = invoker_.Host(b_);
  const Ref<Node> c = invoker_.Host(c_);
  a_.next = b;
  b_.next = c;
  // 4 : 200 : 4, b in the middle: time of b that were charged to a neighbour would show.
  a_.burn_us = c_.burn_us = 4000;
  b_.burn_us = 200000;
  thread_.AccountHere();
  const uint64_t begin = monitor::ThreadClock::Ticks();
  ASSERT_TRUE(a->Relay(1).ok());
  const uint64_t wall_ticks = monitor::ThreadClock::Ticks() - begin;
  Burn(20000);  // the caller's own, and nobody's on these edges

  const auto busy_ms = [](const EdgeSums& sums) {
    return static_cast<double>(sums.busy_ticks) * monitor::ThreadClock::NsPerTick() / 1e6;
  };
  const double a_ms = busy_ms(Edge(outside_, a));
  const double b_ms = busy_ms(Edge(a, b));
  const double c_ms = busy_ms(Edge(b, c));
  std::printf("charged: a %.2f ms of 4, b %.2f ms of 200, c %.2f ms of 4\n", a_ms, b_ms, c_ms);
  EXPECT_GE(a_ms, 2);
  EXPECT_GE(b_ms, 100);
  EXPECT_GE(c_ms, 2);
  EXPECT_GT(b_ms, 2 * (a_ms + c_ms));

  uint64_t sum_ticks = 0;
  for (const auto& [key, sums] : invoker_.threads().CollectAccounts()) {
    sum_ticks += sums.busy_ticks + sums.blocked_ticks + sums.ready_ticks;
  }
  EXPECT_LE(sum_ticks, wall_ticks) << "time is charged twice";
}

// -- the ways out ---------------------------------------------------------------------------------

TEST_F(RefTest, AbsentObjectIsAskedOfTheInvokerOnceAndItsErrorComesBack) {
  const Ref<Node> a = invoker_.Elsewhere<Node>();
  const absl::Status status = a->Add(1, 2).status();
  EXPECT_EQ(status, absl::UnavailableError("nobody is there"));
  EXPECT_EQ(invoker_.starts, 1);
  EXPECT_EQ(invoker_.finishes, 0);
  EXPECT_EQ(invoker_.lefts, 1) << "a frame came and went while the gate was not open";
  EXPECT_EQ(thread_.depth(), 0u);
}

TEST_F(RefTest, RemoteCallCarriesMethodAndWholeArgumentsAndDecodesTheResult) {
  const Ref<Node> a = invoker_.Elsewhere<Node>();
  invoker_.on_start = [&](ThreadContext&, Entry& entry, MethodId method,
                          absl::FunctionRef<Payload()> encode, auto* call, auto*) {
    EXPECT_EQ(entry.rid, a.rid());
    EXPECT_EQ(method, internal::MethodIdOf<&Node::Echo>());
    const Payload payload = encode();
    Reader reader(payload);
    // The string was handed over as an rvalue: the straight call that was tried must not have eaten
    // it.
    EXPECT_EQ(Decoded<std::string>(reader), std::string(1000, 'q'));
    EXPECT_TRUE(reader.AtEnd());
    *call = std::make_unique<FakeInvoker::Call>(invoker_);
    return Route::kRemote;
  };
  invoker_.on_finish = [](ThreadContext&, OutgoingCall&, Payload* result, auto*) {
    Writer writer;
    Encode(writer, std::string("from afar"));
    *result = std::move(writer).Finish();
    return Route::kRemote;
  };
  std::string text(1000, 'q');
  const absl::StatusOr<std::string> answer = a->Echo(std::move(text));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "from afar");
  EXPECT_EQ(invoker_.calls_ended, 1);
}

TEST_F(RefTest, RemoteErrorsComeBackTyped) {
  const Ref<Node> a = invoker_.Elsewhere<Node>();
  invoker_.on_start = [&](ThreadContext&, Entry&, MethodId, auto, auto* call, auto*) {
    *call = std::make_unique<FakeInvoker::Call>(invoker_);
    return Route::kRemote;
  };
  invoker_.on_finish = [](ThreadContext&, OutgoingCall&, Payload*, absl::Status* status) {
    *status = MakeError(ErrorKind::kOutcomeUnknown, "it died");
    return Route::kRemote;
  };
  EXPECT_TRUE(IsOutcomeUnknown(a->Add(1, 2).status()));
  EXPECT_TRUE(IsOutcomeUnknown(a->Fail()));
}

TEST_F(RefTest, RemoteResultThatDoesNotDecodeIsAnError) {
  const Ref<Node> a = invoker_.Elsewhere<Node>();
  invoker_.on_start = [&](ThreadContext&, Entry&, MethodId, auto, auto* call, auto*) {
    *call = std::make_unique<FakeInvoker::Call>(invoker_);
    return Route::kRemote;
  };
  invoker_.on_finish = [](ThreadContext&, OutgoingCall&, Payload* result, auto*) {
    result->inline_bytes = "abc";
    return Route::kRemote;
  };
  EXPECT_EQ(KindOf(a->Add(1, 2).status()), ErrorKind::kBadArguments);
}

TEST_F(RefTest, ObjectThatHasComeHereIsCalledStraight) {
  const Ref<Node> a = invoker_.Host(a_);
  SetGate(a, Gate::kClosed);
  // Twice "it is here", and only the second time the gate is still open when the call looks.
  invoker_.on_start = [&](ThreadContext& thread, Entry&, MethodId, auto, auto*, auto*) {
    EXPECT_EQ(thread.depth(), 0u) << "the frame of the call that was not made is still there";
    if (invoker_.starts == 2) SetGate(a, Gate::kOpen);
    return Route::kRunLocal;
  };
  std::string text(1000, 'q');
  EXPECT_EQ(*a->Echo(std::move(text)), std::string(1000, 'q'));
  EXPECT_EQ(invoker_.starts, 2);
}

TEST_F(RefTest, ObjectThatComesHereWhileTheCallIsOutIsCalledStraight) {
  const Ref<Node> a = invoker_.Host(a_);
  SetGate(a, Gate::kAbsent);
  invoker_.on_start = [&](ThreadContext&, Entry&, MethodId, auto, auto* call, auto*) {
    *call = std::make_unique<FakeInvoker::Call>(invoker_);
    return Route::kRemote;
  };
  invoker_.on_finish = [&](ThreadContext&, OutgoingCall&, Payload*, auto*) {
    SetGate(a, Gate::kOpen);
    return Route::kRunLocal;
  };
  EXPECT_EQ(*a->Add(1, 2), 3);
  EXPECT_EQ(invoker_.finishes, 1);
  EXPECT_EQ(invoker_.calls_ended, 1);
}

TEST_F(RefTest, ActivityThatIsInsideRunsInAClosedObjectAndSaysWhenItHasLeft) {
  const Ref<Node> a = invoker_.Host(a_);
  SetGate(a, Gate::kClosed);
  invoker_.on_start = [&](ThreadContext& thread, Entry& entry, MethodId, auto, auto*, auto*) {
    thread.Push(&entry);
    return Route::kRunInside;
  };
  a_.on_relay = [&] {
    EXPECT_EQ(thread_.depth(), 1u);
    EXPECT_EQ(invoker_.lefts_inside, 0);
  };
  EXPECT_EQ(*a->Relay(6), 6);
  EXPECT_EQ(invoker_.lefts_inside, 1);
  EXPECT_EQ(thread_.depth(), 0u);
  EXPECT_EQ(Edge(outside_, a).calls, 1u);
}

TEST_F(RefTest, ClassThatTakesOneAtATimeIsEnteredByOneActivityAndByItsCallBacks) {
  const Ref<Node> a = invoker_.Host(a_);
  const Ref<Node> b = invoker_.Host(b_);
  Turn turn;
  a.base().entry()->turn = &turn;
  a_.next = b;
  int inside = 0;  // plain: ThreadSanitizer sees two activities inside
  a_.on_relay = [&] {
    EXPECT_EQ(++inside, 1);
    EXPECT_EQ(*a->Add(1, 2), 3) << "the activity that is inside may enter again";
    --inside;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) EXPECT_EQ(*a->Relay(1), 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Edge(outside_, a).calls, 2000u);
}

// -- references -----------------------------------------------------------------------------------

TEST_F(RefTest, LastReferenceTellsTheInvoker) {
  {
    Ref<Node> a = invoker_.Elsewhere<Node>();
    const Rid rid = a.rid();
    Ref<Node> copy = a;
    Ref<Node> moved = std::move(a);
    EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_EQ(moved.rid(), rid);
    EXPECT_EQ(copy, moved);
    copy = moved;
    EXPECT_EQ(invoker_.unreferenced, 0);
    copy = Ref<Node>();
    EXPECT_EQ(invoker_.unreferenced, 0);
  }
  EXPECT_EQ(invoker_.unreferenced, 1);
}

TEST_F(RefTest, ThreadsMayCopyAndDropReferencesToOneObject) {
  {
    const Ref<Node> a = invoker_.Host(a_);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([mine = a] {
        for (int round = 0; round < 5000; ++round) {
          const Ref<Node> copy = mine;
          const Ref<Node> second = copy;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    EXPECT_EQ(a.base().entry()->references, 2u);  // this one and the object's own
  }
  EXPECT_EQ(invoker_.unreferenced, 0);
}

TEST_F(RefTest, ReferencesAreEqualWhereTheyNameTheSameObject) {
  const Ref<Node> a = invoker_.Host(a_);
  const Ref<Node> b = invoker_.Host(b_);
  EXPECT_EQ(a, Ref<Node>(RefBase(invoker_.Intern(a.rid()))));
  EXPECT_FALSE(a == b);
  EXPECT_EQ(Ref<Node>(), Ref<Node>());
  EXPECT_EQ(a_.rid(), a.rid());
}

TEST_F(RefTest, ReferencesTravelAsRidsAndComeBackThroughTheInvoker) {
  const Ref<Node> a = invoker_.Host(a_);
  Writer writer;
  Encode(writer, std::vector<Ref<Node>>{a, Ref<Node>()});
  const Payload payload = std::move(writer).Finish();
  Reader reader(payload, &invoker_);
  const auto refs = Decoded<std::vector<Ref<Node>>>(reader);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ(refs.size(), 2u);
  EXPECT_EQ(refs[0], a);
  EXPECT_EQ(*refs[0]->Add(1, 2), 3);
  EXPECT_FALSE(refs[1]);

  Reader nowhere(payload);
  Decoded<std::vector<Ref<Node>>>(nowhere);
  EXPECT_EQ(KindOf(nowhere.status()), ErrorKind::kBadArguments);
}

TEST_F(RefTest, ReferencesTravelInCheckpoints) {
  const Ref<Node> a = invoker_.Host(a_);
  CheckpointWriter writer({});
  writer.Write(a);
  const absl::StatusOr<Payload> saved = std::move(writer).Finish("test.Class", 1);
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(*saved, "test.Class", 1, &invoker_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->Read<Ref<Node>>(), a);
}

// -- fork and join --------------------------------------------------------------------------------

TEST_F(RefTest, BranchesOnThisNodeRunWhenTheyAreJoined) {
  const Ref<Node> a = invoker_.Host(a_);
  const Ref<Node> b = invoker_.Host(b_);
  int runs = 0;
  a_.on_relay = b_.on_relay = [&] { ++runs; };
  auto first = a.Fork<&Node::Relay>(1);
  auto second = b.Fork<&Node::Relay>(2);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(*second.Join(), 2);
  EXPECT_EQ(*first.Join(), 1);
  EXPECT_EQ(runs, 2);
}

TEST_F(RefTest, BranchIsAnActivityOfItsOwnUnderTheParentsRoot) {
  const Ref<Node> a = invoker_.Host(a_);
  const ActivityId parent = thread_.activity;
  thread_.sequence = 77;
  std::vector<ActivityId> seen;
  a_.on_relay = [&] {
    seen.push_back(thread_.activity);
    EXPECT_EQ(thread_.root, parent);
    EXPECT_EQ(thread_.sequence, 0u);
    thread_.sequence = 5;
  };
  auto first = a.Fork<&Node::Relay>(1);
  auto second = a.Fork<&Node::Relay>(1);
  EXPECT_EQ(thread_.activity, parent);
  ASSERT_TRUE(first.Join().ok());
  ASSERT_TRUE(second.Join().ok());
  EXPECT_EQ(thread_.activity, parent);
  EXPECT_EQ(thread_.sequence, 77u);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_NE(seen[0], parent);
}

TEST_F(RefTest, BranchesToOtherNodesAreAllStartedBeforeTheFirstIsJoined) {
  const Ref<Node> a = invoker_.Elsewhere<Node>();
  std::map<OutgoingCall*, int64_t> sums;
  invoker_.on_start = [&](ThreadContext&, Entry&, MethodId, absl::FunctionRef<Payload()> encode,
                          std::unique_ptr<OutgoingCall>* call, auto*) {
    const Payload arguments = encode();
    Reader reader(arguments);
    *call = std::make_unique<FakeInvoker::Call>(invoker_);
    sums[call->get()] = Decoded<int64_t>(reader) + Decoded<int64_t>(reader);
    return Route::kRemote;
  };
  invoker_.on_finish = [&](ThreadContext&, OutgoingCall& call, Payload* result, auto*) {
    EXPECT_EQ(invoker_.starts, 3);
    Writer writer;
    Encode(writer, sums.at(&call));
    *result = std::move(writer).Finish();
    return Route::kRemote;
  };
  {
    auto first = a.Fork<&Node::Add>(1, 1);
    auto second = a.Fork<&Node::Add>(2, 2);
    auto abandoned = a.Fork<&Node::Add>(3, 3);
    EXPECT_EQ(invoker_.finishes, 0);
    EXPECT_EQ(*first.Join(), 2);
    EXPECT_EQ(*second.Join(), 4);
  }
  EXPECT_EQ(invoker_.finishes, 2) << "an abandoned branch is not waited for";
  EXPECT_EQ(invoker_.calls_ended, 3) << "and is given up";
}

TEST_F(RefTest, BranchThatCouldNotBeStartedFailsWhenItIsJoined) {
  const Ref<Node> a = invoker_.Elsewhere<Node>();
  auto branch = a.Fork<&Node::Add>(1, 2);
  EXPECT_EQ(branch.Join().status(), absl::UnavailableError("nobody is there"));
  EXPECT_EQ(invoker_.starts, 1);
}

TEST_F(RefTest, BranchKeepsWhatItsViewsShowed) {
  const Ref<Node> a = invoker_.Host(a_);
  // The temporaries are gone when the branches are joined; a sanitizer sees a view of one.
  auto length = a.Fork<&Node::ViewLength>(std::string(1000, 'v'));
  auto echo = a.Fork<&Node::Echo>(std::string(1000, 'e'));
  EXPECT_EQ(*length.Join(), 1000u);
  EXPECT_EQ(*echo.Join(), std::string(1000, 'e'));
}

}  // namespace
}  // namespace abacus::runtime
