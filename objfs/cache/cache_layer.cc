#include "objfs/cache/cache_layer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::MutexLock;

constexpr uint64_t kNoEnd = UINT64_MAX;

absl::Status CheckRange(uint64_t offset, uint64_t bytes) {
  if (offset <= Layer::kFileBytesMax && bytes <= Layer::kFileBytesMax - offset) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("bytes ", offset, " + ", bytes,
                                                 " are beyond the largest file there can be, ",
                                                 Layer::kFileBytesMax));
}

}  // namespace

CacheLayer::~CacheLayer() {
  if (file_ != 0) pool_->Close(file_);
}

absl::Status CacheLayer::Begin() {
  block_bytes_ = options().Bytes("block");
  through_ = options().Flag("through");
  if (file_ == 0) file_ = pool_->Open(block_bytes_);
  return absl::OkStatus();
}

CacheLayer::Blocks CacheLayer::BlocksOf(Range range) const {
  const uint64_t end = range.bytes == 0 ? kNoEnd : range.offset + range.bytes;
  return {range.offset / block_bytes_, (end - 1) / block_bytes_};
}

// -- promises -------------------------------------------------------------------------------------

absl::StatusOr<CacheLayer::Inside> CacheLayer::Enter(PromiseKind kind, Version now,
                                                     bool for_above) {
  for (;;) {
    {
      MutexLock lock(mutex_);
      // A call that comes now waits at the front end, or the break would never see the last one
      // leave.
      if (breaking_ > 0 || (for_above && recalling_ > 0)) {
        return WouldBlock("a promise that is being given back");
      }
      if (promise_.kind >= kind) {
        ++inside_;
        return Inside(this, /*passes=*/false);
      }
      ++claiming_;
    }
    const absl::StatusOr<Promise> promise = below()->Claim(kind, now);
    const bool keeps = promise.ok() && (promise->kind == PromiseKind::kShare ||
                                        promise->kind == PromiseKind::kWrite);
    MutexLock lock(mutex_);
    // A break waits for this one meanwhile, so that the promise does not end.
    while (keeps && passing_ > 0) changed_.Wait(mutex_);
    --claiming_;
    if (breaking_ > 0) changed_.SignalAll();
    if (!promise.ok()) return promise.status();
    if (keeps) {
      if (promise->given <= broken_) continue;
      if (promise->kind > promise_.kind || promise->given > promise_.given) Take(*promise);
    }
    // What another call was promised meanwhile is good for this one as well.
    const bool passes = promise_.kind < kind;
    ++inside_;
    if (passes) ++passing_;
    return Inside(this, passes);
  }
}

void CacheLayer::Leave(bool passes) {
  MutexLock lock(mutex_);
  --inside_;
  if (passes) --passing_;
  if (breaking_ > 0 || (passes && passing_ == 0)) changed_.SignalAll();
}

void CacheLayer::Passed(Blocks blocks) {
  pool_->Invalidate(file_, blocks.first, blocks.last, Version{UINT64_MAX});
  ForgetSize();
}

void CacheLayer::BeginChange() {
  MutexLock lock(mutex_);
  while (changing_) changed_.Wait(mutex_);
  changing_ = true;
}

void CacheLayer::EndChange() {
  MutexLock lock(mutex_);
  changing_ = false;
  changed_.SignalAll();
}

void CacheLayer::Take(const Promise& promise) {
  if (promise_.kind == PromiseKind::kNone) {
    // What a fetch brought that ended after the last promise did.
    pool_->Invalidate(file_, 0, kNoEnd, Version{UINT64_MAX});
    size_.reset();
    ++size_changes_;
    dirty_end_ = 0;
  }
  promise_.kind = std::max(promise_.kind, promise.kind);
  promise_.given = std::max(promise_.given, promise.given);
}

absl::StatusOr<Promise> CacheLayer::Claim(PromiseKind kind, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(kind, now, true));
  MutexLock lock(mutex_);
  return inside.passes() ? Promise() : promise_;
}

