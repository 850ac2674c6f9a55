#ifndef ABACUS_OBJFS_FUSE_TESTING_BENCH_MOUNTS_H_
#define ABACUS_OBJFS_FUSE_TESTING_BENCH_MOUNTS_H_

// The mounts that a benchmark compares, each served by processes of its own that end with it.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::objfs::testing {

// A directory to work in.
class BenchMount {
 public:
  virtual ~BenchMount() = default;
  virtual std::string path() const = 0;
  // The process that answers the kernel; -1: there is none.
  virtual pid_t server() const { return -1; }
  // The processes behind it that keep the bytes, where they are several.
  virtual std::vector<pid_t> servers() const { return {}; }
  // Where these are asked for something, in the same order.
  virtual std::vector<std::string> addresses() const { return {}; }
};

// Where the programs and the files of the mounts are. `folder` is on the disk that all are
// measured on, and is empty at first.
struct BenchPlace {
  std::string self;     // this program, which is run again as ServeNull() and ServePassThrough()
  std::string program;  // abacus
  std::string folder;
};

// A plain directory.
std::unique_ptr<BenchMount> BenchNative(const BenchPlace& place);
// Errors: kUnavailable - the mount did not come up; the message says how it ended.
absl::StatusOr<std::unique_ptr<BenchMount>> BenchNull(const BenchPlace& place, uint64_t bytes);
absl::StatusOr<std::unique_ptr<BenchMount>> BenchPassThrough(const BenchPlace& place);
// The file system and its store in the mount's process. `stack`: of new files; empty: the default.
absl::StatusOr<std::unique_ptr<BenchMount>> BenchLocal(const BenchPlace& place,
                                                       const std::string& stack);
// What a server's volume is named.
inline constexpr char kBenchVolume[] = "bench";
// A server process and a mount. `option`: one more -o of the mount; empty: none.
absl::StatusOr<std::unique_ptr<BenchMount>> BenchRemote(const BenchPlace& place,
                                                        const std::string& stack,
                                                        const std::string& option = "");
// `servers` server processes, a volume over them, and a mount. `spares`: so many servers more,
// behind them, that have no part in the volume yet.
absl::StatusOr<std::unique_ptr<BenchMount>> BenchSpread(const BenchPlace& place, size_t servers,
                                                        const std::string& stack,
                                                        size_t spares = 0);
// A brick, or dispersed ones of which any may be lost, on this machine: a server in namespaces of
// its own (network, processes, and what is mounted over the folders where it keeps its state), so
// that nothing of it is left. Errors: kNotFound - the programs are not installed. kPermissionDenied
// - this is not root.
absl::StatusOr<std::unique_ptr<BenchMount>> BenchGluster(const BenchPlace& place,
                                                         size_t bricks = 1);

// Lets this process and those that it begins have as many files open as the system allows, and
// returns how many: a pass-through server has one open for each file that the kernel knows.
uint64_t RaiseOpenFiles();

// Runs `words` to their end. Errors: kUnavailable - with what it printed to stderr.
absl::Status RunProgram(const std::vector<std::string>& words);

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FUSE_TESTING_BENCH_MOUNTS_H_
