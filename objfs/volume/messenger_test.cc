#include "objfs/volume/messenger.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using Kind = CallbackTable::Action::Kind;
using runtime::MutexLock;
using ::testing::ElementsAre;

// A client that fails as often as it is told to.
class Listener {
 public:
  absl::Status Hear(const Messenger::Action& action) {
    MutexLock lock(mutex_);
    if (failures_ > 0) {
      --failures_;
      return absl::UnavailableError("not now");
    }
    heard_.push_back(action.id);
    return absl::OkStatus();
  }
  void Obeyed(const Messenger::Action& action) {
    MutexLock lock(mutex_);
    obeyed_.push_back(action.id);
  }
  void FailNext(int times) {
    MutexLock lock(mutex_);
    failures_ = times;
  }
  std::vector<ObjectId> heard() {
    MutexLock lock(mutex_);
    return heard_;
  }
  std::vector<ObjectId> obeyed() {
    MutexLock lock(mutex_);
    return obeyed_;
  }

 private:
  runtime::Mutex mutex_;
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ObjectId> heard_ ABSL_GUARDED_BY(mutex_), obeyed_ ABSL_GUARDED_BY(mutex_);
};

TEST(MessengerTest, TellsInOrderAndBreaksUntilTheyAreObeyed) {
  Listener listener;
  listener.FailNext(2);
  Messenger messenger([&](const Messenger::Action& action) { return listener.Hear(action); },
                      [&](const Messenger::Action& action) { listener.Obeyed(action); });
  messenger.Post({Kind::kRecall, 1, 10, {}});
  messenger.Post({Kind::kWake, 1, 11, {}});
  messenger.Post({Kind::kInvalidate, 1, 12, {}});
  ASSERT_TRUE(runtime::testing::Eventually([&] { return listener.obeyed().size() == 2; }));
  EXPECT_THAT(listener.heard(), ElementsAre(10, 11, 12));
  EXPECT_THAT(listener.obeyed(), ElementsAre(10, 12)) << "who is woken obeys nothing";
}

TEST(MessengerTest, AWakeUpThatFailsIsNotTriedAgain) {
  Listener listener;
  listener.FailNext(1);
  Messenger messenger([&](const Messenger::Action& action) { return listener.Hear(action); },
                      [&](const Messenger::Action& action) { listener.Obeyed(action); });
  messenger.Post({Kind::kWake, 1, 10, {}});
  messenger.Post({Kind::kRecall, 1, 11, {}});
  ASSERT_TRUE(runtime::testing::Eventually([&] { return !listener.obeyed().empty(); }));
  EXPECT_THAT(listener.heard(), ElementsAre(11));
}

TEST(MessengerTest, WhatNeverSucceedsEndsWithTheMessenger) {
  Listener listener;
  listener.FailNext(1 << 30);
  Messenger messenger([&](const Messenger::Action& action) { return listener.Hear(action); },
                      [&](const Messenger::Action& action) { listener.Obeyed(action); });
  messenger.Post({Kind::kRecall, 1, 10, {}});
  EXPECT_FALSE(messenger.ended());
  messenger.Stop();
  EXPECT_TRUE(runtime::testing::Eventually([&] { return messenger.ended(); }));
  messenger.Post({Kind::kRecall, 1, 11, {}});
  EXPECT_THAT(listener.obeyed(), ElementsAre());
}

}  // namespace
}  // namespace abacus::objfs
