#include "objfs/spread/fenced_record.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {
namespace {

constexpr std::string_view kFencedMark = "CF";
constexpr uint8_t kFencedVersion = 1;

}  // namespace

std::string FencedRecord::Encode() const {
  runtime::Writer writer;
  writer.PutRaw(kFencedMark.data(), kFencedMark.size());
  writer.PutNumber(kFencedVersion);
  writer.PutNumber(opening.value);
  writer.PutRaw(record.data(), record.size());
  return std::move(writer).Finish().inline_bytes;
}

absl::StatusOr<FencedRecord> FencedRecord::Decode(std::string_view bytes) {
  if (bytes.substr(0, kFencedMark.size()) != kFencedMark) {
    return FencedRecord{.opening = {}, .record = std::string(bytes)};
  }
  const std::vector<runtime::Block> none;
  runtime::Reader reader(bytes.substr(kFencedMark.size()), none, nullptr);
  const auto version = reader.TakeNumber<uint8_t>();
  if (reader.ok() && version > kFencedVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("a column's attributes have version ", version, " and this build knows ",
                     kFencedVersion, ": use the build that wrote them, or a later one"));
  }
  FencedRecord fenced;
  fenced.opening.value = reader.TakeNumber<uint64_t>();
  if (!reader.ok() || version == 0) {
    return absl::DataLossError("a column's attributes are cut off or damaged");
  }
  fenced.record = bytes.substr(kBytesMore);
  return fenced;
}

}  // namespace abacus::objfs
