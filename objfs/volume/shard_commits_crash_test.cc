// Clients commit transactions over three shards; at each message, and at each call of each shard to
// its disk, somebody dies, or all do. Then all live, and what is there is judged: each transaction
// whole or not at all, as its client was told, nothing held, and no records left.
//
//   ABACUS_LONG=1   all points with more seeds of what a power cut leaves, and longer histories

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/testing/mutations.h"
#include "objfs/volume/testing/shard_commits_world.h"
#include "runtime/base/status.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/sanitized.h"

namespace abacus::objfs {
namespace {

using testing::ExpectCaught;
using testing::Fate;
using testing::kBadFates;
using testing::kWorldShards;
using testing::Mutation;
using testing::ShardCommitsWorld;

// A transaction: how many entries each of its shards gets, and what became of it.
struct Group {
  uint32_t coordinator = 0;
  std::map<uint32_t, int64_t> entries;  // by shard
  bool makes = false;                   // its coordinator makes an object as well
  bool moves = false;                   // a directory changes its parent
  ObjectId made = 0;
  std::optional<bool> told;  // that it was committed or not; nothing: nobody knows
};

// Does them one after the other in a world, and judges what is there in the end. Group i has block
// i of each directory for itself.
class Work {
 public:
  explicit Work(ShardCommitsWorld& world) : world_(world) {}

  void Do(Group group) {
    groups_.push_back(std::move(group));
    Group& now = groups_.back();
    const uint32_t coordinator = now.coordinator;
    if (!world_.IsUp(coordinator)) {
      now.told = false;  // nobody was asked
      return;
    }
    std::vector<ShardTransaction> others;
    for (const auto& [shard, count] : now.entries) {
      if (shard == coordinator || !world_.IsUp(shard)) continue;
      others.push_back(world_.At(shard, TransactionAt(shard, now)));
    }
    if (others.size() + 1 < now.entries.size()) {
      now.told = false;
      return;
    }
    Transaction own = TransactionAt(coordinator, now);
    if (now.makes) {
      const auto id = world_[coordinator].table->Reserve();
      if (!id.ok()) return;  // it dies
      now.made = *id;
      Part made{.id = now.made};
      made.creation.emplace().inode.mode = S_IFDIR | 0755;
      made.change.links = 2;
      own.parts.push_back(std::move(made));
    }
    const absl::StatusOr<Outcome> outcome = world_.Commit(coordinator, own, others);
    if (!world_.IsUp(coordinator) || runtime::IsOutcomeUnknown(outcome.status())) return;
    now.told = outcome.ok() && outcome->state == CommitState::kCommitted;
  }

  // All come back, what is in doubt is asked for, and it is judged: also after one more power cut,
  // in which nothing may be lost any more. Returns what is not as it should be; "": nothing.
  std::string Finish(uint64_t seed) {
    for (int again = 0; again < 2; ++again) {
      world_.RestartTheDead(seed);
      for (uint32_t s = 0; s < kWorldShards; ++s) {
        if (!world_.IsUp(s)) return absl::StrCat("shard ", s, " does not start");
      }
      if (!world_.TickUntilQuiet()) return "something is under way and does not end";
      if (std::string broken = Judge(); !broken.empty()) return broken;
      world_.KillAll();
      seed += 100;
    }
    world_.RestartTheDead(seed);
    return "";
  }
  size_t committed() const {
    return static_cast<size_t>(std::count_if(
        groups_.begin(), groups_.end(), [](const Group& one) { return one.told.value_or(false); }));
  }

 private:
  static std::string TextOf(size_t group) { return absl::StrCat("group ", group); }

