// Reads: from the columns that have the bytes, else from the others.

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Turn = RangeTurns::Turn;

absl::StatusOr<ReadResult> Raid5Layer::ReadOnce(uint64_t offset, uint64_t bytes, Version now) {
  {
    MutexLock lock(mutex_);
    if (offset >= now_.size) return ReadResult();  // it was cut off meanwhile
    bytes = std::min(bytes, now_.size - offset);
  }
  const std::vector<Striping::Piece> pieces = striping_->Pieces(offset, bytes);
  if (pieces.size() == 1) {
    ABACUS_ASSIGN_OR_RETURN(Bytes all, ReadPiece(pieces[0], now));
    return ReadResult{std::move(all.block), all.version};
  }
  Block out = Block::Allocate(bytes);
  ReadResult result;
  const auto at = [&](const Striping::Piece& piece) {
    return out.mutable_data() + (striping_->FileOffset(piece) - offset);
  };
  // Pieces that follow each other in their column are one read.
  struct Pieces {
    ColumnRead read;
    std::vector<size_t> pieces;
  };
  std::vector<Pieces> joined;
  std::map<size_t, size_t> last;  // of a column, in `joined`
  std::vector<size_t> alone;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Striping::Piece& piece = pieces[i];
    const size_t column = striping_->ColumnOf(piece.stripe, piece.unit);
    if (ModeOf(piece.stripe).lost == column) {
      alone.push_back(i);
      continue;
    }
    const uint64_t from = striping_->ColumnOffsetOf(piece.stripe) + piece.at;
    const auto before = last.find(column);
    if (before != last.end()) {
      ColumnRead& read = joined[before->second].read;
      if (read.offset + read.bytes == from) {
        read.bytes += piece.bytes;
        joined[before->second].pieces.push_back(i);
        continue;
      }
    }
    last[column] = joined.size();
    joined.push_back({{column, from, piece.bytes}, {i}});
  }
  std::vector<ColumnRead> reads;
  for (const Pieces& each : joined) reads.push_back(each.read);
  // Where all other units of a missing one are read here anyway, only its parity is read besides.
  std::vector<size_t> by_parity;
  for (auto it = alone.begin(); it != alone.end();) {
    const Striping::Piece& piece = pieces[*it];
    const Mode mode = ModeOf(piece.stripe);
    size_t others = 0;
    for (const Striping::Piece& other : pieces) {
      others += other.stripe == piece.stripe && other.unit != piece.unit && other.at <= piece.at &&
                other.at + other.bytes >= piece.at + piece.bytes;
    }
    if (mode.spilled || mode.doubtful || others + 1 < striping_->data_units()) {
      ++it;
      continue;
    }
    by_parity.push_back(*it);
    reads.push_back({striping_->ParityColumn(piece.stripe),
                     striping_->ColumnOffsetOf(piece.stripe) + piece.at, piece.bytes});
    it = alone.erase(it);
  }
  const std::vector<absl::StatusOr<Bytes>> answers = ReadColumns(reads, now);
  for (size_t i = 0; i < joined.size(); ++i) {
    if (absl::IsDataLoss(answers[i].status())) {
      alone.insert(alone.end(), joined[i].pieces.begin(), joined[i].pieces.end());
      continue;
    }
    ABACUS_RETURN_IF_ERROR(answers[i].status());
    const char* from = answers[i]->block.data();
    for (const size_t j : joined[i].pieces) {
      std::memcpy(at(pieces[j]), from, pieces[j].bytes);
      from += pieces[j].bytes;
    }
    result.version = std::max(result.version, answers[i]->version);
  }
  for (const size_t i : alone) {
    ABACUS_ASSIGN_OR_RETURN(const Bytes piece, ReadPiece(pieces[i], now));
    std::memcpy(at(pieces[i]), piece.block.data(), pieces[i].bytes);
    result.version = std::max(result.version, piece.version);
  }
  for (size_t i = 0; i < by_parity.size(); ++i) {
    const Striping::Piece& piece = pieces[by_parity[i]];
    const absl::StatusOr<Bytes>& parity = answers[joined.size() + i];
    ABACUS_RETURN_IF_ERROR(parity.status());
    std::vector<const char*> sources = {parity->block.data()};
    for (const Striping::Piece& other : pieces) {
      if (other.stripe != piece.stripe || other.unit == piece.unit) continue;
      if (other.at > piece.at || other.at + other.bytes < piece.at + piece.bytes) continue;
      sources.push_back(at(other) + (piece.at - other.at));
    }
    SumOf(sources, at(piece), piece.bytes);
    result.version = std::max(result.version, parity->version);
  }
  result.bytes = std::move(out);
  return result;
}

absl::StatusOr<Raid5Layer::Bytes> Raid5Layer::ReadPiece(const Striping::Piece& piece, Version now) {
  return ReadUnit(piece.stripe, striping_->ColumnOf(piece.stripe, piece.unit), piece.at,
                  piece.bytes, now);
}

absl::StatusOr<Raid5Layer::Bytes> Raid5Layer::ReadUnit(uint64_t stripe, size_t column, uint64_t at,
                                                       uint64_t bytes, Version now) {
  const Mode mode = ModeOf(stripe);
  if (mode.lost == column) {
    if (mode.doubtful) {
      return absl::UnavailableError(
          absl::StrCat("stripe ", stripe, " was being written when the server died, and column ",
                       column, " is missing: what it has there is not known until it is back"));
    }
    if (!mode.spilled) return XorOthers(stripe, column, at, bytes, now);
    return ReadColumns({{striping_->ParityColumn(stripe), SpillOf(stripe) + at, bytes}}, now)[0];
  }
  absl::StatusOr<Bytes> read =
      ReadColumns({{column, striping_->ColumnOffsetOf(stripe) + at, bytes}}, now)[0];
  if (!absl::IsDataLoss(read.status())) return read;
  return Repair(stripe, column, at, bytes, read.status(), now);
}

