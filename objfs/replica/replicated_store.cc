#include "objfs/replica/replicated_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/object_state.h"
#include "runtime/base/status.h"
#include "runtime/base/status_of.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;

namespace {

using Clock = std::chrono::steady_clock;
using Kind = ReplicaOperation::Kind;

ReplicaOperation OperationOn(Kind kind, ObjectId id, VersionNumber version) {
  ReplicaOperation operation{.kind = kind, .version = version, .parts = {}};
  operation.parts.push_back({.id = id, .writes = {}, .blob = std::nullopt});
  return operation;
}

ReplicaOperation UpdateOf(std::span<const ObjectUpdate> updates, VersionNumber version) {
  ReplicaOperation operation{.kind = Kind::kUpdate, .version = version, .parts = {}};
  for (const ObjectUpdate& update : updates) {
    ReplicaPart part{.id = update.id,
                     .writes = {},
                     .blob = update.blob,
                     .may_lose_contents = update.may_lose_contents,
                     .gives_room_back = update.gives_room_back};
    for (const ObjectWrite& write : update.writes) {
      part.writes.push_back({write.offset, Block::CopyOf(write.bytes)});
    }
    operation.parts.push_back(std::move(part));
  }
  return operation;
}

// Without `digests` the copy need not read its blocks, and their checksums are 0.
absl::StatusOr<KeptTable> TableAtCopy(ReplicaLink& copy, ObjectId id, bool digests) {
  constexpr uint64_t kAtOnce = ReplicaStore::kDescribedMax;
  KeptTable table;
  for (uint64_t first = 0; first != UINT64_MAX;) {
    ABACUS_ASSIGN_OR_RETURN(const ReplicaObject there, copy.Describe(id, first, kAtOnce, digests));
    if (!there.is_there || there.is_damaged || !there.damaged.empty()) {
      return absl::DataLossError(absl::StrCat("object ", id, ": the copy lacks it, or some of it"));
    }
    const bool is_answer = there.versions.size() == kAtOnce &&
                           there.digests.size() == (digests ? kAtOnce : 0) &&
                           there.next >= first + kAtOnce;
    if (!is_answer) return absl::InternalError("the copy describes other blocks than these");
    table.head = {.size_bytes = there.size, .version = there.version, .blob = there.blob};
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      if (there.versions[i] == 0) continue;
      table.blocks.push_back({first + i, there.versions[i], digests ? there.digests[i] : 0});
    }
    if (table.blocks.size() > LocalObjectStore::kMadeWholeBlocksMax) {
      return absl::OutOfRangeError(absl::StrCat("object ", id, " is too large to be made whole"));
    }
    first = there.next;
  }
  return table;
}

// Of a copy that is ahead, or behind, no block is read.
absl::StatusOr<KeptTable> TableLike(const TableDigest& had, ReplicaLink& copy, ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(const KeptTable there, TableAtCopy(copy, id, /*digests=*/false));
  if (there.head.version != had.version || there.blocks.size() != had.blocks) {
    return absl::FailedPreconditionError(
        absl::StrCat("object ", id, ": the copy has another version of it"));
  }
  return TableAtCopy(copy, id, /*digests=*/true);
}

}  // namespace

std::shared_ptr<ReplicatedStore> ReplicatedStore::Make(std::shared_ptr<LocalObjectStore> local,
                                                       Options options, Host host) {
  return std::shared_ptr<ReplicatedStore>(
      new ReplicatedStore(std::move(local), options, std::move(host)));
}

ReplicatedStore::ReplicatedStore(std::shared_ptr<LocalObjectStore> local, Options options,
                                 Host host)
    : local_(std::move(local)),
      options_(options),
      host_(std::move(host)),
      stream_(options.stream),
      here_(options.slow),
      there_(options.slow_copy),
      counts_(options.copy_counts),
      worker_([this] { Work(); }) {}

ReplicatedStore::~ReplicatedStore() {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
    changed_.SignalAll();
  }
  stream_.Close(absl::CancelledError("the store is closed"));
  worker_.join();
}

// -- changes --------------------------------------------------------------------------------------

