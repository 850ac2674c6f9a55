// FileSystem: inodes and open files.

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "objfs/fs/file_system_impl.h"
#include "objfs/fs/permissions.h"
#include "objfs/fs/stack_rules.h"
#include "objfs/volume/shard.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Block;
using runtime::MutexLock;
using runtime::Ref;

namespace {

constexpr uint64_t kCopyBytes = uint64_t{1} << 20;
constexpr size_t kStateBytesMax = 65536;  // what the kernel takes as an attribute

bool HoldsBack(const BuiltStack& stack) { return stack.layers.size() > 1; }

// To the layers an offset beyond their limit is an argument like any other that is wrong.
absl::Status CheckEnd(uint64_t offset, uint64_t bytes) {
  if (offset <= Layer::kFileBytesMax && bytes <= Layer::kFileBytesMax - offset) {
    return absl::OkStatus();
  }
  return FsStatus(FsError::kTooBig, "beyond the largest file there can be");
}

// Of the file's own bytes an unprivileged writer may make no program that runs as its owner.
bool HasSetId(const Inode& inode) {
  return inode.IsRegular() && (inode.mode & (S_ISUID | S_ISGID)) != 0;
}

absl::Status CheckXattr(const Caller& caller, const std::string& name) {
  if (name.empty() || name.size() > Inode::kXattrNameBytesMax) {
    return FsStatus(FsError::kInvalid, absl::StrCat("the name of an extended attribute has 1 to ",
                                                    Inode::kXattrNameBytesMax, " bytes"));
  }
  if (absl::StartsWith(name, "system.")) {
    return FsStatus(FsError::kNotSupported, "there are no access control lists");
  }
  if (absl::StartsWith(name, "trusted.") && caller.uid != 0) {
    return FsStatus(FsError::kNotPermitted, "trusted attributes are the superuser's");
  }
  return absl::OkStatus();
}

}  // namespace

// -- inodes ---------------------------------------------------------------------------------------

absl::StatusOr<Node> FileSystemImpl::Set(const Caller& caller, ObjectId file,
                                         const SetAttributes& set) {
  ABACUS_ASSIGN_OR_RETURN(Node node, NodeOf(file));
  const bool sets_times = set.modified_now || set.modified_ns.has_value();
  // Those who write it together tell when they did so now and then. Where this client is promised
  // to know the inode there are none.
  const bool may_be_shared = node.inode.IsSpread() && sets_times && !known_.IsPromised(file);
  if ((node.kept_by != 0 && node.kept_by != info_.writer) || may_be_shared) {
    // What another client wrote before is older than what is set now.
    ABACUS_RETURN_IF_ERROR(
        Patiently(file, false, [&] { return volume_->Settle(info_.writer, file); }));
    ABACUS_ASSIGN_OR_RETURN(node, StatAtVolume(file));
  }
  ABACUS_RETURN_IF_ERROR(MaySet(caller, node.inode, set));
  const bool is_open = UsedNow(file) != nullptr;
  if (set.size.has_value() || is_open) {
    if (set.size.has_value() && !node.inode.IsRegular()) {
      return node.inode.IsDirectory() ? FsStatus(FsError::kIsDirectory, "it is a directory")
                                      : FsStatus(FsError::kInvalid, "it has no size");
    }
    ABACUS_RETURN_IF_ERROR(CheckEnd(0, set.size.value_or(0)));
    const Knowledge::Change lasting(known_, file);
    ABACUS_ASSIGN_OR_RETURN(const FilePtr open, Use(node));
    // What was written before is older than the times that are set now.
    absl::Status status = PushFile(*open);
    if (status.ok() && set.size.has_value()) {
      status = Patiently(*open, [&] { return open->top()->Truncate(*set.size, Now()); });
      ++open->changes;
    }
    status.Update(Unuse(file));
    if (!status.ok()) return status;
  }
  const InodeChange change = ChangeOf(caller, node.inode, set);
  // The truncation has set the times that it sets.
  ABACUS_ASSIGN_OR_RETURN(Node changed, ChangeInode(file, change));
  return changed;
}

absl::Status FileSystemImpl::Access(const Caller& caller, ObjectId file, int want) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(file));
  return MayAccess(caller, node.inode, want);
}

