#ifndef ABACUS_OBJFS_MAP_KEPT_MAP_H_
#define ABACUS_OBJFS_MAP_KEPT_MAP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/map/map_store.h"
#include "objfs/store/disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// What a KeptMap has in its file: the line "abacus kept map 1", the line "revision" with the last
// that was given, of who took the row last the line "holder" with its revision, its lease in
// hexadecimal digits and its name, and, where the row is there, the line "row" with its revision
// and the row's text; then the line "crc" with the CRC32C of all before it, in hexadecimal digits.
struct KeptRow {
  // They only grow, also where the row is removed and made again: the next is one more.
  int64_t revision = 0;
  bool is_there = false;
  MapReading reading = {};  // where it is; the holder's lease may be over
  uint64_t lease = 0;       // the holder's

  std::string Encode() const;
  // Errors: kDataLoss - it is none, cut off or damaged; kFailedPrecondition - of a later version.
  static absl::StatusOr<KeptRow> Decode(std::string_view text);

  friend bool operator==(const KeptRow&, const KeptRow&) = default;
};

// The map of one volume in a file of a server's, with etcd's semantics. What is answered is
// durable; an error may have happened, or not.
//
// Leases are in memory, and counted from when a call is handled. After a restart the row's holder
// has its lease for a full one from the first call on, since nobody knows how much of it was left;
// other leases are over then.
//
// Invariants:
// 1. Revisions only grow, over restarts, power cuts and errors of the disk too; of what was
//    answered nothing is taken back.
// 2. Nobody takes the row while the lease of its holder, by this clock, is in force.
// Thread-safety: thread-safe. Blocking: the disk's.
class KeptMap final : public MapStore {
 public:
  static constexpr size_t kLeasesMax = 256;  // in force; more are kResourceExhausted

  // `file`: its name in the root of `disk`, beside which "FILE.new" is written. `now_ns`: of a
  // monotonic clock, which may stand still while the machine sleeps: then leases last longer, and
  // never end before what their holders count.
  KeptMap(std::shared_ptr<Disk> disk, std::string file, std::function<int64_t()> now_ns,
          int64_t lease_ns = LeaseOptions().lease_ns);

  // Errors: kNotFound - kRead: there is no row. kResourceExhausted - kLeasesMax.
  //         kDataLoss, kFailedPrecondition - the file is damaged, or of a later version; once it is
  //         removed there is no row. kInvalidArgument - no row that could be read again.
  //         kUnavailable - the disk's: where the new file could not be written, all is as it was;
  //         where it may have come into the place of the old one, nothing is answered before it is
  //         known, and durable, which of them counts.
  absl::StatusOr<MapAnswer> Call(const MapCall& call) override;
  // Errors: kAlreadyExists; as Call().
  absl::Status Create(const VolumeRow& row) override;
  // Errors: as Call().
  absl::Status Remove() override;

 private:
  enum class Known : uint8_t { kNothing, kInDoubt, kAll };

  // Reads what counts, where it is not known.
  absl::Status Know() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::optional<std::string>> ReadFile();
  absl::Status WriteFile(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Save(const KeptRow& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OfDisk(const char* what, const absl::Status& why) const;
  // Leases that are over, and the row's holder with its own.
  void Expire(int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> Grant(uint64_t lease, int64_t now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> Swap(const MapCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Disk> disk_;
  const std::string file_;
  const std::function<int64_t()> now_ns_;
  const int64_t lease_ns_;

  runtime::Mutex mutex_;  // held while the file is written: one change at a time
  Known known_ ABSL_GUARDED_BY(mutex_) = Known::kNothing;
  // As in the file, but for a holder whose lease is over.
  KeptRow kept_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int64_t> leases_ ABSL_GUARDED_BY(mutex_);  // until when
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_KEPT_MAP_H_
