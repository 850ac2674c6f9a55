#include "objfs/volume/mapped_volume.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

// What failed is tried again so often.
constexpr std::chrono::milliseconds kRetry{500};

}  // namespace

MappedVolume::MappedVolume(std::string name, MapPlace place, std::unique_ptr<MapStore> map,
                           std::shared_ptr<ServerAddresses> servers, Host host)
    : name_(std::move(name)),
      place_(std::move(place)),
      servers_(std::move(servers)),
      host_(std::move(host)),
      keeper_(std::make_unique<MapKeeper>(
          std::move(map), LeaseOptions(), place_.place,
          MapKeeper::Host{.ask = host_.ask, .changed = [this] { Wake(); }})),
      worker_([this] { Work(); }) {}

MappedVolume::~MappedVolume() { Stop(/*closes=*/false); }

void MappedVolume::Stop(bool closes) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (worker_.joinable()) worker_.join();
  if (closes) End();
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
  if (!is_primary || epoch_ == state.row.epoch) return true;
  const absl::Status begun = Begin(state.row);
  MutexLock lock(mutex_);
  why_ = begun;
  changed_.SignalAll();
  return begun.ok();
}

absl::Status MappedVolume::Begin(const VolumeRow& row) {
  // A store is opened once in an epoch, whatever comes of the volume on it.
  if (store_epoch_ != row.epoch) {
    store_.reset();
    ABACUS_ASSIGN_OR_RETURN(store_, host_.open_store(row.epoch));
    store_epoch_ = row.epoch;
  }
  Volume::Options options{.name = name_, .servers = servers_, .epoch = row.epoch};
  ABACUS_ASSIGN_OR_RETURN(Ref<Volume> volume, host_.open_volume(store_, std::move(options), [this] {
    return keeper_->MayServe();
  }));
  store_.reset();  // the volume's alone
  epoch_ = row.epoch;
  MutexLock lock(mutex_);
  volume_ = std::move(volume);
  changed_.SignalAll();
  return absl::OkStatus();
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
  if (state.role != LeaseCore::Role::kPrimary) {
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
                   .current = {}};
  for (const VolumeRow::Copy& copy : state.row.copies) {
    report.copies.push_back(copy.place);
    if (copy.current) report.current.push_back(copy.place);
  }
  return report;
}

}  // namespace abacus::objfs
