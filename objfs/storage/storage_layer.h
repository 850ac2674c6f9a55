#ifndef ABACUS_OBJFS_STORAGE_STORAGE_LAYER_H_
#define ABACUS_OBJFS_STORAGE_STORAGE_LAYER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "objfs/layer/layer.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

// The bottom of a stack: one object of its server's store (paper, section 3: storage objects are
// anchored). Who looks it up makes it; all clients of the object share one.
//
// It promises what the store does: a call is seen whole by those that begin after it returned, and
// is durable after Flush(); after a crash each block is old or new. It does not order clients: that
// is the isolation layer's, so Commit() and Append() are kUnimplemented here.
// Errors: those of ObjectStore; kInvalidArgument - a version of 0, or more than kReadBytesMax.
// Thread-safety: thread-safe. Blocking: disk I/O.
class StorageLayer final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"storage", "objfs.StorageLayer", {}, 0, 0, true};
  // A reply is held in memory whole.
  static constexpr uint64_t kReadBytesMax = uint64_t{64} << 20;

  // Ownership: the store is shared with the server's other storage layers.
  StorageLayer(std::shared_ptr<ObjectStore> store, ObjectId id)
      : store_(std::move(store)), id_(id) {}

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::Status SetInode(const std::string& inode, Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  ABACUS_LAYER(StorageLayer, 1)

 private:
  void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const override;

  const std::shared_ptr<ObjectStore> store_;
  const ObjectId id_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORAGE_STORAGE_LAYER_H_
