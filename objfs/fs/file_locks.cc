#include "objfs/fs/file_locks.h"

#include <algorithm>
#include <utility>

#include "objfs/volume/callbacks.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

FileLocks::FileLocks(runtime::Ref<Volume> volume, uint16_t writer, Host host,
                     std::chrono::milliseconds ask_again)
    : volume_(std::move(volume)), writer_(writer), host_(std::move(host)), ask_again_(ask_again) {}

absl::Status FileLocks::Listen() {
  client_ = host_.adopt(
      std::make_unique<LockClient>([waits = waits_](const std::vector<uint64_t>& tickets) {
        for (const uint64_t ticket : tickets) waits->Finish(ticket, absl::OkStatus());
      }));
  asker_ = std::thread([this] { AskNowAndThen(); });
  return volume_->ListenForLocks(writer_, client_);
}

FileLocks::~FileLocks() {
  std::vector<uint64_t> left;
  {
    MutexLock lock(waits_->mutex);
    waits_->stopping = true;
    for (const auto& [ticket, wait] : waits_->all) left.push_back(ticket);
    waits_->changed.SignalAll();
  }
  if (asker_.joinable()) asker_.join();
  for (const uint64_t ticket : left) {
    waits_->Finish(ticket, FsStatus(FsError::kInputOutput, "the client ends"));
  }
  if (client_) host_.end(client_);
}

void FileLocks::Waits::Finish(uint64_t ticket, const absl::Status& status) {
  LockDone done;
  {
    MutexLock lock(mutex);
    const auto found = all.find(ticket);
    if (found == all.end()) return;
    if (status.ok()) owners.insert(OwnerOf(found->second.request));
    done = std::move(found->second.done);
    all.erase(found);
  }
  if (done) done(status);
}

// -- requests -------------------------------------------------------------------------------------

uint64_t FileLocks::NewTicket() {
  const uint64_t ticket = ++last_ticket_;
  MutexLock lock(waits_->mutex);
  waits_->all[ticket];
  return ticket;
}

absl::Status FileLocks::StatusOf(const absl::StatusOr<LockState>& state) const {
  if (absl::IsResourceExhausted(state.status()) &&
      runtime::KindOf(state.status()) == runtime::ErrorKind::kNone) {
    return FsStatus(FsError::kNoLocks, runtime::ToStd(state.status().message()));
  }
  if (!state.ok()) return state.status();
  switch (*state) {
    case LockState::kGranted:
      return absl::OkStatus();
    case LockState::kDeadlock:
      return FsStatus(FsError::kDeadlock, "who holds the lock waits for this owner");
    default:
      return FsStatus(FsError::kWouldBlock, "another owner holds the lock");
  }
}

// It may be there, and nobody knows: it is no lock that its owner asked to have.
void FileLocks::TakeBack(const LockRequest& request) {
  const auto waited = request.ticket == 0 ? absl::StatusOr<bool>(false)
                                          : volume_->CancelLock(writer_, request.ticket);
  if (waited.ok() && !*waited) volume_->Unlock(writer_, request).IgnoreError();
}

void FileLocks::Lock(const LockRequest& request, const LockDone& done) {
  {
    MutexLock lock(waits_->mutex);
    waits_->owners.insert(OwnerOf(request));
    if (request.ticket != 0) {
      Wait& wait = waits_->all[request.ticket];
      wait.request = request;
      wait.done = done;
    }
  }
  const absl::StatusOr<LockState> state = volume_->Lock(writer_, request);
  if (runtime::IsOutcomeUnknown(state.status())) TakeBack(request);
  if (request.ticket == 0) {
    const absl::Status status = StatusOf(state);
    if (status.ok()) {
      MutexLock lock(waits_->mutex);
      waits_->owners.insert(OwnerOf(request));
    }
    return done(status);
  }
  if (!state.ok() || *state != LockState::kWaiting) {
    return waits_->Finish(request.ticket, StatusOf(state));
  }
  MutexLock lock(waits_->mutex);
  const auto found = waits_->all.find(request.ticket);
  if (found == waits_->all.end()) return;  // the news of it were quicker
  found->second.accepted = true;
  if (found->second.cancelled) waits_->cancels.push_back(request.ticket);
  waits_->changed.SignalAll();
}

