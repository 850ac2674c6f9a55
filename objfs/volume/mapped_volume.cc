#include "objfs/volume/mapped_volume.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/replica/replica_link.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

// What failed is tried again so often.
constexpr std::chrono::milliseconds kRetry{500};
// A store that cannot be opened so often in a row is left to the copies; then nothing is tried here
// for Host::stays_out.
constexpr int kOpeningsMax = 4;
// Of one call of the copy; then it is lost.
constexpr absl::Duration kCopyPatience = absl::Seconds(3);
// Until a copy answers for the volume: a lease or a promise is over in 5 s at most, and clients may
// take as long to see that the server is gone.
constexpr absl::Duration kTakeover = absl::Seconds(20);

// The copy that is not at `place`.
std::optional<VolumeRow::Copy> OtherCopy(const VolumeRow& row, uint32_t place) {
  for (const VolumeRow::Copy& copy : row.copies) {
    if (copy.place != place) return copy;
  }
  return std::nullopt;
}

}  // namespace

MappedVolume::MappedVolume(std::string name, MapPlace place, std::unique_ptr<MapStore> map,
                           std::shared_ptr<ServerAddresses> servers, Host host)
    : name_(std::move(name)),
      place_(std::move(place)),
      servers_(std::move(servers)),
      host_(std::move(host)),
      keeper_(
          std::make_shared<MapKeeper>(std::move(map), LeaseOptions(), place_.place,
                                      MapKeeper::Host{.ask = host_.ask,
                                                      .may_stand = [this] { return MayStand(); },
                                                      .changed = [this] { Wake(); }})),
      worker_([this] { Work(); }) {}

MappedVolume::~MappedVolume() { Stop(/*closes=*/false); }

void MappedVolume::Stop(bool closes) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (worker_.joinable()) worker_.join();
  if (closes) {
    End();
    EndCopy(0).IgnoreError();
  }
  keeper_->Stop();
}

void MappedVolume::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  changed_.SignalAll();
}

void MappedVolume::Work() {
  mutex_.Lock();
  while (!stopping_) {
    woken_ = false;
    mutex_.Unlock();
    const bool is_so = Follow();
    mutex_.Lock();
    const auto due = std::chrono::steady_clock::now() + kRetry;
    while (!stopping_ && !woken_) {
      if (is_so) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, due)) {
        break;
      }
    }
  }
  mutex_.Unlock();
}

bool MappedVolume::Follow() {
  const MapKeeper::State state = keeper_->Get();
  if (state.row.epoch == 0) return true;  // the map has said nothing yet
  servers_->Set(state.row.servers);
  const bool is_primary = state.role == LeaseCore::Role::kPrimary;
  if (epoch_ != 0 && (!is_primary || state.row.epoch != epoch_)) End();
  const absl::Status remembered = host_.memory->Follow(*keeper_);  // this row, or a later one
  if (is_primary && epoch_ == state.row.epoch) return remembered.ok();
  if (!is_primary && state.role != LeaseCore::Role::kCopy) return remembered.ok();
  // What the row calls this server's is not opened as a copy of another one's. Where it is open as
  // that already, as a row that was put back may find it, the copy says what it is worth.
  if (!is_primary && state.row.primary == place_.place) {
    return (copy_here_ != nullptr || CheckStore(state.row)) && remembered.ok();
  }
  {
    MutexLock lock(mutex_);
    opens_ = false;  // what comes after this is another time
  }
  if (!is_primary && copy_here_ != nullptr) {
    BelieveRow(state.row);
    return remembered.ok();
  }
  absl::Status begun = remembered;
  if (begun.ok()) begun = is_primary ? Begin(state.row) : BeginCopy(state.row);
  if (begun.ok() || !is_primary) {
    failures_ = 0;
  } else {
    Failed(state.row);
  }
  MutexLock lock(mutex_);
  why_ = begun;
  changed_.SignalAll();
  return begun.ok();
}

