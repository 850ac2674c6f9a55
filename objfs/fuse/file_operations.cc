// Operations on open files.

#include <fcntl.h>

#include <cstdint>
#include <memory>
#include <utility>

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include <linux/falloc.h>

#include <algorithm>

#include "objfs/fuse/adapter.h"
#include "objfs/fuse/open_file.h"
#include "objfs/fuse/request.h"
#include "runtime/base/block.h"

namespace abacus::objfs::fuse {
namespace {

// Between the name's creation by another client and its removal by a third: nobody is that unlucky
// more than a few times.
constexpr int kCreateTries = 8;
constexpr size_t kCopyBytesMax = size_t{1}
                                 << 30;  // of one copy_file_range(2); it returns what it did

OpenFile& FileOf(const fuse_file_info* info) { return *reinterpret_cast<OpenFile*>(info->fh); }

// Whether the kernel keeps no pages of it. Those of what is only appended to would be kept under
// the offsets that the kernel expects.
bool IsDirect(const Adapter& adapter, const OpenFile& file) {
  return adapter.options().direct_io || file.only_appends();
}

void Describe(const Adapter& adapter, OpenFile* file, fuse_file_info* info) {
  info->fh = reinterpret_cast<uintptr_t>(file);
  info->direct_io = IsDirect(adapter, *file);
  info->keep_cache = adapter.options().exclusive;
  // Every close is told of, also of what was only read: a process loses its locks with it.
  info->noflush = 0;
}

// Of the bytes that an unprivileged writer leaves he may make no program that runs as its owner.
// Where the kernel keeps pages it says so itself before it writes; where it keeps none, and where
// open(2) truncates, it leaves that to us.
absl::Status DropSetId(const Request& request, ObjectId id) {
  if (request.caller().uid == 0) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN(const Node node, request.files().Stat(id));
  if (!node.inode.IsRegular() || (node.inode.mode & (S_ISUID | S_ISGID)) == 0) {
    return absl::OkStatus();
  }
  SetAttributes set;
  set.drop_setid = true;
  ABACUS_RETURN_IF_ERROR(request.files().Set(request.caller(), id, set).status());
  request.adapter().ForgetAttributes(request.adapter().Swap(id));
  return absl::OkStatus();
}

// An open that nobody waits for any more is closed again.
void TakeBack(Request& request, OpenFile* file) {
  if (const absl::Status status = file->Release(); !status.ok()) {
    request.adapter().Log("open", status);
  }
  request.adapter().LetGo(file);
}

void Open(fuse_req_t raw, fuse_ino_t inode, fuse_file_info* info) {
  Serve(raw, "open", [&](Request& request) {
    if ((info->flags & O_TRUNC) != 0) {
      const absl::Status dropped = DropSetId(request, request.Id(inode));
      if (!dropped.ok()) return request.Fail(dropped);
    }
    auto file = OpenFile::Make(request.files(), request.caller(), request.Id(inode), info->flags);
    if (!file.ok()) return request.Fail(file.status());
    OpenFile* const open = file->get();
    Describe(request.adapter(), open, info);
    request.adapter().Hold(*std::move(file));
    if (!request.AnswerOpen(*info)) TakeBack(request, open);
  });
}

struct Created {
  Node node;
  std::unique_ptr<OpenFile> file;
};

// Opens a file that was not there when the kernel looked, and is now: all that the kernel did not
// check is checked. kNoEntry, kStale: it is gone again.
absl::StatusOr<Created> OpenExisting(Request& request, ObjectId directory, const char* name,
                                     int flags) {
  FileSystem& files = request.files();
  Created created;
  ABACUS_ASSIGN_OR_RETURN(created.node, files.Lookup(request.caller(), directory, name));
  // Stale makes the kernel walk the path again: it then follows the link, or refuses the directory.
  if (!created.node.inode.IsRegular()) return FsStatus(FsError::kStale, "not a regular file");
  Caller caller = request.CallerWithGroups();
  caller.checked = false;
  ABACUS_ASSIGN_OR_RETURN(created.file, OpenFile::Make(files, caller, created.node.id, flags));
  if ((flags & O_TRUNC) != 0) {
    if (const absl::Status dropped = DropSetId(request, created.node.id); !dropped.ok()) {
      created.file->Release().IgnoreError();  // nothing was written through it
      return dropped;
    }
  }
  auto now = files.Stat(created.node.id);  // O_TRUNC has changed it
  if (now.ok()) created.node = *std::move(now);
  return created;
}

absl::StatusOr<Created> CreateOrOpen(Request& request, ObjectId directory, const char* name,
                                     uint32_t mode, int flags, bool must_be_new) {
  absl::Status last;
  const Caller caller = mode & S_ISGID ? request.CallerWithGroups() : request.caller();
  for (int i = 0; i < kCreateTries; ++i) {
    auto made = request.files().Create(caller, directory, name, mode, flags, "");
    if (made.ok()) {
      const ObjectId id = made->node.id;
      return Created{std::move(made->node),
                     std::make_unique<OpenFile>(request.files(), id, flags, made->handle)};
    }
    if (must_be_new || FsErrorOf(made.status()) != FsError::kExists) return made.status();
    auto existing = OpenExisting(request, directory, name, flags);
    last = existing.status();
    const FsError error = FsErrorOf(last);
    if (error != FsError::kNoEntry && error != FsError::kStale) return existing;
  }
  return last;
}

void Create(fuse_req_t raw, fuse_ino_t directory, const char* name, mode_t mode,
            fuse_file_info* info) {
  Serve(raw, "create", [&](Request& request) {
    auto created = CreateOrOpen(request, request.Id(directory), name, (mode & 07777) | S_IFREG,
                                info->flags, info->flags & O_EXCL);
    if (!created.ok()) return request.Fail(created.status());
    OpenFile* const open = created->file.get();
    Describe(request.adapter(), open, info);
    request.adapter().Hold(std::move(created->file));
    if (!request.AnswerCreate(created->node, *info)) TakeBack(request, open);
  });
}

void Read(fuse_req_t raw, fuse_ino_t inode, size_t bytes, off_t offset, fuse_file_info* info) {
  Serve(raw, "read", [&](Request& request) {
    const PageReads::Reading reading(request.adapter().page_reads(), inode);
    request.adapter().MayKeep(inode);
    const auto read =
        request.files().Read(FileOf(info).handle(), static_cast<uint64_t>(offset), bytes);
    if (!read.ok()) return request.Fail(read.status());
    // More than asked for would be an error of the whole connection to the kernel.
    request.AnswerBytes(read->view().substr(0, bytes));
  });
}

void Write(fuse_req_t raw, fuse_ino_t inode, const char* data, size_t bytes, off_t offset,
           fuse_file_info* info) {
  Serve(raw, "write", [&](Request& request) {
    const auto seen = PageReads::Clock::now();
    OpenFile& file = FileOf(info);
    absl::StatusOr<FileHandle> handle = file.handle();
    if (info->writepage) handle = file.PageHandle();
    if (!handle.ok()) return request.Fail(handle.status());
    if (!info->writepage && IsDirect(request.adapter(), file)) {
      const absl::Status dropped = DropSetId(request, request.Id(inode));
      if (!dropped.ok()) return request.Fail(dropped);
    }
    // Copied, because a layer may keep it, and libfuse uses its buffer again.
    const runtime::Block block = runtime::Block::CopyOf({data, bytes});
    // The flags are those of now: fcntl(2) may have changed them since the file was opened.
    const bool appends = !info->writepage && (info->flags & O_APPEND) != 0;
    absl::Status status;
    if (appends) {
      const absl::StatusOr<uint64_t> at = request.files().Append(*handle, block);
      status = at.status();
      // The kernel has put it into its pages where it believes the end to be.
      const bool elsewhere = !at.ok() || *at != static_cast<uint64_t>(offset);
      if (elsewhere && !file.only_appends()) {
        request.adapter().ForgetPagesSoon(request.Id(inode), [] {});
      }
    } else {
      status = request.files().Write(*handle, static_cast<uint64_t>(offset), block);
    }
    request.adapter().Wrote(inode, seen);
    if (!status.ok()) return request.Fail(status);
    request.AnswerWritten(bytes);
  });
}

// close(2) of one descriptor; there may be others of the same open.
void Flush(fuse_req_t raw, fuse_ino_t, fuse_file_info* info) {
  Serve(raw, "flush", [&](Request& request) {
    OpenFile& file = FileOf(info);
    absl::Status status = file.writes() ? file.Push() : absl::OkStatus();
    status.Update(file.UnlockProcess(info->lock_owner));
    request.Answer(status);
  });
}

void Release(fuse_req_t raw, fuse_ino_t, fuse_file_info* info) {
  Serve(raw, "release", [&](Request& request) {
    OpenFile& file = FileOf(info);
    const absl::Status released = file.Release();
    request.adapter().LetGo(&file);
    request.Answer(released);
  });
}

void Sync(fuse_req_t raw, fuse_ino_t, int data_only, fuse_file_info* info) {
  Serve(raw, "fsync", [&](Request& request) { request.Answer(FileOf(info).Sync(data_only != 0)); });
}

void Allocate(fuse_req_t raw, fuse_ino_t, int mode, off_t offset, off_t bytes,
              fuse_file_info* info) {
  Serve(raw, "fallocate", [&](Request& request) {
    if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE &&
        mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
      return request.Fail(FsError::kNotSupported);
    }
    request.Answer(request.files().Allocate(
        FileOf(info).handle(), mode, static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes)));
  });
}

