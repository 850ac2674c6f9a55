#ifndef ABACUS_RUNTIME_BASE_STATUS_OF_H_
#define ABACUS_RUNTIME_BASE_STATUS_OF_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::runtime {

// How a call went, in code that is for calls with a value and such without one.
inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_STATUS_OF_H_
