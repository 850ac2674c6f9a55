#ifndef ABACUS_RUNTIME_BINDING_LOCATION_TABLE_H_
#define ABACUS_RUNTIME_BINDING_LOCATION_TABLE_H_

// Where objects are, as one node knows it (paper, sections 5.1 and 5.2).
//
// Rows are the truth: for each object created here, the node that hosts it now. A migration is
// committed by the change of its row and by nothing else. Hints are what this node believes of
// objects created elsewhere: they may be stale or be forgotten, and cost a redirection then.
//
// Epochs order an object's places. Invariant: an older epoch never overwrites a newer one.
// Thread-compatible: the protocol core's lock protects it.

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

// One attempt to move a set of objects.
struct MigrationId {
  NodeInstance source;
  uint64_t local = 0;

  auto operator<=>(const MigrationId&) const = default;
  bool valid() const { return source.valid(); }

  template <typename H>
  friend H AbslHashValue(H h, const MigrationId& m) {
    return H::combine(std::move(h), m.source, m.local);
  }
};

struct LocationRow {
  NodeInstance host;
  uint64_t epoch = 1;
  MigrationId last;    // the migration that made this epoch
  MigrationId intent;  // the migration that the host has announced, not decided yet
  NodeInstance intent_target;
  bool lost = false;  // the host died with the only copy
};

struct LocationHint {
  NodeInstance host;
  uint64_t epoch = 0;
};

class LocationTable {
 public:
  LocationTable(NodeInstance self, size_t hints_max) : self_(self), hints_max_(hints_max) {}

  // Home rows. A rid of another home has none here.
  LocationRow& AddRow(const Rid& rid);
  LocationRow* FindRow(const Rid& rid);
  void EraseRow(const Rid& rid) {
    if (rid.home == self_) rows_.erase(rid.local);
  }
  size_t rows() const { return rows_.size(); }
  template <typename Visit>
  void ForEachRow(Visit visit) {
    for (auto& [local, row] : rows_) visit(Rid{self_, local}, row);
  }

  // Where this node would look for the object first: the row where it is home, else the hint.
  std::optional<LocationHint> Find(const Rid& rid) const;
  // Learns a place on another node, unless a newer one is known. Beyond the limit the hint that
  // was learnt first is forgotten.
  void Learn(const Rid& rid, NodeInstance host, uint64_t epoch);
  void Forget(const Rid& rid) { hints_.erase(rid); }
  void ForgetHost(NodeInstance host);
  size_t hints() const { return hints_.size(); }
  uint64_t hints_evicted() const { return hints_evicted_; }

 private:
  struct Kept {
    LocationHint hint;
    uint64_t number = 0;
  };
  struct Learnt {
    Rid rid;
    uint64_t number = 0;
  };
  bool IsCurrent(const Learnt& learnt) const;

  const NodeInstance self_;
  const size_t hints_max_;
  absl::flat_hash_map<uint64_t, LocationRow> rows_;
  absl::flat_hash_map<Rid, Kept> hints_;
  std::deque<Learnt> order_;  // in which hints were learnt; those forgotten since included
  uint64_t learnt_ = 0;
  uint64_t hints_evicted_ = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_LOCATION_TABLE_H_
