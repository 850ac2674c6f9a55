#ifndef ABACUS_OBJFS_RAID_TESTING_SHARED_NODES_H_
#define ABACUS_OBJFS_RAID_TESTING_SHARED_NODES_H_

// A file's columns, each with a store and its log of groups, on a node of servers; and two nodes of
// clients that use them at once. Threads, sockets and clocks are the real ones.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/commit_link.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/raid5_manager.h"
#include "objfs/raid/shared_columns.h"
#include "objfs/raid/shared_stripes.h"
#include "objfs/raid/striping.h"
#include "objfs/raid/testing/stored_stripes.h"
#include "objfs/storage/storage_layer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/memory_disk.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs::testing {

struct NodeControl {
  std::atomic<bool> dead{false};      // it does not answer
  std::atomic<bool> damaged{false};   // nothing can be read
  std::atomic<bool> shut_out{false};  // it was opened for somebody else
  std::atomic<uint64_t> reads{0};
};

class NodeColumn final : public ProbeLayer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"node-column", "test.NodeColumn", {}, 1, 1, true};
  explicit NodeColumn(std::shared_ptr<NodeControl> control) : control_(std::move(control)) {}
  ABACUS_LAYER(NodeColumn, 1)

 private:
  absl::Status Before(const Seen& seen) override {
    if (control_->dead) return absl::UnavailableError("the test has this column dead");
    if (control_->shut_out) return absl::UnauthenticatedError("opened for somebody else");
    if (seen.call != LayerCall::kRead) return absl::OkStatus();
    ++control_->reads;
    return control_->damaged ? absl::DataLossError("a block is damaged") : absl::OkStatus();
  }
  const std::shared_ptr<NodeControl> control_;
};

class SharedNodes {
 public:
  static constexpr size_t kServers = 2;  // the node; 0 and 1 are clients
  static constexpr ObjectId kFile = 7;
  static constexpr uint32_t kFirstServer = 40;

