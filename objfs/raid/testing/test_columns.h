#ifndef ABACUS_OBJFS_RAID_TESTING_TEST_COLUMNS_H_
#define ABACUS_OBJFS_RAID_TESTING_TEST_COLUMNS_H_

// Columns for tests: a store each, on a disk with a power switch, behind a switch and counters.

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/raid/mirror_layer.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/raid5_manager.h"
#include "objfs/spread/column_store.h"
#include "objfs/spread/fenced_record.h"
#include "objfs/storage/storage_layer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "runtime/base/status.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs::testing {

struct ColumnSwitch {
  // Asked before each call that changes or flushes something; what is not OK is the call's answer.
  using Hook = std::function<absl::Status(LayerCall)>;

  std::atomic<bool> dead{false};
  std::atomic<int64_t> read_ns{0};  // that each read takes longer
  std::atomic<uint64_t> reads{0}, writes{0}, read_bytes{0}, written_bytes{0}, flushes{0};
  std::atomic<uint64_t> read_calls{0};           // of several reads each, ReadRanges()
  std::atomic<uint64_t> staged{0};               // writes to slots, which are not among `writes`
  std::atomic<uint64_t> records{0};              // changes of the column's attributes
  std::atomic<int> reading{0}, reading_most{0};  // reads that take longer: now, and at most

  void BeforeChange(Hook hook) {
    runtime::MutexLock lock(mutex);
    before_change = std::make_shared<Hook>(std::move(hook));
  }
  void Stall(int64_t ns) {
    const int now = ++reading;
    for (int most = reading_most; most < now && !reading_most.compare_exchange_weak(most, now);) {
    }
    absl::SleepFor(absl::Nanoseconds(ns));
    --reading;
  }
  // Asked before its attributes are read, likewise.
  void BeforeLook(Hook hook) {
    runtime::MutexLock lock(mutex);
    before_look = std::make_shared<Hook>(std::move(hook));
  }
  // Asked before each call of the column's store to its disk (DiskModel::fault).
  using DiskHook = std::function<absl::Status(std::string_view call, const std::string& path)>;
  void OnDisk(DiskHook hook) {
    runtime::MutexLock lock(mutex);
    on_disk = std::make_shared<DiskHook>(std::move(hook));
  }
  absl::Status AskDisk(std::string_view call, const std::string& path) {
    std::shared_ptr<DiskHook> hook;
    {
      runtime::MutexLock lock(mutex);
      hook = on_disk;
    }
    return hook != nullptr && *hook ? (*hook)(call, path) : absl::OkStatus();
  }

  absl::Status Ask(LayerCall call) {
    std::shared_ptr<Hook> hook;
    {
      runtime::MutexLock lock(mutex);
      hook = call == LayerCall::kGetAttributes ? before_look : before_change;
    }
    return hook != nullptr && *hook ? (*hook)(call) : absl::OkStatus();
  }

  runtime::Mutex mutex;
  std::shared_ptr<Hook> before_change ABSL_GUARDED_BY(mutex), before_look ABSL_GUARDED_BY(mutex);
  std::shared_ptr<DiskHook> on_disk ABSL_GUARDED_BY(mutex);
};

class TestColumn final : public ProbeLayer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"test-column", "test.Column", {}, 1, 1, true};
  explicit TestColumn(std::shared_ptr<ColumnSwitch> control) : control_(std::move(control)) {}
  absl::StatusOr<std::vector<ReadResult>> ReadRanges(const std::vector<Range>& ranges,
                                                     Version now) override {
    ++control_->read_calls;
    return ProbeLayer::ReadRanges(ranges, now);
  }
  ABACUS_LAYER(TestColumn, 1)

 private:
  absl::Status Before(const Seen& seen) override {
    if (control_->dead) return absl::UnavailableError("the test has this column dead");
    switch (seen.call) {
      case LayerCall::kRead:
        ++control_->reads;
        if (const int64_t ns = control_->read_ns; ns > 0) control_->Stall(ns);
        control_->read_bytes += seen.range.bytes;
        break;
      case LayerCall::kWrite:
        if (seen.range.offset >= Raid5Layer::kStageAt) {
          ++control_->staged;
        } else {
          ++control_->writes;
          control_->written_bytes += seen.range.bytes;
        }
        [[fallthrough]];
      case LayerCall::kTruncate:
      case LayerCall::kPunch:
        return control_->Ask(seen.call);
      case LayerCall::kFlush:
        ++control_->flushes;
        return control_->Ask(seen.call);
      case LayerCall::kSetInode:
        ++control_->records;
        return control_->Ask(seen.call);
      case LayerCall::kGetAttributes:
        return control_->Ask(seen.call);
      default:
        break;
    }
    return absl::OkStatus();
  }
  const std::shared_ptr<ColumnSwitch> control_;
};

