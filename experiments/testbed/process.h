#ifndef ABACUS_EXPERIMENTS_TESTBED_PROCESS_H_
#define ABACUS_EXPERIMENTS_TESTBED_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace abacus::experiments {

struct ProcessOptions {
  std::string stdout_path;               // empty: this program's
  std::string stderr_path;               // empty: this program's
  std::vector<std::string> environment;  // "NAME=value", besides this program's
};

// A program that was started, and is stopped by its pid at the latest when this is deleted. It is
// killed when the thread that started it ends.
// Thread-safety: owner-thread, the one that started it.
class Process {
 public:
  // Errors: those of fork; a program that is not there shows as exit code 127.
  static absl::StatusOr<Process> Start(const std::vector<std::string>& arguments,
                                       const ProcessOptions& options = {});
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  // Waits for the end; the exit code, or 128 + the signal.
  int Wait();
  // SIGTERM, and SIGKILL where that takes longer than `patience`.
  void Stop(absl::Duration patience = absl::Seconds(5));
  bool Running();

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  int code_ = -1;
};

// What a program printed, and how it ended.
struct Output {
  int code = -1;  // as Process::Wait() tells it
  std::string out;
  std::string err;
};

// Runs a program to its end, however it ends, and returns what it printed, which is kept in memory.
// Errors: those of fork and of files in memory; a program that is not there shows as code 127.
// Thread-safety: thread-safe. Blocking: until the program ends.
absl::StatusOr<Output> RunForOutput(const std::vector<std::string>& arguments);

// The same of a program that is to succeed. Errors: those of RunForOutput; kInternal with the
// command and its stderr, where it does not exit with 0.
absl::Status RunCommand(const std::vector<std::string>& arguments);

}  // namespace abacus::experiments

#endif  // ABACUS_EXPERIMENTS_TESTBED_PROCESS_H_
