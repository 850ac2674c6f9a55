#include "objfs/spread/column_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/spread/fenced_record.h"
#include "objfs/store/object_id.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;

namespace {

constexpr uint64_t kLookedAtOnce = 1000;

// As the volume answers who is no client any more (callbacks.h), and with the same effect there.
absl::Status ShutOut() {
  return absl::UnauthenticatedError(
      "the column was opened for another client since: what this one was promised is over");
}

// By which opening the column's record was written; 0: none, or it cannot be told, as of one that
// is damaged: of that the file's others tell. Errors: kNotFound; kFailedPrecondition - of a later
// version. The store's.
absl::StatusOr<Version> OpeningOfRecord(ObjectStore& store, ObjectId id) {
  const absl::StatusOr<ObjectAttributes> attributes = store.GetAttributes(id);
  if (absl::IsDataLoss(attributes.status())) return Version();
  ABACUS_RETURN_IF_ERROR(attributes.status());
  const absl::StatusOr<FencedRecord> fenced = FencedRecord::Decode(attributes->blob);
  if (absl::IsDataLoss(fenced.status())) return Version();
  ABACUS_RETURN_IF_ERROR(fenced.status());
  return fenced->opening;
}

// CommitLog::Host::is_over.
absl::StatusOr<bool> IsOver(ObjectStore& store, const GroupFence& fence) {
  const absl::StatusOr<Version> recorded = OpeningOfRecord(store, fence.id);
  if (absl::IsNotFound(recorded.status())) return true;
  ABACUS_RETURN_IF_ERROR(recorded.status());
  return fence.opening < *recorded;
}

}  // namespace

// -- who may use a column -------------------------------------------------------------------------

absl::Status ColumnFence::Raise(Version epoch) {
  MutexLock lock(mutex_);
  if (epoch < epoch_) return ShutOut();
  const bool is_new = epoch_ < epoch;
  uses_.openings += is_new;
  epoch_ = epoch;
  // Disk I/O, which ends; of this epoch nobody is inside yet.
  while (is_new && inside_ > 0) changed_.Wait(mutex_);
  return absl::OkStatus();
}

absl::StatusOr<ColumnFence::Pass> ColumnFence::Enter(Version epoch) {
  MutexLock lock(mutex_);
  if (epoch != epoch_) return ShutOut();
  ++inside_;
  ++uses_.calls;
  return Pass(this);
}

ColumnFence::Uses ColumnFence::uses() {
  MutexLock lock(mutex_);
  return uses_;
}

ColumnFence::Pass::~Pass() {
  if (fence_ == nullptr) return;
  MutexLock lock(fence_->mutex_);
  if (--fence_->inside_ == 0) fence_->changed_.SignalAll();
}

std::shared_ptr<ColumnFence> ColumnFences::Make(ObjectId id) {
  MutexLock lock(mutex_);
  std::shared_ptr<ColumnFence>& fence = fences_[id];
  if (fence == nullptr) fence = std::make_shared<ColumnFence>();
  return fence;
}

void ColumnFences::Forget(ObjectId id) {
  MutexLock lock(mutex_);
  fences_.erase(id);
}

uint64_t ColumnFences::UsesBut(ObjectId id) {
  std::vector<std::pair<ObjectId, std::shared_ptr<ColumnFence>>> fences;
  {
    MutexLock lock(mutex_);
    fences.assign(fences_.begin(), fences_.end());
  }
  uint64_t sum = 0;
  for (const auto& [file, fence] : fences) {
    const ColumnFence::Uses uses = fence->uses();
    sum += file == id ? uses.openings : uses.calls;
  }
  return sum;
}

std::shared_ptr<ColumnFence> ColumnFences::Find(ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = fences_.find(id);
  return found == fences_.end() ? nullptr : found->second;
}

absl::StatusOr<std::shared_ptr<const void>> ColumnFences::Enter(const GroupPart& part) {
  struct Inside {
    std::vector<std::shared_ptr<ColumnFence>> fences;
    std::vector<ColumnFence::Pass> passes;  // go first
  };
  std::set<ObjectId> fenced;
  const auto inside = std::make_shared<Inside>();
  for (const GroupFence& fence : part.fences) {
    const std::shared_ptr<ColumnFence> found = Find(fence.id);
    if (found == nullptr) return ShutOut();
    inside->fences.push_back(found);
    ABACUS_ASSIGN_OR_RETURN(ColumnFence::Pass pass, found->Enter(fence.opening));
    inside->passes.push_back(std::move(pass));
    fenced.insert(fence.id);
  }
  bool all = true;
  for (const GroupRead& read : part.reads) all = all && fenced.contains(read.id);
  for (const GroupWrite& write : part.writes) all = all && fenced.contains(write.id);
  if (!all) {
    return absl::UnauthenticatedError(
        "a group names no opening of a column that it reads or writes: it may not use that");
  }
  return std::shared_ptr<const void>(inside);
}

