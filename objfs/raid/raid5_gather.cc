// Gathering: what a sequential writer writes in small pieces is kept until it is a whole stripe,
// which is written without reads.

#include <algorithm>
#include <cstring>

#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/shared_stripes.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using Turn = RangeTurns::Turn;

namespace {
constexpr StripeRun kTheGathered{0, 1};
}  // namespace

// -- what is kept ---------------------------------------------------------------------------------

absl::Status Raid5Layer::WriteGatheredInTurn() {
  uint64_t offset = 0;
  Block bytes;
  Version version;
  {
    MutexLock lock(mutex_);
    if (gathered_.bytes == 0) return absl::OkStatus();
    offset = gathered_.offset;
    bytes = gathered_.stripe.Slice(offset % stripe_bytes(), gathered_.bytes);
    version = gathered_.version;
  }
  // Until it is written it is found here: who wants it waits for the turn.
  ABACUS_RETURN_IF_ERROR(RecordedColumns::Write(offset, bytes, version));
  MutexLock lock(mutex_);
  gathered_ = Gathered();
  return absl::OkStatus();
}

absl::Status Raid5Layer::WriteGathered() {
  {
    MutexLock lock(mutex_);
    if (gathered_.bytes == 0) return absl::OkStatus();
  }
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kExclusive);
  return WriteGatheredInTurn();
}

absl::Status Raid5Layer::WriteGatheredIfIn(uint64_t begin, uint64_t end) {
  {
    MutexLock lock(mutex_);
    // Between the end of the file and what is kept there are zeros that the columns know not of.
    const uint64_t from = std::min(gathered_.offset, now_.size);
    if (gathered_.bytes == 0 || end <= from || gathered_.end() <= begin) return absl::OkStatus();
  }
  return WriteGathered();
}

absl::Status Raid5Layer::Gather(uint64_t offset, const Block& bytes, Version now) {
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kExclusive);
  // Of a stripe that a column has no part in there is no parity that would be saved anything; and
  // what of it cannot be written is to be told at once.
  const bool kept = !ModeOf(StripeAt(offset)).lost.has_value();
  bool follows = false;
  {
    MutexLock lock(mutex_);
    follows =
        kept && gathered_.bytes > 0 && gathered_.end() == offset &&
        offset % stripe_bytes() > 0;  // else it is of a whole stripe that could not be written
  }
  if (!follows) ABACUS_RETURN_IF_ERROR(WriteGatheredInTurn());
  if (!kept) return RecordedColumns::Write(offset, bytes, now);
  bool whole = false;
  {
    MutexLock lock(mutex_);
    if (!follows) gathered_ = {offset, 0, Block::Allocate(stripe_bytes()), now};
    std::memcpy(gathered_.stripe.mutable_data() + offset % stripe_bytes(), bytes.data(),
                bytes.size());
    gathered_.bytes += bytes.size();
    gathered_.version = std::max(gathered_.version, now);
    whole = gathered_.end() % stripe_bytes() == 0;
    ++gathered_writes_;
  }
  return whole ? WriteGatheredInTurn() : absl::OkStatus();
}

// -- calls ----------------------------------------------------------------------------------------

absl::Status Raid5Layer::Write(uint64_t offset, const Block& bytes, Version now) {
  if (bytes.empty()) return absl::OkStatus();
  if (const auto together = Together()) return together->Write(offset, bytes, now);
  const uint64_t end = offset + bytes.size(), stripe = stripe_bytes();
  ABACUS_RETURN_IF_ERROR(CheckSize(offset, bytes.size()));
  if (!gathers_) return RecordedColumns::Write(offset, bytes, now);
  ABACUS_RETURN_IF_ERROR(Open(now));
  bool sequential = false;
  {
    MutexLock lock(mutex_);
    sequential = offset == last_end_;
    last_end_ = end;
  }
  if (!sequential) {
    ABACUS_RETURN_IF_ERROR(WriteGatheredIfIn(offset, end));
    return RecordedColumns::Write(offset, bytes, now);
  }
  // What is of a stripe in part is kept; whole stripes go as they are, beside those of others.
  const uint64_t middle = std::min(end, (offset + stripe - 1) / stripe * stripe);
  const uint64_t tail = std::max(middle, end / stripe * stripe);
  if (offset < middle) {
    ABACUS_RETURN_IF_ERROR(Gather(offset, bytes.Slice(0, middle - offset), now));
  }
  if (middle < tail) {
    ABACUS_RETURN_IF_ERROR(WriteGatheredIfIn(middle, tail));
    ABACUS_RETURN_IF_ERROR(
        RecordedColumns::Write(middle, bytes.Slice(middle - offset, tail - middle), now));
  }
  return tail < end ? Gather(tail, bytes.Slice(tail - offset, end - tail), now) : absl::OkStatus();
}

absl::StatusOr<uint64_t> Raid5Layer::Append(const Block& bytes, Version now) {
  if (Together() != nullptr) return NeedsAlone("an append");
  ABACUS_RETURN_IF_ERROR(WriteGathered());
  return RecordedColumns::Append(bytes, now);
}

absl::StatusOr<ReadResult> Raid5Layer::Read(uint64_t offset, uint64_t bytes, Version now) {
  if (const auto together = Together()) return together->Read(offset, bytes, now);
  const uint64_t end = bytes > UINT64_MAX - offset ? UINT64_MAX : offset + bytes;
  if (WriteGatheredIfIn(offset, end).ok()) return RecordedColumns::Read(offset, bytes, now);
  return ReadWithGathered(offset, bytes, now);
}

