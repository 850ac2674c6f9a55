// What a server keeps as a volume's map, damaged in any way: no crash, and what is taken is written
// as what says the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "objfs/map/kept_map.h"
#include "objfs/map/sealed_text.h"

namespace {

using abacus::objfs::KeptRow;

void Take(std::string_view text) {
  const auto kept = KeptRow::Decode(text);
  if (!kept.ok()) {
    const absl::Status& status = kept.status();
    if (!absl::IsDataLoss(status) && !absl::IsFailedPrecondition(status)) abort();
    return;
  }
  const auto again = KeptRow::Decode(kept->Encode());
  if (!again.ok() || *again != *kept) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Take(text);
  // With a checksum that fits, so that what is behind it is reached.
  const size_t crc_at = text.rfind("crc ");
  Take(abacus::objfs::Sealed(text.substr(0, crc_at == std::string::npos ? size : crc_at)));
  return 0;
}
