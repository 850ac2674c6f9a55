#ifndef ABACUS_EXPERIMENTS_LAB_LAB_NODE_H_
#define ABACUS_EXPERIMENTS_LAB_LAB_NODE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/lab/processor.h"
#include "monitor-ebpf/monitor.h"
#include "runtime/base/block.h"
#include "runtime/node/node.h"
#include "runtime/object/mobile_object.h"

namespace abacus::lab {

// The names by which the programs of an experiment know each other.
inline constexpr char kVolume[] = "lab";
inline constexpr char kEcho[] = "lab.echo";
// What the files of a volume that was prepared are full of.
inline constexpr char kPrepared = 'a';

// Answers at once, and tells what its process has spent: the null call of the calibration.
class Echo final : public runtime::AnchoredObject {
 public:
  // CPU time of the server's process so far, in ns.
  absl::StatusOr<int64_t> Call(const runtime::Block& bytes);
  ABACUS_OBJECT(Echo, "lab.Echo", 1, Call)
};

// CPU time of this process, in ns.
int64_t ProcessCpuNs();

struct LabNodeOptions {
  std::string config;                // a file of the runtime's configuration
  double share = 0;                  // of a core, what the testbed gives the node; 0: as kShare
  double machine = 1;                // CPU time here of CPU time as the model has it
  bool paper = true;                 // messages and parity cost what they cost the paper's nodes
  std::vector<std::string> servers;  // empty: this one is a server
  std::string ways;                  // of RelayedTransport; empty: nodes are dialled as they are
};

// A node of the experiment: the runtime's, with the classes of the file system and of the
// applications, and messages that cost what they cost the paper's.
class LabNode {
 public:
  // Errors: those of LoadConfig and Node::Start.
  static absl::StatusOr<std::unique_ptr<LabNode>> Start(const LabNodeOptions& options);

  runtime::Node& node() { return *node_; }
  const runtime::Config& config() const { return config_; }
  // Where the figures of threads come from, and why not from a better source (empty: they do).
  std::string source() const { return monitor_->Source(); }
  std::string missing() const { return monitor_->Missing(); }

 private:
  LabNode(runtime::Config config, const LabNodeOptions& options);

  const runtime::Config config_;
  Processor processor_;
  const runtime::ObjectTypes types_;
  const monitor::Monitor* monitor_ = nullptr;  // the node's
  std::unique_ptr<runtime::Node> node_;
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_LAB_NODE_H_
