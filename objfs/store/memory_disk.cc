#include "objfs/store/memory_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

absl::Status CheckFileRange(uint64_t offset, uint64_t bytes) {
  if (bytes <= MemoryFile::kBytesMax && offset <= MemoryFile::kBytesMax - bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("no file reaches to byte ", offset));
}

absl::Status Missing(const std::string& path) {
  return absl::NotFoundError(absl::StrCat("no file ", path));
}

}  // namespace

MemoryFile::~MemoryFile() {
  MutexLock lock(mutex_);
  space_->used_bytes -= pages_.size() * kPageBytes;
}

absl::StatusOr<uint64_t> MemoryFile::Read(uint64_t offset, std::span<char> bytes) {
  MutexLock lock(mutex_);
  if (offset >= size_) return 0;
  const uint64_t wanted = std::min<uint64_t>(bytes.size(), size_ - offset);
  for (uint64_t done = 0; done < wanted;) {
    const uint64_t within = (offset + done) % kPageBytes;
    const uint64_t step = std::min(kPageBytes - within, wanted - done);
    const auto page = pages_.find((offset + done) / kPageBytes);
    if (page == pages_.end()) {
      std::memset(bytes.data() + done, 0, step);
    } else {
      std::memcpy(bytes.data() + done, page->second.get() + within, step);
    }
    done += step;
  }
  return wanted;
}

absl::Status MemoryFile::Write(uint64_t offset, std::string_view bytes) {
  if (auto status = CheckFileRange(offset, bytes.size()); !status.ok()) return status;
  MutexLock lock(mutex_);
  while (!bytes.empty()) {
    const uint64_t within = offset % kPageBytes;
    const uint64_t step = std::min<uint64_t>(kPageBytes - within, bytes.size());
    Page& page = pages_[offset / kPageBytes];
    if (page == nullptr) {
      if (space_->used_bytes.fetch_add(kPageBytes) + kPageBytes > space_->capacity_bytes) {
        Drop(pages_.find(offset / kPageBytes));
        return absl::ResourceExhaustedError("no space left on the memory disk");
      }
      page = std::make_unique<char[]>(kPageBytes);
    }
    std::memcpy(page.get() + within, bytes.data(), step);
    offset += step;
    size_ = std::max(size_, offset);
    bytes.remove_prefix(step);
  }
  return absl::OkStatus();
}

void MemoryFile::Drop(std::map<uint64_t, Page>::iterator page) {
  space_->used_bytes -= kPageBytes;
  pages_.erase(page);
}

absl::Status MemoryFile::Truncate(uint64_t bytes) {
  if (auto status = CheckFileRange(bytes, 0); !status.ok()) return status;
  MutexLock lock(mutex_);
  const uint64_t old = std::exchange(size_, bytes);
  return bytes < old ? PunchLocked(bytes, old - bytes) : absl::OkStatus();
}

absl::Status MemoryFile::Punch(uint64_t offset, uint64_t bytes) {
  if (auto status = CheckFileRange(offset, bytes); !status.ok()) return status;
  MutexLock lock(mutex_);
  return PunchLocked(offset, bytes);
}

absl::Status MemoryFile::PunchLocked(uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  for (auto page = pages_.lower_bound(offset / kPageBytes);
       page != pages_.end() && page->first * kPageBytes < end;) {
    const uint64_t begin = std::max(offset, page->first * kPageBytes);
    const uint64_t stop = std::min(end, (page->first + 1) * kPageBytes);
    const auto next = std::next(page);
    if (stop - begin == kPageBytes) {
      Drop(page);
    } else {
      std::memset(page->second.get() + begin % kPageBytes, 0, stop - begin);
    }
    page = next;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MemoryFile::Size() {
  MutexLock lock(mutex_);
  return size_;
}

absl::StatusOr<uint64_t> MemoryFile::NextData(uint64_t offset) {
  MutexLock lock(mutex_);
  const auto page = pages_.lower_bound(offset / kPageBytes);
  if (page == pages_.end() || offset >= size_) return absl::NotFoundError("no data follows");
  return std::max(offset, page->first * kPageBytes);
}

std::shared_ptr<MemoryFile> MemoryFile::Copy() {
  auto copy = std::make_shared<MemoryFile>(space_);
  MutexLock lock(mutex_);
  MutexLock copy_lock(copy->mutex_);
  copy->size_ = size_;
  for (const auto& [index, page] : pages_) {
    auto bytes = std::make_unique<char[]>(kPageBytes);
    std::memcpy(bytes.get(), page.get(), kPageBytes);
    copy->pages_.emplace(index, std::move(bytes));
  }
  space_->used_bytes += pages_.size() * kPageBytes;
  return copy;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

MemoryDisk::MemoryDisk(uint64_t capacity_bytes)
    : space_(std::make_shared<MemorySpace>(capacity_bytes)), directories_{""} {}

absl::StatusOr<std::shared_ptr<DiskFile>> MemoryDisk::Open(const std::string& path) {
  MutexLock lock(mutex_);
  const auto file = files_.find(path);
  if (file == files_.end()) return Missing(path);
  return file->second;
}

absl::StatusOr<std::shared_ptr<DiskFile>> MemoryDisk::Create(const std::string& path) {
  MutexLock lock(mutex_);
  if (!directories_.contains(FolderOf(path))) return Missing(FolderOf(path));
  auto file = std::make_shared<MemoryFile>(space_);
  if (!files_.emplace(path, file).second) {
    return absl::AlreadyExistsError(absl::StrCat("there is a file ", path));
  }
  return file;
}

absl::Status MemoryDisk::MakeDirectory(const std::string& path) {
  MutexLock lock(mutex_);
  directories_.insert(path);
  return absl::OkStatus();
}

absl::Status MemoryDisk::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(mutex_);
  const auto file = files_.find(from);
  if (file == files_.end()) return Missing(from);
  auto moved = std::move(file->second);
  files_.erase(file);
  files_[to] = std::move(moved);
  return absl::OkStatus();
}

absl::Status MemoryDisk::Remove(const std::string& path) {
  MutexLock lock(mutex_);
  return files_.erase(path) == 1 ? absl::OkStatus() : Missing(path);
}

absl::StatusOr<std::vector<std::string>> MemoryDisk::List(const std::string& directory) {
  MutexLock lock(mutex_);
  if (!directories_.contains(directory)) return Missing(directory);
  std::vector<std::string> names;
  for (const auto& [path, file] : files_) {
    if (FolderOf(path) != directory) continue;
    names.push_back(directory.empty() ? path : path.substr(directory.size() + 1));
  }
  return names;
}

absl::Status MemoryDisk::SyncDirectory(const std::string& directory) {
  MutexLock lock(mutex_);
  return directories_.contains(directory) ? absl::OkStatus() : Missing(directory);
}

absl::StatusOr<DiskSpace> MemoryDisk::Space() {
  const uint64_t used = space_->used_bytes.load();
  return DiskSpace{
      .capacity_bytes = space_->capacity_bytes,
      .available_bytes = space_->capacity_bytes - std::min(used, space_->capacity_bytes)};
}

}  // namespace abacus::objfs
