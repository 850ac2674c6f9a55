#include "experiments/testbed/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace abacus::experiments {
namespace {

using ::testing::HasSubstr;

TEST(ProcessTest, OutputIsKeptWholeAndApart) {
  absl::StatusOr<Output> ended =
      RunForOutput({"sh", "-c", "printf '%100000d' 1; echo words >&2; exit 7"});
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->code, 7);
  EXPECT_EQ(ended->out, std::string(99999, ' ') + "1");
  EXPECT_EQ(ended->err, "words\n");
}

TEST(ProcessTest, AProgramThatIsNotThereHasItsCode) {
  absl::StatusOr<Output> ended = RunForOutput({"/nowhere/program"});
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->code, 127);
}

TEST(ProcessTest, ACommandThatFailsIsToldWithWhatItSaid) {
  EXPECT_TRUE(RunCommand({"true"}).ok());
  const absl::Status status = RunCommand({"sh", "-c", "echo no such thing >&2; exit 2"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("exited with 2: no such thing"));
}

TEST(ProcessTest, WhatIsStoppedHasTheSignalsCode) {
  absl::StatusOr<Process> process = Process::Start({"sleep", "1000"});
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE(process->Running());
  process->Stop();
  EXPECT_FALSE(process->Running());
  EXPECT_EQ(process->Wait(), 128 + 15);
}

}  // namespace
}  // namespace abacus::experiments
