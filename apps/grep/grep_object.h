#ifndef ABACUS_APPS_GREP_GREP_OBJECT_H_
#define ABACUS_APPS_GREP_GREP_OBJECT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/grep/line_matcher.h"
#include "objfs/storage/storage_object.h"
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

// Searches a storage object for lines that match a pattern, a block at a time: the paper's example
// of a filter that had better run where the data is. The caller asks for chunk after chunk, and
// between two of them the object may move; it does not know where it is.
//
// The chunks' output together is what `LC_ALL=C grep -n PATTERN NAME` prints for the file as it was
// when the search began (see line_matcher.h).
// Thread-safety: one activity at a time. Blocking: as the storage object.
class Grep final : public runtime::MobileObject {
 public:
  static constexpr bool kOneAtATime = true;

  // `name` is what the diagnostic calls the file.
  // Errors: kInvalidArgument - the pattern, in grep's words; block_bytes is 0 or more than a
  // storage
  //         object reads at once. Those of the storage object.
  absl::Status Init(const runtime::Ref<objfs::StorageObject>& file, const std::string& pattern,
                    const std::string& name, uint64_t block_bytes);

  // Searches the next block. After the last one it returns empty chunks that are done.
  // Errors: those of the storage object: the search has not gone on, ask again. Those of the
  //         matcher (a line that is too long): the search cannot go on.
  absl::StatusOr<GrepChunk> Next();

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

  ABACUS_OBJECT(Grep, "apps.Grep", 1, Next)

 private:
  runtime::Ref<objfs::StorageObject> file_;
  uint64_t block_bytes_ = 0;
  uint64_t offset_ = 0;
  std::optional<LineMatcher> matcher_;  // set by Init and Restore
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_GREP_OBJECT_H_
