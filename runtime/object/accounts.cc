#include "runtime/object/accounts.h"

#include <sys/mman.h>

#include <bit>
#include <memory>
#include <new>
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
  EdgeSums sums = {.calls = get(calls),
                   .request_bytes = get(request_bytes),
                   .reply_bytes = get(reply_bytes),
                   .busy_ticks = get(busy_ticks),
                   .blocked_ticks = get(blocked_ticks),
                   .ready_ticks = get(ready_ticks)};
  // Acquire: the line was zeroed before it was hung in.
  if (const Rest* rest = rest_.load(std::memory_order_acquire); rest != nullptr) {
    sums.disk_ticks = get(rest->disk_ticks);
    sums.voluntary_switches = get(rest->voluntary_switches);
    sums.involuntary_switches = get(rest->involuntary_switches);
    sums.remote_calls = get(rest->remote_calls);
    sums.remote_wait_ns = get(rest->remote_wait_ns);
    sums.remote_network_ns = get(rest->remote_network_ns);
  }
  return sums;
}

AccountCell::Rest& AccountCell::MakeRest() {
  // What the accounts take is no object's memory.
  const monitor::MemoryScope nobodys(monitor::kNoObject);
  auto* rest = new Rest;
  rest_.store(rest, std::memory_order_release);
  return *rest;
}

void AccountCell::MoveTo(AccountCell& other) {
  const auto move = [](Field& from, Field& to) {
    to.store(from.load(std::memory_order_relaxed), std::memory_order_relaxed);
  };
  move(calls, other.calls);
  move(request_bytes, other.request_bytes);
  move(reply_bytes, other.reply_bytes);
  move(busy_ticks, other.busy_ticks);
  move(blocked_ticks, other.blocked_ticks);
  move(ready_ticks, other.ready_ticks);
  move(name_, other.name_);
  other.rest_.store(rest_.exchange(nullptr), std::memory_order_relaxed);
}

void AccountCell::Clear() {
  for (Field* field :
       {&name_, &calls, &request_bytes, &reply_bytes, &busy_ticks, &blocked_ticks, &ready_ticks}) {
    field->store(0, std::memory_order_relaxed);
  }
  delete rest_.exchange(nullptr);
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
  if (rest_.size() + accounts.used_ <= limits_.of_the_rest) {
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

ThreadAccounts::Table::Table(size_t places) : places_(places) {
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t bytes = places * sizeof(AccountCell);
  const bool large = bytes >= kLargePage;
  void* memory = operator new(bytes, std::align_val_t(large ? kLargePage : sizeof(AccountCell)));
  // Where the system has none, or grants none, the pages are small ones.
  if (large) madvise(memory, bytes, MADV_HUGEPAGE);
  cells_ = static_cast<AccountCell*>(memory);
  std::uninitialized_default_construct_n(cells_, places);
}

ThreadAccounts::Table::~Table() {
  if (cells_ == nullptr) return;
  std::destroy_n(cells_, places_);
  const bool large = places_ * sizeof(AccountCell) >= size_t{2} << 20;
  operator delete(cells_, std::align_val_t(large ? size_t{2} << 20 : sizeof(AccountCell)));
}

AccountCell& ThreadAccounts::Find(EdgeKey key) {
  const size_t mask = table_.places() - 1;
  const uint64_t name = NameOf(key);
  size_t at = Hash(key) >> shift_;
  while (cells_[at].name() != name && cells_[at].name() != kEmpty) at = (at + 1) & mask;
  return cells_[at];
}

AccountCell& ThreadAccounts::CellBeside(EdgeKey key) {
  AccountCell* cell = &Find(key);
  if (cell->name() != kEmpty) return *cell;
  if (used_ == capacity_) {
    MakeRoom();
    cell = &Find(key);
  }
  ++used_;
  cell->name_.store(NameOf(key), std::memory_order_relaxed);
  return *cell;
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
    for (AccountCell& cell : table_) {
      if (cell.name() != kEmpty) cell.Clear();
    }
    used_ = 0;
    gone_ = 0;
  }
}

void ThreadAccounts::Rebuild(size_t cells) {
  const Table old = std::exchange(table_, Table(kPlacesPerCell * cells));
  cells_ = table_.begin();
  capacity_ = cells;
  shift_ = 64u - static_cast<unsigned>(std::countr_zero(table_.places()));
  used_ = 0;
  gone_ = 0;
  for (AccountCell& cell : old) {
    if (cell.name() == kEmpty || cell.name() == kGone) continue;
    cell.MoveTo(Find(KeyOf(cell.name())));
    ++used_;
  }
}

void ThreadAccounts::AddTo(EdgeSumsByKey& sums) const {
  for (const AccountCell& cell : table_) {
    if (const uint64_t name = cell.name(); IsOfAnEdge(name)) sums[KeyOf(name)].Add(cell.Sums());
  }
}

// An edge that is called again after that begins anew, in another cell.
void ThreadAccounts::DropUnknown(absl::FunctionRef<bool(EdgeKey)> known) {
  for (AccountCell& cell : table_) {
    const uint64_t name = cell.name();
    if (!IsOfAnEdge(name) || known(KeyOf(name))) continue;
    cell.name_.store(kGone, std::memory_order_relaxed);
    ++gone_;
  }
}

}  // namespace abacus::runtime
