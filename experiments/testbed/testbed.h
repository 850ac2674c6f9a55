#ifndef ABACUS_EXPERIMENTS_TESTBED_TESTBED_H_
#define ABACUS_EXPERIMENTS_TESTBED_TESTBED_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/testbed/process.h"

namespace abacus::experiments {

struct TestbedOptions {
  std::string topology;  // paper, modern, wan, or the path of a file
  std::string name;      // empty: the topology's
  // Nodes and their shares of a core, other than the topology's, for example {"s1", "6%"}.
  std::vector<std::pair<std::string, std::string>> cpu;
  // What ./dev testbed runs; empty: python3 with testbed_main.py of this program's source tree.
  std::vector<std::string> command;
};

struct TestbedNode {
  std::string name;
  std::string address;  // IPv4; the same at each node
  std::string network;
};

// An emulated network of small machines on this host: that of `./dev testbed`, which README.md
// tells about. Programs on its nodes are real ones, with real sockets.
//
// The command does it all, in processes of its own, so that what a testbed consists of is written
// down once. Threads of this process in nodes' namespaces would not do: programs on a node are
// processes, with signals and an end of their own.
//
// A testbed lives as long as its object. Where the program ends without the destructor, it stays,
// and its name is taken, until `./dev testbed down NAME`.
//
// Thread-safety: owner-thread, as Process is.
class Testbed {
 public:
  // Builds one and returns when it can be used. Nothing is left where that fails.
  // REQUIRES: for a topology with delays netem in the kernel or else abacus_link_delay, which the
  // environment's ABACUS_LINK_DELAY names, or else was built with ./dev build release.
  // Errors, each with what the command said of it:
  //         kInvalidArgument    - no such topology, mistakes in it, a bad name, node or share.
  //         kFailedPrecondition - the machine refuses: not root, the name is taken, no ip or tc.
  //         kInternal           - the command cannot be run, or prints what is not understood.
  // Blocking: yes, some seconds. Limits: those of topologies, 64 nodes.
  static absl::StatusOr<std::unique_ptr<Testbed>> Up(const TestbedOptions& options);
  // Takes it down, with all that runs on it; what cannot be removed is told on stderr.
  // Blocking: yes, up to 30 s.
  ~Testbed();
  Testbed(const Testbed&) = delete;
  Testbed& operator=(const Testbed&) = delete;

  const std::string& name() const { return name_; }
  // What was built and what emulates what, in lines for people; warnings too.
  const std::string& description() const { return description_; }
  // In the topology's order.
  const std::vector<TestbedNode>& nodes() const { return nodes_; }
  // nullptr: there is none. Ownership: the testbed's.
  const TestbedNode* FindNode(const std::string& name) const;

  // Starts a program on a node, in its network and with its share of a core. The Process is the
  // program itself once it runs: signals reach it, and the exit code is its own. The Process may
  // outlive the testbed; the program does not.
  // Errors: kNotFound        - no such node; the message names those that there are.
  //         kInvalidArgument - no arguments.
  //         Those of fork. What shows as an exit code is none: 125 - the testbed is gone; 126, 127
  //         - the program cannot be run.
  // Blocking: no.
  absl::StatusOr<Process> Start(const std::string& node, const std::vector<std::string>& arguments,
                                const ProcessOptions& options = {}) const;

  // Measures it: bandwidths, delays, shares of a core. Wants a machine that does nothing else.
  // Errors: kFailedPrecondition - values are off, or cannot be measured: the table of all of them.
  // Blocking: yes, some 55 s for `paper`.
  absl::Status Check();

 private:
  Testbed(std::vector<std::string> command, std::string name, std::string description);

  const std::vector<std::string> command_;
  const std::string name_;
  const std::string description_;
  std::vector<TestbedNode> nodes_;  // constant after Up()
};

}  // namespace abacus::experiments

#endif  // ABACUS_EXPERIMENTS_TESTBED_TESTBED_H_
