#include "objfs/volume/object_table.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

// Versions are read at most so many at once.
constexpr uint64_t kVersionsAtOnce = 4096;

}  // namespace

ObjectTable::ObjectTable(std::shared_ptr<ObjectStore> store, std::function<int64_t()> now_ns,
                         bool whole_read_sets)
    : store_(std::move(store)),
      now_ns_(std::move(now_ns)),
      whole_read_sets_(whole_read_sets),
      clock_(0, [now = now_ns_] { return now() / 1000; }),
      tree_((uint64_t{std::random_device()()} << 32) | std::random_device()()) {}

Version ObjectTable::Next(uint16_t writer) { return Version::Of(clock_.Next().ticks(), writer); }

// -- inodes ---------------------------------------------------------------------------------------

absl::StatusOr<std::optional<Node>> ObjectTable::Load(ObjectId id) {
  int64_t modified_ns = 0, changed_ns = 0;
  {
    MutexLock lock(mutex_);
    const auto opened = opened_.find(id);
    if (opened != opened_.end()) {
      modified_ns = opened->second.modified_ns;
      changed_ns = opened->second.changed_ns;
    }
  }
  const auto attributes = store_->GetAttributes(id);
  if (absl::IsNotFound(attributes.status())) return std::nullopt;
  if (!attributes.ok()) return attributes.status();
  // Whatever the clock did since: what is written next is newer.
  clock_.Follow(Version{attributes->version});
  ABACUS_ASSIGN_OR_RETURN(Inode inode, Inode::Decode(attributes->blob));
  if (modified_ns != 0) inode.modified_ns = modified_ns;
  if (changed_ns != 0) inode.changed_ns = changed_ns;
  // What columns take elsewhere is not known here: as if there were no holes.
  constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
  const uint64_t allocated = inode.IsSpread()
                                 ? (attributes->size_bytes + kBlock - 1) / kBlock * kBlock
                                 : attributes->allocated_bytes;
  return Node{id, std::move(inode), attributes->size_bytes, allocated,
              Version{attributes->version}};
}

absl::StatusOr<Node> ObjectTable::Stat(ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(std::optional<Node> node, Load(id));
  return node.has_value() ? *std::move(node) : Node();
}

absl::StatusOr<Node> ObjectTable::Make(uint16_t writer, const Inode& inode,
                                       std::string_view contents) {
  Inode made = inode;
  made.accessed_ns = made.modified_ns = made.changed_ns = made.born_ns = now_ns_();
  const Version version = Next(writer);
  ABACUS_ASSIGN_OR_RETURN(const ObjectId id, store_->Create(made.Encode(), version.value));
  if (!contents.empty()) {
    // As an update: whatever flush makes a name of it durable takes them along.
    const ObjectUpdate whole{id, {{0, contents}}, std::nullopt, /*may_lose_contents=*/true};
    const absl::Status written = store_->Update(std::span(&whole, 1), version.value);
    if (!written.ok()) {
      store_->Remove(id).IgnoreError();  // nobody has heard of it
      return written;
    }
  }
  return Node{id, std::move(made), contents.size(), 0, version};
}

absl::Status ObjectTable::Discard(ObjectId id) {
  const Turns::Turn turn(turns_, id);
  {
    MutexLock lock(mutex_);
    if (opened_.contains(id)) {
      return absl::FailedPreconditionError(absl::StrCat("object ", id, " is open"));
    }
    if (held_.contains(id)) {
      removals_.insert(id);  // where it comes to no name
      return absl::FailedPreconditionError(
          absl::StrCat("object ", id, " is held by a transaction over several shards"));
    }
  }
  const auto node = Load(id);
  const bool known = node.ok() && node->has_value();
  return RemoveFromStore(id, known ? (*node)->inode.columns : std::vector<uint32_t>());
}

void ObjectTable::OnRemoved(Removed removed) {
  MutexLock lock(mutex_);
  on_removed_ = std::move(removed);
}

