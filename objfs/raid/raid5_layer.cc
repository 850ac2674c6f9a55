#include "objfs/raid/raid5_layer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "objfs/raid/parity.h"
#include "objfs/raid/shared_stripes.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Turn = RangeTurns::Turn;

absl::Status Raid5Layer::Begin() {
  ABACUS_ASSIGN_OR_RETURN(striping_, Striping::Make(below_count(), options().Bytes("unit")));
  SetGeometry(ColumnRecord::Kind::kRaid5, striping_->unit_bytes(), striping_->stripe_bytes());
  pace_.Reset(below_count());
  gathers_ = options().Flag("gather") && striping_->stripe_bytes() <= kGatheredBytesMost;
  journals_ = options().Flag("journal");
  return absl::OkStatus();
}

void Raid5Layer::SumOf(absl::Span<const char* const> sources, char* to, size_t bytes) const {
  XorOf(sources, to, bytes);
  if (parity_work_) parity_work_(sources.size() * bytes);
}

void Raid5Layer::AddTo(const char* source, char* to, size_t bytes) const {
  XorInto(source, to, bytes);
  if (parity_work_) parity_work_(bytes);
}

absl::Status Raid5Layer::BeforeGrowing(Version now) {
  ABACUS_RETURN_IF_ERROR(CutTailIfRagged(now));
  bool cut_off = false;
  {
    MutexLock lock(mutex_);
    if (!now_.missing.has_value()) return absl::OkStatus();
    const uint64_t stripe = striping_->StripeOf(now_.size), end = striping_->Stripes(now_.size);
    const Mode mode = ModeLocked(stripe);
    if (stripe < end && mode.doubtful) {
      const uint64_t last = striping_->unit_bytes() - 1;
      if (striping_->FileOffset({stripe, striping_->UnitIn(stripe, *mode.lost), last, 1}) >=
          now_.size) {
        return absl::UnavailableError(
            absl::StrCat("the file cannot grow until column ", *mode.lost,
                         " is back: what that has behind the end is not known"));
      }
    }
    cut_off = !now_.written.Within({end, UINT64_MAX}).empty();
  }
  // What was cut off has not been put elsewhere. If it were the file's again while it is in the
  // written set, a crash would have the missing column asked for it, which did not see it go.
  return cut_off ? Drain(now) : absl::OkStatus();
}

absl::Status Raid5Layer::CutTail(Version now) {
  ABACUS_RETURN_IF_ERROR(Unstage(now));  // it lies behind the end
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    size = now_.size;
  }
  const uint64_t stripe = striping_->StripeOf(size), stripes = striping_->Stripes(size);
  ABACUS_ASSIGN_OR_RETURN(const bool staged, CutByStaging(size, now));
  if (stripe < stripes && !staged) {
    const StripeRun run{stripe, stripe + 1};
    uint64_t from = size;
    const Mode mode = ModeOf(stripe);
    absl::Status status = Admit(run, true, AllColumns(), now);
    if (mode.doubtful) {
      // The unit that nobody knows stays; it is looked at again when its column is back.
      for (const Striping::Piece& piece :
           striping_->Pieces(from, striping_->OffsetOf(stripe + 1) - from)) {
        if (!status.ok() || striping_->ColumnOf(stripe, piece.unit) == mode.lost) continue;
        status = WriteRange(striping_->FileOffset(piece), piece.bytes, nullptr, UINT64_MAX, now);
      }
    } else if (status.ok()) {
      status = WriteRange(from, striping_->OffsetOf(stripe + 1) - from, nullptr, UINT64_MAX, now);
    }
    Leave(run);
    ABACUS_RETURN_IF_ERROR(status);
  }
  const uint64_t end = striping_->ColumnOffsetOf(stripes);
  bool missing = false, flushes = false;
  {
    // Not before: the column may have been found missing just now, and its unit been put elsewhere.
    MutexLock lock(mutex_);
    missing = now_.missing.has_value();
  }
  if (!missing) {
    ABACUS_RETURN_IF_ERROR(ChangeEach<&Layer::Truncate>(LiveColumns(), end, now));
  } else {
    const std::vector<size_t> live = LiveColumns();
    if (end < kSpillAt) {
      ABACUS_RETURN_IF_ERROR(ChangeEach<&Layer::Punch>(live, Range{end, kSpillAt - end}, now));
    }
    ABACUS_RETURN_IF_ERROR(ChangeEach<&Layer::Punch>(live, Range{kSpillAt + end, 0}, now));
  }
  {
    MutexLock lock(mutex_);
    flushes = now_.written.Within({stripes, UINT64_MAX}).empty();
  }
  // What was cut off is durable before the record says so: a later flush flushes what was written.
  if (flushes) ABACUS_RETURN_IF_ERROR(FlushLive(now));
  MutexLock lock(mutex_);
  spilled_.Remove({stripes, UINT64_MAX});
  now_.doubtful.Remove({stripes, UINT64_MAX});
  torn_.Remove({stripes, UINT64_MAX});
  ragged_ = false;
  if (now_.ragged) ++wanted_;
  now_.ragged = false;
  return absl::OkStatus();
}

