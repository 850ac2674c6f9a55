#ifndef ABACUS_OBJFS_MAP_LEASE_CORE_INL_H_
#define ABACUS_OBJFS_MAP_LEASE_CORE_INL_H_

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "objfs/map/lease_core.h"

namespace abacus::objfs {

template <typename Policy>
BasicLeaseCore<Policy>::BasicLeaseCore(const LeaseOptions& options, uint32_t place,
                                       uint64_t process, int64_t now)
    : options_(options),
      place_(place),
      process_(process),
      told_until_(now + Margin(options.promise_ns)),
      // What an earlier process of this server promised, nobody here remembers.
      promised_until_(Policy::kPromiseOutlivesRestart ? now + options.promise_ns : now),
      life_(process) {}

// How long `ns` of another clock last at least, by this one.
template <typename Policy>
int64_t BasicLeaseCore<Policy>::Margin(int64_t ns) const {
  return Policy::kLeaveMargin ? ns - ns / 100 * options_.drift_percent : ns;
}

// -- what it comes to -----------------------------------------------------------------------------

template <typename Policy>
bool BasicLeaseCore<Policy>::HasLease(int64_t now) const {
  return attached_ && now < lease_sent_ + Margin(options_.lease_ns);
}

template <typename Policy>
std::vector<uint32_t> BasicLeaseCore<Policy>::Candidates() const {
  std::vector<uint32_t> places;
  const auto add = [&](const VolumeRow& row) {
    for (const VolumeRow::Copy& copy : row.copies) {
      const bool known = std::count(places.begin(), places.end(), copy.place) > 0;
      if (copy.current && copy.place != place_ && !known) places.push_back(copy.place);
    }
  };
  add(row_);
  for (const VolumeRow& row : pending_) add(row);
  if (wanted_.has_value() && Policy::kCountPending) add(*wanted_);
  return places;
}

// All who could take the place of this one have promised not to.
template <typename Policy>
bool BasicLeaseCore<Policy>::Holds(int64_t now) const {
  const std::vector<uint32_t> candidates = Candidates();
  return std::all_of(candidates.begin(), candidates.end(), [&](uint32_t place) {
    const auto found = others_.find(place);
    if (found == others_.end()) return false;
    const Other& other = found->second;
    const bool fenced = !Policy::kFenceNewLives || other.fenced == other.life;
    return fenced && now < other.promised_until;
  });
}

template <typename Policy>
bool BasicLeaseCore<Policy>::MayServe(int64_t now) const {
  return role_ == Role::kPrimary && !yields_ && (HasLease(now) || Holds(now));
}

template <typename Policy>
int64_t BasicLeaseCore<Policy>::HeldUntil(int64_t now) const {
  int64_t until = now + Margin(options_.promise_ns);  // nobody's is needed
  for (const uint32_t place : Candidates()) {
    until = std::min(until, others_.at(place).promised_until);
  }
  return until;
}

template <typename Policy>
int64_t BasicLeaseCore<Policy>::ServesFor(int64_t now) {
  if (!MayServe(now)) return 0;
  if (!Policy::kTellOnlyWhatHolds) return options_.lease_ns;
  const int64_t until = HasLease(now) ? lease_sent_ + Margin(options_.lease_ns) : HeldUntil(now);
  told_until_ = std::max(told_until_, until);
  return until - now;
}

template <typename Policy>
std::string BasicLeaseCore<Policy>::HolderPrefix() const {
  return absl::StrCat(place_, " ", absl::Hex(process_), " ");
}

template <typename Policy>
bool BasicLeaseCore<Policy>::IsOfThisPlace(const std::string& holder) const {
  return absl::StartsWith(holder, absl::StrCat(place_, " "));
}

template <typename Policy>
bool BasicLeaseCore<Policy>::IsOfThisProcess(const std::string& holder) const {
  return absl::StartsWith(holder, HolderPrefix());
}

// Whether to try to become the primary.
template <typename Policy>
bool BasicLeaseCore<Policy>::Stands(int64_t now) const {
  if (role_ == Role::kPrimary || revision_ == 0 || stale_) return false;
  // A server that was the primary goes on as it: it is known to be alone, by its directory's lock.
  const bool was = row_.primary == place_;
  const bool may = Policy::kOnlyCurrentStand ? row_.IsCurrent(place_) : row_.IsCopy(place_);
  const bool is_free = holder_.empty() || IsOfThisPlace(holder_) || !Policy::kWaitForTheLease;
  const bool promised = Policy::kHonourPromise && now < promised_until_;
  return is_free && may_stand_ && (was || (may && !promised));
}

// -- the map --------------------------------------------------------------------------------------

template <typename Policy>
std::optional<MapCall> BasicLeaseCore<Policy>::NextCall(int64_t now) {
  if (call_.has_value() || now < quiet_until_) return std::nullopt;
  std::optional<MapCall> next = role_ == Role::kPrimary ? CallOfPrimary(now) : CallOfCopy(now);
  if (next.has_value()) *next = Send(now, *std::move(next));
  return next;
}

template <typename Policy>
MapCall BasicLeaseCore<Policy>::Send(int64_t now, MapCall call) {
  if (call.kind == MapCall::Kind::kGrant) {
    call.lease = (process_ + ++last_lease_) & INT64_MAX;
  }
  // Tried again and again while the map is away, it is one row.
  const bool known = std::count(pending_.begin(), pending_.end(), call.row) > 0;
  if (call.kind == MapCall::Kind::kSet && Policy::kCountPending && !known) {
    pending_.push_back(call.row);
  }
  lives_at_call_.clear();
  for (const auto& [place, other] : others_) lives_at_call_[place] = other.life;
  call_ = call;
  call_at_ = now;
  return call;
}

template <typename Policy>
MapCall BasicLeaseCore<Policy>::TakeCall() const {
  MapCall call{.kind = MapCall::Kind::kTake,
               .revision = revision_,
               .holder_revision = holder_revision_,
               .lease = lease_,
               .holder = absl::StrCat(HolderPrefix(), lease_),
               .row = row_};
  if (role_ == Role::kPrimary) return call;  // only the lease was lost
  ++call.row.epoch;
  call.row.primary = place_;
  for (VolumeRow::Copy& copy : call.row.copies) copy.current = copy.place == place_;
  return call;
}

template <typename Policy>
std::optional<MapCall> BasicLeaseCore<Policy>::CallOfPrimary(int64_t now) {
  using Kind = MapCall::Kind;
  if (stale_) return MapCall{.kind = Kind::kRead};
  if (yields_) return MapCall{.kind = Kind::kSet, .revision = revision_, .row = *wanted_};
  if (lease_ == 0) return MapCall{.kind = Kind::kGrant};
  if (!attached_) return TakeCall();
  // Who becomes current has promised nothing: its row waits for a lease that outlasts what was
  // told.
  const bool outlasts =
      !Policy::kRenewForMoreCandidates || told_until_ <= lease_sent_ + Margin(options_.lease_ns);
  if (now >= renew_at_ || (wanted_.has_value() && !outlasts)) {
    return MapCall{.kind = Kind::kRenew, .lease = lease_};
  }
  if (wanted_.has_value()) {
    return MapCall{.kind = Kind::kSet, .revision = revision_, .row = *wanted_};
  }
  if (WantsFence()) return MapCall{.kind = Kind::kSet, .revision = revision_, .row = row_};
  return std::nullopt;
}

template <typename Policy>
std::optional<MapCall> BasicLeaseCore<Policy>::CallOfCopy(int64_t now) {
  using Kind = MapCall::Kind;
  if (stale_ || now >= read_at_ + options_.look_ns) return MapCall{.kind = Kind::kRead};
  if (!Stands(now)) return std::nullopt;
  // One that was granted for an earlier try may be over too soon.
  const bool fresh = lease_ != 0 && now < lease_sent_ + options_.lease_ns / 4;
  return fresh ? TakeCall() : MapCall{.kind = Kind::kGrant};
}

template <typename Policy>
void BasicLeaseCore<Policy>::OnAnswer(int64_t now, const MapAnswer& answer) {
  if (!call_.has_value()) return;
  if (answer.state == MapAnswer::State::kUnknown) {
    quiet_until_ = now + options_.look_ns / 2;
  } else {
    heard_at_ = now;
  }
  switch (call_->kind) {
    case MapCall::Kind::kRead:
      OnRead(now, answer);
      break;
    case MapCall::Kind::kGrant:
      OnGrant(now, answer);
      break;
    case MapCall::Kind::kRenew:
      OnRenew(now, answer);
      break;
    case MapCall::Kind::kTake:
      OnTake(answer);
      break;
    case MapCall::Kind::kSet:
      OnSet(answer);
      break;
  }
  call_.reset();
  if (yields_ && !stale_ && !wanted_.has_value()) StepDown();
}

template <typename Policy>
void BasicLeaseCore<Policy>::OnRead(int64_t now, const MapAnswer& answer) {
  if (answer.state != MapAnswer::State::kDone) return;
  const MapReading& reading = answer.reading;
  read_at_ = now;
  stale_ = false;
  // Calls that expected the row of before are void from here on, whenever they arrive. A map that
  // was begun anew gives revisions a second time.
  if (reading.revision != revision_ || reading.row != row_) {
    Moved(reading.revision, reading.row);
    wanted_.reset();
  }
  holder_ = reading.holder;
  holder_revision_ = reading.holder_revision;
  if (role_ == Role::kPrimary) {
    if (row_.primary != place_ || row_.epoch != epoch_) return StepDown();
    if (holder_ != absl::StrCat(HolderPrefix(), lease_)) attached_ = false;
    return;
  }
  role_ = Role::kCopy;
  // A try whose answer did not come had been a success. An epoch that was given up is over.
  if (row_.primary != place_ || !IsOfThisProcess(holder_) || row_.epoch == epoch_) return;
  BecomePrimary();
  attached_ = lease_ != 0 && holder_ == absl::StrCat(HolderPrefix(), lease_);
}

template <typename Policy>
void BasicLeaseCore<Policy>::Moved(int64_t revision, VolumeRow row) {
  revision_ = revision;
  if (row.primary == place_ && row.epoch == row_.epoch + 1) before_ = row_;
  row_ = std::move(row);
  pending_.clear();
}

template <typename Policy>
void BasicLeaseCore<Policy>::BecomePrimary() {
  role_ = Role::kPrimary;
  epoch_ = row_.epoch;
  others_.clear();
  wanted_.reset();
}

template <typename Policy>
void BasicLeaseCore<Policy>::StepDown() {
  role_ = Role::kCopy;
  wanted_.reset();
  yields_ = false;
  others_.clear();
  attached_ = false;
  lease_ = 0;
}

template <typename Policy>
bool BasicLeaseCore<Policy>::Yield() {
  if (yields_) return true;
  if (role_ != Role::kPrimary || before_.epoch + 1 != epoch_) return false;
  // Who had everything that was acknowledged has it still.
  VolumeRow row = row_;
  for (const VolumeRow::Copy& copy : before_.copies) {
    if (copy.current && row.IsCopy(copy.place)) row.SetCurrent(copy.place, true);
  }
  if (row == row_) return false;
  wanted_ = std::move(row);
  yields_ = true;
  may_stand_ = false;
  return true;
}

// The row has changed since those lives were heard of: what earlier ones sent to the map is void.
template <typename Policy>
void BasicLeaseCore<Policy>::Fence() {
  for (const auto& [place, life] : lives_at_call_) others_[place].fenced = life;
}

template <typename Policy>
void BasicLeaseCore<Policy>::OnGrant(int64_t now, const MapAnswer& answer) {
  attached_ = false;
  lease_ = answer.state == MapAnswer::State::kDone ? call_->lease : 0;
  // It may be another map that answers next, as where it was begun anew: what is compared with it
  // is read from it first. A copy does that anyway.
  if (answer.state == MapAnswer::State::kUnknown && role_ == Role::kPrimary) stale_ = true;
  lease_sent_ = Policy::kCountFromSending ? call_at_ : now;
  renew_at_ = call_at_ + options_.renew_ns;
}

template <typename Policy>
void BasicLeaseCore<Policy>::OnRenew(int64_t now, const MapAnswer& answer) {
  if (answer.state == MapAnswer::State::kDone) {
    lease_sent_ = Policy::kCountFromSending ? call_at_ : now;
    renew_at_ = call_at_ + options_.renew_ns;
  } else if (answer.state == MapAnswer::State::kRefused) {
    attached_ = false;
    lease_ = 0;
    stale_ = true;
  }
}

template <typename Policy>
void BasicLeaseCore<Policy>::OnTake(const MapAnswer& answer) {
  if (answer.state != MapAnswer::State::kDone) {
    stale_ = true;
    // It may be done yet: what this life promises counts only when that has become impossible.
    const bool doubt = answer.state == MapAnswer::State::kUnknown;
    if (doubt && role_ != Role::kPrimary && Policy::kNewLifeAfterDoubt) ++life_;
    // A lease that is over is not tried again.
    if (!doubt) lease_ = 0;
    return;
  }
  Moved(answer.reading.revision, call_->row);
  holder_ = call_->holder;
  holder_revision_ = answer.reading.holder_revision;
  attached_ = true;
  if (role_ != Role::kPrimary)
    BecomePrimary();
  else
    Fence();
}

template <typename Policy>
void BasicLeaseCore<Policy>::OnSet(const MapAnswer& answer) {
  if (answer.state != MapAnswer::State::kDone) {
    stale_ = true;
    return;
  }
  if (wanted_.has_value() && *wanted_ == call_->row) wanted_.reset();
  Moved(answer.reading.revision, call_->row);
  Fence();
}

template <typename Policy>
void BasicLeaseCore<Policy>::Change(VolumeRow row) {
  wanted_ = std::move(row);
}

// -- the other copies -----------------------------------------------------------------------------

template <typename Policy>
bool BasicLeaseCore<Policy>::WantsFence() const {
  return std::any_of(others_.begin(), others_.end(), [](const auto& other) {
    return other.second.life != 0 && other.second.life != other.second.fenced;
  });
}

template <typename Policy>
std::vector<uint32_t> BasicLeaseCore<Policy>::NextAsks(int64_t now) {
  std::vector<uint32_t> asks;
  if (role_ != Role::kPrimary || yields_) return asks;
  for (const uint32_t place : Candidates()) {
    Other& other = others_[place];
    if (other.asked || now < other.ask_at) continue;
    other.asked = true;
    asks.push_back(place);
  }
  return asks;
}

template <typename Policy>
void BasicLeaseCore<Policy>::OnPromise(int64_t now, uint32_t place, int64_t sent,
                                       std::optional<PromiseAnswer> answer) {
  const auto found = others_.find(place);
  if (found == others_.end()) return;  // of an epoch that is over
  Other& other = found->second;
  other.asked = false;
  other.ask_at = answer.has_value() ? sent + options_.renew_ns : now + options_.renew_ns / 2;
  if (!answer.has_value()) return;
  other.life = answer->life;
  if (answer->epoch > epoch_) stale_ = true;
  if (!answer->given) return;
  const int64_t from = Policy::kCountFromSending ? sent : now;
  other.promised_until = std::max(other.promised_until, from + Margin(options_.promise_ns));
}

template <typename Policy>
PromiseAnswer BasicLeaseCore<Policy>::OnAsk(int64_t now, uint64_t epoch) {
  PromiseAnswer answer{.given = false, .epoch = row_.epoch, .life = life_};
  if (epoch > row_.epoch) stale_ = true;
  const bool taking =
      Policy::kNoPromiseWhileTaking && call_.has_value() && call_->kind == MapCall::Kind::kTake;
  if (role_ == Role::kPrimary || taking || epoch < row_.epoch) return answer;
  promised_until_ = std::max(promised_until_, now + options_.promise_ns);
  answer.given = true;
  return answer;
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_LEASE_CORE_INL_H_
