#include "objfs/directory/tree_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr const char* kChangedMark = "changed: ";

absl::Status Changed(const std::string& name) {
  return absl::AbortedError(absl::StrCat(kChangedMark, "\"", name, "\" is not what it was"));
}

LeafEntry* Find(std::vector<LeafEntry>& entries, Position first, std::string_view name) {
  auto at = std::lower_bound(entries.begin(), entries.end(), first,
                             [](const LeafEntry& e, Position p) { return e.position < p; });
  for (; at != entries.end() && KeyOf(at->position) == KeyOf(first); ++at) {
    if (at->name == name) return &*at;
  }
  return nullptr;
}

// The smallest position from `first` on that no entry of the key has; the next key's where all are
// taken.
Position FreePosition(const std::vector<LeafEntry>& entries, Position first) {
  Position position = first;
  for (const LeafEntry& entry : entries) {
    if (entry.position == position && KeyOf(position) == KeyOf(first)) ++position;
  }
  return position;
}

}  // namespace

bool IsChanged(const absl::Status& status) {
  return status.code() == absl::StatusCode::kAborted &&
         absl::StartsWith(status.message(), kChangedMark);
}

absl::Status CheckChanges(const std::vector<EntryChange>& changes) {
  constexpr uint32_t kTypeMask = 0170000;
  std::vector<std::string_view> names;
  for (const EntryChange& change : changes) {
    ABACUS_RETURN_IF_ERROR(CheckName(change.name));
    if (change.after.has_value() && (change.after->id == 0 || change.after->type & ~kTypeMask)) {
      return absl::InvalidArgumentError("an entry without an object, or of no type");
    }
    names.push_back(change.name);
  }
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) {
    return absl::InvalidArgumentError("two changes of one name");
  }
  return absl::OkStatus();
}

absl::StatusOr<Part> TreePlanner::Plan(const std::vector<EntryChange>& changes) {
  for (const EntryChange& change : changes) ABACUS_RETURN_IF_ERROR(Check(change));
  for (const EntryChange& change : changes) {
    if (change.before.has_value()) ABACUS_RETURN_IF_ERROR(RemoveOrReplace(change));
  }
  for (const EntryChange& change : changes) {
    if (!change.before.has_value() && change.after.has_value()) ABACUS_RETURN_IF_ERROR(Add(change));
  }
  Part part = Finish();
  part.must_be_linked = std::any_of(changes.begin(), changes.end(), [](const EntryChange& change) {
    return change.after.has_value();
  });
  return part;
}

TreePlanner::Draft* TreePlanner::Insert(uint32_t number, Draft draft) {
  return &drafts_.emplace(number, std::move(draft)).first->second;
}

absl::StatusOr<TreePlanner::Draft*> TreePlanner::DraftOf(uint32_t number) {
  if (const auto known = drafts_.find(number); known != drafts_.end()) return &known->second;
  ABACUS_ASSIGN_OR_RETURN(const TreeView::Loaded* block, view_.Get(number));
  if (block->hole()) return view_.Cross(number, "it was never written");
  Draft draft{.head = block->head, .version = block->version};
  if (block->head.kind == BlockKind::kTable) {
    ABACUS_ASSIGN_OR_RETURN(draft.slots, DecodeSlots(block->head, block->bytes.view()));
  } else {
    ABACUS_ASSIGN_OR_RETURN(draft.entries, DecodeLeaf(block->head, block->bytes.view()));
    draft.entry_bytes = block->head.entry_bytes;
  }
  return Insert(number, std::move(draft));
}

absl::StatusOr<TreePlanner::Draft*> TreePlanner::LeafAt(Position position) {
  if (!split_) {
    if (empty_) return nullptr;
    ABACUS_ASSIGN_OR_RETURN(const TreeView::Loaded* leaf, view_.LeafAt(position));
    if (!leaf->hole()) return DraftOf(leaf->number);
    empty_ = true;
    empty_version_ = leaf->version;
    return nullptr;
  }
  uint32_t number = 0;
  int bits = -1;
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(Draft * draft, DraftOf(number));
    if (!draft->head.Covers(position) || draft->head.bits <= bits) {
      return view_.Cross(number, "it is not where its table says");
    }
    if (draft->head.kind == BlockKind::kLeaf) return draft;
    bits = draft->head.bits;
    number = draft->slots[SlotOf(draft->head, position)];
  }
}

