#ifndef ABACUS_RUNTIME_NODE_ENGINE_CONFIG_H_
#define ABACUS_RUNTIME_NODE_ENGINE_CONFIG_H_

// The placement engine's constants, out of a node's configuration.

#include "placement/config.h"
#include "placement/planner_config.h"
#include "runtime/base/config.h"

namespace abacus::runtime {

placement::Config ToEngineConfig(const Config& config);
placement::PlannerConfig ToPlannerConfig(const Config& config);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_ENGINE_CONFIG_H_
