#ifndef ABACUS_RUNTIME_RESOURCE_MOMENTS_H_
#define ABACUS_RUNTIME_RESOURCE_MOMENTS_H_

#include <algorithm>
#include <cmath>

namespace abacus::runtime {

// Mean and variance of a rate over the last window, from samples of it that weigh by how long they
// are and fade with age: a sample that is one window old counts 1/e. Nothing is kept of a sample.
// Thread-compatible. Source: West's update of weighted moments.
class Moments {
 public:
  // `rate` was seen for `length_s`; `window_s` is H. REQUIRES: both > 0.
  void Add(double rate, double length_s, double window_s) {
    const double fading = std::exp(-length_s / window_s);
    weight_s_ = weight_s_ * fading + length_s;
    squares_s_ = squares_s_ * fading * fading + length_s * length_s;
    const double share = length_s / weight_s_;
    const double off = rate - mean_;
    mean_ += share * off;
    variance_ = (1 - share) * (variance_ + share * off * off);
    length_s_ += share * (length_s - length_s_);
  }

  double mean() const { return mean_; }
  // Of one sample's rate, without the bias of a small number of them; 0 before the second one.
  double variance() const {
    const double bias = 1 - squares_s_ / (weight_s_ * weight_s_);
    return weight_s_ > 0 && bias > 1e-9 ? variance_ / bias : 0;
  }
  // How many samples of equal weight would say as much.
  double samples() const { return squares_s_ > 0 ? weight_s_ * weight_s_ / squares_s_ : 0; }
  // Variance of what passes in a window that is made of such samples, independent of each other:
  // with n = window / length of them, n x (length x deviation)^2. Units: of the rate x s, squared.
  double VarianceOfWindow(double window_s) const { return variance() * window_s * length_s_; }

 private:
  double weight_s_ = 0;
  double squares_s_ = 0;
  double mean_ = 0;
  double variance_ = 0;
  double length_s_ = 0;  // of a sample, on average
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_MOMENTS_H_
