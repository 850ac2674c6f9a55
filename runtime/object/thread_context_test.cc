#include "runtime/object/thread_context.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/object/testing/fake_invoker.h"

namespace abacus::runtime {
namespace {

using testing::FakeInvoker;

int Contexts(FakeInvoker& node) {
  int count = 0;
  node.threads().ForEach([&](const ThreadContext&) { ++count; });
  return count;
}

TEST(ThreadContextTest, EachThreadHasOneContextPerNode) {
  FakeInvoker a;
  FakeInvoker b;
  ThreadContext& of_a = ThreadContext::Of(a);
  ThreadContext& of_b = ThreadContext::Of(b);
  EXPECT_NE(&of_a, &of_b);
  EXPECT_EQ(&ThreadContext::Of(a), &of_a);
  EXPECT_EQ(&ThreadContext::Of(b), &of_b);
  EXPECT_EQ(&of_a.invoker(), &a);
  EXPECT_EQ(Contexts(a), 1);
  std::thread([&] { EXPECT_NE(&ThreadContext::Of(a), &of_a); }).join();
  EXPECT_EQ(Contexts(a), 2);
  EXPECT_EQ(Contexts(b), 1);
}

TEST(ThreadContextTest, NewThreadBeginsAnActivityOfItsOwn) {
  FakeInvoker node;
  const ActivityId mine = ThreadContext::Of(node).activity;
  EXPECT_TRUE(mine.valid());
  EXPECT_EQ(ThreadContext::Of(node).root, mine);
  EXPECT_EQ(ThreadContext::Of(node).PublishedRoot(), mine);
  std::thread([&] { EXPECT_NE(ThreadContext::Of(node).activity, mine); }).join();
}

TEST(ThreadContextTest, NodeAtTheAddressOfAnEndedOneIsAnother) {
  alignas(FakeInvoker) std::byte place[sizeof(FakeInvoker)];
  for (int life = 1; life <= 3; ++life) {
    FakeInvoker* node = new (place) FakeInvoker;
    Entry entry;
    entry.slot = 7;
    entry.gate = Gate::kOpen;
    ThreadContext& thread = ThreadContext::Of(*node);
    EXPECT_EQ(&thread.invoker(), node);
    ASSERT_EQ(Contexts(*node), 1) << "life " << life << ": the thread is unknown to its node";
    thread.Push(&entry);
    bool seen = false;
    node->threads().ForEach([&](const ThreadContext& one) { seen |= one.IsInside(&entry); });
    EXPECT_TRUE(seen) << "life " << life;
    thread.Pop(&entry);
    node->~FakeInvoker();
  }
}

TEST(ThreadContextTest, PushAndPopFollowTheStackAndTellTheGate) {
  FakeInvoker node;
  ThreadContext& thread = ThreadContext::Of(node);
  Entry outer;
  outer.slot = 1;
  outer.gate = Gate::kOpen;
  Entry inner;
  inner.slot = 2;
  inner.gate = Gate::kClosed;

  EXPECT_EQ(thread.depth(), 0u);
  EXPECT_EQ(thread.slot(), kOutsideSlot);
  EXPECT_EQ(thread.Push(&outer), Gate::kOpen);
  EXPECT_EQ(thread.depth(), 1u);
  EXPECT_EQ(thread.slot(), 1u);
  EXPECT_EQ(thread.Push(&inner), Gate::kClosed);
  EXPECT_EQ(thread.slot(), 2u);
  EXPECT_TRUE(thread.IsInside(&outer));
  EXPECT_TRUE(thread.IsInside(&inner));
  EXPECT_EQ(thread.Pop(&inner), Gate::kClosed);
  EXPECT_FALSE(thread.IsInside(&inner)) << "a frame that was popped still counts";
  EXPECT_TRUE(thread.IsInside(&outer));
  outer.gate = Gate::kAbsent;
  EXPECT_EQ(thread.Pop(&outer), Gate::kAbsent);
  EXPECT_EQ(thread.depth(), 0u);
}

TEST(ThreadContextTest, LevelCountsTheCallsOfOtherNodesToo) {
  FakeInvoker node;
  ThreadContext& thread = ThreadContext::Of(node);
  const ActivityId activity{{5, 6}, 7};
  const ActivityId root{{0xffffffff, 0xfffffffe}, ~uint64_t{0}};
  thread.SetActivity(activity, root, 10, 99);
  EXPECT_EQ(thread.level(), 10u);
  EXPECT_EQ(thread.activity, activity);
  EXPECT_EQ(thread.sequence, 99u);
  EXPECT_EQ(thread.PublishedRoot(), root);
  Entry entry;
  thread.Push(&entry);
  EXPECT_EQ(thread.level(), 11u);
  thread.Pop(&entry);
}

// Spins first: a thread that has yielded is too late for the races that the test is after.
template <typename Condition>
void AwaitClosely(Condition condition) {
  for (int spin = 0; !condition(); ++spin) {
    if (spin % 4096 == 4095) std::this_thread::yield();
  }
}

// The gate's protocol: of a call that publishes itself and then looks at the gate, and a closer
// that closes the gate, runs membarrier() and then looks at the stacks, one sees the other.
TEST(ThreadContextTest, CallAndCloserNeverMissEachOther) {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0) {
    GTEST_SKIP() << "this kernel has no expedited membarrier()";
  }
  constexpr int kRounds = 5000;
  FakeInvoker node;
  Entry entry;
  std::atomic<int> round{0};    // set by the closer: i begins a round, -i ends it
  std::atomic<int> pushed{0};   // set by the caller: i where it went in, -i where it did not
  std::atomic<int> popped{-1};  // the last round that the caller is through with
  std::thread caller([&] {
    ThreadContext& thread = ThreadContext::Of(node);
    popped = 0;
    for (int i = 1; i <= kRounds; ++i) {
      AwaitClosely([&] { return round.load(std::memory_order_acquire) == i; });
      const Gate gate = thread.Push(&entry);
      pushed = gate == Gate::kOpen ? i : -i;
      AwaitClosely([&] { return round.load(std::memory_order_acquire) == -i; });
      thread.Pop(&entry);
      popped = i;
    }
  });
  int let_in = 0;
  AwaitClosely([&] { return popped.load() == 0; });
  for (int i = 1; i <= kRounds; ++i) {
    entry.gate = Gate::kOpen;
    round = i;
    // Now and then late, so that the call wins too.
    for (int spin = 0; spin < i % 256; ++spin) round.load(std::memory_order_acquire);
    entry.gate.store(Gate::kClosed, std::memory_order_release);
    EXPECT_EQ(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), 0);
    bool seen = false;
    node.threads().ForEach([&](const ThreadContext& one) { seen |= one.IsInside(&entry); });
    AwaitClosely([&] { return std::abs(pushed.load()) == i; });
    let_in += pushed.load() == i ? 1 : 0;
    EXPECT_TRUE(seen || pushed.load() != i) << "round " << i << ": inside of a closed object";
    round = -i;
    AwaitClosely([&] { return popped.load() == i; });
  }
  caller.join();
  std::printf("let in before the gate closed: %d of %d\n", let_in, kRounds);
}

