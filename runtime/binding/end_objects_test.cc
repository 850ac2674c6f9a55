// How a node's objects end: those that keep threads, which call through what the node is made of,
// and those that somebody is inside of.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

#include "runtime/binding/binding_manager.h"
#include "runtime/testing/cluster.h"
#include "runtime/transport/no_transport.h"

namespace abacus::runtime::testing {
namespace {

// The part that the core's actions are given to; it goes before the binding manager does.
class GoneSoon : public MigrationHook {
 public:
  void OnFrame(NodeInstance, const Frame&, Nanos, Actions&) override {}
  void OnPeerDead(NodeInstance, Nanos, Actions&) override {}
  void Tick(Nanos, Actions&) override {}
  void Perform(Actions&) override { ++(gone_ ? performed_when_gone_ : performed_); }

  void Go() { gone_ = true; }
  uint64_t performed() const { return performed_; }
  uint64_t performed_when_gone() const { return performed_when_gone_; }

 private:
  std::atomic<bool> gone_{false};
  std::atomic<uint64_t> performed_{0}, performed_when_gone_{0};
};

struct Seen {
  std::atomic<int> alive{0};
  std::atomic<int> inside{0};
  std::atomic<bool> let_go{false};
  std::atomic<bool> ended_with_somebody_inside{false};
};

class Room : public AnchoredObject {
 public:
  explicit Room(Seen* seen) : seen_(*seen) { ++seen_.alive; }
  ~Room() override {
    if (seen_.inside != 0) seen_.ended_with_somebody_inside = true;
    --seen_.alive;
  }
  absl::Status Touch() { return absl::OkStatus(); }
  // Stays until it is let go.
  absl::Status Stay() {
    ++seen_.inside;
    while (!seen_.let_go) std::this_thread::yield();
    --seen_.inside;
    return absl::OkStatus();
  }
  ABACUS_OBJECT(Room, "test.Room", 1, Touch, Stay)

 private:
  Seen& seen_;
};

// Keeps a thread that calls what is on no node that is known, and the room, until it is joined.
class Restless : public AnchoredObject {
 public:
  Restless(Seen* seen, Ref<Room> room, Ref<Room> nowhere)
      : seen_(*seen), room_(std::move(room)), nowhere_(std::move(nowhere)) {
    ++seen_.alive;
    thread_ = std::thread([this] {
      while (!stop_) {
        (void)room_->Touch();
        (void)nowhere_->Touch();
      }
    });
  }
  ~Restless() override {
    stop_ = true;
    thread_.join();
    --seen_.alive;
  }
  absl::Status Rest() { return absl::OkStatus(); }
  ABACUS_OBJECT(Restless, "test.Restless", 1, Rest)

 private:
  Seen& seen_;
  std::atomic<bool> stop_{false};
  const Ref<Room> room_, nowhere_;
  std::thread thread_;
};

class EndObjectsTest : public ::testing::Test {
 protected:
  EndObjectsTest() {
    types_.Add<Room>().Add<Restless>();
    binding_ = std::make_unique<BindingManager>(NodeInstance{1, 1}, BindingOptions{}, types_,
                                                &transport_, nullptr);
    binding_->set_migration_hook(&hook_);
    binding_->Start();
  }

  Seen seen_;
  GoneSoon hook_;
  ObjectTypes types_;
  NoTransport transport_;
  std::unique_ptr<BindingManager> binding_;
};

TEST_F(EndObjectsTest, WhatTheirThreadsCallThroughIsThereUntilTheyHaveEnded) {
  {
    const Ref<Room> room = binding_->Adopt(std::make_unique<Room>(&seen_));
    // Of this node, and not here: the call fails, and is the core's to fail.
    const Ref<Room> nowhere = binding_->RefTo<Room>(Rid{{1, 1}, 1'000'000});
    binding_->Adopt(std::make_unique<Restless>(&seen_, room, nowhere));
  }
  ASSERT_TRUE(Eventually([&] { return hook_.performed() > 100; }));
  binding_->Stop();
  binding_->EndObjects();
  EXPECT_EQ(seen_.alive, 0);
  hook_.Go();
  binding_.reset();
  EXPECT_EQ(hook_.performed_when_gone(), 0u);
}

TEST_F(EndObjectsTest, NoneEndsWhileSomebodyIsInside) {
  Ref<Room> room = binding_->Adopt(std::make_unique<Room>(&seen_));
  std::thread guest([room] { EXPECT_TRUE(room->Stay().ok()); });
  ASSERT_TRUE(Eventually([&] { return seen_.inside == 1; }));
  binding_->Stop();
  std::thread end([&] { binding_->EndObjects(); });
  // From here on nobody gets in, and the guest is still inside.
  ASSERT_TRUE(Eventually([&] { return !room->Touch().ok(); }));
  seen_.let_go = true;
  guest.join();
  end.join();
  EXPECT_FALSE(seen_.ended_with_somebody_inside);
  EXPECT_EQ(seen_.alive, 0);
  room = {};
}

}  // namespace
}  // namespace abacus::runtime::testing