// What it is told is durable when it answers, as the inode at a volume's first server is.
class TestWitness final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"test-witness", "test.Witness", {}, 1, 1, true};
  explicit TestWitness(std::shared_ptr<std::atomic<uint64_t>> size) : size_(std::move(size)) {}

  absl::Status SetInode(const std::string& inode, Version now) override {
    ABACUS_RETURN_IF_ERROR(below()->SetInode(inode, now));
    return below()->Flush(now);
  }
  absl::StatusOr<Attributes> GetAttributes(Version now) override {
    absl::StatusOr<Attributes> attributes = below()->GetAttributes(now);
    if (attributes.ok()) attributes->size = *size_;
    return attributes;
  }
  ABACUS_LAYER(TestWitness, 1)

 private:
  const std::shared_ptr<std::atomic<uint64_t>> size_;
};

// Columns of a file under layer L, and, behind the last of them, a witness, as `count()`-th.
template <typename L>
class TestColumnsOf {
 public:
  // `more`: options of the layer, beside its unit.
  TestColumnsOf(size_t columns, std::string unit,
                std::vector<std::pair<std::string, std::string>> more = {})
      : count_(columns), options_(std::move(more)) {
    options_.emplace_back("unit", std::move(unit));
    for (size_t i = 0; i <= columns; ++i) {
      disks_.push_back(std::make_unique<PowerCutDisk>());
      switches_.push_back(std::make_shared<ColumnSwitch>());
      failing_.push_back(std::make_unique<ModelDisk>(
          *disks_[i], DiskModel{.fault = [asked = switches_[i]](std::string_view call,
                                                                const std::string& path) {
            return asked->AskDisk(call, path);
          }}));
      ids_.push_back(0);
      stores_.push_back(nullptr);
    }
    Start();
  }
  ~TestColumnsOf() { Stop(); }

