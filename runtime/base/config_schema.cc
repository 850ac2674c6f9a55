#include "runtime/base/config_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/nearest.h"

namespace abacus::runtime::config_internal {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kUnixPathBytesMax = 107;  // sockaddr_un::sun_path less its final zero

constexpr std::array kLogLevels = {"debug", "info", "warning", "error"};
constexpr std::array kMonitorSources = {"auto", "ebpf", "schedstat", "thread-clock"};

// What a value may be that is one of a few words; nothing for other forms.
absl::Span<const char* const> Words(Form form) {
  if (form == Form::kLogLevel) return kLogLevels;
  if (form == Form::kMonitorSource) return kMonitorSources;
  return {};
}

absl::Duration FromNs(double ns) { return absl::Nanoseconds(static_cast<int64_t>(ns)); }

bool IsHostAndPort(std::string_view text, bool port_zero_allowed) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  // A bare IPv6 address cannot be told from its port: it stands in brackets.
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find_first_of(":[]/ ") != host.npos) return false;
  int port = -1;
  const char* end = port_text.data() + port_text.size();
  const auto [after, error] = std::from_chars(port_text.data(), end, port);
  return error == std::errc() && after == end && port <= 65535 &&
         port >= (port_zero_allowed ? 0 : 1);
}

bool IsUnixAddress(std::string_view text) {
  constexpr std::string_view kPrefix = "unix:/";
  return text.substr(0, kPrefix.size()) == kPrefix && text.size() > kPrefix.size() &&
         text.size() - kPrefix.size() + 1 <= kUnixPathBytesMax;
}

bool IsName(std::string_view text) {
  return text.size() <= kNameBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

// The right key in the wrong section costs as much as two wrong letters.
constexpr size_t kWrongSectionCost = 2;
// A longer name is no slip of the finger, and comparing it would cost its length squared.
constexpr size_t kSuggestBytesMax = 128;

}  // namespace

std::string FormatDouble(double value) {
  std::array<char, 32> buffer;
  // 100000 and not 1e+05, as long as it stays readable and within the buffer.
  const double size = std::abs(value);
  const auto format = value == 0 || (size >= 1e-6 && size < 1e15) ? std::chars_format::fixed
                                                                  : std::chars_format::general;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format);
  return {buffer.data(), result.ptr};
}

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> escaped;
      snprintf(escaped.data(), escaped.size(), "\\u%04X", byte);
      quoted += escaped.data();
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FormatValue(const Field& field) {
  return std::visit(
      Overloaded{
          [](const bool* value) { return std::string(*value ? "true" : "false"); },
          [](const int64_t* value) { return absl::StrCat(*value); },
          [](const double* value) { return FormatDouble(*value); },
          [](const std::string* value) { return Quote(*value); },
          [](const absl::Duration* value) { return Quote(absl::FormatDuration(*value)); },
          [](const uint64_t* value) { return Quote(FormatBytes(*value)); },
      },
      field);
}

std::string TypeName(const Field& field) {
  static constexpr std::array kNames = {"bool", "integer", "number", "string", "duration", "size"};
  static_assert(kNames.size() == std::variant_size_v<Field>);
  return kNames[field.index()];
}

std::string FormatRange(const Row& row, const Field& field) {
  auto range = [](const std::string& min, const std::string& max) {
    return absl::StrCat(min, " to ", max);
  };
  if (!Words(row.form).empty()) return absl::StrJoin(Words(row.form), ", ");
  return std::visit(
      Overloaded{
          [](const bool*) { return std::string(); },
          [](const std::string*) { return std::string(); },
          [&](const int64_t*) {
            return range(absl::StrCat(static_cast<int64_t>(row.min)),
                         absl::StrCat(static_cast<int64_t>(row.max)));
          },
          [&](const double*) { return range(FormatDouble(row.min), FormatDouble(row.max)); },
          [&](const absl::Duration*) {
            return range(absl::FormatDuration(FromNs(row.min)),
                         absl::FormatDuration(FromNs(row.max)));
          },
          [&](const uint64_t*) {
            return range(FormatBytes(static_cast<uint64_t>(row.min)),
                         FormatBytes(static_cast<uint64_t>(row.max)));
          },
      },
      field);
}

std::optional<std::string> WrongForm(Form form, std::string_view text) {
  const bool has_control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (has_control) return "text without control characters";
  switch (form) {
    case Form::kAny:
      return std::nullopt;
    case Form::kName:
      if (IsName(text)) return std::nullopt;
      return absl::StrCat("at most ", kNameBytesMax, " letters, digits, '.', '_' and '-'");
    case Form::kListenAddress:
      if (IsHostAndPort(text, true)) return std::nullopt;
      return "host:port, port 0 to 65535";
    case Form::kListenAnyAddress:
      if (IsHostAndPort(text, true) || IsUnixAddress(text)) return std::nullopt;
      return absl::StrCat("host:port, port 0 to 65535, or unix:/path of at most ",
                          kUnixPathBytesMax, " bytes");
    case Form::kAdvertised:
      if (text.empty() || IsHostAndPort(text, false)) return std::nullopt;
      return "host:port, port 1 to 65535, or nothing";
    case Form::kAdvertisedAny:
      if (text.empty() || IsHostAndPort(text, false) || IsUnixAddress(text)) return std::nullopt;
      return "host:port, port 1 to 65535, unix:/path, or nothing";
    case Form::kLogLevel:
    case Form::kMonitorSource: {
      const auto words = Words(form);
      if (std::find(words.begin(), words.end(), text) != words.end()) return std::nullopt;
      return absl::StrCat("one of ", absl::StrJoin(words, ", "));
    }
  }
  return std::nullopt;
}

std::string NearestKey(std::string_view name) {
  if (name.size() > kSuggestBytesMax) return Rows().front().name();
  const std::string_view leaf = name.substr(name.rfind('.') + 1);
  std::string nearest;
  size_t least = SIZE_MAX;
  for (const Row& row : Rows()) {
    const std::string full = row.name();
    const size_t distance =
        std::min(EditDistance(name, full), EditDistance(leaf, row.key) + kWrongSectionCost);
    if (distance < least) {
      least = distance;
      nearest = full;
    }
  }
  return nearest;
}

}  // namespace abacus::runtime::config_internal
