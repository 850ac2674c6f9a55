#include "objfs/fs/file_system.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/fs/file_system_impl.h"
#include "objfs/fs/rejoining_file_system.h"
#include "objfs/fs/sharded_file_system.h"
#include "objfs/fs/stack_rules.h"
#include "runtime/base/status.h"
#include "runtime/object/background.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

int64_t MachineSteadyNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The client's view of its lease ends before the server's: it counts from before it asked, and
// takes a tenth off for clocks that do not run alike.
int64_t LeaseEnd(int64_t sent_ns, int64_t lease_ns) { return sent_ns + lease_ns / 10 * 9; }

// A shard that is in doubt after a restart lets nobody join for 5 s at most.
constexpr std::chrono::seconds kWholeWithin{6};
constexpr std::chrono::milliseconds kAskWhetherWhole{100};

// Which stack files have that this client makes (`options`), and those without one of their own
// (`info`). The volume's own is written into each file: it may have more columns by now than there
// are servers, and whoever only reads is to join all the same.
void ChooseFileStack(FileSystem::Options* options, VolumeInfo* info) {
  if (options->file_stack.empty() && !info->own_file_stack.empty()) {
    options->file_stack = info->own_file_stack;
    return;
  }
  if (options->file_stack.empty()) options->file_stack = options->usual_file_stack;
  if (!options->file_stack.empty()) info->file_stack = options->file_stack;
}

}  // namespace

// -- the end that the server calls ----------------------------------------------------------------

void EndLink::Attach(FileSystemImpl* file_system) {
  MutexLock lock(mutex_);
  file_system_ = file_system;
}

void EndLink::Detach() {
  MutexLock lock(mutex_);
  file_system_ = nullptr;
  while (inside_ > 0) changed_.Wait(mutex_);
}

FileSystemImpl* EndLink::Take() {
  MutexLock lock(mutex_);
  if (file_system_ != nullptr) ++inside_;
  return file_system_;
}

void EndLink::Give() {
  MutexLock lock(mutex_);
  --inside_;
  changed_.SignalAll();
}

absl::Status EndLink::Break(ObjectId id, bool write_back, Version given) {
  FileSystemImpl* const file_system = Take();
  if (file_system == nullptr) return absl::OkStatus();  // nothing is kept yet, or any more
  absl::Status status = file_system->OnBreak(id, write_back, given);
  Give();
  return status;
}

void EndLink::Wake(ObjectId id) {
  FileSystemImpl* const file_system = Take();
  if (file_system == nullptr) return;
  file_system->OnWake(id);
  Give();
}

void EndLink::Forget(ObjectId id, Version given) {
  FileSystemImpl* const file_system = Take();
  if (file_system == nullptr) return;
  file_system->OnForget(id, given);
  Give();
}

// -- beginning and end ----------------------------------------------------------------------------

bool FileSystemImpl::SleepFor(std::chrono::nanoseconds time) {
  std::this_thread::sleep_for(time);
  return true;
}

absl::StatusOr<std::unique_ptr<FileSystem>> FileSystem::Make(Ref<Volume> volume,
                                                             const LayerKinds& kinds, Host host,
                                                             Options options) {
  ABACUS_ASSIGN_OR_RETURN(
      auto joined, FileSystemImpl::JoinWhole(volume, kinds, host, options,
                                             /*siblings=*/nullptr, FileSystemImpl::SleepFor));
  if (joined->info().shards > 1) {
    return ShardedFileSystem::Make(std::move(joined), std::move(volume), kinds, std::move(host),
                                   std::move(options));
  }
  return std::make_unique<RejoiningFileSystem>(std::move(volume), kinds, std::move(host),
                                               std::move(options), std::move(joined));
}

