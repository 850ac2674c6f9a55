#include "apps/cli/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace abacus::apps {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kMiB = 1 << 20;

class ProgressTest : public ::testing::Test {
 protected:
  Progress Start(bool is_terminal, uint64_t total_bytes) {
    Progress::Options options;
    options.is_terminal = is_terminal;
    options.total_bytes = total_bytes;
    options.title = "kernel";
    return Progress(options, start_, [this](std::string_view text) { shown_ += text; });
  }
  absl::Time At(double seconds) const { return start_ + absl::Seconds(seconds); }
  // What was written since the last call.
  std::string Shown() { return std::exchange(shown_, std::string()); }

  const absl::Time start_ = absl::FromUnixSeconds(1000);
  std::string shown_;
};

TEST_F(ProgressTest, UpdateDrawsTheBarOverItself) {
  Progress progress = Start(true, 16 * kMiB);
  progress.Update(At(1), 4 * kMiB, "at client");
  EXPECT_EQ(Shown(),
            "\r\x1b[Kkernel  [====>              ]   25 %  4.0 MiB of 16.0 MiB  4.0 MiB/s  "
            "at client");
}

TEST_F(ProgressTest, BarGivesWayToALongText) {
  Progress progress = Start(true, 16 * kMiB);
  progress.Update(At(1), 4 * kMiB, "grep is at server-1 of five");
  EXPECT_EQ(Shown(),
            "\r\x1b[Kkernel   25 %  4.0 MiB of 16.0 MiB  4.0 MiB/s  grep is at server-1 of five");
}

TEST_F(ProgressTest, UpdateDrawsAtMostTenTimesASecond) {
  Progress progress = Start(true, 1000);
  int draws = 0;
  for (int ms = 0; ms < 1000; ++ms) {
    progress.Update(At(ms / 1000.0), static_cast<uint64_t>(ms), "");
    draws += !Shown().empty();
  }
  EXPECT_EQ(draws, 10);
}

TEST_F(ProgressTest, BarNeverReachesTheLastColumn) {
  Progress progress = Start(true, 10);
  progress.Update(At(1), 5, std::string(200, 'w'));
  EXPECT_EQ(Shown().size(), std::string("\r\x1b[K").size() + 79);
}

TEST_F(ProgressTest, BarIsFullAtTheTotalAndNeverMore) {
  Progress progress = Start(true, 10);
  progress.Update(At(1), 12, "");
  EXPECT_THAT(Shown(), HasSubstr("[========================]  100 %  12 B"));
}

TEST_F(ProgressTest, UpdateWithoutTotalShowsBytesAndRateOnly) {
  Progress progress = Start(true, 0);
  progress.Update(At(1), 2048, "at server");
  EXPECT_EQ(Shown(), "\r\x1b[Kkernel  2.0 KiB  2.0 KiB/s  at server");
}

TEST_F(ProgressTest, RateIsThatOfTheLastSeconds) {
  Progress progress = Start(true, 0);
  for (int i = 1; i <= 100; ++i) progress.Update(At(i * 0.1), static_cast<uint64_t>(i) * 100, "");
  EXPECT_THAT(Shown(), EndsWith("9.8 KiB  1000 B/s"));
  const uint64_t before = 10000;
  for (int i = 1; i <= 30; ++i) {
    progress.Update(At(10 + i * 0.1), before + static_cast<uint64_t>(i) * 1024 * 100, "");
  }
  EXPECT_THAT(Shown(), EndsWith("1000.0 KiB/s"));
}

TEST_F(ProgressTest, NoteStandsAboveTheBar) {
  Progress progress = Start(true, 0);
  progress.Note("before");
  EXPECT_EQ(Shown(), "before\n");
  progress.Update(At(1), 1024, "");
  Shown();
  progress.Note("moved grep to server-1");
  EXPECT_EQ(Shown(), "\r\x1b[Kmoved grep to server-1\nkernel  1.0 KiB  1.0 KiB/s");
}

TEST_F(ProgressTest, FinishDrawsTheLastStateAndEndsTheLine) {
  Progress progress = Start(true, 0);
  progress.Update(At(1), 1024, "");
  progress.Update(At(1.01), 2048, "");
  Shown();
  progress.Finish(At(1.01));
  EXPECT_EQ(Shown(), "\r\x1b[Kkernel  2.0 KiB  2.0 KiB/s\n");
}

TEST_F(ProgressTest, ControlCharactersAreNotSentToTheTerminal) {
  Progress progress = Start(true, 0);
  progress.Update(At(1), 0, "a\x1b[2Jb\nc");
  EXPECT_THAT(Shown(), EndsWith("a?[2Jb?c"));
}

TEST_F(ProgressTest, PlainLinesComeEveryTwoSecondsOrQuarter) {
  Progress progress = Start(false, 100 * kMiB);
  progress.Update(At(1.9), kMiB, "at client");
  EXPECT_EQ(Shown(), "");
  progress.Update(At(2), 2 * kMiB, "at client");
  EXPECT_EQ(Shown(), "kernel    2 %  2.0 MiB of 100.0 MiB  1.0 MiB/s  at client\n");
  progress.Update(At(2.1), 26 * kMiB, "at client");
  EXPECT_EQ(Shown(), "");
  progress.Update(At(2.2), 27 * kMiB, "at client");
  EXPECT_THAT(Shown(), StartsWith("kernel   27 %"));
}

TEST_F(ProgressTest, PlainLinesBecomeRarerOnALongJob) {
  Progress progress = Start(false, 0);
  int lines = 0;
  for (int second = 1; second <= 3600; ++second) {
    progress.Update(At(second), static_cast<uint64_t>(second), "");
    lines += !Shown().empty();
  }
  EXPECT_GT(lines, 60);
  EXPECT_LT(lines, 140);
}

TEST_F(ProgressTest, PlainOutputHasNoControlSequences) {
  Progress progress = Start(false, 10);
  progress.Update(At(3), 5, "x");
  progress.Note("moved");
  progress.Finish(At(4));
  EXPECT_EQ(Shown(),
            "kernel   50 %  5 B of 10 B  2 B/s  x\n"
            "moved\n"
            "kernel   50 %  5 B of 10 B  2 B/s  x\n");
}

TEST(ProgressOptions, OptionsForAsksTheTerminal) {
  EXPECT_FALSE(Progress::OptionsFor(-1).is_terminal);
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  const winsize size = {24, 132, 0, 0};
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  const Progress::Options options = Progress::OptionsFor(terminal);
  EXPECT_TRUE(options.is_terminal);
  EXPECT_EQ(options.columns, 132);
  close(terminal);
}

TEST(HumanBytes, HumanBytesChoosesTheUnit) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes(1023.96 * 1024), "1.0 MiB");
  EXPECT_EQ(HumanBytes(16.0 * 1024 * 1024), "16.0 MiB");
  EXPECT_EQ(HumanBytes(3e15), "2.7 PiB");
}

}  // namespace
}  // namespace abacus::apps
