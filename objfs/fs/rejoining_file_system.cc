#include "objfs/fs/rejoining_file_system.h"

#include <algorithm>
#include <utility>

#include "objfs/fs/siblings.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::ErrorKind;
using runtime::MutexLock;
using runtime::Ref;

namespace {

// Whoever joins again holds it.
constexpr ObjectId kTheJoin = 1;
constexpr std::chrono::nanoseconds kRenewalsAtTakeover = std::chrono::seconds(1);

// An object of the runtime's that is no more, or cannot be reached: the server's, or a layer's that
// was at it.
bool IsOfALostNode(const absl::Status& status) {
  switch (runtime::KindOf(status)) {
    case ErrorKind::kObjectLost:
    case ErrorKind::kObjectNotFound:
    case ErrorKind::kOutcomeUnknown:
    case ErrorKind::kNodeUnreachable:
    case ErrorKind::kNodeFenced:
      return true;
    default:
      return false;
  }
}

// How often something is done that is due within a lease. Where another server may come to answer
// for the volume, this one promises for seconds only.
std::chrono::nanoseconds LeaseShare(const VolumeInfo& info) {
  return std::chrono::nanoseconds(info.lease_ns / 6);
}
std::chrono::nanoseconds RenewalsEvery(const VolumeInfo& info) {
  return info.takeover_ns == 0 ? LeaseShare(info) : std::min(LeaseShare(info), kRenewalsAtTakeover);
}

// Where the server knows the client: a layer died with the node that it was moved to.
bool LayersAreLost(const absl::Status& status) {
  const ErrorKind kind = runtime::KindOf(status);
  return kind == ErrorKind::kObjectLost || kind == ErrorKind::kOutcomeUnknown;
}

}  // namespace

RejoiningFileSystem::RejoiningFileSystem(Ref<Volume> volume, const LayerKinds& kinds, Host host,
                                         Options options, std::unique_ptr<FileSystemImpl> joined,
                                         Siblings* siblings)
    : kinds_(kinds),
      host_(std::move(host)),
      options_(std::move(options)),
      siblings_(siblings),
      root_(joined->root()),
      takeover_(joined->info().takeover_ns),
      joined_(std::move(joined)),
      volume_(std::move(volume)),
      renewer_([this, interval = RenewalsEvery(joined_->info())] {
        NowAndThen(interval, [this] {
          return Call(Repeat::kAlways, [](FileSystemImpl& joined) { return joined.RenewLease(); });
        });
      }),
      pusher_([this, interval = LeaseShare(joined_->info())] {
        NowAndThen(interval, [this] {
          return Call(Repeat::kAlways, [](FileSystemImpl& joined) { return joined.KeepUp(); });
        });
      }) {}

RejoiningFileSystem::~RejoiningFileSystem() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  renewer_.join();
  pusher_.join();
}

// -- joining again --------------------------------------------------------------------------------

void RejoiningFileSystem::NowAndThen(std::chrono::nanoseconds interval,
                                     const std::function<absl::Status()>& work) {
  bool answers = true;
  mutex_.Lock();
  while (!stopping_) {
    const auto due = std::chrono::steady_clock::now() +
                     (answers ? interval : std::min<std::chrono::nanoseconds>(interval, kTryAgain));
    while (!stopping_ && changed_.WaitUntil(mutex_, due)) {
    }
    if (stopping_) break;
    mutex_.Unlock();
    // Where the server does not answer, every call says so.
    answers = work().ok();
    mutex_.Lock();
  }
  mutex_.Unlock();
}

absl::Status RejoiningFileSystem::Renew() {
  return Call(Repeat::kAlways, [](FileSystemImpl& joined) { return joined.Renew(); });
}

// What was met at a sibling says nothing of this joining.
bool RejoiningFileSystem::MayBeOver(const absl::Status& why) {
  return (IsNoClient(why) || IsOfALostNode(why)) && !SiblingTroubleOf(why).has_value();
}

bool RejoiningFileSystem::TryWith(const std::function<void(FileSystemImpl&)>& call,
                                  uint64_t* joining) {
  if (!gate_.TryEnter()) return false;
  *joining = joining_;
  call(*joined_);
  gate_.Leave();
  return true;
}

absl::Status RejoiningFileSystem::Look(uint64_t joining, const absl::Status& why) {
  // First: where the server is away, or has given the client up, that looks for it, once.
  ABACUS_RETURN_IF_ERROR(
      Call(Repeat::kAlways, [](FileSystemImpl& joined) { return joined.RenewLease(); }));
  // What the server cannot tell: that layers were lost, or that the joining is being taken over.
  JoinedSince(joining, why);
  return absl::OkStatus();
}

