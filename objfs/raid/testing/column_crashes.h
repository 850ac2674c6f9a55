#ifndef ABACUS_OBJFS_RAID_TESTING_COLUMN_CRASHES_H_
#define ABACUS_OBJFS_RAID_TESTING_COLUMN_CRASHES_H_

// The power of all columns goes at each of their calls in turn that changes or flushes something.
// Afterwards what was flushed is there, what was not is old or new, columns fit together, and one
// that does not come back, or comes back later, changes nothing of that.

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "objfs/raid/testing/test_columns.h"

namespace abacus::objfs::testing {

// `File` says what is over the columns: File::Over, how many there are, what may not be known, and
// whether most writes are small ones that are synced.
template <typename File>
class Crashes {
 public:
  static constexpr size_t kColumns = File::kColumns;
  static constexpr uint64_t kUnit = 8192, kStripe = File::kStripe, kSizeMax = 15 * kUnit;

  explicit Crashes(uint32_t seed) : random_(seed), columns_(kColumns, "8 KiB") {}

  TestColumnsOf<typename File::Over>& columns() { return columns_; }
  // The power goes at that call from now.
  void CutAt(uint64_t call) {
    calls_ = 0;
    cut_at_ = call;
    for (size_t i = 0; i <= kColumns; ++i) {  // the witness too
      columns_.column(i).BeforeChange([this, call](LayerCall) {
        if (++calls_ != call) return absl::OkStatus();
        // Now, and not with each disk's next call: that could be an answer to the failure of
        // another one, which no disk can have after the power of all is gone.
        for (size_t j = 0; j <= kColumns; ++j) columns_.disk(j).CutPower();
        return absl::OkStatus();
      });
    }
  }
  void CutSoon() { CutAt(1 + random_() % 60); }

  // Until the power goes, or `steps` steps. True where it did not go.
  bool Work(int steps) {
    for (int i = 0; i < steps; ++i) {
      const absl::Status status = Step();
      if (calls_ >= cut_at_) return false;
      // What only a column that is away knows is not written in part.
      const bool doubt = absl::IsUnavailable(status) && !doubt_.empty();
      EXPECT_TRUE(status.ok() || doubt) << status << found_ << steps_;
    }
    return true;
  }

  // The power is back; `absent` does not answer.
  void Recover(std::optional<size_t> absent) {
    columns_.Stop();
    for (size_t i = 0; i <= kColumns; ++i) {
      columns_.column(i).BeforeChange(nullptr);
      columns_.column(i).dead = absent == i;
      columns_.disk(i).CutPower();
      columns_.disk(i).PowerOn(random_());
    }
    cut_at_ = UINT64_MAX;
    columns_.Start();
    absl::StrAppend(&found_, "\nat", steps_, "\nthe power went, and there was", Records());
    steps_.clear();
    absent_ = absent;
    if (absent.has_value()) doubt_.Add(touched_);
    whole_ = whole_ && !absent.has_value();
    now_ = states_;
  }
  void AllAreBack() {
    if (absent_.has_value()) columns_.column(*absent_).dead = false;
    absent_.reset();
    const auto rebuilt = columns_.RebuildAll();
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status() << found_;
    doubt_.clear();
    whole_ = true;
  }
  void Lose(size_t column) {
    columns_.column(column).dead = true;
    whole_ = false;
  }

