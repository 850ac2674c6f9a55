#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {
namespace {

bool Readable(int fd, int timeout_ms) {
  pollfd poll_fd{fd, POLLIN, 0};
  return poll(&poll_fd, 1, timeout_ms) == 1;
}

TEST(WaiterTest, SleepReturnsFalseAtItsTimeout) {
  Waiter waiter;
  EXPECT_FALSE(waiter.Sleep(absl::Milliseconds(1)));
  EXPECT_FALSE(waiter.done());
}

TEST(WaiterTest, SleepAfterCompleteOrNudgeReturnsAtOnce) {
  Waiter nudged;
  nudged.Nudge();
  EXPECT_TRUE(nudged.Sleep(absl::InfiniteDuration()));
  EXPECT_FALSE(nudged.done());
  EXPECT_FALSE(nudged.Sleep(absl::Milliseconds(1)));  // one nudge is good for one sleep

  Waiter completed;
  completed.Complete();
  EXPECT_TRUE(completed.done());
  EXPECT_TRUE(completed.Sleep(absl::InfiniteDuration()));
  completed.Nudge();
  EXPECT_TRUE(completed.done());
}

TEST(WaiterTest, CompleteWakesTheSleeperAndShowsWhatWasWritten) {
  for (int i = 0; i < 2000; ++i) {
    auto waiter = std::make_unique<Waiter>();
    int result = 0;
    std::thread other([w = waiter.get(), &result, i] {
      result = i;
      w->Complete();
    });
    while (!waiter->done()) waiter->Sleep(absl::InfiniteDuration());
    EXPECT_EQ(result, i);
    waiter = nullptr;  // gone, perhaps before Complete() returns
    other.join();
  }
}

TEST(WaiterTest, NudgeWakesTheSleeper) {
  Waiter waiter;
  std::thread other([&waiter] { waiter.Nudge(); });
  EXPECT_TRUE(waiter.Sleep(absl::InfiniteDuration()));
  other.join();
  EXPECT_FALSE(waiter.done());
}

TEST(WaiterTest, CompleteEndsAPollAndLeavesTheDescriptorUnreadable) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  for (int i = 0; i < 2000; ++i) {
    auto waiter = std::make_unique<Waiter>();
    std::thread other([w = waiter.get()] { w->Complete(); });
    while (!waiter->done()) {
      if (!waiter->BeginPoll(fd)) break;
      EXPECT_TRUE(Readable(fd, -1));
      waiter->EndPoll(fd);
    }
    waiter = nullptr;
    EXPECT_FALSE(Readable(fd, 0));
    other.join();
  }
  close(fd);
}

TEST(WaiterTest, PollThatEndsByItselfLeavesTheWaiterAsItWas) {
  const int fd = eventfd(0, EFD_CLOEXEC);
  Waiter waiter;
  EXPECT_TRUE(waiter.BeginPoll(fd));
  waiter.Nudge();  // to a thread that reads, a nudge to read says nothing
  waiter.EndPoll(fd);
  EXPECT_FALSE(waiter.Sleep(absl::Milliseconds(1)));
  waiter.Complete();
  EXPECT_FALSE(waiter.BeginPoll(fd));
  close(fd);
}

}  // namespace
}  // namespace abacus::runtime
