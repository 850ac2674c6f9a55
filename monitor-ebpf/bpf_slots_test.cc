// Who has a slot in the kernel's table of threads, and when it is given to another.

#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/types.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "monitor-ebpf/bpf/thread_time.h"
#include "monitor-ebpf/testing/bpf_fixture.h"

namespace abacus::monitor {
namespace {

TEST_F(BpfMonitorTest, AThreadThatIsRegisteredIsNotRegisteredTwice) {
  std::thread([&] {
    ThreadClock first, second;
    monitor_->AttachThread(first);
    monitor_->AttachThread(second);
    EXPECT_EQ(first.Source(), "external");
    EXPECT_NE(second.Source(), "external");
    EXPECT_EQ(monitor_->Losses().threads_without_slot, 1u);
    Times times;
    first.Lap();
    // A switch that does not reach the tracepoint is found at the next one.
    for (int i = 0; i < 20; ++i) BlockFor(kMs);
    times += first.Lap();
    EXPECT_GE(times.off(), 18 * kMs) << times;
  }).join();
}

TEST_F(BpfMonitorTest, ThreadsBeyondTheSlotsKeepTheirOwnClockAndAreCounted) {
  Make({.threads_max = 2});
  std::latch attached(4), done(1);
  std::atomic<int> external{0}, own{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ThreadClock clock;
      monitor_->AttachThread(clock);
      ++(clock.Source() == "external" ? external : own);
      attached.count_down();
      done.wait();
    });
  }
  attached.wait();
  done.count_down();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(external, 2);
  EXPECT_EQ(own, 2);
  EXPECT_EQ(monitor_->Losses().threads_without_slot, 2u);
}

TEST_F(BpfMonitorTest, SlotsOfThreadsThatExitAreGivenToOthers) {
  // More than are on their way out at one time: join() returns a little before the kernel is done.
  Make({.threads_max = 32});
  for (int i = 0; i < 300; ++i) {
    const Times times = Watched(*monitor_, [](ThreadClock& clock) {
      EXPECT_EQ(clock.Source(), "external");
      BlockFor(kMs / 2);
    });
    // Nothing is left of the one that had the slot before.
    ASSERT_LE(times.blocked, 100 * kMs);
    // A thread that is stopped just before it would block finds its timer run out.
    ASSERT_GE(times.off() + times.busy, kMs / 4);
  }
  EXPECT_EQ(monitor_->Losses().threads_without_slot, 0u);
}

// The kernel's table of registered threads, to make it look as it does after an exit that the
// kernel's side did not see.
class SlotTable {
 public:
  // REQUIRES: one monitor was made since `before`.
  explicit SlotTable(const InKernel& before)
      : slots_(Open("slots", before.slots)), globals_(Open("thread_t.bss", before.globals)) {}
  ~SlotTable() {
    close(slots_);
    close(globals_);
  }
  bool good() const { return slots_ >= 0 && globals_ >= 0; }

  // The only entry, which is then no longer in it.
  std::pair<uint32_t, uint32_t> Take() const {
    std::pair<uint32_t, uint32_t> entry;
    EXPECT_EQ(bpf_map_get_next_key(slots_, nullptr, &entry.first), 0);
    EXPECT_EQ(bpf_map_lookup_elem(slots_, &entry.first, &entry.second), 0);
    // Its bucket's shortcut to the slot leads nowhere from now on.
    ChangeBucket(entry.first, [](abacus_bucket& bucket) { bucket.last_slot = UINT32_MAX; });
    EXPECT_EQ(bpf_map_delete_elem(slots_, &entry.first), 0);
    return entry;
  }
  void Put(uint32_t tid, uint32_t slot) const {
    EXPECT_EQ(bpf_map_update_elem(slots_, &tid, &slot, BPF_ANY), 0);
  }
  bool Has(uint32_t tid) const {
    uint32_t slot;
    return bpf_map_lookup_elem(slots_, &tid, &slot) == 0;
  }
  // Adds to the number of registered threads with the low bits of `tid`.
  void Count(uint32_t tid, uint32_t by) const {
    ChangeBucket(tid, [by](abacus_bucket& bucket) { bucket.threads += by; });
  }

