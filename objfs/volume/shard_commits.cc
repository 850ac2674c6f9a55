#include "objfs/volume/shard_commits.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "objfs/layer/layer.h"
#include "objfs/store/object_id.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

// Between two tries to tell a shard what was decided.
constexpr absl::Duration kTellRestMin = absl::Milliseconds(5);
constexpr absl::Duration kTellRestMax = absl::Milliseconds(200);

constexpr char kShardText[] = "shard ", kIsAwayText[] = " of the volume does not answer now: ";

std::vector<ObjectId> ObjectsOf(const Transaction& transaction) {
  std::vector<ObjectId> ids;
  ids.reserve(transaction.parts.size());
  for (const Part& part : transaction.parts) ids.push_back(part.id);
  return ids;
}

bool IsCommitted(const absl::StatusOr<Outcome>& outcome) {
  return outcome.ok() && outcome->state == CommitState::kCommitted;
}

// Nothing came of it that the other shard could have refused.
bool DidNotComeThrough(const absl::Status& status) {
  return runtime::KindOf(status) != runtime::ErrorKind::kNone || IsNoClient(status);
}

// The same where nobody has to know why.
bool IsSilent(const absl::Status& status) {
  return DidNotComeThrough(status) || absl::IsUnavailable(status);
}

// That another shard's server is away, or does not know the client, is nothing that the client has
// to see to at this one.
absl::Status OfOtherShard(uint32_t shard, const absl::Status& status) {
  if (DidNotComeThrough(status)) return ShardIsAway(shard, status);
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(
      absl::StrCat("at shard ", shard, " of the volume: ", status.message()));
}

// Both rest on what that server alone knows, and not the one that comes after it.
absl::Status CheckOfOther(const Transaction& transaction) {
  const auto is_own = [](const Part& part) { return part.creation.has_value() || part.closes; };
  if (std::none_of(transaction.parts.begin(), transaction.parts.end(), is_own)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "the shard that coordinates a transaction makes an object, or closes one, and no other does");
}

absl::Status TooMany() {
  return WouldBlock("the shard has as many transactions with others under way as it can");
}

absl::Status ComeAgain(ShardGroup group) {
  return absl::UnavailableError(absl::StrCat("group ", group, " is being worked at: ask again"));
}

}  // namespace

absl::Status ShardIsAway(uint32_t shard, const absl::Status& why) {
  return absl::UnavailableError(
      absl::StrCat(kShardText, shard, kIsAwayText, why.message(), " (nothing was changed)"));
}

std::optional<uint32_t> ShardThatIsAway(const absl::Status& status) {
  if (!absl::IsUnavailable(status) || DidNotComeThrough(status)) return std::nullopt;
  absl::string_view text = status.message();
  if (!absl::ConsumePrefix(&text, kShardText)) return std::nullopt;
  const size_t end = text.find(kIsAwayText);
  uint32_t shard = 0;
  const bool is_one = end != absl::string_view::npos &&
                      absl::SimpleAtoi(text.substr(0, end), &shard) && shard < kShardsMax;
  return is_one ? std::optional<uint32_t>(shard) : std::nullopt;
}

absl::StatusOr<std::unique_ptr<ShardCommits>> ShardCommits::Make(
    Options options, Host host, std::shared_ptr<ObjectTable> table,
    std::unique_ptr<ShardRecords> records) {
  auto commits = std::unique_ptr<ShardCommits>(
      new ShardCommits(options, std::move(host), std::move(table), std::move(records)));
  ABACUS_RETURN_IF_ERROR(commits->TakeUp());
  return commits;
}

ShardCommits::ShardCommits(Options options, Host host, std::shared_ptr<ObjectTable> table,
                           std::unique_ptr<ShardRecords> records)
    : options_(options),
      host_(std::move(host)),
      table_(std::move(table)),
      records_(std::move(records)) {}

