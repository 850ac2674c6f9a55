#include "runtime/node/incarnation.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/testing/small_disk.h"

namespace abacus::runtime {
namespace {

class DataDirectoryTest : public ::testing::Test {
 protected:
  DataDirectoryTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "abacus-dir-XXXXXX").string();
    parent_ = mkdtemp(pattern.data());
  }
  ~DataDirectoryTest() override { std::filesystem::remove_all(parent_); }

  std::string path() const { return parent_ + "/data"; }
  void Write(const std::string& text) {
    std::filesystem::create_directory(path());
    std::ofstream(path() + "/incarnation") << text;
  }

  std::string parent_;
};

TEST_F(DataDirectoryTest, FirstStartDrawsAServersIdAndBeginsAtOne) {
  const auto directory = DataDirectory::Open(path(), "s1");
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_GE((*directory)->instance().node, 1u);
  EXPECT_LT((*directory)->instance().node, kFirstClientId);
  EXPECT_EQ((*directory)->instance().incarnation, 1u);
}

TEST_F(DataDirectoryTest, EachStartKeepsTheIdAndCountsUp) {
  NodeInstance first;
  for (uint32_t start = 1; start <= 3; ++start) {
    const auto directory = DataDirectory::Open(path(), start == 1 ? "s1" : "renamed");
    ASSERT_TRUE(directory.ok()) << directory.status();
    if (start == 1) first = (*directory)->instance();
    EXPECT_EQ((*directory)->instance().node, first.node);
    EXPECT_EQ((*directory)->instance().incarnation, start);
  }
}

TEST_F(DataDirectoryTest, ServersOfOneNameHaveDifferentIds) {
  const auto one = DataDirectory::Open(path() + "1", "same");
  const auto two = DataDirectory::Open(path() + "2", "same");
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE((*one)->instance().node, (*two)->instance().node);
}

TEST_F(DataDirectoryTest, SecondProcessInTheSameDirectoryIsRefusedAndCountsNothing) {
  {
    const auto directory = DataDirectory::Open(path(), "s1");
    ASSERT_TRUE(directory.ok());
    const auto second = DataDirectory::Open(path(), "s1");
    ASSERT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
    const std::string message(ToStd(second.status().message()));
    EXPECT_NE(message.find("another process uses"), std::string::npos) << message;
    EXPECT_NE(message.find(path()), std::string::npos) << message;
  }
  EXPECT_EQ((*DataDirectory::Open(path(), "s1"))->instance().incarnation, 2u);
}

TEST_F(DataDirectoryTest, DamagedFileIsRefusedAndLeftAsItIs) {
  for (const std::string& damaged :
       {std::string(""), std::string("node 5\n"), std::string("node 5\nincarnation x\n"),
        std::string("node 0\nincarnation 3\n"), std::string("node 5\nincarnation 0\n"),
        std::string("node 4000000000\nincarnation 3\n"), std::string("node 5\nincarnation 3\nx"),
        std::string(1000, '\0')}) {
    Write(damaged);
    const auto directory = DataDirectory::Open(path(), "s1");
    ASSERT_TRUE(absl::IsFailedPrecondition(directory.status())) << damaged;
    EXPECT_EQ(std::filesystem::file_size(path() + "/incarnation"), damaged.size());
  }
}

TEST_F(DataDirectoryTest, LastIncarnationIsNotGivenAgain) {
  Write("node 5\nincarnation 4294967295\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(DataDirectory::Open(path(), "s1").status()));
}

TEST_F(DataDirectoryTest, HalfWrittenFileOfAnInterruptedStartDoesNotMatter) {
  ASSERT_TRUE(DataDirectory::Open(path(), "s1").ok());
  std::ofstream(path() + "/incarnation.new") << "node 7";
  EXPECT_EQ((*DataDirectory::Open(path(), "s1"))->instance().incarnation, 2u);
}

TEST_F(DataDirectoryTest, AServerWhoseDiskIsFullStartsAgainAndAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small disk";
  const testing::SmallDisk disk(path(), 1 << 20);
  ASSERT_TRUE(disk.is_there()) << "errno " << errno;
  const std::string data = path() + "/data";
  for (uint32_t start = 1; start < 5; ++start) {
    const auto directory = DataDirectory::Open(data, "server");
    ASSERT_TRUE(directory.ok()) << directory.status();
    EXPECT_EQ((*directory)->instance().incarnation, start);
    disk.FillBrim();
  }
}

TEST_F(DataDirectoryTest, MissingParentIsAnErrorThatNamesTheKeyAndThePath) {
  const auto directory = DataDirectory::Open(parent_ + "/no/data", "s1");
  ASSERT_TRUE(absl::IsNotFound(directory.status())) << directory.status();
  const std::string message(ToStd(directory.status().message()));
  EXPECT_NE(message.find("node.data_dir"), std::string::npos) << message;
  EXPECT_NE(message.find(parent_ + "/no/data"), std::string::npos) << message;
}

TEST(ClientInstanceTest, DrawsAreClientsIdsAndDiffer) {
  std::set<NodeInstance> drawn;
  for (int i = 0; i < 100; ++i) {
    const NodeInstance instance = RandomClientInstance();
    EXPECT_GE(instance.node, kFirstClientId);
    EXPECT_NE(instance.incarnation, 0u);
    drawn.insert(instance);
  }
  EXPECT_EQ(drawn.size(), 100u);
}

}  // namespace
}  // namespace abacus::runtime
