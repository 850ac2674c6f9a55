#ifndef ABACUS_OBJFS_RAID_STRIPE_SET_H_
#define ABACUS_OBJFS_RAID_STRIPE_SET_H_

#include <cstddef>
#include <cstdint>
#include <map>

namespace abacus::objfs {

// Stripes from `begin` up to and without `end`.
struct StripeRun {
  uint64_t begin = 0;
  uint64_t end = 0;
  friend bool operator==(const StripeRun&, const StripeRun&) = default;
};

// A set of stripes, as runs. Thread-compatible.
// Invariant: runs are not empty, and neither overlap nor touch.
class StripeSet {
 public:
  void Add(StripeRun run);
  void Add(const StripeSet& other);
  void Remove(StripeRun run);
  void Remove(const StripeSet& other);
  void clear() { runs_.clear(); }

  bool empty() const { return runs_.empty(); }
  bool Contains(uint64_t stripe) const;
  bool ContainsAll(StripeRun run) const;
  StripeSet Within(StripeRun run) const;
  uint64_t count() const;  // of stripes

  // Makes at most `runs_max` runs of it by adding what lies between the nearest ones.
  // REQUIRES: runs_max > 0.
  void MergeTo(size_t runs_max);

  // From the begin of each run to its end; rising.
  const std::map<uint64_t, uint64_t>& runs() const { return runs_; }
  friend bool operator==(const StripeSet&, const StripeSet&) = default;

 private:
  std::map<uint64_t, uint64_t> runs_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_STRIPE_SET_H_