  // REQUIRES: all are up, and nothing is under way.
  std::string Judge() {
    std::map<uint32_t, int64_t> entries;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const Group& group = groups_[i];
      size_t there = 0;
      for (const auto& [shard, count] : group.entries) {
        const std::string mark = world_.MarkAt(shard, i);
        if (!mark.empty() && mark != TextOf(i)) return absl::StrCat(TextOf(i), " wrote ", mark);
        if (mark.empty()) continue;
        ++there;
        entries[shard] += count;
      }
      if (there != 0 && there != group.entries.size()) {
        return absl::StrCat(TextOf(i), " was done by ", there, " of its shards");
      }
      if (group.told.has_value() && (there > 0) != *group.told) {
        return absl::StrCat(TextOf(i), " was done: ", there > 0, ", and its client told otherwise");
      }
      if (group.made == 0) continue;
      const auto made = world_[group.coordinator].table->Stat(group.made);
      if (!made.ok()) return made.status().ToString();
      if ((made->id != 0 && made->inode.links == 2) != (there > 0)) {
        return absl::StrCat(TextOf(i), " was done: ", there > 0, ", and what it makes was not so");
      }
    }
    // And each of them once.
    for (uint32_t s = 0; s < kWorldShards; ++s) {
      const int64_t more = static_cast<int64_t>(world_.EntriesOf(s) - ShardCommitsWorld::kEntries);
      if (more != entries[s]) {
        return absl::StrCat("shard ", s, " has ", more, " entries more, for ", entries[s]);
      }
      if (!world_.IsFree(s)) return absl::StrCat("shard ", s, " has something held");
    }
    return "";
  }

  Transaction TransactionAt(uint32_t shard, const Group& group) {
    const size_t number = groups_.size() - 1;
    Transaction transaction = world_.Marks(shard, group.entries.at(shard), number, TextOf(number));
    if (group.moves) transaction.tree = world_[shard].table->TreeVersion();
    return transaction;
  }

  ShardCommitsWorld& world_;
  std::vector<Group> groups_;
};

std::vector<Group> TheGroups() {
  return {{.coordinator = 0, .entries = {{0, 2}, {1, -1}, {2, -1}}, .moves = true},
          {.coordinator = 1, .entries = {{0, 1}, {1, 1}, {2, -2}}, .makes = true},
          {.coordinator = 2, .entries = {{0, -3}, {2, 3}}, .makes = true},
          {.coordinator = 0, .entries = {{0, 4}, {1, -4}}}};
}

struct Death {
  enum class Kind { kNone, kMessage, kDisk };
  Kind kind = Kind::kNone;
  uint64_t at = 0;  // the message, or the shard's call to its disk
  Fate fate = Fate::kArrives;
  uint32_t shard = 0;
  bool all = false;  // the others as well

  std::string Text() const {
    switch (kind) {
      case Kind::kNone:
        return "nobody";
      case Kind::kMessage:
        return absl::StrCat("message ", at, ", fate ", static_cast<int>(fate));
      case Kind::kDisk:
        return absl::StrCat("disk call ", at, " of shard ", shard, all ? ", all" : "");
    }
    return "";
  }
};

class CrashRun {
 public:
  CrashRun(const Death& death, uint64_t seed, bool returns_soon)
      : death_(death), seed_(seed), returns_soon_(returns_soon) {
    for (uint32_t s = 0; s < kWorldShards; ++s) calls_before_[s] = world_[s].calls;
  }

  void Run() {
    world_.fate = [this](uint64_t message, uint32_t, uint32_t) {
      const bool is_now = death_.kind == Death::Kind::kMessage && message == death_.at;
      return is_now ? death_.fate : Fate::kArrives;
    };
    world_.at_disk = [this](uint32_t shard, std::string_view, uint64_t number) {
      const bool is_now = death_.kind == Death::Kind::kDisk && shard == death_.shard &&
                          number == calls_before_[shard] + death_.at;
      if (is_now && death_.all) world_.KillAll();
      if (is_now && !death_.all) world_.KillInCall(shard);
      return absl::OkStatus();
    };
    // Those that come back do so while others wait for them.
    if (returns_soon_) world_.at_rest = [this] { world_.RestartTheDead(seed_); };
    for (const Group& group : TheGroups()) {
      if (returns_soon_) world_.RestartTheDead(seed_);
      work_.Do(group);
      for (uint32_t s = 0; s < kWorldShards; ++s) world_.Tick(s);
    }
    messages_ = world_.messages();
    for (uint32_t s = 0; s < kWorldShards; ++s) calls_[s] = world_[s].calls - calls_before_[s];
    died_ = false;
    for (uint32_t s = 0; s < kWorldShards; ++s) died_ = died_ || !world_.IsUp(s);
    // Once more, where it came only now: what comes back makes calls as well.
    for (int again = 0; again < 2; ++again) {
      world_.RestartTheDead(seed_ + 10);
      for (uint32_t s = 0; s < kWorldShards; ++s) world_.Tick(s);
    }
    world_.fate = nullptr;
    world_.at_disk = nullptr;
    world_.at_rest = nullptr;
    broken_ = work_.Finish(seed_ + 20);
  }

