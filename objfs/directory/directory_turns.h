#ifndef ABACUS_OBJFS_DIRECTORY_DIRECTORY_TURNS_H_
#define ABACUS_OBJFS_DIRECTORY_DIRECTORY_TURNS_H_

#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "objfs/store/object_store.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// Which directory objects are on one node, by directory: where there are several of one, their
// commits come one after the other, so that none of them is refused because of another one here.
// This is why retries vanish where all of a directory's objects have come to its server (paper,
// section 6.5). One object alone takes no turns: commits of one client that meet no other's are
// worth doing at once, and those that meet are found by their versions, as everywhere.
//
// Not a mutex: a turn is kept over the calls of a commit to other objects, none of which takes one.
// Thread-safety: thread-safe. Blocking: taking a turn, until those who asked before have given
// theirs back; each of them is one commit's planning and validation.
class DirectoryTurns {
 public:
  struct Directory {
    runtime::Rid volume;
    ObjectId id = 0;
    auto operator<=>(const Directory&) const = default;
  };

  // An object of the directory is here, while it lives.
  class Member {
   public:
    Member() = default;
    Member(DirectoryTurns* turns, const Directory& directory);
    Member(Member&& other) noexcept
        : turns_(std::exchange(other.turns_, nullptr)), directory_(other.directory_) {}
    Member& operator=(Member&& other) noexcept;
    ~Member();

   private:
    friend class DirectoryTurns;
    DirectoryTurns* turns_ = nullptr;
    Directory directory_;
  };

  // Held while it lives; nothing where the object is the only one of its directory here.
  class Turn {
   public:
    explicit Turn(const Member& member);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    bool taken() const { return taken_; }

   private:
    const Member& member_;
    bool taken_ = false;
  };

 private:
  struct Row {
    int objects = 0;
    uint64_t next = 0;     // the turn that is given out next
    uint64_t serving = 0;  // whose turn it is
  };
  void Join(const Directory& directory);
  void Leave(const Directory& directory);
  bool Take(const Directory& directory);
  void Give(const Directory& directory);

  runtime::Mutex mutex_;
  runtime::CondVar given_;
  std::map<Directory, Row> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_DIRECTORY_TURNS_H_
