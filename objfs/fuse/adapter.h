#ifndef ABACUS_OBJFS_FUSE_ADAPTER_H_
#define ABACUS_OBJFS_FUSE_ADAPTER_H_

// What the operations of one mount share, and the table of them. libfuse's types stay in .cc files.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "objfs/fs/file_system.h"
#include "objfs/fuse/lock_waits.h"
#include "objfs/fuse/mount.h"
#include "objfs/fuse/page_reads.h"
#include "runtime/base/log_limit.h"
#include "runtime/base/mutex.h"

struct fuse_lowlevel_ops;
struct fuse_session;

namespace abacus::objfs::fuse {

// Thread-safety: thread-safe.
class Adapter {
 public:
  Adapter(FileSystem& files, Mount::Options options);

  FileSystem& files() const { return files_; }
  const Mount::Options& options() const { return options_; }
  LockWaits& lock_waits() { return lock_waits_; }
  PageReads& page_reads() { return page_reads_; }

  // How long the kernel may use an answer, in seconds.
  double attributes_for() const { return attributes_for_; }
  double names_for() const { return names_for_; }

  // Between the kernel's inode numbers and ours: its 1 and our root change places. One function,
  // for it is its own inverse.
  uint64_t Swap(uint64_t number) const {
    if (number == kKernelRoot) return root_;
    return number == root_ ? kKernelRoot : number;
  }

  // What the kernel names by its address until it releases it. What it never releases, because it
  // was unmounted meanwhile, ends with the adapter.
  void Hold(std::shared_ptr<void> held);
  void LetGo(const void* held);

  // REQUIRES: called once, before the first request; the session outlives all answers.
  void SetSession(fuse_session* session) { session_ = session; }
  // It has ended, and the kernel with it: there are no pages to forget.
  // REQUIRES: lock_waits() is paused, and no request is being served.
  void ForgetSession() { session_ = nullptr; }
  // Has the kernel read the file anew. Blocking: until requests to read it that are under way are
  // answered; so it is not for threads that serve requests.
  void ForgetPages(uint64_t inode);
  // Has the kernel ask for the file's attributes anew; waits for nobody.
  void ForgetAttributes(uint64_t inode);
  // The same soon, by the thread of lock_waits(); then `done`. See FileSystem::AddKeeper().
  void ForgetPagesSoon(ObjectId file, std::function<void()> done);
  // A write that was seen first at `seen` is done, and not yet answered: who reads after it is
  // answered finds no pages of before it. See PageReads.
  void Wrote(uint64_t inode, PageReads::Clock::time_point seen);
  // Pages of the file are yet to be forgotten. A program that begins to read asks for attributes
  // before it looks at pages: while this holds it is answered by lock_waits(), in whose order its
  // answer comes after that, or it might find the pages. (The kernel also forgets them where an
  // answer has a new modification time, but of several programs that ask at once it takes no notice
  // of some answers, and lets the others go on while it forgets.)
  // So are pages of which nobody is told when they become old (MayKeep()): they are forgotten here.
  bool IsForgetting(uint64_t inode);
  // The kernel is about to be given bytes of the file, or has just been. Where nobody tells when
  // another client changes it (FileSystem::IsTold), they are good until the next program looks.
  void MayKeep(uint64_t inode);

  // Logs that `operation` failed; no more often than Options allow.
  void Log(std::string_view operation, const absl::Status& status);

 private:
  static constexpr uint64_t kKernelRoot = 1;

  FileSystem& files_;
  const Mount::Options options_;
  const uint64_t root_;
  const double attributes_for_, names_for_;
  fuse_session* session_ = nullptr;
  LockWaits lock_waits_;
  PageReads page_reads_;

  runtime::LogLimit log_limit_;
  runtime::Mutex mutex_;
  absl::flat_hash_map<uint64_t, int> forgetting_ ABSL_GUARDED_BY(mutex_);  // inodes
  // Inodes with pages that nobody tells of. Beyond so many they are forgotten at once.
  static constexpr size_t kUntoldMax = 65'536;
  absl::flat_hash_set<uint64_t> untold_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const void*, std::shared_ptr<void>> held_ ABSL_GUARDED_BY(mutex_);
};

// The operations, whose user data is an Adapter.
const fuse_lowlevel_ops& Operations();

// Parts of that table: each sets the entries that its file defines.
void AddNameOperations(fuse_lowlevel_ops* table);  // names and inodes
void AddFileOperations(fuse_lowlevel_ops* table);  // open files
void AddListOperations(fuse_lowlevel_ops* table);  // open directories
void AddLockOperations(fuse_lowlevel_ops* table);  // locks

}  // namespace abacus::objfs::fuse

#endif  // ABACUS_OBJFS_FUSE_ADAPTER_H_
