// Writes over what was flushed (README.md, "Staged writes"): the new bytes and those of the parity
// are written beside their places, one record says so, and then they are put there.

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Staged = ColumnRecord::Staged;

namespace {

uint32_t CrcOf(const Block& block) {
  // ISA-L only reads; its signature does not say so.
  return ~crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(block.data())),
                      static_cast<int>(block.size()), ~0u);
}

uint64_t SlotAt(size_t slot) {
  return Raid5Layer::kStageAt + slot * ColumnRecord::kStagedBytesMost;
}

}  // namespace

std::vector<ColumnRead> Raid5Layer::PlacesOf(const Staged& staged) const {
  const uint64_t base = striping_->ColumnOffsetOf(staged.stripe);
  std::vector<ColumnRead> places;
  StripeRun hull{striping_->unit_bytes(), 0};
  for (const Striping::Piece& piece :
       striping_->Pieces(striping_->OffsetOf(staged.stripe) + staged.at, staged.bytes)) {
    places.push_back(
        {striping_->ColumnOf(staged.stripe, piece.unit), base + piece.at, piece.bytes});
    hull.begin = std::min(hull.begin, piece.at);
    hull.end = std::max(hull.end, piece.at + piece.bytes);
  }
  places.push_back(
      {striping_->ParityColumn(staged.stripe), base + hull.begin, hull.end - hull.begin});
  return places;
}

// -- writing --------------------------------------------------------------------------------------

std::vector<size_t> Raid5Layer::TakeSlots(StripeRun run, Version now) {
  for (bool drained = false, unstaged = false;;) {
    bool drain = false;
    {
      MutexLock lock(mutex_);
      run.end = std::min({run.end, run.begin + kStagedAtOnce, StripesIn(flushed_end_)});
      if (run.begin >= run.end || now_.missing.has_value() || !torn_.Within(run).empty()) return {};
      drain = !now_.written.Within(run).empty();
      if (drain && drained) return {};
      std::vector<size_t> slots;
      for (size_t slot = 0; slot < ColumnRecord::kSlots && run.begin + slots.size() < run.end;
           ++slot) {
        const auto used = slots_.find(slot);
        const bool free =
            used == slots_.end() || (used->second != kInUse && used->second <= saved_);
        if (free) slots.push_back(slot);
      }
      // Some may be others', under way.
      const bool enough = run.begin + slots.size() == run.end || (unstaged && !slots.empty());
      if (!drain && enough) {
        for (const size_t slot : slots) slots_[slot] = kInUse;
        return slots;
      }
      while (!drain && AllSlotsAreUnderWay()) slots_change_.Wait(mutex_);
    }
    // What is in the written set was flushed by somebody else meanwhile, and is flushed now.
    (drain ? drained : unstaged) = true;
    // A column that has no room keeps this one from nothing.
    if (!(drain ? Drain(now) : Unstage(now)).ok()) return {};
  }
}

bool Raid5Layer::AllSlotsAreUnderWay() const {
  size_t under_way = 0;
  for (const auto& [slot, until] : slots_) under_way += until == kInUse && !placed_.contains(slot);
  return under_way == ColumnRecord::kSlots;
}

void Raid5Layer::GiveBack(const std::vector<size_t>& slots) {
  MutexLock lock(mutex_);
  for (const size_t slot : slots) slots_.erase(slot);
  slots_change_.SignalAll();
}

// One that has bytes and no record would be taken for a column of something else.
bool Raid5Layer::HaveRecords(const std::set<size_t>& columns, Version now) {
  {
    MutexLock lock(mutex_);
    if (AreDurable(columns, 1)) return true;
    asked_.insert(columns.begin(), columns.end());
    ++wanted_;
  }
  return Save(now).ok();
}

absl::StatusOr<std::vector<Block>> Raid5Layer::ContentsOf(const Staged& staged, const Block& bytes,
                                                          uint64_t end, Version now) {
  const uint64_t offset = striping_->OffsetOf(staged.stripe) + staged.at;
  std::vector<PieceWrite> pieces;
  for (const Striping::Piece& piece : striping_->Pieces(offset, bytes.size())) {
    pieces.push_back({piece, bytes.Slice(striping_->FileOffset(piece) - offset, piece.bytes)});
  }
  const ColumnRead parity = PlacesOf(staged).back();
  const uint64_t at = parity.offset - striping_->ColumnOffsetOf(staged.stripe);
  ABACUS_ASSIGN_OR_RETURN(Block sum, ParityOf(staged.stripe, pieces, {at, at + parity.bytes},
                                              /*torn=*/false, end, now));
  std::vector<Block> contents;
  for (PieceWrite& piece : pieces) contents.push_back(std::move(piece.bytes));
  contents.push_back(std::move(sum));
  return contents;
}

