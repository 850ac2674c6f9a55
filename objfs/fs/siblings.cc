#include "objfs/fs/siblings.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/codec.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kSiblingUrl[] = "abacus/sibling-trouble";

std::string TroubleText(uint32_t shard, const absl::Status& why) {
  if (why.ok()) return absl::StrCat("shard ", shard, " is being joined again");
  return absl::StrCat("shard ", shard, ": ", why.message());
}

void PutStatus(runtime::Writer& writer, const absl::Status& status) {
  std::vector<std::pair<std::string, std::string>> payloads;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& bytes) {
    payloads.emplace_back(std::string(runtime::ToStd(url)), std::string(bytes));
  });
  runtime::Encode(writer, int32_t{status.raw_code()});
  runtime::Encode(writer, std::string(runtime::ToStd(status.message())));
  runtime::Encode(writer, payloads);
}

absl::Status TakeStatus(runtime::Reader& reader) {
  const auto code = static_cast<absl::StatusCode>(runtime::Decoded<int32_t>(reader));
  const auto message = runtime::Decoded<std::string>(reader);
  const auto payloads = runtime::Decoded<std::vector<std::pair<std::string, std::string>>>(reader);
  absl::Status status(code, runtime::ToAbsl(message));
  for (const auto& [url, bytes] : payloads) {
    status.SetPayload(runtime::ToAbsl(url), absl::Cord(runtime::ToAbsl(bytes)));
  }
  return status;
}

}  // namespace

absl::Status OfSibling(uint32_t shard, const absl::Status& why, uint64_t joining) {
  absl::Status status = absl::UnavailableError(TroubleText(shard, why));
  // What the runtime knows it by.
  if (runtime::IsOutcomeUnknown(why)) {
    runtime::MakeError(runtime::ErrorKind::kOutcomeUnknown, "")
        .ForEachPayload(
            [&](absl::string_view url, const absl::Cord& kind) { status.SetPayload(url, kind); });
  }
  runtime::Writer writer;
  runtime::Encode(writer, shard);
  runtime::Encode(writer, joining);
  PutStatus(writer, why);
  const std::string bytes = std::move(writer).Finish().inline_bytes;
  status.SetPayload(kSiblingUrl, absl::Cord(runtime::ToAbsl(bytes)));
  return status;
}

std::optional<SiblingTrouble> SiblingTroubleOf(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const auto payload = status.GetPayload(kSiblingUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string bytes(*payload);
  const std::vector<runtime::Block> no_blocks;
  runtime::Reader reader(bytes, no_blocks, nullptr);
  SiblingTrouble trouble;
  runtime::Decode(reader, trouble.shard);
  runtime::Decode(reader, trouble.joining);
  trouble.why = TakeStatus(reader);
  if (!reader.ok() || !reader.AtEnd()) return std::nullopt;
  return trouble;
}

}  // namespace abacus::objfs