  // Each byte is one that it may be, and that from now on.
  void Check() {
    const auto attributes = columns_.top()->GetAttributes(columns_.Now());
    ASSERT_TRUE(attributes.ok()) << attributes.status() << found_;
    const uint64_t size = attributes->size;
    bool known = false;
    for (const std::string& state : states_) known = known || state.size() == size;
    ASSERT_TRUE(known) << "size " << size << found_;
    for (std::string& state : states_) state.resize(size);
    for (uint64_t at = 0; at < size; at += kUnit) {
      const auto read = columns_.top()->Read(at, std::min(kUnit, size - at), columns_.Now());
      const uint64_t stripe = at / kStripe;
      if (absent_.has_value() && absl::IsUnavailable(read.status())) {
        ASSERT_TRUE(doubt_.Contains(stripe) && File::MayBeUnknown(stripe, at, *absent_))
            << "bytes from " << at << " were flushed" << found_;
        continue;
      }
      ASSERT_TRUE(read.ok()) << read.status() << found_;
      const std::string_view bytes = read->bytes.view();
      for (uint64_t i = 0; i < bytes.size(); ++i) {
        bool is_one = false;
        for (const std::string& state : states_) is_one = is_one || state[at + i] == bytes[i];
        ASSERT_TRUE(is_one) << "byte " << at + i << " of stripe " << stripe
                            << " is none that was written there;" << found_;
      }
      for (std::string& state : states_) state.replace(at, bytes.size(), bytes);
    }
    std::sort(states_.begin(), states_.end());
    states_.erase(std::unique(states_.begin(), states_.end()), states_.end());
    now_ = states_;
  }

  void Sync() {
    const absl::Status synced = columns_.top()->Flush(columns_.Now());
    ASSERT_TRUE(synced.ok()) << synced << found_;
    IsFlushed();
  }

  void CheckThatTheyFit() {
    for (uint64_t stripe = 0;; ++stripe) {
      const auto scrubbed = columns_.raid()->Scrub(stripe, 1, columns_.Now());
      ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
      EXPECT_EQ(scrubbed->mismatched + scrubbed->repaired + scrubbed->damaged, 0u)
          << "stripe " << stripe << found_;
      if (scrubbed->done) break;
    }
  }

 private:
  static std::string Text(const StripeSet& set) {
    std::string text;
    for (const auto& [begin, end] : set.runs()) absl::StrAppend(&text, " ", begin, "-", end - 1);
    return text;
  }
  std::string Records() {
    std::string all;
    for (size_t i = 0; i < kColumns; ++i) {
      const auto record = columns_.RecordOf(i);
      absl::StrAppend(&all, "\n  column ", i, absent_ == i ? " (away): " : ": ");
      if (!record.ok()) continue;
      absl::StrAppend(
          &all, "sequence ", record->sequence, ", durable ", absl::StrJoin(record->durable, " "),
          ", missing ", record->missing.has_value() ? int(*record->missing) : -1, ", lacking ",
          record->lacking.size(), ", size ", record->size, ", written", Text(record->written),
          ", missed", Text(record->missed), ", doubtful", Text(record->doubtful), ", staged ",
          absl::StrJoin(record->staged, " ", [](std::string* out, const ColumnRecord::Staged& s) {
            absl::StrAppend(out, s.stripe, "+", s.at, ":", s.bytes, "@", s.slot);
          }));
    }
    return all;
  }

  void IsFlushed() {
    states_ = now_;
    touched_.clear();
    flushed_ = kSizeMax;
    for (const std::string& state : states_) flushed_ = std::min(flushed_, state.size());
  }

  // What a call changes, or cuts off, in stripes.
  void Touch(uint64_t begin, uint64_t end) {
    if (begin < end) touched_.Add({begin / kStripe, (end + kStripe - 1) / kStripe});
  }

