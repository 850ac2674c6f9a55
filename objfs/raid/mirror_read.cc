// Reads of a mirrored file: from the copy that answers first, and round damage.

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "objfs/raid/mirror_layer.h"
#include "runtime/base/status.h"
#include "runtime/object/timed_branch.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;

namespace {

// How long the later one of two reads is waited for before the first one is looked at again.
constexpr absl::Duration kLookInterval = absl::Milliseconds(1);

// False where `patience` passed before the answer came.
template <typename Branch>
bool WaitWithPatience(Branch& branch, Alarm& alarm, absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  const Alarm::Set set(alarm, patience, [&branch] { branch.Interrupt(); });
  do {
    if (branch.Wait()) return true;
  } while (absl::Now() < end);
  return branch.Answered();
}

}  // namespace

absl::StatusOr<ReadResult> MirrorLayer::ReadOnce(uint64_t offset, uint64_t bytes, Version now) {
  bool torn = false;
  {
    MutexLock lock(mutex_);
    if (offset >= now_.size) return ReadResult();  // it was cut off meanwhile
    bytes = std::min(bytes, now_.size - offset);
    torn = !torn_.Within(StripesOf(offset, bytes)).empty();
  }
  size_t column = 0;
  absl::StatusOr<Bytes> read;
  if (torn) {  // copies may differ: it is one that is read, until they are the same again
    column = CurrentColumns().front();
    read = ReadColumns({{column, offset, bytes}}, now)[0];
  } else {
    read = ReadSomewhere(offset, bytes, &column, now);
  }
  if (absl::IsDataLoss(read.status())) {
    uint64_t repaired = 0;
    read = ReadEachBlock(offset, bytes, &repaired, now);
  }
  ABACUS_RETURN_IF_ERROR(read.status());
  return ReadResult{std::move(read->block), read->version};
}

absl::StatusOr<MirrorLayer::Bytes> MirrorLayer::ReadSomewhere(uint64_t offset, uint64_t bytes,
                                                              size_t* column, Version now) {
  const std::vector<size_t> current = CurrentColumns();
  const absl::Time begun = absl::Now();
  const ReadPace::Choice choice = pace_.Choose(current, bytes, begun);
  *column = choice.copy;
  if (choice.other.has_value() && alarm_ != nullptr)
    return ReadHedged(choice, offset, bytes, column, now);
  absl::StatusOr<Bytes> read =
      BytesOf(choice.copy, below(choice.copy)->Read(offset, bytes, now), bytes);
  const absl::Time ended = absl::Now();
  pace_.Ended(choice.copy, bytes, ended - begun, /*given_up=*/false, ended);
  return read;
}

absl::StatusOr<MirrorLayer::Bytes> MirrorLayer::ReadHedged(const ReadPace::Choice& choice,
                                                           uint64_t offset, uint64_t bytes,
                                                           size_t* column, Version now) {
  using Branch = runtime::TimedBranch<&Layer::Read>;
  const absl::Time begun = absl::Now();
  Branch first(below(choice.copy).base(), offset, bytes, now);
  if (WaitWithPatience(first, *alarm_, choice.patience)) {
    const absl::StatusOr<ReadResult> answer = first.Join();
    const absl::Time ended = absl::Now();
    pace_.Ended(choice.copy, bytes, ended - begun, /*given_up=*/false, ended);
    return BytesOf(choice.copy, answer, bytes);
  }
  const absl::Time begun_again = absl::Now();
  pace_.Begun(*choice.other);
  Branch second(below(*choice.other).base(), offset, bytes, now);
  bool first_won = false;
  while (!first_won && !WaitWithPatience(second, *alarm_, kLookInterval)) {
    first_won = first.Answered();
  }
  absl::StatusOr<ReadResult> answer = first_won ? first.Join() : second.Join();
  const absl::Time ended = absl::Now();
  pace_.Ended(choice.copy, bytes, ended - begun, /*given_up=*/!first_won, ended);
  pace_.Ended(*choice.other, bytes, ended - begun_again, /*given_up=*/first_won, ended);
  *column = first_won ? choice.copy : *choice.other;
  // The late one is abandoned, unless the other one has nothing.
  return BytesOf(*column, answer, bytes);
}

absl::StatusOr<MirrorLayer::Bytes> MirrorLayer::ReadEachBlock(uint64_t offset, uint64_t bytes,
                                                              uint64_t* repaired, Version now) {
  constexpr uint64_t kBlock = Striping::kStoreBlockBytes;
  const uint64_t from = offset / kBlock * kBlock;
  const uint64_t to = (offset + bytes + kBlock - 1) / kBlock * kBlock;
  Bytes all{Block::Allocate(to - from), Version()};
  const std::vector<size_t> current = CurrentColumns();
  for (uint64_t at = from; at < to; at += kBlock) {
    std::vector<ColumnRead> reads;
    for (const size_t column : current) reads.push_back({column, at, kBlock});
    const std::vector<absl::StatusOr<Bytes>> found = ReadColumns(reads, now);
    std::vector<size_t> damaged;
    const Bytes* whole = nullptr;
    for (size_t i = 0; i < current.size(); ++i) {
      if (absl::IsDataLoss(found[i].status())) {
        damaged.push_back(current[i]);
        continue;
      }
      ABACUS_RETURN_IF_ERROR(found[i].status());
      if (whole == nullptr) whole = &*found[i];
    }
    if (whole == nullptr) {
      return absl::DataLossError(
          absl::StrCat("the bytes from ", at, " on are damaged in all ", current.size(),
                       " copies that are current: ", found.front().status().message()));
    }
    std::memcpy(all.block.mutable_data() + (at - from), whole->block.data(), kBlock);
    all.version = std::max(all.version, whole->version);
    // Where it could not be written it is found again.
    std::vector<ColumnWrite> writes;
    for (const size_t column : damaged) writes.push_back({column, at, whole->block});
    if (writes.empty() || !WriteColumns(writes, now).ok()) continue;
    *repaired += damaged.size();
    MutexLock lock(mutex_);
    repaired_ += damaged.size();
  }
  all.block = all.block.Slice(offset - from, bytes);
  return all;
}

absl::StatusOr<MirrorLayer::Bytes> MirrorLayer::ReadStripe(uint64_t stripe, Version now) {
  const uint64_t offset = stripe * unit_bytes();
  uint64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    if (offset >= now_.size) return Bytes();
    bytes = std::min(unit_bytes(), now_.size - offset);
  }
  absl::StatusOr<Bytes> read = ReadColumns({{CurrentColumns().front(), offset, bytes}}, now)[0];
  if (!absl::IsDataLoss(read.status())) return read;
  uint64_t repaired = 0;
  return ReadEachBlock(offset, bytes, &repaired, now);
}

}  // namespace abacus::objfs
