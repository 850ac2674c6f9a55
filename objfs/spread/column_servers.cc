#include "objfs/spread/column_servers.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {
constexpr uint64_t kSweepAtOnce = 1024;

// All at once; returns the servers that have not done it.
std::set<uint64_t> Tell(const GroupFence& by, const std::vector<uint32_t>& columns,
                        const std::vector<Ref<CommitLog>>& logs, const GroupOrders& orders) {
  std::deque<std::pair<uint64_t, runtime::BranchOf<absl::Status>>> branches;
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto found = orders.find(columns[i]);
    if (found == orders.end()) continue;
    branches.emplace_back(columns[i], logs[i].Fork<&CommitLog::Settle>(by, found->second));
  }
  std::set<uint64_t> failed;
  for (auto& [server, branch] : branches) {
    if (!branch.Join().ok()) failed.insert(server);
  }
  return failed;
}
}  // namespace

absl::StatusOr<size_t> ColumnsOf(const Stack& stack) {
  if (!stack.branch) return 0;
  const Stack& branch = *stack.branch;
  const size_t levels = branch.levels.size();
  const bool isolated = levels == 2 && branch.levels[0].kind == "isolation";
  if (branch.branch == nullptr && (levels == 1 || isolated) &&
      branch.levels.back().kind == "storage") {
    return stack.copies;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", stack.ToString(), "': volumes make columns of (isolation/storage) only, ",
                   "not of (", branch.ToString(), ")"));
}

ColumnServers::ColumnServers(std::shared_ptr<const ServerAddresses> addresses, Host host)
    : addresses_(std::move(addresses)), host_(std::move(host)), next_(std::random_device()()) {
  if (addresses_ == nullptr) return;
  auto absent = std::make_unique<AbsentColumn>("the server of a column does not answer");
  absent->Init({}, {}).IgnoreError();  // it takes nothing
  absent_ = host_.adopt(std::move(absent));
  worker_ = std::thread([this] { Work(); });
}

ColumnServers::~ColumnServers() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (worker_.joinable()) worker_.join();
  if (absent_) host_.end(absent_);
}

absl::StatusOr<std::vector<uint32_t>> ColumnServers::Choose(size_t columns) {
  const std::vector<uint32_t> usable = Usable();
  const size_t all = usable.size();
  if (columns > all) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the stack has ", columns, " columns, each on a server of its own, and the volume has ",
        std::max<size_t>(all, 1), all > 1 ? " servers" : " server",
        ": take a stack with fewer, or a volume over more: abacus volume create NAME --servers "
        "HOST:PORT,HOST:PORT,..."));
  }
  const size_t first = columns < all && usable.front() == 0 ? 1 : 0;
  const uint64_t begin = next_++;
  std::vector<uint32_t> chosen;
  for (size_t i = 0; i < columns; ++i) {
    chosen.push_back(usable[first + (begin + i) % (all - first)]);
  }
  return chosen;
}

std::vector<uint32_t> ColumnServers::Usable() {
  std::vector<uint32_t> usable;
  if (addresses_ == nullptr) return usable;
  MutexLock lock(mutex_);
  for (const uint32_t server : addresses_->Numbers()) {
    if (!avoided_.contains(server)) usable.push_back(server);
  }
  return usable;
}

ColumnServers::Making::Making(ColumnServers* servers) : servers_(servers) {
  MutexLock lock(servers_->mutex_);
  round_ = servers_->round_ % 2;
  ++servers_->making_[round_];
}

ColumnServers::Making::~Making() {
  MutexLock lock(servers_->mutex_);
  if (--servers_->making_[round_] == 0) servers_->changed_.SignalAll();
}

void ColumnServers::Avoid(uint32_t server) {
  MutexLock lock(mutex_);
  avoided_.insert(server);
  // One round after the other, or those of the one before would be counted with those to come.
  while (avoiding_) changed_.Wait(mutex_);
  avoiding_ = true;
  const size_t ended = round_++ % 2;
  while (making_[ended] > 0) changed_.Wait(mutex_);
  avoiding_ = false;
  changed_.SignalAll();
}

