#ifndef ABACUS_OBJFS_LAYER_SUBGRAPH_H_
#define ABACUS_OBJFS_LAYER_SUBGRAPH_H_

#include "objfs/layer/layer.h"
#include "objfs/layer/version.h"
#include "runtime/base/codec.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// The object subgraph of an open file as a part of an application's object graph, for the time of
// one call (FileSystem::WithSubgraph). Travels between nodes.
struct Subgraph {
  runtime::Ref<Layer> top;  // of the file's stack
  Version now;              // what the layers' calls are made with: whose they are, and when
  ABACUS_FIELDS(top, now)
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_LAYER_SUBGRAPH_H_
