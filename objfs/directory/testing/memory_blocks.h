#ifndef ABACUS_OBJFS_DIRECTORY_TESTING_MEMORY_BLOCKS_H_
#define ABACUS_OBJFS_DIRECTORY_TESTING_MEMORY_BLOCKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "objfs/directory/directory_tree.h"

namespace abacus::objfs::testing {

// A directory's object in memory, with the versions of its blocks, which commits parts as a volume
// does. Thread-compatible.
class MemoryBlocks final : public BlockSource {
 public:
  absl::StatusOr<BlockRead> Read(uint32_t number) override {
    ++reads;
    // A copy: it may put another one in its place.
    if (const auto others = before_read; others != nullptr) others();
    if (number >= blocks_.size()) return BlockRead();
    return BlockRead{blocks_[number].bytes, Version{blocks_[number].version}};
  }

  // Applies the part where all that it read is the newest; false where it is not.
  bool Commit(const Part& part) {
    for (const RangeVersion& read : part.reads) {
      const uint64_t number = read.range.offset / kDirectoryBlockBytes;
      const uint64_t version = number < blocks_.size() ? blocks_[number].version : 0;
      if (version != read.version.value) return false;
    }
    ++version_;
    for (const RangeWrite& write : part.writes) {
      Set(static_cast<uint32_t>(write.offset / kDirectoryBlockBytes),
          std::string(write.bytes.view()));
    }
    return true;
  }

  size_t size() const { return blocks_.size(); }
  std::string Get(uint32_t number) const { return std::string(blocks_[number].bytes.view()); }
  void Set(uint32_t number, std::string bytes) {
    if (number >= blocks_.size()) blocks_.resize(number + 1);
    blocks_[number] = {runtime::Block::FromString(std::move(bytes)), version_};
  }
  void Clear() { blocks_.clear(); }

  uint64_t reads = 0;
  std::function<void()> before_read;  // what others do meanwhile

 private:
  struct Stored {
    runtime::Block bytes;
    uint64_t version = 0;
  };
  std::vector<Stored> blocks_;
  uint64_t version_ = 1;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_DIRECTORY_TESTING_MEMORY_BLOCKS_H_
