// malloc, free and their relatives, which charge each block to the object it was allocated in.
//
// A block begins with a header that names the object and the size; the caller's bytes follow. The
// bytes are added up in a small cache of the thread, which only that thread writes, and go from
// there to one counter per object. What an object holds is its counter plus its entries in all
// caches.
//
// Nothing here allocates except by mmap, takes a lock or needs a constructor, because malloc is
// called before the first constructor, after the last destructor and in the child of a fork. The
// child inherits the caches of threads that it does not have, and with them what they had counted;
// nobody will use these caches again, which costs it 2 KiB each. What another thread was about to
// count or to move at the very moment of the fork stays wrong in the child: the block in its hands,
// and up to 64 KiB of an object that was leaving its cache.

#include "monitor-ebpf/memory.h"

#if defined(__has_feature)
#define ABACUS_HAS_FEATURE(feature) __has_feature(feature)
#else
#define ABACUS_HAS_FEATURE(feature) 0
#endif

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !ABACUS_HAS_FEATURE(address_sanitizer) && !ABACUS_HAS_FEATURE(thread_sanitizer) &&       \
    !ABACUS_HAS_FEATURE(memory_sanitizer)

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

// glibc's own allocator, under the names that it keeps for those who replace malloc.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): their names, not ours
void* __libc_malloc(size_t size) noexcept;
void* __libc_calloc(size_t count, size_t size) noexcept;
void* __libc_realloc(void* pointer, size_t size) noexcept;
void __libc_free(void* pointer) noexcept;
// NOLINTEND(bugprone-reserved-identifier)
}

namespace abacus::monitor {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// -- tables ---------------------------------------------------------------------------------------

// A table of zeroes whose blocks are mapped when first needed; elements never move and never go.
// Thread-safety: thread-safe, lock-free.
template <typename T, uint64_t kBlocks, uint64_t kBlockSize>
class LazyTable {
 public:
  static constexpr uint64_t kSize = kBlocks * kBlockSize;

  // Null where the element was never asked for with Get().
  T* Find(uint64_t i) const {
    T* block = blocks_[i / kBlockSize].load(std::memory_order_acquire);
    return block != nullptr ? block + i % kBlockSize : nullptr;
  }

  // Null where the system has no memory left.
  T* Get(uint64_t i) {
    T* element = Find(i);
    return element != nullptr || !Map(blocks_[i / kBlockSize]) ? element : Find(i);
  }

 private:
  static constexpr size_t kBlockBytes = kBlockSize * sizeof(T);

  static bool Map(std::atomic<T*>& block) {
    void* pages = mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return false;
    T* nobody = nullptr;
    const bool first =
        block.compare_exchange_strong(nobody, static_cast<T*>(pages), std::memory_order_acq_rel);
    if (!first) munmap(pages, kBlockBytes);
    return true;
  }

  std::atomic<T*> blocks_[kBlocks] = {};
};

// What has left the caches, by object. Signed, because one thread's frees may arrive here before
// another's allocations.
using Counter = std::atomic<int64_t>;
constinit LazyTable<Counter, 1 << 16, 1 << 16> counters;

// -- the caches of threads ------------------------------------------------------------------------

// Direct-mapped, as many objects as a thread may go round in before it misses. The caches of 1,000
// threads take 2 MiB.
constexpr uint32_t kEntries = 256;

// An entry holds no more than this, so that a delta fits in half a word, and a reader is not far
// off who reads the counter first and the cache later: of a thread it sees the counter of then with
// an entry and a leaving one of now, each up to 64 KiB off to either side: 4 x 64 KiB at most.
constexpr int64_t kCachedBytesMax = 65'536;

// Threads alive at once that have a cache. Those beyond add to the counters directly: exact, but
// they pay for an atomic addition where many threads meet.
constexpr uint64_t kCacheBlock = 64;
constexpr uint64_t kCacheBlocks = 1024;

// An entry is one word, {object, delta}, so that a reader never sees one object with the delta of
// another. A zero word is the entry of object 0 with nothing in it.
constexpr uint64_t Entry(uint32_t object, int64_t delta) {
  return uint64_t{object} << 32 | static_cast<uint32_t>(delta);
}
constexpr uint32_t ObjectOf(uint64_t entry) { return static_cast<uint32_t>(entry >> 32); }
constexpr int64_t DeltaOf(uint64_t entry) { return static_cast<int32_t>(entry); }

struct alignas(64) ThreadCache {
  // Written by the thread that has the cache.
  std::atomic<uint64_t> entries[kEntries];
  std::atomic<uint64_t> leaving;  // the entry that last made room, on its way to its counter

