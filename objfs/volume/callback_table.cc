#include "objfs/volume/callback_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace abacus::objfs {

// -- clients --------------------------------------------------------------------------------------

void CallbackTable::Join(uint16_t writer, Nanos now) {
  clients_[writer].ends = now + options_.lease;
}

bool CallbackTable::Renew(uint16_t writer, Nanos now) {
  const auto client = clients_.find(writer);
  if (client == clients_.end()) return false;
  client->second.ends = std::max(client->second.ends, now + options_.lease);
  return true;
}

void CallbackTable::Leave(uint16_t writer, Nanos now) {
  Forget(writer);
  Settle(now);
}

void CallbackTable::Forget(uint16_t writer) {
  clients_.erase(writer);
  for (auto& [id, object] : objects_) {
    size_t gone = object.holders.erase(writer) + object.knowers.erase(writer);
    gone += std::erase_if(object.queue,
                          [writer](const Waiter& waiter) { return waiter.writer == writer; });
    if (gone > 0) changed_.insert(id);
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
      return IsPromise(earlier);
    case Want::kShare:
      return earlier == Want::kChange || earlier == Want::kWrite || earlier == Want::kTogether;
    case Want::kWrite:
      return earlier != Want::kAlter;
    case Want::kAlter:
      return false;
    case Want::kTogether:  // beside each other; but also a look comes, however many share
      return earlier != Want::kAlter && earlier != Want::kTogether;
  }
  return true;
}

bool CallbackTable::IsInTheWay(uint16_t writer, Want want, uint16_t other, const Holder& holder) {
  if (want == Want::kAlter) return false;  // bytes are another matter
  // One's own promise that is being broken is given back first.
  if (other == writer) return holder.breaking && IsPromise(want);
  if (want == Want::kTogether) return !holder.together || holder.breaking;
  return holder.excludes() || want == Want::kChange || want == Want::kWrite;
}

bool CallbackTable::IsHindered(const Object& object, uint16_t writer, Want want) {
  for (const auto& [other, holder] : object.holders) {
    if (IsInTheWay(writer, want, other, holder)) return true;
  }
  if (StopsKnowing(want) && IsKnownToOthers(object, writer)) return true;
  if (!IsPromise(want)) return false;
  return std::any_of(object.changing.begin(), object.changing.end(),
                     [writer](const auto& change) { return change.first != writer; });
}

bool CallbackTable::StopsKnowing(Want want) {
  return want == Want::kChange || want == Want::kWrite || want == Want::kAlter ||
         want == Want::kTogether;
}

bool CallbackTable::IsKnownToOthers(const Object& object, uint16_t writer) {
  return object.knowers.size() > object.knowers.count(writer);
}

// Nobody before whom it would have to be forgotten again.
bool CallbackTable::MayBeKnown(const Object& object, Nanos now) {
  if (!object.changing.empty() || object.altering > 0 || now < object.quiet_until) return false;
  return std::none_of(object.holders.begin(), object.holders.end(),
                      [](const auto& holder) { return holder.second.excludes(); }) &&
         std::none_of(object.queue.begin(), object.queue.end(),
                      [](const Waiter& waiter) { return StopsKnowing(waiter.want); });
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
  if (!IsPromise(want)) return;
  const size_t served = std::erase_if(object->queue, [&](const Waiter& waiter) {
    if (waiter.writer != writer) return false;
    // Who asks to have it together does not want it for itself any more: such a wait would break
    // what the others have now. A call that does asks again.
    if (want == Want::kTogether) return waiter.want == Want::kLook || IsPromise(waiter.want);
    return waiter.want == Want::kLook || waiter.want == Want::kShare || want == Want::kWrite;
  });
  if (served > 0) actions_.push_back({Action::Kind::kWake, writer, id, {}});
}