  SharedNodes(size_t columns, uint64_t unit_bytes)
      : striping_(*Striping::Make(columns, unit_bytes)) {
    runtime::testing::ClusterOptions options;
    options.nodes = 3;
    options.types = [this](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<CommitLog>().Add<StorageLayer>().Add<NodeColumn>();
      types.Add<Raid5Layer>([this] {
        return std::make_unique<Raid5Manager>([this](uint64_t bytes) { parity_bytes_ += bytes; });
      });
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
    for (size_t i = 0; i < columns; ++i) Make(i);
  }
  ~SharedNodes() {
    {
      runtime::MutexLock lock(mutex_);
      published_.clear();
    }
    // They call through the nodes until they have ended.
    for (const auto& log : logs_) {
      (*cluster_)[kServers].binding().Destroy(log.rid()).IgnoreError();
    }
    logs_.clear();
    columns_.clear();
    storages_.clear();
    cluster_.reset();
  }

  const Striping& striping() const { return striping_; }
  runtime::testing::Cluster& cluster() { return *cluster_; }
  NodeControl& control(size_t column) { return *controls_[column]; }
  ObjectStore& store(size_t column) { return *stores_[column]; }
  uint64_t parity_bytes() const { return parity_bytes_; }
  Version Now() { return Version::Of(++ticks_, 1); }
  uint64_t reads() const {
    uint64_t sum = 0;
    for (const auto& control : controls_) sum += control->reads;
    return sum;
  }
  // Groups that the servers have written, each counted at each of its servers.
  uint64_t Applied() {
    uint64_t sum = 0;
    for (const auto& log : logs_) sum += log->Counts()->applied;
    return sum;
  }
  // Until what was in doubt is decided.
  [[nodiscard]] bool NothingIsPending() {
    return runtime::testing::Eventually([this] {
      uint64_t pending = 0;
      for (const auto& log : logs_) pending += log->Counts()->pending;
      return pending == 0;
    });
  }
  // Those of before are shut out.
  void OpenAnew() { ++opening_; }

  std::vector<runtime::Ref<Layer>> Columns(size_t node) {
    std::vector<runtime::Ref<Layer>> columns;
    for (const auto& column : columns_) {
      columns.push_back((*cluster_)[node].RefTo<Layer>(column.rid()));
    }
    return columns;
  }
  SharedColumns Share(size_t node, uint16_t writer, uint64_t size) {
    SharedColumns shared;
    shared.columns = Columns(node);
    for (size_t i = 0; i < logs_.size(); ++i) {
      shared.logs.push_back((*cluster_)[node].RefTo<CommitLog>(logs_[i].rid()));
      shared.servers.push_back(kFirstServer + static_cast<uint32_t>(i));
    }
    shared.id = kFile;
    shared.opening = Version{opening_};
    shared.writer = writer;
    shared.size = size;
    return shared;
  }
  std::unique_ptr<SharedStripes> Stripes(size_t node, uint16_t writer, uint64_t size) {
    SharedColumns shared = Share(node, writer, size);
    EXPECT_TRUE(SharedStripes::Check(striping_, shared).ok());
    auto host = SharedStripes::HostOf(shared);
    return std::make_unique<SharedStripes>(striping_, std::move(shared), ParityWork(),
                                           std::move(host));
  }
  runtime::Ref<Raid5Layer> Raid(size_t node) {
    const std::vector<std::pair<std::string, std::string>> options = {
        {"unit", std::to_string(striping_.unit_bytes() >> 10) + " KiB"}};
    return cluster_->Create<Raid5Layer>(node, Columns(node), options);
  }

  // What the stores have of the stripes of a file of that size.
  std::vector<std::string> Stored(uint64_t size) {
    std::vector<std::string> columns;
    for (const auto& store : stores_) {
      columns.push_back(
          StoredBytes(*store, kFile, striping_.ColumnOffsetOf(striping_.Stripes(size))));
    }
    return columns;
  }
  // Parity is right, the file is `model`, and behind its end there are zeros.
  void ExpectStored(const std::string& model) {
    const std::vector<std::string> columns = Stored(model.size());
    ASSERT_NO_FATAL_FAILURE(ExpectParityOf(striping_, columns));
    const std::string file = FileOf(striping_, columns);
    ASSERT_TRUE(file.compare(0, model.size(), model) == 0);
    ASSERT_EQ(file.find_first_not_of('\0', model.size()), std::string::npos);
  }

 private:
  void Make(size_t i) {
    disks_.push_back(std::make_shared<MemoryDisk>());
    auto store = LocalObjectStore::Open(*disks_[i], {});
    ASSERT_TRUE(store.ok()) << store.status();
    stores_.push_back(*std::move(store));
    ASSERT_TRUE(stores_[i]->CreateAs(kFile, "", 1).ok());
    ASSERT_TRUE(stores_[i]->Flush(kFile).ok());
    auto& binding = (*cluster_)[kServers].binding();
    storages_.push_back(binding.Adopt(std::make_unique<StorageLayer>(stores_[i], kFile)));
    controls_.push_back(std::make_shared<NodeControl>());
    auto column = std::make_unique<NodeColumn>(controls_[i]);
    ASSERT_TRUE(column->Init({runtime::Ref<Layer>(storages_[i].base())}, {}).ok());
    columns_.push_back(binding.Adopt(std::move(column)));
    CommitLog::Options options;
    options.server = kFirstServer + i;
    options.commit = ColumnGroupOptions();
    options.resolve_every = absl::Milliseconds(50);
    CommitLog::Host host;
    host.steady_ns = [] {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::steady_clock::now().time_since_epoch())
          .count();
    };
    host.now_us = [] { return absl::ToUnixMicros(absl::Now()); };
    host.peers = PeersThrough([this](uint64_t server) { return LogOf(server); });
    host.enter = [this](const GroupPart& part) -> absl::StatusOr<std::shared_ptr<const void>> {
      for (const GroupFence& fence : part.fences) {
        if (fence.id == kFile && fence.opening == Version{opening_}) continue;
        return absl::UnauthenticatedError("the column was opened for somebody else");
      }
      return std::shared_ptr<const void>();
    };
    auto log = CommitLog::Open(disks_[i], stores_[i], options, std::move(host));
    ASSERT_TRUE(log.ok()) << log.status();
    logs_.push_back(binding.Adopt(*std::move(log)));
    runtime::MutexLock lock(mutex_);
    published_.push_back(logs_[i].rid());
  }
  absl::StatusOr<runtime::Ref<CommitLog>> LogOf(uint64_t server) {
    runtime::MutexLock lock(mutex_);
    const uint64_t i = server - kFirstServer;
    if (i >= published_.size()) return absl::UnavailableError("it is not there yet, or any more");
    return (*cluster_)[kServers].RefTo<CommitLog>(published_[i]);
  }

  const Striping striping_;
  std::atomic<uint64_t> opening_{5}, ticks_{0}, parity_bytes_{0};
  std::unique_ptr<runtime::testing::Cluster> cluster_;
  std::vector<std::shared_ptr<MemoryDisk>> disks_;
  std::vector<std::shared_ptr<ObjectStore>> stores_;
  std::vector<std::shared_ptr<NodeControl>> controls_;
  std::vector<runtime::Ref<StorageLayer>> storages_;
  std::vector<runtime::Ref<NodeColumn>> columns_;
  std::vector<runtime::Ref<CommitLog>> logs_;
  runtime::Mutex mutex_;
  std::vector<runtime::Rid> published_ ABSL_GUARDED_BY(mutex_);  // of the logs
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_SHARED_NODES_H_
