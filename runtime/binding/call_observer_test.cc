// What links are measured by: which calls CallObserver is told of.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "absl/time/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/object/timed_branch.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

// Takes what it is given, and gives.
class Taker : public MobileObject {
 public:
  absl::StatusOr<uint64_t> Take(Block block) { return block.size(); }
  absl::StatusOr<Block> Give(uint64_t bytes) { return MakeBytes(bytes, 1); }
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Taker, "test.Taker", 1, Take, Give)
};

class LargeCalls final : public CallObserver {
 public:
  void OnRemoteCall(NodeInstance, uint64_t request_bytes, uint64_t reply_bytes, uint64_t network_ns,
                    uint64_t) override {
    if (request_bytes + reply_bytes < 8'000) return;
    ++calls;
    longest_ns = std::max(longest_ns.load(), network_ns);
  }
  std::atomic<int> calls = 0;
  std::atomic<uint64_t> longest_ns = 0;
};

// An object at the other end of a link of 40 Mbit/s, and what is told of large calls of it.
class CallObserverTest : public ::testing::Test {
 protected:
  CallObserverTest() {
    ClusterOptions options;
    options.nodes = 2;
    options.rate_limit_mbit = 40;
    options.types = [](size_t, TestPoints&, ObjectTypes& types) { types.Add<Taker>(); };
    cluster_ = std::make_unique<Cluster>(options);
    (*cluster_)[0].binding().set_call_observer(&seen_);
    made_ = cluster_->Create<Taker>(1);
  }
  Ref<Taker> Far() { return (*cluster_)[0].RefTo<Taker>(made_.rid()); }
  // After it nobody calls the observer any more.
  void Stop() { (*cluster_)[0].binding().Stop(); }

  LargeCalls seen_;
  std::unique_ptr<Cluster> cluster_;
  Ref<Taker> made_;
};

// 64 KiB take 13 ms at 40 Mbit/s, for which the transport keeps the sender: no pause of the caller,
// and the best evidence of the link that there is.
TEST_F(CallObserverTest, ARequestThatTakesLongToSendTellsOfItsLink) {
  {
    const Ref<Taker> far = Far();
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(far->Take(MakeBytes(64 * 1024, 1)).ok());
  }
  Stop();
  // The first may pass at once; of the others a busy machine may stop the thread at the wrong
  // moment.
  EXPECT_GE(seen_.calls, 1);
  EXPECT_GT(seen_.longest_ns, 6'000'000u) << "the sending is part of the way";
}

// A hedged read waits before it is joined. Where that is known of no link, nobody decides about a
// file that is read so.
TEST_F(CallObserverTest, ABranchThatIsWaitedForTellsOfItsLinkAndOneThatIsLeftDoesNot) {
  {
    const Ref<Taker> far = Far();
    for (int i = 0; i < 10; ++i) {
      TimedBranch<&Taker::Give> left(far.base(), uint64_t{64 * 1024});
      const absl::Time busy_until = absl::Now() + absl::Milliseconds(3);
      while (absl::Now() < busy_until) {  // its thread does something else
      }
      while (!left.Wait()) {
      }
      ASSERT_TRUE(left.Join().ok());
    }
    EXPECT_EQ(seen_.calls, 0);
    for (int i = 0; i < 10; ++i) {
      TimedBranch<&Taker::Give> branch(far.base(), uint64_t{64 * 1024});
      branch.Interrupt();  // as an alarm does; the wait goes on
      while (!branch.Wait()) {
      }
      ASSERT_TRUE(branch.Join().ok());
    }
  }
  Stop();
  EXPECT_GE(seen_.calls, 1);
  EXPECT_GT(seen_.longest_ns, 6'000'000u) << "the wait before it was joined is part of the way";
}

}  // namespace
}  // namespace abacus::runtime::testing
