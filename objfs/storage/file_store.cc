#include "objfs/storage/file_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

absl::Status CheckName(const std::string& name) {
  std::string wrong;
  if (name.empty()) {
    wrong = "it is empty";
  } else if (name.size() > FileStore::kNameBytesMax) {
    wrong = absl::StrCat("it has ", name.size(), " bytes, and at most ", FileStore::kNameBytesMax,
                         " are allowed");
  } else if (name.find('/') != std::string::npos) {
    wrong = "it has a '/', and a store has no directories";
  } else if (name.find('\0') != std::string::npos) {
    wrong = "it has a NUL byte";
  } else if (name == "." || name == "..") {
    wrong = "it names a directory";
  } else {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name.substr(0, FileStore::kNameBytesMax), "' cannot name a file: ", wrong));
}

// Whether PartName() makes such names.
bool IsPart(std::string_view name) {
  const auto skip = [&name](std::string_view text) {
    const bool there = name.substr(0, text.size()) == text;
    if (there) name.remove_prefix(text.size());
    return there;
  };
  const auto skip_digits = [&name] {
    const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    name.remove_prefix(digits);
    return digits > 0;
  };
  return skip("put-") && skip_digits() && skip("-") && skip_digits() && name == ".part";
}

// The system's message names a path on the server, which means nothing to the client.
absl::Status ForClient(const absl::Status& status, const std::string& name) {
  if (absl::IsNotFound(status)) {
    return absl::NotFoundError(absl::StrCat("the store has no file '", name, "'"));
  }
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(absl::StrCat("the store has a file '", name, "' already"));
  }
  return status;
}

}  // namespace

std::string FileStore::PartName(uint64_t process, uint64_t number) {
  return absl::StrCat("put-", process, "-", number, ".part");
}

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Make(const std::string& directory, Host host,
                                                           Limits limits) {
  ABACUS_RETURN_IF_ERROR(MakeDirectory(directory));
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(directory));
  for (const std::string& name : names) {
    if (!IsPart(name)) continue;
    ABACUS_RETURN_IF_ERROR(RemoveFile(absl::StrCat(directory, "/", name)));
  }
  return std::unique_ptr<FileStore>(new FileStore(directory, std::move(host), limits));
}

absl::StatusOr<Ref<StorageObject>> FileStore::Keep(
    const std::string& name, absl::StatusOr<File> (*open)(const std::string&)) {
  if (open_.size() >= limits_.objects_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot open '", name, "': ", limits_.objects_max, " files are in use"));
  }
  const auto file = pool_->Add(PathOf(name), open);
  if (!file.ok()) return ForClient(file.status(), name);
  Ref<StorageObject> object = host_.adopt(std::make_unique<StorageObject>(pool_, *file, name));
  open_[name] = {object, *file};
  return object;
}

absl::StatusOr<Ref<StorageObject>> FileStore::Create(const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  MutexLock lock(mutex_);
  return Keep(name, &File::Create);
}

absl::StatusOr<Ref<StorageObject>> FileStore::Open(const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  MutexLock lock(mutex_);
  if (const auto it = open_.find(name); it != open_.end()) return it->second.object;
  return Keep(name, &File::Open);
}

absl::StatusOr<FileInfo> FileStore::Stat(const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  const auto facts = StatFile(PathOf(name));
  if (!facts.ok()) return ForClient(facts.status(), name);
  return FileInfo{.name = name, .bytes = facts->bytes, .modified = facts->modified};
}

absl::StatusOr<std::vector<FileInfo>> FileStore::List(const std::string& after, uint32_t max) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(directory_));
  std::vector<FileInfo> files;
  for (auto it = std::upper_bound(names.begin(), names.end(), after);
       it != names.end() && files.size() < std::min(max, kListMax); ++it) {
    if (IsPart(*it)) continue;
    const auto facts = StatFile(PathOf(*it));
    // What vanished since the names were read is not there.
    if (absl::IsNotFound(facts.status())) continue;
    if (!facts.ok()) return facts.status();
    files.push_back({.name = *it, .bytes = facts->bytes, .modified = facts->modified});
  }
  return files;
}

absl::Status FileStore::Rename(const std::string& from, const std::string& to) {
  ABACUS_RETURN_IF_ERROR(CheckName(from));
  ABACUS_RETURN_IF_ERROR(CheckName(to));
  if (IsPart(to)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", to, "' cannot name a file: such names are of files that are written"));
  }
  MutexLock lock(mutex_);
  if (from == to) return ForClient(StatFile(PathOf(from)).status(), from);
  const auto it = open_.find(from);
  ABACUS_RETURN_IF_ERROR(ForClient(it != open_.end() ? pool_->Rename(it->second.file, PathOf(to))
                                                     : RenameFile(PathOf(from), PathOf(to)),
                                   from));
  End(to);
  if (it != open_.end()) {
    open_[to] = std::move(it->second);
    open_.erase(it);
  }
  return SyncDirectory(directory_);
}

absl::Status FileStore::Remove(const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckName(name));
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(ForClient(RemoveFile(PathOf(name)), name));
  End(name);
  return SyncDirectory(directory_);
}

void FileStore::End(const std::string& name) {
  const auto it = open_.find(name);
  if (it == open_.end()) return;
  const runtime::Rid rid = it->second.object.rid();
  pool_->Drop(it->second.file);
  open_.erase(it);
  host_.end(rid);
}

}  // namespace abacus::objfs
