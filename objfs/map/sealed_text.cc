#include "objfs/map/sealed_text.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "objfs/store/format.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

std::string CrcLine(std::string_view text) {
  return absl::StrCat("crc ", absl::Hex(Crc32c(text), absl::kZeroPad8), "\n");
}

}  // namespace

std::string Sealed(const std::string& text) { return text + CrcLine(text); }

std::optional<std::string_view> Unsealed(std::string_view text) {
  const size_t crc_bytes = CrcLine("").size();
  if (text.size() < crc_bytes) return std::nullopt;
  const size_t crc_at = text.size() - crc_bytes;
  if (text.substr(crc_at) != CrcLine(text.substr(0, crc_at))) return std::nullopt;
  return text.substr(0, crc_at);
}

std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return {};
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return line;
}

bool NumberBehind(std::string_view begin, std::string_view line, int64_t* number) {
  return line.starts_with(begin) &&
         absl::SimpleAtoi(runtime::ToAbsl(line.substr(begin.size())), number);
}

}  // namespace abacus::objfs