absl::StatusOr<OpenedAtServers> ColumnServers::Open(ObjectId id,
                                                    const std::vector<uint32_t>& columns,
                                                    Version epoch) {
  {
    MutexLock lock(mutex_);
    epochs_[id] = epoch;
  }
  OpenedAtServers opened;
  opened.columns.assign(columns.size(), absent_);
  opened.logs.resize(columns.size());
  std::deque<std::pair<size_t, runtime::BranchOf<absl::StatusOr<OpenedColumn>>>> branches;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] >= Count()) continue;  // of a list that was longer once
    const absl::StatusOr<Ref<ColumnStore>> store = host_.find(columns[i]);
    if (store.ok()) branches.emplace_back(i, store->Fork<&ColumnStore::OpenAndTell>(id, epoch));
  }
  absl::Status refused;
  std::map<uint64_t, ColumnAnswer> answers;
  for (auto& [i, branch] : branches) {
    absl::StatusOr<OpenedColumn> column = branch.Join();
    if (column.ok()) {
      opened.columns[i] = std::move(column->layer);
      opened.logs[i] = std::move(column->log);
      answers[columns[i]] = {column->recorded, std::move(column->pending)};
    } else if (absl::IsUnauthenticated(column.status()) ||
               absl::IsResourceExhausted(column.status())) {
      refused.Update(column.status());  // it answers: nothing is to be done without it
    }
  }
  // It may be gone since, and its columns have been removed before this made them again.
  if (!host_.exists(id)) Removed(id, columns);
  ABACUS_RETURN_IF_ERROR(refused);
  Settle({id, epoch}, columns, answers, &opened);
  for (const Ref<Layer>& column : opened.columns) opened.absent += column == absent_ ? 1 : 0;
  return opened;
}

void ColumnServers::Settle(const GroupFence& by, const std::vector<uint32_t>& columns,
                           const std::map<uint64_t, ColumnAnswer>& answers,
                           OpenedAtServers* opened) const {
  const std::set<uint64_t> servers(columns.begin(), columns.end());
  const Settlement plan = PlanSettlement(answers, servers);
  const std::set<uint64_t> failed = Tell(by, columns, opened->logs, OrdersOf(plan));
  const SettlementEnd end = EndSettlement(plan, answers, servers, failed);
  // Who does not hear it finds out by itself after a lease.
  Tell(by, columns, opened->logs, end.forgets);
  opened->missed = end.missed;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!end.gone.contains(columns[i])) continue;
    opened->columns[i] = absent_;
    opened->logs[i] = Ref<CommitLog>();
  }
}

void ColumnServers::Closed(ObjectId id, const std::vector<uint32_t>& columns) {
  MutexLock lock(mutex_);
  const auto found = epochs_.find(id);
  if (found == epochs_.end()) return;  // its bytes were never asked for
  const Version epoch = found->second;
  epochs_.erase(found);
  for (const uint32_t server : columns) {
    if (server < Count()) servers_[server].closed.emplace_back(id, epoch);
  }
  changed_.SignalAll();
}

void ColumnServers::Removed(ObjectId id, const std::vector<uint32_t>& columns) {
  MutexLock lock(mutex_);
  epochs_.erase(id);
  for (const uint32_t server : columns) {
    if (server < Count()) servers_[server].removed.push_back(id);
  }
  changed_.SignalAll();
}

size_t ColumnServers::waiting() {
  MutexLock lock(mutex_);
  size_t waiting = 0;
  for (const auto& [number, server] : servers_) waiting += server.removed.size();
  return waiting;
}

void ColumnServers::Work() {
  mutex_.Lock();
  while (!stopping_) {
    mutex_.Unlock();
    for (size_t server = 0; server < Count(); ++server) WorkOn(server);
    mutex_.Lock();
    const auto due = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kLookInterval);
    while (!stopping_ && changed_.WaitUntil(mutex_, due)) {
    }
  }
  mutex_.Unlock();
}

// A server that does not answer is told nothing: it is gone through when it is back.
void ColumnServers::WorkOn(size_t server) {
  const absl::StatusOr<Ref<ColumnStore>> store = host_.find(server);
  std::vector<ObjectId> removed;
  std::vector<std::pair<ObjectId, Version>> closed;
  Ref<ColumnStore> swept;
  {
    MutexLock lock(mutex_);
    removed.swap(servers_[server].removed);
    closed.swap(servers_[server].closed);
    swept = servers_[server].swept;
  }
  if (!store.ok()) return;
  bool fails = false;
  for (const auto& [id, epoch] : closed) fails = fails || !(*store)->Close(id, epoch).ok();
  if (!removed.empty()) fails = fails || !(*store)->Remove(removed).ok();
  if (!(swept == *store)) fails = !Sweep(*store).ok();
  MutexLock lock(mutex_);
  servers_[server].swept = fails ? Ref<ColumnStore>() : *store;
}

absl::Status ColumnServers::Sweep(const Ref<ColumnStore>& store) {
  ObjectId after = 0;
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store->List(after, kSweepAtOnce));
    std::vector<ObjectId> gone;
    for (const ObjectId id : ids) {
      if (!host_.exists(id)) gone.push_back(id);
    }
    if (!gone.empty()) ABACUS_RETURN_IF_ERROR(store->Remove(gone));
    if (ids.size() < kSweepAtOnce) return absl::OkStatus();
    after = ids.back();
  }
}

}  // namespace abacus::objfs
