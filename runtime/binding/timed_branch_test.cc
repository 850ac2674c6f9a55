#include "runtime/object/timed_branch.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

using Meeting = TimedBranch<&Rendezvous::Meet>;

class TimedBranchTest : public ::testing::Test {
 protected:
  TimedBranchTest() : cluster_(Options()) { there_ = cluster_.Create<Rendezvous>(1); }
  static ClusterOptions Options() {
    ClusterOptions options;
    options.nodes = 2;
    options.types = [](size_t, TestPoints&, ObjectTypes& types) { types.Add<Rendezvous>(); };
    return options;
  }
  Ref<Rendezvous> From(size_t node) { return cluster_[node].RefTo<Rendezvous>(there_.rid()); }

  Cluster cluster_;
  Ref<Rendezvous> there_;
};

TEST_F(TimedBranchTest, AWaitEndsWhenItIsInterruptedAndGoesOnWhenItIsBegunAgain) {
  const Ref<Rendezvous> far = From(0);
  Meeting first(far.base(), 2u);  // waits inside for the second one
  for (int i = 0; i < 3; ++i) {
    std::thread other([&] { first.Interrupt(); });
    EXPECT_FALSE(first.Wait());
    EXPECT_FALSE(first.Answered());
    other.join();
  }
  Meeting second(far.base(), 2u);
  while (!second.Wait()) {
  }
  while (!first.Wait()) {
  }
  EXPECT_TRUE(first.Answered() && second.Answered());
  for (Meeting* each : {&first, &second}) {
    const auto met = each->Join();
    ASSERT_TRUE(met.ok()) << met.status();
    EXPECT_TRUE(*met);
  }
}

TEST_F(TimedBranchTest, JoinWaitsForWhatNobodyWaitedForAndAfterAnInterruption) {
  const Ref<Rendezvous> far = From(0);
  Meeting first(far.base(), 2u);
  first.Interrupt();
  EXPECT_FALSE(first.Wait());
  first.Interrupt();
  Meeting second(far.base(), 2u);
  EXPECT_TRUE(*first.Join());
  EXPECT_TRUE(*second.Join());
}

TEST_F(TimedBranchTest, OneThatIsDroppedIsAbandonedAndHarmsNothing) {
  const Ref<Rendezvous> far = From(0);
  {
    Meeting dropped(far.base(), 2u);
    dropped.Interrupt();
    EXPECT_FALSE(dropped.Wait());
  }
  // It is inside still, and its answer comes to nobody.
  EXPECT_TRUE(*far->Meet(2));
  EXPECT_TRUE(*far->Meet(1));
}

TEST_F(TimedBranchTest, OneToAnObjectHereRunsWhenItIsJoined) {
  const Ref<Rendezvous> near = From(1);
  Meeting branch(near.base(), 1u);
  EXPECT_TRUE(branch.Answered());
  EXPECT_TRUE(branch.Wait());
  branch.Interrupt();
  EXPECT_TRUE(*branch.Join());
}

}  // namespace
}  // namespace abacus::runtime::testing
