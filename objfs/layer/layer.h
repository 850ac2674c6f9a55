#ifndef ABACUS_OBJFS_LAYER_LAYER_H_
#define ABACUS_OBJFS_LAYER_LAYER_H_

// Layer: the one interface of everything that a file's or directory's stack is made of.
//
// Calls go down from the front end: Read, Write, Commit, ... And they come up from the store, when
// another client's work breaks what this one holds: Invalidate, Recall. A layer overrides what it
// changes; the rest passes through to the layer below (or above). template_layer.h is one to copy.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "objfs/layer/options.h"
#include "objfs/layer/version.h"
#include "runtime/base/block.h"
#include "runtime/base/codec.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// A run of bytes of a file. `bytes` 0: up to the end, wherever it is.
struct Range {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const Range&, const Range&) = default;
  ABACUS_FIELDS(offset, bytes)
};

struct ReadResult {
  runtime::Block bytes;
  Version version;  // the newest write among those that these bytes are of
  ABACUS_FIELDS(bytes, version)
};

// What a stack knows of its file beside the bytes.
struct Attributes {
  uint64_t size = 0;       // bytes
  uint64_t allocated = 0;  // bytes that the file takes of its stores, holes left out
  Version version;         // of the last change of size or `inode`
  std::string inode;       // the file system's own: opaque to all layers below it
  // Of a column that a server keeps: by which opening `inode` was set. 0: that is not known.
  Version opening;
  ABACUS_FIELDS(size, allocated, version, inode, opening)
};

// A part of a file as somebody saw it or wants it.
struct RangeVersion {
  Range range;
  Version version;
  ABACUS_FIELDS(range, version)
};
struct RangeWrite {
  uint64_t offset = 0;
  runtime::Block bytes;
  ABACUS_FIELDS(offset, bytes)
};

// What became of CommitAction.
struct CommitResult {
  bool committed = false;
  std::vector<RangeVersion> stale;  // where not: what was read and has changed since
  ABACUS_FIELDS(committed, stale)
};

// What a layer may keep of a file, until the promise is broken by Invalidate() or Recall().
enum class PromiseKind : uint8_t {
  kNone = 0,
  kShare,  // what was read; nobody else changes it meanwhile
  kWrite,  // also what was written and is not below yet; nobody else reads it meanwhile
  // Nothing. Bytes of a file's columns may be read, and written in groups of blocks that come whole
  // or not at all, by several clients at once (raid/SHARED_STRIPES.md). It is neither more nor less
  // than the others: nobody compares it with them by order.
  kTogether,
};
struct Promise {
  PromiseKind kind = PromiseKind::kNone;
  Version given;  // a break names the newest promise that it breaks
  ABACUS_FIELDS(kind, given)
};
// Of a stack that one client has for itself: it is never broken.
inline constexpr Version kForGood{UINT64_MAX};

// A kind of layer that stacks may name.
struct LayerKind {
  const char* name;        // in a stack's text
  const char* class_name;  // the runtime's
  absl::Span<const OptionSpec> options;
  size_t below_least = 1;  // how many layers it stands on
  size_t below_most = 1;
  bool anchored = false;  // its objects live at their store: they are opened there, not made
};

// A layer's state, for people.
struct LayerState {
  std::string kind;
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, in a fixed order
  ABACUS_FIELDS(kind, facts)
};

// The answer of a layer that would have to wait for another client (a lock, a recall, a turn).
// No method waits inside a mobile object for another client: the anchored front end asks again when
// it is woken. Travels between nodes.
absl::Status WouldBlock(std::string_view for_what);
bool IsWouldBlock(const absl::Status& status);

// Versions: each call carries the caller's clock, a read too: its writer says which client is
// asking, and so whom to tell when what was read changes.
//
// Errors of all calls, beside a layer's own: kInvalidArgument - beyond kFileBytesMax;
// kResourceExhausted - no space, or over a quota; kDataLoss - stored bytes are wrong, and the
// message names the block; IsWouldBlock(); those of the runtime. After an error of a writing call
// each block of its range is whole, old or new.
// Thread-safety: thread-safe. Blocking: as the layers below; never for another client.
class Layer : public runtime::MobileObject {
 public:
  // As much as the object of a storage layer can have: what a layer takes and keeps for a while,
  // the one below can take from it later.
  static constexpr uint64_t kFileBytesMax = uint64_t{1} << 44;

  // Puts the layer on top of `below`; `options` as the stack's text gives them.
  // Errors: kInvalidArgument - as OptionValues::Make; too many or too few layers below.
  absl::Status Init(const std::vector<runtime::Ref<Layer>>& below,
                    const std::vector<std::pair<std::string, std::string>>& options);

  // -- downward ----------------------------------------------------------------------------------

