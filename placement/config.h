#ifndef ABACUS_PLACEMENT_CONFIG_H_
#define ABACUS_PLACEMENT_CONFIG_H_

// Every constant that the placement engine decides with.

#include <cstddef>

#include "absl/status/status.h"

namespace abacus::placement {

// The ranges are those that Validate() accepts.
struct Config {
  // The paper's B_thresh. A move must bring, after its cost, more than this part of the predicted
  // time of the new placement: 0.30 moves for a speed-up over 1.3. 0 to 1000.
  double b_thresh = 0.30;
  // The paper's H: benefit and cost are compared for the work of this many seconds. 0.001 to 3600.
  double window_s = 1.0;

  // Bytes that must have flowed along the stack's edges in the window, and over which the link's
  // bandwidth must have been measured, before the figures count as evidence. 0 to 1e18.
  double min_evidence_bytes = 16 * 1024;
  double min_link_evidence_bytes = 16 * 1024;

  // Iterations of equations 5 and 6 for one candidate, after which it is given up as not converged,
  // and the relative change of T_app that counts as converged. 1 to 10000; 1e-12 to 0.1.
  int fixed_point_iterations_max = 100;
  double fixed_point_tolerance = 1e-9;

  // What quiescing is assumed to take until a move was observed. 0 to 3600.
  double quiesce_prior_s = 0.002;
  // Round trips of the migration protocol while the objects are blocked. 0 to 1000.
  double protocol_round_trips = 2.5;

  // Of how many standard deviations of the benefit a move must be sure: the threshold is compared
  // with benefit - confidence_z x deviation - cost. 1.645: right in 95 of 100 cases if errors are
  // normal. 0: the paper's letter, which takes figures for exact. 0 to 10.
  double confidence_z = 1.645;

  // Most objects of one console's stack or graph that are decided on; the work grows with the
  // square. 2 to 4096.
  size_t stack_objects_max = 1024;
  // Candidates that a decision about a graph lists for people, the best ones; the splits of a
  // chain are all listed. 2 to 4096.
  size_t candidates_max = 16;

  // Share of a server's capacity, rate x cores, that objects which are pulled there (mobile ones,
  // on a node where no console of theirs is) may use together. 1: no limit. Lowering it ejects
  // nothing by itself, but nothing more comes while they use more. 0 to 1.
  double cpu_share_max = 1;

  // Takes the client's load as measured whatever the split, to the letter of the paper's section
  // 5.4.2. Otherwise only the load that others put on the client is constant and the stack's own
  // share follows the split, as it does at the server.
  bool client_load_constant = false;
};

// OK, or kInvalidArgument naming the first field out of range, its value and the range.
absl::Status Validate(const Config& config);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_CONFIG_H_
