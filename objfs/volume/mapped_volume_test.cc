// A server's part of a volume with a map, with faked neighbours.

#include "objfs/volume/mapped_volume.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/map/testing/fake_map.h"
#include "objfs/replica/replica_record.h"
#include "objfs/replica/replica_store.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/names.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::MutexLock;
using runtime::Ref;
using runtime::testing::Eventually;
using testing::FakeMap;

runtime::testing::ClusterOptions OneNodeOfCopies() {
  runtime::testing::ClusterOptions options;
  options.nodes = 1;
  options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
    types.Add<ReplicaStore>();
  };
  return options;
}

class MappedVolumeTest : public ::testing::Test {
 protected:
  // The other place has a current copy.
  MappedVolumeTest() {
    std::filesystem::remove(row_path_);
    MutexLock lock(map_->mutex);
    map_->row = {.key = 1,
                 .epoch = 1,
                 .primary = 0,
                 .servers = {"a:1", "b:1"},
                 .copies = {{0, true}, {1, true}}};
  }
  ~MappedVolumeTest() override { std::filesystem::remove(row_path_); }
  void Begin() {
    MappedVolume::Host host;
    host.memory = std::make_shared<RowMemory>(row_path_, 1);
    host.open_store = [this](uint64_t epoch) -> absl::StatusOr<std::shared_ptr<LocalObjectStore>> {
      const auto remembered = RememberedRow::Load(row_path_);
      if (!remembered.ok() || !remembered->has_value() || (*remembered)->row.epoch != epoch) {
        opened_too_early_ = true;
      }
      ABACUS_ASSIGN_OR_RETURN(auto store, OpenPrimaryStore(disk_, epoch, {}));
      return std::shared_ptr<LocalObjectStore>(std::move(store));
    };
    host.stays_out = stays_out_;
    host.reads_tables = reads_tables_;
    host.asks_copy = asks_copy_;
    host.check_store = [this](const std::function<bool()>& reads_on) {
      return check_ ? check_(reads_on) : CheckPrimaryStore(disk_, {}, reads_on);
    };
    host.open_copy = [this]() -> absl::StatusOr<std::unique_ptr<ReplicaStore>> {
      if (!opens_copy_) return absl::UnavailableError("no copy here");
      return ReplicaStore::Open(std::shared_ptr<Disk>(std::shared_ptr<Disk>(), &disk_), {});
    };
    host.adopt_copy = [this](std::unique_ptr<ReplicaStore> copy) {
      return cluster_[0].binding().Adopt(std::move(copy));
    };
    host.end_copy = [this](const Ref<ReplicaStore>& copy) {
      cluster_[0].binding().Destroy(copy.rid()).IgnoreError();
    };
    host.find_copy = [this](const std::string&) -> absl::StatusOr<Ref<ReplicaStore>> {
      ++asked_for_copy_;
      MutexLock lock(mutex_);
      if (other_) return other_;
      return absl::UnavailableError("there is no other server");
    };
    host.open_volume = [this](const std::shared_ptr<ObjectStore>& store, Volume::Options,
                              std::function<bool()> may_serve,
                              const std::function<int64_t()>&) -> absl::StatusOr<Ref<Volume>> {
      MutexLock lock(mutex_);
      may_serve_ = std::move(may_serve);
      store_ = store;
      return absl::UnavailableError("no node here");
    };
    host.ask = [](const std::string&, uint64_t) -> absl::StatusOr<PromiseAnswer> {
      return absl::UnavailableError("there is no other server");
    };
    mapped_ = std::make_unique<MappedVolume>("home", MapPlace{.url = "fake", .key = 1, .place = 0},
                                             std::make_unique<FakeMap>(map_),
                                             std::make_shared<ServerAddresses>(), std::move(host));
  }
  std::function<bool()> MayServe() {
    MutexLock lock(mutex_);
    return may_serve_;
  }
  std::shared_ptr<ObjectStore> Store() {
    MutexLock lock(mutex_);
    return store_.lock();
  }
  VolumeRow Row() {
    MutexLock lock(map_->mutex);
    return map_->row;
  }
  // What this server has of the first epoch: two objects. The table of the second has rotted since.
  void LeaveADamagedTable() {
    const auto store = OpenPrimaryStore(disk_, 1, {});
    ASSERT_TRUE(store.ok()) << store.status();
    whole_ = *(*store)->Create("whole", 1);
    damaged_ = *(*store)->Create("damaged", 2);
    ASSERT_TRUE((*store)->FlushAll().ok());
    ASSERT_TRUE((*store)->Checkpoint().ok());
    const auto table = disk_.Open(TablePath(damaged_));
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_TRUE((*table)->Write(20, "rot").ok());
  }
  // The other server has opened its copy.
  void BeginOther(bool is_whole) {
    auto opened = ReplicaStore::Open(std::make_shared<MemoryDisk>(), {});
    ASSERT_TRUE(opened.ok()) << opened.status();
    if (is_whole) {
      ASSERT_TRUE((*opened)->Begin(1, 1).ok());
      const ReplicaBatch end{
          .first = 1, .operations = {}, .flush = ReplicaFlush::kFinish, .ids = {}};
      ASSERT_TRUE((*opened)->Apply(1, 1, end).ok());
    }
    Ref<ReplicaStore> adopted = cluster_[0].binding().Adopt(*std::move(opened));
    MutexLock lock(mutex_);
    other_ = std::move(adopted);
  }
  void ExpectToLeaveItToTheCopy() {
    const VolumeRow before = Row();
    std::string told;
    ASSERT_TRUE(Eventually([&] {
      told = std::string(mapped_->volume().status().message());
      return told.find("b:1 has a current copy") != std::string::npos;
    })) << told;
    EXPECT_THAT(told, ::testing::HasSubstr("its table is damaged"));
    EXPECT_EQ(Row(), before) << "the copy stays current, and can take over";
  }
  void ExpectToServeTheRest(uint64_t epoch = 2) {
    ASSERT_TRUE(Eventually([&] { return MayServe() != nullptr; }));
    EXPECT_EQ(Row().epoch, epoch);
    const std::shared_ptr<ObjectStore> store = Store();
    ASSERT_TRUE(store != nullptr);
    EXPECT_EQ(store->GetAttributes(whole_)->blob, "whole");
    EXPECT_TRUE(absl::IsDataLoss(store->GetAttributes(damaged_).status()));
  }