absl::StatusOr<std::unique_ptr<FileSystemImpl>> FileSystemImpl::Join(Ref<Volume> volume,
                                                                     const LayerKinds& kinds,
                                                                     Host host, Options options,
                                                                     Siblings* siblings) {
  if (host.steady_ns == nullptr) host.steady_ns = MachineSteadyNs;
  Joined joined;
  joined.link = std::make_shared<EndLink>();
  joined.end = host.adopt_end(std::make_unique<ClientEnd>(ClientEnd::Handlers{
      .on_break = [link = joined.link](
                      ObjectId id, bool write_back,
                      Version given) { return link->Break(id, write_back, given); },
      .on_wake = [link = joined.link](ObjectId id) { link->Wake(id); },
      .on_forget = [link = joined.link](ObjectId id, Version given) { link->Forget(id, given); }}));
  joined.sent_ns = host.steady_ns();
  absl::StatusOr<VolumeInfo> info = volume->Join(options.client, joined.end);
  if (!info.ok()) {
    host.remove_end(joined.end);
    return info.status();
  }
  joined.info = *std::move(info);
  ChooseFileStack(&options, &joined.info);
  auto file_system = std::make_unique<FileSystemImpl>(
      volume, std::move(joined), kinds, std::move(host), std::move(options), siblings);
  // From here on its end leaves the volume.
  ABACUS_RETURN_IF_ERROR(file_system->CheckStacks());
  ABACUS_RETURN_IF_ERROR(file_system->locks_->Listen());
  return file_system;
}

absl::StatusOr<std::unique_ptr<FileSystemImpl>> FileSystemImpl::JoinWhole(
    const Ref<Volume>& volume, const LayerKinds& kinds, const Host& host, const Options& options,
    Siblings* siblings, const std::function<bool(std::chrono::nanoseconds)>& rest) {
  const auto until = std::chrono::steady_clock::now() + kWholeWithin;
  for (;;) {
    auto joined = Join(volume, kinds, host, options, siblings);
    const absl::Status& status = joined.status();
    // Of one that is away the runtime tells.
    const bool is_being_made_whole =
        absl::IsUnavailable(status) && runtime::KindOf(status) == runtime::ErrorKind::kNone;
    const bool goes_on = is_being_made_whole && std::chrono::steady_clock::now() < until;
    if (!goes_on || !rest(kAskWhetherWhole)) return joined;
  }
}

FileSystemImpl::FileSystemImpl(Ref<Volume> volume, Joined joined, const LayerKinds& kinds,
                               Host host, Options options, Siblings* siblings)
    : volume_(std::move(volume)),
      info_(std::move(joined.info)),
      siblings_(siblings),
      kinds_(kinds),
      host_(std::move(host)),
      options_(std::move(options)),
      link_(std::move(joined.link)),
      end_(std::move(joined.end)),
      clock_(info_.writer, host_.now_us),
      lease_until_ns_(LeaseEnd(joined.sent_ns, info_.promised_ns)),
      locks_(std::make_unique<FileLocks>(volume_, info_.writer, host_.locks)) {
  link_->Attach(this);
}

absl::Status FileSystemImpl::Renew() {
  ABACUS_RETURN_IF_ERROR(RenewLease());
  return KeepUp();
}

absl::Status FileSystemImpl::KeepUp() {
  PushWhatIsOld();
  SendClosings();
  LookAtFrontEnds();
  return absl::OkStatus();
}

void FileSystemImpl::LookAtFrontEnds() {
  std::vector<std::shared_ptr<LazyFrontEnd>> front_ends;
  {
    MutexLock lock(mutex_);
    for (const DirectoryPtr& directory : recent_) front_ends.push_back(directory->front_end);
    for (const auto& [id, file] : files_) {
      if (file->front_end != nullptr) front_ends.push_back(file->front_end);
    }
  }
  for (const auto& front_end : front_ends) front_end->Look();
}

