// Files that are spread over servers and that several clients write at once: they come to use them
// together, see what the others wrote, and do alone what cannot be done together.

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/fs/testing/movables.h"
#include "objfs/raid/testing/scrub_all.h"
#include "objfs/spread/share_choice.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::testing::Eventually;
using testing::FileSystemWorld;
using testing::Movables;

constexpr char kSharedRaid[] = "raid5(unit=8 KiB)/(isolation/storage)*3";
constexpr char kCachedSharedRaid[] = "cache/raid5(unit=8 KiB)/(isolation/storage)*3";
constexpr int64_t kSecondNs = 1'000'000'000;
// What the test's own clock is ahead, each time, by more than a test takes.
constexpr int64_t kMinuteUs = 60'000'000;

std::string SharedNoise(uint32_t seed, size_t bytes) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// One file, which all clients have open. Nodes: 0 the volume's server, 1 to 3 clients, 4 and 5 not
// used yet, 6 to 8 the servers of columns.
class SharedFileTest : public ::testing::Test {
 protected:
  static constexpr size_t kSpare = 4;
  static constexpr char kName[] = "file";

  // What tells how often a client has given a promise back.
  class Breaks {
   public:
    explicit Breaks(FileSystem* files)
        : files_(files),
          number_(files->AddKeeper([this](ObjectId, const std::function<void()>& done) {
            ++count_;
            done();
          })) {}
    ~Breaks() { files_->RemoveKeeper(number_); }
    Breaks(const Breaks&) = delete;
    Breaks& operator=(const Breaks&) = delete;
    int count() const { return count_; }

   private:
    FileSystem* const files_;
    std::atomic<int> count_{0};
    const uint64_t number_;
  };
  struct Member {
    std::unique_ptr<FileSystem> files;
    FileHandle handle = 0;
    std::unique_ptr<Breaks> breaks;
  };

  SharedFileTest()
      : world_(
            9, nullptr,
            [this] {
              const auto now = std::chrono::steady_clock::now().time_since_epoch();
              return steady_ns_ + std::chrono::nanoseconds(now).count();
            },
            absl::Seconds(30), absl::Seconds(1), nullptr, 4) {}

  void Begin(size_t members, const std::string& stack, size_t bytes = 100'000) {
    for (size_t i = 0; i < members; ++i) {
      Member member;
      member.files = world_.Client(i + 1);
      if (i == 0) {
        const auto made = member.files->Create(Caller(), member.files->root(), kName,
                                               S_IFREG | 0644, O_RDWR, stack);
        ASSERT_TRUE(made.ok()) << made.status();
        member.handle = made->handle;
        id_ = made->node.id;
      } else {
        const auto opened = member.files->Open(Caller(), id_, O_RDWR);
        ASSERT_TRUE(opened.ok()) << opened.status();
        member.handle = *opened;
      }
      member.breaks = std::make_unique<Breaks>(member.files.get());
      members_.push_back(std::move(member));
    }
    model_ = SharedNoise(1, bytes);
    const absl::Status written =
        members_[0].files->Write(members_[0].handle, 0, Block::CopyOf(model_));
    ASSERT_TRUE(written.ok()) << written;
    ASSERT_TRUE(members_[0].files->Sync(members_[0].handle).ok());
  }
  void End() {
    for (Member& member : members_) {
      const absl::Status released = member.files->Release(member.handle);
      EXPECT_TRUE(released.ok()) << released;
      member.breaks.reset();
    }
    members_.clear();
  }