absl::StatusOr<TreePlanner::Place> TreePlanner::PlaceOf(std::string_view name) {
  if (!seed_.has_value()) {
    ABACUS_ASSIGN_OR_RETURN(seed_, view_.Seed());
  }
  Place place;
  // Without a seed it is block 0 that says that the name is not there.
  place.first = seed_.has_value() ? view_.FirstPositionOf(*seed_, name) : kPositionMin;
  ABACUS_ASSIGN_OR_RETURN(place.leaf, LeafAt(place.first));
  if (place.leaf != nullptr) place.leaf->decides = true;
  return place;
}

absl::Status TreePlanner::Check(const EntryChange& change) {
  ABACUS_ASSIGN_OR_RETURN(const Place place, PlaceOf(change.name));
  std::optional<Entry> found;
  if (place.leaf != nullptr) {
    const LeafEntry* entry = Find(place.leaf->entries, place.first, change.name);
    if (entry != nullptr) found = entry->entry;
  }
  return found == change.before ? absl::OkStatus() : Changed(change.name);
}

absl::Status TreePlanner::RemoveOrReplace(const EntryChange& change) {
  if (change.after == change.before) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN(const Place place, PlaceOf(change.name));
  Draft& leaf = *place.leaf;
  LeafEntry* entry = Find(leaf.entries, place.first, change.name);
  leaf.changed = true;
  if (change.after.has_value()) {
    entry->entry = *change.after;
  } else {
    leaf.entry_bytes -= BytesOf(change.name);
    leaf.entries.erase(leaf.entries.begin() + (entry - leaf.entries.data()));
  }
  return absl::OkStatus();
}

void TreePlanner::Begin() {
  Draft root{.head = {.seed = make_seed_(), .blocks = 1},
             .version = empty_version_,
             .decides = true,
             .changed = true};
  seed_ = root.head.seed;
  Insert(0, std::move(root));
  empty_ = false;
  split_ = true;
}

absl::Status TreePlanner::Add(const EntryChange& change) {
  const size_t bytes = BytesOf(change.name);
  ABACUS_ASSIGN_OR_RETURN(Place place, PlaceOf(change.name));
  if (place.leaf == nullptr) {
    Begin();
    ABACUS_ASSIGN_OR_RETURN(place, PlaceOf(change.name));
  }
  const Position position = FreePosition(place.leaf->entries, place.first);
  if (KeyOf(position) != KeyOf(place.first)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kCollisionsMax, " names of one hash"));
  }
  while (place.leaf->entry_bytes + bytes > kLeafBytesMax) {
    ABACUS_RETURN_IF_ERROR(Split(*place.leaf));
    ABACUS_ASSIGN_OR_RETURN(place.leaf, LeafAt(position));
  }
  Draft& leaf = *place.leaf;
  const auto at = std::lower_bound(leaf.entries.begin(), leaf.entries.end(), position,
                                   [](const LeafEntry& e, Position p) { return e.position < p; });
  leaf.entries.insert(at, {position, *change.after, change.name});
  leaf.entry_bytes += bytes;
  leaf.changed = true;
  return absl::OkStatus();
}

// -- splits
// ----------------------------------------------------------------------------------------

absl::StatusOr<TreePlanner::Draft*> TreePlanner::NewBlock(BlockHead head) {
  ABACUS_ASSIGN_OR_RETURN(Draft * root, DraftOf(0));
  if (root->head.blocks >= kDirectoryBlocksMax) {
    return absl::ResourceExhaustedError("the directory has as many blocks as an object can");
  }
  head.number = root->head.blocks;
  // Rather no insertion than names lost, should block 0 say something wrong.
  ABACUS_ASSIGN_OR_RETURN(const TreeView::Loaded* there, view_.Get(head.number));
  if (!there->hole()) return view_.Cross(head.number, "it is in use, and block 0 says it is free");
  ++root->head.blocks;
  root->changed = root->decides = true;
  return Insert(head.number, {.head = head, .fresh = true, .changed = true});
}

void TreePlanner::Halve(Draft& leaf, Draft& upper) {
  ++leaf.head.bits;
  upper.head.bits = leaf.head.bits;
  upper.head.first = leaf.head.end();
  const auto middle = std::lower_bound(
      leaf.entries.begin(), leaf.entries.end(), upper.head.first,
      [](const LeafEntry& entry, Position position) { return entry.position < position; });
  upper.entries.assign(middle, leaf.entries.end());
  leaf.entries.erase(middle, leaf.entries.end());
  for (const LeafEntry& entry : upper.entries) upper.entry_bytes += BytesOf(entry.name);
  leaf.entry_bytes -= upper.entry_bytes;
  leaf.changed = upper.changed = true;
}