bool RejoiningFileSystem::JoinedSince(uint64_t joining, const absl::Status& why) {
  const bool was_sent_away = WasSentAway(why);
  if (!MayBeOver(why) && !was_sent_away) return false;
  const uint64_t attempts = attempts_;
  const Turns::Turn turn(joins_, kTheJoin);
  if (joining_ != joining) return true;
  // Another call has just asked the server.
  if (was_sent_away || attempts_ != attempts) return false;
  // Where another one may answer for the volume soon, whoever asks is to find it soon.
  const auto begun = std::chrono::steady_clock::now();
  if (takeover_.count() == 0 && begun < silent_until_) return false;
  const bool joined = JoinAgain(why);
  const auto ended = std::chrono::steady_clock::now();
  if (!joined && ended - begun >= kLongLook) silent_until_ = ended + kTryAgain;
  ++attempts_;
  return joined;
}

bool RejoiningFileSystem::WaitsForTakeover(
    const absl::Status& why, std::optional<std::chrono::steady_clock::time_point>* until) {
  if (takeover_.count() == 0 || !MayBeOver(why)) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!until->has_value()) *until = now + takeover_;
  if (now >= **until) return false;
  return Rest(kLookForAnother);
}

bool RejoiningFileSystem::Rest(std::chrono::nanoseconds time) {
  const auto due = std::chrono::steady_clock::now() + time;
  MutexLock lock(mutex_);
  while (!stopping_ && changed_.WaitUntil(mutex_, due)) {
  }
  return !stopping_;
}

bool RejoiningFileSystem::JoinAgain(const absl::Status& why) {
  const absl::Status alive = [this] {
    const SharedGate::Pass pass(gate_);
    return joined_->RenewLease();
  }();
  if (alive.ok() ? !LayersAreLost(why) : !MayBeOver(alive)) return false;
  absl::StatusOr<Ref<Volume>> volume =
      host_.find_volume == nullptr ? volume_ : host_.find_volume(joined_->info().name);
  if (!volume.ok()) return false;
  const bool server_lost = !(*volume == volume_);
  // That a server cannot be reached does not mean that it has given the client up.
  if (!server_lost && !alive.ok() && !IsNoClient(alive)) return false;
  absl::StatusOr<std::unique_ptr<FileSystemImpl>> joined =
      FileSystemImpl::JoinWhole(*volume, kinds_, host_, options_, siblings_,
                                [this](std::chrono::nanoseconds time) { return Rest(time); });
  if (!joined.ok()) return false;
  const VolumeInfo& info = (*joined)->info();
  // Another volume of the same name: what is open here is none of its files.
  if (info.root != root_ || info.born_ns != joined_->info().born_ns) return false;

  joined_->Interrupt();
  gate_.Close();
  (*joined)->TakeOver(*joined_, server_lost);
  TakeKeepersOver(*joined_, **joined);
  std::unique_ptr<FileSystemImpl> before = std::exchange(joined_, *std::move(joined));
  volume_ = *std::move(volume);
  ++joining_;
  gate_.Open();
  // It closes what the server believes that it has open, where there is a server to tell.
  before.reset();
  return true;
}

void RejoiningFileSystem::TakeKeepersOver(FileSystemImpl& before, FileSystemImpl& joined) {
  MutexLock lock(keepers_mutex_);
  for (auto& [number, keeper] : keepers_) {
    before.RemoveKeeper(keeper.in_joining);
    keeper.in_joining = joined.AddKeeper(keeper.forget);
  }
  // Others may have changed them while the client was given up, and nobody told it.
  for (const ObjectId id : joined.OpenFiles()) {
    for (const auto& [number, keeper] : keepers_) keeper.forget(id, [] {});
  }
}

uint64_t RejoiningFileSystem::AddKeeper(Forget forget) {
  const SharedGate::Pass pass(gate_);
  MutexLock lock(keepers_mutex_);
  Keeper& keeper = keepers_[++last_keeper_];
  keeper = {.forget = forget, .in_joining = joined_->AddKeeper(std::move(forget))};
  return last_keeper_;
}

void RejoiningFileSystem::RemoveKeeper(uint64_t keeper) {
  const SharedGate::Pass pass(gate_);
  MutexLock lock(keepers_mutex_);
  const auto found = keepers_.find(keeper);
  if (found == keepers_.end()) return;
  joined_->RemoveKeeper(found->second.in_joining);
  keepers_.erase(found);
}

bool RejoiningFileSystem::IsTold(ObjectId file) {
  const SharedGate::Pass pass(gate_);
  return joined_->IsTold(file);
}

// -- names ----------------------------------------------------------------------------------------

absl::StatusOr<Node> RejoiningFileSystem::Lookup(const Caller& caller, ObjectId directory,
                                                 const std::string& name) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Lookup(caller, directory, name); });
}