  std::atomic<uint32_t> number;     // in `caches`, from 1
  std::atomic<uint32_t> next_free;  // a number, or 0
};

constinit LazyTable<ThreadCache, kCacheBlocks, kCacheBlock> caches;
constinit std::atomic<uint64_t> caches_taken = 0;  // ever; may exceed the table

// The top of the stack of caches whose threads have ended: {how often it was popped, number}. The
// count keeps a pop from succeeding on a top that went and came back.
constinit std::atomic<uint64_t> free_caches = 0;

// Null until the thread's first allocation, and again when the thread is about to end.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadCache* this_threads_cache = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool has_asked_for_cache = false;

ThreadCache* TopCache(uint64_t top) {
  const auto number = static_cast<uint32_t>(top);
  return number != 0 ? caches.Find(number - 1) : nullptr;
}

ThreadCache* PopFreeCache() {
  uint64_t top = free_caches.load(std::memory_order_acquire);
  while (ThreadCache* cache = TopCache(top)) {
    const uint64_t below = ((top >> 32) + 1) << 32 | cache->next_free.load(kRelaxed);
    if (free_caches.compare_exchange_weak(top, below, std::memory_order_acquire)) return cache;
  }
  return nullptr;
}

// What the ended thread had counted stays in the cache, which stays in the sum, and whoever takes
// the cache next counts on from there.
void PushFreeCache(ThreadCache* cache) {
  uint64_t top = free_caches.load(kRelaxed);
  uint64_t pushed;
  do {
    cache->next_free.store(static_cast<uint32_t>(top), kRelaxed);
    pushed = top >> 32 << 32 | cache->number.load(kRelaxed);
  } while (!free_caches.compare_exchange_weak(top, pushed, std::memory_order_release, kRelaxed));
}

ThreadCache* TakeCache() {
  // The entries of a new cache are those of object 0, whose counter they may be added to.
  if (counters.Get(0) == nullptr) return nullptr;
  if (ThreadCache* cache = PopFreeCache(); cache != nullptr) return cache;
  const uint64_t i = caches_taken.fetch_add(1, kRelaxed);
  ThreadCache* cache = i < caches.kSize ? caches.Get(i) : nullptr;
  if (cache != nullptr) cache->number.store(static_cast<uint32_t>(i + 1), kRelaxed);
  return cache;
}

// A key and not a thread_local with a destructor, which would call malloc to register itself.
pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
pthread_key_t thread_end_key;
constinit std::atomic<bool> has_thread_end_key = false;

// Other destructors may run after this one: what they allocate and free goes to the counters.
void OnThreadEnd(void* cache) {
  this_threads_cache = nullptr;
  PushFreeCache(static_cast<ThreadCache*>(cache));
}

void MakeThreadEndKey() {
  has_thread_end_key = pthread_key_create(&thread_end_key, OnThreadEnd) == 0;
}

// Null where the thread has to do without one.
ThreadCache* ThisThreadsCache() {
  if (has_asked_for_cache) return this_threads_cache;
  has_asked_for_cache = true;  // first, because pthread_setspecific() may call calloc()
  pthread_once(&thread_end_once, MakeThreadEndKey);
  if (!has_thread_end_key) return nullptr;
  ThreadCache* cache = TakeCache();
  if (cache == nullptr) return nullptr;
  if (pthread_setspecific(thread_end_key, cache) != 0) {
    PushFreeCache(cache);
    return nullptr;
  }
  this_threads_cache = cache;
  return cache;
}

// -- charging -------------------------------------------------------------------------------------

bool FitsInCache(int64_t delta) { return delta >= -kCachedBytesMax && delta <= kCachedBytesMax; }

// Makes what `object` or the thread needs for being charged. Returns null for the counter where
// there is no memory for one.
[[gnu::noinline]] Counter* Prepare(uint32_t object) {
  const int saved_errno = errno;
  ThisThreadsCache();
  Counter* counter = counters.Get(object);
  errno = saved_errno;
  return counter;
}

// Where the thread has no entry for `object` yet, or that entry would grow too large. The counter
// of an object exists before its first block does, so it is always there to take a block off, or
// an entry that makes room for another.
[[gnu::noinline]] uint32_t ChargeSlowly(uint32_t object, int64_t bytes) {
  if (object == kNoObject) return kNoObject;
  Counter* counter = counters.Find(object);
  if (counter == nullptr || this_threads_cache == nullptr) [[unlikely]] {
    counter = Prepare(object);
    if (counter == nullptr) return kNoObject;
  }
  ThreadCache* cache = this_threads_cache;
  if (cache == nullptr || !FitsInCache(bytes)) {
    counter->fetch_add(bytes, kRelaxed);
    return object;
  }
  std::atomic<uint64_t>& entry = cache->entries[object % kEntries];
  const uint64_t old = entry.load(kRelaxed);
  const uint64_t gone = cache->leaving.load(kRelaxed);
  entry.store(Entry(object, bytes), kRelaxed);
  cache->leaving.store(old, kRelaxed);
  // The counters of 100,000 objects do not stay in the processor's cache. By the next miss this one
  // is there, which halves what misses add.
  __builtin_prefetch(counters.Find(ObjectOf(old)), 1);
  if (DeltaOf(gone) != 0) counters.Find(ObjectOf(gone))->fetch_add(DeltaOf(gone), kRelaxed);
  return object;
}

// Adds `bytes` to what `object` holds. Returns the object that was charged: kNoObject where there
// is no memory for a counter. The load and the store are no atomic addition, because only this
// thread writes its entries.
inline uint32_t Charge(uint32_t object, int64_t bytes) {
  if (ThreadCache* cache = this_threads_cache; cache != nullptr) [[likely]] {
    std::atomic<uint64_t>& entry = cache->entries[object % kEntries];
    const uint64_t old = entry.load(kRelaxed);
    const int64_t delta = DeltaOf(old) + bytes;
    if (ObjectOf(old) == object && FitsInCache(delta)) [[likely]] {
      entry.store(Entry(object, delta), kRelaxed);
      return object;
    }
  }
  return ChargeSlowly(object, bytes);
}

// -- blocks ---------------------------------------------------------------------------------------

// What stands at Header::check. The word lies in the upper half of where glibc keeps a chunk's size
// in front of a block of its own, and no chunk is 2^63 bytes large, so the highest bit tells the
// two apart for sure.
enum : uint32_t {
  kBlockStartsAtHeader = 0xab5ac01d,
  kBlockStartsBefore = 0xab5ac02e,  // aligned: where, is written in the word before the header
  kFreed = 0,
};

struct Header {
  uint64_t size;
  uint32_t object;
  uint32_t check;
};
static_assert(std::endian::native == std::endian::little, "the check is a size's upper half");
static_assert(sizeof(Header) == 16 && alignof(std::max_align_t) == 16,
              "the caller's bytes are aligned as glibc aligned the header");

constexpr size_t kSizeMax = std::numeric_limits<ptrdiff_t>::max() - sizeof(Header);

Header* HeaderOf(void* pointer) { return static_cast<Header*>(pointer) - 1; }

void*& StartBefore(Header* header) { return reinterpret_cast<void**>(header)[-1]; }

// A block without our check word was allocated by glibc's own malloc, and goes back there. Only a
// caller of __libc_malloc has one. glibc itself calls malloc, through its PLT, so that it gets
// ours; the dynamic linker does from the end of relocation on, before any constructor runs, and
// what it allocated until then from its own small heap it never frees.
bool IsOurs(const Header* header) {
  return header->check == kBlockStartsAtHeader || header->check == kBlockStartsBefore;
}

void* OutOfMemory() {
  errno = ENOMEM;
  return nullptr;
}

inline void* Label(Header* header, size_t size, uint32_t object, uint32_t check) {
  header->size = size;
  header->object = Charge(object, static_cast<int64_t>(size));
  header->check = check;
  return header + 1;
}

inline void* Allocate(size_t size) {
  if (size > kSizeMax) [[unlikely]]
    return OutOfMemory();
  void* block = __libc_malloc(size + sizeof(Header));
  if (block == nullptr) [[unlikely]]
    return nullptr;
  return Label(static_cast<Header*>(block), size, memory_object, kBlockStartsAtHeader);
}

// REQUIRES: `alignment` is a power of two.
//
// glibc aligns the block to 16 bytes; with A = alignment > 16 the first multiple of A that leaves
// room for a header is at most A bytes into it. It is 16 bytes in, and the block an ordinary one,
// or at least 32, which leaves room for the word before the header.
void* AllocateAligned(size_t alignment, size_t size) {
  if (alignment <= sizeof(Header)) return Allocate(size);
  if (size > kSizeMax) return OutOfMemory();
  void* block = __libc_malloc(size + alignment);  // at most 2^63 + kSizeMax: no overflow
  if (block == nullptr) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(block);
  const uintptr_t aligned = (start + sizeof(Header) + alignment - 1) & ~(alignment - 1);
  Header* header = HeaderOf(static_cast<char*>(block) + (aligned - start));
  if (header == block) return Label(header, size, memory_object, kBlockStartsAtHeader);
  StartBefore(header) = block;
  return Label(header, size, memory_object, kBlockStartsBefore);
}

// As glibc's memalign(), to the next power of two where `alignment` is none.
void* AllocateRoundlyAligned(size_t alignment, size_t size) {
  constexpr size_t kLargestPower = ~(std::numeric_limits<size_t>::max() >> 1);
  if (alignment > kLargestPower) {
    errno = EINVAL;
    return nullptr;
  }
  return AllocateAligned(std::bit_ceil(alignment), size);
}

inline void Free(void* pointer) {
  Header* header = HeaderOf(pointer);
  if (!IsOurs(header)) [[unlikely]] {
    __libc_free(pointer);  // aborts where `pointer` was freed before, as without us
    return;
  }
  Charge(header->object, -static_cast<int64_t>(header->size));
  void* block = header;
  if (header->check == kBlockStartsBefore) [[unlikely]]
    block = StartBefore(header);
  header->check = kFreed;
  __libc_free(block);
}

// The object that was charged first stays charged, whoever reallocates: the bytes are still what
// that object asked for. REQUIRES: neither argument is null.
void* Reallocate(void* pointer, size_t size) {
  Header* header = HeaderOf(pointer);
  if (!IsOurs(header)) return __libc_realloc(pointer, size);
  if (size > kSizeMax) return OutOfMemory();
  if (header->check == kBlockStartsBefore) {
    // As in glibc, a block that has moved is no longer aligned to more than 16 bytes.
    const MemoryScope scope(header->object);
    void* moved = Allocate(size);
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, pointer, std::min<uint64_t>(size, header->size));
    Free(pointer);
    return moved;
  }
  void* block = __libc_realloc(header, size + sizeof(Header));
  if (block == nullptr) return nullptr;
  header = static_cast<Header*>(block);
  Charge(header->object, static_cast<int64_t>(size - header->size));
  header->size = size;
  return header + 1;
}

}  // namespace

