#ifndef ABACUS_RUNTIME_RESOURCE_DIGEST_H_
#define ABACUS_RUNTIME_RESOURCE_DIGEST_H_

#include <string>
#include <vector>

#include "placement/statistics.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

// What people have told the engine about one object. Kept at the object's home, so that it holds
// wherever the object goes.
struct PinRecord {
  Rid rid;
  // Why it is to be left where it is, for people: "pinned", "moved by hand, until unpinned or 300 s
  // have passed". Empty: it is not held.
  std::string reason;
  std::vector<NodeId> allowed;  // nodes that it may be moved to; empty: the engine's choice
  uint32_t attach_group = 0;    // objects of one group move together; 0: of none
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
  // Objects that came to `from` or left it since the last digest: what is said of them, and of
  // calls from and to them, is of no placement. Figures of all others count.
  std::vector<Rid> begin_anew;
};

// The number of the group of these objects: the same whoever asks for it, and not 0.
uint32_t AttachGroupOf(std::vector<Rid> rids);

inline placement::ObjectId ToObjectId(const Rid& rid) {
  return {rid.home.node, rid.home.incarnation, rid.local};
}
inline Rid ToRid(const placement::ObjectId& id) { return {{id.node, id.incarnation}, id.local}; }

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_DIGEST_H_
