#ifndef ABACUS_RUNTIME_NODE_STATUS_REPORT_H_
#define ABACUS_RUNTIME_NODE_STATUS_REPORT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "monitor-ebpf/monitor.h"
#include "runtime/base/mutex.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migrator.h"
#include "runtime/node/control_types.h"
#include "runtime/node/digest_loop.h"
#include "runtime/node/membership_agent.h"
#include "runtime/node/move_desk.h"
#include "runtime/node/peer_links.h"
#include "runtime/resource/placement_loop.h"
#include "runtime/transport/socket_transport.h"

namespace abacus::runtime {

// What a report is made from. All must outlive the reporter; `engine` is null at a client.
struct StatusSources {
  const MembershipAgent* membership = nullptr;
  BindingManager* binding = nullptr;
  const Migrator* migrator = nullptr;
  const MoveDesk* desk = nullptr;
  const DigestLoop* digests = nullptr;
  const PlacementLoop* engine = nullptr;
  const SocketTransport* transport = nullptr;
  monitor::Monitor* monitor = nullptr;
};

// Makes what `abacus status` shows of a node: at a server also of those that send it digests.
// Thread-safety: thread-safe. Blocking: none.
class StatusReporter {
 public:
  explicit StatusReporter(const StatusSources& sources) : from_(sources) {}

  // At most `objects_max` objects, those that were called lately first.
  NodeReport Make(size_t objects_max);

  // Takes note of what has flowed over connections, which may end before the next report. To be
  // called now and then: more than once a second it does nothing. Costs 2 us for each descriptor.
  void WatchLinks();

 private:
  struct Growth {
    uint64_t value = 0;
    absl::Time at;  // when it was last seen to have grown
  };

  std::vector<NodeReport::Counter> Counters() const;
  std::vector<NodeReport::MemberLine> Members(const std::vector<Digest>& digests) const;
  void AddObjects(const std::vector<Digest>& digests, size_t max, NodeReport& report) const;
  std::vector<PeerLink> Links();
  std::string Health(const std::vector<NodeReport::Counter>& counters);
  void AddGrowth(const std::vector<NodeReport::Counter>& counters,
                 std::vector<std::string>& sentences);

  const StatusSources from_;
  Mutex mutex_;
  std::map<std::string, Growth> growths_ ABSL_GUARDED_BY(mutex_);
  Mutex links_mutex_;  // before those of the transport and of membership
  PeerLinks links_ ABSL_GUARDED_BY(links_mutex_);
  std::chrono::steady_clock::time_point links_seen_ ABSL_GUARDED_BY(links_mutex_);
};

// A decision in words and as its recorded input.
DecisionText ToText(const DecisionRecord& record);
DecisionText ToText(const LoggedDecision& logged);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_STATUS_REPORT_H_