absl::Status CacheLayer::TakeLost() {
  MutexLock lock(mutex_);
  return std::exchange(lost_, absl::OkStatus());
}

absl::Status CacheLayer::WriteBackOrLose(Blocks blocks, bool ends) {
  absl::Status status = WriteBack(blocks);
  if (status.ok() || !ends) return status;
  // Another client waits, and would wait for as long as the store refuses.
  pool_->Drop(file_, 0, kNoEnd);
  MutexLock lock(mutex_);
  lost_.Update(status);
  return absl::OkStatus();
}

absl::Status CacheLayer::GiveBack(Range range, Version version, bool write_back) {
  bool ends = false, for_good = false;
  {
    MutexLock lock(mutex_);
    ++breaking_;
    // A claim whose answer is on its way may be of the promise that breaks.
    while (inside_ > 0 || claiming_ > 0) changed_.Wait(mutex_);
    for_good = promise_.kind != PromiseKind::kNone && promise_.given == kForGood;
    if (!for_good) broken_ = std::max(broken_, version);
    ends = promise_.kind != PromiseKind::kNone && promise_.given <= version &&
           (write_back || promise_.kind == PromiseKind::kShare);
  }
  absl::Status status;
  if (ends || for_good) {
    const Blocks blocks = ends ? Blocks{0, kNoEnd} : BlocksOf(range);
    if (write_back) status = WriteBackOrLose(blocks, ends);
    if (status.ok()) {
      pool_->Invalidate(file_, blocks.first, blocks.last,
                        ends || write_back ? Version{UINT64_MAX} : version);
      ForgetSize();
    }
  }
  MutexLock lock(mutex_);
  if (ends) promise_ = Promise();
  --breaking_;
  return status;
}

// -- size -----------------------------------------------------------------------------------------

absl::StatusOr<uint64_t> CacheLayer::Size(Version now) {
  for (;;) {
    uint64_t changes = 0;
    {
      MutexLock lock(mutex_);
      if (size_) return *size_;
      changes = size_changes_;
    }
    ABACUS_ASSIGN_OR_RETURN(const Attributes attributes, below()->GetAttributes(now));
    const std::optional<uint64_t> last_dirty = pool_->LastDirty(file_);
    MutexLock lock(mutex_);
    if (size_changes_ != changes) continue;  // it was written or invalidated meanwhile
    size_ = attributes.size;
    if (last_dirty) {
      size_ = std::max(*size_, std::min(dirty_end_, (*last_dirty + 1) * block_bytes_));
    }
    return *size_;
  }
}

void CacheLayer::ForgetSize() {
  MutexLock lock(mutex_);
  size_.reset();
  ++size_changes_;
}

absl::StatusOr<Attributes> CacheLayer::GetAttributes(Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kShare, now));
  if (inside.passes()) return below()->GetAttributes(now);
  ABACUS_ASSIGN_OR_RETURN(const uint64_t size, Size(now));
  ABACUS_ASSIGN_OR_RETURN(Attributes attributes, below()->GetAttributes(now));
  attributes.size = size;
  return attributes;
}

// -- reading --------------------------------------------------------------------------------------

absl::StatusOr<std::vector<BlockPool::Found>> CacheLayer::ReadBelow(uint64_t first, uint64_t last,
                                                                    Version now) {
  const uint64_t count = last - first + 1;
  ABACUS_ASSIGN_OR_RETURN(const ReadResult read,
                          below()->Read(first * block_bytes_, count * block_bytes_, now));
  std::vector<BlockPool::Found> blocks;
  for (uint64_t i = 0; i < count; ++i) {
    // A copy of its own: a part of the reply would keep all of it in memory.
    Block block = Block::Allocate(block_bytes_);
    const uint64_t at = std::min<uint64_t>(i * block_bytes_, read.bytes.size());
    const uint64_t there = std::min<uint64_t>(block_bytes_, read.bytes.size() - at);
    std::copy_n(read.bytes.view().substr(at, there).begin(), there, block.mutable_data());
    std::memset(block.mutable_data() + there, 0, block_bytes_ - there);
    blocks.push_back({std::move(block), read.version});
  }
  return blocks;
}

