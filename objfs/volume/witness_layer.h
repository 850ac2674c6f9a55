#ifndef ABACUS_OBJFS_VOLUME_WITNESS_LAYER_H_
#define ABACUS_OBJFS_VOLUME_WITNESS_LAYER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "objfs/layer/layer.h"
#include "objfs/spread/column_store.h"
#include "objfs/volume/object_table.h"

namespace abacus::objfs {

// Where it is written which columns of a file lack something: its inode, at the volume's first
// server, for one opening of the columns. What an opening before it still has under way is refused,
// however late it comes, as by the columns themselves (ColumnFence).
//
// Of a layer's calls it has two: SetInode() takes LackingText() (raid/columns_layer.h) and is
// durable when it returns; GetAttributes() has that, and the file's size as its inode has it.
// Errors: kUnauthenticated, which is IsNoClient() - the columns were opened by a later epoch.
// kDataLoss - that is no such text. kFailedPrecondition - any other call.
// Thread-safety: thread-safe. Blocking: disk I/O.
class WitnessLayer final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"witness", "objfs.WitnessLayer", {}, 0, 0, true};

  WitnessLayer(std::shared_ptr<ObjectTable> table, ObjectId id, std::shared_ptr<ColumnFence> fence,
               Version epoch)
      : table_(std::move(table)), id_(id), fence_(std::move(fence)), epoch_(epoch) {}

  absl::StatusOr<Attributes> GetAttributes(Version now) override;
  absl::Status SetInode(const std::string& lacking, Version now) override;

  absl::StatusOr<ReadResult> Read(uint64_t, uint64_t, Version) override { return HasNoBytes(); }
  absl::Status Write(uint64_t, const runtime::Block&, Version) override { return HasNoBytes(); }
  absl::StatusOr<uint64_t> Append(const runtime::Block&, Version) override { return HasNoBytes(); }
  absl::Status Truncate(uint64_t, Version) override { return HasNoBytes(); }
  absl::Status Punch(Range, Version) override { return HasNoBytes(); }
  absl::StatusOr<uint64_t> Seek(uint64_t, bool, Version) override { return HasNoBytes(); }
  absl::Status Push(Version) override { return HasNoBytes(); }
  absl::Status Flush(Version) override { return HasNoBytes(); }
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>&,
                                      const std::vector<RangeWrite>&, Version) override {
    return HasNoBytes();
  }
  ABACUS_LAYER(WitnessLayer, 1)

 private:
  static absl::Status HasNoBytes() {
    return absl::FailedPreconditionError("a witness knows which columns lack something, no bytes");
  }

  const std::shared_ptr<ObjectTable> table_;
  const ObjectId id_;
  const std::shared_ptr<ColumnFence> fence_;
  const Version epoch_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_WITNESS_LAYER_H_
