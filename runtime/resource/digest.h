#ifndef ABACUS_RUNTIME_RESOURCE_DIGEST_H_
#define ABACUS_RUNTIME_RESOURCE_DIGEST_H_

#include <string>
#include <vector>

#include "placement/statistics.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

// An object that the engine is to leave where it is. Kept at the object's home, so that it holds
// wherever the object goes.
struct PinRecord {
  Rid rid;
  std::string reason;  // for people: "pinned", "moved by hand, until unpinned or 300 s have passed"
};

// What one node saw since its last digest: what clients send to the servers that their objects use,
// and what a server makes of its own objects (paper, section 5.3).
struct Digest {
  NodeInstance from;
  double window_s = 0;  // the time since then; 0: no figures, those to come begin anew
  placement::NodeStatistics node;
  std::vector<placement::ObjectStatistics> objects;  // hosted by `from`
  std::vector<placement::EdgeStatistics> edges;      // whose caller is hosted by `from`
  std::vector<placement::LinkStatistics> links;      // from `from`
  std::vector<Rid> consoles;                         // of `from`
  std::vector<PinRecord> pins;                       // of objects whose home is `from`
};

inline placement::ObjectId ToObjectId(const Rid& rid) {
  return {rid.home.node, rid.home.incarnation, rid.local};
}
inline Rid ToRid(const placement::ObjectId& id) { return {{id.node, id.incarnation}, id.local}; }

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_DIGEST_H_
