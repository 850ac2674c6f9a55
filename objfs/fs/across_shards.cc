// FileSystem: what concerns several shards of a volume.

#include <algorithm>
#include <chrono>
#include <list>
#include <utility>

#include "absl/random/random.h"
#include "objfs/fs/file_system_impl.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/shard_commits.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Ref;

namespace {

// Between two tries of a group that something is in the way of. Nobody tells when it is out of the
// way: it may be at any of the shards.
constexpr std::chrono::nanoseconds kGroupRestMin = std::chrono::milliseconds(1);
constexpr std::chrono::nanoseconds kGroupRestMax = std::chrono::milliseconds(64);
// How long a group is tried of which one shard is away to the others and not to this client: they
// look for the server that answers for it now, each by itself.
constexpr std::chrono::seconds kGroupPatience{10};

// Of a question that changes nothing: what came of it is not what came of the transaction, of which
// nothing was done.
absl::Status AsNotDone(const absl::Status& asked) {
  if (!runtime::IsOutcomeUnknown(asked)) return asked;
  return runtime::MakeError(runtime::ErrorKind::kNodeUnreachable, runtime::ToStd(asked.message()));
}

}  // namespace

// -- joinings -------------------------------------------------------------------------------------

absl::Status FileSystemImpl::Holding(const std::vector<uint32_t>& shards,
                                     const std::function<void(const Joinings& joinings)>& call) {
  Joinings held;
  return HoldingMore(shards, &held, call);
}

absl::Status FileSystemImpl::HoldingMore(
    const std::vector<uint32_t>& shards, Joinings* held,
    const std::function<void(const Joinings& joinings)>& call) {
  if (held->size() == shards.size()) {
    call(*held);
    return absl::OkStatus();
  }
  const uint32_t shard = shards[held->size()];
  absl::Status met;  // at those after it, which is no trouble of this one
  const absl::Status entered = InShard(shard, [&](FileSystemImpl& there) {
    held->emplace(shard, &there);
    met = HoldingMore(shards, held, call);
    return absl::OkStatus();
  });
  return entered.ok() ? met : entered;
}

// -- looking --------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Node>> FileSystemImpl::NodesOfAll(const std::vector<ObjectId>& ids,
                                                             bool needs_all) {
  std::vector<Node> nodes(ids.size());
  std::map<uint32_t, std::vector<size_t>> places;  // by shard
  for (size_t i = 0; i < ids.size(); ++i) {
    // What is of no shard is not there.
    if (ShardOf(ids[i]) < siblings_->count()) places[ShardOf(ids[i])].push_back(i);
  }
  for (const auto& [shard, of_shard] : places) {
    std::vector<ObjectId> asked;
    asked.reserve(of_shard.size());
    for (const size_t place : of_shard) asked.push_back(ids[place]);
    absl::StatusOr<std::vector<Node>> told =
        InShard(shard, [&asked](FileSystemImpl& there) { return there.NodesOf(asked); });
    if (!needs_all && SiblingTroubleOf(told.status()).has_value()) continue;
    if (!told.ok()) return told.status();
    for (size_t i = 0; i < of_shard.size(); ++i) nodes[of_shard[i]] = std::move((*told)[i]);
  }
  return nodes;
}

// -- changing -------------------------------------------------------------------------------------

// The root directory is this shard's own where this is shard 0.
uint32_t FileSystemImpl::ShardForDirectory(const Node& parent, const std::string& name) const {
  if (siblings_ == nullptr) return ShardOf(parent.id);
  const auto said = parent.inode.xattrs.find(kSpreadXattr);
  const bool is_root = siblings_->own() == 0 && parent.id == info_.root;
  const bool spreads = said == parent.inode.xattrs.end() ? is_root : said->second == "yes";
  return spreads ? ShardForName(parent.id, name, siblings_->count()) : siblings_->own();
}

class FileSystemImpl::ShardChange {
 public:
  // REQUIRES: both outlive it.
  ShardChange(FileSystemImpl& there, const ShardWork& work)
      : there_(there), work_(work), lasting_(there.known_, IdsOf(work.transaction)) {}

  // What the outcome does not tell of is asked for when it is looked at.
  void Became(const Outcome& outcome) {
    for (const Part& part : work_.transaction.parts) {
      if (part.creation.has_value()) continue;  // KnowMade() tells
      const auto node = std::find_if(outcome.nodes.begin(), outcome.nodes.end(),
                                     [&part](const Node& one) { return one.id == part.id; });
      if (node == outcome.nodes.end()) continue;
      if (node->inode.links == 0) LostItsName(part.id);
      const auto entries = work_.entries.find(part.id);
      if (entries != work_.entries.end()) {
        lasting_.Became(*node, entries->second);
      } else if (part.writes.empty()) {
        lasting_.Became(*node, {});
      }
    }
  }

 private:
  static std::vector<ObjectId> IdsOf(const Transaction& transaction) {
    std::vector<ObjectId> ids;
    for (const Part& part : transaction.parts) {
      if (!part.creation.has_value()) ids.push_back(part.id);
    }
    return ids;
  }
  // Its space is to be free when it is closed; where it was closed here, that is now.
  void LostItsName(ObjectId id) {
    if (const FilePtr open = there_.UsedNow(id)) open->nameless = true;
    if (const Ref<Layer> closed = there_.TakeClosing(id)) {
      there_.volume_->Close(there_.info_.writer, id).IgnoreError();
    }
  }

  FileSystemImpl& there_;
  const ShardWork& work_;
  Knowledge::Change lasting_;
};

