#ifndef ABACUS_OBJFS_VOLUME_CLIENT_END_H_
#define ABACUS_OBJFS_VOLUME_CLIENT_END_H_

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "objfs/layer/version.h"
#include "objfs/store/object_store.h"
#include "runtime/object/mobile_object.h"

namespace abacus::objfs {

// A client's end of what its volume tells it: anchored where the front end of its stacks is, and
// called by the volume's server. What breaks goes from there to the layers that keep something,
// wherever they are.
//
// Thread-safety: thread-safe. Blocking: as its handlers; never for another client.
class ClientEnd final : public runtime::AnchoredObject {
 public:
  struct Handlers {
    std::function<absl::Status(ObjectId id, bool write_back, Version given)> on_break;
    std::function<void(ObjectId id)> on_wake;
    std::function<void(ObjectId id, Version given)> on_forget;
  };
  // What the handlers use outlives the object.
  explicit ClientEnd(Handlers handlers) : handlers_(std::move(handlers)) {}

  // The promises of the object up to `given` end: when it has returned OK, what was kept under them
  // is forgotten, and with `write_back` what was changed is at the store before.
  absl::Status Break(ObjectId id, bool write_back, Version given) {
    return handlers_.on_break(id, write_back, given);
  }
  // What would block a while ago may be tried again.
  absl::Status Wake(ObjectId id) {
    handlers_.on_wake(id);
    return absl::OkStatus();
  }
  // What the client knew of the object's inode and names by promises up to `given` is forgotten
  // when this has returned. It waits for nobody.
  absl::Status Forget(ObjectId id, Version given) {
    handlers_.on_forget(id, given);
    return absl::OkStatus();
  }
  ABACUS_OBJECT(ClientEnd, "objfs.ClientEnd", 1, Break, Wake, Forget)

 private:
  const Handlers handlers_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_CLIENT_END_H_
