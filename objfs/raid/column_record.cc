#include "objfs/raid/column_record.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/raid/striping.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {
namespace {

using Kind = ColumnRecord::Kind;

constexpr std::string_view kRaid5Mark = "R5", kMirrorMark = "MR";
constexpr uint8_t kRaid5Version = 4, kMirrorVersion = 2;
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

void PutStaged(runtime::Writer& writer, const std::vector<ColumnRecord::Staged>& staged) {
  writer.PutNumber(static_cast<uint8_t>(staged.size()));
  for (const ColumnRecord::Staged& one : staged) {
    writer.PutNumber(static_cast<uint32_t>(one.stripe));
    writer.PutNumber(static_cast<uint32_t>(one.at));
    writer.PutNumber(static_cast<uint32_t>(one.bytes));
    writer.PutNumber(static_cast<uint8_t>(one.slot));
    writer.PutNumber(static_cast<uint8_t>(one.crcs.size()));
    for (const uint32_t crc : one.crcs) writer.PutNumber(crc);
  }
}

bool SetFits(const StripeSet& set, size_t runs_max) {
  return set.runs().size() <= runs_max &&
         (set.empty() || set.runs().rbegin()->second <= ColumnRecord::kStripesMax);
}

}  // namespace

bool ColumnRecord::Fits(size_t spare) const {
  return SetFits(written, kWrittenRunsMax) && SetFits(missed, kMissedRunsMax) &&
         SetFits(doubtful, kDoubtfulRunsMax) && staged.size() <= kSlots &&
         inode.size() <= kInodeBytesMax && Encode().size() + spare <= kBytesMax;
}

uint64_t ColumnRecord::Stripes() const {
  if (kind == Kind::kRaid5) {
    const auto striping = Striping::Make(columns, unit_bytes);
    return striping.ok() ? striping->Stripes(size) : 0;
  }
  return unit_bytes == 0 ? 0 : size / unit_bytes + (size % unit_bytes > 0);
}

std::string ColumnRecord::Encode() const {
  const bool raid5 = kind == Kind::kRaid5;
  runtime::Writer writer;
  writer.PutRaw((raid5 ? kRaid5Mark : kMirrorMark).data(), kRaid5Mark.size());
  writer.PutNumber(raid5 ? kRaid5Version : kMirrorVersion);
  writer.PutNumber(static_cast<uint8_t>(columns));
  writer.PutNumber(static_cast<uint8_t>(column));
  if (raid5) writer.PutNumber(static_cast<uint8_t>(missing.value_or(kNoColumn)));
  writer.PutNumber(static_cast<uint32_t>(unit_bytes));
  writer.PutNumber(sequence);
  for (const uint64_t one : durable) writer.PutNumber(one);
  writer.PutNumber(size);
  writer.PutNumber(changed.value);
  if (raid5) writer.PutNumber(static_cast<uint8_t>(ragged));
  if (!raid5) {
    writer.PutNumber(static_cast<uint8_t>(lacking.size()));
    for (const size_t one : lacking) writer.PutNumber(static_cast<uint8_t>(one));
  }
  PutSet(writer, written);
  PutSet(writer, missed);
  if (raid5) PutSet(writer, doubtful);
  if (raid5) PutStaged(writer, staged);
  writer.PutNumber(static_cast<uint16_t>(inode.size()));
  writer.PutRaw(inode.data(), inode.size());
  return std::move(writer).Finish().inline_bytes;
}

