#include "runtime/resource/digest_window.h"

#include <gtest/gtest.h>

namespace abacus::runtime {
namespace {

constexpr NodeInstance kNode{3, 1};
constexpr placement::ObjectId kUpper{3, 1, 1};
constexpr placement::ObjectId kLower{3, 1, 2};

Digest Part(double window_s, double amount) {
  Digest digest{.from = kNode, .window_s = window_s};
  digest.node.load = amount;
  digest.objects = {{.id = kUpper,
                     .cpu_s = amount,
                     .cpu_s_variance = amount,
                     .background_cpu_s = amount,
                     .bytes_processed = amount,
                     .own_stall_s = amount,
                     .disk_s = amount,
                     .ready_s = amount,
                     .stall_s = amount,
                     .calls = amount,
                     .threads_s = amount,
                     .busy_s = amount,
                     .voluntary_switches = amount,
                     .involuntary_switches = amount,
                     .io_bytes = amount,
                     .io_requests = amount,
                     .io_s = amount,
                     .memory_bytes = static_cast<uint64_t>(amount)}};
  digest.edges = {{.from = kUpper,
                   .to = kLower,
                   .calls = amount,
                   .request_bytes = amount,
                   .reply_bytes = amount,
                   .bytes_variance = amount}};
  return digest;
}

TEST(DigestWindowTest, TimesAddUpAndStatesAreTheLatest) {
  Digest sum = Part(0.5, 1);
  Append(sum, Part(0.25, 2));
  EXPECT_EQ(sum.window_s, 0.75);
  EXPECT_EQ(sum.node.load, 2);
  ASSERT_EQ(sum.objects.size(), 1u);
  const auto& object = sum.objects[0];
  for (const double figure :
       {object.cpu_s, object.cpu_s_variance, object.background_cpu_s, object.bytes_processed,
        object.own_stall_s, object.disk_s, object.ready_s, object.stall_s, object.calls,
        object.threads_s, object.busy_s, object.voluntary_switches, object.involuntary_switches,
        object.io_bytes, object.io_requests, object.io_s}) {
    EXPECT_EQ(figure, 3);
  }
  EXPECT_EQ(object.memory_bytes, 2u);
  ASSERT_EQ(sum.edges.size(), 1u);
  const auto& edge = sum.edges[0];
  for (const double figure :
       {edge.calls, edge.request_bytes, edge.reply_bytes, edge.bytes_variance}) {
    EXPECT_EQ(figure, 3);
  }
}

TEST(DigestWindowTest, WhatDidNothingInTheLaterPartIsNotForgotten) {
  Digest sum = Part(0.5, 1);
  Digest later = Part(0.5, 2);
  later.objects[0].id = kLower;
  later.edges[0] = {.from = kLower, .to = kUpper, .calls = 5};
  Append(sum, later);
  EXPECT_EQ(sum.objects.size(), 2u);
  EXPECT_EQ(sum.edges.size(), 2u);
}

TEST(DigestWindowTest, ADigestOfNoTimeBeginsAnew) {
  Digest sum = Part(0.5, 1);
  Append(sum, Part(0, 2));
  EXPECT_EQ(sum.window_s, 0);
  Append(sum, Part(0.25, 4));
  EXPECT_EQ(sum.window_s, 0.25);
}

TEST(DigestWindowTest, OfObjectsThatBeginAnewNothingFromBeforeCountsAndOfOthersAllDoes) {
  Digest sum = Part(0.5, 1);
  sum.objects.push_back({.id = kLower, .calls = 3});
  sum.edges.push_back({.from = kUpper, .to = kUpper, .calls = 2});
  Digest later{.from = kNode, .window_s = 0.25, .begin_anew = {ToRid(kLower)}};
  Append(sum, later);
  EXPECT_EQ(sum.window_s, 0.75);
  EXPECT_EQ(sum.begin_anew, std::vector<Rid>{ToRid(kLower)});
  ASSERT_EQ(sum.objects.size(), 1u);
  EXPECT_EQ(sum.objects[0].id, kUpper);
  EXPECT_EQ(sum.objects[0].calls, 1);
  ASSERT_EQ(sum.edges.size(), 1u) << "the edge to the object that moved is of two placements";
  EXPECT_EQ(sum.edges[0].calls, 2);
  Append(sum, Part(0.25, 1));
  EXPECT_EQ(sum.begin_anew, std::vector<Rid>{ToRid(kLower)}) << "it has not been whole since";
}

TEST(DigestWindowTest, TheWindowForgetsWhatIsOlderThanItselfAndHalfOfItself) {
  DigestWindow window;
  EXPECT_FALSE(window.Sum().from.valid());
  const absl::Time begin = absl::FromUnixSeconds(1000);
  for (int i = 1; i <= 30; ++i) {
    window.Add(Part(0.1, i <= 15 ? 100 : 1), begin + i * absl::Milliseconds(100), absl::Seconds(1));
  }
  const double window_s = window.Sum().window_s;
  EXPECT_GE(window_s, 1 - 1e-9);
  EXPECT_LE(window_s, 1.5 + 1e-9);
  EXPECT_NEAR(window.Sum().objects[0].cpu_s, 10 * window_s, 1e-9);
}

}  // namespace
}  // namespace abacus::runtime
