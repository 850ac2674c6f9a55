// Rebuild and scrub: steps that their caller paces.

#include <algorithm>
#include <chrono>
#include <optional>

#include "objfs/raid/parity.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Turn = RangeTurns::Turn;

namespace {
// Of a column, in one turn. Who writes to these stripes by the same layer waits for it.
constexpr uint64_t kRunBytes = 1 << 20;
// Of a column, in one call.
constexpr uint64_t kPieceBytes = 256 << 10;

uint64_t StripesOfBytes(uint64_t column_bytes, const Striping& striping) {
  return std::max<uint64_t>(column_bytes / striping.unit_bytes(), 1);
}
}  // namespace

absl::StatusOr<RebuildProgress> Raid5Layer::Rebuild(uint64_t from, uint64_t stripes, Version now) {
  if (Together() != nullptr) return NeedsAlone("a rebuild");
  ABACUS_RETURN_IF_ERROR(Open(now));
  RebuildProgress progress;
  size_t column = 0;
  bool present = false;
  {
    MutexLock lock(mutex_);
    if (!now_.missing.has_value()) return progress;
    column = *now_.missing;
    present = present_;
  }
  const auto come_again = [](const absl::Status& status) {
    return IsAgain(status) ? absl::UnavailableError("raid5: the column does not serve") : status;
  };
  if (!present) {
    const Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kExclusive);
    const absl::StatusOr<ColumnRecord> record = ReadRecord(column, now);
    if (!record.ok() && !absl::IsDataLoss(record.status())) return record.status();
    ABACUS_RETURN_IF_ERROR(come_again(BringBack(column, Believed(record, column), now)));
  }
  StripeSet rebuilt;
  const auto end = std::chrono::steady_clock::now() + kStep;
  for (bool tried = false; stripes > 0; tried = true) {
    const StripeRun run = NextToRebuild(from, stripes);
    if (run.begin >= run.end) {
      from = 0;
      break;
    }
    if (tried && std::chrono::steady_clock::now() >= end) break;
    const Turn turn(turns_, run, RangeTurns::Kind::kExclusive);
    StripeSet done;
    const auto next = RebuildRun(run, column, end, &done, &progress.damaged, now);
    ABACUS_RETURN_IF_ERROR(come_again(next.status()));
    from = *next;
    stripes -= *next - run.begin;
    rebuilt.Add(done);
    MutexLock lock(mutex_);
    // Then it may have lost what was written to it, though it may answer again by now.
    if (now_.missing != column || !present_) return come_again(Again());
    pending_.Add(done);
  }
  progress.next = from;
  if (!rebuilt.empty()) ABACUS_RETURN_IF_ERROR(come_again(FlushLive(now)));
  for (const auto& [begin, end] : rebuilt.runs()) {
    const Turn turn(turns_, {begin, end}, RangeTurns::Kind::kExclusive);
    StripeSet done;  // nobody wrote to them since, so that what was flushed is what they have
    {
      MutexLock lock(mutex_);
      done = pending_.Within({begin, end});
    }
    ABACUS_RETURN_IF_ERROR(come_again(FinishRebuilt(done, column, now)));
    progress.rebuilt += done.count();
  }
  if (rebuilt.empty()) {  // perhaps there is nothing left, and only the record has to say so
    const Turn turn(turns_, {0, UINT64_MAX}, RangeTurns::Kind::kExclusive);
    ABACUS_RETURN_IF_ERROR(come_again(FinishRebuilt(StripeSet(), column, now)));
  }
  MutexLock lock(mutex_);
  progress.left = now_.missed.count();
  StripeSet doubtful = now_.doubtful;
  progress.doubtful = doubtful.count();
  doubtful.Remove(now_.missed);
  progress.left += doubtful.count();
  return progress;
}

StripeRun Raid5Layer::NextToRebuild(uint64_t from, uint64_t stripes) {
  const uint64_t most = StripesOfBytes(kRunBytes, *striping_);
  MutexLock lock(mutex_);
  const StripeSet left = now_.missed.Within({from, UINT64_MAX});
  if (left.empty()) return {};
  const auto& [begin, end] = *left.runs().begin();
  return {begin, begin + std::min({most, end - begin, stripes})};
}

