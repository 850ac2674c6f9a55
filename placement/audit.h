#ifndef ABACUS_PLACEMENT_AUDIT_H_
#define ABACUS_PLACEMENT_AUDIT_H_

// What became of predictions: the running error of the model, and what is to be corrected in it.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "placement/statistics.h"

namespace abacus::placement {

// The last relative errors (predicted / measured - 1) and their quantiles.
// Thread-safety: thread-compatible. Limits: errors_max, the oldest go first.
class RunningError {
 public:
  explicit RunningError(size_t errors_max) : errors_max_(errors_max) {}

  // From now on; of more than that the oldest go. REQUIRES: > 0.
  void SetLimit(size_t errors_max);

  // REQUIRES: both finite and positive.
  void Add(double predicted, double measured);
  // Takes in what another has, beside its own: no error goes for it, the limit grows instead.
  void Pool(const RunningError& other);
  size_t count() const { return errors_.size(); }
  // Of the absolute errors, the one at this part of them in order: 0.5 is the median. 0 without
  // any.
  double Quantile(double part) const;

 private:
  size_t errors_max_;
  size_t next_ = 0;
  std::vector<double> errors_;
};

// How much more CPU time than the nodes' rates say the objects of a class need on a node.
//
// A node's R is one figure for every kind of code; a class may suit a processor better or worse.
// When an object of a class has moved, the CPU time of the same amount of work tells:
//   0.2 s on a node of R = 1, so 0.4 s expected on one of R = 0.5; 0.6 s measured: 0.6 / 0.4 = 1.5.
// Factors are relative to the node moved from, whose own counts: the one of the target is
// multiplied by measured / expected, expected having both factors in it. They are bounded, and half
// of what they are away from 1 (in the exponent) is forgotten in `half_life_s`, as code and data
// change. Thread-safety: thread-compatible. Limits: corrections_max, then the least recently learnt
// goes. Source: ours; DESIGN 7 asks for an audit that corrects the rates.
class Corrections {
 public:
  struct Entry {
    std::string class_name;
    NodeId node = 0;
    double factor = 1;
  };

  Corrections(size_t corrections_max, double factor_max, double half_life_s)
      : corrections_max_(corrections_max), factor_max_(factor_max), half_life_s_(half_life_s) {}

  // From now on; of more than corrections_max the least recently learnt go.
  void SetLimits(size_t corrections_max, double factor_max, double half_life_s);

  double Factor(const std::string& class_name, NodeId node, double now_s) const;
  // REQUIRES: both finite and positive.
  void Learn(const std::string& class_name, NodeId node, double expected, double measured,
             double now_s);
  // Those that differ from 1 by more than 1 %, by class and node.
  std::vector<Entry> InForce(double now_s) const;
  bool empty() const { return learnt_.empty(); }

 private:
  struct Learnt {
    double log_factor = 0;
    double at_s = 0;
  };
  using Key = std::pair<std::string, NodeId>;

  double LogFactor(const Learnt& learnt, double now_s) const;
  void DropOldest();

  size_t corrections_max_;
  double factor_max_;
  double half_life_s_;
  absl::flat_hash_map<Key, Learnt> learnt_;
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_AUDIT_H_