absl::Status ShardCommits::TakeUp() {
  const int64_t asked_at_once_ns = host_.steady_ns() - absl::ToInt64Nanoseconds(options_.ask_after);
  for (auto& [slot, record] : records_->TakeFound()) {
    if (record.kind == ShardRecord::Kind::kDecided) {
      MutexLock lock(mutex_);
      Decided& decided = decided_[record.group];
      decided.slot = slot;
      decided.untold = {record.shards.begin(), record.shards.end()};
      decided.shards = record.shards;
      // An opened store has nothing that is not on the disk, and no copy that could take over with
      // less (map/README.md).
      decided.durable = true;
      continue;
    }
    if (record.coordinator == options_.shard) {
      return absl::DataLossError(absl::StrCat(
          "a record of group ", record.group, " says that shard ", options_.shard,
          " is in doubt of what it decides itself: it is of another volume. abacus fsck tells ",
          "what is left"));
    }
    table_->HoldAgain(record.transaction, record.group);
    Callbacks::Alteration lasting = host_.go_on_altering(ObjectsOf(record.transaction));
    MutexLock lock(mutex_);
    Prepared& prepared = prepared_[record.group];
    prepared.prepare = {.group = record.group,
                        .coordinator = record.coordinator,
                        .writer = record.writer,
                        .transaction = std::move(record.transaction)};
    prepared.slot = slot;
    prepared.since_ns = asked_at_once_ns;
    prepared.from_before = true;
    prepared.alteration.emplace(std::move(lasting));
  }
  return absl::OkStatus();
}

bool ShardCommits::MadeRoom(const absl::Status& refused) {
  return absl::IsResourceExhausted(refused) && table_->waiting_removals() > 0 &&
         table_->FlushAndRemove().ok();
}

absl::StatusOr<ShardRecords::Slot> ShardCommits::TakeSlot(const ShardRecord& record,
                                                          ShardRecords::Change* change) {
  absl::StatusOr<ShardRecords::Slot> slot = records_->Take(record, change);
  const bool is_too_large = absl::IsResourceExhausted(slot.status()) &&
                            record.Encode().size() > ShardRecords::kRecordBytesMax;
  if (!absl::IsResourceExhausted(slot.status()) || is_too_large) return slot;
  return TooMany();
}

// -- as the coordinator ---------------------------------------------------------------------------

absl::StatusOr<ShardCommits::Others> ShardCommits::InOrder(
    const std::vector<ShardTransaction>& others) const {
  Others in_order;
  for (const ShardTransaction& other : others) {
    const bool is_new = in_order.emplace(other.shard, &other).second;
    if (other.shard >= kShardsMax || other.shard == options_.shard || !is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", other.shard, " is to take part in a transaction of shard ",
                       options_.shard, is_new ? ", and is none of the others" : ", twice"));
    }
    ABACUS_RETURN_IF_ERROR(CheckOfOther(other.transaction));
  }
  return in_order;
}

absl::StatusOr<Outcome> ShardCommits::Commit(uint16_t writer, const Transaction& own,
                                             const std::vector<ShardTransaction>& others) {
  ABACUS_RETURN_IF_ERROR(host_.serves());
  ABACUS_ASSIGN_OR_RETURN(const Others in_order, InOrder(others));
  ABACUS_ASSIGN_OR_RETURN(const ShardGroup group, table_->NewGroup());
  ABACUS_RETURN_IF_ERROR(BeginGroup(group));
  std::vector<uint32_t> asked;
  absl::StatusOr<Outcome> outcome = CommitHere(group, writer, own, in_order, &asked);
  if (!IsCommitted(outcome)) {
    Abort(group, asked);
    return outcome;
  }
  if (const absl::Status durable = MakeDecisionsDurable(); !durable.ok()) {
    EndTelling(group);  // Tick() does, once it is durable
    return runtime::MakeError(
        runtime::ErrorKind::kOutcomeUnknown,
        absl::StrCat("shard ", options_.shard, " has done its part, and cannot make it durable: ",
                     durable.message(), ". It will be done wholly, or not at all"));
  }
  Tell(group, options_.patience, &*outcome);
  return outcome;
}