  absl::Status Step() {
    const auto draw = [&](uint64_t most) { return random_() % (most + 1); };
    uint64_t offset = draw(kSizeMax / 2);
    const uint64_t bytes = 1 + draw(draw(File::kMostlySynced ? 5 : 2) == 0 ? 50000 : 6000);
    if (draw(3) == 0) offset -= offset % kStripe;  // where a file ends nothing is written then
    const uint64_t kind = random_() % 7;
    absl::StrAppend(&steps_, "\n  ",
                    kind < 3    ? "write "
                    : kind == 3 ? "truncate "
                    : kind == 4 ? "punch "
                                : "flush ",
                    offset, "+", bytes);
    std::vector<std::string> before = now_;
    const Version now = columns_.Now();
    absl::Status status;
    if (kind < 3) {
      // Now and then as pieces, one after the other.
      const uint64_t pieces = draw(2) == 0 ? 1 + draw(5) : 1;
      for (uint64_t i = 0, at = offset; i < pieces && status.ok(); ++i) {
        if (i > 0) before.insert(before.end(), now_.begin(), now_.end());
        std::string text(pieces > 1 ? 1 + draw(9000) : bytes, '\0');
        for (char& c : text) c = static_cast<char>(random_());
        const uint64_t end = at + text.size();
        absl::StrAppend(&steps_, i > 0 ? absl::StrCat(", ", at, "+", text.size()) : "");
        // Stripe by stripe, the size too, where it is gathered or over the end of what was flushed.
        for (uint64_t to = (at / kStripe + 1) * kStripe; to < end; to += kStripe) {
          const std::vector<std::string> whole = now_;
          Put(at, std::string_view(text).substr(0, to - at));
          now_ = whole;
        }
        Put(at, text);
        status = columns_.top()->Write(at, runtime::Block::CopyOf(text), now);
        at = end;
      }
      if (File::kMostlySynced && status.ok() && draw(3) > 0) {
        absl::StrAppend(&steps_, ", flush");
        status = Flush(now);
      }
    } else if (kind == 3) {
      flushed_ = std::min(flushed_, offset);
      Touch(whole_ ? std::max(offset, FlushedEnd()) : offset, kSizeMax);
      Change([&](std::string& state) { state.resize(offset); });
      status = columns_.top()->Truncate(offset, now);
    } else if (kind == 4) {
      // Of stripes in part zeros are written, as other bytes are.
      const uint64_t flushed = whole_ ? FlushedEnd() : 0;
      Touch(std::min(std::max(offset, flushed), (offset + kStripe - 1) / kStripe * kStripe),
            offset + bytes);
      Change([&](std::string& state) {
        const uint64_t end = std::min(state.size(), offset + bytes);
        if (offset < end) state.replace(offset, end - offset, end - offset, '\0');
      });
      status = columns_.top()->Punch(Range{offset, bytes}, now);
    } else {
      status = Flush(now);
    }
    if (!status.ok()) now_.insert(now_.end(), before.begin(), before.end());
    return status;
  }
  absl::Status Flush(Version now) {
    const absl::Status status = columns_.top()->Flush(now);
    if (status.ok()) IsFlushed();
    return status;
  }
  // Behind it no stripe has anything that was flushed.
  uint64_t FlushedEnd() const { return (flushed_ + kStripe - 1) / kStripe * kStripe; }
  // With all columns there, stripes that have something flushed are never in doubt when they are
  // written to, or cut.
  void Put(uint64_t at, std::string_view text) {
    Touch(std::max(at, whole_ ? FlushedEnd() : 0), at + text.size());
    Change([&](std::string& state) {
      state.resize(std::max<size_t>(state.size(), at + text.size()));
      state.replace(at, text.size(), text);
    });
  }
  void Change(const std::function<void(std::string&)>& change) {
    for (std::string& state : now_) change(state);
    states_.insert(states_.end(), now_.begin(), now_.end());
  }

