#include "runtime/resource/resource_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>
#include <vector>

#include "runtime/object/background.h"
#include "runtime/object/mobile_object.h"
#include "runtime/transport/no_transport.h"

namespace abacus::runtime {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class FixedMonitor final : public monitor::Monitor {
 public:
  std::string Source() const override { return "fixed"; }
  std::string Missing() const override { return missing; }
  monitor::MonitorLosses Losses() const override { return losses; }
  absl::StatusOr<monitor::NodeLoad> Load() override {
    if (!unreadable.empty()) return absl::UnavailableError(unreadable);
    rate = next_rate;
    return monitor::NodeLoad{.load = 1,
                             .running = running,
                             .ready = 0.5,
                             .rate_share = rate_share,
                             .source = "fixed",
                             .degraded = degraded};
  }
  void SetWindow(absl::Duration set) override { window = set; }
  double Rate() const override { return rate; }
  double Cores() const override { return 2; }
  absl::StatusOr<monitor::MemoryInfo> Memory() override {
    return monitor::MemoryInfo{.total_bytes = 100, .available_bytes = 60};
  }
  monitor::MonitorSees Sees() const override { return {.switches = true, .block_io = true}; }
  std::vector<monitor::ObjectIo> Io() override { return io; }
  void ForgetObject(uint32_t object) override {
    std::erase_if(io, [object](const auto& of_object) { return of_object.object == object; });
  }

  std::optional<uint64_t> MemoryOf(uint32_t) override { return object_bytes; }

  std::vector<monitor::ObjectIo> io;
  std::string missing;
  std::string degraded;    // of its loads
  std::string unreadable;  // why there is none
  double rate = 0, next_rate = 7;
  double running = 0.25, rate_share = 1;  // of its loads
  absl::Duration window;
  monitor::MonitorLosses losses;
  std::optional<uint64_t> object_bytes;
};

int64_t ThreadCpuUs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

// Computes for a while, by its thread's own clock, and says nothing.
class Worker : public MobileObject {
 public:
  absl::StatusOr<Block> Work(int64_t us, const Ref<Worker>& below, int64_t us_below) {
    const int64_t end = ThreadCpuUs() + us;
    while (ThreadCpuUs() < end) {
    }
    if (below) ABACUS_RETURN_IF_ERROR(below->Work(us_below, Ref<Worker>(), 0).status());
    return Block::Allocate(1000);
  }
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Worker, "test.Worker", 1, Work)
};

class ResourceManagerTest : public ::testing::Test {
 protected:
  ResourceManagerTest() {
    types_.Add<Worker>();
    binding_ = std::make_unique<BindingManager>(NodeInstance{3, 1}, BindingOptions(), types_,
                                                &transport_, nullptr);
    resources_ = std::make_unique<ResourceManager>(binding_.get(), &monitor_,
                                                   ResourceOptions{.node_name = "three"});
  }

  const placement::ObjectStatistics& Of(const Digest& digest, const Rid& rid) {
    for (const auto& object : digest.objects) {
      if (object.id == ToObjectId(rid)) return object;
    }
    ADD_FAILURE() << "not in the digest: " << rid.ToString();
    static const placement::ObjectStatistics kNone;
    return kNone;
  }

