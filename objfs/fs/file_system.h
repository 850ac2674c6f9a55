#ifndef ABACUS_OBJFS_FS_FILE_SYSTEM_H_
#define ABACUS_OBJFS_FS_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/directory/directory.h"
#include "objfs/fs/error.h"
#include "objfs/fs/file_locks.h"
#include "objfs/fs/front_end.h"
#include "objfs/layer/layer.h"
#include "objfs/layer/stack.h"
#include "objfs/layer/subgraph.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/volume/client_end.h"
#include "objfs/volume/transaction.h"
#include "objfs/volume/volume.h"
#include "runtime/base/block.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// Who asks. Where the operating system's kernel has checked permissions already (a mount with
// default_permissions), `checked` spares doing it again.
struct Caller {
  uint32_t uid = 0, gid = 0;
  std::vector<uint32_t> groups;  // beside gid
  bool checked = false;
};

struct SetAttributes {
  std::optional<uint32_t> permissions;  // 07777
  std::optional<uint32_t> uid, gid;
  std::optional<uint64_t> size;
  std::optional<int64_t> accessed_ns, modified_ns;  // since 1970
  bool accessed_now = false, modified_now = false;
  // The set-id bits that a program does not keep when somebody changes it; nothing else changes.
  bool drop_setid = false;
};

enum class RenameRule : uint8_t { kReplace = 0, kNoReplace, kExchange };

// An extended attribute of a directory: the stack, as text, of the files that are made in it.
inline constexpr char kStackXattr[] = "user.abacus.stack";
// And another: rules by the names of the files (stack_rules.h), which come before it.
inline constexpr char kStackRulesXattr[] = "user.abacus.stack-rules";
// And two of every file and directory, which can be read and are not listed: its own stack, and
// what the layers of this client and the lowest one tell of themselves, a line each.
inline constexpr char kOwnStackXattr[] = "user.abacus.own-stack";
inline constexpr char kStateXattr[] = "user.abacus.state";
// Likewise, of files that are spread over servers: where each column is, a line each.
inline constexpr char kColumnsXattr[] = "user.abacus.columns";

// Of an open file; never 0.
using FileHandle = uint64_t;

// One client's view of a volume, by POSIX rules: the anchored front end of its stacks (paper,
// figure 3). Names are resolved by directory objects, bytes go through the layers of the file's
// stack, and what changes more than one inode is one transaction of the volume.
//
// What layers of this client keep of a file is coherent with all other clients: a read that begins
// after a write returned sees it, on whichever client, and Stat() and Lookup() its size. A call
// that another client's promises are in the way of waits here until they are given back: as long as
// that takes, or until the other client's lease has run out. A client that cannot renew its own
// lease answers kUnavailable or the like, and nothing from its caches.
//
// What it knows of names and attributes by promise (knowledge.h) it tells without asking; a look
// that begins after a change returned sees it all the same, on whichever client. A change waits
// here for other clients to forget what they know of its objects, as long as for promises of bytes.
//
// Once the server that gave it up, or one that was started again, answers, it joins again by itself
// and opens all its files again, whatever their names are now. What was lost is told once: bytes
// that it had not written back, and after a server's death those that nobody had synced, with
// kInputOutput by the next Push(), Sync() or last Release() of the file; locks with the same by the
// next call with a handle of the file. A file without a name that is no more answers kStale. Of a
// file that was closed nobody is told.
//
// A volume of several shards (volume/shard.h), each with a server of its own, is one volume to all
// who use it. Names are moved, and given to files, across shards as within one: wholly or not at
// all, whoever dies. Who looks while that is done may see the file under both names for a moment,
// never under none; of two that are exchanged that is true of the one that the caller names first,
// and the other one may be seen under none. While the server of one shard does not answer, that
// moment is as long. What is of a shard whose server is away answers errors, and so does what
// changes something of it; it is listed in directories of others, without attributes, and
// everything else goes on.
//
// Files are named by ObjectId, which is never reused; the root's is root().
// Errors: of every call: FsErrorOf() tells which. kStale where the file is no more.
// Thread-safety: thread-safe. Blocking: all calls, as the layers below, and for other clients.
class FileSystem {
 public:
  // How objects are brought into the runtime and taken away, without knowing a node.
  struct Host {
    LayerHost layers;  // of kinds that are not anchored
    std::function<absl::StatusOr<runtime::Ref<Directory>>(const runtime::Ref<Volume>& volume,
                                                          const runtime::Ref<Layer>& below,
                                                          ObjectId id, uint16_t writer)>
        make_directory;
    std::function<void(const runtime::Ref<Directory>&)> end_directory;
    // For each directory, and each file with layers of this client's, that is worked with for long;
    // empty: nobody places them.
    std::function<std::unique_ptr<FrontEnd>()> make_front_end;
    FileLocks::Host locks;
    // Where the volume's server tells what other clients change.
    std::function<runtime::Ref<ClientEnd>(std::unique_ptr<ClientEnd>)> adopt_end;
    std::function<void(const runtime::Ref<ClientEnd>&)> remove_end;
    // The volume of that name where it is now: after a restart of its server it is another object.
    // Empty: where it was.
    std::function<absl::StatusOr<runtime::Ref<Volume>>(const std::string& name)> find_volume;
    std::function<int64_t()> now_us;     // since 1970
    std::function<int64_t()> steady_ns;  // monotonic, for the lease; empty: this machine's
  };
  struct Options {
    std::string client = "client";  // for people
    // Takes the place of the volume's for files that this client makes; empty: the volume's own,
    // if it was made with one, else the usual one.
    std::string file_stack;
    // Likewise, where nobody chose one when the volume was made; empty: the volume's standard.
    std::string usual_file_stack = {};
    // What was written and held back for so long is pushed without being asked to, when the lease
    // is renewed the next time.
    absl::Duration push_after = absl::Seconds(5);
    // Of so many inodes, and four times as many names, it keeps what it knows by promise.
    size_t known_inodes_max = 131'072;
  };

