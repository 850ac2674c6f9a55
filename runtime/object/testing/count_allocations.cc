// A file of its own: where the compiler sees a replaced operator, it warns of each new and delete.

#include "runtime/object/testing/count_allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local uint64_t allocations = 0;

void* Allocate(size_t bytes, size_t alignment) {
  ++allocations;
  // aligned_alloc() wants a whole multiple of the alignment.
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// The other forms come down to these.
void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace abacus::runtime::testing {

uint64_t ThreadAllocations() { return allocations; }

}  // namespace abacus::runtime::testing
