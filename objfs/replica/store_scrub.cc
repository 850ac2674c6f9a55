#include "objfs/replica/store_scrub.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "objfs/replica/replicated_store.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

namespace {

constexpr uint64_t kScrubbedBlock = ObjectStore::kBlockBytes;
constexpr uint64_t kScrubbedAtOnce = 8 * kScrubbedBlock;
constexpr uint64_t kScrubbedInAStep = uint64_t{1} << 20;
constexpr uint64_t kObjectsInAStep = 256;
// Of an object's attributes: a page of its table, if that is not in memory.
constexpr uint64_t kDescriptionBytes = 8192;

class ScrubStep {
 public:
  // Of all stores that one alone has a copy.
  explicit ScrubStep(ObjectStore& store)
      : store_(store), replicated_(dynamic_cast<ReplicatedStore*>(&store)) {}

  absl::StatusOr<StoreScrub> Run(const StorePlace& from) {
    const StoreStatistics before = store_.Statistics();
    ABACUS_ASSIGN_OR_RETURN(
        const std::vector<ObjectId> ids,
        store_.List(from.id == 0 ? 0 : from.id - 1, kObjectsInAStep));  // those above it
    found_.next = from;
    found_.done = ids.size() < kObjectsInAStep;
    for (const ObjectId id : ids) {
      if (id != found_.next.id) found_.next = {.id = id, .offset = 0};
      if (IsFull() || !Visit()) {
        found_.done = false;
        break;
      }
      found_.next = {.id = id + 1, .offset = 0};
    }
    const StoreStatistics after = store_.Statistics();
    found_.repaired = after.repaired_blocks - before.repaired_blocks;
    found_.objects_repaired = after.repaired_objects - before.repaired_objects;
    return found_;
  }

 private:
  bool IsFull() const { return found_.bytes >= kScrubbedInAStep; }

  // The object at next, from there on. False: next is in the middle of it.
  bool Visit() {
    auto& [id, offset, copy_missed] = found_.next;
    is_copy_looked_at_ = false;
    found_.bytes += kDescriptionBytes;
    absl::Status status = store_.GetAttributes(id).status();
    if (status.ok()) CheckCopy(id, offset, 0);  // its table
    while (status.ok()) {
      const auto data = store_.NextData(id, offset);
      if (absl::IsOutOfRange(data.status())) break;
      status = data.status();
      if (!status.ok()) break;
      offset = *data - *data % kScrubbedBlock;
      if (IsFull()) return false;
      status = ReadSome(id, offset);
      CheckCopy(id, offset, kScrubbedAtOnce);
      offset += kScrubbedAtOnce;
    }
    if (absl::IsNotFound(status)) return true;  // it was removed
    ++found_.objects;
    found_.objects_failed += status.ok() ? 0 : 1;
    found_.copy_missed += copy_missed ? 1 : 0;
    found_.copy_objects += is_copy_looked_at_ && !copy_missed ? 1 : 0;
    return true;
  }

  // A copy that does not answer is not asked again by this step: each call would be waited for.
  void CheckCopy(ObjectId id, uint64_t offset, uint64_t bytes) {
    if (replicated_ == nullptr || found_.next.copy_missed) return;
    if (copy_away_.ok()) {
      const auto check =
          replicated_->CheckCopy(id, offset / kScrubbedBlock, bytes / kScrubbedBlock);
      copy_away_ = check.status();
      is_copy_looked_at_ = check.ok();
      if (check.ok()) {
        found_.copy_repaired += check->repaired;
        found_.copy_damaged += check->damaged;
      }
    }
    found_.next.copy_missed = !copy_away_.ok();
  }

  absl::StatusOr<uint64_t> ReadHere(ObjectId id, uint64_t offset, uint64_t bytes) {
    const std::span<char> to(buffer_.data(), bytes);
    return replicated_ != nullptr ? replicated_->ReadHere(id, offset, to)
                                  : store_.Read(id, offset, to);
  }
  absl::Status ReadSome(ObjectId id, uint64_t offset) {
    found_.bytes += kScrubbedAtOnce;
    const auto read = ReadHere(id, offset, buffer_.size());
    if (!absl::IsDataLoss(read.status())) return read.status();
    // Which of them?
    for (uint64_t at = 0; at < kScrubbedAtOnce; at += kScrubbedBlock) {
      const auto block = ReadHere(id, offset + at, kScrubbedBlock);
      if (absl::IsDataLoss(block.status())) {
        ++found_.damaged;
      } else if (!block.ok()) {
        return block.status();
      }
    }
    return absl::OkStatus();
  }

  ObjectStore& store_;
  ReplicatedStore* const replicated_;
  bool is_copy_looked_at_ = false;  // of the object at next
  absl::Status copy_away_;
  StoreScrub found_;
  std::string buffer_ = std::string(kScrubbedAtOnce, '\0');
};

}  // namespace

absl::StatusOr<StoreScrub> ScrubSome(ObjectStore& store, const StorePlace& from) {
  return ScrubStep(store).Run(from);
}

}  // namespace abacus::objfs