absl::StatusOr<std::vector<BlockPool::Found>> CacheLayer::Fetch(uint64_t first, uint64_t last,
                                                                Version now) {
  const uint64_t fetch = pool_->BeginFetch(file_, first, last - first + 1);
  auto blocks = ReadBelow(first, last, now);
  pool_->EndFetch(file_, fetch, blocks.ok() ? *blocks : std::vector<BlockPool::Found>());
  return blocks;
}

absl::StatusOr<std::vector<BlockPool::Found>> CacheLayer::Get(Blocks blocks, uint64_t ahead_bytes,
                                                              uint64_t size, Version now) {
  const uint64_t count = blocks.last - blocks.first + 1;
  const uint64_t run_max = std::max<uint64_t>(kRunBytesMax / block_bytes_, 1);
  std::vector<std::optional<BlockPool::Found>> found = pool_->Find(file_, blocks.first, count);
  uint64_t misses = 0;
  for (uint64_t i = 0; i < count;) {
    if (found[i]) {
      ++i;
      continue;
    }
    uint64_t run = 1;
    while (i + run < count && !found[i + run] && run < run_max) ++run;
    const uint64_t wanted = blocks.first + i + run - 1;
    uint64_t last = wanted;
    if (i + run == count) {
      last =
          std::min((last * block_bytes_ + ahead_bytes) / block_bytes_, (size - 1) / block_bytes_);
      last = std::max(last, blocks.last);
    }
    auto fetched = Fetch(blocks.first + i, last, now);
    // What lies behind may be damaged or away: that is for who asks for it.
    if (last > wanted && !fetched.ok() && !IsWouldBlock(fetched.status())) {
      fetched = Fetch(blocks.first + i, wanted, now);
    }
    ABACUS_RETURN_IF_ERROR(fetched.status());
    for (uint64_t k = 0; k < run; ++k) found[i + k] = std::move((*fetched)[k]);
    misses += run;
    i += run;
  }
  {
    MutexLock lock(mutex_);
    hits_ += count - misses;
    misses_ += misses;
  }
  std::vector<BlockPool::Found> all;
  all.reserve(count);
  for (auto& block : found) all.push_back(*std::move(block));
  return all;
}

uint64_t CacheLayer::AheadOf(uint64_t offset, uint64_t bytes) {
  MutexLock lock(mutex_);
  const bool goes_on = offset == next_offset_ && offset > 0;
  next_offset_ = offset + bytes;
  return goes_on ? options().Bytes("ahead") : 0;
}

absl::StatusOr<ReadResult> CacheLayer::Read(uint64_t offset, uint64_t bytes, Version now) {
  ABACUS_RETURN_IF_ERROR(CheckRange(offset, bytes));
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kShare, now));
  if (inside.passes()) return below()->Read(offset, bytes, now);
  ABACUS_ASSIGN_OR_RETURN(const uint64_t size, Size(now));
  if (offset >= size || bytes == 0) return ReadResult();
  bytes = std::min(bytes, size - offset);
  const Blocks blocks = BlocksOf({offset, bytes});
  ABACUS_ASSIGN_OR_RETURN(const std::vector<BlockPool::Found> found,
                          Get(blocks, AheadOf(offset, bytes), size, now));
  uint64_t within = offset - blocks.first * block_bytes_;
  ReadResult result;
  for (const BlockPool::Found& block : found) {
    result.version = std::max(result.version, block.version);
  }
  if (found.size() == 1) {
    result.bytes = found[0].bytes.Slice(within, bytes);
    return result;
  }
  result.bytes = Block::Allocate(bytes);
  char* to = result.bytes.mutable_data();
  for (const BlockPool::Found& block : found) {
    const uint64_t part = std::min(bytes, block_bytes_ - within);
    std::memcpy(to, block.bytes.data() + within, part);
    to += part;
    bytes -= part;
    within = 0;
  }
  return result;
}

