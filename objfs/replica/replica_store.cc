#include "objfs/replica/replica_store.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;

namespace {

constexpr uint64_t kStoreBlock = ObjectStore::kBlockBytes;
constexpr uint64_t kListedMax = 4096;
constexpr ObjectId kChangesTurn = 1;

absl::Status Superseded(uint64_t epoch, uint64_t seen) {
  return absl::PermissionDeniedError(
      absl::StrCat("epoch ", epoch, " of the volume is over: its copy has seen epoch ", seen));
}

// kPermissionDenied tells a primary that it is one no more: a disk's is another error.
absl::Status OfTheDisk(absl::Status status) {
  if (!absl::IsPermissionDenied(status)) return status;
  return absl::InternalError(absl::StrCat("the copy's disk: ", status.message()));
}

template <typename T>
absl::StatusOr<T> OfTheDisk(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return OfTheDisk(result.status());
}

absl::Status BeginFirst(const std::string& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("the copy takes nothing of this session of its primary: ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicaStore>> ReplicaStore::Open(std::shared_ptr<Disk> disk,
                                                                 LocalObjectStoreOptions options) {
  ABACUS_ASSIGN_OR_RETURN(const std::optional<ReplicaRecord> loaded, ReplicaRecord::Load(*disk));
  ABACUS_ASSIGN_OR_RETURN(auto store, LocalObjectStore::Open(*disk, std::move(options)));
  ReplicaRecord record = loaded.value_or(ReplicaRecord());
  // What it did last as a primary may be known to nobody else. On the disk that is a copy which is
  // not whole only from Begin() on: where nobody took its place it can go on as it was.
  if (record.was_primary) record.is_whole = false;
  if (!loaded.has_value()) ABACUS_RETURN_IF_ERROR(record.Save(*disk));
  return std::unique_ptr<ReplicaStore>(new ReplicaStore(std::move(disk), std::move(store), record));
}

ReplicaStore::ReplicaStore(std::shared_ptr<Disk> disk, std::unique_ptr<LocalObjectStore> store,
                           ReplicaRecord record)
    : disk_(std::move(disk)), store_(std::move(store)), record_(record) {}

ReplicaStore::~ReplicaStore() = default;

// -- epochs and sessions --------------------------------------------------------------------------

absl::Status ReplicaStore::CheckOpen() {
  if (!is_retired_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the copy has been promoted in epoch ", record_.epoch, " of the volume"));
}

absl::Status ReplicaStore::CheckSession(uint64_t epoch, uint64_t session) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(CheckOpen());
  if (epoch < record_.epoch) return Superseded(epoch, record_.epoch);
  if (epoch == record_.epoch && session < session_) {
    return absl::PermissionDeniedError(
        absl::StrCat("session ", session, " is over: its primary has begun ", session_));
  }
  if (epoch > record_.epoch || session > session_) return BeginFirst("it was not begun");
  if (is_broken_) return BeginFirst("a change is missing, or has failed");
  return absl::OkStatus();
}

absl::Status ReplicaStore::SetRecord(ReplicaRecord record) {
  {
    MutexLock lock(mutex_);
    if (record == record_) return absl::OkStatus();
  }
  ABACUS_RETURN_IF_ERROR(OfTheDisk(record.Save(*disk_)));
  MutexLock lock(mutex_);
  record_ = record;
  return absl::OkStatus();
}

absl::Status ReplicaStore::SetWhole(bool is_whole) {
  ReplicaRecord record;
  {
    MutexLock lock(mutex_);
    record = record_;
  }
  record.is_whole = is_whole;
  return SetRecord(record);
}

absl::Status ReplicaStore::Broken(absl::Status why) {
  {
    MutexLock lock(mutex_);
    is_broken_ = true;
  }
  // Where that fails too, the disk is gone; the map has the last word on who takes over.
  SetWhole(false).IgnoreError();
  return OfTheDisk(std::move(why));
}

absl::StatusOr<ReplicaState> ReplicaStore::State() {
  const SharedGate::Pass pass(users_);
  ReplicaState state;
  {
    MutexLock lock(mutex_);
    ABACUS_RETURN_IF_ERROR(CheckOpen());
    state = {.epoch = record_.epoch,
             .session = session_,
             .applied = applied_,
             .is_whole = record_.is_whole,
             .objects = 0};
  }
  const absl::StatusOr<StoreSpace> space = store_->Space();
  if (!space.ok()) return OfTheDisk(space.status());
  state.objects = space->objects;
  return state;
}

absl::StatusOr<ReplicaState> ReplicaStore::Begin(uint64_t epoch, uint64_t session) {
  ABACUS_ASSIGN_OR_RETURN(const ReplicaState before, State());
  const SharedGate::Pass pass(users_);
  const Turns::Turn turn(changes_, kChangesTurn);
  ReplicaRecord record;
  {
    MutexLock lock(mutex_);
    ABACUS_RETURN_IF_ERROR(CheckOpen());
    if (epoch < record_.epoch) return Superseded(epoch, record_.epoch);
    if (epoch == record_.epoch && session <= session_) {
      return absl::PermissionDeniedError(
          absl::StrCat("session ", session, " is over: there was ", session_));
    }
    record = record_;
    // From here on nothing of an earlier one is taken, whatever comes of this.
    is_broken_ = true;
  }
  record.epoch = epoch;
  // Whatever the map said of what was left here, this primary may have gone on without it.
  if (std::exchange(record.was_primary, false)) record.is_whole = false;
  ABACUS_RETURN_IF_ERROR(SetRecord(record));
  MutexLock lock(mutex_);
  session_ = session;
  applied_ = 0;
  is_broken_ = is_finished_ = false;
  return before;
}

absl::Status ReplicaStore::Retire(uint64_t epoch) {
  users_.Close();
  ReplicaRecord record;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    status = CheckOpen();
    record = record_;
  }
  if (status.ok() && !record.is_whole) {
    status =
        absl::FailedPreconditionError("this copy of the volume is not whole: it cannot take over");
  }
  if (status.ok() && epoch <= record.epoch) status = Superseded(epoch, record.epoch);
  record.epoch = epoch;
  record.was_primary = false;  // in this epoch
  if (status.ok()) status = SetRecord(record);
  if (status.ok()) {
    // What it has beyond what was acknowledged is nobody's due.
    store_->FlushAll().IgnoreError();
    store_.reset();
    MutexLock lock(mutex_);
    is_retired_ = true;
  }
  users_.Open();
  return status;
}

void ReplicaStore::BelieveWhatWasLeft() {
  MutexLock lock(mutex_);
  // A session that begins at the same time has the last word.
  if (record_.was_primary) record_.is_whole = true;
}

// -- changes --------------------------------------------------------------------------------------

absl::Status ReplicaStore::Apply(uint64_t epoch, uint64_t session, const ReplicaBatch& batch) {
  const SharedGate::Pass pass(users_);
  const Turns::Turn turn(changes_, kChangesTurn);
  ABACUS_RETURN_IF_ERROR(CheckSession(epoch, session));
  bool is_finished;
  uint64_t applied;
  {
    MutexLock lock(mutex_);
    is_finished = is_finished_;
    applied = applied_;
  }
  if (batch.first != applied + 1) {
    return Broken(
        BeginFirst(absl::StrCat("operation ", batch.first, " has come after operation ", applied)));
  }
  if (!batch.operations.empty() && !is_finished) {
    // The first change of a resync: from here on it is neither what it was nor what it is to be.
    if (auto status = SetWhole(false); !status.ok()) return Broken(status);
  }
  if (auto status = ApplyAll(batch); !status.ok()) return Broken(status);
  if (auto status = Flush(batch); !status.ok()) return Broken(status);
  return absl::OkStatus();
}

absl::Status ReplicaStore::ApplyAll(const ReplicaBatch& batch) {
  for (const ReplicaOperation& operation : batch.operations) {
    ABACUS_RETURN_IF_ERROR(ApplyOne(operation));
    MutexLock lock(mutex_);
    ++applied_;
  }
  return absl::OkStatus();
}

absl::Status ReplicaStore::ApplyOne(const ReplicaOperation& operation) {
  if (operation.kind == ReplicaOperation::Kind::kMakeAnew) return MakeAnew(operation);
  return operation.ApplyTo(*store_);
}

// A removal in the journal would take the files of what comes after it under the same name, when it
// is replayed: the journal is to begin anew between the two.
absl::Status ReplicaStore::MakeAnew(const ReplicaOperation& operation) {
  if (operation.parts.size() != 1) return operation.ApplyTo(*store_);  // which says why not
  const absl::Status removed = store_->Remove(operation.parts.front().id);
  if (!absl::IsNotFound(removed)) ABACUS_RETURN_IF_ERROR(removed);
  ABACUS_RETURN_IF_ERROR(store_->FlushTogether({}));
  ABACUS_RETURN_IF_ERROR(store_->Checkpoint());
  return operation.ApplyTo(*store_);
}

absl::Status ReplicaStore::Flush(const ReplicaBatch& batch) {
  switch (batch.flush) {
    case ReplicaFlush::kNone:
      return absl::OkStatus();
    case ReplicaFlush::kThese:
      return store_->FlushTogether(batch.ids);
    case ReplicaFlush::kAll:
      return store_->FlushAll();
    case ReplicaFlush::kFinish: {
      ABACUS_RETURN_IF_ERROR(store_->FlushAll());
      ABACUS_RETURN_IF_ERROR(SetWhole(true));
      MutexLock lock(mutex_);
      is_finished_ = true;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError("a flush of a kind that is not known");
}

// -- what a primary asks --------------------------------------------------------------------------

absl::StatusOr<std::vector<ObjectId>> ReplicaStore::List(ObjectId after, uint64_t count_max) {
  const SharedGate::Pass pass(users_);
  {
    MutexLock lock(mutex_);
    ABACUS_RETURN_IF_ERROR(CheckOpen());
  }
  return OfTheDisk(store_->List(after, std::min(count_max, kListedMax)));
}

absl::StatusOr<ReplicaObject> ReplicaStore::Describe(ObjectId id, uint64_t first, uint64_t count,
                                                     bool digests) {
  const SharedGate::Pass pass(users_);
  {
    MutexLock lock(mutex_);
    ABACUS_RETURN_IF_ERROR(CheckOpen());
  }
  if (count > kDescribedMax || first > ObjectStore::kObjectBytesMax / kStoreBlock) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kDescribedMax, " blocks are described at once"));
  }
  ReplicaObject object;
  absl::StatusOr<ObjectAttributes> attributes = store_->GetAttributes(id);
  if (absl::IsNotFound(attributes.status())) return object;
  object.is_there = true;
  if (absl::IsDataLoss(attributes.status())) {
    object.is_damaged = true;
    return object;
  }
  if (!attributes.ok()) return OfTheDisk(attributes.status());
  object.size = attributes->size_bytes;
  object.version = attributes->version;
  object.blob = std::move(attributes->blob);
  const absl::Status described = DescribeBlocks(id, first, count, digests, &object);
  if (!described.ok()) return OfTheDisk(described);
  return object;
}

