#ifndef ABACUS_RUNTIME_TRANSPORT_ADAPTIVE_SPIN_H_
#define ABACUS_RUNTIME_TRANSPORT_ADAPTIVE_SPIN_H_

#include <algorithm>
#include <cstdint>

namespace abacus::runtime {

// How long it pays to spin for the next bytes before the thread blocks.
//
// Spinning saves a sleep and a wake-up (5 us on one core, 50 us between two) where the bytes come
// soon, and wastes the budget where they do not: both ends on one core, a slow peer, a slow link.
// So the budget doubles when spinning paid and halves when it did not, down to nothing; then it is
// tried again once in a while, ever more rarely as long as it keeps failing.
// Thread-compatible: belongs to whoever reads the connection.
class AdaptiveSpin {
 public:
  explicit AdaptiveSpin(int64_t max_ns) : max_ns_(max_ns), budget_ns_(max_ns) {}

  // How long to spin now; 0: not at all. The same until Won() or Lost() follow.
  int64_t BudgetNs() {
    if (budget_ns_ >= kMin_ns) return budget_ns_;
    if (!probing_) {
      if (max_ns_ < kMin_ns || ++skipped_ < skip_) return 0;
      skipped_ = 0;
      probing_ = true;
    }
    return max_ns_;
  }
  void Won() {
    probing_ = false;
    skip_ = kSkipMin;
    budget_ns_ = std::clamp(budget_ns_ * 2, std::min(kMin_ns * 4, max_ns_), max_ns_);
  }
  void Lost() {
    if (probing_) skip_ = std::min(skip_ * 2, kSkipMax);
    probing_ = false;
    budget_ns_ /= 2;
  }

 private:
  static constexpr int64_t kMin_ns = 1000;  // below, the clock and one look cost as much
  static constexpr uint32_t kSkipMin = 64;
  static constexpr uint32_t kSkipMax = 4096;

  const int64_t max_ns_;
  int64_t budget_ns_;
  bool probing_ = false;
  uint32_t skip_ = kSkipMin;
  uint32_t skipped_ = 0;  // waits without spinning since the last probe
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_ADAPTIVE_SPIN_H_
