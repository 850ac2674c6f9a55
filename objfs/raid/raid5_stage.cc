// Small writes that are durable at once (README.md, "Staged writes"): the new bytes and those of
// the parity are written beside their places, one record says so, and then they are put there.

#include <isa-l/crc.h>

#include <algorithm>

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

// -- writing --------------------------------------------------------------------------------------

std::optional<size_t> Raid5Layer::TakeSlot(uint64_t stripe, size_t unit, uint64_t end,
                                           Version now) {
  for (bool again = false;; again = true) {
    {
      MutexLock lock(mutex_);
      if (now_.missing.has_value() || torn_.Contains(stripe) || now_.written.Contains(stripe) ||
          end > now_.size || staged_in_a_row_ >= kStagedInARowMost) {
        return std::nullopt;
      }
      for (size_t slot = 0; slot < ColumnRecord::kSlots; ++slot) {
        const auto used = slots_.find(slot);
        if (used != slots_.end() && (used->second == kInUse || used->second > saved_)) continue;
        slots_[slot] = kInUse;
        staged_in_.insert(striping_->ParityColumn(stripe));
        staged_in_.insert(striping_->ColumnOf(stripe, unit));
        return slot;
      }
    }
    // All are others', under way; or a column that has no room keeps this one from nothing.
    if (again || !Unstage(now).ok()) return std::nullopt;
  }
}

bool Raid5Layer::SaveStaged(const Staged& staged, Version now) {
  const size_t columns[] = {striping_->ColumnOf(staged.stripe, staged.unit),
                            striping_->ParityColumn(staged.stripe)};
  uint64_t first = 0;  // of the records that have it
  for (bool added = false;; added = true) {
    {
      MutexLock lock(mutex_);
      if (!added && !now_.missing.has_value()) {
        now_.staged.push_back(staged);
        first = now_.sequence + 1;
      }
      if (now_.missing.has_value()) {
        DropStaged(staged.slot);
        return false;
      }
      if (added && now_.durable[columns[0]] >= first && now_.durable[columns[1]] >= first) {
        return true;
      }
      asked_.insert(std::begin(columns), std::end(columns));
      ++wanted_;
    }
    if (!Save(now).ok()) {
      MutexLock lock(mutex_);
      DropStaged(staged.slot);
      return false;
    }
  }
}

absl::StatusOr<bool> Raid5Layer::WriteStaged(uint64_t offset, const Block& bytes, Version now) {
  if (bytes.size() > ColumnRecord::kStagedBytesMost) return false;
  const std::vector<Striping::Piece> pieces = striping_->Pieces(offset, bytes.size());
  if (pieces.size() != 1) return false;
  const Striping::Piece& piece = pieces.front();
  const uint64_t stripe = piece.stripe, end = offset + bytes.size();
  const std::optional<size_t> slot = TakeSlot(stripe, piece.unit, end, now);
  if (!slot.has_value()) return false;
  const auto give_back = [&] {
    MutexLock lock(mutex_);
    slots_.erase(*slot);
    return false;
  };
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    size = now_.size;
  }
  const size_t column = striping_->ColumnOf(stripe, piece.unit);
  const size_t parity_column = striping_->ParityColumn(stripe);
  const absl::StatusOr<Block> parity = ParityOf(
      stripe, {{piece, bytes}}, {piece.at, piece.at + piece.bytes}, /*torn=*/false, size, now);
  // Whatever goes wrong until it is known, the way of all other writes meets too, and tells.
  if (!parity.ok()) return give_back();
  const uint64_t slot_at = SlotAt(*slot);
  if (!WriteSlots({{column, slot_at, bytes}, {parity_column, slot_at, *parity}}, now).ok()) {
    return give_back();
  }
  const Staged staged{.stripe = stripe,
                      .unit = piece.unit,
                      .at = piece.at,
                      .bytes = piece.bytes,
                      .slot = *slot,
                      .data_crc = CrcOf(bytes),
                      .parity_crc = CrcOf(*parity)};
  if (!SaveStaged(staged, now)) return false;
  const uint64_t at = striping_->ColumnOffsetOf(stripe) + piece.at;
  const absl::Status written =
      WriteColumns({{column, at, bytes}, {parity_column, at, *parity}}, now);
  {
    MutexLock lock(mutex_);
    if (written.ok() || IsAgain(written)) {
      // What a column that failed in between should have is the XOR of the rest.
      placed_.insert(*slot);
      ++staged_in_a_row_;
      ++staged_writes_;
      return true;
    }
    DropStaged(*slot);
    now_.written.Add({stripe, stripe + 1});
  }
  return Written({stripe, stripe + 1}, written);
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