absl::StatusOr<Node> RejoiningFileSystem::Make(const Caller& caller, ObjectId directory,
                                               const std::string& name, uint32_t mode,
                                               uint64_t device, const std::string& contents) {
  return Call(Repeat::kWhereItDidNot, [&](FileSystemImpl& joined) {
    return joined.Make(caller, directory, name, mode, device, contents);
  });
}

absl::StatusOr<FileSystem::Created> RejoiningFileSystem::Create(const Caller& caller,
                                                                ObjectId directory,
                                                                const std::string& name,
                                                                uint32_t mode, int flags,
                                                                const std::string& stack) {
  Node made;
  Caller maker = caller;
  maker.checked = true;
  return Call(Repeat::kWhereItDidNot, [&](FileSystemImpl& joined) -> absl::StatusOr<Created> {
    if (made.id == 0) return joined.Create(caller, directory, name, mode, flags, stack, &made);
    // The joining that made it was over before it was open.
    ABACUS_ASSIGN_OR_RETURN(const FileHandle handle, joined.Open(maker, made.id, flags));
    return Created{made, handle};
  });
}

absl::StatusOr<Node> RejoiningFileSystem::Link(const Caller& caller, ObjectId file,
                                               ObjectId directory, const std::string& name) {
  return Call(Repeat::kWhereItDidNot,
              [&](FileSystemImpl& joined) { return joined.Link(caller, file, directory, name); });
}

absl::Status RejoiningFileSystem::Unlink(const Caller& caller, ObjectId directory,
                                         const std::string& name) {
  return Call(Repeat::kWhereItDidNot,
              [&](FileSystemImpl& joined) { return joined.Unlink(caller, directory, name); });
}

absl::Status RejoiningFileSystem::RemoveDirectory(const Caller& caller, ObjectId directory,
                                                  const std::string& name) {
  return Call(Repeat::kWhereItDidNot, [&](FileSystemImpl& joined) {
    return joined.RemoveDirectory(caller, directory, name);
  });
}

absl::Status RejoiningFileSystem::Rename(const Caller& caller, ObjectId from_directory,
                                         const std::string& from, ObjectId to_directory,
                                         const std::string& to, RenameRule rule) {
  return Call(Repeat::kWhereItDidNot, [&](FileSystemImpl& joined) {
    return joined.Rename(caller, from_directory, from, to_directory, to, rule);
  });
}

absl::StatusOr<std::string> RejoiningFileSystem::ReadLink(const Caller& caller, ObjectId link) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.ReadLink(caller, link); });
}

absl::StatusOr<std::vector<FileSystem::Listed>> RejoiningFileSystem::List(
    const Caller& caller, ObjectId directory, uint64_t cookie, uint32_t max, bool with_attributes) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) {
    return joined.List(caller, directory, cookie, max, with_attributes);
  });
}

// -- inodes ---------------------------------------------------------------------------------------

absl::StatusOr<Node> RejoiningFileSystem::Stat(ObjectId file) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.Stat(file); });
}

absl::StatusOr<Node> RejoiningFileSystem::Set(const Caller& caller, ObjectId file,
                                              const SetAttributes& set) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Set(caller, file, set); });
}

absl::Status RejoiningFileSystem::Access(const Caller& caller, ObjectId file, int want) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Access(caller, file, want); });
}

absl::StatusOr<std::string> RejoiningFileSystem::GetXattr(const Caller& caller, ObjectId file,
                                                          const std::string& name) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.GetXattr(caller, file, name); });
}

absl::Status RejoiningFileSystem::SetXattr(const Caller& caller, ObjectId file,
                                           const std::string& name, const std::string& value,
                                           XattrRule rule) {
  return Call(Repeat::kWhereItDidNot, [&](FileSystemImpl& joined) {
    return joined.SetXattr(caller, file, name, value, rule);
  });
}

absl::Status RejoiningFileSystem::RemoveXattr(const Caller& caller, ObjectId file,
                                              const std::string& name) {
  return Call(Repeat::kWhereItDidNot,
              [&](FileSystemImpl& joined) { return joined.RemoveXattr(caller, file, name); });
}

absl::StatusOr<std::vector<std::string>> RejoiningFileSystem::ListXattrs(const Caller& caller,
                                                                         ObjectId file) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.ListXattrs(caller, file); });
}

// -- open files -----------------------------------------------------------------------------------

absl::StatusOr<FileHandle> RejoiningFileSystem::Open(const Caller& caller, ObjectId file,
                                                     int flags) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Open(caller, file, flags); });
}

// The handle is gone whatever the error is: made again, it would be a wrong one.
absl::Status RejoiningFileSystem::Release(FileHandle handle) {
  const SharedGate::Pass pass(gate_);
  return joined_->Release(handle);
}

absl::StatusOr<Block> RejoiningFileSystem::Read(FileHandle handle, uint64_t offset,
                                                uint64_t bytes) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Read(handle, offset, bytes); });
}

