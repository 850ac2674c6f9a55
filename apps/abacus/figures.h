#ifndef ABACUS_APPS_ABACUS_FIGURES_H_
#define ABACUS_APPS_ABACUS_FIGURES_H_

// Where the figures of nodes come from, and what is missing of them, as the commands show it.
//
// Thread-safety: thread-safe. Blocking: no.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "placement/statistics.h"
#include "runtime/node/control_types.h"

namespace abacus::apps {

struct LostCount {
  const char* name;   // in JSON
  const char* words;  // behind the count, for people
  uint64_t count = 0;
};
std::array<LostCount, 4> LostCounts(const placement::LostFigures& lost);

// "3 threads not watched, 1 requests of block I/O not charged"; empty where nothing was lost.
std::string LostText(const placement::LostFigures& lost);

// What an object costs, by the names that JSON has for it; nullopt where the node's source does not
// see the figure.
struct NamedFigure {
  const char* name;
  std::optional<double> value;
};
std::vector<NamedFigure> FiguresOf(const runtime::NodeReport::ObjectLine& object);

// The nodes that have said what they measured.
std::vector<placement::NodeStatistics> MeasuredNodes(const runtime::NodeReport& report);

// Lines that tell what a better source of figures would need, nodes with the same reason on one,
// and what was lost at which node. None where nothing is missing. Each ends with '\n'.
std::string MissingFigures(const std::vector<placement::NodeStatistics>& nodes);

// A line a node that names the source of its figures, and MissingFigures() behind them.
std::string SourcesOfFigures(const std::vector<placement::NodeStatistics>& nodes);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_FIGURES_H_
