// Writes: whole stripes without reads; parts by what moves fewer bytes.

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;

namespace {

// Stripes that are written with one call to each column take at most this many bytes in each.
constexpr uint64_t kColumnRunBytesMax = uint64_t{1} << 20;

}  // namespace

absl::StatusOr<bool> Raid5Layer::BeforeAdmission(StripeRun run, bool contents, Version now) {
  std::vector<uint64_t> to_spill;
  bool save_first = false;
  {
    MutexLock lock(mutex_);
    save_first = saved_ < wanted_;
    // Behind the end too, where it is zeros: else a crash that leaves the new size without it would
    // have the missing column asked for the unit, which has there what was cut off without it.
    for (uint64_t stripe = run.begin; contents && now_.missing && stripe < run.end; ++stripe) {
      const Mode mode = ModeLocked(stripe);
      if (mode.unit_lost && !mode.spilled && !mode.doubtful) to_spill.push_back(stripe);
    }
  }
  if (to_spill.empty()) return false;
  // That the column is missing is known before anything lies where only that makes sense of it.
  if (save_first) ABACUS_RETURN_IF_ERROR(Save(now));
  const absl::Status spilled = Spill(to_spill, now);
  if (!IsAgain(spilled)) ABACUS_RETURN_IF_ERROR(spilled);
  return true;  // the state may be another
}

absl::Status Raid5Layer::Spill(const std::vector<uint64_t>& stripes, Version now) {
  const uint64_t unit = striping_->unit_bytes();
  size_t missing = 0;
  uint64_t end = 0;
  {
    MutexLock lock(mutex_);
    missing = *now_.missing;
    end = striping_->Stripes(now_.size);
  }
  StripeSet spilled;
  std::vector<size_t> columns;
  for (const uint64_t stripe : stripes) {
    const size_t column = striping_->ParityColumn(stripe);
    Block bytes;
    if (stripe < end) {
      ABACUS_ASSIGN_OR_RETURN(Bytes known, XorOthers(stripe, missing, 0, unit, now));
      bytes = std::move(known.block);
    } else {
      bytes = ZerosOf(unit);
    }
    ABACUS_RETURN_IF_ERROR(WriteColumns({{column, SpillOf(stripe), std::move(bytes)}}, now));
    spilled.Add({stripe, stripe + 1});
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
      columns.push_back(column);
    }
  }
  // Parity stops to count with the first byte that is written.
  ABACUS_RETURN_IF_ERROR(Each<&Layer::Flush>(columns, now));
  MutexLock lock(mutex_);
  spilled_.Add(spilled);
  return absl::OkStatus();
}

absl::Status Raid5Layer::Written(StripeRun run, const absl::Status& status) {
  MutexLock lock(mutex_);
  if (status.ok() || IsAgain(status)) {
    // A column that failed in between is missing now: what it should have is the XOR of the rest.
    const StripeSet was_torn = torn_.Within(run);
    torn_.Remove(was_torn);
    if (IsAgain(status)) now_.doubtful.Remove(run);
    return absl::OkStatus();
  }
  if (now_.missing.has_value() && !present_) {
    now_.doubtful.Add(run);
    now_.doubtful.MergeTo(ColumnRecord::kDoubtfulRunsMax);
    ++wanted_;
  } else {
    torn_.Add(run);
  }
  return status;
}

std::set<size_t> Raid5Layer::ColumnsOf(uint64_t offset, uint64_t bytes) const {
  if (bytes >= stripe_bytes()) return AllColumns();
  std::set<size_t> columns;
  for (const Striping::Piece& piece : striping_->Pieces(offset, bytes)) {
    columns.insert(striping_->ColumnOf(piece.stripe, piece.unit));
    columns.insert(striping_->ParityColumn(piece.stripe));
  }
  return columns;
}

absl::Status Raid5Layer::WriteRange(uint64_t offset, uint64_t bytes, const Block* content,
                                    uint64_t end, Version now) {
  const uint64_t stripe_bytes = striping_->stripe_bytes(), begin = offset, stop = offset + bytes;
  const Block zeros = content == nullptr ? ZerosOf(striping_->unit_bytes()) : Block();
  while (offset < stop) {
    const uint64_t stripe = striping_->StripeOf(offset);
    absl::Status status;
    uint64_t next = std::min(stop, striping_->OffsetOf(stripe + 1));
    if (content != nullptr && offset % stripe_bytes == 0 && stop - offset >= stripe_bytes &&
        !ModeOf(stripe).lost.has_value()) {
      const uint64_t most = std::max<uint64_t>(1, kColumnRunBytesMax / striping_->unit_bytes());
      StripeRun run{stripe, stripe + 1};
      while (run.end - stripe < most && striping_->OffsetOf(run.end + 1) <= stop &&
             !ModeOf(run.end).lost.has_value()) {
        ++run.end;
      }
      status = WriteFullStripes(run, content->data() + (offset - begin), now);
      next = striping_->OffsetOf(run.end);
    } else {
      std::vector<PieceWrite> pieces;
      for (const Striping::Piece& piece : striping_->Pieces(offset, next - offset)) {
        pieces.push_back(
            {piece, content == nullptr
                        ? zeros.Slice(0, piece.bytes)
                        : content->Slice(striping_->FileOffset(piece) - begin, piece.bytes)});
      }
      status = WriteStripe(stripe, pieces, end, now);
    }
    if (IsAgain(status)) {
      // A column is missing that was there: what it has must be put elsewhere first.
      ABACUS_RETURN_IF_ERROR(
          Admit(StripesOf(offset, stop - offset), true, ColumnsOf(offset, stop - offset), now));
      continue;
    }
    ABACUS_RETURN_IF_ERROR(status);
    offset = next;
  }
  return absl::OkStatus();
}

