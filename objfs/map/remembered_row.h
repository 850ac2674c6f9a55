#ifndef ABACUS_OBJFS_MAP_REMEMBERED_ROW_H_
#define ABACUS_OBJFS_MAP_REMEMBERED_ROW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/map/map_keeper.h"
#include "objfs/map/volume_row.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {

// A volume's row as a server has seen it last, which is what there is to go by when the map has
// lost it (volume/restore_plan.h). In a file of the server's: the line "abacus remembered row 1",
// the line "revision" with that of the map, the row's text, and the line "crc" with the CRC32C of
// all before it, in hexadecimal digits.
struct RememberedRow {
  VolumeRow row;
  int64_t revision = 0;

  std::string Encode() const;
  // Errors: kDataLoss - it is none, cut off or damaged; kFailedPrecondition - of a later version.
  static absl::StatusOr<RememberedRow> Decode(std::string_view text);
  // nullopt: there is no such file. Errors: as Decode(), with the path.
  static absl::StatusOr<std::optional<RememberedRow>> Load(const std::string& path);

  friend bool operator==(const RememberedRow&, const RememberedRow&) = default;
};

// That file of one volume.
// Thread-safety: thread-safe. Blocking: the disk's.
class RowMemory {
 public:
  RowMemory(std::string path, uint64_t key) : path_(std::move(path)), key_(key) {}

  // The row that `keeper` has when this is called, or a later one, is in the file, durably, when
  // this returns. Where the file has one of a later epoch (the map has been set back) that stays.
  // Writes only what is not there. Errors: the disk's, with the way out.
  absl::Status Follow(MapKeeper& keeper);
  // nullopt: none of this volume. Errors: as RememberedRow::Load().
  absl::StatusOr<std::optional<RememberedRow>> Get();
  // There is no file from now on, whatever is called.
  void Forget();

 private:
  absl::StatusOr<std::optional<RememberedRow>> Load();

  const std::string path_;
  const uint64_t key_;
  runtime::Mutex mutex_;  // held while the file is written: what is written last is newest
  std::optional<RememberedRow> written_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_REMEMBERED_ROW_H_
