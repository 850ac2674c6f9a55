#include "runtime/migration/migrator.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/object/background.h"

namespace abacus::runtime {
namespace {

Nanos NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// The core of migration reads and changes the objects that the core of invocation keeps: both live
// under one lock, which the binding manager holds around every call of the hook.
Migrator::Migrator(BindingManager* binding, CheckpointOptions checkpoints)
    : binding_(*binding), checkpoints_(std::move(checkpoints)), core_(&binding->core()) {
  binding_.set_migration_hook(this);
}

Migrator::~Migrator() { binding_.EndObjects(); }

bool Migrator::RunInside(const Rid& rid, absl::FunctionRef<void(MobileObject&)> call) {
  // A move that a method of an object asks for begins as it is: that thread is somebody's activity.
  if (ThreadContext::Of(binding_).depth() != 0) return false;
  const RefBase ref(binding_.Intern(rid));
  Entry& entry = *ref.entry();
  const BackgroundScope background(ref);
  ThreadContext& thread = ThreadContext::Of(binding_);
  const bool open = thread.Push(&entry) == Gate::kOpen;
  if (open) {
    const bool accounting = binding_.accounting();
    if (accounting) thread.AccountEnter();
    call(*entry.object);
    if (accounting) thread.AccountLeave(0, 0);
  }
  if (thread.Pop(&entry) != Gate::kOpen) binding_.Left(entry);
  return open;
}

bool Migrator::Prepare(const std::vector<Rid>& rids, NodeInstance target, bool no_room,
                       std::vector<Rid>* prepared) {
  using Place = MoveAhead::Place;
  const auto place_of = [&](const RefBase& ref) {
    if (ref.entry()->gate.load(std::memory_order_acquire) != Gate::kAbsent) return Place::kHere;
    const std::optional<LocationHint> hint = binding_.Locate(ref.rid());
    const NodeInstance host = hint.has_value() ? hint->host : ref.rid().home;
    if (host == binding_.self()) return Place::kHere;
    return host == target ? Place::kThere : Place::kElsewhere;
  };
  bool lighter = false;
  for (const Rid& rid : rids) {
    const bool ran = RunInside(rid, [&](MobileObject& object) {
      if (object.BeforeMove({place_of, no_room})) lighter = true;
    });
    if (ran) prepared->push_back(rid);
  }
  return lighter;
}

void Migrator::TellTheyStay(const std::vector<Rid>& prepared) {
  for (const Rid& rid : prepared) {
    RunInside(rid, [](MobileObject& object) { object.StaysHere(); });
  }
}

absl::StatusOr<MigrationReport> Migrator::Move(const std::vector<Rid>& rids, NodeInstance target) {
  std::vector<Rid> prepared;
  Prepare(rids, target, false, &prepared);
  bool no_room = false;
  absl::StatusOr<MigrationReport> report = MoveOnce(rids, target, &no_room);
  if (report.ok()) return report;
  TellTheyStay(prepared);
  if (!no_room) return report;
  prepared.clear();
  if (Prepare(rids, target, true, &prepared)) report = MoveOnce(rids, target, &no_room);
  if (!report.ok()) TellTheyStay(prepared);
  return report;
}

absl::StatusOr<MigrationReport> Migrator::MoveOnce(const std::vector<Rid>& rids,
                                                   NodeInstance target, bool* no_room) {
  MigrationId id;
  // The record must be there before the first action of the move is done.
  const absl::Status started = binding_.WithCore([&](auto&, Nanos now, Actions& out) {
    absl::StatusOr<MigrationId> begun = core_.StartMove(rids, target, now, out);
    if (!begun.ok()) return begun.status();
    id = *begun;
    MutexLock lock(mutex_);
    Record& record = records_[id];
    record.begun_ns = now;
    record.report.rids = rids;
    record.report.from = binding_.self();
    record.report.to = target;
    const MovingSet* set = core_.Draining(id);
    if (set == nullptr) {
      // It has given way to another at once, because of an activity that is inside.
      record.report.had_calls = true;
      return absl::OkStatus();
    }
    for (const ObjectState* object : set->members) {
      record.entries.push_back(static_cast<Entry*>(object->host));
      record.report.had_calls = record.report.had_calls || !object->inside.empty();
    }
    // Now, because whoever is inside may have left when the first check for the end comes.
    record.report.had_calls =
        record.report.had_calls || !binding_.NobodyInside(record.entries, true);
    return absl::OkStatus();
  });
  ABACUS_RETURN_IF_ERROR(started);
  Reach(binding_.points(), "move:begun");
  MutexLock lock(mutex_);
  const auto it = records_.find(id);
  while (!it->second.ended && !stopped_) changed_.Wait(mutex_);
  if (!it->second.ended)
    return MakeError(ErrorKind::kNodeUnreachable, "this node is being stopped");
  MigrationReport report = std::move(it->second.report);
  *no_room = it->second.no_room;
  records_.erase(it);
  if (!report.status.ok()) return report.status;
  return report;
}

Migrator::Core::Counters Migrator::Counters() const {
  return binding_.WithCore([this](auto&, Nanos, Actions&) { return core_.counters(); });
}

void Migrator::NoteParkedCalls() {
  MutexLock lock(mutex_);
  for (auto& [id, record] : records_) {
    if (record.ended || record.report.had_calls) continue;
    for (const Rid& rid : record.report.rids) {
      const ObjectState* object = binding_.core().Find(rid);
      record.report.had_calls =
          record.report.had_calls ||
          (object != nullptr && object->waiting != nullptr &&
           !(object->waiting->remote.empty() && object->waiting->local.empty()));
    }
  }
}

void Migrator::OnFrame(NodeInstance from, const Frame& frame, Nanos now, Actions& out) {
  NoteParkedCalls();  // before the frame that ends a move sends them on
  core_.OnFrame(from, frame, now, out);
}

void Migrator::OnPeerDead(NodeInstance peer, Nanos now, Actions& out) {
  core_.OnPeerDead(peer, now, out);
}

void Migrator::Tick(Nanos now, Actions& out) {
  NoteParkedCalls();
  core_.Tick(now, out);
}

void Migrator::Perform(Actions& actions) {
  for (const MigrationId& id : actions.check_drained) {
    binding_.pool().Run([this, id] { CheckDrained(id); });
  }
  for (const Actions::Checkpoint& checkpoint : actions.checkpoints) {
    binding_.pool().Run([this, id = checkpoint.migration] { Checkpoint(id); });
  }
  for (Actions::Restore& restore : actions.restores) {
    auto shared = std::make_shared<Actions::Restore>(std::move(restore));
    binding_.pool().Run([this, shared] { Restore(*shared); });
  }
  for (const Actions::Ended& ended : actions.ended) End(ended);
}

void Migrator::OnStop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  changed_.SignalAll();
}

void Migrator::CheckDrained(const MigrationId& id) {
  std::vector<Entry*> entries;
  bool first = false;
  {
    MutexLock lock(mutex_);
    const auto it = records_.find(id);
    if (it == records_.end() || it->second.ended) return;
    entries = it->second.entries;
    first = !it->second.scanned;
  }
  const bool idle = binding_.NobodyInside(entries, first);
  {
    MutexLock lock(mutex_);
    const auto it = records_.find(id);
    if (it == records_.end()) return;
    // Only now: a check beside this one must not scan without the barrier before it has been made.
    it->second.scanned = true;
    it->second.report.had_calls = it->second.report.had_calls || !idle;
  }
  if (!idle) return;  // whoever leaves will have it checked again
  binding_.WithCore([&](auto&, Nanos now, Actions& out) {
    core_.OnDrained(id, now, out);
    if (core_.Draining(id) != nullptr) return;
    MutexLock lock(mutex_);
    if (const auto it = records_.find(id); it != records_.end() && it->second.drained_ns == 0) {
      it->second.drained_ns = now;
    }
  });
}

void Migrator::Checkpoint(const MigrationId& id) {
  Reach(binding_.points(), "move:drained");
  std::vector<Entry*> entries;
  {
    MutexLock lock(mutex_);
    const auto it = records_.find(id);
    if (it == records_.end() || it->second.ended) return;
    entries = it->second.entries;
  }
  std::vector<SavedObject> saved;
  absl::Status status;
  uint64_t bytes = 0;
  size_t blocks = 0;
  const Nanos begun_ns = NowNs();
  for (const Entry* entry : entries) {
    CheckpointWriter writer(checkpoints_);
    entry->object->Checkpoint(writer);
    absl::StatusOr<Payload> state =
        std::move(writer).Finish(entry->info->name, entry->info->state_version);
    if (!state.ok()) {
      status = state.status();
      break;
    }
    bytes += state->bytes();
    blocks += state->blocks.size();
    SavedObject object;
    object.class_name = entry->info->name;
    object.checkpoint_inline = std::move(state->inline_bytes);
    object.checkpoint_blocks = std::move(state->blocks);
    saved.push_back(std::move(object));
  }
  if (status.ok()) status = binding_.CheckFits(bytes, blocks, "a checkpoint");
  {
    MutexLock lock(mutex_);
    if (const auto it = records_.find(id); it != records_.end()) {
      it->second.report.state_bytes = bytes;
      it->second.report.checkpoint = absl::Nanoseconds(NowNs() - begun_ns);
    }
  }
  Reach(binding_.points(), "move:checkpointed");
  binding_.WithCore([&](auto&, Nanos now, Actions& out) {
    if (status.ok()) {
      core_.OnCheckpointed(id, std::move(saved), now, out);
    } else {
      core_.OnCheckpointed(id, status, now, out);
    }
  });
}

void Migrator::Restore(const Actions::Restore& restore) {
  Reach(binding_.points(), "move:restoring");
  absl::StatusOr<std::vector<void*>> hosts = std::vector<void*>();
  for (const Actions::RestoreObject& object : restore.objects) {
    absl::StatusOr<Entry*> entry =
        binding_.Restore(object.rid, object.class_name, object.checkpoint);
    if (!entry.ok()) {
      for (void* made : *hosts) binding_.Remove(static_cast<Entry*>(made));
      hosts = entry.status();
      break;
    }
    hosts->push_back(*entry);
  }
  Reach(binding_.points(), "move:restored");
  if (observer_ != nullptr && hosts.ok()) {
    std::vector<Rid> rids;
    for (const Actions::RestoreObject& object : restore.objects) rids.push_back(object.rid);
    observer_->OnArriving(rids);
  }
  binding_.WithCore([&](auto&, Nanos now, Actions& out) {
    core_.OnRestored(restore.migration, hosts, now, out);
  });
}

void Migrator::End(const Actions::Ended& ended) {
  Reach(binding_.points(), ended.status.ok() ? "move:committed" : "move:aborted");
  MigrationReport report;
  {
    MutexLock lock(mutex_);
    const auto it = records_.find(ended.migration);
    if (it == records_.end()) return;
    Record& record = it->second;
    record.report.status = ended.status;
    record.no_room = ended.no_room;
    record.report.blackout = absl::Nanoseconds(NowNs() - record.begun_ns);
    if (record.drained_ns != 0) {
      record.report.quiesce = absl::Nanoseconds(record.drained_ns - record.begun_ns);
    }
    report = record.report;
  }
  // Before Move() returns: whoever asked for the move then finds that all have been told of it.
  if (observer_ != nullptr) observer_->OnMoved(report);
  MutexLock lock(mutex_);
  if (const auto it = records_.find(ended.migration); it != records_.end()) {
    it->second.ended = true;
    changed_.SignalAll();
  }
}

}  // namespace abacus::runtime