template <typename Local, typename Operation>
absl::Status ReplicatedStore::Change(std::span<const ObjectId> ids, Local local,
                                     Operation operation) {
  stream_.Room();
  // Over both, so that the copy is told of changes of one object in their order.
  const Turns::Turn turn(turns_, std::vector<ObjectId>(ids.begin(), ids.end()));
  if (const absl::Status changed = local(); !changed.ok()) {
    if (absl::IsUnavailable(changed)) TellThatLocalFails(changed);
    return changed;
  }
  Reach(options_.points, "replica:changed");
  if (Streams()) Stream(operation());
  return absl::OkStatus();
}

template <typename Local, typename Operation>
absl::Status ReplicatedStore::ChangeBytes(std::span<const ObjectId> ids,
                                          std::span<const Extent> extents, Local local,
                                          Operation operation) {
  absl::Status changed = Change(ids, local, operation);
  if (!absl::IsDataLoss(changed) || !Repair(ids, extents)) return changed;
  return Change(ids, local, operation);
}

bool ReplicatedStore::Streams() {
  MutexLock lock(mutex_);
  return streams_;
}

bool ReplicatedStore::IsInStep(ObjectId id) { return id <= cursor_ || born_.contains(id); }

void ReplicatedStore::Stream(ReplicaOperation operation) {
  MutexLock lock(mutex_);
  if (!streams_) return;
  // One that is made while a resync lasts needs none: all of it is told.
  if (operation.kind == Kind::kCreate && cursor_ != UINT64_MAX) {
    born_.insert(operation.parts.front().id);
  }
  std::erase_if(operation.parts, [this](const ReplicaPart& part)
                                     ABSL_NO_THREAD_SAFETY_ANALYSIS { return !IsInStep(part.id); });
  if (!operation.parts.empty()) stream_.Put(std::move(operation));
}

absl::StatusOr<ObjectId> ReplicatedStore::Create(std::string_view blob, VersionNumber version) {
  ABACUS_ASSIGN_OR_RETURN(const ObjectId id, Reserve());
  ABACUS_RETURN_IF_ERROR(CreateAs(id, blob, version));
  return id;
}

absl::StatusOr<ObjectId> ReplicatedStore::Reserve() { return local_->Reserve(); }

absl::Status ReplicatedStore::CreateAs(ObjectId id, std::string_view blob, VersionNumber version) {
  return Change(
      std::span(&id, 1), [&] { return local_->CreateAs(id, blob, version); },
      [&] {
        ReplicaOperation operation = OperationOn(Kind::kCreate, id, version);
        operation.parts.front().blob = std::string(blob);
        return operation;
      });
}

absl::Status ReplicatedStore::Remove(ObjectId id) {
  absl::Status removed;
  const auto local = [&] {
    removed = local_->Remove(id);
    if (removed.ok() || absl::IsNotFound(removed)) return removed;
    // It may be gone nevertheless, and its files are not.
    const bool is_gone = absl::IsNotFound(local_->GetAttributes(id).status());
    return is_gone ? absl::OkStatus() : removed;
  };
  const absl::Status changed =
      Change(std::span(&id, 1), local, [&] { return OperationOn(Kind::kRemove, id, 0); });
  return changed.ok() ? removed : changed;
}

absl::Status ReplicatedStore::Write(ObjectId id, uint64_t offset, std::string_view bytes,
                                    VersionNumber version) {
  const Extent extent{id, offset, bytes.size()};
  return ChangeBytes(
      std::span(&id, 1), std::span(&extent, 1),
      [&] { return local_->Write(id, offset, bytes, version); },
      [&] {
        ReplicaOperation operation = OperationOn(Kind::kWrite, id, version);
        operation.parts.front().writes.push_back({offset, Block::CopyOf(bytes)});
        return operation;
      });
}

