#ifndef ABACUS_PLACEMENT_CUT_H_
#define ABACUS_PLACEMENT_CUT_H_

// Minimum s-t cut of a directed graph with capacities: for given loads, the best split of an object
// graph between two nodes.
//
// Why a cut: give every object an arc from the source (node A) whose capacity is what it would cost
// on B, an arc to the sink (node B) whose capacity is what it would cost on A, and two objects that
// call each other arcs both ways whose capacity is what their calls cost across the link. A cut
// then pays exactly the cost of the placement "source side on A, sink side on B".
//
// Source: ours. The paper tries the splits of a stack one by one; a graph has 2^n of them.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace abacus::placement {

struct Cut {
  // Sum of the capacities that lead from the source's side to the sink's, as they were added;
  // infinite if every cut is.
  double capacity = 0;
  // The largest flow, which equals the capacity up to rounding. Infinite if every cut is.
  double flow = 0;
  // By vertex: whether it is on the source's side. Of several smallest cuts the one with the fewest
  // vertices on the source's side. Where every cut is infinite: only the source.
  std::vector<bool> source_side;
};

// A graph to be cut. Vertices are 0 to vertices - 1.
//
// Dinic's algorithm: shortest augmenting paths, a whole level of them at a time. Rounding cannot
// keep it from ending: an augmentation subtracts the smallest residual capacity of its path from
// itself, which leaves exactly 0, so a level has at most as many augmentations as arcs; and what it
// adds leads back, so that the distance to the sink grows from level to level, up to `vertices`.
// Thread-compatible. Blocking: none. Limits: 2^31 - 1 vertices and arcs.
class CutGraph {
 public:
  explicit CutGraph(size_t vertices) : vertices_(vertices) {}

  size_t vertices() const { return vertices_; }

  // Adds `capacity` from `from` to `to` and `back` from `to` to `from`; parallel arcs add up. An
  // infinite capacity is never cut. An arc from a vertex to itself is ignored.
  // REQUIRES: from, to < vertices(); capacities not negative and not NaN.
  void AddArc(size_t from, size_t to, double capacity, double back = 0);

  // The smallest cut with `source` on one side and `sink` on the other.
  // REQUIRES: source != sink. Limits: O(vertices^2 x arcs); 1,000 vertices with 10,000 edges take
  // about a millisecond.
  Cut MinCut(size_t source, size_t sink) const;

 private:
  struct Arc {
    uint32_t from;
    uint32_t to;
    double capacity;
  };

  const size_t vertices_;
  std::vector<Arc> arcs_;  // in pairs: arc i and its way back i ^ 1
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_CUT_H_