  const std::shared_ptr<FakeMap::State> map_ = std::make_shared<FakeMap::State>();
  std::string row_path_ =
      absl::StrCat(::testing::TempDir(), "/", getpid(), ".",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".row");
  std::atomic<bool> opened_too_early_{false};
  MemoryDisk disk_;
  runtime::testing::Cluster cluster_{OneNodeOfCopies()};
  std::function<absl::Status(const std::function<bool()>& reads_on)> check_;  // empty: the real one
  bool opens_copy_ = false;
  std::chrono::milliseconds stays_out_{20'000}, reads_tables_{8'000}, asks_copy_{5'000};
  std::atomic<int> checks_{0}, asked_for_copy_{0};
  runtime::Mutex mutex_;
  Ref<ReplicaStore> other_ ABSL_GUARDED_BY(mutex_);
  std::function<bool()> may_serve_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<ObjectStore> store_ ABSL_GUARDED_BY(mutex_);
  ObjectId whole_ = 0, damaged_ = 0;
  std::unique_ptr<MappedVolume> mapped_;
};

// A volume is ended by its node, later than this object is.
TEST_F(MappedVolumeTest, AVolumeMayAskWhetherItServesWhenThisIsGone) {
  ASSERT_TRUE(OpenPrimaryStore(disk_, 1, {}).ok());
  Begin();
  ASSERT_TRUE(Eventually([&] { return MayServe() != nullptr; }));
  std::function<bool()> may_serve = MayServe();
  mapped_.reset();
  EXPECT_GT(map_.use_count(), 1) << "what it asks is gone";
  may_serve();
  MutexLock lock(mutex_);
  may_serve_ = nullptr;
  may_serve = nullptr;
  EXPECT_EQ(map_.use_count(), 1);
}

// Its directory is lost, or on a disk that is not mounted.
TEST_F(MappedVolumeTest, WhoHasNothingToServeFromDoesNotGoOnAsThePrimary) {
  const VolumeRow before = Row();
  Begin();
  std::string told;
  ASSERT_TRUE(Eventually([&] {
    told = std::string(mapped_->volume().status().message());
    return told.find("is lost") != std::string::npos;
  })) << told;
  EXPECT_EQ(Row(), before) << "the copy stays current, and can take over";
  // As when its disk is mounted, or is whole again.
  ASSERT_TRUE(OpenPrimaryStore(disk_, 1, {}).ok());
  EXPECT_TRUE(Eventually([&] { return MayServe() != nullptr; }));
  EXPECT_EQ(Row().epoch, 2u);
}

TEST_F(MappedVolumeTest, APrimaryThatCannotOpenItsStoreMakesWayForTheCopy) {
  check_ = [](const std::function<bool()>&) { return absl::OkStatus(); };
  Begin();
  ASSERT_TRUE(Eventually([&] { return Row().epoch == 2 && Row().IsCurrent(1); }));
  ASSERT_TRUE(Eventually([&] { return mapped_->keeper().Get().role == LeaseCore::Role::kCopy; }));
  EXPECT_FALSE(mapped_->keeper().MayServe());
  EXPECT_EQ(Row().epoch, 2u) << "it does not try again at once";
}

TEST_F(MappedVolumeTest, WhoseTableIsDamagedLeavesItToTheCopyThatIsCurrent) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  ASSERT_NO_FATAL_FAILURE(BeginOther(/*is_whole=*/true));
  Begin();
  ASSERT_NO_FATAL_FAILURE(ExpectToLeaveItToTheCopy());
}

