// The gate apart: co-located calls that enter and leave with plain stores, against somebody who
// closes, waits until nobody is inside, and opens again. The test takes the migrator's part.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/binding/binding_manager.h"
#include "runtime/testing/cluster.h"
#include "runtime/transport/no_transport.h"

namespace abacus::runtime::testing {
namespace {

// What the gate protects: plain memory, which only the gate orders. A thread that is inside while
// it is written sees halves, and a sanitizer sees a race.
struct Protected {
  bool quiesced = false;
  uint64_t left = 0;
  uint64_t right = 0;
};

class Cell : public AnchoredObject {
 public:
  explicit Cell(const Protected* state) : state_(*state) {}

  absl::Status Touch() { return Look(); }
  // Enters another object and comes back through this one.
  absl::Status TouchThrough(Ref<Cell> other, uint32_t depth) {
    ABACUS_RETURN_IF_ERROR(Look());
    if (depth > 0) ABACUS_RETURN_IF_ERROR(other->TouchThrough(SelfRef<Cell>(), depth - 1));
    return Look();
  }
  ABACUS_OBJECT(Cell, "test.Cell", 1, Touch, TouchThrough)

  absl::Status Look() const {
    if (state_.quiesced) return absl::InternalError("inside although nobody was");
    if (state_.left != state_.right) return absl::InternalError("inside while it was changed");
    return absl::OkStatus();
  }

 private:
  const volatile Protected& state_;
};

// Closes, drains and opens a set of objects, as the migrator does.
class Closer : public MigrationHook {
 public:
  Closer(BindingManager* binding, std::vector<Rid> rids)
      : binding_(*binding), rids_(std::move(rids)) {
    set_.id = {binding_.self(), 1};
    set_.lowest = rids_.front();
    binding_.set_migration_hook(this);
  }

  void OnFrame(NodeInstance, const Frame&, Nanos, Actions&) override {}
  void OnPeerDead(NodeInstance, Nanos, Actions&) override {}
  void Tick(Nanos, Actions&) override {}
  void Perform(Actions& actions) override {
    if (actions.check_drained.empty()) return;
    MutexLock lock(mutex_);
    ++checks_wanted_;
    changed_.SignalAll();
  }

  // Returns false where the set did not drain.
  bool CloseAndDrain() {
    std::vector<Entry*> entries;
    uint64_t seen = 0;
    binding_.WithCore([&](auto& core, Nanos, Actions& out) {
      {
        MutexLock lock(mutex_);
        seen = checks_wanted_;
      }
      for (const Rid& rid : rids_) {
        ObjectState* object = core.Find(rid);
        object->phase = ObjectPhase::kQuiescing;
        object->moving = &set_;
        core.environment().SetGate(*object, Gate::kClosed);
        set_.members.push_back(object);
        entries.push_back(static_cast<Entry*>(object->host));
      }
      out.check_drained.push_back(set_.id);
    });
    for (bool first = true; AwaitCheck(&seen); first = false) {
      const bool idle = binding_.NobodyInside(entries, first);
      waits_ += !idle;
      const bool drained = idle && binding_.WithCore([&](auto&, Nanos, Actions&) {
        for (ObjectState* object : set_.members) {
          if (!object->inside.empty()) return false;
        }
        for (ObjectState* object : set_.members) object->phase = ObjectPhase::kQuiesced;
        return true;
      });
      if (drained) return true;
    }
    return false;
  }
  void Open() {
    binding_.WithCore([&](auto& core, Nanos now, Actions& out) {
      for (ObjectState* object : std::exchange(set_.members, {})) core.Open(*object, now, out);
    });
  }
  // How often somebody was inside when the closer looked.
  uint64_t waits() const { return waits_; }

 private:
  // Waits for a reason to look that has come after `seen`.
  bool AwaitCheck(uint64_t* seen) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    MutexLock lock(mutex_);
    while (checks_wanted_ == *seen) {
      if (std::chrono::steady_clock::now() >= deadline) return false;  // a wake-up was lost
      changed_.WaitUntil(mutex_, deadline);
    }
    *seen = checks_wanted_;
    return true;
  }

  BindingManager& binding_;
  const std::vector<Rid> rids_;
  MovingSet set_;
  Mutex mutex_;  // after the core's
  CondVar changed_;
  uint64_t checks_wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t waits_ = 0;
};

class GateTest : public ::testing::TestWithParam<bool> {
 protected:
  GateTest() {
    types_.Add<Cell>();
    binding_.set_accounting(GetParam());
    cell_ = binding_.Adopt(std::make_unique<Cell>(&state_));
    other_ = binding_.Adopt(std::make_unique<Cell>(&state_));
    outside_ = binding_.Adopt(std::make_unique<Cell>(&untouched_));
  }
  ~GateTest() override { binding_.Stop(); }

