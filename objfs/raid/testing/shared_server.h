#ifndef ABACUS_OBJFS_RAID_TESTING_SHARED_SERVER_H_
#define ABACUS_OBJFS_RAID_TESTING_SHARED_SERVER_H_

// A server of the simulation of shared stripes: its log and its store played, on virtual time, and
// between them the library's GroupCore, as CommitLog calls it.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/commit_log_state.h"
#include "objfs/atomicity/group_core_inl.h"
#include "objfs/atomicity/group_part.h"
#include "objfs/atomicity/testing/sim_loop.h"
#include "objfs/layer/version.h"
#include "objfs/raid/prepare_round.h"
#include "objfs/raid/testing/shared_oracle.h"
#include "objfs/spread/column_store.h"
#include "objfs/spread/settlement.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs::testing {

inline constexpr uint64_t kSharedServers = 3;
inline constexpr ObjectId kSharedFile = 7;

// Whole blocks, of which the first number alone counts.
inline GroupWrite SharedWriteOf(uint64_t row, uint64_t value) {
  std::string bytes(ObjectStore::kBlockBytes, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return {.id = kSharedFile, .block = row, .bytes = std::move(bytes)};
}

// All rules that the simulation can break. The last two are what CommitLog::Prepare() and Settle()
// ask Host::enter.
struct FaithfulSharedPolicy : FaithfulGroupPolicy, FaithfulSettlementPolicy, FaithfulRoundPolicy {
  static constexpr bool kFencePrepares = true;
  static constexpr bool kFenceOrders = true;
};

template <typename Policy>
class SharedServer {
 public:
  static constexpr uint64_t kFirstEpoch = 1;  // all servers begin with a record of it, and open

  struct Stored {
    Version version;
    uint64_t value = 0;
  };
  // A column's record, in its least form.
  struct Record {
    Version opening{kFirstEpoch};
    uint64_t sequence = 0;
    std::optional<uint64_t> lacks;  // a column that lacks what is in `rows`
    std::set<uint64_t> rows;        // where none does: parity is to be computed anew there
    std::pair<Version, uint64_t> age() const { return {opening, sequence}; }
  };
  using Answer = std::function<void(uint64_t from, uint64_t to, const CommitMessage& message)>;

  // `answer`: takes messages to clients and other servers.
  SharedServer(uint64_t number, const CommitOptions& options, uint64_t rows, SimLoop* loop,
               SharedOracle* oracle, Answer answer)
      : number_(number),
        options_(options),
        loop_(*loop),
        oracle_(*oracle),
        answer_(std::move(answer)),
        store_(rows) {}

  // -- its life ----------------------------------------------------------------------------------

  void Start() {
    ++life_;
    state_ = durable_;
    core_ = std::make_unique<GroupCore<Policy>>(options_, number_, state_.commits, loop_.now());
    fence_ = std::make_shared<ColumnFence>();
    if (life_ == 1 && !fence_->Raise(Version{kFirstEpoch}).ok()) oracle_.Break("fence: at first");
    if (!core_->TakeClaims().ok()) oracle_.Break("claims: two are to write one block");
    CommitActions actions;
    core_->Start(&actions);
    const std::vector<CommitKey> committed = std::exchange(actions.apply, {});
    Do(std::move(actions));
    // Before anybody is let in.
    for (const CommitKey& key : committed) Apply(key);
    Tick(life_);
  }
  // Records are durable in their order: any number of the last ones is missing.
  void Crash() {
    ++life_;
    Harden(loop_.random.Below(unflushed_.size() + 1));
    unflushed_.clear();
    appended_ = flushed_ = 0;
    flushing_ = false;
    sequences_.clear();
    waiting_.clear();
    orders_.clear();
    core_.reset();
    fence_.reset();
    raising_ = Version();
  }
  bool is_up() const { return core_ != nullptr; }
  uint64_t life() const { return life_; }
  // Nothing is pending, claimed or held.
  bool is_idle() const {
    return is_up() && core_->participant().entries().empty() && core_->claims().empty() &&
           state_.held.empty();
  }

  // -- the column, by an opening -----------------------------------------------------------------

  const Record& record() const { return record_; }
  // Durable at once. False where the opening is over.
  bool WriteRecord(const Record& record) {
    if (!IsOpenTo(record.opening)) return false;
    record_ = record;
    return true;
  }
  std::optional<Stored> Read(Version opening, uint64_t row) const {
    if (!IsOpenTo(opening)) return std::nullopt;
    return store_[row];
  }
  bool IsOpenTo(Version opening) const { return is_up() && fence_->Enter(opening).ok(); }
  const Stored& At(uint64_t row) const { return store_[row]; }
  void Put(uint64_t row, const Stored& stored) { store_[row] = stored; }

  // From now on no group of before is let in. False: one is inside, so try again.
  bool TryRaise(Version opening) {
    raising_ = std::max(raising_, opening);
    return fence_.use_count() == 1;
  }
  // nullopt: there is a later opening. REQUIRES: TryRaise() was true, just now.
  std::optional<ColumnAnswer> AnswerTo(Version opening) {
    if (opening < record_.opening || !fence_->Raise(opening).ok()) return std::nullopt;
    absl::StatusOr<std::vector<PendingGroup>> pending = core_->PendingOf(kSharedFile, state_.held);
    if (!pending.ok()) {
      oracle_.Break("log: a payload is damaged");
      return std::nullopt;
    }
    return ColumnAnswer{record_.opening, *std::move(pending)};
  }
  // `done` is called when all is done, unless something fails.
  void Settle(Version opening, const std::vector<GroupOrder>& orders, SimLoop::Task done) {
    std::shared_ptr<const void> inside = Enter(opening);
    if (inside == nullptr && Policy::kFenceOrders) return;
    NextOrder(std::make_shared<Batch>(Batch{orders, 0, std::move(inside), std::move(done)}));
  }

  // -- groups ------------------------------------------------------------------------------------

  void OnMessage(uint64_t from, const CommitMessage& message) {
    if (!is_up()) return;
    if (message.kind == CommitKind::kPrepare) return Prepare(from, message);
    if (message.kind == CommitKind::kForget && StaysHeld({message.id, message.part.part})) return;
    if (core_->IsKept(message)) return;
    Handle(from, message, false, nullptr);
  }

 private:
  static constexpr uint64_t kFirstOrder = uint64_t{1} << 40;  // addresses of orders

  // Lives as long as its fence is to wait for it.
  struct Inside {
    std::shared_ptr<ColumnFence> fence;
    ColumnFence::Pass pass;  // goes first
  };
  struct Batch {
    std::vector<GroupOrder> orders;
    size_t next = 0;
    std::shared_ptr<const void> inside;
    SimLoop::Task done;
  };
  // What is appended to the log: a record, or that a group is held.
  struct Change {
    std::optional<CommitRecord> record;
    CommitKey held;
  };
  struct Waiting {
    uint64_t after = 0;
    SimLoop::Task task;
  };

  std::shared_ptr<const void> Enter(Version opening) {
    if (opening < raising_) return nullptr;
    absl::StatusOr<ColumnFence::Pass> pass = fence_->Enter(opening);
    if (!pass.ok()) return nullptr;
    return std::shared_ptr<const void>(new Inside{fence_, *std::move(pass)});
  }
  GroupPart PartOf(const std::string& payload) {
    absl::StatusOr<GroupPart> part = GroupPart::Decode(payload);
    if (part.ok()) return *std::move(part);
    oracle_.Break("log: a payload is damaged");
    return GroupPart();
  }
  bool IsOver(const GroupPart& part) const {
    return std::any_of(part.fences.begin(), part.fences.end(),
                       [this](const GroupFence& fence) { return fence.opening < record_.opening; });
  }
  bool StaysHeld(const CommitKey& key) const {
    return core_->participant().Find(key) != nullptr && state_.held.contains(key);
  }

  void Prepare(uint64_t from, const CommitMessage& message) {
    const CommitKey key{message.id, message.part.part};
    const GroupPart part = PartOf(message.payload);
    std::shared_ptr<const void> inside =
        part.fences.empty() ? nullptr : Enter(part.fences.front().opening);
    const bool is_let_in = inside != nullptr || !Policy::kFencePrepares;
    const auto begun = core_->Begin(key, part, is_let_in);
    if (begun.refusal != Refusal::kNone || !begun.is_new) {
      return Handle(from, message, begun.refusal == Refusal::kNone, inside);
    }
    // The store is looked at, which takes a while.
    loop_.After(loop_.random.Between(0, 200 * kUs),
                [this, from, message, part, inside = std::move(inside), life = life_] {
                  if (life_ != life) return;
                  Version newest;
                  const bool agrees = Agrees(message.id, part, &newest);
                  Handle(from, message, agrees, inside, newest);
                });
  }
  bool Agrees(Version id, const GroupPart& part, Version* newest) const {
    bool agrees = true;
    for (const GroupRead& read : part.reads) {
      agrees = agrees && GroupCore<Policy>::IsUnchanged(read, store_[read.block].version);
    }
    for (const GroupWrite& write : part.writes) {
      const Version there = store_[write.block].version;
      if (GroupCore<Policy>::IsNewer(id, there)) continue;
      agrees = false;
      *newest = std::max(*newest, there);
    }
    return agrees;
  }
  // `inside` lives until the answer leaves; a refusal tells of `newest`.
  void Handle(uint64_t from, const CommitMessage& message, bool vote,
              const std::shared_ptr<const void>& inside, Version newest = Version()) {
    CommitActions actions;
    core_->Handle(from, message, vote, loop_.now(), &actions);
    for (CommitSend& send : actions.sends) {
      if (send.message.kind != CommitKind::kRefused) continue;
      send.message.newest = std::max(send.message.newest, newest);
    }
    Do(std::move(actions), inside);
  }
  void Do(CommitActions actions, const std::shared_ptr<const void>& inside = nullptr) {
    for (const CommitRecord& record : actions.persist) {
      state_.ApplyCommit(record);
      sequences_.push_back(Append({.record = record, .held = {}}));
    }
    for (const CommitSend& send : actions.sends) {
      const uint64_t after = send.after == 0 ? 0 : sequences_[send.after - 1];
      WhenDurable(after,
                  [this, inside, to = send.to, message = send.message] { Leave(to, message); });
    }
    for (const CommitKey& key : actions.apply) {
      loop_.After(loop_.random.Between(50 * kUs, kMs), [this, key, life = life_] {
        if (life_ == life) Apply(key);
      });
    }
  }
  void Leave(uint64_t to, const CommitMessage& message) {
    // As CommitLog::AskOnce().
    if (message.kind == CommitKind::kCommit && StaysHeld({message.id, 0})) return;
    if (to < kFirstOrder) return answer_(number_, to, message);
    auto order = orders_.extract(to);
    if (!order.empty()) order.mapped()();
  }
  void Apply(const CommitKey& key) {
    const auto* const entry = core_->participant().Find(key);
    if (entry == nullptr || entry->applied) return;
    const GroupPart part = PartOf(entry->payload);
    core_->TakeBlocks(key.id, part);
    const bool is_over = IsOver(part);
    for (const GroupWrite& write : part.writes) {
      Stored& stored = store_[write.block];
      if (is_over || !(stored.version < key.id)) continue;
      stored.version = key.id;
      std::memcpy(&stored.value, write.bytes.data(), sizeof stored.value);
    }
    CommitActions actions;
    core_->Applied(key, &actions);
    Do(std::move(actions));
  }
  void Tick(uint64_t life) {
    if (life_ != life) return;
    CommitActions actions;
    core_->Tick(loop_.now(), &actions);
    Do(std::move(actions));
    loop_.After(4 * kMs, [this, life] { Tick(life); });
  }

  // -- orders ------------------------------------------------------------------------------------

  void NextOrder(const std::shared_ptr<Batch>& batch) {
    if (batch->next == batch->orders.size()) {
      // As CommitLog::Settle(): also what is aborted.
      return WhenDurable(appended_, [batch] {
        batch->inside.reset();
        batch->done();
      });
    }
    const GroupOrder order = batch->orders[batch->next++];
    if (order.fate != GroupFate::kCommitHeld) return DoOrder(batch, order);
    const CommitKey key{order.id, 0};
    if (core_->participant().Find(key) == nullptr) return;  // it fails
    uint64_t after = appended_;
    if (!state_.held.contains(key)) {
      state_.Hold(key);
      after = Append({.record = std::nullopt, .held = key});
    }
    WhenDurable(after, [this, batch, order, key] {
      if (core_->participant().Find(key) != nullptr) DoOrder(batch, order);
    });
  }
  void DoOrder(const std::shared_ptr<Batch>& batch, const GroupOrder& order) {
    Ask(core_->BeginOrder(order), [this, batch, order] {
      if (!core_->EndOrder(order)) return NextOrder(batch);
      Ask({.kind = CommitKind::kCommit, .id = order.id, .part = {number_, 0}},
          [this, batch] { NextOrder(batch); });
    });
  }
  void Ask(const CommitMessage& question, const SimLoop::Task& then) {
    const uint64_t address = kFirstOrder + ++orders_given_;
    const bool is_answered = question.kind != CommitKind::kForget;
    if (is_answered) orders_.emplace(address, then);
    Handle(address, question, false, nullptr);
    if (!is_answered) then();
  }

  // -- the log -----------------------------------------------------------------------------------

  uint64_t Append(Change change) {
    unflushed_.push_back(std::move(change));
    Flush();
    return ++appended_;
  }
  void Flush() {
    if (flushing_ || unflushed_.empty()) return;
    flushing_ = true;
    const size_t count = unflushed_.size();
    loop_.After(loop_.random.Between(50 * kUs, 500 * kUs), [this, count, life = life_] {
      if (life_ != life) return;
      Harden(count);
      flushing_ = false;
      Flush();
      const auto first =
          std::stable_partition(waiting_.begin(), waiting_.end(),
                                [this](const Waiting& each) { return each.after > flushed_; });
      const std::vector<Waiting> ready(std::make_move_iterator(first),
                                       std::make_move_iterator(waiting_.end()));
      waiting_.erase(first, waiting_.end());
      for (const Waiting& each : ready) each.task();
    });
  }
  void Harden(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const Change& change = unflushed_[i];
      if (change.record.has_value()) {
        durable_.ApplyCommit(*change.record);
      } else {
        durable_.Hold(change.held);
      }
    }
    unflushed_.erase(unflushed_.begin(), unflushed_.begin() + static_cast<int64_t>(count));
    flushed_ += count;
  }
  void WhenDurable(uint64_t after, SimLoop::Task task) {
    if (after <= flushed_) return task();
    waiting_.push_back({after, std::move(task)});
  }

  const uint64_t number_;
  const CommitOptions options_;
  SimLoop& loop_;
  SharedOracle& oracle_;
  const Answer answer_;
  // Durable.
  CommitLogState durable_;
  std::vector<Stored> store_;  // by row
  Record record_;
  // Goes with a life.
  uint64_t life_ = 0;
  CommitLogState state_;  // that all that was appended comes to
  std::unique_ptr<GroupCore<Policy>> core_;
  std::shared_ptr<ColumnFence> fence_;
  Version raising_;  // who opens the column, and waits for who is inside
  std::vector<Change> unflushed_;
  uint64_t appended_ = 0, flushed_ = 0;
  bool flushing_ = false;
  std::vector<uint64_t> sequences_;  // of the participant's records
  std::vector<Waiting> waiting_;     // for the log
  std::map<uint64_t, SimLoop::Task> orders_;
  uint64_t orders_given_ = 0;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_SHARED_SERVER_H_
