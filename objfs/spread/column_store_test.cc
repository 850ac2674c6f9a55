// The columns of one server: who may use one, over restarts too.

#include "objfs/spread/column_store.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;

constexpr ObjectId kFile = 7;
constexpr Version kNow{1};

// A server of columns, whose power can go.
class ColumnServer {
 public:
  explicit ColumnServer(runtime::BindingManager& binding) : binding_(binding) { Start(); }
  ~ColumnServer() { Stop(); }

  void LosePower(uint64_t seed) {
    disk_->CutPower();
    Stop();
    disk_->CutPower();
    disk_->PowerOn(seed);
    Start();
  }
  // Nothing that was written is lost.
  void Restart() {
    Stop();
    Start();
  }

  absl::StatusOr<Ref<Layer>> Open(uint64_t epoch) { return columns_->Open(kFile, Version{epoch}); }
  ColumnStore& columns() { return *local_; }
  const Ref<ColumnStore>& ref() { return columns_; }
  ObjectStore& store() { return *store_; }
  uint64_t DiskCalls() { return disk_->Calls(); }

 private:
  void Start() {
    auto store = LocalObjectStore::Open(*disk_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    // Openings have it until the cluster goes, and a store that is closed writes to its disk.
    auto both = std::make_shared<StoreOnDisk>(StoreOnDisk{disk_, *std::move(store)});
    store_ = std::shared_ptr<ObjectStore>(both, both->store.get());
    ColumnStore::Host host;
    host.adopt = [this](std::unique_ptr<ColumnLayer> layer) {
      return Ref<Layer>(binding_.Adopt(std::move(layer)).base());
    };
    host.end = [this](const Ref<Layer>& layer) { binding_.Destroy(layer.rid()).IgnoreError(); };
    auto columns = std::make_unique<ColumnStore>(store_, std::move(host));
    local_ = columns.get();
    columns_ = binding_.Adopt(std::move(columns));
  }
  void Stop() {
    if (columns_) binding_.Destroy(columns_.rid()).IgnoreError();
    columns_ = Ref<ColumnStore>();
    store_.reset();
  }

  struct StoreOnDisk {
    std::shared_ptr<PowerCutDisk> disk;
    std::shared_ptr<ObjectStore> store;  // goes first
  };

  runtime::BindingManager& binding_;
  const std::shared_ptr<PowerCutDisk> disk_ = std::make_shared<PowerCutDisk>();
  std::shared_ptr<ObjectStore> store_;
  ColumnStore* local_ = nullptr;
  Ref<ColumnStore> columns_;
};

class ColumnStoreTest : public ::testing::Test {
 protected:
  static runtime::testing::ClusterOptions Nodes() {
    runtime::testing::ClusterOptions options;
    options.nodes = 1;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<ColumnStore>().Add<ColumnLayer>();
    };
    return options;
  }
  runtime::BindingManager& binding() { return cluster_[0].binding(); }

  static void WriteRecord(const Ref<Layer>& column, const std::string& record, bool durable) {
    const absl::Status set = column->SetInode(record, kNow);
    ASSERT_TRUE(set.ok()) << set;
    if (!durable) return;
    ASSERT_TRUE(column->Flush(kNow).ok());
  }
  static std::string RecordOf(const Ref<Layer>& column) {
    const auto attributes = column->GetAttributes(kNow);
    EXPECT_TRUE(attributes.ok()) << attributes.status();
    return attributes.ok() ? attributes->inode : "an error";
  }

  runtime::testing::Cluster cluster_{Nodes()};
  ColumnServer server_{binding()};
};

TEST_F(ColumnStoreTest, AnEarlierOpeningIsRefusedAfterARestart) {
  WriteRecord(*server_.Open(10), "R5 of 10", /*durable=*/true);
  server_.LosePower(1);
  EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(9).status()));
  const auto later = server_.Open(11);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(RecordOf(*later), "R5 of 10");
  EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(10).status()));
}

TEST_F(ColumnStoreTest, AnEarlierOpeningIsRefusedAfterTheLaterOneWasClosed) {
  WriteRecord(*server_.Open(10), "R5 of 10", /*durable=*/false);
  ASSERT_TRUE(server_.columns().Close(kFile, {10}).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(9).status()));
  EXPECT_TRUE(server_.Open(10).ok()) << "the same once more";
}

// It has changed nothing that an earlier one could destroy.
TEST_F(ColumnStoreTest, AnOpeningThatWroteNoRecordRefusesNobodyAfterARestart) {
  WriteRecord(*server_.Open(5), "R5 of 5", /*durable=*/true);
  ASSERT_TRUE(server_.Open(10).ok());
  server_.Restart();
  EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(4).status()));
  const auto earlier = server_.Open(9);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  ASSERT_TRUE(server_.Open(10).ok());
  EXPECT_TRUE(absl::IsUnauthenticated((*earlier)->SetInode("R5 of 9", kNow)));
}

