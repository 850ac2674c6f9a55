#ifndef ABACUS_OBJFS_VOLUME_TESTING_SHARD_COMMITS_WORLD_H_
#define ABACUS_OBJFS_VOLUME_TESTING_SHARD_COMMITS_WORLD_H_

// Shards of a volume with their tables and stores on disks whose power can be cut, on a clock that
// only waits move on. Each message and each call to a disk is a point at which somebody may die.

#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/callbacks.h"
#include "objfs/volume/object_table.h"
#include "objfs/volume/shard_commits.h"
#include "objfs/volume/shard_records.h"
#include "runtime/base/block.h"
#include "runtime/base/codec.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace abacus::objfs::testing {

inline constexpr uint32_t kWorldShards = 3;

// What becomes of a message, and of whom.
enum class Fate {
  kArrives,
  kIsLost,
  kAnswerIsLost,
  kSenderDiesBefore,
  kSenderDiesAfter,  // once it is done there
  kReceiverDiesBefore,
  kReceiverDiesAfter,
  kAllDieBefore,
  kAllDieAfter,
};
inline constexpr Fate kBadFates[] = {
    Fate::kIsLost,          Fate::kAnswerIsLost,       Fate::kSenderDiesBefore,
    Fate::kSenderDiesAfter, Fate::kReceiverDiesBefore, Fate::kReceiverDiesAfter,
    Fate::kAllDieBefore,    Fate::kAllDieAfter};

// What the protocol rests on: of all worlds, but of those of a test that takes one away.
struct ShardRules {
  bool asks_all = true;             // else one shard is taken for ready unasked
  bool prepared_is_durable = true;  // before it is answered
  bool decision_is_durable = true;  // before anybody hears of it
  bool undecided_is_told = true;    // else it is called aborted
  bool unknown_is_aborted = true;   // else it is called committed
  bool settles_first = true;        // before a decision is forgotten
  bool keeps_records = true;        // from one start to the next
  bool asks_in_doubt = true;
  bool tells_decisions = true;
};

class ShardCommitsWorld {
 public:
  static constexpr uint16_t kClient = 7, kOther = 8;
  static constexpr uint64_t kEntries = 100'000;  // that each shard's directory has at first

  struct Shard {
    PowerCutDisk disk;
    std::unique_ptr<ModelDisk> counted;
    std::shared_ptr<ObjectStore> store;
    std::shared_ptr<Callbacks> callbacks;
    std::shared_ptr<ObjectTable> table;
    std::unique_ptr<ShardCommits> commits;  // null: it is down
    ObjectId records = 0, directory = 0;
    uint64_t quota_bytes = UINT64_MAX;  // of a store that is opened from now on
    std::atomic<bool> serves{true};
    std::atomic<int> busy{0};        // calls that are inside, perhaps of one that is dead
    std::atomic<uint64_t> calls{0};  // to its disk, which change or flush something
    std::atomic<uint64_t> released{0};
    std::vector<ObjectId> altering_again;  // since it was begun last
    std::atomic<bool> lies{false};         // its disk, about syncs
    std::atomic<bool> ticks{false};
  };

  static inline ShardRules rules;

  ShardCommitsWorld() {
    for (uint32_t s = 0; s < kWorldShards; ++s) {
      DiskModel model;
      model.wait = [](absl::Duration) {};
      model.fault = [this, s](std::string_view call, const std::string&) { return Count(s, call); };
      shards_[s].counted = std::make_unique<ModelDisk>(shards_[s].disk, std::move(model));
      Start(s);
    }
  }
  ~ShardCommitsWorld() {
    for (Shard& shard : shards_) Drop(shard);
  }

  // Asked before each message, which are counted from 0.
  std::function<Fate(uint64_t message, uint32_t from, uint32_t to)> fate;
  // Called when one was answered, before its sender hears of it.
  std::function<void(uint64_t message)> answered;
  // Asked before each call to a disk that changes or flushes something; what is not OK is its
  // answer. `number`: how many were made to that disk before.
  std::function<absl::Status(uint32_t shard, std::string_view call, uint64_t number)> at_disk;
  // Called while somebody rests between two tries.
  std::function<void()> at_rest;
  std::atomic<ShardGroup> last_group{0};  // that somebody was asked to prepare

  Shard& operator[](uint32_t s) { return shards_[s]; }
  uint64_t messages() const { return messages_; }
  void Pass(absl::Duration time) { now_ns_ += absl::ToInt64Nanoseconds(time); }

