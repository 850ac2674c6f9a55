#ifndef ABACUS_APPS_ABACUS_DOCTOR_CHECKS_H_
#define ABACUS_APPS_ABACUS_DOCTOR_CHECKS_H_

// What this machine may lack, one question at a time. Each is asked by trying, in a child process
// where trying changes something, and needs no rights to be asked.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/node/addresses.h"

namespace abacus::apps {

struct Finding {
  enum class Level : uint8_t {
    kOk,
    kDegraded,  // works, but not as well: `effect` says what is lost
    kFail,      // does not work
  };
  std::string subject;
  Level level = Level::kOk;
  std::string found;   // what there is
  std::string effect;  // of what is missing; empty where all is well
  std::string mend;    // the command, or what to do; empty where all is well
};

// "OK", "DEGRADED", "FAIL".
std::string LevelName(Finding::Level level);

// All questions, in the order in which they are printed.
// Blocking: about 0.2 s.
std::vector<Finding> Examine();

// -- judgements, apart from how the figures are found ------------------------------------------

// `errno_of_try` is 0 where a BPF program could be loaded. One that watches the scheduler also
// needs the types of the kernel's structures.
Finding JudgeBpf(int errno_of_try, bool has_types);
Finding JudgeNamespaces(int errno_of_try, bool has_ip, bool has_tc);
Finding JudgeFuse(int errno_of_open, bool has_fusermount);
// `commands` is what membarrier(2) says that it can do, or negative.
Finding JudgeMembarrier(long commands);
Finding JudgeDescriptors(uint64_t soft, uint64_t hard);
// `degraded` as monitor::NodeLoad has it; `error` where there are no figures at all.
Finding JudgeFigures(const std::string& source, const std::string& degraded,
                     const std::string& error);
Finding JudgeCgroup(const std::string& proc_self_cgroup);
Finding JudgeSpill(const std::string& directory, int errno_of_try, uint64_t free_bytes,
                   uint64_t wanted_bytes);
Finding JudgePort(const runtime::HostAndPort& address, const std::string& error);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_DOCTOR_CHECKS_H_