// -- writing --------------------------------------------------------------------------------------

absl::Status CacheLayer::WriteWithin(uint64_t offset, std::string_view bytes, Version now) {
  const uint64_t index = offset / block_bytes_, within = offset % block_bytes_;
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(const uint64_t size, Size(now));
    {
      // Before the block is dirty: a write-back writes no more than is known to be the file's.
      MutexLock lock(mutex_);
      dirty_end_ = std::max(dirty_end_, offset + bytes.size());
      written_ = std::max(written_, now);
    }
    if (pool_->Write(file_, index, within, bytes, now, index * block_bytes_ >= size)) break;
    const uint64_t fetch = pool_->BeginFetch(file_, index, 1);
    const auto block = ReadBelow(index, index, now);
    if (!block.ok()) {
      pool_->EndFetch(file_, fetch, {});
      return block.status();
    }
    if (pool_->WriteFetched(file_, fetch, block->front(), within, bytes, now)) break;
  }
  MutexLock lock(mutex_);
  ++size_changes_;
  if (size_) size_ = std::max(*size_, offset + bytes.size());
  return absl::OkStatus();
}

absl::Status CacheLayer::Write(uint64_t offset, const Block& bytes, Version now) {
  ABACUS_RETURN_IF_ERROR(CheckRange(offset, bytes.size()));
  if (bytes.empty()) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kWrite, now));
  if (inside.passes()) {
    // Not one after the other as those below: nothing is known here that another one could change.
    const absl::Status written = below()->Write(offset, bytes, now);
    Passed(BlocksOf({offset, bytes.size()}));
    return written;
  }
  const Changing changing(this);
  ABACUS_RETURN_IF_ERROR(MakeRoomForDirty(bytes.size()));
  // Where this file has nothing to write back, other files' changes fill the node's share.
  const bool through = through_ || !pool_->FitsDirty(bytes.size());
  for (uint64_t done = 0; done < bytes.size();) {
    const uint64_t at = offset + done;
    const uint64_t part = std::min(bytes.size() - done, block_bytes_ - at % block_bytes_);
    ABACUS_RETURN_IF_ERROR(WriteWithin(at, bytes.view().substr(done, part), now));
    done += part;
  }
  if (through) return WriteBack(BlocksOf({offset, bytes.size()}));
  // It is no error of this write where that fails: then the blocks are carried.
  if (TooMuchToCarry(0)) WriteBack(BlocksOf({offset, bytes.size()})).IgnoreError();
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CacheLayer::Append(const Block& bytes, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kWrite, now));
  const Changing changing(this);
  // First what was written before: it may be what ends the file.
  ABACUS_RETURN_IF_ERROR(WriteBack({0, kNoEnd}));
  uint64_t known_end = kNoEnd;
  {
    MutexLock lock(mutex_);
    if (size_) known_end = *size_;
  }
  const auto offset = below()->Append(bytes, now);
  // From the end as it was known here all is new, what others appended before these bytes too. A
  // block that holds the end is kept with zeros behind it.
  const uint64_t first = std::min(known_end, offset.ok() ? *offset : 0) / block_bytes_;
  pool_->Invalidate(file_, first, kNoEnd / block_bytes_, Version{UINT64_MAX});
  ForgetSize();
  return offset;
}

absl::Status CacheLayer::MakeRoomForDirty(uint64_t bytes) {
  if (TooMuchToCarry(bytes)) WriteBack({0, kNoEnd}).IgnoreError();
  const auto limit =
      static_cast<uint64_t>(options().Share("dirty") * static_cast<double>(pool_->budget_bytes()));
  if (pool_->dirty_bytes(file_) + bytes <= limit && pool_->FitsDirty(bytes)) {
    return absl::OkStatus();
  }
  return WriteBack({0, kNoEnd});
}

