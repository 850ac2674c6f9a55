#include "runtime/node/move_desk.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status.h"
#include "runtime/base/steady_time.h"

namespace abacus::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kTellDeadline = absl::Seconds(1);
constexpr absl::Duration kAskDeadline = absl::Seconds(2);
constexpr absl::Duration kPause = absl::Milliseconds(20);
// How long a command by hand looks for an object that is on its way somewhere.
constexpr std::chrono::seconds kSearchPatience{5};
// Of what another node tells: it is kept and shown.
constexpr size_t kReasonBytesMax = 4096;

absl::Status Stopped() {
  return MakeError(ErrorKind::kNodeUnreachable, "this node is being stopped");
}

}  // namespace

MoveDesk::MoveDesk(const MoveDeskOptions& options, BindingManager* binding, Migrator* migrator,
                   ResourceManager* resources, MembershipAgent* membership, ControlClients* clients)
    : options_(options),
      binding_(*binding),
      migrator_(*migrator),
      resources_(*resources),
      membership_(*membership),
      clients_(*clients),
      observations_(kRecentMax) {}

// -- commands -----------------------------------------------------------------------------------

absl::StatusOr<MoveRecord> MoveDesk::Move(const MoveCommand& command) {
  if (command.rids.empty()) return absl::InvalidArgumentError("no object was named to be moved");
  if (membership_.fenced()) {
    return MakeError(ErrorKind::kNodeFenced,
                     absl::StrCat("this node moves nothing: ", membership_.fenced_because()));
  }
  if (!command.by_engine) return Follow(command);
  for (const Rid& rid : command.rids) {
    if (HostedHere(rid)) continue;
    return MakeError(ErrorKind::kObjectNotFound,
                     absl::StrCat("object ", rid.ToString(), " is not on this node (any more)"));
  }
  ABACUS_ASSIGN_OR_RETURN(const MemberInfo target, membership_.Require(command.target));
  return Execute(command, target);
}

absl::StatusOr<MoveRecord> MoveDesk::Follow(const MoveCommand& command) {
  // Where it is asked for, and where it is done; those between need not know the target.
  if (command.hops == 0) ABACUS_RETURN_IF_ERROR(membership_.Require(command.target).status());
  const Rid& rid = command.rids.front();
  const Clock::time_point end = Clock::now() + kSearchPatience;
  for (;;) {
    if (HostedHere(rid)) {
      ABACUS_ASSIGN_OR_RETURN(const MemberInfo target, membership_.Require(command.target));
      if (target.instance == binding_.self()) {
        Hold(command.rids);
        return AlreadyThere(command);
      }
      absl::StatusOr<MoveRecord> record = Execute(command, target);
      if (record.ok()) Hold(command.rids);
      // Not found: it has left since we looked, by a move that this one waited for.
      const bool left = KindOf(record.status()) == ErrorKind::kObjectNotFound && !HostedHere(rid);
      if (!left || Clock::now() >= end) return record;
      continue;
    }
    const NodeInstance at = WhereIs(rid);
    if (!at.valid()) {
      return MakeError(ErrorKind::kObjectNotFound,
                       absl::StrCat("object ", rid.ToString(), " does not exist (any more)"));
    }
    if (at != binding_.self()) {
      if (command.hops >= kHopsMax) {
        return absl::AbortedError(absl::StrCat("object ", rid.ToString(), " has moved ", kHopsMax,
                                               " times while the command followed it: try again"));
      }
      std::optional<MemberInfo> member = membership_.FindInstance(at);
      if (!member.has_value() && at != rid.home) member = membership_.FindInstance(rid.home);
      if (!member.has_value()) {
        return MakeError(ErrorKind::kNodeUnreachable,
                         absl::StrCat("object ", rid.ToString(), " was last seen on node ",
                                      at.ToString(), ", which is dead"));
      }
      MoveCommand onwards = command;
      ++onwards.hops;
      return clients_.To(member->control_address)->Move(onwards, options_.command_deadline);
    }
    // It is on its way to this node.
    if (Clock::now() >= end || !Pause(kPause)) {
      return MakeError(ErrorKind::kNodeUnreachable,
                       absl::StrCat("object ", rid.ToString(), " is being moved; try again"));
    }
  }
}

