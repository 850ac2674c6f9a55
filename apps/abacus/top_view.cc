#include "apps/abacus/top_view.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "apps/abacus/control.h"
#include "apps/abacus/figures.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"

namespace abacus::apps {
namespace {

using runtime::NodeReport;

struct Order {
  TopSort sort;
  const char* word;
  char key;
};
constexpr std::array kOrders = {
    Order{TopSort::kCpu, "cpu", 'c'},       Order{TopSort::kStall, "stall", 's'},
    Order{TopSort::kBytesIn, "in", 'i'},    Order{TopSort::kBytesOut, "out", 'o'},
    Order{TopSort::kMemory, "memory", 'm'}, Order{TopSort::kNode, "node", 'n'}};

// Connections that carry commands and heartbeats only are not shown.
constexpr uint64_t kLinkBytesShown = 1 << 20;

double StallOf(const NodeReport::ObjectLine& object) {
  return object.blocked_share + object.stall_share;
}

double WeightOf(TopSort sort, const NodeReport::ObjectLine& object) {
  switch (sort) {
    case TopSort::kStall:
      return StallOf(object);
    case TopSort::kBytesIn:
      return object.bytes_in_s;
    case TopSort::kBytesOut:
      return object.bytes_out_s;
    case TopSort::kMemory:
      return static_cast<double>(object.memory_bytes);
    case TopSort::kCpu:
    case TopSort::kNode:
      return object.cpu_share;
  }
  return 0;
}

// A figure that the node's source may not see.
template <typename Text>
std::string Maybe(const std::optional<double>& value, Text text) {
  return value ? text(*value) : "-";
}

std::string Rate(double per_s) { return absl::StrFormat("%.1f", per_s); }

std::string Percent(double share) { return absl::StrFormat("%.1f", 100 * share); }

}  // namespace

std::optional<TopSort> ParseTopSort(std::string_view word) {
  for (const Order& order : kOrders) {
    if (word == order.word) return order.sort;
  }
  return std::nullopt;
}

std::vector<std::string> TopSortWords() {
  std::vector<std::string> words;
  for (const Order& order : kOrders) words.push_back(order.word);
  return words;
}

void SortForTop(TopSort sort, std::vector<NodeReport::ObjectLine>& objects) {
  std::sort(objects.begin(), objects.end(), [sort](const auto& a, const auto& b) {
    if (sort == TopSort::kNode && a.node != b.node) return a.node < b.node;
    const double left = WeightOf(sort, a);
    const double right = WeightOf(sort, b);
    return left != right ? left > right : a.rid < b.rid;
  });
}

void TopView::SetReport(NodeReport report) {
  report_ = std::move(report);
  SortForTop(sort_, report_.objects);
}

bool TopView::Key(std::string_view key) {
  if (key == "q" || key == "\x03") return false;
  for (const Order& order : kOrders) {
    if (key != std::string_view(&order.key, 1)) continue;
    sort_ = order.sort;
    SortForTop(sort_, report_.objects);
  }
  if (key == "\r" || key == "\n") edges_ = !edges_;
  const bool up = key == "k" || key == "\x1b[A";
  const bool down = key == "j" || key == "\x1b[B";
  if ((up || down) && !report_.objects.empty()) {
    const auto& objects = report_.objects;
    const auto at = std::find_if(objects.begin(), objects.end(),
                                 [this](const auto& object) { return object.rid == chosen_; });
    auto place = at == objects.end() ? 0 : at - objects.begin() + (down ? 1 : -1);
    place = std::clamp<ptrdiff_t>(place, 0, static_cast<ptrdiff_t>(objects.size()) - 1);
    chosen_ = objects[static_cast<size_t>(place)].rid;
  }
  return true;
}

std::vector<std::string> TopView::EdgesOf(const NodeReport::ObjectLine& object) const {
  const auto name = [this](const runtime::Rid& rid) {
    for (const auto& one : report_.objects) {
      if (one.rid == rid) return absl::StrCat(one.class_name, " ", rid.ToString());
    }
    return rid.ToString();
  };
  std::vector<std::string> lines;
  for (const NodeReport::EdgeLine& edge : report_.edges) {
    const bool calls = edge.from == object.rid;
    if (!calls && edge.to != object.rid) continue;
    lines.push_back(absl::StrCat(
        "    ", calls ? "calls " : "called by ", name(calls ? edge.to : edge.from), ": ",
        absl::StrFormat("%.1f", edge.calls_s), " calls/s, ", HumanBytes(edge.request_bytes_s),
        "/s there, ", HumanBytes(edge.reply_bytes_s), "/s back"));
  }
  if (lines.empty()) lines.push_back("    no calls in the last window");
  return lines;
}

std::string TopView::Text(size_t rows, size_t columns) const {
  std::vector<std::string> lines = {
      absl::StrCat("HEALTH  ", report_.health),
      absl::StrCat("seen by ", report_.self.name, ": ", report_.members.size(), " nodes, ",
                   report_.objects_total,
                   " objects; order c s i o m n, choose up down, Enter: edges, q: end")};
  for (const NodeReport::MemberLine& member : report_.members) {
    if (!member.measured) continue;
    lines.push_back(absl::StrFormat("%s: load %.2f of %.0f cores, figures from %s",
                                    member.info.name, member.statistics.load,
                                    member.statistics.cores, member.statistics.source));
  }
  const std::string missing = MissingFigures(MeasuredNodes(report_));
  for (const absl::string_view line : absl::StrSplit(missing, '\n', absl::SkipEmpty())) {
    lines.emplace_back(line);
  }
  for (const NodeReport::LinkLine& link : report_.links) {
    if (link.bytes_sent + link.bytes_received < kLinkBytesShown) continue;
    lines.push_back(absl::StrCat(
        "link to ",
        link.node == 0 ? link.peer : absl::StrCat(NodeName(report_, link.node), " at ", link.peer),
        ": round trip ", absl::FormatDuration(link.round_trip), ", delivered at ",
        HumanBytes(link.delivered_bytes_s), "/s", link.app_limited ? " or more" : "", ", ",
        HumanBytes(static_cast<double>(link.bytes_sent)), " sent, ",
        HumanBytes(static_cast<double>(link.bytes_received)), " received"));
  }
  lines.push_back("");
  Table table({"", "object", "class", "at", "CPU %", "backgr. %", "blocked %", "disk %", "ready %",
               "stall %", "switches/s", "preempted/s", "I/O B/s", "I/O %", "in/s", "out/s", "ns/B",
               "memory"});
  for (const NodeReport::ObjectLine& object : report_.objects) {
    table.AddRow(
        {object.rid == chosen_ ? ">" : "", object.rid.ToString(), object.class_name,
         NodeName(report_, object.node), Percent(object.cpu_share),
         Percent(object.background_share), Percent(object.blocked_share),
         Percent(object.disk_share), Percent(object.ready_share), Percent(object.stall_share),
         Maybe(object.voluntary_switches_s, Rate), Maybe(object.involuntary_switches_s, Rate),
         Maybe(object.io_bytes_s, HumanBytes), Maybe(object.io_share, Percent),
         HumanBytes(object.bytes_in_s), HumanBytes(object.bytes_out_s),
         absl::StrFormat("%.1f", object.ns_per_byte()),
         object.memory_bytes == 0 ? "-" : HumanBytes(static_cast<double>(object.memory_bytes))});
  }
  const std::string text = table.ToString();
  const std::vector<std::string> table_lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (size_t i = 0; i < table_lines.size(); ++i) {
    lines.push_back(table_lines[i]);
    // Behind the head and its underline comes an object a line.
    if (!edges_ || i < 2 || report_.objects[i - 2].rid != chosen_) continue;
    for (std::string& edge : EdgesOf(report_.objects[i - 2])) lines.push_back(std::move(edge));
  }
  std::string shown;
  for (size_t i = 0; i < lines.size() && i < rows; ++i) {
    absl::StrAppend(&shown, lines[i].substr(0, columns), "\n");
  }
  return shown;
}

}  // namespace abacus::apps
