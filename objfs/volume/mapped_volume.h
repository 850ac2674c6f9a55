#ifndef ABACUS_OBJFS_VOLUME_MAPPED_VOLUME_H_
#define ABACUS_OBJFS_VOLUME_MAPPED_VOLUME_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/map/map_keeper.h"
#include "objfs/map/map_place.h"
#include "objfs/map/remembered_row.h"
#include "objfs/replica/replica_store.h"
#include "objfs/replica/replicated_store.h"
#include "objfs/spread/server_addresses.h"
#include "objfs/store/object_store.h"
#include "objfs/volume/volume.h"
#include "runtime/base/mutex.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// What a server knows of a volume's map.
struct MapReport {
  std::string url;          // empty: it is at the volume's first server
  bool reachable = false;   // it has answered the last time
  std::string why;          // it has not
  uint64_t epoch = 0;       // 0: it was never read; nothing of what follows is known then
  uint64_t place = 0;       // of this server
  uint64_t primary = 0;     // a place
  bool is_primary = false;  // this server is
  bool may_serve = false;   // and answers for the volume now
  bool has_lease = false;   // by a lease in the map, and not only by what its copies have promised
  std::vector<std::string> servers;
  std::vector<uint32_t> copies;   // places that keep metadata
  std::vector<uint32_t> current;  // those of them that have everything
  // Of the primary: how far the other copy is brought up to date; 0 of 0: it is, or is away.
  uint64_t objects_done = 0, objects_all = 0;
  std::string copy_why;  // it cannot be brought up to date, or what failed last of that
  // Of the primary, since it opened its store: blocks of names and inodes found damaged there and
  // put back from the other copy, and how often that could not help; and objects with a damaged
  // table that were made whole from it.
  uint64_t repaired_blocks = 0, unrepaired_blocks = 0, repaired_objects = 0;
  uint64_t reads_at_copy = 0;  // made at the other copy, as the primary's disk was slow
  ABACUS_FIELDS(url, reachable, why, epoch, place, primary, is_primary, may_serve, has_lease,
                servers, copies, current, objects_done, objects_all, copy_why, repaired_blocks,
                unrepaired_blocks, repaired_objects, reads_at_copy)
};

