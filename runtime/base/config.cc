#include "runtime/base/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/config_schema.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

using config_internal::Field;
using config_internal::FormatDouble;
using config_internal::FormatRange;
using config_internal::FormatValue;
using config_internal::NearestKey;
using config_internal::Overloaded;
using config_internal::Quote;
using config_internal::Row;
using config_internal::Rows;
using config_internal::TypeName;
using config_internal::WrongForm;

constexpr size_t kFileBytesMax = 1 << 20;

std::string NodeTypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a bool";
    default:
      return "a date or time";
  }
}

// Text from the file as it may stand in a message: no control characters, and not a megabyte of it.
std::string Shown(const std::string& text) {
  constexpr size_t kShownMax = 60;
  std::string shown = text.substr(0, kShownMax);
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > kShownMax) shown += "...";
  return shown;
}

std::string Got(const toml::node& node) {
  if (const auto* text = node.as_string()) return absl::StrCat("\"", Shown(text->get()), "\"");
  if (const auto* number = node.as_integer()) return absl::StrCat(number->get());
  if (const auto* number = node.as_floating_point()) return FormatDouble(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return NodeTypeName(node);
}

// "32 B": so counts were written once.
std::optional<int64_t> CountIn(const toml::value<std::string>* text) {
  int64_t count = 0;
  std::string_view digits = text != nullptr ? std::string_view(text->get()) : std::string_view();
  if (!digits.ends_with(" B")) return std::nullopt;
  digits.remove_suffix(2);
  return absl::SimpleAtoi(ToAbsl(digits), &count) ? std::optional(count) : std::nullopt;
}

// Reads one text into a Config and collects everything that is wrong with it.
class Reader {
 public:
  explicit Reader(std::string_view file_name) : file_name_(file_name) {}

  absl::StatusOr<Config> Read(std::string_view text);

 private:
  struct Problem {
    toml::source_position at;
    std::string text;
  };

  void ReadSection(const std::string& section, const toml::table& table);
  void ReadKey(const Row& row, const toml::node& node);
  void CheckAcrossKeys();
  void RequireLonger(const std::string& longer, absl::Duration longer_value,
                     const std::string& shorter, absl::Duration shorter_value, int times);
  // The later of two keys in the text; nothing where neither is in it or one of them is wrong.
  std::optional<toml::source_position> LaterOf(const std::string& a, const std::string& b) const;

  void Add(const toml::source_position& at, std::string text) {
    problems_.push_back({at, std::move(text)});
  }
  void AddUnknown(const toml::source_position& at, const std::string& name) {
    Add(at, absl::StrCat("unknown key '", Shown(name), "' (nearest valid key: '", NearestKey(name),
                         "')"));
  }
  absl::Status ToStatus();

  const std::string file_name_;
  Config config_;
  std::vector<Problem> problems_;
  struct Seen {
    toml::source_position at;
    bool good = false;
  };
  std::map<std::string, Seen> seen_;
};

bool IsSection(std::string_view name) {
  return std::any_of(Rows().begin(), Rows().end(),
                     [name](const Row& row) { return name == row.section; });
}

absl::StatusOr<Config> Reader::Read(std::string_view text) {
  toml::table root;
  try {
    root = toml::parse(text, std::string_view(file_name_));
  } catch (const toml::parse_error& error) {
    Add(error.source().begin, std::string(error.description()));
    return ToStatus();
  }
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (const toml::table* table = node.as_table()) {
      if (IsSection(name) || !table->empty()) {
        ReadSection(name, *table);
      } else {
        Add(key.source().begin, absl::StrCat("unknown section '", Shown(name), "'"));
      }
    } else if (IsSection(name)) {
      Add(node.source().begin,
          absl::StrCat("'", name, "' is a section, [", name, "], and not ", NodeTypeName(node)));
    } else {
      AddUnknown(key.source().begin, name);
    }
  }
  CheckAcrossKeys();
  if (!problems_.empty()) return ToStatus();
  return config_;
}