absl::Status ShardCommits::BeginGroup(ShardGroup group) {
  MutexLock lock(mutex_);
  if (undecided_.size() + decided_.size() >= kCoordinatedMax) return TooMany();
  undecided_.insert(group);  // before anybody can ask
  return absl::OkStatus();
}

absl::StatusOr<Outcome> ShardCommits::CommitHere(ShardGroup group, uint16_t writer,
                                                 const Transaction& own, const Others& others,
                                                 std::vector<uint32_t>* asked) {
  const std::vector<ObjectId> ids = ObjectsOf(own);
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Alteration lasting, host_.begin_alter(ids, writer));
  absl::StatusOr<Outcome> outcome = table_->Hold(writer, own, group);
  if (!IsCommitted(outcome)) return outcome;
  outcome = AskOthers(group, others, asked);
  if (IsCommitted(outcome)) {
    // While it is certain: of what is committed after that nobody can tell the end here.
    if (absl::Status serves = host_.serves(); !serves.ok()) outcome = std::move(serves);
  }
  if (IsCommitted(outcome)) outcome = CommitOwn(group, writer, own, others);
  if (!IsCommitted(outcome)) table_->Release(own, group);
  host_.released(ids);
  return outcome;
}

absl::StatusOr<Outcome> ShardCommits::AskOthers(ShardGroup group, const Others& others,
                                                std::vector<uint32_t>* asked) {
  for (const auto& [shard, other] : others) {
    asked->push_back(shard);
    absl::StatusOr<Outcome> answer = host_.peers->Prepare(shard, {.group = group,
                                                                  .coordinator = options_.shard,
                                                                  .writer = other->writer,
                                                                  .transaction = other->transaction,
                                                                  .life = other->life});
    if (IsCommitted(answer)) continue;
    // Who has refused it keeps nothing of it.
    if (answer.ok() || IsWouldBlock(answer.status())) asked->pop_back();
    if (answer.ok()) return answer;
    return OfOtherShard(shard, answer.status());
  }
  return Outcome();
}

absl::StatusOr<Outcome> ShardCommits::CommitOwn(ShardGroup group, uint16_t writer,
                                                const Transaction& own, const Others& others) {
  ShardRecord record{.kind = ShardRecord::Kind::kDecided, .group = group};
  for (const auto& [shard, other] : others) record.shards.push_back(shard);
  ShardRecords::Change change;
  ABACUS_ASSIGN_OR_RETURN(const ShardRecords::Slot slot, TakeSlot(record, &change));
  absl::StatusOr<Outcome> outcome = table_->CommitHeld(writer, own, group, change.update());
  if (MadeRoom(outcome.status())) {
    outcome = table_->CommitHeld(writer, own, group, change.update());
  }
  if (!IsCommitted(outcome)) {
    records_->GiveBack(slot);  // nothing was put into it
    return outcome;
  }
  // In one step for whoever asks: it is not known, and aborted, at no moment.
  MutexLock lock(mutex_);
  Decided& decided = decided_[group];
  decided.slot = slot;
  decided.untold = {record.shards.begin(), record.shards.end()};
  decided.shards = record.shards;
  decided.telling = true;
  undecided_.erase(group);
  return outcome;
}

void ShardCommits::Abort(ShardGroup group, const std::vector<uint32_t>& asked) {
  {
    // From here on it is aborted, whoever asks.
    MutexLock lock(mutex_);
    undecided_.erase(group);
  }
  for (const uint32_t shard : asked) {
    host_.peers->Decide(shard, group, /*commits=*/false).status().IgnoreError();
  }
}

absl::Status ShardCommits::MakeDecisionsDurable() {
  std::vector<ShardGroup> groups;
  {
    MutexLock lock(mutex_);
    for (const auto& [group, decided] : decided_) {
      if (!decided.durable) groups.push_back(group);
    }
  }
  if (groups.empty()) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(table_->Flush(std::span<const ObjectId>()));
  // After it: what was durable only once another server answered is not decided.
  ABACUS_RETURN_IF_ERROR(host_.serves());
  MutexLock lock(mutex_);
  for (const ShardGroup group : groups) {
    const auto decided = decided_.find(group);
    if (decided != decided_.end()) decided->second.durable = true;
  }
  return absl::OkStatus();
}

