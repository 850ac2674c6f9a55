// The parts of the commands that need no process and no network.

#include "apps/abacus/testing/command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <string>

#include "apps/abacus/control.h"
#include "apps/abacus/doctor_checks.h"
#include "apps/abacus/figures.h"
#include "apps/abacus/output.h"

namespace abacus::apps {
namespace {

using ::testing::HasSubstr;
using Level = Finding::Level;

runtime::MoveEvent Event() {
  return {.rids = {{{7, 41}, 3}},
          .class_names = {"apps.Grep"},
          .from = 7,
          .to = 1,
          .from_name = "client",
          .to_name = "server",
          .by_engine = true,
          .reason = "because",
          .predicted_gain = absl::Milliseconds(820),
          .predicted_cost = absl::Microseconds(3500),
          .blackout = absl::Microseconds(480),
          .state_bytes = 2048,
          .status = absl::OkStatus()};
}

TEST(MoveLineTest, TellsWhatMovedFromWhereToWhereAndAtWhichCost) {
  EXPECT_EQ(MoveLine(Event()),
            "moved: grep 7.41.3: client -> server by the engine, predicted gain 0.82 s per window, "
            "cost 3.5 ms, blackout 480 us, state 2.0 KiB");
}

TEST(MoveLineTest, AMoveByHandHasNoPrediction) {
  runtime::MoveEvent event = Event();
  event.by_engine = false;
  EXPECT_THAT(MoveLine(event), HasSubstr("by hand, blackout"));
}

TEST(MoveLineTest, AMoveThatFailedTellsWhy) {
  runtime::MoveEvent event = Event();
  event.status = absl::AbortedError("drained too slowly");
  EXPECT_EQ(MoveLine(event),
            "not moved: grep 7.41.3: client -> server by the engine: drained too slowly");
}

TEST(WriteFileTest, ReplacesInOneStepAndLeavesNoOther) {
  const testing::Folder folder;
  folder.Write("f", "old");
  ASSERT_TRUE(WriteFile(folder.Path("f"), "new").ok());
  EXPECT_EQ(folder.Read("f"), "new");
  EXPECT_TRUE(absl::IsNotFound(WriteFile(folder.Path("absent/f"), "new")));
}

TEST(WriteFileTest, WhatIsNoRegularFileIsWrittenInPlace) {
  const testing::Folder folder;
  const std::string pipe = folder.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // Both ends, so that writing it does not wait for a reader.
  const int fd = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(WriteFile(pipe, "new").ok());
  char bytes[8];
  EXPECT_EQ(read(fd, bytes, sizeof(bytes)), 3);
  close(fd);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(WriteFile("/dev/null", "new").ok());
}

TEST(FirstSentenceTest, EndsWithItsFullStop) {
  EXPECT_EQ(FirstSentence("Moving apps.Grep in 3.09 ms. The rest."),
            "Moving apps.Grep in 3.09 ms.");
  EXPECT_EQ(FirstSentence("by hand"), "by hand");
  EXPECT_EQ(FirstSentence(""), "");
}

runtime::NodeReport Report() {
  runtime::NodeReport report;
  report.members.resize(3);
  report.members[0].info = {.instance = {1, 5}, .name = "server", .server = true};
  report.members[1].info = {.instance = {8, 1}, .name = "client"};
  report.members[2].info = {.instance = {9, 1}, .name = "client"};
  return report;
}

TEST(FindNodeTest, TakesANameOrAnId) {
  EXPECT_EQ(FindNode(Report(), "server").value(), 1u);
  EXPECT_EQ(FindNode(Report(), "9").value(), 9u);
}

TEST(FindNodeTest, AnUnknownNodeIsToldWithThoseThereAre) {
  const auto node = FindNode(Report(), "moon");
  EXPECT_TRUE(absl::IsNotFound(node.status()));
  EXPECT_THAT(std::string(node.status().message()), HasSubstr("server (1)"));
}

TEST(FindNodeTest, ANameOfSeveralIsToldWithTheirIds) {
  const auto node = FindNode(Report(), "client");
  EXPECT_TRUE(absl::IsInvalidArgument(node.status()));
  EXPECT_THAT(std::string(node.status().message()), HasSubstr("8 or 9"));
}

size_t LinesWith(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  size_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find(part) != line.npos ? 1 : 0;
  return count;
}

TEST(StatusTextTest, FitsOneScreenHoweverLargeTheCluster) {
  const StatusOptions options;
  runtime::NodeReport report = Report();
  report.health = "OK";
  report.members.resize(100, report.members.back());
  report.objects_total = 1000;
  report.objects.resize(options.objects_max, {.rid = {{7, 41}, 3}, .class_name = "apps.Grep"});
  report.moves.resize(20, {.event = Event()});
  for (auto& move : report.moves) move.event.reason = "It pays. For many reasons.";
  const std::string text = StatusText(report, options);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << text;
  EXPECT_THAT(text, HasSubstr("and 92 more (--nodes N)\n"));
  EXPECT_THAT(text, HasSubstr("and 992 more (--objects N)\n"));
  EXPECT_EQ(LinesWith(text, "It pays."), options.moves_max);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("many reasons")));
  EXPECT_EQ(LinesWith(text, "abacus explain RID"), 1u);
}

