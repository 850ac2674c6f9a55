// Operations on locks: fcntl(2) and flock(2), which hold between all mounts of a volume.
//
// The kernel tells an owner of each: for POSIX locks its name of the process's table of open files,
// for those of an open file description its name of the open file; those of flock(2) are the open
// file's here. The first go with each close(2) of the process, the others with the last; a mount is
// told of the one by "flush" and of the other by "release".

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/file.h>

#include <cstdint>

#include "objfs/fuse/adapter.h"
#include "objfs/fuse/open_file.h"
#include "objfs/fuse/request.h"

namespace abacus::objfs::fuse {
namespace {

OpenFile& LockedFile(const fuse_file_info* info) { return *reinterpret_cast<OpenFile*>(info->fh); }

LockRequest RequestOf(ObjectId file, const fuse_file_info* info, const struct flock& lock) {
  LockRequest request;
  request.file = file;
  request.kind = LockKind::kRecord;
  request.exclusive = lock.l_type == F_WRLCK;
  request.range.first = static_cast<uint64_t>(lock.l_start);
  if (lock.l_len > 0) {
    request.range.last =
        static_cast<uint64_t>(lock.l_start) + static_cast<uint64_t>(lock.l_len) - 1;
  }
  request.owner = info->lock_owner;
  request.pid = static_cast<uint32_t>(lock.l_pid);
  return request;
}

// Called with libfuse's locks held, so that it only leaves word.
void Interrupted(fuse_req_t raw, void* data) {
  const auto& adapter = *static_cast<Adapter*>(fuse_req_userdata(raw));
  adapter.files().CancelLock(reinterpret_cast<uintptr_t>(data));
}

// Answered when it is known, and the thread goes on to other requests. Before the kernel has a lock
// it forgets the file's pages, or who locks could read what was there before another client wrote:
// that the kernel looks for a new modification time is not enough, because it takes no attributes
// that were asked for before others of the same file came.
void Ask(Request& request, const char* operation, fuse_ino_t inode, OpenFile& file,
         LockRequest wanted, bool waits) {
  file.KeepOwner(wanted.kind, wanted.owner);
  Adapter& adapter = request.adapter();
  const uint64_t ticket = wanted.ticket = waits ? adapter.files().NewLockTicket() : 0;
  if (waits) adapter.lock_waits().Add(ticket);
  fuse_req* const raw = request.Defer();
  // From here on only the answer touches the request: it may come before Lock() returns.
  if (waits) fuse_req_interrupt_func(raw, Interrupted, reinterpret_cast<void*>(ticket));
  adapter.files().Lock(wanted, [&adapter, raw, operation, inode, ticket](absl::Status status) {
    adapter.lock_waits().Answer([&adapter, raw, operation, inode, ticket, status] {
      if (status.ok()) adapter.ForgetPages(inode);
      Serve(raw, operation, [&status](Request& asked) { asked.Answer(status); });
      if (ticket != 0) adapter.lock_waits().Remove(ticket);
    });
  });
}

void GetLock(fuse_req_t raw, fuse_ino_t inode, fuse_file_info* info, struct flock* lock) {
  Serve(raw, "getlk", [&](Request& request) {
    const auto excluding = request.files().GetLock(RequestOf(request.Id(inode), info, *lock));
    if (!excluding.ok()) return request.Fail(excluding.status());
    request.AnswerLock(*excluding);
  });
}

void SetLock(fuse_req_t raw, fuse_ino_t inode, fuse_file_info* info, struct flock* lock,
             int waits) {
  Serve(raw, "setlk", [&](Request& request) {
    const LockRequest wanted = RequestOf(request.Id(inode), info, *lock);
    if (lock->l_type == F_UNLCK) return request.Answer(request.files().Unlock(wanted));
    Ask(request, "setlk", inode, LockedFile(info), wanted, waits != 0);
  });
}

void LockWhole(fuse_req_t raw, fuse_ino_t inode, fuse_file_info* info, int operation) {
  Serve(raw, "flock", [&](Request& request) {
    LockRequest wanted;
    wanted.file = request.Id(inode);
    wanted.kind = LockKind::kFlock;
    wanted.exclusive = (operation & LOCK_EX) != 0;
    // Not the kernel's name for the open file, which is made of its address: the next one may have
    // the same before this mount is told of the release of the one before.
    wanted.owner = LockedFile(info).handle();
    wanted.pid = static_cast<uint32_t>(fuse_req_ctx(raw)->pid);
    if ((operation & LOCK_UN) != 0) return request.Answer(request.files().Unlock(wanted));
    Ask(request, "flock", inode, LockedFile(info), wanted, (operation & LOCK_NB) == 0);
  });
}

}  // namespace

void AddLockOperations(fuse_lowlevel_ops* table) {
  table->getlk = GetLock;
  table->setlk = SetLock;
  table->flock = LockWhole;
}

}  // namespace abacus::objfs::fuse
