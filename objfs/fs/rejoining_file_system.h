#ifndef ABACUS_OBJFS_FS_REJOINING_FILE_SYSTEM_H_
#define ABACUS_OBJFS_FS_REJOINING_FILE_SYSTEM_H_

// The file system that programs have: it goes on when its volume has given its client up, or has
// died and come back. What FileSystem::Make() returns.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "objfs/fs/file_system_impl.h"
#include "objfs/store/shared_gate.h"
#include "objfs/store/turns.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_of.h"

namespace abacus::objfs {

// Passes each call on to one joining of the volume (FileSystemImpl). Where a call's error says that
// the joining may be over, it asks the server, and joins again: a new joining takes over what the
// old one had open, while no other call is under way, and the call is made again where it did
// nothing yet or may be made twice.
//
// Why a new joining and no repair of the old one: everything that a client has at a volume is in
// its number's name, and the layers of its files hold it. All of them are made anew, from the
// stacks' texts, by the same code as the first time.
//
// Invariants:
// 1. No call runs in two joinings at once; what a call wrote is in the one that takes over, or is
//    told as lost.
// 2. A joining that the server knows is never given up for an error of the network.
// Thread-safety: thread-safe. Blocking: as FileSystem; and while it joins again.
class RejoiningFileSystem final : public FileSystem {
 public:
  // While the server does not answer it is asked so often, if not more often for the lease.
  static constexpr std::chrono::seconds kTryAgain{1};
  // Who has looked for it for so long in vain is believed for kTryAgain: else each call would wait
  // for as long.
  static constexpr std::chrono::milliseconds kLongLook{500};
  // And where another one may answer for the volume.
  static constexpr std::chrono::milliseconds kLookForAnother{200};

  // `siblings`: as FileSystemImpl's.
  RejoiningFileSystem(runtime::Ref<Volume> volume, const LayerKinds& kinds, Host host,
                      Options options, std::unique_ptr<FileSystemImpl> joined,
                      Siblings* siblings = nullptr);
  ~RejoiningFileSystem() override;

  ObjectId root() const override { return root_; }
  absl::Status Renew() override;

  // -- for the joinings of other shards: see Siblings ---------------------------------------------

  // Calls `call` with the joining, unless it is being made anew: then returns false at once. What
  // `call` meets is its own affair. `joining`: a name of this joining, for Look().
  bool TryWith(const std::function<void(FileSystemImpl& joined)>& call, uint64_t* joining);
  // Whether what a call met may mean that its joining is over: it is worth while to Look().
  static bool MayBeOver(const absl::Status& why);
  // Or that it waited for another client, and was sent away by a joining that takes over.
  static bool WasSentAway(const absl::Status& why) { return absl::IsCancelled(why); }
  // Asks the server for a sign of life, and joins again where the joining in which a call met `why`
  // is over. OK: there is a joining now, perhaps the same one.
  // REQUIRES: the caller is inside no joining. Blocking: as calls, while it is being made anew.
  absl::Status Look(uint64_t joining, const absl::Status& why);

  absl::StatusOr<Node> Lookup(const Caller& caller, ObjectId directory,
                              const std::string& name) override;
  absl::StatusOr<Created> Create(const Caller& caller, ObjectId directory, const std::string& name,
                                 uint32_t mode, int flags, const std::string& stack) override;
  absl::StatusOr<Node> Make(const Caller& caller, ObjectId directory, const std::string& name,
                            uint32_t mode, uint64_t device, const std::string& contents) override;
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
  uint64_t NewLockTicket() override;
  void Lock(const LockRequest& request, const LockDone& done) override;
  void CancelLock(uint64_t ticket) override;
  absl::Status Unlock(const LockRequest& request) override;
  absl::Status UnlockAll(ObjectId file, LockKind kind, uint64_t owner) override;
  absl::StatusOr<std::optional<HeldLock>> GetLock(const LockRequest& request) override;
  uint64_t AddKeeper(Forget forget) override;
  void RemoveKeeper(uint64_t keeper) override;
  bool IsTold(ObjectId file) override;
  absl::StatusOr<RebuildProgress> Rebuild(FileHandle handle, uint64_t from,
                                          uint64_t stripes) override;
  absl::StatusOr<ScrubProgress> Scrub(FileHandle handle, uint64_t from, uint64_t stripes) override;
  absl::StatusOr<VolumeSpace> Space() override;
  absl::StatusOr<std::string> StackOf(ObjectId file) override;

