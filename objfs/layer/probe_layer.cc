#include "objfs/layer/probe_layer.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

using runtime::MutexLock;

constexpr const char* kCallNames[kLayerCalls] = {
    "read",           "write",     "truncate", "punch",      "seek",   "push",  "flush",
    "get-attributes", "set-inode", "commit",   "invalidate", "recall", "append"};

uint64_t BytesOf(const std::vector<RangeWrite>& writes) {
  uint64_t bytes = 0;
  for (const RangeWrite& write : writes) bytes += write.bytes.size();
  return bytes;
}

// A number from 0 to 1 that depends on both (SplitMix64).
double Draw(uint64_t seed, uint64_t number) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + (number + 1) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

}  // namespace

const char* LayerCallName(LayerCall call) { return kCallNames[static_cast<size_t>(call)]; }

template <typename F>
auto ProbeLayer::Through(const Seen& seen, F&& call) -> decltype(call()) {
  const absl::Time begun = absl::Now();
  if (absl::Status refused = Before(seen); !refused.ok()) {
    After(seen, refused, absl::Now() - begun);
    return refused;
  }
  auto result = call();
  After(seen, StatusOf(result), absl::Now() - begun);
  return result;
}

absl::StatusOr<ReadResult> ProbeLayer::Read(uint64_t offset, uint64_t bytes, Version now) {
  return Through({LayerCall::kRead, {offset, bytes}, now},
                 [&] { return Layer::Read(offset, bytes, now); });
}
absl::Status ProbeLayer::Write(uint64_t offset, const runtime::Block& bytes, Version now) {
  return Through({LayerCall::kWrite, {offset, bytes.size()}, now},
                 [&] { return Layer::Write(offset, bytes, now); });
}
absl::StatusOr<uint64_t> ProbeLayer::Append(const runtime::Block& bytes, Version now) {
  return Through({LayerCall::kAppend, {0, bytes.size()}, now},
                 [&] { return Layer::Append(bytes, now); });
}
absl::Status ProbeLayer::Truncate(uint64_t size, Version now) {
  return Through({LayerCall::kTruncate, {size, 0}, now},
                 [&] { return Layer::Truncate(size, now); });
}
absl::Status ProbeLayer::Punch(Range range, Version now) {
  return Through({LayerCall::kPunch, range, now}, [&] { return Layer::Punch(range, now); });
}
absl::StatusOr<uint64_t> ProbeLayer::Seek(uint64_t offset, bool data, Version now) {
  return Through({LayerCall::kSeek, {offset, 0}, now},
                 [&] { return Layer::Seek(offset, data, now); });
}
absl::Status ProbeLayer::Push(Version now) {
  return Through({LayerCall::kPush, {}, now}, [&] { return Layer::Push(now); });
}
absl::Status ProbeLayer::Flush(Version now) {
  return Through({LayerCall::kFlush, {}, now}, [&] { return Layer::Flush(now); });
}
absl::StatusOr<Attributes> ProbeLayer::GetAttributes(Version now) {
  return Through({LayerCall::kGetAttributes, {}, now}, [&] { return Layer::GetAttributes(now); });
}
absl::Status ProbeLayer::SetInode(const std::string& inode, Version now) {
  return Through({LayerCall::kSetInode, {0, inode.size()}, now},
                 [&] { return Layer::SetInode(inode, now); });
}
absl::StatusOr<CommitResult> ProbeLayer::Commit(const std::vector<RangeVersion>& reads,
                                                const std::vector<RangeWrite>& writes,
                                                Version now) {
  return Through({LayerCall::kCommit, {0, BytesOf(writes)}, now},
                 [&] { return Layer::Commit(reads, writes, now); });
}
absl::Status ProbeLayer::Invalidate(Range range, Version version) {
  return Through({LayerCall::kInvalidate, range, version},
                 [&] { return Layer::Invalidate(range, version); });
}
absl::Status ProbeLayer::Recall(Range range, Version version) {
  return Through({LayerCall::kRecall, range, version},
                 [&] { return Layer::Recall(range, version); });
}

// -- error ----------------------------------------------------------------------------------------

absl::Status ErrorLayer::Begin() {
  const std::string calls = options().Text("calls");
  const auto* const call = std::find(std::begin(kCallNames), std::end(kCallNames), calls);
  if (calls != "all" && call == std::end(kCallNames)) {
    return absl::InvalidArgumentError(absl::StrCat("layer 'error': no call '", calls, "'"));
  }
  for (size_t i = 0; i < kLayerCalls; ++i) fails_[i] = calls == "all" || calls == kCallNames[i];
  const std::string code = options().Text("code");
  if (code == "unavailable") {
    error_ = absl::UnavailableError("an error layer says that the store is down");
  } else if (code == "no-space") {
    error_ = absl::ResourceExhaustedError("an error layer says that the store is full");
  } else if (code == "wrong-bytes") {
    error_ = absl::DataLossError("an error layer says that the stored bytes are wrong");
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer 'error': no code '", code, "'; there are: unavailable no-space wrong-bytes"));
  }
  after_ = options().Count("after");
  share_ = options().Share("share");
  seed_ = options().Count("seed");
  return absl::OkStatus();
}

