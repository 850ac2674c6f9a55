#include "placement/sim/cluster.h"

#include <utility>

namespace abacus::placement::sim {

size_t AddChain(Cluster& cluster, size_t client, size_t server,
                const std::vector<std::string>& classes, std::vector<Phase> phases) {
  Console console;
  for (size_t j = 0; j < classes.size(); ++j) {
    const bool last = j + 1 == classes.size();
    console.objects.push_back(cluster.objects.size());
    cluster.objects.push_back(
        {.class_name = classes[j], .node = last ? server : client, .mobile = j > 0 && !last});
    if (j > 0) console.edges.push_back({.from = j - 1, .to = j});
  }
  console.phases = std::move(phases);
  cluster.consoles.push_back(std::move(console));
  return cluster.consoles.size() - 1;
}

NodeId ToNodeId(size_t node) { return static_cast<NodeId>(node + 1); }

ObjectId ToObjectId(const Cluster& cluster, size_t object) {
  return {.node = ToNodeId(cluster.objects[object].node), .incarnation = 1, .local = object + 1};
}

}  // namespace abacus::placement::sim