void FileLocks::Cancel(uint64_t ticket) {
  MutexLock lock(waits_->mutex);
  const auto found = waits_->all.find(ticket);
  if (found == waits_->all.end() || std::exchange(found->second.cancelled, true)) return;
  if (!found->second.accepted) return;  // Lock() will see it
  waits_->cancels.push_back(ticket);
  waits_->changed.SignalAll();
}

absl::Status FileLocks::Unlock(const LockRequest& request) {
  if (request.range == LockRange()) {
    // Nothing is left, unless another thread locks at the same time: it says so when it has.
    MutexLock lock(waits_->mutex);
    waits_->owners.erase(OwnerOf(request));
  }
  absl::Status status = volume_->Unlock(writer_, request);
  if (!status.ok()) {
    MutexLock lock(waits_->mutex);
    waits_->owners.insert(OwnerOf(request));
  }
  return status;
}

std::vector<ObjectId> FileLocks::LockedFiles() {
  std::vector<ObjectId> files;
  MutexLock lock(waits_->mutex);
  for (const auto& [file, kind, owner] : waits_->owners) files.push_back(file);
  return files;
}

absl::Status FileLocks::UnlockAll(ObjectId file, LockKind kind, uint64_t owner) {
  {
    MutexLock lock(waits_->mutex);
    if (waits_->owners.erase({file, kind, owner}) == 0) return absl::OkStatus();
  }
  LockRequest whole;
  whole.file = file;
  whole.kind = kind;
  whole.owner = owner;
  absl::Status status = volume_->Unlock(writer_, whole);
  if (!status.ok()) {
    MutexLock lock(waits_->mutex);
    waits_->owners.insert({file, kind, owner});
  }
  return status;
}

absl::StatusOr<std::optional<HeldLock>> FileLocks::Excluding(const LockRequest& request) {
  auto excluding = volume_->GetLock(writer_, request);
  if (excluding.ok() && excluding->has_value() && (*excluding)->writer != writer_) {
    (*excluding)->pid = 0;
  }
  return excluding;
}

// -- those that wait ------------------------------------------------------------------------------

void FileLocks::CancelAtVolume(uint64_t ticket) {
  const absl::StatusOr<bool> waited = volume_->CancelLock(writer_, ticket);
  absl::Status status = waited.status();
  // What did not wait any more was granted, and the news are on their way.
  if (waited.ok() && *waited) status = FsStatus(FsError::kInterrupted, "the wait was ended");
  waits_->Finish(ticket, status);
}

void FileLocks::AskAgain(int* failures) {
  std::vector<uint64_t> tickets;
  {
    MutexLock lock(waits_->mutex);
    for (const auto& [ticket, wait] : waits_->all) {
      if (wait.accepted) tickets.push_back(ticket);
    }
  }
  if (tickets.empty()) return;
  const auto waiting = volume_->WaitingLocks(writer_, tickets);
  if (waiting.ok()) {
    *failures = 0;
    for (const uint64_t ticket : tickets) {
      const bool waits = std::find(waiting->begin(), waiting->end(), ticket) != waiting->end();
      if (!waits) waits_->Finish(ticket, absl::OkStatus());
    }
    return;
  }
  if (++*failures < kFailuresMax && !IsNoClient(waiting.status())) return;
  for (const uint64_t ticket : tickets) waits_->Finish(ticket, waiting.status());
}

void FileLocks::AskNowAndThen() {
  int failures = 0;
  auto due = std::chrono::steady_clock::now() + ask_again_;
  waits_->mutex.Lock();
  while (!waits_->stopping) {
    const std::vector<uint64_t> cancels = std::exchange(waits_->cancels, {});
    const bool is_due = std::chrono::steady_clock::now() >= due;
    if (cancels.empty() && !is_due) {
      if (waits_->all.empty()) {
        waits_->changed.Wait(waits_->mutex);
      } else {
        waits_->changed.WaitUntil(waits_->mutex, due);
      }
      continue;
    }
    waits_->mutex.Unlock();
    for (const uint64_t ticket : cancels) CancelAtVolume(ticket);
    if (is_due) {
      AskAgain(&failures);
      due = std::chrono::steady_clock::now() + ask_again_;
    }
    waits_->mutex.Lock();
  }
  waits_->mutex.Unlock();
}

}  // namespace abacus::objfs
