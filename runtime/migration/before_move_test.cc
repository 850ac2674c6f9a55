// What an object is asked to do before its gate is closed for a move.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "runtime/testing/cluster.h"
#include "runtime/testing/test_objects.h"

namespace abacus::runtime::testing {
namespace {

using ::testing::HasSubstr;

// Carries as many bytes as it has, and drops them when it is told that there is no room for them.
class Traveller : public MobileObject {
 public:
  absl::Status Follow(Ref<Ledger> ledger, uint64_t bytes, bool drops) {
    ledger_ = ledger;
    bytes_ = bytes;
    drops_ = drops;
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Prepared() { return prepared_.load(); }
  absl::StatusOr<int64_t> Place() { return static_cast<int64_t>(place_); }
  absl::StatusOr<bool> Call() { return true; }

  bool BeforeMove(const MoveAhead& ahead) override {
    ++prepared_;
    if (!ledger_) return false;
    place_ = ahead.place_of(ledger_.base());
    // It is inside of itself, as a call is, and may call itself and others.
    EXPECT_TRUE(SelfRef<Traveller>()->Call().ok());
    EXPECT_TRUE(ledger_->Record(1, ++calls_).ok());
    if (!ahead.no_room || !drops_) return false;
    bytes_ = 0;
    return true;
  }
  void StaysHere() override { --prepared_; }
  void Checkpoint(CheckpointWriter& writer) const override {
    writer.Write(ledger_);
    writer.Write(calls_);
    writer.Write(static_cast<uint32_t>(place_));
    writer.Write(prepared_.load());
    writer.Write(std::string(bytes_, 'x'));
  }
  absl::Status Restore(CheckpointReader& reader) override {
    reader.Read(ledger_);
    reader.Read(calls_);
    place_ = static_cast<MoveAhead::Place>(reader.Read<uint32_t>());
    prepared_ = reader.Read<int64_t>();
    bytes_ = reader.Read<std::string>().size();
    return reader.status();
  }
  ABACUS_OBJECT(Traveller, "test.Traveller", 1, Follow, Prepared, Place, Call)

 private:
  Ref<Ledger> ledger_;
  uint64_t calls_ = 0;
  uint64_t bytes_ = 0;
  bool drops_ = false;
  MoveAhead::Place place_ = MoveAhead::Place::kHere;
  std::atomic<int64_t> prepared_{0};
};

class SmallManager : public ObjectManager {
 public:
  absl::StatusOr<std::unique_ptr<MobileObject>> CreateObj(const ClassInfo& info,
                                                          size_t state_bytes) override {
    if (state_bytes > 1000) return absl::ResourceExhaustedError("no room");
    return ObjectManager::CreateObj(info, state_bytes);
  }
};

class BeforeMoveTest : public ::testing::Test {
 protected:
  BeforeMoveTest() {
    ClusterOptions options;
    options.nodes = 3;
    options.types = [](size_t, TestPoints&, ObjectTypes& types) {
      types.Add<Ledger>().Add<Traveller>([] { return std::make_unique<SmallManager>(); });
    };
    cluster_ = std::make_unique<Cluster>(options);
  }
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(BeforeMoveTest, IsToldWhereThoseAreThatItCallsAndMayCallThem) {
  using Place = MoveAhead::Place;
  const Ref<Ledger> ledger = (*cluster_)[0].RefTo<Ledger>(cluster_->Create<Ledger>(1).rid());
  const Ref<Traveller> traveller = cluster_->Create<Traveller>(0);
  ASSERT_TRUE(traveller->Follow(ledger, 0, false).ok());
  const auto move = [&](size_t from, size_t to) {
    const auto moved = cluster_->Move(traveller.rid(), from, to);
    ASSERT_TRUE(moved.ok()) << moved.status();
  };
  move(0, 1);
  EXPECT_EQ(traveller->Place().value_or(-1), static_cast<int64_t>(Place::kThere));
  move(1, 2);
  EXPECT_EQ(traveller->Place().value_or(-1), static_cast<int64_t>(Place::kHere));
  move(2, 0);
  EXPECT_EQ(traveller->Place().value_or(-1), static_cast<int64_t>(Place::kElsewhere));
  EXPECT_EQ(ledger->Read(1)->calls, 3u);
}

TEST_F(BeforeMoveTest, WhereTheTargetHasNoRoomItMayMakeItselfLighterOnce) {
  for (const bool drops : {false, true}) {
    SCOPED_TRACE(drops);
    const Ref<Ledger> ledger = cluster_->Create<Ledger>(0);
    const Ref<Traveller> traveller = cluster_->Create<Traveller>(0);
    ASSERT_TRUE(traveller->Follow(ledger, 5000, drops).ok());
    const auto moved = cluster_->Move(traveller.rid(), 0, 1);
    EXPECT_EQ(moved.ok(), drops) << moved.status();
    EXPECT_THAT(std::string(moved.status().message()), HasSubstr(drops ? "" : "no room"));
    EXPECT_EQ(ledger->Read(1)->calls, 2u);
    EXPECT_EQ(traveller->Prepared().value_or(-1), drops ? 1 : 0)
        << "it is told of each move that failed";
  }
}

TEST_F(BeforeMoveTest, AMoveThatFailsOtherwiseIsNotTriedAgain) {
  const Ref<Ledger> ledger = cluster_->Create<Ledger>(0);
  const Ref<Traveller> traveller = cluster_->Create<Traveller>(0);
  ASSERT_TRUE(traveller->Follow(ledger, 0, true).ok());
  EXPECT_FALSE(cluster_->Move(traveller.rid(), 0, 0).ok()) << "it is there";
  EXPECT_EQ(ledger->Read(1)->calls, 1u);
  EXPECT_EQ(traveller->Prepared().value_or(-1), 0);
}

}  // namespace
}  // namespace abacus::runtime::testing
