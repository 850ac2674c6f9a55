#ifndef ABACUS_RUNTIME_OBJECT_MANAGER_H_
#define ABACUS_RUNTIME_OBJECT_MANAGER_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/object/class_info.h"
#include "runtime/object/mobile_object.h"

namespace abacus::runtime {

// Controls the resources of all objects of one class on one node (paper, section 4.2). The runtime
// makes one per class and node when the first such object is created there or moves there.
//
// Thread-safety: implementations are thread-safe. Blocking: Admit() and CreateObj() may block.
class ObjectManager {
 public:
  virtual ~ObjectManager() = default;

  // Makes an object, for a new one and for one that moves here (Init or Restore comes after).
  // `state_bytes` is the size of the checkpoint of an object that moves here, 0 for a new one.
  // Errors: kResourceExhausted refuses the object: a creation fails, a migration is aborted and
  // the object goes on serving where it was. kFailedPrecondition: see the message.
  virtual absl::StatusOr<std::unique_ptr<MobileObject>> CreateObj(const ClassInfo& info,
                                                                  size_t state_bytes) {
    (void)state_bytes;
    if (!info.construct) {
      return absl::FailedPreconditionError(
          "class " + info.name + " has no default constructor: its program makes its objects");
    }
    return info.construct();
  }
  // An object of this class left the node or was destroyed; called before it is deleted.
  virtual void Released(MobileObject& object) { (void)object; }
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_MANAGER_H_
