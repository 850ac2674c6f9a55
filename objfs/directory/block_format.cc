#include "objfs/directory/block_format.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

constexpr std::string_view kMagic = "ABDR";
constexpr int kTypeShift = 12;  // S_IFMT is 0170000

absl::Status Damaged(uint32_t number, const std::string& cause) {
  return absl::DataLossError(absl::StrCat("block ", number, " of the directory: ", cause));
}

template <typename T>
T Get(std::string_view block, size_t at) {
  T value;
  std::memcpy(&value, block.data() + at, sizeof value);
  return value;
}

template <typename T>
void Put(char* block, size_t at, T value) {
  std::memcpy(block + at, &value, sizeof value);
}

// What is wrong with a head whose magic and version are right; null where nothing is.
const char* MistakeOf(const BlockHead& head, uint32_t number) {
  if (head.number != number) return "it belongs elsewhere";
  if (head.bits > kKeyBits) return "it has more bits than positions have";
  if (head.first >= kPositionEnd || head.first % (kPositionEnd >> head.bits) != 0) {
    return "its first position does not fit its bits";
  }
  const bool is_root = number == 0;
  if (is_root != (head.blocks != 0) || head.blocks > kDirectoryBlocksMax) {
    return "a wrong count of blocks";
  }
  if (is_root && head.bits != 0) return "a search begins with no bits";
  if (head.kind == BlockKind::kTable) {
    if (head.depth == 0 || head.depth > kTableDepthMax || head.bits + head.depth > kKeyBits) {
      return "a wrong depth";
    }
    return head.entries != 0 || head.entry_bytes != 0 ? "a table with entries" : nullptr;
  }
  if (head.kind != BlockKind::kLeaf) return "an unknown kind";
  if (head.depth != 0) return "a leaf with a depth";
  return head.entry_bytes > kLeafBytesMax ? "more entries than fit" : nullptr;
}

}  // namespace

absl::StatusOr<BlockHead> DecodeHead(std::string_view block, uint32_t number) {
  assert(block.size() == kDirectoryBlockBytes);
  if (block.substr(0, kMagic.size()) != kMagic) return Damaged(number, "it is none");
  const auto version = Get<uint8_t>(block, 4);
  if (version != kDirectoryFormatVersion) {
    return Damaged(
        number, absl::StrCat("format version ", version, ", known is ", kDirectoryFormatVersion));
  }
  BlockHead head;
  head.kind = static_cast<BlockKind>(Get<uint8_t>(block, 5));
  head.bits = Get<uint8_t>(block, 6);
  head.depth = Get<uint8_t>(block, 7);
  head.first = Get<uint64_t>(block, 8);
  head.seed = {Get<uint64_t>(block, 16), Get<uint64_t>(block, 24)};
  head.number = Get<uint32_t>(block, 32);
  head.blocks = Get<uint32_t>(block, 36);
  head.entries = Get<uint16_t>(block, 40);
  head.entry_bytes = Get<uint16_t>(block, 42);
  if (const char* mistake = MistakeOf(head, number); mistake != nullptr) {
    return Damaged(number, mistake);
  }
  return head;
}

void EncodeHead(const BlockHead& head, char* block) {
  std::memset(block, 0, kBlockHeadBytes);
  std::memcpy(block, kMagic.data(), kMagic.size());
  Put(block, 4, kDirectoryFormatVersion);
  Put(block, 5, head.kind);
  Put(block, 6, head.bits);
  Put(block, 7, head.depth);
  Put(block, 8, head.first);
  Put(block, 16, head.seed.low);
  Put(block, 24, head.seed.high);
  Put(block, 32, head.number);
  Put(block, 36, head.blocks);
  Put(block, 40, head.entries);
  Put(block, 42, head.entry_bytes);
}

absl::StatusOr<std::vector<uint32_t>> DecodeSlots(const BlockHead& table, std::string_view block) {
  std::vector<uint32_t> slots(size_t{1} << table.depth);
  std::memcpy(slots.data(), block.data() + kBlockHeadBytes, slots.size() * sizeof(uint32_t));
  for (const uint32_t slot : slots) {
    if (slot == 0 || slot == table.number || slot >= kDirectoryBlocksMax) {
      return Damaged(table.number, absl::StrCat("a slot leads to block ", slot));
    }
  }
  return slots;
}

std::string EncodeTable(const BlockHead& table, const std::vector<uint32_t>& slots) {
  assert(slots.size() == size_t{1} << table.depth);
  std::string block(kDirectoryBlockBytes, '\0');
  EncodeHead(table, block.data());
  std::memcpy(block.data() + kBlockHeadBytes, slots.data(), slots.size() * sizeof(uint32_t));
  return block;
}

