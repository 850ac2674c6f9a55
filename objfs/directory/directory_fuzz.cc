// A directory's blocks, damaged in any way: no crash, no endless work; what is found and planned is
// so, or the damage is named.
//
// The input is a list of blocks, each after three bytes: its number, and how many bytes follow. The
// blocks' magic, version, number and seed are made right, so that what is behind them is reached;
// with 0xff as its number a block is taken as it is, for number 0.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "objfs/directory/testing/memory_blocks.h"

namespace {

using namespace abacus::objfs;  // NOLINT: the whole vocabulary

constexpr uint32_t kBlocks = 64;

// Lets names of one byte be steered: the first byte is the hash's first.
uint64_t Hash(const HashSeed&, std::string_view name) {
  return uint64_t{static_cast<uint8_t>(name[0])} << 56 | uint64_t{name.size()} << 5;
}

void Fill(std::string_view data, testing::MemoryBlocks& blocks) {
  while (data.size() >= 3) {
    const auto given = static_cast<uint8_t>(data[0]);
    const size_t length = static_cast<uint8_t>(data[1]) | static_cast<uint8_t>(data[2]) << 8;
    data.remove_prefix(3);
    std::string block(data.substr(0, std::min<size_t>(length, kDirectoryBlockBytes)));
    data.remove_prefix(block.size());
    block.resize(kDirectoryBlockBytes, '\0');
    if (given == 0xff) {
      blocks.Set(0, block);
      continue;
    }
    const uint32_t number = given % kBlocks;
    block.replace(0, 5, "ABDR\x01");
    block.replace(16, 16, 16, '\0');
    block.replace(32, 4, std::string{static_cast<char>(number), 0, 0, 0});
    blocks.Set(number, block);
  }
}

void Expect(bool holds) {
  if (!holds) abort();
}

// What it finds in the listing a look-up need not find (it may lie where its hash does not lead),
// but the listing ends and rises.
void ListAll(DirectoryTree& tree) {
  uint64_t cookie = 0;
  for (size_t listed = 0;;) {
    const auto some = tree.List(cookie, 7);
    if (!some.ok()) return Expect(absl::IsDataLoss(some.status()));
    if (some->empty()) return;
    for (const ListedEntry& entry : *some) {
      Expect(entry.cookie > cookie && CheckName(entry.name).ok() && entry.entry.id != 0);
      cookie = entry.cookie;
    }
    listed += some->size();
    Expect(listed <= kBlocks * kLeafBytesMax / kEntryHeadBytes);
  }
}

void Insert(DirectoryTree& tree, testing::MemoryBlocks& blocks, const std::string& name) {
  const auto found = tree.Lookup(name);
  if (!found.ok()) return Expect(absl::IsDataLoss(found.status()));
  const Entry entry{77, 0100000};
  const auto part = tree.Plan({{name, *found, entry}});
  if (!part.ok()) {
    return Expect(absl::IsDataLoss(part.status()) || absl::IsResourceExhausted(part.status()));
  }
  Expect(blocks.Commit(*part));
  const auto again = tree.Lookup(name);
  Expect(again.ok() && *again == entry);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  testing::MemoryBlocks blocks;
  Fill({reinterpret_cast<const char*>(data), size}, blocks);
  DirectoryTree::Options options;
  options.make_seed = [] { return HashSeed(); };
  options.hash = &Hash;
  DirectoryTree tree(blocks, options);
  ListAll(tree);
  for (const std::string& name : {std::string("a"), std::string("\x80"), std::string(255, 'a'),
                                  std::string(200, '\xff'), std::string("zz")}) {
    Insert(tree, blocks, name);
  }
  ListAll(tree);
  return 0;
}