std::set<uint32_t> ShardCommits::Untold(ShardGroup group) {
  MutexLock lock(mutex_);
  const auto decided = decided_.find(group);
  return decided == decided_.end() ? std::set<uint32_t>() : decided->second.untold;
}

void ShardCommits::EndTelling(ShardGroup group) {
  MutexLock lock(mutex_);
  const auto decided = decided_.find(group);
  if (decided != decided_.end()) decided->second.telling = false;
}

absl::Status ShardCommits::TellOne(ShardGroup group, uint32_t shard, Outcome* outcome) {
  ABACUS_ASSIGN_OR_RETURN(Outcome told, host_.peers->Decide(shard, group, /*commits=*/true));
  if (told.state != CommitState::kCommitted) {
    return absl::UnavailableError(absl::StrCat("shard ", shard, " has not done its part"));
  }
  if (outcome != nullptr) {
    std::move(told.nodes.begin(), told.nodes.end(), std::back_inserter(outcome->nodes));
  }
  MutexLock lock(mutex_);
  const auto decided = decided_.find(group);
  if (decided != decided_.end()) decided->second.untold.erase(shard);
  return absl::OkStatus();
}

void ShardCommits::Tell(ShardGroup group, absl::Duration patience, Outcome* outcome) {
  const int64_t until_ns = host_.steady_ns() + absl::ToInt64Nanoseconds(patience);
  for (absl::Duration rest = kTellRestMin;; rest = std::min(2 * rest, kTellRestMax)) {
    bool is_silent = false;  // one of them
    for (const uint32_t shard : Untold(group)) {
      if (IsSilent(TellOne(group, shard, outcome))) is_silent = true;
    }
    // What refuses it, as a disk that is full, does so for longer: Tick() tells it. Where another
    // server answers for this shard, that one tells the rest.
    const bool goes_on = is_silent && host_.steady_ns() < until_ns && host_.serves().ok();
    if (!goes_on || !host_.rest(rest)) break;
  }
  EndTelling(group);
}

absl::StatusOr<ShardDecision> ShardCommits::DecisionOf(ShardGroup group) {
  if (ShardOf(group) != options_.shard) {
    return absl::InvalidArgumentError(absl::StrCat("group ", group, " is coordinated by shard ",
                                                   ShardOf(group), ", and this is shard ",
                                                   options_.shard));
  }
  ShardDecision decision = ShardDecision::kAborted;
  {
    MutexLock lock(mutex_);
    const auto decided = decided_.find(group);
    if (decided != decided_.end()) {
      decision = decided->second.durable ? ShardDecision::kCommitted : ShardDecision::kUndecided;
    } else if (undecided_.contains(group)) {
      decision = ShardDecision::kUndecided;
    }
  }
  // After looking: what another server has decided since is not known here.
  ABACUS_RETURN_IF_ERROR(host_.serves());
  return decision;
}

// -- as one of the others -------------------------------------------------------------------------

absl::StatusOr<bool> ShardCommits::BeginPrepare(const ShardPrepare& prepare) {
  if (prepare.group == 0 || prepare.coordinator >= kShardsMax ||
      prepare.coordinator == options_.shard || ShardOf(prepare.group) != prepare.coordinator) {
    return absl::InvalidArgumentError(absl::StrCat("group ", prepare.group, " of shard ",
                                                   prepare.coordinator, " is none of shard ",
                                                   options_.shard));
  }
  ABACUS_RETURN_IF_ERROR(CheckOfOther(prepare.transaction));
  MutexLock lock(mutex_);
  if (const auto found = prepared_.find(prepare.group); found != prepared_.end()) {
    if (found->second.preparing || found->second.called_off) return ComeAgain(prepare.group);
    return false;
  }
  const auto of_it = std::count_if(prepared_.begin(), prepared_.end(), [&](const auto& one) {
    return ShardOf(one.first) == prepare.coordinator;
  });
  const bool is_too_much_of_it = static_cast<size_t>(of_it) >= kPreparedOfOneMax;
  if (prepared_.size() >= kPreparedMax || is_too_much_of_it) return TooMany();
  Prepared& prepared = prepared_[prepare.group];
  prepared.prepare = prepare;
  prepared.preparing = true;
  return true;
}

