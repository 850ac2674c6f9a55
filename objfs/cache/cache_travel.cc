// What a cache does when it moves, and what it finds where it comes to.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/cache/travel.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;

bool CacheLayer::TooMuchToCarry(uint64_t more_bytes) const {
  uint64_t most = 0;
  {
    MutexLock lock(mutex_);
    if (leaving_ == 0) return false;
    most = carry_bytes_max_;
  }
  return pool_->dirty_bytes(file_) + more_bytes > most;
}

bool CacheLayer::BeforeMove(const runtime::MoveAhead& ahead) {
  using Place = runtime::MoveAhead::Place;
  // A price for each link, the same for all: how fast they are is not known here. Where the bytes
  // go behind the layer below is the same either way.
  const Place place = ahead.place_of(below().base());
  const TravelWays ways = {.old_to_new = 1,
                           .old_to_below = place == Place::kHere ? 0.0 : 1.0,
                           .new_to_below = place == Place::kThere ? 0.0 : 1.0};
  {
    // A write that is under way ends first: it knew of no such limit.
    const Changing changing(this);
    MutexLock lock(mutex_);
    ++leaving_;
    carry_bytes_max_ = ahead.no_room ? 0 : kCarryBytesMax;
  }
  const DirtySet dirty = pool_->Dirtiness(file_);
  const bool flush = ahead.no_room || ChooseTravel(dirty, ways) == DirtyTravel::kFlush;
  // Where it fails the blocks are carried: nobody has asked for a flush that could be told of it.
  return flush && WriteBack({0, UINT64_MAX}).ok() && dirty.bytes > 0;
}

void CacheLayer::StaysHere() {
  MutexLock lock(mutex_);
  --leaving_;
}

void CacheLayer::Checkpoint(runtime::CheckpointWriter& writer) const {
  Layer::Checkpoint(writer);
  {
    MutexLock lock(mutex_);
    writer.Write(size_);
    writer.Write(dirty_end_);
    writer.Write(written_);
    writer.Write(promise_);
    writer.Write(broken_);
    writer.Write(static_cast<int32_t>(lost_.raw_code()));
    writer.Write(std::string(lost_.message()));
  }
  const std::vector<BlockPool::Dirty> dirty = pool_->AllDirty(file_);
  writer.Write(static_cast<uint64_t>(dirty.size()));
  for (const BlockPool::Dirty& block : dirty) {
    writer.Write(block.index);
    writer.Write(block.version);
    writer.Write(block.bytes);
  }
}

absl::Status CacheLayer::Restore(runtime::CheckpointReader& reader) {
  if (reader.version() < 2) {
    return absl::FailedPreconditionError("a cache of an older build has no promise to go on with");
  }
  ABACUS_RETURN_IF_ERROR(Layer::Restore(reader));
  {
    MutexLock lock(mutex_);
    reader.Read(size_);
    reader.Read(dirty_end_);
    reader.Read(written_);
    reader.Read(promise_);
    reader.Read(broken_);
    const auto code = reader.Read<int32_t>();
    const auto message = reader.Read<std::string>();
    lost_ = absl::Status(static_cast<absl::StatusCode>(code), runtime::ToAbsl(message));
  }
  const auto count = reader.Read<uint64_t>();
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    const auto index = reader.Read<uint64_t>();
    const auto version = reader.Read<Version>();
    const auto bytes = reader.Read<Block>();
    if (!reader.ok()) break;
    if (bytes.size() != block_bytes_) {
      return absl::DataLossError(absl::StrCat("a cache's state has a block of ", bytes.size(),
                                              " bytes where its blocks have ", block_bytes_));
    }
    pool_->Write(file_, index, 0, bytes.view(), version, true);
  }
  return reader.status();
}

absl::StatusOr<std::unique_ptr<runtime::MobileObject>> CacheManager::CreateObj(
    const runtime::ClassInfo&, size_t state_bytes) {
  // A cache that brings no block along is never kept out by those that others have.
  if (state_bytes > kBareStateBytesMax && !pool_->FitsDirty(state_bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("the node's cache of ", pool_->budget_bytes(),
                                                     " bytes has no room for ", state_bytes,
                                                     " bytes that wait to be written"));
  }
  return std::make_unique<CacheLayer>(pool_);
}

}  // namespace abacus::objfs
