#include "runtime/testing/sim_oracle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/testing/sim_world.h"

namespace abacus::runtime::sim {
namespace {

uint64_t Mix(uint64_t digest, uint64_t number) {
  digest = (digest ^ number) * 0x9e3779b97f4a7c15;
  return digest ^ (digest >> 29);
}

std::string Describe(const CallRecord& call) {
  return absl::StrCat("call ", call.number, " of ", call.caller.ToString(), " to object ",
                      call.object, " in activity ", call.activity.ToString());
}

}  // namespace

void Ledger::Append(const LedgerEntry& entry) {
  entries.push_back(entry);
  digest = Mix(digest, entry.number);
}

void Oracle::Fail(const std::string& check, const std::string& what) {
  if (failed()) return;
  check_ = check;
  what_ = what;
  if (world_.tracing()) world_.Trace(absl::StrCat("BROKEN: ", check, ": ", what));
}

size_t Oracle::AddObject(const Rid& rid, NodeInstance holder) {
  const size_t index = objects_.size();
  ObjectRecord& record = objects_.emplace_back();
  record.rid = rid;
  record.holder = record.previous_holder = holder;
  index_[rid] = index;
  return index;
}

int Oracle::IndexOf(const Rid& rid) const {
  const auto it = index_.find(rid);
  return it == index_.end() ? -1 : static_cast<int>(it->second);
}

CallRecord& Oracle::NewCall(const Script* script, uint64_t parent, NodeInstance caller,
                            const ActivityId& activity) {
  auto record = std::make_unique<CallRecord>();
  record->number = calls_.size() + 1;
  record->parent = parent;
  record->object = script->object;
  record->activity = activity;
  record->caller = caller;
  record->script = script;
  ++world_.stats()[Stat::kCallsBegun];
  for (uint64_t outer = parent; outer != 0; outer = call(outer).parent) {
    if (call(outer).object != record->object) continue;
    ++world_.stats()[Stat::kCallbacks];
    break;
  }
  return *calls_.emplace_back(std::move(record));
}

// Nobody waits for it: its caller has given it up, or the caller's own caller has.
bool Oracle::Detached(const CallRecord& record) const {
  for (const CallRecord* c = &record;; c = calls_[c->parent - 1].get()) {
    if (c->end != CallRecord::End::kNone) return true;
    if (c->parent == 0) return false;
  }
}

void Oracle::OnRun(SimNode& node, Ledger& copy, CallRecord& record, uint32_t level,
                   uint64_t sequence) {
  ObjectRecord& object = objects_[copy.index];
  if (world_.tracing()) {
    world_.Trace(absl::StrCat(node.self().ToString(), " runs ", Describe(record), " level ", level,
                              " sequence ", sequence));
  }
  const std::string where = absl::StrCat(Describe(record), " on ", node.self().ToString());
  const ObjectState* state = node.cores().Find(copy.rid);
  if (state == nullptr || !state->hosted() || state->host != &copy) {
    return Fail("one-live-copy", absl::StrCat(where, " runs in a copy that is not live"));
  }
  if (record.object != copy.index) {
    return Fail("wrong-object", absl::StrCat(where, " runs in object ", copy.index));
  }
  if (record.ran) {
    return Fail("ran-twice", absl::StrCat(where, " has run before, on ", record.ran_on.ToString()));
  }
  // (A source that never heard that its target had the object, and lost it, takes it back when the
  // home is dead too.)
  if (object.destroyed || (object.seen_lost && world_.Alive(object.rid.home))) {
    return Fail("zombie", absl::StrCat(where, " runs in an object that is gone"));
  }
  if (copy.entries.size() != object.ran.size() || copy.digest != object.digest) {
    return Fail("latest-state", absl::StrCat(where, " sees ", copy.entries.size(),
                                             " calls before it; ", object.ran.size(), " have run"));
  }
  if (record.end == CallRecord::End::kNotRun && !record.copied) {
    return Fail("not-run", absl::StrCat(where, " runs after its caller was told that it did not: ",
                                        record.status.ToString()));
  }
  if (!Detached(record)) {
    uint64_t& newest = object.newest[record.activity];
    if (newest > record.number) {
      return Fail("order", absl::StrCat(where, " runs after call ", newest, " of its activity"));
    }
    newest = record.number;
  }
  const LedgerEntry entry{record.activity, level, sequence, record.number};
  copy.Append(entry);
  object.ran.push_back(entry);
  object.digest = copy.digest;
  record.ran = true;
  record.ran_on = node.self();
  record.value = copy.digest;
}

void Oracle::OnLeave(SimNode& node, const Ledger& copy, const CallRecord& record) {
  const ObjectState* state = node.cores().Find(objects_[record.object].rid);
  if (state == nullptr || !state->hosted() || state->host != &copy) {
    Fail("moved-under-call", absl::StrCat(Describe(record), " on ", node.self().ToString(),
                                          " returns from an object that has left"));
  }
}

void Oracle::OnEnd(CallRecord& record, const absl::Status& status, uint64_t value) {
  if (world_.tracing()) {
    world_.Trace(absl::StrCat(Describe(record), " ended: ", status.ToString()));
  }
  if (record.end != CallRecord::End::kNone) return Fail("one-answer", Describe(record));
  record.status = status;
  record.kind = KindOf(status);
  if (status.ok()) {
    record.end = CallRecord::End::kOk;
    ++world_.stats()[Stat::kCallsOk];
    if (!record.ran) Fail("ok-but-not-run", Describe(record));
    if (record.ran && value != record.value) Fail("wrong-result", Describe(record));
  } else if (record.kind == ErrorKind::kOutcomeUnknown) {
    record.end = CallRecord::End::kUnknown;
    ++world_.stats()[Stat::kCallsUnknown];
  } else {
    record.end = CallRecord::End::kNotRun;
    ++world_.stats()[Stat::kCallsNotRun];
    if (record.ran && !record.copied) {
      Fail("not-run", absl::StrCat(Describe(record),
                                   " ran, and its caller was told that it did "
                                   "not: ",
                                   status.ToString()));
    }
    if (record.kind == ErrorKind::kNone) {
      Fail("typed-error", absl::StrCat(Describe(record), ": ", status.ToString()));
    }
  }
}

void Oracle::OnDestroyed(size_t object) {
  objects_[object].destroyed = true;
  ++world_.stats()[Stat::kDestroyed];
}

void Oracle::OnCrash(NodeInstance dead) {
  for (size_t i = 0; i < objects_.size(); ++i) {
    ObjectRecord& object = objects_[i];
    if (object.holder == dead) {
      object.may_be_lost = true;
    } else if (!world_.Alive(object.rid.home) && !world_.Alive(object.previous_holder) &&
               world_.HostOf(i) == nullptr) {
      // Committed, but those who knew are dead: the target must not guess.
      object.may_be_lost = true;
    }
  }
  for (const auto& record : calls_) {
    if (record->caller == dead && record->end == CallRecord::End::kNone) {
      record->end = CallRecord::End::kCallerDied;
    }
  }
}

void Oracle::AfterEvent(SimNode& node) {
  node.hosts.resize(objects_.size(), false);
  for (size_t i = 0; i < objects_.size(); ++i) {
    ObjectRecord& object = objects_[i];
    const ObjectState* state = node.cores().Find(object.rid);
    const bool hosts = state != nullptr && state->hosted();
    if (hosts && !node.hosts[i]) {
      const SimNode* other = world_.HostOf(i);
      if (other != nullptr && other != &node) {
        Fail("one-live-copy", absl::StrCat("object ", i, " is live on ", node.self().ToString(),
                                           " and on ", other->self().ToString()));
      }
      if (object.destroyed) Fail("zombie", absl::StrCat("object ", i, " was destroyed"));
      if (object.seen_lost) Fail("lost", absl::StrCat("object ", i, " was called lost, but lives"));
    }
    if (hosts && state->epoch != object.host_epoch) {
      if (state->epoch < object.host_epoch) {
        Fail("epoch", absl::StrCat("object ", i, " went from epoch ", object.host_epoch, " to ",
                                   state->epoch));
      }
      if (node.hosts[i] && state->epoch == object.host_epoch + 2) {
        ++world_.stats()[Stat::kResumedWithoutHome];
      }
      object.host_epoch = state->epoch;
    }
    node.hosts[i] = hosts;
    // A quiesced copy may have been committed away already.
    const bool serves = hosts && state->phase != ObjectPhase::kQuiesced;
    if (serves && !world_.Alive(object.rid.home)) object.holder = node.self();
    if (object.rid.home == node.self()) CheckRow(node, object);
  }
  CheckInsiders(node);
}

void Oracle::CheckRow(SimNode& home, ObjectRecord& object) {
  const LocationRow* row = home.cores().locations().FindRow(object.rid);
  if (row == nullptr) return;
  if (row->epoch < object.row_epoch) {
    Fail("epoch", absl::StrCat("the row of ", object.rid.ToString(), " went from epoch ",
                               object.row_epoch, " to ", row->epoch));
  }
  object.row_epoch = row->epoch;
  if (row->host != object.holder) {
    object.previous_holder = object.holder;
    object.holder = row->host;
    object.may_be_lost = !world_.Alive(row->host);
  }
  if (row->lost && !object.seen_lost && !object.destroyed) {
    object.seen_lost = true;
    ++world_.stats()[Stat::kObjectsLost];
    const size_t index = static_cast<size_t>(IndexOf(object.rid));
    SimNode* host = world_.HostOf(index);
    // A source that has not heard of the commit still waits behind its gate. It will let go.
    if (host != nullptr && host->cores().Find(object.rid)->phase == ObjectPhase::kQuiesced) {
      host = nullptr;
    }
    if (!object.may_be_lost || host != nullptr) {
      Fail("lost",
           absl::StrCat("object ", index, " (", object.rid.ToString(), ") is called lost, but ",
                        host == nullptr ? object.holder.ToString() : host->self().ToString(),
                        host == nullptr ? " lives" : " hosts it"));
    }
  }
}

// An activity that is inside a moving set is never made to wait for it.
void Oracle::CheckInsiders(SimNode& node) {
  node.cores().ForEachObject([&](const ObjectState& state) {
    if (state.moving == nullptr || state.waiting == nullptr) return;
    const auto check = [&](const ActivityId& root) {
      if (!node.cores().Inside(state.moving->members, root)) return;
      Fail("insider", absl::StrCat("activity ", root.ToString(), " is inside the set of object ",
                                   state.rid.ToString(), " and waits for it"));
    };
    for (const ParkedCall& call : state.waiting->remote) check(call.message.root);
    for (const PendingCall* call : state.waiting->local) check(call->root);
  });
}

void Oracle::AtEnd() {
  world_.ForEachNode([&](SimNode& node) { CheckAtRest(node); });
  for (const auto& record : calls_) {
    if (record->end == CallRecord::End::kNone && world_.Alive(record->caller)) {
      Fail("every-call-ends", Describe(*record));
    }
  }
  for (size_t i = 0; i < objects_.size(); ++i) CheckObjectAtEnd(i);
}

void Oracle::CheckAtRest(SimNode& node) {
  const std::string name = node.self().ToString();
  const SimCores::Load load = node.cores().load();
  if (load.pending + load.running != 0 || node.busy_threads() != 0) {
    Fail("every-call-ends", absl::StrCat(name, " has ", load.pending, " calls out, ", load.running,
                                         " inside, ", node.busy_threads(), " threads busy"));
  }
  if (load.outgoing != 0) Fail("every-move-ends", absl::StrCat(name, " is still moving objects"));
  if (load.incoming != 0) Fail("zombie", absl::StrCat(name, " holds copies nobody decided about"));
  if (load.claims + load.destroyed != 0) Fail("leak", absl::StrCat(name, " still asks or tells"));
  node.cores().ForEachObject([&](const ObjectState& state) {
    const bool at_rest = state.phase == ObjectPhase::kActive && state.moving == nullptr &&
                         state.inside.empty() && !state.destroying &&
                         (state.waiting == nullptr ||
                          (state.waiting->local.empty() && state.waiting->remote.empty()));
    if (!at_rest) {
      Fail("zombie", absl::StrCat("object ", state.rid.ToString(), " on ", name,
                                  " is not at rest: phase ", static_cast<int>(state.phase)));
    }
  });
}

void Oracle::CheckObjectAtEnd(size_t index) {
  ObjectRecord& object = objects_[index];
  const std::string name = absl::StrCat("object ", index, " (", object.rid.ToString(), ")");
  SimNode* host = world_.HostOf(index);
  SimNode* home = world_.Alive(object.rid.home) ? world_.node(object.rid.home.node) : nullptr;
  const LocationRow* row =
      home == nullptr ? nullptr : home->cores().locations().FindRow(object.rid);
  if (object.destroyed) {
    if (host != nullptr) Fail("zombie", absl::StrCat(name, " was destroyed, but lives"));
    if (row != nullptr && !row->lost) Fail("home-row", absl::StrCat(name, ": row of nothing"));
    return;
  }
  if (host == nullptr) {
    if (!object.may_be_lost) Fail("lost", absl::StrCat(name, " is nowhere"));
    if (home != nullptr && (row == nullptr || !row->lost)) {
      Fail("home-row", absl::StrCat(name, " is nowhere, and its home does not know"));
    }
    return;
  }
  const Ledger* copy = host->FindCopy(object.rid);
  if (copy->entries != object.ran) {
    Fail("latest-state", absl::StrCat(name, " remembers ", copy->entries.size(), " calls, ",
                                      object.ran.size(), " ran"));
  }
  if (home == nullptr) return;
  if (row == nullptr || row->lost || row->host != host->self() ||
      row->epoch != host->cores().Find(object.rid)->epoch) {
    Fail("home-row", absl::StrCat(name, " is on ", host->self().ToString(), " at epoch ",
                                  host->cores().Find(object.rid)->epoch, "; the row says ",
                                  row == nullptr ? "nothing" : row->host.ToString(), " at epoch ",
                                  row == nullptr ? 0 : row->epoch));
  }
}

}  // namespace abacus::runtime::sim