absl::Status ObjectTable::RemoveFromStore(ObjectId id, const std::vector<uint32_t>& columns) {
  absl::Status removed = store_->Remove(id);
  if (!removed.ok() || columns.empty()) return removed;
  MutexLock lock(mutex_);
  if (on_removed_) on_removed_(id, columns);
  return removed;
}

absl::StatusOr<Node> ObjectTable::Change(uint16_t writer, ObjectId id, const InodeChange& change) {
  Transaction transaction;
  transaction.parts.push_back({.id = id, .change = change});
  ABACUS_ASSIGN_OR_RETURN(Outcome outcome, Commit(writer, transaction));
  if (outcome.state != CommitState::kCommitted) {
    return absl::NotFoundError(absl::StrCat("there is no object ", id));
  }
  return std::move(outcome.nodes.front());
}

absl::Status ObjectTable::SetLacking(ObjectId id, const std::vector<uint32_t>& lacking) {
  const Turns::Turn turn(turns_, id);
  ABACUS_ASSIGN_OR_RETURN(std::optional<Node> node, Load(id));
  if (!node.has_value()) return absl::NotFoundError(absl::StrCat("there is no object ", id));
  node->inode.lacking = lacking;
  const ObjectUpdate update{.id = id, .writes = {}, .blob = node->inode.Encode()};
  ABACUS_RETURN_IF_ERROR(store_->Update(std::span(&update, 1), Next(0).value));
  ForgetWritten(id);
  return absl::OkStatus();
}

absl::Status ObjectTable::MoveColumn(ObjectId id, uint32_t from, uint32_t to) {
  const Turns::Turn turn(turns_, id);
  ABACUS_ASSIGN_OR_RETURN(std::optional<Node> node, Load(id));
  if (!node.has_value()) return absl::NotFoundError(absl::StrCat("there is no object ", id));
  std::vector<uint32_t>& columns = node->inode.columns;
  const auto column = std::find(columns.begin(), columns.end(), from);
  if (column == columns.end()) {
    return absl::NotFoundError(absl::StrCat("object ", id, " has no column at server ", from));
  }
  *column = to;
  const ObjectUpdate update{.id = id, .writes = {}, .blob = node->inode.Encode()};
  ABACUS_RETURN_IF_ERROR(store_->Update(std::span(&update, 1), Next(0).value));
  ForgetWritten(id);
  return absl::OkStatus();
}

// -- transactions ---------------------------------------------------------------------------------

absl::StatusOr<VersionNumber> ObjectTable::NewestOf(ObjectId id, Range range, uint64_t size) {
  constexpr uint64_t kBlock = ObjectStore::kBlockBytes;
  const uint64_t first = range.offset / kBlock;
  const uint64_t bytes =
      range.bytes != 0 ? range.bytes : std::max(size, range.offset + 1) - range.offset;
  const uint64_t end = (range.offset + bytes + kBlock - 1) / kBlock;
  VersionNumber newest = 0;
  for (uint64_t at = first; at < end; at += kVersionsAtOnce) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<VersionNumber> versions,
                            store_->ReadVersions(id, at, std::min(kVersionsAtOnce, end - at)));
    newest = std::max(newest, *std::max_element(versions.begin(), versions.end()));
  }
  return newest;
}

absl::StatusOr<bool> ObjectTable::IsNewest(const RangeVersion& read, const Node& node) {
  ABACUS_ASSIGN_OR_RETURN(const VersionNumber newest,
                          NewestOf(node.id, IsOneReadSet(node) ? Range{} : read.range, node.size));
  return newest == read.version.value;
}

absl::StatusOr<std::optional<Version>> ObjectTable::VersionOfAll(ObjectId id) {
  if (!whole_read_sets_) return std::nullopt;
  ABACUS_ASSIGN_OR_RETURN(const std::optional<Node> node, Load(id));
  if (!node.has_value() || !IsOneReadSet(*node)) return std::nullopt;
  ABACUS_ASSIGN_OR_RETURN(const VersionNumber newest, NewestOf(id, Range{}, node->size));
  return Version{newest};
}

