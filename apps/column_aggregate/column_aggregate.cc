#include "apps/column_aggregate/column_aggregate.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::apps {
absl::Status ColumnAggregate::Init(const AggregateOptions& options) {
  if (options.read_bytes == 0 || options.read_bytes > kReadBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("read_bytes is ", options.read_bytes,
                                                   ": it must be from 1 to ", kReadBytesMax));
  }
  if (options.separator.size() != 1 || options.separator == "\n") {
    return absl::InvalidArgumentError(
        absl::StrCat("the separator is '", options.separator, "': it must be one character"));
  }
  if (options.value_column == 0) {
    return absl::InvalidArgumentError("value_column is 0: columns are counted from 1");
  }
  options_ = options;
  return absl::OkStatus();
}

absl::Status ColumnAggregate::Wrong(std::string_view what) {
  mistake_ = absl::StrCat("line ", lines_, ": ", runtime::ToAbsl(what));
  return absl::InvalidArgumentError(mistake_);
}

absl::StatusOr<std::string_view> ColumnAggregate::Field(std::string_view line, uint64_t column) {
  const char separator = options_.separator.front();
  for (uint64_t left = column; left > 1; --left) {
    const size_t end = line.find(separator);
    if (end == std::string_view::npos) return Wrong(absl::StrCat("it has no column ", column));
    line.remove_prefix(end + 1);
  }
  return line.substr(0, line.find(separator));
}

absl::Status ColumnAggregate::Add(std::string_view line) {
  if (++lines_ <= options_.skip_lines) return absl::OkStatus();
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (options_.where_column != 0) {
    ABACUS_ASSIGN_OR_RETURN(const std::string_view where, Field(line, options_.where_column));
    if (where != options_.where_value) return absl::OkStatus();
  }
  ABACUS_ASSIGN_OR_RETURN(const std::string_view field, Field(line, options_.value_column));
  double value = 0;
  if (!absl::SimpleAtod(runtime::ToAbsl(field), &value)) {
    return Wrong(absl::StrCat("column ", options_.value_column, " is '", runtime::ToAbsl(field),
                              "' and no number"));
  }
  so_far_.least = so_far_.rows == 0 ? value : std::min(so_far_.least, value);
  so_far_.most = so_far_.rows == 0 ? value : std::max(so_far_.most, value);
  so_far_.sum += value;
  ++so_far_.rows;
  return absl::OkStatus();
}

absl::Status ColumnAggregate::Feed(std::string_view bytes) {
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos;) {
    if (begun_.empty()) {
      ABACUS_RETURN_IF_ERROR(Add(bytes.substr(0, end)));
    } else {
      begun_ += bytes.substr(0, end);
      ABACUS_RETURN_IF_ERROR(Add(begun_));
      begun_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  begun_ += bytes;
  if (begun_.size() <= kLineBytesMax) return absl::OkStatus();
  ++lines_;
  return Wrong(absl::StrCat("it is longer than ", kLineBytesMax, " bytes"));
}

absl::StatusOr<AggregateChunk> ColumnAggregate::Next(const objfs::Subgraph& file) {
  if (!mistake_.empty()) return absl::InvalidArgumentError(mistake_);
  // Nothing has changed here when this fails: whoever is asked to wait asks again.
  ABACUS_ASSIGN_OR_RETURN(const objfs::ReadResult read,
                          file.top->Read(offset_, options_.read_bytes, file.now));
  const bool done = read.bytes.size() < options_.read_bytes;
  offset_ += read.bytes.size();
  ABACUS_RETURN_IF_ERROR(Feed(read.bytes.view()));
  if (done && !begun_.empty()) {  // a last line without a newline
    ABACUS_RETURN_IF_ERROR(Add(begun_));
    begun_.clear();
  }
  return AggregateChunk{.so_far = so_far_, .offset = offset_, .done = done};
}

void ColumnAggregate::Checkpoint(runtime::CheckpointWriter& writer) const {
  writer.Write(options_);
  writer.Write(offset_);
  writer.Write(lines_);
  writer.Write(begun_);
  writer.Write(mistake_);
  writer.Write(so_far_);
}

absl::Status ColumnAggregate::Restore(runtime::CheckpointReader& reader) {
  reader.Read(options_);
  reader.Read(offset_);
  reader.Read(lines_);
  reader.Read(begun_);
  reader.Read(mistake_);
  reader.Read(so_far_);
  return reader.status();
}

}  // namespace abacus::apps
