// ColumnStore: a column that comes here from another server.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/spread/column_store.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;

namespace {
constexpr uint64_t kBlockOfCopy = ObjectStore::kBlockBytes;
// Of what is made here for a copy, beside its blocks, which keep theirs.
constexpr VersionNumber kOfACopy = 1;
}  // namespace

// -- at the server that has the column ------------------------------------------------------------

absl::StatusOr<ColumnState> ColumnStore::State(ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(ObjectAttributes attributes, store_->GetAttributes(id));
  return ColumnState{.id = id,
                     .size = attributes.size_bytes,
                     .allocated = attributes.allocated_bytes,
                     .record = std::move(attributes.blob)};
}

// What is cut off or punched between its calls is told by the watch.
absl::StatusOr<ColumnPiece> ColumnStore::ReadPiece(ObjectId id, uint64_t from, uint64_t end) {
  const absl::StatusOr<uint64_t> data = store_->NextData(id, from);
  const bool none = absl::IsOutOfRange(data.status()) || (data.ok() && *data >= end);
  if (none) return ColumnPiece{.offset = end, .bytes = {}};
  ABACUS_RETURN_IF_ERROR(data.status());
  const absl::StatusOr<uint64_t> hole = store_->NextHole(id, *data);
  if (absl::IsOutOfRange(hole.status())) return ColumnPiece{.offset = end, .bytes = {}};
  ABACUS_RETURN_IF_ERROR(hole.status());
  const uint64_t bytes = std::min({*hole, end, *data + kPieceBytes}) - *data;
  const uint64_t first = *data / kBlockOfCopy,
                 last = (*data + bytes + kBlockOfCopy - 1) / kBlockOfCopy;
  ABACUS_ASSIGN_OR_RETURN(const std::vector<VersionNumber> versions,
                          store_->ReadVersions(id, first, last - first));
  Block block = Block::Allocate(bytes);
  ABACUS_ASSIGN_OR_RETURN(const uint64_t read,
                          store_->Read(id, *data, {block.mutable_data(), bytes}));
  return ColumnPiece{.offset = *data,
                     .bytes = read < bytes ? block.Slice(0, read) : block,
                     .version = *std::max_element(versions.begin(), versions.end())};
}

absl::StatusOr<uint64_t> ColumnStore::Watch(ObjectId id) {
  ABACUS_RETURN_IF_ERROR(store_->GetAttributes(id).status());
  return watches_->Begin(id);
}

absl::StatusOr<ColumnChanges> ColumnStore::TakeChanges(ObjectId id, uint64_t watch) {
  return watches_->Take(id, watch);
}

// -- at the one that it goes to -------------------------------------------------------------------

absl::Status ColumnStore::CheckNotInUse(ObjectId id) {
  const absl::StatusOr<ObjectAttributes> here = store_->GetAttributes(id);
  if (absl::IsNotFound(here.status())) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(here.status());
  MutexLock lock(mutex_);
  if (here->blob.empty() && !opened_.contains(id)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("there is a column of object ", id, " already"));
}

absl::StatusOr<uint64_t> ColumnStore::BeginCopy(const Ref<ColumnStore>& source, ObjectId id) {
  ForgetCopy(id);
  const absl::Status removed = store_->Remove(id);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  ABACUS_ASSIGN_OR_RETURN(const uint64_t watch, source->Watch(id));
  ABACUS_RETURN_IF_ERROR(store_->CreateAs(id, "", kOfACopy));
  MutexLock lock(mutex_);
  incoming_[id] = {.source = source, .watch = watch, .whole = false};
  return watch;
}

void ColumnStore::ForgetCopy(ObjectId id) {
  MutexLock lock(mutex_);
  incoming_.erase(id);
}

absl::StatusOr<ColumnStore::Incoming> ColumnStore::IncomingOf(const Ref<ColumnStore>& source,
                                                              ObjectId id, uint64_t copy) {
  MutexLock lock(mutex_);
  const auto found = incoming_.find(id);
  if (found != incoming_.end() && found->second.source == source && found->second.watch == copy) {
    return found->second;
  }
  return absl::CancelledError("that copy of the column is not known here any more");
}

absl::StatusOr<CopyProgress> ColumnStore::CopyFrom(Ref<ColumnStore> source, ObjectId id,
                                                   uint64_t copy, uint64_t from, uint64_t bytes) {
  const Turns::Turn turn(turns_, id);
  if (copy == 0) {
    from = 0;
    ABACUS_RETURN_IF_ERROR(CheckNotInUse(id));
    ABACUS_ASSIGN_OR_RETURN(copy, BeginCopy(source, id));
  }
  ABACUS_RETURN_IF_ERROR(IncomingOf(source, id, copy).status());
  ABACUS_ASSIGN_OR_RETURN(const ColumnState state, source->State(id));
  CopyProgress progress{.copy = copy, .next = from, .copied = 0, .whole = from >= state.size};
  if (!progress.whole) {
    ABACUS_ASSIGN_OR_RETURN(progress, CopyPieces(source, id, {from, state.size - from}, bytes));
  }
  progress.copy = copy;
  if (!progress.whole) return progress;
  MutexLock lock(mutex_);
  incoming_[id].whole = true;
  return progress;
}

