#ifndef ABACUS_OBJFS_SPREAD_SERVER_ADDRESSES_H_
#define ABACUS_OBJFS_SPREAD_SERVER_ADDRESSES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Where a volume's servers are now, by number; the first has the inodes. Files name their servers
// by these numbers, so a number stays, and what is at it may become another server.
// Thread-safety: thread-safe. Blocking: no.
class ServerAddresses {
 public:
  explicit ServerAddresses(std::vector<std::string> addresses = {})
      : addresses_(std::move(addresses)) {}

  size_t size() const {
    runtime::MutexLock lock(mutex_);
    return addresses_.size();
  }
  std::vector<std::string> All() const {
    runtime::MutexLock lock(mutex_);
    return addresses_;
  }
  // Never fewer than before.
  void Set(std::vector<std::string> addresses) {
    runtime::MutexLock lock(mutex_);
    addresses_ = std::move(addresses);
  }

 private:
  mutable runtime::Mutex mutex_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_SERVER_ADDRESSES_H_
