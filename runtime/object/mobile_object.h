#ifndef ABACUS_RUNTIME_OBJECT_MOBILE_OBJECT_H_
#define ABACUS_RUNTIME_OBJECT_MOBILE_OBJECT_H_

// MobileObject: the base of everything that can be called from, and move between, nodes.
//
//   class Counter : public MobileObject {
//    public:
//     absl::StatusOr<int64_t> Add(int64_t n) { return sum_ += n; }
//     void Checkpoint(CheckpointWriter& w) const override { w.Write(sum_); }
//     absl::Status Restore(CheckpointReader& r) override { r.Read(sum_); return r.status(); }
//     ABACUS_OBJECT(Counter, "example.Counter", 1, Add)
//    private:
//     int64_t sum_ = 0;
//   };

#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/object/checkpoint.h"
#include "runtime/object/class_info.h"
#include "runtime/object/ref.h"

namespace abacus::runtime {

// What an object is told of a move that is about to begin. It learns where those that it refers to
// are as seen from the move, and of no node.
struct MoveAhead {
  enum class Place { kHere, kThere, kElsewhere };  // where the object is, where it goes, neither
  // A hint, as all that is known of places.
  absl::FunctionRef<Place(const RefBase&)> place_of;
  // The target had no room for what the object brought along a moment ago.
  bool no_room = false;
};

// Rules for a class T of mobile objects:
//  - it is default-constructible and uses ABACUS_OBJECT; `absl::Status Init(arguments...)`, where
//  it
//    has one, is called once for a new object and not for a restored one;
//  - its methods return absl::Status or absl::StatusOr<V>, may run in many threads at once unless T
//    declares `static constexpr bool kOneAtATime = true;`, are synchronous, and hold no lock while
//    they call another object;
//  - state lives in members that Checkpoint() writes and Restore() reads; embedded objects are
//    written and read by the object that they are part of;
//  - `static constexpr bool kAnchored = true;` declares that its objects never move.
class MobileObject {
 public:
  MobileObject() = default;
  MobileObject(const MobileObject&) = delete;
  MobileObject& operator=(const MobileObject&) = delete;
  virtual ~MobileObject() = default;

  // Writes the private state, that of embedded objects included. Called while no invocation is
  // inside, on a thread of the runtime. It may not call other objects.
  virtual void Checkpoint(CheckpointWriter& writer) const = 0;
  // Takes the state back into an object fresh from its constructor. `reader.version()` is the state
  // version of the build that wrote it, never newer than this class's.
  // Errors: any error refuses the object; it goes on serving where it was.
  virtual absl::Status Restore(CheckpointReader& reader) = 0;

  // Called before the gate is closed for a move, on the mover's thread and as background work of
  // the object: invocations go on beside it, and it may call other objects. For what is better done
  // before the object stops, or must not be in its checkpoint. The move begins when it returns,
  // whatever it did; it may not be called, where the move is begun by an object's own method.
  // Returns true where the checkpoint is smaller for it: a target that had no room is then asked
  // again, once. Thread-safety: beside all methods. Blocking: may.
  virtual bool BeforeMove(const MoveAhead& ahead) {
    (void)ahead;
    return false;
  }
  // The move that BeforeMove() was called for has failed; the object serves on here. Thread-safety:
  // as BeforeMove(). Blocking: must not. May not call other objects.
  virtual void StaysHere() {}

  // The object's own name, valid once the runtime has taken it over (not in the constructor).
  Rid rid() const { return self_.rid(); }

 protected:
  // A reference to this object, to hand to others. REQUIRES: as rid().
  template <typename T>
  Ref<T> SelfRef() const {
    return Ref<T>(self_);
  }

