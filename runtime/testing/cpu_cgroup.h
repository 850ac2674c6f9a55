#ifndef ABACUS_RUNTIME_TESTING_CPU_CGROUP_H_
#define ABACUS_RUNTIME_TESTING_CPU_CGROUP_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::runtime {

// A cgroup whose CPU time is counted, of version 1 (in the hierarchies of cpu and cpuacct) or 2: a
// node in it sees its own load only. It has no limits. The destructor removes it; processes that
// entered must have ended by then.
// Thread-safety: thread-compatible.
class CpuCgroup {
 public:
  // Errors: kUnavailable - none can be made; the message says what would help.
  static absl::StatusOr<std::unique_ptr<CpuCgroup>> Make(const std::string& name);
  ~CpuCgroup();
  CpuCgroup(const CpuCgroup&) = delete;
  CpuCgroup& operator=(const CpuCgroup&) = delete;

  // The calling process goes there, and with it what it starts from now on.
  absl::Status Enter() const;

 private:
  explicit CpuCgroup(std::vector<std::string> directories) : directories_(std::move(directories)) {}

  std::vector<std::string> directories_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TESTING_CPU_CGROUP_H_
