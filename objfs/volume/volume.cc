#include "objfs/volume/volume.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

// A removal frees no space until the next flush: where so many wait, it comes at once.
constexpr size_t kRemovalsWaitingMax = 1024;
// Objects that are looked at between two flushes, for whether they have a name.
constexpr uint64_t kOrphansAtOnce = 4096;
// For so long nobody joins a shard that is in doubt since it was opened: else who joins again,
// after a rename that had come to its end, could see the name from before it.
constexpr absl::Duration kDoubtPatience = absl::Seconds(5);

absl::Status NotThere(ObjectId id) {
  return absl::NotFoundError(absl::StrCat("there is no object ", id));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Volume>> Volume::Make(std::shared_ptr<ObjectStore> store,
                                                     Options options, Host host) {
  auto volume =
      std::unique_ptr<Volume>(new Volume(std::move(store), std::move(options), std::move(host)));
  ABACUS_RETURN_IF_ERROR(volume->FindRoot());
  volume->BeginServers();
  ABACUS_RETURN_IF_ERROR(volume->BeginShards());
  volume->flusher_ = std::thread([raw = volume.get()] { raw->FlushNowAndThen(); });
  return volume;
}

Volume::Volume(std::shared_ptr<ObjectStore> store, Options options, Host host)
    : options_(std::move(options)),
      host_(std::move(host)),
      table_(
          std::make_shared<ObjectTable>(std::move(store), host_.now_ns, options_.whole_read_sets)),
      callbacks_(std::make_shared<Callbacks>(Callbacks::Options{.lease = options_.lease,
                                                                .quiet = options_.quiet,
                                                                .steady_ns = host_.steady_ns,
                                                                .may_serve = host_.may_serve})),
      life_((uint64_t{std::random_device()()} << 32) | std::random_device()()),
      orphans_due_ns_(callbacks_->Now() + absl::ToInt64Nanoseconds(options_.lease)),
      doubt_ends_ns_(callbacks_->Now() + absl::ToInt64Nanoseconds(kDoubtPatience)),
      last_group_writer_(static_cast<uint16_t>(std::random_device()())) {}

Volume::~Volume() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (flusher_.joinable()) flusher_.join();
  if (resolver_.joinable()) resolver_.join();
  shard_commits_.reset();  // before what it alters, and holds
  callbacks_->Stop();
  // They are found to be removed when the volume is opened again.
  table_->OnRemoved(nullptr);
  servers_.reset();
  // What fails now is as after a crash: nobody was told that it is durable.
  table_->FlushAndRemove().IgnoreError();
}

absl::Status Volume::FindRoot() {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, table_->store().List(0, 1));
  if (!ids.empty()) {
    ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Stat(ids[0]));
    const bool is_root = node.inode.IsDirectory() && node.inode.parent == ids[0];
    // A crash came between its creation and its first change: nobody has seen the volume yet.
    const bool is_unfinished = node.inode.IsDirectory() && node.inode.parent == 0;
    if (is_unfinished) return FinishRoot(ids[0]);
    if (!is_root) {
      return absl::FailedPreconditionError(absl::StrCat("the store of volume '", options_.name,
                                                        "' holds something else: its first ",
                                                        "object is no root directory"));
    }
    root_ = ids[0];
    born_ns_ = node.inode.born_ns;
    const auto stack = node.inode.xattrs.find(kFileStackXattr);
    MutexLock lock(mutex_);
    if (stack != node.inode.xattrs.end()) own_file_stack_ = stack->second;
    return absl::OkStatus();
  }
  Inode root;
  root.mode = S_IFDIR | 0755;
  root.links = 2;
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Make(0, root, ""));
  return FinishRoot(node.id);
}

absl::Status Volume::FinishRoot(ObjectId id) {
  root_ = id;
  InodeChange own_parent;
  own_parent.parent = root_;
  ABACUS_ASSIGN_OR_RETURN(const Node node, table_->Change(0, root_, own_parent));
  born_ns_ = node.inode.born_ns;
  return table_->Flush(root_);
}

