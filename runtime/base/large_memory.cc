#include "runtime/base/large_memory.h"

#include <array>
#include <bit>
#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace abacus::runtime {
namespace {

// Four sizes from each power of two to the next.
constexpr size_t kSteps = 4;
constexpr size_t kClasses =
    kSteps * (std::bit_width(LargeMemory::kMax / LargeMemory::kMin) - 1) + 1;

// Worked: 100 KiB are in the doubling that begins at 64 KiB, whose step is 16 KiB: class 3, which
// has 112 KiB.
size_t ClassOf(size_t bytes) {
  if (bytes <= LargeMemory::kMin) return 0;
  const size_t doubling = std::bit_width((bytes - 1) / LargeMemory::kMin) - 1;
  const size_t from = LargeMemory::kMin << doubling;
  const size_t step = from / kSteps;
  return doubling * kSteps + (bytes - from + step - 1) / step;
}

size_t RoomOf(size_t size_class) {
  const size_t from = LargeMemory::kMin << (size_class / kSteps);
  return from + size_class % kSteps * (from / kSteps);
}

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kKept = 0;
#else
constexpr size_t kKept = LargeMemory::kKeptMax;
#endif

struct Kept {
  Mutex mutex;
  std::array<std::vector<void*>, kClasses> free ABSL_GUARDED_BY(mutex);
  size_t bytes ABSL_GUARDED_BY(mutex) = 0;
};

// Blocks may outlive whatever has static storage.
Kept& TheKept() {
  static Kept* const kept = new Kept;
  return *kept;
}

}  // namespace

size_t LargeMemory::RoomFor(size_t bytes) { return RoomOf(ClassOf(bytes)); }

void* LargeMemory::Take(size_t bytes) {
  const size_t size_class = ClassOf(bytes);
  Kept& kept = TheKept();
  {
    MutexLock lock(kept.mutex);
    std::vector<void*>& free = kept.free[size_class];
    if (!free.empty()) {
      void* const memory = free.back();
      free.pop_back();
      kept.bytes -= RoomOf(size_class);
      return memory;
    }
  }
  return ::operator new(RoomOf(size_class));
}

void LargeMemory::Give(void* memory, size_t room) {
  Kept& kept = TheKept();
  {
    MutexLock lock(kept.mutex);
    if (kept.bytes + room <= kKept) {
      kept.free[ClassOf(room)].push_back(memory);
      kept.bytes += room;
      return;
    }
  }
  ::operator delete(memory);
}

size_t LargeMemory::kept_bytes() {
  Kept& kept = TheKept();
  MutexLock lock(kept.mutex);
  return kept.bytes;
}

}  // namespace abacus::runtime
