#include "runtime/node/digest_sender.h"

#include <algorithm>
#include <utility>

#include "runtime/resource/digest_window.h"

namespace abacus::runtime {

void DigestSender::Post(const std::vector<std::string>& addresses, const Digest& digest) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  Sweep(addresses);
  for (const std::string& address : addresses) {
    std::unique_ptr<Outbox>& outbox = outboxes_[address];
    if (outbox == nullptr) {
      outbox = std::make_unique<Outbox>();
      outbox->thread = std::thread([this, address, it = outbox.get()] { Work(address, it); });
    }
    Append(outbox->waiting, digest);
  }
  changed_.SignalAll();
}

// Threads of servers that are not sent to any more are told to end, and taken away when they have:
// one may still wait for its server. A server that comes back meanwhile keeps its thread.
void DigestSender::Sweep(const std::vector<std::string>& addresses) {
  for (auto it = outboxes_.begin(); it != outboxes_.end();) {
    Outbox& outbox = *it->second;
    outbox.ends = std::find(addresses.begin(), addresses.end(), it->first) == addresses.end();
    if (!outbox.ended) {
      ++it;
      continue;
    }
    outbox.thread.join();  // it has left the lock for good
    it = outboxes_.erase(it);
  }
}

void DigestSender::Work(const std::string& address, Outbox* outbox) {
  for (;;) {
    Digest digest;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !outbox->ends && !outbox->waiting.from.valid()) changed_.Wait(mutex_);
      if (stopping_ || outbox->ends) {
        outbox->ended = true;
        return;
      }
      digest = std::exchange(outbox->waiting, {});
    }
    const absl::Status status = send_(address, digest);
    (status.ok() ? sent_ : not_sent_).fetch_add(1, std::memory_order_relaxed);
  }
}

void DigestSender::Stop() {
  std::map<std::string, std::unique_ptr<Outbox>> outboxes;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    outboxes.swap(outboxes_);
    changed_.SignalAll();
  }
  for (const auto& [address, outbox] : outboxes) outbox->thread.join();
}

}  // namespace abacus::runtime
