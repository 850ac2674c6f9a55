#include "objfs/volume/lock_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

bool Overlaps(const LockRange& a, const LockRange& b) {
  return a.first <= b.last && b.first <= a.last;
}

absl::Status CheckRange(const LockRange& range) {
  if (range.first <= range.last) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a lock of bytes ", range.first, " to ", range.last));
}

}  // namespace

bool LockTable::Excludes(const HeldLock& held, uint16_t writer, const LockRequest& request) {
  if (held.writer == writer && held.owner == request.owner) return false;
  return (held.exclusive || request.exclusive) && Overlaps(held.range, request.range);
}

const LockTable::Locks* LockTable::LocksOf(const Key& key) const {
  const auto found = locks_.find(key);
  return found == locks_.end() ? nullptr : &found->second;
}

std::vector<HeldLock> LockTable::Held(ObjectId file, LockKind kind) const {
  const Locks* const locks = LocksOf({file, kind});
  return locks == nullptr ? Locks() : *locks;
}

std::optional<HeldLock> LockTable::Excluding(uint16_t writer, const LockRequest& request) const {
  const Locks* const locks = LocksOf({request.file, request.kind});
  if (locks == nullptr) return std::nullopt;
  for (const HeldLock& held : *locks) {
    if (Excludes(held, writer, request)) return held;
  }
  return std::nullopt;
}

bool LockTable::IsFree(uint16_t writer, const LockRequest& request) const {
  return !Excluding(writer, request).has_value();
}

void LockTable::AddHolders(uint16_t writer, const LockRequest& request,
                           std::vector<Owner>* owners) const {
  const Locks* const locks = LocksOf({request.file, request.kind});
  if (locks == nullptr) return;
  for (const HeldLock& held : *locks) {
    if (Excludes(held, writer, request)) owners->emplace_back(held.writer, held.owner);
  }
}

// Walks from the request to those that it would wait for, from these to those that they wait for,
// and so on. Each owner is looked at once.
bool LockTable::WouldDeadlock(uint16_t writer, const LockRequest& request) const {
  if (request.kind != LockKind::kRecord) return false;
  std::vector<Owner> to_visit;
  AddHolders(writer, request, &to_visit);
  std::set<Owner> visited;
  while (!to_visit.empty()) {
    const Owner owner = to_visit.back();
    to_visit.pop_back();
    if (owner == Owner(writer, request.owner)) return true;
    if (!visited.insert(owner).second) continue;
    for (const Waiting& waiting : waiting_) {
      if (waiting.request.kind == LockKind::kRecord &&
          Owner(waiting.writer, waiting.request.owner) == owner) {
        AddHolders(waiting.writer, waiting.request, &to_visit);
      }
    }
  }
  return false;
}

absl::StatusOr<LockState> LockTable::Lock(uint16_t writer, const LockRequest& request,
                                          Grants* grants) {
  ABACUS_RETURN_IF_ERROR(CheckRange(request.range));
  const Key key(request.file, request.kind);
  const auto mine = of_client_.find(writer);
  // A lock that splits another one makes two of it.
  if (mine != of_client_.end() && mine->second + 2 > kLocksPerClientMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("client ", writer, " has ", mine->second, " locks, the most that it can"));
  }
  if (request.kind == LockKind::kFlock) {
    // What the owner has in the other mode goes first, whether or not the new one is to be had.
    const std::vector<HeldLock> held = Held(request.file, request.kind);
    const bool converts = std::any_of(held.begin(), held.end(), [&](const HeldLock& lock) {
      return lock.writer == writer && lock.owner == request.owner &&
             lock.exclusive != request.exclusive;
    });
    if (converts) ABACUS_RETURN_IF_ERROR(Unlock(writer, request, grants));
  }
  if (IsFree(writer, request)) {
    Set(writer, request, request.exclusive);
    Wake(key, grants);  // it may have become a shared one
    return LockState::kGranted;
  }
  if (request.ticket == 0) return LockState::kHeld;
  if (WouldDeadlock(writer, request)) return LockState::kDeadlock;
  waiting_.push_back({writer, request});
  ++of_client_[writer];
  return LockState::kWaiting;
}

