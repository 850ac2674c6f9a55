// Staged writes where something goes wrong beside the power: refused calls, damage, no room, dying
// clients, and many writers.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/raid/raid5_layer.h"
#include "objfs/raid/testing/column_steps.h"
#include "objfs/raid/testing/staged_file.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs {
namespace {

using runtime::testing::Eventually;
using testing::ColumnSwitch;
using testing::ExpectIs;
using testing::kStageColumns;
using testing::kStageStripe;
using testing::kStageUnit;
using testing::Noise;
using testing::Rot;
using testing::StagedColumns;
using testing::StagedFile;
using testing::TestColumns;

const Striping kStriping = *Striping::Make(kStageColumns, kStageUnit);

void HookAll(TestColumns& columns, const ColumnSwitch::Hook& hook) {
  for (size_t i = 0; i < kStageColumns; ++i) columns.column(i).BeforeChange(hook);
}

// From that call on nothing of this client reaches a column any more.
void DieAt(TestColumns& columns, uint64_t call, std::atomic<uint64_t>* calls) {
  HookAll(columns, [call, calls](LayerCall) {
    return ++*calls < call ? absl::OkStatus() : absl::UnavailableError("the client is dead");
  });
}
// What reached them is there: servers live on.
void Reborn(TestColumns& columns) {
  for (size_t i = 0; i < kStageColumns; ++i) {
    EXPECT_TRUE(columns.store(i).Flush(columns.id(i)).ok());
  }
  columns.Stop();
  HookAll(columns, nullptr);
  columns.Start();
}

// What the column has of stripe 1.
bool IsRotten(TestColumns& columns, size_t column) {
  std::string unit(kStageUnit, '\0');
  const uint64_t at = kStriping.ColumnOffsetOf(1);
  return absl::IsDataLoss(columns.store(column).Read(columns.id(column), at, unit).status());
}

// A file that was only made longer has records at two columns. Where the client dies in its first
// write it opens all the same.
TEST(Raid5StageFaultsTest, TheFirstWriteOfAFileThatWasMadeLongerNeverKeepsItFromOpening) {
  for (uint64_t call = 1, ended = false; !ended; ++call) {
    SCOPED_TRACE(absl::StrCat("dies at call ", call));
    TestColumns columns(kStageColumns, "8 KiB");
    ASSERT_TRUE(columns.top()->Truncate(2 * kStageStripe, columns.Now()).ok());
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    std::atomic<uint64_t> calls{0};
    DieAt(columns, call, &calls);
    const absl::Status written = columns.top()->Write(
        kStageUnit - 50, runtime::Block::CopyOf(std::string(100, 'x')), columns.Now());
    ended = calls < call;
    EXPECT_TRUE(written.ok() || !ended) << written;
    EXPECT_EQ(columns.Sum(&ColumnSwitch::staged) > 0 || !ended, true) << "it was staged";
    Reborn(columns);
    const auto read = columns.top()->Read(0, 2 * kStageStripe, columns.Now());
    ASSERT_TRUE(read.ok()) << read.status();
    std::string with(2 * kStageStripe, '\0');
    if (read->bytes.view() == with && !ended) continue;
    with.replace(kStageUnit - 50, 100, 100, 'x');
    EXPECT_TRUE(read->bytes.view() == with);
  }
}

// All slots in use, each of another stripe, and more stripes that are new: a column that does not
// come back has missed more runs than a record has, and the file opens.
TEST(Raid5StageFaultsTest, ManyPlacesAtOnceAreMissedByAColumnThatDoesNotComeBack) {
  constexpr uint64_t kFlushed = 2 * ColumnRecord::kSlots;
  StagedFile file(21, kFlushed);
  TestColumns& columns = file.columns();
  for (uint64_t slot = 0; slot < ColumnRecord::kSlots; ++slot) {
    ASSERT_TRUE(file.Write(2 * slot * kStageStripe + 9, "staged").ok());
    file.model().replace(2 * slot * kStageStripe + 9, 6, "staged");
  }
  for (uint64_t stripe = kFlushed + 1; stripe < kFlushed + 40; stripe += 2) {
    ASSERT_TRUE(file.Write(stripe * kStageStripe, std::string(kStageStripe, 'n')).ok());
  }
  file.Recover(kStriping.ColumnOf(0, 0));
  const auto read = columns.top()->Read(0, file.model().size(), columns.Now());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->bytes.view() == file.model());
  ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
}

