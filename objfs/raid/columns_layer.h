#ifndef ABACUS_OBJFS_RAID_COLUMNS_LAYER_H_
#define ABACUS_OBJFS_RAID_COLUMNS_LAYER_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/layer.h"
#include "objfs/raid/shared_columns.h"

namespace abacus::objfs {

// How far a repair is. A stripe is the unit in which a layer repairs: of raid5 that of its
// geometry.
struct RebuildProgress {
  uint64_t next = 0;      // the stripe to go on with; 0: all from `from` on was tried
  uint64_t left = 0;      // stripes that the missing column still lacks; 0: it is whole again
  uint64_t rebuilt = 0;   // by this step
  uint64_t damaged = 0;   // that this step could not rebuild, as another column is damaged there
  uint64_t doubtful = 0;  // of those left: no other column knows what the missing one has
  ABACUS_FIELDS(next, left, rebuilt, damaged, doubtful)
};

// What a step of scrubbing found.
struct ScrubProgress {
  uint64_t next = 0;  // the stripe to go on with
  bool done = false;  // there are no more
  uint64_t checked = 0;
  uint64_t repaired = 0;    // units with a wrong checksum, written anew from the rest
  uint64_t mismatched = 0;  // stripes whose parity was not that of their data, and is now
  uint64_t damaged = 0;     // stripes with more damage than parity can repair
  uint64_t partial = 0;     // stripes that a column lacks, and not all of which was looked at
  uint64_t bytes = 0;       // that were read of the columns
  ABACUS_FIELDS(next, done, checked, repaired, mismatched, damaged, partial, bytes)
};

// Which columns lack something, as a witness keeps it: a byte a column, rising.
std::string LackingText(const std::set<size_t>& lacking);
// Errors: kDataLoss - it is no such text of so many columns, or all of them lack something.
absl::StatusOr<std::set<size_t>> LackingOf(std::string_view text, size_t columns);

// The answer of a layer that serves together with others (ColumnsLayer::TakeShared()) to what is
// only done alone. Nothing has happened, or what has happened may be done again: the caller sees to
// it that the file is opened alone, and calls again. Travels between nodes.
absl::Status NeedsAlone(std::string_view why);
bool IsNeedsAlone(const absl::Status& status);

// A layer over columns, which are a file's own: nobody else writes to them. It is opened by its
// first call and closed by CloseColumns(); between the two it is the only one over these columns.
// While it is closed it keeps nothing of the file, and another may be opened over them.
//
// Or it serves together with others, each of which has the columns by TakeShared()
// (SHARED_STRIPES.md). Then nothing is opened: it keeps nothing of the file, and each write is
// durable, and seen by the others, when it returns.
class ColumnsLayer : public Layer {
 public:
  // What is below from now on, as many as before and in the order that the file was made with. What
  // was kept of what they have is forgotten, as at a crash; what was to be written to them and was
  // not closed is written to these. REQUIRES: no other call is inside.
  // `witness`: where it is written which columns lack something, for layers that cannot tell that
  // from what the columns keep. Its SetInode() takes LackingText() of them and is durable when it
  // returns, its GetAttributes() has the last one, and the file's size as others know it.
  virtual absl::Status TakeColumns(const std::vector<runtime::Ref<Layer>>& columns,
                                   const runtime::Ref<Layer>& witness);
  // As Flush(), and then closed, whatever that answered. REQUIRES: no other call is inside.
  virtual absl::Status CloseColumns(Version now);
  // Closes a file that several are to use at once from now on: all that it has is durable, nothing
  // of it is missing or being written, and all columns have records of this moment, durably. Opens
  // it where it is closed. False, and errors: it cannot be shared now, and stays open.
  // REQUIRES: no other call is inside.
  virtual absl::StatusOr<bool> CloseToShare(Version now);
  // From now on, until TakeColumns() or CloseColumns(), it serves these columns together with
  // others. After that CloseColumns() they are not called any more. REQUIRES: as TakeColumns(), and
  // that the file was closed by CloseToShare() and was opened by nobody since.
  // Errors: IsNeedsAlone() - it has something that is to be written first. kInvalidArgument - they
  // are no such columns.
  virtual absl::Status TakeShared(const SharedColumns& shared);
  // A column that does not answer may lack what was written to these bytes of the columns while the
  // file was shared; where all answer, one of them may. REQUIRES: it is called between
  // TakeColumns() and the first call that opens.
  virtual absl::Status NoteMissed(const std::vector<Range>& ranges, Version now);
  // Of the file, without asking the columns where it is open.
  virtual absl::StatusOr<uint64_t> Size(Version now);
  // One step of bringing what is missing back: asks whether it answers, then rebuilds up to
  // `stripes` stripes from stripe `from` on, and begins none after 100 ms. Only what it missed,
  // unless it has lost what it had; then all. The caller paces: calls to the file go on between
  // steps and, of who uses it by this layer, during one. Progress is durable.
  // Errors: kUnavailable - the column still does not answer.
  virtual absl::StatusOr<RebuildProgress> Rebuild(uint64_t from, uint64_t stripes, Version now);
  // Reads up to `stripes` stripes from stripe `from` on, one at least and no more after 100 ms,
  // checks and repairs them. Stripes of which a column lacks something are passed over.
  virtual absl::StatusOr<ScrubProgress> Scrub(uint64_t from, uint64_t stripes, Version now);

  ABACUS_OBJECT(ColumnsLayer, "objfs.ColumnsLayer", 1, Read, Write, Append, Truncate, Punch, Seek,
                Push, Flush, GetAttributes, SetInode, Commit, Attach, Detach, Invalidate, Recall,
                Describe, Claim, SaveInode, FlushData, ReadRanges, TakeColumns, CloseColumns, Size,
                Rebuild, Scrub, CloseToShare, TakeShared, NoteMissed)
};

// As ABACUS_LAYER, for a layer over columns.
#define ABACUS_COLUMNS_LAYER(Class, version)                                                    \
  ABACUS_OBJECT(Class, Class::kKind.class_name, version, Read, Write, Append, Truncate, Punch,  \
                Seek, Push, Flush, GetAttributes, SetInode, Commit, Attach, Detach, Invalidate, \
                Recall, Describe, Claim, SaveInode, FlushData, ReadRanges, TakeColumns,         \
                CloseColumns, Size, Rebuild, Scrub, CloseToShare, TakeShared, NoteMissed)       \
 protected:                                                                                     \
  const ::abacus::objfs::LayerKind& Kind() const override { return kKind; }

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_COLUMNS_LAYER_H_