  // Joins the volume, and where it has several shards all of them. REQUIRES: `kinds` outlives the
  // file system. Blocking: for a shard that is being made whole after a restart, some seconds.
  // Errors: as Volume::Join and CheckStack.
  static absl::StatusOr<std::unique_ptr<FileSystem>> Make(runtime::Ref<Volume> volume,
                                                          const LayerKinds& kinds, Host host,
                                                          Options options);
  // Closes what is open, writes back what is dirty, and leaves the volume.
  virtual ~FileSystem() = default;

  virtual ObjectId root() const = 0;

  // Says that this client lives and pushes what is old: a thread of its own does it now and then.
  // Errors: the server does not answer.
  virtual absl::Status Renew() = 0;

  // -- names -------------------------------------------------------------------------------------

  virtual absl::StatusOr<Node> Lookup(const Caller& caller, ObjectId directory,
                                      const std::string& name) = 0;
  // `mode`: type and permissions; the umask is off already. `contents`: a symbolic link's target.
  virtual absl::StatusOr<Node> Make(const Caller& caller, ObjectId directory,
                                    const std::string& name, uint32_t mode, uint64_t device,
                                    const std::string& contents) = 0;
  struct Created {
    Node node;
    FileHandle handle = 0;
  };
  // Makes a regular file and opens it, for reading and writing as `flags` say whatever `mode` does.
  // `stack`: the file's, as text; empty: the one that the directory's rules say, else the
  // directory's, this client's or the volume's.
  // Errors: as Make(); after an error of opening it the file is there. kInvalid - a stack that
  // cannot be; the message shows the place of the mistake.
  virtual absl::StatusOr<Created> Create(const Caller& caller, ObjectId directory,
                                         const std::string& name, uint32_t mode, int flags,
                                         const std::string& stack) = 0;
  virtual absl::StatusOr<Node> Link(const Caller& caller, ObjectId file, ObjectId directory,
                                    const std::string& name) = 0;
  virtual absl::Status Unlink(const Caller& caller, ObjectId directory,
                              const std::string& name) = 0;
  virtual absl::Status RemoveDirectory(const Caller& caller, ObjectId directory,
                                       const std::string& name) = 0;
  virtual absl::Status Rename(const Caller& caller, ObjectId from_directory,
                              const std::string& from, ObjectId to_directory, const std::string& to,
                              RenameRule rule) = 0;
  virtual absl::StatusOr<std::string> ReadLink(const Caller& caller, ObjectId link) = 0;

