#ifndef ABACUS_APPS_ABACUS_FSCK_REPORT_H_
#define ABACUS_APPS_ABACUS_FSCK_REPORT_H_

// What `abacus fsck` found, in words and as JSON.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "apps/abacus/commands.h"
#include "objfs/check/report.h"

namespace abacus::apps {

// As those of e2fsck(8).
inline constexpr int kFsckClean = 0, kFsckRepaired = 1, kFsckLeft = 4, kFsckError = 8,
                     kFsckUsage = 16;

struct CheckedVolume {
  std::string name;
  objfs::CheckReport report;
};

// One line of what was found.
void PrintFault(const std::string& volume, const objfs::Fault& fault);
// The last lines of a volume. `again`: the command that repairs it; empty: that was done.
void PrintTotals(const CheckedVolume& volume, const FsckOptions& options, const std::string& again);
// Of a shard: that there are names which nobody has followed, if so. `why`: or what does that.
void PrintNotFollowed(const CheckedVolume& volume, const std::string& why);
// The exit code of all volumes; written as JSON too where the options say so.
int FinishFsck(const std::vector<CheckedVolume>& volumes, const FsckOptions& options);

// "abacus: why", and kFsckError or kFsckUsage.
int FailFsck(const absl::Status& status);

// Of a volume that a server has open.
int FsckOnline(const FsckOptions& options);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_FSCK_REPORT_H_
