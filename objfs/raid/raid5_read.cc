// Reads: from the columns that have the bytes, else from the others.

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "objfs/raid/column_reads.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Turn = RangeTurns::Turn;

namespace {

// How long either of two ways is waited for before the other is looked at again.
constexpr absl::Duration kLookAtTheOtherWay = absl::Milliseconds(1);

}  // namespace

// -- pieces of a file, and columns that are late --------------------------------------------------

// Nobody writes to these stripes: that takes an exclusive turn. So where a stripe is not torn, and
// no column lacks anything of it, its parity is that of its data, and any unit is the XOR of the
// rest.
ReadPlan Raid5Layer::PlanOf(const std::vector<Striping::Piece>& pieces,
                            std::optional<size_t> without) const {
  std::vector<std::vector<ColumnRead>> wanted;
  for (const Striping::Piece& piece : pieces) {
    std::vector<ColumnRead>& reads = wanted.emplace_back();
    const size_t own = striping_->ColumnOf(piece.stripe, piece.unit);
    const uint64_t from = striping_->ColumnOffsetOf(piece.stripe) + piece.at;
    const Mode mode = ModeOf(piece.stripe);
    const bool lost = mode.lost == own;
    if (lost && mode.doubtful) continue;
    if (lost && mode.spilled) {
      reads.push_back(
          {striping_->ParityColumn(piece.stripe), SpillOf(piece.stripe) + piece.at, piece.bytes});
    } else if (lost || (without == own && !mode.lost.has_value() && !mode.torn)) {
      for (size_t column = 0; column < below_count(); ++column) {
        if (column != own) reads.push_back({column, from, piece.bytes});
      }
    } else {
      reads.push_back({own, from, piece.bytes});
    }
  }
  return ReadPlan::Of(wanted);
}

Raid5Layer::Begun Raid5Layer::BeginReads(ReadPlan plan, ColumnReads& reads) const {
  Begun begun{std::move(plan), {}};
  for (std::vector<ColumnRead>& column : begun.plan.ByColumn()) {
    const runtime::Ref<Layer>& layer = below(column.front().column);
    begun.calls.push_back(reads.Begin(layer, std::move(column)));
  }
  return begun;
}

absl::Status Raid5Layer::Refused(const Begun& begun, const ColumnReads& reads) {
  for (const size_t call : begun.calls) {
    if (!reads.answered(call) || absl::IsDataLoss(reads.status(call))) continue;
    ABACUS_RETURN_IF_ERROR(Note(reads.column(call), reads.status(call)));
  }
  return absl::OkStatus();
}

bool Raid5Layer::BeginRound() {
  MutexLock lock(mutex_);
  if (rounds_ >= kReadsRoundMost) return false;
  ++rounds_;
  ++read_round_;
  return true;
}

void Raid5Layer::EndRound() {
  MutexLock lock(mutex_);
  --rounds_;
}

absl::StatusOr<Raid5Layer::Begun> Raid5Layer::ReadRound(const std::vector<Striping::Piece>& pieces,
                                                        ColumnReads& reads) {
  ReadPlan direct = PlanOf(pieces, std::nullopt);
  ReadPace::AllButOne choice{std::nullopt, absl::InfiniteDuration()};
  if (alarm_ != nullptr) {
    std::vector<size_t> asked;
    uint64_t most = 0;
    for (const std::vector<ColumnRead>& column : direct.ByColumn()) {
      uint64_t wanted = 0;
      for (const ColumnRead& read : column) wanted += read.bytes;
      asked.push_back(column.front().column);
      most = std::max(most, wanted);
    }
    choice = pace_.ChooseAllButOne(asked, most, absl::Now());
  }
  if (choice.without.has_value()) {
    direct = PlanOf(pieces, choice.without);
    MutexLock lock(mutex_);
    ++read_round_;
  }
  Begun first = BeginReads(std::move(direct), reads);
  if (reads.Wait(first.calls, choice.patience)) return first;
  std::optional<Begun> second;
  bool may_go_round = true;
  absl::Status refused;
  for (bool first_is_there = false; !first_is_there && refused.ok();) {
    const std::vector<size_t> late = reads.Late(first.calls);
    if (!second.has_value() && may_go_round && late.size() == 1) {
      ReadPlan round = PlanOf(pieces, late[0]);
      may_go_round = std::none_of(round.reads.begin(), round.reads.end(),
                                  [&](const ColumnRead& read) { return read.column == late[0]; });
      if (may_go_round && BeginRound()) second = BeginReads(std::move(round), reads);
    }
    if (second.has_value() && may_go_round && reads.Wait(second->calls, kLookAtTheOtherWay)) {
      // What is refused or damaged there is left to the late one.
      may_go_round = std::all_of(second->calls.begin(), second->calls.end(),
                                 [&](size_t call) { return reads.status(call).ok(); });
      if (may_go_round) break;
    }
    first_is_there =
        reads.Wait(first.calls,
                   second.has_value() && may_go_round ? absl::ZeroDuration() : kLookAtTheOtherWay);
    refused = Refused(first, reads);
  }
  if (second.has_value()) EndRound();
  ABACUS_RETURN_IF_ERROR(refused);
  const bool round = second.has_value() && !reads.Late(first.calls).empty();
  return round ? *std::move(second) : std::move(first);
}

