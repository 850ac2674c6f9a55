#include "objfs/check/directory_scan.h"

#include <algorithm>
#include <random>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/directory/block_format.h"
#include "objfs/directory/directory_tree.h"
#include "objfs/store/disk.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr size_t kFaultsToldMax = 16;  // of one directory; the rest is counted
constexpr uint64_t kVersionsReadAtOnce = 65'536;
constexpr size_t kNamesPlannedAtOnce = 128;

class Scan {
 public:
  Scan(ObjectStore& store, ObjectId id) : store_(store), id_(id) {}

  absl::StatusOr<ScannedDirectory> Run() {
    ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes attributes, store_.GetAttributes(id_));
    const uint64_t size = attributes.size_bytes;
    count_ = (size + kDirectoryBlockBytes - 1) / kDirectoryBlockBytes;
    if (size % kDirectoryBlockBytes != 0) Fail(absl::StrCat("its ", size, " bytes are no blocks"));
    if (count_ > kDirectoryBlocksMax) {
      Fail(absl::StrCat("its ", count_, " blocks are more than there can be"));
      count_ = kDirectoryBlocksMax;
    }
    ABACUS_RETURN_IF_ERROR(FindHoles());
    seen_.assign(count_, false);
    scanned_.blocks = count_;
    ABACUS_RETURN_IF_ERROR(WalkFromRoot());
    ABACUS_RETURN_IF_ERROR(LookAtTheRest());
    if (untold_ > 0) scanned_.faults.push_back(absl::StrCat("and ", untold_, " more"));
    return std::move(scanned_);
  }

 private:
  void Fail(std::string fault) {
    if (scanned_.faults.size() < kFaultsToldMax) {
      scanned_.faults.push_back(std::move(fault));
    } else {
      ++untold_;
    }
  }
  void FailAt(uint32_t number, const std::string& cause) {
    Fail(absl::StrCat("block ", number, ": ", cause));
  }

  absl::Status FindHoles() {
    for (uint64_t first = 0; first < count_; first += kVersionsReadAtOnce) {
      ABACUS_ASSIGN_OR_RETURN(
          const std::vector<VersionNumber> versions,
          store_.ReadVersions(id_, first, std::min(kVersionsReadAtOnce, count_ - first)));
      for (const VersionNumber version : versions) holes_.push_back(version == 0);
    }
    return absl::OkStatus();
  }

  // False: its bytes are damaged, which is told.
  absl::StatusOr<bool> Read(uint32_t number) {
    block_.assign(kDirectoryBlockBytes, '\0');
    const auto read = store_.Read(id_, uint64_t{number} * kDirectoryBlockBytes,
                                  std::span(block_.data(), block_.size()));
    if (absl::IsDataLoss(read.status()) && !IsUnread(read.status())) {
      FailAt(number, "its bytes do not match their checksum");
      return false;
    }
    ABACUS_RETURN_IF_ERROR(read.status());
    return true;
  }

  absl::Status WalkFromRoot() {
    if (count_ == 0 || holes_[0]) return absl::OkStatus();
    seen_[0] = true;
    ABACUS_ASSIGN_OR_RETURN(const bool whole, Read(0));
    if (!whole) return LoseRoot();
    const auto head = DecodeHead(block_, 0);
    if (!head.ok()) {
      Fail(std::string(runtime::ToStd(head.status().message())));
      return LoseRoot();
    }
    in_use_ = head->blocks;
    scanned_.seed = head->seed;
    if (in_use_ > count_) FailAt(0, absl::StrCat("it counts ", in_use_, " blocks of ", count_));
    return Take(*head);
  }
  // The others are taken one by one.
  absl::Status LoseRoot() {
    lost_root_ = true;
    return absl::OkStatus();
  }

  absl::Status Walk(uint32_t number, Position first, Position end) {
    if (number >= std::min(in_use_, count_)) {
      FailAt(number, "a table leads to it, and it is not in use");
      return absl::OkStatus();
    }
    if (seen_[number]) {
      FailAt(number, "tables lead to it twice");
      return absl::OkStatus();
    }
    seen_[number] = true;
    if (holes_[number]) {
      FailAt(number, "a table leads to it, and it was never written");
      return absl::OkStatus();
    }
    ABACUS_ASSIGN_OR_RETURN(const bool whole, Read(number));
    if (!whole) return absl::OkStatus();
    const auto head = DecodeHead(block_, number);
    if (!head.ok()) {
      Fail(std::string(runtime::ToStd(head.status().message())));
      return absl::OkStatus();
    }
    const bool is_foreign = head->seed != *scanned_.seed;
    const bool fits = head->first == first && head->end() == end;
    if (is_foreign) FailAt(number, "it is another directory's");
    if (!is_foreign && !fits) FailAt(number, "it has other positions than its table says");
    // With every table that fits the positions become fewer: so deep this goes, and no deeper.
    if (head->kind == BlockKind::kTable && (is_foreign || !fits)) return absl::OkStatus();
    return Take(*head);
  }

  // The block that was read last.
  absl::Status Take(const BlockHead& head) {
    if (head.kind == BlockKind::kLeaf) {
      TakeLeaf(head);
      return absl::OkStatus();
    }
    const auto slots = DecodeSlots(head, block_);
    if (!slots.ok()) {
      Fail(std::string(runtime::ToStd(slots.status().message())));
      return absl::OkStatus();
    }
    if (EncodeTable(head, *slots) != block_) FailAt(head.number, "bytes that a table has not");
    const Position width = (kPositionEnd >> head.bits) >> head.depth;
    for (size_t slot = 0; slot < slots->size();) {
      size_t next = slot + 1;
      while (next < slots->size() && (*slots)[next] == (*slots)[slot]) ++next;
      ABACUS_RETURN_IF_ERROR(
          Walk((*slots)[slot], head.first + slot * width, head.first + next * width));
      slot = next;
    }
    return absl::OkStatus();
  }

  void TakeLeaf(const BlockHead& head) {
    const auto entries = DecodeLeaf(head, block_);
    if (!entries.ok()) {
      Fail(std::string(runtime::ToStd(entries.status().message())));
      TakeWhatCanBeRead(head);
      return;
    }
    if (EncodeLeaf(head, *entries) != block_) FailAt(head.number, "bytes that a leaf has not");
    for (size_t i = 0; i < entries->size(); ++i) {
      const LeafEntry& entry = (*entries)[i];
      if (KeyOf(entry.position) != KeyOf(FirstPosition(SipHash(head.seed, entry.name)))) {
        FailAt(head.number, absl::StrCat("entry ", i, " is not where its name belongs"));
      }
      // All names of one key are in one leaf, beside each other.
      for (size_t k = i; k > 0 && KeyOf((*entries)[k - 1].position) == KeyOf(entry.position); --k) {
        if ((*entries)[k - 1].name != entry.name) continue;
        FailAt(head.number, absl::StrCat("entries ", k - 1, " and ", i, " have one name"));
      }
      scanned_.names.push_back({std::string(entry.name), entry.entry});
    }
  }

  void TakeWhatCanBeRead(const BlockHead& head) {
    LeafScan scan(head, block_);
    for (LeafEntry entry; scan.Next(&entry);) {
      if (!CheckName(entry.name).ok()) continue;
      scanned_.names.push_back({std::string(entry.name), entry.entry});
    }
  }

  // Blocks that nothing leads to.
  absl::Status LookAtTheRest() {
    std::vector<uint32_t> rest;
    for (uint32_t number = 0; number < count_; ++number) {
      if (seen_[number]) continue;
      const bool in_use = number < in_use_;
      if (holes_[number] && !in_use) continue;
      if (!lost_root_) {
        FailAt(number, in_use ? "no table leads to it" : "it is written, and not in use");
      }
      if (!holes_[number]) rest.push_back(number);
    }
    if (scanned_.faults.empty()) return absl::OkStatus();
    for (const uint32_t number : rest) {
      ABACUS_ASSIGN_OR_RETURN(const bool whole, Read(number));
      if (!whole) continue;
      const auto head = DecodeHead(block_, number);
      if (!head.ok() || head->kind != BlockKind::kLeaf) continue;
      if (!scanned_.seed.has_value()) scanned_.seed = head->seed;
      TakeWhatCanBeRead(*head);
    }
    std::unordered_set<std::string> known;
    std::erase_if(scanned_.names,
                  [&known](const ScannedName& name) { return !known.insert(name.name).second; });
    return absl::OkStatus();
  }

  ObjectStore& store_;
  const ObjectId id_;
  uint64_t count_ = 0;   // blocks that its size reaches to
  uint64_t in_use_ = 0;  // as block 0 says
  bool lost_root_ = false;
  std::vector<bool> holes_, seen_;
  std::string block_;
  ScannedDirectory scanned_;
  uint64_t untold_ = 0;
};

