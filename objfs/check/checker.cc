#include "objfs/check/checker.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "objfs/check/scratch_disk.h"
#include "objfs/check/store_repair.h"
#include "objfs/check/volume_repair.h"
#include "objfs/check/volume_scan.h"
#include "objfs/raid/column_record.h"
#include "objfs/spread/fenced_record.h"
#include "objfs/store/disk.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

// A repair of one stage seldom makes faults of an earlier one; this is for the worst.
constexpr int kRoundsMax = 32;
constexpr int kOnlineRoundsMax = 2;  // beside the first
constexpr uint64_t kColumnsAtOnce = 4096;
constexpr uint64_t kColumnBytesAtOnce = uint64_t{1} << 20;

// Faults by what they say, with why they could not be repaired.
using Failures = std::map<std::string, std::string>;

void Report(Fault fault, const CheckOptions& options, CheckReport* report) {
  if (options.tell) options.tell(fault);
  report->Add(std::move(fault), options.faults_max);
}

// Of those that have not failed yet.
Stage FirstStage(const std::vector<Found>& found, const Failures& failures) {
  Stage first = Stage::kNone;
  for (const Found& one : found) {
    if (one.stage < first && !failures.contains(one.fault.Line())) first = one.stage;
  }
  return first;
}

// False where what comes after would rest on something that is still wrong. What could not be made
// right is in `failures`.
absl::StatusOr<bool> RepairStage(ObjectTable& table, const CheckOptions& options, VolumeScan& scan,
                                 Stage stage, std::set<ObjectId>* kept, Failures* failures,
                                 CheckReport* report) {
  VolumeRepair repair(table, options, scan, kept);
  std::vector<Fault> repaired;
  for (Found& found : scan.found()) {
    const std::string line = found.fault.Line();
    if (found.stage != stage || failures->contains(line)) continue;
    const absl::Status status = repair.Repair(&found);
    if (status.ok()) {
      repaired.push_back(std::move(found.fault));
    } else {
      (*failures)[line] = std::string(runtime::ToStd(status.message()));
    }
  }
  // Nothing is told to be repaired that is not durable.
  ABACUS_RETURN_IF_ERROR(table.store().FlushAll());
  for (Fault& fault : repaired) Report(std::move(fault), options, report);
  // Names that are in such an object are there, and cannot be read; records tell what is held.
  const bool is_needed =
      stage == Stage::kRecords || stage == Stage::kObjects || stage == Stage::kBlocks;
  return !is_needed || failures->empty();
}

// What a client commits for it. Where it is a count it is told as a difference, so that it is right
// whatever others do meanwhile; where it is a name, it is refused where others changed its leaf.
absl::StatusOr<Transaction> RepairOf(ObjectStore& store, VolumeScan& scan, const Found& found) {
  Transaction transaction;
  const Facts& facts = *scan.Find(found.fault.object);
  if (found.stage == Stage::kNames) {
    ABACUS_ASSIGN_OR_RETURN(Part part, ChangeNames(store, facts, {found.change}));
    transaction.parts.push_back(std::move(part));
    return transaction;
  }
  Part part{.id = facts.id};
  part.change = RightCount(found.fault.kind, facts, scan.root());
  transaction.parts.push_back(std::move(part));
  return transaction;
}

void TakeTotals(const CheckReport& totals, CheckReport* report) {
  report->objects += totals.objects;
  report->directories += totals.directories;
  report->files += totals.files;
  report->links += totals.links;
  report->others += totals.others;
  report->names += totals.names;
  report->bytes_read += totals.bytes_read;
  report->unnamed += totals.unnamed;
  report->unsettled += totals.unsettled;
  report->elsewhere += totals.elsewhere;
  report->in_doubt += totals.in_doubt;
}

}  // namespace

absl::StatusOr<CheckReport> CheckVolume(ObjectTable& table, const CheckOptions& options) {
  CheckReport report;
  Failures failures;
  std::set<ObjectId> kept;
  bool repairs = options.repair;
  // Contents are read once: when nothing else is to be made right any more.
  CheckOptions looks = options;
  looks.data = options.data && !repairs;
  bool wants_data = options.data;
  for (int round = 0;; ++round) {
    VolumeScan scan(table, looks, &kept);
    ABACUS_RETURN_IF_ERROR(scan.Run());
    const Stage stage = FirstStage(scan.found(), failures);
    if (repairs && stage != Stage::kNone && round < kRoundsMax) {
      ABACUS_ASSIGN_OR_RETURN(repairs,
                              RepairStage(table, options, scan, stage, &kept, &failures, &report));
      // What an older table names may have been written over.
      wants_data = wants_data || stage == Stage::kObjects;
      continue;
    }
    if (wants_data && !looks.data) {
      looks.data = true;
      repairs = false;
      continue;
    }
    for (Found& found : scan.found()) {
      const auto failed = failures.find(found.fault.Line());
      if (failed != failures.end()) {
        absl::StrAppend(&found.fault.text, " (it cannot be repaired: ", failed->second, ")");
      }
      Report(std::move(found.fault), options, &report);
    }
    TakeTotals(scan.totals(), &report);
    return report;
  }
}