absl::Status ReplicatedStore::Update(std::span<const ObjectUpdate> updates, VersionNumber version) {
  std::vector<ObjectId> ids;
  std::vector<Extent> extents;
  for (const ObjectUpdate& update : updates) {
    ids.push_back(update.id);
    for (const ObjectWrite& write : update.writes) {
      extents.push_back({update.id, write.offset, write.bytes.size()});
    }
  }
  return ChangeBytes(
      ids, extents, [&] { return local_->Update(updates, version); },
      [&] { return UpdateOf(updates, version); });
}

absl::Status ReplicatedStore::Truncate(ObjectId id, uint64_t size_bytes, VersionNumber version) {
  const Extent extent{id, size_bytes, 1};
  return ChangeBytes(
      std::span(&id, 1), std::span(&extent, 1),
      [&] { return local_->Truncate(id, size_bytes, version); },
      [&] {
        ReplicaOperation operation = OperationOn(Kind::kTruncate, id, version);
        operation.offset = size_bytes;
        return operation;
      });
}

absl::Status ReplicatedStore::Punch(ObjectId id, uint64_t offset, uint64_t bytes,
                                    VersionNumber version) {
  const Extent ends[] = {{id, offset, 1}, {id, offset + bytes, 1}};
  return ChangeBytes(
      std::span(&id, 1), ends, [&] { return local_->Punch(id, offset, bytes, version); },
      [&] {
        ReplicaOperation operation = OperationOn(Kind::kPunch, id, version);
        operation.offset = offset;
        operation.bytes = bytes;
        return operation;
      });
}

absl::Status ReplicatedStore::SetAttributes(ObjectId id, std::string_view blob,
                                            VersionNumber version) {
  return ChangeBytes(
      std::span(&id, 1), {}, [&] { return local_->SetAttributes(id, blob, version); },
      [&] {
        ReplicaOperation operation = OperationOn(Kind::kSetAttributes, id, version);
        operation.parts.front().blob = std::string(blob);
        return operation;
      });
}

// -- reads ----------------------------------------------------------------------------------------

absl::StatusOr<uint64_t> ReplicatedStore::Read(ObjectId id, uint64_t offset,
                                               std::span<char> bytes) {
  if (const auto here = here_.Begin(bytes.size(), Clock::now()); here.has_value()) {
    return ReadHere(*here, id, offset, bytes);
  }
  if (const auto there = there_.Begin(bytes.size(), Clock::now()); there.has_value()) {
    absl::StatusOr<uint64_t> read = ReadAtCopy(*there, id, offset, bytes);
    if (read.ok()) return read;
  }
  return ReadHere(id, offset, bytes);
}

absl::StatusOr<uint64_t> ReplicatedStore::ReadHere(ObjectId id, uint64_t offset,
                                                   std::span<char> bytes) {
  return ReadHere(here_.BeginAnyway(bytes.size(), Clock::now()), id, offset, bytes);
}

absl::StatusOr<uint64_t> ReplicatedStore::ReadAtCopy(SlowDisk::Ticket ticket, ObjectId id,
                                                     uint64_t offset, std::span<char> bytes) {
  absl::StatusOr<uint64_t> read = InStep([&]() -> absl::StatusOr<uint64_t> {
    ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<ReplicaLink> link, CurrentCopy());
    return local_->ReadKept(id, offset, bytes, [&](uint64_t block) -> absl::StatusOr<Block> {
      if (SlowDisk::IsLate(*ticket, Clock::now())) {
        return absl::DeadlineExceededError("the copy is slow, too");
      }
      absl::StatusOr<Block> kept = link->ReadBlock(id, block);
      // That the object was made may be on its way there.
      if (!absl::IsNotFound(kept.status())) return kept;
      return absl::FailedPreconditionError("the copy does not have the object");
    });
  });
  const bool is_away = absl::IsUnavailable(read.status()) ||
                       absl::IsDeadlineExceeded(read.status()) ||
                       absl::IsPermissionDenied(read.status());
  const bool has_bytes = read.ok() && *read > 0;
  there_.Ended(ticket,
               is_away     ? SlowDisk::Outcome::kNoWay
               : has_bytes ? SlowDisk::Outcome::kBytes
                           : SlowDisk::Outcome::kNothing,
               Clock::now());
  MutexLock lock(mutex_);
  if (has_bytes) ++report_.reads_at_copy;
  return read;
}

