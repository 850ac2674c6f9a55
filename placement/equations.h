#ifndef ABACUS_PLACEMENT_EQUATIONS_H_
#define ABACUS_PLACEMENT_EQUATIONS_H_

// Equations 1 to 6 of the paper's section 5.4.1 as pure functions: the response time of a stack
// under a placement, and the load that the placement itself causes.
//
// A stack is O_0 (console) .. O_n (storage) between one client and one server. A split k puts
// O_0..O_k on the client and O_k+1..O_n on the server. The functions take any assignment of sides
// to objects, of which a split is the ordinary case: an object held back by hand can leave a stack
// interleaved, and the engine must be able to say what that costs.
//
// Everything is about the work of one window H, in seconds. The functions trust their arguments:
// finite, not negative, rates, cores and bandwidth above 0 (chain.h lets nothing else through).
// Thread-safety: pure functions. Blocking: none.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace abacus::placement {

enum class Side : uint8_t { kClient, kServer };

// The side of each object of a stack, console first.
using Sides = std::vector<Side>;

// O_0..O_k on the client, the rest of `objects` on the server. k = -1: nothing on the client;
// k = objects - 1: nothing on the server.
Sides SidesOfSplit(int k, size_t objects);

struct Layer {
  double work = 0;         // h_j b_j: work units in the window
  double own_stall_s = 0;  // blocked inside the object itself, wherever it is (C_n for storage)
};

// What passes between O_j and O_j+1 in the window, both directions together.
struct Flow {
  double calls = 0;
  double bytes = 0;
};

struct Host {
  double rate = 1;        // R: work units per second of one core
  double cores = 1;       // c
  double contention = 1;  // see SlowDown()
};

struct Link {
  double bandwidth_bytes_s = 1;
  double round_trip_s = 0;
  double round_trip_bytes = 0;  // what a call carries within that time
};

struct Stack {
  std::vector<Layer> layers;
  std::vector<Flow> flows;  // layers.size() - 1 of them
  Host client;
  Host server;
  Link link;
};

// A figure for each of the two nodes: loads L or effective rates r.
struct PerSide {
  double client = 1;
  double server = 1;
};

// T_app by its parts, in seconds.
struct Terms {
  double client_cpu_s = 0;
  double network_s = 0;
  double server_cpu_s = 0;
  double own_stall_s = 0;

  double Total() const { return client_cpu_s + network_s + server_cpu_s + own_stall_s; }
};

// Equation 1: T_app = sum of P_j + sum of C_j, all processing and all stall times.
//   P = {0.1, 0.2, 0.3} s, C = {0, 0.4, 0.05} s: 0.6 + 0.45 = 1.05 s.
double ResponseTime(absl::Span<const double> processing_s, absl::Span<const double> stall_s);

// h_j b_j of an object that used `cpu_s` seconds of CPU time on a node of rate R. CPU time does not
// grow with the load, so R and not r converts it.
//   0.2 s on a node of 3e8 units/s: 6e7 units.
double WorkOf(double cpu_s, double rate);

// The paper's r = R / L, on c cores: r = R x min(1, c / L). L tasks share c cores; a task never
// gets more than one of them. L below 1 counts as 1: a task that runs finds at least itself there.
//   R = 3e8, c = 2: L = 1.5 gives 3e8; L = 5 gives 3e8 x 2/5 = 1.2e8.
double EffectiveRate(const Host& host, double load);

// How much longer than at full rate a task takes: R / r = 1 + contention x (max(1, L / c) - 1),
// with L at least 1. At a contention of 1 that is the r above. Source: the factor is ours; a
// scheduler lets a task that has slept run at once, so that it is slowed less than equation 2 says.
//   c = 2: L = 1.5 gives 1; L = 5 gives 2.5; L = 5 at a contention of 0.2 gives 1.3.
double SlowDown(double load, double cores, double contention);
inline double SlowDownOn(const Host& host, double load) {
  return SlowDown(load, host.cores, host.contention);
}