  ObjectTypes types_;
  NoTransport transport_;
  FixedMonitor monitor_;
  std::unique_ptr<BindingManager> binding_;
  std::unique_ptr<ResourceManager> resources_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

// 2 ms in the upper object and 40 ms in the lower one: twenty times as much, and black box.
TEST_F(ResourceManagerTest, Invariant5TimeAndBytesAreChargedWithoutTheObjectsHelp) {
  const Ref<Worker> upper = *binding_->Create<Worker>();
  const Ref<Worker> lower = *binding_->Create<Worker>();
  const RefBase console = binding_->NewConsole();
  resources_->AddConsole(console.rid(), "test");
  resources_->TakeDigest(now_);
  ThreadContext& thread = ThreadContext::Of(*binding_);
  thread.SetBase(console.entry()->slot);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(upper->Work(2000, lower, 40000).ok());
  thread.SetBase(kOutsideSlot);

  const Digest digest = resources_->TakeDigest(now_ + absl::Seconds(1));
  EXPECT_DOUBLE_EQ(digest.window_s, 1);
  EXPECT_THAT(digest.consoles, testing::ElementsAre(console.rid()));
  const auto& of_upper = Of(digest, upper.rid());
  const auto& of_lower = Of(digest, lower.rid());
  EXPECT_TRUE(of_upper.mobile);
  EXPECT_EQ(of_upper.class_name, "test.Worker");
  EXPECT_EQ(of_upper.calls, 5);
  const double upper_s = of_upper.cpu_s;
  const double lower_s = of_lower.cpu_s;
  EXPECT_GT(lower_s, 2 * upper_s) << "upper " << upper_s << " s, lower " << lower_s << " s";
  ASSERT_THAT(digest.edges, SizeIs(2));
  for (const auto& edge : digest.edges) {
    EXPECT_EQ(edge.calls, 5);
    EXPECT_EQ(edge.reply_bytes, 5 * 1000);
    const bool top = edge.from == ToObjectId(console.rid());
    EXPECT_EQ(edge.to, ToObjectId(top ? upper.rid() : lower.rid()));
  }
}

TEST_F(ResourceManagerTest, ADigestIsOfTheTimeSinceTheLastOne) {
  const Ref<Worker> worker = *binding_->Create<Worker>();
  EXPECT_EQ(resources_->TakeDigest(now_).window_s, 0) << "nothing is known of the time before";
  ASSERT_TRUE(worker->Work(10, Ref<Worker>(), 0).ok());
  Digest digest = resources_->TakeDigest(now_ + absl::Milliseconds(50));
  EXPECT_NEAR(digest.window_s, 0.05, 1e-9);
  EXPECT_EQ(Of(digest, worker.rid()).calls, 1);
  digest = resources_->TakeDigest(now_ + absl::Milliseconds(80));
  EXPECT_NEAR(digest.window_s, 0.03, 1e-9);
  EXPECT_EQ(Of(digest, worker.rid()).calls, 0);
}

TEST_F(ResourceManagerTest, FiguresComeWithWhatTheyVaryByAndHowManySamplesSaySo) {
  const Ref<Worker> steady = *binding_->Create<Worker>();
  const Ref<Worker> bursty = *binding_->Create<Worker>();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(steady->Work(2000, Ref<Worker>(), 0).ok());
    ASSERT_TRUE(bursty->Work(i % 4 == 0 ? 40000 : 0, Ref<Worker>(), 0).ok());
    resources_->TakeDigest(now_ += absl::Milliseconds(100));
  }
  const Digest digest = resources_->TakeDigest(now_ += absl::Milliseconds(100));
  const auto& of_steady = Of(digest, steady.rid());
  const auto& of_bursty = Of(digest, bursty.rid());
  EXPECT_GT(of_steady.samples, 5);
  EXPECT_GT(of_bursty.cpu_s_variance, 2 * of_steady.cpu_s_variance)
      << of_bursty.cpu_s_variance << " and " << of_steady.cpu_s_variance;
}

TEST_F(ResourceManagerTest, EdgesSayWhatTheirBytesVaryBy) {
  const Ref<Worker> upper = *binding_->Create<Worker>();
  const Ref<Worker> lower = *binding_->Create<Worker>();
  for (int i = 0; i < 20; ++i) {
    for (int calls = i % 4 == 0 ? 8 : 0; calls > 0; --calls) {
      ASSERT_TRUE(upper->Work(0, lower, 0).ok());
    }
    resources_->TakeDigest(now_ += absl::Milliseconds(100));
  }
  for (int calls = 8; calls > 0; --calls) ASSERT_TRUE(upper->Work(0, lower, 0).ok());
  const Digest digest = resources_->TakeDigest(now_ += absl::Milliseconds(100));
  ASSERT_THAT(digest.edges, SizeIs(1));
  EXPECT_GT(digest.edges[0].samples, 5);
  // 8 calls of 1000 bytes in every fourth sample: 2000 bytes in the mean, and a deviation of
  // sqrt(0.25 x 6000^2 + 0.75 x 2000^2) = 3464.
  EXPECT_NEAR(std::sqrt(digest.edges[0].bytes_variance), 3464, 700);
}

