#include "objfs/replica/resync.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Clock = std::chrono::steady_clock;

namespace {

using Kind = ReplicaOperation::Kind;

constexpr uint64_t kResyncBlock = ObjectStore::kBlockBytes;
constexpr uint64_t kListedAtOnce = 256;
constexpr uint64_t kDescribedAtOnce = ReplicaStore::kDescribedMax;
// A turn is held for so many blocks, which are in memory then.
constexpr size_t kBlocksInATurn = 16;
constexpr size_t kSettledMax = 64;
// How often an object is looked through that is changed as fast as it is sent.
constexpr int kPassesMax = 4;
constexpr absl::Duration kPauseMax = absl::Milliseconds(100);

ReplicaOperation ResyncOperation(Kind kind, ObjectId id, VersionNumber version) {
  ReplicaOperation operation{.kind = kind, .version = version, .parts = {}};
  operation.parts.push_back({.id = id, .writes = {}, .blob = std::nullopt});
  return operation;
}

}  // namespace

absl::Status ReplicatedStore::Resync::Run() {
  ABACUS_ASSIGN_OR_RETURN(const StoreSpace space, store_.local_->Space());
  {
    MutexLock lock(store_.mutex_);
    store_.report_.objects_all = space.objects;
  }
  for (;;) {
    const Clock::time_point begun = Clock::now();
    ABACUS_ASSIGN_OR_RETURN(const std::optional<ObjectId> id, NextId());
    if (!id.has_value()) return absl::OkStatus();
    ABACUS_RETURN_IF_ERROR(Visit(*id));
    ABACUS_RETURN_IF_ERROR(Pace(begun));
  }
}

absl::Status ReplicatedStore::Resync::Pace(Clock::time_point begun) {
  const double share = std::clamp(store_.options_.resync_share, 0.01, 1.0);
  const absl::Duration rest = absl::FromChrono(Clock::now() - begun) * ((1 - share) / share);
  if (store_.Pause(std::min(rest, kPauseMax))) return absl::UnavailableError("the copy is lost");
  return absl::OkStatus();
}

// Objects that are made from now on are told to the copy, and need not be found.
absl::StatusOr<std::optional<ObjectId>> ReplicatedStore::Resync::NextId() {
  if (here_.empty() && !here_ends_) {
    ABACUS_ASSIGN_OR_RETURN(const auto ids, store_.local_->List(last_, kListedAtOnce));
    here_.assign(ids.begin(), ids.end());
    here_ends_ = ids.size() < kListedAtOnce;
  }
  if (there_.empty() && !there_ends_) {
    ABACUS_ASSIGN_OR_RETURN(const auto ids, link_.List(last_, kListedAtOnce));
    there_.assign(ids.begin(), ids.end());
    there_ends_ = ids.size() < kListedAtOnce;
  }
  if (here_.empty() && there_.empty()) return std::nullopt;
  ObjectId next = UINT64_MAX;
  if (!here_.empty()) next = here_.front();
  if (!there_.empty()) next = std::min(next, there_.front());
  if (!here_.empty() && here_.front() == next) here_.pop_front();
  if (!there_.empty() && there_.front() == next) there_.pop_front();
  last_ = next;
  return next;
}

bool ReplicatedStore::Resync::IsBorn(ObjectId id) {
  MutexLock lock(store_.mutex_);
  return store_.born_.contains(id);
}

absl::Status ReplicatedStore::Resync::Visit(ObjectId id) {
  if (IsBorn(id)) return absl::OkStatus();
  // Through the store, and not in the turn: what is damaged is made whole from the copy.
  const auto here = store_.GetAttributes(id);
  if (absl::IsDataLoss(here.status())) return here.status();
  ABACUS_RETURN_IF_ERROR(Begin(id));
  if (IsBorn(id)) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(Compare(id));
  for (int pass = 1;; ++pass) {
    ABACUS_ASSIGN_OR_RETURN(const Blocks blocks, Settle(id, pass >= kPassesMax));
    if (blocks.empty()) return absl::OkStatus();
    ABACUS_RETURN_IF_ERROR(Send(id, blocks));
  }
}

absl::Status ReplicatedStore::Resync::Begin(ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(const ReplicaObject there, link_.Describe(id, 0, 0, false));
  known_.clear();
  known_next_ = there.next;
  known_size_ = there.size;
  known_version_ = there.version;
  known_blob_ = there.blob;
  is_changed_ = false;
  if (there.is_there && !there.is_damaged) return absl::OkStatus();
  store_.stream_.Room();
  const Turns::Turn turn(store_.turns_, id);
  // It was listed here while its creation was under way, which has told the copy of it since.
  if (IsBorn(id)) return absl::OkStatus();
  const auto here = store_.local_->GetAttributes(id);
  if (absl::IsNotFound(here.status())) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(here.status());
  ReplicaOperation made =
      ResyncOperation(there.is_damaged ? Kind::kMakeAnew : Kind::kCreate, id, here->version);
  made.parts.front().blob = here->blob;
  Put(std::move(made));
  known_next_ = UINT64_MAX;
  known_size_ = 0;
  is_changed_ = true;
  return absl::OkStatus();
}

