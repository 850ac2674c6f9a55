#ifndef ABACUS_OBJFS_FS_TESTING_FILE_SYSTEM_WORLD_H_
#define ABACUS_OBJFS_FS_TESTING_FILE_SYSTEM_WORLD_H_

// A volume on one node of a test cluster, over a disk in memory, and clients of it on others.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/directory/directory.h"
#include "objfs/fs/file_system.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/raid/mirror_layer.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/spread/column_store.h"
#include "objfs/spread/spread_layer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/volume/volume.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs::testing {

inline LayerKinds AllKinds() {
  LayerKinds kinds;
  kinds.Add<CacheLayer>().Add<ErrorLayer>().Add<DelayLayer>().Add<StatisticsLayer>();
  kinds.Add<Raid5Layer>().Add<MirrorLayer>().Add<IsolationLayer>().Add<StorageLayer>();
  return kinds;
}

class FileSystemWorld {
 public:
  static constexpr size_t kServer = 0;

  // `steady_clock_ns`: the clock of all leases; empty: the machine's. `more_types`: classes that
  // every node knows beside the file system's. `column_disks`: of the servers of columns, where
  // they are not to be in memory. `open_store`: what the inodes are in;
  // empty: a store of its own on the disk.
  explicit FileSystemWorld(size_t nodes = 3, Disk* disk = nullptr,
                           std::function<int64_t()> steady_clock_ns = nullptr,
                           absl::Duration lease = absl::Seconds(30),
                           absl::Duration quiet = absl::Seconds(1),
                           std::function<void(runtime::ObjectTypes&)> more_types = nullptr,
                           size_t column_servers = 0, std::vector<Disk*> column_disks = {},
                           std::function<std::shared_ptr<ObjectStore>()> open_store = nullptr)
      : steady_ns(std::move(steady_clock_ns)),
        nodes_(nodes),
        lease_(lease),
        quiet_(quiet),
        more_types_(std::move(more_types)),
        open_store_(std::move(open_store)),
        disk_(disk == nullptr ? &memory_ : disk),
        column_disks_(std::move(column_disks)),
        column_memories_(column_servers),
        columns_(column_servers) {
    column_disks_.resize(column_servers);
    Begin();
  }
  ~FileSystemWorld() { End(); }

  // As a crash of the server and all its clients. REQUIRES: no client is left.
  void Restart() {
    End();
    Begin();
  }

  // The server ends as if it were killed: what is there lives on on its disk only, which is the
  // caller's to cut off before. Clients stay.
  void LoseServer() {
    {
      runtime::MutexLock lock(mutex_);
      published_ = runtime::Rid();
    }
    (*cluster_)[server_].binding().Destroy(volume_.rid()).IgnoreError();
    volume_ = runtime::Ref<Volume>();
    cluster_->Kill(server_);
    store_.reset();
  }
  // Another one begins on that disk, at a node that has not been used yet.
  void StartServer(size_t node) {
    server_ = node;
    BeginVolume();
  }

  // -- the volume's servers, of which the first has the inodes; each keeps columns ---------------

  // Server `i` dies as if it were killed; not the first one.
  void LoseColumns(size_t i) {
    const size_t node = columns_[i].node;
    EndColumns(i);
    cluster_->Kill(node);
    columns_[i].store.reset();
  }
  // And comes again on its disk, or on an empty one, at a node that has not been used yet.
  void StartColumns(size_t i, size_t node, bool is_empty = false) {
    if (is_empty) MakeColumnDisk(i);
    BeginColumns(i, node);
  }
  ObjectStore& column_store(size_t i) { return *columns_[i].store; }
  bool IsServing(size_t i) {
    runtime::MutexLock lock(mutex_);
    return !(columns_[i].published == runtime::Rid());
  }

