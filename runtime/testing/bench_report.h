#ifndef ABACUS_RUNTIME_TESTING_BENCH_REPORT_H_
#define ABACUS_RUNTIME_TESTING_BENCH_REPORT_H_

// What every `./dev bench ROOM` prints and writes: rows of a measured value beside a baseline that
// was measured in the same run, because absolute times of shared machines mean little.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace abacus::runtime {

struct BenchRow {
  std::string name;
  double value = 0;
  std::string unit;
  std::string baseline_name;
  double baseline = 0;
  double ratio = 0;  // value / baseline, or as the goal says
  std::string goal;  // empty: reported without a goal
  std::optional<bool> met;
};

// Thread-compatible.
class BenchReport {
 public:
  explicit BenchReport(std::string room) : room_(std::move(room)) {}

  // A line about how the figures were made (pinning, processes); printed above the table.
  void Note(std::string line) { notes_.push_back(std::move(line)); }
  void Add(BenchRow row) { rows_.push_back(std::move(row)); }

  // Goals that were not met.
  size_t missed() const;

  std::string ToText() const;
  // {"machine": {...}, "rows": [{"name", "value", "unit", "baseline_name", "baseline", "ratio",
  // "goal", "met"}]}. Errors: the file's.
  absl::Status WriteJson(const std::string& path) const;

 private:
  const std::string room_;
  std::vector<std::string> notes_;
  std::vector<BenchRow> rows_;
};

// Prints the report, and writes it where `json` is not empty. Returns main()'s result, as below.
int FinishBench(const BenchReport& report, const std::string& json, bool strict);

// What main() of a room's benchmark does: takes [--strict] [--json FILE], lets `measure` fill the
// report, prints it and writes it. Returns main()'s result: 0; 1 where the file cannot be written;
// 2 for other arguments; with --strict 3 where a goal was not met. Without it a goal that is missed
// says "NO" and nothing more: times are of whatever machine this is.
int BenchMain(int argc, char** argv, const std::string& room,
              const std::function<void(BenchReport&)>& measure);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TESTING_BENCH_REPORT_H_