absl::Status TreePlanner::SplitRoot(Draft& root) {
  const BlockHead half{.seed = root.head.seed};
  ABACUS_ASSIGN_OR_RETURN(Draft * lower, NewBlock(half));
  ABACUS_ASSIGN_OR_RETURN(Draft * upper, NewBlock(half));
  lower->entries = std::move(root.entries);
  lower->entry_bytes = std::exchange(root.entry_bytes, 0);
  root.entries.clear();
  Halve(*lower, *upper);
  root.head.kind = BlockKind::kTable;
  root.head.depth = 1;
  root.head.entries = root.head.entry_bytes = 0;
  root.slots = {lower->head.number, upper->head.number};
  root.changed = true;
  return absl::OkStatus();
}

absl::StatusOr<TreePlanner::Draft*> TreePlanner::TableOf(const Draft& leaf) {
  uint32_t number = 0;
  for (int bits = -1;;) {
    ABACUS_ASSIGN_OR_RETURN(Draft * table, DraftOf(number));
    const BlockHead& head = table->head;
    if (head.kind != BlockKind::kTable || !head.Covers(leaf.head.first) || head.bits <= bits) {
      return view_.Cross(number, "it does not lead to the leaf that is to be split");
    }
    bits = head.bits;
    number = table->slots[SlotOf(head, leaf.head.first)];
    if (number != leaf.head.number) continue;
    if (leaf.head.bits <= bits || leaf.head.bits > bits + head.depth) {
      return view_.Cross(number, "its bits do not fit its table");
    }
    return table;
  }
}

absl::Status TreePlanner::Split(Draft& leaf) {
  // What the leaf's tables are now matters only here: what is remembered of them does not do.
  split_ = true;
  if (leaf.head.number == 0) return SplitRoot(leaf);
  ABACUS_ASSIGN_OR_RETURN(Draft * table, TableOf(leaf));
  table->changed = table->decides = true;
  ABACUS_ASSIGN_OR_RETURN(Draft * upper, NewBlock({.seed = leaf.head.seed}));
  const bool has_one_slot = leaf.head.bits == table->head.bits + table->head.depth;
  if (has_one_slot && table->head.depth < kTableDepthMax) {
    std::vector<uint32_t> slots;
    slots.reserve(table->slots.size() * 2);
    for (const uint32_t slot : table->slots) slots.insert(slots.end(), {slot, slot});
    table->slots = std::move(slots);
    ++table->head.depth;
  } else if (has_one_slot) {
    ABACUS_ASSIGN_OR_RETURN(Draft * below, NewBlock({.kind = BlockKind::kTable,
                                                     .bits = leaf.head.bits,
                                                     .depth = 1,
                                                     .first = leaf.head.first,
                                                     .seed = leaf.head.seed}));
    table->slots[SlotOf(table->head, leaf.head.first)] = below->head.number;
    below->slots.assign(2, leaf.head.number);
    table = below;
  }
  Halve(leaf, *upper);
  // The leaf has as many slots as its bits leave open, the upper half of them for the new one.
  const uint32_t first = SlotOf(table->head, upper->head.first);
  const uint32_t count = 1u << (table->head.bits + table->head.depth - upper->head.bits);
  for (uint32_t slot = first; slot < first + count; ++slot) {
    if (table->slots[slot] != leaf.head.number) {
      return view_.Cross(table->head.number, absl::StrCat("slot ", slot, " leads elsewhere"));
    }
    table->slots[slot] = upper->head.number;
  }
  return absl::OkStatus();
}

Part TreePlanner::Finish() const {
  constexpr uint64_t kBytes = kDirectoryBlockBytes;
  Part part;
  if (empty_) part.reads.push_back({{0, kBytes}, empty_version_});
  for (const auto& [number, draft] : drafts_) {
    if (!draft.fresh && (draft.decides || draft.changed)) {
      part.reads.push_back({{number * kBytes, kBytes}, draft.version});
    }
    if (!draft.changed) continue;
    std::string bytes = draft.head.kind == BlockKind::kLeaf ? EncodeLeaf(draft.head, draft.entries)
                                                            : EncodeTable(draft.head, draft.slots);
    part.writes.push_back({number * kBytes, runtime::Block::FromString(std::move(bytes))});
  }
  return part;
}

}  // namespace abacus::objfs
