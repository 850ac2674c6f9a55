#include "objfs/check/checker.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/check/volume_repair.h"
#include "objfs/check/volume_scan.h"
#include "objfs/raid/column_record.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

// A repair of one stage seldom makes faults of an earlier one; this is for the worst.
constexpr int kRoundsMax = 32;
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
                                 Stage stage, Failures* failures, CheckReport* report) {
  VolumeRepair repair(table, options, scan);
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
  // Names that are in such an object are there, and cannot be read.
  const bool holds_names = stage == Stage::kObjects || stage == Stage::kBlocks;
  return !holds_names || failures->empty();
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
}

}  // namespace

absl::StatusOr<CheckReport> CheckVolume(ObjectTable& table, const CheckOptions& options) {
  CheckReport report;
  Failures failures;
  bool repairs = options.repair && !options.online;
  for (int round = 0;; ++round) {
    VolumeScan scan(table, options);
    ABACUS_RETURN_IF_ERROR(scan.Run());
    const Stage stage = FirstStage(scan.found(), failures);
    if (repairs && stage != Stage::kNone && round < kRoundsMax) {
      ABACUS_ASSIGN_OR_RETURN(repairs,
                              RepairStage(table, options, scan, stage, &failures, &report));
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
    ABACUS_RETURN_IF_ERROR(ColumnRecord::Decode(attributes.blob).status());
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