TEST(StatusTextTest, FiguresOfEachNodeAreNamedWithTheirSourceWhatIsMissingAndWhatWasLost) {
  runtime::NodeReport report = Report();
  EXPECT_THAT(StatusText(report, {}), HasSubstr("nothing yet"));
  for (auto& member : report.members) {
    member.measured = true;
    member.statistics.source = "thread-clock";
    member.statistics.source_missing = "no right to eBPF";
  }
  report.members[0].statistics.source = "ebpf";
  report.members[0].statistics.source_missing = "";
  report.members[0].statistics.lost = {.threads = 3, .io_times = 4};
  const std::string text = StatusText(report, {});
  EXPECT_EQ(LinesWith(text, "  ebpf"), 1u) << text;
  EXPECT_EQ(LinesWith(text, "  thread-clock"), 2u) << text;
  EXPECT_EQ(LinesWith(text, "figures of client, client could be better: no right to eBPF"), 1u)
      << text;
  EXPECT_EQ(
      LinesWith(text, "lost at server: 3 threads not watched, 4 requests of block I/O not timed"),
      1u)
      << text;
  EXPECT_EQ(LinesWith(text, "could be better"), 1u) << text;
}

TEST(SourcesOfFiguresTest, ANodeWithoutANameIsItsId) {
  EXPECT_EQ(SourcesOfFigures({}), "");
  EXPECT_EQ(SourcesOfFigures({{.node = 7, .source = "ebpf"},
                              {.node = 8,
                               .name = "c",
                               .source = "thread-clock",
                               .source_missing = "old kernel",
                               .lost = {.io_requests = 1, .edges = 2}}}),
            "figures of node 7 from ebpf\nfigures of c from thread-clock\n"
            "figures of c could be better: old kernel\n"
            "lost at c: 1 requests of block I/O not charged, 2 times the figures of calls between "
            "two objects\n");
}

TEST(StatusTextTest, WhereAllIsShownThereIsNoMore) {
  const std::string text = StatusText(Report(), {});
  EXPECT_EQ(LinesWith(text, "client"), 2u);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("more (")));
}

TEST(StatusTextTest, SwitchesAndBlockIoAreNumbersOnlyWhereTheyAreSeen) {
  runtime::NodeReport report = Report();
  report.objects = {{.rid = {{7, 41}, 3},
                     .class_name = "apps.Seen",
                     .ready_share = 0.125,
                     .voluntary_switches_s = 300,
                     .involuntary_switches_s = 25.5,
                     .io_bytes_s = 3 << 20},
                    {.rid = {{7, 41}, 4}, .class_name = "apps.Unseen"}};
  const std::string text = StatusText(report, {});
  const auto line = [&text](const char* part) {
    const size_t at = text.find(part);
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_THAT(line("apps.Seen"), HasSubstr("325.5"));
  EXPECT_THAT(line("apps.Seen"), HasSubstr("3.0 MiB"));
  EXPECT_THAT(line("apps.Seen"), HasSubstr("12.5"));
  EXPECT_THAT(line("apps.Unseen"), ::testing::ContainsRegex(" - +- "));
}

TEST(ParseRidTest, TakesWhatStatusPrints) {
  EXPECT_EQ(ParseRid("7.41.3").value(), (runtime::Rid{{7, 41}, 3}));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseRid("7.41").status()));
}

// What is missing comes with its effect and what mends it; what is there with neither.
void ExpectComplete(const Finding& finding, Level level) {
  EXPECT_EQ(LevelName(finding.level), LevelName(level)) << finding.subject;
  EXPECT_EQ(finding.effect.empty(), level == Level::kOk) << finding.subject;
  EXPECT_EQ(finding.mend.empty(), level == Level::kOk) << finding.subject;
  EXPECT_FALSE(finding.found.empty()) << finding.subject;
}

