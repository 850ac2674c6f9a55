#ifndef ABACUS_OBJFS_SPREAD_SERVER_ADDRESSES_H_
#define ABACUS_OBJFS_SPREAD_SERVER_ADDRESSES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "objfs/volume/server_list.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Where a volume's servers are now, by number; the first has the inodes. Files name their servers
// by these numbers, so a number stays, and what is at it may become another server, or nobody
// (kVacant).
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
  // kVacant beyond the end, too.
  std::string At(size_t server) const {
    runtime::MutexLock lock(mutex_);
    return server < addresses_.size() ? addresses_[server] : kVacant;
  }
  // The numbers at which there is a server.
  std::vector<uint32_t> Numbers() const {
    runtime::MutexLock lock(mutex_);
    std::vector<uint32_t> numbers;
    for (uint32_t i = 0; i < addresses_.size(); ++i) {
      if (!IsVacant(addresses_[i])) numbers.push_back(i);
    }
    return numbers;
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
