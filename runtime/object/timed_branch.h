#ifndef ABACUS_RUNTIME_OBJECT_TIMED_BRANCH_H_
#define ABACUS_RUNTIME_OBJECT_TIMED_BRANCH_H_

#include <memory>
#include <tuple>
#include <utility>

#include "runtime/object/ref.h"

namespace abacus::runtime {

// An outgoing call whose wait somebody else can end.
class TimedCall {
 public:
  virtual ~TimedCall() = default;
  // Whether it is answered: Invoker::Finish() does not block then. Blocking: no.
  virtual bool Answered() = 0;
  // Waits until it is answered, which is true, or the wait was interrupted. On the thread that
  // started it.
  virtual bool Wait(ThreadContext& thread) = 0;
  // Ends a wait, or the next one. Thread-safety: from any thread while the call lives.
  virtual void Interrupt() = 0;
};

// A branch of a fork (BranchOf) whose answer need not be waited for to the end: for hedged calls,
// which ask somebody else where the first one is late. Dropped unjoined, it is abandoned.
//
// A branch to an object on this node runs when it is joined, and counts as answered before: that
// one cannot be hedged.
// Owner-thread: the thread that forked it, before its method returns; but for Interrupt().
template <auto kMethod>
class [[nodiscard]] TimedBranch {
  using Traits = internal::MethodTraits<decltype(kMethod)>;

 public:
  using Result = typename Traits::Result;

  // REQUIRES: `ref` refers to an object.
  template <typename... Args>
  explicit TimedBranch(const RefBase& ref, Args&&... args) : state_(std::make_unique<State>()) {
    state_->ref = ref;
    state_->arguments = decltype(state_->arguments)(std::forward<Args>(args)...);
    Entry& entry = *state_->ref.entry();
    ThreadContext& thread = ThreadContext::Of(*entry.invoker);
    state_->activity = entry.invoker->NewActivity();
    state_->lineage = thread.lineage;
    state_->lineage.push_back({thread.activity, thread.level()});
    if (entry.gate.load(std::memory_order_acquire) != Gate::kAbsent) return;
    internal::BranchScope scope(thread, state_->activity, state_->lineage, &state_->sequence);
    const auto encode = [&] {
      return std::apply([](const auto&... a) { return Traits::EncodeArguments(a...); },
                        state_->arguments);
    };
    const Invoker::Route route = entry.invoker->Start(
        thread, entry, internal::MethodIdOf<kMethod>(), encode, &state_->call, &state_->failed);
    if (route == Invoker::Route::kRunInside) entry.invoker->LeftInside(thread, entry);
  }
  TimedBranch(TimedBranch&&) = default;
  TimedBranch& operator=(TimedBranch&&) = default;

  // Join() has the answer at once, or runs the call here. Blocking: no.
  bool Answered() {
    TimedCall* const timed = Timed();
    return timed == nullptr || timed->Answered();
  }
  // Until it is Answered(), which is true, or Interrupt().
  bool Wait() {
    TimedCall* const timed = Timed();
    return timed == nullptr || timed->Wait(ThreadContext::Of(*state_->ref.entry()->invoker));
  }
  // Thread-safety: from any thread, before Join() and while the branch lives.
  void Interrupt() {
    if (TimedCall* const timed = Timed(); timed != nullptr) timed->Interrupt();
  }

  // Once.
  Result Join() {
    if (!state_->failed.ok()) return state_->failed;
    Entry& entry = *state_->ref.entry();
    ThreadContext& thread = ThreadContext::Of(*entry.invoker);
    internal::BranchScope scope(thread, state_->activity, state_->lineage, &state_->sequence);
    if (state_->call != nullptr) {
      Payload payload;
      absl::Status status;
      const Invoker::Route route = entry.invoker->Finish(thread, *state_->call, &payload, &status);
      if (route == Invoker::Route::kFailed) return status;
      if (route == Invoker::Route::kRemote) {
        Result decoded = internal::DecodeResult<kMethod, Result>(status, payload, entry.invoker);
        entry.invoker->Decoded(thread, std::move(state_->call));
        return decoded;
      }
      if (route == Invoker::Route::kRunInside) entry.invoker->LeftInside(thread, entry);
    }
    return std::apply([&](auto&... a) { return internal::Call<kMethod>(state_->ref, a...); },
                      state_->arguments);
  }

 private:
  using State = internal::BranchState<kMethod>;
  TimedCall* Timed() const { return dynamic_cast<TimedCall*>(state_->call.get()); }
  std::unique_ptr<State> state_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_OBJECT_TIMED_BRANCH_H_
