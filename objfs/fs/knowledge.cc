#include "objfs/fs/knowledge.h"

#include <algorithm>
#include <utility>

namespace abacus::objfs {

using runtime::MutexLock;

// -- what there is --------------------------------------------------------------------------------

Knowledge::Known* Knowledge::Shown(ObjectId id) {
  const auto place = places_.find(id);
  if (place == places_.end() || changing_.contains(id) || !place->second->current) return nullptr;
  known_.splice(known_.begin(), known_, place->second);
  return &*place->second;
}

void Knowledge::DropNames(Known* known) {
  names_ -= known->count();
  known->names.clear();
  known->listings.clear();
  known->listed = 0;
}

// Answers that are under way were asked for under what ends here.
void Knowledge::Drop(Place place) {
  ++SlotOf(place->id);
  DropNames(&*place);
  places_.erase(place->id);
  known_.erase(place);
}

void Knowledge::GiveBack(Place place) {
  Return(place->id, place->given);
  Drop(place);
}

void Knowledge::Return(ObjectId id, Version given) {
  returned_.push_back({id, given});
  Version& up_to = returned_up_to_[id % kSlots];
  up_to = std::max(up_to, given);
}

// -- inodes ---------------------------------------------------------------------------------------

std::optional<Node> Knowledge::Find(ObjectId id) {
  MutexLock lock(mutex_);
  const Known* const known = Shown(id);
  return known == nullptr ? std::nullopt : std::optional<Node>(known->node);
}

uint64_t Knowledge::Seen(ObjectId id) {
  MutexLock lock(mutex_);
  return SlotOf(id);
}

void Knowledge::Keep(const Node& node, Version given, uint64_t seen) {
  if (given == Version() || node.id == 0 || node.kept_by != 0) return;
  MutexLock lock(mutex_);
  const auto found = places_.find(node.id);
  const bool late = SlotOf(node.id) != seen || changing_.contains(node.id) ||
                    given <= returned_up_to_[node.id % kSlots];
  // The volume has a promise that is not used; told of that, it need not break it.
  if (late && found == places_.end()) return Return(node.id, given);
  if (found != places_.end()) {
    // Where it was asked for twice at once: the volume remembers the younger promise.
    Known& known = *found->second;
    known.given = std::max(known.given, given);
    if (!late && !known.current) {
      known.node = node;
      known.current = true;
    }
    return;
  }
  known_.push_front({.id = node.id, .node = node, .given = given});
  places_[node.id] = known_.begin();
  while (known_.size() > options_.inodes_max) GiveBack(std::prev(known_.end()));
}

void Knowledge::Forget(ObjectId id, Version given) {
  MutexLock lock(mutex_);
  ++SlotOf(id);
  const auto found = places_.find(id);
  if (found != places_.end() && found->second->given <= given) Drop(found->second);
}

void Knowledge::ForgetAll(bool give_back) {
  MutexLock lock(mutex_);
  for (uint64_t& ended : ended_) ++ended;
  places_.clear();
  if (give_back) {
    for (const Known& known : known_) Return(known.id, known.given);
  }
  known_.clear();
  names_ = 0;
  if (give_back) return;
  returned_.clear();
  returned_up_to_.fill(Version());
}

std::vector<KnownInode> Knowledge::TakeReturned() {
  MutexLock lock(mutex_);
  return std::exchange(returned_, {});
}

void Knowledge::PutBack(const std::vector<KnownInode>& returned) {
  MutexLock lock(mutex_);
  returned_.insert(returned_.end(), returned.begin(), returned.end());
}

// -- names ----------------------------------------------------------------------------------------

std::optional<uint64_t> Knowledge::SeenNames(ObjectId directory) {
  MutexLock lock(mutex_);
  if (Shown(directory) == nullptr) return std::nullopt;
  return SlotOf(directory);
}

Knowledge::Known* Knowledge::Grows(ObjectId directory, uint64_t seen) {
  return SlotOf(directory) == seen ? Shown(directory) : nullptr;
}

void Knowledge::MakeRoom(Known* known, size_t more) {
  if (known->count() + more > options_.names_max / 2) DropNames(known);
  // Its place is the newest: it is the last that would go.
  while (names_ + more > options_.names_max && &known_.back() != known) {
    GiveBack(std::prev(known_.end()));
  }
}

std::optional<std::optional<Entry>> Knowledge::FindName(ObjectId directory,
                                                        const std::string& name) {
  MutexLock lock(mutex_);
  const Known* const known = Shown(directory);
  if (known == nullptr) return std::nullopt;
  const auto found = known->names.find(name);
  if (found == known->names.end()) return std::nullopt;
  return found->second;
}

void Knowledge::KeepName(ObjectId directory, const std::string& name,
                         const std::optional<Entry>& entry, uint64_t seen) {
  MutexLock lock(mutex_);
  Known* const known = Grows(directory, seen);
  if (known == nullptr) return;
  MakeRoom(known, 1);
  if (known->names.insert_or_assign(name, entry).second) ++names_;
}

std::optional<std::vector<ListedEntry>> Knowledge::FindListed(ObjectId directory, uint64_t cookie,
                                                              uint32_t max) {
  MutexLock lock(mutex_);
  const Known* const known = Shown(directory);
  if (known == nullptr) return std::nullopt;
  const auto found = known->listings.find(cookie);
  if (found == known->listings.end() || found->second.max != max) return std::nullopt;
  return found->second.entries;
}

void Knowledge::KeepListed(ObjectId directory, uint64_t cookie, uint32_t max,
                           const std::vector<ListedEntry>& listed, uint64_t seen) {
  MutexLock lock(mutex_);
  Known* const known = Grows(directory, seen);
  // Each is kept twice: by its place, and by its name.
  if (known == nullptr || 2 * listed.size() > options_.names_max / 2) return;
  MakeRoom(known, 2 * listed.size());
  Listing& listing = known->listings[cookie];
  names_ -= listing.entries.size();
  known->listed -= listing.entries.size();
  listing = {max, listed};
  names_ += listed.size();
  known->listed += listed.size();
  for (const ListedEntry& one : listed) {
    if (known->names.insert_or_assign(one.name, one.entry).second) ++names_;
  }
}

// -- the client's own changes ---------------------------------------------------------------------

Knowledge::Change::Change(Knowledge& knowledge, std::vector<ObjectId> ids)
    : knowledge_(knowledge), ids_(std::move(ids)) {
  MutexLock lock(knowledge_.mutex_);
  for (const ObjectId id : ids_) {
    ++knowledge_.SlotOf(id);
    Changing& changing = knowledge_.changing_[id];
    if (++changing.count > 1) changing.several = true;
  }
}

Knowledge::Change::~Change() {
  MutexLock lock(knowledge_.mutex_);
  for (const ObjectId id : ids_) {
    ++knowledge_.SlotOf(id);
    const auto changing = knowledge_.changing_.find(id);
    const bool is_kept =
        !changing->second.several && std::find(became_.begin(), became_.end(), id) != became_.end();
    if (--changing->second.count == 0) knowledge_.changing_.erase(changing);
    const auto place = knowledge_.places_.find(id);
    if (is_kept || place == knowledge_.places_.end()) continue;
    if (of_bytes_) {
      place->second->current = false;
    } else {
      knowledge_.GiveBack(place->second);
    }
  }
}

void Knowledge::Change::Became(const Node& node, const std::vector<EntryChange>& entries) {
  if (node.inode.links == 0 || node.kept_by != 0) return;
  MutexLock lock(knowledge_.mutex_);
  const auto found = knowledge_.places_.find(node.id);
  if (found == knowledge_.places_.end()) return;
  Known& known = *found->second;
  known.node = node;
  known.current = true;
  knowledge_.known_.splice(knowledge_.known_.begin(), knowledge_.known_, found->second);
  knowledge_.names_ -= known.listed;
  known.listings.clear();
  known.listed = 0;
  knowledge_.MakeRoom(&known, static_cast<size_t>(std::count_if(
                                  entries.begin(), entries.end(), [&known](const auto& entry) {
                                    return !known.names.contains(entry.name);
                                  })));
  for (const EntryChange& entry : entries) {
    if (known.names.insert_or_assign(entry.name, entry.after).second) ++knowledge_.names_;
  }
  became_.push_back(node.id);
}

bool Knowledge::IsPromised(ObjectId id) {
  MutexLock lock(mutex_);
  return places_.contains(id);
}

size_t Knowledge::inodes() {
  MutexLock lock(mutex_);
  return known_.size();
}

size_t Knowledge::names() {
  MutexLock lock(mutex_);
  return names_;
}

}  // namespace abacus::objfs
