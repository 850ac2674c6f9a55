#ifndef ABACUS_PLACEMENT_PHASES_H_
#define ABACUS_PLACEMENT_PHASES_H_

// When an object graph begins to behave otherwise, and how long it behaves so.
//
// What is watched is the mix of a graph's costs: the time that each object's work and each edge's
// bytes and calls would take, as shares of their sum. The mix is what the best placement depends
// on, and it does not change when the graph gets faster because it was moved or because others
// left: rates per second do, which is why they are not watched. The sum itself is the amount of
// work, in seconds that do not depend on the placement either ("reference seconds"): phases are as
// long as the work that they do, and take more or less time as the placement suits them.
//
// What goes on for less than a window may still be worth a move of its own, if it lasts longer than
// that move. But where one such phase follows another, changing is what the graph does: a file over
// five disks is written a stripe here, a stripe there, and four calls go where the next four do
// not. Once they have lasted for a window together they are one phase, whose mix varies as much as
// theirs did. Else no window of it would ever be whole.
//
// Units: _s is seconds, _ref_s reference seconds; shares have none.
// Thread-safety: thread-compatible. Limits: named below; reached, the oldest or least used goes.
// Source: DESIGN 7 asks for learnt phases; the method (CUSUM, Page 1954) and the mix are ours.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace abacus::placement {

struct PhaseConfig {
  // A share has to be off by more than this many standard deviations to count as evidence at all
  // (Page's reference value), and evidence adds up to an alarm at this sum. For normal noise one
  // share raises a false alarm in some exp(2 x 1 x (8 + 1.17)) / 2 = 46 million samples (Siegmund's
  // approximation), which is 26 days at 20 samples a second; a lasting change by 5 deviations is
  // found in 8 / (5 - 1) = 2 samples. 0.1 to 10; 1 to 1000.
  double slack_deviations = 1;
  double alarm_sum = 8;
  // One sample counts for at most this many deviations beyond the slack: with 5 and a sum of 8 no
  // single sample can raise an alarm, whatever it says. 1 to 1000.
  double evidence_per_sample_max = 5;
  // Shares are taken to vary by at least this much, and before samples tell by this part of
  // themselves: a share of 0.5 that was always the same is no proof that 0.51 is a change.
  // 0.001 to 0.5; 0.01 to 1.
  double deviation_floor = 0.03;
  double deviation_prior = 0.2;
  // A mix is another one if this part of the costs changed its place (total variation distance).
  // +-20 % on every figure can move at most 0.2: two halves that read 0.6 : 0.4 and then 0.4 : 0.6,
  // as 1.2 / (1.2 + 0.8) = 0.6. Below it even a proven change is a drift, which the window follows.
  // 0.01 to 1.
  double kind_distance = 0.25;
  // Kinds of phase remembered for a graph, and lengths of each. 1 to 64; 1 to 64.
  size_t kinds_max = 8;
  size_t lengths_max = 4;
};

// Watches the mix of one graph.
class PhaseTracker {
 public:
  // Phases shorter than window_s, the observation window, are joined if they follow each other.
  explicit PhaseTracker(const PhaseConfig& config, double window_s = 1)
      : config_(config), window_s_(window_s) {}

  // New constants from now on; of kinds and lengths beyond new limits the least recently used and
  // the oldest go. REQUIRES: in range.
  void SetConfig(const PhaseConfig& config, double window_s = 1);

  // Takes one sample: cost_ref_s is what each object and edge did between begin_s and end_s, in
  // reference seconds. A place in it is the same object or edge in every sample: what it cost is 0
  // before the first sample that is long enough to have the place, and in those that are not. A
  // sample without any cost is passed over.
  // Returns true if with this sample the behaviour is known to have changed (see since_s()).
  // REQUIRES: costs finite and not negative, times not decreasing.
  bool Add(absl::Span<const double> cost_ref_s, double begin_s, double end_s);

  // Forgets the costs at all places but these, which become 0, 1, and so on.
  // REQUIRES: each is known, and named once.
  void Keep(absl::Span<const size_t> places);

  // The graph was moved: CPU times are measured with another yardstick from now on, which must not
  // be taken for a change. What the present phase looks like is learnt again from the next sample;
  // but one that looks like another phase that is known, and not like the present one, is that.
  // A phase that was joined of short ones varies by more than a yardstick changes, and one sample
  // says nothing of it: of it all is kept.
  void Rebase();

  // Since when the graph has behaved as it does: samples that began before are of an earlier phase,
  // or of both. Goes back where short phases turn out to be one.
  double since_s() const { return since_s_; }
  uint64_t changes() const { return changes_; }
  // The kind of the present phase, counted from 0 by first appearance; empty: none like it is
  // known.
  std::optional<size_t> kind() const { return kind_; }

  // Work that the present phase has done, and what is expected still to come: the mean of the
  // lengths of earlier phases of its kind that were longer, less what was done. A phase that has
  // outlived all of them is expected to go on for as long as it has lasted.
  // Empty: no phase of the kind has ended yet.
  double done_ref_s() const { return done_ref_s_; }
  std::optional<double> RemainingRefS() const;
  // Mean length of earlier phases of this kind.
  std::optional<double> LengthRefS() const;

 private:
  struct Reference {  // what the present phase looks like
    std::vector<double> mean, square;
    double samples = 0;
    bool rebase = false;  // the next sample replaces all that is known of it
  };
  struct Together {  // phases of less than a window that followed each other, up to the present one
    Reference reference;
    size_t phases = 0;
    double since_s = 0;
    double done_ref_s = 0;
  };
  struct Kind {
    std::vector<double> mix;
    std::vector<double> lengths_ref_s;  // the newest last
    uint64_t used = 0;
  };
  struct Pending {  // a sample that may belong to the next phase
    double begin_s = 0;
    std::vector<double> cost_ref_s;
  };

  std::optional<size_t> OtherKind(absl::Span<const double> mix) const;
  double Deviation(size_t i) const;
  bool Accumulate(absl::Span<const double> shares);
  void Learn(absl::Span<const double> shares);
  void Begin(absl::Span<const double> mix, double since_s);
  void NoteShort(double until_s);
  void JoinShort();
  void Widen(size_t places);
  void EndPhase();
  std::optional<size_t> FindKind(absl::Span<const double> mix) const;
  // Mix of the pending samples from `from` up to `to`.
  std::vector<double> PendingMix(size_t from, size_t to) const;
  bool Change(double now_s);

  PhaseConfig config_;
  double window_s_;
  Reference reference_;
  Together short_;
  bool joined_ = false;           // the present phase was made of short ones
  std::vector<double> sums_;      // Page's, of each share, upwards and then downwards
  std::vector<Pending> pending_;  // since all sums were last zero
  std::vector<Kind> kinds_;
  std::optional<size_t> kind_;
  double since_s_ = 0;
  double done_ref_s_ = 0;
  uint64_t changes_ = 0;
  uint64_t clock_ = 0;  // for the least recently used kind
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_PHASES_H_
