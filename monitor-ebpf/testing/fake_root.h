#ifndef ABACUS_MONITOR_EBPF_TESTING_FAKE_ROOT_H_
#define ABACUS_MONITOR_EBPF_TESTING_FAKE_ROOT_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace abacus::monitor {

// A directory that stands for the root of a machine: a test writes the /proc and cgroup files that
// it wants read. Gone with the object. Thread-compatible.
class FakeRoot {
 public:
  FakeRoot() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(::testing::TempDir()) /
            (std::string("root_") + test->test_suite_name() + "_" + test->name() + "_" +
             std::to_string(getpid()));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ / "proc/self");
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  std::string path() const { return path_.string(); }
  std::string proc() const { return path() + "/proc"; }

  // `file` is relative to the root: "proc/stat".
  void Write(const std::string& file, const std::string& text) const {
    const std::filesystem::path target = path_ / file;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target, std::ios::trunc) << text;
  }
  void Remove(const std::string& file) const { std::filesystem::remove_all(path_ / file); }

  void WriteTask(int pid, int tid, uint64_t run_ns, uint64_t wait_ns) const {
    Write(TaskDir(pid, tid) + "/schedstat",
          std::to_string(run_ns) + " " + std::to_string(wait_ns) + " 3\n");
  }
  // The processor that the task was last on; its name is as awkward as names can be.
  void WriteTaskCpu(int pid, int tid, int cpu) const {
    std::string text = std::to_string(tid) + " (a) b (c) S";
    for (int field = 4; field < 39; ++field) text += " 7";
    Write(TaskDir(pid, tid) + "/stat", text + " " + std::to_string(cpu) + " 0 0\n");
  }
  static std::string TaskDir(int pid, int tid) {
    return "proc/" + std::to_string(pid) + "/task/" + std::to_string(tid);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_TESTING_FAKE_ROOT_H_