// REQUIRES: the objects are hosted here, or were a moment ago.
absl::StatusOr<MoveRecord> MoveDesk::Execute(const MoveCommand& command, const MemberInfo& target) {
  ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<UnderWay> under_way, Enter(command));
  absl::Status status;
  if (command.by_engine) status = CheckPins(command.rids, target.instance.node);
  if (status.ok()) status = migrator_.Move(command.rids, target.instance).status();
  MutexLock lock(mutex_);
  for (const Rid& rid : command.rids) under_way_.erase(rid);
  changed_.SignalAll();
  if (!status.ok()) return status;
  // OnMoved() came before Move() returned.
  if (!under_way->record.has_value()) return absl::InternalError("a move ended without a report");
  return *under_way->record;
}

// Waits, by hand, until no other move of these objects is under way here, and announces this one.
absl::StatusOr<std::shared_ptr<MoveDesk::UnderWay>> MoveDesk::Enter(const MoveCommand& command) {
  auto entry = std::make_shared<UnderWay>();
  entry->command = command;
  for (const Rid& rid : command.rids) entry->class_names.push_back(ClassName(rid));
  const auto end = Clock::now() + absl::ToChronoNanoseconds(options_.command_deadline);
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) return Stopped();
    const Rid* busy = nullptr;
    for (const Rid& rid : command.rids) {
      if (under_way_.contains(rid)) busy = &rid;
    }
    if (busy == nullptr) break;
    if (command.by_engine || Clock::now() >= end) {
      return MakeError(ErrorKind::kMoveCancelled,
                       absl::StrCat("object ", busy->ToString(), " is being moved already"));
    }
    changed_.WaitUntil(mutex_, end);
  }
  for (const Rid& rid : command.rids) under_way_[rid] = entry;
  return entry;
}

MoveRecord MoveDesk::AlreadyThere(const MoveCommand& command) const {
  MoveRecord record;
  record.source = binding_.self();
  record.ended = absl::Now();
  MoveEvent& event = record.event;
  event.rids = command.rids;
  for (const Rid& rid : command.rids) event.class_names.push_back(ClassName(rid));
  event.from = event.to = binding_.self().node;
  event.from_name = event.to_name = membership_.self().name;
  event.reason = "it was there already";
  return record;
}

bool MoveDesk::HostedHere(const Rid& rid) const {
  return binding_.WithCore([&](auto& core, Nanos, Actions&) {
    const ObjectState* object = core.Find(rid);
    return object != nullptr && object->hosted();
  });
}

// Where to ask for an object that is not here; not valid where it is known not to exist.
NodeInstance MoveDesk::WhereIs(const Rid& rid) const {
  if (const auto hint = binding_.Locate(rid); hint.has_value()) return hint->host;
  return rid.home == binding_.self() ? NodeInstance() : rid.home;
}

std::string MoveDesk::ClassName(const Rid& rid) const {
  const RefBase ref(binding_.Intern(rid));
  const ClassInfo* info = binding_.Slot(ref.entry()->slot).info;
  return info == nullptr ? "" : info->name;
}

bool MoveDesk::Pause(absl::Duration time) {
  const auto end = Clock::now() + absl::ToChronoNanoseconds(time);
  MutexLock lock(mutex_);
  while (!stopping_ && Clock::now() < end) changed_.WaitUntil(mutex_, end);
  return !stopping_;
}

// -- the engine's moves -------------------------------------------------------------------------

void MoveDesk::CarryOut(const PlannedMove& move, Done done) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    if (engine_moves_ < kMovesMax) {
      ++engine_moves_;
      pool_.Run([this, move, done = std::move(done)] {
        const absl::StatusOr<MoveRecord> record = CarryOutNow(move);
        {
          MutexLock ended(mutex_);
          --engine_moves_;
        }
        done(move, record);
      });
      return;
    }
  }
  done(move, MakeError(ErrorKind::kBackPressure,
                       absl::StrCat(kMovesMax, " moves of the engine are under way already")));
}

absl::StatusOr<MoveRecord> MoveDesk::CarryOutNow(const PlannedMove& move) {
  const MoveCommand command{.rids = move.rids,
                            .target = move.to,
                            .by_engine = true,
                            .reason = move.reason,
                            .predicted_gain = absl::Seconds(move.predicted_gain_s),
                            .predicted_cost = absl::Seconds(move.predicted_cost_s)};
  ABACUS_ASSIGN_OR_RETURN(const MemberInfo host, membership_.Require(move.from));
  if (host.instance == binding_.self()) return Move(command);
  absl::StatusOr<MoveRecord> record =
      clients_.To(host.control_address)->Move(command, options_.command_deadline);
  if (record.ok()) Keep(*record);
  return record;
}

