#include "objfs/map/remembered_row.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "objfs/map/sealed_text.h"
#include "objfs/volume/server_list.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {

constexpr char kRememberedBegin[] = "abacus remembered row ";
constexpr int kRememberedVersion = 1;
constexpr char kRememberedRevision[] = "revision ";

absl::Status DamagedMemory() {
  return absl::DataLossError("what was remembered of a volume's row is cut off or damaged");
}

}  // namespace

std::string RememberedRow::Encode() const {
  return Sealed(absl::StrCat(kRememberedBegin, kRememberedVersion, "\n", kRememberedRevision,
                             revision, "\n", row.Encode()));
}

absl::StatusOr<RememberedRow> RememberedRow::Decode(std::string_view text) {
  std::string_view rest = text;
  int64_t version = 0;
  if (!NumberBehind(kRememberedBegin, TakeLine(&rest), &version)) {
    return absl::DataLossError("it is no row of a volume's map that was remembered");
  }
  if (version != kRememberedVersion) {
    return absl::FailedPreconditionError(absl::StrCat("a row is remembered in version ", version,
                                                      "; this build knows ", kRememberedVersion));
  }
  const std::optional<std::string_view> sealed = Unsealed(text);
  if (!sealed.has_value()) return DamagedMemory();
  rest = *sealed;
  TakeLine(&rest);
  RememberedRow remembered;
  if (!NumberBehind(kRememberedRevision, TakeLine(&rest), &remembered.revision)) {
    return DamagedMemory();
  }
  ABACUS_ASSIGN_OR_RETURN(remembered.row, VolumeRow::Decode(rest));
  return remembered;
}

absl::StatusOr<std::optional<RememberedRow>> RememberedRow::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  absl::StatusOr<RememberedRow> remembered = Decode(text);
  if (remembered.ok()) return std::optional<RememberedRow>(*std::move(remembered));
  return absl::Status(remembered.status().code(),
                      absl::StrCat(path, ": ", remembered.status().message()));
}

absl::StatusOr<std::optional<RememberedRow>> RowMemory::Load() {
  ABACUS_ASSIGN_OR_RETURN(std::optional<RememberedRow> found, RememberedRow::Load(path_));
  // Of another volume, which had this one's name.
  if (found.has_value() && found->row.key != key_) found.reset();
  return found;
}

absl::StatusOr<std::optional<RememberedRow>> RowMemory::Get() {
  MutexLock lock(mutex_);
  return Load();
}

absl::Status RowMemory::Follow(MapKeeper& keeper) {
  MutexLock lock(mutex_);
  // Read under the lock: of two calls the later one has the later row.
  const MapKeeper::State state = keeper.Get();
  const RememberedRow now{.row = state.row, .revision = state.revision};
  if (state.row.epoch == 0 || is_over_ || written_ == now) return absl::OkStatus();
  // What cannot be read is of no use to anybody.
  const absl::StatusOr<std::optional<RememberedRow>> before = Load();
  const bool has_one = before.ok() && before->has_value();
  if (has_one && (**before == now || (*before)->row.epoch > now.row.epoch)) {
    written_ = now;
    return absl::OkStatus();
  }
  if (const absl::Status saved = SaveDurably(path_, now.Encode()); !saved.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the volume's row cannot be remembered, and nothing is done by it until it is "
                     "(is the disk full, or forbidden to write?): ",
                     saved.message()));
  }
  written_ = now;
  return absl::OkStatus();
}

void RowMemory::Forget() {
  MutexLock lock(mutex_);
  is_over_ = true;
  std::error_code error;
  std::filesystem::remove(path_, error);
}

}  // namespace abacus::objfs
