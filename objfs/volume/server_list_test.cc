#include "objfs/volume/server_list.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

ServerList SampleList() {
  return {.key = 0xabc, .servers = {"127.0.0.1:7070", "s2:7070", "[::1]:9"}};
}

// What is on disks must be read by every later build.
TEST(ServerListTest, TheTextIsThatOfVersionOne) {
  EXPECT_EQ(SampleList().Encode(),
            "abacus servers 1\n0000000000000abc\n127.0.0.1:7070\ns2:7070\n[::1]:9\nend\n");
  EXPECT_EQ(*ServerList::Decode(SampleList().Encode()), SampleList());
}

TEST(ServerListTest, WhatIsCutOffOrOfALaterVersionIsRefused) {
  const std::string text = SampleList().Encode();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ServerList::Decode(text.substr(0, size)).ok()) << size;
  }
  std::string later = text;
  later.replace(later.find(" 1\n"), 3, " 3\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(ServerList::Decode(later).status()));
}

TEST(ServerListTest, AListWithAVacantPlaceIsOfVersionTwo) {
  ServerList list = SampleList();
  list.servers[1] = kVacant;
  EXPECT_EQ(list.Encode(), "abacus servers 2\n0000000000000abc\n127.0.0.1:7070\n-\n[::1]:9\nend\n");
  EXPECT_EQ(*ServerList::Decode(list.Encode()), list);
  std::string first = list.Encode();
  first.replace(first.find(" 2\n"), 3, " 1\n");
  EXPECT_TRUE(absl::IsDataLoss(ServerList::Decode(first).status()));
}

TEST(ServerListTest, VacantPlacesAreNoServersAndNobodyNamesThem) {
  EXPECT_TRUE(CheckServers({"a:1", "-", "b:1", "-"}, /*vacancies=*/true).ok());
  EXPECT_EQ(ServersText({"a:1", "-", "b:1", "-"}), "a:1, b:1");
  EXPECT_TRUE(absl::IsInvalidArgument(CheckServers({"a:1", "-", "b:1"})));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckServers({"a:1", "-", "-"}, /*vacancies=*/true)));
}

TEST(ServerListTest, ServersAreTwoOrMoreAddressesEachOnce) {
  EXPECT_TRUE(CheckServers({"a:1", "b:1"}).ok());
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{},
                                                {"a:1"},
                                                {"a:1", "a:1"},
                                                {"a:1", "b"},
                                                {"a:1", "b:0"},
                                                {"a:1", ":2"},
                                                {"a:1", "b:70000"},
                                                {"a:1", "b c:1"}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckServers(wrong))) << ::testing::PrintToString(wrong);
  }
}

}  // namespace
}  // namespace abacus::objfs
