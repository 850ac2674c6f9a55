#include "runtime/base/ids.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/hash/hash.h"
#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

constexpr uint32_t kMax32 = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kMax64 = std::numeric_limits<uint64_t>::max();

TEST(RidTest, PrintsNodeIncarnationAndLocalNumber) {
  EXPECT_EQ((Rid{{7, 41}, 3}).ToString(), "7.41.3");
  EXPECT_EQ((Rid{{kMax32, kMax32}, kMax64}).ToString(),
            "4294967295.4294967295.18446744073709551615");
}

TEST(RidTest, ParseReadsBackWhatWasPrinted) {
  std::mt19937_64 random(1);
  std::vector<Rid> rids = {{{1, 0}, 0}, {{kMax32, kMax32}, kMax64}, {{10, 100}, 1000}};
  for (int i = 0; i < 1000; ++i) {
    // Shifted by any amount, so that numbers of every length come.
    const auto number = [&random] { return random() >> (random() % 64); };
    const auto node = static_cast<NodeId>(number());
    rids.push_back({{node == 0 ? 1 : node, static_cast<uint32_t>(number())}, number()});
  }
  for (const Rid& rid : rids) {
    EXPECT_EQ(Rid::Parse(rid.ToString()), rid) << rid.ToString();
  }
}

TEST(RidTest, ParseRefusesWhatIsNeverPrinted) {
  for (const char* text : {
           "",
           ".",
           "..",
           "...",
           "7",
           "7.41",
           "7.41.",
           ".41.3",
           "7..3",
           "7.41.3.",
           "7.41.3.9",
           " 7.41.3",
           "7.41.3 ",
           "7. 41.3",
           "7,41,3",
           "+7.41.3",
           "-7.41.3",
           "7.-41.3",
           "7.41.-3",
           "0x7.41.3",
           "7.41.3x",
           "a.b.c",
           "7.41.0x3",
           "7.41.1e3",
           // Node 0 names no node.
           "0.41.3",
           "0.0.0",
           // One more than fits.
           "4294967296.41.3",
           "7.4294967296.3",
           "7.41.18446744073709551616",
           "7.41.99999999999999999999999999",
           // Zeros in front: two texts would name one object.
           "07.41.3",
           "7.041.3",
           "7.41.03",
           "7.41.00",
           "00.41.3",
       }) {
    EXPECT_FALSE(Rid::Parse(text).has_value()) << '"' << text << '"';
  }
  EXPECT_FALSE(Rid::Parse(std::string_view("7.41.3\0", 7)).has_value());
  EXPECT_FALSE(Rid::Parse(std::string_view("7.4\0.3", 6)).has_value());
}

TEST(RidTest, ParseStopsAtTheEndOfItsView) {
  EXPECT_EQ(Rid::Parse(std::string_view("7.41.345").substr(0, 6)), (Rid{{7, 41}, 3}));
}

TEST(IdsTest, ZeroNodeIsNotValid) {
  EXPECT_FALSE(NodeInstance{}.valid());
  EXPECT_FALSE((NodeInstance{0, 5}).valid());
  EXPECT_TRUE((NodeInstance{5, 0}).valid());
  EXPECT_FALSE((Rid{{0, 1}, 1}).valid());
  EXPECT_FALSE((ActivityId{{0, 1}, 1}).valid());
}

TEST(IdsTest, PrintsActivityAndCall) {
  const ActivityId activity{{2, 3}, 4};
  EXPECT_EQ((NodeInstance{2, 3}).ToString(), "2.3");
  EXPECT_EQ(activity.ToString(), "2.3.4");
  EXPECT_EQ((CallId{activity, 5, 6}).ToString(), "2.3.4/5#6");
}

TEST(IdsTest, EveryFieldCountsInComparisonAndHash) {
  const CallId id{{{1, 2}, 3}, 4, 5};
  const CallId others[] = {
      {{{9, 2}, 3}, 4, 5}, {{{1, 9}, 3}, 4, 5}, {{{1, 2}, 9}, 4, 5},
      {{{1, 2}, 3}, 9, 5}, {{{1, 2}, 3}, 4, 9},
  };
  const absl::Hash<CallId> hash;
  for (const CallId& other : others) {
    EXPECT_NE(id, other);
    EXPECT_LT(id, other);
    EXPECT_NE(hash(id), hash(other)) << other.ToString();
  }
  EXPECT_EQ(hash(id), hash(CallId(id)));
}

}  // namespace
}  // namespace abacus::runtime
