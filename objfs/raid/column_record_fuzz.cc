// Column records, damaged in any way: no crash, and what is taken is written again as it was, or,
// where it is of an older version, as what says the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "objfs/raid/column_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using abacus::objfs::ColumnRecord;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto record = ColumnRecord::Decode(bytes);
  if (!record.ok()) {
    if (!absl::IsDataLoss(record.status()) && !absl::IsFailedPrecondition(record.status())) abort();
    return 0;
  }
  constexpr size_t kVersionAt = 2;
  const std::string again = record->Encode();
  const bool older = bytes[kVersionAt] < again[kVersionAt];
  if (older ? *ColumnRecord::Decode(again) != *record : again != bytes) abort();
  return 0;
}
