#ifndef ABACUS_OBJFS_ATOMICITY_TESTING_MUTATIONS_H_
#define ABACUS_OBJFS_ATOMICITY_TESTING_MUTATIONS_H_

// Ways to break a protocol, one rule at a time, and the proof that its simulation notices each.

#include <cstdint>
#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "objfs/atomicity/testing/sim_loop.h"

namespace abacus::objfs::testing {

// A rule of a policy that can be switched off.
struct Mutation {
  const char* name;
  bool* rule;
  const char* what;  // goes wrong
};

inline std::string NameOfMutation(const ::testing::TestParamInfo<Mutation>& info) {
  return info.param.name;
}

// Runs seeds, from 1, without that rule, until one breaks a promise. Fails where none of
// `seeds_max` does. `run` gives the SimResult of a seed.
template <typename Run>
void ExpectCaught(const Mutation& mutation, uint64_t seeds_max, Run run) {
  *mutation.rule = false;
  std::string broken;
  uint64_t seed = 0;
  while (broken.empty() && seed < seeds_max) broken = run(++seed).broken;
  *mutation.rule = true;
  ASSERT_NE(broken, "") << "nobody noticed that " << mutation.what;
  std::printf("%s: %s. Caught by \"%s\", seed %d.\n", mutation.name, mutation.what, broken.c_str(),
              static_cast<int>(seed));
}

// With all rules on.
template <typename Run>
void ExpectNothingCaught(uint64_t seeds, Run run) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    ASSERT_EQ(run(seed).broken, "") << "seed " << seed;
  }
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_ATOMICITY_TESTING_MUTATIONS_H_
