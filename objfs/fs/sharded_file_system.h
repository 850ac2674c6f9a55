#ifndef ABACUS_OBJFS_FS_SHARDED_FILE_SYSTEM_H_
#define ABACUS_OBJFS_FS_SHARDED_FILE_SYSTEM_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/lock_tickets.h"
#include "objfs/fs/rejoining_file_system.h"
#include "objfs/fs/siblings.h"
#include "objfs/fs/wait_board.h"
#include "objfs/store/object_id.h"
#include "objfs/store/shared_gate.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/base/status_of.h"

namespace abacus::objfs {

// The file system of a volume with several shards (volume/shard.h): one of each, which it gives
// each call by the identifier that it is about. What concerns several shards they do among
// themselves (siblings.h, across_shards.cc); here is what may wait for one of them.
//
// A shard whose server is away is an error to calls about its objects, and to nobody else; but
// Space() and Renew() are of all. What no shard of the volume has is answered as what is not there:
// kStale, kBadHandle. Who waits for a record lock of a file of one shard, and has one that another
// waits for of a file of another shard, is not told kDeadlock: each shard knows its own locks only.
//
// Handles have the shard in their upper 4 bits, like identifiers.
// Thread-safety: thread-safe. Blocking: as FileSystem.
class ShardedFileSystem final : public FileSystem {
 public:
  // `first`: the joining of `volume`, whichever shard that is; it is ended, and all are joined so
  // that they know of each other, the others by Host::find_volume and ShardName().
  // Errors: those of the first one that cannot be joined. kFailedPrecondition - the shards that
  // there are are not those of one volume, or there is no Host::find_volume.
  static absl::StatusOr<std::unique_ptr<FileSystem>> Make(std::unique_ptr<FileSystemImpl> first,
                                                          runtime::Ref<Volume> volume,
                                                          const LayerKinds& kinds, Host host,
                                                          Options options);
  ~ShardedFileSystem() override;
  ObjectId root() const override { return root_; }
  absl::Status Renew() override;

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
  class Others;  // the Siblings of one shard
  explicit ShardedFileSystem(uint32_t shards);

  // How often a call is made again that met trouble with shards' joinings.
  static constexpr int kRepeatsMax = 3;
  // And for how long, where it meets joinings that are being made anew, again and again.
  static constexpr std::chrono::seconds kPatience{30};
  struct Trials {
    int repeats = 0;
    std::optional<std::chrono::steady_clock::time_point> until;
  };
  enum class Repeat : uint8_t {
    kAlways = 0,     // it may be made twice
    kWhereItDidNot,  // made again only where it certainly did nothing
  };
  absl::Status NoSuchObject(ObjectId id) const;
  bool HasShardOf(uint64_t id) const { return ShardOf(id) < shards_.size(); }
  // A call about one object, at its shard.
  template <typename F>
  auto At(ObjectId id, F&& call) -> decltype(call(std::declval<RejoiningFileSystem&>())) {
    if (!HasShardOf(id)) return NoSuchObject(id);
    return call(*shards_[ShardOf(id)]);
  }
  // The same, of one that may meet trouble with another shard's joining: it is made again once that
  // one has seen to it. REQUIRES: the caller is inside no joining.
  template <typename F>
  auto Across(Repeat repeat, ObjectId id, F&& call)
      -> decltype(call(std::declval<RejoiningFileSystem&>())) {
    for (Trials trials;;) {
      auto result = At(id, call);
      if (runtime::StatusOf(result).ok()) return result;
      absl::Status end = SeesTo(runtime::StatusOf(result), repeat, &trials);
      if (!end.ok()) return end;
    }
  }
  // Where a call met that, has that joining looked at, and waits for it. OK: the call is to be made
  // again. Else what its caller is told.
  absl::Status SeesTo(const absl::Status& met, Repeat repeat, Trials* trials);

  // A handle of a shard's as it is given out, and back.
  static FileHandle Outer(uint32_t shard, FileHandle inner);
  struct Inner {
    RejoiningFileSystem* shard = nullptr;
    FileHandle handle = 0;
  };
  absl::StatusOr<Inner> HandleOf(FileHandle outer);
  // A call with a handle, at its shard, which knows it by another number.
  template <typename F>
  auto With(FileHandle handle, F&& call)
      -> decltype(call(std::declval<RejoiningFileSystem&>(), FileHandle())) {
    const absl::StatusOr<Inner> inner = HandleOf(handle);
    if (!inner.ok()) return inner.status();
    return call(*inner->shard, inner->handle);
  }

  // What the shards' joinings share, and outlives them.
  const std::shared_ptr<ClientWaits> waits_ = std::make_shared<ClientWaits>();
  ObjectId root_ = 0;  // constant after Make()
  LockTickets tickets_;
  // Passed by whoever goes from one shard to another: shut until all are there, and again before
  // the first one ends.
  SharedGate between_;
  bool is_whole_ = false;                                     // and not shut; constant after Make()
  std::vector<std::unique_ptr<Others>> others_;               // by shard; used by shards_
  std::vector<std::unique_ptr<RejoiningFileSystem>> shards_;  // constant after Make()

  runtime::Mutex mutex_;
  uint64_t last_keeper_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::vector<uint64_t>> keepers_ ABSL_GUARDED_BY(mutex_);  // by shard
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_SHARDED_FILE_SYSTEM_H_