  uint64_t messages() const { return messages_; }
  uint64_t CallsOf(uint32_t s) const { return calls_[s]; }
  bool died() const { return died_; }
  const std::string& broken() const { return broken_; }
  size_t committed() const { return work_.committed(); }

 private:
  const Death death_;
  const uint64_t seed_;
  const bool returns_soon_;
  ShardCommitsWorld world_;
  Work work_{world_};
  uint64_t messages_ = 0;
  uint64_t calls_before_[kWorldShards] = {}, calls_[kWorldShards] = {};
  bool died_ = false;
  std::string broken_;
};

std::vector<Death> AllDeaths() {
  CrashRun clean({}, /*seed=*/1, /*returns_soon=*/false);
  clean.Run();
  EXPECT_EQ(clean.broken(), "");
  EXPECT_EQ(clean.committed(), TheGroups().size());
  std::vector<Death> deaths;
  for (uint64_t at = 0; at < clean.messages(); ++at) {
    for (const Fate fate : kBadFates) {
      deaths.push_back({.kind = Death::Kind::kMessage, .at = at, .fate = fate});
    }
  }
  for (uint32_t s = 0; s < kWorldShards; ++s) {
    for (uint64_t at = 0; at < clean.CallsOf(s); ++at) {
      for (const bool all : {false, true}) {
        deaths.push_back({.kind = Death::Kind::kDisk, .at = at, .shard = s, .all = all});
      }
    }
  }
  return deaths;
}

// As many of them as there is time for, one drawn from each of so many equal parts: all of a long
// run's.
std::vector<Death> Some(const std::vector<Death>& deaths, size_t most, uint64_t seed) {
  if (runtime::testing::LongRun()) return deaths;
  if (runtime::testing::kSanitized) most /= 4;
  most = std::min(most, deaths.size());
  std::mt19937_64 random(seed);
  std::vector<Death> some;
  for (size_t part = 0; part < most; ++part) {
    const size_t begin = deaths.size() * part / most, end = deaths.size() * (part + 1) / most;
    some.push_back(deaths[begin + random() % (end - begin)]);
  }
  return some;
}

TEST(ShardCommitsCrash, AtEachPointATransactionIsWholeOrNotAtAll) {
  const uint64_t seed = runtime::testing::Seed(1);
  const std::vector<Death> deaths = AllDeaths();
  ASSERT_FALSE(::testing::Test::HasFailure());
  // Some four messages and a dozen calls to disks for each group.
  EXPECT_GE(deaths.size(), 200u);
  const std::vector<Death> tried = Some(deaths, 120, seed);
  const uint64_t seeds = runtime::testing::LongRun() ? 8 : 1;
  uint64_t died = 0, runs = 0;
  for (size_t i = 0; i < tried.size(); ++i) {
    for (uint64_t more = 0; more < seeds; ++more) {
      for (const bool returns_soon : {false, true}) {
        const uint64_t of_run = seed * 1'000'000 + i * 1000 + more * 100;
        SCOPED_TRACE(
            absl::StrCat(tried[i].Text(), ", seed ", of_run, returns_soon ? ", returns soon" : ""));
        CrashRun run(tried[i], of_run, returns_soon);
        run.Run();
        ASSERT_EQ(run.broken(), "");
        died += run.died();
        ++runs;
      }
    }
  }
  std::cout << runs << " runs of " << deaths.size() << " points; in " << died
            << " somebody was dead at the end\n";
  EXPECT_GE(died, runs / 8);
}

// -- histories ------------------------------------------------------------------------------------

struct History {
  std::string broken;
  size_t committed = 0;
};

// Deaths, and messages that are lost, come at any time, and several to one transaction; others look
// after what is in doubt meanwhile.
History RunHistory(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto chance = [&random](uint64_t of) { return random() % of == 0; };
  ShardCommitsWorld world;
  Work work(world);
  bool is_inside = false;
  const auto others_look = [&] {
    if (is_inside || !chance(6)) return;
    is_inside = true;
    world.Pass(absl::Seconds(3));
    for (uint32_t s = 0; s < kWorldShards; ++s) world.Tick(s);
    is_inside = false;
  };
  world.fate = [&](uint64_t, uint32_t, uint32_t) {
    others_look();
    return chance(10) ? kBadFates[random() % std::size(kBadFates)] : Fate::kArrives;
  };
  world.at_disk = [&](uint32_t shard, std::string_view, uint64_t) {
    if (chance(150)) world.KillInCall(shard);
    if (chance(1000)) world.KillAll();
    return absl::OkStatus();
  };
  world.at_rest = [&] {
    if (chance(4)) world.RestartTheDead(random());
  };
  for (int step = 0; step < 40; ++step) {
    if (chance(2)) world.RestartTheDead(random());
    if (chance(3)) world.Pass(absl::Milliseconds(random() % 3000));
    for (uint32_t s = 0; s < kWorldShards; ++s) {
      if (chance(2)) world.Tick(s);
    }
    Group group{.coordinator = static_cast<uint32_t>(random() % kWorldShards)};
    const auto other = static_cast<uint32_t>((group.coordinator + 1 + random() % 2) % kWorldShards);
    const auto count = static_cast<int64_t>(random() % 5);
    group.entries = {{group.coordinator, count}, {other, -count}};
    if (chance(2)) group.entries[kWorldShards - group.coordinator - other] = 1;
    group.makes = chance(3);
    group.moves = chance(3);
    work.Do(std::move(group));
  }
  world.fate = nullptr;
  world.at_disk = nullptr;
  world.at_rest = nullptr;
  History history;
  history.broken = work.Finish(seed);
  if (world.is_damaged()) history.broken.clear();  // it is told, and of this nothing is judged
  history.committed = work.committed();
  return history;
}

TEST(ShardCommitsCrash, WhateverHappensATransactionIsWholeOrNotAtAll) {
  const uint64_t first = runtime::testing::Seed(1);
  const uint64_t histories = runtime::testing::LongRun()    ? 2000
                             : runtime::testing::kSanitized ? 6
                                                            : 40;
  size_t committed = 0;
  for (uint64_t seed = first; seed < first + histories; ++seed) {
    const History history = RunHistory(seed);
    ASSERT_EQ(history.broken, "") << "ABACUS_SEED=" << seed;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "ABACUS_SEED=" << seed;
    committed += history.committed;
  }
  std::cout << committed << " of " << histories * 40 << " transactions were committed\n";
  EXPECT_GE(committed, histories * 3);
}

// -- mutations ------------------------------------------------------------------------------------

constexpr uint64_t kSeedsMax = 500;

std::vector<Mutation> Mutations() {
  testing::ShardRules& rules = ShardCommitsWorld::rules;
  return {
      {"ReadyUnasked", &rules.asks_all, "it is committed where one was not asked"},
      {"ReadyBeforeDurable", &rules.prepared_is_durable, "it is prepared, says who forgets it"},
      {"CommitBeforeDurable", &rules.decision_is_durable, "a decision is told and then forgotten"},
      {"UndecidedIsAborted", &rules.undecided_is_told, "one aborts what is being committed"},
      {"UnknownIsCommitted", &rules.unknown_is_aborted, "one commits what nobody decided"},
      {"ForgetUnsettled", &rules.settles_first,
       "a decision is forgotten before all have it durably"},
      {"ForgetRecords", &rules.keeps_records, "what was prepared is not known after a start"},
      {"NobodyAsks", &rules.asks_in_doubt, "who is in doubt stays so"},
      {"NobodyTells", &rules.tells_decisions,
       "who coordinates tells nobody, and can forget nothing"},
  };
}

class ShardCommitsMutation : public ::testing::TestWithParam<Mutation> {};

TEST_P(ShardCommitsMutation, IsCaught) { ExpectCaught(GetParam(), kSeedsMax, RunHistory); }

INSTANTIATE_TEST_SUITE_P(, ShardCommitsMutation, ::testing::ValuesIn(Mutations()),
                         testing::NameOfMutation);

}  // namespace
}  // namespace abacus::objfs
