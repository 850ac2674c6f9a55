#include "objfs/raid/mirror_layer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;
using Turn = RangeTurns::Turn;

namespace {
constexpr StripeRun kAllStripes{0, UINT64_MAX};
constexpr StripeRun kOneWitnessCall{0, 1};
}  // namespace

absl::Status MirrorLayer::Begin() {
  const uint64_t unit = options().Bytes("unit");
  if ((unit & (unit - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("units of ", unit, " bytes: a power of two is needed"));
  }
  SetGeometry(ColumnRecord::Kind::kMirror, unit, unit);
  pace_.Reset(below_count());
  MutexLock lock(mutex_);
  ForgetColumns();
  return absl::OkStatus();
}

// -- copies and the witness -----------------------------------------------------------------------

void MirrorLayer::ForgetColumns() {
  states_.assign(below_count(), State::kAway);
  lacks_.assign(below_count(), StripeSet());
  known_.reset();
}

bool MirrorLayer::SomeMiss() const {
  return std::count(states_.begin(), states_.end(), State::kAway) > 0;
}

std::set<size_t> MirrorLayer::Lacking() const {
  std::set<size_t> lacking;
  for (size_t column = 0; column < states_.size(); ++column) {
    const State state = states_[column];
    if (state == State::kAway || state == State::kRebuilding) lacking.insert(column);
  }
  return lacking;
}

std::vector<size_t> MirrorLayer::CurrentColumns() const {
  MutexLock lock(mutex_);
  std::vector<size_t> columns;
  for (size_t column = 0; column < states_.size(); ++column) {
    if (states_[column] == State::kCurrent) columns.push_back(column);
  }
  return columns;
}

absl::Status MirrorLayer::FailColumn(size_t column, const absl::Status& why) {
  const absl::Status again = Again();
  MutexLock lock(mutex_);
  State& state = states_[column];
  if (state == State::kAway) return again;
  if (state == State::kCurrent) {
    if (std::count(states_.begin(), states_.end(), State::kCurrent) == 1) {
      return absl::UnavailableError(absl::StrCat(
          "column ", column, " does not serve, and no other is current: ", why.message()));
    }
    now_.lacking.insert(column);
  }
  state = State::kAway;
  lacks_[column].clear();
  // It may lose whatever it had not flushed.
  now_.missed.Add(now_.written);
  now_.missed.MergeTo(ColumnRecord::kMissedRunsMax);
  // Where nothing was changed since the last flush it has all that the others have, and may be back
  // before anything is.
  if (!now_.written.empty() || saved_ < wanted_) ++wanted_;
  return again;
}

absl::Status MirrorLayer::Settle(Version now) {
  const Turn turn(witness_turns_, kOneWitnessCall, RangeTurns::Kind::kExclusive);
  std::set<size_t> lacking;
  Ref<Layer> witness;
  {
    MutexLock lock(mutex_);
    if (IsSettled()) return absl::OkStatus();
    lacking = Lacking();
    witness = witness_;
    known_.reset();  // until it has answered
  }
  const absl::Status told = witness->SetInode(LackingText(lacking), now);
  if (!told.ok()) {
    if (absl::IsUnauthenticated(told) || IsWouldBlock(told)) return told;
    return absl::UnavailableError(
        absl::StrCat("which copies are current cannot be written at the volume's first server: ",
                     told.message()));
  }
  MutexLock lock(mutex_);
  known_ = lacking;
  for (size_t column = 0; column < states_.size(); ++column) {
    if (states_[column] != State::kReady || lacking.contains(column)) continue;
    states_[column] = State::kCurrent;
    now_.lacking.erase(column);
    ++wanted_;
  }
  if (now_.lacking.empty()) now_.missed.clear();
  return absl::OkStatus();
}

void MirrorLayer::Torn(StripeRun run) {
  MutexLock lock(mutex_);
  torn_.Add(run);
}

// -- calls ----------------------------------------------------------------------------------------

template <typename F>
absl::Status MirrorLayer::RoundDamage(uint64_t begin, uint64_t end, Version now, F&& change) {
  const absl::Status status = change();
  if (!absl::IsDataLoss(status)) return status;
  uint64_t repaired = 0;
  for (const uint64_t at : {begin, end - 1}) {
    if (!ReadEachBlock(at, 1, &repaired, now).ok()) return status;
  }
  return change();
}

absl::Status MirrorLayer::WriteRange(uint64_t offset, uint64_t bytes, const Block* content,
                                     uint64_t, Version now) {
  std::vector<ColumnWrite> writes;
  const Block block = content == nullptr ? ZerosOf(bytes) : *content;
  for (const size_t column : LiveColumns()) writes.push_back({column, offset, block});
  const absl::Status status =
      RoundDamage(offset, offset + bytes, now, [&] { return WriteColumns(writes, now); });
  if (!status.ok() && !IsAgain(status)) {
    Torn(StripesOf(offset, bytes));
    return status;
  }
  // One that failed meanwhile lacks it now; the others have it.
  const StripeRun whole{StripesIn(offset), StripeAt(offset + bytes)};
  MutexLock lock(mutex_);
  if (whole.begin < whole.end) torn_.Remove(whole);
  return absl::OkStatus();
}

// A file that has a size somewhere has a record: columns without one have lost it.
absl::Status MirrorLayer::Truncate(uint64_t size, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = std::all_of(now_.durable.begin(), now_.durable.end(),
                        [](uint64_t sequence) { return sequence == 0; });
    if (first) ++wanted_;
  }
  if (first) ABACUS_RETURN_IF_ERROR(Save(now));
  return RecordedColumns::Truncate(size, now);
}

