#ifndef ABACUS_PLACEMENT_HISTORY_H_
#define ABACUS_PLACEMENT_HISTORY_H_

// The last samples of one object graph, and windows made of them.

#include <cstddef>
#include <vector>

#include "placement/statistics.h"

namespace abacus::placement {

// Keeps samples, each a Snapshot of one short interval, and adds up those since any time.
//
// A window that somebody else has already added up cannot be taken apart again, so that old history
// could only be waited out. Here it can be dropped at the sample in which the behaviour changed.
// The samples also tell how much figures vary, which sums do not. All samples are of one graph
// whose objects stay where they are; when the graph or a place changes the history begins anew, as
// no sum over both would mean anything. Units: seconds. Thread-safety: thread-compatible. Limits:
// samples_max, the oldest go first; a sample takes 24 bytes and 4 a figure: 15 an object, 3 an
// edge, 2 a node or link. Source: ours: the paper's history is one window.
class GraphHistory {
 public:
  explicit GraphHistory(size_t samples_max) : samples_max_(samples_max) {}

  // From now on; of more than that the oldest go. REQUIRES: > 0.
  void SetSamplesMax(size_t samples_max);

  // Takes the figures of the interval of sample.window_s seconds that ended at end_s. Returns false
  // if the history began anew with this sample.
  // REQUIRES: every figure finite; window_s > 0.
  bool Add(Snapshot sample, double end_s);

  // The figures since from_s: samples that began before are left out, but never all. Loads, rates,
  // bandwidths and round trips are means over the time (an unknown one is that of the last sample);
  // memory, pins and other states are of the last sample. Variances of CPU times, bytes and
  // bandwidths are estimated from the samples, of which a prior is worth two, as one sample says
  // nothing of how it varies: by how much the figure varied in the samples left out, 20 % at most
  // and where there are few of them.
  // What nodes counted of calls between them is brought to what the console's side has seen
  // (AlignCalls below).
  // REQUIRES: not empty().
  Snapshot Window(double from_s) const;

  // Entries sorted by id, so that the same graph always has them in the same order.
  const Snapshot& latest() const { return latest_; }
  bool empty() const { return rows_.empty(); }
  double begin_s() const;
  double end_s() const { return rows_.empty() ? 0 : rows_.back().end_s; }
  void Clear() { DropOldest(rows_.size()); }

 private:
  struct Row {
    double end_s = 0;
    double length_s = 0;
    bool has_t_app = false;
  };

  const float* FiguresOf(size_t row) const { return figures_.data() + row * width_; }
  void DropOldest(size_t rows);
  std::vector<double> EarlierDeviations(size_t rows) const;

  size_t samples_max_;
  Snapshot latest_;
  std::vector<Row> rows_;       // the oldest first
  std::vector<float> figures_;  // of each row
  size_t width_ = 0;            // figures of a row
};

// Brings the figures of callees to the number of calls that their callers have seen.
//
// A callee counts a call when it has run, its caller when it has the answer, and the two nodes'
// samples end at times of their own. So in a short window a caller may have seen the answers of one
// call of 26 ms, and its callee have run two: the costs of two would be set against the time of
// one. An object that is called from another node and has run up to one call a console more or less
// than came of it has its figures and those of the calls that it makes multiplied by callers' calls
// / own calls, and so on downwards. Larger differences have other reasons and stay.
//   1 call over the edge, 2 inside the callee for 1 ms and 2 calls of 8 KiB: 0.5 ms and 1 call.
void AlignCalls(Snapshot* window);

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_HISTORY_H_
