#ifndef ABACUS_PLACEMENT_SWINGS_H_
#define ABACUS_PLACEMENT_SWINGS_H_

// Objects that several consoles want in different places.

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "placement/statistics.h"

namespace abacus::placement {

// Keeps consoles that share an object from pulling it to and fro. Each console's graph has its
// cool-down after its own moves; but where each console's figures are decided on by themselves, two
// that want the object in different places would take turns, each as soon as its own cool-down is
// over. So an object that was moved for one console rests for a while from all others, and the
// while doubles each time that another console moves it, until it was left alone for long enough.
//   Cool-down 2 windows, forgiven after 10 of it. A moves it at 0, B at 2 (times 1: A waits for 4),
//   A at 6 (B waits for 8): moves at 0, 2, 6, 14, 30, ... and not at every second window.
//
// Units: seconds. REQUIRES of all methods: now_s does not decrease. Thread-safety:
// thread-compatible. Limits: kObjectsMax; reached, an eighth goes, those forgiven first. Source:
// ours; the paper's objects are shared below the directory only, and never moved for two.
class Swings {
 public:
  static constexpr size_t kObjectsMax = 16384;

  struct Times {
    double cool_down_s = 0;
    double cool_down_max_s = 0;
    double forgive = 10;  // times the cool-down after which nothing is remembered
  };

  // Whether the object rests from `by`: another console's move of it is too short a time ago.
  bool Rests(const ObjectId& object, const ObjectId& by, double now_s) const;
  // The object was moved for the console `by`.
  void Moved(const ObjectId& object, const ObjectId& by, const Times& times, double now_s);

  size_t size() const { return objects_.size(); }

 private:
  struct Swing {
    ObjectId by;
    int turns = 0;  // times that another console moved it than the one before
    double rests_until_s = -1e300;
    double forgiven_s = -1e300;
  };

  void MakeRoom(double now_s);

  absl::flat_hash_map<ObjectId, Swing> objects_;
};

}  // namespace abacus::placement

#endif  // ABACUS_PLACEMENT_SWINGS_H_
