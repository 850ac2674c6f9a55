#ifndef ABACUS_OBJFS_ATOMICITY_GROUP_PART_H_
#define ABACUS_OBJFS_ATOMICITY_GROUP_PART_H_

// What a group does at one server: the payload of a kPrepare, and of its record in the log.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/version.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// Of whose column an object is: the opening that the group was planned under. Where it was opened
// for somebody else since, the group is refused (CommitLog::Host).
struct GroupFence {
  ObjectId id = 0;
  Version opening;
  ABACUS_FIELDS(id, opening)
};
// A block that the group was planned with.
struct GroupRead {
  ObjectId id = 0;
  uint64_t block = 0;  // its number in the object
  Version version;     // it had then; 0: it was a hole
  ABACUS_FIELDS(id, block, version)
};
// Blocks that get new contents. Whole ones: of two groups the newer one's contents then stand
// alone, in whatever order they are applied.
struct GroupWrite {
  ObjectId id = 0;
  uint64_t block = 0;  // the first
  std::string bytes;   // one or more blocks of ObjectStore::kBlockBytes
  ABACUS_FIELDS(id, block, bytes)

  uint64_t blocks() const { return bytes.size() / ObjectStore::kBlockBytes; }
};

struct GroupPart {
  static constexpr uint64_t kFencesMax = 64;
  static constexpr uint64_t kReadsMax = 4096;
  static constexpr uint64_t kBytesMax = uint64_t{1} << 20;  // of all writes

  std::vector<GroupFence> fences;  // at most one for an object
  std::vector<GroupRead> reads;    // the group happens only where these are as they were
  std::vector<GroupWrite> writes;
  ABACUS_FIELDS(fences, reads, writes)

  uint64_t bytes() const;
  // Errors: kInvalidArgument - a write of parts of blocks, a block written or read twice or beyond
  //         the largest object, a fence that is none or is there twice, or more than the limits.
  absl::Status Check() const;
  std::string Encode() const;
  // Errors: kDataLoss; those of Check().
  static absl::StatusOr<GroupPart> Decode(std::string_view bytes);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_ATOMICITY_GROUP_PART_H_