absl::StatusOr<std::string> FileSystemImpl::GetXattr(const Caller& caller, ObjectId file,
                                                     const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckXattr(caller, name));
  ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(file));
  ABACUS_RETURN_IF_ERROR(MayAccess(caller, node.inode, R_OK));
  if (name == kOwnStackXattr) return StackOf(file);
  if (name == kStateXattr) return StateOf(node);
  if (name == kColumnsXattr && node.inode.IsSpread()) return ColumnsOfFile(node);
  const auto found = node.inode.xattrs.find(name);
  if (found != node.inode.xattrs.end() && !IsServersXattr(name)) return found->second;
  return FsStatus(FsError::kNoAttribute, absl::StrCat("there is no attribute '", name, "'"));
}

absl::Status FileSystemImpl::CheckOwnXattr(const XattrChange& change) const {
  if (change.name == kOwnStackXattr || change.name == kColumnsXattr) {
    return FsStatus(FsError::kNotPermitted, "a file keeps the stack that it was made with");
  }
  if (change.name == kStateXattr) {
    return FsStatus(FsError::kNotPermitted, "what layers tell of themselves can be read only");
  }
  if (change.name == kShardsXattr) {
    return FsStatus(FsError::kNotPermitted, "the servers alone say how many shards a volume has");
  }
  if (change.name == kFileStackXattr) {
    return FsStatus(FsError::kNotPermitted, "a volume keeps the stack that it was made with");
  }
  if (!change.value.has_value()) return absl::OkStatus();
  if (change.name == kStackXattr) return CheckStackText(*change.value);
  if (change.name == kSpreadXattr && change.value != "yes" && change.value != "no") {
    return FsStatus(FsError::kInvalid,
                    absl::StrCat(kSpreadXattr, " is 'yes' or 'no': whether the directories that ",
                                 "are made in it are spread over the volume's shards"));
  }
  if (change.name == kStackRulesXattr) {
    ABACUS_ASSIGN_OR_RETURN(const auto rules, ParseStackRules(*change.value));
    for (const StackRule& rule : rules) ABACUS_RETURN_IF_ERROR(CheckStackText(rule.stack));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FileSystemImpl::StateOf(const Node& node) {
  std::string text;
  ABACUS_ASSIGN_OR_RETURN(const FilePtr open, Use(node));
  absl::Status status;
  for (const Ref<Layer>& layer : open->stack.layers) {
    const absl::StatusOr<LayerState> state = layer->Describe();
    status.Update(state.status());
    if (!status.ok()) break;
    absl::StrAppend(&text, state->kind, "\n");
    for (const auto& [name, value] : state->facts) {
      absl::StrAppend(&text, "  ", name, ": ", value, "\n");
    }
  }
  status.Update(Unuse(node.id));
  if (!status.ok()) return status;
  if (text.size() > kStateBytesMax) text.resize(kStateBytesMax);
  return text;
}

absl::Status FileSystemImpl::ChangeXattr(const Caller& caller, ObjectId file, XattrChange change) {
  ABACUS_RETURN_IF_ERROR(CheckXattr(caller, change.name));
  ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(file));
  ABACUS_RETURN_IF_ERROR(MayAccess(caller, node.inode, W_OK));
  if (absl::StartsWith(change.name, "user.") && !node.inode.IsRegular() &&
      !node.inode.IsDirectory()) {
    return FsStatus(FsError::kNotPermitted, "only files and directories have user attributes");
  }
  ABACUS_RETURN_IF_ERROR(CheckOwnXattr(change));
  InodeChange changes;
  changes.touch_changed = true;
  changes.xattrs.push_back(std::move(change));
  const absl::StatusOr<Node> changed = ChangeInode(file, changes);
  if (absl::IsAlreadyExists(changed.status())) {
    return FsStatus(FsError::kExists, runtime::ToStd(changed.status().message()));
  }
  // Not that the volume is gone.
  const bool answered = runtime::KindOf(changed.status()) == runtime::ErrorKind::kNone;
  if (answered && absl::IsNotFound(changed.status())) {
    return FsStatus(FsError::kNoAttribute, runtime::ToStd(changed.status().message()));
  }
  return changed.status();
}

absl::Status FileSystemImpl::SetXattr(const Caller& caller, ObjectId file, const std::string& name,
                                      const std::string& value, XattrRule rule) {
  return ChangeXattr(caller, file, {name, value, rule});
}

absl::Status FileSystemImpl::RemoveXattr(const Caller& caller, ObjectId file,
                                         const std::string& name) {
  return ChangeXattr(caller, file, {name, std::nullopt, XattrRule::kMustExist});
}

absl::StatusOr<std::vector<std::string>> FileSystemImpl::ListXattrs(const Caller& caller,
                                                                    ObjectId file) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(file));
  std::vector<std::string> names;
  for (const auto& [name, value] : node.inode.xattrs) {
    if (IsServersXattr(name)) continue;
    if (!absl::StartsWith(name, "trusted.") || caller.uid == 0) names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::string> FileSystemImpl::ReadLink(const Caller&, ObjectId link) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(link));
  if (!S_ISLNK(node.inode.mode)) return FsStatus(FsError::kInvalid, "it is no symbolic link");
  ABACUS_ASSIGN_OR_RETURN(const FilePtr open, Use(node));
  const auto target = open->top()->Read(0, node.size, Now());
  const absl::Status unused = Unuse(link);
  if (!target.ok()) return target.status();
  ABACUS_RETURN_IF_ERROR(unused);
  return std::string(target->bytes.view());
}