absl::StatusOr<CommitState> ObjectTable::CheckPart(const Part& part, const Node& node) {
  if (part.must_be_linked && node.inode.links == 0) return CommitState::kGone;
  if (part.must_be_empty && node.inode.entries != 0) return CommitState::kNotEmpty;
  for (const RangeVersion& read : part.reads) {
    ABACUS_ASSIGN_OR_RETURN(const bool newest, IsNewest(read, node));
    if (!newest) return CommitState::kStale;
  }
  return CommitState::kCommitted;
}

absl::StatusOr<std::optional<Node>> ObjectTable::LoadPart(const Part& part, int64_t now_ns) {
  if (!part.creation.has_value()) return Load(part.id);
  if (!part.reads.empty() || !part.writes.empty() || part.must_be_linked) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", part.id, " is made: there is nothing to read or write"));
  }
  Node node{.id = part.id, .inode = part.creation->inode};
  node.inode.links = 0;
  node.inode.entries = 0;
  node.inode.accessed_ns = node.inode.modified_ns = now_ns;
  node.inode.changed_ns = node.inode.born_ns = now_ns;
  node.size = part.creation->contents.size();
  return node;
}

absl::Status ObjectTable::MakePart(uint16_t writer, const Part& part) {
  if (!part.creation.has_value()) return absl::OkStatus();
  Inode unnamed = part.creation->inode;
  unnamed.links = 0;
  const absl::Status made = store_->CreateAs(part.id, unnamed.Encode(), Next(writer).value);
  // It was made when the same was tried before.
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  if (!part.creation->opens) return absl::OkStatus();
  MutexLock lock(mutex_);
  ++opened_[part.id].by[writer];
  return absl::OkStatus();
}

void ObjectTable::UndoOpen(uint16_t writer, const Part& part) {
  if (!part.creation.has_value() || !part.creation->opens) return;
  MutexLock lock(mutex_);
  const auto opened = opened_.find(part.id);
  if (opened == opened_.end()) return;
  opened->second.by.erase(writer);
  if (opened->second.by.empty()) opened_.erase(opened);
}

absl::StatusOr<Outcome> ObjectTable::Commit(uint16_t writer, const Transaction& transaction) {
  const std::vector<ObjectId> ids = TurnsOf(transaction);
  const Turns::Turn turn(turns_, ids);
  ABACUS_RETURN_IF_ERROR(CheckNotHeld(ids, writer, /*group=*/0));
  return CommitInTurn(writer, transaction, nullptr);
}

std::vector<ObjectId> ObjectTable::TurnsOf(const Transaction& transaction) {
  std::vector<ObjectId> ids;
  ids.reserve(transaction.parts.size() + 1);
  for (const Part& part : transaction.parts) ids.push_back(part.id);
  if (transaction.tree.has_value()) ids.push_back(kTreeTurn);
  return ids;
}

absl::StatusOr<ObjectTable::Plan> ObjectTable::PlanOf(const Transaction& transaction,
                                                      bool is_held) {
  // The tree's numbers begin anew with each start, and what is held may be older.
  if (!is_held && transaction.tree.has_value() && *transaction.tree != tree_) {
    return Plan{.outcome = {.state = CommitState::kTree}, .updates = {}};
  }
  const int64_t now_ns = now_ns_();
  int64_t entries = 0;
  Plan plan;
  for (const Part& part : transaction.parts) {
    ABACUS_ASSIGN_OR_RETURN(std::optional<Node> node, LoadPart(part, now_ns));
    if (!node.has_value() && is_held) {
      return absl::DataLossError(absl::StrCat(
          "object ", part.id, " is gone, though a transaction over several shards holds it: ",
          "abacus fsck tells what is left"));
    }
    if (!node.has_value()) {
      return Plan{.outcome = {.state = CommitState::kGone, .id = part.id}, .updates = {}};
    }
    if (!is_held) {
      ABACUS_ASSIGN_OR_RETURN(const CommitState state, CheckPart(part, *node));
      if (state != CommitState::kCommitted) {
        return Plan{.outcome = {.state = state, .id = part.id}, .updates = {}};
      }
    }
    ABACUS_RETURN_IF_ERROR(Apply(part.change, now_ns, &node->inode));
    ObjectUpdate update{.id = part.id, .writes = {}, .blob = node->inode.Encode()};
    for (const RangeWrite& write : part.writes) {
      update.writes.push_back({write.offset, write.bytes.view()});
      node->size = std::max<uint64_t>(node->size, write.offset + write.bytes.size());
    }
    if (part.creation.has_value() && !part.creation->contents.empty()) {
      // Whatever flush makes the name durable takes them along.
      update.writes.push_back({0, part.creation->contents});
      update.may_lose_contents = true;
    }
    plan.updates.push_back(std::move(update));
    plan.outcome.nodes.push_back(*std::move(node));
    entries += part.change.entries;
  }
  if (entries < 0) plan.updates.front().gives_room_back = true;
  return plan;
}

