#ifndef ABACUS_RUNTIME_NODE_DIGEST_LOOP_H_
#define ABACUS_RUNTIME_NODE_DIGEST_LOOP_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/node/control_client.h"
#include "runtime/node/digest_sender.h"
#include "runtime/node/membership_agent.h"
#include "runtime/node/move_desk.h"
#include "runtime/resource/digest_window.h"
#include "runtime/resource/placement_loop.h"
#include "runtime/resource/resource_manager.h"

namespace abacus::runtime {

// Takes this node's digest at every interval and sends it to the servers that it has joined; at a
// server also hands the digests, its own and those of others, to the engine, lets it decide as they
// come, and has its moves carried out (paper, section 5.3).
//
// Thread-safety: thread-safe.
class DigestLoop {
 public:
  // `engine` is null at a client. All must outlive the loop.
  DigestLoop(absl::Duration interval, absl::Duration window, ResourceManager* resources,
             PlacementLoop* engine, MoveDesk* desk, MembershipAgent* membership,
             ControlClients* clients);
  ~DigestLoop() { Stop(); }

  // Called before each report, by the loop's thread. Before Start().
  void SetBeforeReport(std::function<void()> act) { before_report_ = std::move(act); }
  void Start();
  // After ControlClients::CancelAll(). Idempotent.
  void Stop();

  // From now on.
  void SetTimes(absl::Duration interval, absl::Duration window);

  // Another node's digest. Errors: kFailedPrecondition - this is no server, or the sender has not
  // joined; kInvalidArgument - as PlacementLoop::Accept.
  absl::Status Accept(Digest digest);

  // What this node saw in the last window; of no node where it has taken no digest yet.
  Digest Last() const;
  uint64_t sent() const { return sender_.sent(); }
  uint64_t not_sent() const { return sender_.not_sent(); }

 private:
  using Clock = std::chrono::steady_clock;
  void Run();
  // Moves that wait until others have made room for them.
  struct After {
    std::vector<PlannedMove> moves;
    std::atomic<size_t> waits_for{0};
    std::atomic<bool> failed{false};
  };

  void Report();
  void Decide();
  void CarryOut(const PlannedMove& move, std::shared_ptr<After> after);

  ResourceManager& resources_;
  PlacementLoop* const engine_;
  MoveDesk& desk_;
  MembershipAgent& membership_;
  ControlClients& clients_;
  DigestSender sender_;
  std::function<void()> before_report_;  // constant once started

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);
  absl::Duration length_of_window_ ABSL_GUARDED_BY(mutex_);
  DigestWindow window_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool digest_came_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_DIGEST_LOOP_H_
