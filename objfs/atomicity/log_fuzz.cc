// What a server reads of its log, damaged in any way: no crash, no endless work; and what is taken
// can be gone on with.
//
// The first byte says what the rest is: 0 the log as it lies on the disk; 1 payloads, each after a
// byte that says how long it is (headers and checksums are made right, the first is a checkpoint);
// 2 a commit's record; 3 a commit's snapshot.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/log_core.h"

namespace {

using namespace abacus::objfs;  // NOLINT: the whole vocabulary

const LogOptions kOptions{.log = 7, .half_bytes = 4096};

void Expect(bool holds) {
  if (!holds) abort();
}

std::string Records(std::string_view rest) {
  std::string bytes;
  for (uint64_t sequence = 1; !rest.empty(); ++sequence) {
    const std::string_view payload = rest.substr(1, static_cast<uint8_t>(rest[0]));
    bytes += EncodeLogRecord(kOptions.log,
                             {.kind = sequence == 1 ? LogKind::kCheckpoint : LogKind::kRecord,
                              .sequence = sequence,
                              .payload = payload});
    rest.remove_prefix(1 + payload.size());
  }
  return bytes;
}

void UseLog(const std::string& disk) {
  const auto found = RecoverLog(kOptions, disk);
  if (!found.ok()) return Expect(absl::IsDataLoss(found.status()));
  CommitEntries state;
  if (const auto decoded = CommitEntries::Decode(found->snapshot); decoded.ok()) state = *decoded;
  for (const std::string& bytes : found->records) {
    if (const auto record = DecodeCommitRecord(bytes); record.ok()) state.Apply(*record);
  }
  const std::string snapshot = state.Encode();
  if (snapshot.size() + kLogHeaderBytes > kOptions.half_bytes) return;
  LogCore<FaithfulLogPolicy> log(
      kOptions, [&snapshot] { return snapshot; }, &*found);
  const auto write = log.NextWrite();
  Expect(write.has_value() && write->offset + write->bytes.size() <= 2 * kOptions.half_bytes);
  std::string after = disk;
  after.resize(2 * kOptions.half_bytes);
  after.replace(write->offset, write->bytes.size(), write->bytes);
  const auto again = RecoverLog(kOptions, after);
  Expect(again.ok() && again->snapshot == snapshot && again->records.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      UseLog(rest);
      break;
    case 1:
      UseLog(Records(rest));
      break;
    case 2:
      if (const auto record = DecodeCommitRecord(rest); record.ok()) {
        Expect(EncodeCommitRecord(*record) == rest);
      }
      break;
    default:
      if (const auto state = CommitEntries::Decode(rest); state.ok()) {
        Expect(CommitEntries::Decode(state->Encode()).ok());
      }
      break;
  }
  return 0;
}
