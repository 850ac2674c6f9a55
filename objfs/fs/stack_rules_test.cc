#include "objfs/fs/stack_rules.h"

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/fs/error.h"
#include "objfs/fs/testing/file_system_world.h"

namespace abacus::objfs {
namespace {

using Rules = std::vector<StackRule>;

TEST(StackRulesTest, WhatIsPrintedReadsBack) {
  const Rules rules = {{"*.db", "cache(block=4 KiB, ahead=1 MiB)/isolation/storage"},
                       {"[a-c]?", "isolation/storage"}};
  const auto read = ParseStackRules(StackRulesText(rules));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, rules);
  EXPECT_EQ(ParseStackRules("\n  * \t isolation/storage \n\n")->front(),
            (StackRule{"*", "isolation/storage"}));
  EXPECT_TRUE(ParseStackRules("")->empty());
}

TEST(StackRulesTest, ALineWithoutAStackIsNamed) {
  const auto read = ParseStackRules("* isolation/storage\n*.db\n");
  ASSERT_TRUE(absl::IsInvalidArgument(read.status()));
  EXPECT_NE(read.status().message().find("line 2"), std::string::npos) << read.status();
}

TEST(StackRulesTest, TheFirstRuleThatFitsHolds) {
  const Rules rules = {{"*.db", "one"}, {"a*", "two"}, {".*", "three"}};
  EXPECT_EQ(*StackByRule(rules, "a.db"), "one");
  EXPECT_EQ(*StackByRule(rules, "a.txt"), "two");
  EXPECT_EQ(*StackByRule(rules, ".db"), "one") << "a name may begin with a dot";
  EXPECT_EQ(*StackByRule(rules, ".x"), "three");
  EXPECT_EQ(StackByRule(rules, "b.txt"), nullptr);
  EXPECT_EQ(StackByRule({}, "a"), nullptr);
}

TEST(StackRulesTest, ARuleIsAddedChangedAndTakenAway) {
  Rules rules;
  EXPECT_TRUE(SetStackRule(&rules, "*.db", "one"));
  EXPECT_TRUE(SetStackRule(&rules, "*", "two"));
  EXPECT_TRUE(SetStackRule(&rules, "*.db", "three"));
  EXPECT_EQ(rules, (Rules{{"*.db", "three"}, {"*", "two"}}));
  EXPECT_TRUE(SetStackRule(&rules, "*.db", std::nullopt));
  EXPECT_FALSE(SetStackRule(&rules, "*.db", std::nullopt));
  EXPECT_EQ(rules, (Rules{{"*", "two"}}));
}

TEST(CheckFileStackTest, TakesAServerForEachColumn) {
  const LayerKinds kinds = testing::AllKinds();
  constexpr char kRaidOfThree[] = "cache/raid5/(isolation/storage)*3";
  EXPECT_TRUE(CheckFileStack(kRaidOfThree, kinds, 3).ok());
  EXPECT_TRUE(CheckFileStack("cache/isolation/storage", kinds, 0).ok());
  const absl::Status few = CheckFileStack(kRaidOfThree, kinds, 2);
  EXPECT_EQ(FsErrorOf(few), FsError::kInvalid);
  EXPECT_NE(few.message().find("3 columns"), std::string::npos) << few;
  EXPECT_NE(few.message().find("the volume has 2"), std::string::npos) << few;
  const absl::Status alone = CheckFileStack(kRaidOfThree, kinds, 0);
  EXPECT_NE(alone.message().find("the volume has 1"), std::string::npos) << alone;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckFileStack("cache/nonsense/storage", kinds, 3)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckFileStack("cache/(storage", kinds, 3)));
}

}  // namespace
}  // namespace abacus::objfs