absl::Status Raid5Layer::PunchColumns(Range range, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  const Turn turn(turns_, kWholeFileRun, RangeTurns::Kind::kExclusive);
  ABACUS_RETURN_IF_ERROR(CutTailIfRagged(now));
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    size = now_.size;
  }
  if (range.offset >= size) return absl::OkStatus();
  const uint64_t left = size - range.offset;
  const uint64_t bytes = range.bytes == 0 ? left : std::min(range.bytes, left);
  const uint64_t offset = range.offset, end = offset + bytes;
  // Behind the end there are zeros anyway, so that the last stripe is whole.
  StripeRun whole{striping_->Stripes(offset),
                  end == size ? striping_->Stripes(end) : striping_->StripeOf(end)};
  absl::Status status;
  if (whole.begin < whole.end) {
    const StripeRun admitted = whole;
    status = Admit(admitted, true, AllColumns(), now);
    {
      // Not before: that may have found a column missing, and put its units elsewhere.
      MutexLock lock(mutex_);
      if (now_.missing.has_value()) whole = {};
    }
    if (status.ok() && whole.end > 0) {
      const Range columns{striping_->ColumnOffsetOf(whole.begin),
                          striping_->ColumnOffsetOf(whole.end - whole.begin)};
      status = Written(whole, ChangeEach<&Layer::Punch>(LiveColumns(), columns, now));
    }
    Leave(admitted);
  } else {
    whole = {};
  }
  // Stripes in part, or of which a column has no part, get zeros.
  const uint64_t head_end = whole.end > 0 ? std::min(end, striping_->OffsetOf(whole.begin)) : end;
  const uint64_t tail = whole.end > 0 ? std::min(end, striping_->OffsetOf(whole.end)) : end;
  if (status.ok()) status = WriteZeros(offset, head_end - offset, size, now);
  if (status.ok()) status = WriteZeros(tail, end - tail, size, now);
  return status;
}

absl::Status Raid5Layer::WriteZeros(uint64_t offset, uint64_t bytes, uint64_t end, Version now) {
  // More than two stripes in part are only of a file of which a column is missing.
  if (bytes > 0 && bytes < 2 * stripe_bytes()) {
    ABACUS_ASSIGN_OR_RETURN(const uint64_t staged, WriteStaged(offset, ZerosOf(bytes), now));
    offset += staged;
    bytes -= staged;
  }
  if (bytes == 0) return absl::OkStatus();
  const StripeRun run = StripesOf(offset, bytes);
  absl::Status status = Admit(run, true, AllColumns(), now);
  if (status.ok()) status = WriteRange(offset, bytes, nullptr, end, now);
  Leave(run);
  return status;
}

// -- state ----------------------------------------------------------------------------------------

