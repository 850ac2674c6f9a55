#ifndef ABACUS_RUNTIME_NODE_CONTROL_SERVICE_H_
#define ABACUS_RUNTIME_NODE_CONTROL_SERVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/node/control_types.h"
#include "runtime/resource/digest.h"

namespace abacus::runtime {

// What a node does with what it is told on the control plane. Messages have been checked for what
// can be checked without knowing the cluster: names are valid, lists are bounded.
// Thread-safety: thread-safe. Blocking: OnMove, OnPin and OnExplain may ask other nodes.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;

  virtual absl::StatusOr<JoinAnswer> OnJoin(const MemberInfo& joiner) = 0;
  virtual absl::StatusOr<HeartbeatAnswer> OnHeartbeat(const HeartbeatAsk& ask) = 0;
  virtual absl::Status OnLeave(NodeInstance instance) = 0;
  virtual absl::Status OnDigest(Digest digest) = 0;
  virtual absl::StatusOr<MoveRecord> OnMove(const MoveCommand& command) = 0;
  virtual void OnMoved(const MoveRecord& record) = 0;
  virtual absl::Status OnPin(const PinCommand& command) = 0;
  virtual absl::StatusOr<EngineState> OnSetEngine(const EngineCommand& command) = 0;
  virtual std::vector<PinRecord> OnGetPins(const std::vector<Rid>& rids) = 0;
  virtual absl::StatusOr<std::vector<DecisionText>> OnExplain(const Rid& rid, size_t max,
                                                              uint32_t hops) = 0;
  virtual NodeReport OnGetStatus(size_t objects_max) = 0;
};

// The control plane of a node: takes gRPC calls and hands them to a ControlHandler.
// Thread-compatible. Limits: kThreadsMax calls at once; beyond, callers get kBackPressure.
class ControlServer {
 public:
  static constexpr int kThreadsMax = 256;
  // Of one command or digest.
  static constexpr int kListMax = 1 << 20;
  static constexpr int kCommandRidsMax = 1024;

  // Listens at "host:port"; 0: the system chooses. `handler` must outlive the server, and may be
  // called before this returns.
  // Errors: kUnavailable - it cannot listen there; the message says why and names the key.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Listen(const std::string& address,
                                                               ControlHandler* handler);
  ~ControlServer();

  // With the port that the system chose.
  const std::string& address() const { return address_; }
  // Takes no more calls, and returns when none is inside the handler. Idempotent.
  void Stop(absl::Duration patience);

 private:
  class Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);

  std::string address_;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_CONTROL_SERVICE_H_