// A volume whose map is elsewhere, at one of the servers that keep its metadata: opens it while the
// map says that this server is the primary, and closes it when it is no more. A thread of its own
// does both.
// Thread-safety: thread-safe. Blocking: no, where nothing else is said.
class MappedVolume {
 public:
  struct Host {
    // The store in the volume's directory, in an epoch that is new.
    std::function<absl::StatusOr<std::shared_ptr<LocalObjectStore>>(uint64_t epoch)> open_store;
    // Whether it could be opened, by whom the row calls the primary. `reads_on`: not empty: the
    // tables of its objects are read too, as long as it says so. Errors: as CheckPrimaryStore().
    // May block.
    std::function<absl::Status(const std::function<bool()>& reads_on)> check_store;
    // The same directory, as the copy of another server's: how it ends for a promotion, and how
    // others reach it.
    std::function<absl::StatusOr<std::unique_ptr<ReplicaStore>>()> open_copy;
    std::function<runtime::Ref<ReplicaStore>(std::unique_ptr<ReplicaStore>)> adopt_copy;
    std::function<void(const runtime::Ref<ReplicaStore>&)> end_copy;
    // The copy that the server at an address keeps. May block for a while.
    std::function<absl::StatusOr<runtime::Ref<ReplicaStore>>(const std::string& address)> find_copy;
    // The volume on it, for others to find.
    std::function<absl::StatusOr<runtime::Ref<Volume>>(
        std::shared_ptr<ObjectStore> store, Volume::Options options,
        std::function<bool()> may_serve, std::function<int64_t()> serves_for_ns)>
        open_volume;
    std::function<void(const runtime::Ref<Volume>&)> end_volume;
    // Where this server remembers the map's row. Nothing is opened by a row, nor acknowledged
    // without a copy that it has come to call behind, before it is there.
    std::shared_ptr<RowMemory> memory;
    decltype(MapKeeper::Host::ask) ask;
    // As ReplicatedStore::Host::local_fails, of what is open here as the primary's.
    std::function<void(const absl::Status& why)> store_fails;
    // How long this server leaves it to the copies to take over from a store that cannot be opened,
    // or not all of it: one of them sees the lease end meanwhile.
    std::chrono::milliseconds stays_out{20'000};
    // How long a primary that is started again reads tables at most: a copy that is there has taken
    // over by then.
    std::chrono::milliseconds reads_tables{8'000};
    // How long it asks for the copy that it would leave a damaged store to: after a start the
    // servers may not have met yet.
    std::chrono::milliseconds asks_copy{5'000};
  };

  // `servers`: filled from the map's row.
  MappedVolume(std::string name, MapPlace place, std::unique_ptr<MapStore> map,
               std::shared_ptr<ServerAddresses> servers, Host host);
  ~MappedVolume();

  const MapPlace& place() const { return place_; }
  const std::shared_ptr<ServerAddresses>& servers() const { return servers_; }
  MapKeeper& keeper() { return *keeper_; }
  RowMemory& memory() { return *host_.memory; }
  // What this server keeps for the one that is the primary. Errors: kUnavailable - nothing now.
  absl::StatusOr<runtime::Ref<ReplicaStore>> copy();
  // Errors: kUnavailable - this server does not answer for the volume now; the message says why.
  absl::StatusOr<runtime::Ref<Volume>> volume();
  MapReport Report();
  // Returns when the volume is open here, or cannot be. Errors: kUnavailable - not in time.
  // Blocking: up to `patience`.
  absl::Status AwaitVolume(std::chrono::milliseconds patience);
  // Whether another server has a copy that is current by the row, and has it open, whole. Asks that
  // server. Blocking: for its answer.
  bool CopyCouldTakeOver();
  // Nothing is opened any more. `closes`: what is open is closed too. Blocking: for what is under
  // way.
  void Stop(bool closes);

 private:
  void Work();
  // What the map says is so from here on; true: it is.
  bool Follow();
  absl::Status Begin(const VolumeRow& row);
  absl::Status OpenStore(const VolumeRow& row);
  void End();
  absl::Status BeginCopy(const VolumeRow& row);
  void BelieveRow(const VolumeRow& row);  // what it says of the copy here
  // Of whom the row calls the primary, before it goes on as that. True: it could.
  bool CheckStore(const VolumeRow& row);
  // The row is of that epoch still, and nobody waits for the worker to end.
  bool IsStill(uint64_t epoch);
  // Whether the server at the address has its copy open, whole. Asks again for a while.
  bool CopyCanTakeOver(const std::string& address, uint64_t epoch);
  bool HasWholeCopy(const std::string& address);
  // The primary of the row cannot open its store: after some times others are to try.
  void Failed(const VolumeRow& row);
  // What is here may be served from here.
  bool MayStand();
  bool IsWhole();
  // For a promotion in `epoch`; 0: for none. Errors: it cannot be promoted, and goes on.
  absl::Status EndCopy(uint64_t epoch);
  ReplicatedStore::Host ReplicationHost(uint64_t epoch);
  void Wake();

  const std::string name_;
  const MapPlace place_;
  const std::shared_ptr<ServerAddresses> servers_;
  const Host host_;

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  runtime::Ref<Volume> volume_ ABSL_GUARDED_BY(mutex_);
  absl::Status why_ ABSL_GUARDED_BY(mutex_);    // the volume could not be opened
  bool opens_ ABSL_GUARDED_BY(mutex_) = false;  // the store could be, as the row's primary
  runtime::Ref<ReplicaStore> copy_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<ReplicatedStore> replicated_ ABSL_GUARDED_BY(mutex_);

  // The worker's.
  uint64_t epoch_ = 0;  // of what is open
  uint64_t store_epoch_ = 0;
  int failures_ = 0;  // to open the store in this epoch
  std::chrono::steady_clock::time_point stands_after_;
  uint64_t left_epoch_ = 0;             // in which a damaged store was to be left to the copy
  std::shared_ptr<ObjectStore> store_;  // opened, and no volume on it yet
  ReplicaStore* copy_here_ = nullptr;   // as long as there is copy_

  std::shared_ptr<MapKeeper> keeper_;  // also of what is open, which may end after this
  std::thread worker_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_MAPPED_VOLUME_H_