  std::unique_ptr<FileSystem> Client(size_t node, const std::string& file_stack = "") {
    runtime::BindingManager& binding = (*cluster_)[node].binding();
    FileSystem::Host host;
    host.layers.make = [this, node, &binding](
                           const LayerKind& kind, const std::vector<runtime::Ref<Layer>>& below,
                           const std::vector<std::pair<std::string, std::string>>& options,
                           size_t) -> absl::StatusOr<runtime::Ref<Layer>> {
      auto made = binding.CreateObject(kind.class_name,
                                       runtime::internal::EncodeInit<Layer>(below, options));
      if (!made.ok()) return made.status();
      if (on_layer) on_layer(node, made->rid());
      return runtime::Ref<Layer>(*std::move(made));
    };
    host.layers.end = [this](const runtime::Ref<Layer>& layer) {
      if (on_layer_end) on_layer_end(layer.rid());
      EndObject(layer.rid());
    };
    host.make_directory = [this, node, &binding](const runtime::Ref<Volume>& volume,
                                                 const runtime::Ref<Layer>& below, ObjectId id,
                                                 uint16_t writer) {
      auto made = binding.Create<Directory>(volume, below, id, writer);
      if (made.ok() && on_directory) on_directory(node, made->rid());
      return made;
    };
    host.end_directory = [this](const runtime::Ref<Directory>& directory) {
      if (on_directory_end) on_directory_end(directory.rid());
      EndObject(directory.rid());
    };
    host.adopt_end = [&binding](std::unique_ptr<ClientEnd> end) {
      return binding.Adopt(std::move(end));
    };
    host.remove_end = [&binding](const runtime::Ref<ClientEnd>& end) {
      binding.Destroy(end.rid()).IgnoreError();
    };
    host.locks.adopt = [&binding](std::unique_ptr<LockClient> client) {
      return binding.Adopt(std::move(client));
    };
    host.locks.end = [&binding](const runtime::Ref<LockClient>& client) {
      binding.Destroy(client.rid()).IgnoreError();
    };
    host.find_volume = [this,
                        &binding](const std::string&) -> absl::StatusOr<runtime::Ref<Volume>> {
      runtime::MutexLock lock(mutex_);
      if (published_ == runtime::Rid()) return absl::UnavailableError("there is no server now");
      return binding.RefTo<Volume>(published_);
    };
    host.steady_ns = steady_ns;
    host.now_us = [this] {
      return wall_ahead_us + std::chrono::duration_cast<std::chrono::microseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
    };
    auto made =
        FileSystem::Make((*cluster_)[node].RefTo<Volume>(volume_.rid()), kinds_, host,
                         {.client = absl::StrCat("client ", node), .file_stack = file_stack});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  runtime::testing::Cluster& cluster() { return *cluster_; }
  ObjectStore& store() { return *store_; }
  const runtime::Ref<Volume>& volume() { return volume_; }

  const std::function<int64_t()> steady_ns;
  // Of stores that begin from now on.
  uint64_t quota_bytes = UINT64_MAX;
  // By how much the clients' clocks are ahead.
  std::atomic<int64_t> wall_ahead_us{0};
  // Volume::Host::serves_for_ns.
  std::atomic<int64_t> serves_for_ns{INT64_MAX};
  // Of volumes that begin from now on (Volume::Host).
  decltype(Volume::Host::check) check;
  // Told of each directory object of a client's, when it is made and before it is ended.
  std::function<void(size_t node, const runtime::Rid& rid)> on_directory;
  std::function<void(const runtime::Rid& rid)> on_directory_end;
  // And of each layer.
  std::function<void(size_t node, const runtime::Rid& rid)> on_layer;
  std::function<void(const runtime::Rid& rid)> on_layer_end;

 private:
  void Begin() {
    runtime::testing::ClusterOptions options;
    options.nodes = nodes_;
    options.types = [this](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      if (more_types_) more_types_(types);
      types.Add<Volume>().Add<IsolationLayer>().Add<StorageLayer>();
      types.Add<Directory>([] { return std::make_unique<DirectoryManager>(); });
      types.Add<ClientEnd>().Add<LockClient>();
      types.Add<ErrorLayer>().Add<DelayLayer>().Add<StatisticsLayer>();
      types.Add<ColumnStore>().Add<ColumnLayer>().Add<AbsentColumn>();
      types.Add<Raid5Layer>().Add<SpreadLayer>().Add<WitnessLayer>();
      types.Add<MirrorLayer>([] { return std::make_unique<MirrorManager>(); });
      types.Add<CacheLayer>([] { return std::make_unique<CacheManager>(1 << 20); });
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
    server_ = kServer;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (column_disks_[i] == nullptr) MakeColumnDisk(i);
      BeginColumns(i, i == 0 ? kServer : nodes_ - columns_.size() + i);
    }
    BeginVolume();
  }
  void MakeColumnDisk(size_t i) {
    column_memories_[i] = std::make_unique<MemoryDisk>();
    column_disks_[i] = column_memories_[i].get();
  }
  void BeginColumns(size_t i, size_t node) {
    auto store = LocalObjectStore::Open(*column_disks_[i], {});
    ASSERT_TRUE(store.ok()) << store.status();
    columns_[i].store = *std::move(store);
    columns_[i].node = node;
    runtime::BindingManager& binding = (*cluster_)[node].binding();
    columns_[i].ref = binding.Adopt(std::make_unique<ColumnStore>(
        columns_[i].store, ColumnStore::Host{.adopt =
                                                 [&binding](std::unique_ptr<ColumnLayer> layer) {
                                                   return runtime::Ref<Layer>(
                                                       binding.Adopt(std::move(layer)).base());
                                                 },
                                             .end =
                                                 [&binding](const runtime::Ref<Layer>& layer) {
                                                   binding.Destroy(layer.rid()).IgnoreError();
                                                 }}));
    runtime::MutexLock lock(mutex_);
    columns_[i].published = columns_[i].ref.rid();
  }
  void EndColumns(size_t i) {
    {
      runtime::MutexLock lock(mutex_);
      columns_[i].published = runtime::Rid();
    }
    (*cluster_)[columns_[i].node].binding().Destroy(columns_[i].ref.rid()).IgnoreError();
    columns_[i].ref = runtime::Ref<ColumnStore>();
  }
  void BeginVolume() {
    if (open_store_) {
      store_ = open_store_();
    } else {
      auto store = LocalObjectStore::Open(*disk_, {.quota_bytes = quota_bytes});
      ASSERT_TRUE(store.ok()) << store.status();
      store_ = *std::move(store);
    }
    runtime::BindingManager& binding = (*cluster_)[server_].binding();
    Volume::Host host;
    host.adopt_storage = [&binding](std::unique_ptr<StorageLayer> layer) {
      return runtime::Ref<Layer>(binding.Adopt(std::move(layer)).base());
    };
    host.adopt_isolation = [&binding](std::unique_ptr<IsolationLayer> layer) {
      return runtime::Ref<Layer>(binding.Adopt(std::move(layer)).base());
    };
    host.end = [&binding](const runtime::Ref<Layer>& layer) {
      binding.Destroy(layer.rid()).IgnoreError();
    };
    host.now_ns = [] {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::system_clock::now().time_since_epoch())
          .count();
    };
    host.steady_ns = steady_ns;
    host.serves_for_ns = [this] { return serves_for_ns.load(); };
    host.find_columns = [this,
                         &binding](size_t server) -> absl::StatusOr<runtime::Ref<ColumnStore>> {
      runtime::MutexLock lock(mutex_);
      const runtime::Rid rid = columns_[server].published;
      if (rid == runtime::Rid()) return absl::UnavailableError("there is no such server now");
      return binding.RefTo<ColumnStore>(rid);
    };
    host.check = check;
    host.adopt_absent = [&binding](std::unique_ptr<AbsentColumn> column) {
      return runtime::Ref<Layer>(binding.Adopt(std::move(column)).base());
    };
    host.adopt_witness = [&binding](std::unique_ptr<WitnessLayer> witness) {
      return runtime::Ref<Layer>(binding.Adopt(std::move(witness)).base());
    };
    std::vector<std::string> servers;
    for (size_t i = 0; i < columns_.size(); ++i) servers.push_back(absl::StrCat("server ", i));
    auto volume = Volume::Make(
        store_,
        {.name = "test",
         .flush_interval = absl::Milliseconds(100),
         .lease = lease_,
         .quiet = quiet_,
         .servers = servers.empty() ? nullptr : std::make_shared<ServerAddresses>(servers)},
        host);
    ASSERT_TRUE(volume.ok()) << volume.status();
    volume_ = binding.Adopt(*std::move(volume));
    runtime::MutexLock lock(mutex_);
    published_ = volume_.rid();
  }
  // Ends an object of a client's, wherever it is.
  void EndObject(const runtime::Rid& rid) {
    const auto at = cluster_->HostOf(rid);
    if (at.has_value()) (*cluster_)[*at].binding().Destroy(rid).IgnoreError();
  }
  void End() {
    // While the node is whole: the volume's threads are in its calls.
    if (volume_) (*cluster_)[server_].binding().Destroy(volume_.rid()).IgnoreError();
    volume_ = runtime::Ref<Volume>();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].ref) EndColumns(i);
    }
    cluster_.reset();
    store_.reset();
    for (Columns& columns : columns_) columns.store.reset();
  }

  struct Columns {
    size_t node = 0;
    std::shared_ptr<ObjectStore> store;
    runtime::Ref<ColumnStore> ref;
    runtime::Rid published;
  };
  const size_t nodes_;
  const absl::Duration lease_, quiet_;
  const std::function<void(runtime::ObjectTypes&)> more_types_;
  const std::function<std::shared_ptr<ObjectStore>()> open_store_;
  const LayerKinds kinds_ = AllKinds();
  MemoryDisk memory_;
  Disk* const disk_;
  std::vector<Disk*> column_disks_;
  std::vector<std::unique_ptr<MemoryDisk>> column_memories_;
  std::vector<Columns> columns_;
  std::shared_ptr<ObjectStore> store_;
  std::unique_ptr<runtime::testing::Cluster> cluster_;
  size_t server_ = kServer;
  runtime::Ref<Volume> volume_;
  runtime::Mutex mutex_;
  runtime::Rid published_ ABSL_GUARDED_BY(mutex_);  // of volume_; none while there is no server
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_FILE_SYSTEM_WORLD_H_