absl::Status RejoiningFileSystem::Write(FileHandle handle, uint64_t offset, const Block& bytes) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Write(handle, offset, bytes); });
}

absl::StatusOr<uint64_t> RejoiningFileSystem::Append(FileHandle handle, const Block& bytes) {
  return Call(Repeat::kWhereItDidNot,
              [&](FileSystemImpl& joined) { return joined.Append(handle, bytes); });
}

absl::Status RejoiningFileSystem::Push(FileHandle handle) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.Push(handle); });
}

absl::Status RejoiningFileSystem::Sync(FileHandle handle) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.Sync(handle); });
}

absl::Status RejoiningFileSystem::SyncData(FileHandle handle) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.SyncData(handle); });
}

absl::Status RejoiningFileSystem::SyncDirectory(ObjectId directory) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.SyncDirectory(directory); });
}

absl::Status RejoiningFileSystem::Allocate(FileHandle handle, int mode, uint64_t offset,
                                           uint64_t bytes) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Allocate(handle, mode, offset, bytes); });
}

absl::StatusOr<uint64_t> RejoiningFileSystem::SeekData(FileHandle handle, uint64_t offset) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.SeekData(handle, offset); });
}

absl::StatusOr<uint64_t> RejoiningFileSystem::SeekHole(FileHandle handle, uint64_t offset) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.SeekHole(handle, offset); });
}

absl::StatusOr<uint64_t> RejoiningFileSystem::CopyRange(FileHandle from, uint64_t from_offset,
                                                        FileHandle to, uint64_t to_offset,
                                                        uint64_t bytes) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) {
    return joined.CopyRange(from, from_offset, to, to_offset, bytes);
  });
}

// What an application's objects did before the outcome was lost is not known here.
absl::Status RejoiningFileSystem::WithSubgraph(
    FileHandle handle, const std::function<absl::Status(const Subgraph&)>& call) {
  return Call(Repeat::kWhereItDidNot,
              [&](FileSystemImpl& joined) { return joined.WithSubgraph(handle, call); });
}

absl::StatusOr<RebuildProgress> RejoiningFileSystem::Rebuild(FileHandle handle, uint64_t from,
                                                             uint64_t stripes) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Rebuild(handle, from, stripes); });
}
absl::StatusOr<ScrubProgress> RejoiningFileSystem::Scrub(FileHandle handle, uint64_t from,
                                                         uint64_t stripes) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.Scrub(handle, from, stripes); });
}
absl::StatusOr<VolumeSpace> RejoiningFileSystem::Space() {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.Space(); });
}

absl::StatusOr<std::string> RejoiningFileSystem::StackOf(ObjectId file) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.StackOf(file); });
}

// -- locks ----------------------------------------------------------------------------------------

absl::Status RejoiningFileSystem::Unlock(const LockRequest& request) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.Unlock(request); });
}

absl::Status RejoiningFileSystem::UnlockAll(ObjectId file, LockKind kind, uint64_t owner) {
  return Call(Repeat::kAlways,
              [&](FileSystemImpl& joined) { return joined.UnlockAll(file, kind, owner); });
}

absl::StatusOr<std::optional<HeldLock>> RejoiningFileSystem::GetLock(const LockRequest& request) {
  return Call(Repeat::kAlways, [&](FileSystemImpl& joined) { return joined.GetLock(request); });
}

uint64_t RejoiningFileSystem::NewLockTicket() {
  const SharedGate::Pass pass(gate_);
  return joined_->NewLockTicket();
}

void RejoiningFileSystem::CancelLock(uint64_t ticket) {
  const SharedGate::Pass pass(gate_);
  joined_->CancelLock(ticket);
}

void RejoiningFileSystem::Lock(const LockRequest& request, const LockDone& done) {
  // What the answer says of the joining counts while the request is being made; one that waits ends
  // with its joining, whose locks are all gone.
  struct First {
    runtime::Mutex mutex;
    bool made ABSL_GUARDED_BY(mutex) = false;
    absl::Status over ABSL_GUARDED_BY(mutex);
  };
  const auto first = std::make_shared<First>();
  const LockDone told = [first, done](const absl::Status& status) {
    {
      MutexLock lock(first->mutex);
      if (!first->made && MayBeOver(status)) {
        first->over = status;
        return;
      }
    }
    done(status);
  };
  uint64_t joining = 0;
  {
    const SharedGate::Pass pass(gate_);
    joining = joining_;
    joined_->Lock(request, told);
  }
  absl::Status over;
  {
    MutexLock lock(first->mutex);
    first->made = true;
    over = first->over;
  }
  if (over.ok()) return;
  if (!JoinedSince(joining, over)) return done(over);
  const SharedGate::Pass pass(gate_);
  joined_->Lock(request, done);
}

}  // namespace abacus::objfs
