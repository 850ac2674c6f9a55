#ifndef ABACUS_OBJFS_ATOMICITY_COMMIT_LINK_H_
#define ABACUS_OBJFS_ATOMICITY_COMMIT_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/atomicity/commit_peers.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// The log object of a server, by its number in groups. Errors: any; it is asked again.
using FindCommitLog = std::function<absl::StatusOr<runtime::Ref<CommitLog>>(uint64_t server)>;

// The way through the runtime. Questions to other nodes are under way at once, and given up after
// the wait; one to a log of this node runs on the calling thread, to its end.
std::shared_ptr<CommitPeers> PeersThrough(FindCommitLog find);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_COMMIT_LINK_H_
