// Whose time is it? Objects that compute and block by script, nested, called back, from several
// threads at once and from another node: each is charged for what it does itself, by every source
// of figures that this machine permits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "monitor-ebpf/node_monitor.h"
#include "monitor-ebpf/testing/block_for.h"
#include "runtime/testing/cluster.h"

namespace abacus::runtime {
namespace {

using monitor::MachineTime;
using monitor::MonitorSource;

constexpr uint64_t kStepNs = 2'000'000;

// Follows a script: c computes for 2 ms of its thread's CPU time, b blocks for 2 ms, 1(...) calls
// object 1 of the cast, which follows what stands in the parentheses.
class Scripted : public MobileObject {
 public:
  using Cast = std::vector<Ref<Scripted>>;

  absl::Status Play(std::string script, Cast cast) {
    for (size_t at = 0; at < script.size(); ++at) {
      if (script[at] == 'c') {
        const uint64_t end = MachineTime::ThreadCpuNs() + kStepNs;
        while (MachineTime::ThreadCpuNs() < end) {
        }
      } else if (script[at] == 'b') {
        monitor::BlockFor(kStepNs);
      } else {
        const size_t who = static_cast<size_t>(script[at] - '0');
        const size_t begin = at + 2;
        size_t depth = 1;
        for (at = begin; depth > 0; ++at) depth += (script[at] == '(') - (script[at] == ')');
        --at;
        ABACUS_RETURN_IF_ERROR(cast.at(who)->Play(script.substr(begin, at - begin), cast));
      }
    }
    return absl::OkStatus();
  }

  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Scripted, "test.Scripted", 1, Play)
};

// What a script makes each object of the cast do itself, in steps.
struct Steps {
  int compute = 0, block = 0;
};
void Count(const std::string& script, size_t self, std::vector<Steps>& steps) {
  std::vector<size_t> stack = {self};
  for (size_t at = 0; at < script.size(); ++at) {
    if (script[at] == 'c') ++steps[stack.back()].compute;
    if (script[at] == 'b') ++steps[stack.back()].block;
    if (script[at] == ')') stack.pop_back();
    if (script[at] >= '0' && script[at] <= '9')
      stack.push_back(static_cast<size_t>(script[at] - '0'));
  }
}

struct Charged {
  double compute_ms = 0, off_ms = 0, ready_ms = 0;
};

class ChargingTest : public ::testing::TestWithParam<MonitorSource> {
 protected:
  static constexpr size_t kObjects = 3;

  void SetUp() override {
    testing::ClusterOptions options;
    options.nodes = 2;
    options.types = [](size_t, testing::TestPoints&, ObjectTypes& types) { types.Add<Scripted>(); };
    cluster_ = std::make_unique<testing::Cluster>(options);
    for (size_t node = 0; node < 2; ++node) {
      auto monitor = monitor::NewMonitor({.source = GetParam(), .plain = {.rate = 1}});
      if (!monitor.ok()) GTEST_SKIP() << "not to be had here: " << monitor.status();
      monitors_.push_back(*std::move(monitor));
      (*cluster_)[node].binding().threads().UseMonitor(monitors_.back().get());
    }
    // The last one is on the other node.
    for (size_t i = 0; i < kObjects; ++i) rids_.push_back(cluster_->Create<Scripted>(i / 2).rid());
  }
  void TearDown() override { cluster_.reset(); }  // before the monitors of its threads

  Scripted::Cast CastAt(size_t node) {
    Scripted::Cast cast;
    for (const Rid& rid : rids_) cast.push_back((*cluster_)[node].RefTo<Scripted>(rid));
    return cast;
  }
  Charged Of(size_t object) {
    Charged charged;
    for (size_t node = 0; node < 2; ++node) {
      BindingManager& binding = (*cluster_)[node].binding();
      for (const auto& [key, sums] : binding.threads().CollectAccounts()) {
        if (binding.Slot(static_cast<uint32_t>(key)).rid != rids_[object]) continue;
        const double ms = MachineTime::NsPerTick() / 1e6;
        charged.compute_ms += ms * static_cast<double>(sums.busy_ticks);
        charged.off_ms += ms * static_cast<double>(sums.blocked_ticks);
        charged.ready_ms += ms * static_cast<double>(sums.ready_ticks);
      }
    }
    return charged;
  }
  // Plays the script from object 0 on several threads at once, and compares.
  void Check(const std::string& script, int threads) {
    std::vector<std::thread> players;
    for (int i = 0; i < threads; ++i) {
      players.emplace_back([&] {
        const Scripted::Cast cast = CastAt(0);
        EXPECT_TRUE(cast[0]->Play(script, cast).ok());
      });
    }
    for (std::thread& player : players) player.join();
    std::vector<Steps> steps(kObjects);
    Count(script, 0, steps);
    for (size_t i = 0; i < kObjects; ++i) {
      const Charged charged = Of(i);
      const double step_ms = kStepNs / 1e6 * threads;
      const double compute_ms = steps[i].compute * step_ms;
      const double block_ms = steps[i].block * step_ms;
      std::printf("%s: object %zu: computed %.1f ms of %.1f, blocked %.1f ms of %.1f, ready %.1f\n",
                  monitors_[0]->Source().c_str(), i, charged.compute_ms, compute_ms, charged.off_ms,
                  block_ms, charged.ready_ms);
      // A tenth, and a step for what a busy machine does to each thread: what a hypervisor took is
      // found when the thread leaves its processor, and then comes off the object that it is in.
      EXPECT_NEAR(charged.compute_ms, compute_ms, 0.1 * compute_ms + step_ms) << script;
      // A thread that is stopped just before it would block finds its timer run out.
      EXPECT_GE(charged.off_ms + charged.ready_ms, 0.9 * block_ms - step_ms) << script;
      // The thread clock alone cannot tell blocked from ready.
      if (GetParam() != MonitorSource::kThreadClock) {
        EXPECT_LE(charged.off_ms, 1.5 * block_ms + step_ms) << script;
      }
    }
  }

  std::vector<std::unique_ptr<monitor::Monitor>> monitors_;
  std::unique_ptr<testing::Cluster> cluster_;
  std::vector<Rid> rids_;
};

INSTANTIATE_TEST_SUITE_P(Source, ChargingTest,
                         ::testing::Values(MonitorSource::kEbpf, MonitorSource::kSchedstat,
                                           MonitorSource::kThreadClock),
                         [](const auto& info) {
                           return info.param == MonitorSource::kEbpf        ? "Ebpf"
                                  : info.param == MonitorSource::kSchedstat ? "Schedstat"
                                                                            : "ThreadClock";
                         });

TEST_P(ChargingTest, NestedCallsAreTheCalleesOwn) {
  Check("ccccc1(cccccccccccccccbbbbbbbbbb)ccccc1(ccccc)bbbbb", 1);
}

TEST_P(ChargingTest, CallBacksAreTheirObjectsOwn) {
  Check("cccccccccc1(bbbbbbbbbb0(cccccccccc1(cccccccccc)bbbbb)cccccccccc)", 1);
}

TEST_P(ChargingTest, CallsOverNodesAreChargedWhereTheyRun) {
  Check("cccccccccc2(ccccccccccbbbbbbbbbb1(ccccccccccbbbbb)cccccccccc)cccccccccc", 1);
}

TEST_P(ChargingTest, SeveralThreadsInTheSameObjectsAddUp) {
  Check("ccccc1(bbbbbccccc2(cccccbbbbb))ccccc", 4);
}

}  // namespace
}  // namespace abacus::runtime