// -- the stacks of open files ---------------------------------------------------------------------

FileSystemImpl::FilePtr FileSystemImpl::UsedNow(ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = files_.find(id);
  return found == files_.end() ? nullptr : found->second;
}

absl::StatusOr<FileSystemImpl::FilePtr> FileSystemImpl::Use(const Node& node,
                                                            const Ref<Layer>& opened) {
  const ObjectId id = node.id;
  const Turns::Turn turn(openings_, id);
  const auto use_again = [&]() -> FilePtr {
    MutexLock lock(mutex_);
    const auto found = files_.find(id);
    if (found == files_.end()) return nullptr;
    ++found->second->uses;
    return found->second;
  };
  if (FilePtr file = use_again()) {
    // For all uses the volume has it open once.
    if (opened) volume_->Close(info_.writer, id).IgnoreError();
    return file;
  }
  Ref<Layer> there = TakeClosing(id);
  if (there && opened) volume_->Close(info_.writer, id).IgnoreError();
  if (opened) there = opened;
  auto bottom = there ? there : volume_->Open(info_.writer, id);
  const bool answered = runtime::KindOf(bottom.status()) == runtime::ErrorKind::kNone;
  if (answered && absl::IsNotFound(bottom.status())) {
    return FsStatus(FsError::kStale, runtime::ToStd(bottom.status().message()));
  }
  if (!bottom.ok()) return bottom.status();
  auto file = std::make_shared<OpenFile>();
  file->id = id;
  // Only regular files are worth layers of their own.
  const std::string& own = node.inode.stack.empty() ? info_.file_stack : node.inode.stack;
  absl::Status built;
  if (node.inode.IsSpread()) {
    built = BuildSpread(own, *bottom, file.get());
  } else {
    auto stack = BuildOver(node.inode.IsRegular() ? own : info_.directory_stack, *bottom);
    built = stack.status();
    if (stack.ok()) file->stack = *std::move(stack);
  }
  if (!built.ok()) {
    volume_->Close(info_.writer, id).IgnoreError();
    return built;
  }
  file->holds_back = HoldsBack(file->stack);
  if (file->stack.layers.size() > 1) {
    file->front_end = std::make_shared<LazyFrontEnd>(host_.make_front_end);
  }
  // What breaks is told to the lowest of this client's layers, and goes up from there.
  const bool is_told =
      file->stack.layers.size() > 2 && !(file->top().base() == file->spread.base());
  if (is_told) {
    const absl::Status attached =
        file->stack.layers[1]->Attach(info_.writer, file->stack.layers[0]);
    if (!attached.ok()) {
      EndStack(file->stack);
      volume_->Close(info_.writer, id).IgnoreError();
      return attached;
    }
  }
  file->uses = 1;
  MutexLock lock(mutex_);
  files_[id] = file;
  return file;
}