absl::StatusOr<Outcome> ShardCommits::Prepare(const ShardPrepare& prepare) {
  ABACUS_RETURN_IF_ERROR(host_.serves());
  ABACUS_ASSIGN_OR_RETURN(const bool is_new, BeginPrepare(prepare));
  if (!is_new) return Outcome();
  absl::StatusOr<Outcome> held = HoldFor(prepare);
  if (!IsCommitted(held)) {
    MutexLock lock(mutex_);
    prepared_.erase(prepare.group);
    return held;
  }
  absl::Status durable = table_->Flush(std::span<const ObjectId>());
  // Before what the flush says: who is deposed is looked for elsewhere, whatever its disk or its
  // copies do then.
  if (absl::Status serves = host_.serves(); !serves.ok()) durable = std::move(serves);
  ABACUS_RETURN_IF_ERROR(EndPrepare(prepare.group, std::move(durable)));
  return held;
}

absl::StatusOr<Outcome> ShardCommits::HoldFor(const ShardPrepare& prepare) {
  const std::vector<ObjectId> ids = ObjectsOf(prepare.transaction);
  ABACUS_ASSIGN_OR_RETURN(Callbacks::Alteration lasting, host_.begin_alter(ids, prepare.writer));
  ABACUS_ASSIGN_OR_RETURN(Outcome held,
                          table_->Hold(prepare.writer, prepare.transaction, prepare.group));
  if (held.state != CommitState::kCommitted) return held;
  ShardRecord record{.kind = ShardRecord::Kind::kPrepared, .group = prepare.group};
  record.coordinator = prepare.coordinator;
  record.writer = prepare.writer;
  record.transaction = prepare.transaction;
  ShardRecords::Change change;
  const absl::StatusOr<ShardRecords::Slot> slot = TakeSlot(record, &change);
  absl::Status put = slot.status();
  if (put.ok()) put = table_->Put(change.update());
  if (slot.ok() && MadeRoom(put)) put = table_->Put(change.update());
  if (!put.ok()) {
    if (slot.ok()) records_->GiveBack(*slot);
    table_->Release(prepare.transaction, prepare.group);
    host_.released(ids);
    return put;
  }
  MutexLock lock(mutex_);
  const auto prepared = prepared_.find(prepare.group);  // nobody else removes it meanwhile
  prepared->second.slot = *slot;
  prepared->second.alteration.emplace(std::move(lasting));
  return held;
}

absl::Status ShardCommits::EndPrepare(ShardGroup group, absl::Status durable) {
  const int64_t now_ns = host_.steady_ns();
  {
    MutexLock lock(mutex_);
    Prepared& prepared = prepared_.find(group)->second;
    if (durable.ok() && prepared.called_off) {
      durable = absl::UnavailableError("it was called off while it was being prepared");
    }
    prepared.since_ns = now_ns;
    prepared.preparing = false;
    prepared.called_off = !durable.ok();
  }
  // What cannot be done now Tick() does: who coordinates it is not told that it is prepared.
  if (!durable.ok()) CarryOut(group, /*commits=*/false).status().IgnoreError();
  return durable;
}

absl::StatusOr<Outcome> ShardCommits::Decide(ShardGroup group, bool commits) {
  ABACUS_RETURN_IF_ERROR(host_.serves());
  absl::StatusOr<Outcome> outcome = CarryOut(group, commits);
  // Another server may have it prepared yet.
  ABACUS_RETURN_IF_ERROR(host_.serves());
  return outcome;
}

