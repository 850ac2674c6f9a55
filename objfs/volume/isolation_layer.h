#ifndef ABACUS_OBJFS_VOLUME_ISOLATION_LAYER_H_
#define ABACUS_OBJFS_VOLUME_ISOLATION_LAYER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "objfs/layer/layer.h"
#include "objfs/volume/callbacks.h"
#include "objfs/volume/object_table.h"

namespace abacus::objfs {

// An isolation object: orders what all clients do to one object, above its storage object (paper,
// section 4.3.1). Every change takes its turn and gets the volume's next version, so that the
// versions of a block rise; Commit() is refused where what it read has changed since.
//
// It gives promises to those who keep blocks (Claim), and breaks them before anybody else reads or
// writes what they are about: such a call answers IsWouldBlock() until the holder has obeyed.
// Layers above need not be attached: what breaks goes to the client's end (client_end.h).
// Errors: as Callbacks.
// Thread-safety: thread-safe. Blocking: as the layer below, and while another change lasts.
class IsolationLayer final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"isolation", "objfs.IsolationLayer", {}, 1, 1, true};

  IsolationLayer(std::shared_ptr<ObjectTable> table, std::shared_ptr<Callbacks> callbacks,
                 ObjectId id)
      : table_(std::move(table)), callbacks_(std::move(callbacks)), id_(id) {}

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override;
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override;
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override;
  absl::Status Truncate(uint64_t size, Version now) override;
  absl::Status Punch(Range range, Version now) override;
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now) override;
  // Of a file whose bytes are elsewhere, and which the client uses together with others: it has
  // written them, and the times become now.
  absl::Status Push(Version now) override;
  absl::Status Flush(Version now) override;
  // The inode as it is now, with the times of writes that the store does not know yet.
  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  // Errors: kFailedPrecondition, always: inodes are changed by the volume (Volume::Change).
  absl::Status SetInode(const std::string& inode, Version now) override;
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override;
  absl::StatusOr<Promise> Claim(PromiseKind kind, Version now) override;
  absl::Status Attach(uint16_t writer, const runtime::Ref<Layer>& above) override;
  absl::Status Detach(uint16_t writer) override;
  ABACUS_LAYER(IsolationLayer, 1)

 private:
  // Runs a change of the object's bytes that breaks what others keep of it.
  template <typename F>
  absl::Status ChangeBytes(Version now, F&& change);

  const std::shared_ptr<ObjectTable> table_;
  const std::shared_ptr<Callbacks> callbacks_;
  const ObjectId id_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_ISOLATION_LAYER_H_