absl::Status FileSystemImpl::Unuse(ObjectId id) {
  const Turns::Turn turn(openings_, id);
  FilePtr file;
  {
    MutexLock lock(mutex_);
    file = files_.at(id);
    if (file->uses > 1) {
      --file->uses;
      return absl::OkStatus();
    }
  }
  absl::Status pushed = PushFile(*file);
  // The next who opens it finds it whole, whatever server is away then.
  if (file->spread) pushed.Update(file->spread->GiveUp(Now()));
  {
    MutexLock lock(mutex_);
    files_.erase(id);
  }
  EndStack(file->stack);
  const absl::Status closed = Close(*file);
  return pushed.ok() ? closed : pushed;
}

absl::Status FileSystemImpl::PushFile(OpenFile& file, bool waits) {
  // What is still here is pushed all the same: it may be the last time.
  const bool has_given_back = file.has_given_back.exchange(false);
  const auto push = [&]() -> absl::Status {
    if (!file.holds_back || (file.written_ns == 0 && !has_given_back)) return absl::OkStatus();
    const int64_t written_ns = file.written_ns;
    // The volume would not take it from a client that it has given up.
    ABACUS_RETURN_IF_ERROR(CheckLease());
    ABACUS_RETURN_IF_ERROR(file.top()->Push(Now()));
    return TellWhenWritten(file, written_ns, waits);
  };
  absl::Status status = push();
  if (!status.ok() && has_given_back) file.has_given_back = true;
  MutexLock lock(mutex_);
  return status.ok() ? std::exchange(file.late, absl::OkStatus()) : status;
}

absl::Status FileSystemImpl::TellWhenWritten(OpenFile& file, int64_t written_ns, bool waits) {
  if (written_ns == 0) return absl::OkStatus();
  // Written when it was written here, whenever the volume heard of it.
  const Knowledge::Change lasting(known_, file.id);
  const auto tell = [&] { return volume_->TellWhenWritten(info_.writer, file.id, written_ns); };
  const absl::Status told = waits ? WhenForgotten(tell) : tell();
  if (!waits && IsWouldBlock(told)) return absl::OkStatus();
  ABACUS_RETURN_IF_ERROR(told);
  int64_t expected = written_ns;
  file.written_ns.compare_exchange_strong(expected, 0);
  return absl::OkStatus();
}

// -- what another joining of this client had ------------------------------------------------------

absl::Status FileSystemImpl::LeaveBehind(OpenFile& file, bool server_lost) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    status = std::exchange(file.late, absl::OkStatus());
  }
  absl::Status left;
  if (file.unusable.ok()) left = PushFile(file, /*waits=*/false);
  if (server_lost) {
    left.Update(absl::DataLossError("the server ended before all of it was durable"));
  } else if (file.spread) {
    // Whoever opens the columns next shuts this one out. Where the layer over them died with its
    // node, sizes and records died that no push asks for.
    left.Update(file.spread->GiveUp(Now()));
  }
  // What was synced is there, whatever answers now.
  if (file.changes != file.synced) status.Update(left);
  if (status.ok()) return status;
  return FsStatus(FsError::kInputOutput, absl::StrCat("what was written to object ", file.id,
                                                      " is lost: ", status.message()));
}

std::map<ObjectId, absl::Status> FileSystemImpl::TakeLosses(bool server_lost,
                                                            FileSystemImpl& heir) {
  std::set<FilePtr> files;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, file] : files_) files.insert(file);
    for (const auto& [number, handle] : handles_) files.insert(handle.file);  // unusable ones too
  }
  std::map<ObjectId, absl::Status> losses;
  for (const FilePtr& file : files) {
    losses[file->id].Update(LeaveBehind(*file, server_lost));
    if (!file->spread || server_lost) continue;
    // Each may take its time, and nobody else renews meanwhile.
    RenewLease().IgnoreError();
    heir.RenewLease().IgnoreError();
  }
  return losses;
}

std::vector<ObjectId> FileSystemImpl::OpenFiles() {
  std::vector<ObjectId> ids;
  MutexLock lock(mutex_);
  for (const auto& [id, file] : files_) ids.push_back(id);
  return ids;
}

