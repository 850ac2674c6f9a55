#ifndef ABACUS_RUNTIME_RESOURCE_LINK_BOOK_H_
#define ABACUS_RUNTIME_RESOURCE_LINK_BOOK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

// What was measured of the way to a node, for the time after a restart.
struct KnownLink {
  NodeId peer = 0;
  double bandwidth_bytes_s = 0;
  double round_trip_s = 0;

  bool operator==(const KnownLink&) const = default;
};

// Links in a file of the data directory.
//
// Text: "abacus-links 1", a line of peer, bandwidth and round trip for each link, "end N" with
// their number. It is written anew beside the old one, synced, and takes its place, so that after a
// crash either is there. Thread-safety: thread-compatible. Blocking: a local disk, two syncs to
// write. Limits: kLinksMax, those beyond are not kept. Source: ours.
class LinkBook {
 public:
  static constexpr size_t kLinksMax = 4096;

  explicit LinkBook(std::string path) : path_(std::move(path)) {}

  // None where there is no file.
  // Errors: kDataLoss           - damaged, or cut short: measure anew.
  //         kFailedPrecondition - of another version: measure anew; it is replaced by the next
  //                               Write().
  //         kUnavailable        - it cannot be read.
  absl::StatusOr<std::vector<KnownLink>> Read() const;
  // Errors: kUnavailable - it cannot be written; what was there is there still.
  absl::Status Write(const std::vector<KnownLink>& links) const;

 private:
  const std::string path_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_LINK_BOOK_H_