absl::Status Raid5Layer::WriteFullStripes(StripeRun run, const char* bytes, Version now) {
  const uint64_t unit = striping_->unit_bytes(), stripes = run.end - run.begin;
  std::vector<ColumnWrite> writes;
  for (size_t column = 0; column < below_count(); ++column) {
    writes.push_back(
        {column, striping_->ColumnOffsetOf(run.begin), Block::Allocate(stripes * unit)});
  }
  std::vector<const char*> sources(striping_->data_units());
  for (uint64_t stripe = run.begin; stripe < run.end; ++stripe) {
    const uint64_t at = (stripe - run.begin) * unit;
    for (size_t i = 0; i < striping_->data_units(); ++i) {
      char* to = writes[striping_->ColumnOf(stripe, i)].bytes.mutable_data() + at;
      std::memcpy(to, bytes, unit);
      sources[i] = to;
      bytes += unit;
    }
    SumOf(sources, writes[striping_->ParityColumn(stripe)].bytes.mutable_data() + at, unit);
  }
  return Written(run, WriteColumns(writes, now));
}

// -- a part of a stripe ---------------------------------------------------------------------------

absl::Status Raid5Layer::WriteStripe(uint64_t stripe, const std::vector<PieceWrite>& pieces,
                                     uint64_t end, Version now) {
  const Mode mode = ModeOf(stripe);
  if (mode.lost.has_value()) {
    if (mode.unit_lost && !mode.spilled && !mode.doubtful) {
      return absl::CancelledError("raid5: a missing unit has to be put elsewhere first");
    }
    return WritePlain(stripe, mode, pieces, now);
  }
  StripeRun hull{striping_->unit_bytes(), 0};
  for (const PieceWrite& write : pieces) {
    hull.begin = std::min(hull.begin, write.piece.at);
    hull.end = std::max(hull.end, write.piece.at + write.piece.bytes);
  }
  if (mode.torn) hull = {0, striping_->unit_bytes()};
  ABACUS_ASSIGN_OR_RETURN(Block parity, ParityOf(stripe, pieces, hull, mode.torn, end, now));
  const uint64_t base = striping_->ColumnOffsetOf(stripe);
  std::vector<ColumnWrite> writes;
  for (const PieceWrite& write : pieces) {
    writes.push_back(
        {striping_->ColumnOf(stripe, write.piece.unit), base + write.piece.at, write.bytes});
  }
  writes.push_back({striping_->ParityColumn(stripe), base + hull.begin, std::move(parity)});
  return Written({stripe, stripe + 1}, WriteColumns(writes, now));
}

absl::StatusOr<Block> Raid5Layer::ParityOf(uint64_t stripe, const std::vector<PieceWrite>& pieces,
                                           StripeRun hull, bool torn, uint64_t end, Version now) {
  const auto bytes_of = [](const std::vector<Part>& parts) {
    uint64_t bytes = 0;
    for (const Part& part : parts) bytes += part.bytes;
    return bytes;
  };
  const bool by_change = !torn && bytes_of(PartsForChange(stripe, pieces, hull, end)) <
                                      bytes_of(PartsForAll(stripe, pieces, hull, end));
  return by_change ? ParityByChange(stripe, pieces, hull, end, now)
                   : ParityFromAll(stripe, pieces, hull, end, now);
}