// What failed in its place is not put there by an opening after something else was written to the
// stripe, whose parity is that of the new bytes then.
TEST(Raid5StageFaultsTest, WhatFailedInItsPlaceIsNotDoneAgainOverWhatCameLater) {
  for (const bool more : {false, true}) {
    const size_t refusing = more ? kStriping.ColumnOf(0, 0) : kStriping.ParityColumn(0);
    SCOPED_TRACE(absl::StrCat("column ", refusing));
    StagedFile file(22);
    TestColumns& columns = file.columns();
    columns.column(refusing).BeforeChange(
        [n = std::make_shared<std::atomic<int>>(0)](LayerCall call) {
          const bool in_place = call == LayerCall::kWrite && (*n)++ == 1;
          return in_place ? absl::ResourceExhaustedError("the test has no room") : absl::OkStatus();
        });
    ASSERT_TRUE(absl::IsResourceExhausted(file.Write(5, "refused")));
    columns.column(refusing).BeforeChange(nullptr);
    ASSERT_TRUE(file.Write(5, "another").ok());
    file.model().replace(5, 7, "another");
    if (more) {
      ASSERT_TRUE(file.Write(kStageUnit + 5, "and more").ok());
      file.model().replace(kStageUnit + 5, 8, "and more");
    }
    Reborn(columns);  // what is at columns stays
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
    ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
  }
}

// A block rotted under a write that is to be put in its place: the rest of it comes from the
// others.
TEST(Raid5StageFaultsTest, ABlockThatRottedUnderAStagedWriteIsWholeAfterAnOpening) {
  for (const bool parity : {false, true}) {
    SCOPED_TRACE(parity ? "of the parity" : "of data");
    StagedFile file(23);
    TestColumns& columns = file.columns();
    const uint64_t unit_at = kStageStripe;
    const size_t column = parity ? kStriping.ParityColumn(1) : kStriping.ColumnOf(1, 0);
    std::string place(kStageUnit, '\0');
    ASSERT_TRUE(
        columns.store(column).Read(columns.id(column), kStriping.ColumnOffsetOf(1), place).ok());
    StagedColumns before(columns);
    ASSERT_TRUE(file.Write(unit_at + 10, std::string(100, 's')).ok());
    file.model().replace(unit_at + 10, 100, 100, 's');
    columns.Stop();
    columns.Start();
    ASSERT_NO_FATAL_FAILURE(before.PutBackPlaces());
    ASSERT_TRUE(Rot(columns, column, place.substr(5000, 64)));
    ASSERT_TRUE(IsRotten(columns, column));
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
    ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
  }
}

// A column has not got a write that nobody was told of, and a block of another column rotted: that
// is computed from what the columns had before.
TEST(Raid5StageFaultsTest, WhatRottedBesideAWriteThatOneColumnLacksIsRepairedRight) {
  const size_t involved[] = {kStriping.ColumnOf(1, 0), kStriping.ParityColumn(1)};
  for (const size_t lacking : involved) {
    SCOPED_TRACE(absl::StrCat("column ", lacking));
    StagedFile file(24);
    TestColumns& columns = file.columns();
    StagedColumns before(columns);
    ASSERT_TRUE(file.Write(kStageStripe + 10, std::string(100, 's')).ok());
    columns.Stop();
    columns.Start();
    ASSERT_NO_FATAL_FAILURE(before.PutBackPlaces());
    ASSERT_NO_FATAL_FAILURE(before.PutBackRecord(lacking));
    ASSERT_NO_FATAL_FAILURE(before.LoseSlot(lacking, 0));
    const std::string rotten = file.model().substr(kStageStripe + 2 * kStageUnit + 20, 64);
    ASSERT_TRUE(Rot(columns, kStriping.ColumnOf(1, 2), rotten));
    ASSERT_TRUE(IsRotten(columns, kStriping.ColumnOf(1, 2)));
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
    ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
  }
}

// A column that has no room when the file is opened is done without.
TEST(Raid5StageFaultsTest, AColumnWithoutRoomForAStagedWriteKeepsNoFileFromOpening) {
  for (const bool lacks : {false, true}) {  // or has it beside its place
    const size_t full = lacks ? kStriping.ColumnOf(1, 0) : kStriping.ParityColumn(1);
    SCOPED_TRACE(absl::StrCat("column ", full));
    StagedFile file(25);
    TestColumns& columns = file.columns();
    StagedColumns before(columns);
    ASSERT_TRUE(file.Write(kStageStripe + 10, std::string(100, 's')).ok());
    file.model().replace(kStageStripe + 10, 100, 100, 's');
    columns.Stop();
    columns.Start();
    ASSERT_NO_FATAL_FAILURE(before.PutBackPlaces());
    if (lacks) {
      ASSERT_NO_FATAL_FAILURE(before.PutBackRecord(full));
      ASSERT_NO_FATAL_FAILURE(before.LoseSlot(full, 0));
    }
    columns.column(full).BeforeChange([](LayerCall call) {
      return call == LayerCall::kWrite ? absl::ResourceExhaustedError("the test has no room")
                                       : absl::OkStatus();
    });
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
    columns.column(full).BeforeChange(nullptr);
    ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
  }
}