  std::mt19937 random_;
  std::atomic<uint64_t> calls_{0}, cut_at_{UINT64_MAX};
  TestColumnsOf<typename File::Over> columns_;
  std::optional<size_t> absent_;
  std::vector<std::string> now_ = {""};     // what the file may be, if nothing is lost
  std::vector<std::string> states_ = now_;  // a byte is that of one of them: flushed last, or since
  StripeSet touched_;                       // since the last flush, and may be in doubt
  uint64_t flushed_ = 0;                    // the file's size then, or what is left of it since
  bool whole_ = true;                       // no column is away, nor lacks something
  StripeSet doubt_;                         // at a crash, and the column is away since
  std::string found_, steps_;               // for people
};

enum class CrashKind { kHealthy, kDegraded, kRebuilding };

template <typename File>
void CrashAt(CrashKind kind, uint32_t seed, uint64_t call, bool* ended) {
  Crashes<File> crashes(seed);
  auto& columns = crashes.columns();
  const size_t column = seed % File::kColumns;
  ASSERT_TRUE(crashes.Work(6));
  if (kind != CrashKind::kHealthy) {
    crashes.Lose(column);
    ASSERT_TRUE(crashes.Work(8));
  }
  crashes.CutAt(call);
  if (kind == CrashKind::kRebuilding) {
    columns.column(column).dead = false;
    *ended = true;
    for (int i = 0; i < 4 && *ended; ++i) {
      *ended = columns.raid()->Rebuild(0, 1, columns.Now()).ok() && crashes.Work(1);
    }
  } else {
    *ended = crashes.Work(10);
  }
  // Healthy: now all columns are back, now all but one. Else the same one stays away, or not.
  std::optional<size_t> absent;
  if (call % 2 == 0)
    absent = kind == CrashKind::kHealthy ? (seed + call / 2) % File::kColumns : column;
  crashes.Recover(absent);
  if (call % 4 < 2) {
    ASSERT_NO_FATAL_FAILURE(crashes.Check());
  }
  // What was found is synced, and then another column is away, or comes back empty.
  if (kind == CrashKind::kHealthy && !absent.has_value() && call % 3 == 0) {
    ASSERT_NO_FATAL_FAILURE(crashes.Check());
    ASSERT_NO_FATAL_FAILURE(crashes.Sync());
    const size_t other = (seed + call / 6) % File::kColumns;
    if (call % 4 == 1) {
      crashes.Recover(other);
    } else {
      columns.Replace(other);
    }
    ASSERT_NO_FATAL_FAILURE(crashes.Check());
    ASSERT_NO_FATAL_FAILURE(crashes.AllAreBack());
    ASSERT_NO_FATAL_FAILURE(crashes.Check());
  }
  // The power goes once more, in what mends the first crash or in what follows.
  crashes.CutSoon();
  crashes.Work(4);
  crashes.Recover(absent);
  ASSERT_NO_FATAL_FAILURE(crashes.Check());
  crashes.Work(3);
  ASSERT_NO_FATAL_FAILURE(crashes.Check());
  ASSERT_NO_FATAL_FAILURE(crashes.AllAreBack());
  ASSERT_NO_FATAL_FAILURE(crashes.Check());
  ASSERT_NO_FATAL_FAILURE(crashes.CheckThatTheyFit());
  ASSERT_TRUE(columns.top()->Flush(columns.Now()).ok());
  // What was found does not change with the column that is asked.
  columns.column((column + 1) % File::kColumns).dead = true;
  ASSERT_NO_FATAL_FAILURE(crashes.Check());
}

// The power goes at each call in turn, of as many workloads as it takes for enough points.
template <typename File>
void CrashAtEachCall(CrashKind kind) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(1));
  const uint64_t enough = runtime::testing::LongRun()    ? 2000
                          : runtime::testing::kSanitized ? 10
                                                         : 40;
  const uint64_t stride = runtime::testing::kSanitized ? 11 : 1;
  uint64_t points = 0;
  for (uint32_t workload = 0; points < enough; ++workload) {
    bool ended = false;
    for (uint64_t call = 1; !ended; call += stride, ++points) {
      SCOPED_TRACE(absl::StrCat("seed ", seed + workload, ", call ", call));
      ASSERT_NO_FATAL_FAILURE(CrashAt<File>(kind, seed + workload, call, &ended));
      ASSERT_LT(call, 5000u);
    }
  }
  ::testing::Test::RecordProperty("crash_points", static_cast<int>(points));
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_COLUMN_CRASHES_H_
