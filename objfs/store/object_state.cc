#include "objfs/store/object_state.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace abacus::objfs {
namespace {

// Whether `entry` of `block` goes on where `run` ends.
bool Continues(const BlockRun& run, uint64_t block, const BlockEntry& entry) {
  if (run.first + run.count != block || run.slot.has_value() != (entry.version != 0)) return false;
  return !run.slot.has_value() ||
         (*run.slot + run.count == entry.slot && run.version == entry.version);
}

}  // namespace

UpdateRecord FlushBatch::ToRecord(ObjectId id) const {
  UpdateRecord record{
      .id = id, .head = head, .blocks_before = blocks_before, .blocks_after = blocks_after};
  for (const auto& [block, entry] : blocks) {
    if (record.runs.empty() || !Continues(record.runs.back(), block, entry)) {
      BlockRun run{.first = block, .version = entry.version};
      if (entry.version != 0) run.slot = entry.slot;
      record.runs.push_back(std::move(run));
    }
    BlockRun& run = record.runs.back();
    ++run.count;
    if (run.slot.has_value()) run.crcs.push_back(entry.crc);
  }
  return record;
}

void ObjectState::Load(TablePage page) {
  if (page.page == 0) {
    durable_head_ = std::move(page.head);
    has_head_ = true;
  }
  durable_.insert(page.blocks.begin(), page.blocks.end());
}

void ObjectState::Replay(const UpdateRecord& record) {
  durable_head_ = record.head;
  has_head_ = true;
  changed_pages_.insert(0);
  for (const BlockRun& run : record.runs) {
    if (!run.slot.has_value()) {
      const auto first = durable_.lower_bound(run.first);
      const auto end = durable_.lower_bound(run.first + run.count);
      for (auto entry = first; entry != end; ++entry) {
        changed_pages_.insert(PageOfBlock(entry->first));
      }
      // Pages that a checkpoint had begun to write may already lack what the run removes.
      durable_.erase(first, end);
      continue;
    }
    for (uint64_t i = 0; i < run.count; ++i) {
      durable_[run.first + i] = {.slot = *run.slot + i, .version = run.version, .crc = run.crcs[i]};
      changed_pages_.insert(PageOfBlock(run.first + i));
    }
  }
}

void ObjectState::Replay(const AttributesRecord& record) {
  durable_head_.version = record.version;
  durable_head_.blob = record.blob;
  changed_pages_.insert(0);
}

bool ObjectState::Recovered() {
  head_ = durable_head_;
  head_changed_ = false;
  block_count_ = durable_.size();
  std::vector<uint64_t> used;
  used.reserve(durable_.size());
  for (const auto& [block, entry] : durable_) used.push_back(entry.slot);
  return slots_.Reset(std::move(used));
}

uint64_t ObjectState::Mend() {
  absl::btree_map<uint64_t, uint64_t> by_slot;  // the block that keeps it
  std::vector<uint64_t> losers;
  VersionNumber newest = 1;
  for (const auto& [block, entry] : durable_) {
    newest = std::max(newest, entry.version);
    const auto [owner, is_new] = by_slot.try_emplace(entry.slot, block);
    if (is_new) continue;
    const bool wins = durable_.at(owner->second).version < entry.version;
    losers.push_back(wins ? std::exchange(owner->second, block) : block);
  }
  for (const uint64_t block : losers) {
    durable_.erase(block);
    changed_pages_.insert(PageOfBlock(block));
  }
  if (!has_head_) {
    const uint64_t blocks = durable_.empty() ? 0 : durable_.rbegin()->first + 1;
    durable_head_.size_bytes = blocks * ObjectStore::kBlockBytes;
    durable_head_.version = std::max(durable_head_.version, newest);
    has_head_ = true;
    changed_pages_.insert(0);
  }
  return losers.size();
}

BlockEntry ObjectState::Find(uint64_t block) const {
  if (const auto found = changed_.find(block); found != changed_.end()) return found->second;
  const auto found = durable_.find(block);
  return found == durable_.end() ? BlockEntry() : found->second;
}

std::vector<BlockEntry> ObjectState::FindRange(uint64_t first, uint64_t end) const {
  std::vector<BlockEntry> entries(end - first);
  for (const BlockMap* map : {&durable_, &changed_}) {
    for (auto at = map->lower_bound(first); at != map->end() && at->first < end; ++at) {
      entries[at->first - first] = at->second;
    }
  }
  return entries;
}

void ObjectState::Unload() {
  const uint64_t frees = frees_;
  *this = ObjectState();
  frees_ = frees + 1;
}

