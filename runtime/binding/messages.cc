#include "runtime/binding/messages.h"

namespace abacus::runtime {

void ReplyMessage::SetStatus(const absl::Status& status) {
  code = static_cast<uint32_t>(status.code());
  kind = KindOf(status);
  message = ToStd(status.message());
}

absl::Status ReplyMessage::status() const {
  if (code == 0) return absl::OkStatus();
  if (kind != ErrorKind::kNone) return MakeError(kind, message);
  // A code that this build does not know is still an error.
  const bool known = code <= static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

}  // namespace abacus::runtime
