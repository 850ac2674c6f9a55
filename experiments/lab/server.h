#ifndef ABACUS_EXPERIMENTS_LAB_SERVER_H_
#define ABACUS_EXPERIMENTS_LAB_SERVER_H_

#include <string>

#include "absl/status/status.h"
#include "experiments/lab/lab_node.h"

namespace abacus::lab {

struct ServerOptions {
  LabNodeOptions node;
  bool disk = true;  // the modelled one, behind a page cache
  // What the volume has when the server is ready, as JSON:
  //   {"files": [{"name": "data", "bytes": 16777216}], "directories": ["d0"]}
  // Nothing of it is in the page cache then.
  std::string prepare = "{}";
};

// A storage server with a volume kVolume, as `abacus serve` is one. Prints "ready ADDRESS", and
// serves until its standard input ends.
// Errors: kInvalidArgument - `prepare`; those of LabNode::Start and of the file system.
absl::Status RunServer(const ServerOptions& options);

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_SERVER_H_
