// abacus fsck of a volume that a server has open, or several: one for each of its shards.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/fsck_report.h"
#include "apps/abacus/volumes.h"
#include "objfs/check/checker.h"
#include "objfs/check/shards_scan.h"
#include "objfs/store/object_id.h"
#include "objfs/volume/shard.h"
#include "objfs/volume/volume.h"
#include "runtime/base/nearest.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using objfs::Fault;
using runtime::Ref;

constexpr int kTriesMax = 200;
constexpr std::chrono::milliseconds kBetweenTries{50};
// Longer than a shard waits before it asks what became of a transaction (ShardCommits::Options).
constexpr std::chrono::seconds kBetweenLooks{4};
constexpr size_t kAskedAtOnce = 1000;

// Others are told to forget what they know; then it is asked again.
absl::Status CommitRepair(const Ref<objfs::Volume>& volume, uint16_t writer,
                          const objfs::Transaction& transaction) {
  for (int i = 0; i < kTriesMax; ++i) {
    ABACUS_RETURN_IF_ERROR(volume->Renew(writer).status());
    const absl::StatusOr<objfs::Outcome> outcome = volume->Commit(writer, transaction);
    if (objfs::IsWouldBlock(outcome.status())) {
      std::this_thread::sleep_for(kBetweenTries);
      continue;
    }
    ABACUS_RETURN_IF_ERROR(outcome.status());
    if (outcome->state == objfs::CommitState::kCommitted) return absl::OkStatus();
    return absl::AbortedError("it was changed meanwhile");
  }
  return absl::UnavailableError("others do not let go of it");
}

absl::Status CommitRepairs(const Ref<objfs::Volume>& volume, objfs::OnlineCheck* check) {
  ABACUS_ASSIGN_OR_RETURN(const objfs::VolumeInfo info,
                          volume->Join(std::string("fsck"), Ref<objfs::ClientEnd>()));
  std::vector<objfs::ObjectId> changed;
  for (const auto& repair : check->repairs) {
    if (repair.fault >= check->report.faults.size()) continue;
    Fault& fault = check->report.faults[repair.fault];
    const absl::Status committed = CommitRepair(volume, info.writer, repair.transaction);
    if (committed.ok()) {
      fault.done = "set right";
      ++check->report.repaired;
      changed.push_back(fault.object);
    } else {
      absl::StrAppend(&fault.text, " (not repaired: ", committed.message(), ")");
    }
  }
  absl::Status status = changed.empty() ? absl::OkStatus() : volume->Flush(changed);
  status.Update(volume->Leave(info.writer));
  return status;
}

// The volume, or what there is that was probably meant.
absl::StatusOr<Ref<objfs::Volume>> VolumeToCheck(runtime::Node& node, const std::string& name) {
  auto volume = VolumeOf(node, name);
  if (!absl::IsNotFound(volume.status())) return volume;
  ABACUS_ASSIGN_OR_RETURN(const VolumeSets sets, VolumesOf(node));
  std::vector<std::string> names;
  for (const auto& set : sets) {
    const auto all = set->List();
    if (!all.ok()) continue;
    for (const auto& one : *all) names.push_back(objfs::PlaceOfShard(one.name).volume);
  }
  std::erase(names, name);  // shards are left of it, and no volume
  const std::string nearest = runtime::Nearest(name, names);
  if (nearest.empty()) return volume.status();
  return absl::NotFoundError(
      absl::StrCat(volume.status().message(), "; did you mean '", nearest, "'?"));
}

// The shards of a volume: each is checked by itself, and then what they say is compared. Others
// work meanwhile, so that what looks wrong counts where it does so again.
class ShardsCheck {
 public:
  ShardsCheck(runtime::Node& node, const FsckOptions& options, uint32_t count)
      : node_(node), options_(options), count_(count) {}

