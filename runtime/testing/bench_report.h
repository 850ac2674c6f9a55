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

  std::string ToText() const;
  // {"machine": {...}, "rows": [{"name", "value", "unit", "baseline_name", "baseline", "ratio",
  // "goal", "met"}]}. Errors: the file's.
  absl::Status WriteJson(const std::string& path) const;

 private:
  const std::string room_;
  std::vector<std::string> notes_;
  std::vector<BenchRow> rows_;
};

// What main() of a room's benchmark does: takes [--json FILE], lets `measure` fill the report,
// prints it and writes it. Returns main()'s result: 0; 1 where the file cannot be written; 2 for
// other arguments.
int BenchMain(int argc, char** argv, const std::string& room,
              const std::function<void(BenchReport&)>& measure);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TESTING_BENCH_REPORT_H_
