#ifndef ABACUS_OBJFS_FS_KNOWLEDGE_H_
#define ABACUS_OBJFS_FS_KNOWLEDGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "objfs/directory/entry.h"
#include "objfs/volume/transaction.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What a client keeps of inodes, and of the names in directories, under promises of its volume
// (Volume::Know): so looking again at what nobody else changes asks nobody.
//
// The promise for a directory is one for its names too. An answer that is under way while the
// promise ends is not kept: who asks takes Seen() before, and it is kept only where nothing ended
// since. Nor is one kept under a promise that is older than one that was given back: of one object
// the volume remembers the youngest promise alone, and forgot the older ones with it (two questions
// that are answered in another order than they were asked in). The client's own changes do not end
// its promises; while one lasts (Change) what it changes is neither shown nor kept, and after it
// what the volume answered takes the place of what was kept. Whether the client's lease holds is
// the caller's to check, before it looks here.
//
// Invariants:
// 1. What is shown was promised, and the promise was not broken, given back or lost since; nor was
//    it changed here since.
// 2. What is kept goes, the oldest first, so that Options hold; the volume is told with the next
//    question (TakeReturned).
// Thread-safety: thread-safe. Blocking: no.
class Knowledge {
 public:
  struct Options {
    size_t inodes_max = 131'072;
    // Of all directories, looked up and listed; one directory has at most a half.
    size_t names_max = 524'288;
  };

  Knowledge() : Knowledge(Options()) {}
  explicit Knowledge(Options options) : options_(options) {}

  // -- inodes ------------------------------------------------------------------------------------

  std::optional<Node> Find(ObjectId id);
  uint64_t Seen(ObjectId id);
  // `seen`: from before the volume was asked. `given`: its promise; 0: none.
  void Keep(const Node& node, Version given, uint64_t seen);
  // The promise up to `given` ends.
  void Forget(ObjectId id, Version given);
  // All promises may have ended. `give_back`: where the volume may still have them.
  void ForgetAll(bool give_back);
  // What is kept no more since the last call; PutBack() where the volume could not be told.
  std::vector<KnownInode> TakeReturned();
  void PutBack(const std::vector<KnownInode>& returned);

  // -- names: of directories whose inode is kept -------------------------------------------------

  // As Seen(), where the directory's inode is kept.
  std::optional<uint64_t> SeenNames(ObjectId directory);
  // The outer is none where it is not known; the inner, where it is known that there is no entry.
  std::optional<std::optional<Entry>> FindName(ObjectId directory, const std::string& name);
  void KeepName(ObjectId directory, const std::string& name, const std::optional<Entry>& entry,
                uint64_t seen);
  // A listing that began behind `cookie` and was to have `max` entries. What was listed is known by
  // its names as well.
  std::optional<std::vector<ListedEntry>> FindListed(ObjectId directory, uint64_t cookie,
                                                     uint32_t max);
  void KeepListed(ObjectId directory, uint64_t cookie, uint32_t max,
                  const std::vector<ListedEntry>& listed, uint64_t seen);

  // -- the client's own changes ------------------------------------------------------------------

  // Lasts from before the volume is asked until it has answered. What it is about and nothing of
  // the answer is given to is kept no more.
  class Change {
   public:
    Change(Knowledge& knowledge, std::vector<ObjectId> ids);
    Change(Knowledge& knowledge, ObjectId id) : Change(knowledge, std::vector<ObjectId>{id}) {}
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

    // The inode as the change left it, and of a directory the entries that it changed.
    void Became(const Node& node, const std::vector<EntryChange>& entries);
    // It is about bytes of files: the promises last, and what the inodes are now is asked for.
    void IsOfBytes() { of_bytes_ = true; }

   private:
    Knowledge& knowledge_;
    const std::vector<ObjectId> ids_;
    std::vector<ObjectId> became_;
    bool of_bytes_ = false;
  };

  // Whether the volume has promised to tell before another client changes the object: also where
  // what it is now is not known. That the lease holds is the caller's to check.
  bool IsPromised(ObjectId id);

  size_t inodes();
  size_t names();

 private:
  struct Listing {
    uint32_t max = 0;
    std::vector<ListedEntry> entries;
  };
  struct Known {
    ObjectId id = 0;
    Node node;
    bool current = true;  // the node is what there is; else only the promise is left
    Version given;
    absl::flat_hash_map<std::string, std::optional<Entry>> names;
    std::map<uint64_t, Listing> listings;  // by cookie
    size_t listed = 0;
    size_t count() const { return names.size() + listed; }
  };
  struct Changing {
    uint32_t count = 0;
    bool several = false;  // at once: the order of their answers is not that of the changes
  };
  using Place = std::list<Known>::iterator;

  static constexpr size_t kSlots = 1024;
  uint64_t& SlotOf(ObjectId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ended_[id % kSlots];
  }
  // What may be shown; null where nothing. It becomes the newest.
  Known* Shown(ObjectId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where something may be added that was asked for after `seen`.
  Known* Grows(ObjectId directory, uint64_t seen) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropNames(Known* known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom(Known* known, size_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Place place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Place place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(ObjectId id, Version given) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  runtime::Mutex mutex_;
  std::list<Known> known_ ABSL_GUARDED_BY(mutex_);  // the newest first
  absl::flat_hash_map<ObjectId, Place> places_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<ObjectId, Changing> changing_ ABSL_GUARDED_BY(mutex_);
  // How often something ended; objects that share one end each other's questions now and then.
  std::array<uint64_t, kSlots> ended_ ABSL_GUARDED_BY(mutex_){};
  std::array<Version, kSlots> returned_up_to_ ABSL_GUARDED_BY(mutex_){};  // shared like ended_
  size_t names_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<KnownInode> returned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_KNOWLEDGE_H_