TEST_F(ResourceManagerTest, AnEdgeThatIsUsedNowAndThenStandsInEveryDigestForAWhile) {
  const Ref<Worker> upper = *binding_->Create<Worker>();
  const Ref<Worker> lower = *binding_->Create<Worker>();
  resources_->TakeDigest(now_);
  ASSERT_TRUE(upper->Work(0, lower, 0).ok());
  for (int i = 1; i <= 40; ++i) {
    const Digest digest = resources_->TakeDigest(now_ += absl::Milliseconds(100));
    ASSERT_THAT(digest.edges, SizeIs(1)) << i;
    EXPECT_EQ(digest.edges[0].calls, i == 1 ? 1 : 0);
  }
  now_ += absl::Seconds(2);
  EXPECT_THAT(resources_->TakeDigest(now_).edges, IsEmpty()) << "five windows after its last call";
}

TEST_F(ResourceManagerTest, BackgroundWorkIsItsObjectsAndNotTheConsoles) {
  const Ref<Worker> upper = *binding_->Create<Worker>();
  const Ref<Worker> lower = *binding_->Create<Worker>();
  resources_->TakeDigest(now_);
  std::thread([&] {
    {
      const BackgroundScope scope(upper.base());
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(upper->Work(2000, lower, 20000).ok());
    }
    EXPECT_TRUE(lower->Work(1000, Ref<Worker>(), 0).ok());
  }).join();
  const Digest digest = resources_->TakeDigest(now_ + absl::Seconds(1));
  const auto& of_upper = Of(digest, upper.rid());
  const auto& of_lower = Of(digest, lower.rid());
  EXPECT_EQ(of_upper.cpu_s, 0);
  EXPECT_EQ(of_upper.calls, 0);
  EXPECT_GT(of_upper.background_cpu_s, 0);
  EXPECT_GT(of_lower.background_cpu_s, of_upper.background_cpu_s);
  EXPECT_EQ(of_lower.calls, 1) << "what came after the scope is not background";
  EXPECT_GT(of_lower.cpu_s, 0);
  EXPECT_LT(of_lower.cpu_s, of_lower.background_cpu_s);
  EXPECT_THAT(digest.edges, SizeIs(0)) << "no response time has these calls in it";
}

TEST_F(ResourceManagerTest, BlockIoIsThatSinceTheLastDigestToTheByte) {
  const Ref<Worker> busy = *binding_->Create<Worker>();
  const Ref<Worker> quiet = *binding_->Create<Worker>();
  const uint32_t slot = busy.base().entry()->slot;
  const auto io = [slot](uint64_t bytes, uint64_t requests, int ms) {
    return monitor::ObjectIo{
        .object = slot, .bytes = bytes, .requests = requests, .time = absl::Milliseconds(ms)};
  };
  ASSERT_TRUE(quiet->Work(0, Ref<Worker>(), 0).ok());
  monitor_.io = {io(4096, 1, 3)};
  // The first one says where the sums stand, and is of no time.
  for (const auto& object : resources_->TakeDigest(now_).objects) EXPECT_EQ(object.io_bytes, 0);
  monitor_.io = {io(4096 + 12288, 3, 10), {.object = kOutsideSlot, .bytes = 77, .requests = 1}};
  const Digest digest = resources_->TakeDigest(now_ += absl::Seconds(1));
  EXPECT_TRUE(digest.node.sees_io);
  EXPECT_TRUE(digest.node.sees_switches);
  EXPECT_EQ(Of(digest, busy.rid()).io_bytes, 12288) << "though it was not called";
  EXPECT_EQ(Of(digest, busy.rid()).io_requests, 2);
  EXPECT_NEAR(Of(digest, busy.rid()).io_s, 0.007, 1e-9);
  EXPECT_EQ(Of(digest, quiet.rid()).io_bytes, 0);
  // Nothing more came.
  for (const auto& object : resources_->TakeDigest(now_ += absl::Seconds(1)).objects) {
    EXPECT_EQ(object.io_bytes, 0);
  }
  // A request that was under way completes in a later window.
  monitor_.io = {io(4096 + 12288, 3, 15)};
  EXPECT_NEAR(Of(resources_->TakeDigest(now_ += absl::Seconds(1)), busy.rid()).io_s, 0.005, 1e-9);
}

