// Volume: that it may be a shard of several (shard.h).

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "objfs/raid/alarm.h"
#include "objfs/raid/timed_call.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/volume.h"
#include "runtime/base/status.h"
#include "runtime/object/timed_branch.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

// How often it is looked whether what is under way can go on, or is over; and whether there is any.
constexpr std::chrono::milliseconds kResolveEvery{500}, kLookForWork{1000};
// With so many records the look comes at once: there are kSlots of them.
constexpr size_t kRecordsWaitingMax = ShardRecords::kSlots / 4;
// How long another shard's server is waited for, which may live and answer nothing: where its disk
// has to sync something, and where it has not.
constexpr absl::Duration kSyncedAnswerMax = absl::Seconds(15), kAnswerMax = absl::Seconds(3);

class PeersByName final : public ShardPeers {
 public:
  using FindShard = std::function<absl::StatusOr<Ref<Volume>>(uint32_t shard)>;

  // `volume`: whose shards they are. `ends`: nobody is to be waited for any more.
  PeersByName(uint64_t volume, FindShard find, std::function<bool()> ends)
      : volume_(volume), find_(std::move(find)), ends_(std::move(ends)) {}

  absl::StatusOr<Outcome> Prepare(uint32_t shard, const ShardPrepare& prepare) override {
    return Ask<&Volume::PrepareShard>(shard, kSyncedAnswerMax, volume_, prepare);
  }
  absl::StatusOr<Outcome> Decide(uint32_t shard, ShardGroup group, bool commits) override {
    return Ask<&Volume::DecideShard>(shard, kAnswerMax, volume_, group, commits);
  }
  absl::StatusOr<ShardDecision> DecisionOf(uint32_t shard, ShardGroup group) override {
    return Ask<&Volume::DecisionOfShards>(shard, kAnswerMax, volume_, group);
  }
  absl::Status Settle(uint32_t shard, const std::vector<ShardGroup>& groups) override {
    return Ask<&Volume::SettleShards>(shard, kSyncedAnswerMax, volume_, groups);
  }

 private:
  // What is given up may be done there yet, and none of it does harm: who prepares late is told to
  // abort, or asks and hears that; what was decided is decided, and is done once.
  template <auto kMethod, typename... Args>
  typename runtime::TimedBranch<kMethod>::Result Ask(uint32_t shard, absl::Duration answer_max,
                                                     const Args&... args) {
    if (ends_()) {
      return runtime::MakeError(runtime::ErrorKind::kNodeUnreachable,
                                "the volume is being closed here");
    }
    ABACUS_ASSIGN_OR_RETURN(const Ref<Volume> volume, Find(shard));
    auto answer = CallWithin<kMethod>(alarm_, answer_max, volume.base(), args...);
    if (answer.has_value()) return *std::move(answer);
    return runtime::MakeError(runtime::ErrorKind::kNodeUnreachable,
                              absl::StrCat("shard ", shard, " has not answered in time"));
  }

  // What is not found is as far away as what does not answer.
  absl::StatusOr<Ref<Volume>> Find(uint32_t shard) const {
    if (find_ == nullptr) {
      return runtime::MakeError(runtime::ErrorKind::kNodeUnreachable,
                                "this server knows no way to other shards of its volumes");
    }
    absl::StatusOr<Ref<Volume>> volume = find_(shard);
    if (volume.ok()) return volume;
    return runtime::MakeError(runtime::ErrorKind::kNodeUnreachable,
                              runtime::ToStd(volume.status().message()));
  }

  const uint64_t volume_;
  const FindShard find_;
  const std::function<bool()> ends_;
  Alarm alarm_;
};

// REQUIRES: it has no records.
absl::Status MakeSlotsReady(ObjectTable& table, ObjectId records) {
  const std::string empty(ShardRecords::kReadyBytes, '\0');
  ObjectUpdate update{.id = records, .writes = {}, .blob = std::nullopt};
  for (uint64_t slot = 0; slot < ShardRecords::kSlots; ++slot) {
    update.writes.push_back({slot * ShardRecords::kSlotBytes, empty});
  }
  return table.Put(update);
}

}  // namespace

// -- beginning ------------------------------------------------------------------------------------