// A processing term of equation 2: P_j = h_j b_j / r.
//   6e7 units at 1.2e8 units/s: 0.5 s.
double ProcessingTime(double work, double effective_rate);

// The stall C_k of a flow that crosses the link: calls x round trip + bytes / bandwidth. A round
// trip is that of the smallest invocations seen; what these carried is in it, and comes off the
// bytes, so that the two parts do not overlap.
//   20 calls and 1e6 bytes at 1.25e6 bytes/s and 1 ms: 0.02 + 0.8 = 0.82 s.
//   1000 calls of 300 bytes there, where 1 ms was measured on calls of 250: 1 + 0.04 = 1.04 s.
double StallTime(const Flow& flow, const Link& link);

// Equation 3: T_app for given effective rates. A flow between two objects of one side is free.
Terms TermsAtRates(const Stack& stack, const Sides& sides, const PerSide& rates);

// Equation 4: the same for given loads, r being replaced by R and L. Equation 6 is equation 4 with
// the loads of the hypothetical placement.
Terms TermsAtLoads(const Stack& stack, const Sides& sides, const PerSide& loads);

// Equation 5: the load of the node on `side` after the stack's sides change from `from` to `to`:
//
//   L(to) = L(from) + (h_j b_j over those that arrive - h_j b_j over those that leave) / (R T_app)
//
// that is, the fraction of `response_s` that these objects spend processing there. For two splits
// the sum at the server is over k'+1..k where k' < k, and over k+1..k' with a minus sign where
// k < k'; the paper prints the first as k'..k, which would count O_k', an object that stays.
// Never below 0. `response_s` is not read where no work moves.
//   R = 1, works {0.1, 0.2, 0.3, 0.4}, L_server(3) = 1.5, T = 2 s:
//   to split 1: 1.5 + (0.3 + 0.4) / 2 = 1.85; and back from 1.85: 1.85 - 0.7 / 2 = 1.5.
double LoadOfPlacement(const Stack& stack, Side side, const Sides& from, const Sides& to,
                       double load_from, double response_s);

// The load that others put on the two nodes: what was measured less the share of the stack itself.
//
// A measured load already contains the stack as it is placed now, averaged over the window: objects
// of cpu_s CPU seconds make cpu_s / H of it. This is equation 5 with a minus sign, from `present`
// to a placement with nothing on that node, T_app being the H over which the load was averaged.
// What is left does not depend on where the stack is now, so that predictions made before and after
// a move agree with each other.
//   Server of rate 1, L = 1.5, objects of 0.3 units there, H = 1: others 1.2.
PerSide LoadOfOthers(const Stack& stack, const Sides& present, const PerSide& measured,
                     double window_s);

struct FixedPointOptions {
  int iterations_max = 100;
  double tolerance = 1e-9;            // relative change of T_app that counts as converged
  bool client_load_constant = false;  // others.client is the client's load for every placement
};

struct Prediction {
  Terms terms;
  double response_s = 0;  // T_app = terms.Total()
  PerSide loads;          // L used for `terms`, the floor of 1 applied
  int iterations = 0;     // evaluations of equations 5 and 6 after the starting one
  bool converged = true;  // false: cut off; the other fields hold the last iteration
};

// Equations 5 and 6 together: T_app needs the loads, and the load that the stack adds to `others`
// needs T_app.
//
// Starts at T_app under the load of others alone, then repeats: loads by equation 5, T_app by
// equation 6. With x the CPU seconds of the stack on a node at full rate and B the load of others,
// one step is T -> A + x max(1, (B + x/T) / c) summed over both nodes, which falls as T grows:
// hence there is exactly one fixed point, it lies between each T and its image, and the step turns
// to the middle of the two where plain repetition does not at least halve the distance.
//   One core, B = 1, x = 0.6, A = 0.3: T^2 - 0.9 T - 0.36 = 0, T = 1.2 s, L = 1 + 0.6/1.2 = 1.5.
Prediction Predict(const Stack& stack, const Sides& sides, const PerSide& others,
                   const FixedPointOptions& options);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_EQUATIONS_H_
