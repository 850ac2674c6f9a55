#include <gtest/gtest.h>

#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/testing/column_crashes.h"

namespace abacus::objfs {
namespace {

using testing::CrashKind;

struct Raid5File {
  using Over = Raid5Layer;
  static constexpr size_t kColumns = 4;
  static constexpr uint64_t kUnit = 8192, kStripe = 3 * kUnit;
  static constexpr bool kMostlySynced = false;
  // A unit of a stripe that was being written, whose column is away.
  static bool MayBeUnknown(uint64_t stripe, uint64_t at, size_t absent) {
    const Striping striping = *Striping::Make(kColumns, kUnit);
    return striping.ColumnOf(stripe, at % kStripe / kUnit) == absent;
  }
};

struct Raid5SyncedFile : Raid5File {
  static constexpr bool kMostlySynced = true;
};

class Raid5CrashTest : public ::testing::TestWithParam<CrashKind> {};

TEST_P(Raid5CrashTest, EveryCallIsAPointAtWhichThePowerMayGo) {
  testing::CrashAtEachCall<Raid5File>(GetParam());
}
TEST_P(Raid5CrashTest, EveryCallOfSmallSyncedWritesIsOne) {
  testing::CrashAtEachCall<Raid5SyncedFile>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(All, Raid5CrashTest,
                         ::testing::Values(CrashKind::kHealthy, CrashKind::kDegraded,
                                           CrashKind::kRebuilding));

}  // namespace
}  // namespace abacus::objfs
