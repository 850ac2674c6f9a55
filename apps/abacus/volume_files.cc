#include "apps/abacus/volume_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "apps/abacus/volumes.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/status.h"

namespace abacus::apps {

using objfs::FsError;
using objfs::Node;
using runtime::Ref;

namespace {

constexpr int kLinksMax = 40;  // as Linux follows them
constexpr uint32_t kDirectoryMode = S_IFDIR | 0755;

std::vector<std::string> NamesOf(const std::string& path) {
  return absl::StrSplit(path, '/', absl::SkipEmpty());
}

}  // namespace

FileName ParseFileName(const std::string& text) {
  const size_t end = text.find_first_of(":/");
  if (end == std::string::npos || text[end] == '/') return {"", text};
  return {text.substr(0, end), text.substr(end + 1)};
}

VolumeFiles::VolumeFiles(runtime::NodeId server, std::unique_ptr<objfs::FileSystem> files)
    : server_(server), files_(std::move(files)) {
  caller_.uid = geteuid();
  caller_.gid = getegid();
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  const int known = getgroups(static_cast<int>(groups.size()), groups.data());
  for (int i = 0; i < known; ++i) caller_.groups.push_back(groups[static_cast<size_t>(i)]);
}

absl::StatusOr<std::unique_ptr<VolumeFiles>> VolumeFiles::Join(ClientNode& client,
                                                               const std::string& name) {
  ABACUS_RETURN_IF_ERROR(CheckNoShard(name));
  runtime::Node& node = client.node();
  ABACUS_ASSIGN_OR_RETURN(const VolumeSets sets, VolumesOf(node));
  absl::StatusOr<Ref<objfs::Volume>> found = VolumeIn(sets, name, "VOLUME:PATH");
  if (!found.ok() && !name.empty()) {
    // Of its servers another one may answer for it.
    auto elsewhere = VolumeOf(node, name);
    if (!absl::IsNotFound(elsewhere.status())) found = std::move(elsewhere);
  }
  ABACUS_ASSIGN_OR_RETURN(const Ref<objfs::Volume> volume, std::move(found));
  ABACUS_ASSIGN_OR_RETURN(
      auto files, objfs::FileSystem::Make(volume, Kinds(), HostOf(node), {.client = node.name()}));
  return std::unique_ptr<VolumeFiles>(new VolumeFiles(volume.rid().home.node, std::move(files)));
}

absl::StatusOr<std::unique_ptr<VolumeFiles>> VolumeFiles::JoinOrMakeFirst(ClientNode& client,
                                                                          const std::string& name) {
  auto joined = Join(client, name);
  if (!name.empty() || !absl::IsNotFound(joined.status())) return joined;
  ABACUS_ASSIGN_OR_RETURN(const VolumeSets sets, VolumesOf(client.node()));
  const absl::Status made = sets.front()->Create(objfs::NewVolume{.name = kFirstVolume});
  // Another client may have made it meanwhile.
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  return Join(client, kFirstVolume);
}

absl::StatusOr<Node> VolumeFiles::Step(const Node& directory, const std::string& name, bool makes) {
  auto found = files_->Lookup(caller_, directory.id, name);
  if (!makes || objfs::FsErrorOf(found.status()) != FsError::kNoEntry) return found;
  auto made = files_->Make(caller_, directory.id, name, kDirectoryMode, 0, "");
  // Another client may have made it meanwhile.
  if (objfs::FsErrorOf(made.status()) != FsError::kExists) return made;
  return files_->Lookup(caller_, directory.id, name);
}

absl::StatusOr<Node> VolumeFiles::Walk(std::vector<std::string> names, bool makes) {
  ABACUS_ASSIGN_OR_RETURN(Node at, files_->Stat(files_->root()));
  std::reverse(names.begin(), names.end());  // the next one is the last
  for (int links = 0; !names.empty();) {
    const std::string name = std::move(names.back());
    names.pop_back();
    ABACUS_ASSIGN_OR_RETURN(Node next, Step(at, name, makes));
    if (!S_ISLNK(next.inode.mode)) {
      at = std::move(next);
      continue;
    }
    ABACUS_ASSIGN_OR_RETURN(const std::string target, files_->ReadLink(caller_, next.id));
    if (absl::StartsWith(target, "/") || ++links > kLinksMax) {
      return objfs::FsStatus(
          FsError::kInvalid,
          absl::StrCat("'", name, "' is a symbolic link to '", target,
                       links > kLinksMax ? "', one of too many" : "', outside of the volume"));
    }
    std::vector<std::string> more = NamesOf(target);
    names.insert(names.end(), more.rbegin(), more.rend());
  }
  return at;
}

absl::StatusOr<Node> VolumeFiles::Find(const std::string& path) {
  return Walk(NamesOf(path), /*makes=*/false);
}

absl::StatusOr<VolumeFiles::Place> VolumeFiles::PlaceOf(const std::string& path, bool makes) {
  std::vector<std::string> names = NamesOf(path);
  if (names.empty() || names.back() == "." || names.back() == "..") {
    return objfs::FsStatus(FsError::kInvalid, absl::StrCat("'", path, "' names no file"));
  }
  Place place;
  place.name = std::move(names.back());
  names.pop_back();
  ABACUS_ASSIGN_OR_RETURN(place.directory, Walk(std::move(names), makes));
  return place;
}

}  // namespace abacus::apps