  FileSystem& at(size_t i) { return *members_[i].files; }
  absl::Status TryWrite(size_t i, uint64_t offset, const std::string& text) {
    return at(i).Write(members_[i].handle, offset, Block::CopyOf(text));
  }
  void WriteBy(size_t i, uint64_t offset, const std::string& text) {
    const absl::Status written = TryWrite(i, offset, text);
    ASSERT_TRUE(written.ok()) << written;
    model_.resize(std::max(model_.size(), offset + text.size()));
    model_.replace(offset, text.size(), text);
  }
  std::string ReadBy(size_t i, uint64_t offset = 0, uint64_t bytes = 1 << 20) {
    const auto read = at(i).Read(members_[i].handle, offset, bytes);
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->view()) : "an error";
  }
  void ExpectSeenByAll() {
    for (size_t i = 0; i < members_.size(); ++i) ASSERT_TRUE(ReadBy(i) == model_) << i;
  }
  // What its layers tell of themselves.
  bool Tells(size_t i, const std::string& fact) {
    const auto state = at(i).GetXattr(Caller(), id_, kStateXattr);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() && absl::StrContains(*state, fact);
  }
  bool IsShared(size_t i) { return Tells(i, "columns: shared"); }
  bool IsSharedByAll() {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!IsShared(i)) return false;
    }
    return true;
  }
  // Each writes, one after the other: so they take the file from each other.
  void WriteInTurns(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < members_.size(); ++i) {
        ++writes_;
        ASSERT_NO_FATAL_FAILURE(WriteBy(i, 20'000 * i + 11 * writes_, absl::StrCat(writes_)));
      }
    }
  }
  void ComeToShare() {
    ASSERT_NO_FATAL_FAILURE(WriteInTurns(ShareChoice::kBreaksMin + 2));
    ASSERT_TRUE(IsSharedByAll());
  }
  int BreaksOfAll() const {
    int all = 0;
    for (const Member& member : members_) all += member.breaks->count();
    return all;
  }
  absl::Status RebuildBy(size_t i) {
    for (;;) {
      const auto progress = at(i).Rebuild(members_[i].handle, 0, 4);
      if (!progress.ok()) return progress.status();
      if (progress->left == 0) return absl::OkStatus();
    }
  }
  void ExpectScrubFindsNothing(size_t i) {
    const auto scrubbed = testing::ScrubInSteps(
        [&](uint64_t from) { return at(i).Scrub(members_[i].handle, from, UINT64_MAX); });
    ASSERT_TRUE(scrubbed.ok()) << scrubbed.status();
    EXPECT_TRUE(scrubbed->done);
    EXPECT_EQ(scrubbed->mismatched + scrubbed->damaged + scrubbed->repaired, 0u);
  }

  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  FileSystemWorld world_;
  ObjectId id_ = 0;
  std::string model_;
  uint64_t writes_ = 0;
  std::vector<Member> members_;  // last: they use the others
};
class SharedStackTest : public SharedFileTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Stacks, SharedStackTest,
                         ::testing::Values(kSharedRaid, kCachedSharedRaid));

TEST_P(SharedStackTest, ThoseWhoTakeItFromEachOtherComeToShareItAndDoSoNoMore) {
  for (const size_t members : {size_t{2}, size_t{3}}) {
    SCOPED_TRACE(members);
    ASSERT_NO_FATAL_FAILURE(Begin(members, GetParam()));
    ASSERT_NO_FATAL_FAILURE(WriteInTurns(1));
    EXPECT_FALSE(IsShared(members - 1)) << "who comes seldom has it alone";
    ASSERT_NO_FATAL_FAILURE(ComeToShare());
    const int breaks = BreaksOfAll();
    EXPECT_LE(breaks, static_cast<int>(members) * (ShareChoice::kBreaksMin + 1));
    for (int round = 0; round < 10; ++round) {
      ASSERT_NO_FATAL_FAILURE(WriteInTurns(1));
      ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
    }
    EXPECT_EQ(BreaksOfAll(), breaks) << "nobody takes anything from anybody";
    EXPECT_TRUE(IsSharedByAll());
    for (size_t i = 0; i < members; ++i) {
      EXPECT_EQ(at(i).Stat(id_)->size, model_.size());
      EXPECT_FALSE(at(i).IsTold(id_)) << "what a kernel keeps of it is good for one look";
      EXPECT_TRUE(at(i).Push(members_[i].handle).ok());
      EXPECT_TRUE(at(i).Sync(members_[i].handle).ok());
      EXPECT_TRUE(at(i).SyncData(members_[i].handle).ok());
    }
    EXPECT_EQ(BreaksOfAll(), breaks) << "nor by that";
    // Its cache has nothing that another one's write could have made old, nor ever had to write.
    if (std::string(GetParam()) == kCachedSharedRaid) {
      EXPECT_TRUE(Tells(0, "dirty: 0 bytes") && Tells(0, "cached: 0 bytes"));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectScrubFindsNothing(0));
    ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
    End();
    const auto last = world_.Client(1);
    ASSERT_TRUE(last->Unlink(Caller(), last->root(), kName).ok());
  }
}

