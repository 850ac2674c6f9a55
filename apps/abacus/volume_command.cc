// abacus volume and abacus stack: a server's volumes, and what a file's layers are.

#include <sys/stat.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/commands.h"
#include "apps/abacus/output.h"
#include "apps/abacus/volumes.h"
#include "apps/cli/table.h"
#include "objfs/fs/file_system.h"
#include "objfs/fs/stack_rules.h"
#include "objfs/fuse/mount.h"
#include "objfs/layer/stack.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

// Servers that are named by others may take so long to answer.
constexpr absl::Duration kNamesServerPatience = absl::Seconds(5);

absl::Status ListVolumes(const VolumeSets& sets, const std::string& json) {
  std::vector<objfs::VolumeSummary> all;
  for (const auto& set : sets) {
    ABACUS_ASSIGN_OR_RETURN(const auto its, set->List());
    all.insert(all.end(), its.begin(), its.end());
  }
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

// At the first server.
absl::Status CreateVolume(const VolumeSets& sets, const VolumeOptions& options) {
  const auto& volumes = sets.front();
  uint64_t quota_bytes = 0;
  if (!options.quota.empty()) {
    quota_bytes = runtime::ParseBytes(options.quota).value_or(0);
    if (quota_bytes == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--quota takes a size such as '10 GiB', not '", options.quota, "'"));
    }
  }
  if (options.map.empty() && options.metadata_copies != 1) {
    return absl::InvalidArgumentError(
        "--metadata-copies goes with --map: without one nobody says which copy counts");
  }
  if (!options.map.empty()) {
    if (options.servers.empty()) {
      return absl::InvalidArgumentError(
          "--map goes with --servers: a volume on one server has no use for it");
    }
    return volumes->CreateMapped(options.name, quota_bytes, options.servers, options.map,
                                 options.metadata_copies);
  }
  if (options.servers.empty()) return volumes->Create(options.name, quota_bytes);
  return volumes->CreateSpread(options.name, quota_bytes, options.servers);
}

absl::Status ChangeServer(runtime::Node& node, const VolumeOptions& options) {
  ABACUS_ASSIGN_OR_RETURN(const auto set, FirstServerOf(node, options.name));
  ABACUS_RETURN_IF_ERROR(
      set->ChangeServer(options.name, options.before, options.now, options.force));
  if (options.before.empty()) {
    printf("new files of volume '%s' may be spread over %s too\n", options.name.c_str(),
           options.now.c_str());
  } else {
    printf("%s is in the place of %s, and empty; next: abacus rebuild %s\n", options.now.c_str(),
           options.before.c_str(), options.name.c_str());
  }
  return absl::OkStatus();
}

absl::Status DeleteVolume(runtime::Node& node, const VolumeSets& sets, const std::string& name) {
  absl::Status none;
  for (const auto& set : sets) {
    const absl::Status deleted = set->Delete(name);
    if (!absl::IsNotFound(deleted) && !absl::IsUnavailable(deleted)) return deleted;
    none = deleted;
  }
  // Of its servers another one may answer for it.
  const auto first = FirstServerOf(node, name);
  return first.ok() ? (*first)->Delete(name) : none;
}

// A server that keeps the volume's names and inodes, whoever answers for it.
absl::StatusOr<runtime::Ref<objfs::VolumeSet>> NamesServerOf(runtime::Node& node,
                                                             const VolumeSets& sets,
                                                             const std::string& name) {
  const auto keeps_names = [&](const runtime::Ref<objfs::VolumeSet>& set) {
    const auto map = set->Map(name);
    return map.ok() && !map->url.empty();
  };
  absl::Status none = absl::NotFoundError(absl::StrCat(
      "no server that was asked keeps names and inodes of a volume '", name, "' made with --map"));
  std::vector<std::string> servers;
  for (const auto& set : sets) {
    if (keeps_names(set)) return set;
    const auto its = set->Servers(name);
    if (its.ok()) servers.insert(servers.end(), its->begin(), its->end());
  }
  std::erase_if(servers, [](const std::string& server) { return objfs::IsVacant(server); });
  for (const std::string& server : servers) node.Reach(server);
  for (const absl::Time end = absl::Now() + kNamesServerPatience;;) {
    for (const std::string& server : servers) {
      const auto found = node.LookupAt(server, kVolumesName);
      if (!found.ok()) continue;
      const auto set = node.binding().RefTo<objfs::VolumeSet>(*found);
      if (keeps_names(set)) return set;
    }
    if (servers.empty() || absl::Now() >= end) return none;
    absl::SleepFor(absl::Milliseconds(50));
  }
}

absl::Status RestoreMap(runtime::Node& node, const VolumeSets& sets, const VolumeOptions& options) {
  ABACUS_ASSIGN_OR_RETURN(const auto set, NamesServerOf(node, sets, options.name));
  ABACUS_ASSIGN_OR_RETURN(const objfs::RestoredMap restored,
                          set->RestoreMap(options.name, options.force));
  for (const std::string& doubt : restored.doubts) {
    fprintf(stderr, "gone on by --force: %s\n", doubt.c_str());
  }
  printf(
      "the map at %s has a row of volume '%s' again, of epoch %llu: %s is to answer for it; next: "
      "abacus volume status %s\n",
      restored.url.c_str(), options.name.c_str(), static_cast<unsigned long long>(restored.epoch),
      restored.primary.c_str(), options.name.c_str());
  return absl::OkStatus();
}

// An extended attribute; nullopt where there is none.
absl::StatusOr<std::optional<std::string>> Attribute(const std::string& path, const char* name) {
  std::string text(65536, '\0');
  const ssize_t bytes = lgetxattr(path.c_str(), name, text.data(), text.size());
  if (bytes < 0 && errno == ENODATA) return std::nullopt;
  if (bytes < 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot tell the layers of ", path,
                            errno == EOPNOTSUPP ? " (is it on a mount of abacus?)" : ""));
  }
  text.resize(static_cast<size_t>(bytes));
  return text;
}