// What is lost with this client is not much older than Options::push_after.
void FileSystemImpl::PushWhatIsOld() {
  std::vector<FilePtr> files;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, file] : files_) files.push_back(file);
  }
  const int64_t due_ns = host_.now_us() * 1000 - absl::ToInt64Nanoseconds(options_.push_after);
  for (const FilePtr& file : files) {
    if (file->written_ns == 0 || file->held_since_ns > due_ns) continue;
    // Nobody waits for it, and who renews the lease waits for no other client's.
    const runtime::BackgroundScope scope(file->top().base());
    const absl::Status pushed = PushFile(*file, /*waits=*/false);
    if (pushed.ok()) continue;
    // The next who asks is told.
    MutexLock lock(mutex_);
    file->late.Update(pushed);
  }
}

absl::Status FileSystemImpl::RenewLease() {
  const int64_t sent_ns = host_.steady_ns();
  const absl::StatusOr<int64_t> promised_ns = volume_->Renew(info_.writer);
  if (!promised_ns.ok()) {
    // The server may have died, and the one after it knows of no promises.
    known_.ForgetAll(/*give_back=*/!IsNoClient(promised_ns.status()));
    return promised_ns.status();
  }
  const int64_t until_ns = LeaseEnd(sent_ns, *promised_ns);
  int64_t before_ns = lease_until_ns_;
  while (before_ns < until_ns && !lease_until_ns_.compare_exchange_weak(before_ns, until_ns)) {
  }
  return absl::OkStatus();
}

absl::Status FileSystemImpl::CheckLease() {
  if (host_.steady_ns() < lease_until_ns_) return absl::OkStatus();
  return RenewLease();
}

FileSystemImpl::~FileSystemImpl() {
  board_->Close();
  absl::flat_hash_map<FileHandle, Handle> handles;
  std::list<DirectoryPtr> directories;
  {
    MutexLock lock(mutex_);
    handles.swap(handles_);
    directories.swap(recent_);
    directories_.clear();
  }
  SendClosings();
  // Whoever still had a file open has no more use for what its end could tell.
  for (auto& [number, handle] : handles) {
    if (!handle.file->unusable.ok()) continue;
    const ObjectId id = handle.file->id;
    handle.file.reset();
    Unuse(id).IgnoreError();
  }
  directories.clear();
  locks_.reset();
  volume_->Leave(info_.writer).IgnoreError();
  // Others may have waited until now for what was kept here.
  link_->Detach();
  host_.remove_end(end_);
}

absl::Status FileSystemImpl::OnBreak(ObjectId id, bool write_back, Version given) {
  absl::Status status;
  // A file that is not open has been pushed, and its layers are gone.
  const FilePtr file = UsedNow(id);
  if (file != nullptr && file->holds_back) {
    file->size_seen = false;
    ++file->breaks;
    const int64_t written_ns = file->written_ns;
    status = write_back ? file->lowest()->Recall(Range(), given)
                        : file->lowest()->Invalidate(Range(), given);
    // They were ended meanwhile, or died with their node: nothing is kept any more.
    const bool died = runtime::KindOf(status) == runtime::ErrorKind::kObjectLost;
    if (died || absl::IsNotFound(status)) status = absl::OkStatus();
    if (write_back) file->has_given_back = true;
    // Before those who waited ask for the times. Of what died the next push tells the loss.
    if (status.ok() && write_back && !died) {
      TellWhenWritten(*file, written_ns, /*waits=*/false).IgnoreError();
    }
    // After the layers: what is read from now on is what the other client leaves.
    if (status.ok()) HaveForgotten(id);
  }
  // Calls of this client that met the break may ask again.
  board_->Wake(id);
  return status;
}

uint64_t FileSystemImpl::AddKeeper(Forget forget) {
  MutexLock lock(keepers_mutex_);
  keepers_[++last_keeper_] = std::move(forget);
  return last_keeper_;
}

void FileSystemImpl::RemoveKeeper(uint64_t keeper) {
  MutexLock lock(keepers_mutex_);
  keepers_.erase(keeper);
  while (telling_keepers_ > 0) keepers_changed_.Wait(keepers_mutex_);
}