bool MappedVolume::CheckStore(const VolumeRow& row) {
  {
    MutexLock lock(mutex_);
    if (opens_) return true;
  }
  const auto begun = std::chrono::steady_clock::now();
  if (begun < stands_after_) return false;
  // An object with a damaged table would be an error here, and keep the copy from being current.
  // What that has is believed, as a whole, only before anything is acknowledged without it
  // (replica/README.md). Once in an epoch: where it does not take over, the rest is served. The row
  // calls it current also while its server is down, or its store cannot be opened.
  const std::optional<VolumeRow::Copy> other = OtherCopy(row, place_.place);
  const bool may_leave = other.has_value() && other->current && left_epoch_ != row.epoch;
  std::function<bool()> reads_on;
  if (may_leave) {
    reads_on = [this, epoch = row.epoch, end = begun + host_.reads_tables] {
      return std::chrono::steady_clock::now() < end && IsStill(epoch);
    };
  }
  absl::Status checked = host_.check_store(reads_on);
  if (may_leave && absl::IsDataLoss(checked)) {
    left_epoch_ = row.epoch;
    const std::string& address = row.servers[other->place];
    if (CopyCanTakeOver(address, row.epoch)) {
      stands_after_ = std::chrono::steady_clock::now() + host_.stays_out;
      checked = absl::DataLossError(absl::StrCat(
          "what this server has of the volume is damaged (", checked.message(), "): server ",
          address, " has a current copy, is let take over, and repairs this one"));
    }
  }
  if (!IsStill(row.epoch)) return false;  // it may have been broken off, and says nothing
  MutexLock lock(mutex_);
  opens_ = checked.ok();
  why_ = checked;
  changed_.SignalAll();
  return opens_;
}

bool MappedVolume::IsStill(uint64_t epoch) {
  if (keeper_->Get().row.epoch != epoch) return false;
  MutexLock lock(mutex_);
  return !stopping_;
}

bool MappedVolume::CopyCanTakeOver(const std::string& address, uint64_t epoch) {
  const auto end = std::chrono::steady_clock::now() + host_.asks_copy;
  for (;;) {
    if (HasWholeCopy(address)) return true;
    const auto due = std::chrono::steady_clock::now() + kRetry;
    if (due >= end || !IsStill(epoch)) return false;
    MutexLock lock(mutex_);
    while (!stopping_ && changed_.WaitUntil(mutex_, due)) {
    }
  }
}

bool MappedVolume::HasWholeCopy(const std::string& address) {
  absl::StatusOr<Ref<ReplicaStore>> copy = host_.find_copy(address);
  if (!copy.ok()) return false;
  const absl::StatusOr<ReplicaState> state = LinkTo(*std::move(copy), kCopyPatience)->State();
  return state.ok() && state->is_whole;
}

bool MappedVolume::CopyCouldTakeOver() {
  const MapKeeper::State state = keeper_->Get();
  const std::optional<VolumeRow::Copy> other = OtherCopy(state.row, place_.place);
  return state.role == LeaseCore::Role::kPrimary && other.has_value() && other->current &&
         HasWholeCopy(state.row.servers[other->place]);
}

void MappedVolume::Failed(const VolumeRow& row) {
  // Once the store is open its copy may have been told of it.
  if (store_epoch_ == row.epoch || ++failures_ < kOpeningsMax || !keeper_->Yield()) return;
  failures_ = 0;
  stands_after_ = std::chrono::steady_clock::now() + host_.stays_out;
}

