#include "objfs/map/map_keeper.h"

#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

// Nothing is due more exactly than that.
constexpr std::chrono::milliseconds kTurn{50};

uint64_t NewProcess() {
  std::random_device random;
  return (uint64_t{random()} << 32) ^ (uint64_t{random()} << 8);
}

}  // namespace

MapKeeper::MapKeeper(std::unique_ptr<MapStore> store, const LeaseOptions& options, uint32_t place,
                     Host host)
    : store_(std::move(store)),
      host_(std::move(host)),
      core_(options, place, NewProcess(), Now()),
      map_thread_([this] { WorkOnMap(); }),
      copies_thread_([this] { WorkOnCopies(); }) {}

MapKeeper::~MapKeeper() { Stop(); }

void MapKeeper::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (map_thread_.joinable()) map_thread_.join();
  if (copies_thread_.joinable()) copies_thread_.join();
}

int64_t MapKeeper::Now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void MapKeeper::WorkOnMap() {
  mutex_.Lock();
  while (!stopping_) {
    if (core_.role() != LeaseCore::Role::kPrimary) {
      mutex_.Unlock();
      const bool may_stand = host_.may_stand();
      mutex_.Lock();
      core_.SetMayStand(may_stand);
    }
    const std::optional<MapCall> call = core_.NextCall(Now());
    if (!call.has_value()) {
      changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kTurn);
      continue;
    }
    const LeaseCore::Role role = core_.role();
    const int64_t revision = core_.revision();
    const VolumeRow row = core_.row();
    mutex_.Unlock();
    absl::StatusOr<MapAnswer> answer = store_->Call(*call);
    mutex_.Lock();
    reachable_ = answer.ok();
    why_ = answer.ok() ? "" : std::string(runtime::ToStd(answer.status().message()));
    core_.OnAnswer(Now(), answer.ok() ? *answer : MapAnswer());
    changed_.SignalAll();
    // A map that was begun anew gives revisions a second time.
    if (core_.role() == role && core_.revision() == revision && core_.row() == row) continue;
    mutex_.Unlock();
    host_.changed();
    mutex_.Lock();
  }
  mutex_.Unlock();
}

void MapKeeper::WorkOnCopies() {
  mutex_.Lock();
  while (!stopping_) {
    const std::vector<uint32_t> places = core_.NextAsks(Now());
    for (const uint32_t place : places) {
      const VolumeRow row = core_.row();
      const int64_t sent = Now();
      mutex_.Unlock();
      const absl::StatusOr<PromiseAnswer> answer = host_.ask(row.servers[place], row.epoch);
      mutex_.Lock();
      core_.OnPromise(Now(), place, sent, answer.ok() ? std::optional(*answer) : std::nullopt);
      changed_.SignalAll();
    }
    if (places.empty()) changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kTurn);
  }
  mutex_.Unlock();
}

MapKeeper::State MapKeeper::Get() {
  MutexLock lock(mutex_);
  const int64_t now = Now();
  State state{.role = core_.role(),
              .row = core_.row(),
              .revision = core_.revision(),
              .may_serve = core_.MayServe(now),
              .has_lease = core_.HasLease(now),
              .has_promised = core_.HasPromised(now),
              .reachable = reachable_,
              .why = why_};
  if (core_.revision() == 0) state.row.epoch = 0;
  return state;
}

bool MapKeeper::MayServe() {
  MutexLock lock(mutex_);
  return core_.MayServe(Now());
}

int64_t MapKeeper::ServesFor() {
  MutexLock lock(mutex_);
  return core_.ServesFor(Now());
}

bool MapKeeper::Yield() {
  MutexLock lock(mutex_);
  // A change that is under way would come after it.
  if (stopping_ || editing_ || core_.changing()) return false;
  changed_.SignalAll();
  return core_.Yield();
}

PromiseAnswer MapKeeper::OnAsk(uint64_t epoch) {
  MutexLock lock(mutex_);
  return core_.OnAsk(Now(), epoch);
}

absl::Status MapKeeper::Edit(const std::function<absl::Status(VolumeRow&)>& edit) {
  const auto end = std::chrono::steady_clock::now() + kEditPatience;
  MutexLock lock(mutex_);
  // One at a time: a change is of the row that the one before has left.
  while (editing_ && !stopping_) changed_.Wait(mutex_);
  editing_ = true;
  absl::Status status;
  for (;;) {
    // Until what was tried before has happened or cannot any more: nothing is said of a row that
    // may become another one by itself.
    while (core_.changing() && !stopping_ && changed_.WaitUntil(mutex_, end)) {
    }
    if (core_.role() != LeaseCore::Role::kPrimary || core_.yields() || stopping_) {
      status = absl::FailedPreconditionError("this server is not the volume's first one now");
      break;
    }
    if (core_.changing() || std::chrono::steady_clock::now() >= end) {
      status = absl::UnavailableError(
          absl::StrCat("the volume's map cannot be changed now, it may be later: ",
                       why_.empty() ? "it has not answered in time" : why_));
      break;
    }
    VolumeRow row = core_.row();
    status = edit(row);
    if (!status.ok() || row == core_.row()) break;
    core_.Change(std::move(row));
    changed_.SignalAll();
  }
  editing_ = false;
  changed_.SignalAll();
  return status;
}

}  // namespace abacus::objfs