// Of `within`; until `bytes_max` bytes or more are copied.
absl::StatusOr<CopyProgress> ColumnStore::CopyPieces(const Ref<ColumnStore>& source, ObjectId id,
                                                     Range within, uint64_t bytes_max) {
  const uint64_t end = within.offset + within.bytes;
  CopyProgress progress{.copy = 0, .next = within.offset, .copied = 0, .whole = false};
  while (progress.next < end && progress.copied < bytes_max) {
    ABACUS_ASSIGN_OR_RETURN(const ColumnPiece piece, source->ReadPiece(id, progress.next, end));
    ABACUS_RETURN_IF_ERROR(PunchHere(id, progress.next, std::min(piece.offset, end)));
    progress.next = piece.offset + piece.bytes.size();
    progress.copied += piece.bytes.size();
    if (piece.bytes.empty()) continue;
    ABACUS_RETURN_IF_ERROR(store_->Write(id, piece.offset, piece.bytes.view(),
                                         std::max<VersionNumber>(piece.version, kOfACopy)));
  }
  progress.whole = progress.next >= end;
  return progress;
}

absl::Status ColumnStore::PunchHere(ObjectId id, uint64_t from, uint64_t end) {
  ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes attributes, store_->GetAttributes(id));
  end = std::min(end, attributes.size_bytes);
  return from < end ? store_->Punch(id, from, end - from, kOfACopy) : absl::OkStatus();
}

absl::StatusOr<uint64_t> ColumnStore::FollowFrom(Ref<ColumnStore> source, ObjectId id,
                                                 uint64_t copy) {
  const Turns::Turn turn(turns_, id);
  return Follow(source, id, copy);
}

absl::StatusOr<uint64_t> ColumnStore::Follow(const Ref<ColumnStore>& source, ObjectId id,
                                             uint64_t copy) {
  ABACUS_ASSIGN_OR_RETURN(const Incoming incoming, IncomingOf(source, id, copy));
  if (!incoming.whole) return absl::CancelledError("the copy of the column is not whole yet");
  const absl::StatusOr<ColumnChanges> changes = source->TakeChanges(id, copy);
  absl::StatusOr<uint64_t> copied =
      changes.ok() ? CopyChanges(source, id, *changes) : changes.status();
  if (!copied.ok()) ForgetCopy(id);  // what was taken out is not told again
  return copied;
}

absl::StatusOr<uint64_t> ColumnStore::CopyChanges(const Ref<ColumnStore>& source, ObjectId id,
                                                  const ColumnChanges& changes) {
  ABACUS_ASSIGN_OR_RETURN(const ColumnState state, source->State(id));
  std::vector<Range> ranges = changes.ranges;
  ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes here, store_->GetAttributes(id));
  // Also where it ends there: it may grow again before anybody looks, and nothing told of what is
  // between.
  if (changes.cut < here.size_bytes) {
    ABACUS_RETURN_IF_ERROR(store_->Truncate(id, changes.cut, kOfACopy));
  }
  if (changes.cut < state.size) {
    const uint64_t begin = changes.cut / kBlockOfCopy * kBlockOfCopy;
    ranges.push_back({begin, state.size - begin});
  }
  uint64_t copied = 0;
  for (const Range& range : ranges) {
    const uint64_t end = std::min(range.offset + range.bytes, state.size);
    if (range.offset >= end) continue;
    ABACUS_ASSIGN_OR_RETURN(const CopyProgress progress,
                            CopyPieces(source, id, {range.offset, end - range.offset}, UINT64_MAX));
    copied += progress.copied;
  }
  return copied;
}

absl::Status ColumnStore::FinishFrom(Ref<ColumnStore> source, ObjectId id, uint64_t copy) {
  const Turns::Turn turn(turns_, id);
  const absl::Status finished = Finish(source, id, copy);
  ForgetCopy(id);
  return finished;
}

absl::Status ColumnStore::Finish(const Ref<ColumnStore>& source, ObjectId id, uint64_t copy) {
  if (copy == 0) ABACUS_RETURN_IF_ERROR(BeginCopy(source, id).status());
  ABACUS_ASSIGN_OR_RETURN(const ColumnState state, source->State(id));
  if (copy == 0) {
    ABACUS_RETURN_IF_ERROR(CopyPieces(source, id, {0, state.size}, UINT64_MAX).status());
  } else {
    ABACUS_RETURN_IF_ERROR(Follow(source, id, copy).status());
  }
  ABACUS_RETURN_IF_ERROR(store_->Truncate(id, state.size, kOfACopy));
  // The record, which tells what is so of the bytes, is not there before they are.
  ABACUS_RETURN_IF_ERROR(store_->Flush(id));
  ABACUS_RETURN_IF_ERROR(store_->SetAttributes(id, state.record, kOfACopy));
  return store_->Flush(id);
}

}  // namespace abacus::objfs