// Of a stripe that a column has no part in there is no parity: each unit is written for itself,
// that of the missing column elsewhere. So a crash leaves no unit unknown.
absl::Status Raid5Layer::WritePlain(uint64_t stripe, const Mode& mode,
                                    const std::vector<PieceWrite>& pieces, Version now) {
  const uint64_t base = striping_->ColumnOffsetOf(stripe);
  std::vector<ColumnWrite> writes;
  bool known = false;
  for (const PieceWrite& write : pieces) {
    const size_t column = striping_->ColumnOf(stripe, write.piece.unit);
    if (column != mode.lost) {
      writes.push_back({column, base + write.piece.at, write.bytes});
    } else if (mode.doubtful && write.piece.bytes < striping_->unit_bytes()) {
      return absl::UnavailableError(
          absl::StrCat("a part of stripe ", stripe, " in column ", column,
                       " is not known until that column is back, and is not written wholly"));
    } else {
      writes.push_back(
          {striping_->ParityColumn(stripe), SpillOf(stripe) + write.piece.at, write.bytes});
      known = true;
    }
  }
  ABACUS_RETURN_IF_ERROR(WriteColumns(writes, now));
  if (!known) return absl::OkStatus();
  MutexLock lock(mutex_);
  spilled_.Add({stripe, stripe + 1});
  now_.doubtful.Remove({stripe, stripe + 1});
  return absl::OkStatus();
}

std::vector<Raid5Layer::Part> Raid5Layer::PartsForChange(uint64_t stripe,
                                                         const std::vector<PieceWrite>& pieces,
                                                         StripeRun hull, uint64_t end) const {
  std::vector<Part> parts;
  if (striping_->OffsetOf(stripe) >= end) return parts;  // all zeros so far
  parts.push_back({striping_->ParityColumn(stripe), hull.begin, hull.end - hull.begin});
  for (const PieceWrite& write : pieces) {
    if (striping_->FileOffset(write.piece) >= end) continue;
    parts.push_back(
        {striping_->ColumnOf(stripe, write.piece.unit), write.piece.at, write.piece.bytes});
  }
  return parts;
}

absl::StatusOr<Block> Raid5Layer::ParityByChange(uint64_t stripe,
                                                 const std::vector<PieceWrite>& pieces,
                                                 StripeRun hull, uint64_t end, Version now) {
  const uint64_t bytes = hull.end - hull.begin;
  Block parity = ZerosOf(bytes);
  ABACUS_ASSIGN_OR_RETURN(const std::vector<Bytes> old,
                          ReadParts(stripe, PartsForChange(stripe, pieces, hull, end), now));
  size_t next = 0;
  if (!old.empty()) AddTo(old[next++].block.data(), parity.mutable_data(), bytes);
  for (const PieceWrite& write : pieces) {
    char* to = parity.mutable_data() + (write.piece.at - hull.begin);
    AddTo(write.bytes.data(), to, write.piece.bytes);
    if (striping_->FileOffset(write.piece) >= end) continue;
    AddTo(old[next++].block.data(), to, write.piece.bytes);
  }
  return parity;
}

// What of the other units, and of those that are written in part, is not known.
std::vector<Raid5Layer::Part> Raid5Layer::PartsForAll(uint64_t stripe,
                                                      const std::vector<PieceWrite>& pieces,
                                                      StripeRun hull, uint64_t end) const {
  constexpr uint64_t kBlock = Striping::kStoreBlockBytes;
  std::vector<Part> parts;
  for (size_t unit = 0; unit < striping_->data_units(); ++unit) {
    const uint64_t from = striping_->FileOffset({stripe, unit, hull.begin, 1});
    if (from >= end) continue;
    const size_t column = striping_->ColumnOf(stripe, unit);
    const auto write = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const PieceWrite& w) { return w.piece.unit == unit; });
    if (write == pieces.end()) {
      parts.push_back({column, hull.begin, hull.end - hull.begin});
      continue;
    }
    const uint64_t at = write->piece.at, stop = at + write->piece.bytes;
    if (at % kBlock == 0 && stop % kBlock == 0 && at == hull.begin && stop == hull.end) continue;
    // Also what is overwritten where it does not end with a block of the store: that block could be
    // damaged, which is repaired by reading it, and only before the stripe is touched.
    parts.push_back({column, hull.begin, hull.end - hull.begin});
  }
  return parts;
}

absl::StatusOr<Block> Raid5Layer::ParityFromAll(uint64_t stripe,
                                                const std::vector<PieceWrite>& pieces,
                                                StripeRun hull, uint64_t end, Version now) {
  const uint64_t bytes = hull.end - hull.begin;
  const std::vector<Part> parts = PartsForAll(stripe, pieces, hull, end);
  ABACUS_ASSIGN_OR_RETURN(const std::vector<Bytes> old, ReadParts(stripe, parts, now));
  Block parity = ZerosOf(bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    AddTo(old[i].block.data(), parity.mutable_data(), bytes);
  }
  for (const PieceWrite& write : pieces) {
    const size_t column = striping_->ColumnOf(stripe, write.piece.unit);
    const uint64_t at = write.piece.at - hull.begin;
    char* to = parity.mutable_data() + at;
    AddTo(write.bytes.data(), to, write.piece.bytes);
    for (size_t i = 0; i < parts.size(); ++i) {  // what it takes the place of is out again
      if (parts[i].column != column) continue;
      AddTo(old[i].block.data() + at, to, write.piece.bytes);
    }
  }
  return parity;
}

}  // namespace abacus::objfs