absl::Status Volume::BeginShards() {
  ABACUS_ASSIGN_OR_RETURN(const Node root, table_->Stat(root_));
  const auto found = root.inode.xattrs.find(kShardsXattr);
  if (found == root.inode.xattrs.end()) return absl::OkStatus();
  const absl::StatusOr<ShardState> state = ShardState::Parse(found->second);
  ShardCommits::Options options;
  options.shard = PlaceOfShard(options_.name).shard;
  const bool is_another = ShardOf(root_) != options.shard;  // by its name, of the same volume
  if (!state.ok() || options.shard >= state->count || is_another) {
    return absl::DataLossError(absl::StrCat(
        "the root of volume '", options_.name, "' says '", found->second,
        "' of the volume's shards, which is not true of this one. Nothing was changed: move it ",
        "back to the name that it was made with, or let a server with a copy of it take over"));
  }
  volume_number_ = state->volume;
  ABACUS_ASSIGN_OR_RETURN(std::unique_ptr<ShardRecords> records,
                          ShardRecords::Open(table_->shared_store(), state->records));
  ABACUS_ASSIGN_OR_RETURN(shard_commits_,
                          ShardCommits::Make(options, ShardsHost(), table_, std::move(records)));
  records_ = state->records;
  shards_ = state->count;  // from here on others see them
  resolver_ = std::thread([this] { ResolveShards(); });
  return absl::OkStatus();
}

ShardCommits::Host Volume::ShardsHost() {
  ShardCommits::Host host;
  host.peers = std::make_shared<PeersByName>(volume_number_, host_.find_shard, [this] {
    MutexLock lock(mutex_);
    return stopping_;
  });
  host.serves = [this] { return Serves(0); };
  host.begin_alter = [this](std::vector<ObjectId> ids, uint16_t writer) {
    return callbacks_->BeginAlter(std::move(ids), writer);
  };
  host.go_on_altering = [this](std::vector<ObjectId> ids) {
    return callbacks_->GoOnAltering(std::move(ids));
  };
  host.released = [this](const std::vector<ObjectId>& ids) {
    // Who waits to change several objects waits for whichever is named.
    callbacks_->WakeAll(ids.empty() ? root_ : ids.front(), table_->TakeRefused(ids));
  };
  host.steady_ns = [this] { return callbacks_->Now(); };
  host.rest = [this](absl::Duration time) { return RestBetweenTries(time); };
  return host;
}

absl::Status Volume::BecomeShard(uint32_t shards, uint64_t volume) {
  ABACUS_RETURN_IF_ERROR(Serves(0));
  const uint32_t own = PlaceOfShard(options_.name).shard;
  if (shards < 2 || shards > kShardsMax || own >= shards) {
    return absl::InvalidArgumentError(absl::StrCat("volume '", options_.name, "' is shard ", own,
                                                   ", and cannot be one of ", shards, ": 2 to ",
                                                   kShardsMax, " can be"));
  }
  if (volume == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("volume '", options_.name,
                     "' cannot be a shard of volume 0: draw a number, one for all shards"));
  }
  const Turns::Turn turn(openings_, root_);
  if (shards_ == shards && volume_number_ == volume) return absl::OkStatus();
  if (shards_ != 1) {
    return absl::FailedPreconditionError(absl::StrCat("volume '", options_.name, "' is one of the ",
                                                      shards_.load(), " shards of ", volume_number_,
                                                      ": that stays"));
  }
  {
    MutexLock lock(mutex_);
    if (!clients_.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "volume '", options_.name, "' has ", clients_.size(), " client(s), '",
          clients_.begin()->second, "' among them: it can be made a shard before it has any"));
    }
    becoming_ = true;
  }
  absl::Status became = SetShards(shards, volume);
  if (became.ok()) became = BeginShards();
  MutexLock lock(mutex_);
  becoming_ = false;
  return became;
}

absl::Status Volume::SetShards(uint32_t shards, uint64_t volume) {
  ABACUS_ASSIGN_OR_RETURN(const Node root, table_->Stat(root_));
  const auto found = root.inode.xattrs.find(kShardsXattr);
  if (found != root.inode.xattrs.end()) {  // it was set, and who asked was not told
    const absl::StatusOr<ShardState> state = ShardState::Parse(found->second);
    if (state.ok() && state->count == shards && state->volume == volume) {
      ABACUS_RETURN_IF_ERROR(MakeSlotsReady(*table_, state->records));
      return table_->Flush(root_);
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "volume '", options_.name, "' is a shard of others already: '", found->second, "'"));
  }
  ABACUS_ASSIGN_OR_RETURN(const ObjectId records, table_->Reserve());
  Transaction transaction;
  // A link that no name is: nobody takes it for an orphan.
  Part made{.id = records};
  made.creation.emplace();
  made.creation->inode.mode = ShardRecords::kMode;
  made.change.links = 1;
  Part own{.id = root_};
  const ShardState state{.count = shards, .records = records, .volume = volume};
  own.change.xattrs.push_back(
      {.name = kShardsXattr, .value = state.Format(), .rule = XattrRule::kMustBeNew});
  transaction.parts = {std::move(made), std::move(own)};
  const absl::StatusOr<Outcome> outcome = table_->Commit(0, transaction);
  if (!outcome.ok()) {
    table_->Discard(records).IgnoreError();  // it may not have come to that
    return outcome.status();
  }
  if (outcome->state != CommitState::kCommitted) {
    return absl::DataLossError(absl::StrCat("the root of volume '", options_.name, "' is gone"));
  }
  ABACUS_RETURN_IF_ERROR(MakeSlotsReady(*table_, records));
  ABACUS_RETURN_IF_ERROR(table_->Flush(root_));
  return Serves(0);
}