template <typename F>
auto ColumnLayer::Inside(F&& call) -> decltype(call()) {
  ABACUS_ASSIGN_OR_RETURN(const ColumnFence::Pass pass, fence_->Enter(epoch_));
  return call();
}

absl::StatusOr<ReadResult> ColumnLayer::Read(uint64_t offset, uint64_t bytes, Version now) {
  return Inside([&] { return storage_.Read(offset, bytes, now); });
}
absl::Status ColumnLayer::Write(uint64_t offset, const Block& bytes, Version now) {
  return Inside([&] {
    auto written = storage_.Write(offset, bytes, now);
    watches_->Changed(id_, offset, bytes.size());
    return written;
  });
}
absl::StatusOr<uint64_t> ColumnLayer::Append(const Block& bytes, Version now) {
  return storage_.Append(bytes, now);  // tells why not
}
absl::Status ColumnLayer::Truncate(uint64_t size, Version now) {
  return Inside([&] {
    auto cut = storage_.Truncate(size, now);
    watches_->Cut(id_, size);
    return cut;
  });
}
absl::Status ColumnLayer::Punch(Range range, Version now) {
  return Inside([&] {
    auto punched = storage_.Punch(range, now);
    watches_->Changed(id_, range.offset, range.bytes == 0 ? UINT64_MAX : range.bytes);
    return punched;
  });
}
absl::StatusOr<uint64_t> ColumnLayer::Seek(uint64_t offset, bool data, Version now) {
  return Inside([&] { return storage_.Seek(offset, data, now); });
}
absl::Status ColumnLayer::Push(Version) { return absl::OkStatus(); }
absl::Status ColumnLayer::Flush(Version now) {
  return Inside([&] { return storage_.Flush(now); });
}
absl::StatusOr<Attributes> ColumnLayer::GetAttributes(Version now) {
  return Inside([&]() -> absl::StatusOr<Attributes> {
    ABACUS_ASSIGN_OR_RETURN(Attributes attributes, storage_.GetAttributes(now));
    ABACUS_ASSIGN_OR_RETURN(FencedRecord fenced, FencedRecord::Decode(attributes.inode));
    attributes.inode = std::move(fenced.record);
    attributes.opening = fenced.opening;
    return attributes;
  });
}
absl::Status ColumnLayer::SetInode(const std::string& inode, Version now) {
  return Inside([&] {
    return storage_.SetInode(FencedRecord{.opening = epoch_, .record = inode}.Encode(), now);
  });
}
absl::StatusOr<CommitResult> ColumnLayer::Commit(const std::vector<RangeVersion>& reads,
                                                 const std::vector<RangeWrite>& writes,
                                                 Version now) {
  return storage_.Commit(reads, writes, now);  // likewise
}

// -- the columns of one server --------------------------------------------------------------------

ColumnStore::ColumnStore(std::shared_ptr<ObjectStore> store, Host host)
    : store_(std::move(store)), host_(std::move(host)) {}

ColumnStore::~ColumnStore() = default;

absl::Status ColumnStore::CheckNotLate(ObjectId id, Version epoch) {
  const absl::StatusOr<Version> recorded = OpeningOfRecord(*store_, id);
  if (absl::IsNotFound(recorded.status())) return absl::OkStatus();  // nobody has anything of it
  ABACUS_RETURN_IF_ERROR(recorded.status());
  return epoch < *recorded ? ShutOut() : absl::OkStatus();
}

absl::StatusOr<Ref<Layer>> ColumnStore::Open(ObjectId id, Version epoch) {
  const Turns::Turn turn(turns_, id);
  ABACUS_RETURN_IF_ERROR(CheckNotLate(id, epoch));
  std::shared_ptr<ColumnFence> fence;
  {
    MutexLock lock(mutex_);
    fence = opened_[id].fence = fences_->Make(id);
  }
  ABACUS_RETURN_IF_ERROR(fence->Raise(epoch));
  const absl::Status made = store_->CreateAs(id, "", epoch.value);
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  auto layer = std::make_unique<ColumnLayer>(store_, id, fence, epoch, watches_);
  ABACUS_RETURN_IF_ERROR(layer->Init({}, {}));
  const Ref<Layer> adopted = host_.adopt(std::move(layer));
  Ref<Layer> before;
  {
    MutexLock lock(mutex_);
    Opened& opened = opened_[id];
    before = std::exchange(opened.before, std::exchange(opened.layer, adopted));
    opened.epoch = epoch;
  }
  End(before);
  return adopted;
}

absl::StatusOr<OpenedColumn> ColumnStore::OpenAndTell(ObjectId id, Version epoch) {
  OpenedColumn opened;
  ABACUS_ASSIGN_OR_RETURN(opened.layer, Open(id, epoch));
  // After it: who wrote that one, or prepared one of these, is shut out.
  ABACUS_ASSIGN_OR_RETURN(opened.recorded, OpeningOfRecord(*store_, id));
  {
    MutexLock lock(mutex_);
    opened.log = log_;
  }
  if (!opened.log) return opened;
  ABACUS_ASSIGN_OR_RETURN(opened.pending, opened.log->PendingOf(id));
  return opened;
}

