#ifndef ABACUS_EXPERIMENTS_LAB_CACHED_DISK_H_
#define ABACUS_EXPERIMENTS_LAB_CACHED_DISK_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "objfs/store/disk.h"
#include "objfs/store/model_disk.h"
#include "runtime/base/mutex.h"

namespace abacus::lab {

struct CacheModel {
  objfs::DiskModel disk;      // of it, bytes_per_second and seek
  uint64_t memory_bytes = 0;  // of pages; what was used longest ago goes first
  uint64_t ahead_bytes = 0;   // read ahead for a reader that goes on where it stopped
  // Now, monotonic, and a wait until then; empty: this machine's clock.
  std::function<absl::Duration()> now;
  std::function<void(absl::Duration)> wait_until;
};

// When requests to a modelled disk behind a page cache are over: no bytes, no files, only times.
//
//   a read     of pages that are there: nothing; of others: when the disk has brought them
//   a write    nothing: it stays in the cache until it is synced
//   a sync     when the disk has written what of the file was not yet
//
// Thread-safety: thread-safe. Blocking: for the time that a request takes.
class PageCache {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  explicit PageCache(CacheModel model);

  void Read(uint64_t file, uint64_t offset, uint64_t bytes, uint64_t file_bytes);
  void Write(uint64_t file, uint64_t offset, uint64_t bytes);
  void Sync(uint64_t file);
  // As after a restart: nothing is there. What is dirty counts as written.
  void Drop();
  // A number for a directory of this disk, whose files have the same paths as those of others.
  uint64_t NewDirectory();
  // A name for a file that is opened; the same for the same path.
  uint64_t NameOf(const std::string& path);
  void Forget(const std::string& path);

 private:
  struct Page {
    uint64_t file = 0, number = 0;
    absl::Duration ready;  // when the disk has brought it
  };
  struct Key {
    uint64_t file = 0, number = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return std::hash<uint64_t>()(key.file * 0x9e3779b97f4a7c15u + key.number);
    }
  };

  // Has the disk bring or take these pages, and returns when it has.
  absl::Duration Transfer(uint64_t file, uint64_t page, uint64_t pages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Bring(uint64_t file, uint64_t first, uint64_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(uint64_t file, uint64_t page, absl::Duration ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Now() const;
  void WaitUntil(absl::Duration time) const;

  const CacheModel model_;
  const uint64_t pages_max_;
  runtime::Mutex mutex_;
  std::list<Page> pages_ ABSL_GUARDED_BY(mutex_);  // used last first
  std::unordered_map<Key, std::list<Page>::iterator, Hash> index_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, uint64_t> dirty_bytes_ ABSL_GUARDED_BY(mutex_);  // by file
  std::unordered_map<uint64_t, uint64_t> next_page_
      ABSL_GUARDED_BY(mutex_);  // of a reader, by file
  std::unordered_map<std::string, uint64_t> names_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_name_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t directories_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration free_at_ ABSL_GUARDED_BY(mutex_);  // the disk
  uint64_t head_file_ ABSL_GUARDED_BY(mutex_) = 0, head_page_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A directory whose bytes are on the disk below, and whose times are a PageCache's, with those of
// the other directories of the same modelled disk.
class CachedDisk final : public objfs::Disk {
 public:
  CachedDisk(std::unique_ptr<objfs::Disk> below, std::shared_ptr<PageCache> cache)
      : below_(std::move(below)), cache_(std::move(cache)), directory_(cache_->NewDirectory()) {}

  absl::StatusOr<std::shared_ptr<objfs::DiskFile>> Open(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<objfs::DiskFile>> Create(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override {
    return below_->MakeDirectory(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return below_->List(directory);
  }
  absl::Status SyncDirectory(const std::string& directory) override {
    return below_->SyncDirectory(directory);
  }
  absl::Status SyncAll() override { return below_->SyncAll(); }
  absl::StatusOr<objfs::DiskSpace> Space() override { return below_->Space(); }

 private:
  std::string PathOf(const std::string& path) const;
  absl::StatusOr<std::shared_ptr<objfs::DiskFile>> Wrap(
      absl::StatusOr<std::shared_ptr<objfs::DiskFile>> file, const std::string& path);

  const std::unique_ptr<objfs::Disk> below_;
  const std::shared_ptr<PageCache> cache_;
  const uint64_t directory_;
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_CACHED_DISK_H_
