// The disk of one column says of what it was to sync that it has, and has not, until the power of
// all goes. That column is then where it was when the lie began, and the others know better.

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs {
namespace {

using ColumnOptions = std::vector<std::pair<std::string, std::string>>;

template <typename Columns>
void PowerGoesAtAll(Columns& columns, size_t liar, uint64_t kept, uint32_t seed) {
  for (size_t i = 0; i <= columns.count(); ++i) columns.disk(i).CutPower();
  columns.Stop();
  for (size_t i = 0; i <= columns.count(); ++i) {
    if (i == liar) {
      columns.disk(i).LieAboutSyncs(false);
      columns.disk(i).PowerOnAsOf(kept);
    } else {
      columns.disk(i).PowerOn(seed + i);
    }
  }
  columns.Start();
}

template <typename L>
void LieInAColumn(size_t count, size_t liar, uint32_t seed, const ColumnOptions& options) {
  SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", count, " columns, column ", liar, " lies"));
  testing::TestColumnsOf<L> columns(count, "8 KiB", options);
  std::mt19937 random(seed);
  std::string model;
  const auto work = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      ASSERT_NO_FATAL_FAILURE(testing::Step(columns, random, &model)) << i;
    }
    // Of all columns, so that there is something that each of them lacks without it.
    const std::string end = testing::Noise(random, 60'000);
    ASSERT_TRUE(
        columns.top()->Write(model.size(), runtime::Block::CopyOf(end), columns.Now()).ok());
    model += end;
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  };
  ASSERT_NO_FATAL_FAILURE(work(6));
  const uint64_t kept = columns.disk(liar).Calls();
  columns.disk(liar).LieAboutSyncs(true);
  ASSERT_NO_FATAL_FAILURE(work(10));
  ASSERT_NO_FATAL_FAILURE(PowerGoesAtAll(columns, liar, kept, seed));

  columns.ResetCounters();
  ASSERT_NO_FATAL_FAILURE(testing::ExpectIs(columns, model));
  EXPECT_EQ(columns.column(liar).reads, 0u) << "it is not believed";
  const auto rebuilt = columns.RebuildAll();
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  EXPECT_GT(columns.column(liar).writes, 0u) << "it lacked something";
  ASSERT_NO_FATAL_FAILURE(testing::ExpectIs(columns, model));
  const auto scrubbed = testing::ScrubAll(columns);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
  EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
  // And by itself it has what the others have.
  columns.column((liar + 1) % count).dead = true;
  ASSERT_NO_FATAL_FAILURE(testing::ExpectIs(columns, model));
}

template <typename L>
void LieInEachColumn(size_t count, const ColumnOptions& options) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(1));
  const uint32_t seeds = runtime::testing::kSanitized ? 1 : 4;
  for (size_t liar = 0; liar < count; ++liar) {
    for (uint32_t i = 0; i < seeds; ++i) {
      ASSERT_NO_FATAL_FAILURE(LieInAColumn<L>(count, liar, seed + i, options));
    }
  }
}

TEST(LyingColumnTest, ARaid5ColumnWhoseDiskLiesIsNotBelievedAndRebuilt) {
  LieInEachColumn<Raid5Layer>(4, {});
}

TEST(LyingColumnTest, SoIsOneThatIsWrittenInPlace) {
  LieInEachColumn<Raid5Layer>(4, {{"journal", "off"}});
}

TEST(LyingColumnTest, ACopyWhoseDiskLiesIsNotBelievedAndRebuilt) {
  LieInEachColumn<MirrorLayer>(2, {});
  LieInEachColumn<MirrorLayer>(3, {});
}

}  // namespace
}  // namespace abacus::objfs
