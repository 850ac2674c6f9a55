#include "objfs/layer/options.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/nearest.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

using runtime::FormatBytes;
using runtime::ToAbsl;

// The bound as a user would write it.
std::string Bound(const OptionSpec& spec, double bound) {
  switch (spec.type) {
    case OptionType::kBytes:
      return FormatBytes(static_cast<uint64_t>(bound));
    case OptionType::kCount:
      return absl::StrCat(static_cast<uint64_t>(bound));
    case OptionType::kDuration:
      return absl::FormatDuration(absl::Seconds(bound));
    default:
      return absl::StrCat(bound);
  }
}

absl::Status Fail(size_t at, std::string message, TextMistake* mistake) {
  absl::Status status = absl::InvalidArgumentError(message);
  if (mistake != nullptr) *mistake = {at, std::move(message)};
  return status;
}

std::string NoSuchOption(absl::Span<const OptionSpec> table, const std::string& name) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : table) names.emplace_back(spec.name);
  const std::string nearest = runtime::Nearest(name, names);
  std::string message = absl::StrCat("no option '", name, "'");
  if (!nearest.empty()) return absl::StrCat(message, ", did you mean '", nearest, "'?");
  if (names.empty()) return absl::StrCat(message, ": there are none");
  absl::StrAppend(&message, "; there are:");
  for (const std::string& other : names) absl::StrAppend(&message, " ", other);
  return message;
}

}  // namespace

std::string OptionRange(const OptionSpec& spec) {
  if (spec.type == OptionType::kFlag) return "on or off";
  if (spec.type == OptionType::kText) return absl::StrCat("at most ", spec.most, " letters");
  return absl::StrCat(Bound(spec, spec.least), " to ", Bound(spec, spec.most));
}

bool OptionValues::Parse(const OptionSpec& spec, std::string_view text, Value* value) {
  value->text = std::string(text);
  switch (spec.type) {
    case OptionType::kBytes: {
      const auto bytes = runtime::ParseBytes(text);
      if (!bytes.has_value()) return false;
      value->whole = *bytes;
      value->number = static_cast<double>(*bytes);
      break;
    }
    case OptionType::kCount:
      // SimpleAtoi takes white space and a sign.
      if (text.find_first_not_of("0123456789") != std::string_view::npos) return false;
      if (!absl::SimpleAtoi(ToAbsl(text), &value->whole)) return false;
      value->number = static_cast<double>(value->whole);
      break;
    case OptionType::kDuration: {
      absl::Duration duration;
      if (!absl::ParseDuration(ToAbsl(text), &duration)) return false;
      value->number = absl::ToDoubleSeconds(duration);
      break;
    }
    case OptionType::kShare:
      if (!absl::SimpleAtod(ToAbsl(text), &value->number)) return false;
      break;
    case OptionType::kFlag:
      value->whole = text == "on" ? 1 : 0;
      return text == "on" || text == "off";
    case OptionType::kText:
      value->number = static_cast<double>(text.size());
      if (text.find_first_of(" \t\n\r,()/") != std::string_view::npos) return false;
      break;
  }
  return std::isfinite(value->number) && value->number >= spec.least && value->number <= spec.most;
}

absl::StatusOr<OptionValues> OptionValues::Make(absl::Span<const OptionSpec> table,
                                                const std::vector<OptionText>& given,
                                                TextMistake* mistake) {
  OptionValues values;
  values.table_ = table;
  values.values_.resize(table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const bool good = Parse(table[i], table[i].standard, &values.values_[i]);
    assert(good && "a standard value that its own row refuses");
    (void)good;
  }
  std::vector<bool> seen(table.size());
  for (const OptionText& option : given) {
    const auto row = std::find_if(table.begin(), table.end(),
                                  [&](const OptionSpec& spec) { return option.name == spec.name; });
    if (row == table.end()) return Fail(option.name_at, NoSuchOption(table, option.name), mistake);
    const size_t i = static_cast<size_t>(row - table.begin());
    if (seen[i]) {
      return Fail(option.name_at, absl::StrCat("option '", option.name, "' is given twice"),
                  mistake);
    }
    seen[i] = true;
    if (!Parse(*row, option.value, &values.values_[i])) {
      return Fail(option.value_at,
                  absl::StrCat("option '", option.name, "' cannot be '", option.value,
                               "': ", OptionRange(*row)),
                  mistake);
    }
  }
  return values;
}

const OptionValues::Value& OptionValues::At(std::string_view name, OptionType type) const {
  for (size_t i = 0; i < table_.size(); ++i) {
    if (name == table_[i].name && type == table_[i].type) return values_[i];
  }
  assert(false && "no such option of that type");
  static const Value kNone;
  return kNone;
}

uint64_t OptionValues::Bytes(std::string_view name) const {
  return At(name, OptionType::kBytes).whole;
}
uint64_t OptionValues::Count(std::string_view name) const {
  return At(name, OptionType::kCount).whole;
}
absl::Duration OptionValues::Duration(std::string_view name) const {
  return absl::Seconds(At(name, OptionType::kDuration).number);
}
double OptionValues::Share(std::string_view name) const {
  return At(name, OptionType::kShare).number;
}
bool OptionValues::Flag(std::string_view name) const {
  return At(name, OptionType::kFlag).whole != 0;
}
std::string OptionValues::Text(std::string_view name) const {
  return At(name, OptionType::kText).text;
}

}  // namespace abacus::objfs
