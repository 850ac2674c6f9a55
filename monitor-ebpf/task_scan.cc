#include "monitor-ebpf/task_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

namespace abacus::monitor {
namespace {

constexpr int kCgroupDepthMax = 8;
constexpr size_t kCgroupEntriesMax = 4'096;

void ForEachEntry(const std::string& dir, const std::function<void(const dirent&)>& visit) {
  DIR* stream = opendir(dir.c_str());
  if (stream == nullptr) return;
  while (const dirent* entry = readdir(stream)) visit(*entry);
  closedir(stream);
}

std::optional<int> ParseId(std::string_view text) {
  int id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id <= 0) return std::nullopt;
  return id;
}

// One read into a buffer on the stack: this runs for each task of the machine.
template <size_t kBytes>
std::string_view ReadInto(const std::string& path, std::array<char, kBytes>& buffer) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t bytes = read(fd, buffer.data(), buffer.size());
  close(fd);
  return bytes > 0 ? std::string_view(buffer.data(), static_cast<size_t>(bytes))
                   : std::string_view();
}

std::string TaskFile(const std::string& proc_root, int pid, int tid, std::string_view file) {
  std::string path = proc_root;
  path += '/';
  path += std::to_string(pid);
  path += "/task/";
  path += std::to_string(tid);
  path += '/';
  path += file;
  return path;
}

}  // namespace

void TaskScan::Step(uint64_t elapsed_ns) {
  round_ns_ += elapsed_ns;
  if (queue_.empty() && pids_.empty()) BeginRound();
  size_t visits = options_.tasks_per_step;
  while (visits > 0) {
    if (queue_.empty()) {
      if (pids_.empty()) break;
      const int pid = pids_.back();
      pids_.pop_back();
      const std::string dir = options_.proc_root + "/" + std::to_string(pid) + "/task";
      ForEachEntry(dir, [&](const dirent& entry) {
        if (const auto tid = ParseId(entry.d_name)) queue_.push_back({pid, *tid});
      });
      --visits;  // listing a process costs about as much as looking at a task
      continue;
    }
    const Task task = queue_.back();
    queue_.pop_back();
    Visit(task);
    --visits;
  }
}

void TaskScan::BeginRound() {
  // A task that the last round did not come across has ended.
  std::erase_if(known_, [this](const auto& entry) { return entry.second.round != round_; });
  ++round_;
  last_round_ns_ = std::exchange(round_ns_, 0);
  if (options_.cgroup_dir.empty()) {
    ListMachine();
  } else {
    ListCgroup(options_.cgroup_dir, 0);
  }
}

void TaskScan::ListMachine() {
  ForEachEntry(options_.proc_root, [this](const dirent& entry) {
    if (const auto pid = ParseId(entry.d_name)) pids_.push_back(*pid);
  });
}

void TaskScan::ListCgroup(const std::string& dir, int depth) {
  // Version 1 calls the list of threads "tasks", version 2 "cgroup.threads".
  auto text = ReadSmallFile(dir + "/tasks");
  if (!text.ok()) text = ReadSmallFile(dir + "/cgroup.threads");
  if (text.ok()) {
    std::string_view rest = *text;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      if (const auto tid = ParseId(rest.substr(0, end))) queue_.push_back({*tid, *tid});
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  if (depth == kCgroupDepthMax) return;
  size_t entries = 0;
  ForEachEntry(dir, [&](const dirent& entry) {
    if (entry.d_type != DT_DIR || entry.d_name[0] == '.' || ++entries > kCgroupEntriesMax) return;
    ListCgroup(dir + "/" + entry.d_name, depth + 1);
  });
}

void TaskScan::Visit(const Task& task) {
  std::array<char, 128> buffer;
  const auto times = ParseSchedstat(
      ReadInto(TaskFile(options_.proc_root, task.pid, task.tid, "schedstat"), buffer));
  if (!times) return;  // ended meanwhile, or the kernel does not tell
  works_ = true;
  auto found = known_.find(task.tid);
  if (found == known_.end()) {
    if (known_.size() >= kTasksMax) {
      ++left_out_;
      return;
    }
    // In the first round all tasks are new and none has done anything for the sums. Later a new
    // task has done it all since the last round began, unless it was moved into the cgroup.
    Known fresh;
    if (round_ == 1) {
      fresh.times = *times;
    } else {
      const uint64_t most_ns = last_round_ns_ + round_ns_;
      fresh.times.run_ns = times->run_ns - std::min(times->run_ns, most_ns);
      fresh.times.wait_ns = times->wait_ns - std::min(times->wait_ns, most_ns);
    }
    found = known_.emplace(task.tid, fresh).first;
  }
  Known& known = found->second;
  known.round = round_;
  // A thread id that was given to a new thread starts again from zero.
  if (times->run_ns < known.times.run_ns || times->wait_ns < known.times.wait_ns) known.times = {};
  const TaskTimes delta = {times->run_ns - known.times.run_ns,
                           times->wait_ns - known.times.wait_ns};
  known.times = *times;
  if ((delta.run_ns == 0 && delta.wait_ns == 0) || !CountsHere(task)) return;
  total_.run_ns += delta.run_ns;
  total_.wait_ns += delta.wait_ns;
}

// Field 39 of /proc/PID/task/TID/stat is the processor that the task was last on. The second field,
// the program's name in brackets, may hold anything, brackets and blanks included.
bool TaskScan::CountsHere(const Task& task) const {
  if (options_.cpus.empty()) return true;
  std::array<char, 1024> buffer;
  std::string_view text =
      ReadInto(TaskFile(options_.proc_root, task.pid, task.tid, "stat"), buffer);
  const size_t bracket = text.rfind(')');
  if (bracket == text.npos) return false;
  text.remove_prefix(bracket + 1);
  for (int field = 3; field <= 39; ++field) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const size_t end = std::min(text.find(' '), text.size());
    if (field == 39) {
      int cpu = -1;
      std::from_chars(text.data(), text.data() + end, cpu);
      return std::find(options_.cpus.begin(), options_.cpus.end(), cpu) != options_.cpus.end();
    }
    text.remove_prefix(end);
  }
  return false;
}

}  // namespace abacus::monitor
