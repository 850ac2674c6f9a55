#include "runtime/resource/link_book.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace abacus::runtime {
namespace {

class LinkBookTest : public ::testing::Test {
 protected:
  LinkBookTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "abacus-links-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/links";
  }
  ~LinkBookTest() override { std::filesystem::remove_all(directory_); }
  void Put(const std::string& text) { std::ofstream(path_, std::ios::trunc) << text; }
  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
  std::string path_;
};

TEST_F(LinkBookTest, WhatIsWrittenIsRead) {
  const LinkBook book(path_);
  EXPECT_TRUE(book.Read()->empty()) << "no file, no links";
  const std::vector<KnownLink> links = {{7, 1.25e6, 0.0003}, {4000000000u, 1e9 / 3, 1e-5}};
  ASSERT_TRUE(book.Write(links).ok());
  EXPECT_EQ(*book.Read(), links);
  ASSERT_TRUE(book.Write({links[1]}).ok());
  EXPECT_EQ(*book.Read(), std::vector<KnownLink>{links[1]});
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(LinkBookTest, TheFileIsAsItIsDocumented) {
  ASSERT_TRUE(LinkBook(path_).Write({{7, 1250000, 0.5}}).ok());
  EXPECT_EQ(Text(), "abacus-links 1\n7 1250000 0.5\nend 1\n");
}

// Of a file that was cut off anywhere nothing is believed, but where only the last newline is gone.
TEST_F(LinkBookTest, AFileThatWasCutShortIsToldFromAWholeOne) {
  ASSERT_TRUE(LinkBook(path_).Write({{7, 1250000, 0.5}, {8, 10, 0.25}}).ok());
  const std::string whole = Text();
  for (size_t length = 0; length + 1 < whole.size(); ++length) {
    Put(whole.substr(0, length));
    EXPECT_EQ(LinkBook(path_).Read().status().code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST_F(LinkBookTest, FiguresThatCannotBeAreRefused) {
  for (const char* link :
       {"7 -1 0.5", "7 nan 0.5", "7 0 0.5", "7 1e999 0.5", "7 5 -0.5", "x 5 1"}) {
    Put("abacus-links 1\n" + std::string(link) + "\nend 1\n");
    EXPECT_EQ(LinkBook(path_).Read().status().code(), absl::StatusCode::kDataLoss) << link;
  }
}

TEST_F(LinkBookTest, AnotherVersionIsRefusedAndReplaced) {
  Put("abacus-links 2\nwhatever\n");
  const LinkBook book(path_);
  EXPECT_EQ(book.Read().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(book.Write({{7, 1, 1}}).ok());
  EXPECT_EQ(book.Read()->size(), 1u);
}

TEST_F(LinkBookTest, AFileThatCannotBeWrittenIsAnErrorAndTheOldOneStays) {
  ASSERT_TRUE(LinkBook(path_).Write({{7, 1, 1}}).ok());
  std::filesystem::create_directory(path_ + ".new");  // in its way
  EXPECT_EQ(LinkBook(path_).Write({{8, 1, 1}}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(LinkBook(path_).Read()->at(0).peer, 7u);
}

}  // namespace
}  // namespace abacus::runtime
