#include "objfs/volume/messenger.h"

#include <chrono>
#include <utility>

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr std::chrono::milliseconds kTellAgain{100};

}  // namespace

Messenger::Messenger(std::function<absl::Status(const Action&)> deliver,
                     std::function<void(const Action&)> on_broken)
    : deliver_(std::move(deliver)), on_broken_(std::move(on_broken)), thread_([this] { Run(); }) {}

Messenger::~Messenger() {
  Stop();
  thread_.join();
}

void Messenger::Post(const Action& action) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  waiting_.push_back(action);
  changed_.SignalAll();
}

void Messenger::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.SignalAll();
}

bool Messenger::DeliverOne(const Action& action) {
  const absl::Status status = deliver_(action);
  if (action.kind == Action::Kind::kWake) return true;
  if (status.ok()) on_broken_(action);
  return status.ok();
}

void Messenger::Run() {
  mutex_.Lock();
  while (!stopping_) {
    if (waiting_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    const Action action = waiting_.front();
    mutex_.Unlock();
    const bool delivered = DeliverOne(action);
    mutex_.Lock();
    if (delivered) {
      waiting_.pop_front();
      continue;
    }
    const auto due = std::chrono::steady_clock::now() + kTellAgain;
    while (!stopping_ && changed_.WaitUntil(mutex_, due)) {
    }
  }
  mutex_.Unlock();
  ended_ = true;
}

}  // namespace abacus::objfs
