#ifndef ABACUS_OBJFS_STORE_TURNS_H_
#define ABACUS_OBJFS_STORE_TURNS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "objfs/store/object_store.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Who may change which object now: a transaction takes the turns of all its objects at once, so
// that no two wait for each other. Not a mutex: a turn is kept over calls to other objects.
// Thread-safety: thread-safe. Blocking: Take, until those who have one of the turns gave it back;
// they wait for a local disk and for nobody else.
class Turns {
 public:
  // Held while it lives.
  class Turn {
   public:
    Turn(Turns& turns, std::vector<ObjectId> ids) : turns_(turns), ids_(std::move(ids)) {
      turns_.Take(ids_);
    }
    Turn(Turns& turns, ObjectId id) : Turn(turns, std::vector<ObjectId>{id}) {}
    ~Turn() { turns_.Give(ids_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Takes these as well where all are free now; waits for nobody.
    bool TryAdd(const std::vector<ObjectId>& ids) {
      if (!turns_.TryTake(ids)) return false;
      ids_.insert(ids_.end(), ids.begin(), ids.end());
      return true;
    }

   private:
    Turns& turns_;
    std::vector<ObjectId> ids_;
  };

 private:
  bool AllFree(const std::vector<ObjectId>& ids) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const ObjectId id : ids) {
      if (taken_.contains(id)) return false;
    }
    return true;
  }
  void Take(const std::vector<ObjectId>& ids) {
    runtime::MutexLock lock(mutex_);
    while (!AllFree(ids)) given_.Wait(mutex_);
    taken_.insert(ids.begin(), ids.end());
  }
  bool TryTake(const std::vector<ObjectId>& ids) {
    runtime::MutexLock lock(mutex_);
    if (!AllFree(ids)) return false;
    taken_.insert(ids.begin(), ids.end());
    return true;
  }
  void Give(const std::vector<ObjectId>& ids) {
    runtime::MutexLock lock(mutex_);
    for (const ObjectId id : ids) taken_.erase(id);
    given_.SignalAll();
  }

  runtime::Mutex mutex_;
  runtime::CondVar given_;
  absl::flat_hash_set<ObjectId> taken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_TURNS_H_