// What could not be cut off for want of room is cut off when there is some; until then the file
// does not grow, and is there.
TEST(Raid5StageFaultsTest, AFileThatCannotBeCutOffOpens) {
  for (const std::string journal : {"on", "off"}) {
    SCOPED_TRACE(journal);
    constexpr uint64_t kTo = kStageStripe + 1000;
    StagedFile file(31, 3, journal);
    TestColumns& columns = file.columns();
    const size_t full = kStriping.ColumnOf(1, 2);
    const auto no_room = [](LayerCall call) {
      return call == LayerCall::kWrite ? absl::ResourceExhaustedError("the test has no room")
                                       : absl::OkStatus();
    };
    columns.column(full).BeforeChange(no_room);
    ASSERT_TRUE(absl::IsResourceExhausted(columns.top()->Truncate(kTo, columns.Now())));
    ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
    Reborn(columns);
    columns.column(full).BeforeChange(no_room);
    ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model().substr(0, kTo)));
    EXPECT_FALSE(columns.top()->Truncate(2 * kStageStripe, columns.Now()).ok());
    columns.column(full).BeforeChange(nullptr);
    ASSERT_TRUE(columns.top()->Truncate(2 * kStageStripe, columns.Now()).ok());
    file.model().resize(kTo);
    file.model().resize(2 * kStageStripe);
    ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
  }
}

// Bytes behind the end that a crash left, of which one column could not be rid for want of room:
// that is known until there is some, over openings.
TEST(Raid5StageFaultsTest, WhatACrashLeftBehindTheEndIsCutOffWhenThereIsRoom) {
  StagedFile file(33);
  TestColumns& columns = file.columns();
  const uint64_t at = 3 * kStageStripe;
  const size_t full = kStriping.ColumnOf(3, 1);
  ASSERT_TRUE(file.Write(at, std::string(1000, 'a')).ok());
  ASSERT_TRUE(columns.top()->Push(columns.Now()).ok());  // that is the size that records have
  // Its bytes are there when the client dies.
  columns.column(kStriping.ParityColumn(3)).BeforeChange([](LayerCall call) {
    return call == LayerCall::kWrite ? absl::UnavailableError("the client is dead")
                                     : absl::OkStatus();
  });
  file.Write(at + kStageUnit, std::string(1000, 'b')).IgnoreError();
  Reborn(columns);
  columns.column(full).BeforeChange([](LayerCall call) {
    return call == LayerCall::kWrite ? absl::ResourceExhaustedError("the test has no room")
                                     : absl::OkStatus();
  });
  const auto size = columns.top()->GetAttributes(columns.Now());
  ASSERT_TRUE(size.ok()) << size.status();
  ASSERT_EQ(size->size, at + 1000);
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  Reborn(columns);
  ASSERT_TRUE(columns.top()->Truncate(4 * kStageStripe, columns.Now()).ok());
  file.model() += std::string(1000, 'a');
  file.model().resize(4 * kStageStripe);
  ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
}

