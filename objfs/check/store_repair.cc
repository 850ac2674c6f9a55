#include "objfs/check/store_repair.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/atomicity/log_file.h"
#include "objfs/replica/replica_record.h"
#include "objfs/store/journal.h"
#include "objfs/store/wrong_bit.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kReplicaFile[] = "replica";

const char* WayOut(OtherCopies others) {
  switch (others) {
    case OtherCopies::kReplica:
      return ". Not repaired here, as the volume's other copy has it: move this directory "
             "away, and it is made anew from there";
    case OtherCopies::kColumns:
      return ". Not repaired here, as the volume's other servers have what it needs: move this "
             "directory away, start the server, and abacus rebuild makes it anew";
    case OtherCopies::kNone:
      break;
  }
  return ". Nothing of it can be used; restore it from a copy";
}

void Tell(Fault fault, const CheckOptions& options, CheckReport* report) {
  if (options.tell) options.tell(fault);
  report->Add(std::move(fault), options.faults_max);
}

// Its record is whole, or was made so; it is in `others` that there is one.
absl::Status LookAtReplica(Disk& disk, const CheckOptions& options, CheckReport* report,
                           OtherCopies* others) {
  const auto record = ReplicaRecord::Load(disk);
  if (record.ok() && !record->has_value()) return absl::OkStatus();
  *others = OtherCopies::kReplica;
  if (!absl::IsDataLoss(record.status())) return absl::OkStatus();  // opening tells of a version
  Fault fault{.kind = FaultKind::kReplica};
  fault.text = std::string(runtime::ToStd(record.status().message()));
  ABACUS_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(disk, kReplicaFile));
  fault.place = absl::StrCat(kReplicaFile, ", bytes 0 to ", bytes.size());
  const auto right =
      bytes.size() == ReplicaRecord::kBytes ? WrongBit::SetRight(bytes) : std::nullopt;
  if (right.has_value() && ReplicaRecord::Decode(*right).ok()) {
    fault.text = "it is damaged: one bit of it is wrong, and its checksum tells which";
    if (options.repair) {
      ABACUS_RETURN_IF_ERROR(ReplicaRecord::Decode(*right)->Save(disk));
      fault.done = "the bit was set right";
    }
  }
  Tell(std::move(fault), options, report);
  return absl::OkStatus();
}

// Groups that it has and its server has not written are lost with it, and others have them.
absl::Status LookAtLog(Disk& disk, OtherCopies others, const CheckOptions& options,
                       CheckReport* report) {
  const absl::Status log = LogFile::Check(disk);
  if (!absl::IsDataLoss(log)) return absl::OkStatus();  // opening tells of a version
  Fault fault{.kind = FaultKind::kLog};
  fault.text = absl::StrCat(std::string(runtime::ToStd(log.message())), WayOut(others));
  fault.place = LogFile::Name();
  Tell(std::move(fault), options, report);
  return absl::OkStatus();
}

}  // namespace

Fault FaultOf(const StoreFault& found) {
  Fault fault;
  fault.object = found.object;
  fault.text = found.text;
  fault.place = found.file;
  if (found.bytes > 0) {
    absl::StrAppend(&fault.place, ", bytes ", found.offset, " to ", found.offset + found.bytes);
  }
  switch (found.part) {
    case StorePart::kSuperblock:
      fault.kind = FaultKind::kSuperblock;
      break;
    case StorePart::kJournal:
      fault.kind = FaultKind::kJournal;
      break;
    case StorePart::kTable:
      fault.kind = FaultKind::kTable;
      break;
  }
  return fault;
}

absl::StatusOr<StoreLook> LookAtStore(Disk& disk, Disk& scratch, OtherCopies others,
                                      const CheckOptions& options, CheckReport* report) {
  StoreLook look{.others = others};
  ABACUS_RETURN_IF_ERROR(LookAtReplica(disk, options, report, &look.others));
  ABACUS_RETURN_IF_ERROR(LookAtLog(disk, look.others, options, report));
  ABACUS_ASSIGN_OR_RETURN(const StoreScanResult scanned, ScanStore(disk));
  report->cut_off_bytes += scanned.cut_off_bytes;
  for (const StoreFault& found : scanned.faults) {
    Fault fault = FaultOf(found);
    const bool can =
        found.fix.has_value() && (!found.fix->loses || look.others == OtherCopies::kNone);
    if (!can) {
      absl::StrAppend(&fault.text, WayOut(look.others));
      look.opens = false;
    } else if (options.repair) {
      ABACUS_RETURN_IF_ERROR(ApplyFix(disk, found));
      fault.done = found.fix->done;
      look.lost = look.lost || found.fix->loses;
    } else if (found.fix->loses) {
      look.opens = false;
    } else {
      ABACUS_RETURN_IF_ERROR(ApplyFix(scratch, found));
    }
    Tell(std::move(fault), options, report);
  }
  return look;
}

}  // namespace abacus::objfs