void Reader::ReadSection(const std::string& section, const toml::table& table) {
  for (const auto& [key, node] : table) {
    const std::string name = absl::StrCat(section, ".", std::string(key.str()));
    const auto row = std::find_if(Rows().begin(), Rows().end(),
                                  [&name](const Row& r) { return r.name() == name; });
    if (row == Rows().end()) {
      AddUnknown(key.source().begin, name);
      continue;
    }
    const size_t problems_before = problems_.size();
    ReadKey(*row, node);
    seen_[name] = {node.source().begin, problems_.size() == problems_before};
  }
}

void Reader::ReadKey(const Row& row, const toml::node& node) {
  const Field field = row.field(config_);
  auto expected = [&](const std::string& what) {
    Add(node.source().begin, absl::StrCat(row.name(), ": expected ", what, ", got ", Got(node)));
  };
  // Written so that a NaN is outside.
  auto in_range = [&](double value) {
    if (value >= row.min && value <= row.max) return true;
    Add(node.source().begin,
        absl::StrCat(row.name(), ": ", Got(node), " is outside ", FormatRange(row, field)));
    return false;
  };
  const auto* text = node.as_string();
  std::visit(Overloaded{
                 [&](bool* value) {
                   const auto* flag = node.as_boolean();
                   if (flag == nullptr) return expected("true or false");
                   *value = flag->get();
                 },
                 [&](int64_t* value) {
                   const auto* number = node.as_integer();
                   const std::optional<int64_t> count =
                       number != nullptr ? number->get() : CountIn(text);
                   if (!count) return expected("an integer");
                   if (in_range(static_cast<double>(*count))) *value = *count;
                 },
                 [&](double* value) {
                   const std::optional<double> number =
                       node.is_number() ? node.value<double>() : std::nullopt;
                   if (!number) return expected("a number");
                   if (in_range(*number)) *value = *number;
                 },
                 [&](std::string* value) {
                   if (text == nullptr) return expected("a string");
                   if (const auto wrong = WrongForm(row.form, text->get())) return expected(*wrong);
                   *value = text->get();
                 },
                 [&](absl::Duration* value) {
                   absl::Duration duration;
                   if (text == nullptr || !absl::ParseDuration(text->get(), &duration)) {
                     return expected("a duration such as \"250ms\" (ns, us, ms, s, m, h)");
                   }
                   if (in_range(absl::ToDoubleNanoseconds(duration))) *value = duration;
                 },
                 [&](uint64_t* value) {
                   const auto bytes = text != nullptr ? ParseBytes(text->get()) : std::nullopt;
                   if (!bytes) return expected("a size such as \"64 KiB\" (B, KiB, MiB, GiB, TiB)");
                   if (in_range(static_cast<double>(*bytes))) *value = *bytes;
                 },
             },
             field);
}

std::optional<toml::source_position> Reader::LaterOf(const std::string& a,
                                                     const std::string& b) const {
  const auto seen_a = seen_.find(a);
  const auto seen_b = seen_.find(b);
  if (seen_a != seen_.end() && !seen_a->second.good) return std::nullopt;
  if (seen_b != seen_.end() && !seen_b->second.good) return std::nullopt;
  if (seen_a == seen_.end() && seen_b == seen_.end()) return std::nullopt;
  if (seen_a == seen_.end()) return seen_b->second.at;
  if (seen_b == seen_.end()) return seen_a->second.at;
  return std::max(seen_a->second.at, seen_b->second.at);
}

void Reader::RequireLonger(const std::string& longer, absl::Duration longer_value,
                           const std::string& shorter, absl::Duration shorter_value, int times) {
  if (longer_value > times * shorter_value) return;
  const auto at = LaterOf(longer, shorter);
  if (!at) return;
  Add(*at, absl::StrCat(longer, " (", absl::FormatDuration(longer_value), ") must be longer than ",
                        times > 1 ? absl::StrCat(times, " x ") : "", shorter, " (",
                        absl::FormatDuration(shorter_value), ")"));
}

