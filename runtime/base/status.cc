#include "runtime/base/status.h"

#include <array>

#include "absl/strings/cord.h"

namespace abacus::runtime {
namespace {

constexpr char kPayloadUrl[] = "abacus/error-kind";

struct KindRow {
  ErrorKind kind;
  absl::StatusCode code;
  std::string_view name;
};

constexpr std::array kKinds = {
    KindRow{ErrorKind::kNone, absl::StatusCode::kUnknown, "none"},
    KindRow{ErrorKind::kOutcomeUnknown, absl::StatusCode::kUnknown, "outcome-unknown"},
    KindRow{ErrorKind::kObjectLost, absl::StatusCode::kDataLoss, "object-lost"},
    KindRow{ErrorKind::kObjectNotFound, absl::StatusCode::kNotFound, "object-not-found"},
    KindRow{ErrorKind::kNoSuchMethod, absl::StatusCode::kUnimplemented, "no-such-method"},
    KindRow{ErrorKind::kNoSuchClass, absl::StatusCode::kUnimplemented, "no-such-class"},
    KindRow{ErrorKind::kBadArguments, absl::StatusCode::kInvalidArgument, "bad-arguments"},
    KindRow{ErrorKind::kBadCheckpoint, absl::StatusCode::kDataLoss, "bad-checkpoint"},
    KindRow{ErrorKind::kBadFrame, absl::StatusCode::kDataLoss, "bad-frame"},
    KindRow{ErrorKind::kVersionMismatch, absl::StatusCode::kFailedPrecondition, "version-mismatch"},
    KindRow{ErrorKind::kBackPressure, absl::StatusCode::kResourceExhausted, "back-pressure"},
    KindRow{ErrorKind::kNestingTooDeep, absl::StatusCode::kResourceExhausted, "nesting-too-deep"},
    KindRow{ErrorKind::kDuplicateEvicted, absl::StatusCode::kAborted, "duplicate-evicted"},
    KindRow{ErrorKind::kNodeUnreachable, absl::StatusCode::kUnavailable, "node-unreachable"},
    KindRow{ErrorKind::kMoveCancelled, absl::StatusCode::kAborted, "move-cancelled"},
    KindRow{ErrorKind::kNodeFenced, absl::StatusCode::kUnavailable, "node-fenced"},
    KindRow{ErrorKind::kTooLarge, absl::StatusCode::kResourceExhausted, "too-large"},
};

// Kinds come from other nodes, also from builds that know more of them.
const KindRow& RowOf(ErrorKind kind) {
  const auto row = static_cast<size_t>(kind);
  return kKinds[row < kKinds.size() ? row : 0];
}

}  // namespace

absl::Status MakeError(ErrorKind kind, std::string_view message) {
  const KindRow& row = RowOf(kind);
  absl::Status status(row.code, ToAbsl(message));
  const char byte = static_cast<char>(row.kind);
  status.SetPayload(kPayloadUrl, absl::Cord(absl::string_view(&byte, 1)));
  return status;
}

ErrorKind KindOf(const absl::Status& status) {
  if (status.ok()) return ErrorKind::kNone;
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value() || payload->size() != 1) return ErrorKind::kNone;
  const auto value = static_cast<uint8_t>((*payload)[0]);
  return value < kKinds.size() ? static_cast<ErrorKind>(value) : ErrorKind::kNone;
}

std::string_view KindName(ErrorKind kind) { return RowOf(kind).name; }

}  // namespace abacus::runtime
