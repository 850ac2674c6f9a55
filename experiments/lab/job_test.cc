#include "experiments/lab/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace abacus::lab {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  return std::string(ParseJob(text).status().message());
}

TEST(JobTest, KeysAreMembers) {
  const auto job = ParseJob(
      R"({"kind": "table", "placement": "server", "seed": 7, "file": "t", "stack": "a/b",
          "record_bytes": 64, "records": 10, "first": 1, "step": 2, "warm": false,
          "phases": [{"name": "insert", "operations": 5}, {"name": "scan", "operations": 6}]})");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->kind, Job::Kind::kTable);
  EXPECT_EQ(job->placement, Placement::kServer);
  EXPECT_EQ(job->seed, 7u);
  EXPECT_EQ(job->table.record_bytes, 64u);
  EXPECT_EQ(job->table.step, 2u);
  EXPECT_FALSE(job->warm);
  ASSERT_EQ(job->phases.size(), 2u);
  EXPECT_EQ(job->phases[1].kind, apps::Phase::Kind::kScan);
  EXPECT_EQ(job->phases[1].operations, 6u);
}

TEST(JobTest, AStreamIsOfCallsOfOneSize) {
  const auto job =
      ParseJob(R"({"kind": "stream", "file": "f", "call_bytes": 32768, "writes": true})");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->kind, Job::Kind::kStream);
  EXPECT_EQ(job->call_bytes, 32768u);
  EXPECT_TRUE(job->writes);
}

TEST(JobTest, ASearchHasAPatternAndAClassMayBeAloneAtTheServer) {
  const auto job = ParseJob(
      R"({"kind": "grep", "file": "f", "pattern": "5 a", "placement": "server",
          "only": "apps.Grep"})");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->kind, Job::Kind::kGrep);
  EXPECT_EQ(job->pattern, "5 a");
  EXPECT_EQ(job->only, "apps.Grep");
}

TEST(JobTest, MistakesAreNamed) {
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("a JSON object"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("a JSON object"));
  EXPECT_THAT(ErrorOf(R"({"kind": "filtre"})"), HasSubstr("'filtre' is no kind; there are: null"));
  EXPECT_THAT(ErrorOf(R"({"kind": "filter", "placement": "here"})"), HasSubstr("'here'"));
  EXPECT_THAT(ErrorOf(R"({"kind": "filter", "pass": 1})"), HasSubstr("no key 'pass'"));
  EXPECT_THAT(ErrorOf(R"({"kind": "filter", "seed": "x"})"), HasSubstr("a job: "));
  EXPECT_THAT(ErrorOf(R"({"kind": "table", "phases": [{}]})"), HasSubstr("a job: "));
}

}  // namespace
}  // namespace abacus::lab