// What cannot be written is to be had all the same.
absl::StatusOr<ReadResult> Raid5Layer::ReadWithGathered(uint64_t offset, uint64_t bytes,
                                                        Version now) {
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kShared);
  ABACUS_ASSIGN_OR_RETURN(ReadResult read, RecordedColumns::Read(offset, bytes, now));
  Gathered kept;
  {
    MutexLock lock(mutex_);
    kept = gathered_;
  }
  const uint64_t begin = std::max(offset, kept.offset);
  const uint64_t end =
      bytes > kept.end() - std::min(offset, kept.end()) ? kept.end() : offset + bytes;
  if (kept.bytes == 0 || begin >= end) return read;
  // Between the end of the file at the columns and what is kept there are zeros.
  const uint64_t size = std::max<uint64_t>(read.bytes.size(), end - offset);
  Block whole = Block::Allocate(size);
  std::memset(whole.mutable_data(), 0, size);
  if (!read.bytes.empty()) {
    std::memcpy(whole.mutable_data(), read.bytes.data(), read.bytes.size());
  }
  std::memcpy(whole.mutable_data() + (begin - offset), kept.stripe.data() + begin % stripe_bytes(),
              end - begin);
  read.bytes = std::move(whole);
  read.version = std::max(read.version, kept.version);
  return read;
}

// What is cut off is not written first: on full disks it could not be, and nothing would be freed.
absl::Status Raid5Layer::Truncate(uint64_t size, Version now) {
  if (Together() != nullptr) return NeedsAlone("a truncation");
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kExclusive);
  ABACUS_RETURN_IF_ERROR(RecordedColumns::Truncate(size, now));
  MutexLock lock(mutex_);
  if (gathered_.end() > size) {
    gathered_.bytes = size > gathered_.offset ? size - gathered_.offset : 0;
  }
  if (gathered_.bytes == 0) gathered_ = Gathered();
  return absl::OkStatus();
}

// Likewise. What is kept gets zeros where it is.
absl::Status Raid5Layer::Punch(Range range, Version now) {
  if (Together() != nullptr) return NeedsAlone("a hole");
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kExclusive);
  ABACUS_RETURN_IF_ERROR(PunchColumns(range, now));
  MutexLock lock(mutex_);
  const uint64_t begin = std::max(range.offset, gathered_.offset);
  const bool behind = range.bytes == 0 || range.bytes > UINT64_MAX - range.offset;
  const uint64_t end =
      behind ? gathered_.end() : std::min(range.offset + range.bytes, gathered_.end());
  if (begin >= end) return absl::OkStatus();
  if (end - begin == gathered_.bytes && gathered_.end() <= now_.size) {
    gathered_ = Gathered();  // the columns have zeros there, and the size
    return absl::OkStatus();
  }
  // In a block of its own: who was to write the old one may have it still.
  Block stripe = Block::Allocate(stripe_bytes());
  const uint64_t at = gathered_.offset % stripe_bytes();
  std::memcpy(stripe.mutable_data() + at, gathered_.stripe.data() + at, gathered_.bytes);
  std::memset(stripe.mutable_data() + begin % stripe_bytes(), 0, end - begin);
  gathered_.stripe = std::move(stripe);
  gathered_.version = std::max(gathered_.version, now);
  return absl::OkStatus();
}

// Each write is seen by all, and durable, when it returns.
absl::Status Raid5Layer::Push(Version now) {
  if (Together() != nullptr) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(WriteGathered());
  return RecordedColumns::Push(now);
}

absl::Status Raid5Layer::Flush(Version now) {
  if (Together() != nullptr) return absl::OkStatus();
  absl::Status status = WriteGathered();
  status.Update(RecordedColumns::Flush(now));  // the rest is durable, whatever becomes of that
  return status;
}

absl::StatusOr<Attributes> Raid5Layer::GetAttributes(Version now) {
  if (const auto together = Together()) return SharedAttributes(together->shared().size, now);
  // What is kept does not go to the columns, or away, between the two looks.
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kShared);
  absl::StatusOr<Attributes> attributes = RecordedColumns::GetAttributes(now);
  if (!attributes.ok()) return attributes;
  MutexLock lock(mutex_);
  if (gathered_.bytes > 0) {
    attributes->size = std::max(attributes->size, gathered_.end());
    attributes->version = std::max(attributes->version, gathered_.version);
  }
  return attributes;
}

// Who asks tells others: what they are told of is at the columns.
absl::StatusOr<uint64_t> Raid5Layer::Size(Version now) {
  if (const auto together = Together()) return together->shared().size;
  ABACUS_RETURN_IF_ERROR(WriteGathered());
  return RecordedColumns::Size(now);
}

// As at a crash, but for what is kept here: nobody else has written since.
absl::Status Raid5Layer::TakeColumns(const std::vector<runtime::Ref<Layer>>& columns,
                                     const runtime::Ref<Layer>& witness) {
  EndTogether();
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kExclusive);
  return RecordedColumns::TakeColumns(columns, witness);
}

absl::Status Raid5Layer::CloseColumns(Version now) {
  if (EndTogether()) {
    MutexLock lock(mutex_);
    given_back_ = true;
    return absl::OkStatus();
  }
  absl::Status closed = WriteGathered();
  closed.Update(RecordedColumns::CloseColumns(now));
  if (closed.ok()) EmptySlots(now);
  ForgetGathered();  // what could not be written: that has been told
  return closed;
}

void Raid5Layer::ForgetGathered() {
  const Turn turn(gather_turns_, kTheGathered, RangeTurns::Kind::kExclusive);
  MutexLock lock(mutex_);
  gathered_ = Gathered();
  last_end_ = 0;
}

}  // namespace abacus::objfs
