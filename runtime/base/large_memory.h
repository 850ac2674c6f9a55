#ifndef ABACUS_RUNTIME_BASE_LARGE_MEMORY_H_
#define ABACUS_RUNTIME_BASE_LARGE_MEMORY_H_

#include <cstddef>

namespace abacus::runtime {

// Memory of large blocks: what is given back is kept for the next ones, up to a bound. An allocator
// returns memory of this size to the kernel and takes it anew, page by page; a reply of 128 KiB
// then costs some 0.1 ms more, on the thread of whoever lets it go.
//
// Under AddressSanitizer nothing is kept, as it could not tell of a use after the end.
// Thread-safety: thread-safe. Blocking: no.
class LargeMemory {
 public:
  // What is smaller or larger is no business of this.
  static constexpr size_t kMin = size_t{64} << 10;
  static constexpr size_t kMax = size_t{4} << 20;
  static constexpr size_t kKeptMax = size_t{16} << 20;  // bytes, of the whole process

  // Units: bytes. What Take(bytes) has room for: rounded up by less than a quarter.
  // REQUIRES: kMin <= bytes <= kMax.
  static size_t RoomFor(size_t bytes);
  // Not initialised; aligned as operator new does. Ends with Give(memory, RoomFor(bytes)).
  static void* Take(size_t bytes);
  static void Give(void* memory, size_t room);
  static size_t kept_bytes();
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_LARGE_MEMORY_H_
