#include "apps/abacus/figures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace abacus::apps {
namespace {

std::string NameOf(const placement::NodeStatistics& node) {
  return node.name.empty() ? absl::StrCat("node ", node.node) : node.name;
}

}  // namespace

std::array<LostCount, 4> LostCounts(const placement::LostFigures& lost) {
  return {{{"threads", "threads not watched", lost.threads},
           {"io_requests", "requests of block I/O not charged", lost.io_requests},
           {"io_times", "requests of block I/O not timed", lost.io_times},
           {"edges", "times the figures of calls between two objects", lost.edges}}};
}

std::string LostText(const placement::LostFigures& lost) {
  std::vector<std::string> parts;
  for (const LostCount& one : LostCounts(lost)) {
    if (one.count > 0) parts.push_back(absl::StrCat(one.count, " ", one.words));
  }
  return absl::StrJoin(parts, ", ");
}

std::vector<NamedFigure> FiguresOf(const runtime::NodeReport::ObjectLine& object) {
  return {{"cpu_share", object.cpu_share},
          {"blocked_share", object.blocked_share},
          {"disk_share", object.disk_share},
          {"ready_share", object.ready_share},
          {"background_share", object.background_share},
          {"ns_per_byte", object.ns_per_byte()},
          {"stall_share", object.stall_share},
          {"voluntary_switches_s", object.voluntary_switches_s},
          {"involuntary_switches_s", object.involuntary_switches_s},
          {"io_bytes_s", object.io_bytes_s},
          {"io_requests_s", object.io_requests_s},
          {"io_share", object.io_share},
          {"bytes_s", object.bytes_s},
          {"bytes_in_s", object.bytes_in_s},
          {"bytes_out_s", object.bytes_out_s}};
}

std::vector<placement::NodeStatistics> MeasuredNodes(const runtime::NodeReport& report) {
  std::vector<placement::NodeStatistics> nodes;
  for (const runtime::NodeReport::MemberLine& member : report.members) {
    if (!member.measured) continue;
    nodes.push_back(member.statistics);
    nodes.back().name = member.info.name;
    nodes.back().node = member.info.instance.node;
  }
  return nodes;
}

std::string MissingFigures(const std::vector<placement::NodeStatistics>& nodes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  std::string lost;
  for (const placement::NodeStatistics& node : nodes) {
    if (node.lost.all() > 0) {
      absl::StrAppend(&lost, "lost at ", NameOf(node), ": ", LostText(node.lost), "\n");
    }
    if (node.source_missing.empty()) continue;
    const auto known = std::find_if(by_reason.begin(), by_reason.end(), [&](const auto& one) {
      return one.first == node.source_missing;
    });
    if (known != by_reason.end()) {
      known->second.push_back(NameOf(node));
    } else {
      by_reason.push_back({node.source_missing, {NameOf(node)}});
    }
  }
  std::string text;
  for (const auto& [reason, names] : by_reason) {
    absl::StrAppend(&text, "figures of ", absl::StrJoin(names, ", "), " could be better: ", reason,
                    "\n");
  }
  return text + lost;
}

std::string SourcesOfFigures(const std::vector<placement::NodeStatistics>& nodes) {
  std::string text;
  for (const placement::NodeStatistics& node : nodes) {
    absl::StrAppend(&text, "figures of ", NameOf(node), " from ", node.source, "\n");
  }
  return text + MissingFigures(nodes);
}

}  // namespace abacus::apps