absl::StatusOr<std::shared_ptr<ReplicaLink>> ReplicatedStore::CurrentCopy() {
  MutexLock lock(mutex_);
  if (report_.link == ReplicationReport::Link::kCurrent && stream_.IsOpen()) return link_;
  return absl::UnavailableError("there is no copy that is up to date");
}

template <typename Call>
auto ReplicatedStore::InStep(Call call) -> decltype(call()) {
  auto result = call();
  if (!absl::IsFailedPrecondition(runtime::StatusOf(result))) return result;
  ABACUS_RETURN_IF_ERROR(stream_.Await(stream_.Ask(ReplicaFlush::kNone, {})));
  return call();
}

absl::StatusOr<uint64_t> ReplicatedStore::ReadHere(SlowDisk::Ticket ticket, ObjectId id,
                                                   uint64_t offset, std::span<char> bytes) {
  absl::StatusOr<uint64_t> read = local_->Read(id, offset, bytes);
  here_.Ended(ticket,
              read.ok() && *read > 0 ? SlowDisk::Outcome::kBytes : SlowDisk::Outcome::kNothing,
              Clock::now());
  if (absl::IsUnavailable(read.status())) TellThatLocalFails(read.status());
  if (!absl::IsDataLoss(read.status())) return read;
  const Extent extent{id, offset, bytes.size()};
  if (!Repair(std::span(&id, 1), std::span(&extent, 1))) return read;
  return local_->Read(id, offset, bytes);
}

template <typename Call>
auto ReplicatedStore::WithTable(ObjectId id, Call call) -> decltype(call()) {
  auto result = call();
  if (absl::IsUnavailable(result.status())) TellThatLocalFails(result.status());
  if (!absl::IsDataLoss(result.status()) || !Repair(std::span(&id, 1), {})) return result;
  return call();
}

absl::StatusOr<uint64_t> ReplicatedStore::NextData(ObjectId id, uint64_t offset) {
  return WithTable(id, [&] { return local_->NextData(id, offset); });
}
absl::StatusOr<uint64_t> ReplicatedStore::NextHole(ObjectId id, uint64_t offset) {
  return WithTable(id, [&] { return local_->NextHole(id, offset); });
}
absl::StatusOr<std::vector<VersionNumber>> ReplicatedStore::ReadVersions(ObjectId id,
                                                                         uint64_t first,
                                                                         uint64_t count) {
  return WithTable(id, [&] { return local_->ReadVersions(id, first, count); });
}
absl::StatusOr<ObjectAttributes> ReplicatedStore::GetAttributes(ObjectId id) {
  return WithTable(id, [&] { return local_->GetAttributes(id); });
}
absl::StatusOr<std::vector<ObjectId>> ReplicatedStore::List(ObjectId after, uint64_t count_max) {
  return local_->List(after, count_max);
}
absl::StatusOr<StoreSpace> ReplicatedStore::Space() { return local_->Space(); }
StoreStatistics ReplicatedStore::Statistics() {
  StoreStatistics statistics = local_->Statistics();
  MutexLock lock(mutex_);
  statistics.repaired_blocks = report_.repaired_blocks;
  return statistics;
}

// -- damage ---------------------------------------------------------------------------------------

bool ReplicatedStore::Repair(std::span<const ObjectId> ids, std::span<const Extent> extents) {
  for (const ObjectId id : ids) {
    const bool is_damaged = absl::IsDataLoss(local_->GetAttributes(id).status());
    if (is_damaged && !RepairObject(id).ok()) return false;
  }
  uint64_t repaired = 0, unrepaired = 0;
  for (const Extent& extent : extents) {
    const auto attributes = local_->GetAttributes(extent.id);
    if (!attributes.ok()) return false;
    const uint64_t end = std::min(attributes->size_bytes, extent.offset + extent.bytes);
    for (uint64_t block = extent.offset / kBlockBytes; block * kBlockBytes < end; ++block) {
      char byte;
      const auto read = local_->Read(extent.id, block * kBlockBytes, std::span(&byte, 1));
      if (!absl::IsDataLoss(read.status())) continue;
      ++(RepairBlock(extent.id, block).ok() ? repaired : unrepaired);
    }
  }
  MutexLock lock(mutex_);
  report_.repaired_blocks += repaired;
  report_.unrepaired_blocks += unrepaired;
  return unrepaired == 0;
}