namespace {

// What the disk has of a store that is in use; other stores than local ones have none.
absl::StatusOr<CheckReport> ExamineStore(ObjectStore& store, const CheckOptions& options) {
  CheckReport report;
  auto* const local = dynamic_cast<LocalObjectStore*>(&store);
  if (local == nullptr) return report;
  ABACUS_ASSIGN_OR_RETURN(const auto found, local->Examine(options.repair));
  for (const StoreFault& one : found) {
    Fault fault = FaultOf(one);
    if (one.fix.has_value()) fault.done = one.fix->done;
    report.Add(std::move(fault), options.faults_max);
  }
  return report;
}

}  // namespace

absl::StatusOr<OnlineCheck> CheckOnline(ObjectTable& table, CheckOptions options) {
  options.online = true;
  ABACUS_ASSIGN_OR_RETURN(const CheckReport of_store, ExamineStore(table.store(), options));
  std::set<std::string> before;
  for (int round = 0;; ++round) {
    OnlineCheck check;
    check.report = of_store;
    VolumeScan scan(table, options);
    ABACUS_RETURN_IF_ERROR(scan.Run());
    // A fault stays. What was changed while it was looked at, or is found for the first time, such
    // as the links of what was seen by its name and is being removed, is looked at once more.
    std::set<std::string> now;
    for (const Found& found : scan.found()) now.insert(found.fault.Line());
    const bool is_new = !std::includes(before.begin(), before.end(), now.begin(), now.end());
    if ((is_new || scan.totals().unsettled > 0) && round < kOnlineRoundsMax) {
      before = std::move(now);
      continue;
    }
    TakeTotals(scan.totals(), &check.report);
    check.look = std::move(scan.look());
    for (Found& found : scan.found()) {
      if (!before.contains(found.fault.Line())) {
        ++check.report.unsettled;
        continue;
      }
      const bool has_room = check.report.faults.size() < options.faults_max;
      const bool is_count = found.stage == Stage::kCounts;
      if (options.repair && has_room && (is_count || found.stage == Stage::kNames)) {
        ABACUS_ASSIGN_OR_RETURN(auto transaction, RepairOf(table.store(), scan, found));
        check.repairs.push_back({check.report.faults.size(), std::move(transaction)});
      }
      check.report.Add(std::move(found.fault), options.faults_max);
    }
    return check;
  }
}

