#ifndef ABACUS_OBJFS_LAYER_OPTIONS_H_
#define ABACUS_OBJFS_LAYER_OPTIONS_H_

// The options of a layer: a table that declares them, and the values that one layer has.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace abacus::objfs {

enum class OptionType : uint8_t {
  kBytes,     // "8 KiB" or "8KiB": a whole number of B, KiB, MiB, GiB or TiB
  kCount,     // "17"
  kDuration,  // "250ms"
  kShare,     // "0.25": of 1
  kFlag,      // "on" or "off"
  kText,      // anything without , ( ) / and white space
};

// A row of a layer's table. `least` and `most` bound a number: bytes, a count, seconds or a share;
// a text has at most `most` bytes.
struct OptionSpec {
  const char* name;
  OptionType type;
  const char* standard;  // the value where none is given, written as a user would
  double least;
  double most;
  const char* help;  // one line
};

// Words of a user's, with the place at which they stand in the stack's text.
struct OptionText {
  std::string name;
  std::string value;
  size_t name_at = 0;
  size_t value_at = 0;
};

// A mistake in a text, and where: the number of bytes before it.
struct TextMistake {
  size_t at = 0;
  std::string message;
};

// The values of one layer's options. Thread-compatible.
class OptionValues {
 public:
  // `table` must outlive the values.
  // Errors: `mistake` is filled, and kInvalidArgument says the same: a name that the table has not
  // (with the nearest that it has), one that is given twice, a value of the wrong form or range.
  static absl::StatusOr<OptionValues> Make(absl::Span<const OptionSpec> table,
                                           const std::vector<OptionText>& given,
                                           TextMistake* mistake = nullptr);

  // REQUIRES: the table has an option of that name and of that type.
  uint64_t Bytes(std::string_view name) const;
  uint64_t Count(std::string_view name) const;
  absl::Duration Duration(std::string_view name) const;
  double Share(std::string_view name) const;
  bool Flag(std::string_view name) const;
  std::string Text(std::string_view name) const;

 private:
  struct Value {
    double number = 0;
    uint64_t whole = 0;
    std::string text;
  };
  const Value& At(std::string_view name, OptionType type) const;
  static bool Parse(const OptionSpec& spec, std::string_view text, Value* value);

  absl::Span<const OptionSpec> table_;
  std::vector<Value> values_;  // as many as the table has rows
};

// "8 KiB to 1 MiB", "on or off": what values the option takes.
std::string OptionRange(const OptionSpec& spec);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_LAYER_OPTIONS_H_