void Seek(fuse_req_t raw, fuse_ino_t, off_t offset, int whence, fuse_file_info* info) {
  Serve(raw, "lseek", [&](Request& request) {
    if (whence != SEEK_DATA && whence != SEEK_HOLE) return request.Fail(FsError::kInvalid);
    const FileHandle handle = FileOf(info).handle();
    const auto from = static_cast<uint64_t>(offset);
    const auto found = whence == SEEK_DATA ? request.files().SeekData(handle, from)
                                           : request.files().SeekHole(handle, from);
    if (!found.ok()) return request.Fail(found.status());
    request.AnswerOffset(*found);
  });
}

void CopyRange(fuse_req_t raw, fuse_ino_t, off_t from_offset, fuse_file_info* from, fuse_ino_t,
               off_t to_offset, fuse_file_info* to, size_t bytes, int flags) {
  Serve(raw, "copy_file_range", [&](Request& request) {
    if (flags != 0) return request.Fail(FsError::kInvalid);
    const auto copied = request.files().CopyRange(
        FileOf(from).handle(), static_cast<uint64_t>(from_offset), FileOf(to).handle(),
        static_cast<uint64_t>(to_offset), std::min(bytes, kCopyBytesMax));
    if (!copied.ok()) return request.Fail(copied.status());
    request.AnswerWritten(*copied);
  });
}

}  // namespace

void AddFileOperations(fuse_lowlevel_ops* table) {
  table->open = Open;
  table->create = Create;
  table->read = Read;
  table->write = Write;
  table->flush = Flush;
  table->release = Release;
  table->fsync = Sync;
  table->fallocate = Allocate;
  table->lseek = Seek;
  table->copy_file_range = CopyRange;
}

}  // namespace abacus::objfs::fuse