  struct Listed {
    std::string name;
    uint64_t cookie = 0;
    Node node;  // without attributes, id and type are all that it has; its inode has no links then
  };
  // Entries behind `cookie` (0: the beginning), "." and ".." first; none: the end.
  virtual absl::StatusOr<std::vector<Listed>> List(const Caller& caller, ObjectId directory,
                                                   uint64_t cookie, uint32_t max,
                                                   bool with_attributes) = 0;

  // -- inodes ------------------------------------------------------------------------------------

  virtual absl::StatusOr<Node> Stat(ObjectId file) = 0;
  virtual absl::StatusOr<Node> Set(const Caller& caller, ObjectId file,
                                   const SetAttributes& set) = 0;
  // `want`: R_OK, W_OK, X_OK or F_OK of access(2).
  virtual absl::Status Access(const Caller& caller, ObjectId file, int want) = 0;

  virtual absl::StatusOr<std::string> GetXattr(const Caller& caller, ObjectId file,
                                               const std::string& name) = 0;
  virtual absl::Status SetXattr(const Caller& caller, ObjectId file, const std::string& name,
                                const std::string& value, XattrRule rule) = 0;
  virtual absl::Status RemoveXattr(const Caller& caller, ObjectId file,
                                   const std::string& name) = 0;
  virtual absl::StatusOr<std::vector<std::string>> ListXattrs(const Caller& caller,
                                                              ObjectId file) = 0;

  // -- open files --------------------------------------------------------------------------------

  // `want` as for Access(). `flags`: O_TRUNC of open(2) is looked at.
  virtual absl::StatusOr<FileHandle> Open(const Caller& caller, ObjectId file, int flags) = 0;
  // Writes back what is dirty where `handle` is the last one; its error is what close(2) tells.
  virtual absl::Status Release(FileHandle handle) = 0;

  virtual absl::StatusOr<runtime::Block> Read(FileHandle handle, uint64_t offset,
                                              uint64_t bytes) = 0;
  virtual absl::Status Write(FileHandle handle, uint64_t offset, const runtime::Block& bytes) = 0;
  // Writes at the end of the file, wherever other clients have put it, and returns the offset: what
  // write(2) does to a file that is open to append. Appends at once come one after the other.
  virtual absl::StatusOr<uint64_t> Append(FileHandle handle, const runtime::Block& bytes) = 0;
  // Brings what was written to the volume, where other clients see it.
  virtual absl::Status Push(FileHandle handle) = 0;
  // And makes it durable, with the names that were given to the file.
  virtual absl::Status Sync(FileHandle handle) = 0;
  // Of what was written alone, and what is needed to read it: fdatasync(2). Times, and names and
  // attributes that were given since the last Sync(), are durable later where that costs less.
  virtual absl::Status SyncData(FileHandle handle) { return Sync(handle); }
  virtual absl::Status SyncDirectory(ObjectId directory) = 0;
  // `mode` as fallocate(2) has it: 0, KEEP_SIZE, or PUNCH_HOLE with KEEP_SIZE.
  virtual absl::Status Allocate(FileHandle handle, int mode, uint64_t offset, uint64_t bytes) = 0;
  virtual absl::StatusOr<uint64_t> SeekData(FileHandle handle, uint64_t offset) = 0;
  virtual absl::StatusOr<uint64_t> SeekHole(FileHandle handle, uint64_t offset) = 0;
  // Returns how many bytes: fewer where the source ends.
  virtual absl::StatusOr<uint64_t> CopyRange(FileHandle from, uint64_t from_offset, FileHandle to,
                                             uint64_t to_offset, uint64_t bytes) = 0;

