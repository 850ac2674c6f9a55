#ifndef ABACUS_PLACEMENT_LEDGER_H_
#define ABACUS_PLACEMENT_LEDGER_H_

// What was decided and is not yet to be seen in any measured figure: load and memory that moves are
// about to bring to nodes or take from them, and objects that are on their way.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Keeps ten clients that see the same relief from all going for it at once: each decision is made
// on loads to which those already let go are added, as equation 5 adds them, until the measured
// load contains them itself. A load measured over the last window that began t ago contains the
// part t / H of a change made t ago; the rest is added.
//   0.4 of load moved 0.25 H ago: a quarter of it is measured, 0.3 is added.
//
// Units: _s seconds; loads have none. REQUIRES of all methods: now_s does not decrease.
// Thread-safety: thread-compatible. Limits: kChangesMax changes of a node, the oldest go first.
// Source: ours; the paper's servers decide stack by stack on what they measured.
class Ledger {
 public:
  static constexpr size_t kChangesMax = 64;

  // `load` comes to the node (negative: leaves it) by a move for a console, decided at now_s, with
  // so much memory.
  void Add(NodeId node, const ObjectId& by, double load, double memory_bytes, double now_s);
  // Adds what is not yet measured to the nodes' loads and takes it from their free memory. Loads
  // never get below 0, nor free memory.
  void Apply(double now_s, double window_s, Snapshot* snapshot) const;
  // Sum of the absolute loads of changes in the last window for other consoles than this: its own
  // are in what its next decision is made on, as it was measured since.
  double ChangedByOthers(NodeId node, const ObjectId& than, double now_s, double window_s) const;
  // The other consoles that brought load to the node in the last window.
  std::vector<ObjectId> CameFor(NodeId node, const ObjectId& than, double now_s,
                                double window_s) const;

  // Whether another console than `by` holds the object.
  bool Claimed(const ObjectId& object, const ObjectId& by, double now_s) const;
  // Claims an object for a console until now_s + at_most_s; Release() ends all claims of a console.
  void Claim(const ObjectId& object, const ObjectId& by, double now_s, double at_most_s);
  void Release(const ObjectId& by);

  // Drops what is older than a window. Again at the same time it does nothing: of a round of many
  // consoles each asks for it.
  void Trim(double now_s, double window_s);
  size_t size() const { return nodes_.size() + claims_.size(); }

 private:
  struct Change {
    ObjectId console;
    double at_s = 0;
    double load = 0;
    double memory_bytes = 0;
  };
  struct Holder {
    ObjectId console;
    double until_s = 0;
  };

  absl::flat_hash_map<NodeId, std::vector<Change>> nodes_;  // the oldest first
  absl::flat_hash_map<ObjectId, Holder> claims_;
  absl::flat_hash_map<ObjectId, std::vector<ObjectId>>
      claimed_by_;  // of each console, until released
  double trimmed_s_ = -1e300;
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_LEDGER_H_