FileSystemImpl::FilePtr FileSystemImpl::OpenAgain(ObjectId id) {
  absl::StatusOr<Node> node = StatAtVolume(id);
  absl::StatusOr<FilePtr> file =
      node.ok() ? Use(*node) : absl::StatusOr<FilePtr>(std::move(node).status());
  if (file.ok()) return *std::move(file);
  auto none = std::make_shared<OpenFile>();
  none->id = id;
  none->unusable = std::move(file).status();
  return none;
}

void FileSystemImpl::TakeOver(FileSystemImpl& before, bool server_lost) {
  std::map<ObjectId, absl::Status> losses = before.TakeLosses(server_lost, *this);
  std::map<ObjectId, absl::Status> lost_locks;
  for (const ObjectId id : before.locks_->LockedFiles()) {
    lost_locks[id] =
        FsStatus(FsError::kInputOutput, absl::StrCat("the locks of object ", id, " are lost"));
  }
  locks_->GoOnFrom(*before.locks_);
  last_handle_ = before.last_handle_.load();
  std::vector<std::pair<FileHandle, Handle>> handles;
  {
    MutexLock lock(before.mutex_);
    handles.assign(before.handles_.begin(), before.handles_.end());
  }
  for (auto& [number, handle] : handles) {
    lost_locks[handle.file->id].Update(handle.file->lost_locks);
    // With the server lost it is told already.
    const bool unsynced = !server_lost && handle.file->changes != handle.file->synced;
    handle.file = OpenAgain(handle.file->id);
    if (unsynced) ++handle.file->changes;
    MutexLock lock(mutex_);
    // Also where it cannot be opened now: it may be, later.
    handle.file->late.Update(losses[handle.file->id]);
    handle.file->lost_locks.Update(lost_locks[handle.file->id]);
    handles_[number] = std::move(handle);
  }
}

// -- open files -----------------------------------------------------------------------------------

FileSystemImpl::Handle FileSystemImpl::HandleFor(const Caller& caller, const Inode& inode,
                                                 int flags) {
  const int mode = flags & O_ACCMODE;
  Handle handle;
  handle.may_read = mode != O_WRONLY;
  handle.may_write = mode != O_RDONLY;
  handle.drops_setid = !caller.checked && caller.uid != 0 && HasSetId(inode);
  return handle;
}

FileHandle FileSystemImpl::Numbered(Handle handle) {
  const FileHandle number = ++last_handle_;
  MutexLock lock(mutex_);
  handles_[number] = std::move(handle);
  return number;
}

absl::StatusOr<FileHandle> FileSystemImpl::Open(const Caller& caller, ObjectId file, int flags) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(file));
  Handle handle = HandleFor(caller, node.inode, flags);
  if (node.inode.IsDirectory()) return FsStatus(FsError::kIsDirectory, "it is a directory");
  if (!node.inode.IsRegular()) return FsStatus(FsError::kInvalid, "it has no bytes to open");
  const int want = (handle.may_read ? R_OK : 0) | (handle.may_write ? W_OK : 0);
  ABACUS_RETURN_IF_ERROR(MayAccess(caller, node.inode, want));
  ABACUS_ASSIGN_OR_RETURN(handle.file, Use(node));
  if ((flags & O_TRUNC) != 0 && handle.may_write) {
    Knowledge::Change lasting(known_, file);
    lasting.IsOfBytes();
    const absl::Status cut =
        Patiently(*handle.file, [&] { return handle.file->top()->Truncate(0, Now()); });
    ++handle.file->changes;
    if (!cut.ok()) {
      Unuse(file).IgnoreError();
      return cut;
    }
  }
  return Numbered(std::move(handle));
}

absl::StatusOr<FileSystemImpl::Handle> FileSystemImpl::HandleOf(FileHandle handle) {
  MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) {
    return FsStatus(FsError::kBadHandle, absl::StrCat("no file is open as ", handle));
  }
  OpenFile& file = *found->second.file;
  if (!file.unusable.ok()) return file.unusable;
  ABACUS_RETURN_IF_ERROR(std::exchange(file.lost_locks, absl::OkStatus()));
  return found->second;
}