void Volume::FlushNowAndThen() {
  const auto interval = absl::ToChronoNanoseconds(options_.flush_interval);
  bool failed = false;
  mutex_.Lock();
  while (!stopping_) {
    const auto due = std::chrono::steady_clock::now() + interval;
    // After a failure the removals still wait, and are no reason to try again at once.
    while (!stopping_ && (failed || table_->waiting_removals() < kRemovalsWaitingMax) &&
           changed_.WaitUntil(mutex_, due)) {
    }
    if (stopping_) break;
    mutex_.Unlock();
    DropTheSilent();
    CollectOrphans();
    // What fails is tried again, and told to whoever asks for it to be durable.
    failed = !table_->FlushAndRemove().ok();
    mutex_.Lock();
  }
  mutex_.Unlock();
}

// -- clients --------------------------------------------------------------------------------------

absl::Status Volume::Serves(uint16_t writer) const {
  return !host_.may_serve || host_.may_serve() ? absl::OkStatus() : NoClient(writer);
}

absl::StatusOr<VolumeInfo> Volume::Join(const std::string& client, const Ref<ClientEnd>& end) {
  ABACUS_RETURN_IF_ERROR(Serves(0));
  const bool is_in_doubt = IsInDoubt();
  MutexLock lock(mutex_);
  if (retired_) return absl::NotFoundError("the volume is being deleted");
  if (is_in_doubt || becoming_) {
    return absl::UnavailableError(absl::StrCat(
        "volume '", options_.name,
        is_in_doubt ? "' is being made whole after a restart: try again in some seconds"
                    : "' is being made: try again"));
  }
  if (AllWritersUsed()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("volume '", options_.name, "' has as many clients as it can"));
  }
  const uint16_t writer = NextWriter(&last_writer_);
  clients_[writer] = client;
  callbacks_->Join(writer, end);
  locks_.Begin(writer);
  return VolumeInfo{
      .name = options_.name,
      .root = root_,
      .writer = writer,
      .file_stack = options_.file_stack,
      .directory_stack = options_.directory_stack,
      .lease_ns = absl::ToInt64Nanoseconds(options_.lease),
      .born_ns = born_ns_,
      .servers = options_.servers == nullptr ? std::vector<std::string>() : options_.servers->All(),
      .takeover_ns = absl::ToInt64Nanoseconds(options_.takeover),
      .promised_ns = PromisesFor(),
      .shards = shards_.load(),
      .life = life_,
      .volume = shards_ > 1 ? volume_number_ : 0,
      .own_file_stack = own_file_stack_};
}

bool Volume::AllWritersUsed() const {
  return clients_.size() + group_writers_.size() >= UINT16_MAX;
}

// Rising: what a client that was taken for dead still says is not said in another's name.
uint16_t Volume::NextWriter(uint16_t* last) {
  uint16_t writer = *last;
  do {
    ++writer;
  } while (writer == 0 || clients_.contains(writer) || group_writers_.contains(writer));
  *last = writer;
  return writer;
}

int64_t Volume::PromisesFor() const {
  const int64_t lease_ns = absl::ToInt64Nanoseconds(options_.lease);
  return host_.serves_for_ns ? std::min(lease_ns, host_.serves_for_ns()) : lease_ns;
}

absl::StatusOr<int64_t> Volume::Renew(uint16_t writer) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  ABACUS_RETURN_IF_ERROR(callbacks_->Renew(writer));
  return PromisesFor();
}

void Volume::DropTheSilent() {
  for (const uint16_t writer : callbacks_->Tick()) Leave(writer).IgnoreError();
}

void Volume::CollectOrphans() {
  if (!orphans_after_.has_value() || callbacks_->Now() < orphans_due_ns_) return;
  const auto next = table_->CollectOrphans(*orphans_after_, kOrphansAtOnce);
  if (next.ok()) orphans_after_ = *next;  // else it is tried again
}

absl::StatusOr<std::vector<std::string>> Volume::Clients() {
  MutexLock lock(mutex_);
  return OthersThanOwn();
}

std::vector<std::string> Volume::OthersThanOwn() const {
  std::vector<std::string> names;
  for (const auto& [writer, name] : clients_) {
    if (!absl::StartsWith(name, kOwnClients)) names.push_back(name);
  }
  return names;
}

