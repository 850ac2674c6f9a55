#ifndef ABACUS_OBJFS_SPREAD_COLUMN_WATCHES_H_
#define ABACUS_OBJFS_SPREAD_COLUMN_WATCHES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/stripe_set.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What was changed of a column, in whole blocks.
struct ColumnChanges {
  std::vector<Range> ranges;
  // It was cut off there, and may have grown again: all behind is to be looked at. UINT64_MAX: not.
  uint64_t cut = UINT64_MAX;
  ABACUS_FIELDS(ranges, cut)
};

// Remembers what is changed of columns while they are copied to another server.
//
// Invariant: a change that was told before Take() is in it, or in an earlier one of the same watch;
// more than was changed may be in it.
// Thread-safety: thread-safe. Blocking: no. Limits: kWatchesMax columns at once, the oldest is
// given up for another one; kRunsMax runs of a column, the nearest are made one.
class ColumnWatches {
 public:
  static constexpr size_t kWatchesMax = 64;
  static constexpr size_t kRunsMax = 4096;

  // The watch's number, none of which comes twice. One that the column had is over.
  uint64_t Begin(ObjectId id);
  // Takes out what was changed. Errors: kCancelled - that watch is over, or was never begun here.
  absl::StatusOr<ColumnChanges> Take(ObjectId id, uint64_t watch);
  void End(ObjectId id);

  // To be told when the change is done. `bytes`: UINT64_MAX: up to the end, wherever it is.
  void Changed(ObjectId id, uint64_t offset, uint64_t bytes);
  void Cut(ObjectId id, uint64_t size);

 private:
  struct Watch {
    uint64_t number = 0;
    StripeSet blocks;  // of ObjectStore::kBlockBytes
    uint64_t cut = UINT64_MAX;
  };
  // Who changes a column of which there is no watch takes no lock. A change that did not see the
  // count was over before the watch began.
  std::atomic<size_t> count_{0};

  runtime::Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<ObjectId, Watch> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_COLUMN_WATCHES_H_