  // -- who is there ------------------------------------------------------------------------------

  // A store was refused as damaged.
  bool is_damaged() const { return is_damaged_; }
  bool IsUp(uint32_t s) { return shards_[s].commits != nullptr && HasPower(s); }
  // Its power goes; what is not synced may be lost.
  void Kill(uint32_t s) { shards_[s].disk.CutPower(); }
  void KillAll() {
    for (uint32_t s = 0; s < kWorldShards; ++s) Kill(s);
  }
  // Its power goes in the call to its disk that is asked for (at_disk).
  void KillInCall(uint32_t s) { shards_[s].disk.CutPowerAfter(0); }
  // As after a power cut; `seed`: of what is left. It is down yet where its power goes meanwhile.
  // REQUIRES: nobody is inside.
  void Restart(uint32_t s, uint64_t seed) {
    ASSERT_EQ(shards_[s].busy.load(), 0);
    Drop(shards_[s]);
    shards_[s].disk.CutPower();
    shards_[s].disk.PowerOn(seed);
    shards_[s].serves = true;
    Start(s);
  }
  // All that are down and that nobody is inside of any more.
  void RestartTheDead(uint64_t seed) {
    for (uint32_t s = 0; s < kWorldShards; ++s) {
      if (!IsUp(s) && shards_[s].busy == 0) Restart(s, seed + s);
    }
  }

  // -- what they do ------------------------------------------------------------------------------

  // The directory of a shard gets so many entries more.
  Transaction Changes(uint32_t s, int64_t entries) {
    Transaction transaction;
    transaction.parts.push_back({.id = shards_[s].directory});
    transaction.parts.back().change.entries = entries;
    return transaction;
  }
  // And `text` at a place of its own, where nothing was before.
  Transaction Marks(uint32_t s, int64_t entries, uint64_t block, const std::string& text) {
    constexpr uint64_t kBytes = ObjectStore::kBlockBytes;
    Transaction transaction = Changes(s, entries);
    Part& part = transaction.parts.back();
    part.reads = {{{block * kBytes, kBytes}, Version()}};
    part.writes = {{block * kBytes, runtime::Block::CopyOf(text)}};
    return transaction;
  }
  static ShardTransaction At(uint32_t s, Transaction transaction, uint16_t writer = kClient) {
    return {.shard = s, .writer = writer, .transaction = std::move(transaction)};
  }
  absl::StatusOr<Outcome> Commit(uint32_t coordinator, const Transaction& own,
                                 const std::vector<ShardTransaction>& others) {
    const Inside inside(shards_[coordinator]);
    const Lying lying(shards_[coordinator], !rules.decision_is_durable);
    return shards_[coordinator].commits->Commit(kClient, own, others);
  }
  void Tick(uint32_t s) {
    if (!IsUp(s) || shards_[s].ticks.exchange(true)) return;  // it is one thread's to do
    const Inside inside(shards_[s]);
    shards_[s].commits->Tick();
    shards_[s].ticks = false;
  }
  // False: something is under way yet. REQUIRES: all are up.
  bool TickUntilQuiet() {
    for (int round = 0; round < 30; ++round) {
      if (IsQuiet()) return true;
      Pass(absl::Seconds(3));
      for (uint32_t s = 0; s < kWorldShards; ++s) Tick(s);
    }
    return IsQuiet();
  }
  bool IsQuiet() {
    for (Shard& shard : shards_) {
      if (shard.commits->in_doubt() > 0 || shard.commits->records_used() > 0) return false;
    }
    return true;
  }

  // -- what is there -----------------------------------------------------------------------------

  uint64_t EntriesOf(uint32_t s) {
    const auto node = shards_[s].table->Stat(shards_[s].directory);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? node->inode.entries : 0;
  }
  std::string MarkAt(uint32_t s, uint64_t block) {
    std::string bytes(16, '\0');
    const auto read = shards_[s].store->Read(shards_[s].directory, block * ObjectStore::kBlockBytes,
                                             std::span(bytes.data(), bytes.size()));
    EXPECT_TRUE(read.ok()) << read.status();
    return bytes.c_str();
  }
  // Whether others may change the shard's directory.
  bool IsFree(uint32_t s) {
    const auto outcome = shards_[s].table->Commit(kOther, Changes(s, 0));
    return outcome.ok() && outcome->state == CommitState::kCommitted;
  }

 private:
  class Inside {
   public:
    explicit Inside(Shard& shard) : shard_(shard) { ++shard_.busy; }
    ~Inside() { --shard_.busy; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Shard& shard_;
  };

