#include <gtest/gtest.h>

#include "objfs/raid/mirror_layer.h"
#include "objfs/raid/testing/column_crashes.h"

namespace abacus::objfs {
namespace {

using testing::CrashKind;

// Nothing of a mirrored file is ever unknown while a copy that is current is there.
template <size_t kCopies>
struct MirroredFile {
  using Over = MirrorLayer;
  static constexpr size_t kColumns = kCopies;
  static constexpr uint64_t kStripe = 8192;
  static constexpr bool kMostlySynced = false;
  static bool MayBeUnknown(uint64_t, uint64_t, size_t) { return false; }
};

class MirrorCrashTest : public ::testing::TestWithParam<CrashKind> {};

TEST_P(MirrorCrashTest, EveryCallOfTwoCopiesIsAPointAtWhichThePowerMayGo) {
  testing::CrashAtEachCall<MirroredFile<2>>(GetParam());
}
TEST_P(MirrorCrashTest, EveryCallOfThreeCopiesIsAPointAtWhichThePowerMayGo) {
  testing::CrashAtEachCall<MirroredFile<3>>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(All, MirrorCrashTest,
                         ::testing::Values(CrashKind::kHealthy, CrashKind::kDegraded,
                                           CrashKind::kRebuilding));

}  // namespace
}  // namespace abacus::objfs
