#ifndef ABACUS_RUNTIME_RESOURCE_CONTENTION_H_
#define ABACUS_RUNTIME_RESOURCE_CONTENTION_H_

namespace abacus::runtime {

// How much of the slow-down that a node's load suggests its objects were seen to suffer
// (placement::NodeStatistics::contention).
//
// Equation 2 has a task share c cores with all L that can run. A scheduler lets a task that has
// slept run as soon as it wakes, and takes cores from those of low priority: on two cores where
// four tasks compiled at low priority all the time, an object that should have been ready for 0.21
// s was so for 0.8 ms. So the ready time that was measured is set against what the equation says of
// the same CPU time and load, older figures counting less. Where no core is short nothing is
// learnt.
//   Worked: 0.3 s of CPU time where 4 tasks share 2 cores should have meant 0.3 s of ready time,
//   and there was 0.01 s: (0.01 + 0.02) / (0.3 + 0.02) = 0.09, the prior being worth 0.02 s.
//
// Units: seconds. Thread-safety: thread-compatible. Limits: 0 to 1. Source: ours.
class Contention {
 public:
  // What objects here did in an interval of `length_s`, in which `load` tasks shared `cores`.
  void Add(double busy_s, double ready_s, double load, double cores, double length_s,
           double half_life_s);
  // 1 as long as nothing is known.
  double part() const;

 private:
  // Until tasks should have waited this long, the equation's word has its part.
  static constexpr double kPrior_s = 0.02;

  // While cores were short.
  double ready_s_ = 0;
  double ready_by_load_s_ = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_CONTENTION_H_
