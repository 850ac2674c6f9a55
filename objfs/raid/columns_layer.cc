#include "objfs/raid/columns_layer.h"

#include "absl/strings/str_cat.h"

namespace abacus::objfs {
namespace {

absl::Status NotOfThisLayer(const char* what) {
  return absl::UnimplementedError(absl::StrCat("the layer does not know how to ", what));
}

}  // namespace

absl::Status ColumnsLayer::TakeColumns(const std::vector<runtime::Ref<Layer>>& columns) {
  return ReplaceBelow(columns);
}
absl::Status ColumnsLayer::CloseColumns(Version now) { return Flush(now); }
absl::StatusOr<uint64_t> ColumnsLayer::Size(Version now) {
  const absl::StatusOr<Attributes> attributes = GetAttributes(now);
  if (!attributes.ok()) return attributes.status();
  return attributes->size;
}
absl::StatusOr<RebuildProgress> ColumnsLayer::Rebuild(uint64_t, Version) {
  return NotOfThisLayer("rebuild a column");
}
absl::StatusOr<ScrubProgress> ColumnsLayer::Scrub(uint64_t, uint64_t, Version) {
  return NotOfThisLayer("scrub columns");
}

}  // namespace abacus::objfs
