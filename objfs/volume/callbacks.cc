#include "objfs/volume/callbacks.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

Callbacks::Options WithClock(Callbacks::Options options) {
  if (options.steady_ns == nullptr) {
    options.steady_ns = [] {
      return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  }
  return options;
}

}  // namespace

// The code travels between nodes, and no layer answers so for a reason of its own.
absl::Status NoClient(uint16_t writer) {
  return absl::UnauthenticatedError(
      absl::StrCat("client ", writer, " has left the volume, or was silent for too long"));
}

bool IsNoClient(const absl::Status& status) {
  return absl::IsUnauthenticated(status) && runtime::KindOf(status) == runtime::ErrorKind::kNone;
}

Callbacks::Callbacks(Options options)
    : options_(WithClock(std::move(options))),
      table_({.lease = absl::ToInt64Nanoseconds(options_.lease),
              .turn = absl::ToInt64Nanoseconds(options_.turn),
              .quiet = absl::ToInt64Nanoseconds(options_.quiet),
              .share = absl::ToInt64Nanoseconds(options_.share)}) {}

void Callbacks::Join(uint16_t writer, const runtime::Ref<ClientEnd>& end) {
  using Kind = CallbackTable::Action::Kind;
  std::unique_ptr<Messenger> messenger;
  if (end) {
    messenger = std::make_unique<Messenger>(
        [end](const CallbackTable::Action& action) {
          if (action.kind == Kind::kWake) return end->Wake(action.id);
          if (action.kind == Kind::kForget) return end->Forget(action.id, action.given);
          return end->Break(action.id, action.kind == Kind::kRecall, action.given);
        },
        [this](const CallbackTable::Action& action) { OnBroken(action); });
  }
  MutexLock lock(mutex_);
  table_.Join(writer, Now());
  if (messenger != nullptr) messengers_[writer] = std::move(messenger);
}

absl::Status Callbacks::Renew(uint16_t writer) {
  MutexLock lock(mutex_);
  return table_.Renew(writer, Now()) ? absl::OkStatus() : NoClient(writer);
}

absl::Status Callbacks::Check(uint16_t writer) {
  MutexLock lock(mutex_);
  return table_.Has(writer) ? absl::OkStatus() : NoClient(writer);
}

void Callbacks::Leave(uint16_t writer) {
  MutexLock lock(mutex_);
  table_.Leave(writer, Now());
  EndMessenger(writer);
  Carry();
}

void Callbacks::EndMessenger(uint16_t writer) {
  const auto found = messengers_.find(writer);
  if (found == messengers_.end()) return;
  found->second->Stop();
  ending_.push_back(std::move(found->second));
  messengers_.erase(found);
}

absl::Status Callbacks::Ask(ObjectId id, uint16_t writer, Want want, Version* given,
                            bool* together) {
  if (!MayServe()) return NoClient(writer);
  MutexLock lock(mutex_);
  const bool is_told = want == Want::kShare || want == Want::kWrite || want == Want::kTogether;
  if (is_told && !messengers_.contains(writer) && table_.Has(writer)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "client ", writer, " cannot be told of breaks, and so is promised nothing: it has no end"));
  }
  // A number that rises is all that the order of promises needs.
  const CallbackTable::Answer answer =
      table_.Ask(id, writer, want, Version{++last_stamp_}, Now(), given, together);
  Carry();
  switch (answer) {
    case CallbackTable::Answer::kGranted:
      return absl::OkStatus();
    case CallbackTable::Answer::kWait:
      return WouldBlock("another client has a promise of the object");
    case CallbackTable::Answer::kLeft:
      break;
  }
  return NoClient(writer);
}

absl::StatusOr<Promise> Callbacks::Claim(ObjectId id, uint16_t writer, PromiseKind kind) {
  Promise promise{kind, {}};
  switch (kind) {
    case PromiseKind::kNone: {
      MutexLock lock(mutex_);
      table_.StayAlone(id, writer, Now());
      Carry();
      return promise;
    }
    case PromiseKind::kShare:
      ABACUS_RETURN_IF_ERROR(Ask(id, writer, Want::kShare, &promise.given));
      return promise;
    case PromiseKind::kWrite:
      ABACUS_RETURN_IF_ERROR(Ask(id, writer, Want::kWrite, &promise.given));
      return promise;
    case PromiseKind::kTogether: {
      bool together = false;
      ABACUS_RETURN_IF_ERROR(Ask(id, writer, Want::kTogether, &promise.given, &together));
      promise.kind = together ? PromiseKind::kTogether : PromiseKind::kWrite;
      return promise;
    }
  }
  // From another build: kinds come over the network.
  return absl::InvalidArgumentError(
      absl::StrCat("there is no promise of kind ", static_cast<int>(kind)));
}

bool Callbacks::Share(ObjectId id, uint16_t writer) {
  if (!MayServe()) return false;
  MutexLock lock(mutex_);
  const bool shared = table_.Share(id, writer, Now());
  Carry();
  return shared;
}

