#ifndef ABACUS_OBJFS_VOLUME_ISOLATION_LAYER_H_
#define ABACUS_OBJFS_VOLUME_ISOLATION_LAYER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "objfs/layer/layer.h"
#include "objfs/volume/object_table.h"

namespace abacus::objfs {

// An isolation object: orders what all clients do to one object, above its storage object (paper,
// section 4.3.1). Every change takes its turn and gets the volume's next version, so that the
// versions of a block rise; Commit() is refused where what it read has changed since.
//
// It does not tell anybody yet what changes: a layer above it that keeps blocks for longer than a
// call must be the only one, or ask again.
// Thread-safety: thread-safe. Blocking: as the layer below, and while another change lasts.
class IsolationLayer final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"isolation", "objfs.IsolationLayer", {}, 1, 1, true};

  IsolationLayer(std::shared_ptr<ObjectTable> table, ObjectId id)
      : table_(std::move(table)), id_(id) {}

  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  // The inode as it is now, with the times of writes that the store does not know yet.
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  ABACUS_LAYER(IsolationLayer, 1)

 private:
  const std::shared_ptr<ObjectTable> table_;
  const ObjectId id_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_ISOLATION_LAYER_H_
