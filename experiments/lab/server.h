#ifndef ABACUS_EXPERIMENTS_LAB_SERVER_H_
#define ABACUS_EXPERIMENTS_LAB_SERVER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "experiments/lab/lab_node.h"
#include "experiments/lab/paper_node.h"

namespace abacus::lab {

struct ServerOptions {
  LabNodeOptions node;
  bool disk = true;  // the modelled one, behind a page cache
  double disk_bytes_per_second = kDiskBytesPerSecond;
  double disk_seek_s = absl::ToDoubleSeconds(kDiskSeek);
  // A change of a directory rests on all of its blocks (objfs::Volume::Options).
  bool whole_read_sets = false;
  // Keeps columns of another server's volume, and has none of its own.
  bool columns = false;
  // Where there are such servers, the volume is spread over the disks of this server, each of which
  // counts as a server for it, and these.
  std::vector<std::string> others;
  size_t disks = 1;
  // Of the volume's list, from 0: which fails when the volume is prepared.
  std::optional<size_t> fails;
  // What the volume has when the server is ready, as JSON:
  //   {"files": [{"name": "data", "bytes": 16777216, "stack": "isolation/storage"}],
  //    "directories": [{"name": "d0", "names": 1000}]}, of empty files, which may be left out
  // A file with "line_bytes" has lines of so many, each with its number; others have none.
  // Nothing of it is in the page cache then.
  std::string prepare = "{}";
};

// A storage server with a volume kVolume, as `abacus serve` is one. Prints "ready ADDRESS", and
// serves until its standard input ends. To a line "drop" on that it empties its page cache, and
// prints "dropped".
// Errors: kInvalidArgument - `prepare`, or a disk to fail that there is not; those of
// LabNode::Start
//         and of the file system.
absl::Status RunServer(const ServerOptions& options);

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_SERVER_H_
