#ifndef ABACUS_OBJFS_FUSE_TESTING_BENCH_WORKLOADS_H_
#define ABACUS_OBJFS_FUSE_TESTING_BENCH_WORKLOADS_H_

// What a benchmark does in a directory, by plain system calls of one thread. Each leaves nothing
// behind that the next one sees, and returns how many units it did in a second. A call that fails
// throws BenchError, so that mounts are taken away: a figure of half a workload is none.

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace abacus::objfs::testing {

// Why a benchmark cannot go on; its main() prints it.
class BenchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Reads of `bytes` at a time over a file of `file_bytes`, that pass the kernel's page cache;
// the second pass is timed, for `reads` reads. Reads a second.
double DirectReads(const std::string& file, uint64_t file_bytes, uint64_t bytes, int reads);

// Bytes a second. Writing makes the file, reading needs it and begins with no page in the kernel's
// cache of `directory`'s file system; neither syncs inside the time.
double SequentialWrite(const std::string& file, uint64_t file_bytes);
double SequentialRead(const std::string& file, uint64_t file_bytes);

// With the fsync(2) that makes it durable.
double SyncedWrite(const std::string& file, uint64_t file_bytes);

// Writes of 4 KiB at random places of a file that is there, closed at the end. Writes a second.
double RandomWrites(const std::string& file, uint64_t file_bytes, int writes);
// Each with an fdatasync(2) of its own.
double SyncedRandomWrites(const std::string& file, uint64_t file_bytes, int writes);
// The same until `goes_on` is false, which is asked before each.
double SyncedRandomWritesWhile(const std::string& file, uint64_t file_bytes,
                               const std::function<bool()>& goes_on);

// Create, write 4 KiB, close, unlink. Files a second.
double Churn(const std::string& directory, int files);

// Makes `files` empty files, named so that Stats(), Renames() and List() find them.
// Files a second.
double MakeFiles(const std::string& directory, int files);
// stat(2) of each. Calls a second.
double Stats(const std::string& directory, int files);
// rename(2) of each, and back again. Calls a second.
double Renames(const std::string& directory, int files);
// readdir(3) with the attributes of each entry. Entries a second.
double List(const std::string& directory, int files);
void RemoveFiles(const std::string& directory, int files);

// How many bytes of memory the process has more for each of `files` files (see MakeFiles) while
// they are open.
double BytesOfAnOpenFile(const std::string& directory, int files, pid_t process);

// What the loopback link carries: bytes a second from one thread to another, by TCP.
double LoopbackStream(uint64_t bytes);

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FUSE_TESTING_BENCH_WORKLOADS_H_
