#ifndef ABACUS_APPS_ABACUS_SCRUB_H_
#define ABACUS_APPS_ABACUS_SCRUB_H_

// Scrubbing volumes: by hand (`abacus scrub`), and by the schedule of the server that has a
// volume's inodes. Of one at a single server damage is found, and nothing is there to repair it
// from.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/fs/file_system.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/replica/store_scrub.h"
#include "objfs/volume/volume.h"
#include "objfs/volume/volume_set.h"
#include "runtime/base/config.h"
#include "runtime/base/mutex.h"
#include "runtime/node/node.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::apps {

// What scrubbing found.
struct ScrubTotals {
  uint64_t files = 0, stripes = 0;
  uint64_t failed = 0;      // files that could not be read to their end
  uint64_t repaired = 0;    // units or blocks that were written anew from the rest
  uint64_t mismatched = 0;  // parities or copies that were made right
  uint64_t damaged = 0;     // stripes with more damage than can be repaired
  uint64_t partial = 0;     // stripes that a column was away of: not all was looked at
  // Of the store that has the volume's names and inodes.
  uint64_t objects = 0;           // that were looked at
  uint64_t objects_failed = 0;    // of these, such as could not be read to their end
  uint64_t objects_repaired = 0;  // of damaged tables, that were made whole from the copy
  uint64_t blocks_repaired = 0;   // that were put back from the copy
  uint64_t blocks_damaged = 0;    // that were not
  // Of its copy at another server, where it is to have one.
  uint64_t copy_objects = 0;   // that were looked at there
  uint64_t copy_missed = 0;    // that were not: the copy was away, or was being brought up to date
  uint64_t copy_repaired = 0;  // blocks that were put back there
  uint64_t copy_damaged = 0;   // blocks, or whole objects, that were not

  // Whether there is something that could not be made right.
  bool HasLoss() const {
    return failed + damaged + objects_failed + blocks_damaged + copy_damaged > 0;
  }

  std::string Encode() const;  // as JSON
  bool operator==(const ScrubTotals&) const = default;
};

// Scrubs a file in steps and counts them in `totals`. `pace`: is told of the bytes that a step read
// and of how long it took, and returns when the next one may begin; false: no more.
// Errors: kCancelled - it was to be no more. Blocking: the steps, and `pace`.
absl::Status ScrubFile(objfs::FileSystem& files, objfs::ObjectId id, ScrubTotals* totals,
                       const std::function<bool(uint64_t bytes, absl::Duration took)>& pace);

// Reads all that the volume's own store has from `place` on, in steps, and counts it in `totals`:
// both are as they are behind a step when `pace`, as above, is told of it. What is damaged is put
// back where another server has a copy (Volume::ScrubStore()).
// Errors: kCancelled - it was to be no more. The volume's. Blocking: the steps, and `pace`.
absl::Status ScrubStore(const runtime::Ref<objfs::Volume>& volume, objfs::StorePlace* place,
                        ScrubTotals* totals,
                        const std::function<bool(uint64_t bytes, absl::Duration took)>& pace);

// For people, without an end of line: what was found in the volume's own store.
std::string StoreScrubText(const ScrubTotals& totals);

// How far the schedule is with a volume, as it is kept in a file.
struct ScrubState {
  int64_t born_ns = 0;                 // of the volume: which one of its name; 0: not known yet
  absl::Time since;                    // when it was first seen: its first one is due `every` later
  std::optional<absl::Time> begun;     // one is under way, `totals` and `next` are of it
  objfs::StorePlace store;             // the volume's own store is read up to here,
  bool store_done = false;             // or to its end; then come the files
  objfs::ObjectId next = 0;            // files up to this one are done
  std::optional<absl::Time> finished;  // the last one
  ScrubTotals totals, last;            // of that under way, of the last one
  absl::Duration every;                // zero: there is no schedule

  // When the next one is due. REQUIRES: every > 0.
  absl::Time Due() const { return finished.value_or(since) + every; }
  std::string Encode() const;  // as JSON
  // What was written before names and inodes were scrubbed has nothing of them.
  // Errors: kDataLoss.
  static absl::StatusOr<ScrubState> Decode(const std::string& text);
  // Durable when it returns. Errors: the disk's.
  absl::Status Save(const std::string& path) const;
  // nullopt: there is no such file. Errors: as Decode().
  static absl::StatusOr<std::optional<ScrubState>> Load(const std::string& path);
  bool operator==(const ScrubState&) const = default;
};

// The name under which a server publishes its ScrubStates.
inline constexpr char kScrubsName[] = "scrubs";

// Tells how far a server's schedule is. Thread-safety: thread-safe. Blocking: disk I/O.
class ScrubStates final : public runtime::AnchoredObject {
 public:
  ScrubStates(std::string directory, absl::Duration every)
      : directory_(std::move(directory)), every_(every) {}
  // ScrubState::Encode() of a volume. Errors: kNotFound - it was not looked at yet.
  absl::StatusOr<std::string> State(const std::string& volume);
  ABACUS_OBJECT(ScrubStates, "apps.ScrubStates", 1, State)

 private:
  const std::string directory_;
  const absl::Duration every_;
};

// Scrubs the volumes over several servers whose inodes are at this server, one after the other,
// when they are due, as a client of theirs, at a bounded rate and with pauses as long as its steps.
// What it has found is in ".scrub-NAME.json" in the volumes' directory; one that was broken off by
// the end of the server goes on behind the last file that is known to be done. Thread-safety: the
// states are read by others meanwhile. Blocking: the destructor, for a step.
class ScrubSchedule {
 public:
  // REQUIRES: node and volumes outlive it.
  ScrubSchedule(runtime::Node& node, const runtime::Ref<objfs::VolumeSet>& volumes,
                std::string directory, const runtime::Config::Scrub& config);
  ~ScrubSchedule();
  ScrubSchedule(const ScrubSchedule&) = delete;
  ScrubSchedule& operator=(const ScrubSchedule&) = delete;

 private:
  void Work();
  void ForgetOthers();
  void LookAt(const std::string& volume);
  absl::Status Scrub(const std::string& volume, ScrubState* state);
  // What a step may be followed by: others have the disks and links as long as it had them, and
  // longer where it read much. False where it is to end.
  bool RestAfter(uint64_t bytes, absl::Duration took);
  absl::Status ScrubNames(const std::string& volume, const runtime::Ref<objfs::Volume>& its,
                          const std::function<bool()>& is_ours, ScrubState* state);
  // It is done.
  absl::Status Finish(const std::string& volume, ScrubState* state);
  // False where it is to end.
  bool Rest(absl::Duration rest);
  bool IsStopping();
  std::string PathOf(const std::string& volume) const;

  runtime::Node& node_;
  const runtime::Ref<objfs::VolumeSet> volumes_;
  const std::string directory_;
  const runtime::Config::Scrub config_;
  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread worker_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_SCRUB_H_
