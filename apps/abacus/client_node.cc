#include "apps/abacus/client_node.h"

#include <utility>

#include "apps/abacus/log_setup.h"
#include "apps/abacus/monitor_of.h"
#include "apps/abacus/scrub.h"
#include "apps/abacus/volumes.h"
#include "apps/column_aggregate/column_aggregate.h"
#include "apps/grep/grep_object.h"
#include "apps/word_count/word_count.h"
#include "runtime/base/status.h"

namespace abacus::apps {

runtime::ObjectTypes Classes(std::shared_ptr<objfs::BlockPool> cache,
                             const objfs::ParityWork& parity_work) {
  runtime::ObjectTypes types;
  types.Add<Grep>().Add<WordCount>().Add<ColumnAggregate>();
  types.Add<ScrubStates>();
  AddFileSystemClasses(types, std::move(cache), parity_work);
  return types;
}

absl::StatusOr<runtime::Config> ConfigOf(const std::string& file) {
  if (file.empty()) return runtime::Config();
  return runtime::LoadConfig(file);
}

absl::StatusOr<std::unique_ptr<ClientNode>> ClientNode::Start(const ClientOptions& options,
                                                              const std::string& name) {
  runtime::NodeOptions node;
  ABACUS_ASSIGN_OR_RETURN(node.config, ConfigOf(options.config));
  if (node.config.node.name.empty()) node.config.node.name = name;
  // Who types a command wants its result; what the node does beside that only where it goes wrong.
  if (options.config.empty()) node.config.log.level = "warning";
  ABACUS_RETURN_IF_ERROR(SetUpLog(node.config.log));
  node.servers = options.servers;
  auto client = std::unique_ptr<ClientNode>(new ClientNode(node.config));
  const auto start = [&]() -> absl::Status {
    ABACUS_ASSIGN_OR_RETURN(auto monitor, MonitorOf(node.config));
    ABACUS_ASSIGN_OR_RETURN(client->node_,
                            runtime::Node::Start(node, client->types_, std::move(monitor)));
    return absl::OkStatus();
  };
  const absl::Status all = start();
  if (all.ok()) return client;
  // Of several servers one may be away; which, its volume may not care.
  for (size_t i = 0; i < options.servers.size() && options.servers.size() > 1; ++i) {
    node.servers = {options.servers[i]};
    if (!start().ok()) continue;
    for (const std::string& server : options.servers) client->node_->Reach(server);
    return client;
  }
  return all;
}

}  // namespace abacus::apps