absl::Status ReplicatedStore::RepairBlock(ObjectId id, uint64_t block) {
  return InStep([&]() -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<ReplicaLink> link, LinkToRepairFrom());
    ABACUS_ASSIGN_OR_RETURN(const Block bytes, link->ReadBlock(id, block));
    absl::Status put_back = local_->PutBack(id, block, bytes.view());
    if (absl::IsUnavailable(put_back)) TellThatLocalFails(put_back);
    return put_back;
  });
}

// The store takes only what the object had: where the copy is ahead, or behind, it is not that.
absl::Status ReplicatedStore::RepairObject(ObjectId id) {
  if (!local_->DigestOfDamaged(id).has_value()) return local_->GetAttributes(id).status();
  return InStep([&]() -> absl::Status {
    // Whoever waited for others at this object goes by what is so then: a copy that hung is lost,
    // and not asked by each of them once more.
    std::shared_ptr<ReplicaLink> link;
    const KeptObject kept{.table = [&]() -> absl::StatusOr<KeptTable> {
                            ABACUS_ASSIGN_OR_RETURN(link, LinkToRepairFrom());
                            const auto had = local_->DigestOfDamaged(id);
                            if (had.has_value()) return TableLike(*had, *link, id);
                            return absl::AbortedError("it is damaged no more, or was removed");
                          },
                          .block = [&](uint64_t block) -> absl::StatusOr<std::string> {
                            ABACUS_ASSIGN_OR_RETURN(const Block bytes, link->ReadBlock(id, block));
                            return std::string(bytes.view());
                          }};
    return local_->MakeWhole(id, kept);
  });
}

absl::StatusOr<ReplicatedStore::CopyCheck> ReplicatedStore::CheckCopy(ObjectId id, uint64_t first,
                                                                      uint64_t count) {
  ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<ReplicaLink> link, CurrentCopy());
  ABACUS_ASSIGN_OR_RETURN(const ReplicaObject there, link->Describe(id, first, count, count > 0));
  CopyCheck found;
  if (there.is_damaged) {
    const absl::Status why = absl::DataLossError(
        absl::StrCat("object ", id, " is damaged at the copy, and is made anew there"));
    MutexLock lock(mutex_);
    if (link_ != link) return absl::UnavailableError("the copy was lost meanwhile");
    report_.why = std::string(why.message());
    stream_.Close(why);
    changed_.SignalAll();
    found.damaged = 1;
    return found;
  }
  for (const uint64_t block : there.damaged) {
    if (block < first || block - first >= count) {
      return absl::InternalError("the copy describes other blocks than these");
    }
    ++(RepairAtCopy(*link, id, block).ok() ? found.repaired : found.damaged);
  }
  return found;
}

absl::Status ReplicatedStore::RepairAtCopy(ReplicaLink& link, ObjectId id, uint64_t block) {
  for (bool is_first : {true, false}) {
    std::string bytes(kBlockBytes, '\0');
    const auto read = ReadHere(id, block * kBlockBytes, std::span(bytes.data(), bytes.size()));
    if (absl::IsNotFound(read.status())) return absl::OkStatus();  // so it will be there
    ABACUS_RETURN_IF_ERROR(read.status());
    const absl::Status put_back = link.PutBack(id, block, Block::FromString(std::move(bytes)));
    if (absl::IsNotFound(put_back)) return absl::OkStatus();
    if (!absl::IsFailedPrecondition(put_back) || !is_first) return put_back;
    // The block was written here since; when that has come to the copy, it may be damaged no more.
    ReplicaStream::FlushPtr written;
    {
      const Turns::Turn turn(turns_, id);  // what was read here is in the stream
      written = stream_.Ask(ReplicaFlush::kNone, {});
    }
    ABACUS_RETURN_IF_ERROR(stream_.Await(written));
    ABACUS_ASSIGN_OR_RETURN(const ReplicaObject there, link.Describe(id, block, 1, true));
    if (!there.is_damaged && there.damaged.empty()) return absl::OkStatus();
  }
  return absl::InternalError("not reached");
}

