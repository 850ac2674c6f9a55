#ifndef ABACUS_OBJFS_RAID_TESTING_SCRUB_ALL_H_
#define ABACUS_OBJFS_RAID_TESTING_SCRUB_ALL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "objfs/raid/columns_layer.h"

namespace abacus::objfs::testing {

// All of a file, in steps, and what they found together. `step(from)` is one.
template <typename F>
absl::StatusOr<ScrubProgress> ScrubInSteps(F&& step) {
  ScrubProgress all;
  while (!all.done) {
    const absl::StatusOr<ScrubProgress> one = step(all.next);
    if (!one.ok()) return one;
    all.next = one->next;
    all.done = one->done;
    all.checked += one->checked;
    all.repaired += one->repaired;
    all.mismatched += one->mismatched;
    all.damaged += one->damaged;
    all.partial += one->partial;
    all.bytes += one->bytes;
  }
  return all;
}

// `columns`: TestColumnsOf.
template <typename Columns>
absl::StatusOr<ScrubProgress> ScrubAll(Columns& columns) {
  return ScrubInSteps(
      [&](uint64_t from) { return columns.raid()->Scrub(from, UINT64_MAX, columns.Now()); });
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_SCRUB_ALL_H_