std::vector<RecordedColumns::ColumnWrite> Raid5Layer::Joined(std::vector<ColumnWrite> writes) {
  std::sort(writes.begin(), writes.end(), [](const ColumnWrite& a, const ColumnWrite& b) {
    return std::pair(a.column, a.offset) < std::pair(b.column, b.offset);
  });
  std::vector<ColumnWrite> joined;
  for (size_t begin = 0, end = 0; begin < writes.size(); begin = end) {
    uint64_t bytes = 0;
    for (end = begin; end < writes.size() && writes[end].column == writes[begin].column &&
                      writes[end].offset == writes[begin].offset + bytes;
         ++end) {
      bytes += writes[end].bytes.size();
    }
    joined.push_back(std::move(writes[begin]));
    if (end == begin + 1) continue;
    Block all = Block::Allocate(bytes);
    char* to = all.mutable_data();
    for (size_t i = begin; i < end; ++i) {
      const Block& one = i == begin ? joined.back().bytes : writes[i].bytes;
      std::memcpy(to, one.data(), one.size());
      to += one.size();
    }
    joined.back().bytes = std::move(all);
  }
  return joined;
}

bool Raid5Layer::AreDurable(const std::set<size_t>& columns, uint64_t sequence) const {
  for (const size_t column : columns) {
    if (now_.durable[column] < sequence) return false;
  }
  return true;
}

void Raid5Layer::DropAll(const std::vector<Staged>& staged) {
  for (const Staged& one : staged) DropStaged(one.slot);
}

bool Raid5Layer::SaveStaged(const std::vector<Staged>& staged, const std::set<size_t>& columns,
                            Version now) {
  uint64_t first = 0;  // of the records that have it
  for (bool added = false, unstaged = false;;) {
    bool fits = false;
    {
      MutexLock lock(mutex_);
      if (!added) {
        now_.staged.insert(now_.staged.end(), staged.begin(), staged.end());
        first = now_.sequence + 1;
      }
      fits = now_.Fits(now_.SpareForMissed());
      if (now_.missing.has_value() || (!fits && (added || unstaged))) {
        DropAll(staged);
        return false;
      }
      if (added && AreDurable(columns, first)) return true;
      if (fits) {
        asked_.insert(columns.begin(), columns.end());
        ++wanted_;
      } else {
        now_.staged.resize(now_.staged.size() - staged.size());
      }
    }
    added = fits;
    unstaged = unstaged || !fits;
    if (!(fits ? Save(now) : Unstage(now)).ok()) {
      MutexLock lock(mutex_);
      DropAll(staged);
      return false;
    }
  }
}

absl::StatusOr<uint64_t> Raid5Layer::WriteStaged(uint64_t offset, const Block& bytes, Version now) {
  const bool fits = unit_bytes() <= ColumnRecord::kStagedBytesMost ||
                    (bytes.size() <= ColumnRecord::kStagedBytesMost &&
                     striping_->Pieces(offset, bytes.size()).size() == 1);
  uint64_t written = 0;
  while (journals_ && fits && written < bytes.size()) {
    ABACUS_ASSIGN_OR_RETURN(
        const uint64_t some,
        StageSome(offset + written, bytes.Slice(written, bytes.size() - written), now));
    if (some == 0) break;
    written += some;
  }
  return written;
}