  absl::Status Run(std::vector<CheckedVolume>* checked) {
    for (uint32_t shard = 0; shard < count_; ++shard) {
      auto volume = VolumeOf(node_, NameOf(shard));
      if (!volume.ok()) return At(shard, volume.status());
      volumes_.push_back(*std::move(volume));
    }
    ABACUS_ASSIGN_OR_RETURN(objfs::ShardsComparison compared, LookAtAll(objfs::CheckRequest()));
    if (!IsClean(compared) || options_.data) {
      ABACUS_RETURN_IF_ERROR(LookAgain(&compared));
    }
    ABACUS_RETURN_IF_ERROR(TakeFaults(std::move(compared)));
    for (uint32_t shard = 0; shard < count_; ++shard) {
      for (const Fault& fault : checks_[shard].report.faults) PrintFault(NameOf(shard), fault);
      checked->push_back({NameOf(shard), std::move(checks_[shard].report)});
    }
    return absl::OkStatus();
  }

 private:
  std::string NameOf(uint32_t shard) const { return objfs::ShardName(options_.volume, shard); }
  absl::Status At(uint32_t shard, const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat("shard ", shard, " of volume '",
                                                    options_.volume, "': ", status.message()));
  }

  // Checks all, and compares what they leave; in `checks_` is what they found.
  absl::StatusOr<objfs::ShardsComparison> LookAtAll(const objfs::CheckRequest& request) {
    checks_.clear();
    std::vector<objfs::ShardLook> looks;
    for (uint32_t shard = 0; shard < count_; ++shard) {
      absl::StatusOr<objfs::OnlineCheck> check = volumes_[shard]->Check(request);
      if (!check.ok()) return At(shard, check.status());
      if (check->look.shard != shard || check->look.count != count_) {
        return At(shard, absl::FailedPreconditionError(absl::StrCat(
                             "it says that it is shard ", check->look.shard, " of ",
                             check->look.count, ", and shard 0 that there are ", count_,
                             ": it is of another volume of that name. Which servers have what ",
                             "tells abacus volume status ", options_.volume)));
      }
      looks.push_back(std::move(check->look));
      checks_.push_back(*std::move(check));
    }
    ABACUS_RETURN_IF_ERROR(AskForTheRest(&looks));
    return objfs::CompareShards(looks);
  }

  absl::Status AskForTheRest(std::vector<objfs::ShardLook>* looks) {
    const std::vector<objfs::ObjectId> ids = objfs::ToAsk(*looks);
    for (size_t at = 0; at < ids.size();) {
      const uint32_t shard = objfs::ShardOf(ids[at]);
      std::vector<objfs::ObjectId> some;
      while (at < ids.size() && some.size() < kAskedAtOnce && objfs::ShardOf(ids[at]) == shard) {
        some.push_back(ids[at++]);
      }
      const absl::Status taken =
          objfs::TakeAsked(some, volumes_[shard]->Stat(some), &(*looks)[shard]);
      if (!taken.ok()) return At(shard, taken);
    }
    return absl::OkStatus();
  }

  bool IsClean(const objfs::ShardsComparison& compared) const {
    return compared.faults.empty() &&
           std::all_of(checks_.begin(), checks_.end(), [](const objfs::OnlineCheck& check) {
             return check.report.found == 0 && check.report.unsettled == 0;
           });
  }

  absl::Status LookAgain(objfs::ShardsComparison* compared) {
    if (!compared->faults.empty()) std::this_thread::sleep_for(kBetweenLooks);
    objfs::CheckRequest request;
    request.repair = options_.repair;
    request.data = options_.data;
    request.gone = compared->gone;
    ABACUS_ASSIGN_OR_RETURN(objfs::ShardsComparison again, LookAtAll(request));
    *compared = objfs::StillSo(*compared, std::move(again));
    return absl::OkStatus();
  }

  // Puts them to those of the shards that they are of; repairs what can be, where that is asked
  // for.
  absl::Status TakeFaults(objfs::ShardsComparison compared) {
    for (objfs::ShardFault& found : compared.faults) {
      objfs::OnlineCheck& check = checks_[objfs::ShardOf(found.fault.object) % count_];
      const size_t told = check.report.faults.size();
      check.report.Add(std::move(found.fault), objfs::CheckOptions().faults_max);
      const bool has_room = check.report.faults.size() > told;
      if (!options_.repair || !found.repair.has_value() || !has_room) continue;
      objfs::OnlineCheck::Repair repair;
      repair.fault = told;
      repair.transaction.parts.push_back(
          {.id = check.report.faults.back().object, .change = *found.repair});
      check.repairs.push_back(std::move(repair));
    }
    for (uint32_t shard = 0; shard < count_; ++shard) {
      objfs::OnlineCheck& check = checks_[shard];
      check.report.followed = compared.followed[shard];
      check.report.unsettled += compared.unsettled[shard];
      if (check.repairs.empty()) continue;
      const absl::Status repaired = CommitRepairs(volumes_[shard], &check);
      if (!repaired.ok()) return At(shard, repaired);
    }
    return absl::OkStatus();
  }

  runtime::Node& node_;
  const FsckOptions& options_;
  const uint32_t count_;
  std::vector<Ref<objfs::Volume>> volumes_;
  std::vector<objfs::OnlineCheck> checks_;  // by shard
};