absl::StatusOr<std::shared_ptr<ReplicaLink>> ReplicatedStore::LinkToRepairFrom() {
  MutexLock lock(mutex_);
  if (link_ == nullptr) return absl::UnavailableError("there is no copy to repair it from");
  return link_;
}

// -- flushes --------------------------------------------------------------------------------------

template <typename Local>
absl::Status ReplicatedStore::FlushBoth(ReplicaFlush kind, std::span<const ObjectId> ids,
                                        Local local) {
  bool needs_copy;
  uint64_t finish;
  ReplicaStream::FlushPtr flush;
  {
    MutexLock lock(mutex_);
    needs_copy = counts_ || flushes_go_;
    finish = finishes_;
    // Under the lock: else one could go by the copy that is about to count.
    if (flushes_go_) flush = stream_.Ask(kind, ids);
  }
  absl::Status flushed = local();
  absl::Status copied =
      flush != nullptr ? stream_.Await(flush) : absl::UnavailableError("there is none");
  if (needs_copy && copied.ok() && absl::IsUnavailable(flushed)) TellThatLocalFails(flushed);
  if (needs_copy && !copied.ok()) copied = AwaitRelief(finish);
  ABACUS_RETURN_IF_ERROR(flushed);
  if (needs_copy) ABACUS_RETURN_IF_ERROR(copied);
  return MayAcknowledge();
}

absl::Status ReplicatedStore::AwaitRelief(uint64_t finish) {
  const auto deadline =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.flush_wait);
  MutexLock lock(mutex_);
  while (counts_ && finished_ <= finish && fenced_.ok()) {
    if (changed_.WaitUntil(mutex_, deadline)) continue;
    return absl::UnavailableError(absl::StrCat(
        "the volume's copy does not answer, and the volume map does not let it go: nothing is ",
        "acknowledged that one server alone has. Bring the copy's server back, or the map (",
        report_.why, ")"));
  }
  return absl::OkStatus();
}

void ReplicatedStore::TellThatLocalFails(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    const auto again = absl::ToChronoNanoseconds(options_.tell_again);
    if (!counts_ || !flushes_go_ || (told_at_.has_value() && now < *told_at_ + again)) return;
    told_at_ = now;
  }
  if (host_.local_fails) host_.local_fails(why);
}

absl::Status ReplicatedStore::MayAcknowledge() {
  {
    MutexLock lock(mutex_);
    if (!fenced_.ok()) return fenced_;
  }
  return host_.may_serve ? host_.may_serve() : absl::OkStatus();
}

absl::Status ReplicatedStore::Flush(ObjectId id) {
  return FlushBoth(ReplicaFlush::kThese, std::span(&id, 1), [&] { return local_->Flush(id); });
}
absl::Status ReplicatedStore::FlushTogether(std::span<const ObjectId> ids) {
  return FlushBoth(ReplicaFlush::kThese, ids, [&] { return local_->FlushTogether(ids); });
}
absl::Status ReplicatedStore::FlushAll() {
  return FlushBoth(ReplicaFlush::kAll, {}, [&] { return local_->FlushAll(); });
}

// -- the report -----------------------------------------------------------------------------------

ReplicationReport ReplicatedStore::Report() {
  MutexLock lock(mutex_);
  ReplicationReport report = report_;
  report.copy_counts = counts_;
  report.epoch = options_.epoch;
  report.operations = stream_.put();
  report.answered = stream_.answered();
  report.repaired_objects = local_->Statistics().repaired_objects;
  if (!fenced_.ok()) report.link = ReplicationReport::Link::kFenced;
  return report;
}

void ReplicatedStore::Poke() {
  MutexLock lock(mutex_);
  is_poked_ = true;
  changed_.SignalAll();
}

}  // namespace abacus::objfs
