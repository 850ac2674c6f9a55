#ifndef ABACUS_RUNTIME_BASE_BLOCK_H_
#define ABACUS_RUNTIME_BASE_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace abacus::runtime {

// A reference-counted, contiguous run of bytes: what objects hand to each other in bulk.
//
// Copying a Block copies a pointer; co-located calls pass it without touching the bytes, and the
// transport gathers from and scatters into it, so that data is not copied a second time.
// Why not absl::Cord: a layer wants contiguous bytes to compute on, and the receiver wants to read
// from the socket straight into them.
//
// Thread-safety: the bytes may be read from many threads. They may be written only through
// mutable_data(), while one Block holds them.
class Block {
 public:
  Block() = default;
  Block(const Block& other) noexcept;
  Block(Block&& other) noexcept;
  Block& operator=(Block other) noexcept;
  ~Block();

  // What Allocate() and CopyOf() give begins at a multiple of this: a line of the processor's
  // caches, and what its widest instructions want (parity is computed over blocks as they come).
  static constexpr size_t kAlignment = 64;

  // Bytes are not initialised. Aborts where memory is out, as operator new does.
  static Block Allocate(size_t bytes);
  static Block CopyOf(std::string_view bytes);
  // Takes over the string's bytes without copying them.
  static Block FromString(std::string bytes);
  // A block whose bytes live in an unlinked file in `directory`, mapped into memory, so that state
  // that is larger than memory should hold can be written out by the kernel.
  // Errors: the directory's (kNotFound, kPermissionDenied, kResourceExhausted where it is full).
  static absl::StatusOr<Block> AllocateInFile(size_t bytes, const std::string& directory);

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::string_view view() const { return {data_, size_}; }

  // REQUIRES: this is the only Block that holds these bytes.
  char* mutable_data();

  // A block over a part of the same bytes. REQUIRES: offset + bytes <= size().
  Block Slice(size_t offset, size_t bytes) const;

  friend bool operator==(const Block& a, const Block& b) { return a.view() == b.view(); }

 private:
  struct Storage;
  Block(Storage* storage, const char* data, size_t size)
      : storage_(storage), data_(data), size_(size) {}

  Storage* storage_ = nullptr;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_BLOCK_H_
