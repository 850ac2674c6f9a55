#ifndef ABACUS_PLACEMENT_TESTING_SNAPSHOTS_H_
#define ABACUS_PLACEMENT_TESTING_SNAPSHOTS_H_

// Snapshots for tests, and a world in which a decision can be carried out.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "placement/config.h"
#include "placement/decision.h"
#include "placement/statistics.h"

namespace abacus::placement::testing {

inline constexpr NodeId kClient = 7;
inline constexpr NodeId kServer = 1;
inline constexpr ObjectId kConsole{7, 1, 1};
inline constexpr ObjectId kGrep{7, 1, 2};
inline constexpr ObjectId kStorage{1, 1, 1};

// console -> grep -> storage, grep at the client, one second of it: 18 blocks of 64 KiB come over a
// link of 1.25 MB/s and 1 ms; few of their bytes go on to the console. Every figure of the README's
// arithmetic is from here.
Snapshot GrepSnapshot();

// Numbers that depend on the seed alone, with every compiler and library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // 0 to n - 1. REQUIRES: n > 0.
  uint64_t Below(uint64_t n) { return Next() % n; }
  // Uniform in [low, high).
  double Uniform(double low, double high);
  // Over orders of magnitude: uniform in the exponent. REQUIRES: low > 0.
  double LogUniform(double low, double high);
  bool Chance(double probability) { return Uniform(0, 1) < probability; }

 private:
  uint64_t state_;
};

// A snapshot that the engine accepts: 2 to 9 objects with any costs, anchors and pins on any of the
// two nodes, rows in any order. Loads are consistent with what the stack itself uses.
Snapshot RandomSnapshot(Random& random);

// A graph that the engine accepts: a console, up to `mobile_max` objects that may move (some
// pinned, some in an attach group, some limited to allowed nodes), an anchored storage object on
// each of 1 to `servers_max` servers, in a tree or with shared callees; loads and links of any
// kind, the servers' links to each other sometimes unknown. Objects start anywhere that their calls
// reach.
struct GraphShape {
  size_t mobile_max = 6;
  size_t servers_max = 3;
  double memory_limits = 0.2;  // probability of one, by node
  double uncertain = 0.0;      // probability of variances
};
Snapshot RandomGraph(Random& random, const GraphShape& shape);

// `stacks` consoles, each on a client of its own with a chain of one or two mobile objects and a
// storage object on one of 1 to 2 servers; some call a mobile object that several share. Servers
// are slow, loaded or short of memory often enough that not all can have what they want.
Snapshot RandomRound(Random& random, size_t stacks);

// The snapshot of the same work in the same window after the decision's moves: CPU times as on the
// new nodes, loads and free memory changed by what the moved objects use, the load of others as it
// was (and, with client_load_constant, the client's load too).
Snapshot After(const Snapshot& snapshot, const Decision& decision, const Config& config);

Snapshot After(const Snapshot& snapshot, const std::vector<Move>& moves, const Config& config);

// In GrepSnapshot(): as many bytes leave the grep as enter it, times `factor`.
void SetMatching(Snapshot& snapshot, double factor);

// Entry of the snapshot by its key; aborts if there is none.
ObjectStatistics& ObjectOf(Snapshot& snapshot, const ObjectId& id);
NodeStatistics& NodeOf(Snapshot& snapshot, NodeId node);
EdgeStatistics& EdgeOf(Snapshot& snapshot, const ObjectId& from, const ObjectId& to);

}  // namespace abacus::placement::testing

#endif  // ABACUS_PLACEMENT_TESTING_SNAPSHOTS_H_