namespace {

// Opens the store of a disk for `look`; that it is damaged is a fault.
template <typename Look>
absl::Status WithStore(Disk& disk, OtherCopies others, const CheckOptions& options,
                       CheckReport* report, Look look) {
  ScratchDisk scratch(disk);
  ABACUS_ASSIGN_OR_RETURN(const StoreLook store_look,
                          LookAtStore(disk, scratch, others, options, report));
  if (!store_look.opens) return absl::OkStatus();
  CheckOptions with_store = options;
  // A column, or a copy, with a table from some time ago would be taken for one that is whole.
  const bool salvages = options.repair && store_look.others == OtherCopies::kNone;
  if (others == OtherCopies::kColumns) with_store.repair = false;
  // What a lost change freed may have been written over since.
  with_store.data = options.data || store_look.lost;
  LocalObjectStoreOptions store_options;
  store_options.salvages = salvages;
  Disk& used = with_store.repair ? disk : static_cast<Disk&>(scratch);
  auto opened = LocalObjectStore::Open(used, store_options);
  if (absl::IsDataLoss(opened.status())) {
    Fault fault;
    fault.text = absl::StrCat("it cannot be opened: ", opened.status().message(),
                              ". Nothing of it can be used; restore it from a copy");
    Report(std::move(fault), options, report);
    return absl::OkStatus();
  }
  ABACUS_RETURN_IF_ERROR(opened.status());
  const std::shared_ptr<LocalObjectStore> store(*std::move(opened));
  if (salvages) {
    with_store.salvaged = [&store](ObjectId id) { return store->Salvaged(id); };
    with_store.read_unnamed = [&store](ObjectId id, const auto& take) {
      return store->ReadUnnamed(id, take);
    };
  }
  with_store.rest = [&store](ObjectId id) { store->Rest(id); };
  const absl::Status looked = look(store, with_store);
  if (IsUnread(looked)) {  // it is not damaged, and nothing may be made of what is left without it
    return absl::UnavailableError(
        absl::StrCat(looked.message(), ". The check ends here: copy what can be read to another ",
                     "disk, and check that"));
  }
  ABACUS_RETURN_IF_ERROR(looked);
  return with_store.repair ? store->Checkpoint() : absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckReport> CheckVolumeOn(Disk& disk, const CheckOptions& options) {
  CheckReport report;
  ABACUS_RETURN_IF_ERROR(
      WithStore(disk, OtherCopies::kNone, options, &report,
                [&](const std::shared_ptr<LocalObjectStore>& store,
                    const CheckOptions& with_store) -> absl::Status {
                  ObjectTable table(store, [] { return absl::GetCurrentTimeNanos(); });
                  ABACUS_ASSIGN_OR_RETURN(CheckReport of_volume, CheckVolume(table, with_store));
                  TakeTotals(of_volume, &report);
                  report.found += of_volume.found;
                  report.repaired += of_volume.repaired;
                  for (Fault& fault : of_volume.faults) report.faults.push_back(std::move(fault));
                  return absl::OkStatus();
                }));
  return report;
}

absl::Status CheckColumnsOn(Disk& disk, const CheckOptions& options, CheckReport* report) {
  return WithStore(
      disk, OtherCopies::kColumns, options, report,
      [report](const std::shared_ptr<LocalObjectStore>& store, const CheckOptions& with_store) {
        return CheckColumns(*store, with_store, report);
      });
}

namespace {

absl::Status ReadColumn(ObjectStore& store, ObjectId id, uint64_t size, uint64_t* bytes_read) {
  std::string bytes(std::min(size, kColumnBytesAtOnce), '\0');
  for (uint64_t at = 0; at < size;) {
    const auto data = store.NextData(id, at);
    if (absl::IsOutOfRange(data.status())) return absl::OkStatus();
    ABACUS_RETURN_IF_ERROR(data.status());
    ABACUS_ASSIGN_OR_RETURN(const uint64_t read,
                            store.Read(id, *data, std::span(bytes.data(), bytes.size())));
    *bytes_read += read;
    at = *data + std::max<uint64_t>(read, 1);
  }
  return absl::OkStatus();
}

// Its record is empty until it is first written.
absl::Status LookAtColumn(ObjectStore& store, ObjectId id, bool data, uint64_t* bytes_read) {
  ABACUS_ASSIGN_OR_RETURN(const ObjectAttributes attributes, store.GetAttributes(id));
  if (!attributes.blob.empty()) {
    ABACUS_ASSIGN_OR_RETURN(const FencedRecord fenced, FencedRecord::Decode(attributes.blob));
    ABACUS_RETURN_IF_ERROR(ColumnRecord::Decode(fenced.record).status());
  }
  return data ? ReadColumn(store, id, attributes.size_bytes, bytes_read) : absl::OkStatus();
}

}  // namespace

absl::Status CheckColumns(ObjectStore& store, const CheckOptions& options, CheckReport* report) {
  for (ObjectId after = 0;;) {
    ABACUS_ASSIGN_OR_RETURN(const std::vector<ObjectId> ids, store.List(after, kColumnsAtOnce));
    for (const ObjectId id : ids) {
      if (options.goes_on && !options.goes_on()) return absl::CancelledError("broken off");
      const absl::Status looked = LookAtColumn(store, id, options.data, &report->bytes_read);
      if (options.rest) options.rest(id);
      if (looked.ok() || absl::IsNotFound(looked)) continue;
      const bool is_fault = absl::IsDataLoss(looked) || absl::IsFailedPrecondition(looked);
      if (!is_fault) return looked;
      Report({.kind = FaultKind::kColumn,
              .object = id,
              .path = {},
              .text = absl::StrCat("this server's column of it: ", looked.message(),
                                   "; the other servers have what it needs: abacus scrub"),
              .done = {}},
             options, report);
    }
    if (ids.size() < kColumnsAtOnce) return absl::OkStatus();
    after = ids.back();
  }
}

}  // namespace abacus::objfs