// A write that only one of two columns knows was never acknowledged, or the other column has lost
// what it had flushed. With all columns there it is done, which is right for both; it is not where
// a third one is missing, as its unit would be computed from what does not fit together.
absl::StatusOr<Raid5Layer::Placing> Raid5Layer::PlaceOne(const Staged& staged, Version now) {
  const size_t column = striping_->ColumnOf(staged.stripe, staged.unit);
  const size_t parity_column = striping_->ParityColumn(staged.stripe);
  ABACUS_ASSIGN_OR_RETURN(const std::optional<Block> data,
                          ReadSlot(column, staged.slot, staged.bytes, staged.data_crc, now));
  ABACUS_ASSIGN_OR_RETURN(
      const std::optional<Block> parity,
      ReadSlot(parity_column, staged.slot, staged.bytes, staged.parity_crc, now));
  std::optional<size_t> missing;
  {
    MutexLock lock(mutex_);
    missing = now_.missing;
  }
  const bool is_one_of_both = missing == column || missing == parity_column;
  if (missing.has_value() && !is_one_of_both && !(data.has_value() && parity.has_value())) {
    return Placing::kDone;
  }
  const uint64_t at = striping_->ColumnOffsetOf(staged.stripe) + staged.at;
  std::vector<ColumnWrite> writes;
  if (data.has_value()) writes.push_back({column, at, *data});
  if (parity.has_value()) writes.push_back({parity_column, at, *parity});
  ABACUS_RETURN_IF_ERROR(WriteColumns(writes, now));
  if (missing.has_value()) return Placing::kDone;
  return !parity.has_value() ? Placing::kTorn : !data.has_value() ? Placing::kLost : Placing::kDone;
}

// Once all others are in their places: only then the parity is that of all of them.
absl::Status Raid5Layer::PlaceLost(const Staged& staged, Version now) {
  const size_t column = striping_->ColumnOf(staged.stripe, staged.unit);
  const absl::StatusOr<Bytes> data = XorOthers(staged.stripe, column, staged.at, staged.bytes, now);
  if (absl::IsDataLoss(data.status())) return absl::OkStatus();  // two faults; a scrub tells
  if (!data.ok()) return data.status();
  const uint64_t at = striping_->ColumnOffsetOf(staged.stripe) + staged.at;
  return WriteColumns({{column, at, data->block}}, now);
}

absl::StatusOr<bool> Raid5Layer::PlaceStaged(Version now) {
  std::vector<Staged> all, lost;
  {
    MutexLock lock(mutex_);
    all = now_.staged;
  }
  if (all.empty()) return false;
  // Nothing rests on what only some have.
  ABACUS_RETURN_IF_ERROR(SaveAtAll(now));
  StripeSet torn;
  for (const Staged& staged : all) {
    ABACUS_ASSIGN_OR_RETURN(const Placing placing, PlaceOne(staged, now));
    if (placing == Placing::kTorn) torn.Add({staged.stripe, staged.stripe + 1});
    if (placing == Placing::kLost) lost.push_back(staged);
  }
  for (const Staged& staged : lost) {
    if (!torn.Contains(staged.stripe)) ABACUS_RETURN_IF_ERROR(PlaceLost(staged, now));
  }
  ABACUS_RETURN_IF_ERROR(FlushLive(now));
  {
    MutexLock lock(mutex_);
    now_.written.Add(torn);
    for (const Staged& staged : all) {
      DropStaged(staged.slot);
      staged_in_.insert(striping_->ColumnOf(staged.stripe, staged.unit));
      staged_in_.insert(striping_->ParityColumn(staged.stripe));
    }
  }
  ABACUS_RETURN_IF_ERROR(SaveAtAll(now));
  return true;
}

}  // namespace abacus::objfs