TEST_F(ResourceManagerTest, SwitchesAreTheObjectsInWhichTheyHappened) {
  const Ref<Worker> worker = *binding_->Create<Worker>();
  resources_->TakeDigest(now_);
  std::thread([&] {
    // Stands for the kernel's side.
    monitor::ThreadCounters counters;
    ThreadContext::Of(*binding_).clock.UseCounters(&counters);
    const auto switched = [&counters](uint64_t blocked, uint64_t preempted) {
      counters.voluntary_switches += blocked;
      counters.involuntary_switches += preempted;
      ++counters.changes;
    };
    switched(100, 100);  // outside of all objects
    ASSERT_TRUE(worker->Work(0, Ref<Worker>(), 0).ok());
    {
      ThreadContext& thread = ThreadContext::Of(*binding_);
      thread.SetBase(worker.base().entry()->slot);
      switched(7, 3);
      thread.SetBase(kOutsideSlot);
    }
    ThreadContext::Of(*binding_).clock.UseCounters(nullptr);
  }).join();
  const Digest digest = resources_->TakeDigest(now_ + absl::Seconds(1));
  EXPECT_EQ(Of(digest, worker.rid()).voluntary_switches, 7);
  EXPECT_EQ(Of(digest, worker.rid()).involuntary_switches, 3);
}

TEST_F(ResourceManagerTest, NothingIsKeptOfObjectsThatAreGone) {
  const RefBase console = binding_->NewConsole();
  ThreadContext& thread = ThreadContext::Of(*binding_);
  thread.SetBase(console.entry()->slot);
  std::vector<uint32_t> slots;
  for (int round = 0; round < 2000; ++round) {
    const Ref<Worker> worker = *binding_->Create<Worker>();
    ASSERT_TRUE(worker->Work(0, Ref<Worker>(), 0).ok());
    slots.push_back(worker.base().entry()->slot);
    ASSERT_TRUE(binding_->Destroy(worker.rid()).ok());
  }
  EXPECT_GE(binding_->threads().CollectAccounts().size(), 2000u);
  resources_->TakeDigest(now_);
  // While a window still looks back at them they stay.
  EXPECT_GE(binding_->threads().CollectAccounts().size(), 2000u);
  // An object goes when a thread of the node has found that nobody is inside: several do so side by
  // side, so that the last to be destroyed need not be the last to go.
  const auto is_kept = [&](uint32_t slot) { return binding_->Slot(slot).rid.valid(); };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::ranges::any_of(slots, is_kept) && std::chrono::steady_clock::now() < deadline) {
    resources_->TakeDigest(now_ += absl::Seconds(3));
    std::this_thread::yield();
  }
  EXPECT_EQ(std::ranges::count_if(slots, is_kept), 0);
  EXPECT_LE(binding_->threads().CollectAccounts().size(), 2u) << "what the console is left with";
  EXPECT_TRUE(binding_->Slot(console.entry()->slot).rid.valid());
  const Digest digest = resources_->TakeDigest(now_ + absl::Seconds(4));
  EXPECT_THAT(digest.edges, IsEmpty());
  thread.SetBase(kOutsideSlot);
}

