// abacus volume and abacus stack: a server's volumes, and what a file's layers are.

#include <sys/stat.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/output.h"
#include "apps/abacus/volumes.h"
#include "apps/cli/table.h"
#include "objfs/fuse/mount.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

absl::Status ListVolumes(const runtime::Ref<objfs::VolumeSet>& volumes, const std::string& json) {
  ABACUS_ASSIGN_OR_RETURN(const auto all, volumes->List());
  if (!json.empty()) {
    nlohmann::json rows = nlohmann::json::array();
    for (const auto& volume : all) {
      rows.push_back({{"name", volume.name},
                      {"objects", volume.space.objects},
                      {"capacity_bytes", volume.space.capacity_bytes},
                      {"available_bytes", volume.space.available_bytes},
                      {"commits", volume.commits.committed},
                      {"retries", volume.commits.stale},
                      {"damaged", volume.space.damaged},
                      {"refused", volume.space.refused},
                      {"clients", volume.clients}});
    }
    ABACUS_RETURN_IF_ERROR(WriteFile(json, nlohmann::json{{"volumes", rows}}.dump(2) + "\n"));
  }
  Table table({"volume", "objects", "available", "of", "commits", "retries", "damaged", "clients"});
  for (const auto& volume : all) {
    table.AddRow({volume.name, absl::StrCat(volume.space.objects),
                  runtime::FormatBytes(volume.space.available_bytes),
                  runtime::FormatBytes(volume.space.capacity_bytes),
                  absl::StrCat(volume.commits.committed), absl::StrCat(volume.commits.stale),
                  absl::StrCat(volume.space.damaged),
                  volume.clients.empty() ? "-" : absl::StrJoin(volume.clients, ", ")});
  }
  printf("%s", table.ToString().c_str());
  return absl::OkStatus();
}

absl::Status CreateVolume(const runtime::Ref<objfs::VolumeSet>& volumes,
                          const VolumeOptions& options) {
  if (options.quota.empty()) return volumes->Create(options.name, 0);
  const std::optional<uint64_t> quota_bytes = runtime::ParseBytes(options.quota);
  if (quota_bytes.value_or(0) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--quota takes a size such as '10 GiB', not '", options.quota, "'"));
  }
  return volumes->Create(options.name, *quota_bytes);
}

}  // namespace

int VolumeCommand(const VolumeOptions& options) {
  const auto client = ClientNode::Start(options.client);
  if (!client.ok()) return Fail(client.status());
  const auto volumes = VolumesOf((*client)->node());
  if (!volumes.ok()) return Fail(volumes.status());
  absl::Status status;
  switch (options.what) {
    case VolumeOptions::What::kCreate:
      status = CreateVolume(*volumes, options);
      break;
    case VolumeOptions::What::kDelete:
      status = (*volumes)->Delete(options.name);
      break;
    case VolumeOptions::What::kList:
      status = ListVolumes(*volumes, options.json);
      break;
  }
  return status.ok() ? kExitOk : Fail(status);
}

int StackCommand(const StackOptions& options) {
  if (options.stack.has_value()) {
    const int set = setxattr(options.path.c_str(), objfs::kStackXattr, options.stack->data(),
                             options.stack->size(), 0);
    if (set == 0) return kExitOk;
    return Fail(
        absl::ErrnoToStatus(errno, absl::StrCat("cannot set the stack of files in ", options.path,
                                                " to '", *options.stack, "'")));
  }
  char text[4096];
  const ssize_t bytes = lgetxattr(options.path.c_str(), objfs::kOwnStackXattr, text, sizeof(text));
  if (bytes < 0) {
    return Fail(absl::ErrnoToStatus(errno, absl::StrCat("cannot tell the stack of ", options.path,
                                                        errno == ENODATA || errno == EOPNOTSUPP
                                                            ? " (is it on a mount of abacus?)"
                                                            : "")));
  }
  printf("%.*s\n", static_cast<int>(bytes), text);
  return kExitOk;
}

int Unmount(const UnmountOptions& options) {
  const absl::Status status = objfs::Unmount(options.directory, options.lazily);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace abacus::apps