CallbackTable::Answer CallbackTable::Ask(ObjectId id, uint16_t writer, Want want, Version stamp,
                                         Nanos now, Version* given, bool* together) {
  if (!clients_.contains(writer)) return Answer::kLeft;
  if (want == Want::kLook && !objects_.contains(id)) return Answer::kGranted;
  Object& object = objects_[id];
  changed_.insert(id);
  const auto own = object.holders.find(writer);
  const bool holds = own != object.holders.end();
  // What was kept from the store may always be brought there: somebody may be waiting for it.
  const bool writes_back = want == Want::kChange && holds && own->second.may_write;
  const bool has_it = holds && !own->second.breaking && Has(own->second, want);
  const auto place = std::find_if(
      object.queue.begin(), object.queue.end(),
      [&](const Waiter& waiter) { return waiter.writer == writer && waiter.want == want; });
  if (!writes_back && !has_it &&
      (IsHindered(object, writer, want) || IsBehind(object, writer, want))) {
    timed_.insert(id);
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
  if (IsPromise(want)) {
    Holder& holder = object.holders[writer];
    if (!has_it) holder = Promised(want, /*is_alone=*/object.holders.size() == 1, stamp, now);
    if (want == Want::kWrite) holder.shares_until = 0;
    if (given != nullptr) *given = holder.given;
    if (together != nullptr) *together = holder.together;
  }
  Settle(now);
  return Answer::kGranted;
}

bool CallbackTable::Has(const Holder& holder, Want want) {
  switch (want) {
    case Want::kShare:
      return !holder.together;
    case Want::kWrite:
      return holder.may_write;
    case Want::kTogether:
      return holder.excludes();
    case Want::kLook:
    case Want::kChange:
    case Want::kAlter:
      return false;
  }
  return false;
}

// Where it is wanted together and others are there, they have it together: nothing else was in the
// way.
CallbackTable::Holder CallbackTable::Promised(Want want, bool is_alone, Version stamp,
                                              Nanos now) const {
  Holder holder;
  holder.given = stamp;
  holder.together = want == Want::kTogether && !is_alone;
  holder.may_write = want == Want::kWrite || (want == Want::kTogether && is_alone);
  if (want == Want::kTogether && is_alone) holder.shares_until = now + options_.share;
  return holder;
}

bool CallbackTable::Share(ObjectId id, uint16_t writer, Nanos now) {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return false;
  const auto found = object->second.holders.find(writer);
  if (found == object->second.holders.end()) return false;
  Holder& holder = found->second;
  if (!holder.may_write || holder.breaking) return false;
  holder.may_write = false;
  holder.together = true;
  holder.shares_until = 0;
  changed_.insert(id);
  Settle(now);
  return true;
}

void CallbackTable::StayAlone(ObjectId id, uint16_t writer, Nanos now) {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return;
  const auto holder = object->second.holders.find(writer);
  if (holder == object->second.holders.end()) return;
  holder->second.shares_until = 0;
  changed_.insert(id);
  Settle(now);
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
  std::erase_if(object->second.queue, [writer](const Waiter& waiter) {
    return waiter.writer == writer && waiter.want != Want::kAlter;
  });
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

bool CallbackTable::IsShared(ObjectId id, uint16_t writer) const {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return false;
  const auto holder = object->second.holders.find(writer);
  return holder != object->second.holders.end() && holder->second.together;
}

// -- what is known beside the bytes ---------------------------------------------------------------

bool CallbackTable::Know(ObjectId id, uint16_t writer, Version stamp, Nanos now) {
  const auto client = clients_.find(writer);
  if (client == clients_.end()) return false;
  const auto found = objects_.find(id);
  if (found != objects_.end()) {
    if (!MayBeKnown(found->second, now)) return false;
    const auto own = found->second.knowers.find(writer);
    if (own != found->second.knowers.end()) {
      if (own->second.breaking) return false;
      // A new promise: what the client gives back of the old one is not of this.
      own->second.given = stamp;
      return true;
    }
  }
  if (client->second.knows >= options_.knows_max) return false;
  ++client->second.knows;
  objects_[id].knowers[writer] = {stamp, false};
  return true;
}

void CallbackTable::Forgotten(ObjectId id, uint16_t writer, Version given, Nanos now) {
  const auto object = objects_.find(id);
  if (object == objects_.end()) return;
  const auto knower = object->second.knowers.find(writer);
  if (knower == object->second.knowers.end() || knower->second.given > given) return;
  object->second.knowers.erase(knower);
  --clients_[writer].knows;
  changed_.insert(id);
  Settle(now);
}

CallbackTable::Answer CallbackTable::Alter(const std::vector<ObjectId>& ids, uint16_t writer,
                                           Nanos now) {
  if (!clients_.contains(writer)) return Answer::kLeft;
  const auto hinders = [&](ObjectId id) {
    const auto object = objects_.find(id);
    return object != objects_.end() && IsKnownToOthers(object->second, writer);
  };
  const bool waits = std::any_of(ids.begin(), ids.end(), hinders);
  for (const ObjectId id : ids) {
    Object& object = objects_[id];
    const auto place =
        std::find_if(object.queue.begin(), object.queue.end(), [&](const Waiter& waiter) {
          return waiter.writer == writer && waiter.want == Want::kAlter;
        });
    if (!waits) {
      ++object.altering;
      if (place != object.queue.end()) object.queue.erase(place);
      continue;
    }
    changed_.insert(id);
    timed_.insert(id);
    // Where nothing is in the way it has its turn, which keeps others from knowing the object until
    // the rest is free too.
    const std::optional<Nanos> woken = hinders(id) ? std::nullopt : std::optional<Nanos>(now);
    if (place == object.queue.end()) {
      object.queue.push_back({writer, Want::kAlter, woken});
    } else {
      place->woken = woken;
    }
  }
  if (!waits) return Answer::kGranted;
  Settle(now);
  return Answer::kWait;
}

void CallbackTable::GoOnAltering(const std::vector<ObjectId>& ids) {
  for (const ObjectId id : ids) ++objects_[id].altering;
}

void CallbackTable::EndAlter(const std::vector<ObjectId>& ids, Nanos now) {
  for (const ObjectId id : ids) {
    const auto object = objects_.find(id);
    if (object == objects_.end() || object->second.altering == 0) continue;
    --object->second.altering;
    if (object->second.empty(now)) objects_.erase(object);
  }
}

size_t CallbackTable::KnownBy(uint16_t writer) const {
  const auto client = clients_.find(writer);
  return client == clients_.end() ? 0 : client->second.knows;
}

// -- time, and what follows -----------------------------------------------------------------------

void CallbackTable::Tick(Nanos now) {
  std::vector<uint16_t> silent;
  for (const auto& [writer, client] : clients_) {
    if (client.ends + options_.lease <= now) silent.push_back(writer);
  }
  for (const uint16_t writer : silent) {
    silent_.push_back(writer);
    Forget(writer);
  }
  // Of very many objects that are known, these are few.
  for (auto timed = timed_.begin(); timed != timed_.end();) {
    const auto found = objects_.find(*timed);
    const bool waits = found != objects_.end() && !found->second.queue.empty();
    if (found != objects_.end()) changed_.insert(*timed);
    if (waits) {
      std::erase_if(found->second.queue, [&](const Waiter& waiter) {
        return waiter.woken.has_value() && *waiter.woken + options_.turn <= now;
      });
    }
    const bool stays = waits || (found != objects_.end() && found->second.quiet_until > now);
    timed = stays ? std::next(timed) : timed_.erase(timed);
  }
  Settle(now);
}

void CallbackTable::Settle(Nanos now) {
  while (!changed_.empty()) {
    const ObjectId id = *changed_.begin();
    changed_.erase(changed_.begin());
    Advance(id, now);
    const auto object = objects_.find(id);
    if (object != objects_.end() && object->second.empty(now)) objects_.erase(object);
  }
}

bool CallbackTable::HasLapsed(ObjectId id, uint16_t other, Nanos now) {
  if (clients_[other].ends > now) return false;
  // It serves nobody from what it keeps any more: nobody has to wait for its answer.
  silent_.push_back(other);
  Forget(other);
  changed_.insert(id);
  return true;
}

void CallbackTable::Advance(ObjectId id, Nanos now) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return;
  Object& object = found->second;
  // Turns of those that were woken and did not come.
  std::erase_if(object.queue, [&](const Waiter& waiter) {
    return waiter.woken.has_value() && *waiter.woken + options_.turn <= now;
  });
  for (Waiter& waiter : object.queue) {
    if (waiter.woken.has_value() || IsBehind(object, waiter.writer, waiter.want)) continue;
    for (auto& [other, holder] : object.holders) {
      if (!IsInTheWay(waiter.writer, waiter.want, other, holder)) continue;
      if (HasLapsed(id, other, now)) return;
      if (holder.breaking) continue;
      // It makes the object ready for this one.
      if (waiter.want == Want::kTogether && holder.shares_until > now) continue;
      holder.breaking = true;
      actions_.push_back({holder.excludes() ? Action::Kind::kRecall : Action::Kind::kInvalidate,
                          other, id, holder.given});
    }
    if (StopsKnowing(waiter.want) && TellToForget(id, waiter.writer, &object, now)) return;
    if (IsHindered(object, waiter.writer, waiter.want)) continue;
    waiter.woken = now;
    actions_.push_back({Action::Kind::kWake, waiter.writer, id, {}});
  }
}

bool CallbackTable::TellToForget(ObjectId id, uint16_t writer, Object* object, Nanos now) {
  for (auto& [other, knower] : object->knowers) {
    if (other == writer) continue;
    if (HasLapsed(id, other, now)) return true;
    if (knower.breaking) continue;
    knower.breaking = true;
    object->quiet_until = now + options_.quiet;
    timed_.insert(id);
    actions_.push_back({Action::Kind::kForget, other, id, knower.given});
  }
  return false;
}

std::vector<CallbackTable::Action> CallbackTable::TakeActions() {
  return std::exchange(actions_, {});
}
std::vector<uint16_t> CallbackTable::TakeSilent() { return std::exchange(silent_, {}); }

}  // namespace abacus::objfs
