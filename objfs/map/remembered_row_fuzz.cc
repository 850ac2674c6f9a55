// What a server remembers of a volume's row, damaged in any way: no crash, and what is taken is
// written as what says the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "objfs/map/remembered_row.h"
#include "objfs/store/format.h"

namespace {

using abacus::objfs::RememberedRow;

void Take(std::string_view text) {
  const auto remembered = RememberedRow::Decode(text);
  if (!remembered.ok()) {
    const absl::Status& status = remembered.status();
    if (!absl::IsDataLoss(status) && !absl::IsFailedPrecondition(status)) abort();
    return;
  }
  const auto again = RememberedRow::Decode(remembered->Encode());
  if (!again.ok() || *again != *remembered) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Take(text);
  // With a checksum that fits, so that what is behind it is reached.
  const size_t crc_at = text.rfind("crc ");
  const std::string sealed = text.substr(0, crc_at == std::string::npos ? size : crc_at);
  Take(absl::StrCat(sealed, "crc ", absl::Hex(abacus::objfs::Crc32c(sealed), absl::kZeroPad8),
                    "\n"));
  return 0;
}
