// abacus put, get, ls and rm: files of a server's volumes, without a mount.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/interrupt.h"
#include "apps/abacus/output.h"
#include "apps/abacus/volume_files.h"
#include "apps/cli/table.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/stack_rules.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using objfs::FileHandle;
using objfs::FileSystem;
using objfs::Node;
using runtime::Block;

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr uint32_t kListedAtOnce = 1000;

// Reads until `bytes` are there or the input ends.
absl::StatusOr<Block> ReadBlock(int fd, size_t bytes) {
  Block block = Block::Allocate(bytes);
  size_t done = 0;
  while (done < bytes) {
    if (!AwaitInput(fd)) return absl::CancelledError("interrupted");
    const ssize_t n = read(fd, block.mutable_data() + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "cannot read the input");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return block.Slice(0, done);
}

absl::StatusOr<uint64_t> CopyIn(FileSystem& files, int fd, FileHandle handle) {
  uint64_t offset = 0;
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(const Block block, ReadBlock(fd, kBlockBytes));
    if (block.empty()) break;
    ABACUS_RETURN_IF_ERROR(files.Write(handle, offset, block));
    offset += block.size();
  }
  ABACUS_RETURN_IF_ERROR(files.Sync(handle));
  return offset;
}

// What the directory's rules say of a file of that name; empty: nothing.
absl::StatusOr<std::string> RuledStack(const Node& directory, const std::string& name) {
  const auto text = directory.inode.xattrs.find(objfs::kStackRulesXattr);
  if (text == directory.inode.xattrs.end()) return "";
  ABACUS_ASSIGN_OR_RETURN(const auto rules, objfs::ParseStackRules(text->second));
  const std::string* const stack = objfs::StackByRule(rules, name);
  return stack == nullptr ? "" : *stack;
}

// Under another name first: nobody sees a part of the file, and a put that fails leaves the old
// one.
absl::StatusOr<uint64_t> PutInto(VolumeFiles& volume, int fd, const std::string& path) {
  FileSystem& files = volume.files();
  ABACUS_ASSIGN_OR_RETURN(const VolumeFiles::Place place, volume.PlaceOf(path, /*makes=*/true));
  const objfs::ObjectId directory = place.directory.id;
  ABACUS_ASSIGN_OR_RETURN(const std::string stack, RuledStack(place.directory, place.name));
  const std::string part =
      absl::StrCat(".abacus-put-", getpid(), "-", absl::ToUnixNanos(absl::Now()));
  const mode_t mask = umask(0);
  umask(mask);
  ABACUS_ASSIGN_OR_RETURN(
      const FileSystem::Created made,
      files.Create(volume.caller(), directory, part, S_IFREG | (0666 & ~mask), O_WRONLY, stack));
  auto bytes = CopyIn(files, fd, made.handle);
  absl::Status status = bytes.status();
  status.Update(files.Release(made.handle));
  if (status.ok()) {
    status = files.Rename(volume.caller(), directory, part, directory, place.name,
                          objfs::RenameRule::kReplace);
  }
  if (!status.ok()) {
    files.Unlink(volume.caller(), directory, part).IgnoreError();
    return status;
  }
  ABACUS_RETURN_IF_ERROR(files.SyncDirectory(directory));
  return bytes;
}

absl::Status CopyOut(FileSystem& files, FileHandle handle, int fd) {
  for (uint64_t offset = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const Block block, files.Read(handle, offset, kBlockBytes));
    if (block.empty()) return absl::OkStatus();
    ABACUS_RETURN_IF_ERROR(WriteAll(fd, block.view()));
    offset += block.size();
  }
}

