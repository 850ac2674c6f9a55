#include "objfs/storage/storage_object.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

absl::StatusOr<runtime::Block> StorageObject::Read(uint64_t offset, uint64_t bytes) {
  if (bytes > kReadBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a read of ", name_, " asks for ", bytes,
                                                   " bytes; at most ", kReadBytesMax,
                                                   " can be read at once"));
  }
  ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, pool_->Use(file_, false));
  return file->ReadAt(offset, bytes);
}

absl::Status StorageObject::Write(uint64_t offset, const runtime::Block& bytes) {
  ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, pool_->Use(file_, true));
  return file->WriteAt(offset, bytes.view());
}

absl::Status StorageObject::Flush() { return pool_->Sync(file_); }

absl::StatusOr<uint64_t> StorageObject::Size() {
  ABACUS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, pool_->Use(file_, false));
  return file->Size();
}

}  // namespace abacus::objfs
