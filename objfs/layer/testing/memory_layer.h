#ifndef ABACUS_OBJFS_LAYER_TESTING_MEMORY_LAYER_H_
#define ABACUS_OBJFS_LAYER_TESTING_MEMORY_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "objfs/layer/layer.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::testing {

// A bottom for stacks under test, and their model: a file as a string of bytes. It has no holes and
// never fails.
class MemoryLayer final : public Layer {
 public:
  static constexpr LayerKind kKind = {"memory", "objfs.MemoryLayer", {}, 0, 0};

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version) override {
    runtime::MutexLock lock(mutex_);
    if (offset >= bytes_.size()) return ReadResult{{}, version_};
    const uint64_t all = std::min<uint64_t>(bytes, bytes_.size() - offset);
    return ReadResult{runtime::Block::CopyOf({bytes_.data() + offset, all}), version_};
  }
  absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now) override {
    runtime::MutexLock lock(mutex_);
    bytes_.resize(std::max<uint64_t>(bytes_.size(), offset + bytes.size()));
    std::copy_n(bytes.data(), bytes.size(), bytes_.begin() + static_cast<ptrdiff_t>(offset));
    version_ = std::max(version_, now);
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now) override {
    runtime::MutexLock lock(mutex_);
    const uint64_t offset = bytes_.size();
    bytes_.append(bytes.view());
    version_ = std::max(version_, now);
    return offset;
  }
  absl::Status Truncate(uint64_t size, Version now) override {
    runtime::MutexLock lock(mutex_);
    bytes_.resize(size);
    version_ = std::max(version_, now);
    return absl::OkStatus();
  }
  absl::Status Punch(Range range, Version now) override {
    runtime::MutexLock lock(mutex_);
    const uint64_t begin = std::min<uint64_t>(range.offset, bytes_.size());
    const uint64_t left = bytes_.size() - begin;
    const uint64_t all = range.bytes == 0 ? left : std::min(range.bytes, left);
    std::fill_n(bytes_.begin() + static_cast<ptrdiff_t>(begin), all, '\0');
    version_ = std::max(version_, now);
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version) override {
    runtime::MutexLock lock(mutex_);
    if (offset >= bytes_.size()) return absl::OutOfRangeError("behind the end");
    return data ? offset : bytes_.size();
  }
  absl::Status Push(Version) override { return absl::OkStatus(); }
  absl::Status Flush(Version) override { return absl::OkStatus(); }
  absl::StatusOr<Attributes> GetAttributes(Version) override {
    runtime::MutexLock lock(mutex_);
    return Attributes{bytes_.size(), bytes_.size(), version_, inode_};
  }
  absl::Status SetInode(const std::string& inode, Version now) override {
    runtime::MutexLock lock(mutex_);
    inode_ = inode;
    version_ = std::max(version_, now);
    return absl::OkStatus();
  }
  // One version for the whole file: stale where anything was written since it was read.
  absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                      const std::vector<RangeWrite>& writes, Version now) override {
    {
      runtime::MutexLock lock(mutex_);
      CommitResult result;
      for (const RangeVersion& read : reads) {
        if (read.version < version_) result.stale.push_back({read.range, version_});
      }
      if (!result.stale.empty()) return result;
    }
    for (const RangeWrite& write : writes) {
      if (auto status = Write(write.offset, write.bytes, now); !status.ok()) return status;
    }
    return CommitResult{.committed = true, .stale = {}};
  }

  void Checkpoint(runtime::CheckpointWriter& writer) const override {
    Layer::Checkpoint(writer);
    runtime::MutexLock lock(mutex_);
    writer.Write(bytes_);
    writer.Write(inode_);
    writer.Write(version_);
  }
  absl::Status Restore(runtime::CheckpointReader& reader) override {
    const absl::Status status = Layer::Restore(reader);
    runtime::MutexLock lock(mutex_);
    reader.Read(bytes_);
    reader.Read(inode_);
    reader.Read(version_);
    return status.ok() ? reader.status() : status;
  }
  ABACUS_LAYER(MemoryLayer, 1)

 private:
  mutable runtime::Mutex mutex_;
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
  std::string inode_ ABSL_GUARDED_BY(mutex_);
  Version version_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_LAYER_TESTING_MEMORY_LAYER_H_