absl::StatusOr<Outcome> ShardCommits::DoPart(const Prepared& prepared, bool commits) {
  const ShardGroup group = prepared.prepare.group;
  const Transaction& transaction = prepared.prepare.transaction;
  const ShardRecords::Change emptied = records_->Emptied(prepared.slot);
  if (!commits) {
    absl::Status put = table_->Put(emptied.update());
    if (MadeRoom(put)) put = table_->Put(emptied.update());
    ABACUS_RETURN_IF_ERROR(put);
    table_->Release(transaction, group);
    return Outcome();
  }
  absl::StatusOr<Outcome> outcome =
      table_->CommitHeld(prepared.prepare.writer, transaction, group, emptied.update());
  if (MadeRoom(outcome.status())) {
    outcome = table_->CommitHeld(prepared.prepare.writer, transaction, group, emptied.update());
  }
  if (!outcome.ok() || IsCommitted(outcome)) return outcome;
  return absl::DataLossError(absl::StrCat("object ", outcome->id, ", which is held for group ",
                                          group, ", is not as it was: abacus fsck tells more"));
}

absl::StatusOr<Outcome> ShardCommits::CarryOut(ShardGroup group, bool commits) {
  const Prepared* part = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = prepared_.find(group);
    if (found == prepared_.end()) return Outcome();  // it was done before, or never came to that
    Prepared& prepared = found->second;
    if (prepared.preparing && !commits) {
      prepared.called_off = true;  // Prepare() sees to it
      return Outcome();
    }
    if (prepared.preparing || prepared.deciding) return ComeAgain(group);
    if (prepared.called_off && commits) {
      return absl::FailedPreconditionError(absl::StrCat(
          "group ", group, " is to be committed, and shard ", options_.shard, " has not agreed"));
    }
    prepared.deciding = true;
    part = &prepared;  // nobody else touches it until that is over
  }
  absl::StatusOr<Outcome> outcome = DoPart(*part, commits);
  if (!outcome.ok()) {
    MutexLock lock(mutex_);
    prepared_.find(group)->second.deciding = false;
    return outcome;
  }
  records_->GiveBack(part->slot);
  const std::vector<ObjectId> ids = ObjectsOf(part->prepare.transaction);
  {
    // It ends, and its alteration, without the lock.
    std::map<ShardGroup, Prepared>::node_type over;
    MutexLock lock(mutex_);
    over = prepared_.extract(group);
  }
  host_.released(ids);
  return outcome;
}

absl::Status ShardCommits::Settle(const std::vector<ShardGroup>& groups) {
  {
    MutexLock lock(mutex_);
    for (const ShardGroup group : groups) {
      if (!prepared_.contains(group)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("group ", group, " is prepared yet at shard ", options_.shard));
    }
  }
  ABACUS_RETURN_IF_ERROR(table_->Flush(std::span<const ObjectId>()));
  return host_.serves();
}

// -- now and then ---------------------------------------------------------------------------------

size_t ShardCommits::in_doubt() {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [group, prepared] : prepared_) count += prepared.preparing ? 0 : 1;
  return count;
}

size_t ShardCommits::in_doubt_from_before() {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [group, prepared] : prepared_) count += prepared.from_before ? 1 : 0;
  return count;
}

void ShardCommits::Tick() {
  if (!host_.serves().ok()) return;  // another server does all this
  std::set<uint32_t> silent;
  AskForWhatIsInDoubt(&silent);
  MakeDecisionsDurable().IgnoreError();  // it is tried again
  TellWhatIsUntold(&silent);
  ForgetWhatIsSettled(silent);
}

