#include "objfs/fuse/listing.h"

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "objfs/fuse/adapter.h"
#include "runtime/base/status.h"

namespace abacus::objfs::fuse {
namespace {

// Entries as the kernel reads them, up to a size.
class Buffer {
 public:
  Buffer(const Request& request, size_t bytes) : request_(request), bytes_(bytes) {
    made_.reserve(bytes);
  }

  // False where it does not fit.
  bool Add(const FileSystem::Listed& entry) {
    struct stat attributes = {};
    attributes.st_ino = request_.adapter().Swap(entry.node.id);
    attributes.st_mode = entry.node.inode.mode;
    return Append([&](char* at, size_t left) {
      return fuse_add_direntry(request_.raw(), at, left, entry.name.c_str(), &attributes,
                               static_cast<off_t>(entry.cookie));
    });
  }
  bool AddWithAttributes(const FileSystem::Listed& entry) {
    fuse_entry_param param = request_.Entry(entry.node);
    // Inode 0: the kernel is not to count this as a look-up. Not of "." and "..", and not of a file
    // whose size a client holds back, or that has no attributes here: it asks for that one.
    const bool is_asked_for = entry.node.kept_by != 0 || entry.node.inode.links == 0;
    if (entry.name == "." || entry.name == ".." || is_asked_for) param.ino = 0;
    return Append([&](char* at, size_t left) {
      return fuse_add_direntry_plus(request_.raw(), at, left, entry.name.c_str(), &param,
                                    static_cast<off_t>(entry.cookie));
    });
  }

  size_t left() const { return bytes_ - made_.size(); }
  bool empty() const { return made_.empty(); }
  std::string Finish() { return std::move(made_); }

 private:
  template <typename Fill>
  bool Append(Fill fill) {
    const size_t before = made_.size();
    const size_t needed = fill(nullptr, 0);
    if (needed > left()) return false;
    made_.resize(before + needed);
    fill(made_.data() + before, needed);
    return true;
  }

  const Request& request_;
  const size_t bytes_;
  std::string made_;
};

// What an entry with attributes takes for a name of usual length. A wrong guess costs another
// List(), or attributes that are fetched and thrown away.
constexpr size_t kFullEntryBytes = 128 + 24 + 24;

}  // namespace

Listing::Batch Listing::Take(uint64_t cookie) {
  runtime::MutexLock lock(mutex_);
  Batch batch = std::exchange(batch_, {});
  // From the beginning everything is read anew: rewinddir(3) promises it.
  if (cookie == 0 || batch.cookie != cookie) return {.entries = {}, .next = 0, .cookie = cookie};
  return batch;
}

void Listing::Keep(Batch batch) {
  runtime::MutexLock lock(mutex_);
  batch_ = std::move(batch);
}

absl::StatusOr<std::string> Listing::Names(const Request& request, uint64_t cookie, size_t bytes) {
  Batch batch = Take(cookie);
  Buffer buffer(request, bytes);
  while (true) {
    if (batch.next == batch.entries.size()) {
      auto more = request.files().List(request.caller(), directory_, batch.cookie, kBatch, false);
      if (!more.ok() && buffer.empty()) return more.status();
      if (!more.ok() || more->empty()) break;
      batch = {.entries = *std::move(more), .next = 0, .cookie = batch.cookie};
    }
    const FileSystem::Listed& entry = batch.entries[batch.next];
    if (!buffer.Add(entry)) break;
    batch.cookie = entry.cookie;
    ++batch.next;
  }
  Keep(std::move(batch));
  return buffer.Finish();
}

absl::StatusOr<std::string> Listing::NamesAndAttributes(const Request& request, uint64_t cookie,
                                                        size_t bytes) {
  Buffer buffer(request, bytes);
  bool fits = true;
  while (fits && (buffer.empty() || buffer.left() >= kFullEntryBytes)) {
    const auto max = static_cast<uint32_t>(
        std::clamp<size_t>(buffer.left() / kFullEntryBytes, 1, Directory::kListMax));
    auto more = request.files().List(request.caller(), directory_, cookie, max, true);
    if (!more.ok() && buffer.empty()) return more.status();
    if (!more.ok() || more->empty()) break;
    for (const FileSystem::Listed& entry : *more) {
      fits = buffer.AddWithAttributes(entry);
      if (!fits) break;
      cookie = entry.cookie;
    }
  }
  return buffer.Finish();
}

// -- operations
// ------------------------------------------------------------------------------------

namespace {

Listing& ListingOf(const fuse_file_info* info) { return *reinterpret_cast<Listing*>(info->fh); }

void OpenDirectory(fuse_req_t raw, fuse_ino_t inode, fuse_file_info* info) {
  Serve(raw, "opendir", [&](Request& request) {
    const auto listing = std::make_shared<Listing>(request.Id(inode));
    info->fh = reinterpret_cast<uintptr_t>(listing.get());
    request.adapter().Hold(listing);
    if (!request.AnswerOpen(*info)) request.adapter().LetGo(listing.get());
  });
}

void ReadDirectory(fuse_req_t raw, fuse_ino_t, size_t bytes, off_t cookie, fuse_file_info* info) {
  Serve(raw, "readdir", [&](Request& request) {
    const auto names = ListingOf(info).Names(request, static_cast<uint64_t>(cookie), bytes);
    if (!names.ok()) return request.Fail(names.status());
    request.AnswerBytes(*names);
  });
}

void ReadDirectoryPlus(fuse_req_t raw, fuse_ino_t, size_t bytes, off_t cookie,
                       fuse_file_info* info) {
  Serve(raw, "readdirplus", [&](Request& request) {
    const auto entries =
        ListingOf(info).NamesAndAttributes(request, static_cast<uint64_t>(cookie), bytes);
    if (!entries.ok()) return request.Fail(entries.status());
    request.AnswerBytes(*entries);
  });
}

void ReleaseDirectory(fuse_req_t raw, fuse_ino_t, fuse_file_info* info) {
  Serve(raw, "releasedir", [&](Request& request) {
    request.adapter().LetGo(&ListingOf(info));
    request.Answer(absl::OkStatus());
  });
}

void SyncDirectory(fuse_req_t raw, fuse_ino_t inode, int, fuse_file_info*) {
  Serve(raw, "fsyncdir", [&](Request& request) {
    request.Answer(request.files().SyncDirectory(request.Id(inode)));
  });
}

}  // namespace

void AddListOperations(fuse_lowlevel_ops* table) {
  table->opendir = OpenDirectory;
  table->readdir = ReadDirectory;
  table->readdirplus = ReadDirectoryPlus;
  table->releasedir = ReleaseDirectory;
  table->fsyncdir = SyncDirectory;
}

}  // namespace abacus::objfs::fuse