// Another client may change what is known of the object, and then its bytes. What was read until
// now is forgotten before it does: who is asked meanwhile is not promised anything again.
void FileSystemImpl::OnForget(ObjectId id, Version given) {
  known_.Forget(id, given);
  if (IsOpenAndPlain(id)) HaveForgotten(id);
}

bool FileSystemImpl::IsOpenAndPlain(ObjectId id) {
  const FilePtr open = UsedNow(id);
  return open != nullptr && !open->holds_back;
}

bool FileSystemImpl::IsTold(ObjectId file) {
  const FilePtr open = UsedNow(file);
  // Of layers that keep something, OnBreak() is told. Where the bytes are used together with other
  // clients nothing breaks when they write; what was read before that began is forgotten by then.
  if (open != nullptr && open->holds_back) return !open->MayBeShared();
  return IsLeased() && known_.IsPromised(file);
}

WaitBoard::Errands FileSystemImpl::TellKeepers(ObjectId id) {
  std::map<uint64_t, Forget> keepers;
  {
    MutexLock lock(keepers_mutex_);
    if (keepers_.empty()) return nullptr;
    keepers = keepers_;
    ++telling_keepers_;
  }
  WaitBoard::Errands errands = WaitBoard::Begin(static_cast<int>(keepers.size()));
  for (const auto& [number, forget] : keepers) {
    forget(id, [board = board_, errands] { board->Done(errands); });
  }
  MutexLock lock(keepers_mutex_);
  --telling_keepers_;
  keepers_changed_.SignalAll();
  return errands;
}

void FileSystemImpl::HaveForgotten(ObjectId id) {
  if (const auto errands = TellKeepers(id)) board_->AwaitErrands(errands);
}

void FileSystemImpl::ForgetSoon(ObjectId id) {
  if (IsOpenAndPlain(id)) TellKeepers(id);
}

absl::Status FileSystemImpl::CheckStacks() const {
  for (const std::string& text : {info_.file_stack, info_.directory_stack}) {
    ABACUS_RETURN_IF_ERROR(CheckStackText(text));
  }
  return absl::OkStatus();
}

absl::Status FileSystemImpl::CheckStackText(const std::string& text) const {
  const auto vacant = std::count_if(info_.servers.begin(), info_.servers.end(), IsVacant);
  return CheckFileStack(text, kinds_, info_.servers.size() - static_cast<size_t>(vacant));
}

// -- inodes ---------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Node>> FileSystemImpl::AskForNodes(const std::vector<ObjectId>& ids) {
  std::vector<uint64_t> seen;
  seen.reserve(ids.size());
  for (const ObjectId id : ids) seen.push_back(known_.Seen(id));
  const std::vector<KnownInode> returned = known_.TakeReturned();
  // Of these nobody is told any more.
  for (const KnownInode& known : returned) ForgetSoon(known.id);
  absl::StatusOr<KnownNodes> told = volume_->Know(info_.writer, ids, returned);
  if (!told.ok()) {
    known_.PutBack(returned);
    return told.status();
  }
  if (told->nodes.size() != ids.size() || told->given.size() != ids.size()) {
    return absl::InternalError("the volume did not tell of as many inodes as it was asked for");
  }
  for (size_t i = 0; i < ids.size(); ++i) known_.Keep(told->nodes[i], told->given[i], seen[i]);
  return std::move(told->nodes);
}