// The two have not met yet.
TEST_F(MappedVolumeTest, WhoseTableIsDamagedAsksAgainForTheCopy) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  asks_copy_ = std::chrono::hours(1);
  Begin();
  ASSERT_TRUE(Eventually([&] { return asked_for_copy_ > 0; }));
  ASSERT_NO_FATAL_FAILURE(BeginOther(/*is_whole=*/true));
  ASSERT_NO_FATAL_FAILURE(ExpectToLeaveItToTheCopy());
}

// The row calls it current also where its server is down, or has a store that it cannot open.
TEST_F(MappedVolumeTest, ADamagedTableIsNotLeftToACopyThatDoesNotAnswer) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  stays_out_ = std::chrono::hours(1);
  asks_copy_ = std::chrono::milliseconds(0);
  Begin();
  ASSERT_NO_FATAL_FAILURE(ExpectToServeTheRest());
}

TEST_F(MappedVolumeTest, ADamagedTableIsNotLeftToACopyThatIsNotWhole) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  ASSERT_NO_FATAL_FAILURE(BeginOther(/*is_whole=*/false));
  stays_out_ = std::chrono::hours(1);
  asks_copy_ = std::chrono::milliseconds(0);
  Begin();
  ASSERT_NO_FATAL_FAILURE(ExpectToServeTheRest());
}

TEST_F(MappedVolumeTest, TablesAreReadForAWhileOnlyAndThenWhatIsThereIsServed) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  ASSERT_NO_FATAL_FAILURE(BeginOther(/*is_whole=*/true));
  stays_out_ = std::chrono::hours(1);
  reads_tables_ = std::chrono::milliseconds(0);
  Begin();
  ASSERT_NO_FATAL_FAILURE(ExpectToServeTheRest());
}

// As where the row was put back meanwhile.
TEST_F(MappedVolumeTest, AReadingThatAnotherEpochBreaksOffSaysNothing) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  ASSERT_NO_FATAL_FAILURE(BeginOther(/*is_whole=*/true));
  reads_tables_ = std::chrono::hours(1);
  check_ = [this](const std::function<bool()>& reads_on) -> absl::Status {
    if (++checks_ > 1) return CheckPrimaryStore(disk_, {}, reads_on);
    {
      MutexLock lock(map_->mutex);
      map_->row.epoch = 5;
      ++map_->revision;
    }
    EXPECT_TRUE(Eventually([&] { return !reads_on(); }));
    return absl::OkStatus();
  };
  Begin();
  ASSERT_TRUE(Eventually([&] { return Row().epoch >= 5; }));
  ASSERT_NO_FATAL_FAILURE(ExpectToLeaveItToTheCopy());
  EXPECT_EQ(Row().epoch, 5u);
}

