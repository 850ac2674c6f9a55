#include "runtime/node/digest_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "runtime/testing/cluster.h"

namespace abacus::runtime {
namespace {

using testing::Eventually;

Digest Of(double window_s) { return {.from = {3, 1}, .window_s = window_s}; }

// What arrived where; the server "hangs" answers when it is let go.
class DigestSenderTest : public ::testing::Test {
 protected:
  ~DigestSenderTest() override { LetGo(); }
  void LetGo() {
    MutexLock lock(mutex_);
    let_go_ = true;
    changed_.SignalAll();
  }
  absl::Status Take(const std::string& address, const Digest& digest) {
    if (address == "refuses") return absl::UnavailableError("no");
    MutexLock lock(mutex_);
    arrived_[address].push_back(digest.window_s);
    while (address == "hangs" && !let_go_) changed_.Wait(mutex_);
    return absl::OkStatus();
  }
  std::vector<double> At(const std::string& address) {
    MutexLock lock(mutex_);
    return arrived_[address];
  }
  double SumAt(const std::string& address) {
    double sum = 0;
    for (const double window_s : At(address)) sum += window_s;
    return sum;
  }

  Mutex mutex_;
  CondVar changed_;
  bool let_go_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::vector<double>> arrived_ ABSL_GUARDED_BY(mutex_);
  DigestSender sender_{
      [this](const std::string& address, const Digest& digest) { return Take(address, digest); }};
};

TEST_F(DigestSenderTest, AServerThatHangsHoldsUpNeitherTheSenderNorOtherServers) {
  sender_.Post({"hangs", "well"}, Of(1));
  ASSERT_TRUE(Eventually([&] { return At("hangs").size() == 1; }));
  for (int i = 0; i < 5; ++i) {
    sender_.Post({"hangs", "well"}, Of(1));
    ASSERT_TRUE(Eventually([&] { return SumAt("well") == i + 2; }));
  }
  EXPECT_EQ(At("hangs").size(), 1u) << "one is under way";
  LetGo();
  ASSERT_TRUE(Eventually([&] { return At("hangs").size() == 2; }));
  EXPECT_EQ(At("hangs")[1], 5) << "the five that came meanwhile are one";
}

TEST_F(DigestSenderTest, WhatDoesNotArriveIsCountedAndTheNextIsTried) {
  sender_.Post({"refuses"}, Of(1));
  ASSERT_TRUE(Eventually([&] { return sender_.not_sent() == 1; }));
  sender_.Post({"refuses"}, Of(1));
  ASSERT_TRUE(Eventually([&] { return sender_.not_sent() == 2; }));
  EXPECT_EQ(sender_.sent(), 0u);
}

TEST_F(DigestSenderTest, AServerThatComesBackIsSentToAgain) {
  sender_.Post({"one"}, Of(1));
  ASSERT_TRUE(Eventually([&] { return SumAt("one") == 1; }));
  sender_.Post({"other"}, Of(2));
  ASSERT_TRUE(Eventually([&] { return SumAt("other") == 2; }));
  // Whether its thread has ended by now or not.
  ASSERT_TRUE(Eventually([&] {
    sender_.Post({"one"}, Of(4));
    return SumAt("one") >= 5;
  }));
}

TEST_F(DigestSenderTest, AfterAStopNothingIsSent) {
  sender_.Stop();
  sender_.Post({"one"}, Of(1));
  sender_.Stop();
  EXPECT_EQ(sender_.sent() + sender_.not_sent(), 0u);
}

}  // namespace
}  // namespace abacus::runtime