absl::StatusOr<OnlineCheck> Volume::Check(const CheckRequest& request) {
  if (!host_.check) return absl::UnimplementedError("this server looks at no volumes");
  CheckRequest whole = request;
  whole.servers = CountServers();
  return host_.check(*table_, whole);
}

absl::StatusOr<StoreScrub> Volume::ScrubStore(const StorePlace& from) {
  ABACUS_RETURN_IF_ERROR(Serves(0));
  return ScrubSome(table_->store(), from);
}

absl::Status Volume::Retire() {
  bool is_open = false;
  {
    MutexLock lock(mutex_);
    const std::vector<std::string> others = OthersThanOwn();
    if (!others.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("volume '", options_.name, "' is in use by ", others.size(), " client(s), '",
                       others.front(), "' among them: unmount it"));
    }
    retired_ = true;
    is_open = !clients_.empty();
  }
  return is_open ? Cease() : absl::OkStatus();
}

absl::Status Volume::Cease() {
  std::vector<ObjectId> open;
  {
    MutexLock lock(mutex_);
    retired_ = true;
    changed_.SignalAll();
    for (const auto& [id, bottom] : bottoms_) open.push_back(id);
  }
  for (const ObjectId id : open) {
    const Turns::Turn turn(openings_, id);
    EndBottom(id);
  }
  return absl::OkStatus();
}

absl::Status Volume::Leave(uint16_t writer) {
  callbacks_->Leave(writer);
  absl::Status first;
  locks_.End(writer);
  for (const ObjectId id : table_->OpenedBy(writer)) first.Update(Close(writer, id));
  std::set<ObjectId> reserved;
  {
    MutexLock lock(mutex_);
    clients_.erase(writer);
    const auto found = reserved_.find(writer);
    if (found != reserved_.end()) reserved = std::move(found->second);
    reserved_.erase(writer);
  }
  // What was made as one of them, and came to no name, the client may have tried again.
  for (const ObjectId id : reserved) table_->Discard(id).IgnoreError();
  return first;
}

absl::StatusOr<std::vector<ObjectId>> Volume::Reserve(uint16_t writer, uint32_t count) {
  ABACUS_RETURN_IF_ERROR(callbacks_->Check(writer));
  if (count > kReservedMax) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kReservedMax, " at a time"));
  }
  std::vector<ObjectId> ids;
  for (uint32_t i = 0; i < count; ++i) {
    ABACUS_ASSIGN_OR_RETURN(const ObjectId id, table_->Reserve());
    ids.push_back(id);
    PutReserved(writer, id);
  }
  return ids;
}

void Volume::PutReserved(uint16_t writer, ObjectId id) {
  MutexLock lock(mutex_);
  if (!clients_.contains(writer)) return;  // it has left
  std::set<ObjectId>& reserved = reserved_[writer];
  reserved.insert(id);
  if (reserved.size() > kReservedMax) reserved.erase(reserved.begin());
}

bool Volume::TakeReserved(uint16_t writer, ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = reserved_.find(writer);
  return found != reserved_.end() && found->second.erase(id) > 0;
}

// -- inodes ---------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Node>> Volume::Stat(const std::vector<ObjectId>& ids) {
  ABACUS_RETURN_IF_ERROR(Serves(0));
  std::vector<Node> nodes;
  nodes.reserve(ids.size());
  for (const ObjectId id : ids) {
    // Asked before: what it had written when it gave its promise back is in what is read after.
    const uint16_t kept_by = callbacks_->WriterOf(id);
    ABACUS_ASSIGN_OR_RETURN(Node node, table_->Stat(id));
    node.kept_by = kept_by;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

absl::StatusOr<KnownNodes> Volume::Know(uint16_t writer, const std::vector<ObjectId>& ids,
                                        const std::vector<KnownInode>& returned) {
  for (const KnownInode& known : returned) callbacks_->Forgotten(known.id, writer, known.given);
  KnownNodes known;
  // Before they are read: a change that comes between finds the promise.
  known.given = callbacks_->Know(ids, writer);
  absl::StatusOr<std::vector<Node>> nodes = Stat(ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    // Of what is about to be removed nobody is told.
    const bool stays = nodes.ok() && (*nodes)[i].id != 0 && (*nodes)[i].inode.links > 0;
    if (stays || known.given[i] == Version()) continue;
    callbacks_->Forgotten(ids[i], writer, std::exchange(known.given[i], Version()));
  }
  if (!nodes.ok()) return nodes.status();
  known.nodes = *std::move(nodes);
  return known;
}

absl::Status Volume::Settle(uint16_t writer, ObjectId id) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  return callbacks_->Look(id, writer);
}