absl::Status MappedVolume::Begin(const VolumeRow& row) {
  // A store is opened once in an epoch, whatever comes of the volume on it.
  if (store_epoch_ != row.epoch) ABACUS_RETURN_IF_ERROR(OpenStore(row));
  Volume::Options options{.name = name_, .servers = servers_, .epoch = row.epoch};
  if (row.copies.size() > 1) options.takeover = kTakeover;
  // Not of this object: the volume may end after it.
  ABACUS_ASSIGN_OR_RETURN(
      Ref<Volume> volume,
      host_.open_volume(
          store_, std::move(options), [keeper = keeper_] { return keeper->MayServe(); },
          [keeper = keeper_] { return keeper->ServesFor(); }));
  store_.reset();  // the volume's alone
  epoch_ = row.epoch;
  MutexLock lock(mutex_);
  volume_ = std::move(volume);
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status MappedVolume::OpenStore(const VolumeRow& row) {
  store_.reset();
  ABACUS_RETURN_IF_ERROR(EndCopy(row.epoch));
  ABACUS_ASSIGN_OR_RETURN(std::shared_ptr<LocalObjectStore> local, host_.open_store(row.epoch));
  store_epoch_ = row.epoch;
  const std::optional<VolumeRow::Copy> other = OtherCopy(row, place_.place);
  if (!other.has_value()) {
    store_ = std::move(local);
    return absl::OkStatus();
  }
  auto replicated =
      ReplicatedStore::Make(std::move(local), {.epoch = row.epoch, .copy_counts = other->current},
                            ReplicationHost(row.epoch));
  {
    MutexLock lock(mutex_);
    replicated_ = replicated;
  }
  store_ = std::move(replicated);
  return absl::OkStatus();
}

// Nothing of it is this object's: the store ends with the last that uses it. Which place the copy
// is at may change meanwhile.
ReplicatedStore::Host MappedVolume::ReplicationHost(uint64_t epoch) {
  const uint32_t own = place_.place;
  const auto linked = std::make_shared<std::atomic<uint32_t>>(own);  // the copy found last
  const auto set_current = [keeper = keeper_, memory = host_.memory, epoch, own,
                            linked](bool current) -> absl::Status {
    ABACUS_RETURN_IF_ERROR(keeper->Edit([=](VolumeRow& row) -> absl::Status {
      if (row.epoch != epoch) return absl::FailedPreconditionError("a later primary has begun");
      const std::optional<VolumeRow::Copy> other = OtherCopy(row, own);
      if (current && (!other.has_value() || other->place != *linked)) {
        return absl::AbortedError("another server has come to keep the copy");
      }
      if (other.has_value()) row.SetCurrent(other->place, current);
      return absl::OkStatus();
    }));
    // Before anything is acknowledged by it: should the map lose the row, no copy that lacks that
    // is believed.
    return memory->Follow(*keeper);
  };
  ReplicatedStore::Host host;
  host.find_copy = [find = host_.find_copy, keeper = keeper_, epoch, own,
                    linked]() -> absl::StatusOr<std::shared_ptr<ReplicaLink>> {
    const VolumeRow row = keeper->Get().row;
    if (row.epoch != epoch) return absl::UnavailableError("a later primary has begun");
    const std::optional<VolumeRow::Copy> other = OtherCopy(row, own);
    if (!other.has_value()) return absl::UnavailableError("no other server keeps a copy");
    *linked = other->place;
    ABACUS_ASSIGN_OR_RETURN(Ref<ReplicaStore> copy, find(row.servers[other->place]));
    return LinkTo(std::move(copy), kCopyPatience);
  };
  host.drop_copy = [set_current] { return set_current(false); };
  host.copy_is_current = [set_current] { return set_current(true); };
  host.local_fails = host_.store_fails;
  host.may_serve = [keeper = keeper_] {
    return keeper->MayServe() ? absl::OkStatus()
                              : absl::UnavailableError(
                                    "this server may not answer for the volume now: neither "
                                    "its map nor its copy can be reached");
  };
  return host;
}

absl::Status MappedVolume::BeginCopy(const VolumeRow& row) {
  ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<ReplicaStore> copy, host_.open_copy());
  copy_here_ = copy.get();
  BelieveRow(row);
  Ref<ReplicaStore> adopted = host_.adopt_copy(std::move(copy));
  MutexLock lock(mutex_);
  copy_ = std::move(adopted);
  return absl::OkStatus();
}

// A primary that begins calls this copy behind, and makes it current by a session alone; before
// that only one that yields does.
void MappedVolume::BelieveRow(const VolumeRow& row) {
  if (row.IsCurrent(place_.place)) copy_here_->BelieveWhatWasLeft();
}

absl::Status MappedVolume::EndCopy(uint64_t epoch) {
  if (copy_here_ == nullptr) return absl::OkStatus();
  if (epoch != 0) ABACUS_RETURN_IF_ERROR(copy_here_->Retire(epoch));
  Ref<ReplicaStore> copy;
  {
    MutexLock lock(mutex_);
    copy = std::exchange(copy_, Ref<ReplicaStore>());
  }
  copy_here_ = nullptr;
  host_.end_copy(copy);
  return absl::OkStatus();
}