absl::StatusOr<uint64_t> Raid5Layer::RebuildRun(StripeRun run, size_t column, Time end,
                                                StripeSet* done, uint64_t* damaged, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const uint64_t together, RebuildTogether(run, column, end, now));
  if (together > run.begin) {
    done->Add({run.begin, together});
    return together;
  }
  run.end = std::min(run.end, run.begin + StripesOfBytes(kPieceBytes, *striping_));
  for (uint64_t stripe = run.begin; stripe < run.end; ++stripe) {
    if (stripe > run.begin && std::chrono::steady_clock::now() >= end) return stripe;
    if (ModeOf(stripe).doubtful) continue;
    const absl::Status status = RebuildStripe(stripe, column, now);
    if (absl::IsDataLoss(status)) {
      ++*damaged;
      continue;
    }
    ABACUS_RETURN_IF_ERROR(status);
    done->Add({stripe, stripe + 1});
  }
  return run.end;
}

absl::StatusOr<uint64_t> Raid5Layer::RebuildTogether(StripeRun run, size_t column, Time end,
                                                     Version now) {
  {
    MutexLock lock(mutex_);
    for (uint64_t stripe = run.begin; stripe < run.end; ++stripe) {
      const Mode mode = ModeLocked(stripe);
      const bool cut_off = striping_->OffsetOf(stripe) >= now_.size;
      if (cut_off || mode.lost != column || mode.spilled || mode.doubtful) run.end = stripe;
    }
  }
  uint64_t written = run.begin;
  const absl::Status status = RebuildPieces(run, column, end, &written, now);
  if (run.begin < run.end) ChangedIn(column);
  // A stripe of those that follow is damaged elsewhere: it is come to again, and is the first then.
  if (!absl::IsDataLoss(status)) ABACUS_RETURN_IF_ERROR(status);
  return written;
}

// While one piece is written the next one is read.
absl::Status Raid5Layer::RebuildPieces(StripeRun run, size_t column, Time end, uint64_t* written,
                                       Version now) {
  const uint64_t most = StripesOfBytes(kPieceBytes, *striping_);
  std::optional<runtime::BranchOf<absl::Status>> write;
  uint64_t begun = run.begin;
  const auto join = [&]() -> absl::Status {
    if (!write.has_value()) return absl::OkStatus();
    const absl::Status status = Note(column, write->Join());
    write.reset();
    if (status.ok()) *written = begun;
    return status;
  };
  while (begun < run.end) {
    if (begun > run.begin && std::chrono::steady_clock::now() >= end) break;
    const uint64_t next = std::min(begun + most, run.end);
    // In each stripe it is the XOR of the others, whichever of them has the parity there.
    const absl::StatusOr<Bytes> own =
        XorOthers(begun, column, 0, (next - begun) * striping_->unit_bytes(), now);
    ABACUS_RETURN_IF_ERROR(join());
    ABACUS_RETURN_IF_ERROR(own.status());
    write.emplace(
        below(column).Fork<&Layer::Write>(striping_->ColumnOffsetOf(begun), own->block, now));
    begun = next;
  }
  return join();
}

// Writes the column's unit, and the parity where it has not been kept: nobody reads either yet.
absl::Status Raid5Layer::RebuildStripe(uint64_t stripe, size_t column, Version now) {
  const uint64_t unit = striping_->unit_bytes(), base = striping_->ColumnOffsetOf(stripe);
  const Mode mode = ModeOf(stripe);
  if (mode.lost != column || mode.doubtful) return absl::OkStatus();
  {
    MutexLock lock(mutex_);
    if (striping_->OffsetOf(stripe) >= now_.size) return absl::OkStatus();  // it was cut off there
  }
  ABACUS_ASSIGN_OR_RETURN(Bytes own, ReadUnit(stripe, column, 0, unit, now));
  std::vector<ColumnWrite> writes;
  if (mode.spilled) {
    const size_t parity = striping_->ParityColumn(stripe);
    std::vector<Part> parts;
    for (size_t i = 0; i < below_count(); ++i) {
      if (i != column && i != parity) parts.push_back({i, 0, unit});
    }
    ABACUS_ASSIGN_OR_RETURN(const std::vector<Bytes> others, ReadParts(stripe, parts, now));
    Block sum = Block::CopyOf(own.block.view());
    for (const Bytes& other : others) AddTo(other.block.data(), sum.mutable_data(), unit);
    writes.push_back({parity, base, std::move(sum)});
  }
  writes.push_back({column, base, std::move(own.block)});
  return WriteColumns(writes, now);
}

