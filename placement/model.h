#ifndef ABACUS_PLACEMENT_MODEL_H_
#define ABACUS_PLACEMENT_MODEL_H_

// Equations 1 to 7 for graphs: the response time of every console under an assignment of objects to
// nodes, and the loads that the assignment itself causes. Internal to the room.
//
//   T_c = sum over its objects of work / r(node) + own stall
//       + sum over edges between different nodes of calls x round trip + bytes / bandwidth
//   L_n = load of others + background work there / (R H) + sum over consoles of m_c x work there /
//   (R T_c)
//
// m_c being how many calls the console has going on at once: T_c is summed over them, so the work
// of one window is done in T_c / m_c.
// with r = R / SlowDown(L, c), which is R x min(1, c / L) at a contention of 1. For one console and
// two nodes these are equations 5 and 6 (equations.h), for several consoles equation 7. Background
// work makes load and is in no T_c. Functions trust their graph: graph.h lets no figure through
// that could make a NaN.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "placement/equations.h"
#include "placement/graph.h"

namespace abacus::placement {

// CPU seconds, at the node's full rate, that a console's objects take on a node in one window.
struct Use {
  uint32_t console = 0;
  uint32_t node = 0;
  double cpu_s = 0;
  double at_once = 1;  // calls that the console has going on at once
};

struct NodeBase {
  double cores = 1;
  double contention = 1;
  double load = 0;                // without the consoles in question
  bool load_is_constant = false;  // what they add does not count
};

// A few figures, by console or by node: mostly no more than fit without an allocation.
using Figures = absl::InlinedVector<double, 4>;

struct Loads {
  Figures response_s;  // T_c of every console
  Figures loads;       // L of every node, the floor of 1 applied
  int iterations = 0;
  bool converged = true;  // false: cut off; the other fields hold the last iteration
};

// The fixed point of the two equations above for any number of consoles. `fixed_s` is of each
// console what does not depend on loads: own stalls and crossings.
//
// One console is iterated as Predict() does. For several let F be one application of both: F(T)_c =
// fixed_c + sum of cpu_cn x SlowDown(L_n(T)). F falls where any T grows, and F(T / k) <= k F(T) for
// k > 1, as a load grows at most k-fold: so in logarithms no two points come further apart by it,
// nearer where anything in T does not depend on loads. There is one fixed point. Its steps are
// T -> sqrt(T x F(T)), the middle in logarithms. There F has the derivative -M, M being similar to
// a symmetric positive semidefinite matrix (cpu_cn cpu_dn / c_n, summed over busy nodes, scaled)
// whose rows sum to at most 1: eigenvalues from 0 to 1, and those of the step, (1 - M) / 2, from 0
// to 1/2. Each step at least halves the distance.
//   Two consoles of 0.6 s each on one core, nothing else: T = 0.6 (0.6/T + 0.6/T) = 0.72 / T, so
//   T = 0.849 s, L = 1.414: each waits for the other 0.6 / 0.849 of the time.
// A console of m calls at once is m consoles of 1/m of the work each, whose times are summed: 1.2 s
// of two at once there take 1.2 x 2 x 1.2 / T, T = 1.697 s. The rows of M then carry m, and sum to
// at most 1 as before.
Loads SolveLoads(absl::Span<const double> fixed_s, absl::Span<const Use> uses,
                 absl::Span<const NodeBase> nodes, const FixedPointOptions& options);

// What there is beside the graph on one of its nodes: other consoles, which wait longer if the
// graph makes more load there.
struct Beside {
  double load = 0;   // of all that is not the graph's
  double cpu_s = 0;  // of the other consoles, at full rate: what is stretched by SlowDown()
  // Part of an added load that remains after the other consoles, slowed down, take a smaller share:
  // 1 / (1 + sum of cpu_s^2 / (T^2 c)).
  double remains = 1;
};

// What a placement is predicted to bring.
struct Evaluation {
  bool possible = true;  // false: calls would have to cross a link that is not usable
  Figures response_s;
  double response_sum_s = 0;  // over the graph's consoles
  double beside_s = 0;        // what consoles beside spend on the graph's nodes
  Figures loads;
  int iterations = 0;
  bool converged = true;

  double Total() const { return response_sum_s + beside_s; }
};

// A placement that can be changed object by object and asked for its times.
//
// Keeps the sums of the equations, so that a change costs the object's edges and an evaluation the
// consoles x nodes. Sums that were changed differ from fresh ones by rounding; what is decided on
// comes from a fresh Trial. Thread-compatible.
class Trial {
 public:
  // REQUIRES: `graph` outlives it; `beside` has an entry a node, or none: then GraphNode::others.
  Trial(const Graph& graph, const FixedPointOptions& options, Placement placement,
        std::vector<Beside> beside = {});

  const Graph& graph() const { return *graph_; }
  const Placement& placement() const { return placement_; }
  void Put(uint32_t object, uint32_t node);
  void PutUnit(uint32_t unit, uint32_t node);
  Evaluation Evaluate() const;

  // The evaluation as people read it.
  // Client: the nodes of consoles; server: all others. Loads: of the two nodes given.
  Prediction ToPrediction(const Evaluation& evaluation, uint32_t client, uint32_t server) const;

  // Sums of the present assignment: CPU seconds of a console at a node's full rate.
  double CpuOf(uint32_t console, uint32_t node) const { return cpu_s_[console * nodes_ + node]; }
  double BackgroundOn(uint32_t node) const { return background_[node]; }
  // What does not depend on loads: stalls and crossings of a console.
  double FixedOf(uint32_t console) const {
    return std::max(0.0, network_s_[console]) + stall_s_[console];
  }
  const std::vector<Beside>& beside() const { return beside_; }
  // The edges of an object, as indices into Graph::edges.
  absl::Span<const uint32_t> EdgesOf(uint32_t object) const { return graph_->EdgesOf(object); }

 private:
  void AddObject(uint32_t object, uint32_t node, double sign);
  void AddEdge(const GraphEdge& edge, uint32_t a, uint32_t b, double sign);

  const Graph* graph_;
  FixedPointOptions options_;
  Placement placement_;
  std::vector<Beside> beside_;
  size_t nodes_;
  Figures cpu_s_;       // consoles x nodes
  Figures network_s_;   // by console
  Figures stall_s_;     // by console
  Figures background_;  // load by node
  int impossible_ = 0;  // edges across links that are not usable
};

// Seconds that a flow takes across a link; none within a node.
double CrossingTime(const Graph& graph, const GraphEdge& edge, uint32_t a, uint32_t b);

// Standard deviation of T(from) - T(to), summed over the consoles, from the variances of CPU times,
// bytes and bandwidths, which are taken as independent.
//
// Linear propagation: the variance of a function is the sum of derivative^2 x variance. At the
// predicted loads T is linear in work (coefficient 1 / r) and bytes (1 / bandwidth where they
// cross), and its derivative by a bandwidth is -bytes / bandwidth^2; a figure that enters both
// times alike cancels. As the norm of a difference of vectors it obeys the triangle inequality.
//   Of the README's grep, 0.02 units +- 0.002: at the client 0.002, at the server of half the rate
//   0.004 s, the difference is 0.002 s. 1.18 MB +- 0.1 MB at 1.25 MB/s: 0.08 s. Together 0.080 s.
double BenefitDeviation(const Graph& graph, const Placement& from, const Evaluation& at_from,
                        const Placement& to, const Evaluation& at_to);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_MODEL_H_
