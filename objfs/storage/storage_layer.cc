#include "objfs/storage/storage_layer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;

absl::StatusOr<ReadResult> StorageLayer::Read(uint64_t offset, uint64_t bytes, Version) {
  if (bytes > kReadBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a read of ", bytes, " bytes; at most ",
                                                   kReadBytesMax, " can be read at once"));
  }
  ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes attributes, store_->GetAttributes(id_));
  if (offset >= attributes.size_bytes || bytes == 0) return ReadResult();
  bytes = std::min(bytes, attributes.size_bytes - offset);
  // Versions first: of a block that is written in between the bytes are newer than is said, and
  // whoever keeps them as older asks again too often and never too rarely.
  const uint64_t first = offset / ObjectStore::kBlockBytes;
  const uint64_t last = (offset + bytes - 1) / ObjectStore::kBlockBytes;
  ABACUS_ASSIGN_OR_RETURN(const std::vector<VersionNumber> versions,
                          store_->ReadVersions(id_, first, last - first + 1));
  ReadResult result;
  for (const VersionNumber version : versions) {
    result.version = std::max(result.version, Version{version});
  }
  Block block = Block::Allocate(bytes);
  ABACUS_ASSIGN_OR_RETURN(const uint64_t read,
                          store_->Read(id_, offset, {block.mutable_data(), bytes}));
  result.bytes = read < bytes ? block.Slice(0, read) : block;  // it was cut meanwhile
  return result;
}

static_assert(Layer::kFileBytesMax == ObjectStore::kObjectBytesMax);

absl::Status StorageLayer::Write(uint64_t offset, const Block& bytes, Version now) {
  if (bytes.empty()) return absl::OkStatus();
  return store_->Write(id_, offset, bytes.view(), now.value);
}

absl::StatusOr<uint64_t> StorageLayer::Append(const Block&, Version) {
  return absl::UnimplementedError(
      "an append needs an isolation layer above the storage layer: isolation/storage");
}

absl::Status StorageLayer::Truncate(uint64_t size, Version now) {
  return store_->Truncate(id_, size, now.value);
}

absl::Status StorageLayer::Punch(Range range, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes attributes, store_->GetAttributes(id_));
  if (range.offset >= attributes.size_bytes) return absl::OkStatus();
  const uint64_t left = attributes.size_bytes - range.offset;
  const uint64_t bytes = range.bytes == 0 ? left : std::min(range.bytes, left);
  return store_->Punch(id_, range.offset, bytes, now.value);
}

absl::StatusOr<uint64_t> StorageLayer::Seek(uint64_t offset, bool data, Version) {
  return data ? store_->NextData(id_, offset) : store_->NextHole(id_, offset);
}

absl::Status StorageLayer::Push(Version) { return absl::OkStatus(); }
absl::Status StorageLayer::Flush(Version) { return store_->Flush(id_); }

absl::StatusOr<Attributes> StorageLayer::GetAttributes(Version) {
  ABACUS_ASSIGN_OR_RETURN(ObjectAttributes attributes, store_->GetAttributes(id_));
  return Attributes{attributes.size_bytes, attributes.allocated_bytes, Version{attributes.version},
                    std::move(attributes.blob)};
}

absl::Status StorageLayer::SetInode(const std::string& inode, Version now) {
  return store_->SetAttributes(id_, inode, now.value);
}

absl::StatusOr<CommitResult> StorageLayer::Commit(const std::vector<RangeVersion>&,
                                                  const std::vector<RangeWrite>&, Version) {
  return absl::UnimplementedError(
      "a commit needs an isolation layer above the storage layer: isolation/storage");
}

void StorageLayer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  facts->emplace_back("object", absl::StrCat(id_));
}

}  // namespace abacus::objfs
