#include "objfs/store/spare_room.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "objfs/store/names.h"

namespace abacus::objfs {

using runtime::MutexLock;

namespace {
constexpr uint64_t kPieceBytes = 8192;
}  // namespace

absl::Status SpareRoom::OpenFile(bool make) {
  if (file_ != nullptr) return absl::OkStatus();
  auto file = disk_.Open(kSpareName);
  if (make && absl::IsNotFound(file.status())) file = disk_.Create(kSpareName);
  if (!file.ok()) return file.status();
  const absl::StatusOr<uint64_t> size = (*file)->Size();
  if (!size.ok()) return size.status();
  held_ = std::min(*size, kBytes) / kPieceBytes * kPieceBytes;
  file_ = *std::move(file);
  return absl::OkStatus();
}

absl::Status SpareRoom::Refill() {
  if (whole_) return absl::OkStatus();
  MutexLock lock(mutex_);
  absl::Status taken = OpenFile(/*make=*/true);
  // Once from its beginning: a file that was copied has its length and no room.
  uint64_t end = std::exchange(is_checked_, taken.ok()) ? held_ : 0;
  for (uint64_t piece = kBytes - end; taken.ok() && end < kBytes;) {
    const absl::Status one = file_->Allocate(end, piece);
    if (one.ok()) {
      end += piece;
      piece = std::min(piece, kBytes - end);
    } else if (absl::IsResourceExhausted(one) && piece > kPieceBytes) {
      piece = std::max(kPieceBytes, piece / 2 / kPieceBytes * kPieceBytes);
    } else {
      taken = one;
    }
  }
  // The room is to be within the length: what is beyond it some file systems (ext4) give back only
  // where the length changes.
  if (file_ != nullptr && !absl::IsUnimplemented(taken)) {
    const absl::Status sized = file_->Truncate(end);
    if (sized.ok()) held_ = end;
    if (taken.ok()) taken = sized;
  }
  if (absl::IsResourceExhausted(taken)) {
    return absl::ResourceExhaustedError(
        "the disk is full, and what room the store holds of it is for removals: remove something, "
        "or make room there");
  }
  whole_ = taken.ok() || absl::IsUnimplemented(taken);
  // Another error may pass, and keeps nobody from anything.
  return absl::OkStatus();
}

absl::Status SpareRoom::Write(uint64_t bytes, const std::function<absl::Status()>& write) {
  absl::Status written = write();
  while (absl::IsResourceExhausted(written) && Give(bytes)) written = write();
  return written;
}

bool SpareRoom::Give(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes > kGivenMax || !OpenFile(/*make=*/false).ok() || held_ == 0) return false;
  const uint64_t left = held_ - std::min(held_, bytes);
  if (!file_->Truncate(left).ok()) return false;
  held_ = left;
  whole_ = false;
  return true;
}

}  // namespace abacus::objfs
