#ifndef ABACUS_OBJFS_FUSE_TESTING_PLAIN_SESSION_H_
#define ABACUS_OBJFS_FUSE_TESTING_PLAIN_SESSION_H_

#include <string>

struct fuse_lowlevel_ops;

namespace abacus::objfs::testing {

// Serves the operations at `directory` until it is unmounted; main()'s result.
int ServeSession(const fuse_lowlevel_ops& operations, void* data, const std::string& directory);

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FUSE_TESTING_PLAIN_SESSION_H_
