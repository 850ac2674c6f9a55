#include "objfs/volume/inode.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr uint8_t kWithoutColumns = 1, kWithColumns = 2, kWithLacking = Inode::kNewestVersion;

// Those of version 1, in their order.
auto FieldsOf(auto& inode) {
  return std::tie(inode.mode, inode.uid, inode.gid, inode.links, inode.device, inode.accessed_ns,
                  inode.modified_ns, inode.changed_ns, inode.born_ns, inode.entries, inode.parent,
                  inode.stack, inode.xattrs);
}

absl::Status ApplyXattr(const XattrChange& change, std::map<std::string, std::string>* xattrs) {
  const bool is_there = xattrs->contains(change.name);
  if (change.rule == XattrRule::kMustBeNew && is_there) {
    return absl::AlreadyExistsError(absl::StrCat("there is an attribute '", change.name, "'"));
  }
  if (change.rule == XattrRule::kMustExist && !is_there) {
    return absl::NotFoundError(absl::StrCat("there is no attribute '", change.name, "'"));
  }
  if (change.value.has_value()) {
    (*xattrs)[change.name] = *change.value;
  } else {
    xattrs->erase(change.name);
  }
  return absl::OkStatus();
}

// A program that runs with its owner's rights does not keep them when somebody changes it; without
// the group's right to execute, the set-group-id bit means mandatory locking and stays.
uint32_t WithoutSetId(uint32_t mode) {
  if (!S_ISREG(mode)) return mode;
  mode &= ~uint32_t{S_ISUID};
  return (mode & S_IXGRP) != 0 ? mode & ~uint32_t{S_ISGID} : mode;
}

absl::Status ApplyCounts(const InodeChange& change, Inode* inode) {
  const int64_t links = int64_t{inode->links} + change.links;
  const int64_t entries = static_cast<int64_t>(inode->entries) + change.entries;
  if (links < 0 || entries < 0) {
    return absl::DataLossError(absl::StrCat("an inode would have ", links, " links and ", entries,
                                            " entries: its counts are wrong"));
  }
  if (change.links > 0 && links > Inode::kLinksMax) {
    return absl::OutOfRangeError(absl::StrCat("an inode has at most ", Inode::kLinksMax, " links"));
  }
  inode->links = static_cast<uint32_t>(links);
  inode->entries = static_cast<uint64_t>(entries);
  return absl::OkStatus();
}

}  // namespace

std::string Inode::Encode() const {
  runtime::Writer writer;
  writer.PutNumber(!lacking.empty() ? kWithLacking : IsSpread() ? kWithColumns : kWithoutColumns);
  std::apply([&writer](const auto&... field) { (runtime::Encode(writer, field), ...); },
             FieldsOf(*this));
  if (IsSpread() || !lacking.empty()) runtime::Encode(writer, columns);
  if (!lacking.empty()) runtime::Encode(writer, lacking);
  return std::move(writer).Finish().inline_bytes;
}

absl::StatusOr<Inode> Inode::Decode(std::string_view bytes) {
  const runtime::Payload payload{std::string(bytes), {}};
  runtime::Reader reader(payload);
  const auto version = reader.TakeNumber<uint8_t>();
  if (reader.ok() && (version < kWithoutColumns || version > kWithLacking)) {
    return absl::DataLossError(
        absl::StrCat("an inode of version ", version, "; this build knows ", kWithLacking));
  }
  Inode inode;
  std::apply([&reader](auto&... field) { (runtime::Decode(reader, field), ...); }, FieldsOf(inode));
  if (version >= kWithColumns) runtime::Decode(reader, inode.columns);
  if (version >= kWithLacking) runtime::Decode(reader, inode.lacking);
  if (reader.ok() && reader.AtEnd()) return inode;
  return absl::DataLossError("the bytes of an inode are cut off or damaged");
}

bool InodeChange::empty() const {
  return !permissions && !uid && !gid && !accessed_ns && !modified_ns && !touch_accessed &&
         !touch_modified && !touch_changed && !drop_setid && links == 0 && entries == 0 &&
         !parent && xattrs.empty();
}

absl::Status Apply(const InodeChange& change, int64_t now_ns, Inode* inode) {
  Inode next = *inode;
  if (change.drop_setid) next.mode = WithoutSetId(next.mode);
  if (change.permissions) next.mode = (next.mode & S_IFMT) | (*change.permissions & 07777);
  if (change.uid) next.uid = *change.uid;
  if (change.gid) next.gid = *change.gid;
  if (change.parent) next.parent = *change.parent;
  ABACUS_RETURN_IF_ERROR(ApplyCounts(change, &next));
  for (const XattrChange& xattr : change.xattrs) {
    ABACUS_RETURN_IF_ERROR(ApplyXattr(xattr, &next.xattrs));
  }
  if (change.accessed_ns) next.accessed_ns = *change.accessed_ns;
  if (change.modified_ns) next.modified_ns = *change.modified_ns;
  if (change.touch_accessed) next.accessed_ns = now_ns;
  if (change.touch_modified) next.modified_ns = now_ns;
  if (change.touch_changed) next.changed_ns = now_ns;
  // Without a change of its extended attributes an inode cannot outgrow its place: there is room
  // for whichever columns come to lack something.
  Inode largest = next;
  largest.lacking = largest.columns;
  if (!change.xattrs.empty() && largest.Encode().size() > ObjectStore::kBlobBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("the attributes of a file have at most ",
                                                     ObjectStore::kBlobBytesMax, " bytes"));
  }
  *inode = std::move(next);
  return absl::OkStatus();
}

}  // namespace abacus::objfs
