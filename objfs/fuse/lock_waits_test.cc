#include "objfs/fuse/lock_waits.h"

#include <atomic>
#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fuse/testing/mock_file_system.h"

namespace abacus::objfs::fuse {
namespace {

class LockWaitsTest : public ::testing::Test {
 protected:
  ::testing::NiceMock<MockFileSystem> files_;
  LockWaits waits_{files_};
};

TEST_F(LockWaitsTest, PauseWaitsForTheAnswerUnderWayAndHoldsThoseThatFollow) {
  std::promise<void> begun, go_on;
  std::atomic<int> answered{0};
  waits_.Answer([&] {
    begun.set_value();
    go_on.get_future().wait();
    ++answered;
  });
  begun.get_future().wait();
  waits_.Answer([&] { answered += 10; });
  int seen_by_pauser = -1;
  std::promise<void> pausing;
  std::thread pauser([&] {
    pausing.set_value();
    waits_.Pause();
    seen_by_pauser = answered;
  });
  pausing.get_future().wait();
  go_on.set_value();
  pauser.join();
  // The second may have come before the pause, but neither is under way, and the first is done.
  EXPECT_THAT(seen_by_pauser, ::testing::AnyOf(1, 11));
  const int before = answered;
  std::promise<void> third;
  waits_.Answer([&] {
    answered += 100;
    third.set_value();
  });
  auto told = third.get_future();
  EXPECT_EQ(answered, before);
  waits_.Pause();  // again: nothing changes
  EXPECT_EQ(answered, before);
  waits_.Resume();
  told.wait();
  EXPECT_EQ(answered, 111);
}

TEST_F(LockWaitsTest, CancelAllReturnsWhenAllIsAnswered) {
  constexpr uint64_t kTicket = 7;
  std::atomic<bool> answered{false};
  EXPECT_CALL(files_, CancelLock(kTicket)).WillOnce([&](uint64_t) {
    waits_.Answer([&] {
      answered = true;
      waits_.Remove(kTicket);
    });
  });
  waits_.Add(kTicket);
  waits_.Pause();
  waits_.Resume();
  waits_.CancelAll();
  EXPECT_TRUE(answered);
}

TEST_F(LockWaitsTest, EndsThoughItIsPausedAndGivesWhatItHolds) {
  std::atomic<int> answered{0};
  {
    LockWaits waits(files_);
    waits.Pause();
    waits.Answer([&] { ++answered; });
  }
  EXPECT_EQ(answered, 1);
}

}  // namespace
}  // namespace abacus::objfs::fuse