absl::StatusOr<Outcome> FileSystemImpl::CommitAcross(const OpenDirectory& directory,
                                                     const std::vector<EntryChange>& changes,
                                                     const InodeChange& own,
                                                     const std::vector<Part>& others,
                                                     const Trees& trees, uint32_t coordinator) {
  SharedWork work{.shards = {}, .coordinator = coordinator};
  for (const Part& part : others) {
    work.shards[ShardOf(part.id)].transaction.parts.push_back(part);
  }
  for (const auto& [shard, tree] : trees) work.shards[shard].transaction.tree = tree;
  ShardWork& here = work.shards[siblings_->own()];
  here.entries[directory.id] = changes;
  here.transaction.parts.emplace_back();
  absl::StatusOr<Outcome> outcome;
  for (int calls = 1; calls <= kTriesMax; ++calls) {
    const FrontEndWork front(calls > 1 ? directory.front_end : nullptr);
    const auto begun = std::chrono::steady_clock::now();
    ABACUS_ASSIGN_OR_RETURN(here.transaction.parts.back(), directory.object->Plan(changes));
    here.transaction.parts.back().change = own;
    outcome = CommitTogether(work);
    const bool again =
        outcome.ok() && outcome->state == CommitState::kStale && outcome->id == directory.id;
    if (!again) break;
    const auto call = std::chrono::steady_clock::now() - begun;
    if (calls < kTriesMax && !board_->Rest(PartOf(call))) {
      return absl::CancelledError("the file system is being ended");
    }
  }
  return outcome;
}

absl::StatusOr<Outcome> FileSystemImpl::CommitTogether(const SharedWork& work) {
  std::vector<uint32_t> shards;
  for (const auto& [shard, does] : work.shards) shards.push_back(shard);
  absl::StatusOr<Outcome> outcome;
  ABACUS_RETURN_IF_ERROR(
      Holding(shards, [&](const Joinings& joinings) { outcome = CommitHolding(work, joinings); }));
  return outcome;
}

absl::StatusOr<Outcome> FileSystemImpl::CommitHolding(const SharedWork& work,
                                                      const Joinings& joinings) {
  std::list<ShardChange> lasting;
  std::vector<ShardTransaction> others;
  for (const auto& [shard, joining] : joinings) {
    const ShardWork& does = work.shards.at(shard);
    lasting.emplace_back(*joining, does);
    if (shard == work.coordinator) continue;
    others.push_back({.shard = shard,
                      .writer = joining->info_.writer,
                      .transaction = does.transaction,
                      .life = joining->info_.life});
  }
  absl::StatusOr<Outcome> outcome = AskForGroup(work, others, joinings);
  if (!outcome.ok() || outcome->state != CommitState::kCommitted) return outcome;
  for (ShardChange& change : lasting) change.Became(*outcome);
  return outcome;
}

absl::StatusOr<Outcome> FileSystemImpl::AskForGroup(const SharedWork& work,
                                                    const std::vector<ShardTransaction>& others,
                                                    const Joinings& joinings) {
  const Transaction& own = work.shards.at(work.coordinator).transaction;
  const int64_t begun_ns = host_.steady_ns();
  std::optional<std::chrono::steady_clock::time_point> until;
  for (auto rest = kGroupRestMin;; rest = std::min(2 * rest, kGroupRestMax)) {
    absl::StatusOr<Outcome> outcome;
    ABACUS_RETURN_IF_ERROR(InShard(work.coordinator, [&](FileSystemImpl& there) -> absl::Status {
      outcome = there.volume_->CommitTogether(there.info_.writer, own, others);
      // These say nothing of the coordinator.
      const bool is_of_all =
          IsWouldBlock(outcome.status()) || ShardThatIsAway(outcome.status()).has_value();
      return is_of_all ? absl::OkStatus() : outcome.status();
    }));
    if (outcome.ok()) return outcome;
    if (const std::optional<uint32_t> away = ShardThatIsAway(outcome.status())) {
      ABACUS_RETURN_IF_ERROR(
          InShard(*away, [](FileSystemImpl& there) { return AsNotDone(there.RenewLease()); }));
      const auto now = std::chrono::steady_clock::now();
      if (!until.has_value()) until = now + kGroupPatience;
      if (now >= *until) return outcome;
    } else {
      ABACUS_RETURN_IF_ERROR(MayWaitSince(begun_ns));
    }
    ABACUS_RETURN_IF_ERROR(RestAmong(joinings, rest / 2 + PartOf(rest / 2)));
  }
}

// Other clients have forgotten by then what they know, or their leases are over. What a shard has
// prepared is held until the one that decides it is back, which may be never; all threads of a
// mount would come to wait for that.
absl::Status FileSystemImpl::MayWaitSince(int64_t begun_ns) const {
  const bool may_wait = siblings_ == nullptr || host_.steady_ns() - begun_ns < 2 * info_.lease_ns;
  if (may_wait) return absl::OkStatus();
  return absl::UnavailableError(
      "a transaction over several shards holds it, and the shard that knows its end does not "
      "answer: try later");
}

absl::Status FileSystemImpl::RestAmong(const Joinings& joinings, std::chrono::nanoseconds time) {
  if (!board_->AwaitFor(time)) return absl::CancelledError("the file system is being ended");
  for (const auto& [shard, joining] : joinings) {
    // It waits for this call before it is made anew.
    const bool goes_on = joining == this || joining->board_->Rest(std::chrono::nanoseconds(0));
    if (!goes_on) return OfSibling(shard, absl::OkStatus());
  }
  return absl::OkStatus();
}

std::chrono::nanoseconds FileSystemImpl::PartOf(std::chrono::nanoseconds time) {
  thread_local absl::BitGen random;
  return std::chrono::nanoseconds(absl::Uniform<int64_t>(random, 0, time.count() + 1));
}

}  // namespace abacus::objfs