 private:
  // The globals begin with the filter.
  void ChangeBucket(uint32_t tid, const std::function<void(abacus_bucket&)>& change) const {
    bpf_map_info info = {};
    uint32_t bytes = sizeof(info);
    ASSERT_EQ(bpf_obj_get_info_by_fd(globals_, &info, &bytes), 0);
    std::vector<abacus_bucket> buckets(info.value_size / sizeof(abacus_bucket));
    const uint32_t zero = 0;
    ASSERT_EQ(bpf_map_lookup_elem(globals_, &zero, buckets.data()), 0);
    change(buckets[tid % ABACUS_FILTER_BUCKETS]);
    ASSERT_EQ(bpf_map_update_elem(globals_, &zero, buckets.data(), BPF_ANY), 0);
  }
  static int Open(const std::string& name, const std::vector<uint32_t>& before) {
    const std::vector<uint32_t> added = New(before, MapsNamed(name));
    return added.size() == 1 ? bpf_map_get_fd_by_id(added[0]) : -1;
  }
  const int slots_;
  const int globals_;
};

// The thread ends unseen: its entry is not there while it does, and is there again afterwards.
std::pair<uint32_t, uint32_t> EndUnseen(Monitor& monitor, const SlotTable& table) {
  std::pair<uint32_t, uint32_t> entry;
  pid_t tid = 0;
  Watched(monitor, [&](ThreadClock& clock) {
    EXPECT_EQ(clock.Source(), "external");
    tid = gettid();
    entry = table.Take();
  });
  // join() returns before the id is free, and the last switch comes a little after that.
  while (tgkill(getpid(), tid, 0) == 0) BlockFor(kMs);
  BlockFor(100 * kMs);
  table.Put(entry.first, entry.second);
  return entry;
}

// Whether the thread of this process is off its processor and waits.
bool Sleeps(pid_t tid) {
  std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] == 'S';
}

// The thread is made to look as if the switch in which it went to sleep had not been seen: while it
// goes, its entry is not there.
TEST_F(BpfMonitorTest, SleepWhoseBeginningWasNotSeenIsNotBusy) {
  monitor_.reset();
  const InKernel before;
  Make({.threads_max = 1});
  const SlotTable table(before);
  if (!table.good()) GTEST_SKIP() << "another monitor was made beside this one";
  std::latch attached(1);
  std::atomic<bool> taken{false};
  std::atomic<pid_t> goes_to_sleep{0};
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  Times times;
  std::thread sleeper([&] {
    ThreadClock clock;
    monitor_->AttachThread(clock);
    EXPECT_EQ(clock.Source(), "external");
    for (int i = 0; i < 5; ++i) BlockFor(kMs);  // the kernel's account of it is known from now on
    attached.count_down();
    while (!taken) {  // and does not sleep here
    }
    clock.Lap();
    char byte;
    goes_to_sleep = gettid();
    EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
    times += clock.Lap();
  });
  attached.wait();
  const auto [tid, slot] = table.Take();
  taken = true;
  EXPECT_TRUE(Eventually([&] { return goes_to_sleep != 0 && Sleeps(goes_to_sleep); }));
  table.Put(tid, slot);
  BlockFor(50 * kMs);
  EXPECT_EQ(write(pipe_ends[1], "x", 1), 1);
  sleeper.join();
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  // Ready time, where the entry was taken just when the thread was set aside.
  EXPECT_GE(times.off(), 40 * kMs) << times;
  EXPECT_LE(times.busy, 20 * kMs) << times;
}

bool IsWatched(Monitor& monitor) {
  bool watched = false;
  Watched(monitor, [&](ThreadClock& clock) { watched = clock.Source() == "external"; });
  return watched;
}

TEST_F(BpfMonitorTest, SlotOfAThreadWhoseExitWasNotSeenIsGivenToAnother) {
  monitor_.reset();
  const InKernel before;
  Make({.threads_max = 1});
  const SlotTable table(before);
  if (!table.good()) GTEST_SKIP() << "another monitor was made beside this one";
  EndUnseen(*monitor_, table);
  EXPECT_FALSE(IsWatched(*monitor_)) << "its record may still be written";
  EXPECT_TRUE(Eventually([&] { return IsWatched(*monitor_); }));
  // That one's exit was seen.
  EXPECT_TRUE(Eventually([&] { return IsWatched(*monitor_); }));
}

