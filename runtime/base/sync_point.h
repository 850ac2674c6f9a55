#ifndef ABACUS_RUNTIME_BASE_SYNC_POINT_H_
#define ABACUS_RUNTIME_BASE_SYNC_POINT_H_

#include <string_view>

namespace abacus::runtime {

// Named places in the runtime that a test can stop at, die at, or order against each other.
// A node is given one by its maker; without one, reaching a point costs one branch on a null
// pointer. Races are reproduced with these and never with sleeps.
//
// Thread-safety: Reach() is called from any thread, at times with no lock held. It may block.
class SyncPoints {
 public:
  virtual ~SyncPoints() = default;
  virtual void Reach(std::string_view point) = 0;
};

inline void Reach(SyncPoints* points, std::string_view point) {
  if (points != nullptr) [[unlikely]]
    points->Reach(point);
}

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_SYNC_POINT_H_