  // Appends the object subgraph of a file that is open for reading to the caller's own object graph
  // (paper, section 4.3.1): `call` makes one call of the application's, whose objects, wherever
  // they are, read from the file's layers themselves. They may move meanwhile, and so may the
  // layers. The calling thread's console stays the root of the graph: the file has no front end of
  // its own then.
  //
  // Why no Ref that is called at will: what a cache has kept may be shown only while this client's
  // lease holds, which is looked at before `call` begins, and an answer IsWouldBlock() has to wait
  // for another client, which no mobile object may. What is read is not older than the beginning of
  // `call`; without a lease `call` is not made at all.
  //
  // `call` returns what its objects answered. On IsWouldBlock() it is made again when the other
  // client is out of the way: objects pass that answer up unchanged, and are then where they were
  // before the call. It is made again as well, with another `top`, where the joining was over and
  // it is certain that nothing was done. Nothing else is made again.
  //
  // REQUIRES: `call` only reads from the layers, keeps nothing of `subgraph` for later (it is void
  //           when `call` has returned), and calls nothing of this file system.
  // Errors: those of `call`; as Read().
  virtual absl::Status WithSubgraph(
      FileHandle handle, const std::function<absl::Status(const Subgraph& subgraph)>& call) = 0;

  // -- locks: advisory, between all clients of the volume; see FileLocks
  // ---------------------------

  virtual uint64_t NewLockTicket() = 0;
  virtual void Lock(const LockRequest& request, const LockDone& done) = 0;
  virtual void CancelLock(uint64_t ticket) = 0;  // blocking: no
  virtual absl::Status Unlock(const LockRequest& request) = 0;
  virtual absl::Status UnlockAll(ObjectId file, LockKind kind, uint64_t owner) = 0;
  // The lock that excludes the request; none: it would be granted.
  virtual absl::StatusOr<std::optional<HeldLock>> GetLock(const LockRequest& request) = 0;

  // -- what is kept of files above this interface: a kernel's pages
  // --------------------------------

  // `forget(file, done)` is called when a promise of the file breaks: after this client's layers
  // have given back what they kept, and before the server hears of it. It may not block. It has
  // `done` called, once and on whatever thread, when nothing that was read before is kept any more.
  //
  // The server hears of it, and the other client goes on, when `done` was called; but at once where
  // a call of this client waits for another client, whichever file it is about. Were it not so: A
  // keeps pages of one file, B of another, and each waits to read the other's. The kernel forgets
  // no page that it is reading, so each would wait with its `done` for a read of its own, which
  // waits for the other's. As no acknowledgement is kept back while any call waits, what calls wait
  // for comes. `done` follows then when that read has ended, and until it does whoever keeps pages
  // sees to it that nobody who begins to read now gets them (fuse/adapter.h).
  using Forget = std::function<void(ObjectId file, std::function<void()> done)>;
  //
  // A file without layers of this client's is under no promise but that for what is known of it
  // (knowledge.h), and `forget` is called when that one breaks, or is given back: the same argument
  // holds for it. Where the volume could not give it, nobody is told; IsTold() says so.
  // A name for it.
  virtual uint64_t AddKeeper(Forget forget) = 0;
  // Returns when no `forget` of it is under way, and calls none later.
  virtual void RemoveKeeper(uint64_t keeper) = 0;
  // Whether `forget` will be called before another client changes the bytes of a file that is open
  // here. Where not, as of a file with columns that several clients may use together, what is read
  // of it now may be old for who looks at it later.
  virtual bool IsTold(ObjectId file) = 0;

  // -- files with columns ------------------------------------------------------------------------

  // One step of a repair of an open file: from that stripe on, of up to so many, as ColumnsLayer
  // has it. Errors: kNotSupported - the file has no columns.
  virtual absl::StatusOr<RebuildProgress> Rebuild(FileHandle, uint64_t, uint64_t) {
    return FsStatus(FsError::kNotSupported, "files have no columns here");
  }
  virtual absl::StatusOr<ScrubProgress> Scrub(FileHandle, uint64_t, uint64_t) {
    return FsStatus(FsError::kNotSupported, "files have no columns here");
  }

  virtual absl::StatusOr<VolumeSpace> Space() = 0;
  // The stack of a file as text, top first.
  virtual absl::StatusOr<std::string> StackOf(ObjectId file) = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_FILE_SYSTEM_H_
