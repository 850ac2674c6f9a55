#ifndef ABACUS_OBJFS_FUSE_TESTING_PLAIN_SERVERS_H_
#define ABACUS_OBJFS_FUSE_TESTING_PLAIN_SERVERS_H_

// FUSE servers that do as little as a FUSE server can: what a mount is measured against. Each
// serves `directory` with many threads, as libfuse's low-level interface does it, until it is
// unmounted, and returns main()'s result.

#include <cstdint>
#include <string>

namespace abacus::objfs::testing {

// One file, `file`, of `bytes` bytes: each read is answered at once from one buffer.
int ServeNull(const std::string& directory, uint64_t bytes);

// The tree below `source`, with a system call for each request, spliced where data pass.
// The kernel may keep names and attributes as long as it may those of a mount that is `exclusive`,
// and pages while a file is open; it collects no writes.
int ServePassThrough(const std::string& source, const std::string& directory);

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FUSE_TESTING_PLAIN_SERVERS_H_
