#ifndef ABACUS_RUNTIME_NODE_DIGEST_SENDER_H_
#define ABACUS_RUNTIME_NODE_DIGEST_SENDER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/resource/digest.h"

namespace abacus::runtime {

// Sends digests to servers, each on a thread of its own, so that a server that hangs holds up
// neither the node's decisions nor what the other servers are told.
//
// What comes while the digest before is still under way is added up (digest_window.h), so that one
// digest at most waits for each server and no time is missing in what it is told. Only what was
// under way when a call failed is lost.
// Thread-safety: thread-safe. Blocking: Post() never. Limits: one digest for each server.
class DigestSender {
 public:
  // May block for as long as the sender is to wait for one server.
  using Send = std::function<absl::Status(const std::string& address, const Digest& digest)>;

  explicit DigestSender(Send send) : send_(std::move(send)) {}
  ~DigestSender() { Stop(); }

  // To these servers, and from now on to no others.
  void Post(const std::vector<std::string>& addresses, const Digest& digest);

  // What waits is dropped. Blocking: until calls that are under way have ended. Idempotent.
  void Stop();

  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  uint64_t not_sent() const { return not_sent_.load(std::memory_order_relaxed); }

 private:
  struct Outbox {
    Digest waiting;  // of no node: none
    bool ends = false;
    bool ended = false;  // its thread has nothing more to do
    std::thread thread;
  };

  void Work(const std::string& address, Outbox* outbox);
  void Sweep(const std::vector<std::string>& addresses) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Send send_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> not_sent_{0};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::unique_ptr<Outbox>> outboxes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_DIGEST_SENDER_H_