absl::StatusOr<ReadResult> Raid5Layer::ReadOnce(uint64_t offset, uint64_t bytes, Version now) {
  {
    MutexLock lock(mutex_);
    if (offset >= now_.size) return ReadResult();  // it was cut off meanwhile
    bytes = std::min(bytes, now_.size - offset);
  }
  const std::vector<Striping::Piece> pieces = striping_->Pieces(offset, bytes);
  ColumnReads reads(alarm_.get(), &pace_, now);
  ABACUS_ASSIGN_OR_RETURN(const Begun begun, ReadRound(pieces, reads));
  std::vector<absl::StatusOr<Bytes>> answers;  // of the plan's reads
  for (const size_t call : begun.calls) {
    const size_t column = reads.column(call);
    for (size_t i = 0; answers.size() < begun.plan.reads.size(); ++i) {
      const ColumnRead& what = begun.plan.reads[answers.size()];
      if (what.column != column) break;
      answers.push_back(BytesOf(column, reads.answer(call, i), what.bytes));
      if (!absl::IsDataLoss(answers.back().status())) {
        ABACUS_RETURN_IF_ERROR(answers.back().status());
      }
    }
  }
  Block out = pieces.size() > 1 ? Block::Allocate(bytes) : Block();
  ReadResult result;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<ReadPlan::Source>& sources = begun.plan.sources[i];
    const bool there = !sources.empty() && std::all_of(sources.begin(), sources.end(),
                                                       [&](const ReadPlan::Source& source) {
                                                         return answers[source.read].ok();
                                                       });
    char* const to =
        out.empty() ? nullptr : out.mutable_data() + (striping_->FileOffset(pieces[i]) - offset);
    Bytes piece;
    if (!there) {  // damaged, or known elsewhere or nowhere
      ABACUS_ASSIGN_OR_RETURN(piece, ReadPiece(pieces[i], now));
      if (to != nullptr) std::memcpy(to, piece.block.data(), pieces[i].bytes);
    } else {
      piece = PieceOf(pieces[i], sources, answers, to);
    }
    result.version = std::max(result.version, piece.version);
    if (to == nullptr) result.bytes = std::move(piece.block);
  }
  if (!out.empty()) result.bytes = std::move(out);
  return result;
}

Raid5Layer::Bytes Raid5Layer::PieceOf(const Striping::Piece& piece,
                                      const std::vector<ReadPlan::Source>& sources,
                                      const std::vector<absl::StatusOr<Bytes>>& answers,
                                      char* to) const {
  Bytes result;
  std::vector<const char*> from;
  for (const ReadPlan::Source& source : sources) {
    result.version = std::max(result.version, answers[source.read]->version);
    from.push_back(answers[source.read]->block.data() + source.at);
  }
  if (to == nullptr && from.size() == 1) {
    result.block = answers[sources[0].read]->block.Slice(sources[0].at, piece.bytes);
    return result;
  }
  if (to == nullptr) {
    result.block = Block::Allocate(piece.bytes);
    to = result.block.mutable_data();
  }
  if (from.size() == 1) {
    std::memcpy(to, from[0], piece.bytes);
  } else {
    SumOf(from, to, piece.bytes);
  }
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
  if (Together() != nullptr) return NeedsAlone("to look for holes");
  ABACUS_RETURN_IF_ERROR(WriteGathered());
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