absl::StatusOr<Outcome> ObjectTable::CommitInTurn(uint16_t writer, const Transaction& transaction,
                                                  const ObjectUpdate* beside) {
  ABACUS_ASSIGN_OR_RETURN(Plan plan, PlanOf(transaction, /*is_held=*/beside != nullptr));
  Outcome& outcome = plan.outcome;
  if (outcome.state != CommitState::kCommitted) return std::move(outcome);
  for (const Part& part : transaction.parts) ABACUS_RETURN_IF_ERROR(MakePart(writer, part));
  if (beside != nullptr) plan.updates.push_back(*beside);
  outcome.version = Next(writer);
  if (absl::Status updated = store_->Update(plan.updates, outcome.version.value); !updated.ok()) {
    for (const Part& part : transaction.parts) UndoOpen(writer, part);
    return updated;
  }
  outcome.whole_read_sets = whole_read_sets_;
  if (transaction.tree.has_value()) ++tree_;
  for (const Part& part : transaction.parts) {
    const bool sets_time = part.change.modified_ns.has_value() || part.change.touch_modified;
    if (sets_time || !part.writes.empty()) ForgetWriter(part.id);
  }
  for (size_t i = 0; i < outcome.nodes.size(); ++i) {
    if (plan.updates[i].writes.empty()) continue;
    const auto attributes = store_->GetAttributes(plan.updates[i].id);
    if (attributes.ok()) outcome.nodes[i].allocated = attributes->allocated_bytes;
  }
  for (Node& node : outcome.nodes) {
    node.version = outcome.version;
    ForgetWritten(node.id);
    if (node.inode.links == 0) LostItsName(node.id);
  }
  return std::move(outcome);
}

absl::Status ObjectTable::InTurn(ObjectId id, const std::function<absl::Status()>& look) {
  const Turns::Turn turn(turns_, id);
  return look();
}

absl::Status ObjectTable::ChangeBytes(uint16_t writer, ObjectId id,
                                      const std::function<absl::Status(Version)>& change) {
  const Turns::Turn turn(turns_, id);
  int64_t modified_before_ns = 0;
  if (!IsNewestBy(writer, id)) {
    ABACUS_ASSIGN_OR_RETURN(const std::optional<Node> node, Load(id));
    if (node.has_value()) modified_before_ns = node->inode.modified_ns;
  }
  const absl::Status changed = change(Next(writer));
  if (changed.ok()) Written(writer, id, modified_before_ns);
  return changed;
}

bool ObjectTable::IsNewestBy(uint16_t writer, ObjectId id) {
  MutexLock lock(mutex_);
  const auto opened = opened_.find(id);
  return opened != opened_.end() && opened->second.newest_by == writer;
}

void ObjectTable::Written(uint16_t writer, ObjectId id, int64_t modified_before_ns) {
  const int64_t now_ns = now_ns_();
  MutexLock lock(mutex_);
  const auto found = opened_.find(id);
  if (found == opened_.end()) return;
  Opened& opened = found->second;
  opened.modified_ns = opened.changed_ns = now_ns;
  if (opened.newest_by == writer) return;
  opened.newest_by = writer;
  opened.newer_than_ns = modified_before_ns;
}