// -- blocks ---------------------------------------------------------------------------------------

absl::Status ReplicatedStore::Resync::Compare(ObjectId id) {
  for (uint64_t at = 0;;) {
    uint64_t next = std::max(at, known_next_);
    const auto data = store_.local_->NextData(id, at * kResyncBlock);
    if (absl::IsNotFound(data.status())) return absl::OkStatus();  // Settle() sees to that
    if (!data.ok() && !absl::IsOutOfRange(data.status())) return data.status();
    if (data.ok()) next = std::min(next, *data / kResyncBlock);
    if (next == UINT64_MAX) return absl::OkStatus();
    const Clock::time_point begun = Clock::now();
    if (known_next_ == UINT64_MAX) {
      // A new object, or the end of the one there: nothing to compare with.
      ReplicaObject nothing;
      nothing.versions.resize(kDescribedAtOnce);
      ABACUS_RETURN_IF_ERROR(CompareSome(id, nothing, next));
    } else {
      ABACUS_ASSIGN_OR_RETURN(
          const ReplicaObject there,
          link_.Describe(id, next, kDescribedAtOnce, store_.options_.compares_contents));
      ABACUS_RETURN_IF_ERROR(CompareSome(id, there, next));
      known_next_ = there.next;
    }
    at = next + kDescribedAtOnce;
    ABACUS_RETURN_IF_ERROR(Pace(begun));
  }
}

absl::Status ReplicatedStore::Resync::CompareSome(ObjectId id, const ReplicaObject& there,
                                                  uint64_t first) {
  const auto here = store_.local_->ReadVersions(id, first, kDescribedAtOnce);
  if (absl::IsNotFound(here.status())) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(here.status());
  Blocks differing;
  for (uint64_t i = 0; i < kDescribedAtOnce; ++i) {
    if (there.versions[i] != 0) known_[first + i] = there.versions[i];
    bool is_same = (*here)[i] == there.versions[i];
    if (is_same && (*here)[i] != 0 && store_.options_.compares_contents) {
      ABACUS_ASSIGN_OR_RETURN(is_same, HasSameBytes(id, there, first, i));
    }
    if (!is_same) differing.push_back(first + i);
  }
  return Send(id, differing);
}

absl::StatusOr<bool> ReplicatedStore::Resync::HasSameBytes(ObjectId id, const ReplicaObject& there,
                                                           uint64_t first, uint64_t index) {
  const uint64_t block = first + index;
  std::string bytes(kResyncBlock, '\0');
  // Through the store, which puts a damaged block back from the copy where that has it.
  const auto read =
      store_.ReadHere(id, block * kResyncBlock, std::span(bytes.data(), bytes.size()));
  if (absl::IsNotFound(read.status())) return true;
  ABACUS_RETURN_IF_ERROR(read.status());
  if (std::binary_search(there.damaged.begin(), there.damaged.end(), block)) return false;
  return Crc32c(bytes) == there.digests[index];
}

absl::Status ReplicatedStore::Resync::Send(ObjectId id, const Blocks& blocks) {
  for (size_t at = 0; at < blocks.size(); at += kBlocksInATurn) {
    const Clock::time_point begun = Clock::now();
    const std::span<const uint64_t> some(blocks.data() + at,
                                         std::min(kBlocksInATurn, blocks.size() - at));
    for (const uint64_t block : some) {
      // Here, and not in the turn: a repair asks the copy.
      char byte;
      const auto read = store_.ReadHere(id, block * kResyncBlock, std::span(&byte, 1));
      if (absl::IsDataLoss(read.status())) return read.status();
    }
    store_.stream_.Room();
    {
      const Turns::Turn turn(store_.turns_, id);
      ABACUS_RETURN_IF_ERROR(PutBlocks(id, some));
    }
    ABACUS_RETURN_IF_ERROR(Pace(begun));
  }
  return absl::OkStatus();
}

