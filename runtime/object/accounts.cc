#include "runtime/object/accounts.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "monitor-ebpf/thread_clock.h"

namespace abacus::runtime {

void EdgeSums::Add(const EdgeSums& o) {
  calls += o.calls;
  request_bytes += o.request_bytes;
  reply_bytes += o.reply_bytes;
  busy_ticks += o.busy_ticks;
  blocked_ticks += o.blocked_ticks;
  ready_ticks += o.ready_ticks;
  disk_ticks += o.disk_ticks;
  voluntary_switches += o.voluntary_switches;
  involuntary_switches += o.involuntary_switches;
  remote_calls += o.remote_calls;
  remote_wait_ns += o.remote_wait_ns;
  remote_network_ns += o.remote_network_ns;
}

EdgeSums EdgeSums::Since(const EdgeSums& b) const {
  // Sums of objects that are gone are dropped, so that what is summed over them may shrink.
  const auto since = [](uint64_t now, uint64_t before) { return now > before ? now - before : 0; };
  return {.calls = since(calls, b.calls),
          .request_bytes = since(request_bytes, b.request_bytes),
          .reply_bytes = since(reply_bytes, b.reply_bytes),
          .busy_ticks = since(busy_ticks, b.busy_ticks),
          .blocked_ticks = since(blocked_ticks, b.blocked_ticks),
          .ready_ticks = since(ready_ticks, b.ready_ticks),
          .disk_ticks = since(disk_ticks, b.disk_ticks),
          .voluntary_switches = since(voluntary_switches, b.voluntary_switches),
          .involuntary_switches = since(involuntary_switches, b.involuntary_switches),
          .remote_calls = since(remote_calls, b.remote_calls),
          .remote_wait_ns = since(remote_wait_ns, b.remote_wait_ns),
          .remote_network_ns = since(remote_network_ns, b.remote_network_ns)};
}

EdgeSums AccountCell::Sums() const {
  const auto get = [](const Field& field) { return field.load(std::memory_order_relaxed); };
  return {.calls = get(calls),
          .request_bytes = get(request_bytes),
          .reply_bytes = get(reply_bytes),
          .busy_ticks = get(busy_ticks),
          .blocked_ticks = get(blocked_ticks),
          .ready_ticks = get(ready_ticks),
          .disk_ticks = get(disk_ticks),
          .voluntary_switches = get(voluntary_switches),
          .involuntary_switches = get(involuntary_switches),
          .remote_calls = get(remote_calls),
          .remote_wait_ns = get(remote_wait_ns),
          .remote_network_ns = get(remote_network_ns)};
}

void AccountCell::Set(uint64_t key, const EdgeSums& sums) {
  const auto set = [](Field& field, uint64_t value) {
    field.store(value, std::memory_order_relaxed);
  };
  set(calls, sums.calls);
  set(request_bytes, sums.request_bytes);
  set(reply_bytes, sums.reply_bytes);
  set(busy_ticks, sums.busy_ticks);
  set(blocked_ticks, sums.blocked_ticks);
  set(ready_ticks, sums.ready_ticks);
  set(disk_ticks, sums.disk_ticks);
  set(voluntary_switches, sums.voluntary_switches);
  set(involuntary_switches, sums.involuntary_switches);
  set(remote_calls, sums.remote_calls);
  set(remote_wait_ns, sums.remote_wait_ns);
  set(remote_network_ns, sums.remote_network_ns);
  set(key_, key);
}

// -- the pool -------------------------------------------------------------------------------------

EdgeSumsByKey AccountPool::Collect() const {
  MutexLock lock(mutex_);
  EdgeSumsByKey sums = rest_;
  for (const ThreadAccounts* accounts : members_) accounts->AddTo(sums);
  return sums;
}

void AccountPool::Prune(absl::FunctionRef<bool(EdgeKey)> known) {
  MutexLock lock(mutex_);
  absl::erase_if(rest_, [&](const auto& row) { return !known(row.first); });
  for (ThreadAccounts* accounts : members_) accounts->DropUnknown(known);
}

void AccountPool::Join(ThreadAccounts* accounts) {
  MutexLock lock(mutex_);
  members_.push_back(accounts);
}

void AccountPool::Leave(ThreadAccounts* accounts) {
  MutexLock lock(mutex_);
  Keep(*accounts);
  cells_taken_ -= accounts->capacity_ - ThreadAccounts::kCellsAtFirst;
  std::erase(members_, accounts);
}

bool AccountPool::TakeCells(size_t cells) {
  if (cells > limits_.of_threads - cells_taken_) return false;
  cells_taken_ += cells;
  return true;
}

void AccountPool::Keep(const ThreadAccounts& accounts) {
  if (rest_.size() + accounts.used_.load(std::memory_order_relaxed) <= limits_.of_the_rest) {
    accounts.AddTo(rest_);
    return;
  }
  EdgeSumsByKey sums;
  accounts.AddTo(sums);
  for (const auto& [key, of_edge] : sums) {
    if (const auto known = rest_.find(key); known != rest_.end()) {
      known->second.Add(of_edge);
    } else if (rest_.size() < limits_.of_the_rest) {
      rest_.emplace(key, of_edge);
    } else {
      lost_.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

// -- a thread -------------------------------------------------------------------------------------

ThreadAccounts::ThreadAccounts(std::shared_ptr<AccountPool> pool) : pool_(std::move(pool)) {
  const monitor::MemoryScope nobodys(monitor::kNoObject);
  Rebuild(kCellsAtFirst);
  pool_->Join(this);
}

ThreadAccounts::~ThreadAccounts() { pool_->Leave(this); }

ThreadAccounts::Place& ThreadAccounts::FindPlace(EdgeKey key) {
  const size_t mask = places_.size() - 1;
  size_t at = Hash(key) >> shift_;
  while (index_[at].key != key && index_[at].key != 0) at = (at + 1) & mask;
  return index_[at];
}

AccountCell& ThreadAccounts::CellBeside(EdgeKey key) {
  if (key == 0) return nobodys_;
  Place* place = &FindPlace(key);
  if (place->key == key) {
    if (place->cell->key() != key) Revive(*place->cell, key);
    return *place->cell;
  }
  if (used_.load(std::memory_order_relaxed) == capacity_) {
    MakeRoom();
    place = &FindPlace(key);
  }
  const size_t used = used_.load(std::memory_order_relaxed);
  AccountCell& cell = cells_[used];
  cell.Set(key, {});
  // Release: whoever sees the new end sees the cell with its key, and without an earlier one's
  // sums.
  used_.store(used + 1, std::memory_order_release);
  *place = {key, &cell};
  return cell;
}

void ThreadAccounts::MakeRoom() {
  // What the accounts take is no object's memory.
  const monitor::MemoryScope nobodys(monitor::kNoObject);
  MutexLock lock(pool_->mutex_);
  // From a quarter on: each new edge then pays for moving three others at most.
  if (4 * gone_ >= capacity_) {
    Rebuild(capacity_);
  } else if (2 * capacity_ <= pool_->limits_.of_thread && pool_->TakeCells(capacity_)) {
    Rebuild(2 * capacity_);
  } else {
    pool_->Keep(*this);
    used_.store(0, std::memory_order_relaxed);
    gone_ = 0;
    std::fill(places_.begin(), places_.end(), Place{0, &nobodys_});
  }
}

void ThreadAccounts::Rebuild(size_t cells) {
  auto old = std::exchange(cells_, std::make_unique<AccountCell[]>(cells));
  const size_t old_used = used_.load(std::memory_order_relaxed);
  capacity_ = cells;
  places_.assign(kPlacesPerCell * cells, Place{0, &nobodys_});
  index_ = places_.data();
  shift_ = 64u - static_cast<unsigned>(std::countr_zero(places_.size()));
  size_t used = 0;
  for (size_t i = 0; i < old_used; ++i) {
    const EdgeKey key = old[i].key();
    if (key == kGone) continue;
    AccountCell& cell = cells_[used++];
    cell.Set(key, old[i].Sums());
    FindPlace(key) = {key, &cell};
  }
  gone_ = 0;
  used_.store(used, std::memory_order_release);
}

// The edge was dropped, but is called again: an object's sums begin anew.
void ThreadAccounts::Revive(AccountCell& cell, EdgeKey key) {
  MutexLock lock(pool_->mutex_);
  cell.Set(key, {});
  --gone_;
}

void ThreadAccounts::AddTo(EdgeSumsByKey& sums) const {
  const size_t used = used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    const EdgeKey key = cells_[i].key();
    if (key != kGone) sums[key].Add(cells_[i].Sums());
  }
}

void ThreadAccounts::DropUnknown(absl::FunctionRef<bool(EdgeKey)> known) {
  const size_t used = used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    const EdgeKey key = cells_[i].key();
    if (key == kGone || known(key)) continue;
    cells_[i].key_.store(kGone, std::memory_order_relaxed);
    ++gone_;
  }
}

}  // namespace abacus::runtime