// It made way, and the other server could not open its store after all.
TEST_F(MappedVolumeTest, WhoWasThePrimaryServesAgainWhereTheNextOneHasYielded) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  opens_copy_ = true;
  {
    MutexLock lock(map_->mutex);
    map_->row.epoch = 2;
    map_->row.primary = 1;
  }
  Begin();
  ASSERT_NO_FATAL_FAILURE(ExpectToServeTheRest(/*epoch=*/3));
}

TEST_F(MappedVolumeTest, WhereTheCopyDoesNotTakeOverAllButTheDamagedObjectIsServed) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  ASSERT_NO_FATAL_FAILURE(BeginOther(/*is_whole=*/true));
  stays_out_ = std::chrono::milliseconds(200);
  Begin();
  ASSERT_NO_FATAL_FAILURE(ExpectToServeTheRest());
}

TEST_F(MappedVolumeTest, ADamagedTableIsNotLeftToACopyThatIsBehind) {
  ASSERT_NO_FATAL_FAILURE(LeaveADamagedTable());
  ASSERT_NO_FATAL_FAILURE(BeginOther(/*is_whole=*/true));
  stays_out_ = std::chrono::hours(1);
  {
    MutexLock lock(map_->mutex);
    map_->row.SetCurrent(1, false);
  }
  Begin();
  ASSERT_NO_FATAL_FAILURE(ExpectToServeTheRest());
}

TEST_F(MappedVolumeTest, ARowIsRememberedBeforeAnythingIsOpenedByIt) {
  ASSERT_TRUE(OpenPrimaryStore(disk_, 1, {}).ok());
  Begin();
  ASSERT_TRUE(Eventually([&] { return MayServe() != nullptr; }));
  EXPECT_FALSE(opened_too_early_);
  const auto remembered = mapped_->memory().Get();
  ASSERT_TRUE(remembered.ok() && remembered->has_value());
  EXPECT_EQ((*remembered)->row, Row());
  EXPECT_EQ((*remembered)->row.epoch, 2u);
}

TEST_F(MappedVolumeTest, APrimaryThatCannotRememberItsRowMakesWayForTheCopy) {
  ASSERT_TRUE(OpenPrimaryStore(disk_, 1, {}).ok());
  row_path_ += "/nowhere";
  Begin();
  ASSERT_TRUE(Eventually([&] { return Row().epoch == 2 && Row().IsCurrent(1); }));
  EXPECT_FALSE(opened_too_early_);
  EXPECT_TRUE(MayServe() == nullptr);
  EXPECT_THAT(mapped_->volume().status().ToString(), ::testing::HasSubstr("cannot be remembered"));
}

TEST_F(MappedVolumeTest, DamageThatTheCopyCannotHelpWithIsReported) {
  ASSERT_TRUE(OpenPrimaryStore(disk_, 1, {}).ok());
  Begin();
  ASSERT_TRUE(Eventually([&] { return Store() != nullptr; }));
  const std::shared_ptr<ObjectStore> store = Store();
  const absl::StatusOr<ObjectId> id = store->Create("", 1);
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_TRUE(store->Write(*id, 0, "bytes", 2).ok());
  EXPECT_EQ(mapped_->Report().unrepaired_blocks, 0u);
  const auto contents = disk_.Open(DataPath(*id));
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_TRUE((*contents)->Write(0, "rot").ok());
  char byte;
  EXPECT_TRUE(absl::IsDataLoss(store->Read(*id, 0, std::span(&byte, 1)).status()));
  EXPECT_EQ(mapped_->Report().unrepaired_blocks, 1u);
  EXPECT_EQ(mapped_->Report().repaired_blocks, 0u);
}

}  // namespace
}  // namespace abacus::objfs