absl::StatusOr<std::vector<Node>> FileSystemImpl::NodesOf(const std::vector<ObjectId>& ids) {
  const auto is_own = [this](ObjectId id) { return IsOwn(id); };
  if (siblings_ != nullptr && !std::all_of(ids.begin(), ids.end(), is_own)) return NodesOfAll(ids);
  std::vector<Node> nodes(ids.size());
  std::vector<ObjectId> asked;
  std::vector<size_t> places;
  const bool leased = IsLeased();
  for (size_t i = 0; i < ids.size(); ++i) {
    std::optional<Node> known = leased ? known_.Find(ids[i]) : std::nullopt;
    if (known.has_value()) {
      nodes[i] = *std::move(known);
    } else {
      asked.push_back(ids[i]);
      places.push_back(i);
    }
  }
  if (asked.empty()) return nodes;
  ABACUS_ASSIGN_OR_RETURN(std::vector<Node> told, AskForNodes(asked));
  for (size_t i = 0; i < places.size(); ++i) nodes[places[i]] = std::move(told[i]);
  return nodes;
}

absl::StatusOr<Node> FileSystemImpl::OnlyOf(absl::StatusOr<std::vector<Node>> nodes, ObjectId id) {
  if (!nodes.ok()) return nodes.status();
  // Of an object that is not there 0 is told, which is nobody's number.
  if (id != 0 && nodes->front().id == id) return std::move(nodes->front());
  return FsStatus(FsError::kStale, absl::StrCat("object ", id, " is no more"));
}

absl::StatusOr<Node> FileSystemImpl::NodeOf(ObjectId id) {
  return OnlyOf(NodesOf(std::vector<ObjectId>{id}), id);
}

absl::StatusOr<Node> FileSystemImpl::StatAtVolume(ObjectId id) {
  return OnlyOf(AskForNodes(std::vector<ObjectId>{id}), id);
}

absl::StatusOr<Node> FileSystemImpl::ChangeInode(ObjectId id, const InodeChange& change) {
  Knowledge::Change lasting(known_, id);
  absl::StatusOr<Node> changed =
      WhenForgotten([&] { return volume_->Change(info_.writer, id, change); });
  if (changed.ok()) lasting.Became(*changed, {});
  return changed;
}

// The anchored layers are the volume's: they are there already, under `bottom`.
absl::StatusOr<BuiltStack> FileSystemImpl::BuildOver(const std::string& text,
                                                     const Ref<Layer>& bottom) {
  ABACUS_ASSIGN_OR_RETURN(const Stack stack, ParseStack(text));
  LayerHost host = host_.layers;
  host.make = [this, &bottom](const LayerKind& kind, const std::vector<Ref<Layer>>& below,
                              const std::vector<std::pair<std::string, std::string>>& options,
                              size_t place) -> absl::StatusOr<Ref<Layer>> {
    if (kind.anchored) return bottom;
    return host_.layers.make(kind, below, options, place);
  };
  host.end = [this, &bottom](const Ref<Layer>& layer) {
    if (!(layer == bottom)) host_.layers.end(layer);
  };
  ABACUS_ASSIGN_OR_RETURN(BuiltStack built, BuildStack(stack, kinds_, host));
  // What is left are the layers of this client's, top first.
  while (built.layers.size() > 1 && built.layers[built.layers.size() - 2] == bottom) {
    built.layers.pop_back();
  }
  return built;
}

void FileSystemImpl::EndStack(const BuiltStack& stack) {
  for (size_t i = 0; i + 1 < stack.layers.size(); ++i) host_.layers.end(stack.layers[i]);
}

absl::StatusOr<Node> FileSystemImpl::Stat(ObjectId file) {
  ABACUS_ASSIGN_OR_RETURN(Node node, NodeOf(file));
  return AsWrittenHere(std::move(node));
}

