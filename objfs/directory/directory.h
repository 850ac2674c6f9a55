#ifndef ABACUS_OBJFS_DIRECTORY_DIRECTORY_H_
#define ABACUS_OBJFS_DIRECTORY_DIRECTORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/directory/directory_tree.h"
#include "objfs/directory/directory_turns.h"
#include "objfs/directory/entry.h"
#include "objfs/layer/layer.h"
#include "objfs/volume/transaction.h"
#include "objfs/volume/volume.h"
#include "runtime/base/mutex.h"
#include "runtime/object/manager.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// A directory object: finds, lists and changes the names of one directory (paper, section 4.3.1).
// It keeps no names of its own: they are in the directory's object, below it, in a hashed tree of
// blocks (FORMAT.md), and a change is committed against what was read of them. What it remembers of
// the tree (DirectoryTree) may be out of date without harm, and stays behind when it moves.
//
// Invariants:
// 1. An entry has one cookie from its insertion to its removal, whatever else is inserted: a
//    listing that goes on from a cookie gives each entry that was there all the time once.
// 2. A change rests on the leaf that has its name, or proves its absence, and on nothing else; one
//    that splits the leaf, on the path to it as well. So changes of unlike names seldom meet.
// 3. Objects of one directory that are on one node take turns to commit (DirectoryTurns), so that
//    none of them tries again because of another one there.
// A commit plans with the last blocks, up to kKeptMax, that were read or written since a commit was
// refused last, where it is alone on its node: a client that nobody meets reads them once. Where a
// directory is one readSet (Volume::Options::whole_read_sets) these are up to kWholeKeptMax. What
// was changed since is found when it is validated; while commits are refused now and then, nothing
// that was there before one is kept.
// Names: 1 to 255 bytes without '/' and NUL, not "." and "..".
// Errors: kInvalidArgument - a name. kDataLoss - the directory's blocks are wrong. kAborted, with
//         IsChanged() - a name's entry is not what the change says it was before: look again.
//         Those of the layers below and of the volume.
// Thread-safety: thread-safe. Blocking: as the layer below; a commit, for its turn as well.
class Directory final : public runtime::MobileObject, private BlockSource {
 public:
  static constexpr size_t kNameBytesMax = objfs::kNameBytesMax;
  static constexpr uint32_t kListMax = DirectoryTree::kListMax;  // entries of one List()

  // An object that no manager made takes turns with nobody.
  Directory() : Directory(std::make_shared<DirectoryTurns>()) {}
  // Made by a DirectoryManager, whose turns all directory objects of a node share.
  explicit Directory(std::shared_ptr<DirectoryTurns> turns) : turns_(std::move(turns)) {}

  // REQUIRES: `below` is a stack over object `id` of `volume`, opened by client `writer`.
  absl::Status Init(const runtime::Ref<Volume>& volume, const runtime::Ref<Layer>& below,
                    ObjectId id, uint16_t writer);

  absl::StatusOr<std::optional<Entry>> Lookup(const std::string& name);
  // Up to `max` entries behind `cookie` (0: from the beginning), rising by cookie; none: the end.
  // Cookies are at least 16 and below 2^63.
  absl::StatusOr<std::vector<ListedEntry>> List(uint64_t cookie, uint32_t max);

  // What a transaction has to do to this directory for these changes; inode counts and times are
  // the caller's.
  absl::StatusOr<Part> Plan(const std::vector<EntryChange>& changes);
  // Commits `changes` with `own`, the change of the directory's inode, and with `others`. kStale of
  // this directory: others changed what was read of its blocks; call again at once. Not in a loop
  // here: an object is moved between two calls only, and calls are what placement goes by, so that
  // one whose commits are refused would stay where they are.
  absl::StatusOr<Outcome> Commit(const std::vector<EntryChange>& changes, const InodeChange& own,
                                 const std::vector<Part>& others,
                                 const std::optional<uint64_t>& tree);
  // How often others had changed what a commit had read, so that it is to be tried again (paper,
  // table 1).
  absl::StatusOr<uint64_t> Retries();

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_OBJECT(Directory, "objfs.Directory", 1, Lookup, List, Plan, Commit, Retries)

 private:
  static constexpr size_t kKeptMax = 8;        // leaves and what led there: 64 KiB
  static constexpr size_t kWholeKeptMax = 32;  // of a directory that is one readSet: 256 KiB
  // So many in a row have to go through before what commits wrote is kept: of a directory that
  // others change too, it is old by the next one.
  static constexpr int kCalmCommits = 8;
  using Kept = std::vector<std::pair<uint32_t, BlockRead>>;
  // Each block of `kept` once, then what is below.
  class KeptSource;

  absl::StatusOr<BlockRead> Read(uint32_t number) override;
  Kept TakeKept();
  void Keep(uint32_t number, const BlockRead& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Another call may have read the block since.
  void KeepUnlessNewer(uint32_t number, const BlockRead& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a commit has written is what is there until somebody else changes it. So are `others`, of
  // a directory that is one readSet those that were read in the version it rests on.
  void KeepCommitted(const Part& part, const Outcome& outcome, const Kept& others);
  absl::StatusOr<Part> PlanWith(const std::vector<EntryChange>& changes, Kept kept);

  const std::shared_ptr<DirectoryTurns> turns_;
  // Constant after Init() or Restore().
  runtime::Ref<Volume> volume_;
  runtime::Ref<Layer> below_;
  ObjectId id_ = 0;
  uint16_t writer_ = 0;
  DirectoryTurns::Member here_;

  DirectoryTree tree_{*this};
  std::atomic<uint64_t> retries_{0};
  runtime::Mutex mutex_;
  Kept kept_ ABSL_GUARDED_BY(mutex_);                     // the newest last
  bool is_one_read_set_ ABSL_GUARDED_BY(mutex_) = false;  // as the last commit told; of one version
  int calm_ ABSL_GUARDED_BY(mutex_) = kCalmCommits;       // of them; as if none had been refused
};

// The object manager of a node's directory objects.
class DirectoryManager final : public runtime::ObjectManager {
 public:
  absl::StatusOr<std::unique_ptr<runtime::MobileObject>> CreateObj(const runtime::ClassInfo& info,
                                                                   size_t state_bytes) override;

 private:
  const std::shared_ptr<DirectoryTurns> turns_ = std::make_shared<DirectoryTurns>();
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_DIRECTORY_H_
