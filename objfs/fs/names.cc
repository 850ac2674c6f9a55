// FileSystem: names.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/fs/file_system_impl.h"
#include "objfs/fs/permissions.h"
#include "objfs/fs/stack_rules.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

constexpr uint64_t kDot = 1, kDotDot = 2;  // cookies; those of entries follow

absl::Status CheckName(const std::string& name) {
  if (name.empty()) return FsStatus(FsError::kNoEntry, "an empty name");
  if (name.size() > Directory::kNameBytesMax) {
    return FsStatus(FsError::kNameTooLong,
                    absl::StrCat("a name has at most ", Directory::kNameBytesMax, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status NoEntry(const std::string& name) {
  return FsStatus(FsError::kNoEntry, absl::StrCat("there is no '", name, "'"));
}

Entry EntryOf(const Node& node) { return {node.id, node.inode.mode & S_IFMT}; }

// What a directory's inode takes of an entry that comes (+1) or goes (-1).
InodeChange NameChange(int entries, bool is_directory) {
  InodeChange change;
  change.entries = entries;
  change.links = is_directory ? entries : 0;
  change.touch_modified = change.touch_changed = true;
  return change;
}

// What an inode takes that loses a name: a directory its last one, and "." with it.
Part Unlinked(ObjectId id, bool is_directory) {
  Part part{.id = id};
  part.change.links = is_directory ? -2 : -1;
  part.change.touch_changed = true;
  part.must_be_empty = is_directory;
  part.must_be_linked = true;
  return part;
}

}  // namespace

// -- directory objects ----------------------------------------------------------------------------

FileSystemImpl::OpenDirectory::~OpenDirectory() {
  if (object) owner->host_.end_directory(object);
  owner->EndStack(stack);
  owner->volume_->Close(owner->info_.writer, id).IgnoreError();
}

absl::StatusOr<FileSystemImpl::DirectoryPtr> FileSystemImpl::DirectoryOf(ObjectId id) {
  const auto find = [this, id]() -> DirectoryPtr {
    MutexLock lock(mutex_);
    const auto found = directories_.find(id);
    if (found == directories_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second);
    return recent_.front();
  };
  if (DirectoryPtr directory = find()) return directory;
  const Turns::Turn turn(openings_, id);
  if (DirectoryPtr directory = find()) return directory;
  auto bottom = volume_->Open(info_.writer, id);
  if (!bottom.ok()) return bottom.status();
  auto made = std::make_shared<OpenDirectory>();
  made->owner = this;
  made->id = id;
  ABACUS_ASSIGN_OR_RETURN(made->stack, BuildOver(info_.directory_stack, *bottom));
  ABACUS_ASSIGN_OR_RETURN(made->object,
                          host_.make_directory(volume_, made->stack.top(), id, info_.writer));
  made->front_end = std::make_shared<LazyFrontEnd>(host_.make_front_end);
  DirectoryPtr oldest;
  {
    MutexLock lock(mutex_);
    recent_.push_front(made);
    directories_[id] = recent_.begin();
    if (recent_.size() > kDirectoriesMax) {
      oldest = std::move(recent_.back());
      directories_.erase(oldest->id);
      recent_.pop_back();
    }
  }
  return made;
}

std::shared_ptr<LazyFrontEnd> FileSystemImpl::FrontEndOf(ObjectId directory) {
  MutexLock lock(mutex_);
  const auto found = directories_.find(directory);
  return found == directories_.end() ? nullptr : (*found->second)->front_end;
}

void FileSystemImpl::ForgetDirectory(ObjectId id) {
  if (!IsOwn(id)) {
    const auto forget = [id](FileSystemImpl& there) {
      there.ForgetDirectory(id);
      return absl::OkStatus();
    };
    // Where its joining is being made anew, the new one has no directories yet.
    InShard(ShardOf(id), forget).IgnoreError();
    return;
  }
  DirectoryPtr forgotten;  // it ends when the lock is free
  MutexLock lock(mutex_);
  const auto found = directories_.find(id);
  if (found == directories_.end()) return;
  forgotten = std::move(*found->second);
  recent_.erase(found->second);
  directories_.erase(found);
}

absl::StatusOr<Node> FileSystemImpl::DirectoryNode(ObjectId id) {
  ABACUS_ASSIGN_OR_RETURN(Node node, NodeOf(id));
  if (node.inode.IsDirectory()) return node;
  return FsStatus(FsError::kNotDirectory, absl::StrCat("object ", id, " is no directory"));
}

// -- looking --------------------------------------------------------------------------------------

// What is kept of names is under the promise for the directory's inode: so that one has to be there
// before the directory object is asked.
absl::StatusOr<std::optional<Entry>> FileSystemImpl::EntryFor(Named& named, bool asks) {
  const ObjectId id = named.parent.id;
  const bool leased = IsLeased();
  const std::optional<uint64_t> seen = known_.SeenNames(id);
  if (leased && seen.has_value()) {
    if (auto known = known_.FindName(id, named.name)) return *std::move(known);
  }
  if (!asks) return std::nullopt;
  if (named.directory == nullptr) {
    ABACUS_ASSIGN_OR_RETURN(named.directory, DirectoryOf(id));
  }
  ABACUS_ASSIGN_OR_RETURN(std::optional<Entry> entry, named.directory->object->Lookup(named.name));
  if (seen.has_value()) known_.KeepName(id, named.name, entry, *seen);
  return entry;
}

absl::StatusOr<std::vector<ListedEntry>> FileSystemImpl::EntriesOf(ObjectId directory,
                                                                   uint64_t after, uint32_t max) {
  const bool leased = IsLeased();
  const std::optional<uint64_t> seen = known_.SeenNames(directory);
  if (leased && seen.has_value()) {
    if (auto known = known_.FindListed(directory, after, max)) return *std::move(known);
  }
  ABACUS_ASSIGN_OR_RETURN(const DirectoryPtr open, DirectoryOf(directory));
  ABACUS_ASSIGN_OR_RETURN(std::vector<ListedEntry> entries, open->object->List(after, max));
  if (seen.has_value()) known_.KeepListed(directory, after, max, entries, *seen);
  return entries;
}

absl::StatusOr<FileSystemImpl::Named> FileSystemImpl::Find(const Caller& caller, ObjectId directory,
                                                           const std::string& name, bool opens,
                                                           Finding finding) {
  Named named{.directory = nullptr, .parent = {}, .name = name, .entry = {}, .node = {}};
  ABACUS_ASSIGN_OR_RETURN(named.parent, DirectoryNode(directory));
  ABACUS_RETURN_IF_ERROR(MayAccess(caller, named.parent.inode, X_OK));
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  if (opens) {
    ABACUS_ASSIGN_OR_RETURN(named.directory, DirectoryOf(directory));
  }
  const bool asks = finding != Finding::kWhatIsKnown;
  ABACUS_ASSIGN_OR_RETURN(named.entry, EntryFor(named, asks));
  if (!named.entry.has_value() || finding == Finding::kEntry) return named;
  ABACUS_ASSIGN_OR_RETURN(std::vector<Node> nodes, NodesOf(std::vector<ObjectId>{named.entry->id}));
  // An entry whose object is gone is of a removal that is under way, or was cut off by a crash.
  if (nodes[0].id != 0) named.node = std::move(nodes[0]);
  return named;
}

absl::StatusOr<Node> FileSystemImpl::Lookup(const Caller& caller, ObjectId directory,
                                            const std::string& name) {
  const FrontEndWork work(FrontEndOf(directory));
  if (name == "." || name == "..") {
    ABACUS_ASSIGN_OR_RETURN(const Node node, DirectoryNode(directory));
    ABACUS_RETURN_IF_ERROR(MayAccess(caller, node.inode, X_OK));
    return name == "." ? node : NodeOf(node.inode.parent);
  }
  ABACUS_ASSIGN_OR_RETURN(Named named, Find(caller, directory, name, /*opens=*/false));
  if (named.node.id == 0) return NoEntry(name);
  // What is of another shard that one tells more of, to who is inside no joining: it may wait for
  // other clients (ShardedFileSystem).
  if (!IsOwn(named.node.id)) return std::move(named.node);
  return AsWrittenHere(std::move(named.node));
}

absl::StatusOr<std::vector<FileSystem::Listed>> FileSystemImpl::List(const Caller& caller,
                                                                     ObjectId directory,
                                                                     uint64_t cookie, uint32_t max,
                                                                     bool with_attributes) {
  const FrontEndWork work(FrontEndOf(directory));
  ABACUS_ASSIGN_OR_RETURN(const Node node, DirectoryNode(directory));
  ABACUS_RETURN_IF_ERROR(MayAccess(caller, node.inode, R_OK));
  std::vector<Listed> listed;
  const auto add = [&](std::string name, uint64_t at, ObjectId id, uint32_t type) {
    Listed one{.name = std::move(name), .cookie = at, .node = {}};
    one.node.id = id;
    one.node.inode.mode = type;
    listed.push_back(std::move(one));
  };
  if (cookie < kDot && max > 0) add(".", kDot, directory, S_IFDIR);
  if (cookie < kDotDot && listed.size() < max) {
    add("..", kDotDot, node.inode.parent, S_IFDIR);
  }
  if (listed.size() < max && node.inode.links > 0) {
    const uint64_t after = cookie <= kDotDot ? 0 : cookie - kDotDot;
    const auto left = static_cast<uint32_t>(max - listed.size());
    ABACUS_ASSIGN_OR_RETURN(std::vector<ListedEntry> entries, EntriesOf(directory, after, left));
    for (ListedEntry& entry : entries) {
      add(std::move(entry.name), entry.cookie + kDotDot, entry.entry.id, entry.entry.type);
    }
  }
  if (!with_attributes) return listed;
  std::vector<ObjectId> ids;
  ids.reserve(listed.size());
  for (const Listed& one : listed) ids.push_back(one.node.id);
  // Names are there whatever the servers of other shards do.
  ABACUS_ASSIGN_OR_RETURN(std::vector<Node> nodes, siblings_ == nullptr
                                                       ? NodesOf(ids)
                                                       : NodesOfAll(ids, /*needs_all=*/false));
  for (size_t i = 0; i < listed.size(); ++i) {
    if (nodes[i].id != 0) listed[i].node = std::move(nodes[i]);
  }
  return listed;
}

// -- changing -------------------------------------------------------------------------------------

absl::StatusOr<bool> FileSystemImpl::Settled(const absl::StatusOr<Outcome>& outcome) {
  if (IsChanged(outcome.status())) return false;
  if (absl::IsOutOfRange(outcome.status())) {
    return FsStatus(FsError::kTooManyLinks, runtime::ToStd(outcome.status().message()));
  }
  if (!outcome.ok()) return outcome.status();
  switch (outcome->state) {
    case CommitState::kCommitted:
      return true;
    case CommitState::kNotEmpty:
      return FsStatus(FsError::kNotEmpty, "the directory has entries");
    case CommitState::kGone:
    case CommitState::kStale:
    case CommitState::kTree:
      return false;
  }
  return absl::InternalError("a commit ended in a state that is not known");
}

absl::StatusOr<Outcome> FileSystemImpl::Commit(const OpenDirectory& directory,
                                               const std::vector<EntryChange>& changes,
                                               const InodeChange& own, std::vector<Part> others,
                                               const Trees& trees, uint32_t coordinator) {
  const auto is_own = [this](const Part& part) { return IsOwn(part.id); };
  const bool is_tree_own = siblings_ == nullptr || trees.size() == trees.count(siblings_->own());
  if (!is_tree_own || !std::all_of(others.begin(), others.end(), is_own)) {
    return CommitAcross(directory, changes, own, others, trees, coordinator);
  }
  std::optional<uint64_t> tree;
  if (!trees.empty()) tree = trees.begin()->second;
  std::vector<ObjectId> ids = {directory.id};
  std::vector<std::pair<ObjectId, Ref<Layer>>> closed;
  for (Part& part : others) {
    if (!part.creation.has_value()) ids.push_back(part.id);
    if (part.change.links >= 0) continue;
    if (Ref<Layer> layer = TakeClosing(part.id)) {
      part.closes = true;
      closed.emplace_back(part.id, std::move(layer));
    }
  }
  Knowledge::Change lasting(known_, ids);
  // A directory object tries once, so that it can be moved before it is called again.
  absl::StatusOr<Outcome> outcome;
  for (int calls = 1; calls <= kTriesMax; ++calls) {
    // By now it may be worth a front end, which whatever began before has none of.
    const FrontEndWork work(calls > 1 ? directory.front_end : nullptr);
    const auto begun = std::chrono::steady_clock::now();
    outcome = WhenForgotten([&] { return directory.object->Commit(changes, own, others, tree); });
    const bool again =
        outcome.ok() && outcome->state == CommitState::kStale && outcome->id == directory.id;
    if (!again) break;
    // Others' commits go before its next one, so that of n clients in one directory not n - 1 read
    // and plan in vain each time. Longer rests for who is refused again and again were tried:
    // refusals got fewer, but the placement engine, which decides by calls, moved such a client's
    // directory object seconds later.
    const auto call = std::chrono::steady_clock::now() - begun;
    if (calls < kTriesMax && !board_->Rest(PartOf(call))) {
      outcome = absl::CancelledError("the file system is being ended");
      break;
    }
  }
  if (!outcome.ok() || outcome->state != CommitState::kCommitted) {
    // Where it is not known what came of it, the object may be closed, and closed again as who
    // opens it next: so it stays open for as long as this client is there.
    if (!runtime::IsOutcomeUnknown(outcome.status())) {
      MutexLock lock(mutex_);
      for (auto& [id, layer] : closed) closings_[id] = std::move(layer);
    }
    return outcome;
  }
  for (const Node& node : outcome->nodes) {
    if (node.inode.links == 0) {
      if (const FilePtr open = UsedNow(node.id)) open->nameless = true;
    }
    if (node.id == directory.id) {
      lasting.Became(node, changes);
      continue;
    }
    // Which names another directory has now is known to its plan alone.
    const auto part = std::find_if(others.begin(), others.end(),
                                   [&node](const Part& other) { return other.id == node.id; });
    if (part != others.end() && part->writes.empty()) lasting.Became(node, {});
  }
  return outcome;
}

// A directory hands its files' stack, and its rules, down to the directories in it.
void FileSystemImpl::TakeStack(const Inode& directory, const std::string& name,
                               Inode* inode) const {
  const auto stack = directory.xattrs.find(kStackXattr);
  const auto rules = directory.xattrs.find(kStackRulesXattr);
  if (inode->IsDirectory()) {
    for (const auto& found : {stack, rules}) {
      if (found != directory.xattrs.end()) inode->xattrs.insert(*found);
    }
  }
  if (!inode->IsRegular()) return;
  inode->stack = stack != directory.xattrs.end() ? stack->second : options_.file_stack;
  if (rules == directory.xattrs.end()) return;
  // It was checked when it was set.
  const auto parsed = ParseStackRules(rules->second);
  if (!parsed.ok()) return;
  if (const std::string* ruled = StackByRule(*parsed, name)) inode->stack = *ruled;
}

absl::StatusOr<std::optional<FileSystemImpl::MadeFile>> FileSystemImpl::TryMake(
    const Named& named, const Creation& creation, uint32_t shard, FileSystemImpl& there) {
  ABACUS_ASSIGN_OR_RETURN(const ObjectId id,
                          InShard(shard, [](FileSystemImpl& at) { return at.NewId(); }));
  const bool is_directory = creation.inode.IsDirectory();
  Part made{.id = id};
  made.change.links = static_cast<int32_t>(creation.inode.links);
  made.creation = creation;
  const uint64_t seen = there.known_.Seen(id);
  const bool replaces_dead = named.entry.has_value();
  const auto outcome =
      Commit(*named.directory, {{named.name, named.entry, Entry{id, creation.inode.mode & S_IFMT}}},
             NameChange(replaces_dead ? 0 : 1, is_directory), {made}, {}, shard);
  const absl::StatusOr<bool> settled = Settled(outcome);
  if (!settled.ok()) {
    // It may be there, and open.
    const bool may_be_there = runtime::IsOutcomeUnknown(outcome.status());
    if (may_be_there && creation.opens) volume_->Close(info_.writer, id).IgnoreError();
    // A shard was not to be had: it is tried again, with this one or another.
    const bool is_unused = !may_be_there && SiblingTroubleOf(outcome.status()).has_value();
    if (is_unused) there.GiveBackId(id);
    return settled.status();
  }
  if (!*settled) {
    there.GiveBackId(id);
    return std::optional<MadeFile>();
  }
  ABACUS_ASSIGN_OR_RETURN(MadeFile file, there.KnowMade(id, *outcome, seen));
  return std::optional<MadeFile>(std::move(file));
}

absl::StatusOr<FileSystemImpl::MadeFile> FileSystemImpl::MakeNamed(
    const Caller& caller, ObjectId directory, const std::string& name, uint32_t mode,
    uint64_t device, const std::string& contents, const std::string& stack, bool opens) {
  const FrontEndWork work(FrontEndOf(directory));
  for (int i = 0; i < kTriesMax; ++i) {
    // That there is no such name the commit finds out, without a message more; where it does not go
    // through, the name is looked up. A directory may be of a shard that is not to be had: whether
    // there is one already is told without that shard.
    const bool rests_on_commit = i == 0 && (siblings_ == nullptr || !S_ISDIR(mode));
    ABACUS_ASSIGN_OR_RETURN(const Named named,
                            Find(caller, directory, name, /*opens=*/true,
                                 rests_on_commit ? Finding::kWhatIsKnown : Finding::kEntryAndNode));
    if (named.entry.has_value() && named.node.id != 0) {
      return FsStatus(FsError::kExists, absl::StrCat("there is a '", name, "'"));
    }
    if (named.parent.inode.links == 0) return NoEntry(name);
    const absl::Status may = MayAccess(caller, named.parent.inode, W_OK | X_OK);
    // To who may not make it, too, a name that is there is there.
    if (!may.ok() && rests_on_commit) continue;
    ABACUS_RETURN_IF_ERROR(may);
    Creation creation{.inode = NewInode(caller, named.parent.inode, mode, device),
                      .contents = contents,
                      .opens = opens};
    Inode& inode = creation.inode;
    if (inode.IsDirectory()) inode.parent = directory;
    if (stack.empty()) {
      TakeStack(named.parent.inode, name, &inode);
    } else {
      inode.stack = stack;
    }
    const uint32_t shard =
        inode.IsDirectory() ? ShardForDirectory(named.parent, name) : ShardOf(directory);
    absl::StatusOr<std::optional<MadeFile>> made = std::optional<MadeFile>();
    ABACUS_RETURN_IF_ERROR(Holding({shard}, [&](const Joinings& joinings) {
      made = TryMake(named, creation, shard, *joinings.at(shard));
    }));
    if (made.ok() && made->has_value()) return **std::move(made);
    if (made.ok()) continue;
    // Where there is no room for another one, a name that is there is what counts.
    if (!rests_on_commit || !absl::IsResourceExhausted(made.status())) return made.status();
    const auto looked = Find(caller, directory, name);
    if (!looked.ok() || looked->node.id == 0) return made.status();
    return FsStatus(FsError::kExists, absl::StrCat("there is a '", name, "'"));
  }
  return WouldBlock("others change the same directory");
}

absl::StatusOr<Node> FileSystemImpl::Make(const Caller& caller, ObjectId directory,
                                          const std::string& name, uint32_t mode, uint64_t device,
                                          const std::string& contents) {
  ABACUS_ASSIGN_OR_RETURN(MadeFile made, MakeNamed(caller, directory, name, mode, device, contents,
                                                   "", /*opens=*/false));
  return std::move(made.node);
}

absl::StatusOr<FileSystem::Created> FileSystemImpl::Create(const Caller& caller, ObjectId directory,
                                                           const std::string& name, uint32_t mode,
                                                           int flags, const std::string& stack,
                                                           Node* made) {
  if (!S_ISREG(mode)) return FsStatus(FsError::kInvalid, "only regular files are made and opened");
  if (!stack.empty()) ABACUS_RETURN_IF_ERROR(CheckStackText(stack));
  ABACUS_ASSIGN_OR_RETURN(const MadeFile named,
                          MakeNamed(caller, directory, name, mode, 0, "", stack, /*opens=*/true));
  *made = named.node;
  Handle handle = HandleFor(caller, made->inode, flags);
  ABACUS_ASSIGN_OR_RETURN(handle.file, Use(*made, named.layer));
  return Created{*made, Numbered(std::move(handle))};
}

absl::StatusOr<Node> FileSystemImpl::Link(const Caller& caller, ObjectId file, ObjectId directory,
                                          const std::string& name) {
  const FrontEndWork work(FrontEndOf(directory));
  for (int i = 0; i < kTriesMax; ++i) {
    ABACUS_ASSIGN_OR_RETURN(const Named named, Find(caller, directory, name));
    if (named.entry.has_value()) {
      return FsStatus(FsError::kExists, absl::StrCat("there is a '", name, "'"));
    }
    if (named.parent.inode.links == 0) return NoEntry(name);
    ABACUS_ASSIGN_OR_RETURN(const Node node, NodeOf(file));
    if (node.inode.IsDirectory()) {
      return FsStatus(FsError::kNotPermitted, "a directory has one name");
    }
    if (node.inode.links == 0) return NoEntry(name);
    ABACUS_RETURN_IF_ERROR(MayAccess(caller, named.parent.inode, W_OK | X_OK));
    Part linked{.id = file};
    linked.change.links = 1;
    linked.change.touch_changed = true;
    linked.must_be_linked = true;
    const auto outcome = Commit(*named.directory, {{name, std::nullopt, EntryOf(node)}},
                                NameChange(1, false), {linked}, {}, ShardOf(file));
    ABACUS_ASSIGN_OR_RETURN(const bool settled, Settled(outcome));
    if (!settled) continue;
    if (IsOwn(file)) return Stat(file);
    Node then = node;  // as in Lookup()
    ++then.inode.links;
    return then;
  }
  return WouldBlock("others change the same directory");
}

absl::Status FileSystemImpl::Unlink(const Caller& caller, ObjectId directory,
                                    const std::string& name) {
  return Remove(caller, directory, name, false);
}

absl::Status FileSystemImpl::RemoveDirectory(const Caller& caller, ObjectId directory,
                                             const std::string& name) {
  if (name == ".") return FsStatus(FsError::kInvalid, "'.' cannot be removed");
  if (name == "..") return FsStatus(FsError::kNotEmpty, "'..' has entries");
  return Remove(caller, directory, name, true);
}

absl::Status FileSystemImpl::Remove(const Caller& caller, ObjectId directory,
                                    const std::string& name, bool is_directory) {
  const FrontEndWork work(FrontEndOf(directory));
  for (int i = 0; i < kTriesMax; ++i) {
    // What was seen may be no more; then it is looked at again.
    const bool looks = i > 0 || is_directory || !caller.checked;
    ABACUS_ASSIGN_OR_RETURN(const bool settled,
                            TryRemove(caller, directory, name, is_directory, looks));
    if (settled) return absl::OkStatus();
  }
  return WouldBlock("others change the same directory");
}

absl::StatusOr<bool> FileSystemImpl::TryRemove(const Caller& caller, ObjectId directory,
                                               const std::string& name, bool is_directory,
                                               bool looks) {
  ABACUS_ASSIGN_OR_RETURN(const Named named,
                          Find(caller, directory, name, /*opens=*/true,
                               looks ? Finding::kEntryAndNode : Finding::kEntry));
  if (!named.entry.has_value()) return NoEntry(name);
  if (looks && named.node.id == 0) {  // its object is gone already
    const bool was_directory = S_ISDIR(named.entry->type);
    return Settled(Commit(*named.directory, {{name, named.entry, std::nullopt}},
                          NameChange(-1, was_directory), {}, {}, ShardOf(directory)));
  }
  if (looks) ABACUS_RETURN_IF_ERROR(MayRemove(caller, named.parent.inode, named.node.inode));
  const bool there_is_directory = S_ISDIR(named.entry->type);
  if (is_directory && !there_is_directory) {
    return FsStatus(FsError::kNotDirectory, absl::StrCat("'", name, "' is no directory"));
  }
  if (!is_directory && there_is_directory) {
    return FsStatus(FsError::kIsDirectory, absl::StrCat("'", name, "' is a directory"));
  }
  const auto outcome =
      Commit(*named.directory, {{name, named.entry, std::nullopt}}, NameChange(-1, is_directory),
             {Unlinked(named.entry->id, is_directory)}, {}, ShardOf(directory));
  ABACUS_ASSIGN_OR_RETURN(const bool settled, Settled(outcome));
  if (settled && is_directory) ForgetDirectory(named.entry->id);
  return settled;
}

// -- renaming -------------------------------------------------------------------------------------

absl::Status FileSystemImpl::Rename(const Caller& caller, ObjectId from_directory,
                                    const std::string& from, ObjectId to_directory,
                                    const std::string& to, RenameRule rule) {
  const FrontEndWork work(FrontEndOf(from_directory));
  for (const std::string& name : {from, to}) {
    if (name == "." || name == "..") {
      return FsStatus(FsError::kInvalid, "'.' and '..' cannot be renamed");
    }
  }
  for (int i = 0; i < kTriesMax; ++i) {
    absl::StatusOr<bool> settled = false;
    // The object of the other directory is its joining's.
    ABACUS_RETURN_IF_ERROR(Holding({ShardOf(to_directory)}, [&](const Joinings&) {
      settled = TryRename(caller, from_directory, from, to_directory, to, rule);
    }));
    if (!settled.ok()) return settled.status();
    if (*settled) return absl::OkStatus();
  }
  return WouldBlock("others change the same directories");
}

absl::Status FileSystemImpl::SeeTree(uint32_t shard, Trees* trees) {
  if (trees->contains(shard)) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN((*trees)[shard], InShard(shard, [](FileSystemImpl& there) {
                            return there.volume_->TreeVersion();
                          }));
  return absl::OkStatus();
}

// A directory that came below itself would be cut off from the root. Why each shard on the way has
// a say in that, and not one for all: what a transaction changes in several shards it does not
// change at once. One that had its say at a shard that is done with an earlier rename could have
// looked at one that is not: two such renames would make a cycle. Where a directory is in another
// one its own shard knows, and tells by its tree whether that was changed, or is about to be.
absl::Status FileSystemImpl::CheckNotBelow(ObjectId directory, ObjectId above, Trees* trees) {
  const ObjectId root = siblings_ == nullptr ? info_.root : siblings_->root();
  for (ObjectId id = directory;;) {
    if (id == above) {
      return FsStatus(FsError::kInvalid, "a directory cannot come below itself");
    }
    if (id == root) return absl::OkStatus();
    if (trees != nullptr) ABACUS_RETURN_IF_ERROR(SeeTree(ShardOf(id), trees));
    ABACUS_ASSIGN_OR_RETURN(const Node node, DirectoryNode(id));
    id = node.inode.parent;
  }
}

absl::Status FileSystemImpl::CheckRename(const Caller& caller, const Named& from, const Named& to,
                                         RenameRule rule) {
  ABACUS_RETURN_IF_ERROR(MayRemove(caller, from.parent.inode, from.node.inode));
  ABACUS_RETURN_IF_ERROR(MayAccess(caller, to.parent.inode, W_OK | X_OK));
  const bool moves = from.parent.id != to.parent.id;
  const bool from_is_directory = from.node.inode.IsDirectory();
  if (moves && from_is_directory) {  // its ".." is written
    ABACUS_RETURN_IF_ERROR(MayAccess(caller, from.node.inode, W_OK));
  }
  if (to.node.id == 0) return absl::OkStatus();
  if (rule == RenameRule::kNoReplace) {
    return FsStatus(FsError::kExists, absl::StrCat("there is a '", to.name, "'"));
  }
  ABACUS_RETURN_IF_ERROR(MayRemove(caller, to.parent.inode, to.node.inode));
  const bool to_is_directory = to.node.inode.IsDirectory();
  if (rule == RenameRule::kExchange) {
    return moves && to_is_directory ? MayAccess(caller, to.node.inode, W_OK) : absl::OkStatus();
  }
  if (from_is_directory && !to_is_directory) {
    return FsStatus(FsError::kNotDirectory, absl::StrCat("'", to.name, "' is no directory"));
  }
  if (!from_is_directory && to_is_directory) {
    return FsStatus(FsError::kIsDirectory, absl::StrCat("'", to.name, "' is a directory"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> FileSystemImpl::TryRename(const Caller& caller, ObjectId from_directory,
                                               const std::string& from_name, ObjectId to_directory,
                                               const std::string& to_name, RenameRule rule) {
  ABACUS_ASSIGN_OR_RETURN(const Named from, Find(caller, from_directory, from_name));
  // One name is looked up once: a second time it could be gone.
  const bool is_one_name = from_directory == to_directory && from_name == to_name;
  absl::StatusOr<Named> found = from;
  if (!is_one_name) {
    found = InShard(ShardOf(to_directory),
                    [&](FileSystemImpl& at) { return at.Find(caller, to_directory, to_name); });
  }
  ABACUS_ASSIGN_OR_RETURN(const Named to, std::move(found));
  if (from.node.id == 0) return NoEntry(from_name);
  const bool exchange = rule == RenameRule::kExchange;
  if (exchange && to.node.id == 0) return NoEntry(to_name);
  if (to.parent.inode.links == 0) return NoEntry(to_name);
  // Before the question of who may: a cycle is wrong for everybody.
  const bool moves = from_directory != to_directory;
  Trees trees;
  if (from.node.inode.IsDirectory() && moves) {
    ABACUS_RETURN_IF_ERROR(CheckNotBelow(to_directory, from.node.id, &trees));
    ABACUS_RETURN_IF_ERROR(SeeTree(ShardOf(from.node.id), &trees));
  }
  if (to.node.id != 0 && to.node.inode.IsDirectory() && moves) {
    const absl::Status below =
        CheckNotBelow(from_directory, to.node.id, exchange ? &trees : nullptr);
    if (!exchange && FsErrorOf(below) == FsError::kInvalid) {
      return FsStatus(FsError::kNotEmpty, runtime::ToStd(below.message()));
    }
    ABACUS_RETURN_IF_ERROR(below);
    if (exchange) ABACUS_RETURN_IF_ERROR(SeeTree(ShardOf(to.node.id), &trees));
  }
  ABACUS_RETURN_IF_ERROR(CheckRename(caller, from, to, rule));
  if (from.node.id == to.node.id) return true;  // two names of one file: both stay
  const absl::StatusOr<bool> settled = CommitRename(from, to, exchange, trees);
  if (settled.ok() && *settled && !exchange && to.node.id != 0 && to.node.inode.IsDirectory()) {
    ForgetDirectory(to.node.id);
  }
  return settled;
}

absl::StatusOr<bool> FileSystemImpl::CommitRename(const Named& from, const Named& to, bool exchange,
                                                  const Trees& trees) {
  const uint32_t arrives_in = ShardOf(to.parent.id);
  const bool moves = from.parent.id != to.parent.id;
  const bool from_is_directory = from.node.inode.IsDirectory();
  const bool to_is_directory = to.node.id != 0 && to.node.inode.IsDirectory();
  const EntryChange leaves{from.name, from.entry, exchange ? to.entry : std::nullopt};
  const EntryChange arrives{to.name, to.entry, from.entry};

  // What each directory has more or less than before.
  const int came = to.entry.has_value() ? 0 : 1;
  InodeChange from_change = NameChange(0, false), to_change = NameChange(0, false);
  from_change.entries = exchange ? 0 : -1;
  to_change.entries = exchange ? 0 : came;
  from_change.links = (exchange && to_is_directory ? 1 : 0) - (from_is_directory ? 1 : 0);
  to_change.links = (from_is_directory ? 1 : 0) - (to_is_directory ? 1 : 0);

  std::vector<Part> others;
  Part moved{.id = from.node.id};
  moved.change.touch_changed = true;
  moved.must_be_linked = true;
  if (moves && from_is_directory) moved.change.parent = to.parent.id;
  if (to.node.id != 0 && exchange) {
    Part other{.id = to.node.id};
    other.change.touch_changed = true;
    other.must_be_linked = true;
    if (moves && to_is_directory) other.change.parent = from.parent.id;
    others.push_back(std::move(other));
  } else if (to.node.id != 0) {
    others.push_back(Unlinked(to.node.id, to_is_directory));
  }
  others.push_back(std::move(moved));

  if (!moves) {
    from_change.entries += to_change.entries;
    from_change.links += to_change.links;
    return Settled(
        Commit(*from.directory, {leaves, arrives}, from_change, others, trees, arrives_in));
  }
  absl::StatusOr<Part> plan = InShard(arrives_in, [&](FileSystemImpl&) {
    return to.directory->object->Plan(std::vector<EntryChange>{arrives});
  });
  if (IsChanged(plan.status())) return false;
  if (!plan.ok()) return plan.status();
  plan->change = to_change;
  plan->must_be_linked = true;
  others.insert(others.begin(), *std::move(plan));
  return Settled(Commit(*from.directory, {leaves}, from_change, others, trees, arrives_in));
}

}  // namespace abacus::objfs