uint64_t ObjectState::NextBlock(uint64_t block) const {
  auto changed = changed_.lower_bound(block);
  while (changed != changed_.end() && changed->second.version == 0) ++changed;
  auto durable = durable_.lower_bound(block);
  while (durable != durable_.end()) {
    const auto over = changed_.find(durable->first);
    if (over == changed_.end() || over->second.version != 0) break;
    ++durable;
  }
  const uint64_t first = changed == changed_.end() ? kObjectBlocksMax : changed->first;
  return durable == durable_.end() ? first : std::min(first, durable->first);
}

uint64_t ObjectState::CountHoles(uint64_t first, uint64_t end) const {
  uint64_t holes = end - first;
  for (uint64_t at = NextBlock(first); at < end; at = NextBlock(at + 1)) --holes;
  return holes;
}

void ObjectState::FreeSlots(SlotRange range) {
  slots_.Free(range);
  ++frees_;
}

void ObjectState::Release(const BlockEntry& entry) {
  if (entry.version != 0 && !pinned_.contains(entry.slot)) FreeSlots({entry.slot, 1});
}

void ObjectState::Put(uint64_t block, const BlockEntry& entry) {
  const auto [place, added] = changed_.try_emplace(block, entry);
  if (added) {
    if (!durable_.contains(block)) ++block_count_;
    return;
  }
  if (place->second.version == 0) ++block_count_;
  Release(place->second);
  place->second = entry;
}

uint64_t ObjectState::PutHoles(uint64_t first, uint64_t end) {
  const uint64_t before = block_count_;
  for (uint64_t block = NextBlock(first); block < end; block = NextBlock(block + 1)) {
    --block_count_;
    const auto changed = changed_.find(block);
    if (changed == changed_.end()) {
      changed_.emplace(block, BlockEntry());
      continue;
    }
    // Where a batch under way may make the block durable, the hole must follow it.
    Release(changed->second);
    if (batch_blocks_.contains(block) || durable_.contains(block)) {
      changed->second = BlockEntry();
    } else {
      changed_.erase(changed);
    }
  }
  return before - block_count_;
}

FlushBatch ObjectState::BeginFlush() {
  FlushBatch batch{.head = head_, .blocks_before = durable_.size(), .blocks_after = block_count_};
  batch.blocks.assign(changed_.begin(), changed_.end());
  for (const auto& [block, entry] : batch.blocks) {
    batch_blocks_.insert(block);
    if (entry.version != 0) pinned_.insert(entry.slot);
  }
  head_changed_ = false;
  return batch;
}

int64_t ObjectState::Commit(const FlushBatch& batch) {
  const auto before = static_cast<int64_t>(durable_.size());
  durable_head_ = batch.head;
  uncertain_ = false;
  changed_pages_.insert(0);
  for (const auto& [block, entry] : batch.blocks) {
    const auto old = durable_.find(block);
    if (old != durable_.end()) FreeSlots({old->second.slot, 1});
    if (old != durable_.end() || entry.version != 0) changed_pages_.insert(PageOfBlock(block));
    if (entry.version != 0) {
      pinned_.erase(entry.slot);
      durable_[block] = entry;
    } else if (old != durable_.end()) {
      durable_.erase(old);
    }
    const auto changed = changed_.find(block);
    if (changed != changed_.end() && changed->second == entry) changed_.erase(changed);
  }
  // What is left was in batches before, of which none is the last word any more.
  for (const uint64_t slot : pinned_) FreeSlots({slot, 1});
  pinned_.clear();
  batch_blocks_.clear();
  return static_cast<int64_t>(durable_.size()) - before;
}

void ObjectState::Commit(const AttributesRecord& attributes) {
  Replay(attributes);
  // Where a batch may be durable, one that is has to follow, though nothing seems to have changed.
  if (!uncertain_) head_changed_ = head_ != durable_head_;
}

TableDigest ObjectState::DurableDigest() const {
  uint32_t crc = Crc32c(durable_head_.blob);
  const auto add = [&crc](const std::array<uint64_t, 3>& numbers) {
    const auto* const bytes = reinterpret_cast<const char*>(numbers.data());
    crc = Crc32c(std::string_view(bytes, sizeof(numbers)), crc);
  };
  add({durable_head_.size_bytes, durable_head_.version, durable_head_.blob.size()});
  for (const auto& [block, entry] : durable_) add({block, entry.version, entry.crc});
  return {.version = durable_head_.version, .blocks = durable_.size(), .crc = crc};
}

TablePage ObjectState::MakePage(ObjectId id, uint64_t page) const {
  TablePage table{.id = id, .page = page};
  if (page == 0) table.head = durable_head_;
  const auto first = durable_.lower_bound(FirstBlockOfPage(page));
  const auto end = durable_.lower_bound(FirstBlockOfPage(page + 1));
  table.blocks.insert(first, end);
  return table;
}

}  // namespace abacus::objfs