absl::Status Volume::Pass(uint16_t writer, ObjectId id) {
  callbacks_->Pass(id, writer);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Volume::Commit(uint16_t writer, const Transaction& transaction) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  return CommitBy(writer, transaction,
                  [&](const Transaction& whole) { return CommitParts(writer, whole); });
}

// Nobody says but the server itself that it is a shard, or what its files are.
absl::Status Volume::CheckChange(const InodeChange& change) {
  for (const XattrChange& xattr : change.xattrs) {
    if (!IsServersXattr(xattr.name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", xattr.name, "' is none of a client's attributes"));
  }
  return absl::OkStatus();
}

// Who could change the records of transactions could have half of one done.
absl::Status Volume::CheckObject(ObjectId id) const {
  if (id == 0 || id != records_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "object ", id, " is the volume's own: clients name those that they were told of"));
}

absl::Status Volume::CheckParts(const Transaction& transaction) const {
  for (const Part& part : transaction.parts) {
    ABACUS_RETURN_IF_ERROR(CheckObject(part.id));
    ABACUS_RETURN_IF_ERROR(CheckChange(part.change));
  }
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Volume::CommitBy(uint16_t writer, const Transaction& transaction,
                                         Committing commit) {
  const auto makes = [](const Part& part) { return part.creation.has_value(); };
  const auto& parts = transaction.parts;
  ABACUS_RETURN_IF_ERROR(CheckParts(transaction));
  const auto made = std::find_if(parts.begin(), parts.end(), makes);
  if (made != parts.end() && std::any_of(std::next(made), parts.end(), makes)) {
    return absl::InvalidArgumentError("a transaction makes one object at most");
  }
  auto outcome =
      made == parts.end() ? commit(transaction) : CommitMaking(writer, transaction, *made, commit);
  if (!outcome.ok() || outcome->state != CommitState::kCommitted) return outcome;
  for (const Part& part : parts) {
    if (part.closes) Close(writer, part.id).IgnoreError();  // who had it open knows that it had
  }
  return outcome;
}

absl::StatusOr<Outcome> Volume::CommitMaking(uint16_t writer, const Transaction& transaction,
                                             const Part& made, Committing commit) {
  ABACUS_RETURN_IF_ERROR(callbacks_->Check(writer));
  // Who waits for those that choose columns waits for disks only: files that have some are made by
  // no transaction that waits for other shards.
  std::optional<ColumnServers::Making> making;
  if (made.creation->inode.IsRegular()) making.emplace(servers_.get());
  Transaction whole = transaction;
  ABACUS_ASSIGN_OR_RETURN(whole.parts[&made - transaction.parts.data()].creation->inode,
                          WithColumns(made.creation->inode));
  if (!TakeReserved(writer, made.id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("client ", writer, " has not reserved object ", made.id));
  }
  // Whoever finds its name opens it after its layers are there.
  std::optional<Turns::Turn> turn;
  if (made.creation->opens) turn.emplace(openings_, made.id);
  // Before anybody can change it.
  const Version given = callbacks_->Know(std::vector<ObjectId>{made.id}, writer).front();
  auto outcome = commit(whole);
  if (!outcome.ok() || outcome->state != CommitState::kCommitted) {
    callbacks_->Forgotten(made.id, writer, given);
    // It is there, and has its name, unless this server dies.
    if (runtime::IsOutcomeUnknown(outcome.status())) return outcome;
    // Who is refused tries again with the same. An identifier that an object had is not used again.
    const bool is_new = outcome.ok() || absl::IsNotFound(table_->Discard(made.id));
    if (is_new) PutReserved(writer, made.id);
    return outcome;
  }
  outcome->made = MadeObject{given, {}};
  if (made.creation->opens) outcome->made->layer = LayerOfMade(writer, made.id);
  return outcome;
}

// Where there are none the client opens it itself, and is told why not.
Ref<Layer> Volume::LayerOfMade(uint16_t writer, ObjectId id) {
  auto layer = MakeBottom(id);
  // Its Leave() may not have seen that it is open.
  const bool stays = layer.ok() && callbacks_->Check(writer).ok();
  if (stays) return *std::move(layer);
  const absl::StatusOr<bool> last = table_->Close(writer, id);
  if (last.ok() && *last) EndBottom(id);
  return {};
}

absl::StatusOr<Outcome> Volume::CommitParts(uint16_t writer, const Transaction& transaction) {
  std::vector<ObjectId> ids;
  ids.reserve(transaction.parts.size());
  for (const Part& part : transaction.parts) ids.push_back(part.id);
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Alteration lasting,
                          callbacks_->BeginAlter(std::move(ids), writer));
  auto outcome = table_->Commit(writer, transaction);
  const bool full = absl::IsResourceExhausted(outcome.status());
  if (full && table_->waiting_removals() > 0) {
    // What was removed still takes space.
    ABACUS_RETURN_IF_ERROR(table_->FlushAndRemove());
    outcome = table_->Commit(writer, transaction);
  }
  Count(outcome);
  HurryRemovals();
  return outcome;
}

void Volume::Count(const absl::StatusOr<Outcome>& outcome) {
  if (outcome.ok() && outcome->state == CommitState::kCommitted) ++committed_;
  if (outcome.ok() && outcome->state == CommitState::kStale) ++stale_;
}

void Volume::HurryRemovals() {
  if (table_->waiting_removals() < kRemovalsWaitingMax) return;
  MutexLock lock(mutex_);
  changed_.SignalAll();
}

absl::StatusOr<Node> Volume::Change(uint16_t writer, ObjectId id, const InodeChange& change) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  ABACUS_RETURN_IF_ERROR(CheckObject(id));
  ABACUS_RETURN_IF_ERROR(CheckChange(change));
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Alteration lasting,
                          callbacks_->BeginAlter({id}, writer));
  return table_->Change(writer, id, change);
}