// What stood in for the missing units goes before the record says that they are there: it must not
// be found later, when it is old.
absl::Status Raid5Layer::FinishRebuilt(const StripeSet& stripes, size_t column, Version now) {
  StripeSet spilled;
  {
    MutexLock lock(mutex_);
    for (const auto& [begin, end] : stripes.runs()) spilled.Add(spilled_.Within({begin, end}));
  }
  std::vector<size_t> punched;
  for (const auto& [begin, end] : spilled.runs()) {
    for (uint64_t stripe = begin; stripe < end; ++stripe) {
      const size_t parity = striping_->ParityColumn(stripe);
      ABACUS_RETURN_IF_ERROR(ChangeEach<&Layer::Punch>(
          {parity}, Range{SpillOf(stripe), striping_->unit_bytes()}, now));
      {
        MutexLock lock(mutex_);
        spilled_.Remove({stripe, stripe + 1});  // its parity counts again
      }
      if (std::find(punched.begin(), punched.end(), parity) == punched.end()) {
        punched.push_back(parity);
      }
    }
  }
  if (!punched.empty()) ABACUS_RETURN_IF_ERROR(Each<&Layer::Flush>(punched, now));
  {
    MutexLock lock(mutex_);
    if (now_.missing != column || !present_) {
      return absl::CancelledError("raid5: the column went away again");
    }
    StripeSet whole = stripes;
    whole.Remove(now_.doubtful);
    now_.missed.Remove(whole);
    now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
    pending_.Remove(stripes);
    if (now_.missed.empty() && now_.doubtful.empty()) {
      now_.missing.reset();
      present_ = false;
    }
    ++wanted_;
  }
  return SaveAtAll(now);
}

absl::Status Raid5Layer::ScrubStripe(uint64_t stripe, ScrubProgress* progress, Version now) {
  const Mode mode = ModeOf(stripe);
  progress->partial += mode.lost.has_value();
  if (mode.lost.has_value()) return absl::OkStatus();
  if (mode.torn) return Mend(stripe, now);
  const uint64_t unit = striping_->unit_bytes();
  std::vector<ColumnRead> reads;
  for (size_t column = 0; column < below_count(); ++column) {
    reads.push_back({column, striping_->ColumnOffsetOf(stripe), unit});
  }
  const std::vector<absl::StatusOr<Bytes>> found = ReadColumns(reads, now);
  std::vector<const char*> sources;
  std::vector<size_t> damaged;
  for (size_t column = 0; column < below_count(); ++column) {
    if (absl::IsDataLoss(found[column].status())) {
      damaged.push_back(column);
    } else {
      ABACUS_RETURN_IF_ERROR(found[column].status());
      sources.push_back(found[column]->block.data());
    }
  }
  ++progress->checked;
  // Damage of two columns can be in different blocks of the stripe: each block is tried.
  constexpr uint64_t kBlock = Striping::kStoreBlockBytes;
  uint64_t lost = 0;
  for (const size_t column : damaged) {
    bool whole = true;
    for (uint64_t at = 0; at < unit; at += kBlock) {
      const absl::StatusOr<Bytes> block = ReadUnit(stripe, column, at, kBlock, now);
      if (absl::IsDataLoss(block.status())) {
        whole = false;
      } else {
        ABACUS_RETURN_IF_ERROR(block.status());
      }
    }
    progress->repaired += whole;
    lost += !whole;
  }
  progress->damaged += lost > 0;
  if (!damaged.empty()) return absl::OkStatus();
  Block sum = Block::Allocate(unit);
  SumOf(sources, sum.mutable_data(), unit);
  if (AllZero(sum.data(), unit)) return absl::OkStatus();
  // All checksums are right, so that which unit is wrong cannot be told: the data is believed.
  const size_t parity = striping_->ParityColumn(stripe);
  AddTo(found[parity]->block.data(), sum.mutable_data(), unit);
  ++progress->mismatched;
  return WriteColumns({{parity, striping_->ColumnOffsetOf(stripe), std::move(sum)}}, now);
}

}  // namespace abacus::objfs