void Reader::CheckAcrossKeys() {
  const Config::Membership& m = config_.membership;
  // One lost heartbeat must not fence a node, and a node must have fenced itself before the others
  // let somebody else serve in its place.
  RequireLonger("membership.lease", m.lease, "membership.heartbeat_interval", m.heartbeat_interval,
                2);
  RequireLonger("membership.dead_after", m.dead_after, "membership.lease", m.lease, 1);

  // An engine that hears less than once in a window decides nothing.
  RequireLonger("placement.window", config_.placement.window, "placement.digest_interval",
                config_.placement.digest_interval, 1);

  const std::string& address = config_.node.control_address;
  if (address == config_.node.data_address && address.substr(address.rfind(':')) != ":0") {
    if (const auto at = LaterOf("node.control_address", "node.data_address")) {
      Add(*at,
          absl::StrCat("node.control_address and node.data_address are both ", Quote(address)));
    }
  }
}

absl::Status Reader::ToStatus() {
  std::stable_sort(problems_.begin(), problems_.end(),
                   [](const Problem& a, const Problem& b) { return a.at < b.at; });
  return absl::InvalidArgumentError(
      absl::StrJoin(problems_, "\n", [this](std::string* out, const Problem& problem) {
        absl::StrAppend(out, file_name_, ":", problem.at.line, ":", problem.at.column, ": ",
                        problem.text);
      }));
}

}  // namespace

std::vector<ConfigKey> ConfigKeys() {
  Config defaults;
  std::vector<ConfigKey> keys;
  keys.reserve(Rows().size());
  for (const Row& row : Rows()) {
    const Field field = row.field(defaults);
    keys.push_back({.name = row.name(),
                    .type = TypeName(field),
                    .default_value = FormatValue(field),
                    .range = FormatRange(row, field),
                    .help = row.help});
  }
  return keys;
}

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  std::string text;
  std::array<char, 16384> buffer;
  size_t bytes = 0;
  while ((bytes = fread(buffer.data(), 1, buffer.size(), file.get())) > 0) {
    text.append(buffer.data(), bytes);
    if (text.size() > kFileBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is larger than 1 MiB: not a configuration"));
    }
  }
  if (ferror(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  return ParseConfig(text, path);
}

absl::StatusOr<Config> ParseConfig(std::string_view text, std::string_view file_name) {
  return Reader(file_name).Read(text);
}

std::string ShowConfig(const Config& config) {
  Config copy = config;
  std::string text;
  std::string_view section;
  for (const Row& row : Rows()) {
    if (row.section != section) {
      section = row.section;
      absl::StrAppend(&text, text.empty() ? "" : "\n", "[", row.section, "]\n");
    }
    Config defaults;
    const Field default_field = row.field(defaults);
    const std::string range = FormatRange(row, default_field);
    absl::StrAppend(&text, "# ", row.help, "\n# (", TypeName(default_field),
                    range.empty() ? "" : ", ", range, "; default ", FormatValue(default_field),
                    ")\n");
    absl::StrAppend(&text, row.key, " = ", FormatValue(row.field(copy)), "\n");
  }
  return text;
}

std::string ConfigReference() {
  std::string text;
  std::string section;
  for (const ConfigKey& key : ConfigKeys()) {
    const size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      absl::StrAppend(&text, text.empty() ? "" : "\n", "## [", section, "]\n\n",
                      "| key | type | default | range | meaning |\n",
                      "| --- | --- | --- | --- | --- |\n");
    }
    absl::StrAppend(&text, "| ", key.name.substr(dot + 1), " | ", key.type, " | `",
                    key.default_value, "` | ", key.range, " | ", key.help, " |\n");
  }
  return text;
}

}  // namespace abacus::runtime