bool Callbacks::IsShared(ObjectId id, uint16_t writer) {
  if (!MayServe()) return false;
  MutexLock lock(mutex_);
  return table_.IsShared(id, writer);
}

absl::Status Callbacks::Look(ObjectId id, uint16_t writer) { return Ask(id, writer, Want::kLook); }

absl::StatusOr<Callbacks::Change> Callbacks::BeginChange(ObjectId id, uint16_t writer) {
  ABACUS_RETURN_IF_ERROR(Ask(id, writer, Want::kChange));
  return Change(this, id, writer);
}

void Callbacks::EndChange(ObjectId id, uint16_t writer) {
  MutexLock lock(mutex_);
  table_.EndChange(id, writer, Now());
  Carry();
}

void Callbacks::OnBroken(const CallbackTable::Action& action) {
  if (action.kind == CallbackTable::Action::Kind::kForget) {
    return Forgotten(action.id, action.writer, action.given);
  }
  MutexLock lock(mutex_);
  table_.Broken(action.id, action.writer, action.given, Now());
  Carry();
}

std::vector<Version> Callbacks::Know(const std::vector<ObjectId>& ids, uint16_t writer) {
  std::vector<Version> given(ids.size());
  if (!MayServe()) return given;
  MutexLock lock(mutex_);
  if (!messengers_.contains(writer)) return given;  // it could not be told to forget
  for (size_t i = 0; i < ids.size(); ++i) {
    const Version stamp{++last_stamp_};
    if (table_.Know(ids[i], writer, stamp, Now())) given[i] = stamp;
  }
  return given;
}

void Callbacks::Forgotten(ObjectId id, uint16_t writer, Version given) {
  MutexLock lock(mutex_);
  table_.Forgotten(id, writer, given, Now());
  Carry();
}

absl::StatusOr<Callbacks::Alteration> Callbacks::BeginAlter(std::vector<ObjectId> ids,
                                                            uint16_t writer) {
  if (!MayServe()) return NoClient(writer);
  MutexLock lock(mutex_);
  const CallbackTable::Answer answer = table_.Alter(ids, writer, Now());
  Carry();
  switch (answer) {
    case CallbackTable::Answer::kGranted:
      return Alteration(this, std::move(ids));
    case CallbackTable::Answer::kWait:
      return WouldBlock("another client knows the object, and is told to forget it");
    case CallbackTable::Answer::kLeft:
      break;
  }
  return NoClient(writer);
}

Callbacks::Alteration Callbacks::GoOnAltering(std::vector<ObjectId> ids) {
  {
    MutexLock lock(mutex_);
    table_.GoOnAltering(ids);
  }
  return Alteration(this, std::move(ids));
}

void Callbacks::WakeAll(ObjectId id, const std::vector<uint16_t>& writers) {
  MutexLock lock(mutex_);
  for (const uint16_t writer : writers) {
    const auto messenger = messengers_.find(writer);
    if (messenger == messengers_.end()) continue;  // it has left, or cannot be told
    messenger->second->Post({CallbackTable::Action::Kind::kWake, writer, id, {}});
  }
}

void Callbacks::EndAlter(const std::vector<ObjectId>& ids) {
  MutexLock lock(mutex_);
  table_.EndAlter(ids, Now());
}

void Callbacks::Pass(ObjectId id, uint16_t writer) {
  MutexLock lock(mutex_);
  table_.Pass(id, writer, Now());
  Carry();
}

void Callbacks::Release(ObjectId id, uint16_t writer) {
  MutexLock lock(mutex_);
  table_.Release(id, writer, Now());
  Carry();
}

uint16_t Callbacks::WriterOf(ObjectId id) {
  MutexLock lock(mutex_);
  return table_.WriterOf(id);
}

void Callbacks::Carry() {
  for (const CallbackTable::Action& action : table_.TakeActions()) {
    const auto messenger = messengers_.find(action.writer);
    if (messenger != messengers_.end()) messenger->second->Post(action);
  }
}

std::vector<uint16_t> Callbacks::Tick() {
  std::vector<std::unique_ptr<Messenger>> ended;
  std::vector<uint16_t> silent;
  {
    MutexLock lock(mutex_);
    table_.Tick(Now());
    silent = table_.TakeSilent();
    for (const uint16_t writer : silent) EndMessenger(writer);
    Carry();
    const auto is_ending = [](const auto& messenger) { return !messenger->ended(); };
    const auto first = std::partition(ending_.begin(), ending_.end(), is_ending);
    std::move(first, ending_.end(), std::back_inserter(ended));
    ending_.erase(first, ending_.end());
  }
  return silent;
}

void Callbacks::Stop() {
  std::vector<std::unique_ptr<Messenger>> all;
  {
    MutexLock lock(mutex_);
    all.swap(ending_);
    for (auto& [writer, messenger] : messengers_) {
      messenger->Stop();
      all.push_back(std::move(messenger));
    }
    messengers_.clear();
  }
  // Here they are joined, one after the other; none can be posted to any more.
}

}  // namespace abacus::objfs
