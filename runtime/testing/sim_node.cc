#include "runtime/testing/sim_node.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/testing/sim_world.h"

namespace abacus::runtime::sim {
namespace {

constexpr char kClassName[] = "sim.Ledger";

Payload EncodeNumber(uint64_t number) {
  Writer writer;
  writer.PutNumber(number);
  return std::move(writer).Finish();
}

}  // namespace

SimNode::SimNode(SimWorld* world, NodeInstance self, const SimCoresFactory& factory)
    : world_(*world), self_(self), cores_(factory(self, world->options().core, this)) {}

SimNode::~SimNode() = default;

// -- objects ------------------------------------------------------------------------------------

size_t SimNode::CreateObject() {
  auto copy = std::make_unique<Ledger>();
  ObjectState& state = cores_->Create(copy.get());
  copy->rid = state.rid;
  copy->gate = Gate::kOpen;
  copy->index = world_.oracle().AddObject(state.rid, self_);
  const size_t index = copy->index;
  copies_[copy.get()] = std::move(copy);
  return index;
}

absl::Status SimNode::Destroy(size_t object) {
  Actions out;
  const absl::Status status = cores_->Destroy(world_.oracle().object(object).rid, out);
  Perform(out);
  return status;
}

const Ledger* SimNode::FindCopy(const Rid& rid) {
  const ObjectState* state = cores_->Find(rid);
  return state == nullptr ? nullptr : static_cast<const Ledger*>(state->host);
}

void SimNode::SetGate(const ObjectState& object, Gate gate) {
  if (object.host != nullptr) static_cast<Ledger*>(object.host)->gate = gate;
}

bool SimNode::LocalInside(absl::Span<ObjectState* const> objects, const ActivityId& root) {
  for (const auto& [id, thread] : threads_) {
    if (thread->root != root) continue;
    for (const SimFrame& frame : thread->frames) {
      for (const ObjectState* object : objects) {
        if (object->host == frame.copy) return true;
      }
    }
  }
  return false;
}

bool SimNode::AnybodyInside(const Ledger& copy) const {
  for (const auto& [id, thread] : threads_) {
    for (const SimFrame& frame : thread->frames) {
      if (frame.copy == &copy) return true;
    }
  }
  return false;
}

// -- threads ------------------------------------------------------------------------------------

SimNode::SimThread& SimNode::NewThread(const ActivityId& activity, const ActivityId& root,
                                       uint32_t level, uint64_t sequence) {
  auto thread = std::make_unique<SimThread>();
  thread->id = ++last_thread_;
  thread->activity = activity;
  thread->root = root;
  thread->base_level = level;
  thread->sequence = sequence;
  return *(threads_[thread->id] = std::move(thread));
}

SimNode::SimThread* SimNode::FindThread(uint64_t id) {
  const auto it = threads_.find(id);
  return it == threads_.end() ? nullptr : it->second.get();
}

size_t SimNode::busy_threads() const {
  return static_cast<size_t>(std::count_if(threads_.begin(), threads_.end(), [](const auto& t) {
    return t.second->number != 0 || !t.second->frames.empty() || !t.second->stays;
  }));
}

Nanos SimNode::PoolDelay() {
  return static_cast<Nanos>(
      world_.random().Below(static_cast<uint64_t>(world_.options().pool_max_ns) + 1));
}

uint64_t SimNode::Call(Script script) {
  const ActivityId activity = NewActivity();
  return CallFrom(NewThread(activity, activity, 0, 0).id, std::move(script));
}

void SimNode::StartRoot() {
  const ActivityId activity = NewActivity();
  SimThread& thread = NewThread(activity, activity, 0, 0);
  thread.stays = true;
  world_.on_root_idle(*this, thread.id);
}

uint64_t SimNode::CallFrom(uint64_t thread_id, Script script) {
  SimThread& thread = *FindThread(thread_id);
  auto owned = std::make_unique<Script>(std::move(script));
  CallRecord& record = world_.oracle().NewCall(owned.get(), 0, self_, thread.activity);
  record.owned_script = std::move(owned);
  thread.number = record.number;
  const uint64_t number = record.number;
  world_.AfterAt(self_, 0, [thread_id](SimNode& node) {
    if (SimThread* begun = node.FindThread(thread_id)) node.Dispatch(*begun);
  });
  return number;
}

void SimNode::Begin(SimThread& thread, const Script& script, uint64_t parent_call) {
  thread.number = world_.oracle().NewCall(&script, parent_call, self_, thread.activity).number;
  Dispatch(thread);
}

// The way of a Ref: straight in where the gate is open, else ask the core.
void SimNode::Dispatch(SimThread& thread) {
  CallRecord& record = world_.oracle().call(thread.number);
  const Rid rid = world_.oracle().object(record.object).rid;
  ObjectState* state = cores_->Find(rid);
  if (state != nullptr && state->host != nullptr) {
    auto& copy = *static_cast<Ledger*>(state->host);
    if (copy.gate == Gate::kOpen) {
      ++world_.stats()[Stat::kCallsLocal];
      return Enter(thread, copy, std::exchange(thread.number, 0), false);
    }
  }
  PendingCall& call = thread.call = PendingCall();
  call.rid = rid;
  call.root = thread.root;
  call.id = {thread.activity, thread.level(), thread.sequence + 1};
  call.host = &thread;
  Actions out;
  CallStarted started = cores_->Start(call, false, world_.now(), out);
  if (started == CallStarted::kNeedArguments) {
    call.arguments = EncodeNumber(thread.number);
    started = cores_->Start(call, true, world_.now(), out);
  }
  const bool sent =
      started == CallStarted::kWaiting && call.state != PendingCall::State::kParkedHere;
  if (sent) thread.sequence = call.id.sequence;
  Perform(out);
  switch (started) {
    case CallStarted::kRunLocal:
      return world_.oracle().Fail("gate", "the core says that a closed gate is open");
    case CallStarted::kRunInside:
      ++world_.stats()[Stat::kCallsInsideLocal];
      return Enter(thread, *static_cast<Ledger*>(cores_->Find(rid)->host),
                   std::exchange(thread.number, 0), true);
    case CallStarted::kFailed:
      return EndCall(thread, call.reply.status(), 0);
    default:
      return;
  }
}

// The thread's call was woken.
void SimNode::Resume(SimThread& thread) {
  PendingCall& call = thread.call;
  if (call.state == PendingCall::State::kRetry) return Dispatch(thread);
  if (call.state != PendingCall::State::kAnswered) {
    return world_.oracle().Fail("wake", "a thread was woken for nothing");
  }
  thread.sequence = std::max(thread.sequence, call.reply.next_sequence);
  const absl::Status status = call.reply.status();
  if (KindOf(status) == ErrorKind::kDuplicateEvicted) ++world_.stats()[Stat::kRefusedDuplicates];
  uint64_t value = 0;
  if (status.ok()) {
    Reader reader(call.result);
    value = reader.TakeNumber<uint64_t>();
  }
  EndCall(thread, status, value);
}

void SimNode::Enter(SimThread& thread, Ledger& copy, uint64_t number, bool admitted_inside) {
  CallRecord& record = world_.oracle().call(number);
  const uint32_t level = thread.level();
  thread.frames.push_back({.number = number, .copy = &copy, .admitted_inside = admitted_inside});
  world_.oracle().OnRun(*this, copy, record, level, thread.sequence);
  world_.AfterAt(self_, record.script->work_ns, [id = thread.id](SimNode& node) {
    if (SimThread* entered = node.FindThread(id)) node.StepFrame(*entered);
  });
}

// The innermost method of the thread goes on.
void SimNode::StepFrame(SimThread& thread) {
  SimFrame& frame = thread.frames.back();
  const Script& script = *world_.oracle().call(frame.number).script;
  if (frame.step == script.steps.size()) return Leave(thread);
  const Script::Step& step = script.steps[frame.step++];
  world_.AfterAt(self_, step.work_ns, [id = thread.id, &step](SimNode& node) {
    SimThread* working = node.FindThread(id);
    if (working == nullptr) return;
    if (step.calls.empty()) {
      node.StepFrame(*working);
    } else if (step.calls.size() == 1) {
      node.Begin(*working, step.calls.front(), working->frames.back().number);
    } else {
      node.Fork(*working, step);
    }
  });
}

// Each branch is an activity of its own with the same root.
void SimNode::Fork(SimThread& thread, const Script::Step& step) {
  SimFrame& frame = thread.frames.back();
  frame.branches_left = step.calls.size();
  const uint64_t parent_call = frame.number;
  const uint64_t parent = thread.id;
  for (const Script& script : step.calls) {
    ++world_.stats()[Stat::kForks];
    SimThread& branch = NewThread(NewActivity(), thread.root, thread.level(), 0);
    branch.parent = parent;
    branch.number = world_.oracle().NewCall(&script, parent_call, self_, branch.activity).number;
    world_.AfterAt(self_, PoolDelay(), [id = branch.id](SimNode& node) {
      if (SimThread* begun = node.FindThread(id)) node.Dispatch(*begun);
    });
    if (step.hedge_ns == 0 || &script != &step.calls.back()) continue;
    world_.AfterAt(self_, step.hedge_ns, [id = branch.id](SimNode& node) { node.GiveUp(id); });
  }
}

// The joiner does not want this branch any more, where it is still out.
void SimNode::GiveUp(uint64_t id) {
  SimThread* branch = FindThread(id);
  // Once it runs here, it is the joiner itself that runs it.
  const bool out = branch != nullptr && branch->frames.empty() && branch->call.host == branch;
  if (!out || branch->number == 0) return;
  if (!cores_->Abandon(branch->call)) return;  // its answer is there
  ++world_.stats()[Stat::kGivenUp];
  world_.oracle().call(branch->number).end = CallRecord::End::kGivenUp;
  branch->number = 0;
  GoOn(*branch);
}

// The innermost method returns.
void SimNode::Leave(SimThread& thread) {
  const SimFrame frame = thread.frames.back();
  const CallRecord& record = world_.oracle().call(frame.number);
  world_.oracle().OnLeave(*this, *frame.copy, record);
  if (world_.oracle().failed()) return;
  const Rid rid = frame.copy->rid;
  thread.frames.pop_back();
  if (thread.execution != nullptr && thread.frames.empty()) return Finish(thread, record.value);
  if (frame.admitted_inside) {
    Actions out;
    cores_->LeaveInside(rid, thread.root, out);
    Perform(out);
  } else if (frame.copy->gate != Gate::kOpen) {
    Left(*frame.copy);
  }
  thread.number = frame.number;
  EndCall(thread, absl::OkStatus(), record.value);
}

// The method that another node called returns.
void SimNode::Finish(SimThread& thread, uint64_t value) {
  const std::unique_ptr<Actions::Execute> execution = std::move(thread.execution);
  ReplyMessage reply;
  reply.next_sequence = thread.sequence;
  threads_.erase(thread.id);
  Actions out;
  cores_->FinishExecution(execution->from, execution->message, reply, EncodeNumber(value), out);
  Perform(out);
}

void SimNode::EndCall(SimThread& thread, const absl::Status& status, uint64_t value) {
  world_.oracle().OnEnd(world_.oracle().call(thread.number), status, value);
  thread.number = 0;
  GoOn(thread);
}

void SimNode::GoOn(SimThread& thread) {
  if (!thread.frames.empty()) {
    world_.AfterAt(self_, 0, [id = thread.id](SimNode& node) {
      if (SimThread* called = node.FindThread(id)) node.StepFrame(*called);
    });
    return;
  }
  const uint64_t id = thread.id;
  if (thread.stays) return world_.on_root_idle(*this, id);
  const uint64_t parent_id = thread.parent;
  threads_.erase(id);
  if (parent_id == 0) return;
  SimThread& parent = *FindThread(parent_id);
  if (--parent.frames.back().branches_left == 0) GoOn(parent);
}

void SimNode::StartWorker(Actions::Execute execution) {
  const CallMessage& message = execution.message;
  if (cores_->IsDead(execution.from)) {
    world_.oracle().Fail("fence", absl::StrCat("a call of ", execution.from.ToString(),
                                               " runs, which is known to be dead"));
  }
  Reader reader(execution.frame.payload, nullptr, execution.tail);
  const auto number = reader.TakeNumber<uint64_t>();
  SimThread& thread =
      NewThread(message.id.activity, message.root, message.id.level + 1, message.id.sequence);
  ++world_.stats()[Stat::kExecutions];
  const ObjectState* object = cores_->Find(message.rid);
  if (object != nullptr && object->phase == ObjectPhase::kQuiescing) {
    ++world_.stats()[Stat::kCallsInsideRemote];
  }
  thread.execution = std::make_unique<Actions::Execute>(std::move(execution));
  world_.AfterAt(self_, PoolDelay(), [id = thread.id, number](SimNode& node) {
    SimThread& worker = *node.FindThread(id);
    node.Enter(worker, *static_cast<Ledger*>(worker.execution->host), number, false);
  });
}

// -- events -------------------------------------------------------------------------------------

void SimNode::Receive(NodeInstance from, Frame frame) {
  Actions out;
  cores_->OnFrame(from, std::move(frame), world_.now(), out);
  Perform(out);
}

void SimNode::Tick() {
  Actions out;
  cores_->Tick(world_.now(), out);
  if (!out.empty()) ++world_.stats()[Stat::kSteps];
  Perform(out);
}

void SimNode::OnPeerDead(NodeInstance peer) {
  Actions out;
  cores_->OnPeerDead(peer, world_.now(), out);
  Perform(out);
}

void SimNode::OnReconnected(NodeInstance peer) {
  Actions out;
  cores_->OnReconnected(peer, world_.now(), out);
  Perform(out);
}

void SimNode::Perform(Actions& actions) {
  for (PendingCall* call : actions.wakes) {
    const uint64_t id = static_cast<SimThread*>(call->host)->id;
    world_.AfterAt(self_, PoolDelay(), [id](SimNode& node) {
      if (SimThread* woken = node.FindThread(id)) node.Resume(*woken);
    });
  }
  for (Actions::Send& send : actions.sends) {
    world_.Send({self_, send.to, std::move(send.frame)});
  }
  for (Actions::Execute& execution : actions.executes) StartWorker(std::move(execution));
  for (const MigrationId& id : actions.check_drained) {
    world_.AfterAt(self_, PoolDelay(), [id](SimNode& node) { node.CheckDrained(id); });
  }
  for (const Actions::Checkpoint& checkpoint : actions.checkpoints) {
    const Nanos delay = world_.random().Between(0, world_.options().checkpoint_max_ns);
    world_.AfterAt(self_, delay,
                   [id = checkpoint.migration](SimNode& node) { node.TakeCheckpoint(id); });
  }
  for (Actions::Restore& restore : actions.restores) {
    const Nanos delay = world_.random().Between(0, world_.options().restore_max_ns);
    world_.AfterAt(self_, delay,
                   [restore = std::move(restore)](SimNode& node) { node.Restore(restore); });
  }
  for (const Actions::Destroy& destroy : actions.destroys) {
    const auto& copy = *static_cast<const Ledger*>(destroy.host);
    if (AnybodyInside(copy)) {
      world_.oracle().Fail("deleted-under-call",
                           absl::StrCat("object ", destroy.rid.ToString(), " is deleted on ",
                                        self_.ToString(), " with a call inside"));
      return;  // the copy is kept for the report
    }
    copies_.erase(&copy);
  }
  for (const Rid& rid : actions.check_idle) {
    world_.AfterAt(self_, PoolDelay(), [rid](SimNode& node) { node.CheckIdle(rid); });
  }
  for (const Actions::Ended& ended : actions.ended) {
    if (world_.tracing()) {
      world_.Trace(absl::StrCat(self_.ToString(), " move ", ended.migration.local,
                                " ended: ", ended.status.ToString()));
    }
    ended_[ended.migration] = ended.status;
  }
}

// -- moves --------------------------------------------------------------------------------------

absl::StatusOr<MigrationId> SimNode::Move(const std::vector<size_t>& objects, NodeId target) {
  SimNode* to = world_.node(target);
  if (to == nullptr) return absl::UnavailableError("the target is not running");
  std::vector<Rid> rids;
  for (const size_t object : objects) rids.push_back(world_.oracle().object(object).rid);
  Actions out;
  absl::StatusOr<MigrationId> id = cores_->StartMove(rids, to->self(), world_.now(), out);
  if (id.ok()) {
    bool calls = false;
    for (const size_t object : objects) {
      const Ledger* copy = FindCopy(world_.oracle().object(object).rid);
      calls = calls || (copy != nullptr && AnybodyInside(*copy));
    }
    if (calls) ++world_.stats()[Stat::kMovesWithCalls];
    if (objects.size() > 1) ++world_.stats()[Stat::kSetMoves];
    if (world_.tracing()) {
      world_.Trace(absl::StrCat(self_.ToString(), " move ", id->local, " of object ",
                                objects.front(), objects.size() > 1 ? " and others" : "", " to ",
                                to->self().ToString()));
    }
  }
  Perform(out);
  return id;
}

void SimNode::Cancel(const MigrationId& id) {
  Actions out;
  cores_->Cancel(id, MakeError(ErrorKind::kMoveCancelled, "by hand"), world_.now(), out);
  Perform(out);
}

const absl::Status* SimNode::Ended(const MigrationId& id) const {
  const auto it = ended_.find(id);
  return it == ended_.end() ? nullptr : &it->second;
}

// A thread left an object whose gate is not open: somebody may wait for it.
void SimNode::Left(const Ledger& copy) {
  const ObjectState* state = cores_->Find(copy.rid);
  if (state == nullptr) return;
  if (state->moving != nullptr) {
    world_.AfterAt(self_, PoolDelay(),
                   [id = state->moving->id](SimNode& node) { node.CheckDrained(id); });
  }
  if (state->destroying) {
    world_.AfterAt(self_, PoolDelay(), [rid = copy.rid](SimNode& node) { node.CheckIdle(rid); });
  }
}

void SimNode::CheckDrained(const MigrationId& id) {
  const MovingSet* set = cores_->Draining(id);
  if (set == nullptr) return;
  for (const ObjectState* object : set->members) {
    // A call that the core has admitted may not have entered yet: the core knows of it.
    if (AnybodyInside(*static_cast<Ledger*>(object->host))) return;
  }
  Actions out;
  cores_->OnDrained(id, world_.now(), out);
  Perform(out);
}

void SimNode::CheckIdle(const Rid& rid) {
  const ObjectState* state = cores_->Find(rid);
  if (state == nullptr || !state->destroying) return;
  Actions out;
  if (cores_->MaybeDestroy(rid, !AnybodyInside(*static_cast<Ledger*>(state->host)), out)) {
    world_.oracle().OnDestroyed(static_cast<size_t>(world_.oracle().IndexOf(rid)));
  }
  Perform(out);
}

void SimNode::TakeCheckpoint(const MigrationId& id) {
  std::vector<SavedObject> saved;
  for (const ObjectState* object : cores_->Members(id)) {
    Writer writer;
    Encode(writer, static_cast<const Ledger*>(object->host)->entries);
    SavedObject one;
    one.class_name = kClassName;
    one.checkpoint_inline = std::move(writer).Finish().inline_bytes;
    saved.push_back(std::move(one));
  }
  Actions out;
  cores_->OnCheckpointed(id, std::move(saved), world_.now(), out);
  Perform(out);
}

void SimNode::Restore(const Actions::Restore& restore) {
  absl::StatusOr<std::vector<void*>> hosts = std::vector<void*>();
  if (world_.random().Chance(world_.options().restore_fails)) {
    ++world_.stats()[Stat::kRestoresFailed];
    hosts = absl::ResourceExhaustedError("the manager refuses");
  }
  for (const Actions::RestoreObject& object : restore.objects) {
    if (!hosts.ok()) break;
    auto copy = std::make_unique<Ledger>();
    copy->rid = object.rid;
    copy->index = static_cast<size_t>(world_.oracle().IndexOf(object.rid));
    Reader reader(object.checkpoint);
    for (const LedgerEntry& entry : Decoded<std::vector<LedgerEntry>>(reader)) copy->Append(entry);
    hosts->push_back(copy.get());
    copies_[copy.get()] = std::move(copy);
  }
  Actions out;
  cores_->OnRestored(restore.migration, hosts, world_.now(), out);
  Perform(out);
}

}  // namespace abacus::runtime::sim