absl::Status ErrorLayer::Before(const Seen& seen) {
  if (!fails_[static_cast<size_t>(seen.call)]) return absl::OkStatus();
  const uint64_t number = matching_.fetch_add(1, std::memory_order_relaxed);
  if (number < after_ || Draw(seed_, number) >= share_) return absl::OkStatus();
  failed_.fetch_add(1, std::memory_order_relaxed);
  return error_;
}

void ErrorLayer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  facts->emplace_back("failed", absl::StrCat(failed_.load(std::memory_order_relaxed), " of ",
                                             matching_.load(std::memory_order_relaxed)));
}

void ErrorLayer::Checkpoint(runtime::CheckpointWriter& writer) const {
  Layer::Checkpoint(writer);
  writer.Write(matching_.load());
  writer.Write(failed_.load());
}
absl::Status ErrorLayer::Restore(runtime::CheckpointReader& reader) {
  ABACUS_RETURN_IF_ERROR(Layer::Restore(reader));
  matching_ = reader.Read<uint64_t>();
  failed_ = reader.Read<uint64_t>();
  return reader.status();
}

// -- delay ----------------------------------------------------------------------------------------

// Waits as a disk would: off the processor, with the thread inside the object.
absl::Status DelayLayer::Before(const Seen& seen) {
  absl::Duration wait = options().Duration("each");
  if (seen.call == LayerCall::kRead || seen.call == LayerCall::kWrite ||
      seen.call == LayerCall::kAppend) {
    wait += absl::Seconds(static_cast<double>(seen.range.bytes) /
                          static_cast<double>(options().Bytes("rate")));
  }
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
  runtime::Mutex mutex;
  runtime::CondVar never;
  MutexLock lock(mutex);
  while (std::chrono::steady_clock::now() < deadline) never.WaitUntil(mutex, deadline);
  return absl::OkStatus();
}

// -- trace ----------------------------------------------------------------------------------------

void TraceLayer::After(const Seen& seen, const absl::Status& status, absl::Duration took) {
  std::string line = absl::StrCat(LayerCallName(seen.call), " ", seen.range.offset, "+",
                                  seen.range.bytes, " at ", seen.version.ToString(), ", ",
                                  absl::FormatDuration(absl::Trunc(took, absl::Microseconds(1))));
  if (!status.ok()) absl::StrAppend(&line, ": ", absl::StatusCodeToString(status.code()));
  const size_t kept = options().Count("calls");
  MutexLock lock(mutex_);
  if (lines_.size() < kept) {
    lines_.push_back(std::move(line));
  } else {
    lines_[seen_ % kept] = std::move(line);
  }
  ++seen_;
}

void TraceLayer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  MutexLock lock(mutex_);
  const uint64_t first = seen_ - lines_.size();
  for (uint64_t i = first; i < seen_; ++i) {
    facts->emplace_back(absl::StrCat("call ", i), lines_[i % lines_.size()]);
  }
}

void TraceLayer::Checkpoint(runtime::CheckpointWriter& writer) const {
  Layer::Checkpoint(writer);
  MutexLock lock(mutex_);
  writer.Write(lines_);
  writer.Write(seen_);
}
absl::Status TraceLayer::Restore(runtime::CheckpointReader& reader) {
  ABACUS_RETURN_IF_ERROR(Layer::Restore(reader));
  MutexLock lock(mutex_);
  reader.Read(lines_);
  reader.Read(seen_);
  ABACUS_RETURN_IF_ERROR(reader.status());
  if (lines_.size() > options().Count("calls") || lines_.size() > seen_) {
    return absl::DataLossError("a trace layer's state does not fit its options");
  }
  return absl::OkStatus();
}

// -- statistics -----------------------------------------------------------------------------------

void StatisticsLayer::After(const Seen& seen, const absl::Status& status, absl::Duration took) {
  MutexLock lock(mutex_);
  Counts& counts = counts_[static_cast<size_t>(seen.call)];
  ++counts.calls;
  counts.errors += status.ok() ? 0 : 1;
  counts.bytes += seen.range.bytes;
  counts.ns += static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Nanoseconds(took), 0));
}

std::array<StatisticsLayer::Counts, kLayerCalls> StatisticsLayer::Copy() const {
  MutexLock lock(mutex_);
  return counts_;
}

void StatisticsLayer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  const auto counts = Copy();
  for (size_t i = 0; i < kLayerCalls; ++i) {
    if (counts[i].calls == 0) continue;
    facts->emplace_back(
        kCallNames[i],
        absl::StrCat(counts[i].calls, " calls, ", counts[i].errors, " errors, ", counts[i].bytes,
                     " bytes, ", counts[i].ns / counts[i].calls / 1000, " us each"));
  }
}

void StatisticsLayer::Checkpoint(runtime::CheckpointWriter& writer) const {
  Layer::Checkpoint(writer);
  writer.Write(Copy());
}
absl::Status StatisticsLayer::Restore(runtime::CheckpointReader& reader) {
  ABACUS_RETURN_IF_ERROR(Layer::Restore(reader));
  MutexLock lock(mutex_);
  reader.Read(counts_);
  return reader.status();
}

}  // namespace abacus::objfs
