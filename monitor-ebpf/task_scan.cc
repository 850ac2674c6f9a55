#include "monitor-ebpf/task_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
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

size_t TaskScan::FilesThatMayStayOpen() {
  constexpr rlim_t kMost = 512;
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  return std::min(files.rlim_cur / 8, kMost);
}

// The kernel tells the last id of the reader's own pid namespace: of no use with another one's
// /proc.
TaskScan::TaskScan(Options options) : options_(std::move(options)) {
  char text[32];
  const ssize_t bytes = readlink((options_.proc_root + "/self").c_str(), text, sizeof(text));
  if (bytes <= 0) return;
  const auto pid = ParseId(std::string_view(text, static_cast<size_t>(bytes)));
  ids_are_ours_ = pid == getpid();
}

TaskScan::~TaskScan() {
  for (auto& [tid, known] : known_) Close(known);
}

void TaskScan::Close(Known& known) {
  if (known.file < 0) return;
  close(std::exchange(known.file, -1));
  --files_;
}

void TaskScan::Step(uint64_t elapsed_ns) {
  round_ns_ += elapsed_ns;
  listed_ns_ += elapsed_ns;
  if (queue_.empty() && pids_.empty()) BeginRound();
  size_t cost = 0;
  while (cost < kCostOfOpening * options_.tasks_per_step) {
    if (!queue_.empty()) {
      const Task task = queue_.back();
      queue_.pop_back();
      cost += Visit(task);
    } else if (!pids_.empty()) {
      const int pid = pids_.back();
      pids_.pop_back();
      ListProcess(pid);
      cost += kCostOfOpening;
    } else {
      break;
    }
  }
}

void TaskScan::ListProcess(int pid) {
  const std::string dir = options_.proc_root + "/" + std::to_string(pid) + "/task";
  ForEachEntry(dir, [&](const dirent& entry) {
    if (const auto tid = ParseId(entry.d_name)) queue_.push_back({pid, *tid});
  });
}

void TaskScan::BeginRound() {
  ForgetEnded();
  ++round_;
  last_round_ns_ = std::exchange(round_ns_, 0);
  if (!options_.cgroup_dir.empty()) {
    ListCgroup(options_.cgroup_dir, 0);
  } else if (!ListNewTasks()) {
    listed_ns_ = 0;
    ListMachine();
  }
}

// A task that the last round did not come across has ended.
void TaskScan::ForgetEnded() {
  for (auto entry = known_.begin(); entry != known_.end();) {
    if (entry->second.round == round_) {
      ++entry;
    } else {
      Close(entry->second);
      entry = known_.erase(entry);
    }
  }
}

// "0.08 0.03 0.01 1/110 4242": the last number is the id that was given away last.
bool TaskScan::ListNewTasks() {
  std::array<char, 128> buffer;
  std::string_view text = ReadInto(options_.proc_root + "/loadavg", buffer);
  text = text.substr(0, text.find('\n'));
  const auto last = ParseId(text.substr(std::min(text.rfind(' '), text.size() - 1) + 1));
  const int before = std::exchange(last_id_, last.value_or(0));
  const int from = std::exchange(looked_from_, before);
  if (options_.list_always || !ids_are_ours_ || listed_ns_ >= kListingNs) return false;
  if (from == 0 || last_id_ < before || before < from || last_id_ - from > kNewIdsMax) return false;
  for (const auto& [tid, known] : known_) queue_.push_back({known.pid, tid});
  for (int id = from + 1; id <= last_id_; ++id) {
    if (!known_.contains(id)) queue_.push_back({id, id});
  }
  return true;
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

std::optional<TaskTimes> TaskScan::ReadOpen(Known& known) {
  std::array<char, 128> buffer;
  const ssize_t bytes = pread(known.file, buffer.data(), buffer.size(), 0);
  if (bytes <= 0) return std::nullopt;
  return ParseSchedstat(std::string_view(buffer.data(), static_cast<size_t>(bytes)));
}

// Returns what it cost.
size_t TaskScan::Visit(const Task& task) {
  auto found = known_.find(task.tid);
  if (found != known_.end() && found->second.file >= 0) {
    if (const auto times = ReadOpen(found->second)) {
      Charge(task, found->second, *times);
      return kCostOfReading;
    }
    // It has ended: who has its id now, if anybody, is another.
    Close(found->second);
    known_.erase(found);
    found = known_.end();
  }
  const int file = open(TaskFile(options_.proc_root, task.pid, task.tid, "schedstat").c_str(),
                        O_RDONLY | O_CLOEXEC);
  if (file < 0) return kCostOfOpening;  // ended meanwhile, or the kernel does not tell
  Known fresh{.pid = task.pid, .file = file};
  const auto times = ReadOpen(fresh);
  const bool keep = times && files_ < options_.files_max && known_.size() < kTasksMax;
  if (!keep) close(std::exchange(fresh.file, -1));
  if (!times) return kCostOfOpening;
  works_ = true;
  if (found == known_.end()) {
    if (known_.size() >= kTasksMax) {
      ++left_out_;
      return kCostOfOpening;
    }
    // In the first round all tasks are new and none has done anything for the sums. Later a new
    // task has done it all since the last round began, unless it was moved into the cgroup.
    if (round_ == 1) {
      fresh.times = *times;
    } else {
      const uint64_t most_ns = last_round_ns_ + round_ns_;
      fresh.times.run_ns = times->run_ns - std::min(times->run_ns, most_ns);
      fresh.times.wait_ns = times->wait_ns - std::min(times->wait_ns, most_ns);
    }
    found = known_.emplace(task.tid, fresh).first;
  } else {
    found->second.file = fresh.file;
  }
  if (keep) ++files_;
  Charge(task, found->second, *times);
  return kCostOfOpening;
}

void TaskScan::Charge(const Task& task, Known& known, const TaskTimes& times) {
  known.round = round_;
  // A thread id that was given to a new thread starts again from zero.
  if (times.run_ns < known.times.run_ns || times.wait_ns < known.times.wait_ns) known.times = {};
  const TaskTimes delta = {times.run_ns - known.times.run_ns, times.wait_ns - known.times.wait_ns};
  known.times = times;
  if ((delta.run_ns == 0 && delta.wait_ns == 0) || !CountsHere(task)) return;
  total_.run_ns += delta.run_ns;
  total_.wait_ns += delta.wait_ns;
  const auto run_ns = static_cast<double>(delta.run_ns);
  run_at_share_ns_ += run_ns * run_ns / (run_ns + static_cast<double>(delta.wait_ns));
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
