#include "objfs/fuse/adapter.h"

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status.h"

namespace abacus::objfs::fuse {
namespace {

double Seconds(const Mount::Options& options, absl::Duration otherwise) {
  return absl::ToDoubleSeconds(options.exclusive ? options.exclusive_for : otherwise);
}

void Begin(void* user_data, fuse_conn_info* connection) {
  const auto& options = static_cast<Adapter*>(user_data)->options();
  connection->max_write = options.request_bytes_max;
  connection->max_readahead = std::min(connection->max_readahead, options.request_bytes_max);
  connection->max_background = options.background_max;
  connection->congestion_threshold = options.background_max - options.background_max / 4;

  // Data goes through memory, not through pipes: a splice costs small requests two more system
  // calls, and layers want their bytes in memory anyway. Set-id bits that a writer may not keep
  // fall by a SETATTR of the kernel's, which knows the writer: so no HANDLE_KILLPRIV. Where the
  // kernel keeps no pages, and at an open(2) that truncates, they are ours (DropSetId). The kernel
  // does not collect writes (no WRITEBACK_CACHE): what the store refuses is to be the error of the
  // write(2) that brought it, and a program that unmaps a page that it wrote waits for ever in some
  // kernels where it does.
  unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS |
                  FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO;
  // Without other clients the kernel's own locks are enough.
  want |= options.exclusive
              ? FUSE_CAP_CACHE_SYMLINKS
              : FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;
  connection->want = want & connection->capable;
}

}  // namespace

Adapter::Adapter(FileSystem& files, Mount::Options options)
    : files_(files),
      options_(std::move(options)),
      root_(files.root()),
      attributes_for_(Seconds(options_, options_.attributes_for)),
      names_for_(Seconds(options_, options_.names_for)),
      lock_waits_(files),
      log_limit_(options_.logs_per_second_max) {}

void Adapter::ForgetAttributes(uint64_t inode) {
  if (session_ == nullptr) return;
  // No pages from a negative offset on: it waits for nobody, also not for who writes to the file.
  fuse_lowlevel_notify_inval_inode(session_, inode, -1, 0);
}

void Adapter::ForgetPages(uint64_t inode) {
  if (options_.exclusive || session_ == nullptr) return;
  // What it answers is of no use: where the kernel does not know the file it has no pages of it.
  fuse_lowlevel_notify_inval_inode(session_, inode, 0, 0);
}

void Adapter::ForgetPagesSoon(ObjectId file, std::function<void()> done) {
  const uint64_t inode = Swap(file);
  {
    runtime::MutexLock lock(mutex_);
    ++forgetting_[inode];
  }
  lock_waits_.Answer([this, inode, done = std::move(done)] {
    ForgetPages(inode);
    {
      runtime::MutexLock lock(mutex_);
      if (--forgetting_[inode] == 0) forgetting_.erase(inode);
    }
    done();
  });
}

void Adapter::Wrote(uint64_t inode, PageReads::Clock::time_point seen) {
  if (options_.exclusive || options_.direct_io) return;
  if (page_reads_.Beside(inode, seen)) return ForgetPagesSoon(Swap(inode), [] {});
  MayKeep(inode);
}

void Adapter::MayKeep(uint64_t inode) {
  if (options_.exclusive || options_.direct_io || files_.IsTold(Swap(inode))) return;
  bool many = false;
  {
    runtime::MutexLock lock(mutex_);
    many = untold_.size() >= kUntoldMax && !untold_.contains(inode);
    if (!many) untold_.insert(inode);
  }
  if (many) ForgetPagesSoon(Swap(inode), [] {});
}

bool Adapter::IsForgetting(uint64_t inode) {
  bool untold = false;
  {
    runtime::MutexLock lock(mutex_);
    untold = untold_.erase(inode) > 0;
    if (!untold) return forgetting_.contains(inode);
  }
  ForgetPagesSoon(Swap(inode), [] {});
  return true;
}

void Adapter::Hold(std::shared_ptr<void> held) {
  runtime::MutexLock lock(mutex_);
  const void* const address = held.get();
  held_[address] = std::move(held);
}

void Adapter::LetGo(const void* held) {
  std::shared_ptr<void> last;  // it ends when the lock is free
  runtime::MutexLock lock(mutex_);
  const auto found = held_.find(held);
  if (found == held_.end()) return;
  last = std::move(found->second);
  held_.erase(found);
}

void Adapter::Log(std::string_view operation, const absl::Status& status) {
  const std::optional<uint64_t> untold = log_limit_.Pass(absl::Now());
  if (!untold.has_value()) return;
  std::string message =
      absl::StrCat("mount: ", runtime::ToAbsl(operation), ": ", status.ToString());
  if (*untold > 0) absl::StrAppend(&message, " (before it, ", *untold, " more)");
  if (options_.log) {
    options_.log(message);
  } else {
    spdlog::error("{}", message);
  }
}

const fuse_lowlevel_ops& Operations() {
  static const fuse_lowlevel_ops table = [] {
    fuse_lowlevel_ops made = {};
    made.init = Begin;
    AddNameOperations(&made);
    AddFileOperations(&made);
    AddListOperations(&made);
    AddLockOperations(&made);
    return made;
  }();
  return table;
}

}  // namespace abacus::objfs::fuse