  // Up to `bytes` bytes from `offset`: fewer where the file ends, none from its end on. Holes are
  // zeros.
  virtual absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now);
  // Read() of each of `ranges`, whose `bytes` are not 0, in one message: for what lies apart. The
  // first error of one is that of all; else as many answers as ranges, in their order.
  virtual absl::StatusOr<std::vector<ReadResult>> ReadRanges(const std::vector<Range>& ranges,
                                                             Version now);
  // Writes all of `bytes`; the file grows where it must. Durable after Flush().
  virtual absl::Status Write(uint64_t offset, const runtime::Block& bytes, Version now);
  // Writes all of `bytes` at the end, wherever other clients have put it by then, and returns the
  // offset. Appends of several clients come one after the other, each in one piece.
  // Errors: kOutOfRange - the file would end beyond what the store can keep.
  virtual absl::StatusOr<uint64_t> Append(const runtime::Block& bytes, Version now);
  // What is cut off and grown again reads as zeros.
  virtual absl::Status Truncate(uint64_t size, Version now);
  // Makes a hole; the size stays.
  virtual absl::Status Punch(Range range, Version now);
  // The first byte of data (or of a hole) at or after `offset`; the end of the file is a hole.
  // Errors: kOutOfRange - `offset` is at or behind the end, or no data follows.
  virtual absl::StatusOr<uint64_t> Seek(uint64_t offset, bool data, Version now);
  // Returns once all that was written before is at the store, where other clients see it.
  virtual absl::Status Push(Version now);
  // And is durable.
  virtual absl::Status Flush(Version now);
  // And is durable but for times: what fdatasync(2) promises. Default: Flush().
  virtual absl::Status FlushData(Version now) { return Flush(now); }

  virtual absl::StatusOr<Attributes> GetAttributes(Version now);
  // Sets the file system's own part.
  virtual absl::Status SetInode(const std::string& inode, Version now);
  // SetInode() and then Flush(), in one message.
  virtual absl::Status SaveInode(const std::string& inode, Version now);

  // All of `writes` or none of them, and only where nothing of `reads` has changed since it was
  // read (paper, section 4.3.1: CommitAction(readSet, writeSet)). Durable when it returns.
  virtual absl::StatusOr<CommitResult> Commit(const std::vector<RangeVersion>& reads,
                                              const std::vector<RangeWrite>& writes, Version now);

  // Asks for a promise for the whole file, on behalf of the client whose clock `now` is. Who keeps
  // nothing needs none. A layer that stands on nothing gives all promises for good. A layer on
  // several overrides it: it has what all of them promise. The answer may be of another kind: where
  // it is kNone nothing may be kept of what the call does that asked for it; it goes below as it
  // is, and the next one asks again. kTogether that nobody has yet is answered as kWrite; who is
  // answered so and will not share asks for kNone (Callbacks::Claim).
  // Errors: IsWouldBlock() - another client has to give its own back first.
  virtual absl::StatusOr<Promise> Claim(PromiseKind kind, Version now);

  // -- upward ------------------------------------------------------------------------------------

  // From now on `above` is told what changes under it on behalf of the client `writer`. One layer
  // above a writer: a second one takes the first one's place.
  virtual absl::Status Attach(uint16_t writer, const runtime::Ref<Layer>& above);
  virtual absl::Status Detach(uint16_t writer);
  // What is held of `range` is older than `version`: forget it, and tell those above. Promises that
  // were given up to `version` end, of whatever kind by Recall() and those to share by
  // Invalidate().
  virtual absl::Status Invalidate(Range range, Version version);
  // Writes back what is held of `range` and is newer than the store's, then forgets it, so that the
  // reader that caused this sees it.
  virtual absl::Status Recall(Range range, Version version);

  // -- for people --------------------------------------------------------------------------------

  absl::StatusOr<LayerState> Describe();

  // Writes and reads what every layer has. A layer with state of its own overrides both, and calls
  // these first.
  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;

  ABACUS_OBJECT(Layer, "objfs.Layer", 1, Read, Write, Append, Truncate, Punch, Seek, Push, Flush,
                GetAttributes, SetInode, Commit, Attach, Detach, Invalidate, Recall, Describe,
                Claim, SaveInode, FlushData, ReadRanges)

 protected:
  // What the layer is; ABACUS_LAYER defines it.
  virtual const LayerKind& Kind() const = 0;
  // Called when options() and below() hold what they will: by Init() and by Restore().
  virtual absl::Status Begin() { return absl::OkStatus(); }
  // Appends what the layer wants people to see.
  virtual void AddFacts(std::vector<std::pair<std::string, std::string>>* facts) const {
    (void)facts;
  }

  const OptionValues& options() const { return options_; }
  size_t below_count() const { return below_.size(); }
  // REQUIRES: index < below_count().
  const runtime::Ref<Layer>& below(size_t index = 0) const { return below_[index]; }
  // Others take the place of the layers below, as many as before.
  // REQUIRES: no other call that goes below is inside. Errors: kInvalidArgument - not as many.
  absl::Status ReplaceBelow(const std::vector<runtime::Ref<Layer>>& below);

 private:
  struct Above {
    uint16_t writer = 0;
    runtime::Ref<Layer> layer;
    ABACUS_FIELDS(writer, layer)
  };
  absl::Status Take();
  std::vector<Above> AllAbove() const;
  std::vector<runtime::Ref<Layer>> LayersAbove() const;  // each once, however many its writers

  // Constant after Init() or Restore(), but for ReplaceBelow(); their number is.
  std::vector<runtime::Ref<Layer>> below_;
  std::vector<std::pair<std::string, std::string>> given_;
  OptionValues options_;
  mutable runtime::Mutex mutex_;
  std::vector<Above> above_ ABSL_GUARDED_BY(mutex_);
};

// Makes class Class, derived from Layer, one that stacks can be built of (see ABACUS_OBJECT). Class
// has a `static constexpr LayerKind kKind`; `version` counts the changes of its checkpoint's form.
#define ABACUS_LAYER(Class, version)                                                            \
  ABACUS_OBJECT(Class, Class::kKind.class_name, version, Read, Write, Append, Truncate, Punch,  \
                Seek, Push, Flush, GetAttributes, SetInode, Commit, Attach, Detach, Invalidate, \
                Recall, Describe, Claim, SaveInode, FlushData, ReadRanges)                      \
 protected:                                                                                     \
  const ::abacus::objfs::LayerKind& Kind() const override { return kKind; }

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_LAYER_LAYER_H_