 private:
  friend class ObjectHost;
  RefBase self_;
};

// An object that never moves and so has no state to carry.
class AnchoredObject : public MobileObject {
 public:
  static constexpr bool kAnchored = true;
  void Checkpoint(CheckpointWriter&) const final {}
  absl::Status Restore(CheckpointReader&) final {
    return absl::FailedPreconditionError("an anchored object does not move");
  }
};

// For the runtime alone: gives an object its name and takes it away.
class ObjectHost {
 protected:
  static void Name(MobileObject& object, RefBase self) { object.self_ = std::move(self); }
};

namespace internal {

template <typename T>
absl::Status InitDecoded(MobileObject& object, Reader& arguments) {
  if constexpr (requires { &T::Init; }) {
    using Traits = MethodTraits<decltype(&T::Init)>;
    static_assert(!Traits::kReturnsValue, "abacus: Init must return absl::Status");
    auto values = typename Traits::Arguments();
    DecodeParts(arguments, values);
    if (arguments.ok() && !arguments.AtEnd()) arguments.Fail("more arguments came than Init takes");
    if (!arguments.ok()) return arguments.status();
    return std::apply(
        [&object](auto&... value) { return static_cast<T&>(object).Init(std::move(value)...); },
        values);
  } else {
    (void)object;
    if (!arguments.AtEnd()) arguments.Fail("arguments came, but the class has no Init");
    return arguments.status();
  }
}

// The arguments of T::Init, encoded for a manager that makes the object.
template <typename T, typename... Args>
Payload EncodeInit(const Args&... args) {
  if constexpr (requires { &T::Init; }) {
    static_assert(MethodTraits<decltype(&T::Init)>::template kTakes<const Args&...>,
                  "abacus: the arguments do not fit the parameters of Init");
    return MethodTraits<decltype(&T::Init)>::EncodeArguments(args...);
  } else {
    static_assert(sizeof...(Args) == 0, "abacus: the class has no Init to take these arguments");
    return Payload();
  }
}

template <typename T>
std::unique_ptr<ClassInfo> MakeClassInfo() {
  static_assert(std::is_base_of_v<MobileObject, T>, "abacus: derive from MobileObject");
  auto info = std::make_unique<ClassInfo>();
  info->name = T::kAbacusName;
  info->state_version = T::kAbacusVersion;
  if constexpr (requires { T::kAnchored; }) info->anchored = T::kAnchored;
  if constexpr (requires { T::kOneAtATime; }) info->one_at_a_time = T::kOneAtATime;
  info->methods = T::AbacusMethods();
  if constexpr (std::is_default_constructible_v<T>) {
    info->construct = [] { return std::make_unique<T>(); };
  } else {
    static_assert(T::kAnchored, "abacus: a class whose objects move needs a default constructor");
  }
  info->init = &InitDecoded<T>;
  return info;
}

}  // namespace internal

template <typename T>
ObjectTypes& ObjectTypes::Add() {
  Insert(internal::MakeClassInfo<T>());
  return *this;
}

template <typename T>
ObjectTypes& ObjectTypes::Add(std::function<std::unique_ptr<ObjectManager>()> make_manager) {
  auto info = internal::MakeClassInfo<T>();
  info->make_manager = std::move(make_manager);
  Insert(std::move(info));
  return *this;
}

// clang-format off
#define ABACUS_PARENS_ ()
#define ABACUS_EXPAND_(...) \
  ABACUS_EXPAND3_(ABACUS_EXPAND3_(ABACUS_EXPAND3_(ABACUS_EXPAND3_(__VA_ARGS__))))
#define ABACUS_EXPAND3_(...) ABACUS_EXPAND2_(ABACUS_EXPAND2_(ABACUS_EXPAND2_(__VA_ARGS__)))
#define ABACUS_EXPAND2_(...) ABACUS_EXPAND1_(ABACUS_EXPAND1_(ABACUS_EXPAND1_(__VA_ARGS__)))
#define ABACUS_EXPAND1_(...) __VA_ARGS__
#define ABACUS_EACH_(macro, ...) __VA_OPT__(ABACUS_EXPAND_(ABACUS_EACH_NEXT_(macro, __VA_ARGS__)))
#define ABACUS_EACH_NEXT_(macro, first, ...) \
  macro(first) __VA_OPT__(ABACUS_EACH_AGAIN_ ABACUS_PARENS_ (macro, __VA_ARGS__))
#define ABACUS_EACH_AGAIN_() ABACUS_EACH_NEXT_

// The result type is spelt out, not deduced from the body: a class may call objects of its own class.
#define ABACUS_PROXY_METHOD_(method)                                                          \
  template <typename AbacusT = AbacusSelf, typename... Args>                                  \
  auto method(Args&&... args) const                                                           \
      -> typename ::abacus::runtime::internal::MethodTraits<decltype(&AbacusT::method)>::Result { \
    return ::abacus::runtime::internal::Call<&AbacusT::method>(*this,                         \
                                                               std::forward<Args>(args)...);  \
  }
#define ABACUS_METHOD_CHECK_(method)                                                          \
  static_assert([]<typename AbacusT>(AbacusT*) {                                              \
    return requires { std::type_identity<decltype(&AbacusT::method)>(); };                    \
  }(static_cast<AbacusSelf*>(nullptr)),                                                       \
  "abacus: ABACUS_OBJECT lists " #method ", which is not one method: it is overloaded, a "    \
  "template, or not there. Give each method a name of its own.");
#define ABACUS_METHOD_ROW_(method) ::abacus::runtime::internal::MakeMethod<&AbacusSelf::method>(),

// Makes class Class callable through Ref<Class>. `name` is its name on the wire, the same in every
// build; `version` counts the changes of its checkpoint's form; then the methods, at most 54.
#define ABACUS_OBJECT(Class, name, version, ...)                                              \
 public:                                                                                      \
  using AbacusSelf = Class;                                                                   \
  static constexpr std::string_view kAbacusName = name;                                       \
  static constexpr uint32_t kAbacusVersion = version;                                         \
  struct AbacusProxy : ::abacus::runtime::RefBase {                                           \
    ABACUS_EACH_(ABACUS_PROXY_METHOD_, __VA_ARGS__)                                           \
  };                                                                                          \
  static std::vector<::abacus::runtime::MethodInfo> AbacusMethods() {                         \
    ABACUS_EACH_(ABACUS_METHOD_CHECK_, __VA_ARGS__)                                           \
    return {ABACUS_EACH_(ABACUS_METHOD_ROW_, __VA_ARGS__)};                                   \
  }
// clang-format on

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_MOBILE_OBJECT_H_
