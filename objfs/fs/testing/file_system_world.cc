#include "objfs/fs/testing/file_system_world.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/commit_link.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/directory/directory.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/raid/mirror_layer.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/shared_columns.h"
#include "objfs/spread/spread_layer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/shard.h"
#include "runtime/object/manager.h"

namespace abacus::objfs::testing {

namespace {

// Makes layers that go by the world's clock.
class SpreadManager final : public runtime::ObjectManager {
 public:
  explicit SpreadManager(const std::atomic<int64_t>* now_ns) : now_ns_(now_ns) {}
  absl::StatusOr<std::unique_ptr<runtime::MobileObject>> CreateObj(const runtime::ClassInfo&,
                                                                   size_t) override {
    return std::make_unique<SpreadLayer>([now_ns = now_ns_] { return now_ns->load(); });
  }

 private:
  const std::atomic<int64_t>* const now_ns_;
};

}  // namespace

LayerKinds AllKinds() {
  LayerKinds kinds;
  kinds.Add<CacheLayer>().Add<ErrorLayer>().Add<DelayLayer>().Add<StatisticsLayer>();
  kinds.Add<Raid5Layer>().Add<MirrorLayer>().Add<IsolationLayer>().Add<StorageLayer>();
  return kinds;
}

FileSystemWorld::FileSystemWorld(size_t nodes, Disk* disk, std::function<int64_t()> steady_clock_ns,
                                 absl::Duration lease, absl::Duration quiet,
                                 std::function<void(runtime::ObjectTypes&)> more_types,
                                 size_t column_servers, std::vector<Disk*> column_disks,
                                 WorldParts parts)
    : steady_ns(std::move(steady_clock_ns)),
      nodes_(nodes),
      lease_(lease),
      quiet_(quiet),
      more_types_(std::move(more_types)),
      parts_(std::move(parts)),
      column_disks_(std::move(column_disks)),
      column_memories_(column_servers),
      columns_(column_servers) {
  column_disks_.resize(column_servers);
  TakeDisks({disk});
  Begin();
}

FileSystemWorld::FileSystemWorld(size_t nodes, const ShardsOptions& shards,
                                 std::function<int64_t()> steady_clock_ns, absl::Duration quiet)
    : steady_ns(std::move(steady_clock_ns)),
      nodes_(nodes),
      lease_(absl::Seconds(30)),
      quiet_(quiet),
      faults_(shards.faults),
      volume_number_(shards.volume) {
  std::vector<Disk*> disks = shards.disks;
  disks.resize(shards.count);
  TakeDisks(disks);
  Begin();
}

FileSystemWorld::~FileSystemWorld() { End(); }

void FileSystemWorld::LoseServer(size_t shard) {
  Server& server = servers_[shard];
  {
    runtime::MutexLock lock(mutex_);
    server.published = runtime::Rid();
  }
  (*cluster_)[server.node].binding().Destroy(server.volume.rid()).IgnoreError();
  server.volume = runtime::Ref<Volume>();
  cluster_->Kill(server.node);
  server.store.reset();
}

void FileSystemWorld::StartServer(size_t node, size_t shard) {
  servers_[shard].node = node;
  BeginVolume(shard);
}

void FileSystemWorld::LoseColumns(size_t i) {
  const size_t node = columns_[i].node;
  EndColumns(i);
  cluster_->Kill(node);
  columns_[i].store.reset();
}

void FileSystemWorld::StartColumns(size_t i, size_t node, bool is_empty) {
  if (is_empty) MakeColumnDisk(i);
  BeginColumns(i, node);
}

bool FileSystemWorld::IsServing(size_t i) {
  runtime::MutexLock lock(mutex_);
  return !(columns_[i].published == runtime::Rid());
}

std::unique_ptr<FileSystem> FileSystemWorld::Client(size_t node, const std::string& file_stack) {
  auto made = TryClient(node, file_stack);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

absl::StatusOr<std::unique_ptr<FileSystem>> FileSystemWorld::TryClient(
    size_t node, const std::string& file_stack) {
  runtime::BindingManager& binding = (*cluster_)[node].binding();
  FileSystem::Host host;
  host.layers.make = [this, node, &binding](
                         const LayerKind& kind, const std::vector<runtime::Ref<Layer>>& below,
                         const std::vector<std::pair<std::string, std::string>>& options,
                         size_t) -> absl::StatusOr<runtime::Ref<Layer>> {
    auto made =
        binding.CreateObject(kind.class_name, runtime::internal::EncodeInit<Layer>(below, options));
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
  host.find_volume = [this, &binding](const std::string& name) {
    return VolumeOf(PlaceOfShard(name).shard, binding);
  };
  host.steady_ns = steady_ns;
  host.now_us = [this] {
    return wall_ahead_us + std::chrono::duration_cast<std::chrono::microseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  };
  if (change_host) change_host(node, host);
  return FileSystem::Make((*cluster_)[node].RefTo<Volume>(servers_[0].volume.rid()), kinds_, host,
                          {.client = absl::StrCat("client ", node),
                           .file_stack = file_stack,
                           .usual_file_stack = usual_file_stack});
}

void FileSystemWorld::Begin() {
  runtime::testing::ClusterOptions options;
  options.nodes = nodes_;
  options.faults = faults_;
  options.around = parts_.around;
  options.types = [this](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    if (more_types_) more_types_(types);
    types.Add<Volume>().Add<IsolationLayer>().Add<StorageLayer>();
    types.Add<Directory>([] { return std::make_unique<DirectoryManager>(); });
    types.Add<ClientEnd>().Add<LockClient>();
    types.Add<ErrorLayer>().Add<DelayLayer>().Add<StatisticsLayer>();
    types.Add<ColumnStore>().Add<ColumnLayer>().Add<AbsentColumn>();
    types.Add<Raid5Layer>().Add<WitnessLayer>().Add<CommitLog>();
    types.Add<SpreadLayer>([this] { return std::make_unique<SpreadManager>(&spread_ns); });
    types.Add<MirrorLayer>([] { return std::make_unique<MirrorManager>(); });
    types.Add<CacheLayer>([] { return std::make_unique<CacheManager>(1 << 20); });
  };
  cluster_ = std::make_unique<runtime::testing::Cluster>(options);
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (column_disks_[i] == nullptr) MakeColumnDisk(i);
    BeginColumns(i, i == 0 ? kServer : nodes_ - columns_.size() + i);
  }
  {
    runtime::MutexLock lock(mutex_);
    begins_ = true;
  }
  for (size_t shard = 0; shard < servers_.size(); ++shard) {
    servers_[shard].node = kServer + shard;
    BeginVolume(shard);
  }
  runtime::MutexLock lock(mutex_);
  begins_ = false;
  changed_.SignalAll();
}

void FileSystemWorld::TakeDisks(const std::vector<Disk*>& disks) {
  for (Disk* const disk : disks) {
    Server& server = servers_.emplace_back();
    server.disk = disk;
    if (disk != nullptr) continue;
    memories_.push_back(std::make_unique<MemoryDisk>());
    server.disk = memories_.back().get();
  }
}

void FileSystemWorld::MakeColumnDisk(size_t i) {
  column_memories_[i] = std::make_unique<MemoryDisk>();
  column_disks_[i] = column_memories_[i].get();
}

void FileSystemWorld::BeginColumns(size_t i, size_t node) {
  auto store = LocalObjectStore::Open(*column_disks_[i], {});
  ASSERT_TRUE(store.ok()) << store.status();
  columns_[i].store = *std::move(store);
  columns_[i].node = node;
  runtime::BindingManager& binding = (*cluster_)[node].binding();
  auto columns = std::make_unique<ColumnStore>(
      columns_[i].store,
      ColumnStore::Host{.adopt =
                            [&binding](std::unique_ptr<ColumnLayer> layer) {
                              return runtime::Ref<Layer>(binding.Adopt(std::move(layer)).base());
                            },
                        .end =
                            [&binding](const runtime::Ref<Layer>& layer) {
                              binding.Destroy(layer.rid()).IgnoreError();
                            }});
  BeginLog(i, columns.get());
  columns_[i].ref = binding.Adopt(std::move(columns));
  runtime::MutexLock lock(mutex_);
  columns_[i].published = columns_[i].ref.rid();
}

void FileSystemWorld::BeginLog(size_t i, ColumnStore* columns) {
  runtime::BindingManager& binding = (*cluster_)[columns_[i].node].binding();
  CommitLog::Options options;
  options.server = i;
  options.commit = ColumnGroupOptions();
  options.half_bytes = uint64_t{1} << 20;
  CommitLog::Host host;
  host.steady_ns = [] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return int64_t{std::chrono::nanoseconds(now).count()};
  };
  host.now_us = [] {
    return int64_t{std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count()};
  };
  host.peers = PeersThrough([this, &binding](uint64_t server) { return LogOf(server, binding); });
  columns->AddHooks(&host);
  // The disk is the world's, or the test's.
  auto log = CommitLog::Open(std::shared_ptr<Disk>(std::shared_ptr<Disk>(), column_disks_[i]),
                             columns_[i].store, options, std::move(host));
  ASSERT_TRUE(log.ok()) << log.status();
  columns_[i].log = log->get();
  columns_[i].log_ref = binding.Adopt(*std::move(log));
  columns->TakeLog(columns_[i].log_ref);
  runtime::MutexLock lock(mutex_);
  columns_[i].published_log = columns_[i].log_ref.rid();
}

absl::StatusOr<runtime::Ref<CommitLog>> FileSystemWorld::LogOf(uint64_t server,
                                                               runtime::BindingManager& binding) {
  runtime::MutexLock lock(mutex_);
  const bool is_there =
      server < columns_.size() && !(columns_[server].published_log == runtime::Rid());
  if (!is_there) return absl::UnavailableError("there is no such server now");
  return binding.RefTo<CommitLog>(columns_[server].published_log);
}

void FileSystemWorld::EndColumns(size_t i) {
  {
    runtime::MutexLock lock(mutex_);
    columns_[i].published = columns_[i].published_log = runtime::Rid();
  }
  runtime::BindingManager& binding = (*cluster_)[columns_[i].node].binding();
  binding.Destroy(columns_[i].ref.rid()).IgnoreError();
  columns_[i].ref = runtime::Ref<ColumnStore>();
  // Where it did not begin there is none.
  if (columns_[i].log == nullptr) return;
  // Others may still be in calls of it when the next one opens the same file.
  std::exchange(columns_[i].log, nullptr)->Stop();
  binding.Destroy(columns_[i].log_ref.rid()).IgnoreError();
  columns_[i].log_ref = runtime::Ref<CommitLog>();
}

// Shards that begin together ask each other at once for what became of their transactions: who asks
// one that is not there yet waits for it, or it would ask again half a second later.
absl::StatusOr<runtime::Ref<Volume>> FileSystemWorld::VolumeOf(size_t shard,
                                                               runtime::BindingManager& binding) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  runtime::MutexLock lock(mutex_);
  const auto is_there = [&] {
    return shard < servers_.size() && !(servers_[shard].published == runtime::Rid());
  };
  while (begins_ && !is_there() && changed_.WaitUntil(mutex_, until)) {
  }
  if (!is_there()) return absl::UnavailableError("there is no server now");
  return binding.RefTo<Volume>(servers_[shard].published);
}

