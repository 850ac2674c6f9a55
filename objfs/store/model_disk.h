#ifndef ABACUS_OBJFS_STORE_MODEL_DISK_H_
#define ABACUS_OBJFS_STORE_MODEL_DISK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "objfs/store/disk.h"
#include "objfs/store/memory_disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What a ModelDisk adds to the disk below. One device serves one request at a time.
struct DiskModel {
  double bytes_per_second = 0;  // 0: as fast as the disk below
  absl::Duration seek;          // for a request that does not begin where the last one ended
  absl::Duration flush;         // for every Sync, SyncDirectory and SyncAll
  // Spends the time that a request takes. Tests and simulations hand in their own clock's.
  std::function<void(absl::Duration)> wait;
  // Asked before each call, with its name ("read", "write", "truncate", "punch", "sync", "open",
  // "create", "rename", "remove", "list", "space") and the path: what is not OK is the call's
  // answer, and the disk below does not see the call. Called from any thread.
  std::function<absl::Status(std::string_view call, const std::string& path)> fault;
};

// A disk with a speed and with faults, over any other. Reads and writes both cost when they are
// called: it models the device, not a cache above it.
// REQUIRES: the disk below outlives it.
class ModelDisk : public Disk {
 public:
  ModelDisk(Disk& below, DiskModel model)
      : device_(std::make_shared<Device>(std::move(model))), below_(below) {}

  absl::StatusOr<std::shared_ptr<DiskFile>> Open(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<DiskFile>> Create(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string& directory) override;
  absl::Status SyncAll() override;
  absl::StatusOr<DiskSpace> Space() override;

  // The time that a request takes which moves `bytes` bytes, sought for or not.
  static absl::Duration TimeOf(const DiskModel& model, uint64_t bytes, bool seeks);

 private:
  friend class ModelFile;
  // Shared with the open files.
  class Device {
   public:
    explicit Device(DiskModel model) : model_(std::move(model)) {}
    absl::Status Fault(std::string_view call, const std::string& path) const;
    void Transfer(const void* file, uint64_t offset, uint64_t bytes);
    void Flush();

   private:
    const DiskModel model_;
    runtime::Mutex mutex_;  // held while a request takes its time: there is one device
    const void* last_file_ ABSL_GUARDED_BY(mutex_) = nullptr;
    uint64_t last_end_ ABSL_GUARDED_BY(mutex_) = 0;
  };

  absl::StatusOr<std::shared_ptr<DiskFile>> Wrap(absl::StatusOr<std::shared_ptr<DiskFile>> file,
                                                 const std::string& path);

  const std::shared_ptr<Device> device_;
  Disk& below_;
};

// A disk in memory whose power can be cut. It knows what was synced and what only the (modelled)
// page cache has; after a cut the latter survives in whole, in part or not at all, as disk.h allows
// and a seed chooses: torn at sectors, the length without the bytes, names without the files'
// bytes.
//
//   disk.CutPowerAfter(17);   the 17th call from now finds the power gone, and so do all later ones
//   ... (the store fails)
//   disk.PowerOn(seed);       handles from before stay dead
//
// It can also lie: say that something is synced and keep it in the cache only.
//
// Thread-safety: thread-safe. Blocking: no.
class PowerCutDisk : public Disk {
 public:
  explicit PowerCutDisk(uint64_t sector_bytes = 512);

  // Only calls that change or sync something count.
  void CutPowerAfter(uint64_t calls);
  // Now, and with no call under way.
  void CutPower();
  void PowerOn(uint64_t seed);
  // The same, where the cache went to the disk in the order in which it came: what the first
  // `calls` calls changed survives, and of the rest what was synced.
  void PowerOnAsOf(uint64_t calls);
  // From now on, or no longer: each sync answers OK and makes nothing durable. What is durable
  // already stays so.
  void LieAboutSyncs(bool lies);
  // Calls since the disk was made that changed or synced something.
  uint64_t Calls();

  absl::StatusOr<std::shared_ptr<DiskFile>> Open(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<DiskFile>> Create(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string& directory) override;
  absl::Status SyncAll() override;
  absl::StatusOr<DiskSpace> Space() override;

 private:
  friend class PowerCutFile;
  struct Change {  // of a file
    enum Kind { kWrite, kTruncate, kPunch } kind;
    uint64_t offset;  // kTruncate: the length
    uint64_t length;  // kPunch
    std::string bytes;
    uint64_t call = 0;  // that made it
  };
  struct Inode {
    std::shared_ptr<MemoryFile> cached, durable;
    std::vector<Change> unsynced;
  };
  struct NameChange {
    std::string removed;  // empty: none
    std::string added;    // empty: none
    std::shared_ptr<Inode> inode;
    uint64_t call = 0;
  };
  using Names = absl::btree_map<std::string, std::shared_ptr<Inode>>;
  enum class Keep { kNothing, kAll, kSome };

  // Counts a call that changes something. Not OK where the power is gone.
  absl::Status Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPower(uint64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ChangeName(const std::string& removed, const std::string& added,
                          std::shared_ptr<Inode> inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SyncNames(const std::string& directory, size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Apply(const Change& change, MemoryFile& file);
  void ApplyPart(const Change& change, MemoryFile& file, std::mt19937_64& random) const;
  static void SyncInode(Inode& inode);
  // With what is durable, and nothing else.
  void SwitchOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t sector_bytes_;
  const std::shared_ptr<MemorySpace> space_;
  runtime::Mutex mutex_;
  bool on_ ABSL_GUARDED_BY(mutex_) = true;
  bool lies_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of the power
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<uint64_t> cut_at_ ABSL_GUARDED_BY(mutex_);
  Names cached_ ABSL_GUARDED_BY(mutex_);
  Names durable_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<std::string, std::vector<NameChange>> unsynced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_MODEL_DISK_H_
