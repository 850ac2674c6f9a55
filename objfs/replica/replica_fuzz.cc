// What a copy reads, damaged in any way. The first byte says what the rest is: even - the record of
// what a copy is worth, odd - a batch of its primary, as the runtime decodes it. No crash; a record
// that is taken is written again as it was; where a batch was refused the copy is not whole.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "objfs/replica/replica_operation.h"
#include "objfs/replica/replica_record.h"
#include "objfs/replica/replica_store.h"
#include "objfs/store/format.h"
#include "objfs/store/memory_disk.h"
#include "runtime/base/codec.h"

namespace {

using namespace abacus::objfs;  // NOLINT: the whole vocabulary

void TakeRecord(std::string_view bytes) {
  auto record = ReplicaRecord::Decode(bytes);
  if (record.ok() && record->Encode() != bytes) abort();
  // With a checksum that fits, so that what is behind it is reached.
  std::string sealed(bytes.substr(0, ReplicaRecord::kBytes - 4));
  const uint32_t crc = Crc32c(sealed);
  for (int i = 0; i < 4; ++i) sealed.push_back(static_cast<char>(crc >> (8 * i)));
  record = ReplicaRecord::Decode(sealed);
  if (record.ok() && record->Encode() != sealed) abort();
  if (!record.ok() && !absl::IsDataLoss(record.status()) &&
      !absl::IsFailedPrecondition(record.status())) {
    abort();
  }
}

void TakeBatch(std::string_view bytes) {
  const std::vector<abacus::runtime::Block> none;
  abacus::runtime::Reader reader(bytes, none, nullptr);
  ReplicaBatch batch;
  abacus::runtime::Decode(reader, batch);
  if (!reader.ok()) return;
  const auto disk = std::make_shared<MemoryDisk>(uint64_t{1} << 30);
  auto copy = ReplicaStore::Open(disk, {});
  if (!copy.ok() || !(*copy)->Begin(1, 1).ok()) abort();
  const bool is_applied = (*copy)->Apply(1, 1, batch).ok();
  const auto state = (*copy)->State();
  if (!state.ok() || (state->is_whole && !is_applied)) abort();
  copy->reset();
  if (!LocalObjectStore::Open(*disk, {}).ok()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    TakeRecord(rest);
  } else {
    TakeBatch(rest);
  }
  return 0;
}
