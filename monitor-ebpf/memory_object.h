#ifndef ABACUS_MONITOR_EBPF_MEMORY_OBJECT_H_
#define ABACUS_MONITOR_EBPF_MEMORY_OBJECT_H_

// The word by which the memory that a thread allocates is charged: see memory.h.

#include <atomic>
#include <cstdint>

namespace abacus::monitor {

// The object in which the calling thread is now, by its slot: a dense number, so that the counters
// of 100,000 objects stand next to each other. 0: outside of all objects.
//
// A bare word, because two stores per invocation are all that the invocation path shall pay. The
// model spares a call per access; it is valid in executables and what they link at start.
// Write it with SetMemoryObject(). Units: none. Thread-safety: one per thread. Limits: kNoObject is
// not a slot.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local uint32_t memory_object = 0;

// Blocks allocated while memory_object has this value are counted for nobody, not even for slot 0.
inline constexpr uint32_t kNoObject = 0xffff'ffff;

// Sets memory_object, at the place where it is written. Compilers know malloc() and take it for a
// function that does not look at our word: they leave out a plain store that only a malloc()
// separates from the next one. The fences keep the compiler from that and cost no instruction.
inline void SetMemoryObject(uint32_t object) noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  memory_object = object;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Puts the calling thread into an object for the length of a scope, and then back into the one that
// it was in. Thread-safety: owner-thread, the one that constructed it.
class MemoryScope {
 public:
  explicit MemoryScope(uint32_t object) noexcept : outer_(memory_object) {
    SetMemoryObject(object);
  }
  ~MemoryScope() { SetMemoryObject(outer_); }

  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const uint32_t outer_;
};

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_MEMORY_OBJECT_H_
