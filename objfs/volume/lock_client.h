#ifndef ABACUS_OBJFS_VOLUME_LOCK_CLIENT_H_
#define ABACUS_OBJFS_VOLUME_LOCK_CLIENT_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/object/mobile_object.h"

namespace abacus::objfs {

// Where a volume reaches a client whose requests for locks have waited: anchored at the client.
// Thread-safety: thread-safe. Blocking: no.
class LockClient final : public runtime::AnchoredObject {
 public:
  using Told = std::function<void(const std::vector<uint64_t>& tickets)>;
  // `told` must not block, and may be called until the last reference to this object is gone.
  explicit LockClient(Told told) : told_(std::move(told)) {}

  // These requests have their locks now.
  absl::Status Granted(const std::vector<uint64_t>& tickets) {
    told_(tickets);
    return absl::OkStatus();
  }

  ABACUS_OBJECT(LockClient, "objfs.LockClient", 1, Granted)

 private:
  const Told told_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_LOCK_CLIENT_H_
