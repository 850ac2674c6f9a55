// ObjectTable: transactions that other tables take part in, whose objects are held meanwhile.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/layer/layer.h"
#include "objfs/volume/object_table.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

absl::Status CheckStorableWrites(const ObjectUpdate& update) {
  constexpr uint64_t kMost = ObjectStore::kObjectBytesMax;
  std::vector<std::pair<uint64_t, uint64_t>> blocks;  // first and last
  for (const ObjectWrite& write : update.writes) {
    if (write.bytes.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a transaction writes no bytes to object ", update.id));
    }
    if (write.offset > kMost || write.bytes.size() > kMost - write.offset) {
      return absl::OutOfRangeError(
          absl::StrCat("object ", update.id, " would have more than ", kMost, " bytes"));
    }
    blocks.emplace_back(write.offset / ObjectStore::kBlockBytes,
                        (write.offset + write.bytes.size() - 1) / ObjectStore::kBlockBytes);
  }
  std::sort(blocks.begin(), blocks.end());
  for (size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i].first > blocks[i - 1].second) continue;
    return absl::InvalidArgumentError(absl::StrCat("a transaction writes twice to block ",
                                                   blocks[i].first, " of object ", update.id));
  }
  return absl::OkStatus();
}

// Whatever the store would refuse of these at any time. What is held is committed some time: all
// that can be wrong with it must be found before.
absl::Status CheckStorable(const std::vector<ObjectUpdate>& updates) {
  absl::flat_hash_set<ObjectId> ids;
  for (const ObjectUpdate& update : updates) {
    if (!ids.insert(update.id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("a transaction has two parts for object ", update.id));
    }
    if (update.blob.has_value() && update.blob->size() > ObjectStore::kBlobBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("the inode of object ", update.id, " would have ", update.blob->size(),
                       " bytes; at most ", ObjectStore::kBlobBytesMax, " can be"));
    }
    ABACUS_RETURN_IF_ERROR(CheckStorableWrites(update));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ObjectTable::CheckNotHeld(const std::vector<ObjectId>& ids, uint16_t writer,
                                       uint64_t group) {
  MutexLock lock(mutex_);
  if (held_.empty()) return absl::OkStatus();
  for (const ObjectId id : ids) {
    const auto held = held_.find(id);
    if (held == held_.end() || held->second == group) continue;
    // It may be refused for the others later: then it is remembered for those.
    refused_[id].insert(writer);
    return WouldBlock(id == kTreeTurn ? "another directory is being moved, over several shards"
                                      : "a transaction over several shards holds the object");
  }
  return absl::OkStatus();
}

absl::Status ObjectTable::CheckHeld(const std::vector<ObjectId>& ids, uint64_t group) {
  MutexLock lock(mutex_);
  for (const ObjectId id : ids) {
    const auto held = held_.find(id);
    if (held != held_.end() && held->second == group) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("object ", id, " is not held for group ", group));
  }
  return absl::OkStatus();
}

absl::StatusOr<Outcome> ObjectTable::Hold(uint16_t writer, const Transaction& transaction,
                                          uint64_t group) {
  const std::vector<ObjectId> ids = TurnsOf(transaction);
  const Turns::Turn turn(turns_, ids);
  ABACUS_RETURN_IF_ERROR(CheckNotHeld(ids, writer, group));
  ABACUS_ASSIGN_OR_RETURN(Plan plan, PlanOf(transaction, /*is_held=*/false));
  if (plan.outcome.state != CommitState::kCommitted) return std::move(plan.outcome);
  ABACUS_RETURN_IF_ERROR(CheckStorable(plan.updates));
  MutexLock lock(mutex_);
  for (const ObjectId id : ids) held_[id] = group;
  return Outcome();
}

void ObjectTable::HoldAgain(const Transaction& transaction, uint64_t group) {
  MutexLock lock(mutex_);
  for (const ObjectId id : TurnsOf(transaction)) {
    held_[id] = group;
    awaited_.insert(id);
  }
}

absl::StatusOr<Outcome> ObjectTable::CommitHeld(uint16_t writer, const Transaction& transaction,
                                                uint64_t group, const ObjectUpdate& beside) {
  const std::vector<ObjectId> ids = TurnsOf(transaction);
  const Turns::Turn turn(turns_, ids);
  ABACUS_RETURN_IF_ERROR(CheckHeld(ids, group));
  absl::StatusOr<Outcome> outcome = CommitInTurn(writer, transaction, &beside);
  if (outcome.ok()) Release(transaction, group);
  return outcome;
}

void ObjectTable::Release(const Transaction& transaction, uint64_t group) {
  MutexLock lock(mutex_);
  for (const ObjectId id : TurnsOf(transaction)) {
    const auto held = held_.find(id);
    if (held != held_.end() && held->second == group) held_.erase(held);
  }
}

std::vector<uint16_t> ObjectTable::TakeRefused(const std::vector<ObjectId>& ids) {
  std::vector<ObjectId> all = ids;
  std::set<uint16_t> writers;
  MutexLock lock(mutex_);
  // Who knows of objects only may have held the tree too.
  if (!held_.contains(kTreeTurn)) all.push_back(kTreeTurn);
  for (const ObjectId id : all) {
    const auto refused = refused_.find(id);
    if (refused == refused_.end()) continue;
    writers.merge(refused->second);
    refused_.erase(refused);
  }
  return {writers.begin(), writers.end()};
}

absl::Status ObjectTable::Put(const ObjectUpdate& update) {
  return store_->Update(std::span(&update, 1), Next(0).value);
}

}  // namespace abacus::objfs
