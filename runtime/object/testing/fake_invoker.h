#ifndef ABACUS_RUNTIME_OBJECT_TESTING_FAKE_INVOKER_H_
#define ABACUS_RUNTIME_OBJECT_TESTING_FAKE_INVOKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "runtime/base/mutex.h"
#include "runtime/object/invoker.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::runtime::testing {

// A node without a network: hosts the objects that a test hands it and answers as the test says.
// Must be made before the objects and the Refs that it names, and so ends after them.
// Thread-safety: Host() and the scripts are for one thread; the rest is thread-safe.
class FakeInvoker : public Invoker, private ObjectHost {
 public:
  struct Call : OutgoingCall {
    explicit Call(FakeInvoker& invoker) : invoker(invoker) {}
    ~Call() override { ++invoker.calls_ended; }
    FakeInvoker& invoker;
  };

  // Gives `object` a name and an open gate.
  template <typename T>
  Ref<T> Host(T& object) {
    RefBase base = Add();
    base.entry()->object = &object;
    base.entry()->gate = Gate::kOpen;
    Name(object, base);
    return Ref<T>(std::move(base));
  }
  // A reference to an object that is elsewhere.
  template <typename T>
  Ref<T> Elsewhere() {
    return Ref<T>(Add());
  }

  // What Start() and Finish() do. Without a script: kFailed, "nobody is there".
  std::function<Route(ThreadContext&, Entry&, MethodId, absl::FunctionRef<Payload()>,
                      std::unique_ptr<OutgoingCall>*, absl::Status*)>
      on_start;
  std::function<Route(ThreadContext&, OutgoingCall&, Payload*, absl::Status*)> on_finish;

  std::atomic<int> starts{0}, finishes{0}, decoded{0}, lefts{0}, lefts_inside{0}, unreferenced{0};
  std::atomic<int> calls_ended{0};

  Route Start(ThreadContext& thread, Entry& entry, MethodId method,
              absl::FunctionRef<Payload()> encode, std::unique_ptr<OutgoingCall>* call,
              absl::Status* status) override {
    ++starts;
    if (on_start) return on_start(thread, entry, method, encode, call, status);
    *status = absl::UnavailableError("nobody is there");
    return Route::kFailed;
  }
  Route Finish(ThreadContext& thread, OutgoingCall& call, Payload* result,
               absl::Status* status) override {
    ++finishes;
    if (on_finish) return on_finish(thread, call, result, status);
    *status = absl::UnavailableError("nobody answers");
    return Route::kFailed;
  }
  void Decoded(ThreadContext&, std::unique_ptr<OutgoingCall>) override { ++decoded; }
  void LeftInside(ThreadContext& thread, Entry& entry) override {
    ++lefts_inside;
    thread.Pop(&entry);
  }
  void Left(Entry&) override { ++lefts; }

  Entry* Intern(const Rid& rid) override {
    MutexLock lock(mutex_);
    std::unique_ptr<Entry>& entry = entries_[rid];
    if (entry == nullptr) {
      entry = std::make_unique<Entry>();
      entry->rid = rid;
      entry->slot = ++last_slot_;
      entry->invoker = this;
    }
    ++entry->references;
    return entry.get();
  }
  void Unreferenced(Entry* entry) override {
    MutexLock lock(mutex_);
    if (entry->references.fetch_sub(1) == 1) ++unreferenced;
  }
  ActivityId NewActivity() override { return {{1, 1}, ++last_activity_}; }

 private:
  RefBase Add() { return RefBase(Intern(Rid{{1, 1}, ++last_local_})); }

  Mutex mutex_;
  std::map<Rid, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  uint32_t last_slot_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_local_ = 0;
  std::atomic<uint64_t> last_activity_{0};
};

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_OBJECT_TESTING_FAKE_INVOKER_H_