absl::Status CacheLayer::WriteBack(Blocks blocks) {
  while (blocks.first <= blocks.last) {
    const std::vector<BlockPool::Dirty> run =
        pool_->TakeDirty(file_, blocks.first, blocks.last, kRunBytesMax);
    if (run.empty()) return absl::OkStatus();
    const uint64_t begin = run.front().index * block_bytes_;
    uint64_t end = begin + run.size() * block_bytes_;
    Version version;
    for (const BlockPool::Dirty& block : run) version = std::max(version, block.version);
    {
      MutexLock lock(mutex_);
      end = std::min(end, std::max(size_.value_or(0), dirty_end_));
      version = Version::Of(std::max(version, written_).ticks(), written_.writer());
    }
    absl::Status status;
    if (end > begin) {
      Block bytes = run.front().bytes.Slice(0, std::min(end - begin, block_bytes_));
      if (run.size() > 1) {
        bytes = Block::Allocate(end - begin);
        char* to = bytes.mutable_data();
        for (size_t i = 0; i < run.size() && begin + i * block_bytes_ < end; ++i) {
          const uint64_t at = i * block_bytes_;
          std::memcpy(to + at, run[i].bytes.data(), std::min(block_bytes_, end - begin - at));
        }
      }
      status = below()->Write(begin, bytes, version);
    }
    pool_->EndWriteBack(file_, run, status.ok());
    if (!status.ok()) return status;
    if (run.back().index == kNoEnd) break;
    blocks.first = run.back().index + 1;
  }
  return absl::OkStatus();
}

absl::Status CacheLayer::Push(Version now) {
  absl::Status status = TakeLost();
  status.Update(WriteBack({0, kNoEnd}));  // after a loss as well: it may be the last time
  ABACUS_RETURN_IF_ERROR(status);
  return below()->Push(now);
}

absl::Status CacheLayer::Flush(Version now) {
  ABACUS_RETURN_IF_ERROR(TakeLost());
  ABACUS_RETURN_IF_ERROR(WriteBack({0, kNoEnd}));
  return below()->Flush(now);
}

absl::Status CacheLayer::FlushData(Version now) {
  ABACUS_RETURN_IF_ERROR(TakeLost());
  ABACUS_RETURN_IF_ERROR(WriteBack({0, kNoEnd}));
  return below()->FlushData(now);
}

absl::Status CacheLayer::Truncate(uint64_t size, Version now) {
  ABACUS_RETURN_IF_ERROR(CheckRange(size, 0));
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kWrite, now));
  if (inside.passes()) {
    const absl::Status cut = below()->Truncate(size, now);
    Passed({size / block_bytes_, kNoEnd / block_bytes_});
    return cut;
  }
  const Changing changing(this);
  const bool had_dirty = pool_->dirty_bytes(file_) > 0;
  pool_->Cut(file_, size);
  {
    MutexLock lock(mutex_);
    size_ = size;
    dirty_end_ = std::min(dirty_end_, size);
    ++size_changes_;
  }
  const absl::Status status = below()->Truncate(size, now);
  // What a reader fetched meanwhile may be of before.
  pool_->Invalidate(file_, size / block_bytes_, kNoEnd / block_bytes_, Version{UINT64_MAX});
  if (!status.ok()) {
    ForgetSize();
    if (had_dirty) Lost(status);
  }
  return status;
}

absl::Status CacheLayer::ZeroEdges(Range range, Version now, Range* whole) {
  const uint64_t end = range.offset + range.bytes;
  const uint64_t first_whole = (range.offset + block_bytes_ - 1) / block_bytes_ * block_bytes_;
  const uint64_t end_whole = end / block_bytes_ * block_bytes_;
  const std::string zeros(block_bytes_, '\0');
  const auto zero = [&](uint64_t from, uint64_t to) {
    return from < to ? WriteWithin(from, std::string_view(zeros).substr(0, to - from), now)
                     : absl::OkStatus();
  };
  *whole = {first_whole, end_whole > first_whole ? end_whole - first_whole : 0};
  ABACUS_RETURN_IF_ERROR(zero(range.offset, std::min(first_whole, end)));
  return end_whole >= first_whole ? zero(end_whole, end) : absl::OkStatus();
}

