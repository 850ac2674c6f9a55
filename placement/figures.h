#ifndef ABACUS_PLACEMENT_FIGURES_H_
#define ABACUS_PLACEMENT_FIGURES_H_

// The ranges that a measured figure is believed in. Internal to the room.
//
// Beyond them a figure is a fault of its source and not a measurement. They also keep every product
// and quotient of the equations far from the ends of double.

#include <string>

#include "absl/strings/str_cat.h"

namespace abacus::placement::figures {

inline constexpr double kCountMax = 1e18;   // bytes, calls
inline constexpr double kSecondsMax = 1e6;  // of a window, of CPU time in it
inline constexpr double kAtOnceMax = 1e6;   // calls of one console
inline constexpr double kRateMin = 1e-9;    // work units per second
inline constexpr double kRateMax = 1e18;
inline constexpr double kCoresMin = 1e-3;
inline constexpr double kCoresMax = 1e6;
inline constexpr double kLoadMax = 1e6;
inline constexpr double kBandwidthMin = 1;  // bytes per second
inline constexpr double kBandwidthMax = 1e15;
inline constexpr double kRoundTripMax = 1e3;
inline constexpr double kWindowMin = 1e-6;
inline constexpr double kVarianceMax = 1e36;  // kCountMax squared
// CPU time below a nanosecond is rounding of whoever averaged it.
inline constexpr double kCpuMin = 1e-9;

// Remembers the first figure that is out of its range. NaN is out of every range.
// Thread-compatible.
class Check {
 public:
  void Within(const char* figure, double value, double low, double high) {
    if (failed() || (value >= low && value <= high)) return;
    figure_ = figure;
    value_ = value;
    low_ = low;
    high_ = high;
  }

  bool failed() const { return figure_ != nullptr; }

  // REQUIRES: failed().
  std::string DetailOf(const std::string& whose) const {
    return absl::StrCat(figure_, " of ", whose, " is ", value_, ", not from ", low_, " to ", high_);
  }

 private:
  const char* figure_ = nullptr;
  double value_ = 0;
  double low_ = 0;
  double high_ = 0;
};

}  // namespace abacus::placement::figures

#endif  // ABACUS_PLACEMENT_FIGURES_H_
