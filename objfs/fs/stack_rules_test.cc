#include "objfs/fs/stack_rules.h"

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace abacus::objfs
