// What links are measured by: which calls CallObserver is told of.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "runtime/base/mutex.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

// Takes what it is given.
class Taker : public MobileObject {
 public:
  absl::StatusOr<uint64_t> Take(Block block) { return block.size(); }
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Taker, "test.Taker", 1, Take)
};

class LargeCalls final : public CallObserver {
 public:
  void OnRemoteCall(NodeInstance, uint64_t request_bytes, uint64_t, uint64_t network_ns,
                    uint64_t) override {
    if (request_bytes < 8'000) return;
    ++calls;
    longest_ns = std::max(longest_ns.load(), network_ns);
  }
  std::atomic<int> calls = 0;
  std::atomic<uint64_t> longest_ns = 0;
};

// 64 KiB take 13 ms at 40 Mbit/s, for which the transport keeps the sender: no pause of the caller,
// and the best evidence of the link that there is.
TEST(CallObserverTest, ARequestThatTakesLongToSendTellsOfItsLink) {
  ClusterOptions options;
  options.nodes = 2;
  options.rate_limit_mbit = 40;
  options.types = [](size_t, TestPoints&, ObjectTypes& types) { types.Add<Taker>(); };
  LargeCalls seen;
  Cluster cluster(options);
  cluster[0].binding().set_call_observer(&seen);
  const Ref<Taker> made = cluster.Create<Taker>(1);
  {
    const Ref<Taker> far = cluster[0].RefTo<Taker>(made.rid());
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(far->Take(MakeBytes(64 * 1024, 1)).ok());
  }
  cluster[0].binding().Stop();
  // The first may pass at once; of the others a busy machine may stop the thread at the wrong
  // moment.
  EXPECT_GE(seen.calls, 1);
  EXPECT_GT(seen.longest_ns, 6'000'000u) << "the sending is part of the way";
}

}  // namespace
}  // namespace abacus::runtime::testing