void ColumnStore::AddHooks(CommitLog::Host* host) const {
  host->enter = [fences = fences_](const GroupPart& part) { return fences->Enter(part); };
  host->is_over = [store = store_](const GroupFence& fence) { return IsOver(*store, fence); };
  host->written = [watches = watches_](ObjectId id, uint64_t offset, uint64_t bytes) {
    watches->Changed(id, offset, bytes);
  };
}

void ColumnStore::TakeLog(const Ref<CommitLog>& log) {
  MutexLock lock(mutex_);
  log_ = log;
}

absl::StatusOr<Ref<CommitLog>> ColumnStore::Log() {
  MutexLock lock(mutex_);
  if (log_) return log_;
  return absl::UnimplementedError("this server has no log of groups for its columns");
}

absl::Status ColumnStore::Close(ObjectId id, Version epoch) {
  const Turns::Turn turn(turns_, id);
  Opened closed;
  {
    MutexLock lock(mutex_);
    const auto found = opened_.find(id);
    // What was opened since is another one's.
    if (found == opened_.end() || epoch < found->second.epoch) return absl::OkStatus();
    closed = std::move(found->second);
    opened_.erase(found);
  }
  // Who opens it next has a fence of its own, which waits for nobody of before.
  fences_->Forget(id);
  closed.fence->Raise(Version{UINT64_MAX}).IgnoreError();  // there is no later one
  End(closed.layer);
  End(closed.before);
  return absl::OkStatus();
}

absl::Status ColumnStore::Remove(const std::vector<ObjectId>& ids) {
  absl::Status first;
  for (const ObjectId id : ids) {
    first.Update(Close(id, Version{UINT64_MAX}));
    watches_->End(id);
    const absl::Status removed = store_->Remove(id);
    if (!absl::IsNotFound(removed)) first.Update(removed);
  }
  first.Update(store_->FlushTogether({}));
  return first;
}

absl::StatusOr<std::vector<ObjectId>> ColumnStore::List(ObjectId after, uint64_t count_max) {
  return store_->List(after, count_max);
}

absl::StatusOr<std::vector<ColumnState>> ColumnStore::States(ObjectId after, uint64_t count_max) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store_->List(after, count_max));
  std::vector<ColumnState> states;
  for (const ObjectId id : ids) {
    absl::StatusOr<ObjectAttributes> attributes = store_->GetAttributes(id);
    if (absl::IsNotFound(attributes.status())) continue;
    ColumnState state{.id = id, .size = 0, .allocated = 0, .record = {}, .opening = {}};
    if (attributes.ok()) {
      state.size = attributes->size_bytes;
      state.allocated = attributes->allocated_bytes;
      absl::StatusOr<FencedRecord> fenced = FencedRecord::Decode(attributes->blob);
      if (fenced.ok()) state.opening = fenced->opening;
      // What is not known here is no record to who looks at it either.
      state.record = fenced.ok() ? std::move(fenced->record) : std::move(attributes->blob);
    } else {
      state.record = "damaged";  // no record: the file's others are believed
    }
    states.push_back(std::move(state));
  }
  return states;
}

absl::StatusOr<uint64_t> ColumnStore::UsesBut(ObjectId id) { return fences_->UsesBut(id); }

absl::StatusOr<ColumnDamage> ColumnStore::Damage() {
  const StoreStatistics statistics = store_->Statistics();
  return ColumnDamage{.blocks = statistics.checksum_errors, .tables = statistics.damaged_tables};
}

// Openings in an epoch have it where identifiers have theirs, and no shard above it.
absl::StatusOr<uint64_t> ColumnStore::SeenEpoch() {
  uint64_t seen = 0;
  Ref<CommitLog> log;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, opened] : opened_) {
      seen = std::max(seen, opened.epoch.value >> kIdEpochShift);
    }
    log = log_;
  }
  if (log) {
    ABACUS_ASSIGN_OR_RETURN(const Version newest, log->NewestOpening());
    seen = std::max(seen, newest.value >> kIdEpochShift);
  }
  for (ObjectId after = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store_->List(after, kLookedAtOnce));
    if (ids.empty()) return seen;
    for (const ObjectId id : ids) {
      seen = std::max(seen, EpochOf(id));
      // What cannot be read tells no more than its number.
      const absl::StatusOr<ObjectAttributes> attributes = store_->GetAttributes(id);
      if (!attributes.ok()) continue;
      const absl::StatusOr<FencedRecord> fenced = FencedRecord::Decode(attributes->blob);
      if (fenced.ok()) seen = std::max(seen, fenced->opening.value >> kIdEpochShift);
    }
    after = ids.back();
  }
}

}  // namespace abacus::objfs
