#include "objfs/atomicity/group_part.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kBlockMax = ObjectStore::kObjectBytesMax / ObjectStore::kBlockBytes;

absl::Status CheckOneRead(const GroupRead& read) {
  if (read.id != 0 && read.block < kBlockMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a group reads block ", read.block, " of object ", read.id));
}

absl::Status CheckOneWrite(const GroupWrite& write) {
  if (write.bytes.empty() || write.bytes.size() % ObjectStore::kBlockBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a group writes ", write.bytes.size(),
                                                   " bytes, which are not whole blocks of ",
                                                   ObjectStore::kBlockBytes));
  }
  if (write.id != 0 && write.block < kBlockMax && write.blocks() <= kBlockMax - write.block) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a group writes block ", write.block, " of object ", write.id));
}

absl::Status CheckFences(const std::vector<GroupFence>& fences) {
  std::set<ObjectId> ids;
  for (const GroupFence& fence : fences) {
    if (fence.id == 0 || fence.opening == Version() || !ids.insert(fence.id).second) {
      return absl::InvalidArgumentError(absl::StrCat("a group has a fence of object ", fence.id,
                                                     " that is none, or two of them"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t GroupPart::bytes() const {
  uint64_t sum = 0;
  for (const GroupWrite& write : writes) sum += write.bytes.size();
  return sum;
}

absl::Status GroupPart::Check() const {
  if (reads.size() > kReadsMax || bytes() > kBytesMax || fences.size() > kFencesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group reads ", reads.size(), " blocks and writes ", bytes(), " bytes of ",
                     fences.size(), " columns at one server; at most ", kReadsMax, ", ", kBytesMax,
                     " and ", kFencesMax, " can be"));
  }
  ABACUS_RETURN_IF_ERROR(CheckFences(fences));
  using Block = std::pair<ObjectId, uint64_t>;
  std::vector<Block> read, written;
  for (const GroupRead& one : reads) {
    ABACUS_RETURN_IF_ERROR(CheckOneRead(one));
    read.emplace_back(one.id, one.block);
  }
  for (const GroupWrite& one : writes) {
    ABACUS_RETURN_IF_ERROR(CheckOneWrite(one));
    for (uint64_t i = 0; i < one.blocks(); ++i) written.emplace_back(one.id, one.block + i);
  }
  for (std::vector<Block>* blocks : {&read, &written}) {
    std::sort(blocks->begin(), blocks->end());
    if (std::adjacent_find(blocks->begin(), blocks->end()) != blocks->end()) {
      return absl::InvalidArgumentError("a group names a block twice");
    }
  }
  return absl::OkStatus();
}

std::string GroupPart::Encode() const {
  runtime::Writer writer;
  runtime::Encode(writer, *this);
  return std::move(writer).Finish().inline_bytes;
}

absl::StatusOr<GroupPart> GroupPart::Decode(std::string_view bytes) {
  const std::vector<runtime::Block> no_blocks;
  runtime::Reader reader(bytes, no_blocks, nullptr);
  GroupPart part;
  runtime::Decode(reader, part);
  if (!reader.ok() || !reader.AtEnd()) return absl::DataLossError("a group's part is damaged");
  ABACUS_RETURN_IF_ERROR(part.Check());
  return part;
}

}  // namespace abacus::objfs
