#include "objfs/storage/storage_object.h"

#include "absl/strings/str_cat.h"

namespace abacus::objfs {

absl::StatusOr<runtime::Block> StorageObject::Read(uint64_t offset, uint64_t bytes) {
  if (bytes > kReadBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a read of ", name_, " asks for ", bytes,
                                                   " bytes; at most ", kReadBytesMax,
                                                   " can be read at once"));
  }
  return file_.ReadAt(offset, bytes);
}

absl::Status StorageObject::Write(uint64_t offset, const runtime::Block& bytes) {
  return file_.WriteAt(offset, bytes.view());
}

absl::Status StorageObject::Flush() { return file_.Sync(); }

absl::StatusOr<uint64_t> StorageObject::Size() { return file_.Size(); }

}  // namespace abacus::objfs
