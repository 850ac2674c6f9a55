#ifndef ABACUS_OBJFS_CHECK_STORE_REPAIR_H_
#define ABACUS_OBJFS_CHECK_STORE_REPAIR_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/check/checker.h"
#include "objfs/check/report.h"
#include "objfs/store/disk.h"
#include "objfs/store/store_scan.h"

namespace abacus::objfs {

// Where else the volume has what a store has.
enum class OtherCopies : uint8_t { kNone = 0, kReplica, kColumns };

struct StoreLook {
  bool opens = true;  // what it knows of itself is whole, or was made right
  bool lost = false;  // by a repair: something is as it was before
  OtherCopies others = OtherCopies::kNone;
};

// Looks at what the store on a disk that nobody uses knows of itself (ScanStore), at the record of
// what it is worth as a copy, and at the log of groups beside it; tells the faults. With
// CheckOptions::repair it makes right what it can. Where others have the same it makes nothing
// right that would lose what the damaged part had: a store that went back in time would be
// believed. `scratch`: what can be made right without loss is so there, where `disk` is left as it
// is. Errors: the disk's.
absl::StatusOr<StoreLook> LookAtStore(Disk& disk, Disk& scratch, OtherCopies others,
                                      const CheckOptions& options, CheckReport* report);

// As it stands in a report; nothing is done yet.
Fault FaultOf(const StoreFault& found);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_CHECK_STORE_REPAIR_H_