TEST_F(ResourceManagerTest, AMoveBeginsANewWindowForWhatMovedAndForNobodyElse) {
  const Ref<Worker> moved = *binding_->Create<Worker>();
  const Ref<Worker> other = *binding_->Create<Worker>();
  resources_->TakeDigest(now_);
  ASSERT_TRUE(moved->Work(10, Ref<Worker>(), 0).ok());
  ASSERT_TRUE(other->Work(10, Ref<Worker>(), 0).ok());
  resources_->OnArriving({moved.rid()});
  Digest digest = resources_->TakeDigest(now_ + absl::Seconds(1));
  EXPECT_EQ(digest.window_s, 1);
  EXPECT_THAT(digest.begin_anew, testing::ElementsAre(moved.rid()));
  EXPECT_EQ(Of(digest, moved.rid()).calls, 0) << "of two placements";
  EXPECT_EQ(Of(digest, other.rid()).calls, 1) << "which did not move";
  ASSERT_TRUE(moved->Work(10, Ref<Worker>(), 0).ok());
  digest = resources_->TakeDigest(now_ + absl::Seconds(2));
  EXPECT_THAT(digest.begin_anew, IsEmpty());
  EXPECT_EQ(Of(digest, moved.rid()).calls, 1);
}

TEST_F(ResourceManagerTest, HowSteadyAnObjectIsIsLearntAgainAfterAMove) {
  const Ref<Worker> worker = *binding_->Create<Worker>();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(worker->Work(20'000, Ref<Worker>(), 0).ok());
    resources_->TakeDigest(now_ += absl::Milliseconds(100));
  }
  resources_->OnArriving({worker.rid()});
  resources_->TakeDigest(now_ += absl::Milliseconds(100));
  const Digest digest = resources_->TakeDigest(now_ += absl::Milliseconds(100));
  EXPECT_LT(Of(digest, worker.rid()).samples, 4);
  EXPECT_EQ(Of(digest, worker.rid()).cpu_s_variance, 0) << "it has rested since";
}

TEST_F(ResourceManagerTest, ACancelledMoveKeepsTheWindow) {
  resources_->TakeDigest(now_);
  MigrationReport report;
  report.rids = {Rid{{9, 9}, 1}};
  report.status = absl::AbortedError("drain");
  resources_->OnMoved(report);
  const Digest digest = resources_->TakeDigest(now_ + absl::Seconds(1));
  EXPECT_EQ(digest.window_s, 1);
  EXPECT_THAT(digest.begin_anew, IsEmpty());
}

TEST_F(ResourceManagerTest, TheStateOfAMovedObjectIsWhatTheNextMoveIsExpectedToCost) {
  const Ref<Worker> worker = *binding_->Create<Worker>();
  ASSERT_TRUE(worker->Work(1, Ref<Worker>(), 0).ok());
  MigrationReport report;
  report.rids = {worker.rid()};
  report.state_bytes = 123456;
  resources_->OnMoved(report);
  EXPECT_EQ(Of(resources_->TakeDigest(now_), worker.rid()).checkpoint_bytes, 123456u);
}

TEST_F(ResourceManagerTest, PinsStandInTheDigestUntilTheyEnd) {
  const Rid rid{{3, 1}, 77};
  resources_->Pin(rid, "moved by hand", now_ + absl::Seconds(10));
  ASSERT_THAT(resources_->TakeDigest(now_).pins, SizeIs(1));
  EXPECT_EQ(resources_->TakeDigest(now_).pins[0].reason, "moved by hand");
  EXPECT_THAT(resources_->TakeDigest(now_ + absl::Seconds(11)).pins, IsEmpty());
  resources_->Pin(rid, "pinned", absl::InfiniteFuture());
  EXPECT_THAT(resources_->TakeDigest(now_ + absl::Hours(1000)).pins, SizeIs(1));
  resources_->Unpin(rid);
  EXPECT_THAT(resources_->TakeDigest(now_ + absl::Hours(1000)).pins, IsEmpty());
}

TEST_F(ResourceManagerTest, RulesStandInTheDigestBesidePins) {
  const Rid rid{{3, 1}, 77};
  resources_->Allow(rid, {5, 6});
  resources_->Attach(rid, 9);
  Digest digest = resources_->TakeDigest(now_);
  ASSERT_THAT(digest.pins, SizeIs(1));
  EXPECT_EQ(digest.pins[0].allowed, (std::vector<NodeId>{5, 6}));
  EXPECT_EQ(digest.pins[0].attach_group, 9u);
  EXPECT_EQ(digest.pins[0].reason, "") << "it is not held";
  const std::vector<PinRecord> rules = resources_->Pins({rid, Rid{{3, 1}, 78}}, now_);
  ASSERT_THAT(rules, SizeIs(1)) << "nothing was said of the other";
  EXPECT_EQ(rules[0].allowed, (std::vector<NodeId>{5, 6}));
  EXPECT_EQ(rules[0].reason, "");
  resources_->Pin(rid, "pinned", absl::InfiniteFuture());
  digest = resources_->TakeDigest(now_);
  ASSERT_THAT(digest.pins, SizeIs(1));
  EXPECT_EQ(digest.pins[0].attach_group, 9u);
  EXPECT_EQ(digest.pins[0].reason, "pinned");
  resources_->Unpin(rid);
  resources_->Allow(rid, {});
  EXPECT_THAT(resources_->TakeDigest(now_).pins, SizeIs(1));
  resources_->Attach(rid, 0);
  EXPECT_THAT(resources_->TakeDigest(now_).pins, IsEmpty());
}

TEST_F(ResourceManagerTest, TheNodesFiguresNameTheirSource) {
  const Digest digest = resources_->TakeDigest(now_);
  EXPECT_EQ(digest.node.node, 3u);
  EXPECT_EQ(digest.node.name, "three");
  EXPECT_EQ(digest.node.rate, 7);
  EXPECT_EQ(digest.node.cores, 2);
  EXPECT_EQ(digest.node.load, 0.75);
  EXPECT_THAT(digest.node.source, testing::HasSubstr("fixed"));
  EXPECT_EQ(digest.node.memory_free_bytes, 60);
  EXPECT_EQ(digest.node.source_missing, "");
  EXPECT_EQ(digest.node.lost.all(), 0u);
}

TEST_F(ResourceManagerTest, TheNodesFiguresTellWhatIsMissingInOneLineAndWhatWasLost) {
  monitor_.missing = "no right: setcap /opt/\xff/abacus\nand more" + std::string(10000, 'x');
  monitor_.losses = {
      .threads_without_slot = 1, .requests_without_slot = 2, .requests_without_end = 3};
  const Digest digest = resources_->TakeDigest(now_);
  EXPECT_EQ(digest.node.source_missing, "no right: setcap /opt/?/abacus");
  EXPECT_EQ(digest.node.lost,
            (placement::LostFigures{.threads = 1, .io_requests = 2, .io_times = 3, .edges = 0}));
  monitor_.missing = std::string(10000, 'x');
  EXPECT_EQ(resources_->TakeDigest(now_).node.source_missing, std::string(400, 'x'));
}

TEST_F(ResourceManagerTest, WhatDegradesTheLoadIsToldToWhoDecides) {
  monitor_.missing = "no right";
  monitor_.degraded = "the clock is not trusted";
  EXPECT_EQ(resources_->TakeDigest(now_).node.source_missing, "the clock is not trusted; no right");
  monitor_.unreadable = "/proc/stat is not there";
  const Digest digest = resources_->TakeDigest(now_);
  EXPECT_EQ(digest.node.source_missing,
            "the node's load is not known: /proc/stat is not there; no right");
  EXPECT_THAT(digest.node.source, testing::Not(testing::HasSubstr("load:")));
}

TEST_F(ResourceManagerTest, TheRateIsThatOfTheLoad) {
  resources_->TakeDigest(now_);
  monitor_.next_rate = 3;  // a quota that the next look finds
  EXPECT_EQ(resources_->TakeDigest(now_).node.rate, 3);
}

// 20 ms of a whole core are 160 ms of an eighth of one: at an eighth of the rate that is the same
// work, and what is left of a window is as much less.
TEST_F(ResourceManagerTest, WhatAQuotaMakesLongerIsLongerByAsMuchAsTheRateIsLower) {
  const Ref<Worker> worker = *binding_->Create<Worker>();
  resources_->TakeDigest(now_);
  ASSERT_TRUE(worker->Work(20'000, Ref<Worker>(), 0).ok());
  monitor_.rate_share = 0.125;
  const auto quota = resources_->TakeDigest(now_ += absl::Seconds(1));
  EXPECT_GT(Of(quota, worker.rid()).cpu_s, 0.155);
  monitor_.rate_share = 1;
  ASSERT_TRUE(worker->Work(20'000, Ref<Worker>(), 0).ok());
  EXPECT_LT(Of(resources_->TakeDigest(now_ += absl::Seconds(1)), worker.rid()).cpu_s, 0.155);
}

// 0.08 of a quota of 0.125 occupy the core that it leaves for 0.64. Where tasks share all of it
// they have lowered the rate already: the load is not above the cores.
TEST_F(ResourceManagerTest, ALoadUnderAQuotaIsThatOfTheCoreThatItLeaves) {
  monitor_.rate_share = 0.125;
  monitor_.running = 0.08;
  EXPECT_NEAR(resources_->TakeDigest(now_).node.load, 0.64, 1e-9);
  monitor_.running = 0.5;
  EXPECT_NEAR(resources_->TakeDigest(now_).node.load, 2, 1e-9);
}

TEST_F(ResourceManagerTest, TheMonitorsWindowIsTheEngines) {
  EXPECT_EQ(monitor_.window, ResourceOptions().window);
  resources_->SetWindow(absl::Milliseconds(300));
  EXPECT_EQ(monitor_.window, absl::Milliseconds(300));
}

TEST_F(ResourceManagerTest, OfAMemoryLimitWhatTheObjectsHoldIsTakenOff) {
  const Ref<Worker> one = *binding_->Create<Worker>();
  const Ref<Worker> two = *binding_->Create<Worker>();
  monitor_.object_bytes = 10;
  Digest digest = resources_->TakeDigest(now_);
  EXPECT_FALSE(digest.node.memory_limit_bytes.has_value());
  EXPECT_EQ(digest.node.memory_free_bytes, 60) << "what the machine has";
  resources_->SetMemoryLimit(45);
  digest = resources_->TakeDigest(now_ + absl::Seconds(1));
  EXPECT_EQ(digest.node.memory_limit_bytes, 45);
  EXPECT_EQ(digest.node.memory_free_bytes, 25) << "two hold 10 each";
  resources_->SetMemoryLimit(15);
  digest = resources_->TakeDigest(now_ + absl::Seconds(2));
  EXPECT_EQ(digest.node.memory_free_bytes, 0) << "no less than nothing";
  resources_->SetMemoryLimit(1000);
  digest = resources_->TakeDigest(now_ + absl::Seconds(3));
  EXPECT_EQ(digest.node.memory_free_bytes, 60) << "no more than the machine has";
  resources_->SetMemoryLimit(0);
  digest = resources_->TakeDigest(now_ + absl::Seconds(4));
  EXPECT_FALSE(digest.node.memory_limit_bytes.has_value());
}

}  // namespace
}  // namespace abacus::runtime
