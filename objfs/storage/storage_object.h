#ifndef ABACUS_OBJFS_STORAGE_STORAGE_OBJECT_H_
#define ABACUS_OBJFS_STORAGE_STORAGE_OBJECT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/storage/file_pool.h"
#include "runtime/base/block.h"
#include "runtime/object/mobile_object.h"

namespace abacus::objfs {

// A storage object: one named run of bytes on its server (paper, section 3: "storage objects are
// anchored"). All who opened the name share one; a FileStore makes it. It need not hold its file
// open: a pool does, for the calls that need it.
//
// Thread-safety: thread-safe; calls that overlap in range and time may interleave. Blocking: disk
// I/O. Errors: those of the file (objfs/storage/file_pool.h); the messages name it.
class StorageObject final : public runtime::AnchoredObject {
 public:
  // Above this a read is refused: a reply is held in memory whole.
  static constexpr uint64_t kReadBytesMax = uint64_t{64} << 20;

  StorageObject(std::shared_ptr<FilePool> pool, FilePool::FileId file, std::string name)
      : pool_(std::move(pool)), file_(file), name_(std::move(name)) {}

  // Returns up to `bytes` bytes from `offset`: fewer where the file ends, none from its end on.
  // Errors: kInvalidArgument - more than kReadBytesMax.
  absl::StatusOr<runtime::Block> Read(uint64_t offset, uint64_t bytes);
  // Writes all of `bytes` at `offset`, behind the file's end too. Durable after Flush().
  absl::Status Write(uint64_t offset, const runtime::Block& bytes);
  // Returns once all that was written before is on the disk.
  absl::Status Flush();
  absl::StatusOr<uint64_t> Size();

  ABACUS_OBJECT(StorageObject, "objfs.StorageObject", 1, Read, Write, Flush, Size)

 private:
  const std::shared_ptr<FilePool> pool_;
  const FilePool::FileId file_;
  const std::string name_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORAGE_STORAGE_OBJECT_H_
