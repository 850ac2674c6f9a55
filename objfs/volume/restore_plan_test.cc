#include "objfs/volume/restore_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/volume/server_list.h"

namespace abacus::objfs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kKey = 0xabc;

// "a:1" and "b:1" keep names and inodes, "c:1" columns.
class RestorePlanTest : public ::testing::Test {
 protected:
  static VolumeRow Row(uint64_t epoch, uint32_t primary, bool other_is_current) {
    return {
        .key = kKey,
        .epoch = epoch,
        .primary = primary,
        .servers = {"a:1", "b:1", "c:1"},
        .copies = {{0, primary == 0 || other_is_current}, {1, primary == 1 || other_is_current}},
        .former = {}};
  }
  static MapMemory Names(uint64_t place, const VolumeRow& row, int64_t revision = 1) {
    MapMemory memory;
    memory.keeps_names = true;
    memory.url = "etcd://e:1";
    memory.place = place;
    memory.row = row.Encode();
    memory.revision = revision;
    memory.is_whole = true;
    memory.seen_epoch = row.epoch;
    memory.servers = row.servers;
    return memory;
  }
  static MapMemory Columns(uint64_t seen) {
    MapMemory memory;
    memory.seen_epoch = seen;
    memory.servers = {"a:1", "b:1", "c:1"};
    return memory;
  }
  static absl::Status Silent() { return absl::UnavailableError("it is down"); }
  absl::StatusOr<RestorePlan> Plan(absl::StatusOr<MapMemory> a, absl::StatusOr<MapMemory> b,
                                   bool forced = false) {
    const std::vector<ServerMemory> asked = {
        {"a:1", std::move(a)}, {"b:1", std::move(b)}, {"c:1", c_}};
    return PlanRestore("home", "etcd://e:1", kKey, asked, forced);
  }
  // Forced or not.
  void ExpectRefusedAnyway(const absl::StatusOr<MapMemory>& a, const absl::StatusOr<MapMemory>& b,
                           const std::string& why) {
    for (const bool forced : {false, true}) {
      const auto plan = Plan(a, b, forced);
      EXPECT_TRUE(absl::IsFailedPrecondition(plan.status())) << plan.status() << forced;
      EXPECT_THAT(plan.status().ToString(), HasSubstr(why));
    }
  }
  void ExpectForceNeeded(const absl::StatusOr<MapMemory>& a, const absl::StatusOr<MapMemory>& b,
                         const std::string& why) {
    const auto plan = Plan(a, b);
    EXPECT_TRUE(absl::IsFailedPrecondition(plan.status())) << plan.status();
    EXPECT_THAT(plan.status().ToString(), HasSubstr(why));
    EXPECT_THAT(plan.status().ToString(), HasSubstr("--force"));
    const auto forced = Plan(a, b, /*forced=*/true);
    ASSERT_TRUE(forced.ok()) << forced.status();
    EXPECT_FALSE(forced->doubts.empty());
    ExpectOneIsCurrent(forced->row);
  }
  static void ExpectOneIsCurrent(const VolumeRow& row) {
    for (const VolumeRow::Copy& copy : row.copies) {
      EXPECT_EQ(copy.current, copy.place == row.primary) << copy.place;
    }
    EXPECT_EQ(*VolumeRow::Decode(row.Encode()), row);
  }

  absl::StatusOr<MapMemory> c_ = Columns(0);
};

TEST_F(RestorePlanTest, TheNewestRowsPrimaryGoesOnInALaterEpochAndAloneIsCurrent) {
  const auto plan = Plan(Names(0, Row(7, 0, true)), Names(1, Row(7, 0, true)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->row.epoch, 8u);
  EXPECT_EQ(plan->row.primary, 0u);
  EXPECT_EQ(plan->row.key, kKey);
  EXPECT_THAT(plan->row.servers, ElementsAre("a:1", "b:1", "c:1"));
  ExpectOneIsCurrent(plan->row);
  EXPECT_THAT(plan->doubts, IsEmpty());
  EXPECT_FALSE(plan->waits);
}

TEST_F(RestorePlanTest, TheLaterEpochCountsWhoeverRemembersIt) {
  for (const bool a_knows : {true, false}) {
    const auto plan = Plan(Names(0, Row(a_knows ? 8 : 7, a_knows ? 1 : 0, true), 3),
                           Names(1, Row(8, 1, false), 1));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->row.primary, 1u);
    EXPECT_EQ(plan->row.epoch, 9u);
    ExpectOneIsCurrent(plan->row);
  }
}

// A map that was set back gives revisions twice.
TEST_F(RestorePlanTest, OfOneEpochItsPrimarysRowCountsAndElseTheLaterRevision) {
  MapMemory lost = Names(0, Row(7, 0, false), 5);
  lost.is_whole = false;
  lost.why = "has lost its directory";
  ExpectRefusedAnyway(lost, Names(1, Row(7, 0, true), 9), "server b:1 is behind by the newest row");

  // Nobody has the primary's: two that keep copies, as after one was moved.
  VolumeRow before = Row(7, 0, true), after = Row(7, 0, true);
  after.MoveCopy(1, 2);
  c_ = Names(2, after, 6);
  const auto plan = Plan(Silent(), Names(1, before, 5), /*forced=*/true);
  EXPECT_THAT(plan.status().ToString(), HasSubstr("server c:1 is behind"));
}

