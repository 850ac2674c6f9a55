#include "apps/abacus/local_store.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/volumes.h"
#include "objfs/volume/shard.h"
#include "runtime/base/status.h"
#include "runtime/transport/no_transport.h"

namespace abacus::apps {
namespace {

constexpr char kWayToSay[] = "-o volume=NAME";

}  // namespace

LocalStore::LocalStore(std::unique_ptr<runtime::DataDirectory> directory,
                       const runtime::Config::Cache& cache)
    : directory_(std::move(directory)),
      types_(Classes(CacheOf(cache))),
      transport_(std::make_unique<runtime::NoTransport>()),
      binding_(directory_->instance(), {}, types_, transport_.get(), nullptr) {
  binding_.Start();
}

LocalStore::~LocalStore() {
  volumes_ = runtime::Ref<objfs::VolumeSet>();
  binding_.Stop();
}

absl::StatusOr<std::unique_ptr<LocalStore>> LocalStore::Open(const std::string& directory,
                                                             const runtime::Config::Cache& cache) {
  std::error_code error;
  // The process may change its working directory later.
  const std::string whole = std::filesystem::absolute(directory, error).string();
  if (error) return absl::InvalidArgumentError(absl::StrCat(directory, ": ", error.message()));
  auto data = runtime::DataDirectory::Open(whole, "local");
  if (absl::IsFailedPrecondition(data.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        data.status().message(),
        ". What a server has open is mounted from there: abacus mount SERVER[/VOLUME] DIR"));
  }
  if (!data.ok()) return data.status();
  auto store = std::unique_ptr<LocalStore>(new LocalStore(*std::move(data), cache));
  ABACUS_ASSIGN_OR_RETURN(store->volumes_, OpenVolumes(store->binding_, whole + "/volumes"));
  ABACUS_ASSIGN_OR_RETURN(const auto all, store->volumes_->List());
  if (all.empty()) {
    ABACUS_RETURN_IF_ERROR(store->volumes_->Create(objfs::NewVolume{.name = kFirstVolume}));
  }
  return store;
}

absl::StatusOr<runtime::Ref<objfs::Volume>> LocalStore::VolumeNamed(const std::string& name) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<objfs::VolumeSummary> all, volumes_->List());
  const std::string wanted = objfs::PlaceOfShard(name).volume;
  std::string of_shards;  // of which there are shards, and not what is meant
  for (const objfs::VolumeSummary& one : all) {
    const objfs::ShardPlace place = objfs::PlaceOfShard(one.name);
    const bool is_meant = name.empty() ? place.shard == 0 : one.name == name;
    if (is_meant) return VolumeIn({volumes_}, name, kWayToSay);
    if (name.empty() || place.volume == wanted) of_shards = place.volume;
  }
  if (of_shards.empty()) return VolumeIn({volumes_}, name, kWayToSay);
  return absl::NotFoundError(absl::StrCat("this directory has some shards of volume '", of_shards,
                                          "' only: mount it from its servers: abacus mount SERVER/",
                                          of_shards, " DIR"));
}

objfs::FileSystem::Host LocalStore::Host() {
  objfs::FileSystem::Host host = HostOf(binding_, [this](const runtime::Rid& rid) {
    binding_.Destroy(rid).IgnoreError();  // nothing moves away from here
  });
  // A volume's other shards, where all are in this directory.
  host.find_volume = [this](const std::string& name) { return VolumeNamed(name); };
  return host;
}

}  // namespace abacus::apps
