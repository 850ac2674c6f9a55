#ifndef ABACUS_OBJFS_FS_FILE_SYSTEM_IMPL_H_
#define ABACUS_OBJFS_FS_FILE_SYSTEM_IMPL_H_

// The implementation of FileSystem: names.cc resolves and changes names, files.cc reads and writes,
// file_system.cc has what both need, across_shards.cc what concerns several shards of a volume.

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/knowledge.h"
#include "objfs/fs/siblings.h"
#include "objfs/fs/wait_board.h"
#include "objfs/layer/version.h"
#include "objfs/spread/spread_layer.h"
#include "objfs/store/object_id.h"
#include "objfs/store/turns.h"
#include "objfs/volume/shard_commits.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/base/status_of.h"

namespace abacus::objfs {

class FileSystemImpl;

// What a client's end knows of its file system: the end is there before it, and after it.
// Thread-safety: thread-safe. Blocking: Detach(), for calls that are under way.
class EndLink {
 public:
  void Attach(FileSystemImpl* file_system);
  void Detach();
  absl::Status Break(ObjectId id, bool write_back, Version given);
  void Wake(ObjectId id);
  void Forget(ObjectId id, Version given);

 private:
  FileSystemImpl* Take();
  void Give();

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  FileSystemImpl* file_system_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

class FileSystemImpl final : public FileSystem {
 public:
  // Directory objects that stay between calls.
  static constexpr size_t kDirectoriesMax = 1024;
  // How often a change of names is tried while others change the same ones.
  static constexpr int kTriesMax = 64;

  // How it was joined to its volume. `sent_ns`: monotonic, from before the server was asked.
  struct Joined {
    VolumeInfo info;
    int64_t sent_ns = 0;
    std::shared_ptr<EndLink> link;
    runtime::Ref<ClientEnd> end;
  };
  // `siblings`: of a volume with several shards; null: there is one. It outlives this.
  FileSystemImpl(runtime::Ref<Volume> volume, Joined joined, const LayerKinds& kinds, Host host,
                 Options options, Siblings* siblings);
  // Joins; see FileSystem::Make().
  static absl::StatusOr<std::unique_ptr<FileSystemImpl>> Join(runtime::Ref<Volume> volume,
                                                              const LayerKinds& kinds, Host host,
                                                              Options options, Siblings* siblings);
  // The same, of a shard that may have begun again in the middle of a transaction over several:
  // what is being made whole is asked again, for as long as that may take. `rest`: waits so long;
  // false: it is not to go on. SleepFor(): for who has joined nothing yet, and is ended by nobody.
  static bool SleepFor(std::chrono::nanoseconds time);
  static absl::StatusOr<std::unique_ptr<FileSystemImpl>> JoinWhole(
      const runtime::Ref<Volume>& volume, const LayerKinds& kinds, const Host& host,
      const Options& options, Siblings* siblings,
      const std::function<bool(std::chrono::nanoseconds)>& rest);
  ~FileSystemImpl() override;

  ObjectId root() const override { return info_.root; }
  const VolumeInfo& info() const { return info_; }
  absl::Status Renew() override;

  // -- when the volume has given this client up, or died: see RejoiningFileSystem -----------------

  // Calls that wait for other clients end with kCancelled, now and from now on.
  void Interrupt() { board_->Close(); }
  // Opens what `before`, another joining of the same client, has open, under the same handles, and
  // tells once at each file what was lost: what `before` held back and cannot write back now,
  // locks, and with `server_lost` what nobody has synced. What is gone answers kStale. REQUIRES: no
  // call of either is under way, and this one is new.
  void TakeOver(FileSystemImpl& before, bool server_lost);

  // -- what the server tells ---------------------------------------------------------------------

  absl::Status OnBreak(ObjectId id, bool write_back, Version given);
  void OnWake(ObjectId id) {
    board_->Wake(id);
    board_->Wake(kAnyObject);
  }
  void OnForget(ObjectId id, Version given);