void ShardCommits::AskForWhatIsInDoubt(std::set<uint32_t>* silent) {
  const int64_t before_ns = host_.steady_ns() - absl::ToInt64Nanoseconds(options_.ask_after);
  struct Doubt {
    ShardGroup group = 0;
    uint32_t coordinator = 0;
    bool called_off = false;
  };
  std::vector<Doubt> doubts;
  {
    MutexLock lock(mutex_);
    for (const auto& [group, prepared] : prepared_) {
      if (prepared.preparing || prepared.deciding) continue;
      if (!prepared.called_off && prepared.since_ns > before_ns) continue;
      doubts.push_back({group, prepared.prepare.coordinator, prepared.called_off});
    }
  }
  for (const Doubt& doubt : doubts) {
    auto decision = absl::StatusOr<ShardDecision>(ShardDecision::kAborted);
    if (!doubt.called_off) {
      if (silent->contains(doubt.coordinator)) continue;
      decision = host_.peers->DecisionOf(doubt.coordinator, doubt.group);
      if (IsSilent(decision.status())) silent->insert(doubt.coordinator);
    }
    const bool commits = decision.ok() && *decision == ShardDecision::kCommitted;
    const bool aborts = decision.ok() && *decision == ShardDecision::kAborted;
    if (!commits && !aborts) continue;
    CarryOut(doubt.group, commits).status().IgnoreError();  // it is asked for again
  }
}

void ShardCommits::TellWhatIsUntold(std::set<uint32_t>* silent) {
  std::map<uint32_t, std::vector<ShardGroup>> untold;  // by shard
  {
    MutexLock lock(mutex_);
    for (const auto& [group, decided] : decided_) {
      if (!decided.durable || decided.telling) continue;
      for (const uint32_t shard : decided.untold) untold[shard].push_back(group);
    }
  }
  for (const auto& [shard, groups] : untold) {
    for (const ShardGroup group : groups) {
      if (silent->contains(shard)) break;
      // One that has no room for this group may have some for the next.
      if (IsSilent(TellOne(group, shard, nullptr))) silent->insert(shard);
    }
  }
}

void ShardCommits::ForgetWhatIsSettled(const std::set<uint32_t>& silent) {
  std::map<ShardGroup, size_t> to_settle;             // at so many shards
  std::map<uint32_t, std::vector<ShardGroup>> there;  // by shard
  {
    MutexLock lock(mutex_);
    for (const auto& [group, decided] : decided_) {
      if (!decided.durable || decided.telling || !decided.untold.empty()) continue;
      to_settle[group] = decided.shards.size();
      for (const uint32_t shard : decided.shards) there[shard].push_back(group);
    }
  }
  for (const auto& [shard, groups] : there) {
    if (silent.contains(shard)) continue;
    for (const ShardGroup group : SettledAt(shard, groups)) --to_settle[group];
  }
  for (const auto& [group, shards] : to_settle) {
    if (shards == 0) Forget(group);
  }
}

std::vector<ShardGroup> ShardCommits::SettledAt(uint32_t shard,
                                                const std::vector<ShardGroup>& groups) {
  const absl::Status all = host_.peers->Settle(shard, groups);
  if (all.ok()) return groups;
  std::vector<ShardGroup> settled;
  if (!absl::IsFailedPrecondition(all) || DidNotComeThrough(all)) return settled;
  // One that cannot be carried out there keeps none of the others.
  for (const ShardGroup group : groups) {
    const absl::Status one = host_.peers->Settle(shard, {group});
    if (one.ok()) settled.push_back(group);
    if (IsSilent(one)) break;
  }
  return settled;
}

void ShardCommits::Forget(ShardGroup group) {
  ShardRecords::Slot slot = 0;
  {
    MutexLock lock(mutex_);
    const auto decided = decided_.find(group);
    if (decided == decided_.end()) return;
    slot = decided->second.slot;
  }
  const ShardRecords::Change emptied = records_->Emptied(slot);
  absl::Status put = table_->Put(emptied.update());
  if (MadeRoom(put)) put = table_->Put(emptied.update());
  if (!put.ok()) return;  // it is tried again
  // Before it is counted no more: who begins then finds a slot.
  records_->GiveBack(slot);
  MutexLock lock(mutex_);
  decided_.erase(group);
}

}  // namespace abacus::objfs
