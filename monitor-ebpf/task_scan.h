#ifndef ABACUS_MONITOR_EBPF_TASK_SCAN_H_
#define ABACUS_MONITOR_EBPF_TASK_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "monitor-ebpf/node_files.h"

namespace abacus::monitor {

// Adds up the time that a node's tasks have run and waited for a processor, from each task's own
// schedstat: the kernel has no such sum for a machine or a version 1 cgroup.
//
// A step looks at no more than Options::tasks_per_step tasks (7 us each, 1 us where their file is
// open already: four of these count as one) and the next step goes on where it stopped, so that a
// step is cheap on any machine. The figures are cumulative, so nothing is lost by looking late:
// with n tasks the sums lag by n / tasks_per_step steps.
//
// Listing all tasks costs more than reading them. The kernel gives ids away in ascending order and
// tells the last one, so that tasks that are new are looked for among the ids since; all are listed
// every kListingNs, and where that does not help (many are new, the ids begin again from below, the
// kernel does not tell).
// Not seen: what a task did after the last look and before it ended; with a step every 250 ms that
// is all of a process that lives for less, such as a compiler.
//
// Thread-safety: thread-compatible. Limits: kTasksMax tasks are known at once; others are left out
// and left_out() counts them. No more than Options::files_max files are kept open.
class TaskScan {
 public:
  struct Options {
    std::string proc_root = "/proc";
    // Lists the tasks of a cgroup and those below it; empty: all tasks of the machine.
    std::string cgroup_dir;
    // Only tasks that were last on one of these processors count; empty: all.
    std::vector<int> cpus;
    size_t tasks_per_step = 200;
    // 0: each is opened each time.
    size_t files_max = FilesThatMayStayOpen();
    bool list_always = false;
  };
  static constexpr size_t kTasksMax = 100'000;
  static constexpr uint64_t kListingNs = 10'000'000'000;

  explicit TaskScan(Options options);
  ~TaskScan();
  TaskScan(const TaskScan&) = delete;
  TaskScan& operator=(const TaskScan&) = delete;

  // An eighth of what this process may open, 512 at most.
  static size_t FilesThatMayStayOpen();

  // `elapsed_ns` is the time since the last step: a task that is new cannot have done more.
  void Step(uint64_t elapsed_ns);

  // Cumulative since the first step; tasks that were there then count from then on.
  TaskTimes total() const { return total_; }
  // Of total().run_ns as much as the share of a processor that it was done at: the sum over tasks,
  // and steps, of run x run / (run + wait). So its part of run_ns is the share that work found, and
  // tasks that wait much and run little hardly count.
  //   One that ran 0.12 s and waited 0.88, and ten that ran 1 ms and waited 0.3 s each:
  //   (0.12 x 0.12 + 10 x 0.001 x 0.0033) / 0.13 = 0.111. The sum of the waits says 0.032.
  double run_at_share_ns() const { return run_at_share_ns_; }

  // True once a task's schedstat could be read, which needs a kernel with CONFIG_SCHED_INFO.
  bool works() const { return works_; }
  uint64_t left_out() const { return left_out_; }

 private:
  struct Task {
    int pid;
    int tid;
  };
  struct Known {
    TaskTimes times;
    uint64_t round = 0;
    int pid = 0;
    int file = -1;  // its schedstat, open; -1: not kept open
  };
  // In quarters of what it costs to open a task's file and read it.
  static constexpr size_t kCostOfOpening = 4;
  static constexpr size_t kCostOfReading = 1;
  static constexpr int kNewIdsMax = 64;

  void BeginRound();
  void ForgetEnded();
  bool ListNewTasks();
  void ListMachine();
  void ListCgroup(const std::string& dir, int depth);
  void ListProcess(int pid);
  size_t Visit(const Task& task);
  void Charge(const Task& task, Known& known, const TaskTimes& times);
  std::optional<TaskTimes> ReadOpen(Known& known);
  void Close(Known& known);
  bool CountsHere(const Task& task) const;

  const Options options_;
  bool ids_are_ours_ = true;
  std::vector<Task> queue_;  // what is left of this round, in reverse order
  std::vector<int> pids_;    // processes whose tasks are not yet in queue_
  std::unordered_map<int, Known> known_;
  uint64_t round_ = 0;
  uint64_t round_ns_ = 0;       // how long this round has lasted
  uint64_t last_round_ns_ = 0;  // and the one before
  uint64_t listed_ns_ = 0;      // since all tasks were listed
  int last_id_ = 0;             // that was given away when the round before began; 0: not known
  int looked_from_ = 0;         // and the one before: an id may be given away before it is seen
  size_t files_ = 0;            // kept open
  TaskTimes total_;
  double run_at_share_ns_ = 0;
  bool works_ = false;
  uint64_t left_out_ = 0;
};

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_TASK_SCAN_H_
