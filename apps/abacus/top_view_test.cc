#include "apps/abacus/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace abacus::apps {
namespace {

using runtime::NodeReport;
using runtime::Rid;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Rid kGrep{{5, 1}, 2};
constexpr Rid kFile{{7, 1}, 3};

NodeReport TopReport() {
  NodeReport report;
  report.self.name = "s";
  report.health = "OK";
  report.objects = {{.rid = kGrep,
                     .class_name = "apps.Grep",
                     .node = 5,
                     .cpu_share = 0.25,
                     .background_share = 0.125,
                     .stall_share = 0.7,
                     .bytes_s = 2e6,
                     .bytes_in_s = 2e6,
                     .bytes_out_s = 1000,
                     .memory_bytes = 4096,
                     .voluntary_switches_s = 321,
                     .involuntary_switches_s = 0.0,
                     .io_bytes_s = 5 << 20,
                     .io_requests_s = 5,
                     .io_share = 0.4125},
                    {.rid = kFile,
                     .class_name = "objfs.Storage",
                     .node = 7,
                     .cpu_share = 0.01,
                     .blocked_share = 0.9,
                     .disk_share = 0.8,
                     .bytes_in_s = 500,
                     .bytes_out_s = 2e6}};
  report.objects_total = 2;
  report.edges = {
      {.from = kGrep, .to = kFile, .calls_s = 30, .request_bytes_s = 500, .reply_bytes_s = 2e6}};
  return report;
}

// The classes in the order in which they are shown.
std::string OrderOf(const TopView& view) {
  const std::string text = view.Text(100, 300);
  return text.find("apps.Grep") < text.find("objfs.Storage") ? "grep, file" : "file, grep";
}

TEST(TopViewTest, KeysChooseTheOrder) {
  TopView view(TopSort::kCpu);
  view.SetReport(TopReport());
  EXPECT_EQ(OrderOf(view), "grep, file");
  for (const auto& [key, order] : {std::pair<const char*, const char*>{"s", "file, grep"},
                                   {"i", "grep, file"},
                                   {"o", "file, grep"},
                                   {"m", "grep, file"},
                                   {"n", "grep, file"},
                                   {"o", "file, grep"},
                                   {"c", "grep, file"}}) {
    EXPECT_TRUE(view.Key(key));
    EXPECT_EQ(OrderOf(view), order) << key;
  }
  EXPECT_FALSE(view.Key("q"));
}

TEST(TopViewTest, EnterShowsTheEdgesOfTheChosenObjectAndHidesThemAgain) {
  TopView view(TopSort::kCpu);
  view.SetReport(TopReport());
  EXPECT_TRUE(view.Key("\r"));
  EXPECT_THAT(view.Text(100, 300), Not(HasSubstr("calls/s"))) << "none is chosen";
  view.Key("j");
  EXPECT_THAT(view.Text(100, 300), HasSubstr("calls objfs.Storage " + kFile.ToString() +
                                             ": 30.0 calls/s, 500 B/s there, 1.9 MiB/s back"));
  view.Key("\x1b[B");
  EXPECT_THAT(view.Text(100, 300), HasSubstr("called by apps.Grep"));
  view.Key("\x1b[B");  // there is no further one
  EXPECT_THAT(view.Text(100, 300), HasSubstr("called by apps.Grep"));
  view.Key("\r");
  EXPECT_THAT(view.Text(100, 300), Not(HasSubstr("calls/s")));
}

TEST(TopViewTest, ChosenObjectStaysChosenWhenTheOrderChanges) {
  TopView view(TopSort::kCpu);
  view.SetReport(TopReport());
  view.Key("j");
  view.Key("s");
  view.SetReport(TopReport());
  const std::string text = view.Text(100, 300);
  const size_t mark = text.find("\n>");
  ASSERT_NE(mark, std::string::npos) << text;
  EXPECT_THAT(text.substr(mark, text.find('\n', mark + 1) - mark), HasSubstr("apps.Grep"));
}

TEST(TopViewTest, NothingIsLargerThanTheScreen) {
  NodeReport report = TopReport();
  for (uint64_t i = 10; i < 200; ++i) report.objects.push_back({.rid = {{5, 1}, i}});
  TopView view(TopSort::kMemory);
  view.SetReport(report);
  const std::string text = view.Text(24, 40);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 24);
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    EXPECT_LE(end - at, 40u);
  }
}

