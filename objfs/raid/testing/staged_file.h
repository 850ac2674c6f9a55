#ifndef ABACUS_OBJFS_RAID_TESTING_STAGED_FILE_H_
#define ABACUS_OBJFS_RAID_TESTING_STAGED_FILE_H_

// A RAID-5 file that has something flushed, for tests of what is written over that.

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs::testing {

inline constexpr size_t kStageColumns = 5;
inline constexpr uint64_t kStageUnit = 8192, kStageStripe = (kStageColumns - 1) * kStageUnit;

// A file whose content is flushed, and its model.
class StagedFile {
 public:
  explicit StagedFile(uint32_t seed, uint64_t stripes = 3, const std::string& journal = "on")
      : random_(seed), columns_(kStageColumns, "8 KiB", {{"journal", journal}}) {
    model_ = Noise(random_, stripes * kStageStripe);
    EXPECT_TRUE(columns_.top()->Write(0, runtime::Block::CopyOf(model_), columns_.Now()).ok());
    EXPECT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    columns_.ResetCounters();
  }

  TestColumns& columns() { return columns_; }
  std::string& model() { return model_; }
  std::mt19937& random() { return random_; }

  absl::Status Write(uint64_t at, const std::string& text) {
    return columns_.top()->Write(at, runtime::Block::CopyOf(text), columns_.Now());
  }
  // Writes and syncs, so that all of it is acknowledged.
  void WriteSynced(uint64_t at, uint64_t bytes) {
    const std::string text = Noise(random_, bytes);
    ASSERT_TRUE(Write(at, text).ok());
    ASSERT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    model_.replace(at, bytes, text);
  }
  // The power of all goes at that call from now, and is back; `absent` does not answer then.
  void CutAt(uint64_t call, std::atomic<uint64_t>* calls) {
    for (size_t i = 0; i < kStageColumns; ++i) {
      columns_.column(i).BeforeChange([this, call, calls](LayerCall) {
        if (++*calls == call) CutNow();
        return absl::OkStatus();
      });
    }
  }
  void CutNow() {
    for (size_t i = 0; i < kStageColumns; ++i) columns_.disk(i).CutPower();
  }
  void Recover(std::optional<size_t> absent) {
    columns_.Stop();
    CutNow();
    for (size_t i = 0; i < kStageColumns; ++i) {
      columns_.column(i).BeforeChange(nullptr);
      columns_.column(i).dead = absent == i;
      columns_.disk(i).PowerOn(random_());
    }
    columns_.Start();
  }
  void AllAreBack() {
    for (size_t i = 0; i < kStageColumns; ++i) columns_.column(i).dead = false;
    const auto rebuilt = columns_.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    const auto scrubbed = columns_.raid()->Scrub(0, UINT64_MAX, columns_.Now());
    ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
    EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u);
  }

  // It is its model, also without any one column.
  void ExpectWhole() {
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns_, model_));
    ASSERT_NO_FATAL_FAILURE(AllAreBack());
    for (size_t away = 0; away < kStageColumns; ++away) {
      columns_.column(away).dead = true;
      ASSERT_NO_FATAL_FAILURE(ExpectIs(columns_, model_));
      ASSERT_NO_FATAL_FAILURE(AllAreBack());
    }
  }

 private:
  std::mt19937 random_;
  TestColumns columns_;
  std::string model_;
};

// What columns had, to be put back as if nothing since had reached them.
class StagedColumns {
 public:
  explicit StagedColumns(TestColumns& columns) : columns_(columns) {
    for (size_t i = 0; i < kStageColumns; ++i) {
      records_.push_back(columns.store(i).GetAttributes(columns.id(i))->blob);
      std::string bytes(3 * kStageUnit, '\0');
      EXPECT_TRUE(columns.store(i).Read(columns.id(i), 0, {bytes.data(), bytes.size()}).ok());
      places_.push_back(std::move(bytes));
    }
  }
  void PutBackPlaces() {
    for (size_t i = 0; i < kStageColumns; ++i) {
      ASSERT_TRUE(
          columns_.store(i).Write(columns_.id(i), 0, places_[i], columns_.Now().value).ok());
      ASSERT_TRUE(columns_.store(i).Flush(columns_.id(i)).ok());
    }
  }
  void PutBackRecord(size_t column) {
    const VersionNumber now = columns_.Now().value;
    ASSERT_TRUE(
        columns_.store(column).SetAttributes(columns_.id(column), records_[column], now).ok());
    ASSERT_TRUE(columns_.store(column).Flush(columns_.id(column)).ok());
  }
  void LoseSlot(size_t column, size_t slot) {
    const VersionNumber now = columns_.Now().value;
    ASSERT_TRUE(columns_.store(column)
                    .Punch(columns_.id(column),
                           Raid5Layer::kStageAt + slot * ColumnRecord::kStagedBytesMost, 8192, now)
                    .ok());
    ASSERT_TRUE(columns_.store(column).Flush(columns_.id(column)).ok());
  }

 private:
  TestColumns& columns_;
  std::vector<std::string> records_, places_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_STAGED_FILE_H_