absl::Status Volume::TellWhenWritten(uint16_t writer, ObjectId id, int64_t when_ns) {
  ABACUS_RETURN_IF_ERROR(CheckObject(id));
  ABACUS_ASSIGN_OR_RETURN(const Callbacks::Alteration lasting,
                          callbacks_->BeginAlter({id}, writer));
  return table_->ToldWhenWritten(writer, id, when_ns);
}

absl::StatusOr<uint64_t> Volume::TreeVersion() { return table_->TreeVersion(); }

// -- open objects ---------------------------------------------------------------------------------

absl::StatusOr<Ref<Layer>> Volume::MakeBottom(ObjectId id) {
  auto storage = std::make_unique<StorageLayer>(table_->shared_store(), id);
  ABACUS_RETURN_IF_ERROR(storage->Init({}, {}));
  Bottom bottom;
  bottom.storage = host_.adopt_storage(std::move(storage));
  auto isolation = std::make_unique<IsolationLayer>(table_, callbacks_, id);
  ABACUS_RETURN_IF_ERROR(isolation->Init({bottom.storage}, {}));
  bottom.isolation = host_.adopt_isolation(std::move(isolation));
  MutexLock lock(mutex_);
  bottoms_[id] = bottom;
  return bottom.isolation;
}

void Volume::EndBottom(ObjectId id) {
  Bottom bottom;
  Ref<Layer> witness;
  {
    MutexLock lock(mutex_);
    const auto found = bottoms_.find(id);
    if (found == bottoms_.end()) return;
    bottom = std::move(found->second);
    bottoms_.erase(found);
    const auto known = witnesses_.find(id);
    if (known != witnesses_.end()) {
      witness = std::move(known->second.layer);
      ForgetShared(&known->second);
      witnesses_.erase(known);
    }
  }
  if (witness) host_.end(witness);
  host_.end(bottom.isolation);
  host_.end(bottom.storage);
  if (options_.servers == nullptr) return;
  const auto node = table_->Stat(id);
  if (node.ok()) servers_->Closed(id, node->inode.columns);
}

