#include "objfs/fuse/request.h"

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <string>
#include <vector>

#include "objfs/directory/directory.h"
#include "objfs/fuse/errno.h"

namespace abacus::objfs::fuse {
namespace {

constexpr uint64_t kSectorBytes = 512;  // the unit of st_blocks, whatever the disk's is
constexpr uint64_t kBlockBytes = 4096;  // what stat(2) calls a good size of a read
constexpr int64_t kNsPerS = 1'000'000'000;
constexpr int kGroupsGuess = 32;

// Times before 1970 have a negative second and a positive rest.
timespec TimeOf(int64_t ns) {
  int64_t seconds = ns / kNsPerS, rest = ns % kNsPerS;
  if (rest < 0) {
    rest += kNsPerS;
    --seconds;
  }
  return {.tv_sec = seconds, .tv_nsec = rest};
}

}  // namespace

Request::Request(fuse_req* request, const char* operation)
    : request_(request),
      operation_(operation),
      adapter_(*static_cast<Adapter*>(fuse_req_userdata(request))) {}

Request::~Request() {
  if (!answered_) Fail(FsStatus(FsError::kInputOutput, "the operation has no answer"));
}

bool Request::Claim() {
  if (answered_) return false;
  answered_ = true;
  return true;
}

Caller Request::caller() const {
  const fuse_ctx* context = fuse_req_ctx(request_);
  return {.uid = context->uid, .gid = context->gid, .groups = {}, .checked = true};
}

Caller Request::CallerWithGroups() const {
  Caller caller = this->caller();
  std::vector<gid_t> groups(kGroupsGuess);
  int count = fuse_req_getgroups(request_, static_cast<int>(groups.size()), groups.data());
  if (count > static_cast<int>(groups.size())) {
    groups.resize(static_cast<size_t>(count));
    count = std::min(count,
                     fuse_req_getgroups(request_, static_cast<int>(groups.size()), groups.data()));
  }
  // Where the process has ended meanwhile, its own group has to do.
  groups.resize(static_cast<size_t>(std::max(count, 0)));
  caller.groups.assign(groups.begin(), groups.end());
  return caller;
}

void Request::Fail(const absl::Status& error) {
  const FsError kind = FsErrorOf(error);
  if (kind == FsError::kInputOutput) adapter_.Log(operation_, error);
  if (Claim()) fuse_reply_err(request_, ErrnoOf(kind));
}

void Request::FailSmallBuffer() {
  if (Claim()) fuse_reply_err(request_, ErrnoOfSmallBuffer());
}

void Request::Answer(const absl::Status& status) {
  if (!status.ok()) return Fail(status);
  if (Claim()) fuse_reply_err(request_, 0);
}

struct stat Request::Attributes(const Node& node) const {
  const Inode& inode = node.inode;
  struct stat made = {};
  made.st_ino = adapter_.Swap(node.id);
  made.st_mode = inode.mode;
  made.st_nlink = inode.links;
  made.st_uid = inode.uid;
  made.st_gid = inode.gid;
  made.st_rdev = inode.device;
  made.st_size = static_cast<off_t>(node.size);
  made.st_blksize = kBlockBytes;
  made.st_blocks = static_cast<blkcnt_t>((node.allocated + kSectorBytes - 1) / kSectorBytes);
  made.st_atim = TimeOf(inode.accessed_ns);
  made.st_mtim = TimeOf(inode.modified_ns);
  made.st_ctim = TimeOf(inode.changed_ns);
  return made;
}

fuse_entry_param Request::Entry(const Node& node) const {
  fuse_entry_param entry = {};
  entry.ino = adapter_.Swap(node.id);
  entry.generation = 0;  // an ObjectId is never given twice
  entry.attr = Attributes(node);
  entry.attr_timeout = adapter_.attributes_for();
  entry.entry_timeout = adapter_.names_for();
  return entry;
}

void Request::AnswerEntry(const absl::StatusOr<Node>& node) {
  if (!node.ok()) return Fail(node.status());
  const fuse_entry_param entry = Entry(*node);
  if (Claim()) fuse_reply_entry(request_, &entry);
}

void Request::AnswerNoEntry() {
  if (adapter_.names_for() <= 0) return Fail(FsError::kNoEntry);
  fuse_entry_param entry = {};
  entry.entry_timeout = adapter_.names_for();
  if (Claim()) fuse_reply_entry(request_, &entry);
}

void Request::AnswerAttributes(const absl::StatusOr<Node>& node) {
  if (!node.ok()) return Fail(node.status());
  const struct stat attributes = Attributes(*node);
  if (Claim()) fuse_reply_attr(request_, &attributes, adapter_.attributes_for());
}

void Request::AnswerBytes(std::string_view bytes) {
  if (Claim()) fuse_reply_buf(request_, bytes.data(), bytes.size());
}

void Request::AnswerLink(const std::string& target) {
  if (Claim()) fuse_reply_readlink(request_, target.c_str());
}

void Request::AnswerWritten(uint64_t bytes) {
  if (Claim()) fuse_reply_write(request_, bytes);
}

void Request::AnswerOffset(uint64_t offset) {
  if (Claim()) fuse_reply_lseek(request_, static_cast<off_t>(offset));
}

void Request::AnswerXattrBytes(size_t bytes) {
  if (Claim()) fuse_reply_xattr(request_, bytes);
}

void Request::AnswerSpace(const VolumeSpace& space) {
  struct statvfs made = {};
  const uint64_t block_bytes = space.block_bytes > 0 ? space.block_bytes : kBlockBytes;
  made.f_bsize = made.f_frsize = block_bytes;
  made.f_blocks = space.capacity_bytes / block_bytes;
  made.f_bfree = made.f_bavail = space.available_bytes / block_bytes;
  // Nothing but space limits the number of files, and an empty one takes about a block.
  made.f_ffree = made.f_favail = made.f_bavail;
  made.f_files = space.objects + made.f_ffree;
  made.f_namemax = Directory::kNameBytesMax;
  if (Claim()) fuse_reply_statfs(request_, &made);
}

void Request::AnswerLock(const std::optional<HeldLock>& excluding) {
  struct flock made = {};
  made.l_type = F_UNLCK;
  made.l_whence = SEEK_SET;
  if (excluding.has_value()) {
    const LockRange& range = excluding->range;
    made.l_type = excluding->exclusive ? F_WRLCK : F_RDLCK;
    made.l_start = static_cast<off_t>(range.first);
    // 0: however long the file becomes.
    if (range.last != kLockEnd) made.l_len = static_cast<off_t>(range.last - range.first + 1);
    made.l_pid = static_cast<pid_t>(excluding->pid);
  }
  if (Claim()) fuse_reply_lock(request_, &made);
}

fuse_req* Request::Defer() {
  answered_ = true;
  return request_;
}

bool Request::AnswerOpen(const fuse_file_info& file) {
  return Claim() && fuse_reply_open(request_, &file) == 0;
}

bool Request::AnswerCreate(const Node& node, const fuse_file_info& file) {
  const fuse_entry_param entry = Entry(node);
  return Claim() && fuse_reply_create(request_, &entry, &file) == 0;
}

}  // namespace abacus::objfs::fuse