absl::Status CacheLayer::Punch(Range range, Version now) {
  ABACUS_RETURN_IF_ERROR(CheckRange(range.offset, range.bytes));
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kWrite, now));
  if (inside.passes()) {
    const absl::Status punched = below()->Punch(range, now);
    Passed(BlocksOf(range));
    return punched;
  }
  const Changing changing(this);
  ABACUS_ASSIGN_OR_RETURN(const uint64_t size, Size(now));
  if (range.offset >= size) return absl::OkStatus();
  const uint64_t left = size - range.offset;
  range.bytes = range.bytes == 0 ? left : std::min(range.bytes, left);
  Range whole;
  ABACUS_RETURN_IF_ERROR(ZeroEdges(range, now, &whole));
  if (whole.bytes == 0) return absl::OkStatus();
  const Blocks blocks = BlocksOf(whole);
  const bool had_dirty = pool_->dirty_bytes(file_) > 0;
  pool_->Drop(file_, blocks.first, blocks.last);
  const absl::Status status = below()->Punch(whole, now);
  // What a reader fetched meanwhile may be of before.
  pool_->Invalidate(file_, blocks.first, blocks.last, Version{UINT64_MAX});
  if (!status.ok() && had_dirty) Lost(status);
  return status;
}

absl::StatusOr<uint64_t> CacheLayer::Seek(uint64_t offset, bool data, Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kShare, now));
  ABACUS_RETURN_IF_ERROR(WriteBack({0, kNoEnd}));
  return below()->Seek(offset, data, now);
}

absl::StatusOr<CommitResult> CacheLayer::Commit(const std::vector<RangeVersion>& reads,
                                                const std::vector<RangeWrite>& writes,
                                                Version now) {
  ABACUS_ASSIGN_OR_RETURN(const Inside inside, Enter(PromiseKind::kWrite, now));
  const Changing changing(this);
  ABACUS_RETURN_IF_ERROR(WriteBack({0, kNoEnd}));
  ABACUS_ASSIGN_OR_RETURN(CommitResult result, below()->Commit(reads, writes, now));
  if (!result.committed) {
    for (const RangeVersion& stale : result.stale) {
      const Blocks blocks = BlocksOf(stale.range);
      pool_->Invalidate(file_, blocks.first, blocks.last, stale.version);
    }
    return result;
  }
  for (const RangeWrite& write : writes) {
    if (write.bytes.empty()) continue;
    const Blocks blocks = BlocksOf({write.offset, write.bytes.size()});
    pool_->Invalidate(file_, blocks.first, blocks.last, now);
  }
  ForgetSize();
  return result;
}

// -- what other clients break ---------------------------------------------------------------------

absl::Status CacheLayer::Invalidate(Range range, Version version) {
  ABACUS_RETURN_IF_ERROR(GiveBack(range, version, false));
  return Layer::Invalidate(range, version);
}

absl::Status CacheLayer::Recall(Range range, Version version) {
  {
    MutexLock lock(mutex_);
    ++recalling_;
  }
  // First what those above have not told us yet.
  absl::Status status = Layer::Recall(range, version);
  if (status.ok()) status = GiveBack(range, version, true);
  MutexLock lock(mutex_);
  --recalling_;
  return status;
}

// -- for people -----------------------------------------------------------------------------------

void CacheLayer::AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
  facts->emplace_back("cached", absl::StrCat(pool_->used_bytes(file_), " bytes"));
  facts->emplace_back("dirty", absl::StrCat(pool_->dirty_bytes(file_), " bytes"));
  MutexLock lock(mutex_);
  constexpr const char* kPromises[] = {"none", "to share", "to write"};
  facts->emplace_back("promise", kPromises[static_cast<size_t>(promise_.kind) % 3]);
  facts->emplace_back("found", absl::StrCat(hits_, " of ", hits_ + misses_, " blocks"));
}

}  // namespace abacus::objfs
