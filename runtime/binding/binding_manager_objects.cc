// The binding manager's objects: their entries and slots, their managers, and where they are.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/binding/binding_manager.h"

namespace abacus::runtime {
namespace {

constexpr std::chrono::seconds kEndPatience{10};
constexpr std::chrono::milliseconds kEndPoll{1};

}  // namespace

Entry* BindingManager::NewEntry(const Rid& rid, uint32_t slot) {
  auto* entry = new Entry;
  entry->rid = rid;
  entry->invoker = this;
  entry->slot = slot;
  slots_[entry->slot] = entry;
  entries_[rid] = entry;
  return entry;
}

uint32_t BindingManager::NewSlot() {
  MutexLock lock(entries_mutex_);
  return ++last_slot_;
}

Entry* BindingManager::Intern(const Rid& rid) {
  MutexLock lock(entries_mutex_);
  const auto it = entries_.find(rid);
  Entry* entry = it != entries_.end() ? it->second : NewEntry(rid, ++last_slot_);
  entry->references.fetch_add(1, std::memory_order_relaxed);
  return entry;
}

void BindingManager::Unreferenced(Entry* entry) {
  MutexLock lock(entries_mutex_);
  // Somebody may have interned it again.
  if (entry->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  entries_.erase(entry->rid);
  slots_.erase(entry->slot);
  gone_slots_[entry->slot] = {entry->rid, entry->info};
  retired_slots_.push_back(entry->slot);
  delete entry->turn;
  delete entry;
}

BindingManager::SlotInfo BindingManager::Slot(uint32_t slot) const {
  MutexLock lock(entries_mutex_);
  if (const auto it = slots_.find(slot); it != slots_.end()) {
    return {it->second->rid, it->second->info};
  }
  const auto gone = gone_slots_.find(slot);
  return gone != gone_slots_.end() ? gone->second : SlotInfo();
}

std::vector<uint32_t> BindingManager::TakeRetiredSlots() {
  MutexLock lock(entries_mutex_);
  return std::exchange(retired_slots_, {});
}

void BindingManager::ForgetSlots(const std::vector<uint32_t>& slots) {
  absl::flat_hash_set<uint32_t> known;
  uint32_t last = 0;
  {
    MutexLock lock(entries_mutex_);
    last = last_slot_;
    for (const uint32_t slot : slots) gone_slots_.erase(slot);
    for (const auto& [slot, info] : gone_slots_) known.insert(slot);
    for (const auto& [slot, entry] : slots_) known.insert(slot);
  }
  // Slots that have been given since are known too.
  const auto is_known = [&](uint32_t slot) { return slot > last || known.contains(slot); };
  threads().PruneAccounts(
      [&](EdgeKey key) { return is_known(CallerOf(key)) && is_known(CalleeOf(key)); });
}

bool BindingManager::HasRow(const Rid& rid) const {
  MutexLock lock(core_mutex_);
  Core& core = const_cast<Core&>(core_);
  return core.locations().FindRow(rid) != nullptr;
}

void BindingManager::SetObject(Entry* entry, std::unique_ptr<MobileObject> object,
                               const ClassInfo* info) {
  entry->object = object.release();
  if (info != nullptr && info->one_at_a_time && entry->turn == nullptr) entry->turn = new Turn;
  {
    MutexLock lock(entries_mutex_);  // Slot() looks at it
    entry->info = info;
  }
  // The object's reference to itself keeps the entry while it is here.
  if (entry->object != nullptr) {
    entry->references.fetch_add(1, std::memory_order_relaxed);
    Name(*entry->object, RefBase(entry));
  }
}

// Gives a new object its name. The gate opens last.
RefBase BindingManager::Enter(std::unique_ptr<MobileObject> object, const ClassInfo* info,
                              uint32_t slot) {
  const bool anchored = info == nullptr || info->anchored;
  Entry* entry = nullptr;
  WithCore([&](Core& core, Nanos, Actions&) {
    ObjectState& state = core.Create(nullptr, anchored);
    {
      MutexLock lock(entries_mutex_);
      entry = NewEntry(state.rid, slot);
      // For its presence (see Remove()), and for whom it is made. Here: once the core is free the
      // object can be moved away, and its presence ends.
      entry->references.fetch_add(2, std::memory_order_relaxed);
    }
    SetObject(entry, std::move(object), info);
    state.host = entry;
    // A console has nothing to be called: its gate stays shut.
    if (info != nullptr) SetGate(state, Gate::kOpen);
  });
  return RefBase(entry);
}

RefBase BindingManager::NewConsole() { return Enter(nullptr, nullptr, NewSlot()); }

RefBase BindingManager::AdoptObject(std::unique_ptr<MobileObject> object,
                                    std::string_view class_name) {
  const ClassInfo* info = types_.Find(class_name);
  assert(info != nullptr && "the class was not added to the ObjectTypes");
  return Enter(std::move(object), info, NewSlot());
}

absl::StatusOr<RefBase> BindingManager::CreateObject(std::string_view class_name,
                                                     const Payload& init) {
  const ClassInfo* info = types_.Find(class_name);
  if (info == nullptr) {
    return MakeError(ErrorKind::kNoSuchClass,
                     absl::StrCat("this program was not built with class ", ToAbsl(class_name)));
  }
  ABACUS_ASSIGN_OR_RETURN(ObjectManager * manager, ManagerOf(*info));
  // What its constructor and Init() allocate is its own, and not its creator's.
  const uint32_t slot = NewSlot();
  const monitor::MemoryScope memory(slot);
  ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<MobileObject> object, manager->CreateObj(*info, 0));
  Reader arguments(init, this);
  if (absl::Status status = info->init(*object, arguments); !status.ok()) {
    manager->Released(*object);
    return status;
  }
  return Enter(std::move(object), info, slot);
}

absl::StatusOr<ObjectManager*> BindingManager::ManagerOf(const ClassInfo& info) {
  MutexLock lock(managers_mutex_);
  auto& manager = managers_[&info];
  if (manager == nullptr) {
    manager = info.make_manager ? info.make_manager() : std::make_unique<ObjectManager>();
  }
  return manager.get();
}

absl::StatusOr<Entry*> BindingManager::Restore(const Rid& rid, std::string_view class_name,
                                               const Payload& checkpoint) {
  const ClassInfo* info = types_.Find(class_name);
  if (info == nullptr) {
    return MakeError(
        ErrorKind::kNoSuchClass,
        absl::StrCat("node ", self_.ToString(), " was not built with class ", ToAbsl(class_name)));
  }
  ABACUS_ASSIGN_OR_RETURN(
      CheckpointReader reader,
      CheckpointReader::Open(checkpoint, class_name, info->state_version, this));
  ABACUS_ASSIGN_OR_RETURN(ObjectManager * manager, ManagerOf(*info));
  const RefBase keep(Intern(rid));
  // What the object holds came with it.
  const monitor::MemoryScope memory(keep.entry()->slot);
  ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<MobileObject> object,
                          manager->CreateObj(*info, checkpoint.bytes()));
  absl::Status status = object->Restore(reader);
  if (status.ok()) status = reader.status();
  if (status.ok() && !reader.AtEnd()) {
    status = MakeError(ErrorKind::kBadCheckpoint, "the class reads fewer values than were written");
  }
  if (!status.ok()) {
    manager->Released(*object);
    return status;
  }
  Entry* entry = Intern(rid);
  SetObject(entry, std::move(object), info);
  return entry;
}

