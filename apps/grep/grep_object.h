#ifndef ABACUS_APPS_GREP_GREP_OBJECT_H_
#define ABACUS_APPS_GREP_GREP_OBJECT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/grep/line_matcher.h"
#include "objfs/layer/subgraph.h"
#include "runtime/base/block.h"
#include "runtime/object/mobile_object.h"

namespace abacus::apps {

// What one step of a search found.
struct GrepChunk {
  runtime::Block output;   // as grep prints it
  uint64_t offset = 0;     // bytes of the file that have been searched
  uint64_t matches = 0;    // lines that have been printed
  bool done = false;       // nothing follows
  std::string diagnostic;  // with the last chunk: what grep writes to its standard error
  ABACUS_FIELDS(output, offset, matches, done, diagnostic)
};

// Searches a file for lines that match a pattern, a block at a time: the paper's example of a
// filter that had better run where the data is. It reads from the layers of the file's stack, whose
// object subgraph its caller appends to the graph that it is in (objfs::FileSystem::WithSubgraph).
// The caller asks for chunk after chunk, and between two of them the object may move, and so may
// the layers; it does not know where it is.
//
// The chunks' output together is what `LC_ALL=C grep -n PATTERN NAME` prints for a file that stays
// as it is (see line_matcher.h). Of one that is written meanwhile each block is as it was at some
// moment since its chunk was asked for.
// Thread-safety: one activity at a time. Blocking: as the file's layers.
class Grep final : public runtime::MobileObject {
 public:
  static constexpr bool kOneAtATime = true;
  static constexpr uint64_t kBlockBytesMax = uint64_t{64}
                                             << 20;  // what storage layers read at once

  // `name` is what the diagnostic calls the file.
  // Errors: kInvalidArgument - the pattern, in grep's words; block_bytes is 0 or more than
  //         kBlockBytesMax. Those of the file's layers.
  absl::Status Init(const objfs::Subgraph& file, const std::string& pattern,
                    const std::string& name, uint64_t block_bytes);

  // Searches the next block of `file`, always the same one, by whatever layers. After the last
  // block it returns empty chunks that are done. Errors: those of the file's layers,
  // objfs::IsWouldBlock() among them: the search has not gone
  //         on, ask again. Those of the matcher (a line that is too long): it cannot go on.
  absl::StatusOr<GrepChunk> Next(const objfs::Subgraph& file);

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

  ABACUS_OBJECT(Grep, "apps.Grep", 2, Next)

 private:
  uint64_t block_bytes_ = 0;
  uint64_t offset_ = 0;
  std::optional<LineMatcher> matcher_;  // set by Init and Restore
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_GREP_OBJECT_H_