absl::Status LockTable::Unlock(uint16_t writer, const LockRequest& request, Grants* grants) {
  ABACUS_RETURN_IF_ERROR(CheckRange(request.range));
  Set(writer, request, std::nullopt);
  Wake({request.file, request.kind}, grants);
  return absl::OkStatus();
}

void LockTable::Set(uint16_t writer, const LockRequest& request, std::optional<bool> exclusive) {
  const Key key(request.file, request.kind);
  const auto found = locks_.find(key);
  if (found == locks_.end() && !exclusive.has_value()) return;
  Locks& locks = found == locks_.end() ? locks_[key] : found->second;
  const LockRange& range = request.range;
  LockRange whole = range;  // with what it grows together with
  Locks kept;
  uint64_t before = 0, after = 0;  // of this client
  for (const HeldLock& held : locks) {
    before += held.writer == writer ? 1 : 0;
    const bool is_mine = held.writer == writer && held.owner == request.owner;
    const bool touches = Overlaps(held.range, range) ||
                         (held.range.last != kLockEnd && held.range.last + 1 == range.first) ||
                         (range.last != kLockEnd && range.last + 1 == held.range.first);
    if (!is_mine || !touches) {
      kept.push_back(held);
    } else if (exclusive.has_value() && *exclusive == held.exclusive) {
      whole.first = std::min(whole.first, held.range.first);
      whole.last = std::max(whole.last, held.range.last);
    } else {
      // What sticks out on either side stays as it is.
      if (held.range.first < range.first) {
        kept.push_back(held);
        kept.back().range.last = std::min(held.range.last, range.first - 1);
      }
      if (held.range.last > range.last) {
        kept.push_back(held);
        kept.back().range.first = std::max(held.range.first, range.last + 1);
      }
    }
  }
  if (exclusive.has_value()) {
    kept.push_back({writer, request.owner, request.pid, *exclusive, whole});
  }
  std::stable_sort(kept.begin(), kept.end(), [](const HeldLock& a, const HeldLock& b) {
    return a.range.first < b.range.first;
  });
  for (const HeldLock& held : kept) after += held.writer == writer ? 1 : 0;
  held_ += kept.size() - locks.size();
  uint64_t& mine = of_client_[writer];
  mine += after - before;
  if (mine == 0) of_client_.erase(writer);
  locks = std::move(kept);
  if (locks.empty()) locks_.erase(key);
}

void LockTable::Wake(const Key& key, Grants* grants) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const Waiting waiting = *it;
    if (Key(waiting.request.file, waiting.request.kind) != key ||
        !IsFree(waiting.writer, waiting.request)) {
      ++it;
      continue;
    }
    it = waiting_.erase(it);
    --of_client_[waiting.writer];
    Set(waiting.writer, waiting.request, waiting.request.exclusive);
    grants->push_back({waiting.writer, waiting.request.ticket});
    // It may have made a lock of its own a shared one, for which others wait before it.
    it = waiting_.begin();
  }
}

bool LockTable::Waits(uint16_t writer, uint64_t ticket) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    return waiting.writer == writer && waiting.request.ticket == ticket;
  });
}

bool LockTable::Cancel(uint16_t writer, uint64_t ticket) {
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->writer != writer || it->request.ticket != ticket) continue;
    waiting_.erase(it);
    if (--of_client_[writer] == 0) of_client_.erase(writer);
    return true;
  }
  return false;
}

void LockTable::Drop(uint16_t writer, Grants* grants) {
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.writer == writer; });
  std::vector<Key> changed;
  for (auto it = locks_.begin(); it != locks_.end();) {
    Locks& locks = it->second;
    const size_t dropped =
        std::erase_if(locks, [&](const HeldLock& held) { return held.writer == writer; });
    held_ -= dropped;
    if (dropped > 0) changed.push_back(it->first);
    it = locks.empty() ? locks_.erase(it) : std::next(it);
  }
  of_client_.erase(writer);
  for (const Key& key : changed) Wake(key, grants);
}

}  // namespace abacus::objfs