absl::Status MoveDesk::CheckPins(const std::vector<Rid>& rids, NodeId target) {
  std::map<NodeInstance, std::vector<Rid>> by_home;
  for (const Rid& rid : rids) by_home[rid.home].push_back(rid);
  for (const auto& [home, of_home] : by_home) {
    ABACUS_RETURN_IF_ERROR(CheckPinsAt(home, of_home, target));
  }
  return absl::OkStatus();
}

absl::Status MoveDesk::CheckPinsAt(NodeInstance home, const std::vector<Rid>& rids, NodeId target) {
  std::vector<PinRecord> pins;
  if (home == binding_.self()) {
    pins = PinsHere(rids);
  } else {
    const std::optional<MemberInfo> member = membership_.FindInstance(home);
    if (!member.has_value()) {
      return MakeError(ErrorKind::kNodeUnreachable,
                       absl::StrCat("the home ", home.ToString(), " of the objects is dead"));
    }
    ABACUS_ASSIGN_OR_RETURN(pins,
                            clients_.To(member->control_address)->GetPins(rids, kAskDeadline));
  }
  for (const PinRecord& pin : pins) {
    if (!pin.reason.empty()) {
      return MakeError(ErrorKind::kMoveCancelled,
                       absl::StrCat("object ", pin.rid.ToString(), " is held: ", pin.reason));
    }
    const bool is_allowed = pin.allowed.empty() || std::find(pin.allowed.begin(), pin.allowed.end(),
                                                             target) != pin.allowed.end();
    if (!is_allowed) {
      return MakeError(ErrorKind::kMoveCancelled, absl::StrCat("object ", pin.rid.ToString(),
                                                               " is not allowed on node ", target));
    }
  }
  return absl::OkStatus();
}

// -- pins ---------------------------------------------------------------------------------------

absl::Status MoveDesk::Pin(const PinCommand& command) {
  const NodeInstance home = command.rid.home;
  if (home == binding_.self()) return PinHere(command);
  const std::optional<MemberInfo> member = membership_.FindInstance(home);
  if (!member.has_value() || command.hops >= kHopsMax) {
    return MakeError(ErrorKind::kNodeUnreachable,
                     absl::StrCat("the home ", home.ToString(), " of object ",
                                  command.rid.ToString(), " is dead: nobody keeps its pins"));
  }
  PinCommand onwards = command;
  ++onwards.hops;
  const bool moves = command.node != 0;
  return clients_.To(member->control_address)
      ->Pin(onwards, moves ? options_.command_deadline : kAskDeadline);
}

absl::Status MoveDesk::PinHere(const PinCommand& command) {
  const Rid& rid = command.rid;
  if (!binding_.Locate(rid).has_value()) {
    return MakeError(ErrorKind::kObjectNotFound,
                     absl::StrCat("object ", rid.ToString(), " does not exist (any more)"));
  }
  if (command.allowed || command.attach_group) {
    if (command.allowed) resources_.Allow(rid, *command.allowed);
    if (command.attach_group) resources_.Attach(rid, *command.attach_group);
    return absl::OkStatus();
  }
  if (!command.pinned) {
    resources_.Unpin(rid);
    return absl::OkStatus();
  }
  if (command.hold > absl::ZeroDuration()) {
    resources_.Pin(rid,
                   absl::StrCat("moved by hand; left alone for ",
                                absl::FormatDuration(command.hold), " or until it is unpinned"),
                   SteadyNow() + command.hold);
    return absl::OkStatus();
  }
  if (command.node != 0) {
    MoveCommand move;
    move.rids = {rid};
    move.target = command.node;
    move.reason = "pinned there";
    ABACUS_RETURN_IF_ERROR(Follow(move).status());
  }
  resources_.Pin(rid, "pinned", absl::InfiniteFuture());
  return absl::OkStatus();
}

std::vector<PinRecord> MoveDesk::PinsHere(const std::vector<Rid>& rids) const {
  return resources_.Pins(rids, SteadyNow());
}

// The objects were moved by hand: their home is told to keep the engine off them.
void MoveDesk::Hold(const std::vector<Rid>& rids) {
  if (options_.hand_move_hold <= absl::ZeroDuration()) return;
  for (const Rid& rid : rids) {
    PinCommand command{.rid = rid, .pinned = true, .hold = options_.hand_move_hold};
    if (const absl::Status status = Pin(command); !status.ok()) {
      spdlog::warn("{} was moved by hand, but the engine may move it on: {}", rid.ToString(),
                   std::string(ToStd(status.message())));
    }
  }
}