absl::Status FileSystemImpl::Release(FileHandle handle) {
  ObjectId id = 0;
  {
    MutexLock lock(mutex_);
    const auto found = handles_.find(handle);
    if (found == handles_.end()) {
      return FsStatus(FsError::kBadHandle, absl::StrCat("no file is open as ", handle));
    }
    id = found->second.file->id;
    const bool is_usable = found->second.file->unusable.ok();
    handles_.erase(found);
    if (!is_usable) return absl::OkStatus();
  }
  return Unuse(id);
}

absl::StatusOr<Block> FileSystemImpl::Read(FileHandle handle, uint64_t offset, uint64_t bytes) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.may_read) return FsStatus(FsError::kBadHandle, "it is open for writing only");
  ABACUS_ASSIGN_OR_RETURN(ReadResult read, Patiently(*open.file, [&] {
                            return open.file->top()->Read(offset, bytes, Now());
                          }));
  SeeSize(*open.file);
  return std::move(read.bytes);
}

// A client that died may not have told the size that the columns have. Whoever opened them now has
// told it, by a change of this client's own, which ends nothing of what is known here.
void FileSystemImpl::SeeSize(OpenFile& file) {
  if (!file.spread || file.size_seen.exchange(true)) return;
  const absl::StatusOr<Attributes> attributes = file.top()->GetAttributes(Now());
  if (!attributes.ok()) {
    file.size_seen = false;
    return;
  }
  const std::optional<Node> known = known_.Find(file.id);
  if (!known.has_value() || known->size == attributes->size) return;
  Knowledge::Change lasting(known_, file.id);
  lasting.IsOfBytes();
}

absl::Status FileSystemImpl::Write(FileHandle handle, uint64_t offset, const Block& bytes) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.may_write) return FsStatus(FsError::kBadHandle, "it is open for reading only");
  ABACUS_RETURN_IF_ERROR(CheckEnd(offset, bytes.size()));
  Knowledge::Change lasting(known_, open.file->id);
  lasting.IsOfBytes();
  ABACUS_RETURN_IF_ERROR(
      Patiently(*open.file, [&] { return open.file->top()->Write(offset, bytes, Now()); }));
  return Written(handle, open);
}

absl::StatusOr<uint64_t> FileSystemImpl::Append(FileHandle handle, const Block& bytes) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.may_write) return FsStatus(FsError::kBadHandle, "it is open for reading only");
  Knowledge::Change lasting(known_, open.file->id);
  lasting.IsOfBytes();
  ABACUS_ASSIGN_OR_RETURN(const uint64_t offset, Patiently(*open.file, [&] {
                            return open.file->top()->Append(bytes, Now());
                          }));
  ABACUS_RETURN_IF_ERROR(Written(handle, open));
  return offset;
}

absl::Status FileSystemImpl::Written(FileHandle handle, const Handle& open) {
  ++open.file->changes;
  if (open.file->holds_back) {
    open.file->Wrote(host_.now_us() * 1000);
    // Where the lease ran out meanwhile, the promise may have been another client's already.
    ABACUS_RETURN_IF_ERROR(CheckLease());
  }
  if (!open.drops_setid) return absl::OkStatus();
  InodeChange change;
  change.drop_setid = true;
  ABACUS_RETURN_IF_ERROR(ChangeInode(open.file->id, change).status());
  MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found != handles_.end()) found->second.drops_setid = false;
  return absl::OkStatus();
}

absl::Status FileSystemImpl::Push(FileHandle handle) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  const FrontEndWork work(open.file->front_end);
  return PushFile(*open.file);
}

absl::Status FileSystemImpl::Sync(FileHandle handle) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  const FrontEndWork work(open.file->front_end);
  const uint64_t changes = open.file->changes;
  ABACUS_RETURN_IF_ERROR(PushFile(*open.file));
  // Through the layers, which may have to make something durable of their own.
  ABACUS_RETURN_IF_ERROR(open.file->top()->Flush(Now()));
  open.file->synced = changes;
  return absl::OkStatus();
}