// `target` is left alone where there is nothing to get; empty: standard output.
absl::Status GetFrom(VolumeFiles& volume, const std::string& path, const std::string& target) {
  FileSystem& files = volume.files();
  ABACUS_ASSIGN_OR_RETURN(const Node node, volume.Find(path));
  ABACUS_ASSIGN_OR_RETURN(const FileHandle handle, files.Open(volume.caller(), node.id, O_RDONLY));
  const auto release = absl::MakeCleanup([&] { files.Release(handle).IgnoreError(); });
  if (target.empty()) return CopyOut(files, handle, STDOUT_FILENO);
  const int fd = open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", target));
  absl::Status copied = CopyOut(files, handle, fd);
  if (close(fd) != 0) {
    copied.Update(absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", target)));
  }
  return copied;
}

// A directory's entries without its own, or the file itself; sorted by name.
absl::StatusOr<std::vector<FileSystem::Listed>> ListAt(VolumeFiles& volume,
                                                       const std::string& path) {
  ABACUS_ASSIGN_OR_RETURN(const Node node, volume.Find(path));
  std::vector<FileSystem::Listed> all;
  if (!node.inode.IsDirectory()) {
    all.push_back({.name = path, .cookie = 0, .node = node});
    return all;
  }
  for (uint64_t cookie = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(
        const std::vector<FileSystem::Listed> some,
        volume.files().List(volume.caller(), node.id, cookie, kListedAtOnce, true));
    if (some.empty()) break;
    cookie = some.back().cookie;
    for (const FileSystem::Listed& one : some) {
      if (one.name != "." && one.name != "..") all.push_back(one);
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

absl::Time ModifiedAt(const Node& node) { return absl::FromUnixNanos(node.inode.modified_ns); }

std::string JsonOf(const std::vector<FileSystem::Listed>& files) {
  nlohmann::json rows = nlohmann::json::array();
  for (const FileSystem::Listed& file : files) {
    rows.push_back({{"name", file.name},
                    {"directory", file.node.inode.IsDirectory()},
                    {"bytes", file.node.size},
                    {"modified", absl::FormatTime(ModifiedAt(file.node), absl::UTCTimeZone())}});
  }
  // Names are any bytes; JSON takes only text.
  return nlohmann::json{{"files", rows}}.dump(2, ' ', false,
                                              nlohmann::json::error_handler_t::replace) +
         "\n";
}

absl::Status PrintList(const std::vector<FileSystem::Listed>& files, const std::string& json) {
  Table table({"bytes", "modified", "name"});
  for (const FileSystem::Listed& file : files) {
    const bool is_directory = file.node.inode.IsDirectory();
    table.AddRow(
        {is_directory ? "-" : absl::StrCat(file.node.size),
         absl::FormatTime("%Y-%m-%d %H:%M:%S", ModifiedAt(file.node), absl::LocalTimeZone()),
         absl::StrCat(file.name, is_directory ? "/" : "")});
  }
  ABACUS_RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, table.ToString()));
  return json.empty() ? absl::OkStatus() : WriteFile(json, JsonOf(files));
}

}  // namespace

int Put(const PutOptions& options) {
  EndInOrder();
  int fd = STDIN_FILENO;
  if (!options.file.empty()) {
    fd = open(options.file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Fail(absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", options.file)));
  }
  auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const FileName name = ParseFileName(options.name);
  auto volume = VolumeFiles::JoinOrMakeFirst(**client, name.volume);
  if (!volume.ok()) return Fail(volume.status());
  const auto bytes = PutInto(**volume, fd, name.path);
  if (fd != STDIN_FILENO) close(fd);
  if (!bytes.ok()) return Fail(bytes.status());
  fprintf(stderr, "stored %s: %llu bytes\n", options.name.c_str(),
          static_cast<unsigned long long>(*bytes));
  return kExitOk;
}

int Get(const GetOptions& options) {
  auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const FileName name = ParseFileName(options.name);
  auto volume = VolumeFiles::Join(**client, name.volume);
  if (!volume.ok()) return Fail(volume.status());
  const absl::Status status = GetFrom(**volume, name.path, options.file);
  return status.ok() ? kExitOk : Fail(status);
}

int List(const ListOptions& options) {
  auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const FileName name = ParseFileName(options.name);
  auto volume = VolumeFiles::Join(**client, name.volume);
  if (!volume.ok()) return Fail(volume.status());
  const auto files = ListAt(**volume, name.path);
  if (!files.ok()) return Fail(files.status());
  const absl::Status printed = PrintList(*files, options.json);
  return printed.ok() ? kExitOk : Fail(printed);
}

int Remove(const RemoveOptions& options) {
  auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const FileName name = ParseFileName(options.name);
  auto volume = VolumeFiles::Join(**client, name.volume);
  if (!volume.ok()) return Fail(volume.status());
  const auto place = (*volume)->PlaceOf(name.path, /*makes=*/false);
  if (!place.ok()) return Fail(place.status());
  FileSystem& files = (*volume)->files();
  absl::Status removed = files.Unlink((*volume)->caller(), place->directory.id, place->name);
  if (objfs::FsErrorOf(removed) == objfs::FsError::kIsDirectory) {
    removed = files.RemoveDirectory((*volume)->caller(), place->directory.id, place->name);
  }
  if (removed.ok()) removed = files.SyncDirectory(place->directory.id);
  return removed.ok() ? kExitOk : Fail(removed);
}

}  // namespace abacus::apps