// -- reading --------------------------------------------------------------------------------------

namespace {

template <typename Visit>
void VisitCaches(const Visit& visit) {
  const uint64_t taken = std::min(caches_taken.load(std::memory_order_acquire), caches.kSize);
  for (uint64_t i = 0; i < taken; ++i) {
    if (const ThreadCache* cache = caches.Find(i); cache != nullptr) visit(*cache);
  }
}

// While threads are at it a sum can fall below zero: this one saw the free but not the malloc.
uint64_t NotNegative(int64_t bytes) { return static_cast<uint64_t>(std::max<int64_t>(bytes, 0)); }

}  // namespace

bool MemoryIsCounted() { return true; }

uint64_t MemoryOf(uint32_t object) {
  const Counter* counter = counters.Find(object);
  if (counter == nullptr) return 0;
  int64_t bytes = counter->load(kRelaxed);
  VisitCaches([&](const ThreadCache& cache) {
    for (const auto* word : {&cache.entries[object % kEntries], &cache.leaving}) {
      const uint64_t entry = word->load(kRelaxed);
      if (ObjectOf(entry) == object) bytes += DeltaOf(entry);
    }
  });
  return NotNegative(bytes);
}

void MemoryOfAll(std::span<uint64_t> bytes) {
  for (size_t object = 0; object < bytes.size(); ++object) {
    const Counter* counter = object < counters.kSize ? counters.Find(object) : nullptr;
    bytes[object] = counter != nullptr ? static_cast<uint64_t>(counter->load(kRelaxed)) : 0;
  }
  const auto add = [&](const std::atomic<uint64_t>& word) {
    const uint64_t entry = word.load(kRelaxed);
    if (ObjectOf(entry) >= bytes.size()) return;
    bytes[ObjectOf(entry)] += static_cast<uint64_t>(DeltaOf(entry));
  };
  VisitCaches([&](const ThreadCache& cache) {
    for (const auto& word : cache.entries) add(word);
    add(cache.leaving);
  });
  for (uint64_t& sum : bytes) sum = NotNegative(static_cast<int64_t>(sum));
}

}  // namespace abacus::monitor

