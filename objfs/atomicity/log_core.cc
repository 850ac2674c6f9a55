#include "objfs/atomicity/log_core.h"

#include <algorithm>
#include <cstring>

#include "objfs/atomicity/log_core_inl.h"
#include "objfs/store/format.h"
#include "objfs/store/numbers.h"

namespace abacus::objfs {
namespace {

constexpr std::string_view kMagic = "ABLG";
constexpr size_t kCrcAt = 4;
constexpr size_t kSealedAt = 8;

uint32_t Seal(uint64_t log, std::string_view bytes) {
  std::string number;
  AppendNumber(&number, log);
  return Crc32c(bytes, Crc32c(number));
}

std::string_view HalfOf(const LogOptions& options, std::string_view bytes, int half) {
  const uint64_t at =
      std::min<uint64_t>(static_cast<uint64_t>(half) * options.half_bytes, bytes.size());
  return bytes.substr(at, options.half_bytes);
}

// Whether a record in there says that more had been durable than was found. Records are sought by
// their magic, as lengths may be damaged.
bool KnowsOfMore(uint64_t log, std::string_view bytes, uint64_t found) {
  for (size_t at = bytes.find(kMagic); at != std::string_view::npos; at = bytes.find(kMagic, at)) {
    const std::optional<LogRecordView> record = DecodeLogRecord(log, bytes.substr(at));
    if (record.has_value() && record->durable > found) return true;
    at += record.has_value() ? kLogHeaderBytes + record->payload.size() : 1;
  }
  return false;
}

}  // namespace

std::string EncodeLogRecord(uint64_t log, const LogRecordView& record) {
  std::string sealed;
  sealed.reserve(kLogHeaderBytes + record.payload.size());
  AppendNumber(&sealed, static_cast<uint32_t>(record.payload.size()));
  AppendNumber(&sealed, static_cast<uint32_t>(record.kind));
  AppendNumber(&sealed, record.sequence);
  AppendNumber(&sealed, record.durable);
  sealed += record.payload;
  std::string bytes(kMagic);
  AppendNumber(&bytes, Seal(log, sealed));
  return bytes + sealed;
}

std::optional<LogRecordView> DecodeLogRecord(uint64_t log, std::string_view bytes) {
  if (bytes.size() < kLogHeaderBytes || !bytes.starts_with(kMagic)) return std::nullopt;
  const auto length = NumberAt<uint32_t>(bytes, kSealedAt);
  if (length > kLogPayloadBytesMax || length > bytes.size() - kLogHeaderBytes) return std::nullopt;
  const std::string_view sealed = bytes.substr(kSealedAt, kLogHeaderBytes - kSealedAt + length);
  if (NumberAt<uint32_t>(bytes, kCrcAt) != Seal(log, sealed)) return std::nullopt;
  const auto kind = NumberAt<uint32_t>(bytes, kSealedAt + 4);
  if (kind != static_cast<uint32_t>(LogKind::kCheckpoint) &&
      kind != static_cast<uint32_t>(LogKind::kRecord)) {
    return std::nullopt;
  }
  return LogRecordView{.kind = static_cast<LogKind>(kind),
                       .sequence = NumberAt<uint64_t>(bytes, kSealedAt + 8),
                       .durable = NumberAt<uint64_t>(bytes, kSealedAt + 16),
                       .payload = bytes.substr(kLogHeaderBytes, length)};
}

absl::StatusOr<RecoveredLog> RecoverLog(const LogOptions& options, std::string_view bytes) {
  RecoveredLog found;
  bool any = false;
  for (int half = 0; half < 2; ++half) {
    const auto record = DecodeLogRecord(options.log, HalfOf(options, bytes, half));
    if (!record.has_value() || record->kind != LogKind::kCheckpoint) continue;
    if (any && record->sequence <= found.last) continue;
    any = true;
    found.half = half;
    found.last = record->sequence;
    found.snapshot = record->payload;
  }
  if (!any) return absl::DataLossError("no checkpoint of the log is whole");
  std::string_view rest = HalfOf(options, bytes, found.half);
  rest.remove_prefix(kLogHeaderBytes + found.snapshot.size());
  for (;;) {
    const auto record = DecodeLogRecord(options.log, rest);
    if (!record.has_value() || record->kind != LogKind::kRecord ||
        record->sequence != found.last + 1) {
      break;
    }
    found.records.emplace_back(record->payload);
    ++found.last;
    rest.remove_prefix(kLogHeaderBytes + record->payload.size());
  }
  if (KnowsOfMore(options.log, rest, found.last) ||
      KnowsOfMore(options.log, HalfOf(options, bytes, 1 - found.half), found.last)) {
    return absl::DataLossError("a durable record of the log is damaged");
  }
  return found;
}

template class LogCore<FaithfulLogPolicy>;

}  // namespace abacus::objfs