void BindingManager::Remove(Entry* entry) { Delete(entry, std::exchange(entry->object, nullptr)); }

void BindingManager::Delete(Entry* entry, MobileObject* object) {
  std::unique_ptr<MobileObject> owned(object);
  if (object != nullptr && entry->info != nullptr) {
    if (absl::StatusOr<ObjectManager*> manager = ManagerOf(*entry->info); manager.ok()) {
      (*manager)->Released(*object);
    }
  }
  owned.reset();           // with it goes its reference to itself
  RefBase(entry).Reset();  // and the one that stood for its presence
}

absl::Status BindingManager::Destroy(const Rid& rid) {
  return WithCore([&](Core& core, Nanos, Actions& out) { return core.Destroy(rid, out); });
}

namespace {

BindingManager::ObjectStatus StatusOf(const ObjectState& state, const Entry& entry) {
  return {.rid = state.rid,
          .class_name = entry.info != nullptr ? entry.info->name : "console",
          .slot = entry.slot,
          .epoch = state.epoch,
          .anchored = state.anchored,
          .hosted = state.hosted(),
          .moving = state.moving != nullptr};
}

}  // namespace

std::vector<BindingManager::ObjectStatus> BindingManager::Objects(size_t max) const {
  std::vector<ObjectStatus> objects;
  MutexLock lock(core_mutex_);
  const_cast<Core&>(core_).ForEachObject([&](const ObjectState& state) {
    const auto* entry = static_cast<const Entry*>(state.host);
    if (objects.size() < max && entry != nullptr) objects.push_back(StatusOf(state, *entry));
  });
  return objects;
}

std::vector<BindingManager::ObjectStatus> BindingManager::ObjectsOf(
    const std::set<uint32_t>& slots) const {
  std::vector<ObjectStatus> objects;
  MutexLock lock(core_mutex_);
  for (const uint32_t slot : slots) {
    const ObjectState* state = const_cast<Core&>(core_).Find(Slot(slot).rid);
    if (state == nullptr || state->host == nullptr || !state->hosted()) continue;
    objects.push_back(StatusOf(*state, *static_cast<const Entry*>(state->host)));
  }
  return objects;
}

std::optional<LocationHint> BindingManager::Locate(const Rid& rid) const {
  MutexLock lock(core_mutex_);
  Core& core = const_cast<Core&>(core_);
  if (const ObjectState* state = core.Find(rid); state != nullptr && state->hosted()) {
    return LocationHint{self_, state->epoch};
  }
  return core.locations().Find(rid);
}

CoreCounters BindingManager::Counters() const {
  MutexLock lock(core_mutex_);
  return const_cast<Core&>(core_).counters();
}

std::vector<Entry*> BindingManager::Hosted() const {
  std::vector<Entry*> hosted;
  MutexLock lock(entries_mutex_);
  for (const auto& [rid, entry] : entries_) {
    // Entries without an object may go with the last object that refers to them.
    if (entry->object != nullptr) hosted.push_back(entry);
  }
  return hosted;
}

void BindingManager::EndObjects() {
  if (std::exchange(ended_, true)) return;
  Fence(MakeError(ErrorKind::kNodeUnreachable, "this node has stopped"), /*for_good=*/true);
  const auto give_up = std::chrono::steady_clock::now() + kEndPatience;
  for (bool first = true; !NobodyInside(Hosted(), first); first = false) {
    if (std::chrono::steady_clock::now() >= give_up) {
      spdlog::error("objects are ended with threads inside: none has left for {} s",
                    kEndPatience.count());
      break;
    }
    std::this_thread::sleep_for(kEndPoll);
  }
  for (Entry* entry : Hosted()) {
    delete std::exchange(entry->object, nullptr);
  }
  hook_ = nullptr;
  observer_ = nullptr;
}

}  // namespace abacus::runtime