void Raid5Layer::Checkpoint(runtime::CheckpointWriter& writer) const {
  RecordedColumns::Checkpoint(writer);
  MutexLock lock(mutex_);
  writer.Write(present_);
  writer.Write(RunsOf(spilled_));
  writer.Write(gathered_.offset);
  writer.Write(gathered_.version);
  const bool some = gathered_.bytes > 0;
  writer.Write(std::string(
      some ? gathered_.stripe.view().substr(gathered_.offset % stripe_bytes(), gathered_.bytes)
           : ""));
  writer.Write(last_end_);
  writer.Write(std::vector<uint64_t>(staged_in_.begin(), staged_in_.end()));
  writer.Write(RunsOf(noted_));
  writer.Write(given_back_);
  writer.Write(shared_ != nullptr);
  if (shared_ == nullptr) return;
  writer.Write(shared_->shared());
  // No identifier is given twice, whatever the clock says where it goes on.
  writer.Write(shared_->NextVersion());
}

absl::Status Raid5Layer::Restore(runtime::CheckpointReader& reader) {
  ABACUS_RETURN_IF_ERROR(RecordedColumns::Restore(reader));
  MutexLock lock(mutex_);
  reader.Read(present_);
  spilled_ = SetOf(reader.Read<Runs>());
  reader.Read(gathered_.offset);
  reader.Read(gathered_.version);
  const auto bytes = reader.Read<std::string>();
  reader.Read(last_end_);
  const auto staged_in = reader.Read<std::vector<uint64_t>>();
  staged_in_.insert(staged_in.begin(), staged_in.end());
  if (reader.version() >= 4) {
    noted_ = SetOf(reader.Read<Runs>());
    reader.Read(given_back_);
    if (reader.Read<bool>()) {
      auto shared = reader.Read<SharedColumns>();
      const auto newest = reader.Read<Version>();
      ABACUS_RETURN_IF_ERROR(reader.status());
      ABACUS_RETURN_IF_ERROR(SharedStripes::Check(*striping_, shared));
      auto host = SharedStripes::HostOf(shared);
      shared_ = std::make_shared<SharedStripes>(*striping_, std::move(shared), parity_work_,
                                                std::move(host));
      shared_->Follow(newest);
    }
  }
  ABACUS_RETURN_IF_ERROR(reader.status());
  const uint64_t at = gathered_.offset % stripe_bytes();
  if (bytes.size() > stripe_bytes() - at) return absl::DataLossError("raid5: more than a stripe");
  if (bytes.empty()) return absl::OkStatus();
  gathered_.bytes = bytes.size();
  gathered_.stripe = Block::Allocate(stripe_bytes());
  std::memcpy(gathered_.stripe.mutable_data() + at, bytes.data(), bytes.size());
  return absl::OkStatus();
}

void Raid5Layer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  MutexLock lock(mutex_);
  facts->emplace_back("columns", absl::StrCat(below_count()));
  if (shared_ != nullptr) {
    const SharedStripes::Counts counts = shared_->counts();
    facts->emplace_back("together", absl::StrCat(counts.groups, " groups, of ", counts.written,
                                                 " blocks written and ", counts.read, " read; ",
                                                 counts.again, " planned again"));
  }
  if (!open_) return;
  facts->emplace_back("missing", !now_.missing.has_value() ? "none"
                                 : present_
                                     ? absl::StrCat("column ", *now_.missing, ", coming back")
                                     : absl::StrCat("column ", *now_.missing));
  facts->emplace_back("missed", absl::StrCat(now_.missed.count(), " stripes"));
  facts->emplace_back("doubtful", absl::StrCat(now_.doubtful.count(), " stripes"));
  facts->emplace_back("written", absl::StrCat(now_.written.count(), " stripes"));
  facts->emplace_back("staged", absl::StrCat(now_.staged.size(), " writes, of ", staged_writes_));
  facts->emplace_back("repaired", absl::StrCat(repaired_, " units"));
  facts->emplace_back("gathered", !gathers_ ? "off"
                                            : absl::StrCat(gathered_.bytes, " bytes, after ",
                                                           gathered_writes_, " writes"));
  facts->emplace_back("read round", absl::StrCat(read_round_, " reads"));
}

}  // namespace abacus::objfs
