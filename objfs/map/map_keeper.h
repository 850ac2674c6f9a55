#ifndef ABACUS_OBJFS_MAP_MAP_KEEPER_H_
#define ABACUS_OBJFS_MAP_MAP_KEEPER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/map/lease_core.h"
#include "objfs/map/map_store.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Carries out what a LeaseCore says, for one volume at one server: two threads, one that asks the
// map and one that asks the other copies, so that the one that hangs does not keep the other.
// Thread-safety: thread-safe. Blocking: no, where nothing else is said.
class MapKeeper {
 public:
  struct Host {
    // Asks the server at an address for its promise (OnAsk). May block for a while.
    std::function<absl::StatusOr<PromiseAnswer>(const std::string& address, uint64_t epoch)> ask;
    // Whether what this server has is whole and can be opened, as far as it knows: the row may say
    // so longer than it is. May block for a moment.
    std::function<bool()> may_stand;
    // The role, the epoch or the row is another one. Called without locks; may not block.
    std::function<void()> changed;
  };
  // What is known now.
  struct State {
    LeaseCore::Role role = LeaseCore::Role::kUnknown;
    VolumeRow row;         // epoch 0: it was never read
    int64_t revision = 0;  // of that, in the map
    bool may_serve = false;
    bool has_lease = false;
    bool has_promised = false;  // to another server, or an earlier process of this one may have
    bool reachable = false;     // the map has answered the last call
    std::string why;            // it has not
  };
  // Limits: how long a change of the row is tried.
  static constexpr std::chrono::seconds kEditPatience{5};

  MapKeeper(std::unique_ptr<MapStore> store, const LeaseOptions& options, uint32_t place,
            Host host);
  ~MapKeeper();

  State Get();
  // Whether what is answered now is the volume's answer.
  bool MayServe();
  // As LeaseCore::ServesFor().
  int64_t ServesFor();
  // By compare-and-set, of the newest row. What `edit` refuses is not tried; it is called again
  // until it leaves the row as it is, which it has to where its change has happened. Errors:
  // `edit`'s. kFailedPrecondition - this server is not the primary. kUnavailable - the map
  //         does not answer; the change may have been made or not, or be made yet.
  // Blocking: up to kEditPatience.
  absl::Status Edit(const std::function<absl::Status(VolumeRow&)>& edit);
  // As LeaseCore::Yield(), with what it requires.
  bool Yield();
  // The primary of `epoch` asks this server not to take its place for a while.
  PromiseAnswer OnAsk(uint64_t epoch);
  // To be called from now on for nothing but Get(). Blocking: for a call of the map or a copy.
  void Stop();
  MapStore& store() { return *store_; }

 private:
  static int64_t Now();
  void WorkOnMap();
  void WorkOnCopies();

  const std::unique_ptr<MapStore> store_;
  const Host host_;

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  LeaseCore core_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool reachable_ ABSL_GUARDED_BY(mutex_) = false;
  bool editing_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_) = "it was not asked yet";
  std::thread map_thread_, copies_thread_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_MAP_KEEPER_H_
