#ifndef ABACUS_RUNTIME_OBJECT_REF_H_
#define ABACUS_RUNTIME_OBJECT_REF_H_

// Ref<T>: a reference to an object wherever it is (paper, section 5.1).
//
//   Ref<Counter> counter = ...;
//   absl::StatusOr<int64_t> sum = counter->Add(3);      // a procedure call where it is here
//
//   Branch<int64_t> a = counter.Fork<&Counter::Add>(1); // both at once
//   Branch<int64_t> b = other.Fork<&Counter::Add>(2);
//   absl::StatusOr<int64_t> x = a.Join(), y = b.Join();

#include <cassert>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/codec.h"
#include "runtime/base/status.h"
#include "runtime/object/invoker.h"
#include "runtime/object/method.h"

namespace abacus::runtime {

// The untyped half: holds one reference to the node's entry of the object.
class RefBase {
 public:
  RefBase() = default;
  // Takes over one reference (as Invoker::Intern gives it).
  explicit RefBase(Entry* entry) : entry_(entry) {}
  RefBase(const RefBase& other) : entry_(other.entry_) {
    if (entry_ != nullptr) entry_->references.fetch_add(1, std::memory_order_relaxed);
  }
  RefBase(RefBase&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  RefBase& operator=(RefBase other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~RefBase() { Reset(); }

  void Reset() {
    if (entry_ == nullptr) return;
    Entry* entry = std::exchange(entry_, nullptr);
    // The last one is given back under the invoker's lock, where new ones are made: were it counted
    // down here, two threads could both believe that theirs had been the last.
    uint32_t references = entry->references.load(std::memory_order_relaxed);
    while (references > 1) {
      if (entry->references.compare_exchange_weak(
              references, references - 1, std::memory_order_acq_rel, std::memory_order_relaxed)) {
        return;
      }
    }
    entry->invoker->Unreferenced(entry);
  }

  Entry* entry() const { return entry_; }
  Rid rid() const { return entry_ == nullptr ? Rid{} : entry_->rid; }
  explicit operator bool() const { return entry_ != nullptr; }
  friend bool operator==(const RefBase& a, const RefBase& b) { return a.rid() == b.rid(); }

 private:
  Entry* entry_ = nullptr;
};

namespace internal {

absl::Status NullRef(const std::string& method);
absl::Status TooDeep();

// Runs the method on the object that is here. REQUIRES: the frame is pushed and admitted.
template <auto kMethod, typename... Args>
typename MethodTraits<decltype(kMethod)>::Result RunHere(ThreadContext& thread, Entry& entry,
                                                         Args&&... args) {
  using Traits = MethodTraits<decltype(kMethod)>;
  using Result = typename Traits::Result;
  assert(HeldLocks() == 0 && "a lock is held across a call to another object");
  auto& object = *static_cast<typename Traits::Class*>(entry.object);
  if (entry.turn != nullptr) [[unlikely]]
    entry.turn->Enter({thread.activity, thread.level()}, thread.lineage);
  if (!entry.invoker->accounting()) {
    Result result = (object.*kMethod)(std::forward<Args>(args)...);
    if (entry.turn != nullptr) [[unlikely]]
      entry.turn->Leave();
    return result;
  }
  const uint64_t request_bytes = Traits::ArgumentBytes(args...);
  thread.AccountEnter();
  Result result = (object.*kMethod)(std::forward<Args>(args)...);
  thread.AccountLeave(request_bytes, Traits::ResultBytes(result));
  if (entry.turn != nullptr) [[unlikely]]
    entry.turn->Leave();
  return result;
}

// The straight call: true where it was made. Takes no lock and allocates nothing.
template <auto kMethod, typename Result, typename... Args>
inline bool CallStraight(ThreadContext& thread, Entry& entry, std::optional<Result>& result,
                         Args&&... args) {
  const bool open = thread.Push(&entry) == Gate::kOpen;
  if (open) [[likely]]
    result.emplace(RunHere<kMethod>(thread, entry, std::forward<Args>(args)...));
  if (thread.Pop(&entry) != Gate::kOpen) [[unlikely]]
    entry.invoker->Left(entry);
  return open;
}

template <auto kMethod, typename Result>
Result DecodeResult(const absl::Status& status, const Payload& payload, Invoker* invoker) {
  using Traits = MethodTraits<decltype(kMethod)>;
  if (!status.ok()) return status;
  if constexpr (Traits::kReturnsValue) {
    Reader reader(payload, invoker);
    auto value = Decoded<typename Traits::Value>(reader);
    if (!reader.ok()) return reader.status();
    return value;
  } else {
    return absl::OkStatus();
  }
}

template <auto kMethod, typename... Args>
[[gnu::noinline]] typename MethodTraits<decltype(kMethod)>::Result CallSlow(ThreadContext& thread,
                                                                            Entry& entry,
                                                                            Args&&... args) {
  using Traits = MethodTraits<decltype(kMethod)>;
  using Result = typename Traits::Result;
  const auto encode = [&] { return Traits::EncodeArguments(args...); };
  std::optional<Result> result;
  for (;;) {
    std::unique_ptr<OutgoingCall> call;
    absl::Status status;
    Payload payload;
    Invoker::Route route =
        entry.invoker->Start(thread, entry, MethodIdOf<kMethod>(), encode, &call, &status);
    if (route == Invoker::Route::kRemote) {
      route = entry.invoker->Finish(thread, *call, &payload, &status);
    }
    switch (route) {
      case Invoker::Route::kRemote: {
        Result decoded = DecodeResult<kMethod, Result>(status, payload, entry.invoker);
        entry.invoker->Decoded(thread, std::move(call));
        return decoded;
      }
      case Invoker::Route::kFailed:
        return status;
      case Invoker::Route::kRunInside:
        result.emplace(RunHere<kMethod>(thread, entry, args...));
        entry.invoker->LeftInside(thread, entry);
        return *std::move(result);
      case Invoker::Route::kRunLocal:
        if (CallStraight<kMethod>(thread, entry, result, args...)) return *std::move(result);
    }
  }
}

// One invocation through a reference, from the proxy that ABACUS_OBJECT makes.
template <auto kMethod, typename... Args>
inline typename MethodTraits<decltype(kMethod)>::Result Call(const RefBase& ref, Args&&... args) {
  using Traits = MethodTraits<decltype(kMethod)>;
  using Result = typename Traits::Result;
  static_assert(Traits::template kTakes<Args...>,
                "abacus: the arguments do not fit the method's parameters");
  if (!ref) [[unlikely]]
    return NullRef(MethodName<kMethod>());
  Entry& entry = *ref.entry();
  ThreadContext& thread = ThreadContext::Of(*entry.invoker);
  if (thread.level() >= kNestingMax) [[unlikely]]
    return TooDeep();
  std::optional<Result> result;
  if (CallStraight<kMethod>(thread, entry, result, std::forward<Args>(args)...)) [[likely]] {
    return *std::move(result);
  }
  // Arguments are still whole: a straight call that was not made did not touch them.
  return CallSlow<kMethod>(thread, entry, args...);
}

}  // namespace internal

// One branch of a fork: an invocation that runs beside its parent (fork and join). It is an
// activity of its own whose root is the parent's. A branch to an object on this node runs when it
// is joined; one to another node runs at once. Dropping an unjoined branch abandons it: whether it
// ran is not known, and its result is dropped. Owner-thread: the thread that forked it, before its
// method returns.
template <typename Result>
class [[nodiscard]] BranchOf {
 public:
  Result Join() { return join_(*this); }

  BranchOf(BranchOf&&) = default;
  BranchOf& operator=(BranchOf&&) = default;

 private:
  template <typename T>
  friend class Ref;
  explicit BranchOf(std::function<Result(BranchOf&)> join) : join_(std::move(join)) {}
  std::function<Result(BranchOf&)> join_;
};

template <typename T>
class Ref {
 public:
  using Proxy = typename T::AbacusProxy;

  Ref() = default;
  explicit Ref(RefBase base) : proxy_{std::move(base)} {}

  // Calls a method that T lists: ref->Method(arguments). A copy of what T's method returns; errors
  // of the runtime come as typed statuses (runtime/base/status.h).
  const Proxy* operator->() const { return &proxy_; }

  // Calls a method beside the current one; see BranchOf.
  template <auto kMethod, typename... Args>
  auto Fork(Args&&... args) const;

  Rid rid() const { return proxy_.rid(); }
  const RefBase& base() const { return proxy_; }
  explicit operator bool() const { return static_cast<bool>(base()); }
  friend bool operator==(const Ref& a, const Ref& b) { return a.base() == b.base(); }

 private:
  Proxy proxy_;
};

namespace internal {

// Makes a branch's activity the thread's for a scope.
class BranchScope {
 public:
  // `lineage` is the branch's.
  BranchScope(ThreadContext& thread, const ActivityId& branch, const Lineage& lineage,
              uint64_t* sequence);
  ~BranchScope();
  BranchScope(const BranchScope&) = delete;

 private:
  ThreadContext& thread_;
  const ActivityId parent_;
  const uint64_t parent_sequence_;
  Lineage parent_lineage_;
  uint64_t* sequence_;
};

// A branch may be joined when what the views among its arguments show is gone: it keeps copies.
template <typename Argument>
using KeptArgument =
    std::conditional_t<std::is_same_v<Argument, std::string_view>, std::string, Argument>;
template <typename Arguments>
struct KeptArguments;
template <typename... Argument>
struct KeptArguments<std::tuple<Argument...>> {
  using Type = std::tuple<KeptArgument<Argument>...>;
  static_assert(!HoldsView<Type>::value,
                "abacus: a method that takes views inside of other values cannot be forked");
};

// What a branch keeps between fork and join.
template <auto kMethod>
struct BranchState {
  using Traits = MethodTraits<decltype(kMethod)>;
  RefBase ref;
  ActivityId activity;
  Lineage lineage;
  uint64_t sequence = 0;
  typename KeptArguments<typename Traits::Arguments>::Type arguments;
  std::unique_ptr<OutgoingCall> call;
  absl::Status failed;
};

}  // namespace internal

template <typename T>
template <auto kMethod, typename... Args>
auto Ref<T>::Fork(Args&&... args) const {
  using Traits = internal::MethodTraits<decltype(kMethod)>;
  using Result = typename Traits::Result;
  using State = internal::BranchState<kMethod>;
  auto state = std::make_shared<State>();
  state->ref = base();
  state->arguments = decltype(state->arguments)(std::forward<Args>(args)...);
  if (!state->ref) {
    return BranchOf<Result>([](BranchOf<Result>&) -> Result {
      return internal::NullRef(internal::MethodName<kMethod>());
    });
  }
  Entry& entry = *state->ref.entry();
  ThreadContext& thread = ThreadContext::Of(*entry.invoker);
  state->activity = entry.invoker->NewActivity();
  state->lineage = thread.lineage;
  state->lineage.push_back({thread.activity, thread.level()});
  if (entry.gate.load(std::memory_order_acquire) == Gate::kAbsent) {
    internal::BranchScope scope(thread, state->activity, state->lineage, &state->sequence);
    const auto encode = [&] {
      return std::apply([](const auto&... a) { return Traits::EncodeArguments(a...); },
                        state->arguments);
    };
    const Invoker::Route route = entry.invoker->Start(
        thread, entry, internal::MethodIdOf<kMethod>(), encode, &state->call, &state->failed);
    if (route == Invoker::Route::kRunInside) entry.invoker->LeftInside(thread, entry);
  }
  return BranchOf<Result>([state](BranchOf<Result>&) -> Result {
    if (!state->failed.ok()) return state->failed;
    Entry& entry = *state->ref.entry();
    ThreadContext& thread = ThreadContext::Of(*entry.invoker);
    internal::BranchScope scope(thread, state->activity, state->lineage, &state->sequence);
    if (state->call != nullptr) {
      Payload payload;
      absl::Status status;
      const Invoker::Route route = entry.invoker->Finish(thread, *state->call, &payload, &status);
      if (route == Invoker::Route::kFailed) return status;
      if (route == Invoker::Route::kRemote) {
        Result decoded = internal::DecodeResult<kMethod, Result>(status, payload, entry.invoker);
        entry.invoker->Decoded(thread, std::move(state->call));
        return decoded;
      }
      if (route == Invoker::Route::kRunInside) entry.invoker->LeftInside(thread, entry);
    }
    return std::apply([&](auto&... a) { return internal::Call<kMethod>(state->ref, a...); },
                      state->arguments);
  });
}

template <typename T>
struct Codec<Ref<T>> {
  static void Encode(Writer& w, const Ref<T>& v) { runtime::Encode(w, v.rid()); }
  static void Decode(Reader& r, Ref<T>& v) {
    const Rid rid = Decoded<Rid>(r);
    if (!r.ok() || !rid.valid()) {
      v = Ref<T>();
    } else if (r.invoker() == nullptr) {
      r.Fail("a reference is read where no node can follow it");
    } else {
      v = Ref<T>(RefBase(r.invoker()->Intern(rid)));
    }
  }
  static size_t Bytes(const Ref<T>&) { return sizeof(Rid); }
  static std::string Name() { return "r"; }
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_REF_H_
