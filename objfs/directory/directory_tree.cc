#include "objfs/directory/directory_tree.h"

#include <algorithm>
#include <random>
#include <utility>

#include "objfs/directory/tree_plan.h"
#include "objfs/directory/tree_view.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

HashSeed RandomSeed() {
  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  const uint64_t low = word();
  return {low, word()};
}

}  // namespace

uint32_t TableMemory::Route(Position position, std::vector<uint32_t>* via) const {
  runtime::MutexLock lock(mutex_);
  uint32_t number = 0;
  int bits = -1;
  for (;;) {
    const auto table = tables_.find(number);
    // A table's bits are the same for ever, so a way on which they do not grow is damaged.
    if (table == tables_.end() || table->second.head.bits <= bits) return number;
    via->push_back(number);
    bits = table->second.head.bits;
    number = table->second.slots[SlotOf(table->second.head, position)];
  }
}

void TableMemory::Keep(const BlockHead& table, const std::vector<uint32_t>& slots) {
  runtime::MutexLock lock(mutex_);
  const auto known = tables_.find(table.number);
  const size_t before = known == tables_.end() ? 0 : known->second.slots.size();
  if (slots_ - before + slots.size() > kSlotsMax) return;
  slots_ += slots.size() - before;
  tables_[table.number] = Table{table, slots};
}

void TableMemory::Drop(const std::vector<uint32_t>& numbers) {
  runtime::MutexLock lock(mutex_);
  for (const uint32_t number : numbers) {
    const auto table = tables_.find(number);
    if (table == tables_.end()) continue;
    slots_ -= table->second.slots.size();
    tables_.erase(table);
  }
}

std::optional<HashSeed> TableMemory::seed() const {
  runtime::MutexLock lock(mutex_);
  return seed_;
}

void TableMemory::SetSeed(const HashSeed& seed) {
  runtime::MutexLock lock(mutex_);
  if (seed_ == seed) return;
  seed_ = seed;
  tables_.clear();
  slots_ = 0;
}

DirectoryTree::DirectoryTree(BlockSource& source, Options options)
    : source_(source), options_([&options] {
        if (options.make_seed == nullptr) options.make_seed = &RandomSeed;
        return std::move(options);
      }()) {}

template <typename Step>
auto DirectoryTree::WithView(BlockSource& source, Step step) {
  for (int tried = 1;; ++tried) {
    TreeView view(*this, source, /*trusting=*/tried == 1);
    auto result = step(view);
    if (!view.crossed()) return result;
    view.Distrust();
    if (tried == kTriesMax) return result;
  }
}

absl::StatusOr<std::optional<Entry>> DirectoryTree::Lookup(const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  using Result = absl::StatusOr<std::optional<Entry>>;
  return WithView(source_, [&name](TreeView& view) -> Result {
    ABACUS_ASSIGN_OR_RETURN(const std::optional<HashSeed> seed, view.Seed());
    if (!seed.has_value()) return std::optional<Entry>();
    const Position first = view.FirstPositionOf(*seed, name);
    ABACUS_ASSIGN_OR_RETURN(const TreeView::Loaded* leaf, view.LeafAt(first));
    if (leaf->hole()) return std::optional<Entry>();
    LeafScan scan(leaf->head, leaf->bytes.view());
    LeafEntry entry;
    if (scan.Find(KeyOf(first), name, &entry)) return std::optional<Entry>(entry.entry);
    ABACUS_RETURN_IF_ERROR(scan.status());
    return std::optional<Entry>();
  });
}

absl::StatusOr<std::vector<ListedEntry>> DirectoryTree::List(uint64_t cookie, uint32_t max) {
  std::vector<ListedEntry> listed;
  max = std::min(max, kListMax);
  // Each leaf is a view of its own: its bytes are not needed any more when the next one is read.
  for (uint64_t from = cookie; from < kPositionEnd - 1 && listed.size() < max;) {
    const auto next = WithView(source_, [&](TreeView& view) -> absl::StatusOr<uint64_t> {
      ABACUS_ASSIGN_OR_RETURN(const TreeView::Loaded* leaf, view.LeafAt(from + 1));
      if (leaf->hole()) return kPositionEnd;
      ABACUS_ASSIGN_OR_RETURN(const std::vector<LeafEntry> entries,
                              DecodeLeaf(leaf->head, leaf->bytes.view()));
      for (const LeafEntry& entry : entries) {
        if (entry.position <= from) continue;
        if (listed.size() == max) break;
        listed.push_back({std::string(entry.name), entry.entry, entry.position});
      }
      return leaf->head.end() - 1;
    });
    ABACUS_RETURN_IF_ERROR(next.status());
    from = *next;
  }
  return listed;
}

absl::StatusOr<Part> DirectoryTree::Plan(const std::vector<EntryChange>& changes,
                                         BlockSource& source) {
  ABACUS_RETURN_IF_ERROR(CheckChanges(changes));
  return WithView(source, [&](TreeView& view) -> absl::StatusOr<Part> {
    return TreePlanner(view, options_.make_seed).Plan(changes);
  });
}

}  // namespace abacus::objfs
