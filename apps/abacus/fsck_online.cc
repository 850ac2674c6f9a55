// abacus fsck of a volume that a server has open.

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/fsck_report.h"
#include "apps/abacus/volumes.h"
#include "objfs/volume/volume.h"
#include "runtime/base/nearest.h"
#include "runtime/base/status.h"

namespace abacus::apps {
namespace {

using objfs::Fault;
using runtime::Ref;

constexpr int kTriesMax = 200;
constexpr std::chrono::milliseconds kBetweenTries{50};

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
    for (const auto& one : *all) names.push_back(one.name);
  }
  const std::string nearest = runtime::Nearest(name, names);
  if (nearest.empty()) return volume.status();
  return absl::NotFoundError(
      absl::StrCat(volume.status().message(), "; did you mean '", nearest, "'?"));
}

// On its own, so that no reference outlives the node.
absl::Status CheckAt(ClientNode& client, const FsckOptions& options,
                     std::vector<CheckedVolume>* checked) {
  ABACUS_ASSIGN_OR_RETURN(const Ref<objfs::Volume> volume,
                          VolumeToCheck(client.node(), options.volume));
  ABACUS_ASSIGN_OR_RETURN(
      objfs::OnlineCheck check,
      volume->Check(objfs::CheckRequest{.repair = options.repair, .data = options.data}));
  if (!check.repairs.empty()) ABACUS_RETURN_IF_ERROR(CommitRepairs(volume, &check));
  for (const Fault& fault : check.report.faults) PrintFault(options.volume, fault);
  checked->push_back({options.volume, std::move(check.report)});
  return absl::OkStatus();
}

}  // namespace

int FsckOnline(const FsckOptions& options) {
  const auto client = ClientNode::Start(options.client);
  if (!client.ok()) return FailFsck(client.status());
  std::vector<CheckedVolume> checked;
  const absl::Status status = CheckAt(**client, options, &checked);
  if (!status.ok()) return FailFsck(status);
  const std::string again =
      options.repair ? absl::StrCat("stop the server, then: abacus fsck DIRECTORY --volume ",
                                    options.volume, " --repair")
                     : absl::StrCat("abacus fsck --repair --volume ", options.volume, " ",
                                    options.client.servers.front());
  PrintTotals(checked.front(), options, again);
  return FinishFsck(checked, options);
}

}  // namespace abacus::apps