TEST(DoctorChecksTest, BpfIsDegradedWithoutTheRight) {
  ExpectComplete(JudgeBpf(0, true), Level::kOk);
  ExpectComplete(JudgeBpf(EPERM, true), Level::kDegraded);
  EXPECT_THAT(JudgeBpf(EPERM, true).mend, HasSubstr("setcap"));
  // A right that is of no use is not asked for.
  for (const int error : {0, EPERM}) {
    ExpectComplete(JudgeBpf(error, false), Level::kDegraded);
    EXPECT_THAT(JudgeBpf(error, false).mend, HasSubstr("CONFIG_DEBUG_INFO_BTF"));
  }
}

TEST(DoctorChecksTest, NamespacesNeedTheRightAndBothTools) {
  ExpectComplete(JudgeNamespaces(0, true, true), Level::kOk);
  ExpectComplete(JudgeNamespaces(EPERM, true, true), Level::kDegraded);
  ExpectComplete(JudgeNamespaces(0, false, true), Level::kDegraded);
  EXPECT_THAT(JudgeNamespaces(0, true, false).found, HasSubstr("tc"));
  EXPECT_THAT(JudgeNamespaces(0, true, false).mend, HasSubstr("iproute2"));
}

TEST(DoctorChecksTest, FuseNeedsItsDeviceAndItsHelper) {
  ExpectComplete(JudgeFuse(0, true), Level::kOk);
  ExpectComplete(JudgeFuse(0, false), Level::kDegraded);
  ExpectComplete(JudgeFuse(EACCES, true), Level::kDegraded);
  EXPECT_THAT(JudgeFuse(ENOENT, true).mend, HasSubstr("modprobe"));
}

TEST(DoctorChecksTest, MembarrierIsIndispensable) {
  ExpectComplete(JudgeMembarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED), Level::kOk);
  ExpectComplete(JudgeMembarrier(MEMBARRIER_CMD_GLOBAL), Level::kFail);
  ExpectComplete(JudgeMembarrier(-1), Level::kFail);
  EXPECT_THAT(JudgeMembarrier(-1).mend, HasSubstr("sudo apt-get install linux-image"));
  EXPECT_THAT(JudgeMembarrier(-1).mend, HasSubstr("--security-opt"));
}

TEST(DoctorChecksTest, FewDescriptorsAreDegradedAndVeryFewFail) {
  ExpectComplete(JudgeDescriptors(65536, 65536), Level::kOk);
  ExpectComplete(JudgeDescriptors(1024, 65536), Level::kDegraded);
  EXPECT_EQ(JudgeDescriptors(1024, 65536).mend, "ulimit -n 4096");
  ExpectComplete(JudgeDescriptors(64, 64), Level::kFail);
  EXPECT_THAT(JudgeDescriptors(64, 64).mend, HasSubstr("limits.conf"));
}

TEST(DoctorChecksTest, FiguresTellTheirSourceAndWhatIsMissing) {
  ExpectComplete(JudgeFigures("schedstat", "", ""), Level::kOk);
  ExpectComplete(JudgeFigures("schedstat", "no pressure", ""), Level::kDegraded);
  EXPECT_EQ(JudgeFigures("schedstat", "no pressure", "").effect, "no pressure");
  ExpectComplete(JudgeFigures("", "", "cannot read /proc/stat"), Level::kFail);
}

TEST(DoctorChecksTest, CgroupOfBothVersionsIsFound) {
  EXPECT_THAT(JudgeCgroup("0::/user.slice\n").found, HasSubstr("version 2, at /user.slice"));
  const Finding first = JudgeCgroup("4:cpu,cpuacct:/box\n3:memory:/\n0::/\n");
  EXPECT_THAT(first.found, HasSubstr("version 1, cpu controller at /box"));
  ExpectComplete(first, Level::kOk);
  ExpectComplete(JudgeCgroup(""), Level::kDegraded);
}

TEST(DoctorChecksTest, LargeCheckpointsNeedRoom) {
  ExpectComplete(JudgeSpill("/tmp", 0, 1000, 100), Level::kOk);
  ExpectComplete(JudgeSpill("/tmp", 0, 10, 100), Level::kDegraded);
  ExpectComplete(JudgeSpill("/tmp", EACCES, 0, 100), Level::kFail);
  EXPECT_THAT(JudgeSpill("/tmp", EACCES, 0, 100).mend, HasSubstr("sudo install -d -m 1777 /tmp"));
  EXPECT_THAT(JudgeSpill("/tmp", 0, 10, 100).mend, HasSubstr("[migration] spill_dir = "));
}

TEST(DoctorChecksTest, APortInUseIsDegraded) {
  ExpectComplete(JudgePort({"127.0.0.1", 7070}, ""), Level::kOk);
  ExpectComplete(JudgePort({"127.0.0.1", 7070}, "in use"), Level::kDegraded);
}

}  // namespace
}  // namespace abacus::apps
