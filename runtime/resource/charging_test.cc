// Whose time is it? Objects that compute and block by script, nested, called back, from several
// threads at once, on the threads of a pool and from another node: each is charged for what it does
// itself, by every source of figures that this machine permits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "monitor-ebpf/node_monitor.h"
#include "monitor-ebpf/testing/block_for.h"
#include "monitor-ebpf/testing/device_file.h"
#include "runtime/binding/worker_pool.h"
#include "runtime/object/background.h"
#include "runtime/resource/resource_manager.h"
#include "runtime/testing/cluster.h"

namespace abacus::runtime {
namespace {

using monitor::MachineTime;
using monitor::MonitorSource;

constexpr uint64_t kStepNs = 2'000'000;

// Takes a step to be written, and one to be read.
struct Costly {};

void ComputeAStep() {
  const uint64_t end = MachineTime::ThreadCpuNs() + kStepNs;
  while (MachineTime::ThreadCpuNs() < end) {
  }
}

}  // namespace

template <>
struct Codec<Costly> {
  static void Encode(Writer& writer, const Costly&) {
    ComputeAStep();
    runtime::Encode(writer, uint32_t{1});
  }
  static void Decode(Reader& reader, Costly&) {
    Decoded<uint32_t>(reader);
    ComputeAStep();
  }
  static size_t Bytes(const Costly&) { return 4; }
  static std::string Name() { return "costly"; }
};

namespace {

// Follows a script: c computes for 2 ms of its thread's CPU time, b blocks for 2 ms, 1(...) calls
// object 1 of the cast, which follows what stands in the parentheses; p1(...) has a thread of the
// pool make that call for object 1 and does not wait for it; d reads 1 MiB from a device.
class Scripted : public MobileObject {
 public:
  using Cast = std::vector<Ref<Scripted>>;