absl::Status SetAttribute(const std::string& path, const char* name, const std::string& text) {
  const int done = text.empty() ? removexattr(path.c_str(), name)
                                : setxattr(path.c_str(), name, text.data(), text.size(), 0);
  if (done == 0 || (text.empty() && errno == ENODATA)) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot set the layers of files in ", path));
}

// Before the kernel is asked: it would say no more than that something is wrong.
absl::Status CheckStackText(const std::string& text) {
  ABACUS_ASSIGN_OR_RETURN(const objfs::Stack stack, objfs::ParseStack(text));
  return objfs::CheckStack(stack, Kinds());
}

absl::Status ChangeStack(const StackOptions& options) {
  const bool sets = options.what == StackOptions::What::kSet;
  if (sets) ABACUS_RETURN_IF_ERROR(CheckStackText(options.stack));
  struct stat seen = {};
  if (stat(options.path.c_str(), &seen) == 0 && !S_ISDIR(seen.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.path, " is no directory: a file keeps the layers that it was made with"));
  }
  if (options.pattern.empty()) {
    return SetAttribute(options.path, objfs::kStackXattr, sets ? options.stack : "");
  }
  if (options.pattern.find_first_of(" \t\n/") != std::string::npos) {
    return absl::InvalidArgumentError("--for takes a pattern of names, without / and white space");
  }
  ABACUS_ASSIGN_OR_RETURN(const auto text, Attribute(options.path, objfs::kStackRulesXattr));
  ABACUS_ASSIGN_OR_RETURN(std::vector<objfs::StackRule> rules,
                          objfs::ParseStackRules(text.value_or("")));
  if (!objfs::SetStackRule(&rules, options.pattern,
                           sets ? std::optional(options.stack) : std::nullopt)) {
    return absl::NotFoundError(
        absl::StrCat("there is no rule for '", options.pattern, "' in ", options.path));
  }
  return SetAttribute(options.path, objfs::kStackRulesXattr, objfs::StackRulesText(rules));
}

