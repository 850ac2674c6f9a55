#include "objfs/fs/error.h"

#include <array>

#include "absl/strings/cord.h"
#include "objfs/layer/layer.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kPayloadUrl[] = "abacus/fs-error";

struct Row {
  FsError error;
  absl::StatusCode code;  // what callers that know nothing of file systems are told
  std::string_view name;
};

constexpr std::array kRows = {
    Row{FsError::kNone, absl::StatusCode::kUnknown, "none"},
    Row{FsError::kNoEntry, absl::StatusCode::kNotFound, "no-entry"},
    Row{FsError::kExists, absl::StatusCode::kAlreadyExists, "exists"},
    Row{FsError::kNotDirectory, absl::StatusCode::kFailedPrecondition, "not-directory"},
    Row{FsError::kIsDirectory, absl::StatusCode::kFailedPrecondition, "is-directory"},
    Row{FsError::kNotEmpty, absl::StatusCode::kFailedPrecondition, "not-empty"},
    Row{FsError::kAccess, absl::StatusCode::kPermissionDenied, "access"},
    Row{FsError::kNotPermitted, absl::StatusCode::kPermissionDenied, "not-permitted"},
    Row{FsError::kInvalid, absl::StatusCode::kInvalidArgument, "invalid"},
    Row{FsError::kNameTooLong, absl::StatusCode::kInvalidArgument, "name-too-long"},
    Row{FsError::kTooManyLinks, absl::StatusCode::kFailedPrecondition, "too-many-links"},
    Row{FsError::kCrossVolume, absl::StatusCode::kFailedPrecondition, "cross-volume"},
    Row{FsError::kNoSpace, absl::StatusCode::kResourceExhausted, "no-space"},
    Row{FsError::kTooBig, absl::StatusCode::kOutOfRange, "too-big"},
    Row{FsError::kNoAttribute, absl::StatusCode::kNotFound, "no-attribute"},
    Row{FsError::kNotSupported, absl::StatusCode::kUnimplemented, "not-supported"},
    Row{FsError::kStale, absl::StatusCode::kNotFound, "stale"},
    Row{FsError::kWouldBlock, absl::StatusCode::kAborted, "would-block"},
    Row{FsError::kDeadlock, absl::StatusCode::kAborted, "deadlock"},
    Row{FsError::kOutOfRange, absl::StatusCode::kOutOfRange, "out-of-range"},
    Row{FsError::kNoDevice, absl::StatusCode::kFailedPrecondition, "no-device"},
    Row{FsError::kTextBusy, absl::StatusCode::kFailedPrecondition, "text-busy"},
    Row{FsError::kTooManyOpen, absl::StatusCode::kResourceExhausted, "too-many-open"},
    Row{FsError::kInterrupted, absl::StatusCode::kCancelled, "interrupted"},
    Row{FsError::kBadHandle, absl::StatusCode::kFailedPrecondition, "bad-handle"},
    Row{FsError::kInputOutput, absl::StatusCode::kDataLoss, "input-output"},
    Row{FsError::kNoLocks, absl::StatusCode::kResourceExhausted, "no-locks"},
};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].error) != i) return false;
  }
  return true;
}
static_assert(RowsAreInOrder());
static_assert(kRows.back().error == FsError::kNoLocks, "a row for each error");

const Row& RowOf(FsError error) {
  const auto row = static_cast<size_t>(error);
  return kRows[row < kRows.size() ? row : 0];
}

// The runtime says with some codes what has nothing to do with the file: that a node is not there,
// that a message did not fit. None of that is the caller's mistake or the disk's lack of space.
FsError OfRuntime(runtime::ErrorKind kind) {
  switch (kind) {
    case runtime::ErrorKind::kObjectNotFound:
      return FsError::kStale;
    default:
      return FsError::kInputOutput;
  }
}

FsError OfCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      // A name that is missing has a payload: here an object is, behind an inode that was known.
      return FsError::kStale;
    case absl::StatusCode::kAlreadyExists:
      return FsError::kExists;
    case absl::StatusCode::kInvalidArgument:
      return FsError::kInvalid;
    case absl::StatusCode::kOutOfRange:
      return FsError::kTooBig;
    case absl::StatusCode::kResourceExhausted:
      return FsError::kNoSpace;
    case absl::StatusCode::kPermissionDenied:
      return FsError::kAccess;
    case absl::StatusCode::kUnimplemented:
      return FsError::kNotSupported;
    case absl::StatusCode::kCancelled:
      return FsError::kInterrupted;
    case absl::StatusCode::kAborted:
      return IsWouldBlock(status) ? FsError::kWouldBlock : FsError::kInputOutput;
    default:
      return FsError::kInputOutput;
  }
}

}  // namespace

absl::Status FsStatus(FsError error, std::string_view what) {
  if (error == FsError::kNone) return absl::OkStatus();
  const Row& row = RowOf(error);
  absl::Status status(row.code, runtime::ToAbsl(what));
  const char byte = static_cast<char>(row.error);
  status.SetPayload(kPayloadUrl, absl::Cord(absl::string_view(&byte, 1)));
  return status;
}

FsError FsErrorOf(const absl::Status& status) {
  if (status.ok()) return FsError::kNone;
  const auto payload = status.GetPayload(kPayloadUrl);
  if (payload.has_value() && payload->size() == 1) {
    const auto value = static_cast<uint8_t>((*payload)[0]);
    if (value > 0 && value < kRows.size()) return static_cast<FsError>(value);
  }
  const runtime::ErrorKind kind = runtime::KindOf(status);
  return kind == runtime::ErrorKind::kNone ? OfCode(status) : OfRuntime(kind);
}

std::string_view FsErrorName(FsError error) { return RowOf(error).name; }

}  // namespace abacus::objfs
