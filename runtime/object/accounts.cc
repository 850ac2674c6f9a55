#include "runtime/object/accounts.h"

namespace abacus::runtime {

void EdgeSums::Add(const EdgeSums& o) {
  calls += o.calls;
  request_bytes += o.request_bytes;
  reply_bytes += o.reply_bytes;
  busy_ticks += o.busy_ticks;
  blocked_ticks += o.blocked_ticks;
  ready_ticks += o.ready_ticks;
  disk_ticks += o.disk_ticks;
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
          .remote_calls = get(remote_calls),
          .remote_wait_ns = get(remote_wait_ns),
          .remote_network_ns = get(remote_network_ns)};
}

AccountCell& ThreadAccounts::CellBeside(size_t place, EdgeKey key) {
  const size_t group = place / kGroup * kGroup;
  for (size_t i = group; i < group + kGroup; ++i) {
    if (cells_[i].key() == key) return cells_[i];
  }
  for (size_t i = group; i < group + kGroup; ++i) {
    if (cells_[i].key() != 0) continue;
    Evict(cells_[i], key);
    return cells_[i];
  }
  AccountCell& cell = cells_[group + evictions_++ % kGroup];
  Evict(cell, key);
  return cell;
}

void ThreadAccounts::Prune(absl::FunctionRef<bool(EdgeKey)> known) {
  MutexLock lock(mutex_);
  absl::erase_if(evicted_, [&](const auto& row) { return !known(row.first); });
}

void ThreadAccounts::Evict(AccountCell& cell, EdgeKey key) {
  MutexLock lock(mutex_);
  if (cell.key() != 0) evicted_[cell.key()].Add(cell.Sums());
  for (AccountCell::Field* field :
       {&cell.calls, &cell.request_bytes, &cell.reply_bytes, &cell.busy_ticks, &cell.blocked_ticks,
        &cell.ready_ticks, &cell.disk_ticks, &cell.remote_calls, &cell.remote_wait_ns,
        &cell.remote_network_ns}) {
    field->store(0, std::memory_order_relaxed);
  }
  cell.key_.store(key, std::memory_order_relaxed);
}

void ThreadAccounts::Collect(EdgeSumsByKey& out) const {
  MutexLock lock(mutex_);
  for (const auto& [key, sums] : evicted_) out[key].Add(sums);
  for (const AccountCell& cell : cells_) {
    if (cell.key() != 0) out[cell.key()].Add(cell.Sums());
  }
}

}  // namespace abacus::runtime