// -- telling ------------------------------------------------------------------------------------

void MoveDesk::OnMoved(const MigrationReport& report) {
  const auto name_of = [this](NodeId node) {
    const auto member = membership_.Find(node);
    return member.has_value() ? member->name : absl::StrCat(node);
  };
  MoveRecord record;
  record.source = binding_.self();
  record.quiesce = report.quiesce;
  record.ended = absl::Now();
  MoveEvent& event = record.event;
  event.rids = report.rids;
  event.from = report.from.node;
  event.to = report.to.node;
  event.from_name = name_of(event.from);
  event.to_name = name_of(event.to);
  event.blackout = report.blackout;
  event.state_bytes = report.state_bytes;
  event.status = report.status;
  bool ordered_here = false;
  {
    MutexLock lock(mutex_);
    record.serial = ++last_serial_;
    if (const auto it = under_way_.find(report.rids.front()); it != under_way_.end()) {
      UnderWay& under_way = *it->second;
      event.by_engine = under_way.command.by_engine;
      event.reason = under_way.command.reason;
      event.predicted_gain = under_way.command.predicted_gain;
      event.predicted_cost = under_way.command.predicted_cost;
      event.class_names = under_way.class_names;
      under_way.record = record;
      ordered_here = true;
    }
  }
  if (!ordered_here) {  // somebody called the migrator directly
    for (const Rid& rid : report.rids) event.class_names.push_back(ClassName(rid));
  }
  Keep(record);
  Tell(record);
}

void MoveDesk::Tell(const MoveRecord& record) {
  std::set<std::string> addresses;
  const auto add = [&](const std::optional<MemberInfo>& member) {
    if (member.has_value() && member->instance != binding_.self()) {
      addresses.insert(member->control_address);
    }
  };
  add(membership_.FindInstance(record.event.rids.front().home));
  add(membership_.Find(record.event.to));
  for (const MemberInfo& server : membership_.Servers()) add(server);
  for (const std::string& address : addresses) {
    MutexLock lock(mutex_);
    if (stopping_) return;
    if (tellings_ >= kTellingsMax) {
      untold_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    ++tellings_;
    pool_.Run([this, address, record] {
      const std::shared_ptr<ControlClient> client = clients_.To(address);
      absl::Status status = client->Moved(record, kTellDeadline);
      if (!status.ok()) status = client->Moved(record, kTellDeadline);
      if (!status.ok()) untold_.fetch_add(1, std::memory_order_relaxed);
      MutexLock told(mutex_);
      --tellings_;
    });
  }
}

void MoveDesk::Told(const MoveRecord& record) {
  MoveRecord kept = record;
  if (kept.event.reason.size() > kReasonBytesMax) kept.event.reason.resize(kReasonBytesMax);
  Keep(kept);
}

void MoveDesk::Keep(const MoveRecord& record) {
  const MoveEvent& event = record.event;
  const NodeId self = binding_.self().node;
  const bool concerns_this_node =
      event.from == self || event.to == self ||
      std::any_of(event.rids.begin(), event.rids.end(),
                  [this](const Rid& rid) { return rid.home == binding_.self(); });
  MutexLock lock(mutex_);
  const bool known = std::any_of(recent_.begin(), recent_.end(), [&](const MoveRecord& other) {
    return other.source == record.source && other.serial == record.serial;
  });
  if (known) return;
  recent_.push_front(record);
  if (recent_.size() > kRecentMax) recent_.pop_back();
  if (!concerns_this_node || observer_ == nullptr) return;
  observations_.Run([observer = observer_, event] { observer(event); });
}

void MoveDesk::SetObserver(std::function<void(const MoveEvent&)> observer) {
  MutexLock lock(mutex_);
  observer_ = std::move(observer);
}

std::vector<MoveRecord> MoveDesk::Recent() const {
  MutexLock lock(mutex_);
  return {recent_.begin(), recent_.end()};
}

uint64_t MoveDesk::untold() const {
  return untold_.load(std::memory_order_relaxed) + observations_.dropped();
}

// -- end ----------------------------------------------------------------------------------------

void MoveDesk::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.SignalAll();
}

void MoveDesk::Join() {
  pool_.Stop();
  observations_.Stop();
}

}  // namespace abacus::runtime
