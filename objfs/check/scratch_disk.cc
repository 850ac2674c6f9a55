#include "objfs/check/scratch_disk.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr uint64_t kCopiedAtOnce = 65'536;

absl::Status NoSuchFile(const std::string& path) {
  return absl::NotFoundError(absl::StrCat("there is no file ", path));
}

}  // namespace

// A file of the disk below until it is written to.
class ScratchFile final : public DiskFile {
 public:
  ScratchFile(ScratchDisk& disk, std::string path, std::shared_ptr<DiskFile> below)
      : disk_(disk), path_(std::move(path)), below_(std::move(below)) {}

  absl::StatusOr<uint64_t> Read(uint64_t offset, std::span<char> bytes) override {
    return Now()->Read(offset, bytes);
  }
  absl::Status Write(uint64_t offset, std::string_view bytes) override {
    ABACUS_ASSIGN_OR_RETURN(const auto file, disk_.Change(path_, *below_));
    return file->Write(offset, bytes);
  }
  absl::Status Truncate(uint64_t bytes) override {
    ABACUS_ASSIGN_OR_RETURN(const auto file, disk_.Change(path_, *below_));
    return file->Truncate(bytes);
  }
  // It is no loss that the space is not given back.
  absl::Status Punch(uint64_t, uint64_t) override {
    return absl::UnimplementedError("this disk gives no space back");
  }
  absl::StatusOr<uint64_t> Size() override { return Now()->Size(); }
  absl::StatusOr<uint64_t> NextData(uint64_t offset) override { return Now()->NextData(offset); }
  absl::Status Sync() override { return absl::OkStatus(); }

 private:
  std::shared_ptr<DiskFile> Now() {
    std::shared_ptr<DiskFile> changed = disk_.Changed(path_);
    return changed != nullptr ? changed : below_;
  }

  ScratchDisk& disk_;
  const std::string path_;
  const std::shared_ptr<DiskFile> below_;
};

std::shared_ptr<MemoryFile> ScratchDisk::Changed(const std::string& path) {
  MutexLock lock(mutex_);
  const auto file = files_.find(path);
  return file == files_.end() ? nullptr : file->second;
}

absl::StatusOr<std::shared_ptr<MemoryFile>> ScratchDisk::Change(const std::string& path,
                                                                DiskFile& below) {
  if (auto changed = Changed(path); changed != nullptr) return changed;
  auto copy = std::make_shared<MemoryFile>(space_);
  ABACUS_ASSIGN_OR_RETURN(const uint64_t size, below.Size());
  ABACUS_RETURN_IF_ERROR(copy->Truncate(size));
  std::string bytes(kCopiedAtOnce, '\0');
  for (uint64_t at = 0; at < size;) {
    const auto data = below.NextData(at);
    if (absl::IsNotFound(data.status())) break;
    ABACUS_RETURN_IF_ERROR(data.status());
    at = *data;
    ABACUS_ASSIGN_OR_RETURN(const uint64_t read,
                            below.Read(at, std::span(bytes.data(), bytes.size())));
    if (read == 0) break;
    ABACUS_RETURN_IF_ERROR(copy->Write(at, std::string_view(bytes.data(), read)));
    at += read;
  }
  MutexLock lock(mutex_);
  return files_.emplace(path, std::move(copy)).first->second;
}

absl::StatusOr<std::shared_ptr<DiskFile>> ScratchDisk::Open(const std::string& path) {
  {
    MutexLock lock(mutex_);
    const auto file = files_.find(path);
    if (file != files_.end()) return std::shared_ptr<DiskFile>(file->second);
    if (removed_.contains(path)) return NoSuchFile(path);
  }
  ABACUS_ASSIGN_OR_RETURN(auto below, below_.Open(path));
  return std::shared_ptr<DiskFile>(std::make_shared<ScratchFile>(*this, path, std::move(below)));
}

absl::StatusOr<std::shared_ptr<DiskFile>> ScratchDisk::Create(const std::string& path) {
  const bool is_there = Open(path).ok();
  MutexLock lock(mutex_);
  if (is_there) return absl::AlreadyExistsError(absl::StrCat("there is a file ", path));
  return std::shared_ptr<DiskFile>(
      files_.emplace(path, std::make_shared<MemoryFile>(space_)).first->second);
}

absl::Status ScratchDisk::Rename(const std::string& from, const std::string& to) {
  MutexLock lock(mutex_);
  const auto file = files_.find(from);
  if (file == files_.end()) return absl::UnimplementedError("only new files are renamed");
  files_[to] = std::move(file->second);
  files_.erase(from);
  return absl::OkStatus();
}

absl::Status ScratchDisk::Remove(const std::string& path) {
  if (auto there = Open(path); !there.ok()) return there.status();
  MutexLock lock(mutex_);
  files_.erase(path);
  removed_.insert(path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ScratchDisk::List(const std::string& directory) {
  auto below = below_.List(directory);
  // The store makes its folders.
  if (!below.ok() && !absl::IsNotFound(below.status())) return below.status();
  std::set<std::string> names;
  if (below.ok()) names.insert(below->begin(), below->end());
  const std::string prefix = directory.empty() ? "" : directory + "/";
  MutexLock lock(mutex_);
  for (const std::string& path : removed_) {
    if (FolderOf(path) == directory) names.erase(path.substr(prefix.size()));
  }
  for (const auto& [path, file] : files_) {
    if (FolderOf(path) == directory) names.insert(path.substr(prefix.size()));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace abacus::objfs