absl::Status MirrorLayer::CutTail(Version now) {
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    size = now_.size;
  }
  ABACUS_RETURN_IF_ERROR(RoundDamage(
      size, size + 1, now, [&] { return ChangeEach<&Layer::Truncate>(LiveColumns(), size, now); }));
  MutexLock lock(mutex_);
  torn_.Remove({StripesIn(size), UINT64_MAX});
  ragged_ = false;
  return absl::OkStatus();
}

absl::Status MirrorLayer::Punch(Range range, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  const Turn turn(turns_, kAllStripes, RangeTurns::Kind::kExclusive);
  ABACUS_RETURN_IF_ERROR(CutTailIfRagged(now));
  uint64_t size = 0;
  {
    MutexLock lock(mutex_);
    size = now_.size;
  }
  if (range.offset >= size) return absl::OkStatus();
  const uint64_t left = size - range.offset;
  const uint64_t bytes = range.bytes == 0 ? left : std::min(range.bytes, left);
  const StripeRun run = StripesOf(range.offset, bytes);
  absl::Status status = Admit(run, true, AllColumns(), now);
  if (status.ok()) {
    status = RoundDamage(range.offset, range.offset + bytes, now, [&] {
      return ChangeEach<&Layer::Punch>(LiveColumns(), Range{range.offset, bytes}, now);
    });
    if (IsAgain(status)) status = absl::OkStatus();  // that column lacks it now
    if (!status.ok()) Torn(run);
  }
  Leave(run);
  return status;
}

// Copies may differ in where they have holes, and not in what is read there.
absl::StatusOr<uint64_t> MirrorLayer::Seek(uint64_t offset, bool data, Version now) {
  ABACUS_RETURN_IF_ERROR(Open(now));
  const Turn turn(turns_, kAllStripes, RangeTurns::Kind::kShared);
  for (;;) {
    uint64_t size = 0;
    {
      MutexLock lock(mutex_);
      size = now_.size;
    }
    if (offset >= size) return absl::OutOfRangeError("at or behind the end of the file");
    const size_t column = CurrentColumns().front();
    const absl::StatusOr<uint64_t> found = below(column)->Seek(offset, data, now);
    if (absl::IsOutOfRange(found.status())) {
      if (data) return absl::OutOfRangeError("no data follows");
      return offset;  // its copy ends before
    }
    const absl::Status noted = Note(column, found.status());
    if (IsAgain(noted)) continue;
    ABACUS_RETURN_IF_ERROR(noted);
    if (*found < size) return *found;
    if (data) return absl::OutOfRangeError("no data follows");
    return size;
  }
}

// -- state ----------------------------------------------------------------------------------------

void MirrorLayer::Checkpoint(runtime::CheckpointWriter& writer) const {
  RecordedColumns::Checkpoint(writer);
  MutexLock lock(mutex_);
  writer.Write(witness_);
  for (size_t column = 0; column < states_.size(); ++column) {
    writer.Write(static_cast<uint8_t>(states_[column]));
    writer.Write(RunsOf(lacks_[column]));
  }
  writer.Write(known_.has_value());
  writer.Write(LackingText(known_.value_or(std::set<size_t>())));
}

absl::Status MirrorLayer::Restore(runtime::CheckpointReader& reader) {
  ABACUS_RETURN_IF_ERROR(RecordedColumns::Restore(reader));
  MutexLock lock(mutex_);
  reader.Read(witness_);
  for (size_t column = 0; column < states_.size(); ++column) {
    const auto state = reader.Read<uint8_t>();
    if (state > static_cast<uint8_t>(State::kCurrent)) {
      return absl::DataLossError("a copy is in no state that there is");
    }
    states_[column] = static_cast<State>(state);
    lacks_[column] = SetOf(reader.Read<Runs>());
  }
  const auto known = reader.Read<bool>();
  ABACUS_ASSIGN_OR_RETURN(const std::set<size_t> lacking,
                          LackingOf(reader.Read<std::string>(), below_count()));
  if (known) known_ = lacking;
  return reader.status();
}

void MirrorLayer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  facts->emplace_back("columns", absl::StrCat(below_count()));
  for (size_t column = 0; column < below_count(); ++column) {
    const absl::Duration usual = pace_.Usual(column);
    if (usual == absl::ZeroDuration()) continue;
    facts->emplace_back(absl::StrCat("column ", column),
                        absl::StrCat(absl::ToInt64Microseconds(usual), " us a read"));
  }
  facts->emplace_back("hedged", absl::StrCat(pace_.hedged(), " reads"));
  MutexLock lock(mutex_);
  if (!open_) return;
  std::string missing;
  for (size_t column = 0; column < states_.size(); ++column) {
    if (states_[column] == State::kCurrent) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", "column ", column,
                    states_[column] == State::kAway ? "" : ", coming back");
  }
  facts->emplace_back("missing", missing.empty() ? "none" : missing);
  facts->emplace_back("missed", absl::StrCat(now_.missed.count(), " stripes"));
  facts->emplace_back("written", absl::StrCat(now_.written.count(), " stripes"));
  facts->emplace_back("repaired", absl::StrCat(repaired_, " blocks"));
}

}  // namespace abacus::objfs