  // Whether a shard's disk lies about syncs, for as long as this lasts.
  class Lying {
   public:
    Lying(Shard& shard, bool lies) : shard_(shard), before_(shard.lies) { Set(lies); }
    ~Lying() { Set(before_); }
    Lying(const Lying&) = delete;
    Lying& operator=(const Lying&) = delete;

   private:
    void Set(bool lies) {
      if (shard_.lies.exchange(lies) != lies) shard_.disk.LieAboutSyncs(lies);
    }

    Shard& shard_;
    const bool before_;
  };

  class Peers final : public ShardPeers {
   public:
    Peers(ShardCommitsWorld& world, uint32_t from) : world_(world), from_(from) {}
    absl::StatusOr<Outcome> Prepare(uint32_t shard, const ShardPrepare& prepare) override {
      world_.last_group = prepare.group;
      if (!rules.asks_all && shard == kWorldShards - 1) return Outcome();
      return world_.Deliver(from_, shard, [&, sent = Sent(prepare)](ShardCommits& there) {
        const Lying lying(world_[shard], !rules.prepared_is_durable);
        return there.Prepare(sent);
      });
    }
    absl::StatusOr<Outcome> Decide(uint32_t shard, ShardGroup group, bool commits) override {
      if (!rules.tells_decisions && commits) return absl::UnavailableError("it is not told");
      return world_.Deliver(from_, shard, [group, commits](ShardCommits& there) {
        return there.Decide(group, commits);
      });
    }
    absl::StatusOr<ShardDecision> DecisionOf(uint32_t shard, ShardGroup group) override {
      if (!rules.asks_in_doubt) return ShardDecision::kUndecided;
      const absl::StatusOr<ShardDecision> told = world_.Deliver(
          from_, shard, [group](ShardCommits& there) { return there.DecisionOf(group); });
      if (!told.ok()) return told;
      if (*told == ShardDecision::kUndecided && !rules.undecided_is_told) {
        return ShardDecision::kAborted;
      }
      if (*told == ShardDecision::kAborted && !rules.unknown_is_aborted) {
        return ShardDecision::kCommitted;
      }
      return told;
    }
    absl::Status Settle(uint32_t shard, const std::vector<ShardGroup>& groups) override {
      if (!rules.settles_first) return absl::OkStatus();
      return world_.Deliver(from_, shard,
                            [&groups](ShardCommits& there) { return there.Settle(groups); });
    }

   private:
    // As it comes through a network.
    static ShardPrepare Sent(const ShardPrepare& prepare) {
      runtime::Writer writer;
      runtime::Encode(writer, prepare);
      const runtime::Payload payload = std::move(writer).Finish();
      runtime::Reader reader(payload);
      ShardPrepare sent;
      runtime::Decode(reader, sent);
      EXPECT_TRUE(reader.ok() && reader.AtEnd());
      return sent;
    }

    ShardCommitsWorld& world_;
    const uint32_t from_;
  };

  template <typename Call>
  auto Deliver(uint32_t from, uint32_t to, const Call& call)
      -> decltype(call(std::declval<ShardCommits&>())) {
    EXPECT_EQ(runtime::HeldLocks(), 0) << "a lock is held over a message";
    const Lying honest(shards_[from], false);  // what others ask for meanwhile is not the rule's
    const uint64_t message = messages_++;
    const Fate become = fate ? fate(message, from, to) : Fate::kArrives;
    const absl::Status silence =
        runtime::MakeError(message % 2 == 0 ? runtime::ErrorKind::kNodeUnreachable
                                            : runtime::ErrorKind::kOutcomeUnknown,
                           "no answer");
    if (become == Fate::kSenderDiesBefore) Kill(from);
    if (become == Fate::kReceiverDiesBefore) Kill(to);
    if (become == Fate::kAllDieBefore) KillAll();
    // Who is dead says nothing any more, though its thread goes on here.
    if (become == Fate::kIsLost || !IsUp(from) || !IsUp(to)) return silence;
    const Inside inside(shards_[to]);
    auto answer = call(*shards_[to].commits);
    if (become == Fate::kSenderDiesAfter) Kill(from);
    if (become == Fate::kReceiverDiesAfter) Kill(to);
    if (become == Fate::kAllDieAfter) KillAll();
    if (answered) answered(message);
    if (become == Fate::kAnswerIsLost || !IsUp(from) || !IsUp(to)) return silence;
    return answer;
  }

