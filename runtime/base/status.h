#ifndef ABACUS_RUNTIME_BASE_STATUS_H_
#define ABACUS_RUNTIME_BASE_STATUS_H_

// The typed errors of the runtime, on top of absl::Status codes.
//
// A code says what the caller may do (retry the call, retry at a higher level, fix something
// first); the kind says which of the runtime's own outcomes it is. Kinds travel in replies.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::runtime {

enum class ErrorKind : uint8_t {
  kNone = 0,          // an object's own error, or none of the below
  kOutcomeUnknown,    // kUnknown: the node died with the call inside; it ran once or not at all
  kObjectLost,        // kDataLoss: the process that held the object's only copy died
  kObjectNotFound,    // kNotFound: never existed, or was destroyed
  kNoSuchMethod,      // kUnimplemented: the class has no method of that name and signature
  kNoSuchClass,       // kUnimplemented: the node was not built with that class
  kBadArguments,      // kInvalidArgument: the arguments do not decode
  kBadCheckpoint,     // kDataLoss: a checkpoint is cut short, damaged or of another version
  kBadFrame,          // kDataLoss: a message does not decode
  kVersionMismatch,   // kFailedPrecondition: the peer speaks another wire version
  kBackPressure,      // kResourceExhausted: a named limit is reached; slow down and retry
  kNestingTooDeep,    // kResourceExhausted: calls are nested beyond the limit
  kDuplicateEvicted,  // kAborted: the record that would tell a repeated call from a new one is gone
  kNodeUnreachable,   // kUnavailable: no way to the node now; the object may live on
  kMoveCancelled,     // kAborted: the move did not happen; the object serves where it was
  kNodeFenced,        // kUnavailable: this process was declared dead by the others
  kTooLarge,          // kResourceExhausted: it does not fit into a message; send less at a time
};

// Makes an error of that kind; the code follows from the kind. A kind that this build does not know
// (it came from another one) makes a kUnknown error without a kind.
absl::Status MakeError(ErrorKind kind, std::string_view message);

// The kind of an error made by MakeError, here or on another node; kNone for every other status.
ErrorKind KindOf(const absl::Status& status);

// The kind's name as it stands in logs and tables, for example "outcome-unknown".
std::string_view KindName(ErrorKind kind);

inline bool IsOutcomeUnknown(const absl::Status& status) {
  return KindOf(status) == ErrorKind::kOutcomeUnknown;
}

// The distribution's absl::string_view is not std::string_view and neither converts to the other.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace abacus::runtime

// Returns from the enclosing function where `expr` is not OK.
#define ABACUS_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (absl::Status abacus_status_ = (expr); !abacus_status_.ok()) return abacus_status_; \
  } while (false)

// Declares or assigns `lhs` from a StatusOr, or returns its error from the enclosing function.
#define ABACUS_ASSIGN_OR_RETURN(lhs, expr) \
  ABACUS_ASSIGN_OR_RETURN_IMPL_(ABACUS_CONCAT_(abacus_status_or_, __LINE__), lhs, expr)
#define ABACUS_ASSIGN_OR_RETURN_IMPL_(temp, lhs, expr) \
  auto temp = (expr);                                  \
  if (!temp.ok()) return std::move(temp).status();     \
  lhs = *std::move(temp)
#define ABACUS_CONCAT_(a, b) ABACUS_CONCAT_IMPL_(a, b)
#define ABACUS_CONCAT_IMPL_(a, b) a##b

#endif  // ABACUS_RUNTIME_BASE_STATUS_H_
