// A shard's record of a transaction, damaged in any way: no crash, and what is taken is written as
// what says the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "objfs/store/format.h"
#include "objfs/store/numbers.h"
#include "objfs/volume/shard_records.h"

namespace {

using abacus::objfs::ShardRecord;

void Take(std::string_view bytes) {
  const auto record = ShardRecord::Decode(bytes);
  if (!record.ok()) {
    const absl::Status& status = record.status();
    if (!absl::IsDataLoss(status) && !absl::IsFailedPrecondition(status)) abort();
    return;
  }
  const std::string written = record->Encode();
  const auto again = ShardRecord::Decode(written);
  if (!again.ok() || again->Encode() != written) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Take(bytes);
  // With a checksum that fits, so that what is behind it is reached.
  constexpr size_t kHead = 1 + sizeof(uint32_t);
  if (size < kHead) return 0;
  const std::string fields = bytes.substr(kHead);
  std::string sealed = bytes.substr(0, 1);
  abacus::objfs::AppendNumber(&sealed, abacus::objfs::Crc32c(fields));
  Take(sealed + fields);
  return 0;
}
