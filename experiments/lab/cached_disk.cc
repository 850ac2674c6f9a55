#include "experiments/lab/cached_disk.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"

namespace abacus::lab {
namespace {

using objfs::DiskFile;
using runtime::MutexLock;

class CachedFile final : public DiskFile {
 public:
  CachedFile(std::shared_ptr<DiskFile> below, std::shared_ptr<PageCache> cache, uint64_t name)
      : below_(std::move(below)), cache_(std::move(cache)), name_(name) {}

  absl::StatusOr<uint64_t> Read(uint64_t offset, std::span<char> bytes) override {
    const absl::StatusOr<uint64_t> size = below_->Size();
    if (!size.ok()) return size;
    cache_->Read(name_, offset, bytes.size(), *size);
    return below_->Read(offset, bytes);
  }
  absl::Status Write(uint64_t offset, std::string_view bytes) override {
    cache_->Write(name_, offset, bytes.size());
    return below_->Write(offset, bytes);
  }
  absl::Status Truncate(uint64_t bytes) override { return below_->Truncate(bytes); }
  absl::Status Punch(uint64_t offset, uint64_t bytes) override {
    return below_->Punch(offset, bytes);
  }
  absl::StatusOr<uint64_t> Size() override { return below_->Size(); }
  absl::StatusOr<uint64_t> NextData(uint64_t offset) override { return below_->NextData(offset); }
  absl::Status Sync() override {
    cache_->Sync(name_);
    return below_->Sync();
  }

 private:
  const std::shared_ptr<DiskFile> below_;
  const std::shared_ptr<PageCache> cache_;
  const uint64_t name_;
};

}  // namespace

// -- times ----------------------------------------------------------------------------------------

PageCache::PageCache(CacheModel model)
    : model_(std::move(model)),
      pages_max_(std::max<uint64_t>(model_.memory_bytes / kPageBytes, 1)) {}

absl::Duration PageCache::Now() const {
  if (model_.now) return model_.now();
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

void PageCache::WaitUntil(absl::Duration time) const {
  if (model_.wait_until) return model_.wait_until(time);
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(absl::ToChronoNanoseconds(time)));
}

absl::Duration PageCache::Transfer(uint64_t file, uint64_t page, uint64_t pages) {
  const bool seeks = file != head_file_ || page != head_page_;
  head_file_ = file;
  head_page_ = page + pages;
  free_at_ =
      std::max(free_at_, Now()) + objfs::ModelDisk::TimeOf(model_.disk, pages * kPageBytes, seeks);
  return free_at_;
}

void PageCache::Keep(uint64_t file, uint64_t page, absl::Duration ready) {
  const auto found = index_.find({file, page});
  if (found != index_.end()) {
    found->second->ready = std::max(found->second->ready, ready);
    pages_.splice(pages_.begin(), pages_, found->second);
    return;
  }
  if (pages_.size() >= pages_max_) {
    index_.erase({pages_.back().file, pages_.back().number});
    pages_.pop_back();
  }
  pages_.push_front({file, page, ready});
  index_[{file, page}] = pages_.begin();
}

absl::Duration PageCache::Bring(uint64_t file, uint64_t first, uint64_t end) {
  absl::Duration ready;
  for (uint64_t page = first; page < end;) {
    const auto found = index_.find({file, page});
    if (found != index_.end()) {
      ready = std::max(ready, found->second->ready);
      pages_.splice(pages_.begin(), pages_, found->second);
      ++page;
      continue;
    }
    uint64_t run = 1;
    while (page + run < end && !index_.contains({file, page + run})) ++run;
    ready = std::max(ready, Transfer(file, page, run));
    for (uint64_t i = 0; i < run; ++i) Keep(file, page + i, ready);
    page += run;
  }
  return ready;
}

void PageCache::Read(uint64_t file, uint64_t offset, uint64_t bytes, uint64_t file_bytes) {
  if (bytes == 0 || offset >= file_bytes) return;
  const uint64_t first = offset / kPageBytes;
  const uint64_t file_end = (file_bytes + kPageBytes - 1) / kPageBytes;
  const uint64_t end = std::min((offset + bytes + kPageBytes - 1) / kPageBytes, file_end);
  absl::Duration ready;
  {
    MutexLock lock(mutex_);
    ready = Bring(file, first, end);
    uint64_t& next = next_page_[file];
    const bool goes_on = first == next || first + 1 == next;
    next = end;
    // The disk goes on behind it; nobody waits for that now.
    if (goes_on && first > 0) {
      Bring(file, end, std::min(end + model_.ahead_bytes / kPageBytes, file_end));
    }
  }
  if (ready > Now()) WaitUntil(ready);
}

void PageCache::Write(uint64_t file, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(mutex_);
  dirty_bytes_[file] += bytes;
  for (uint64_t page = offset / kPageBytes; page * kPageBytes < offset + bytes; ++page) {
    Keep(file, page, absl::ZeroDuration());
  }
}

void PageCache::Sync(uint64_t file) {
  absl::Duration ready;
  {
    MutexLock lock(mutex_);
    const auto dirty = dirty_bytes_.find(file);
    if (dirty == dirty_bytes_.end()) return;
    const uint64_t pages = (dirty->second + kPageBytes - 1) / kPageBytes;
    dirty_bytes_.erase(dirty);
    // Where its pages lie the model does not know: one seek leads to them, and one away again.
    ready = Transfer(file, 0, pages);
    head_file_ = 0;
  }
  if (ready > Now()) WaitUntil(ready);
}

void PageCache::Drop() {
  MutexLock lock(mutex_);
  pages_.clear();
  index_.clear();
  dirty_bytes_.clear();
  next_page_.clear();
  head_file_ = 0;
  free_at_ = absl::ZeroDuration();
}

uint64_t PageCache::NameOf(const std::string& path) {
  MutexLock lock(mutex_);
  uint64_t& name = names_[path];
  if (name == 0) name = ++last_name_;
  return name;
}

uint64_t PageCache::NewDirectory() {
  MutexLock lock(mutex_);
  return ++directories_;
}

void PageCache::Forget(const std::string& path) {
  MutexLock lock(mutex_);
  names_.erase(path);
}

// -- files ----------------------------------------------------------------------------------------

std::string CachedDisk::PathOf(const std::string& path) const {
  return absl::StrCat(directory_, "/", path);
}

absl::StatusOr<std::shared_ptr<DiskFile>> CachedDisk::Wrap(
    absl::StatusOr<std::shared_ptr<DiskFile>> file, const std::string& path) {
  if (!file.ok()) return file;
  return std::make_shared<CachedFile>(*std::move(file), cache_, cache_->NameOf(PathOf(path)));
}

absl::StatusOr<std::shared_ptr<DiskFile>> CachedDisk::Open(const std::string& path) {
  return Wrap(below_->Open(path), path);
}

absl::StatusOr<std::shared_ptr<DiskFile>> CachedDisk::Create(const std::string& path) {
  return Wrap(below_->Create(path), path);
}

absl::Status CachedDisk::Rename(const std::string& from, const std::string& to) {
  cache_->Forget(PathOf(from));
  cache_->Forget(PathOf(to));
  return below_->Rename(from, to);
}

absl::Status CachedDisk::Remove(const std::string& path) {
  cache_->Forget(PathOf(path));
  return below_->Remove(path);
}

}  // namespace abacus::lab