 private:
  // A call that met the end of several joinings in a row has its error.
  static constexpr int kTriesMax = 3;

  enum class Repeat : uint8_t {
    kAlways = 0,     // it may be made twice
    kWhereItDidNot,  // made again only where it certainly did nothing
  };
  template <typename F>
  auto Call(Repeat repeat, F&& call) -> decltype(call(std::declval<FileSystemImpl&>())) {
    std::optional<std::chrono::steady_clock::time_point> until;
    for (int tries = 1;;) {
      uint64_t joining = 0;
      auto result = Inside(&joining, call);
      const absl::Status& status = runtime::StatusOf(result);
      if (status.ok() || tries == kTriesMax) return result;
      const bool joined = JoinedSince(joining, status);
      if (joined) ++tries;
      if (!joined && !WaitsForTakeover(status, &until)) return result;
      if (repeat == Repeat::kWhereItDidNot && runtime::IsOutcomeUnknown(status)) return result;
    }
  }
  template <typename F>
  auto Inside(uint64_t* joining, F& call) -> decltype(call(std::declval<FileSystemImpl&>())) {
    const SharedGate::Pass pass(gate_);
    *joining = joining_;
    return call(*joined_);
  }
  // Whether there is a newer joining than `joining`, which a call met with `why`.
  bool JoinedSince(uint64_t joining, const absl::Status& why);
  // Where another server may come to answer for the volume, after what a call met as `why`: waits
  // for a moment, at most until `until`, which the first call sets. False: it is not worth while.
  bool WaitsForTakeover(const absl::Status& why,
                        std::optional<std::chrono::steady_clock::time_point>* until);
  // Waits so long; false: this is being ended.
  bool Rest(std::chrono::nanoseconds time);
  // Asks the server, and joins again where the joining is over.
  bool JoinAgain(const absl::Status& why);
  // Has `work` done once in an interval, and sooner again where it fails, until this ends.
  void NowAndThen(std::chrono::nanoseconds interval, const std::function<absl::Status()>& work);
  // Of what is kept above of the old joining's files nothing counts.
  void TakeKeepersOver(FileSystemImpl& before, FileSystemImpl& joined);

  const LayerKinds& kinds_;
  const Host host_;
  const Options options_;
  Siblings* const siblings_;
  const ObjectId root_;
  const std::chrono::nanoseconds takeover_;  // VolumeInfo::takeover_ns

  // Passed by all calls, closed while joined_ changes.
  SharedGate gate_;
  std::unique_ptr<FileSystemImpl> joined_;
  runtime::Ref<Volume> volume_;  // who holds the turn of joins_; so is the next
  std::chrono::steady_clock::time_point silent_until_;
  std::atomic<uint64_t> joining_{1};
  Turns joins_;  // one at a time
  std::atomic<uint64_t> attempts_{0};

  struct Keeper {
    Forget forget;
    uint64_t in_joining = 0;  // its name there
  };
  runtime::Mutex keepers_mutex_;
  uint64_t last_keeper_ ABSL_GUARDED_BY(keepers_mutex_) = 0;
  std::map<uint64_t, Keeper> keepers_ ABSL_GUARDED_BY(keepers_mutex_);

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Last: they use the others. Two, for what is pushed may take longer than a lease.
  std::thread renewer_, pusher_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_REJOINING_FILE_SYSTEM_H_