TEST_F(RestorePlanTest, ACopyThatIsCurrentTakesTheVolumeOfAPrimaryThatLostWhatItHad) {
  MapMemory lost = Names(0, Row(7, 0, true));
  lost.is_whole = false;
  lost.why = "has lost its directory";
  const auto plan = Plan(lost, Names(1, Row(7, 0, true)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->row.primary, 1u);
  ExpectOneIsCurrent(plan->row);
}

TEST_F(RestorePlanTest, ACopyThatIsBehindOrNotWholeIsNeverThePrimary) {
  ExpectRefusedAnyway(Silent(), Names(1, Row(7, 0, false)), "server b:1 is behind by the newest");
  MapMemory half = Names(1, Row(7, 0, true));
  half.is_whole = false;
  half.why = "missed something";
  ExpectRefusedAnyway(Silent(), half, "server b:1 missed something");
}

TEST_F(RestorePlanTest, WhoDoesNotAnswerIsToldAndIsBehindWhereItIsForced) {
  const MapMemory a = Names(0, Row(7, 0, true)), b = Names(1, Row(7, 0, true));
  ExpectForceNeeded(a, Silent(), "server b:1 does not answer (it is down)");
  ExpectForceNeeded(Silent(), b, "server a:1 does not answer (it is down)");
  EXPECT_THAT(Plan(Silent(), b).status().ToString(), HasSubstr("and b:1 lacks, is lost for good"));
  const auto plan = Plan(Silent(), b, /*forced=*/true);
  EXPECT_EQ(plan->row.primary, 1u);
  EXPECT_FALSE(plan->row.IsCurrent(0));
  EXPECT_GT(plan->row.epoch, 7 + kEpochsSkipped) << "it may have begun more of them";
  c_ = Silent();
  ExpectForceNeeded(a, b, "server c:1 does not answer");
}

TEST_F(RestorePlanTest, WhoRemembersNoRowIsTold) {
  MapMemory blank = Names(0, Row(7, 0, true));
  blank.row.clear();
  ExpectForceNeeded(blank, Names(1, Row(7, 0, true)), "server a:1 remembers no row");
  ExpectForceNeeded(Columns(0), Names(1, Row(7, 0, true)),
                    "server a:1 has lost what it kept of names and inodes");
  MapMemory damaged = Names(1, Row(7, 0, true));
  damaged.doubt = "its disk is damaged";
  ExpectForceNeeded(Names(0, Row(7, 0, true)), damaged, "its disk is damaged");
  ExpectRefusedAnyway(blank, Silent(), "no server that answers remembers it");
}

TEST_F(RestorePlanTest, AnEpochOfWhichNobodyRemembersARowIsTold) {
  MapMemory b = Names(1, Row(7, 0, true));
  b.seen_epoch = 9;
  ExpectForceNeeded(Names(0, Row(7, 0, true)), b, "server b:1 has seen epoch 9");
  c_ = Columns(11);
  ExpectForceNeeded(Names(0, Row(7, 0, true)), b, "server c:1 has seen epoch 11");
  EXPECT_GT(Plan(Names(0, Row(7, 0, true)), b, /*forced=*/true)->row.epoch, 11u);
}

TEST_F(RestorePlanTest, WhatIsBeingServedByAnotherIsLeftToIt) {
  MapMemory a = Names(0, Row(7, 0, true)), b = Names(1, Row(8, 1, false));
  a.serves_epoch = 7;
  ExpectRefusedAnyway(a, b, "the volume is being served by a:1 under epoch 7");
  MapMemory b_of_seven = Names(1, Row(7, 0, true));
  EXPECT_TRUE(Plan(a, b_of_seven).ok()) << "it is the one that is to";
}

TEST_F(RestorePlanTest, ServersThatNameDifferentMapsAreLeftAlone) {
  MapMemory a = Names(0, Row(7, 0, true));
  a.url = "etcd://other:1";
  ExpectRefusedAnyway(a, Names(1, Row(7, 0, true)),
                      "server a:1 has the volume's map at etcd://other:1");
  a.serves_epoch = 7;
  ExpectRefusedAnyway(a, Names(1, Row(7, 0, true)),
                      "the volume is being served by a:1 under epoch 7 from the map at "
                      "etcd://other:1");
}

TEST_F(RestorePlanTest, WhatWasPromisedToAServerThatMayServeIsWaitedFor) {
  MapMemory b = Names(1, Row(7, 0, true));
  b.has_promised = true;
  EXPECT_TRUE(Plan(Silent(), b, /*forced=*/true)->waits);
  MapMemory a = Names(0, Row(7, 0, true));
  a.serves_epoch = 7;
  EXPECT_FALSE(Plan(a, b)->waits) << "it is the one that has it";
}

TEST_F(RestorePlanTest, RowsOfAnotherVolumeAreNone) {
  VolumeRow other = Row(9, 1, true);
  other.key = 1;
  const auto plan = Plan(Names(0, Row(7, 0, true)), Names(1, other), /*forced=*/true);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->row.primary, 0u);
}

TEST_F(RestorePlanTest, ServersAreThoseOfTheRowAndOfTheListAndNoVacantPlaces) {
  MapMemory memory = Columns(0);
  memory.servers = {"a:1", kVacant, "d:1"};
  EXPECT_THAT(ServersNamedIn(memory), ElementsAre("a:1", "d:1"));
  memory.row = Row(7, 0, true).Encode();
  EXPECT_THAT(ServersNamedIn(memory), ElementsAre("a:1", "d:1", "a:1", "b:1", "c:1"));
}

}  // namespace
}  // namespace abacus::objfs
