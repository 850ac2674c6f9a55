#ifndef ABACUS_OBJFS_FS_TESTING_FILE_SYSTEM_WORLD_H_
#define ABACUS_OBJFS_FS_TESTING_FILE_SYSTEM_WORLD_H_

// A volume on one node of a test cluster, over a disk in memory, and clients of it on others. Or
// one of several shards, each on a node of its own over a disk of its own.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/fs/file_system.h"
#include "objfs/spread/column_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/object_store.h"
#include "objfs/volume/volume.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs::testing {

// The kinds of layers that a file's stack may have.
LayerKinds AllKinds();

// Of a volume with several shards (volume/shard.h).
struct ShardsOptions {
  uint32_t count = 2;
  std::vector<Disk*> disks = {};  // by shard; where there is none, it is one in memory
  // What happens to the frames of all nodes; none: nothing.
  std::optional<runtime::FaultKnobs> faults = {};
  uint64_t volume = 4711;  // ShardState::volume, of shards that are new
};

// What else of a world is another one than usual.
struct WorldParts {
  // What the inodes are in, and the epoch of the volume that begins on it (Volume::Options); empty:
  // a store of its own on the disk, and none.
  std::function<std::shared_ptr<ObjectStore>()> open_store = nullptr;
  std::function<uint64_t()> epoch = nullptr;
  decltype(runtime::testing::ClusterOptions::around) around = nullptr;
};

class FileSystemWorld {
 public:
  static constexpr size_t kServer = 0;

  // `steady_clock_ns`: the clock of all leases; empty: the machine's. `more_types`: classes that
  // every node knows beside the file system's. `column_disks`: of the servers of columns, where
  // they are not to be in memory.
  explicit FileSystemWorld(size_t nodes = 3, Disk* disk = nullptr,
                           std::function<int64_t()> steady_clock_ns = nullptr,
                           absl::Duration lease = absl::Seconds(30),
                           absl::Duration quiet = absl::Seconds(1),
                           std::function<void(runtime::ObjectTypes&)> more_types = nullptr,
                           size_t column_servers = 0, std::vector<Disk*> column_disks = {},
                           WorldParts parts = {});
  // A volume of several shards: the server of shard i is on node i.
  FileSystemWorld(size_t nodes, const ShardsOptions& shards,
                  std::function<int64_t()> steady_clock_ns = nullptr,
                  absl::Duration quiet = absl::Seconds(1));
  ~FileSystemWorld();

  // As a crash of the server and all its clients; `between` is done while there is none. REQUIRES:
  // no client is left.
  void Restart(const std::function<void()>& between = nullptr) {
    End();
    if (between != nullptr) between();
    Begin();
  }

  // The server ends as if it were killed: what is there lives on on its disk only, which is the
  // caller's to cut off before. Clients stay.
  void LoseServer(size_t shard = 0);
  // Another one begins on that disk, at a node that has not been used yet.
  void StartServer(size_t node, size_t shard = 0);

  // -- the volume's servers, of which the first has the inodes; each keeps columns ---------------

  // Server `i` dies as if it were killed; not the first one.
  void LoseColumns(size_t i);
  // And comes again on its disk, or on an empty one, at a node that has not been used yet.
  void StartColumns(size_t i, size_t node, bool is_empty = false);
  ObjectStore& column_store(size_t i) { return *columns_[i].store; }
  bool IsServing(size_t i);

  std::unique_ptr<FileSystem> Client(size_t node, const std::string& file_stack = "");
  // The same, of one that may not be able to join.
  absl::StatusOr<std::unique_ptr<FileSystem>> TryClient(size_t node,
                                                        const std::string& file_stack = "");

  runtime::testing::Cluster& cluster() { return *cluster_; }
  ObjectStore& store(size_t shard = 0) { return *servers_[shard].store; }
  const runtime::Ref<Volume>& volume(size_t shard = 0) { return servers_[shard].volume; }
  // At which node it is, or was last.
  size_t ServerNode(size_t shard) const { return servers_[shard].node; }

  const std::function<int64_t()> steady_ns;
  // Of stores that begin from now on.
  uint64_t quota_bytes = UINT64_MAX;
  // By how much the clients' clocks are ahead.
  std::atomic<int64_t> wall_ahead_us{0};
  // The clock by which clients of a file with columns come to use it together (ShareChoice). It
  // stands still, so that whoever takes a file away does it soon, until a test sets it.
  std::atomic<int64_t> spread_ns{0};
  // Volume::Host::serves_for_ns.
  std::atomic<int64_t> serves_for_ns{INT64_MAX};
  // Of volumes that begin from now on (Volume::Host).
  decltype(Volume::Host::check) check;
  // What else the host of a client that joins from now on is to be; empty: nothing.
  std::function<void(size_t node, FileSystem::Host& host)> change_host;
  // FileSystem::Options, of clients that join from now on.
  std::string usual_file_stack;
  // Told of each directory object of a client's, when it is made and before it is ended.
  std::function<void(size_t node, const runtime::Rid& rid)> on_directory;
  std::function<void(const runtime::Rid& rid)> on_directory_end;
  // And of each layer.
  std::function<void(size_t node, const runtime::Rid& rid)> on_layer;
  std::function<void(const runtime::Rid& rid)> on_layer_end;

 private:
  void Begin();
  void MakeColumnDisk(size_t i);
  void BeginColumns(size_t i, size_t node);
  void EndColumns(size_t i);
  // The log of the groups that are written to columns of server `i`.
  void BeginLog(size_t i, ColumnStore* columns);
  absl::StatusOr<runtime::Ref<CommitLog>> LogOf(uint64_t server, runtime::BindingManager& binding);
  // Of these shards; where there is none, one in memory.
  void TakeDisks(const std::vector<Disk*>& disks);
  void BeginVolume(size_t shard);
  Volume::Host VolumeHost(size_t node);
  // A shard's volume, for who is at that node.
  absl::StatusOr<runtime::Ref<Volume>> VolumeOf(size_t shard, runtime::BindingManager& binding);
  // Ends an object of a client's, wherever it is.
  void EndObject(const runtime::Rid& rid);
  void End();

  // Of a shard; of a volume without shards there is one.
  struct Server {
    size_t node = 0;
    Disk* disk = nullptr;
    std::shared_ptr<ObjectStore> store;
    runtime::Ref<Volume> volume;
    runtime::Rid published;  // of the volume; none while there is no server
  };
  struct Columns {
    size_t node = 0;
    std::shared_ptr<ObjectStore> store;
    runtime::Ref<ColumnStore> ref;
    runtime::Ref<CommitLog> log_ref;
    CommitLog* log = nullptr;  // the node's
    runtime::Rid published, published_log;
  };
  const size_t nodes_;
  const absl::Duration lease_, quiet_;
  const std::function<void(runtime::ObjectTypes&)> more_types_;
  const WorldParts parts_ = {};
  const std::optional<runtime::FaultKnobs> faults_;
  const uint64_t volume_number_ = 0;  // ShardsOptions::volume
  const LayerKinds kinds_ = AllKinds();
  std::vector<std::unique_ptr<MemoryDisk>> memories_;
  std::vector<Server> servers_;
  std::vector<Disk*> column_disks_;
  std::vector<std::unique_ptr<MemoryDisk>> column_memories_;
  std::vector<Columns> columns_;
  std::unique_ptr<runtime::testing::Cluster> cluster_;
  runtime::Mutex mutex_;  // what is published
  runtime::CondVar changed_;
  bool begins_ ABSL_GUARDED_BY(mutex_) = false;  // servers that are not there yet will be
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_FILE_SYSTEM_WORLD_H_