absl::StatusOr<uint64_t> Raid5Layer::StageSome(uint64_t offset, const Block& bytes, Version now) {
  const std::vector<size_t> slots = TakeSlots(StripesOf(offset, bytes.size()), now);
  if (slots.empty()) return 0;
  const StripeRun run{StripeAt(offset), StripeAt(offset) + slots.size()};
  const uint64_t end = std::min(offset + bytes.size(), striping_->OffsetOf(run.end));
  uint64_t zeros_from = 0;
  {
    MutexLock lock(mutex_);
    zeros_from = ragged_ ? UINT64_MAX : now_.size;
  }
  std::vector<Staged> staged;
  std::vector<ColumnWrite> beside, in_place;
  std::set<size_t> columns;
  for (uint64_t stripe = run.begin; stripe < run.end; ++stripe) {
    const uint64_t begin = std::max(offset, striping_->OffsetOf(stripe));
    const uint64_t stop = std::min(end, striping_->OffsetOf(stripe + 1));
    Staged one{.stripe = stripe,
               .at = begin - striping_->OffsetOf(stripe),
               .bytes = stop - begin,
               .slot = slots[stripe - run.begin],
               .crcs = {}};
    const absl::StatusOr<std::vector<Block>> contents =
        ContentsOf(one, bytes.Slice(begin - offset, stop - begin), zeros_from, now);
    if (!contents.ok()) {
      // Whatever goes wrong until it is known, the way of all other writes meets too, and tells.
      GiveBack(slots);
      return 0;
    }
    const std::vector<ColumnRead> places = PlacesOf(one);
    for (size_t i = 0; i < places.size(); ++i) {
      const Block& content = (*contents)[i];
      one.crcs.push_back(CrcOf(content));
      columns.insert(places[i].column);
      beside.push_back({places[i].column, SlotAt(one.slot), content});
      in_place.push_back({places[i].column, places[i].offset, content});
    }
    staged.push_back(std::move(one));
  }
  {
    MutexLock lock(mutex_);
    staged_in_.insert(columns.begin(), columns.end());
  }
  if (!HaveRecords(columns, now) || !WriteSlots(Joined(std::move(beside)), now).ok()) {
    GiveBack(slots);
    return 0;
  }
  if (!SaveStaged(staged, columns, now)) return 0;
  const absl::Status written = WriteColumns(Joined(std::move(in_place)), now);
  {
    MutexLock lock(mutex_);
    if (now_.size < end && !ragged_) {
      now_.size = end;
      Changed(now);
    }
    if (written.ok() || IsAgain(written)) {
      // What a column that failed in between should have is the XOR of the rest.
      placed_.insert(slots.begin(), slots.end());
      slots_change_.SignalAll();
      staged_writes_ += slots.size();
      return end - offset;
    }
    for (const size_t slot : slots) DropStaged(slot);
    now_.written.Add(run);
  }
  return Written(run, written);
}

bool Raid5Layer::CutsByStaging(uint64_t stripe) const {
  return journals_ && unit_bytes() <= ColumnRecord::kStagedBytesMost && !now_.missing.has_value() &&
         !now_.written.Contains(stripe) && stripe < StripesIn(flushed_end_);
}

absl::StatusOr<bool> Raid5Layer::CutByStaging(uint64_t size, Version now) {
  const uint64_t stripe = striping_->StripeOf(size);
  {
    MutexLock lock(mutex_);
    if (size % stripe_bytes() == 0 || !CutsByStaging(stripe)) return false;
    now_.ragged = true;  // in the record that has it staged: the file does not grow by that
  }
  const uint64_t bytes = striping_->OffsetOf(stripe + 1) - size;
  ABACUS_ASSIGN_OR_RETURN(const uint64_t staged, WriteStaged(size, ZerosOf(bytes), now));
  if (staged < bytes) return false;
  ABACUS_RETURN_IF_ERROR(Unstage(now));
  return true;
}

void Raid5Layer::EmptySlots(Version now) {
  std::set<size_t> columns;
  {
    MutexLock lock(mutex_);
    columns.swap(staged_in_);
  }
  // Where it fails there is less room, and nothing is wrong.
  for (const size_t column : LiveColumns()) {
    if (columns.contains(column)) (void)below(column)->Punch(Range{kStageAt, 0}, now);
  }
}

// -- after a crash --------------------------------------------------------------------------------

absl::StatusOr<std::optional<Block>> Raid5Layer::ReadSlot(size_t column, size_t slot,
                                                          uint64_t bytes, uint32_t crc,
                                                          Version now) {
  {
    MutexLock lock(mutex_);
    if (!IsLive(column)) return std::nullopt;
  }
  absl::StatusOr<Bytes> found = std::move(ReadColumns({{column, SlotAt(slot), bytes}}, now)[0]);
  if (absl::IsDataLoss(found.status())) return std::nullopt;
  if (!found.ok()) return found.status();
  if (CrcOf(found->block) != crc) return std::nullopt;
  return std::move(found->block);
}

