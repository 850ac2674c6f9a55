#include "objfs/raid/column_record.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/raid/striping.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {
namespace {

constexpr char kRecordMark[2] = {'R', '5'};
constexpr uint8_t kRecordVersion = 1;
constexpr uint8_t kNoColumn = 255;

void PutSet(runtime::Writer& writer, const StripeSet& set) {
  writer.PutNumber(static_cast<uint16_t>(set.runs().size()));
  for (const auto& [begin, end] : set.runs()) {
    writer.PutNumber(static_cast<uint32_t>(begin));
    writer.PutNumber(static_cast<uint32_t>(end));
  }
}

StripeSet TakeSet(runtime::Reader& reader, size_t runs_max) {
  StripeSet set;
  const auto count = reader.TakeNumber<uint16_t>();
  if (count > runs_max) reader.Fail("more runs of stripes than a record has");
  int64_t last = -1;
  for (size_t i = 0; reader.ok() && i < count; ++i) {
    const auto begin = reader.TakeNumber<uint32_t>();
    const auto end = reader.TakeNumber<uint32_t>();
    if (begin >= end || begin <= last) reader.Fail("runs of stripes that overlap or do not rise");
    last = end;
    set.Add({begin, end});
  }
  return set;
}

bool SetFits(const StripeSet& set, size_t runs_max) {
  return set.runs().size() <= runs_max &&
         (set.empty() || set.runs().rbegin()->second <= ColumnRecord::kStripesMax);
}

}  // namespace

bool ColumnRecord::Fits() const {
  return SetFits(written, kWrittenRunsMax) && SetFits(missed, kMissedRunsMax) &&
         SetFits(doubtful, kDoubtfulRunsMax) && inode.size() <= kInodeBytesMax;
}

std::string ColumnRecord::Encode() const {
  runtime::Writer writer;
  writer.PutRaw(kRecordMark, sizeof kRecordMark);
  writer.PutNumber(kRecordVersion);
  writer.PutNumber(static_cast<uint8_t>(columns));
  writer.PutNumber(static_cast<uint8_t>(column));
  writer.PutNumber(static_cast<uint8_t>(missing.value_or(kNoColumn)));
  writer.PutNumber(static_cast<uint32_t>(unit_bytes));
  for (const uint64_t number : {sequence, all_durable, missing_durable, size, changed.value}) {
    writer.PutNumber(number);
  }
  for (const StripeSet* set : {&written, &missed, &doubtful}) PutSet(writer, *set);
  writer.PutNumber(static_cast<uint16_t>(inode.size()));
  writer.PutRaw(inode.data(), inode.size());
  return std::move(writer).Finish().inline_bytes;
}

absl::StatusOr<ColumnRecord> ColumnRecord::Decode(std::string_view bytes) {
  const std::vector<runtime::Block> none;
  runtime::Reader reader(bytes, none, nullptr);
  char mark[2] = {};
  reader.TakeRaw(mark, sizeof mark);
  if (std::string_view(mark, 2) != std::string_view(kRecordMark, 2)) {
    return absl::DataLossError("the attributes of a column are no RAID-5 record");
  }
  const auto version = reader.TakeNumber<uint8_t>();
  if (reader.ok() && version != kRecordVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("a column's record has version ", version, " and this build knows ",
                     kRecordVersion, ": use the build that wrote it, or a later one"));
  }
  ColumnRecord record;
  record.columns = reader.TakeNumber<uint8_t>();
  record.column = reader.TakeNumber<uint8_t>();
  const auto missing = reader.TakeNumber<uint8_t>();
  if (missing != kNoColumn) record.missing = missing;
  record.unit_bytes = reader.TakeNumber<uint32_t>();
  for (uint64_t* number : {&record.sequence, &record.all_durable, &record.missing_durable,
                           &record.size, &record.changed.value}) {
    *number = reader.TakeNumber<uint64_t>();
  }
  record.written = TakeSet(reader, kWrittenRunsMax);
  record.missed = TakeSet(reader, kMissedRunsMax);
  record.doubtful = TakeSet(reader, kDoubtfulRunsMax);
  record.inode.resize(reader.TakeNumber<uint16_t>());
  if (record.inode.size() > kInodeBytesMax) reader.Fail("an inode that is too long");
  reader.TakeRaw(record.inode.data(), record.inode.size());
  const auto striping = Striping::Make(record.columns, record.unit_bytes);
  const bool sound =
      reader.ok() && reader.AtEnd() && striping.ok() && record.column < record.columns &&
      record.missing.value_or(0) < record.columns && record.all_durable <= record.sequence &&
      record.missing_durable <= record.sequence &&
      (record.size == 0 || striping->StripeOf(record.size - 1) < kStripesMax);
  if (!sound) return absl::DataLossError("a column's record is cut off or damaged");
  return record;
}

}  // namespace abacus::objfs
