#include "objfs/spread/column_watches.h"

#include <algorithm>
#include <utility>

namespace abacus::objfs {

using runtime::MutexLock;

namespace {
constexpr uint64_t kBlockOfWatch = ObjectStore::kBlockBytes;
}  // namespace

uint64_t ColumnWatches::Begin(ObjectId id) {
  MutexLock lock(mutex_);
  if (!watches_.contains(id) && watches_.size() >= kWatchesMax) {
    watches_.erase(std::min_element(
        watches_.begin(), watches_.end(),
        [](const auto& a, const auto& b) { return a.second.number < b.second.number; }));
  }
  watches_[id] = Watch{.number = ++last_, .blocks = {}};
  count_ = watches_.size();
  return last_;
}

absl::StatusOr<ColumnChanges> ColumnWatches::Take(ObjectId id, uint64_t watch) {
  Watch taken;
  {
    MutexLock lock(mutex_);
    const auto found = watches_.find(id);
    if (found == watches_.end() || found->second.number != watch) {
      return absl::CancelledError("what was changed of the column since is not known any more");
    }
    taken = std::exchange(found->second, Watch{.number = watch, .blocks = {}});
  }
  ColumnChanges changes{.ranges = {}, .cut = taken.cut};
  for (const auto& [begin, end] : taken.blocks.runs()) {
    changes.ranges.push_back({begin * kBlockOfWatch, (end - begin) * kBlockOfWatch});
  }
  return changes;
}

void ColumnWatches::End(ObjectId id) {
  MutexLock lock(mutex_);
  watches_.erase(id);
  count_ = watches_.size();
}

void ColumnWatches::Changed(ObjectId id, uint64_t offset, uint64_t bytes) {
  if (count_ == 0 || bytes == 0) return;
  MutexLock lock(mutex_);
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  const uint64_t end =
      ObjectStore::kObjectBytesMax - std::min(ObjectStore::kObjectBytesMax, offset);
  const uint64_t last = offset + std::min(bytes, end);
  if (last <= offset) return;
  found->second.blocks.Add({offset / kBlockOfWatch, (last + kBlockOfWatch - 1) / kBlockOfWatch});
  found->second.blocks.MergeTo(kRunsMax);
}

void ColumnWatches::Cut(ObjectId id, uint64_t size) {
  if (count_ == 0) return;
  MutexLock lock(mutex_);
  const auto found = watches_.find(id);
  if (found != watches_.end()) found->second.cut = std::min(found->second.cut, size);
}

}  // namespace abacus::objfs
