#ifndef ABACUS_OBJFS_DIRECTORY_BLOCK_FORMAT_H_
#define ABACUS_OBJFS_DIRECTORY_BLOCK_FORMAT_H_

// The bytes of a directory's blocks; FORMAT.md says what they mean and why they are so. Pure:
// nothing here waits, and no input makes it do other than return an error.
//
// Errors: kDataLoss - the bytes are no such block; the message names the block and the cause.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/directory/entry.h"
#include "objfs/directory/siphash.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

inline constexpr uint64_t kDirectoryBlockBytes = 8192;
static_assert(kDirectoryBlockBytes == ObjectStore::kBlockBytes,
              "a block of a directory has one version");
inline constexpr uint8_t kDirectoryFormatVersion = 1;
inline constexpr size_t kBlockHeadBytes = 48;
inline constexpr size_t kLeafBytesMax = kDirectoryBlockBytes - kBlockHeadBytes;  // of entries
inline constexpr size_t kEntryHeadBytes = 18;
inline constexpr uint32_t kDirectoryBlocksMax = ObjectStore::kObjectBytesMax / kDirectoryBlockBytes;

// Where a name stands in its directory.
using Position = uint64_t;
inline constexpr int kPositionBits = 63;
inline constexpr int kCollisionBits = 4;
inline constexpr int kKeyBits = kPositionBits - kCollisionBits;
inline constexpr uint64_t kCollisionsMax = uint64_t{1} << kCollisionBits;  // names of one key
inline constexpr Position kPositionMin = Position{1} << kCollisionBits;
inline constexpr Position kPositionEnd = Position{1} << kPositionBits;

// The lowest position of names with that hash. All of these names have its key.
inline Position FirstPosition(uint64_t hash) {
  const uint64_t key = hash >> (64 - kKeyBits);
  return (key == 0 ? 1 : key) << kCollisionBits;
}
inline uint64_t KeyOf(Position position) { return position >> kCollisionBits; }

enum class BlockKind : uint8_t { kLeaf = 1, kTable = 2 };

struct BlockHead {
  BlockKind kind = BlockKind::kLeaf;
  uint8_t bits = 0;   // that all positions here agree in
  uint8_t depth = 0;  // of a table: how many bits it looks at
  Position first = 0;
  HashSeed seed;
  uint32_t number = 0;
  uint32_t blocks = 0;       // of block 0: in use, itself included
  uint16_t entries = 0;      // of a leaf
  uint16_t entry_bytes = 0;  // of a leaf
  friend bool operator==(const BlockHead&, const BlockHead&) = default;

  Position end() const { return first + (kPositionEnd >> bits); }
  bool Covers(Position position) const { return position >= first && position < end(); }
};

// REQUIRES: block.size() == kDirectoryBlockBytes. `number`: where it was read.
absl::StatusOr<BlockHead> DecodeHead(std::string_view block, uint32_t number);
void EncodeHead(const BlockHead& head, char* block);

// -- tables --------------------------------------------------------------------------------------

inline constexpr uint8_t kTableDepthMax = 10;

inline uint32_t SlotOf(const BlockHead& table, Position position) {
  return static_cast<uint32_t>(position >> (kPositionBits - table.bits - table.depth)) &
         ((1u << table.depth) - 1);
}
// The numbers in a table's slots, all of them of blocks that may be there.
absl::StatusOr<std::vector<uint32_t>> DecodeSlots(const BlockHead& table, std::string_view block);
// REQUIRES: slots.size() == 1 << table.depth.
std::string EncodeTable(const BlockHead& table, const std::vector<uint32_t>& slots);

// -- leaves --------------------------------------------------------------------------------------

// An entry as it lies in a leaf.
struct LeafEntry {
  Position position = 0;
  Entry entry;
  std::string_view name;
  friend bool operator==(const LeafEntry&, const LeafEntry&) = default;
};
inline size_t BytesOf(std::string_view name) { return kEntryHeadBytes + name.size(); }

// Goes through a leaf's bytes without copying any. Thread-compatible.
// REQUIRES: the bytes outlive it.
class LeafScan {
 public:
  LeafScan(const BlockHead& leaf, std::string_view block)
      : leaf_(leaf), block_(block), end_(kBlockHeadBytes + leaf.entry_bytes) {}

  // The next entry; nothing behind the last one, or where status() tells what is wrong.
  bool Next(LeafEntry* entry);
  // The next one that is named so and has this key; entries in between are not looked at more than
  // their length needs.
  bool Find(uint64_t key, std::string_view name, LeafEntry* entry);
  size_t offset() const { return at_; }  // in the block, of the entry that follows
  const absl::Status& status() const { return status_; }

 private:
  // The entry's bytes; 0 where there is no more.
  size_t Step(Position* position);
  bool Fail(const char* cause);

  const BlockHead& leaf_;
  const std::string_view block_;
  const size_t end_;
  size_t at_ = kBlockHeadBytes;
  Position last_ = kPositionMin - 1;
  absl::Status status_;
};

// All of a leaf's entries, each checked: its place, its order, its name. They show bytes of
// `block`.
absl::StatusOr<std::vector<LeafEntry>> DecodeLeaf(const BlockHead& leaf, std::string_view block);
// The numbers of entries are set from `entries`. REQUIRES: they fit (LeafFits), and rise.
std::string EncodeLeaf(BlockHead leaf, const std::vector<LeafEntry>& entries);
bool LeafFits(const std::vector<LeafEntry>& entries);

// Whether a name may be an entry's. Errors: kInvalidArgument.
absl::Status CheckName(std::string_view name);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_BLOCK_FORMAT_H_