namespace {

// What is in the place of `durable`.
void TakeDurable(runtime::Reader& reader, uint8_t version, ColumnRecord* record) {
  record->durable.resize(record->columns);
  if (version == 1) {
    const auto all = reader.TakeNumber<uint64_t>();
    record->durable.assign(record->columns, all);
    if (record->kind != Kind::kRaid5) return;
    const auto of_missing = reader.TakeNumber<uint64_t>();
    if (record->missing.value_or(record->columns) < record->columns) {
      record->durable[*record->missing] = of_missing;
    }
    return;
  }
  for (uint64_t& one : record->durable) one = reader.TakeNumber<uint64_t>();
}

void TakeLacking(runtime::Reader& reader, uint8_t version, ColumnRecord* record) {
  const auto count = reader.TakeNumber<uint8_t>();
  if (count > ColumnRecord::kCopiesMost) reader.Fail("more columns lack something than there are");
  for (size_t i = 0; reader.ok() && i < count; ++i) {
    const size_t column = reader.TakeNumber<uint8_t>();
    const bool rises = record->lacking.empty() || *record->lacking.rbegin() < column;
    if (!rises || column >= record->columns) reader.Fail("columns that do not rise");
    record->lacking.insert(column);
    if (version > 1) continue;
    const auto durable = reader.TakeNumber<uint64_t>();
    if (reader.ok()) record->durable[column] = durable;
  }
}

// REQUIRES: the record's geometry is sound.
bool IsSoundStaged(const ColumnRecord& record) {
  const uint64_t unit = record.unit_bytes;
  std::set<size_t> slots;
  for (const ColumnRecord::Staged& one : record.staged) {
    const bool sound = one.stripe < ColumnRecord::kStripesMax && one.bytes > 0 &&
                       one.at + one.bytes <= (record.columns - 1) * unit &&
                       one.slot < ColumnRecord::kSlots && slots.insert(one.slot).second;
    if (!sound) return false;
    const uint64_t units = (one.at + one.bytes - 1) / unit - one.at / unit + 1;
    // Of two units there is some of the end of one, and some of the begin of the other.
    const uint64_t most = units == 1 ? one.bytes : unit;
    if (one.crcs.size() != units + 1 || most > ColumnRecord::kStagedBytesMost) return false;
  }
  return true;
}

void TakeStaged(runtime::Reader& reader, uint8_t version, ColumnRecord* record) {
  const auto count = reader.TakeNumber<uint8_t>();
  if (count > ColumnRecord::kSlots) reader.Fail("more staged writes than there are slots");
  for (size_t i = 0; reader.ok() && i < count; ++i) {
    ColumnRecord::Staged one;
    one.stripe = reader.TakeNumber<uint32_t>();
    one.at = reader.TakeNumber<uint32_t>();
    one.bytes = reader.TakeNumber<uint32_t>();
    if (version == 3) {
      one.crcs.resize(2);
      for (uint32_t& crc : one.crcs) crc = reader.TakeNumber<uint32_t>();
      if (one.at + one.bytes > record->unit_bytes) reader.Fail("more than a unit");
      one.at += reader.TakeNumber<uint8_t>() * record->unit_bytes;
      one.slot = reader.TakeNumber<uint8_t>();
    } else {
      one.slot = reader.TakeNumber<uint8_t>();
      one.crcs.resize(reader.TakeNumber<uint8_t>());
      for (uint32_t& crc : one.crcs) crc = reader.TakeNumber<uint32_t>();
    }
    record->staged.push_back(std::move(one));
  }
}

bool IsSoundRaid5(const ColumnRecord& record) {
  return Striping::Make(record.columns, record.unit_bytes).ok() &&
         record.missing.value_or(0) < record.columns && IsSoundStaged(record);
}

bool IsSoundMirror(const ColumnRecord& record) {
  const uint64_t unit = record.unit_bytes;
  return record.columns >= ColumnRecord::kCopiesLeast &&
         record.columns <= ColumnRecord::kCopiesMost && unit >= Striping::kStoreBlockBytes &&
         unit <= Striping::kUnitBytesMost && (unit & (unit - 1)) == 0 &&
         record.lacking.size() < record.columns;
}

}  // namespace

absl::StatusOr<ColumnRecord> ColumnRecord::Decode(std::string_view bytes) {
  const std::vector<runtime::Block> none;
  runtime::Reader reader(bytes, none, nullptr);
  char mark[2] = {};
  reader.TakeRaw(mark, sizeof mark);
  const std::string_view found(mark, sizeof mark);
  if (found != kRaid5Mark && found != kMirrorMark) {
    return absl::DataLossError("the attributes of a column are no record of one");
  }
  const auto version = reader.TakeNumber<uint8_t>();
  const bool raid5 = found == kRaid5Mark;
  const uint8_t known = raid5 ? kRaid5Version : kMirrorVersion;
  if (reader.ok() && (version == 0 || version > known)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a column's record has version ", version, " and this build knows ", known,
                     ": use the build that wrote it, or a later one"));
  }
  ColumnRecord record;
  record.kind = raid5 ? Kind::kRaid5 : Kind::kMirror;
  record.columns = reader.TakeNumber<uint8_t>();
  record.column = reader.TakeNumber<uint8_t>();
  const auto missing = raid5 ? reader.TakeNumber<uint8_t>() : kNoColumn;
  if (missing != kNoColumn) record.missing = missing;
  record.unit_bytes = reader.TakeNumber<uint32_t>();
  record.sequence = reader.TakeNumber<uint64_t>();
  TakeDurable(reader, version, &record);
  record.size = reader.TakeNumber<uint64_t>();
  record.changed.value = reader.TakeNumber<uint64_t>();
  if (!raid5) TakeLacking(reader, version, &record);
  if (raid5 && version > 3) {
    const auto ragged = reader.TakeNumber<uint8_t>();
    if (ragged > 1) reader.Fail("what is neither true nor false");
    record.ragged = ragged == 1;
  }
  record.written = TakeSet(reader, kWrittenRunsMax);
  record.missed = TakeSet(reader, kMissedRunsMax);
  if (raid5) record.doubtful = TakeSet(reader, kDoubtfulRunsMax);
  if (raid5 && version > 2) TakeStaged(reader, version, &record);
  record.inode.resize(reader.TakeNumber<uint16_t>());
  if (record.inode.size() > kInodeBytesMax) reader.Fail("an inode that is too long");
  reader.TakeRaw(record.inode.data(), record.inode.size());
  const auto is_there = [&](uint64_t one) { return one <= record.sequence; };
  const bool sound = reader.ok() && reader.AtEnd() && record.column < record.columns &&
                     std::all_of(record.durable.begin(), record.durable.end(), is_there) &&
                     (raid5 ? IsSoundRaid5(record) : IsSoundMirror(record)) &&
                     (record.size == 0 || record.Stripes() - 1 < kStripesMax);
  if (!sound) return absl::DataLossError("a column's record is cut off or damaged");
  return record;
}

}  // namespace abacus::objfs