absl::StatusOr<Ref<Layer>> Volume::Open(uint16_t writer, ObjectId id) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  ABACUS_RETURN_IF_ERROR(CheckObject(id));
  const Turns::Turn turn(openings_, id);
  ABACUS_RETURN_IF_ERROR(callbacks_->Check(writer));
  ABACUS_ASSIGN_OR_RETURN(const bool first, table_->Open(writer, id));
  if (absl::Status here = callbacks_->Check(writer); !here.ok()) {
    table_->Close(writer, id).status().IgnoreError();  // its Leave() did not see this one
    return here;
  }
  if (!first) {
    MutexLock lock(mutex_);
    const auto found = bottoms_.find(id);
    if (found == bottoms_.end()) return NotThere(id);
    return found->second.isolation;
  }
  auto bottom = MakeBottom(id);
  if (!bottom.ok()) table_->Close(writer, id).status().IgnoreError();
  return bottom;
}

absl::Status Volume::Close(uint16_t writer, ObjectId id) {
  const Turns::Turn turn(openings_, id);
  const absl::StatusOr<bool> last = table_->Close(writer, id);
  if (!last.ok()) return last.status();
  if (!table_->IsOpenBy(writer, id)) callbacks_->Release(id, writer);
  if (*last) EndBottom(id);
  return absl::OkStatus();
}

absl::Status Volume::CloseAll(uint16_t writer, const std::vector<ObjectId>& ids) {
  absl::Status first;
  for (const ObjectId id : ids) first.Update(Close(writer, id));
  return first;
}

// -- locks ----------------------------------------------------------------------------------------

absl::Status Volume::ListenForLocks(uint16_t writer, const Ref<LockClient>& client) {
  return locks_.Listen(writer, client);
}
absl::StatusOr<LockState> Volume::Lock(uint16_t writer, const LockRequest& request) {
  ABACUS_RETURN_IF_ERROR(Serves(writer));
  return locks_.Lock(writer, request);
}
absl::Status Volume::Unlock(uint16_t writer, const LockRequest& request) {
  return locks_.Unlock(writer, request);
}
absl::StatusOr<std::optional<HeldLock>> Volume::GetLock(uint16_t writer,
                                                        const LockRequest& request) {
  return locks_.Excluding(writer, request);
}
absl::StatusOr<bool> Volume::CancelLock(uint16_t writer, uint64_t ticket) {
  return locks_.Cancel(writer, ticket);
}
absl::StatusOr<std::vector<uint64_t>> Volume::WaitingLocks(uint16_t writer,
                                                           const std::vector<uint64_t>& tickets) {
  return locks_.Waiting(writer, tickets);
}
absl::StatusOr<LockCounts> Volume::Locks() { return locks_.counts(); }

absl::Status Volume::Flush(const std::vector<ObjectId>& ids) {
  ABACUS_RETURN_IF_ERROR(table_->Flush(ids));
  // After it: what was durable only once another server answered is not acknowledged.
  return Serves(0);
}

absl::StatusOr<CommitCounts> Volume::Commits() {
  return CommitCounts{.committed = committed_, .stale = stale_};
}

absl::StatusOr<VolumeSpace> Volume::Space() {
  ABACUS_ASSIGN_OR_RETURN(const StoreSpace space, table_->store().Space());
  const StoreStatistics statistics = table_->store().Statistics();
  return VolumeSpace{.block_bytes = ObjectStore::kBlockBytes,
                     .capacity_bytes = space.capacity_bytes,
                     .available_bytes = space.available_bytes,
                     .objects = space.objects,
                     .damaged = statistics.checksum_errors + statistics.damaged_tables,
                     .refused = statistics.refused_for_space};
}

}  // namespace abacus::objfs
