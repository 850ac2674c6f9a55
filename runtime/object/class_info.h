#ifndef ABACUS_RUNTIME_OBJECT_CLASS_INFO_H_
#define ABACUS_RUNTIME_OBJECT_CLASS_INFO_H_

// What the runtime knows of a class: its name, the version of its state, and its methods.
// Made by ABACUS_OBJECT (mobile_object.h) and collected in an ObjectTypes by a program's main().

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/codec.h"

namespace abacus::runtime {

class MobileObject;
class ObjectManager;

// A method as it is named on the wire: a hash of its name and of the types it takes and returns, so
// that builds which disagree about a method cannot call it by mistake.
using MethodId = uint32_t;

// Told when the method of a call from another node begins and ends: what is decoded before and
// encoded after is not the object's work, and is not done where the caller is on the same node.
class MethodScope {
 public:
  virtual void Begin() = 0;
  virtual void End() = 0;

 protected:
  ~MethodScope() = default;
};

struct MethodInfo {
  MethodId id = 0;
  std::string name;
  // Decodes the arguments, calls the method, encodes the result. On an error nothing is written.
  // `scope` is told of the method itself, if it comes to that; it may be null.
  absl::Status (*invoke)(MobileObject& object, Reader& arguments, Writer& result,
                         MethodScope* scope) = nullptr;
};

struct ClassInfo {
  std::string name;
  uint32_t state_version = 1;
  bool anchored = false;       // never moves
  bool one_at_a_time = false;  // one activity at a time may be inside
  std::vector<MethodInfo> methods;
  // Makes an object before Init() or Restore().
  std::function<std::unique_ptr<MobileObject>()> construct;
  // Decodes the arguments of Init() and calls it.
  absl::Status (*init)(MobileObject& object, Reader& arguments) = nullptr;
  // Makes the object manager of this class on a node; the runtime's default where empty.
  std::function<std::unique_ptr<ObjectManager>()> make_manager;

  const MethodInfo* FindMethod(MethodId id) const {
    for (const MethodInfo& method : methods) {
      if (method.id == id) return &method;
    }
    return nullptr;
  }
};

// The classes that a program was built with. main() fills one and hands it to the node; there is no
// registration at load time. Thread-compatible; constant once a node uses it.
class ObjectTypes {
 public:
  // Adds class T. REQUIRES: T uses ABACUS_OBJECT; no class of that name was added before; no two
  // methods of T have the same id (a hash; rename one).
  template <typename T>
  ObjectTypes& Add();
  // The same with an object manager of its own: one is made per node, on demand.
  template <typename T>
  ObjectTypes& Add(std::function<std::unique_ptr<ObjectManager>()> make_manager);

  // Null where this program was not built with that class.
  const ClassInfo* Find(std::string_view name) const;
  std::vector<const ClassInfo*> All() const;

 private:
  void Insert(std::unique_ptr<ClassInfo> info);
  std::vector<std::unique_ptr<ClassInfo>> classes_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_CLASS_INFO_H_
