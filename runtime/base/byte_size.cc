#include "runtime/base/byte_size.h"

#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace abacus::runtime {
namespace {

struct ByteUnit {
  const char* name;
  uint64_t bytes;
};
constexpr std::array kByteUnits = {
    ByteUnit{"TiB", uint64_t{1} << 40},
    ByteUnit{"GiB", uint64_t{1} << 30},
    ByteUnit{"MiB", uint64_t{1} << 20},
    ByteUnit{"KiB", uint64_t{1} << 10},
    ByteUnit{"B", 1},
};

}  // namespace

std::optional<uint64_t> ParseBytes(std::string_view text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit_name(after, static_cast<size_t>(end - after));
  if (!unit_name.empty() && unit_name.front() == ' ') unit_name.remove_prefix(1);
  for (const ByteUnit& unit : kByteUnits) {
    if (unit_name != unit.name) continue;
    if (number > UINT64_MAX / unit.bytes) return std::nullopt;
    return number * unit.bytes;
  }
  return std::nullopt;
}

std::string FormatBytes(uint64_t bytes) {
  for (const ByteUnit& unit : kByteUnits) {
    if (bytes >= unit.bytes && bytes % unit.bytes == 0) {
      return absl::StrCat(bytes / unit.bytes, " ", unit.name);
    }
  }
  return "0 B";
}

}  // namespace abacus::runtime