// What a column lacks is the XOR of what all others are to have. It is not, where a later write to
// the stripe was in its place before the slot was lost. Damage is told as it is.
absl::StatusOr<std::optional<Block>> Raid5Layer::LackingOf(
    const Staged& staged, size_t lacking, const std::vector<std::optional<Block>>& found,
    Version now) {
  const std::vector<ColumnRead> places = PlacesOf(staged);
  const ColumnRead& wanted = places[lacking];
  std::vector<ColumnRead> reads;
  for (size_t column = 0; column < below_count(); ++column) {
    if (column != wanted.column) reads.push_back({column, wanted.offset, wanted.bytes});
  }
  std::vector<absl::StatusOr<Bytes>> answers = ReadColumns(reads, now);
  Block sum = ZerosOf(wanted.bytes);
  for (const absl::StatusOr<Bytes>& answer : answers) {
    if (!answer.ok()) return answer.status();
    AddTo(answer->block.data(), sum.mutable_data(), wanted.bytes);
  }
  // What is in its place is out again where something else is to be there.
  for (size_t i = 0; i < places.size(); ++i) {
    const uint64_t begin = std::max(places[i].offset, wanted.offset);
    const uint64_t end = std::min(places[i].offset + places[i].bytes, wanted.offset + wanted.bytes);
    if (i == lacking || begin >= end) continue;
    const auto read = std::find_if(reads.begin(), reads.end(), [&](const ColumnRead& one) {
      return one.column == places[i].column;
    });
    const Block& old = answers[static_cast<size_t>(read - reads.begin())]->block;
    char* const to = sum.mutable_data() + (begin - wanted.offset);
    AddTo(old.data() + (begin - wanted.offset), to, end - begin);
    AddTo(found[i]->data() + (begin - places[i].offset), to, end - begin);
  }
  if (CrcOf(sum) != staged.crcs[lacking]) return std::nullopt;
  return sum;
}

ColumnRead Raid5Layer::BlocksOf(const ColumnRead& place) {
  constexpr uint64_t kBlock = Striping::kStoreBlockBytes;
  const uint64_t begin = place.offset / kBlock * kBlock;
  const uint64_t end = (place.offset + place.bytes + kBlock - 1) / kBlock * kBlock;
  return {place.column, begin, end - begin};
}

absl::Status Raid5Layer::WriteWhatIsWhole(const ColumnRead& place, const Block& bytes,
                                          Version now) {
  constexpr uint64_t kBlock = Striping::kStoreBlockBytes;
  const uint64_t end = place.offset + place.bytes;
  for (uint64_t at = place.offset, next = 0; at < end; at = next) {
    next = std::min(end, (at / kBlock + 1) * kBlock);
    const absl::Status written =
        WriteColumns({{place.column, at, bytes.Slice(at - place.offset, next - at)}}, now);
    if (!absl::IsDataLoss(written)) ABACUS_RETURN_IF_ERROR(written);
  }
  return absl::OkStatus();
}

// The others know that when they are looked at again.
absl::Status Raid5Layer::DoWithout(size_t column, const absl::Status& why, Version now) {
  const absl::Status failed = FailColumn(column, why);
  if (IsAgain(failed)) ABACUS_RETURN_IF_ERROR(Save(now));
  return failed;
}