absl::Status ShowStack(const StackOptions& options) {
  const bool state = options.what == StackOptions::What::kState;
  ABACUS_ASSIGN_OR_RETURN(
      const auto own, Attribute(options.path, state ? objfs::kStateXattr : objfs::kOwnStackXattr));
  if (!own.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("cannot tell the layers of ", options.path, " (is it on a mount of abacus?)"));
  }
  printf("%s%s", own->c_str(), state ? "" : "\n");
  if (state) return absl::OkStatus();
  ABACUS_ASSIGN_OR_RETURN(const auto columns, Attribute(options.path, objfs::kColumnsXattr));
  if (columns.has_value()) printf("%s", columns->c_str());
  // Of a directory, what its files will have.
  ABACUS_ASSIGN_OR_RETURN(const auto text, Attribute(options.path, objfs::kStackRulesXattr));
  ABACUS_ASSIGN_OR_RETURN(const auto rules, objfs::ParseStackRules(text.value_or("")));
  for (const objfs::StackRule& rule : rules) {
    printf("new files like %s: %s\n", rule.pattern.c_str(), rule.stack.c_str());
  }
  ABACUS_ASSIGN_OR_RETURN(const auto files, Attribute(options.path, objfs::kStackXattr));
  if (files.has_value()) printf("%s files: %s\n", rules.empty() ? "new" : "other", files->c_str());
  return absl::OkStatus();
}

void PrintKinds() {
  Table table({"layer", "option", "standard", "takes", "what it is"});
  for (const objfs::LayerKind& kind : Kinds().All()) {
    if (kind.options.empty()) table.AddRow({kind.name, "", "", "", ""});
    for (const objfs::OptionSpec& option : kind.options) {
      table.AddRow({&option == kind.options.data() ? kind.name : "", option.name, option.standard,
                    objfs::OptionRange(option), option.help});
    }
  }
  printf("%s", table.ToString().c_str());
}

}  // namespace

int VolumeCommand(const VolumeOptions& options) {
  if (options.what == VolumeOptions::What::kDrain) return DrainCommand(options);
  ClientOptions joined = options.client;
  // The first of a volume's servers is the one that is asked to make it.
  if (!options.servers.empty()) joined.servers = {options.servers.front()};
  const auto client = ClientNode::Start(joined);
  if (!client.ok()) return Fail(client.status());
  const auto volumes = VolumesOf((*client)->node());
  if (!volumes.ok()) return Fail(volumes.status());
  absl::Status status;
  switch (options.what) {
    case VolumeOptions::What::kCreate:
      status = CreateVolume(*volumes, options);
      break;
    case VolumeOptions::What::kDelete:
      status = DeleteVolume((*client)->node(), *volumes, options.name);
      break;
    case VolumeOptions::What::kAddServer:
    case VolumeOptions::What::kReplaceServer:
      status = ChangeServer((*client)->node(), options);
      break;
    case VolumeOptions::What::kRestoreMap:
      status = RestoreMap((*client)->node(), *volumes, options);
      break;
    case VolumeOptions::What::kDrain:  // above
      break;
    case VolumeOptions::What::kList:
      status = ListVolumes(*volumes, options.json);
      break;
  }
  return status.ok() ? kExitOk : Fail(status);
}

int StackCommand(const StackOptions& options) {
  using What = StackOptions::What;
  if (options.what == What::kKinds) {
    PrintKinds();
    return kExitOk;
  }
  if (options.path.empty()) {
    return Fail(absl::InvalidArgumentError("of which file? Say: abacus stack PATH"));
  }
  const bool changes = options.what == What::kSet || options.what == What::kUnset;
  if (!options.pattern.empty() && !changes) {
    return Fail(absl::InvalidArgumentError("--for goes with --set or --unset"));
  }
  const absl::Status status = changes ? ChangeStack(options) : ShowStack(options);
  return status.ok() ? kExitOk : Fail(status);
}

int Unmount(const UnmountOptions& options) {
  const absl::Status status = objfs::Unmount(options.directory, options.lazily);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace abacus::apps