  // Of what is another shard's, this and Link() tell no more than the inode: it is to be asked for
  // there (Stat).
  absl::StatusOr<Node> Lookup(const Caller& caller, ObjectId directory,
                              const std::string& name) override;
  absl::StatusOr<Node> Make(const Caller& caller, ObjectId directory, const std::string& name,
                            uint32_t mode, uint64_t device, const std::string& contents) override;
  absl::StatusOr<Created> Create(const Caller& caller, ObjectId directory, const std::string& name,
                                 uint32_t mode, int flags, const std::string& stack) override {
    Node made;
    return Create(caller, directory, name, mode, flags, stack, &made);
  }
  // `made`: what was made, also where it could not be opened then; else it is left alone.
  absl::StatusOr<Created> Create(const Caller& caller, ObjectId directory, const std::string& name,
                                 uint32_t mode, int flags, const std::string& stack, Node* made);
  absl::StatusOr<Node> Link(const Caller& caller, ObjectId file, ObjectId directory,
                            const std::string& name) override;
  absl::Status Unlink(const Caller& caller, ObjectId directory, const std::string& name) override;
  absl::Status RemoveDirectory(const Caller& caller, ObjectId directory,
                               const std::string& name) override;
  absl::Status Rename(const Caller& caller, ObjectId from_directory, const std::string& from,
                      ObjectId to_directory, const std::string& to, RenameRule rule) override;
  absl::StatusOr<std::string> ReadLink(const Caller& caller, ObjectId link) override;
  absl::StatusOr<std::vector<Listed>> List(const Caller& caller, ObjectId directory,
                                           uint64_t cookie, uint32_t max,
                                           bool with_attributes) override;
  absl::StatusOr<Node> Stat(ObjectId file) override;
  absl::StatusOr<Node> Set(const Caller& caller, ObjectId file, const SetAttributes& set) override;
  absl::Status Access(const Caller& caller, ObjectId file, int want) override;
  absl::StatusOr<std::string> GetXattr(const Caller& caller, ObjectId file,
                                       const std::string& name) override;
  absl::Status SetXattr(const Caller& caller, ObjectId file, const std::string& name,
                        const std::string& value, XattrRule rule) override;
  absl::Status RemoveXattr(const Caller& caller, ObjectId file, const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> ListXattrs(const Caller& caller, ObjectId file) override;
  absl::StatusOr<FileHandle> Open(const Caller& caller, ObjectId file, int flags) override;
  absl::Status Release(FileHandle handle) override;
  absl::StatusOr<runtime::Block> Read(FileHandle handle, uint64_t offset, uint64_t bytes) override;
  absl::Status Write(FileHandle handle, uint64_t offset, const runtime::Block& bytes) override;
  absl::StatusOr<uint64_t> Append(FileHandle handle, const runtime::Block& bytes) override;
  absl::Status Push(FileHandle handle) override;
  absl::Status Sync(FileHandle handle) override;
  absl::Status SyncData(FileHandle handle) override;
  absl::Status SyncDirectory(ObjectId directory) override;
  absl::Status Allocate(FileHandle handle, int mode, uint64_t offset, uint64_t bytes) override;
  absl::StatusOr<uint64_t> SeekData(FileHandle handle, uint64_t offset) override;
  absl::StatusOr<uint64_t> SeekHole(FileHandle handle, uint64_t offset) override;
  absl::StatusOr<uint64_t> CopyRange(FileHandle from, uint64_t from_offset, FileHandle to,
                                     uint64_t to_offset, uint64_t bytes) override;
  absl::Status WithSubgraph(FileHandle handle,
                            const std::function<absl::Status(const Subgraph&)>& call) override;
  uint64_t NewLockTicket() override { return locks_->NewTicket(); }
  void Lock(const LockRequest& request, const LockDone& done) override {
    locks_->Lock(request, done);
  }
  void CancelLock(uint64_t ticket) override { locks_->Cancel(ticket); }
  absl::Status Unlock(const LockRequest& request) override { return locks_->Unlock(request); }
  absl::Status UnlockAll(ObjectId file, LockKind kind, uint64_t owner) override {
    return locks_->UnlockAll(file, kind, owner);
  }
  absl::StatusOr<std::optional<HeldLock>> GetLock(const LockRequest& request) override {
    return locks_->Excluding(request);
  }
  uint64_t AddKeeper(Forget forget) override;
  void RemoveKeeper(uint64_t keeper) override;
  bool IsTold(ObjectId file) override;
  absl::StatusOr<RebuildProgress> Rebuild(FileHandle handle, uint64_t from,
                                          uint64_t stripes) override;
  absl::StatusOr<ScrubProgress> Scrub(FileHandle handle, uint64_t from, uint64_t stripes) override;
  absl::StatusOr<VolumeSpace> Space() override;
  absl::StatusOr<std::string> StackOf(ObjectId file) override;

 private:
  // An open directory object, closed when nobody holds it any more.
  struct OpenDirectory {
    FileSystemImpl* owner = nullptr;
    ObjectId id = 0;
    BuiltStack stack;
    runtime::Ref<Directory> object;
    std::shared_ptr<LazyFrontEnd> front_end;
    ~OpenDirectory();
  };
  using DirectoryPtr = std::shared_ptr<OpenDirectory>;
  // The stack of a file that is open, however often.
  struct OpenFile {
    FileSystemImpl* owner = nullptr;
    ObjectId id = 0;
    BuiltStack stack;
    std::shared_ptr<LazyFrontEnd> front_end;  // null: there is nothing of this client's to place
    bool holds_back = false;             // a layer may keep what was written to itself for a while
    std::atomic<int64_t> written_ns{0};  // of what is held back; 0: nothing is
    std::atomic<int64_t> held_since_ns{0};  // where something is: when that began
    void Wrote(int64_t now_ns) {
      if (written_ns.exchange(now_ns) == 0) held_since_ns = now_ns;
    }
    // A promise was broken since the last push, which tells what could not be written back then.
    std::atomic<bool> has_given_back{false};
    // Its last name was removed by this client: when it is closed, its space is to be free.
    std::atomic<bool> nameless{false};
    int uses = 0;             // handles, and calls without one; under mutex_
    absl::Status late;        // of a push that nobody asked for; under mutex_
    absl::Status lost_locks;  // told to the next call with a handle, once; under mutex_
    absl::Status unusable;    // what all calls are answered, where it could not be opened again
    // Changes so far, and how many of them were synced.
    std::atomic<uint64_t> changes{0}, synced{0};
    const runtime::Ref<Layer>& top() const { return stack.top(); }
    // Of this client's own. REQUIRES: holds_back.
    runtime::Ref<Layer> lowest() const {
      return spread ? runtime::Ref<Layer>(spread.base()) : stack.layers[stack.layers.size() - 2];
    }
    // Of a file with columns, which the layer below this one stands on.
    runtime::Ref<SpreadLayer> spread;
    // How often a promise was broken. Other clients may write it at the same time, and break none,
    // only after some of them (ShareChoice).
    std::atomic<int> breaks{0};
    bool MayBeShared() const { return spread && breaks >= ShareChoice::kBreaksMin; }
    // Whether the size that the columns have was looked at under this promise.
    std::atomic<bool> size_seen{false};
  };
  using FilePtr = std::shared_ptr<OpenFile>;
  // Keeps a file open.
  class FileUse;
  struct Handle {
    FilePtr file;
    bool may_read = false, may_write = false;
    bool drops_setid = false;  // with its next write
  };

  // A name of a directory, looked up, with all that the rules ask for.
  struct Named {
    DirectoryPtr directory;
    Node parent;
    std::string name;
    std::optional<Entry> entry;
    Node node;  // where there is an entry
  };

  Version Now() { return clock_.Next(); }
  // What is kept here may be read: the server cannot have given it away.
  absl::Status CheckLease();
  absl::Status RenewLease();
  // What is done now and then besides, and may take long: pushes what is old.
  absl::Status KeepUp();
  void PushWhatIsOld();
  // Has keepers forget what they have of the file; see AddKeeper() for how long it waits.
  void HaveForgotten(ObjectId id);
  WaitBoard::Errands TellKeepers(ObjectId id);  // null: there are none
  // Whether what a kernel keeps of it rests on the promise for what is known of it: where it is not
  // open nothing is kept, and with layers of this client's it rests on theirs.
  bool IsOpenAndPlain(ObjectId id);
  // Has them forget it soon, where it rests on that promise.
  void ForgetSoon(ObjectId id);
  // Ends those that are not worth it any more.
  void LookAtFrontEnds();
  std::vector<ObjectId> OpenFiles();
  // For `heir`, which is to open them: what could not be made durable of each file.
  std::map<ObjectId, absl::Status> TakeLosses(bool server_lost, FileSystemImpl& heir);
  absl::Status LeaveBehind(OpenFile& file, bool server_lost);
  // The file of a handle that `before` had.
  FilePtr OpenAgain(ObjectId id);
  // Makes a call about an object's bytes, again and again while other clients are in its way. With
  // `keeps` its answer may come from what is kept here.
  template <typename F>
  auto Patiently(ObjectId id, bool keeps, F&& call) -> decltype(call()) {
    for (bool waited = false;; waited = true) {
      const uint64_t seen = board_->Seen(id);
      if (keeps) ABACUS_RETURN_IF_ERROR(CheckLease());
      auto result = call();
      if (!IsWouldBlock(runtime::StatusOf(result))) {
        // What it waited for may have come by another call of this client, and no turn is taken.
        if (waited) volume_->Pass(info_.writer, id).IgnoreError();
        return result;
      }
      if (!board_->Await(id, seen)) return absl::CancelledError("the file system is being ended");
    }
  }
  template <typename F>
  auto Patiently(const OpenFile& file, F&& call) -> decltype(call()) {
    return Patiently(file.id, file.holds_back, [&] {
      const FrontEndWork work(file.front_end);
      return call();
    });
  }
  // Makes a call that changes inodes or names, again and again while other clients have yet to
  // forget what they know of them, or a transaction over several shards holds them.
  template <typename F>
  auto WhenForgotten(F&& call) -> decltype(call()) {
    const int64_t begun_ns = host_.steady_ns();
    for (;;) {
      const uint64_t seen = board_->Seen(kAnyObject);
      auto result = call();
      const bool waits =
          IsWouldBlock(runtime::StatusOf(result)) && !IsChanged(runtime::StatusOf(result));
      if (!waits) return result;
      ABACUS_RETURN_IF_ERROR(MayWaitSince(begun_ns));
      if (!board_->Await(kAnyObject, seen)) {
        return absl::CancelledError("the file system is being ended");
      }
    }
  }
  // Whether what is kept here under promises may be shown.
  bool IsLeased() const { return host_.steady_ns() < lease_until_ns_; }
  // In the order asked for, each from its shard; one that is not there has id 0.
  absl::StatusOr<std::vector<Node>> NodesOf(const std::vector<ObjectId>& ids);
  absl::StatusOr<std::vector<Node>> AskForNodes(const std::vector<ObjectId>& ids);
  // Errors: kStale - it is gone.
  absl::StatusOr<Node> NodeOf(ObjectId id);
  // The same, but never what is kept. REQUIRES: it is of this shard.
  absl::StatusOr<Node> StatAtVolume(ObjectId id);
  static absl::StatusOr<Node> OnlyOf(absl::StatusOr<std::vector<Node>> nodes, ObjectId id);
  absl::StatusOr<Node> ChangeInode(ObjectId id, const InodeChange& change);
  // The inode that the volume told, with what a layer of this client's holds back. May wait for
  // other clients. REQUIRES: it is of this shard.
  absl::StatusOr<Node> AsWrittenHere(Node node);
  friend class RejoiningFileSystem;
  absl::Status CheckStacks() const;
  // The stack `text` over the volume's part of it.
  absl::StatusOr<BuiltStack> BuildOver(const std::string& text, const runtime::Ref<Layer>& bottom);
  // The same for a file with columns: spread.cc.
  absl::Status BuildSpread(const std::string& text, const runtime::Ref<Layer>& bottom,
                           OpenFile* file);
  std::string ColumnsOfFile(const Node& node) const;
  void SeeSize(OpenFile& file);
  void EndStack(const BuiltStack& stack);

  // names.cc
  absl::StatusOr<DirectoryPtr> DirectoryOf(ObjectId id);
  void ForgetDirectory(ObjectId id);
  // That of the directory, where it is open already.
  std::shared_ptr<LazyFrontEnd> FrontEndOf(ObjectId directory);
  absl::StatusOr<Node> DirectoryNode(ObjectId id);
  enum class Finding {
    kEntryAndNode,
    kEntry,        // its node stays none
    kWhatIsKnown,  // as the first, but nobody is asked for the entry: none where it is not known
  };
  // With `opens` the directory object is there afterwards.
  absl::StatusOr<Named> Find(const Caller& caller, ObjectId directory, const std::string& name,
                             bool opens = true, Finding finding = Finding::kEntryAndNode);
  absl::StatusOr<std::optional<Entry>> EntryFor(Named& named, bool asks);
  absl::StatusOr<std::vector<ListedEntry>> EntriesOf(ObjectId directory, uint64_t after,
                                                     uint32_t max);
  // What a rename rests on, beside names and inodes: that nobody has changed which directories are
  // in which ones since it looked. By the shard that a directory is of; each has its own
  // Volume::TreeVersion().
  using Trees = std::map<uint32_t, uint64_t>;
  // Notes that of a shard, before its directories are looked at.
  absl::Status SeeTree(uint32_t shard, Trees* trees);
  // Notes those that the answer rests on; null: nothing depends on it.
  absl::Status CheckNotBelow(ObjectId directory, ObjectId above, Trees* trees);
  absl::Status Remove(const Caller& caller, ObjectId directory, const std::string& name,
                      bool is_directory);
  // Without `looks` the kernel has looked at the object, and its type is all that is asked for.
  absl::StatusOr<bool> TryRemove(const Caller& caller, ObjectId directory, const std::string& name,
                                 bool is_directory, bool looks);
  absl::StatusOr<bool> TryRename(const Caller& caller, ObjectId from_directory,
                                 const std::string& from, ObjectId to_directory,
                                 const std::string& to, RenameRule rule);
  absl::Status CheckRename(const Caller& caller, const Named& from, const Named& to,
                           RenameRule rule);
  absl::StatusOr<bool> CommitRename(const Named& from, const Named& to, bool exchange,
                                    const Trees& trees);

  // across_shards.cc: names that lead to objects of other shards, and what changes both.
  bool IsOwn(ObjectId id) const { return siblings_ == nullptr || ShardOf(id) == siblings_->own(); }
  // Makes a call at the joining of that shard, which may be this one. Errors: those of the call, as
  // Siblings::With() has them. What a call does at yet another shard, it does by this: so that what
  // is met is told of the shard where it was.
  template <typename F>
  auto InShard(uint32_t shard, F&& call) -> decltype(call(std::declval<FileSystemImpl&>())) {
    if (siblings_ == nullptr || shard == siblings_->own()) return call(*this);
    decltype(call(std::declval<FileSystemImpl&>())) result = absl::InternalError("no answer");
    const absl::Status met = siblings_->With(shard, [&](FileSystemImpl& there) -> absl::Status {
      result = call(there);
      return runtime::StatusOf(result);
    });
    if (!met.ok()) return met;
    return result;
  }
  using Joinings = std::map<uint32_t, FileSystemImpl*>;
  // Makes a call while the joinings of these shards, each named once, stay as they are: for what it
  // has of theirs. Errors: those of joinings that are not to be had; then the call was not made.
  absl::Status Holding(const std::vector<uint32_t>& shards,
                       const std::function<void(const Joinings& joinings)>& call);
  absl::Status HoldingMore(const std::vector<uint32_t>& shards, Joinings* held,
                           const std::function<void(const Joinings& joinings)>& call);
  // As NodesOf(). Without `needs_all`, what is of shards that do not answer is as if it were not
  // there.
  absl::StatusOr<std::vector<Node>> NodesOfAll(const std::vector<ObjectId>& ids,
                                               bool needs_all = true);
  // In which shard a directory is made.
  uint32_t ShardForDirectory(const Node& parent, const std::string& name) const;
  // What one shard does of a transaction over several, and what is known there of its objects.
  struct ShardWork {
    Transaction transaction;
    // Changes of entries by the directory that they are in; of this shard.
    std::map<ObjectId, std::vector<EntryChange>> entries;
  };
  // By shard: this one's and its siblings'. Which one is the coordinator: what it does is seen
  // first.
  struct SharedWork {
    std::map<uint32_t, ShardWork> shards;
    uint32_t coordinator = 0;
  };
  // Of a shard's part: what is known there of its objects changes from here on, until it is told
  // what they became.
  class ShardChange;
  // As Commit(), where an object is another shard's, or a tree is; see there.
  absl::StatusOr<Outcome> CommitAcross(const OpenDirectory& directory,
                                       const std::vector<EntryChange>& changes,
                                       const InodeChange& own, const std::vector<Part>& others,
                                       const Trees& trees, uint32_t coordinator);
  // Commits what concerns several shards. REQUIRES: each directory's plan is among the parts.
  absl::StatusOr<Outcome> CommitTogether(const SharedWork& work);
  absl::StatusOr<Outcome> CommitHolding(const SharedWork& work, const Joinings& joinings);
  // Asks the coordinator, again and again while something is in the way.
  absl::StatusOr<Outcome> AskForGroup(const SharedWork& work,
                                      const std::vector<ShardTransaction>& others,
                                      const Joinings& joinings);
  // Whether a call that was refused may still wait for what it needs; by Host::steady_ns.
  // Errors: kUnavailable - no longer: nothing was done.
  absl::Status MayWaitSince(int64_t begun_ns) const;
  // Waits for what nobody tells of. Errors: one of the joinings is being ended.
  absl::Status RestAmong(const Joinings& joinings, std::chrono::nanoseconds time);
  // A random part of it: who came at the same time does not come again at the same time.
  static std::chrono::nanoseconds PartOf(std::chrono::nanoseconds time);
  void TakeStack(const Inode& directory, const std::string& name, Inode* inode) const;
  absl::Status CheckStackText(const std::string& text) const;
  struct MadeFile {
    Node node;
    runtime::Ref<Layer> layer;  // where it is open: its lowest one
  };
  // Make(), with `opens` a file that the volume has open for this client.
  absl::StatusOr<MadeFile> MakeNamed(const Caller& caller, ObjectId directory,
                                     const std::string& name, uint32_t mode, uint64_t device,
                                     const std::string& contents, const std::string& stack,
                                     bool opens);
  // Makes it as an object of the shard whose joining is `there`; nullopt: it is to be tried again
  // from the beginning.
  absl::StatusOr<std::optional<MadeFile>> TryMake(const Named& named, const Creation& creation,
                                                  uint32_t shard, FileSystemImpl& there);
  // An identifier for a new object, and back where the volume did not take it.
  absl::StatusOr<ObjectId> NewId();
  // What the volume told of an object that was asked for after `seen`.
  absl::StatusOr<MadeFile> KnowMade(ObjectId id, const Outcome& outcome, uint64_t seen);
  void GiveBackId(ObjectId id);
  // Commits changes of this directory's names, `own` of its inode, and `others`. Where they are of
  // several shards, what `coordinator` does of it is seen first: so a name that comes is seen after
  // what it leads to, and one that goes is gone before that.
  absl::StatusOr<Outcome> Commit(const OpenDirectory& directory,
                                 const std::vector<EntryChange>& changes, const InodeChange& own,
                                 std::vector<Part> others, const Trees& trees,
                                 uint32_t coordinator);
  // Whether a commit ended the matter, or it is to be tried again from the beginning.
  static absl::StatusOr<bool> Settled(const absl::StatusOr<Outcome>& outcome);

  // files.cc
  // The stack of a file, made by its first use and ended by the last; each Use() needs an Unuse(),
  // whose error is that of writing back what was held back. `opened`: its lowest layer, where the
  // volume has it open for this use already.
  absl::StatusOr<FilePtr> Use(const Node& node, const runtime::Ref<Layer>& opened = {});
  // What `caller` may do with a handle of the file, by the flags of open(2).
  static Handle HandleFor(const Caller& caller, const Inode& inode, int flags);
  FileHandle Numbered(Handle handle);
  absl::Status Unuse(ObjectId id);
  FilePtr UsedNow(ObjectId id);  // null where it is not open
  // Has the volume close what this client has closed: now, or where nothing depends on it soon,
  // many files at a time. Who opens it meanwhile, or takes its last name, takes it out again.
  absl::Status Close(const OpenFile& file);
  runtime::Ref<Layer> TakeClosing(ObjectId id);  // null: it is none of those
  void SendClosings();
  absl::StatusOr<Handle> HandleOf(FileHandle handle);
  absl::Status PushFile(OpenFile& file, bool waits = true);
  // Gives the volume the time of the last write that was held back; 0: there was none. Where it may
  // not wait for other clients it may be left for the next time.
  absl::Status TellWhenWritten(OpenFile& file, int64_t written_ns, bool waits);
  // After a write through `handle`, which is `open`.
  absl::Status Written(FileHandle handle, const Handle& open);
  absl::StatusOr<uint64_t> Seek(FileHandle handle, uint64_t offset, bool data);
  absl::Status ChangeXattr(const Caller& caller, ObjectId file, XattrChange change);
  // What an attribute of the file system's own is to be.
  absl::Status CheckOwnXattr(const XattrChange& change) const;
  // For kStateXattr.
  absl::StatusOr<std::string> StateOf(const Node& node);

  const runtime::Ref<Volume> volume_;
  const VolumeInfo info_;
  Siblings* const siblings_;
  const LayerKinds& kinds_;
  const Host host_;
  const Options options_;
  const std::shared_ptr<EndLink> link_;
  const runtime::Ref<ClientEnd> end_;
  HybridClock clock_;
  // Where calls wait that change several objects; the volume's objects begin at 1.
  static constexpr ObjectId kAnyObject = 0;
  // Keepers' answers may come when this has ended.
  const std::shared_ptr<WaitBoard> board_ =
      std::make_shared<WaitBoard>(siblings_ == nullptr ? nullptr : siblings_->waits());
  Knowledge known_{Knowledge::Options{.inodes_max = options_.known_inodes_max,
                                      .names_max = 4 * options_.known_inodes_max}};
  // Monotonic; what was promised to this client holds as long.
  std::atomic<int64_t> lease_until_ns_;
  std::unique_ptr<FileLocks> locks_;
  runtime::Mutex keepers_mutex_;
  runtime::CondVar keepers_changed_;
  uint64_t last_keeper_ ABSL_GUARDED_BY(keepers_mutex_) = 0;
  std::map<uint64_t, Forget> keepers_ ABSL_GUARDED_BY(keepers_mutex_);
  int telling_keepers_ ABSL_GUARDED_BY(keepers_mutex_) = 0;
  // One file's stack, or one directory's, is made or ended at a time.
  Turns openings_;

  runtime::Mutex mutex_;
  std::atomic<uint64_t> last_handle_{0};
  absl::flat_hash_map<FileHandle, Handle> handles_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<ObjectId, FilePtr> files_ ABSL_GUARDED_BY(mutex_);
  // Closed here, and still open at the volume: their lowest layers.
  static constexpr size_t kClosingsMax = 64;
  absl::flat_hash_map<ObjectId, runtime::Ref<Layer>> closings_ ABSL_GUARDED_BY(mutex_);
  // That this client may make objects as.
  static constexpr uint32_t kIdsAtOnce = 64;
  std::vector<ObjectId> new_ids_ ABSL_GUARDED_BY(mutex_);
  // Most recently used first.
  std::list<DirectoryPtr> recent_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<ObjectId, std::list<DirectoryPtr>::iterator> directories_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_FILE_SYSTEM_IMPL_H_
