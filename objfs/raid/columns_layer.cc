#include "objfs/raid/columns_layer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

// Code and beginning of NeedsAlone(): no other answer of a layer has both.
constexpr std::string_view kNeedsAlone = "needs the file alone: ";

absl::Status NotOfThisLayer(const char* what) {
  return absl::UnimplementedError(absl::StrCat("the layer does not know how to ", what));
}

}  // namespace

absl::Status NeedsAlone(std::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat(runtime::ToAbsl(kNeedsAlone), runtime::ToAbsl(why)));
}

bool IsNeedsAlone(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition &&
         runtime::KindOf(status) == runtime::ErrorKind::kNone &&
         runtime::ToStd(status.message()).starts_with(kNeedsAlone);
}

std::string LackingText(const std::set<size_t>& lacking) {
  std::string text;
  for (const size_t column : lacking) text.push_back(static_cast<char>(column));
  return text;
}

absl::StatusOr<std::set<size_t>> LackingOf(std::string_view text, size_t columns) {
  std::set<size_t> lacking;
  bool rises = true;
  for (const char c : text) {
    const size_t column = static_cast<unsigned char>(c);
    rises = rises && column < columns && (lacking.empty() || *lacking.rbegin() < column);
    lacking.insert(column);
  }
  if (rises && lacking.size() < std::max<size_t>(columns, 1)) return lacking;
  return absl::DataLossError("which columns of a file lack something is not known: damaged");
}

absl::Status ColumnsLayer::TakeColumns(const std::vector<runtime::Ref<Layer>>& columns,
                                       const runtime::Ref<Layer>&) {
  return ReplaceBelow(columns);
}
absl::Status ColumnsLayer::CloseColumns(Version now) { return Flush(now); }
absl::StatusOr<bool> ColumnsLayer::CloseToShare(Version) { return false; }
absl::Status ColumnsLayer::TakeShared(const SharedColumns&) {
  return NotOfThisLayer("share its columns with others");
}
absl::Status ColumnsLayer::NoteMissed(const std::vector<Range>&, Version) {
  return absl::OkStatus();
}
absl::StatusOr<uint64_t> ColumnsLayer::Size(Version now) {
  const absl::StatusOr<Attributes> attributes = GetAttributes(now);
  if (!attributes.ok()) return attributes.status();
  return attributes->size;
}
absl::StatusOr<RebuildProgress> ColumnsLayer::Rebuild(uint64_t, uint64_t, Version) {
  return NotOfThisLayer("rebuild a column");
}
absl::StatusOr<ScrubProgress> ColumnsLayer::Scrub(uint64_t, uint64_t, Version) {
  return NotOfThisLayer("scrub columns");
}

}  // namespace abacus::objfs
