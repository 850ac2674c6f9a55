#include "runtime/binding/dedup_table.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/testing/sanitized.h"

namespace abacus::runtime {
namespace {

using Verdict = DedupTable::Verdict;
using Issue = DedupTable::Issue;

constexpr NodeInstance kProcess{1, 10};
constexpr NodeInstance kOther{2, 20};

CallId Call(uint64_t activity, uint64_t sequence, uint32_t level = 0) {
  return {{kProcess, activity}, level, sequence};
}

Payload ResultOf(size_t bytes, char c = 'r') { return {std::string(bytes, c), {}}; }

class DedupTableTest : public ::testing::Test {
 protected:
  // Begins a call that kProcess issues next.
  void Begin(const CallId& id) { Begin(id, {kProcess, ++issued_}); }
  void Begin(const CallId& id, const Issue& issue) {
    ASSERT_EQ(table_.Check(id, issue), Verdict::kNew) << id.ToString();
    table_.Begin(id, issue, limits_, counters_);
  }
  void Finish(const CallId& id, const Payload& result = ResultOf(10)) {
    ReplyMessage reply;
    reply.id = id;
    reply.next_sequence = id.sequence + 1;
    table_.Finish(id, reply, result, limits_, counters_);
  }
  void Run(const CallId& id, const Payload& result = ResultOf(10)) {
    Begin(id);
    Finish(id, result);
  }
  // As if the call came (again) now, with a number of its process that is not barred.
  Verdict CheckNew(const CallId& id) const { return table_.Check(id, {kProcess, issued_ + 1}); }

  void SaveAndLoad() {
    Writer writer;
    table_.Save(writer);
    const Payload payload = std::move(writer).Finish();
    Reader reader(payload);
    DedupTable loaded;
    loaded.Load(reader);
    ASSERT_TRUE(reader.ok()) << reader.status();
    ASSERT_TRUE(reader.AtEnd());
    table_ = std::move(loaded);
  }