  absl::Status Count(uint32_t s, std::string_view call) {
    static const std::set<std::string, std::less<>> kReading = {"read", "open", "list", "space"};
    if (kReading.contains(call)) return absl::OkStatus();
    const uint64_t number = shards_[s].calls++;
    return at_disk ? at_disk(s, call, number) : absl::OkStatus();
  }
  bool HasPower(uint32_t s) { return shards_[s].disk.Open("superblock").ok(); }

  static void Drop(Shard& shard) {
    shard.commits.reset();
    shard.table.reset();
    shard.callbacks.reset();
    shard.store.reset();
  }
  void Start(uint32_t s) {
    const absl::Status started = TryStart(s);
    if (started.ok()) return;
    Drop(shards_[s]);
    if (!HasPower(s)) return;
    is_damaged_ = true;
    // Of a sync that was not made the store may know that it is damaged.
    ASSERT_FALSE(rules.prepared_is_durable && rules.decision_is_durable) << started;
  }
  absl::Status TryStart(uint32_t s) {
    Shard& shard = shards_[s];
    LocalObjectStoreOptions of_store;
    of_store.quota_bytes = shard.quota_bytes;
    of_store.ids_begin = FirstIdOf(s, 1);
    ABACUS_ASSIGN_OR_RETURN(shard.store, LocalObjectStore::Open(*shard.counted, of_store));
    shard.table = std::make_shared<ObjectTable>(
        shard.store, [this] { return int64_t{1'700'000'000} * 1'000'000'000 + now_ns_; });
    shard.callbacks = std::make_shared<Callbacks>(
        Callbacks::Options{.lease = absl::Seconds(30), .steady_ns = [this] { return Now(); }});
    for (const uint16_t client : {kClient, kOther}) shard.callbacks->Join(client, {});
    if (shard.directory == 0) ABACUS_RETURN_IF_ERROR(MakeDirectory(shard));
    if (shard.records == 0 || !rules.keeps_records) ABACUS_RETURN_IF_ERROR(MakeRecords(shard));
    ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<ShardRecords> records,
                            ShardRecords::Open(shard.store, shard.records));
    ShardCommits::Options options;
    options.shard = s;
    ABACUS_ASSIGN_OR_RETURN(
        shard.commits, ShardCommits::Make(options, HostOf(s), shard.table, std::move(records)));
    return absl::OkStatus();
  }
  static absl::Status MakeDirectory(Shard& shard) {
    Inode directory;
    directory.mode = S_IFDIR | 0755;
    directory.links = 2;
    directory.entries = kEntries;
    ABACUS_ASSIGN_OR_RETURN(const Node made, shard.table->Make(kOther, directory, ""));
    shard.directory = made.id;
    return absl::OkStatus();
  }
  static absl::Status MakeRecords(Shard& shard) {
    Inode nothing;
    nothing.mode = ShardRecords::kMode;
    nothing.links = 1;
    ABACUS_ASSIGN_OR_RETURN(const Node made, shard.table->Make(kOther, nothing, ""));
    shard.records = made.id;
    return shard.store->FlushAll();
  }
  ShardCommits::Host HostOf(uint32_t s) {
    Shard& shard = shards_[s];
    ShardCommits::Host host;
    host.peers = std::make_shared<Peers>(*this, s);
    host.serves = [this, s] {
      return IsUp(s) && shards_[s].serves ? absl::OkStatus() : NoClient(0);
    };
    host.begin_alter = [callbacks = shard.callbacks](std::vector<ObjectId> ids, uint16_t writer) {
      return callbacks->BeginAlter(std::move(ids), writer);
    };
    shard.altering_again.clear();
    host.go_on_altering = [&shard](std::vector<ObjectId> ids) {
      shard.altering_again.insert(shard.altering_again.end(), ids.begin(), ids.end());
      return shard.callbacks->GoOnAltering(std::move(ids));
    };
    host.released = [&shard](const std::vector<ObjectId>& ids) { shard.released += ids.size(); };
    host.steady_ns = [this] { return Now(); };
    host.rest = [this](absl::Duration time) {
      Pass(time);
      if (at_rest) at_rest();
      return true;
    };
    return host;
  }
  int64_t Now() const { return now_ns_; }

  std::atomic<int64_t> now_ns_{int64_t{1'000'000'000}};
  std::atomic<uint64_t> messages_{0};
  bool is_damaged_ = false;
  std::array<Shard, kWorldShards> shards_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_VOLUME_TESTING_SHARD_COMMITS_WORLD_H_