  // A new raid5 object over the columns; what was not flushed by the old one may be lost.
  void Restart() {
    Stop();
    Start();
  }
  void Stop() {
    raid_ = runtime::Ref<L>();
    top_ = runtime::Ref<Layer>();
    below_.clear();
    witness_ = runtime::Ref<Layer>();
    cluster_.reset();
    for (auto& store : stores_) store.reset();
  }
  void Start() {
    runtime::testing::ClusterOptions options;
    options.nodes = 2;
    options.types = [this](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      AddLayer(types);
      types.Add<StorageLayer>().Add<ColumnLayer>().Add<TestColumn>();
      types.Add<TestWitness>();
      types.Add<CacheLayer>([] { return std::make_unique<CacheManager>(uint64_t{16} << 20); });
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
    auto& binding = (*cluster_)[1].binding();
    const Version opening = Now();
    below_.clear();
    for (size_t i = 0; i <= count(); ++i) {
      auto store = LocalObjectStore::Open(*failing_[i], {});
      ASSERT_TRUE(store.ok()) << store.status();
      stores_[i] = *std::move(store);
      if (ids_[i] == 0) {
        const auto id = stores_[i]->Create("", Now().value);
        ASSERT_TRUE(id.ok()) << id.status();
        ASSERT_TRUE(stores_[i]->Flush(*id).ok());
        ids_[i] = *id;
      }
      auto column = std::make_unique<TestColumn>(switches_[i]);
      ASSERT_TRUE(column->Init({Below(binding, i, opening)}, {}).ok());
      const runtime::Ref<Layer> there(binding.Adopt(std::move(column)).base());
      if (i < count()) {
        below_.push_back((*cluster_)[0].template RefTo<Layer>(there.rid()));
        continue;
      }
      auto told = std::make_unique<TestWitness>(size_elsewhere_);
      ASSERT_TRUE(told->Init({there}, {}).ok());
      witness_ = (*cluster_)[0].template RefTo<Layer>(binding.Adopt(std::move(told)).rid());
    }
    raid_ = cluster_->template Create<L>(0, below_, options_);
    ASSERT_TRUE(raid_->TakeColumns(below_, witness_).ok());
    top_ = runtime::Ref<Layer>(raid_.base());
  }

  void AddLayer(runtime::ObjectTypes& types) {
    if constexpr (std::is_same_v<L, MirrorLayer>) {
      types.Add<L>([] { return std::make_unique<MirrorManager>(); });
    } else {
      types.Add<L>([this] {
        return std::make_unique<Raid5Manager>([this](uint64_t bytes) { parity_bytes_ += bytes; });
      });
    }
  }
  // An empty object takes the place of the column's.
  void Replace(size_t column) {
    ids_[column] = 0;
    Restart();
  }
  void Move() {
    const auto host = cluster_->HostOf(top_.rid());
    ASSERT_TRUE(host.has_value());
    const auto moved = cluster_->Move(top_.rid(), *host, 1 - *host);
    ASSERT_TRUE(moved.ok() && moved->status.ok());
  }

  // A cache over the layer; until Restart().
  runtime::Ref<Layer> CacheAbove() {
    const std::vector<runtime::Ref<Layer>> below = {top_};
    const std::vector<std::pair<std::string, std::string>> none;
    return runtime::Ref<Layer>(cluster_->template Create<CacheLayer>(0, below, none).base());
  }

  const runtime::Ref<Layer>& top() const { return top_; }
  const runtime::Ref<L>& raid() const { return raid_; }
  const std::vector<runtime::Ref<Layer>>& below() const { return below_; }
  const runtime::Ref<Layer>& witness() const { return witness_; }
  // What others believe the file's size to be.
  void SetSizeElsewhere(uint64_t size) { *size_elsewhere_ = size; }
  // Which columns the witness has as not current.
  std::set<size_t> Lacking() {
    const auto kept = stores_[count_]->GetAttributes(ids_[count_]);
    const auto lacking = LackingOf(kept.ok() ? kept->blob : "damaged", count_);
    EXPECT_TRUE(lacking.ok()) << lacking.status();
    return lacking.value_or(std::set<size_t>());
  }
  absl::StatusOr<ColumnRecord> RecordOf(size_t column) {
    ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes kept,
                            stores_[column]->GetAttributes(ids_[column]));
    ABACUS_ASSIGN_OR_RETURN(const FencedRecord fenced, FencedRecord::Decode(kept.blob));
    return ColumnRecord::Decode(fenced.record);
  }
  size_t count() const { return count_; }
  PowerCutDisk& disk(size_t column) { return *disks_[column]; }
  ColumnSwitch& column(size_t column) { return *switches_[column]; }
  ObjectStore& store(size_t column) { return *stores_[column]; }
  ObjectId id(size_t column) const { return ids_[column]; }
  Version Now() { return Version::Of(++ticks_, 1); }
  // What the raid5 object's XORs took in.
  uint64_t parity_bytes() const { return parity_bytes_; }
  void ResetCounters() {
    for (auto& one : switches_) {
      one->reads = one->writes = one->read_bytes = one->written_bytes = 0;
      one->flushes = one->records = one->staged = one->read_calls = 0;
    }
  }
  uint64_t Sum(std::atomic<uint64_t> ColumnSwitch::*counter) const {
    uint64_t sum = 0;
    for (const auto& one : switches_) sum += (*one).*counter;
    return sum;
  }
  // Rebuilds until nothing is left.
  absl::StatusOr<RebuildProgress> RebuildAll(uint64_t step = 6) {
    uint64_t from = 0;
    for (int i = 0; i < 100000; ++i) {
      absl::StatusOr<RebuildProgress> progress = raid_->Rebuild(from, step, Now());
      if (!progress.ok() || progress->left == 0) return progress;
      from = progress->next;
    }
    return absl::InternalError("the rebuild does not end");
  }

 private:
  // As servers open columns; each Start() is an opening.
  runtime::Ref<Layer> Below(runtime::BindingManager& binding, size_t i, Version opening) {
    if (i == count()) {
      return runtime::Ref<Layer>(
          binding.Adopt(std::make_unique<StorageLayer>(stores_[i], ids_[i])).base());
    }
    auto fence = std::make_shared<ColumnFence>();
    EXPECT_TRUE(fence->Raise(opening).ok());
    return runtime::Ref<Layer>(
        binding
            .Adopt(std::make_unique<ColumnLayer>(stores_[i], ids_[i], std::move(fence), opening,
                                                 std::make_shared<ColumnWatches>()))
            .base());
  }

  const size_t count_;
  std::vector<std::pair<std::string, std::string>> options_;
  const std::shared_ptr<std::atomic<uint64_t>> size_elsewhere_ =
      std::make_shared<std::atomic<uint64_t>>(0);
  std::vector<std::unique_ptr<PowerCutDisk>> disks_;
  std::vector<std::shared_ptr<ColumnSwitch>> switches_;
  std::vector<std::unique_ptr<ModelDisk>> failing_;
  std::vector<std::shared_ptr<ObjectStore>> stores_;
  std::vector<ObjectId> ids_;
  std::atomic<uint64_t> parity_bytes_{0};
  std::unique_ptr<runtime::testing::Cluster> cluster_;
  std::vector<runtime::Ref<Layer>> below_;
  runtime::Ref<Layer> witness_;
  runtime::Ref<L> raid_;
  runtime::Ref<Layer> top_;
  uint64_t ticks_ = 0;
};
using TestColumns = TestColumnsOf<Raid5Layer>;
using TestCopies = TestColumnsOf<MirrorLayer>;

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_TEST_COLUMNS_H_