// On its own, so that no reference outlives the node.
absl::Status CheckAt(ClientNode& client, const FsckOptions& options,
                     std::vector<CheckedVolume>* checked) {
  ABACUS_RETURN_IF_ERROR(CheckNoShard(options.volume));
  ABACUS_ASSIGN_OR_RETURN(const Ref<objfs::Volume> volume,
                          VolumeToCheck(client.node(), options.volume));
  ABACUS_ASSIGN_OR_RETURN(const uint32_t shards, volume->Shards());
  if (shards > 1) return ShardsCheck(client.node(), options, shards).Run(checked);
  ABACUS_ASSIGN_OR_RETURN(
      objfs::OnlineCheck check,
      volume->Check(objfs::CheckRequest{.repair = options.repair, .data = options.data}));
  if (!check.repairs.empty()) ABACUS_RETURN_IF_ERROR(CommitRepairs(volume, &check));
  for (const Fault& fault : check.report.faults) PrintFault(options.volume, fault);
  checked->push_back({options.volume, std::move(check.report)});
  return absl::OkStatus();
}

// Of the server that answers for a volume over several, or a shard of one; empty: it is not known.
std::string AddressFor(runtime::Node& node, const std::string& name) {
  const auto set = FirstServerOf(node, name);
  if (!set.ok()) return "";
  const absl::StatusOr<objfs::MapReport> map = (*set)->Map(name);
  const bool is_known = map.ok() && map->primary < map->servers.size();
  return is_known ? map->servers[map->primary] : "";
}

// What repairs what is left after a check of `name`.
std::string NextStep(ClientNode& client, const FsckOptions& options, const std::string& name) {
  if (!options.repair) {
    return absl::StrCat("abacus fsck --repair --volume ", options.volume, " ",
                        options.client.servers.front());
  }
  const std::string address = AddressFor(client.node(), name);
  return absl::StrCat("stop its server", address.empty() ? "" : " at " + address,
                      ", then there, with its --data as DIRECTORY: abacus fsck DIRECTORY --volume ",
                      name, " --repair");
}

}  // namespace

int FsckOnline(const FsckOptions& options) {
  const auto client = ClientNode::Start(options.client);
  if (!client.ok()) return FailFsck(client.status());
  std::vector<CheckedVolume> checked;
  const absl::Status status = CheckAt(**client, options, &checked);
  if (!status.ok()) return FailFsck(status);
  for (const CheckedVolume& volume : checked) {
    const bool is_left = volume.report.left() > 0;
    PrintTotals(volume, options, is_left ? NextStep(**client, options, volume.name) : "");
    PrintNotFollowed(volume, absl::StrCat("a shard tells of ", objfs::ShardLook::kToldMax,
                                          " objects at most, and no more are compared"));
  }
  return FinishFsck(checked, options);
}

}  // namespace abacus::apps