// Of a staged write over several blocks of a unit, one of which rotted in part, all others are put
// in their places, also where what rotted cannot be computed as a column is away.
TEST(Raid5StageFaultsTest, WhatRottedCostsThatBlockOnlyWithAColumnAway) {
  constexpr uint64_t kUnit = 32 << 10, kStripe = (kStageColumns - 1) * kUnit, kAt = kStripe + 100;
  const Striping striping = *Striping::Make(kStageColumns, kUnit);
  std::mt19937 random(32);
  TestColumns columns(kStageColumns, "32 KiB");
  std::string model = Noise(random, 2 * kStripe);
  ASSERT_TRUE(columns.top()->Write(0, runtime::Block::CopyOf(model), columns.Now()).ok());
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  std::atomic<int> writes{0};
  // The slots are written, not the places.
  HookAll(columns, [&](LayerCall call) {
    if (call == LayerCall::kWrite) ++writes;
    return writes > 2 ? absl::UnavailableError("the client is dead") : absl::OkStatus();
  });
  const std::string text = Noise(random, 20000);
  columns.top()->Write(kAt, runtime::Block::CopyOf(text), columns.Now()).IgnoreError();
  Reborn(columns);
  ASSERT_TRUE(Rot(columns, striping.ColumnOf(1, 0), model.substr(kStripe + 10, 64)));
  model.replace(kAt, text.size(), text);
  columns.column(striping.ColumnOf(1, 2)).dead = true;
  constexpr uint64_t kBlock = Striping::kStoreBlockBytes;
  for (uint64_t at = 0; at < 2 * kStripe; at += kBlock) {
    const auto read = columns.top()->Read(at, kBlock, columns.Now());
    const bool rotten = at == kStripe || at == kStripe + 2 * kUnit;  // and what it is needed for
    EXPECT_EQ(read.ok(), !rotten) << at << ": " << read.status();
    if (!rotten && read.ok()) {
      EXPECT_TRUE(read->bytes.view() == model.substr(at, kBlock)) << at;
    }
  }
}

// Where others have all slots a write waits for them, and is staged as well.
TEST(Raid5StageFaultsTest, WhoFindsAllSlotsTakenWaitsForThem) {
  constexpr uint64_t kRun = Raid5Layer::kStagedAtOnce;
  constexpr uint64_t kWriters = ColumnRecord::kSlots / kRun;
  StagedFile file(26, (kWriters + 1) * kRun);
  TestColumns& columns = file.columns();
  const std::string text = Noise(file.random(), (kWriters + 1) * kRun * kStageStripe);
  std::promise<void> open;
  const std::shared_future<void> opened = open.get_future().share();
  std::atomic<uint64_t> writes{0}, held{0};
  columns.column(0).BeforeChange([&](LayerCall call) {
    // Each writer in turn: its slots, and then their places at once, where it is held.
    if (call != LayerCall::kWrite || ++writes % (kRun + 1) != 0) return absl::OkStatus();
    ++held;
    opened.wait();
    return absl::OkStatus();
  });
  std::vector<std::thread> writers;
  const auto write = [&](uint64_t which) {
    writers.emplace_back([&, which] {
      const uint64_t at = which * kRun * kStageStripe;
      const absl::Status written = file.Write(at, text.substr(at, kRun * kStageStripe));
      EXPECT_TRUE(written.ok()) << written;
    });
  };
  for (uint64_t which = 0; which < kWriters; ++which) {
    write(which);
    EXPECT_TRUE(Eventually([&] { return held > which; })) << "it is not at its places";
  }
  const uint64_t records = columns.Sum(&ColumnSwitch::records);
  write(kWriters);
  EXPECT_FALSE(Eventually([&] { return columns.Sum(&ColumnSwitch::records) > records; },
                          std::chrono::seconds(1)))
      << "it goes on without slots";
  open.set_value();
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), (kWriters + 1) * kRun * kStageColumns);
  file.model() = text;
  file.Recover(std::nullopt);
  ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
}

// What others had written to a new stripe is flushed by a flush beside a writer of it, whatever a
// crash does to the writer.
TEST(Raid5StageFaultsTest, AFlushBesideAWriterLeavesNothingOfOthersInDoubt) {
  StagedFile file(27);
  TestColumns& columns = file.columns();
  const uint64_t at = 3 * kStageStripe;
  ASSERT_TRUE(file.Write(at + kStageUnit, std::string(1000, 'b')).ok());
  ASSERT_TRUE(file.Write(at, std::string(1000, 'a')).ok());
  std::atomic<bool> flushing{false}, flushed{false};
  std::optional<std::thread> flush;
  HookAll(columns, [&](LayerCall call) {
    if (call == LayerCall::kWrite && !flushing.exchange(true)) {
      flush.emplace([&] {
        EXPECT_TRUE(columns.top()->Flush(columns.Now()).ok());
        flushed = true;
      });
      EXPECT_FALSE(Eventually([&] { return flushed.load(); }, std::chrono::seconds(1)));
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(file.Write(at + kStageUnit, std::string(1000, 'c')).ok());
  ASSERT_TRUE(flush.has_value());
  flush->join();
  HookAll(columns, nullptr);
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), 0u);
  file.Recover(kStriping.ColumnOf(3, 0));  // of the 'a's
  const auto read = columns.top()->Read(at, 1000, columns.Now());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes.view(), std::string(1000, 'a'));
}