// Of a file on one server times are where its bytes are, and cost nothing more. Of one with columns
// they are told with the next push.
absl::Status FileSystemImpl::SyncData(FileHandle handle) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.file->spread) return Sync(handle);
  const FrontEndWork work(open.file->front_end);
  const uint64_t changes = open.file->changes;
  ABACUS_RETURN_IF_ERROR(CheckLease());
  ABACUS_RETURN_IF_ERROR(open.file->top()->FlushData(Now()));
  open.file->synced = changes;
  MutexLock lock(mutex_);
  return std::exchange(open.file->late, absl::OkStatus());
}

absl::Status FileSystemImpl::SyncDirectory(ObjectId directory) {
  return volume_->Flush(std::vector<ObjectId>{directory});
}

absl::Status FileSystemImpl::Allocate(FileHandle handle, int mode, uint64_t offset,
                                      uint64_t bytes) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.may_write) return FsStatus(FsError::kBadHandle, "it is open for reading only");
  if (bytes == 0) return FsStatus(FsError::kInvalid, "no bytes to allocate");
  ABACUS_RETURN_IF_ERROR(CheckEnd(offset, bytes));
  Knowledge::Change lasting(known_, open.file->id);
  lasting.IsOfBytes();
  const auto touch = absl::MakeCleanup([&] {
    ++open.file->changes;
    if (open.file->holds_back) open.file->Wrote(host_.now_us() * 1000);
  });
  if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
    return Patiently(*open.file, [&] {
      return open.file->top()->Punch(Range{offset, bytes}, Now());
    });
  }
  // Blocks are never written in place, so that none can be set aside for a later write.
  if (mode == FALLOC_FL_KEEP_SIZE) return absl::OkStatus();
  if (mode != 0) return FsStatus(FsError::kNotSupported, "that kind of allocation");
  ABACUS_ASSIGN_OR_RETURN(const Attributes attributes, Patiently(*open.file, [&] {
                            return open.file->top()->GetAttributes(Now());
                          }));
  if (offset + bytes <= attributes.size) return absl::OkStatus();
  return Patiently(*open.file, [&] { return open.file->top()->Truncate(offset + bytes, Now()); });
}

absl::StatusOr<uint64_t> FileSystemImpl::Seek(FileHandle handle, uint64_t offset, bool data) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  const absl::StatusOr<uint64_t> at =
      Patiently(*open.file, [&] { return open.file->top()->Seek(offset, data, Now()); });
  if (!absl::IsOutOfRange(at.status())) return at;
  return FsStatus(FsError::kOutOfRange, runtime::ToStd(at.status().message()));
}

absl::StatusOr<uint64_t> FileSystemImpl::SeekData(FileHandle handle, uint64_t offset) {
  return Seek(handle, offset, true);
}
absl::StatusOr<uint64_t> FileSystemImpl::SeekHole(FileHandle handle, uint64_t offset) {
  return Seek(handle, offset, false);
}

absl::StatusOr<uint64_t> FileSystemImpl::CopyRange(FileHandle from, uint64_t from_offset,
                                                   FileHandle to, uint64_t to_offset,
                                                   uint64_t bytes) {
  uint64_t copied = 0;
  while (copied < bytes) {
    const absl::StatusOr<Block> block =
        Read(from, from_offset + copied, std::min(kCopyBytes, bytes - copied));
    if (!block.ok()) return copied > 0 ? absl::StatusOr<uint64_t>(copied) : block.status();
    if (block->empty()) break;
    const absl::Status written = Write(to, to_offset + copied, *block);
    if (!written.ok()) return copied > 0 ? absl::StatusOr<uint64_t>(copied) : written;
    copied += block->size();
  }
  return copied;
}

absl::Status FileSystemImpl::WithSubgraph(
    FileHandle handle, const std::function<absl::Status(const Subgraph&)>& call) {
  ABACUS_ASSIGN_OR_RETURN(const Handle open, HandleOf(handle));
  if (!open.may_read) return FsStatus(FsError::kBadHandle, "it is open for writing only");
  const OpenFile& file = *open.file;
  return Patiently(file.id, file.holds_back, [&] { return call(Subgraph{file.top(), Now()}); });
}

}  // namespace abacus::objfs