// A client whose cache holds writes back tells when it had them, after it has brought them. Between
// the two another client may have written, and two threads of the one client may tell in any order.
// A time that came back would show programs, and kernels that keep pages, a file as it was before.
absl::Status ObjectTable::ToldWhenWritten(uint16_t writer, ObjectId id, int64_t when_ns) {
  const Turns::Turn turn(turns_, id);
  MutexLock lock(mutex_);
  const auto found = opened_.find(id);
  if (found == opened_.end()) return absl::OkStatus();
  Opened& opened = found->second;
  if (opened.newest_by != writer || when_ns <= opened.newer_than_ns) return absl::OkStatus();
  opened.modified_ns = opened.newer_than_ns = when_ns;
  return absl::OkStatus();
}

void ObjectTable::ForgetWritten(ObjectId id) {
  MutexLock lock(mutex_);
  const auto opened = opened_.find(id);
  if (opened != opened_.end()) opened->second.modified_ns = opened->second.changed_ns = 0;
}

void ObjectTable::ForgetWriter(ObjectId id) {
  MutexLock lock(mutex_);
  const auto opened = opened_.find(id);
  if (opened != opened_.end()) opened->second.newest_by = 0;
}

// -- open objects ---------------------------------------------------------------------------------

absl::StatusOr<bool> ObjectTable::Open(uint16_t writer, ObjectId id) {
  // In its turn: a removal does not come between the question and the counting.
  const Turns::Turn turn(turns_, id);
  ABACUS_ASSIGN_OR_RETURN(const std::optional<Node> node, Load(id));
  if (!node.has_value()) return absl::NotFoundError(absl::StrCat("there is no object ", id));
  MutexLock lock(mutex_);
  const auto [opened, first] = opened_.try_emplace(id);
  removals_.erase(id);  // now it waits for the last Close()
  ++opened->second.by[writer];
  return first;
}

absl::StatusOr<bool> ObjectTable::Close(uint16_t writer, ObjectId id) {
  const Turns::Turn turn(turns_, id);
  {
    MutexLock lock(mutex_);
    const auto opened = opened_.find(id);
    if (opened == opened_.end() || !opened->second.by.contains(writer)) {
      return absl::FailedPreconditionError(
          absl::StrCat("object ", id, " is not open by client ", writer));
    }
    auto& by = opened->second.by;
    if (--by[writer] == 0) by.erase(writer);
    if (!by.empty()) return false;
  }
  // Where the store refuses that, the times of the last writes are lost and nothing else.
  SaveTimes(id).IgnoreError();
  ABACUS_ASSIGN_OR_RETURN(const std::optional<Node> node, Load(id));
  {
    MutexLock lock(mutex_);
    const auto opened = opened_.find(id);
    if (node.has_value() && node->inode.links == 0) removals_.insert(id);
    opened_.erase(opened);
  }
  return true;
}

bool ObjectTable::IsOpenBy(uint16_t writer, ObjectId id) {
  MutexLock lock(mutex_);
  const auto opened = opened_.find(id);
  return opened != opened_.end() && opened->second.by.contains(writer);
}

std::vector<ObjectId> ObjectTable::OpenedBy(uint16_t writer) {
  std::vector<ObjectId> ids;
  MutexLock lock(mutex_);
  for (const auto& [id, opened] : opened_) {
    const auto by = opened.by.find(writer);
    if (by != opened.by.end()) ids.insert(ids.end(), by->second, id);
  }
  return ids;
}

void ObjectTable::LostItsName(ObjectId id) {
  MutexLock lock(mutex_);
  if (!opened_.contains(id)) removals_.insert(id);  // else its last Close() sees to it
}

// -- what becomes durable, and what is removed ----------------------------------------------------

