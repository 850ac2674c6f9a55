#ifndef ABACUS_OBJFS_RAID_READ_PACE_H_
#define ABACUS_OBJFS_RAID_READ_PACE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// How long reads of each of several copies take, and so which one to ask: the one that is expected
// to answer first, with the reads that wait there already counted in. One that was not asked for a
// while is tried now and then, so that it is found when it has become quick.
//
// A latency is kept as a moving average (each sample counts 1/8) of what a read takes for each
// "unit" of work: one for the read, and one for each 128 KiB.
//
// Copies here are, too, the columns of a file with parity: what is asked then is which one to do
// without (ChooseAllButOne).
// Time is an argument. Thread-safety: thread-safe. Blocking: no.
class ReadPace {
 public:
  static constexpr double kSampleShare = 1.0 / 8;
  static constexpr double kShareAfterLong = 1.0 / 2;  // of what is known of long ago the rest
  static constexpr uint64_t kUnitBytes = 128 << 10;
  // After so long without a sample a copy is tried.
  static constexpr absl::Duration kLookAgain = absl::Seconds(1);
  // A read is late when it takes longer than this multiple of what the quickest copy usually takes.
  static constexpr double kLateTimes = 4;
  // But a thread may be late for reasons of its own.
  static constexpr absl::Duration kPatienceLeast = absl::Milliseconds(2);
  // Of a copy that nothing is known of.
  static constexpr absl::Duration kPatienceUnknown = absl::Milliseconds(20);

  explicit ReadPace(size_t copies = 0) { Reset(copies); }

  // Nothing is known of any copy.
  void Reset(size_t copies);

  struct Choice {
    size_t copy = 0;
    std::optional<size_t> other;  // to ask when that one is late
    absl::Duration patience;      // it is late after this
  };
  // Of `copies`, not empty, for a read of `bytes`. The read is counted as begun there: Ended() has
  // to follow.
  Choice Choose(const std::vector<size_t>& copies, uint64_t bytes, absl::Time now);
  // A read was begun at a copy that was not chosen.
  void Begun(size_t copy);
  // It took so long. `given_up`: it has not ended yet.
  void Ended(size_t copy, uint64_t bytes, absl::Duration took, bool given_up, absl::Time now);
  // A read that tells nothing of how long it takes.
  void Failed(size_t copy);

  // Of copies of which one can be done without, whichever it is.
  struct AllButOne {
    std::optional<size_t> without;  // it would be late anyway
    absl::Duration patience;        // others are late after this
  };
  // `asked`: of which something is wanted, `bytes` of one at most. Late is what takes longer than a
  // multiple of what the slowest takes but for one. One that is done without is tried, too.
  AllButOne ChooseAllButOne(const std::vector<size_t>& asked, uint64_t bytes, absl::Time now);
  enum class Took : uint8_t {
    kExactly,
    kAtMost,   // it had come when it was looked for
    kAtLeast,  // it was given up
  };
  void Sample(size_t copy, uint64_t bytes, absl::Duration took, Took how, absl::Time now);

  // What a read of no bytes usually takes; zero: not known.
  absl::Duration Usual(size_t copy) const;
  uint64_t hedged() const;  // reads that were asked for at a second copy

 private:
  struct Copy {
    double unit_ns = 0;  // 0: not known
    int reading = 0;
    bool due = false;  // tried, as what is known of it is old
    absl::Time sampled = absl::InfinitePast();
  };
  static double UnitsOf(uint64_t bytes) {
    return 1 + static_cast<double>(bytes) / static_cast<double>(kUnitBytes);
  }

  void SampleLocked(size_t copy, uint64_t bytes, absl::Duration took, Took how, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable runtime::Mutex mutex_;
  std::vector<Copy> copies_ ABSL_GUARDED_BY(mutex_);
  uint64_t hedged_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_READ_PACE_H_
