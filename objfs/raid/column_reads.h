#ifndef ABACUS_OBJFS_RAID_COLUMN_READS_H_
#define ABACUS_OBJFS_RAID_COLUMN_READS_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/alarm.h"
#include "objfs/raid/read_pace.h"
#include "objfs/raid/read_plan.h"
#include "runtime/object/timed_branch.h"

namespace abacus::objfs {

// Reads of columns that are under way at once, of which not all have to be waited for to the end:
// one call a column, however many places of it are read. What each takes is told to a ReadPace. A
// call of a column on this node runs when it is waited for. Owner-thread: the one that made it,
// within one method. Blocking: Wait() only, and Answer() of a column that moved meanwhile.
class ColumnReads {
 public:
  // `alarm` null: calls are waited for, however long they take. Ownership: both outlive it.
  ColumnReads(Alarm* alarm, ReadPace* pace, Version now) : alarm_(alarm), pace_(pace), now_(now) {}
  // Those that are not answered are given up.
  ~ColumnReads();
  ColumnReads(const ColumnReads&) = delete;
  ColumnReads& operator=(const ColumnReads&) = delete;

  // Begins a call, unless the same was begun before. Returns its number.
  // REQUIRES: `reads` are of that column, and some.
  size_t Begin(const runtime::Ref<Layer>& column, std::vector<ColumnRead> reads);
  // Waits until all of `calls` are answered, which is true, or `patience` has passed.
  bool Wait(const std::vector<size_t>& calls, absl::Duration patience);
  // The columns that owe an answer to some of `calls`.
  std::vector<size_t> Late(const std::vector<size_t>& calls) const;

  bool answered(size_t call) const { return calls_[call].answer.has_value(); }
  size_t column(size_t call) const { return calls_[call].what.front().column; }
  // Of the call, and of one of its reads. REQUIRES: answered(call).
  absl::Status status(size_t call) const { return calls_[call].answer->status(); }
  absl::StatusOr<ReadResult> answer(size_t call, size_t read) const;

 private:
  using Branch = runtime::TimedBranch<&Layer::ReadRanges>;
  struct One {
    std::vector<ColumnRead> what;
    uint64_t bytes;
    absl::Time begun;
    Branch branch;
    std::optional<absl::Time> came;  // when it is known: it was waited for
    std::optional<absl::StatusOr<std::vector<ReadResult>>> answer;
  };
  // Whether it is answered. `rang`: a wait may end without.
  static bool WaitFor(One& one, const std::atomic<bool>& rang);
  // REQUIRES: it is answered.
  void Take(One& one);

  Alarm* const alarm_;
  ReadPace* const pace_;
  const Version now_;
  std::deque<One> calls_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_COLUMN_READS_H_
