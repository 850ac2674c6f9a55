#ifndef ABACUS_OBJFS_DIRECTORY_DIRECTORY_H_
#define ABACUS_OBJFS_DIRECTORY_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/layer.h"
#include "objfs/volume/transaction.h"
#include "objfs/volume/volume.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// What a name stands for.
struct Entry {
  ObjectId id = 0;
  uint32_t type = 0;  // S_IFMT of its mode
  friend bool operator==(const Entry&, const Entry&) = default;
  ABACUS_FIELDS(id, type)
};

struct ListedEntry {
  std::string name;
  Entry entry;
  uint64_t cookie = 0;  // List() from here gives what follows
  ABACUS_FIELDS(name, entry, cookie)
};

// A name's entry before and after. Neither: the name is to be absent and stays so.
struct EntryChange {
  std::string name;
  std::optional<Entry> before, after;
  ABACUS_FIELDS(name, before, after)
};

// A directory object: finds, lists and changes the names of one directory (paper, section 4.3.1).
// It keeps no names of its own: they are in the directory's object, below it, in a hashed tree of
// blocks (FORMAT.md), and a change is committed against what was read of them.
//
// Invariants:
// 1. An entry has one cookie from its insertion to its removal, whatever else is inserted: a
// listing
//    that goes on from a cookie gives each entry that was there all the time once.
// 2. A change reads the path to its names and the leaf that proves their absence, and no more, so
//    that changes of unlike names seldom meet.
// Names: 1 to 255 bytes without '/' and NUL, not "." and "..".
// Errors: kInvalidArgument - a name. kDataLoss - the directory's blocks are wrong. kAborted, with
//         IsChanged() - a name's entry is not what the change says it was before: look again.
//         Those of the layers below and of the volume.
// Thread-safety: thread-safe. Blocking: as the layer below.
class Directory final : public runtime::MobileObject {
 public:
  static constexpr size_t kNameBytesMax = 255;
  static constexpr uint32_t kListMax = 4096;  // entries of one List()

  // REQUIRES: `below` is a stack over object `id` of `volume`, opened by client `writer`.
  absl::Status Init(const runtime::Ref<Volume>& volume, const runtime::Ref<Layer>& below,
                    ObjectId id, uint16_t writer);

  absl::StatusOr<std::optional<Entry>> Lookup(const std::string& name);
  // Up to `max` entries behind `cookie` (0: from the beginning), rising by cookie; none: the end.
  // Cookies are below 2^63.
  absl::StatusOr<std::vector<ListedEntry>> List(uint64_t cookie, uint32_t max);

  // What a transaction has to do to this directory for these changes; inode counts and times are
  // the caller's.
  absl::StatusOr<Part> Plan(const std::vector<EntryChange>& changes);
  // Commits `changes` with `own`, the change of the directory's inode, and with `others`. Where
  // blocks of this directory were changed meanwhile, it plans again; any other state is returned.
  absl::StatusOr<Outcome> Commit(const std::vector<EntryChange>& changes, const InodeChange& own,
                                 const std::vector<Part>& others,
                                 const std::optional<uint64_t>& tree);
  // How often a commit was tried again because others had changed what it read (paper, table 1).
  absl::StatusOr<uint64_t> Retries();

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_OBJECT(Directory, "objfs.Directory", 1, Lookup, List, Plan, Commit, Retries)

 private:
  runtime::Ref<Volume> volume_;
  runtime::Ref<Layer> below_;
  ObjectId id_ = 0;
  uint16_t writer_ = 0;
};

// Whether an error says that an entry is not what a change took it to be.
bool IsChanged(const absl::Status& status);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_DIRECTORY_H_
