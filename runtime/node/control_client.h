#ifndef ABACUS_RUNTIME_NODE_CONTROL_CLIENT_H_
#define ABACUS_RUNTIME_NODE_CONTROL_CLIENT_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/node/control_types.h"
#include "runtime/resource/digest.h"

namespace abacus::runtime {

// The control plane of one node, as others and commands call it. Needs no node of its own: this is
// what `abacus status`, `move`, `pin` and `explain` use.
//
// Every call has a deadline, and every error names the address.
// Errors of all: kNodeUnreachable  - no connection, or no answer within `deadline`;
//                what the node itself refuses with, its kind included.
// Thread-safety: thread-safe. Blocking: every call, up to `deadline`.
class ControlClient {
 public:
  // `address` is "host:port". Connects when the first call is made.
  explicit ControlClient(const std::string& address);
  ~ControlClient();

  // Errors: kVersionMismatch - the server speaks another version; as Membership::Admit.
  absl::StatusOr<JoinAnswer> Join(const MemberInfo& self, absl::Duration deadline,
                                  uint32_t version = kControlVersion);
  // Where nothing comes in time, later calls make a new connection.
  absl::StatusOr<HeartbeatAnswer> Heartbeat(const HeartbeatAsk& ask, absl::Duration deadline);
  absl::Status Leave(NodeInstance self, absl::Duration deadline);
  absl::Status SendDigest(const Digest& digest, absl::Duration deadline);

  // Returns when the move has ended, or its error where it did not take place.
  absl::StatusOr<MoveRecord> Move(const MoveCommand& command, absl::Duration deadline);
  absl::Status Moved(const MoveRecord& record, absl::Duration deadline);
  absl::Status Pin(const PinCommand& command, absl::Duration deadline);
  // Changes what is set in the command, and says how it is then.
  absl::StatusOr<EngineState> SetEngine(const EngineCommand& command, absl::Duration deadline);
  absl::StatusOr<std::vector<PinRecord>> GetPins(const std::vector<Rid>& rids,
                                                 absl::Duration deadline);
  absl::StatusOr<std::vector<DecisionText>> Explain(const Rid& rid, uint32_t decisions_max,
                                                    absl::Duration deadline, uint32_t hops = 0);
  absl::StatusOr<NodeReport> GetStatus(uint32_t objects_max, absl::Duration deadline);

  // Calls under way fail now, and all later ones.
  void Cancel();

  const std::string& address() const { return address_; }

 private:
  class Impl;
  const std::string address_;
  const std::unique_ptr<Impl> impl_;
};

// The clients of one node, one for each address. Thread-safety: thread-safe.
class ControlClients {
 public:
  std::shared_ptr<ControlClient> To(const std::string& address);
  // The node there is dead: calls under way fail now.
  void Forget(const std::string& address);
  // Calls under way fail now, and all later ones.
  void CancelAll();

 private:
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<ControlClient>> clients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_CONTROL_CLIENT_H_
