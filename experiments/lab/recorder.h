#ifndef ABACUS_EXPERIMENTS_LAB_RECORDER_H_
#define ABACUS_EXPERIMENTS_LAB_RECORDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/node/node.h"

namespace abacus::lab {

// What one client's job did and when. Times are from Begin() on.
// Thread-safety: OnMove() may come from any thread; the rest belongs to the job's.
class Recorder {
 public:
  // Points of the progress curves are so far apart at least.
  static constexpr absl::Duration kPointEvery = absl::Milliseconds(250);

  struct Point {
    double t_s = 0;
    uint64_t operations = 0;
    uint64_t retries = 0;
  };
  struct Move {
    double t_s = 0;
    runtime::MoveEvent event;
  };

  // How often the job's work was tried again so far; asked at each point.
  void set_retries(std::function<uint64_t()> retries) { retries_ = std::move(retries); }

  void Begin();
  void Done();  // one operation more
  void End();
  // False: it is not one to be recorded.
  bool OnMove(const runtime::MoveEvent& event);

  double elapsed_s() const { return elapsed_s_; }
  uint64_t operations() const { return operations_; }
  const std::vector<Point>& points() const { return points_; }
  // Committed moves since Begin().
  std::vector<Move> moves() const;

 private:
  double Since() const;
  void AddPoint();

  std::function<uint64_t()> retries_;
  absl::Time begun_ = absl::InfiniteFuture();
  double elapsed_s_ = 0;
  double next_point_s_ = 0;
  uint64_t operations_ = 0;
  std::vector<Point> points_;
  mutable runtime::Mutex mutex_;
  bool recording_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Move> moves_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_RECORDER_H_
