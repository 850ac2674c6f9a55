#ifndef ABACUS_APPS_ABACUS_CLIENT_NODE_H_
#define ABACUS_APPS_ABACUS_CLIENT_NODE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/volumes.h"
#include "objfs/cache/block_pool.h"
#include "runtime/node/node.h"

namespace abacus::apps {

// The classes that every node of this program is built with.
// `cache`, `parity_work`: as for AddFileSystemClasses().
runtime::ObjectTypes Classes(std::shared_ptr<objfs::BlockPool> cache = nullptr,
                             const objfs::ParityWork& parity_work = {});

// The configuration of a file, or the defaults where none is named.
// Errors: those of LoadConfig.
absl::StatusOr<runtime::Config> ConfigOf(const std::string& file);

// This process as a client of a cluster, for as long as a command runs.
//
// Refs to objects must be gone before it is deleted. Owner-thread.
class ClientNode {
 public:
  // Joins the servers; `name` is the node's where the configuration gives none, and empty the
  // host's. Errors: those of ConfigOf and Node::Start.
  static absl::StatusOr<std::unique_ptr<ClientNode>> Start(const ClientOptions& options,
                                                           const std::string& name = "");

  runtime::Node& node() { return *node_; }
  const runtime::Config& config() const { return config_; }

 private:
  explicit ClientNode(runtime::Config config)
      : config_(std::move(config)), types_(Classes(CacheOf(config_.cache))) {}

  const runtime::Config config_;
  const runtime::ObjectTypes types_;
  std::unique_ptr<runtime::Node> node_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_CLIENT_NODE_H_