// A file of so many columns that a record has no room for the longest inode and all slots' writes
// of whole stripes, whose checksums take the most. All of it is flushed.
class WideFile {
 public:
  static constexpr size_t kColumns = 9;
  static constexpr uint64_t kStripe = (kColumns - 1) * kStageUnit;

  explicit WideFile(size_t inode) : columns_(kColumns, "8 KiB"), inode_(inode, 'i') {
    model_ = Noise(random_, 2 * ColumnRecord::kSlots * kStripe);
    EXPECT_TRUE(columns_.top()->Write(0, runtime::Block::CopyOf(model_), columns_.Now()).ok());
    EXPECT_TRUE(columns_.top()->SetInode(inode_, columns_.Now()).ok());
    EXPECT_TRUE(columns_.top()->Flush(columns_.Now()).ok());
    columns_.ResetCounters();
  }
  TestColumns& columns() { return columns_; }
  // No two stripes follow one another.
  void WriteWholeStripes(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const std::string text = Noise(random_, kStripe);
      const uint64_t at = 2 * i * kStripe;
      const absl::Status written =
          columns_.top()->Write(at, runtime::Block::CopyOf(text), columns_.Now());
      ASSERT_TRUE(written.ok()) << written;
      model_.replace(at, kStripe, text);
    }
  }
  // Behind what is flushed; no two of them follow one another either.
  void WriteNewStripes(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const absl::Status written =
          columns_.top()->Write(model_.size() + (2 * i + 1) * kStripe,
                                runtime::Block::CopyOf(std::string(kStripe, 'n')), columns_.Now());
      ASSERT_TRUE(written.ok()) << written;
    }
  }
  // And column 3 with it.
  void ExpectItIsThereAfterTheClientDied() {
    for (size_t i = 0; i < kColumns; ++i) {
      ASSERT_TRUE(columns_.store(i).Flush(columns_.id(i)).ok());
    }
    columns_.column(3).dead = true;
    columns_.Restart();
    const auto read = columns_.top()->Read(0, model_.size(), columns_.Now());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->bytes.view() == model_);
  }

 private:
  std::mt19937 random_{28};
  TestColumns columns_;
  const std::string inode_;
  std::string model_;
};

TEST(Raid5StageFaultsTest, WhereARecordIsFullWhatIsStagedIsFlushed) {
  WideFile file(ColumnRecord::kInodeBytesMax);
  TestColumns& columns = file.columns();
  ASSERT_NO_FATAL_FAILURE(file.WriteWholeStripes(ColumnRecord::kSlots));
  EXPECT_EQ(columns.Sum(&ColumnSwitch::staged), ColumnRecord::kSlots * WideFile::kColumns);
  ASSERT_NO_FATAL_FAILURE(file.ExpectItIsThereAfterTheClientDied());
}

// It says what a column has missed that fails, too, where the file is opened or where it is used.
TEST(Raid5StageFaultsTest, ARecordHasRoomForAColumnThatFailsWhateverIsStaged) {
  for (uint64_t staged = ColumnRecord::kSlots; staged > ColumnRecord::kSlots - 10; staged -= 3) {
    for (const uint64_t fresh : {0, 5, 40}) {
      SCOPED_TRACE(absl::StrCat(staged, " stripes, and new ones: ", fresh));
      WideFile file(ColumnRecord::kInodeBytesMax);
      ASSERT_NO_FATAL_FAILURE(file.WriteWholeStripes(staged));
      ASSERT_NO_FATAL_FAILURE(file.WriteNewStripes(fresh));
      if (staged % 2 == 0) {
        file.columns().column(3).dead = true;
        ASSERT_NO_FATAL_FAILURE(file.WriteNewStripes(fresh + 1));
      }
      ASSERT_NO_FATAL_FAILURE(file.ExpectItIsThereAfterTheClientDied());
    }
  }
}

TEST(Raid5StageFaultsTest, AFlushMakesRoomForAnInodeThatGrew) {
  WideFile file(0);
  TestColumns& columns = file.columns();
  ASSERT_NO_FATAL_FAILURE(file.WriteWholeStripes(ColumnRecord::kSlots));
  const std::string inode(ColumnRecord::kInodeBytesMax, 'i');
  ASSERT_TRUE(columns.top()->SetInode(inode, columns.Now()).ok());
  const absl::Status flushed = columns.top()->Flush(columns.Now());
  ASSERT_TRUE(flushed.ok()) << flushed;
  ASSERT_NO_FATAL_FAILURE(file.ExpectItIsThereAfterTheClientDied());
  EXPECT_EQ(columns.top()->GetAttributes(columns.Now())->inode, inode);
}

