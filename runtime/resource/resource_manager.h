#ifndef ABACUS_RUNTIME_RESOURCE_RESOURCE_MANAGER_H_
#define ABACUS_RUNTIME_RESOURCE_RESOURCE_MANAGER_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "monitor-ebpf/monitor.h"
#include "runtime/base/mutex.h"
#include "runtime/binding/binding_manager.h"
#include "runtime/migration/migrator.h"
#include "runtime/resource/activity_meter.h"
#include "runtime/resource/call_spans.h"
#include "runtime/resource/contention.h"
#include "runtime/resource/digest.h"
#include "runtime/resource/link_estimator.h"
#include "runtime/resource/moments.h"

namespace abacus::runtime {

struct ResourceOptions {
  absl::Duration window = absl::Seconds(1);  // H: over which variances are judged
  uint64_t memory_limit_bytes = 0;           // for all objects here together; 0: none by hand
  std::string node_name;
  bool server = false;
};

// A node's account books: turns what the invocation path counted into digests (paper, section 5.3).
//
// Thread-safety: thread-safe. Blocking: TakeDigest() costs about a microsecond per edge and thread.
class ResourceManager final : public CallObserver, public MigrationObserver {
 public:
  // All must outlive the manager.
  ResourceManager(BindingManager* binding, monitor::Monitor* monitor, ResourceOptions options);

  // What this node saw since the last call; calls that took longer are spread over several
  // (call_spans.h). Objects that came or left meanwhile begin anew: what was observed before a move
  // says nothing of the placement after it. The first digest has no figures (window_s is 0). Call
  // it several times a window; each call is a sample. `now`, as all times here: of a clock that
  // does not step (steady_time.h).
  Digest TakeDigest(absl::Time now);

  // H from now on, of the monitor's figures as well.
  void SetWindow(absl::Duration window);

  // ResourceOptions::memory_limit_bytes from now on: digests say what is left of it, after what the
  // objects here hold as far as that is measured, and never more than the machine has.
  void SetMemoryLimit(uint64_t bytes);

  // What was measured of the ways to others, and what is known of them from before a restart: it
  // counts little, and less with every call that is measured.
  std::vector<KnownLink> Links() const { return links_.Known(); }
  void SetPriors(const std::vector<KnownLink>& links) { links_.SetPriors(links); }

  // The node is dead: what was measured of the way to it is no more than a prior.
  void Forget(NodeInstance peer) { links_.Forget(peer); }

  // A console of this node, from its making to its end. `meter`: of one that several threads may
  // work for, on the steady clock; else null.
  void AddConsole(const Rid& rid, std::string name,
                  std::shared_ptr<const ActivityMeter> meter = nullptr);
  void RemoveConsole(const Rid& rid);

  // Pins objects whose home is this node. `until` absl::InfiniteFuture(): until unpinned. A pin
  // that holds longer stays as it is.
  void Pin(const Rid& rid, std::string reason, absl::Time until);
  void Unpin(const Rid& rid);
  // Limits the engine to these nodes; empty: no limit. Objects whose home is this node.
  void Allow(const Rid& rid, std::vector<NodeId> nodes);
  // Objects of one group move together; 0: of none.
  void Attach(const Rid& rid, uint32_t group);
  // What the engine has been told of those of `rids` that it has been told of.
  std::vector<PinRecord> Pins(const std::vector<Rid>& rids, absl::Time now) const;

  // Moves that ended here, for whoever wants to show them.
  void set_next_observer(MigrationObserver* next) { next_ = next; }

  void OnRemoteCall(NodeInstance peer, uint64_t request_bytes, uint64_t reply_bytes,
                    uint64_t network_ns, uint64_t quiet_ns) override;
  void OnMoved(const MigrationReport& report) override;
  void OnArriving(const std::vector<Rid>& rids) override;

 private:
  using IoBySlot = absl::flat_hash_map<uint32_t, monitor::ObjectIo>;
  struct Sample {
    absl::Time at;
    EdgeSumsByKey sums;
    IoBySlot io;
  };
  // How steady a figure is: the CPU time of an object (s per s), the bytes over an edge (per s).
  struct Steadiness {
    double sum = 0;  // when last looked at
    Moments rate;
  };
  struct Retired {
    absl::Time at;
    std::vector<uint32_t> slots;
  };
  struct ConsoleState {
    std::string name;
    std::shared_ptr<const ActivityMeter> meter;
    ActivityMeter::Times seen;  // at the last digest
  };
  struct PinState {
    std::string reason;
    absl::Time until;
  };

  // Objects arrived here or left: what is known of them begins anew.
  void BeginAnew(const std::vector<Rid>& rids);
  // Of those that have accounts here.
  std::set<uint32_t> SlotsOf(const std::set<Rid>& rids, const EdgeSumsByKey& sums) const;
  // The newest sums less those before, spread; of what moved, nothing.
  EdgeFlowsByKey FlowsOf(const EdgeSumsByKey& sums, const std::set<uint32_t>& moved,
                         double length_s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fill(Digest& digest, const EdgeFlowsByKey& window, const IoBySlot& io_window);
  // What came to `before`, of objects to which something came.
  static IoBySlot IoSince(const IoBySlot& now, const IoBySlot& before);
  // What threads worked for the console since it was last asked.
  void FillActivity(const Rid& rid, placement::ObjectStatistics& console)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Total, free and limit.
  void FillMemory(placement::NodeStatistics& node);
  // Lets go what is kept of objects that are gone.
  void ForgetTheGone(absl::Time now);
  // Takes the newest sample's rates into account.
  void NoteRates(const EdgeSumsByKey& sums, double length_s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Takes the newest sample into account; returns NodeStatistics::contention.
  double NoteContention(const EdgeFlowsByKey& window, const placement::NodeStatistics& node,
                        double length_s);

  BindingManager& binding_;
  monitor::Monitor& monitor_;
  const ResourceOptions options_;
  MigrationObserver* next_ = nullptr;  // constant once the node runs
  LinkEstimator links_;

  mutable Mutex mutex_;
  absl::Duration window_ ABSL_GUARDED_BY(mutex_);  // options_.window, until it is set
  uint64_t memory_limit_bytes_ ABSL_GUARDED_BY(mutex_);
  std::optional<Sample> last_ ABSL_GUARDED_BY(mutex_);
  std::set<Rid> moved_ ABSL_GUARDED_BY(mutex_);  // since the last digest
  CallSpans spans_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, Steadiness> steadiness_ ABSL_GUARDED_BY(mutex_);  // by slot
  absl::flat_hash_map<EdgeKey, Steadiness> edge_steadiness_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<EdgeKey, absl::Time> edge_used_ ABSL_GUARDED_BY(mutex_);  // last called
  Contention contention_ ABSL_GUARDED_BY(mutex_);
  std::deque<Retired> retired_ ABSL_GUARDED_BY(mutex_);
  std::map<Rid, ConsoleState> consoles_ ABSL_GUARDED_BY(mutex_);
  std::map<Rid, PinState> pins_ ABSL_GUARDED_BY(mutex_);
  std::map<Rid, PinRecord> rules_ ABSL_GUARDED_BY(mutex_);            // but for the pins
  std::map<Rid, uint64_t> checkpoint_bytes_ ABSL_GUARDED_BY(mutex_);  // of the last move
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_RESOURCE_MANAGER_H_
