#include "runtime/base/block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/status/status.h"
#include "runtime/base/large_memory.h"
#include "runtime/base/status.h"

namespace abacus::runtime {

// One header for the three ways of holding bytes: behind the header in the same allocation, in a
// string of our own, or in a mapping.
struct Block::Storage {
  std::atomic<uint32_t> holders{1};
  std::string owned;
  void* mapping = nullptr;
  size_t mapping_bytes = 0;
  size_t large_room = 0;  // of LargeMemory; 0: not from there

  void Release() {
    if (holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (mapping != nullptr) munmap(mapping, mapping_bytes);
    const size_t room = large_room;
    this->~Storage();
    if (room > 0) return LargeMemory::Give(this, room);
    ::operator delete(this);
  }
};

Block::Block(const Block& other) noexcept
    : storage_(other.storage_), data_(other.data_), size_(other.size_) {
  if (storage_ != nullptr) storage_->holders.fetch_add(1, std::memory_order_relaxed);
}

Block::Block(Block&& other) noexcept
    : storage_(std::exchange(other.storage_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Block& Block::operator=(Block other) noexcept {
  std::swap(storage_, other.storage_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Block::~Block() {
  if (storage_ != nullptr) storage_->Release();
}

Block Block::Allocate(size_t bytes) {
  // Room to move the bytes up to the next multiple. Not operator new with an alignment: that one
  // goes past the allocator's caches of the thread.
  const size_t all = sizeof(Storage) + (kAlignment - alignof(Storage)) + bytes;
  const bool is_large = all >= LargeMemory::kMin && all <= LargeMemory::kMax;
  auto* storage = new (is_large ? LargeMemory::Take(all) : ::operator new(all)) Storage;
  if (is_large) storage->large_room = LargeMemory::RoomFor(all);
  const uintptr_t behind = reinterpret_cast<uintptr_t>(storage + 1);
  return Block(storage, reinterpret_cast<char*>(storage + 1) + (-behind & (kAlignment - 1)), bytes);
}

Block Block::CopyOf(std::string_view bytes) {
  Block block = Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(block.mutable_data(), bytes.data(), bytes.size());
  return block;
}

Block Block::FromString(std::string bytes) {
  auto* storage = new (::operator new(sizeof(Storage))) Storage;
  storage->owned = std::move(bytes);
  return Block(storage, storage->owned.data(), storage->owned.size());
}

absl::StatusOr<Block> Block::AllocateInFile(size_t bytes, const std::string& directory) {
  if (bytes == 0) return Block::Allocate(0);
  std::string path = directory + "/abacus-state-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a state file in " + directory);
  unlink(path.c_str());
  // Reserve the space now: a full disk must be an error here and not a SIGBUS later.
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
    close(fd);
    return absl::ErrnoToStatus(
        error, "cannot reserve " + std::to_string(bytes) + " bytes for state in " + directory);
  }
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (mapping == MAP_FAILED) return absl::ErrnoToStatus(error, "cannot map a state file");
  auto* storage = new (::operator new(sizeof(Storage))) Storage;
  storage->mapping = mapping;
  storage->mapping_bytes = bytes;
  return Block(storage, static_cast<const char*>(mapping), bytes);
}

char* Block::mutable_data() { return const_cast<char*>(data_); }

Block Block::Slice(size_t offset, size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) std::abort();
  Block slice(*this);
  slice.data_ += offset;
  slice.size_ = bytes;
  return slice;
}

}  // namespace abacus::runtime