absl::StatusOr<ShardCommits*> Volume::Together() {
  if (shards_ > 1) return shard_commits_.get();
  return absl::FailedPreconditionError(
      absl::StrCat("volume '", options_.name, "' has one shard only"));
}

// A shard of another volume knows none of these groups, and to say so would be to abort them: it
// is as if it were not there.
absl::StatusOr<ShardCommits*> Volume::TogetherIn(uint64_t volume) {
  ABACUS_ASSIGN_OR_RETURN(ShardCommits* const together, Together());
  if (volume == volume_number_) return together;
  return runtime::MakeError(
      runtime::ErrorKind::kObjectNotFound,
      absl::StrCat("volume '", options_.name, "' here is a shard of another one of that name"));
}

// -- transactions ---------------------------------------------------------------------------------

absl::StatusOr<Outcome> Volume::CommitTogether(uint16_t writer, const Transaction& own,
                                               const std::vector<ShardTransaction>& others) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  ABACUS_ASSIGN_OR_RETURN(ShardCommits* const together, Together());
  ABACUS_RETURN_IF_ERROR(callbacks_->Check(writer));
  for (const Part& part : own.parts) {
    if (!part.creation.has_value() || !part.creation->opens) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("object ", part.id, " is made by a transaction over several shards, which ",
                     "opens nothing: open it afterwards"));
  }
  absl::StatusOr<Outcome> outcome = CommitBy(writer, own, [&](const Transaction& whole) {
    return together->Commit(writer, whole, others);
  });
  // To who calls it means that the server died: this one lives, and what the client has joined here
  // goes on.
  if (runtime::IsOutcomeUnknown(outcome.status())) {
    outcome = absl::UnknownError(outcome.status().message());
  }
  Count(outcome);
  HurryRemovals();
  if (together->records_used() >= kRecordsWaitingMax) {
    MutexLock lock(mutex_);
    resolves_now_ = true;
    changed_.SignalAll();
  }
  return outcome;
}

absl::StatusOr<Outcome> Volume::PrepareShard(uint64_t volume, const ShardPrepare& prepare) {
  ABACUS_RETURN_IF_ERROR(Serves(prepare.writer));
  ABACUS_ASSIGN_OR_RETURN(ShardCommits* const together, TogetherIn(volume));
  // It has not joined this volume since it was opened, and its number may be another one's.
  if (prepare.life != 0 && prepare.life != life_) return NoClient(prepare.writer);
  ABACUS_RETURN_IF_ERROR(CheckParts(prepare.transaction));
  return together->Prepare(prepare);
}

absl::StatusOr<Outcome> Volume::DecideShard(uint64_t volume, uint64_t group, bool commits) {
  ABACUS_ASSIGN_OR_RETURN(ShardCommits* const together, TogetherIn(volume));
  absl::StatusOr<Outcome> outcome = together->Decide(group, commits);
  HurryRemovals();
  return outcome;
}

absl::Status Volume::SettleShards(uint64_t volume, const std::vector<uint64_t>& groups) {
  ABACUS_ASSIGN_OR_RETURN(ShardCommits* const together, TogetherIn(volume));
  return together->Settle(groups);
}

absl::StatusOr<ShardDecision> Volume::DecisionOfShards(uint64_t volume, uint64_t group) {
  ABACUS_ASSIGN_OR_RETURN(ShardCommits* const together, TogetherIn(volume));
  return together->DecisionOf(group);
}

// -- the resolver ---------------------------------------------------------------------------------

bool Volume::IsInDoubt() {
  return shards_ > 1 && callbacks_->Now() < doubt_ends_ns_ &&
         shard_commits_->in_doubt_from_before() > 0;
}

bool Volume::RestBetweenTries(absl::Duration time) {
  const auto due = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  MutexLock lock(mutex_);
  while (!stopping_ && !retired_ && changed_.WaitUntil(mutex_, due)) {
  }
  return !stopping_ && !retired_;
}

void Volume::ResolveShards() {
  mutex_.Lock();
  while (!stopping_) {
    resolves_now_ = false;
    mutex_.Unlock();
    shard_commits_->Tick();
    const bool has_work = shard_commits_->records_used() > 0;
    const auto due = std::chrono::steady_clock::now() + (has_work ? kResolveEvery : kLookForWork);
    mutex_.Lock();
    while (!stopping_ && !resolves_now_ && changed_.WaitUntil(mutex_, due)) {
    }
  }
  mutex_.Unlock();
}

}  // namespace abacus::objfs
