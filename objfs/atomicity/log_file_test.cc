// A log's file on a disk that says of what it was to sync that it has, and has not.

#include "objfs/atomicity/log_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/atomicity/log_core.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

constexpr uint64_t kServerOfLog = 3;

// What was counted up to, by all of a log.
uint64_t CountIn(const RecoveredLog& log) {
  const auto number = [](const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 10);
  };
  uint64_t count = number(log.snapshot);
  for (const std::string& record : log.records) {
    EXPECT_EQ(number(record), count + 1);
    count = number(record);
  }
  return count;
}

// Errors: those of LogFile::Open().
absl::StatusOr<uint64_t> CountOn(Disk& disk) {
  const auto file = LogFile::Open(disk, kServerOfLog, LogFile::kHalfBytesMin, "0");
  if (!file.ok()) return file.status();
  return CountIn((*file)->TakeRecovered());
}

// Counts by a log whose disk lies from the first count on; both halves are used, and used again.
// Returns the disk's calls when each count was acknowledged; the first: when the lie began.
std::vector<uint64_t> Count(PowerCutDisk& disk, uint64_t counts) {
  constexpr size_t kRecordBytes = 4'000;
  uint64_t count = 0;
  const auto file = LogFile::Open(disk, kServerOfLog, LogFile::kHalfBytesMin, "0").value();
  const RecoveredLog recovered = file->TakeRecovered();
  LogCore<FaithfulLogPolicy> core(
      file->options(), [&count] { return absl::StrCat(count); }, &recovered);
  const auto flush = [&] {
    while (const std::optional<LogWrite> write = core.NextWrite()) {
      absl::Status written = file->Write(*write);
      if (written.ok()) written = file->Flush();
      EXPECT_TRUE(written.ok()) << written;
      core.Written(written);
    }
  };
  flush();
  disk.LieAboutSyncs(true);
  std::vector<uint64_t> ends = {disk.Calls()};
  while (count < counts) {
    ++count;
    EXPECT_TRUE(core.Append(absl::StrCat(count, std::string(kRecordBytes, ' '))).ok());
    flush();
    EXPECT_EQ(core.durable(), core.appended());
    ends.push_back(disk.Calls());
  }
  EXPECT_GT(core.checkpoints(), 2u);
  disk.CutPower();
  disk.LieAboutSyncs(false);
  return ends;
}

TEST(LyingLogDiskTest, WhereTheEndIsLostTheLogIsAsItWasThen) {
  constexpr uint64_t kCounts = 60;
  for (uint64_t later = 0;; ++later) {
    SCOPED_TRACE(absl::StrCat(later, " calls kept"));
    PowerCutDisk disk;
    const std::vector<uint64_t> ends = Count(disk, kCounts);
    ASSERT_GE(ends.back(), ends.front() + 2 * kCounts) << "each is written and synced";
    const uint64_t calls = ends.front() + later;
    if (calls > ends.back()) break;
    disk.PowerOnAsOf(calls);
    const absl::StatusOr<uint64_t> found = CountOn(disk);
    ASSERT_TRUE(found.ok()) << found.status();
    const auto whole =
        static_cast<uint64_t>(std::upper_bound(ends.begin(), ends.end(), calls) - ends.begin() - 1);
    EXPECT_GE(*found, whole);
    EXPECT_LE(*found, whole + 1);
  }
}

TEST(LyingLogDiskTest, WhereSomeOfItIsLostTheLogIsAPrefixOrTellsDamage) {
  constexpr uint64_t kCounts = 60;
  uint64_t refused = 0, older = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    PowerCutDisk disk;
    Count(disk, kCounts);
    disk.PowerOn(seed);
    const absl::StatusOr<uint64_t> found = CountOn(disk);
    if (!found.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(found.status())) << found.status();
      ++refused;
      continue;
    }
    EXPECT_LE(*found, kCounts);
    older += *found < kCounts ? 1 : 0;
  }
  std::cout << refused << " refused, " << older << " older\n";
  EXPECT_GT(refused, 0u) << "a record that is lost before one that is there";
  EXPECT_GT(older, 0u) << "the end, which nothing tells";
}

}  // namespace
}  // namespace abacus::objfs