// The slots of several clients are in one block, or in one stripe, or each in its own.
TEST_P(SharedStackTest, WhatHasReturnedIsSeenByAllWhileAllWrite) {
  constexpr size_t kMembers = 3;
  const uint64_t rounds = runtime::testing::kSanitized ? 15 : 60;
  ASSERT_NO_FATAL_FAILURE(Begin(kMembers, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  const auto slot_of = [](size_t i, uint64_t n) -> uint64_t {
    constexpr std::array<uint64_t, 3> kSteps = {16, 8192, 20'000};
    return 4096 + n % 3 * 1024 + i * kSteps[n % 3];
  };
  // A slot holds the round in which it was written last; the first three rounds begin them.
  const auto text_of = [](uint64_t n) {
    std::string text(sizeof(n), '\0');
    std::memcpy(text.data(), &n, sizeof(n));
    return text;
  };
  for (size_t i = 0; i < kMembers; ++i) {
    for (uint64_t n = 0; n < 3; ++n) {
      ASSERT_NO_FATAL_FAILURE(WriteBy(i, slot_of(i, n), text_of(n)));
    }
  }
  std::array<std::atomic<uint64_t>, kMembers> returned{2, 2, 2};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kMembers; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t n = 3; n < rounds; ++n) {
        const absl::Status written = TryWrite(i, slot_of(i, n), text_of(n));
        ASSERT_TRUE(written.ok()) << written;
        returned[i] = n;
        const size_t other = (i + 1 + n % 2) % kMembers;
        const uint64_t seen = returned[other];
        const std::string text = ReadBy(i, slot_of(other, seen), sizeof(uint64_t));
        ASSERT_EQ(text.size(), sizeof(uint64_t));
        uint64_t there = 0;
        std::memcpy(&there, text.data(), sizeof(there));
        ASSERT_GE(there, seen) << "by " << i << " of " << other;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kMembers; ++i) {
    for (uint64_t n = 3; n < rounds; ++n) {
      const std::string text = text_of(n);
      model_.replace(slot_of(i, n), text.size(), text);
    }
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  ASSERT_NO_FATAL_FAILURE(ExpectScrubFindsNothing(1));
  End();
}

TEST_P(SharedStackTest, IsItsModelWhateverIsDoneByWhomever) {
  ASSERT_NO_FATAL_FAILURE(Begin(3, GetParam(), 60'000));
  std::mt19937 random(static_cast<uint32_t>(runtime::testing::Seed(21)));
  int shared = 0;
  const int steps = runtime::testing::kSanitized ? 120 : 400;
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE(step);
    const size_t i = random() % members_.size();
    const uint64_t offset = random() % 60'000, bytes = random() % 20'000 + 1;
    switch (random() % 40) {
      case 0: {
        const std::string text = SharedNoise(static_cast<uint32_t>(random()), bytes / 4 + 1);
        const auto put = at(i).Append(members_[i].handle, Block::CopyOf(text));
        ASSERT_TRUE(put.ok()) << put.status();
        ASSERT_EQ(*put, model_.size());
        model_ += text;
        break;
      }
      case 1: {
        const auto cut = at(i).Set(Caller(), id_, {.size = offset});
        ASSERT_TRUE(cut.ok()) << cut.status();
        ASSERT_EQ(cut->size, offset);
        model_.resize(offset);
        break;
      }
      case 2: {
        const absl::Status punched = at(i).Allocate(
            members_[i].handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
        ASSERT_TRUE(punched.ok()) << punched;
        const uint64_t end = std::min<uint64_t>(model_.size(), offset + bytes);
        if (offset < end) model_.replace(offset, end - offset, end - offset, '\0');
        break;
      }
      case 3:
        ASSERT_TRUE(at(i).Sync(members_[i].handle).ok());
        break;
      case 4:
        ASSERT_EQ(at(i).Stat(id_)->size, model_.size());
        break;
      default: {
        if (random() % 3 == 0) {
          const std::string read = ReadBy(i, offset, bytes);
          ASSERT_TRUE(read == (offset < model_.size() ? model_.substr(offset, bytes) : ""));
          break;
        }
        // Mostly within the file.
        const uint64_t left = offset < model_.size() ? model_.size() - offset : 0;
        const uint64_t all = random() % 20 == 0 || left == 0 ? bytes : std::min(bytes, left);
        ASSERT_NO_FATAL_FAILURE(
            WriteBy(i, offset, SharedNoise(static_cast<uint32_t>(random()), all)));
      }
    }
    if (step % 10 == 9 && IsShared(i)) ++shared;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  EXPECT_GT(shared, 0);
  ASSERT_NO_FATAL_FAILURE(ExpectScrubFindsNothing(2));
  End();
}

TEST_P(SharedStackTest, WhatGrowsOrCutsItIsDoneAloneAndTheySeeItAndShareAgain) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, GetParam()));
  const std::vector<std::function<void()>> changes = {
      [&] {
        const auto put = at(0).Append(members_[0].handle, Block::CopyOf("appended"));
        ASSERT_TRUE(put.ok()) << put.status();
        ASSERT_EQ(*put, model_.size());
        model_ += "appended";
      },
      [&] { WriteBy(1, model_.size() - 3, SharedNoise(5, 30'000)); },
      [&] {
        ASSERT_TRUE(at(0).Set(Caller(), id_, {.size = 70'000}).ok());
        model_.resize(70'000);
      },
      [&] {
        ASSERT_TRUE(at(1)
                        .Allocate(members_[1].handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  10'000, 30'000)
                        .ok());
        model_.replace(10'000, 30'000, 30'000, '\0');
      },
      [&] {
        ASSERT_TRUE(at(0).Allocate(members_[0].handle, 0, 0, 90'000).ok());
        model_.resize(90'000);
      },
      [&] { EXPECT_LE(at(1).SeekHole(members_[1].handle, 0).value_or(UINT64_MAX), 90'000u); },
  };
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    changes[i]();
    if (HasFatalFailure()) return;
    ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
    for (size_t k = 0; k < members_.size(); ++k) {
      ASSERT_EQ(at(k).Stat(id_)->size, model_.size());
    }
    // It was taken alone once: it is not from there on.
    ASSERT_NO_FATAL_FAILURE(WriteInTurns(2));
    EXPECT_TRUE(IsSharedByAll());
  }
  End();
}

// Whoever needs it alone gets it, though others ask for it together all the time; and their writes
// go on.
TEST_P(SharedStackTest, OneAppendsWhileOthersWriteTogether) {
  ASSERT_NO_FATAL_FAILURE(Begin(3, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  std::atomic<bool> appending{true};
  std::array<std::atomic<uint64_t>, 2> writes{};
  std::vector<std::thread> writers;
  for (size_t i = 0; i < 2; ++i) {
    writers.emplace_back([&, i] {
      do {
        const absl::Status written = TryWrite(i, 30'000 * i, absl::StrCat(++writes[i], " times"));
        ASSERT_TRUE(written.ok()) << written;
      } while (appending);
    });
  }
  std::string appended;
  for (int i = 0; i < 10; ++i) {
    const std::string text = SharedNoise(static_cast<uint32_t>(i), 1000);
    const auto put = at(2).Append(members_[2].handle, Block::CopyOf(text));
    EXPECT_TRUE(put.ok()) << put.status();
    EXPECT_EQ(put.value_or(0), model_.size() + appended.size());
    appended += text;
  }
  appending = false;
  for (std::thread& writer : writers) writer.join();
  for (size_t i = 0; i < 2; ++i) {
    const std::string last = absl::StrCat(writes[i].load(), " times");
    model_.replace(30'000 * i, last.size(), last);
  }
  model_ += appended;
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  End();
}

// Each takes it from the other, with nothing above that would hold a break up.
TEST_F(SharedFileTest, WhereAllNeedItAloneEachCallOfEachIsServed) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, kSharedRaid, 1000));
  constexpr int kAppends = 15;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < kAppends; ++n) {
        const auto put =
            at(i).Append(members_[i].handle, Block::CopyOf(std::string(10, i == 0 ? 'a' : 'b')));
        ASSERT_TRUE(put.ok()) << put.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = ReadBy(0);
  EXPECT_EQ(text.size(), 1000u + 20 * kAppends);
  EXPECT_TRUE(ReadBy(1) == text);
  const std::string appended = text.substr(std::min<size_t>(text.size(), 1000));
  EXPECT_EQ(std::count(appended.begin(), appended.end(), 'a'), 10 * kAppends);
  EXPECT_EQ(std::count(appended.begin(), appended.end(), 'b'), 10 * kAppends);
  End();
}

TEST_P(SharedStackTest, AServerDiesAndAllIsServedAndNothingThatWasAcknowledgedIsLost) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  world_.LoseColumns(2);
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  ASSERT_NO_FATAL_FAILURE(WriteInTurns(ShareChoice::kBreaksMin + 2));
  EXPECT_FALSE(IsShared(0) || IsShared(1)) << "with a column missing it is not shared";
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  for (size_t i = 0; i < 2; ++i) {
    const absl::Status synced = at(i).Sync(members_[i].handle);
    EXPECT_TRUE(synced.ok()) << synced;
  }
  world_.StartColumns(2, kSpare);
  EXPECT_TRUE(Eventually([&] { return RebuildBy(0).ok(); }));
  ASSERT_NO_FATAL_FAILURE(ExpectScrubFindsNothing(1));
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  ASSERT_NO_FATAL_FAILURE(WriteInTurns(2 * ShareChoice::kBreaksMin + 2));
  EXPECT_TRUE(IsSharedByAll()) << "and again from then on";
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  // What is written together is in the column that was away, too.
  world_.LoseColumns(3);
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  End();
}

TEST_P(SharedStackTest, AServerDiesInTheMiddleOfWhatAllWrite) {
  constexpr size_t kMembers = 2;
  ASSERT_NO_FATAL_FAILURE(Begin(kMembers, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  std::atomic<bool> writing{true};
  std::array<std::atomic<uint64_t>, kMembers> rounds{};
  std::vector<std::thread> threads;
  // Each writes numbers into its own halves of two blocks.
  const auto offset_of = [](size_t i, uint64_t n) { return (n % 2 * 2 + 3) * 8'192 + i * 4'096; };
  const auto text_of = [](uint64_t n) { return absl::StrCat(1'000'000 + n); };
  for (size_t i = 0; i < kMembers; ++i) {
    threads.emplace_back([&, i] {
      while (writing) {
        const uint64_t n = rounds[i] + 1;
        const absl::Status written = TryWrite(i, offset_of(i, n), text_of(n));
        ASSERT_TRUE(written.ok()) << written;
        rounds[i] = n;
      }
    });
  }
  const auto go_on = [&] {
    for (size_t i = 0; i < kMembers; ++i) {
      const uint64_t before = rounds[i];
      EXPECT_TRUE(Eventually([&] { return rounds[i] >= before + 5; })) << i;
    }
  };
  go_on();
  world_.LoseColumns(2);
  go_on();
  writing = false;
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kMembers; ++i) {
    const uint64_t last = rounds[i];
    for (uint64_t n = last - 1; n <= last; ++n) {
      model_.replace(offset_of(i, n), text_of(n).size(), text_of(n));
    }
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  world_.StartColumns(2, kSpare);
  EXPECT_TRUE(Eventually([&] { return RebuildBy(1).ok(); }));
  ASSERT_NO_FATAL_FAILURE(ExpectScrubFindsNothing(0));
  world_.LoseColumns(1);
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  End();
}

// Nobody waits for it but who needs the file alone; and what it wrote is there without a sync.
TEST_P(SharedStackTest, AClientDies) {
  ASSERT_NO_FATAL_FAILURE(Begin(3, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  ASSERT_NO_FATAL_FAILURE(WriteBy(0, 5, "its last words"));
  world_.cluster().Kill(1);
  members_[0].breaks.reset();
  [[maybe_unused]] const Member dead = std::move(members_.front());
  members_.erase(members_.begin());
  const int breaks = BreaksOfAll();
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  ASSERT_NO_FATAL_FAILURE(WriteInTurns(3));
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  EXPECT_EQ(BreaksOfAll(), breaks);
  EXPECT_TRUE(IsSharedByAll());
  EXPECT_TRUE(Eventually([&] {
    steady_ns_ += 10 * kSecondNs;
    const bool renewed = at(0).Renew().ok() && at(1).Renew().ok();
    const auto clients = world_.volume()->Clients();
    return renewed && clients.ok() && clients->size() == 2;
  }));
  const auto put = at(0).Append(members_[0].handle, Block::CopyOf("alone"));
  ASSERT_TRUE(put.ok()) << put.status();
  model_ += "alone";
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  End();
}

TEST_P(SharedStackTest, LayersMoveWhileTheFileIsShared) {
  Movables movables(world_);
  ASSERT_NO_FATAL_FAILURE(Begin(2, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  const int breaks = BreaksOfAll();
  for (uint32_t i = 0; i < 40; ++i) {
    const absl::Status moved = movables.MoveOne(i * 131 + 7);
    ASSERT_TRUE(moved.ok()) << moved;
    ASSERT_NO_FATAL_FAILURE(WriteBy(i % 2, i * 2'000, SharedNoise(i, 5'000)));
    ASSERT_TRUE(ReadBy((i + 1) % 2) == model_) << i;
  }
  EXPECT_GT(movables.moves(Movables::kLayer), 5u);
  EXPECT_EQ(BreaksOfAll(), breaks);
  EXPECT_TRUE(IsSharedByAll());
  const auto put = at(0).Append(members_[0].handle, Block::CopyOf("the end"));
  ASSERT_TRUE(put.ok()) << put.status();
  model_ += "the end";
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  End();
}

// Of a client that pushed, or closed, others see when it wrote; and nobody is disturbed for that.
TEST_P(SharedStackTest, TimesAreTold) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  const int breaks = BreaksOfAll();
  for (size_t i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(at(i).Push(members_[i].handle).ok());
  }
  for (size_t i = 0; i < 2; ++i) {
    SCOPED_TRACE(i);
    const size_t other = 1 - i;
    const int64_t before = at(other).Stat(id_)->inode.modified_ns;
    world_.wall_ahead_us += kMinuteUs;
    ASSERT_NO_FATAL_FAILURE(WriteBy(i, 7, "now"));
    EXPECT_GT(at(i).Stat(id_)->inode.modified_ns, before + kMinuteUs * 500) << "its own, at once";
    if (i == 0) {
      ASSERT_TRUE(at(i).Push(members_[i].handle).ok());
    } else {
      ASSERT_TRUE(at(i).Sync(members_[i].handle).ok());
    }
    const auto seen = at(other).Stat(id_);
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_GT(seen->inode.modified_ns, before + kMinuteUs * 500);
    EXPECT_EQ(seen->size, model_.size());
  }
  EXPECT_EQ(BreaksOfAll(), breaks);
  EXPECT_TRUE(IsSharedByAll());
  End();
}

// What was written before is older than a time that is set, whoever tells of it later.
TEST_P(SharedStackTest, ATimeThatIsSetIsNotSetBackByWhatWasWrittenBefore) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  ASSERT_NO_FATAL_FAILURE(WriteBy(0, 7, "before"));
  constexpr int64_t kSet = 123 * kSecondNs;
  const auto set = at(1).Set(Caller(), id_, {.modified_ns = kSet});
  ASSERT_TRUE(set.ok()) << set.status();
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(at(i).Push(members_[i].handle).ok());
    ASSERT_TRUE(at(i).Sync(members_[i].handle).ok());
  }
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(at(i).Stat(id_)->inode.modified_ns, kSet) << i;
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  End();
}

TEST_P(SharedStackTest, AfterAWhileItIsTriedAloneAndStaysSoWhereTheOthersAreGone) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  world_.spread_ns += 9 * kSecondNs;
  ASSERT_NO_FATAL_FAILURE(WriteInTurns(1));
  EXPECT_TRUE(IsSharedByAll());
  world_.spread_ns += 1 * kSecondNs;
  ASSERT_NO_FATAL_FAILURE(WriteBy(0, 3, "alone?"));
  EXPECT_TRUE(Tells(0, "columns: open"));
  // The other one is there: they go back at once, and for longer.
  ASSERT_NO_FATAL_FAILURE(WriteInTurns(3));
  EXPECT_TRUE(IsSharedByAll());
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  world_.spread_ns += 19 * kSecondNs;
  ASSERT_NO_FATAL_FAILURE(WriteInTurns(1));
  EXPECT_TRUE(IsSharedByAll());
  ASSERT_TRUE(at(1).Release(members_[1].handle).ok());
  ASSERT_NO_FATAL_FAILURE(WriteBy(0, 3, "still"));
  EXPECT_TRUE(IsShared(0)) << "it knows nothing of that";
  world_.spread_ns += 1 * kSecondNs;
  ASSERT_NO_FATAL_FAILURE(WriteBy(0, 3, "alone!"));
  EXPECT_TRUE(Tells(0, "columns: open"));
  const auto opened = at(1).Open(Caller(), id_, O_RDWR);
  ASSERT_TRUE(opened.ok()) << opened.status();
  members_[1].handle = *opened;
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  End();
}

TEST_F(SharedFileTest, WhoReadsNowAndThenTakesItFromNobodyForLong) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, kCachedSharedRaid));
  for (int i = 0; i < 3 * ShareChoice::kBreaksMin; ++i) {
    world_.spread_ns += 2 * kSecondNs;
    ASSERT_NO_FATAL_FAILURE(WriteBy(0, 10, absl::StrCat(i)));
    world_.spread_ns += 2 * kSecondNs;
    ASSERT_TRUE(ReadBy(1) == model_);
  }
  EXPECT_FALSE(IsShared(0) || IsShared(1)) << "each has it for itself for seconds";
  End();
}

TEST_F(SharedFileTest, CopiesAreNotSharedAndClientsTakeTurns) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, "cache/mirror(unit=8 KiB)/(isolation/storage)*2"));
  for (int round = 0; round < 3 * ShareChoice::kBreaksMin; ++round) {
    ASSERT_NO_FATAL_FAILURE(WriteInTurns(1));
    ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
    ASSERT_FALSE(IsShared(0) || IsShared(1));
  }
  End();
}

TEST_P(SharedStackTest, TheVolumesServerDiesAndWhatWasWrittenTogetherIsThere) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, GetParam()));
  ASSERT_NO_FATAL_FAILURE(ComeToShare());
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(at(i).Sync(members_[i].handle).ok());
  End();
  world_.Restart();
  Member member;
  member.files = world_.Client(1);
  const auto opened = member.files->Open(Caller(), id_, O_RDWR);
  ASSERT_TRUE(opened.ok()) << opened.status();
  member.handle = *opened;
  members_.push_back(std::move(member));
  ASSERT_NO_FATAL_FAILURE(ExpectSeenByAll());
  ASSERT_NO_FATAL_FAILURE(ExpectScrubFindsNothing(0));
  End();
}

}  // namespace
}  // namespace abacus::objfs