// A directory that is being made.
class NewBlocks final : public BlockSource {
 public:
  absl::StatusOr<BlockRead> Read(uint32_t number) override {
    if (number >= blocks_.size()) return BlockRead();
    return BlockRead{blocks_[number], Version{1}};
  }
  void Take(const Part& part) {
    for (const RangeWrite& write : part.writes) {
      const uint64_t number = write.offset / kDirectoryBlockBytes;
      if (number >= blocks_.size()) blocks_.resize(number + 1);
      blocks_[number] = write.bytes;
    }
  }
  std::vector<std::string> Bytes() const {
    std::vector<std::string> bytes;
    bytes.reserve(blocks_.size());
    for (const runtime::Block& block : blocks_) bytes.emplace_back(block.view());
    return bytes;
  }

 private:
  std::vector<runtime::Block> blocks_;
};

HashSeed AnySeed() {
  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  const uint64_t low = word();
  return {low, word()};
}

}  // namespace

absl::StatusOr<ScannedDirectory> ScanDirectory(ObjectStore& store, ObjectId id) {
  return Scan(store, id).Run();
}

absl::StatusOr<std::vector<std::string>> BuildDirectory(const std::vector<ScannedName>& names,
                                                        const std::optional<HashSeed>& seed) {
  const HashSeed chosen = seed.has_value() ? *seed : AnySeed();
  if (names.empty()) {
    return std::vector<std::string>{EncodeLeaf({.seed = chosen, .blocks = 1}, {})};
  }
  NewBlocks blocks;
  DirectoryTree::Options options;
  options.make_seed = [chosen] { return chosen; };
  DirectoryTree tree(blocks, options);
  std::vector<EntryChange> changes;
  for (const ScannedName& name : names) {
    changes.push_back({name.name, std::nullopt, name.entry});
    if (changes.size() < kNamesPlannedAtOnce && &name != &names.back()) continue;
    ABACUS_ASSIGN_OR_RETURN(const Part part, tree.Plan(changes));
    blocks.Take(part);
    changes.clear();
  }
  return blocks.Bytes();
}

}  // namespace abacus::objfs