TEST(TopViewTest, MemoryThatIsNotCountedIsNoNumber) {
  TopView view(TopSort::kNode);
  view.SetReport(TopReport());
  EXPECT_THAT(view.Text(100, 300), HasSubstr("4.0 KiB"));
  EXPECT_THAT(view.Text(100, 300), HasSubstr("12.5")) << "background";
  EXPECT_THAT(view.Text(100, 300), HasSubstr("125.0")) << "ns a byte: 0.25 s for 2 MB";
  EXPECT_THAT(view.Text(100, 300), HasSubstr(" -\n"));
}

// The cells of the row that the text stands in, by the names of their columns.
std::map<std::string, std::string> Row(const std::string& table, const std::string& in_it) {
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  const auto line = [&](const std::string& text) {
    return *std::find_if(lines.begin(), lines.end(),
                         [&](const std::string& one) { return one.find(text) != one.npos; });
  };
  // Columns stand two blanks or more apart.
  const auto cells = [](const std::string& text) {
    std::vector<std::string> found;
    for (const absl::string_view part : absl::StrSplit(text, "  ", absl::SkipWhitespace())) {
      found.emplace_back(absl::StripAsciiWhitespace(part));
    }
    return found;
  };
  const std::vector<std::string> names = cells(line("CPU %"));
  const std::vector<std::string> values = cells(line(in_it));
  std::map<std::string, std::string> row;
  EXPECT_EQ(names.size(), values.size()) << table;
  for (size_t i = 0; i < std::min(names.size(), values.size()); ++i) row[names[i]] = values[i];
  return row;
}

TEST(TopViewTest, WhatTheSourceDoesNotSeeIsNoNumberAndZeroIsOne) {
  TopView view(TopSort::kNode);
  view.SetReport(TopReport());
  auto grep = Row(view.Text(100, 300), "apps.Grep");
  EXPECT_EQ(grep["switches/s"], "321.0");
  EXPECT_EQ(grep["preempted/s"], "0.0");
  EXPECT_EQ(grep["I/O B/s"], "5.0 MiB");
  EXPECT_EQ(grep["I/O %"], "41.2");
  auto file = Row(view.Text(100, 300), "objfs.Storage");
  for (const char* name : {"switches/s", "preempted/s", "I/O B/s", "I/O %"}) {
    EXPECT_EQ(file[name], "-") << name;
  }
}

TEST(TopViewTest, EachNodeNamesTheSourceOfItsFiguresWhatIsMissingAndWhatWasLost) {
  NodeReport report = TopReport();
  report.members = {{.info = {.instance = {7, 1}, .name = "s"},
                     .measured = true,
                     .statistics = {.source = "ebpf", .lost = {.threads = 2}}},
                    {.info = {.instance = {5, 1}, .name = "c"},
                     .measured = true,
                     .statistics = {.source = "thread-clock", .source_missing = "old kernel"}},
                    {.info = {.instance = {6, 1}, .name = "new"}}};
  TopView view(TopSort::kCpu);
  view.SetReport(report);
  const std::string text = view.Text(100, 300);
  EXPECT_THAT(text, HasSubstr("s: load 1.00 of 1 cores, figures from ebpf\n"));
  EXPECT_THAT(text, HasSubstr("c: load 1.00 of 1 cores, figures from thread-clock\n"));
  EXPECT_THAT(text, HasSubstr("figures of c could be better: old kernel\n"));
  EXPECT_THAT(text, HasSubstr("lost at s: 2 threads not watched\n"));
  EXPECT_THAT(text, Not(HasSubstr("new")));
}

TEST(TopViewTest, LinksNameTheirNodeAndStrangersTheirAddress) {
  NodeReport report = TopReport();
  report.members = {{.info = {.instance = {5, 1}, .name = "c"}}};
  report.links = {{.node = 5, .connections = 2, .peer = "10.0.0.5:7071", .bytes_sent = 5 << 20},
                  {.connections = 1, .peer = "10.0.0.6:4242", .bytes_received = 6 << 20},
                  {.connections = 1, .peer = "10.0.0.7:4242", .bytes_received = 6 << 10}};
  TopView view(TopSort::kCpu);
  view.SetReport(report);
  const std::string text = view.Text(100, 300);
  EXPECT_THAT(text, HasSubstr("link to c at 10.0.0.5:7071: round trip"));
  EXPECT_THAT(text, HasSubstr("link to 10.0.0.6:4242: round trip"));
  EXPECT_THAT(text, Not(HasSubstr("10.0.0.7"))) << "next to nothing flowed";
}

TEST(TopViewTest, OrdersHaveWords) {
  for (const std::string& word : TopSortWords()) EXPECT_TRUE(ParseTopSort(word)) << word;
  EXPECT_FALSE(ParseTopSort("colour"));
}

}  // namespace
}  // namespace abacus::apps
