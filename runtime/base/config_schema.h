#ifndef ABACUS_RUNTIME_BASE_CONFIG_SCHEMA_H_
#define ABACUS_RUNTIME_BASE_CONFIG_SCHEMA_H_

// The one table that says which keys a configuration has: reading, checking, printing and
// documenting all walk over it. Used by config.cc and its test only.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/types/span.h"
#include "runtime/base/config.h"

namespace abacus::runtime::config_internal {

// Where a key's value goes; the alternative is the key's type. uint64_t is a number of bytes.
using Field = std::variant<bool*, int64_t*, double*, std::string*, absl::Duration*, uint64_t*>;

// What a string must be, beyond free of control characters.
enum class Form : uint8_t {
  kAny,
  kName,
  kListenAddress,     // host:port
  kListenAnyAddress,  // host:port or unix:/path
  kAdvertised,        // empty, or host:port with a port that can be called
  kAdvertisedAny,     // that, or unix:/path
  kLogLevel,
  kMonitorSource,
};

struct Row {
  const char* section;
  const char* key;
  Field (*field)(Config&);
  const char* help;
  // Inclusive; nanoseconds for a duration, bytes for a size, not used for bool and string.
  double min = 0;
  double max = 0;
  Form form = Form::kAny;

  std::string name() const { return absl::StrCat(section, ".", key); }
};

// All keys; those of a section stand together.
absl::Span<const Row> Rows();

// Picks the branch of a visit by the alternative's type.
template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

// The value as it stands in a file.
std::string FormatValue(const Field& field);
// The shortest text that reads back as the same number.
std::string FormatDouble(double value);
// A TOML string.
std::string Quote(std::string_view text);

// The type's name; `field` may be of any Config.
std::string TypeName(const Field& field);
// "1 to 64"; empty where any value will do.
std::string FormatRange(const Row& row, const Field& field);

// Returns what was expected instead, or nothing where the text is fine.
std::optional<std::string> WrongForm(Form form, std::string_view text);

// The key that `name` was most probably meant to be.
std::string NearestKey(std::string_view name);

}  // namespace abacus::runtime::config_internal

#endif  // ABACUS_RUNTIME_BASE_CONFIG_SCHEMA_H_
