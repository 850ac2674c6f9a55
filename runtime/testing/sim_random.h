#ifndef ABACUS_RUNTIME_TESTING_SIM_RANDOM_H_
#define ABACUS_RUNTIME_TESTING_SIM_RANDOM_H_

#include <cstdint>

namespace abacus::runtime::sim {

// The simulator's only source of chance (splitmix64): one seed, one run. Standard distributions
// are not used, because they differ between libraries.
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, limit); 0 where limit is 0.
  uint64_t Below(uint64_t limit) { return limit == 0 ? 0 : Next() % limit; }
  // In [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  bool Chance(uint32_t permille) { return Below(1000) < permille; }

 private:
  uint64_t state_;
};

}  // namespace abacus::runtime::sim

#endif  // ABACUS_RUNTIME_TESTING_SIM_RANDOM_H_