absl::StatusOr<Node> FileSystemImpl::AsWrittenHere(Node node) {
  if (node.kept_by != 0 && node.kept_by != info_.writer) {
    const ObjectId file = node.id;
    ABACUS_RETURN_IF_ERROR(
        Patiently(file, false, [&] { return volume_->Settle(info_.writer, file); }));
    ABACUS_ASSIGN_OR_RETURN(node, StatAtVolume(file));
  }
  const FilePtr open = UsedNow(node.id);
  const int64_t written_ns = open == nullptr ? 0 : open->written_ns.load();
  if (written_ns == 0) {
    // What was held back here when the volume was asked has been pushed since.
    return node.kept_by == info_.writer ? StatAtVolume(node.id) : std::move(node);
  }
  const absl::StatusOr<Attributes> attributes =
      Patiently(*open, [&] { return open->top()->GetAttributes(Now()); });
  // It was closed meanwhile, and pushed before.
  if (absl::IsNotFound(attributes.status())) return StatAtVolume(node.id);
  if (!attributes.ok()) return attributes.status();
  node.size = attributes->size;
  node.inode.modified_ns = node.inode.changed_ns = written_ns;
  return node;
}

// -- what is told many at a time, or asked for
// ------------------------------------------------------

// With layers of this client's go promises of the file's bytes, which others may be waiting for.
// What another client has just changed, or may change untold, may have lost its name.
absl::Status FileSystemImpl::Close(const OpenFile& file) {
  if (file.holds_back || file.nameless || file.spread || !known_.IsPromised(file.id)) {
    return volume_->Close(info_.writer, file.id);
  }
  bool many = false;
  {
    MutexLock lock(mutex_);
    closings_[file.id] = file.stack.layers.back();
    many = closings_.size() >= kClosingsMax;
  }
  if (many) SendClosings();
  return absl::OkStatus();
}

Ref<Layer> FileSystemImpl::TakeClosing(ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = closings_.find(id);
  if (found == closings_.end()) return {};
  Ref<Layer> layer = std::move(found->second);
  closings_.erase(found);
  return layer;
}

// Where the volume cannot be told, its client has left, or leaves soon.
void FileSystemImpl::SendClosings() {
  absl::flat_hash_map<ObjectId, Ref<Layer>> closings;
  {
    MutexLock lock(mutex_);
    closings.swap(closings_);
  }
  if (closings.empty()) return;
  std::vector<ObjectId> ids;
  ids.reserve(closings.size());
  for (const auto& [id, layer] : closings) ids.push_back(id);
  volume_->CloseAll(info_.writer, ids).IgnoreError();
}

absl::StatusOr<ObjectId> FileSystemImpl::NewId() {
  {
    MutexLock lock(mutex_);
    if (!new_ids_.empty()) {
      const ObjectId id = new_ids_.back();
      new_ids_.pop_back();
      return id;
    }
  }
  ABACUS_ASSIGN_OR_RETURN(std::vector<ObjectId> ids, volume_->Reserve(info_.writer, kIdsAtOnce));
  if (ids.empty()) return absl::InternalError("the volume gave no identifiers");
  const ObjectId id = ids.front();
  MutexLock lock(mutex_);
  new_ids_.insert(new_ids_.end(), ids.rbegin(), ids.rend() - 1);
  return id;
}

void FileSystemImpl::GiveBackId(ObjectId id) {
  MutexLock lock(mutex_);
  new_ids_.push_back(id);
}

absl::StatusOr<FileSystemImpl::MadeFile> FileSystemImpl::KnowMade(ObjectId id,
                                                                  const Outcome& outcome,
                                                                  uint64_t seen) {
  const auto node = std::find_if(outcome.nodes.begin(), outcome.nodes.end(),
                                 [id](const Node& one) { return one.id == id; });
  if (node == outcome.nodes.end() || !outcome.made.has_value()) {
    return absl::InternalError("the volume did not tell of the object that it made");
  }
  known_.Keep(*node, outcome.made->given, seen);
  return MadeFile{*node, outcome.made->layer};
}

absl::StatusOr<VolumeSpace> FileSystemImpl::Space() { return volume_->Space(); }

absl::StatusOr<std::string> FileSystemImpl::StackOf(ObjectId file) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(file));
  if (node.inode.IsDirectory()) return info_.directory_stack;
  return node.inode.stack.empty() ? info_.file_stack : node.inode.stack;
}

}  // namespace abacus::objfs