absl::Status ReplicatedStore::Resync::PutBlocks(ObjectId id, std::span<const uint64_t> blocks) {
  for (const uint64_t block : blocks) {
    const auto attributes = store_.local_->GetAttributes(id);
    if (absl::IsNotFound(attributes.status())) return absl::OkStatus();
    ABACUS_RETURN_IF_ERROR(attributes.status());
    ABACUS_ASSIGN_OR_RETURN(const auto versions, store_.local_->ReadVersions(id, block, 1));
    const uint64_t offset = block * kResyncBlock;
    is_changed_ = true;
    if (versions.front() == 0) {
      ReplicaOperation hole = ResyncOperation(Kind::kPunch, id, attributes->version);
      hole.offset = offset;
      hole.bytes = kResyncBlock;
      Put(std::move(hole));
      known_.erase(block);
      continue;
    }
    // All of it, zeros behind the end: nothing of what the copy had in the block is used.
    std::string bytes(kResyncBlock, '\0');
    ABACUS_RETURN_IF_ERROR(
        store_.local_->Read(id, offset, std::span(bytes.data(), bytes.size())).status());
    ReplicaOperation write = ResyncOperation(Kind::kWrite, id, versions.front());
    write.parts.front().writes.push_back({offset, Block::FromString(std::move(bytes))});
    Put(std::move(write));
    known_[block] = versions.front();
  }
  return absl::OkStatus();
}

// -- the end of an object -------------------------------------------------------------------------

absl::StatusOr<ReplicatedStore::Resync::Blocks> ReplicatedStore::Resync::Differing(ObjectId id) {
  Blocks differing;
  auto known = known_.begin();
  const auto only_there = [&](uint64_t before) {
    for (; known != known_.end() && known->first < before; ++known) {
      differing.push_back(known->first);
    }
  };
  for (uint64_t at = 0;;) {
    const auto data = store_.local_->NextData(id, at * kResyncBlock);
    if (absl::IsOutOfRange(data.status())) break;
    ABACUS_RETURN_IF_ERROR(data.status());
    at = *data / kResyncBlock;
    ABACUS_ASSIGN_OR_RETURN(const auto versions,
                            store_.local_->ReadVersions(id, at, kDescribedAtOnce));
    for (uint64_t i = 0; i < kDescribedAtOnce; ++i) {
      if (versions[i] == 0) continue;
      only_there(at + i);
      const bool is_known = known != known_.end() && known->first == at + i;
      if (!is_known || known->second != versions[i]) differing.push_back(at + i);
      if (is_known) ++known;
    }
    at += kDescribedAtOnce;
  }
  only_there(UINT64_MAX);
  return differing;
}

absl::StatusOr<ReplicatedStore::Resync::Blocks> ReplicatedStore::Resync::Settle(ObjectId id,
                                                                                bool must) {
  store_.stream_.Room();
  const Turns::Turn turn(store_.turns_, id);
  const auto here = store_.local_->GetAttributes(id);
  if (absl::IsNotFound(here.status())) {
    Put(ResyncOperation(Kind::kForget, id, 0));
    is_changed_ = true;
    Done(id);
    return Blocks();
  }
  ABACUS_RETURN_IF_ERROR(here.status());
  ABACUS_ASSIGN_OR_RETURN(Blocks blocks, Differing(id));
  if (blocks.size() > kSettledMax && !must) return blocks;
  ABACUS_RETURN_IF_ERROR(PutBlocks(id, blocks));
  const uint64_t tail = here->size_bytes / kResyncBlock;
  ABACUS_ASSIGN_OR_RETURN(const auto versions, store_.local_->ReadVersions(id, tail, 1));
  PutAttributes(id, *here, versions.front());
  Done(id);
  return Blocks();
}

void ReplicatedStore::Resync::PutAttributes(ObjectId id, const ObjectAttributes& here,
                                            VersionNumber tail) {
  is_changed_ = is_changed_ || known_size_ != here.size_bytes || known_version_ != here.version ||
                known_blob_ != here.blob;
  if (!is_changed_) return;
  // What it zeroes in the last block is zeros already: the block keeps its version.
  ReplicaOperation size = ResyncOperation(Kind::kTruncate, id, tail != 0 ? tail : here.version);
  size.offset = here.size_bytes;
  Put(std::move(size));
  ReplicaOperation attributes = ResyncOperation(Kind::kSetAttributes, id, here.version);
  attributes.parts.front().blob = here.blob;
  Put(std::move(attributes));
}

void ReplicatedStore::Resync::Done(ObjectId id) {
  MutexLock lock(store_.mutex_);
  store_.cursor_ = id;
  store_.born_.erase(store_.born_.begin(), store_.born_.upper_bound(id));
  ReplicationReport& report = store_.report_;
  ++report.objects_done;
  report.objects_all = std::max(report.objects_all, report.objects_done);
  report.objects_sent += is_changed_ ? 1 : 0;
}

}  // namespace abacus::objfs
