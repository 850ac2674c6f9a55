#include "objfs/volume/callback_table.h"

#include <algorithm>
#include <utility>

namespace abacus::objfs {

// -- clients --------------------------------------------------------------------------------------

void CallbackTable::Join(uint16_t writer, Nanos now) { clients_[writer] = now + options_.lease; }

bool CallbackTable::Renew(uint16_t writer, Nanos now) {
  const auto client = clients_.find(writer);
  if (client == clients_.end()) return false;
  client->second = std::max(client->second, now + options_.lease);
  return true;
}

void CallbackTable::Leave(uint16_t writer, Nanos now) {
  Forget(writer);
  Settle(now);
}

void CallbackTable::Forget(uint16_t writer) {
  clients_.erase(writer);
  for (auto& [id, object] : objects_) {
    const size_t before = object.holders.size() + object.queue.size();
    object.holders.erase(writer);
    std::erase_if(object.queue, [writer](const Waiter& waiter) { return waiter.writer == writer; });
    if (object.holders.size() + object.queue.size() != before) changed_.insert(id);
  }
}

// -- what hinders whom ----------------------------------------------------------------------------

// Looks and changes keep nothing, so that they go beside each other. All else is first come, first
// served: neither readers nor writers can keep the others waiting for ever.
bool CallbackTable::Follows(Want want, Want earlier) {
  switch (want) {
    case Want::kLook:
      return false;
    case Want::kChange:
      return earlier == Want::kShare || earlier == Want::kWrite;
    case Want::kShare:
      return earlier == Want::kChange || earlier == Want::kWrite;
    case Want::kWrite:
      return true;
  }
  return true;
}

bool CallbackTable::IsInTheWay(uint16_t writer, Want want, uint16_t other, const Holder& holder) {
  // One's own promise that is being broken is given back first.
  if (other == writer) return holder.breaking && (want == Want::kShare || want == Want::kWrite);
  return holder.may_write || want == Want::kChange || want == Want::kWrite;
}

bool CallbackTable::IsHindered(const Object& object, uint16_t writer, Want want) {
  for (const auto& [other, holder] : object.holders) {
    if (IsInTheWay(writer, want, other, holder)) return true;
  }
  if (want == Want::kLook || want == Want::kChange) return false;
  return std::any_of(object.changing.begin(), object.changing.end(),
                     [writer](const auto& change) { return change.first != writer; });
}

bool CallbackTable::IsBehind(const Object& object, uint16_t writer, Want want) {
  for (const Waiter& waiter : object.queue) {
    if (waiter.writer == writer && waiter.want == want) return false;
    if (waiter.writer != writer && Follows(want, waiter.want)) return true;
  }
  return false;
}

// -- promises -------------------------------------------------------------------------------------

void CallbackTable::DropServed(Object* object, ObjectId id, uint16_t writer, Want want) {
  if (want != Want::kShare && want != Want::kWrite) return;
  const size_t served = std::erase_if(object->queue, [&](const Waiter& waiter) {
    return waiter.writer == writer &&
           (waiter.want == Want::kLook || waiter.want == Want::kShare || want == Want::kWrite);
  });
  if (served > 0) actions_.push_back({Action::Kind::kWake, writer, id, {}});
}

CallbackTable::Answer CallbackTable::Ask(ObjectId id, uint16_t writer, Want want, Version stamp,
                                         Nanos now, Version* given) {
  if (!clients_.contains(writer)) return Answer::kLeft;
  if (want == Want::kLook && !objects_.contains(id)) return Answer::kGranted;
  Object& object = objects_[id];
  changed_.insert(id);
  const auto own = object.holders.find(writer);
  const bool holds = own != object.holders.end();
  // What was kept from the store may always be brought there: somebody may be waiting for it.
  const bool writes_back = want == Want::kChange && holds && own->second.may_write;
  const bool has_it = holds && !own->second.breaking &&
                      (want == Want::kShare || (want == Want::kWrite && own->second.may_write));
  const auto place = std::find_if(
      object.queue.begin(), object.queue.end(),
      [&](const Waiter& waiter) { return waiter.writer == writer && waiter.want == want; });
  if (!writes_back && !has_it &&
      (IsHindered(object, writer, want) || IsBehind(object, writer, want))) {
    if (place == object.queue.end()) {
      object.queue.push_back({writer, want, std::nullopt});
    } else {
      place->woken.reset();
    }
    Settle(now);
    return Answer::kWait;
  }
  if (place != object.queue.end()) object.queue.erase(place);
  DropServed(&object, id, writer, want);
  if (want == Want::kChange) ++object.changing[writer];
  if (want == Want::kShare || want == Want::kWrite) {
    Holder& holder = object.holders[writer];
    if (!has_it) holder = {want == Want::kWrite, stamp, false};
    if (given != nullptr) *given = holder.given;
  }
  Settle(now);
  return Answer::kGranted;
}

void CallbackTable::EndChange(ObjectId id, uint16_t writer, Nanos now) {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return;
  const auto change = object->second.changing.find(writer);
  if (change == object->second.changing.end()) return;
  if (--change->second == 0) object->second.changing.erase(change);
  changed_.insert(id);
  Settle(now);
}

void CallbackTable::Broken(ObjectId id, uint16_t writer, Version given, Nanos now) {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return;
  const auto holder = object->second.holders.find(writer);
  if (holder == object->second.holders.end() || holder->second.given > given) return;
  object->second.holders.erase(holder);
  changed_.insert(id);
  Settle(now);
}

void CallbackTable::Pass(ObjectId id, uint16_t writer, Nanos now) {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return;
  const size_t passed = std::erase_if(
      object->second.queue, [writer](const Waiter& waiter) { return waiter.writer == writer; });
  if (passed == 0) return;
  actions_.push_back({Action::Kind::kWake, writer, id, {}});
  changed_.insert(id);
  Settle(now);
}

void CallbackTable::Release(ObjectId id, uint16_t writer, Nanos now) {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return;
  object->second.holders.erase(writer);
  std::erase_if(object->second.queue,
                [writer](const Waiter& waiter) { return waiter.writer == writer; });
  changed_.insert(id);
  Settle(now);
}

uint16_t CallbackTable::WriterOf(ObjectId id) const {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return 0;
  for (const auto& [writer, holder] : object->second.holders) {
    if (holder.may_write) return writer;
  }
  return 0;
}

// -- time, and what follows -----------------------------------------------------------------------

void CallbackTable::Tick(Nanos now) {
  std::vector<uint16_t> silent;
  for (const auto& [writer, ends] : clients_) {
    if (ends + options_.lease <= now) silent.push_back(writer);
  }
  for (const uint16_t writer : silent) {
    silent_.push_back(writer);
    Forget(writer);
  }
  for (auto& [id, object] : objects_) {
    if (object.queue.empty()) continue;
    std::erase_if(object.queue, [&](const Waiter& waiter) {
      return waiter.woken.has_value() && *waiter.woken + options_.turn <= now;
    });
    changed_.insert(id);
  }
  Settle(now);
}

void CallbackTable::Settle(Nanos now) {
  while (!changed_.empty()) {
    const ObjectId id = *changed_.begin();
    changed_.erase(changed_.begin());
    Advance(id, now);
    const auto object = objects_.find(id);
    if (object != objects_.end() && object->second.empty()) objects_.erase(object);
  }
}

void CallbackTable::Advance(ObjectId id, Nanos now) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return;
  Object& object = found->second;
  for (Waiter& waiter : object.queue) {
    if (waiter.woken.has_value() || IsBehind(object, waiter.writer, waiter.want)) continue;
    for (auto& [other, holder] : object.holders) {
      if (!IsInTheWay(waiter.writer, waiter.want, other, holder)) continue;
      if (clients_[other] <= now) {
        // It serves nobody from what it keeps any more: nobody has to wait for its answer.
        silent_.push_back(other);
        Forget(other);
        changed_.insert(id);
        return;
      }
      if (holder.breaking) continue;
      holder.breaking = true;
      actions_.push_back({holder.may_write ? Action::Kind::kRecall : Action::Kind::kInvalidate,
                          other, id, holder.given});
    }
    if (IsHindered(object, waiter.writer, waiter.want)) continue;
    waiter.woken = now;
    actions_.push_back({Action::Kind::kWake, waiter.writer, id, {}});
  }
}

std::vector<CallbackTable::Action> CallbackTable::TakeActions() {
  return std::exchange(actions_, {});
}
std::vector<uint16_t> CallbackTable::TakeSilent() { return std::exchange(silent_, {}); }

}  // namespace abacus::objfs
