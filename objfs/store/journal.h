#ifndef ABACUS_OBJFS_STORE_JOURNAL_H_
#define ABACUS_OBJFS_STORE_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/disk.h"
#include "objfs/store/format.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// The file of a journal, "journal.0000000000000001".
std::string JournalName(uint64_t number);

// A store's log of changes: records go to its end, and those of calls that wait at the same time
// reach the disk by one sync.
//
// Invariants: 1. Records are durable in the order in which they were appended.
//             2. A failed write may be tried again; after a failed sync nothing is.
//             3. Where the disk takes room beforehand, some is left for records that nobody asked
//                Ready() for, and some more for what goes before them: a full disk keeps no removal
//                from giving room back.
// Thread-safety: thread-safe. Blocking: Create and Sync; Append does not.
class Journal {
 public:
  // Makes the file, durable with its name. Over a left-over of the same name.
  static absl::StatusOr<std::unique_ptr<Journal>> Create(Disk& disk, const JournalHeader& header);

  // Adds a record and returns its number, from 1. Not on the disk before Sync of it.
  uint64_t Append(std::string_view payload);
  // Adds records that follow each other without another one between; returns the last one's number.
  uint64_t Append(std::span<const std::string> payloads);
  // Not OK where a sync failed: nothing that is appended can become durable any more.
  absl::Status broken();
  // What records are for. kGivingBack: what has to be durable before something is removed, as the
  // directory without its name.
  enum class For : uint8_t { kAnything, kGivingBack };
  // Before records are appended that may be refused. Where the last write failed it is tried again:
  // what is added to be tried again later makes the buffer no longer while the disk is full.
  // Blocking: then, and where room is taken. Errors: those of Sync; kResourceExhausted - the disk
  // is full, and what room is left is for removals.
  absl::Status Ready(std::span<const std::string> payloads, For what = For::kAnything);
  // Whether the disk had no room when it was asked last: what need not be appended is not to be.
  bool lacks_room();
  // Returns once that record and all before it are on the disk.
  // Errors: kUnavailable - a sync failed, now or before; the store must be reopened. Else the
  // disk's of the write: the record stays, and the next Sync tries again.
  absl::Status Sync(uint64_t sequence);
  // Reads the file again, up to the last record that is durable. The first that is not there as it
  // was written: 0 the header, else its number; nullopt: all are. Errors: the disk's.
  absl::StatusOr<std::optional<uint64_t>> FindDamage(Disk& disk);
  // At an orderly end: where all records are durable and nothing failed, writes one behind them
  // that changes nothing and says so, without a sync. Damage of the last ones is told from an end
  // that a crash cut off then. Its loss is none, and so is its error.
  void End();
  // Of one that nothing is appended to any more: the room beyond its end.
  void GiveBackRoom();
  // That there is room for removals, where the disk has it; Create() does not see to that.
  void TakeRoom();
  // The last record that was appended, 0 before the first.
  uint64_t appended();
  uint64_t bytes();
  const JournalHeader& header() const { return header_; }

 private:
  Journal(std::shared_ptr<DiskFile> file, JournalHeader header)
      : file_(std::move(file)), header_(header) {}
  // That so many bytes may be appended, and `kept` are left.
  absl::Status TakeRoomFor(uint64_t bytes, uint64_t kept);

  const std::shared_ptr<DiskFile> file_;
  const JournalHeader header_;

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  std::string buffer_ ABSL_GUARDED_BY(mutex_);  // records that are not yet written
  bool syncing_ ABSL_GUARDED_BY(mutex_) = false;
  bool write_failed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  uint64_t appended_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t durable_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t written_bytes_ ABSL_GUARDED_BY(mutex_) = kJournalHeaderBytes;
  uint64_t writing_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // under way, behind them
  bool takes_room_ ABSL_GUARDED_BY(mutex_) = true;      // the disk can
  bool lacks_room_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t room_end_ ABSL_GUARDED_BY(mutex_) = 0;  // up to where writes have room
};

// All bytes of a file. Errors: the disk's.
absl::StatusOr<std::string> ReadWhole(Disk& disk, const std::string& name);

// Whether a record behind the damaged one that `rest` begins with, the `sequence`-th, says that the
// damaged one had been durable: then this is no end that a crash cut off.
bool RecordWasDurable(const JournalHeader& header, std::string_view rest, uint64_t sequence);

struct JournalEnd {
  std::optional<JournalHeader> header;  // nullopt: damaged, or the file was cut off before its end
  uint64_t bytes = 0;                   // of the file
  uint64_t whole = 0;                   // of these, up to the end of the last whole step
  bool cut_off = false;                 // in the middle of a record or of a step
};

// Reads a journal that was left behind, record by record, up to where it was cut off. A step that
// was cut off is left out whole.
// Errors: kDataLoss - a record that had been durable is damaged. What `take` returns.
absl::StatusOr<JournalEnd> ReadJournal(
    Disk& disk, const std::string& name,
    const std::function<absl::Status(const JournalRecord&)>& take);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_JOURNAL_H_