TEST_F(BpfMonitorTest, LookingAtTheLoadFindsThreadsWhoseExitWasNotSeen) {
  monitor_.reset();
  const InKernel before;
  Make({.threads_max = 8});
  const SlotTable table(before);
  if (!table.good()) GTEST_SKIP() << "another monitor was made beside this one";
  const uint32_t tid = EndUnseen(*monitor_, table).first;
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(monitor_->Load().ok());
    return !table.Has(tid);
  }));
  EXPECT_TRUE(IsWatched(*monitor_));
  EXPECT_EQ(monitor_->Losses().threads_without_slot, 0u);
}

TEST_F(BpfMonitorTest, ThreadsThatLiveKeepTheirSlotsWhileTheGoneAreLookedFor) {
  Make({.threads_max = 1});
  std::thread([&] {
    ThreadClock clock;
    monitor_->AttachThread(clock);
    for (int i = 0; i < 15; ++i) {
      EXPECT_FALSE(IsWatched(*monitor_));
      BlockFor(20 * kMs);
    }
    clock.Lap();
    Times times;
    for (int i = 0; i < 20; ++i) BlockFor(kMs);
    times += clock.Lap();
    EXPECT_EQ(clock.Source(), "external");
    EXPECT_GE(times.off(), 18 * kMs) << times;
  }).join();
}

TEST_F(BpfMonitorTest, ThreadWithTheIdOfOneWhoseExitWasNotSeenIsAnotherThread) {
  monitor_.reset();
  const InKernel before;
  Make({.threads_max = 2});
  const SlotTable table(before);
  if (!table.good()) GTEST_SKIP() << "another monitor was made beside this one";
  const auto [gone_tid, gone_slot] = EndUnseen(*monitor_, table);
  std::thread([&, gone_tid = gone_tid, gone_slot = gone_slot] {
    // To the kernel's side it is as if this thread had got the other one's id.
    const auto tid = static_cast<uint32_t>(gettid());
    table.Take();
    table.Count(gone_tid, -1u);
    table.Put(tid, gone_slot);
    table.Count(tid, 1);
    ThreadClock clock;
    monitor_->AttachThread(clock);
    EXPECT_EQ(clock.Source(), "external");
    clock.Lap();
    Times times;
    for (int i = 0; i < 20; ++i) BlockFor(kMs);
    times += clock.Lap();
    EXPECT_GE(times.off(), 18 * kMs) << times;
    EXPECT_LE(times.off(), 2000 * kMs) << times;
    // The other one's slot is free at once.
    EXPECT_TRUE(IsWatched(*monitor_));
  }).join();
  EXPECT_EQ(monitor_->Losses().threads_without_slot, 0u);
}

TEST_F(BpfMonitorTest, DetachedThreadGoesOnWithItsOwnClock) {
  std::thread([&] {
    ThreadClock clock;
    monitor_->AttachThread(clock);
    EXPECT_EQ(clock.Source(), "external");
    monitor_->DetachThread(clock);
    EXPECT_NE(clock.Source(), "external");
    Times times;
    BlockFor(30 * kMs);
    times += clock.Lap();
    EXPECT_GE(times.off(), 25 * kMs) << times;
  }).join();
}

TEST_F(BpfMonitorTest, AThousandThreadsAreWatchedAtOnce) {
  constexpr int kThreads = 1000;
  std::latch ready(kThreads), go(1);
  std::vector<Times> times(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ThreadClock clock;
      monitor_->AttachThread(clock);
      ready.count_down();
      go.wait();
      clock.Lap();
      // A switch that does not reach the tracepoint is found at the next one.
      for (int block = 0; block < 10; ++block) BlockFor(2 * kMs);
      times[static_cast<size_t>(i)] += clock.Lap();
    });
  }
  ready.wait();
  go.count_down();
  for (std::thread& thread : threads) thread.join();
  // Of a thread that is not watched it would be nothing.
  for (const Times& t : times) ASSERT_GE(t.off(), 10 * kMs) << t;
  EXPECT_EQ(monitor_->Losses().all(), 0u);
}

}  // namespace
}  // namespace abacus::monitor