// -- the hooks ------------------------------------------------------------------------------------

using namespace abacus::monitor;  // NOLINT(google-build-using-namespace)

extern "C" {

void* malloc(size_t size) noexcept { return Allocate(size); }

void free(void* pointer) noexcept {
  if (pointer != nullptr) Free(pointer);
}

// glibc knows which of its pages are zero already, and so does not touch a large block.
void* calloc(size_t count, size_t size) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > kSizeMax) return OutOfMemory();
  void* block = __libc_calloc(1, bytes + sizeof(Header));
  if (block == nullptr) return nullptr;
  return Label(static_cast<Header*>(block), bytes, memory_object, kBlockStartsAtHeader);
}

void* realloc(void* pointer, size_t size) noexcept {
  if (pointer == nullptr) return Allocate(size);
  if (size != 0) return Reallocate(pointer, size);
  Free(pointer);
  return nullptr;
}

void* reallocarray(void* pointer, size_t count, size_t size) noexcept {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return OutOfMemory();
  return realloc(pointer, bytes);
}

void* memalign(size_t alignment, size_t size) noexcept {
  return AllocateRoundlyAligned(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return AllocateRoundlyAligned(alignment, size);
}

int posix_memalign(void** pointer, size_t alignment, size_t size) noexcept {
  if (alignment < sizeof(void*) || !std::has_single_bit(alignment)) return EINVAL;
  void* block = AllocateAligned(alignment, size);
  if (block == nullptr) return ENOMEM;
  *pointer = block;
  return 0;
}

void* valloc(size_t size) noexcept {
  return AllocateAligned(static_cast<size_t>(getpagesize()), size);
}

void* pvalloc(size_t size) noexcept {
  const auto page = static_cast<size_t>(getpagesize());
  if (size > kSizeMax - page) return OutOfMemory();
  return AllocateAligned(page, (size + page - 1) / page * page);
}

// What was asked for and not what glibc rounded it up to: the rest is not counted.
size_t malloc_usable_size(void* pointer) noexcept {
  if (pointer == nullptr) return 0;
  if (const Header* header = HeaderOf(pointer); IsOurs(header)) return header->size;
  const auto glibcs = reinterpret_cast<size_t (*)(void*)>(dlsym(RTLD_NEXT, "malloc_usable_size"));
  return glibcs(pointer);
}

}  // extern "C"

#endif