  absl::Status Play(std::string script, Cast cast) {
    for (size_t at = 0; at < script.size(); ++at) {
      if (script[at] == 'c') {
        ComputeAStep();
      } else if (script[at] == 'b') {
        monitor::BlockFor(kStepNs);
      } else if (script[at] == 'd') {
        if (!device_file->Read()) return absl::UnknownError("the file cannot be read");
      } else {
        const bool by_pool = script[at] == 'p';
        if (by_pool) ++at;
        const size_t who = static_cast<size_t>(script[at] - '0');
        const size_t begin = at + 2;
        size_t depth = 1;
        for (at = begin; depth > 0; ++at) depth += (script[at] == '(') - (script[at] == ')');
        --at;
        const std::string part = script.substr(begin, at - begin);
        if (by_pool) {
          HandOver(cast, who, part);
        } else {
          ABACUS_RETURN_IF_ERROR(cast.at(who)->Play(part, cast));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Costly> Relay(const Costly& costly, uint32_t times, Ref<Scripted> to) {
    for (uint32_t i = 0; i < times; ++i) {
      ABACUS_RETURN_IF_ERROR(to->Relay(costly, 0, to).status());
    }
    return Costly();
  }

  // As an object's manager does, on a thread that is inside of no object.
  static void HandOver(const Cast& cast, size_t who, const std::string& part) {
    pool->Run([cast, who, part] {
      const BackgroundScope scope(cast.at(who).base());
      EXPECT_TRUE(cast.at(who)->Play(part, cast).ok());
    });
  }

  static inline WorkerPool* pool = nullptr;
  static inline const monitor::DeviceFile* device_file = nullptr;

  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Scripted, "test.Scripted", 1, Play, Relay)
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
  // Plays the script from object 0 on several threads at once, and compares. What a hypervisor took
  // is found when the thread leaves its processor, and then comes off the object that it is in; so
  // on a shared machine a play may go wrong, and the next few. A charge that is wrong is so in all.
  void Check(const std::string& script, int threads) {
    std::string mistakes;
    for (int play = 0; play < 12; ++play) {
      std::vector<Charged> before, after;
      for (size_t i = 0; i < kObjects; ++i) before.push_back(Of(i));
      Play(script, threads);
      for (size_t i = 0; i < kObjects; ++i) after.push_back(Of(i));
      mistakes = MistakesIn(script, threads, before, after);
      if (mistakes.empty()) return;
      std::printf("%s", mistakes.c_str());
    }
    ADD_FAILURE() << script << "\n" << mistakes;
  }
  void Play(const std::string& script, int threads) {
    auto pool = std::make_unique<WorkerPool>();
    Scripted::pool = pool.get();
    std::vector<std::thread> players;
    for (int i = 0; i < threads; ++i) {
      players.emplace_back([&] {
        const Scripted::Cast cast = CastAt(0);
        EXPECT_TRUE(cast[0]->Play(script, cast).ok());
      });
    }
    for (std::thread& player : players) player.join();
    pool.reset();  // once all of its work is done
  }
  // A line for each charge that is further from the truth than a tenth, and a step a thread.
  std::string MistakesIn(const std::string& script, int threads, const std::vector<Charged>& before,
                         const std::vector<Charged>& after) {
    std::vector<Steps> steps(kObjects);
    Count(script, 0, steps);
    std::string mistakes;
    for (size_t i = 0; i < kObjects; ++i) {
      const double step_ms = kStepNs / 1e6 * threads;
      const double compute_ms = steps[i].compute * step_ms;
      const double block_ms = steps[i].block * step_ms;
      const double computed_ms = after[i].compute_ms - before[i].compute_ms;
      const double off_ms = after[i].off_ms - before[i].off_ms;
      const double ready_ms = after[i].ready_ms - before[i].ready_ms;
      std::printf("%s: object %zu: computed %.1f ms of %.1f, blocked %.1f ms of %.1f, ready %.1f\n",
                  monitors_[0]->Source().c_str(), i, computed_ms, compute_ms, off_ms, block_ms,
                  ready_ms);
      if (std::abs(computed_ms - compute_ms) > 0.1 * compute_ms + step_ms) {
        absl::StrAppend(&mistakes, "object ", i, ": computing\n");
      }
      // A thread that is stopped just before it would block finds its timer run out.
      if (off_ms + ready_ms < 0.9 * block_ms - step_ms) {
        absl::StrAppend(&mistakes, "object ", i, ": too little blocked\n");
      }
      // The thread clock alone cannot tell blocked from ready.
      if (GetParam() != MonitorSource::kThreadClock && off_ms > 1.5 * block_ms + step_ms) {
        absl::StrAppend(&mistakes, "object ", i, ": too much blocked\n");
      }
    }
    return mistakes;
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

TEST_P(ChargingTest, WorkHandedToAPoolIsThatOfTheObjectThatItIsFor) {
  Check("cccccp0(ccccccccccbbbbb)bbbbbbbbbb1(cccccp1(ccccc2(ccccc)bbbbb)bbbbb)p0(1(ccccc)bbbbb)",
        1);
}

TEST_P(ChargingTest, APoolThatWorksForSeveralObjectsAtOnceTellsThemApart) {
  Check("p0(cccccbbbbb)1(p1(bbbbbcccccccccc))p0(cccccbbbbb)1(p1(bbbbbcccccccccc))ccccc", 2);
}

// The same worker is called again and again; its waits are ten times as long as all else. Played
// again where a hypervisor interfered, as in Check().
TEST_P(ChargingTest, WaitsOfAWorkerBetweenInvocationsAreNobodys) {
  constexpr uint64_t kWaitNs = 200'000'000;
  constexpr int kRounds = 5;
  constexpr double kComputeMs = 2.0 * kRounds * kStepNs / 1e6;
  WorkerPool pool;
  Scripted::pool = &pool;
  const Scripted::Cast cast = CastAt(0);
  // For object 0 its worker, and for object 1 a plain caller.
  const auto play = [&] {
    for (int round = 0; round < kRounds; ++round) {
      std::latch done(1);
      Scripted::HandOver(cast, 0, "cc");
      pool.Run([&] {
        EXPECT_TRUE(cast[1]->Play("cc", cast).ok());
        done.count_down();
      });
      done.wait();
      monitor::BlockFor(kWaitNs);
    }
  };
  const auto is_right = [&](size_t object, const Charged& before) {
    const Charged after = Of(object);
    const double computed_ms = after.compute_ms - before.compute_ms;
    const double others_ms = after.off_ms - before.off_ms + after.ready_ms - before.ready_ms;
    std::printf("%s: object %zu: computed %.1f ms of %.1f, blocked or ready %.1f ms\n",
                monitors_[0]->Source().c_str(), object, computed_ms, kComputeMs, others_ms);
    return computed_ms >= 0.5 * kComputeMs &&
           computed_ms + others_ms <= kComputeMs + 0.5 * kRounds * kWaitNs / 1e6;
  };
  bool right = false;
  for (int attempt = 0; attempt < 5 && !right; ++attempt) {
    const Charged before[] = {Of(0), Of(1)};
    play();
    const bool first = is_right(0, before[0]), second = is_right(1, before[1]);
    right = first && second;
  }
  pool.Stop();
  EXPECT_TRUE(right) << "in none of five attempts, as printed";
}

// An object that comes to the one that it calls has nothing to encode any more: were it charged for
// that, a move would be predicted to save less than it does.
TEST_P(ChargingTest, EncodingAndDecodingForAnotherNodeAreTheWays) {
  constexpr uint32_t kCalls = 20;
  const Scripted::Cast cast = CastAt(0);
  EXPECT_TRUE(cast[0]->Relay(Costly(), kCalls, cast[2]).ok());
  EXPECT_LE(Of(0).compute_ms, 0.5 * kCalls * kStepNs / 1e6) << "of twice as much for its calls";
  EXPECT_LE(Of(2).compute_ms, 0.5 * kCalls * kStepNs / 1e6) << "of twice as much for its answers";
  uint64_t wait_ns = 0;
  uint64_t network_ns = 0;
  for (const auto& [key, sums] : (*cluster_)[0].binding().threads().CollectAccounts()) {
    wait_ns += sums.remote_wait_ns;
    network_ns += sums.remote_network_ns;
  }
  EXPECT_GE(wait_ns, 4 * kCalls * kStepNs) << "the caller's time is complete";
  EXPECT_GE(network_ns, 4 * kCalls * kStepNs) << "and none of it was the callee's";
}

// From the kernel's side through the accounts to the digest.
TEST_P(ChargingTest, BlockIoAndSwitchesOfAnObjectStandInTheDigest) {
  const monitor::DeviceFile file;
  if (!file.good()) GTEST_SKIP() << "the temporary directory's file system has no direct reads";
  const monitor::MonitorSees sees = monitors_[0]->Sees();
  EXPECT_EQ(sees.switches, GetParam() == MonitorSource::kEbpf);
  Scripted::device_file = &file;
  ResourceManager resources(&(*cluster_)[0].binding(), monitors_[0].get(), {});
  const absl::Time now = absl::Now();
  resources.TakeDigest(now);
  std::thread([&] {
    const Scripted::Cast cast = CastAt(0);
    EXPECT_TRUE(cast[0]->Play("ddd1(ddddd)" + std::string(100, 'b') + "d", cast).ok());
  }).join();
  const Digest digest = resources.TakeDigest(now + absl::Seconds(1));
  EXPECT_EQ(digest.node.sees_io, sees.block_io);
  const auto of = [&](size_t i) {
    for (const auto& object : digest.objects) {
      if (object.id == ToObjectId(rids_[i])) return object;
    }
    ADD_FAILURE() << "not in the digest: " << i;
    return placement::ObjectStatistics();
  };
  const placement::ObjectStatistics first = of(0), second = of(1);
  if (!sees.switches) {
    EXPECT_EQ(first.voluntary_switches + first.involuntary_switches, 0);
    EXPECT_EQ(first.io_bytes, 0);
    return;
  }
  // 100 sleeps and 4 reads, of which a few may not have reached the tracepoint.
  EXPECT_GE(first.voluntary_switches, 75);
  EXPECT_LE(first.voluntary_switches, 300);
  EXPECT_LE(second.voluntary_switches, 75);
  if (!sees.block_io || first.io_bytes == 0) GTEST_SKIP() << "no block device is seen there";
  EXPECT_EQ(first.io_bytes, 4 * monitor::DeviceFile::kBytes);
  EXPECT_EQ(second.io_bytes, 5 * monitor::DeviceFile::kBytes);
  EXPECT_GT(first.io_s, 0);
  EXPECT_GE(second.io_requests, 5);
}

}  // namespace
}  // namespace abacus::runtime