  // Threads that call until they are stopped; an error ends one.
  template <typename Call>
  void StartCallers(size_t threads, Call call) {
    for (size_t i = 0; i < threads; ++i) {
      callers_.emplace_back([this, call] {
        while (!stop_) {
          const absl::Status status = call();
          if (!status.ok()) {
            ADD_FAILURE() << status;
            return;
          }
          calls_.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
  }
  // The set that is closed and opened. Call once, first.
  void Guard(std::vector<Rid> rids) {
    closer_ = std::make_unique<Closer>(&binding_, std::move(rids));
    binding_.Start();
  }
  void CloseAndOpen(uint64_t rounds) {
    for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
      const uint64_t goal = calls_ + 2;
      while (calls_ < goal && !HasFailure()) std::this_thread::yield();
      ASSERT_TRUE(closer_->CloseAndDrain()) << "round " << round << ": a wake-up was lost";
      state_.quiesced = true;
      ++state_.left;
      std::this_thread::yield();
      ++state_.right;
      state_.quiesced = false;
      closer_->Open();
    }
  }
  void StopCallers() {
    stop_ = true;
    for (std::thread& caller : callers_) caller.join();
  }

  Protected state_, untouched_;
  ObjectTypes types_;
  NoTransport transport_;
  std::unique_ptr<Closer> closer_;
  BindingManager binding_{NodeInstance{1, 1}, BindingOptions(), types_, &transport_, nullptr};
  Ref<Cell> cell_, other_, outside_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> calls_{0};
  std::vector<std::thread> callers_;
};
INSTANTIATE_TEST_SUITE_P(Accounting, GateTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "On" : "Off"; });

constexpr uint64_t kRounds = kSanitized ? 100 : 500;

TEST_P(GateTest, NobodyIsInsideAfterADrainAndNoWakeUpIsLost) {
  Guard({cell_.rid()});
  StartCallers(2, [this] { return cell_->Touch(); });
  CloseAndOpen(kRounds);
  StopCallers();
  EXPECT_GE(calls_, 2 * kRounds);
}

TEST_P(GateTest, NestedCallsAndCallBacksDrainAsOneSet) {
  Guard({cell_.rid(), other_.rid()});
  StartCallers(1, [this] { return cell_->TouchThrough(other_, 3); });
  StartCallers(1, [this] { return outside_->TouchThrough(cell_, 1); });
  CloseAndOpen(kRounds);
  StopCallers();
  EXPECT_GT(closer_->waits(), 0u) << "never was anybody inside: it tells nothing";
}

TEST_P(GateTest, ThreadsThatComeAndGoAreSeenToo) {
  Guard({cell_.rid()});
  StartCallers(2, [this] {
    absl::Status status;
    std::thread([&] {
      for (int i = 0; i < 20 && status.ok(); ++i) status = cell_->Touch();
    }).join();
    return status;
  });
  CloseAndOpen(kRounds / 10);
  StopCallers();
}

TEST_P(GateTest, ClosedGateOfAnIdleObjectDrainsAtOnce) {
  Guard({cell_.rid()});
  ASSERT_TRUE(closer_->CloseAndDrain());
  EXPECT_EQ(closer_->waits(), 0u);
  std::thread late([&] { EXPECT_TRUE(cell_->Touch().ok()); });
  ASSERT_TRUE(Eventually([&] { return binding_.Counters().parked == 1; }));
  closer_->Open();
  late.join();
}

// The narrow place: a thread whose frame is still in its store buffer when it reads the open gate.
// Nothing stands between the closing store and the scan here but the barrier.
using NarrowGateTest = GateTest;
INSTANTIATE_TEST_SUITE_P(Accounting, NarrowGateTest, ::testing::Values(false));

TEST_P(NarrowGateTest, ClosingAtAnyInstantSeesTheThreadThatIsOnItsWayIn) {
  Guard({outside_.rid()});
  Entry* const entry = cell_.base().entry();
  struct alignas(64) Line {
    std::atomic<uint64_t> value{0};
  };
  std::vector<Line> lines(48);
  std::atomic<uint64_t> entered{0};
  std::thread caller([&] {
    ThreadContext& thread = ThreadContext::Of(binding_);
    while (!stop_.load(std::memory_order_relaxed)) {
      // The frame's store queues up behind these, which the other core's cache has to let go first.
      for (auto& line : lines) line.value.store(1, std::memory_order_relaxed);
      if (thread.Push(entry) == Gate::kOpen) {
        const auto& cell = *static_cast<Cell*>(entry->object);
        for (int i = 0; i < 20; ++i) {
          if (const absl::Status status = cell.Look(); !status.ok()) {
            ADD_FAILURE() << status;
            stop_ = true;
            break;
          }
        }
        entered.fetch_add(1, std::memory_order_relaxed);
      }
      thread.Pop(entry);
    }
  });
  uint64_t drained = 0;
  constexpr uint64_t kDrains = kSanitized ? 2'000 : 50'000;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (drained < kDrains && !stop_ && std::chrono::steady_clock::now() < deadline) {
    const uint64_t goal = entered + 1;
    while (entered < goal && !stop_) std::this_thread::yield();
    for (auto& line : lines) line.value.store(2, std::memory_order_relaxed);
    entry->gate.store(Gate::kClosed, std::memory_order_seq_cst);
    if (binding_.NobodyInside({entry}, true)) {
      ++drained;
      state_.quiesced = true;
      ++state_.left;
      ++state_.right;
      state_.quiesced = false;
    }
    entry->gate.store(Gate::kOpen, std::memory_order_seq_cst);
  }
  stop_ = true;
  caller.join();
  EXPECT_GT(drained, 0u);
}

}  // namespace
}  // namespace abacus::runtime::testing