absl::Status ObjectTable::SaveTimes(ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(const std::optional<Node> node, Load(id));
  if (!node.has_value()) return absl::OkStatus();
  bool written = false;
  {
    MutexLock lock(mutex_);
    const auto opened = opened_.find(id);
    if (opened != opened_.end()) {
      const int64_t modified_ns = std::exchange(opened->second.modified_ns, 0);
      const int64_t changed_ns = std::exchange(opened->second.changed_ns, 0);
      written = modified_ns != 0 || changed_ns != 0;
    }
  }
  if (!written) return absl::OkStatus();
  return store_->SetAttributes(id, node->inode.Encode(), Next(0).value);
}

absl::Status ObjectTable::Flush(std::span<const ObjectId> ids) {
  for (const ObjectId id : ids) {
    const Turns::Turn turn(turns_, id);
    ABACUS_RETURN_IF_ERROR(SaveTimes(id));
  }
  return store_->FlushTogether(ids);
}

absl::Status ObjectTable::SaveAllTimes() {
  std::vector<ObjectId> written;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, opened] : opened_) {
      if (opened.modified_ns != 0 || opened.changed_ns != 0) written.push_back(id);
    }
  }
  absl::Status first;
  for (const ObjectId id : written) {
    const Turns::Turn turn(turns_, id);
    first.Update(SaveTimes(id));
  }
  return first;
}

absl::Status ObjectTable::FlushAndRemove() {
  absl::flat_hash_set<ObjectId> removals;
  {
    MutexLock lock(mutex_);
    removals = std::exchange(removals_, {});
  }
  absl::Status first = SaveAllTimes();
  // All of it in one step; where some contents cannot be, names and attributes nevertheless.
  const absl::Status all = store_->FlushAll();
  const absl::Status names = all.ok() ? all : store_->FlushTogether({});
  first.Update(all);
  if (!names.ok()) {
    MutexLock lock(mutex_);
    removals_.insert(removals.begin(), removals.end());
    return first;
  }
  if (removals.empty()) return first;
  for (const ObjectId id : removals) {
    const absl::Status removed = RemoveNow(id);
    if (removed.ok()) continue;
    first.Update(removed);
    MutexLock lock(mutex_);
    removals_.insert(id);
  }
  first.Update(store_->FlushTogether({}));
  return first;
}

absl::StatusOr<std::optional<ObjectId>> ObjectTable::CollectOrphans(ObjectId after,
                                                                    uint64_t count_max) {
  {
    MutexLock lock(mutex_);
    awaited_.clear();  // whoever had one of them open has had the time to say so
  }
  ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store_->List(after, count_max));
  for (const ObjectId id : ids) {
    const auto node = Load(id);
    if (!node.ok() || !node->has_value() || (*node)->inode.links != 0) continue;
    MutexLock lock(mutex_);
    if (!opened_.contains(id)) removals_.insert(id);
  }
  return ids.size() < count_max ? std::nullopt : std::optional<ObjectId>(ids.back());
}

absl::Status ObjectTable::RemoveNow(ObjectId id) {
  const Turns::Turn turn(turns_, id);
  {
    MutexLock lock(mutex_);
    if (opened_.contains(id)) return absl::OkStatus();  // its last Close() will see to it
    if (held_.contains(id) || awaited_.contains(id)) {
      removals_.insert(id);  // it is looked at again
      return absl::OkStatus();
    }
  }
  const auto node = Load(id);
  // What cannot be read can be removed. What has got a name, or is no more, is left alone.
  if (!node.ok() && !absl::IsDataLoss(node.status())) return node.status();
  if (node.ok() && (!node->has_value() || (*node)->inode.links != 0)) return absl::OkStatus();
  const bool known = node.ok() && node->has_value();
  const absl::Status removed =
      RemoveFromStore(id, known ? (*node)->inode.columns : std::vector<uint32_t>());
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

size_t ObjectTable::waiting_removals() {
  MutexLock lock(mutex_);
  return removals_.size();
}

}  // namespace abacus::objfs