bool LeafScan::Fail(const char* cause) {
  status_ = Damaged(leaf_.number, absl::StrCat(cause, " at byte ", at_));
  at_ = end_;
  return false;
}

size_t LeafScan::Step(Position* position) {
  if (at_ == end_) return 0;
  if (end_ - at_ < kEntryHeadBytes) return Fail("an entry is cut off");
  const size_t bytes = kEntryHeadBytes + Get<uint8_t>(block_, at_ + 17);
  if (bytes > end_ - at_) return Fail("a name is cut off");
  *position = Get<uint64_t>(block_, at_);
  if (*position <= last_) return Fail("an entry is out of order");
  last_ = *position;
  return bytes;
}

bool LeafScan::Next(LeafEntry* entry) {
  const size_t bytes = Step(&entry->position);
  if (bytes == 0) return false;
  entry->entry.id = Get<uint64_t>(block_, at_ + 8);
  const auto type = Get<uint8_t>(block_, at_ + 16);
  entry->entry.type = uint32_t{type} << kTypeShift;
  entry->name = block_.substr(at_ + kEntryHeadBytes, bytes - kEntryHeadBytes);
  if (entry->entry.id == 0 || type > 15) return Fail("a wrong entry");
  at_ += bytes;
  return true;
}

bool LeafScan::Find(uint64_t key, std::string_view name, LeafEntry* entry) {
  Position position = 0;
  for (;;) {
    const size_t bytes = Step(&position);
    if (bytes == 0 || KeyOf(position) > key) return false;
    if (KeyOf(position) == key &&
        block_.substr(at_ + kEntryHeadBytes, bytes - kEntryHeadBytes) == name) {
      last_ = kPositionMin - 1;  // Next() takes the same step again
      return Next(entry);
    }
    at_ += bytes;
  }
}

absl::StatusOr<std::vector<LeafEntry>> DecodeLeaf(const BlockHead& leaf, std::string_view block) {
  std::vector<LeafEntry> entries;
  entries.reserve(std::min<size_t>(leaf.entries, kLeafBytesMax / kEntryHeadBytes));
  LeafScan scan(leaf, block);
  for (LeafEntry entry; scan.Next(&entry);) {
    if (!leaf.Covers(entry.position)) {
      return Damaged(leaf.number, absl::StrCat("entry ", entries.size(), " belongs elsewhere"));
    }
    if (!CheckName(entry.name).ok()) {
      return Damaged(leaf.number,
                     absl::StrCat("entry ", entries.size(), " has a name that no entry may have"));
    }
    entries.push_back(entry);
  }
  ABACUS_RETURN_IF_ERROR(scan.status());
  if (entries.size() != leaf.entries) {
    return Damaged(leaf.number,
                   absl::StrCat(entries.size(), " entries where the head says ", leaf.entries));
  }
  return entries;
}

std::string EncodeLeaf(BlockHead leaf, const std::vector<LeafEntry>& entries) {
  assert(LeafFits(entries));
  std::string block(kDirectoryBlockBytes, '\0');
  size_t at = kBlockHeadBytes;
  for (const LeafEntry& entry : entries) {
    Put(block.data(), at, entry.position);
    Put(block.data(), at + 8, entry.entry.id);
    Put(block.data(), at + 16, static_cast<uint8_t>(entry.entry.type >> kTypeShift));
    Put(block.data(), at + 17, static_cast<uint8_t>(entry.name.size()));
    std::memcpy(block.data() + at + kEntryHeadBytes, entry.name.data(), entry.name.size());
    at += BytesOf(entry.name);
  }
  leaf.entries = static_cast<uint16_t>(entries.size());
  leaf.entry_bytes = static_cast<uint16_t>(at - kBlockHeadBytes);
  EncodeHead(leaf, block.data());
  return block;
}

bool LeafFits(const std::vector<LeafEntry>& entries) {
  size_t bytes = 0;
  for (const LeafEntry& entry : entries) bytes += BytesOf(entry.name);
  return bytes <= kLeafBytesMax;
}

absl::Status CheckName(std::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError("a name is empty");
  if (name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a name of ", name.size(), " bytes; at most ", kNameBytesMax, " may be"));
  }
  if (name == "." || name == "..") {
    return absl::InvalidArgumentError("\".\" and \"..\" are no entries");
  }
  if (name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError("a name has a '/' or a zero byte");
  }
  return absl::OkStatus();
}

}  // namespace abacus::objfs
