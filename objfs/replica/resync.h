#ifndef ABACUS_OBJFS_REPLICA_RESYNC_H_
#define ABACUS_OBJFS_REPLICA_RESYNC_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/replica/replicated_store.h"

namespace abacus::objfs {

// Makes a copy equal to the primary's store, object by object in the order of their numbers. The
// changes of an object are streamed from the moment on at which the two are equal, found in the
// object's turn. What differs is sent before, in runs of blocks, so that the turn is not held for
// long: a large object is compared again until little of it has changed meanwhile.
// Thread-safety: one thread. Blocking: disk I/O and the copy; it pauses as Options::resync_share
// says.
class ReplicatedStore::Resync {
 public:
  Resync(ReplicatedStore& store, ReplicaLink& link) : store_(store), link_(link) {}
  // Errors: kDataLoss - a part of the store is damaged, and the copy has no better one: it would
  //         not become equal. Those of the copy.
  absl::Status Run();

 private:
  using Blocks = std::vector<uint64_t>;

  // The next object of either side.
  absl::StatusOr<std::optional<ObjectId>> NextId();
  absl::Status Visit(ObjectId id);
  // It was made since the resync began, and all of it is told.
  bool IsBorn(ObjectId id);
  // The copy has an object of this name, if there is one here.
  absl::Status Begin(ObjectId id);
  // Sends what differs, and notes in known_ what the copy has then.
  absl::Status Compare(ObjectId id);
  absl::Status CompareSome(ObjectId id, const ReplicaObject& there, uint64_t first);
  // Whether the block's bytes are what the copy has, both being of one version.
  absl::StatusOr<bool> HasSameBytes(ObjectId id, const ReplicaObject& there, uint64_t first,
                                    uint64_t index);
  absl::Status Send(ObjectId id, const Blocks& blocks);
  // In the object's turn, as the next ones.
  absl::Status PutBlocks(ObjectId id, std::span<const uint64_t> blocks);
  // Ends it where at most kSettledMax blocks differ, or all of them where it `must`; else returns
  // them.
  absl::StatusOr<Blocks> Settle(ObjectId id, bool must);
  absl::StatusOr<Blocks> Differing(ObjectId id);
  void PutAttributes(ObjectId id, const ObjectAttributes& here, VersionNumber tail);
  void Put(ReplicaOperation operation) { store_.stream_.Put(std::move(operation)); }
  // From here on its changes are streamed.
  void Done(ObjectId id);
  // After a step that took so long: leaves time to others. Errors: kUnavailable - the copy is lost.
  absl::Status Pace(std::chrono::steady_clock::time_point begun);

  ReplicatedStore& store_;
  ReplicaLink& link_;
  std::deque<ObjectId> here_, there_;  // the next ones of both
  bool here_ends_ = false, there_ends_ = false;
  ObjectId last_ = 0;
  // Of the object that is visited, what the copy has: blocks that are no holes, attributes.
  std::map<uint64_t, VersionNumber> known_;
  uint64_t known_next_ = 0;  // the first block that is no hole, or UINT64_MAX
  uint64_t known_size_ = 0;
  VersionNumber known_version_ = 0;
  std::string known_blob_;
  bool is_changed_ = false;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_REPLICA_RESYNC_H_