// A truncation that fails at any of its calls, now and then a write to the stripe that it ends in,
// a flush, and then the power goes: the file is as long as it was or was to be, and what was cut
// off is zeros when it grows again.
TEST(Raid5StageFaultsTest, WhatATruncationThatFailedHadToCutOffIsNeverSeenAgain) {
  size_t cuts = 0, refused = 0;
  for (const uint64_t to : {kStageStripe, kStageStripe + 1000, kStageStripe + 3 * kStageUnit}) {
    for (const std::string journal : {"on", "off"}) {
      for (uint64_t call = 1, ended = false; !ended; ++call) {
        SCOPED_TRACE(absl::StrCat("to ", to, ", journal ", journal, ", call ", call));
        StagedFile file(static_cast<uint32_t>(call), 3, journal);
        TestColumns& columns = file.columns();
        std::atomic<uint64_t> calls{0};
        HookAll(columns, [call, &calls](LayerCall) {
          return ++calls == call ? absl::ResourceExhaustedError("the test has no room")
                                 : absl::OkStatus();
        });
        const absl::Status cut = columns.top()->Truncate(to, columns.Now());
        ended = calls < call;
        EXPECT_TRUE(cut.ok() || !ended) << cut;  // of a staged write there is another way
        refused += !cut.ok();
        HookAll(columns, nullptr);
        if (to % kStageStripe > 0 && call % 3 > 0) {
          ASSERT_TRUE(file.Write(kStageStripe + 5, std::string(10, 'w')).ok());
          file.model().replace(kStageStripe + 5, 10, 10, 'w');
        }
        const absl::Status flushed = columns.top()->Flush(columns.Now());
        ASSERT_TRUE(flushed.ok()) << flushed;
        const uint64_t size = columns.top()->GetAttributes(columns.Now())->size;
        file.Recover(std::nullopt);
        const auto attributes = columns.top()->GetAttributes(columns.Now());
        ASSERT_TRUE(attributes.ok()) << attributes.status();
        ASSERT_EQ(attributes->size, size) << "that was flushed";
        ASSERT_TRUE(size == to || (size == file.model().size() && !ended));
        cuts += size == to;
        ASSERT_TRUE(columns.top()->Truncate(file.model().size(), columns.Now()).ok());
        if (size == to) {
          file.model().replace(to, std::string::npos, file.model().size() - to, '\0');
        }
        ASSERT_NO_FATAL_FAILURE(ExpectIs(columns, file.model()));
        ASSERT_NO_FATAL_FAILURE(file.AllAreBack());
      }
    }
  }
  EXPECT_GT(refused, 8u);
  EXPECT_GT(cuts, 8u);
}

// A truncation whose record was refused: nothing is cut off before a record has the new size.
TEST(Raid5StageFaultsTest, NothingIsCutOffBeforeARecordHasTheNewSize) {
  StagedFile file(29);
  TestColumns& columns = file.columns();
  const uint64_t before = file.model().size();
  HookAll(columns, [](LayerCall call) {
    return call == LayerCall::kSetInode || call == LayerCall::kFlush
               ? absl::ResourceExhaustedError("the test has no room")
               : absl::OkStatus();
  });
  ASSERT_FALSE(columns.top()->Truncate(kStageStripe, columns.Now()).ok());
  EXPECT_FALSE(columns.top()->Append(runtime::Block::CopyOf("more"), columns.Now()).ok());
  Reborn(columns);
  ASSERT_EQ(columns.top()->GetAttributes(columns.Now())->size, before);
  ASSERT_NO_FATAL_FAILURE(file.ExpectWhole());
}

// What is used of slots is known where the object moves to, and is given back at the close.
TEST(Raid5StageFaultsTest, SlotsAreGivenBackAfterAMoveToo) {
  StagedFile file(30);
  TestColumns& columns = file.columns();
  const uint64_t before = columns.top()->GetAttributes(columns.Now())->allocated;
  ASSERT_NO_FATAL_FAILURE(file.WriteSynced(7, 100));
  ASSERT_NO_FATAL_FAILURE(columns.Move());
  EXPECT_GT(columns.top()->GetAttributes(columns.Now())->allocated, before);
  ASSERT_TRUE(columns.raid()->CloseColumns(columns.Now()).ok());
  EXPECT_EQ(columns.top()->GetAttributes(columns.Now())->allocated, before);
}

}  // namespace
}  // namespace abacus::objfs