// A write that a column does not know was never acknowledged, or the column has lost what it had
// flushed. Where it is one column, and all answer, it is done, which is right for both; before
// anything is in its place the column has it durably too, so that a crash in between, and another
// column that goes with it, find it whole. Else it is not done, and had not begun.
absl::StatusOr<Raid5Layer::Placing> Raid5Layer::PlaceOne(const Staged& staged, ColumnRead* lost,
                                                         Version now) {
  const std::vector<ColumnRead> places = PlacesOf(staged);
  std::optional<size_t> missing;
  {
    MutexLock lock(mutex_);
    missing = now_.missing;
  }
  std::vector<std::optional<Block>> found(places.size());
  std::vector<size_t> lacking;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [column, offset, bytes] = places[i];
    if (column == missing) continue;
    ABACUS_ASSIGN_OR_RETURN(found[i], ReadSlot(column, staged.slot, bytes, staged.crcs[i], now));
    if (!found[i].has_value()) lacking.push_back(i);
  }
  if (lacking.size() > (missing.has_value() ? 0 : 1)) return Placing::kNotBegun;
  if (!lacking.empty()) {
    const size_t one = lacking[0];
    absl::StatusOr<std::optional<Block>> lacks = LackingOf(staged, one, found, now);
    // What rotted elsewhere is still computed from what all have.
    if (absl::IsDataLoss(lacks.status())) return Placing::kNotBegun;
    ABACUS_ASSIGN_OR_RETURN(found[one], std::move(lacks));
    if (found[one].has_value()) {
      const absl::Status completed =
          WriteSlots({{places[one].column, SlotAt(staged.slot), *found[one]}}, now);
      if (absl::IsResourceExhausted(completed)) {
        return DoWithout(places[one].column, completed, now);
      }
      ABACUS_RETURN_IF_ERROR(completed);
      ABACUS_RETURN_IF_ERROR(SaveAtAll(now));
      lacking.clear();
    }
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (!found[i].has_value()) continue;
    const auto& [column, offset, bytes] = places[i];
    const absl::Status written = WriteColumns({{column, offset, *found[i]}}, now);
    if (absl::IsDataLoss(written)) {
      lacking.push_back(i);  // of a block that rotted a part is not written
      if (missing.has_value()) ABACUS_RETURN_IF_ERROR(WriteWhatIsWhole(places[i], *found[i], now));
    } else if (absl::IsResourceExhausted(written) && !missing.has_value()) {
      return DoWithout(column, written, now);
    } else {
      ABACUS_RETURN_IF_ERROR(written);
    }
  }
  // With a column missing what rotted is not to be computed, and whoever reads it is told.
  if (lacking.empty() || missing.has_value()) return Placing::kDone;
  if (lacking.size() > 1 || lacking[0] + 1 == places.size()) return Placing::kTorn;
  *lost = BlocksOf(places[lacking[0]]);
  return Placing::kLost;
}

// Once all others are in their places: only then the parity is that of all of them.
absl::Status Raid5Layer::PlaceLost(uint64_t stripe, const ColumnRead& lost, Version now) {
  const absl::StatusOr<Bytes> data = XorOthers(
      stripe, lost.column, lost.offset - striping_->ColumnOffsetOf(stripe), lost.bytes, now);
  if (absl::IsDataLoss(data.status())) return absl::OkStatus();  // two faults; a scrub tells
  if (!data.ok()) return data.status();
  return WriteColumns({{lost.column, lost.offset, data->block}}, now);
}

absl::StatusOr<bool> Raid5Layer::PlaceStaged(Version now) {
  std::vector<Staged> all;
  {
    MutexLock lock(mutex_);
    all = now_.staged;
  }
  if (all.empty()) return false;
  // Nothing rests on what only some have.
  ABACUS_RETURN_IF_ERROR(SaveAtAll(now));
  StripeSet torn, not_begun;
  std::vector<std::pair<uint64_t, ColumnRead>> lost;
  uint64_t end = 0;
  for (const Staged& staged : all) {
    const StripeRun stripe{staged.stripe, staged.stripe + 1};
    // What came later to the stripe rests on it.
    if (not_begun.Contains(staged.stripe)) continue;
    ColumnRead lacks;
    ABACUS_ASSIGN_OR_RETURN(const Placing placing, PlaceOne(staged, &lacks, now));
    if (placing == Placing::kNotBegun) {
      not_begun.Add(stripe);
      continue;
    }
    if (placing == Placing::kTorn) torn.Add(stripe);
    if (placing == Placing::kLost) lost.emplace_back(staged.stripe, lacks);
    end = std::max(end, striping_->OffsetOf(staged.stripe) + staged.at + staged.bytes);
  }
  for (const auto& [stripe, lacks] : lost) {
    if (!torn.Contains(stripe)) ABACUS_RETURN_IF_ERROR(PlaceLost(stripe, lacks, now));
  }
  ABACUS_RETURN_IF_ERROR(FlushLive(now));
  {
    MutexLock lock(mutex_);
    now_.written.Add(torn);
    if (now_.size < end && !now_.ragged) {  // it was to grow by that
      now_.size = end;
      Changed(now);
    }
    for (const Staged& staged : all) {
      DropStaged(staged.slot);
      for (const ColumnRead& place : PlacesOf(staged)) staged_in_.insert(place.column);
    }
  }
  ABACUS_RETURN_IF_ERROR(SaveAtAll(now));
  return true;
}

}  // namespace abacus::objfs
