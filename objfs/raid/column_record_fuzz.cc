// Column records, damaged in any way: no crash, and what is taken is written again as it was.

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
  if (!record->Fits() || record->Encode() != bytes || bytes.size() > ColumnRecord::kBytesMax) {
    abort();
  }
  return 0;
}