// What the fence costs: nothing when a column is opened, used and closed, and with a record no more
// than the record. The reference is an object of the same store that has no fence.
TEST_F(ColumnStoreTest, AnOpeningSyncsNothingAndARecordNoMoreThanItself) {
  constexpr ObjectId kPlain = kFile + 1;
  const auto cost = [this](auto&& what) {
    const uint64_t before = server_.DiskCalls();
    what();
    return server_.DiskCalls() - before;
  };
  const auto write_plain = [this](uint64_t epoch) {
    ASSERT_TRUE(server_.store().SetAttributes(kPlain, "R5, not fenced", epoch).ok());
    ASSERT_TRUE(server_.store().Flush(kPlain).ok());
  };
  // The journal's own beginning is none of theirs.
  ASSERT_TRUE(server_.store().CreateAs(kFile + 2, "", 1).ok());
  ASSERT_TRUE(server_.store().Flush(kFile + 2).ok());
  // A new one first.
  const uint64_t plain_new = cost([&] {
    ASSERT_TRUE(server_.store().CreateAs(kPlain, "", 1).ok());
    write_plain(10);
  });
  EXPECT_EQ(cost([&] { WriteRecord(*server_.Open(10), "R5 of 10", /*durable=*/true); }), plain_new);
  const uint64_t plain_set =
      cost([&] { ASSERT_TRUE(server_.store().SetAttributes(kPlain, "R5, not fenced", 11).ok()); });
  const uint64_t plain_again = cost([&] { write_plain(12); });
  ASSERT_GT(plain_again, 0u) << "or nothing would be compared";
  for (uint64_t epoch = 11; epoch < 14; ++epoch) {
    SCOPED_TRACE(epoch);
    // Nothing is left to be made durable later, either: a flush has nothing to do.
    EXPECT_EQ(cost([&] {
                const auto column = server_.Open(epoch);
                ASSERT_TRUE(column.ok()) << column.status();
                ASSERT_TRUE((*column)->Flush(kNow).ok());
                ASSERT_TRUE(server_.store().FlushAll().ok());
                ASSERT_TRUE(server_.columns().Close(kFile, {epoch}).ok());
              }),
              0u);
    const auto column = server_.Open(epoch);
    ASSERT_TRUE(column.ok()) << column.status();
    EXPECT_EQ(cost([&] { WriteRecord(*column, "R5, not flushed", /*durable=*/false); }), plain_set);
    for (const char* const record : {"R5, the first", "R5, the next"}) {
      EXPECT_EQ(cost([&] { WriteRecord(*column, record, /*durable=*/true); }), plain_again)
          << record;
    }
  }
  // And it is a fence.
  server_.LosePower(1);
  EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(12).status()));
}

TEST_F(ColumnStoreTest, ARecordOfAnEarlierBuildIsReadAndRefusesNobody) {
  ASSERT_TRUE(server_.store().CreateAs(kFile, "", 1).ok());
  ASSERT_TRUE(server_.store().SetAttributes(kFile, "R5 of long ago", 99).ok());
  const auto opened = server_.Open(3);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(RecordOf(*opened), "R5 of long ago");
  EXPECT_EQ(server_.columns().States(0, 10)->at(0).record, "R5 of long ago");
  WriteRecord(*opened, "R5 of 3", /*durable=*/true);
  EXPECT_EQ(RecordOf(*opened), "R5 of 3");
  EXPECT_EQ(server_.columns().States(0, 10)->at(0).record, "R5 of 3");
  server_.Restart();
  EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(2).status()));
}

TEST_F(ColumnStoreTest, ACopyOfAColumnRefusesWhomTheColumnRefused) {
  WriteRecord(*server_.Open(10), "R5 of 10", /*durable=*/true);
  ColumnServer other(binding());
  const absl::Status copied = other.columns().FinishFrom(server_.ref(), kFile, 0);
  ASSERT_TRUE(copied.ok()) << copied;
  other.LosePower(1);
  EXPECT_TRUE(absl::IsUnauthenticated(other.Open(9).status()));
  const auto there = other.Open(11);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(RecordOf(*there), "R5 of 10");
}

// Whatever the power leaves: who wrote the record that is there refuses all before, and nobody else
// is refused.
TEST_F(ColumnStoreTest, WhoWroteTheRecordThatIsThereRefusesAllBefore) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    ASSERT_TRUE(server_.columns().Remove({kFile}).ok());
    uint64_t epoch = 100, durable = 0;
    for (int step = 0; step < 8; ++step) {
      epoch += 1 + random() % 3;
      const auto column = server_.Open(epoch);
      ASSERT_TRUE(column.ok()) << column.status();
      if (random() % 3 == 0) continue;
      const bool flushes = random() % 2 == 0;
      WriteRecord(*column, std::to_string(epoch), flushes);
      if (flushes) durable = epoch;
    }
    server_.LosePower(random());
    const auto states = server_.columns().States(0, 10);
    ASSERT_TRUE(states.ok()) << states.status();
    const std::string record = states->empty() ? "" : states->at(0).record;
    const uint64_t wrote = record.empty() ? 0 : std::stoull(record);
    EXPECT_GE(wrote, durable);
    if (wrote > 0) {
      EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(wrote - 1).status()));
      EXPECT_TRUE(absl::IsUnauthenticated(server_.Open(1).status()));
    }
    EXPECT_TRUE(server_.Open(std::max<uint64_t>(wrote, 1)).ok());
  }
}

}  // namespace
}  // namespace abacus::objfs