bool MappedVolume::MayStand() {
  {
    MutexLock lock(mutex_);
    if (opens_) return true;
  }
  return IsWhole();
}

bool MappedVolume::IsWhole() {
  const absl::StatusOr<Ref<ReplicaStore>> here = copy();
  if (!here.ok()) return false;
  const absl::StatusOr<ReplicaState> state = (*here)->State();
  return state.ok() && state->is_whole;
}

absl::StatusOr<Ref<ReplicaStore>> MappedVolume::copy() {
  MutexLock lock(mutex_);
  if (copy_) return copy_;
  return absl::UnavailableError("this server's copy of the volume's metadata is not open");
}

void MappedVolume::End() {
  Ref<Volume> volume;
  {
    MutexLock lock(mutex_);
    volume = std::exchange(volume_, Ref<Volume>());
  }
  epoch_ = 0;
  store_epoch_ = 0;
  store_.reset();
  if (!volume) return;
  volume->Cease().IgnoreError();
  host_.end_volume(volume);
}

absl::StatusOr<Ref<Volume>> MappedVolume::volume() {
  const MapKeeper::State state = keeper_->Get();
  MutexLock lock(mutex_);
  if (volume_ && state.may_serve) return volume_;
  if (!why_.ok()) return absl::UnavailableError(why_.message());
  if (state.row.epoch == 0) {
    return absl::UnavailableError(
        absl::StrCat("volume '", name_, "' waits for its map, which says who answers for it: ",
                     state.reachable ? "it was not read yet" : state.why));
  }
  if (state.role != LeaseCore::Role::kPrimary && state.row.primary != place_.place) {
    return absl::UnavailableError(absl::StrCat("volume '", name_, "' is answered for by ",
                                               state.row.servers[state.row.primary],
                                               ", and this server keeps a copy of its metadata"));
  }
  return absl::UnavailableError(absl::StrCat(
      "volume '", name_, "' is not served now: ",
      state.reachable ? "it is being opened" : absl::StrCat("its map is away (", state.why, ")")));
}

absl::Status MappedVolume::AwaitVolume(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const absl::StatusOr<Ref<Volume>> opened = volume();
    if (opened.ok()) return absl::OkStatus();
    MutexLock lock(mutex_);
    if (stopping_ || !changed_.WaitUntil(mutex_, end)) return opened.status();
  }
}

MapReport MappedVolume::Report() {
  const MapKeeper::State state = keeper_->Get();
  MapReport report{.url = place_.url,
                   .reachable = state.reachable,
                   .why = state.why,
                   .epoch = state.row.epoch,
                   .place = place_.place,
                   .primary = state.row.primary,
                   .is_primary = state.role == LeaseCore::Role::kPrimary,
                   .may_serve = state.may_serve,
                   .has_lease = state.has_lease,
                   .servers = state.row.servers,
                   .copies = {},
                   .current = {},
                   .objects_done = 0,
                   .objects_all = 0,
                   .copy_why = "",
                   .repaired_blocks = 0,
                   .unrepaired_blocks = 0,
                   .repaired_objects = 0,
                   .reads_at_copy = 0};
  std::shared_ptr<ReplicatedStore> replicated;
  {
    MutexLock lock(mutex_);
    replicated = replicated_.lock();
  }
  if (replicated != nullptr) {
    const ReplicationReport replication = replicated->Report();
    const bool lasts = replication.link == ReplicationReport::Link::kResyncing;
    report.objects_done = lasts ? replication.objects_done : 0;
    report.objects_all = lasts ? replication.objects_all : 0;
    report.copy_why = replication.why;
    report.repaired_blocks = replication.repaired_blocks;
    report.unrepaired_blocks = replication.unrepaired_blocks;
    report.repaired_objects = replication.repaired_objects;
    report.reads_at_copy = replication.reads_at_copy;
  }
  for (const VolumeRow::Copy& copy : state.row.copies) {
    report.copies.push_back(copy.place);
    if (copy.current) report.current.push_back(copy.place);
  }
  return report;
}

}  // namespace abacus::objfs
