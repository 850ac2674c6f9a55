#ifndef ABACUS_OBJFS_SPREAD_SHARE_CHOICE_H_
#define ABACUS_OBJFS_SPREAD_SHARE_CHOICE_H_

#include <algorithm>
#include <cstdint>
#include <optional>

namespace abacus::objfs {

// When one client uses a file's columns together with others, and when alone: events and times in,
// the answer out.
//
// Alone is faster for one client, which may keep what it reads and writes. Where clients take the
// file from each other, each time all that is kept has to be written back and the columns opened
// anew; together nobody waits for that. So:
//   - a promise that another client breaks within kSoon was of little use; after kBreaksMin of them
//     in a row the client wants the file together with the others;
//   - after a while together it tries alone again, for the others may be gone. Where that is broken
//     soon they are not: it goes back at once, and takes twice as long until it tries again.
// What needs the file alone for a call takes it alone, and changes nothing of this.
//
// Why no counting of what each client reads and writes: nobody sees the calls of the others, and
// the breaks tell what they cost.
// Thread-safety: thread-compatible. Units: nanoseconds of one monotonic clock.
class ShareChoice {
 public:
  using Nanos = int64_t;
  static constexpr Nanos kSoon = 1'000'000'000;
  static constexpr int kBreaksMin = 3;
  static constexpr Nanos kTogetherMin = 10'000'000'000, kTogetherMax = 16 * kTogetherMin;

  // Whether the file is to be used together now, with a promise that is claimed now.
  bool WantsTogether(Nanos now) const { return together_ && now < until_; }

  // A promise to have it alone was given, and it serves now.
  void OpenedAlone(Nanos now) {
    opened_ = now;
    tries_alone_ = together_ && now >= until_;
  }
  void OpenedTogether() { opened_.reset(); }
  // The promise that it had was broken for another client.
  void Broken(Nanos now) {
    if (!opened_.has_value()) return;
    const bool soon = now - *opened_ < kSoon;
    opened_.reset();
    if (!soon) {
      *this = ShareChoice();
    } else if (!together_) {
      if (++breaks_ >= kBreaksMin) Begin(now);
    } else if (tries_alone_) {
      together_for_ = std::min(2 * together_for_, kTogetherMax);
      Begin(now);
    }
  }
  // It wanted to, and could not: as if nobody had taken it away yet.
  void CouldNotShare() {
    together_ = false;
    breaks_ = 0;
  }

  // What is left where the layer goes to another node, whose clock is another one.
  struct Travelling {
    int32_t breaks = 0;
    bool together = false;
    Nanos together_for = 0;
  };
  Travelling Travels() const { return {breaks_, together_, together_for_}; }
  void Arrives(const Travelling& before, Nanos now) {
    *this = ShareChoice();
    breaks_ = std::clamp(before.breaks, 0, kBreaksMin - 1);
    together_for_ = std::clamp(before.together_for, kTogetherMin, kTogetherMax);
    if (before.together) Begin(now);
  }

 private:
  void Begin(Nanos now) {
    together_ = true;
    breaks_ = 0;
    until_ = now + together_for_;
  }

  int breaks_ = 0;  // soon, in a row
  bool together_ = false;
  bool tries_alone_ = false;  // it has it alone to see whether the others are gone
  Nanos together_for_ = kTogetherMin;
  Nanos until_ = 0;              // where together_: then it tries alone
  std::optional<Nanos> opened_;  // alone, and not broken yet
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_SPREAD_SHARE_CHOICE_H_
