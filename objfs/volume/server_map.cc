#include "objfs/volume/server_map.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/raid/timed_call.h"
#include "objfs/volume/shard.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::Ref;

namespace {
constexpr char kNotInTime[] = "it has not answered in time";
}  // namespace

ServerMap::ServerMap(std::string address, std::string name, uint64_t key, Host host)
    : address_(std::move(address)), name_(std::move(name)), key_(key), host_(std::move(host)) {}

absl::Status ServerMap::HasNotAnswered(absl::string_view why) const {
  return absl::UnavailableError(
      absl::StrCat("the map's server ", address_, " does not answer: ", why));
}

absl::StatusOr<Ref<VolumeSet>> ServerMap::Find() const {
  host_.reach(address_);
  absl::StatusOr<Ref<VolumeSet>> set = host_.find_set(address_);
  if (set.ok()) return set;
  return HasNotAnswered(set.status().message());
}

absl::Status ServerMap::Told(const absl::Status& answer) const {
  if (answer.ok()) return answer;
  // An error of the way to it.
  if (runtime::KindOf(answer) != runtime::ErrorKind::kNone) return HasNotAnswered(answer.message());
  if (absl::IsNotFound(answer)) {
    return absl::NotFoundError(absl::StrCat(
        "the map's server ", address_, " has no row of the volume: ", name_,
        ". If it has lost it, and the volume was not deleted: abacus volume restore-map ",
        PlaceOfShard(name_).volume));
  }
  return absl::Status(answer.code(),
                      absl::StrCat("the map's server ", address_, ": ", answer.message()));
}

absl::StatusOr<MapAnswer> ServerMap::Call(const MapCall& call) {
  ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> set, Find());
  auto answer =
      CallWithin<&VolumeSet::AskMap>(*host_.alarm, kCallPatience, set.base(), name_, key_, call);
  if (!answer.has_value()) return HasNotAnswered(kNotInTime);
  ABACUS_RETURN_IF_ERROR(Told(answer->status()));
  return *std::move(answer);
}

absl::Status ServerMap::Create(const VolumeRow& row) {
  ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> set, Find());
  const auto answer = CallWithin<&VolumeSet::CreateMap>(*host_.alarm, kChangePatience, set.base(),
                                                        name_, key_, row);
  return answer.has_value() ? Told(*answer) : HasNotAnswered(kNotInTime);
}

absl::Status ServerMap::Remove() {
  ABACUS_ASSIGN_OR_RETURN(const Ref<VolumeSet> set, Find());
  const auto answer =
      CallWithin<&VolumeSet::RemoveMap>(*host_.alarm, kChangePatience, set.base(), name_, key_);
  return answer.has_value() ? Told(*answer) : HasNotAnswered(kNotInTime);
}

}  // namespace abacus::objfs
