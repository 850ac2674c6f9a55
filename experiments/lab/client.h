#ifndef ABACUS_EXPERIMENTS_LAB_CLIENT_H_
#define ABACUS_EXPERIMENTS_LAB_CLIENT_H_

#include "absl/status/status.h"
#include "experiments/lab/job.h"
#include "experiments/lab/lab_node.h"

namespace abacus::lab {

// A client: makes what its job needs, prints "ready", and does the job when a line comes on its
// standard input. It prints "moved" whenever an object of its has moved meanwhile, then what became
// of the job, a line of JSON (README.md), and stays until its standard input ends, so that no
// client's leaving is in another's figures.
// Errors: those of LabNode::Start and of the job.
absl::Status RunClient(const LabNodeOptions& options, const Job& job);

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_CLIENT_H_
