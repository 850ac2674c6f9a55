#include "runtime/resource/decision_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace abacus::runtime {
namespace {

constexpr Rid kConsole{{9, 4}, 1};
constexpr Rid kGrep{{9, 4}, 2};

class DecisionLogTest : public ::testing::Test {
 protected:
  DecisionLogTest() { std::filesystem::create_directories(directory_); }
  ~DecisionLogTest() override { std::filesystem::remove_all(directory_); }

  static LoggedDecision Numbered(int i, const Rid& rid = kGrep) {
    return {.at = absl::FromUnixSeconds(i),
            .rids = {kConsole, rid},
            .outcome = "stay",
            .reason = "present_is_best",
            .explanation = absl::StrCat("decision ", i, " with \"quotes\",\nlines and \xff bytes"),
            .details = "details",
            .snapshot = "{}"};
  }

  const std::string directory_ =
      ::testing::TempDir() + "abacus_decision_log_test_" + std::to_string(getpid());
  const std::string path_ = directory_ + "/decisions.jsonl";
};

TEST_F(DecisionLogTest, WhatWasDecidedCanBeAskedForAfterARestart) {
  {
    DecisionLog log(path_, 1 << 20);
    for (int i = 1; i <= 5; ++i) ASSERT_TRUE(log.Append({Numbered(i)}).ok());
    ASSERT_TRUE(log.Append({Numbered(6, Rid{{9, 4}, 77})}).ok());
  }
  const DecisionLog log(path_, 1 << 20);
  const auto found = log.Find(kGrep, 3);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].at, absl::FromUnixSeconds(5));
  EXPECT_EQ(found[2].at, absl::FromUnixSeconds(3));
  EXPECT_EQ(found[0].reason, "present_is_best");
  EXPECT_NE(found[0].explanation.find("decision 5 with \"quotes\",\nlines"), std::string::npos);
  EXPECT_EQ(log.Find(kConsole, 100).size(), 6u);
  EXPECT_TRUE(log.Find(Rid{{9, 4}, 3}, 100).empty());
}

TEST_F(DecisionLogTest, ItIsBoundedAndTheNewestStay) {
  constexpr uint64_t kBytesMax = 8 << 10;
  DecisionLog log(path_, kBytesMax);
  for (int i = 1; i <= 500; ++i) ASSERT_TRUE(log.Append({Numbered(i)}).ok());
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    bytes += file.file_size();
  }
  EXPECT_LE(bytes, 2 * kBytesMax);
  const auto found = log.Find(kGrep, 1000);
  ASSERT_GT(found.size(), 20u);
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].at, absl::FromUnixSeconds(500 - static_cast<int>(i)));
  }
}

TEST_F(DecisionLogTest, ManyAtOnceAreBoundedTooAndInTheirOrder) {
  constexpr uint64_t kBytesMax = 8 << 10;
  DecisionLog log(path_, kBytesMax);
  std::vector<LoggedDecision> many;
  for (int i = 1; i <= 500; ++i) many.push_back(Numbered(i));
  ASSERT_TRUE(log.Append(many).ok());
  for (const char* name : {"", ".1"})
    EXPECT_LE(std::filesystem::file_size(path_ + name), kBytesMax);
  const auto found = log.Find(kGrep, 1000);
  ASSERT_GT(found.size(), 20u);
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].at, absl::FromUnixSeconds(500 - static_cast<int>(i)));
  }
}

TEST_F(DecisionLogTest, DamageIsPassedOver) {
  DecisionLog log(path_, 1 << 20);
  ASSERT_TRUE(log.Append({Numbered(1)}).ok());
  std::ofstream(path_, std::ios::app) << "{\"unix_ns\": 5, \"objects\": [\"9.4.2\"], \"outc";
  ASSERT_TRUE(log.Append({Numbered(2)}).ok());
  std::ofstream(path_, std::ios::app) << "[\"9.4.2\"]\n\"9.4.2\"\n\xff\xfe\"9.4.2\"\n{}\n";
  ASSERT_TRUE(log.Append({Numbered(3)}).ok());
  const auto found = log.Find(kGrep, 100);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].at, absl::FromUnixSeconds(2));
}

TEST_F(DecisionLogTest, AFileThatCannotBeWrittenIsAnErrorAndNoCrash) {
  DecisionLog log(directory_ + "/no/such/place", 1 << 20);
  uint64_t lost = 0;
  EXPECT_FALSE(log.Append({Numbered(1), Numbered(2)}, &lost).ok());
  EXPECT_EQ(lost, 2u);
  EXPECT_TRUE(log.Find(kGrep, 10).empty());
  DecisionLog none("", 1 << 20);
  EXPECT_TRUE(none.Append({Numbered(1)}).ok());
  EXPECT_TRUE(none.Find(kGrep, 10).empty());
}

}  // namespace
}  // namespace abacus::runtime