absl::StatusOr<Raid5Layer::Bytes> Raid5Layer::XorOthers(uint64_t stripe, size_t column, uint64_t at,
                                                        uint64_t bytes, Version now) {
  std::vector<ColumnRead> reads;
  for (size_t other = 0; other < below_count(); ++other) {
    if (other == column) continue;
    reads.push_back({other, striping_->ColumnOffsetOf(stripe) + at, bytes});
  }
  Bytes sum{Block::Allocate(bytes), Version()};
  std::vector<const char*> sources;
  const std::vector<absl::StatusOr<Bytes>> answers = ReadColumns(reads, now);
  for (const absl::StatusOr<Bytes>& answer : answers) {
    ABACUS_RETURN_IF_ERROR(answer.status());
    sources.push_back(answer->block.data());
    sum.version = std::max(sum.version, answer->version);
  }
  SumOf(sources, sum.block.mutable_data(), bytes);
  return sum;
}

// Whole blocks of the store: a part of a damaged one cannot be written.
absl::StatusOr<Raid5Layer::Bytes> Raid5Layer::Repair(uint64_t stripe, size_t column, uint64_t at,
                                                     uint64_t bytes, const absl::Status& damage,
                                                     Version now) {
  const Mode mode = ModeOf(stripe);
  if (mode.lost.has_value() || mode.torn) return damage;  // nothing to compute it from
  constexpr uint64_t kBlock = Striping::kStoreBlockBytes;
  const uint64_t from = at / kBlock * kBlock;
  const uint64_t to = (at + bytes + kBlock - 1) / kBlock * kBlock;
  absl::StatusOr<Bytes> found = XorOthers(stripe, column, from, to - from, now);
  if (absl::IsDataLoss(found.status())) {
    return absl::DataLossError(absl::StrCat("stripe ", stripe, " is damaged in two columns: ",
                                            damage.message(), "; ", found.status().message()));
  }
  ABACUS_RETURN_IF_ERROR(found.status());
  const absl::Status written =
      WriteColumns({{column, striping_->ColumnOffsetOf(stripe) + from, found->block}}, now);
  if (written.ok()) {
    MutexLock lock(mutex_);
    ++repaired_;
  }
  // Where it could not be written, it is found again.
  found->block = found->block.Slice(at - from, bytes);
  return found;
}

absl::StatusOr<std::vector<Raid5Layer::Bytes>> Raid5Layer::ReadParts(uint64_t stripe,
                                                                     const std::vector<Part>& parts,
                                                                     Version now) {
  const Mode mode = ModeOf(stripe);
  std::vector<ColumnRead> reads;
  for (const Part& part : parts) {
    if (mode.lost == part.column) continue;
    reads.push_back({part.column, striping_->ColumnOffsetOf(stripe) + part.at, part.bytes});
  }
  std::vector<absl::StatusOr<Bytes>> answers;
  if (!reads.empty()) answers = ReadColumns(reads, now);
  std::vector<Bytes> results;
  size_t next = 0;
  for (const Part& part : parts) {
    const bool asked = mode.lost != part.column;
    if (asked && !absl::IsDataLoss(answers[next].status())) {
      ABACUS_RETURN_IF_ERROR(answers[next].status());
      results.push_back(*std::move(answers[next++]));
      continue;
    }
    if (asked) ++next;
    ABACUS_ASSIGN_OR_RETURN(Bytes bytes, ReadUnit(stripe, part.column, part.at, part.bytes, now));
    results.push_back(std::move(bytes));
  }
  return results;
}

absl::StatusOr<uint64_t> Raid5Layer::Seek(uint64_t offset, bool data, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  const Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kShared);
  const uint64_t unit = striping_->unit_bytes();
  for (uint64_t from = striping_->StripeOf(offset);;) {
    uint64_t size = 0, stripe = UINT64_MAX, hole = 0;
    {
      MutexLock lock(mutex_);
      size = now_.size;
      const auto spilled = spilled_.Within({from, UINT64_MAX});
      if (!spilled.empty()) stripe = spilled.runs().begin()->first;
    }
    if (offset >= size) return absl::OutOfRangeError("at or behind the end of the file");
    bool again = false;
    for (const size_t column : LiveColumns()) {
      const absl::StatusOr<uint64_t> next = below(column)->Seek(from * unit, true, now);
      if (absl::IsOutOfRange(next.status())) continue;
      if (const absl::Status noted = Note(column, next.status()); !noted.ok()) {
        if (!IsAgain(noted)) return noted;
        again = true;
        break;
      }
      if (*next >= kSpillAt) continue;
      stripe = std::min(stripe, *next / unit);
      if (*next / unit != from) continue;
      const absl::StatusOr<uint64_t> end = below(column)->Seek(*next, false, now);
      if (end.ok()) hole = std::max(hole, (*end + unit - 1) / unit);
    }
    if (again) continue;
    const bool none = stripe == UINT64_MAX || striping_->OffsetOf(stripe) >= size;
    if (data) {
      if (none) return absl::OutOfRangeError("no data follows");
      return std::max(offset, striping_->OffsetOf(stripe));
    }
    if (none || stripe > from) {
      return std::min(size, std::max(offset, striping_->OffsetOf(from)));
    }
    from = std::max(from + 1, hole);  // at least one column has data up to there
  }
}

}  // namespace abacus::objfs
