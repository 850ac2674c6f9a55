// What a column keeps, damaged in any way: no crash, and what is taken is written again as it was,
// or, where it is of an earlier build, as what says the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "objfs/spread/fenced_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using abacus::objfs::FencedRecord;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto fenced = FencedRecord::Decode(bytes);
  if (!fenced.ok()) {
    if (!absl::IsDataLoss(fenced.status()) && !absl::IsFailedPrecondition(fenced.status())) abort();
    return 0;
  }
  const std::string again = fenced->Encode();
  const bool is_old = fenced->opening.value == 0 && fenced->record == bytes;
  if (!is_old && again != bytes) abort();
  if (*FencedRecord::Decode(again) != *fenced) abort();
  return 0;
}