Volume::Host FileSystemWorld::VolumeHost(size_t node) {
  runtime::BindingManager& binding = (*cluster_)[node].binding();
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
  host.find_columns = [this, &binding](size_t server) -> absl::StatusOr<runtime::Ref<ColumnStore>> {
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
  if (servers_.size() > 1) {
    host.find_shard = [this, &binding](uint32_t shard) { return VolumeOf(shard, binding); };
  }
  return host;
}

void FileSystemWorld::BeginVolume(size_t shard) {
  Server& server = servers_[shard];
  const auto number = static_cast<uint32_t>(shard), shards = static_cast<uint32_t>(servers_.size());
  if (parts_.open_store) {
    server.store = parts_.open_store();
  } else {
    auto store = LocalObjectStore::Open(
        *server.disk, {.quota_bytes = quota_bytes, .ids_begin = FirstIdOf(number, 1)});
    ASSERT_TRUE(store.ok()) << store.status();
    server.store = *std::move(store);
  }
  bool is_new_shard = false;
  if (shards > 1) {
    const auto objects = server.store->List(0, 1);
    ASSERT_TRUE(objects.ok()) << objects.status();
    is_new_shard = objects->empty();
  }
  std::vector<std::string> servers;
  for (size_t i = 0; i < columns_.size(); ++i) servers.push_back(absl::StrCat("server ", i));
  auto volume = Volume::Make(
      server.store,
      {.name = ShardName("test", number),
       .flush_interval = absl::Milliseconds(100),
       .lease = lease_,
       .quiet = quiet_,
       .servers = servers.empty() ? nullptr : std::make_shared<ServerAddresses>(servers),
       .epoch = parts_.epoch ? parts_.epoch() : 0},
      VolumeHost(server.node));
  ASSERT_TRUE(volume.ok()) << volume.status();
  if (is_new_shard) {
    const absl::Status became = (*volume)->BecomeShard(shards, volume_number_);
    ASSERT_TRUE(became.ok()) << became;
  }
  ASSERT_EQ((*volume)->Shards().value_or(0), shards);
  server.volume = (*cluster_)[server.node].binding().Adopt(*std::move(volume));
  runtime::MutexLock lock(mutex_);
  server.published = server.volume.rid();
  changed_.SignalAll();
}

void FileSystemWorld::EndObject(const runtime::Rid& rid) {
  const auto at = cluster_->HostOf(rid);
  if (at.has_value()) (*cluster_)[*at].binding().Destroy(rid).IgnoreError();
}

void FileSystemWorld::End() {
  // While the node is whole: the volume's threads are in its calls.
  for (Server& server : servers_) {
    if (server.volume) {
      (*cluster_)[server.node].binding().Destroy(server.volume.rid()).IgnoreError();
    }
    server.volume = runtime::Ref<Volume>();
    runtime::MutexLock lock(mutex_);
    server.published = runtime::Rid();
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].ref) EndColumns(i);
  }
  cluster_.reset();
  for (Server& server : servers_) server.store.reset();
  for (Columns& columns : columns_) columns.store.reset();
}

}  // namespace abacus::objfs::testing
