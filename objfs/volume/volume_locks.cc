#include "objfs/volume/volume_locks.h"

#include <algorithm>
#include <utility>

#include "objfs/volume/callbacks.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

VolumeLocks::~VolumeLocks() {
  std::vector<ClientPtr> all;
  {
    MutexLock lock(mutex_);
    for (auto& [writer, client] : clients_) leaving_.push_back(std::move(client));
    clients_.clear();
    for (const ClientPtr& client : leaving_) client->ended = true;
    all.assign(leaving_.begin(), leaving_.end());
    leaving_.clear();
    changed_.SignalAll();
  }
  for (const ClientPtr& client : all) {
    if (client->teller.joinable()) client->teller.join();
  }
}

std::vector<VolumeLocks::ClientPtr> VolumeLocks::TakeDone() {
  std::vector<ClientPtr> done;
  for (auto it = leaving_.begin(); it != leaving_.end();) {
    if ((*it)->done || !(*it)->teller.joinable()) {
      done.push_back(std::move(*it));
      it = leaving_.erase(it);
    } else {
      ++it;
    }
  }
  return done;
}

void VolumeLocks::Begin(uint16_t writer) {
  std::vector<ClientPtr> done;
  {
    MutexLock lock(mutex_);
    clients_[writer] = std::make_shared<Client>();
    done = TakeDone();
  }
  for (const ClientPtr& client : done) {
    if (client->teller.joinable()) client->teller.join();
  }
}

void VolumeLocks::End(uint16_t writer) {
  MutexLock lock(mutex_);
  const auto found = clients_.find(writer);
  if (found == clients_.end()) return;
  found->second->ended = true;
  leaving_.push_back(std::move(found->second));
  clients_.erase(found);
  LockTable::Grants grants;
  table_.Drop(writer, &grants);
  Tell(grants);
  changed_.SignalAll();
}

absl::Status VolumeLocks::Check(uint16_t writer) const {
  if (clients_.contains(writer)) return absl::OkStatus();
  return NoClient(writer);  // and has no locks
}

absl::Status VolumeLocks::Listen(uint16_t writer, const runtime::Ref<LockClient>& client) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Check(writer));
  clients_[writer]->object = client;
  return absl::OkStatus();
}

// -- news -----------------------------------------------------------------------------------------

void VolumeLocks::Tell(const LockTable::Grants& grants) {
  for (const LockTable::Grant& grant : grants) {
    Client& client = *clients_[grant.writer];
    if (!client.object) continue;
    client.granted.push_back(grant.ticket);
    if (!client.teller.joinable()) {
      client.teller = std::thread([this, &client] { TellNowAndThen(client); });
    }
  }
  if (!grants.empty()) changed_.SignalAll();
}

void VolumeLocks::TellNowAndThen(Client& client) {
  mutex_.Lock();
  while (!client.ended) {
    if (client.granted.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    const std::vector<uint64_t> tickets = std::exchange(client.granted, {});
    mutex_.Unlock();
    client.object->Granted(tickets).IgnoreError();
    mutex_.Lock();
  }
  client.done = true;
  mutex_.Unlock();
}

// -- locks ----------------------------------------------------------------------------------------

absl::StatusOr<LockState> VolumeLocks::Lock(uint16_t writer, const LockRequest& request) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Check(writer));
  LockTable::Grants grants;
  auto state = table_.Lock(writer, request, &grants);
  Tell(grants);
  return state;
}

absl::Status VolumeLocks::Unlock(uint16_t writer, const LockRequest& request) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Check(writer));
  LockTable::Grants grants;
  const absl::Status status = table_.Unlock(writer, request, &grants);
  Tell(grants);
  return status;
}

absl::StatusOr<std::optional<HeldLock>> VolumeLocks::Excluding(uint16_t writer,
                                                               const LockRequest& request) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Check(writer));
  return table_.Excluding(writer, request);
}

absl::StatusOr<bool> VolumeLocks::Cancel(uint16_t writer, uint64_t ticket) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Check(writer));
  return table_.Cancel(writer, ticket);
}

absl::StatusOr<std::vector<uint64_t>> VolumeLocks::Waiting(uint16_t writer,
                                                           const std::vector<uint64_t>& tickets) {
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(Check(writer));
  std::vector<uint64_t> waiting;
  for (const uint64_t ticket : tickets) {
    if (table_.Waits(writer, ticket)) waiting.push_back(ticket);
  }
  return waiting;
}

LockCounts VolumeLocks::counts() {
  MutexLock lock(mutex_);
  return table_.counts();
}

}  // namespace abacus::objfs
