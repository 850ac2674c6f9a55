#ifndef ABACUS_OBJFS_ATOMICITY_BLOCK_CLAIMS_H_
#define ABACUS_OBJFS_ATOMICITY_BLOCK_CLAIMS_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "objfs/atomicity/group_part.h"
#include "objfs/layer/version.h"

namespace abacus::objfs {

// Which blocks the groups under way at one server have read or will write: from before a group is
// looked at until it is applied or undone. So what a group has found unchanged stays so while the
// others of its servers are asked, and two groups never wait to write one block.
//
// Nobody waits for a claim: who does not get one is refused, and tries again.
// Thread-safety: thread-compatible. Blocking: no.
class BlockClaims {
 public:
  // All that the group needs, or nothing: false where another one has something of it. Several may
  // read a block; who writes it has it alone. A second time it does nothing.
  bool Take(Version group, const GroupPart& part);
  // Does nothing where the group has none.
  void Release(Version group);

  size_t groups() const { return taken_.size(); }
  bool empty() const { return taken_.empty() && blocks_.empty(); }

 private:
  using Block = std::pair<ObjectId, uint64_t>;
  struct Claim {
    Version writer;  // 0: none
    std::set<Version> readers;
  };
  std::map<Block, Claim> blocks_;
  std::map<Version, std::vector<Block>> taken_;  // by group; a block may stand twice
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_BLOCK_CLAIMS_H_
