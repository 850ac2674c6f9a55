// abacus put and abacus ls: a server's files.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/output.h"
#include "apps/cli/table.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using objfs::FileInfo;
using objfs::FileStore;
using objfs::StorageObject;
using runtime::Block;
using runtime::Ref;

constexpr size_t kPutBlockBytes = size_t{1} << 20;

// Reads until `bytes` are there or the input ends.
absl::StatusOr<Block> ReadBlock(int fd, size_t bytes) {
  Block block = Block::Allocate(bytes);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = read(fd, block.mutable_data() + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "cannot read the input");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return block.Slice(0, done);
}

absl::StatusOr<uint64_t> Copy(int fd, const Ref<StorageObject>& file) {
  uint64_t offset = 0;
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(const Block block, ReadBlock(fd, kPutBlockBytes));
    if (block.empty()) break;
    ABACUS_RETURN_IF_ERROR(file->Write(offset, block));
    offset += block.size();
  }
  ABACUS_RETURN_IF_ERROR(file->Flush());
  return offset;
}

// Under another name first: nobody sees a part of the file, and a put that fails leaves the old
// one.
absl::StatusOr<uint64_t> PutInto(const Ref<FileStore>& store, int fd, const std::string& name) {
  const std::string part = FileStore::PartName(
      static_cast<uint64_t>(getpid()), static_cast<uint64_t>(absl::ToUnixNanos(absl::Now())));
  ABACUS_ASSIGN_OR_RETURN(const Ref<StorageObject> file, store->Create(part));
  auto bytes = Copy(fd, file);
  if (bytes.ok()) {
    if (absl::Status renamed = store->Rename(part, name); !renamed.ok()) bytes = renamed;
  }
  if (!bytes.ok()) store->Remove(part).IgnoreError();
  return bytes;
}

std::string JsonOf(const std::vector<FileInfo>& files) {
  nlohmann::json rows = nlohmann::json::array();
  for (const FileInfo& file : files) {
    rows.push_back({{"name", file.name},
                    {"bytes", file.bytes},
                    {"modified", absl::FormatTime(file.modified, absl::UTCTimeZone())}});
  }
  // Names are any bytes; JSON takes only text.
  return nlohmann::json{{"files", rows}}.dump(2, ' ', false,
                                              nlohmann::json::error_handler_t::replace) +
         "\n";
}

absl::StatusOr<std::vector<FileInfo>> All(const Ref<FileStore>& store) {
  std::vector<FileInfo> all;
  std::string after;
  for (;;) {
    ABACUS_ASSIGN_OR_RETURN(std::vector<FileInfo> some, store->List(after, FileStore::kListMax));
    if (some.empty()) return all;
    after = some.back().name;
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
}

}  // namespace

int Put(const PutOptions& options) {
  int fd = STDIN_FILENO;
  if (!options.file.empty()) {
    fd = open(options.file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Fail(absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", options.file)));
  }
  auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const auto store = (*client)->Store();
  if (!store.ok()) return Fail(store.status());
  const auto bytes = PutInto(*store, fd, options.name);
  if (fd != STDIN_FILENO) close(fd);
  if (!bytes.ok()) return Fail(bytes.status());
  fprintf(stderr, "stored %s: %llu bytes\n", options.name.c_str(),
          static_cast<unsigned long long>(*bytes));
  return kExitOk;
}

int List(const ListOptions& options) {
  auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const auto store = (*client)->Store();
  if (!store.ok()) return Fail(store.status());
  const auto files = All(*store);
  if (!files.ok()) return Fail(files.status());
  Table table({"bytes", "modified", "name"});
  for (const FileInfo& file : *files) {
    table.AddRow({absl::StrCat(file.bytes),
                  absl::FormatTime("%Y-%m-%d %H:%M:%S", file.modified, absl::LocalTimeZone()),
                  file.name});
  }
  if (auto status = WriteAll(STDOUT_FILENO, table.ToString()); !status.ok()) return Fail(status);
  if (options.json.empty()) return kExitOk;
  if (auto status = WriteFile(options.json, JsonOf(*files)); !status.ok()) return Fail(status);
  return kExitOk;
}

}  // namespace abacus::apps