  DedupLimits limits_;
  DedupCounters counters_;
  DedupTable table_;
  uint64_t issued_ = 0;
};

TEST_F(DedupTableTest, CallGoesFromNewToUnderWayToDoneToDoneWithoutResult) {
  const CallId id = Call(1, 5);
  EXPECT_TRUE(table_.empty());
  EXPECT_EQ(CheckNew(id), Verdict::kNew);
  Begin(id);
  EXPECT_EQ(CheckNew(id), Verdict::kUnderWay);
  Finish(id, ResultOf(100));
  EXPECT_EQ(CheckNew(id), Verdict::kDone);
  EXPECT_EQ(table_.Recorded(id), Verdict::kDone);
  EXPECT_EQ(table_.Get(id).reply.next_sequence, 6u);
  EXPECT_EQ(table_.Get(id).result.inline_bytes, std::string(100, 'r'));
  EXPECT_EQ(table_.result_bytes(), 100u);
  table_.Ack(id);
  EXPECT_EQ(CheckNew(id), Verdict::kDoneNoResult);
  EXPECT_EQ(table_.result_bytes(), 0u);
  EXPECT_FALSE(table_.empty());
}

TEST_F(DedupTableTest, EarlierCallOfAnActivityAndLevelIsOlderAndALaterOneNew) {
  Run(Call(1, 5));
  EXPECT_EQ(CheckNew(Call(1, 4)), Verdict::kOlder);
  EXPECT_EQ(CheckNew(Call(1, 6)), Verdict::kNew);
  Begin(Call(1, 6));
  EXPECT_EQ(CheckNew(Call(1, 5)), Verdict::kOlder);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.result_bytes(), 0u) << "the result of the earlier call is kept";
}

TEST_F(DedupTableTest, LevelsAndActivitiesAndOriginsAreKeptApart) {
  Run(Call(1, 5, 0));
  EXPECT_EQ(CheckNew(Call(1, 5, 1)), Verdict::kNew);
  EXPECT_EQ(CheckNew(Call(2, 5, 0)), Verdict::kNew);
  EXPECT_EQ(CheckNew({{kOther, 1}, 0, 5}), Verdict::kNew);
  EXPECT_EQ(CheckNew({{{kProcess.node, kProcess.incarnation + 1}, 1}, 0, 5}), Verdict::kNew);
}

TEST_F(DedupTableTest, AcknowledgingAnythingElseThanTheDoneCallChangesNothing) {
  Begin(Call(1, 5));
  table_.Ack(Call(1, 5));  // it runs
  EXPECT_EQ(CheckNew(Call(1, 5)), Verdict::kUnderWay);
  Finish(Call(1, 5));
  table_.Ack(Call(1, 4));
  table_.Ack(Call(1, 6));
  table_.Ack(Call(2, 5));
  EXPECT_EQ(CheckNew(Call(1, 5)), Verdict::kDone);
}

TEST_F(DedupTableTest, FinishOfACallWhosePlaceWasTakenIsIgnored) {
  Begin(Call(1, 5));
  Begin(Call(1, 6));
  Finish(Call(1, 5));
  EXPECT_EQ(CheckNew(Call(1, 6)), Verdict::kUnderWay);
  EXPECT_EQ(table_.result_bytes(), 0u);
  Finish(Call(9, 9));
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(DedupTableTest, SecondFinishOfACallIsIgnored) {
  Begin(Call(1, 5));
  Finish(Call(1, 5), ResultOf(100, 'a'));
  Finish(Call(1, 5), ResultOf(50, 'b'));
  EXPECT_EQ(table_.Get(Call(1, 5)).result.inline_bytes, std::string(100, 'a'));
  EXPECT_EQ(table_.result_bytes(), 100u);
  table_.Ack(Call(1, 5));
  Finish(Call(1, 5), ResultOf(50));
  EXPECT_EQ(CheckNew(Call(1, 5)), Verdict::kDoneNoResult);
  EXPECT_EQ(table_.result_bytes(), 0u);
}

TEST_F(DedupTableTest, OldestEntriesAreEvictedAndBarCallsIssuedBeforeThemOnly) {
  limits_.entries_max = 16;
  for (uint64_t activity = 1; activity <= 17; ++activity) Run(Call(activity, 1));
  EXPECT_EQ(counters_.entries_evicted, 2u);  // an eighth
  EXPECT_EQ(table_.size(), 15u);
  // Calls 1 and 2 are gone: repeated, they must not run.
  EXPECT_EQ(table_.Check(Call(1, 1), {kProcess, 1}), Verdict::kEvicted);
  EXPECT_EQ(table_.Check(Call(2, 1), {kProcess, 2}), Verdict::kEvicted);
  EXPECT_EQ(table_.Check(Call(3, 1), {kProcess, 3}), Verdict::kDone);
  // What the same process or another issues later is new, also of the activities that were evicted.
  EXPECT_EQ(table_.Check(Call(1, 2), {kProcess, 18}), Verdict::kNew);
  EXPECT_EQ(table_.Check(Call(99, 1), {kProcess, 18}), Verdict::kNew);
  EXPECT_EQ(table_.Check({{kOther, 1}, 0, 1}, {kOther, 1}), Verdict::kNew);
}

TEST_F(DedupTableTest, UseKeepsAnEntryFromBeingEvicted) {
  limits_.entries_max = 8;
  for (uint64_t activity = 1; activity <= 8; ++activity) Run(Call(activity, 1));
  Run(Call(1, 2));  // activity 1 calls again
  Run(Call(9, 1));
  EXPECT_EQ(counters_.entries_evicted, 1u);
  EXPECT_EQ(CheckNew(Call(1, 2)), Verdict::kDone);
  EXPECT_EQ(table_.Check(Call(2, 1), {kProcess, 2}), Verdict::kEvicted);
}

TEST_F(DedupTableTest, RunningCallsAreNeverEvicted) {
  limits_.entries_max = 4;
  for (uint64_t activity = 1; activity <= 20; ++activity) Begin(Call(activity, 1));
  EXPECT_EQ(table_.size(), 20u) << "the limit gives way: there is no idle entry";
  EXPECT_EQ(counters_.entries_evicted, 0u);
  for (uint64_t activity = 1; activity <= 20; ++activity) {
    EXPECT_EQ(CheckNew(Call(activity, 1)), Verdict::kUnderWay);
  }
}

TEST_F(DedupTableTest, ActivityThatMovedAboutIsBarredForEachProcessThatItCalledFrom) {
  limits_.entries_max = 1;
  const CallId first = Call(1, 1);
  Begin(first, {kProcess, 50});
  Finish(first);
  const CallId second = Call(1, 2);
  Begin(second, {kOther, 70});
  Finish(second);
  Begin(Call(2, 1), {kProcess, 100});  // evicts the entry of activity 1
  EXPECT_EQ(counters_.entries_evicted, 1u);
  EXPECT_EQ(table_.Check(second, {kOther, 70}), Verdict::kEvicted);
  EXPECT_EQ(table_.Check(first, {kProcess, 50}), Verdict::kEvicted) << "it would run twice";
  EXPECT_EQ(table_.Check(Call(1, 3), {kOther, 71}), Verdict::kNew);
}

TEST_F(DedupTableTest, LateCallDoesNotMakeAnEvictedLaterOneNew) {
  limits_.entries_max = 1;
  const CallId early = Call(1, 1);
  const CallId later = Call(1, 2);
  Begin(later, {kOther, 70});  // `early` was given up and is still on its way
  Finish(later);
  Begin(Call(2, 1), {kProcess, 100});
  Finish(Call(2, 1));
  ASSERT_EQ(table_.Check(later, {kOther, 70}), Verdict::kEvicted);
  Begin(early, {{3, 30}, 1});
  EXPECT_EQ(table_.Check(later, {kOther, 70}), Verdict::kEvicted) << "it would run twice";
  EXPECT_EQ(table_.Check(Call(1, 3), {kOther, 71}), Verdict::kNew);
}

TEST_F(DedupTableTest, OldestResultsAreDroppedBeyondTheBudget) {
  limits_.result_bytes_max = 1000;
  for (uint64_t activity = 1; activity <= 4; ++activity) Run(Call(activity, 1), ResultOf(400));
  EXPECT_EQ(table_.result_bytes(), 800u);
  EXPECT_EQ(counters_.results_evicted, 2u);
  EXPECT_EQ(CheckNew(Call(1, 1)), Verdict::kDoneNoResult);
  EXPECT_EQ(CheckNew(Call(2, 1)), Verdict::kDoneNoResult);
  EXPECT_EQ(CheckNew(Call(3, 1)), Verdict::kDone);
  EXPECT_EQ(CheckNew(Call(4, 1)), Verdict::kDone);
  EXPECT_EQ(counters_.entries_evicted, 0u);
}

TEST_F(DedupTableTest, ResultLargerThanTheBudgetIsKeptAlone) {
  limits_.result_bytes_max = 1000;
  Run(Call(1, 1), ResultOf(400));
  Run(Call(2, 1), ResultOf(5000));
  EXPECT_EQ(CheckNew(Call(1, 1)), Verdict::kDoneNoResult);
  EXPECT_EQ(CheckNew(Call(2, 1)), Verdict::kDone) << "its caller is waiting for it";
  EXPECT_EQ(table_.result_bytes(), 5000u);
}

TEST_F(DedupTableTest, CallsThatFinishInTheReverseOrderKeepTheBudgetToo) {
  constexpr uint64_t kCalls = 10;
  limits_.result_bytes_max = 1000;
  for (uint64_t activity = 1; activity <= kCalls; ++activity) Begin(Call(activity, 1));
  for (uint64_t activity = kCalls; activity >= 1; --activity) {
    Finish(Call(activity, 1), ResultOf(400));
    EXPECT_LE(table_.result_bytes(), limits_.result_bytes_max);
    EXPECT_EQ(CheckNew(Call(activity, 1)), Verdict::kDone) << "its caller is waiting for it";
  }
}

TEST_F(DedupTableTest, BlocksOfResultsCount) {
  limits_.result_bytes_max = 10000;
  Payload result = ResultOf(100);
  result.blocks = {Block::Allocate(6000)};
  Run(Call(1, 1), result);
  EXPECT_EQ(table_.result_bytes(), 6100u);
  Run(Call(2, 1), result);
  EXPECT_EQ(table_.result_bytes(), 6100u);
  EXPECT_EQ(counters_.results_evicted, 1u);
}

TEST_F(DedupTableTest, EverythingKnownTravels) {
  limits_.entries_max = 8;
  Payload result = ResultOf(100);
  result.blocks = {Block::FromString(std::string(5000, 'b')), Block::CopyOf("small")};
  for (uint64_t activity = 1; activity <= 8; ++activity) Run(Call(activity, 1), result);
  Run(Call(9, 1));
  table_.Ack(Call(3, 1));
  const size_t bytes = table_.result_bytes();
  SaveAndLoad();
  EXPECT_EQ(table_.size(), 8u);
  EXPECT_EQ(table_.result_bytes(), bytes);
  EXPECT_EQ(table_.Check(Call(1, 1), {kProcess, 1}), Verdict::kEvicted);
  EXPECT_EQ(CheckNew(Call(3, 1)), Verdict::kDoneNoResult);
  ASSERT_EQ(CheckNew(Call(2, 1)), Verdict::kDone);
  const DedupTable::Kept& kept = table_.Get(Call(2, 1));
  EXPECT_EQ(kept.reply.next_sequence, 2u);
  EXPECT_EQ(kept.result.inline_bytes, result.inline_bytes);
  EXPECT_EQ(kept.result.blocks, result.blocks);
  EXPECT_EQ(kept.result.blocks[0].data(), result.blocks[0].data());
}

TEST_F(DedupTableTest, OrderOfUseTravels) {
  limits_.entries_max = 64;
  for (uint64_t activity = 1; activity <= 64; ++activity) Run(Call(activity, 1));
  SaveAndLoad();
  Run(Call(65, 1));
  EXPECT_EQ(counters_.entries_evicted, 8u);
  for (uint64_t activity = 1; activity <= 65; ++activity) {
    EXPECT_EQ(table_.Recorded(Call(activity, 1)), activity <= 8 ? Verdict::kNew : Verdict::kDone)
        << activity;
  }
}

TEST_F(DedupTableTest, CutOrRepeatedEntriesFailTheReader) {
  Run(Call(1, 1));
  Run(Call(2, 1), ResultOf(2000));
  Writer writer;
  table_.Save(writer);
  const Payload whole = std::move(writer).Finish();
  for (size_t size = 0; size < whole.inline_bytes.size(); ++size) {
    const Payload cut{whole.inline_bytes.substr(0, size), whole.blocks};
    Reader reader(cut);
    DedupTable loaded;
    loaded.Load(reader);
    ASSERT_FALSE(reader.ok()) << size;
  }
  Payload twice{whole.inline_bytes, whole.blocks};
  const size_t entries = sizeof(uint64_t);  // behind the count of floors, which are none
  twice.inline_bytes[entries] = 4;
  twice.inline_bytes += whole.inline_bytes.substr(entries + sizeof(uint64_t));
  Reader reader(twice);
  DedupTable loaded;
  loaded.Load(reader);
  EXPECT_FALSE(reader.ok()) << "one call has two records";
}

// -- random calls, duplicates, late messages, evictions and moves of the object -------------------

// A network that repeats and delays, in front of one object. The model remembers everything.
class RandomCalls {
 public:
  RandomCalls(uint64_t seed, const DedupLimits& limits) : random_(seed), limits_(limits) {}

  void Step() {
    switch (random_() % 8) {
      case 0:
      case 1:
        return IssueCall();
      case 2:
      case 3:
      case 4:
        return Deliver();
      case 5:
        return FinishOne();
      case 6:
        return AckOne();
      default:
        if (random_() % 32 == 0) Move();
    }
  }

  const DedupCounters& counters() const { return counters_; }
  size_t executed() const { return calls_.size(); }
  size_t moves() const { return moves_; }

 private:
  static constexpr size_t kResultBytes = 200;
  struct Message {
    CallId id;
    Issue issue;
  };
  struct Executed {
    bool finished = false;
    bool acked = false;
    Payload result;
  };
  using Key = std::pair<ActivityId, uint32_t>;

  void IssueCall() {
    // Few activities, so that they call again; more than the limit of entries, so that it is met.
    const ActivityId activity{{static_cast<NodeId>(1 + random_() % 3), 1}, random_() % 12};
    // Mostly from the process that it began on, at times from one that it has come to.
    const NodeInstance by = random_() % 4 != 0
                                ? activity.origin
                                : NodeInstance{static_cast<NodeId>(1 + random_() % 3), 1};
    const CallId id{activity, static_cast<uint32_t>(random_() % 2), ++sequences_[activity]};
    network_.push_back({id, {by, ++issued_[by]}});
  }

  void Deliver() {
    if (network_.empty()) return;
    const size_t which = random_() % network_.size();
    const Message message = network_[which];
    if (random_() % 3 != 0) network_.erase(network_.begin() + static_cast<ptrdiff_t>(which));
    const Verdict verdict = table_.Check(message.id, message.issue);
    ExpectAllowed(message, verdict);
    if (verdict != Verdict::kNew || ::testing::Test::HasFailure()) return;
    table_.Begin(message.id, message.issue, limits_, counters_);
    calls_[message.id];
    running_.push_back(message.id);
    last_[{message.id.activity, message.id.level}] = message;
    uint64_t& highest = highest_issue_[message.issue.by];
    highest = std::max(highest, message.issue.number);
    ExpectWithinLimits();
  }

  void ExpectAllowed(const Message& message, Verdict verdict) {
    const auto executed = calls_.find(message.id);
    const auto last = last_.find({message.id.activity, message.id.level});
    const bool later_came = last != last_.end() && last->second.id.sequence > message.id.sequence;
    const std::string call = message.id.ToString();
    switch (verdict) {
      case Verdict::kNew:
        EXPECT_TRUE(executed == calls_.end()) << call << " would run twice";
        // A call that was given up and comes late must not run behind a later one. That is not
        // known any more where the later one is evicted and came from another process.
        EXPECT_TRUE(!later_came ||
                    (counters_.entries_evicted > 0 && last->second.issue.by != message.issue.by))
            << call << " would run behind " << last->second.id.ToString();
        break;
      case Verdict::kUnderWay:
        EXPECT_TRUE(executed != calls_.end() && !executed->second.finished) << call;
        EXPECT_FALSE(later_came) << call;
        break;
      case Verdict::kDone:
        ASSERT_TRUE(executed != calls_.end() && executed->second.finished) << call;
        EXPECT_FALSE(executed->second.acked || later_came) << call;
        EXPECT_EQ(table_.Get(message.id).result.inline_bytes, executed->second.result.inline_bytes);
        EXPECT_EQ(table_.Get(message.id).reply.next_sequence, message.id.sequence);
        break;
      case Verdict::kDoneNoResult:
        ASSERT_TRUE(executed != calls_.end() && executed->second.finished) << call;
        EXPECT_TRUE(executed->second.acked || counters_.results_evicted > 0) << call;
        EXPECT_FALSE(later_came) << call;
        break;
      case Verdict::kOlder:
        EXPECT_TRUE(later_came) << call;
        break;
      case Verdict::kEvicted:
        EXPECT_GT(counters_.entries_evicted, 0u) << call;
        EXPECT_LE(message.issue.number, highest_issue_[message.issue.by])
            << call << " was issued after everything that could have been evicted";
    }
  }

  void ExpectWithinLimits() {
    EXPECT_LE(table_.size(), limits_.entries_max + running_.size());
    EXPECT_LE(counters_.entries_evicted + table_.size(), calls_.size());
  }

  void FinishOne() {
    if (running_.empty()) return;
    const size_t which = random_() % running_.size();
    const CallId id = running_[which];
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(which));
    Executed& executed = calls_.at(id);
    executed.finished = true;
    executed.result = ResultOf(random_() % kResultBytes, static_cast<char>('a' + random_() % 26));
    ReplyMessage reply;
    reply.id = id;
    reply.next_sequence = id.sequence;
    table_.Finish(id, reply, executed.result, limits_, counters_);
    // One result may be larger than the budget.
    EXPECT_LE(table_.result_bytes(), std::max(limits_.result_bytes_max, kResultBytes));
  }

  void AckOne() {
    if (calls_.empty()) return;
    auto it = calls_.lower_bound({{{static_cast<NodeId>(1 + random_() % 3), 1}, random_() % 12},
                                  static_cast<uint32_t>(random_() % 2),
                                  random_() % 1000});
    if (it == calls_.end() || !it->second.finished) return;
    it->second.acked = true;
    table_.Ack(it->first);
  }

  // The object moves: it is drained, and its table travels in its checkpoint.
  void Move() {
    ++moves_;
    while (!running_.empty()) FinishOne();
    Writer writer;
    table_.Save(writer);
    const Payload payload = std::move(writer).Finish();
    Reader reader(payload);
    DedupTable loaded;
    loaded.Load(reader);
    ASSERT_TRUE(reader.ok() && reader.AtEnd()) << reader.status();
    EXPECT_EQ(loaded.size(), table_.size());
    EXPECT_EQ(loaded.result_bytes(), table_.result_bytes());
    for (const Message& message : network_) {
      EXPECT_EQ(loaded.Check(message.id, message.issue), table_.Check(message.id, message.issue))
          << message.id.ToString();
    }
    table_ = std::move(loaded);
  }

  std::mt19937_64 random_;
  const DedupLimits limits_;
  DedupCounters counters_;
  DedupTable table_;
  std::vector<Message> network_;
  std::map<ActivityId, uint64_t> sequences_;
  std::map<NodeInstance, uint64_t> issued_;
  std::map<NodeInstance, uint64_t> highest_issue_;  // of the calls that ran
  std::map<Key, Message> last_;                     // the last call that ran
  std::map<CallId, Executed> calls_;
  std::vector<CallId> running_;
  size_t moves_ = 0;
};

TEST(DedupTablePropertyTest, NoCallRunsTwiceWhateverIsRepeatedDelayedOrEvicted) {
  uint64_t entries_evicted = 0;
  uint64_t results_evicted = 0;
  size_t moves = 0;
  constexpr uint64_t kSeeds = testing::kSanitized ? 60 : 300;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    RandomCalls calls(seed, {.entries_max = 1 + seed % 32, .result_bytes_max = 1 + seed * 10});
    for (int step = 0; step < 2000; ++step) {
      calls.Step();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(calls.executed(), 100u);
    entries_evicted += calls.counters().entries_evicted;
    results_evicted += calls.counters().results_evicted;
    moves += calls.moves();
  }
  EXPECT_GT(entries_evicted, 1000u);
  EXPECT_GT(results_evicted, 1000u);
  EXPECT_GT(moves, kSeeds * 2 / 3);
}

TEST(DedupTablePropertyTest, WithoutEvictionsEveryVerdictIsExact) {
  // The limits are not met, so the model's rules leave one verdict for each call.
  for (uint64_t seed = 1000; seed < 1050; ++seed) {
    SCOPED_TRACE(seed);
    RandomCalls calls(seed, {.entries_max = 1000, .result_bytes_max = size_t{1} << 30});
    for (int step = 0; step < 2000; ++step) {
      calls.Step();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(calls.counters().entries_evicted, 0u);
    EXPECT_EQ(calls.counters().results_evicted, 0u);
  }
}

}  // namespace
}  // namespace abacus::runtime