TEST(ThreadRegistryTest, SumsOfEndedThreadsStay) {
  constexpr uint64_t kThreads = 5;
  FakeInvoker node;
  for (uint64_t i = 0; i < kThreads; ++i) {
    std::thread([&] {
      AccountCell::Bump(ThreadContext::Of(node).accounts.Cell(1, 2).calls, 10);
    }).join();
  }
  constexpr EdgeKey kEdge = EdgeKey{1} << 32 | 2;
  // More than once: the first folds the ended threads, and none may be folded twice.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(node.threads().CollectAccounts().at(kEdge).calls, 10 * kThreads);
  }
  EXPECT_EQ(Contexts(node), 0) << "ended threads are kept for ever";
  AccountCell::Bump(ThreadContext::Of(node).accounts.Cell(1, 2).calls, 1);
  EXPECT_EQ(node.threads().CollectAccounts().at(kEdge).calls, 10 * kThreads + 1);
}

TEST(ThreadRegistryTest, CollectsWhileThreadsComeCallAndGo) {
  constexpr uint64_t kThreads = 50;
  constexpr uint64_t kCalls = 500;
  FakeInvoker node;
  std::atomic<bool> done{false};
  std::thread starter([&] {
    for (uint64_t i = 0; i < kThreads; i += 2) {
      const auto work = [&] {
        for (uint32_t call = 0; call < kCalls; ++call) {
          AccountCell::Bump(ThreadContext::Of(node).accounts.Cell(call + 1, 1).calls, 1);
        }
      };
      std::thread a(work);
      std::thread b(work);
      a.join();
      b.join();
    }
    done = true;
  });
  uint64_t before = 0;
  bool last = false;
  while (!last) {
    last = done.load();
    uint64_t now = 0;
    for (const auto& [key, sums] : node.threads().CollectAccounts()) now += sums.calls;
    ASSERT_GE(now, before);
    before = now;
  }
  starter.join();
  EXPECT_EQ(before, kThreads * kCalls);
}

}  // namespace
}  // namespace abacus::runtime
