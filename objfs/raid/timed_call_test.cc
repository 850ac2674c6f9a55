#include "objfs/raid/timed_call.h"

#include <cstddef>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using runtime::testing::Cluster;
using runtime::testing::ClusterOptions;
using runtime::testing::Rendezvous;

ClusterOptions TwoNodes() {
  ClusterOptions options;
  options.nodes = 2;
  options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<Rendezvous>();
  };
  return options;
}

TEST(TimedCallTest, WhatIsNotAnsweredInTimeIsGivenUpAndGoesOnThere) {
  Cluster cluster(TwoNodes());
  const Ref<Rendezvous> there = cluster.Create<Rendezvous>(1);
  const Ref<Rendezvous> far = cluster[0].RefTo<Rendezvous>(there.rid());
  Alarm alarm;
  // It waits inside for a second one.
  EXPECT_FALSE(
      CallWithin<&Rendezvous::Meet>(alarm, absl::Milliseconds(20), far.base(), 2u).has_value());
  const auto met = CallWithin<&Rendezvous::Meet>(alarm, absl::Seconds(60), far.base(), 2u);
  ASSERT_TRUE(met.has_value());
  ASSERT_TRUE(met->ok()) << met->status();
  EXPECT_TRUE(**met);
}

}  // namespace
}  // namespace abacus::objfs