absl::Status ReplicaStore::DescribeBlocks(ObjectId id, uint64_t first, uint64_t count, bool digests,
                                          ReplicaObject* object) {
  ABACUS_ASSIGN_OR_RETURN(object->versions, store_->ReadVersions(id, first, count));
  const absl::StatusOr<uint64_t> next = store_->NextData(id, (first + count) * kStoreBlock);
  if (next.ok()) object->next = *next / kStoreBlock;
  if (!next.ok() && !absl::IsOutOfRange(next.status())) return next.status();
  if (!digests) return absl::OkStatus();
  object->digests.resize(count);
  std::string bytes(kStoreBlock, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    if (object->versions[i] == 0) continue;
    std::fill(bytes.begin(), bytes.end(), '\0');
    const auto read =
        store_->Read(id, (first + i) * kStoreBlock, std::span(bytes.data(), bytes.size()));
    if (absl::IsDataLoss(read.status())) {
      object->damaged.push_back(first + i);
      continue;
    }
    ABACUS_RETURN_IF_ERROR(read.status());
    object->digests[i] = Crc32c(bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<Block> ReplicaStore::ReadBlock(ObjectId id, uint64_t block) {
  const SharedGate::Pass pass(users_);
  {
    MutexLock lock(mutex_);
    ABACUS_RETURN_IF_ERROR(CheckOpen());
  }
  if (block > ObjectStore::kObjectBytesMax / kStoreBlock) {
    return absl::OutOfRangeError(absl::StrCat("no object has a block ", block));
  }
  // It is taken for what its checksum says at the primary alone: one that is being written is not.
  std::string bytes(kStoreBlock, '\0');
  const auto read = store_->Read(id, block * kStoreBlock, std::span(bytes.data(), bytes.size()));
  if (!read.ok()) return OfTheDisk(read.status());
  return Block::FromString(std::move(bytes));
}

absl::Status ReplicaStore::PutBack(ObjectId id, uint64_t block, const Block& bytes) {
  const SharedGate::Pass pass(users_);
  {
    MutexLock lock(mutex_);
    ABACUS_RETURN_IF_ERROR(CheckOpen());
  }
  return OfTheDisk(store_->PutBack(id, block, bytes.view()));
}

}  // namespace abacus::objfs
