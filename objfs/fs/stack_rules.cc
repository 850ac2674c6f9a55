#include "objfs/fs/stack_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "objfs/fs/error.h"
#include "objfs/spread/column_servers.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

absl::StatusOr<std::vector<StackRule>> ParseStackRules(std::string_view text) {
  std::vector<StackRule> rules;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(runtime::ToAbsl(text), '\n')) {
    ++number;
    const std::string words(absl::StripAsciiWhitespace(line));
    if (words.empty()) continue;
    const size_t end = words.find_first_of(" \t");
    if (end == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " of the rules, '", words,
                       "', has a pattern and no stack: write PATTERN STACK"));
    }
    rules.push_back(
        {words.substr(0, end), std::string(absl::StripLeadingAsciiWhitespace(words.substr(end)))});
  }
  return rules;
}

std::string StackRulesText(const std::vector<StackRule>& rules) {
  std::string text;
  for (const StackRule& rule : rules) absl::StrAppend(&text, rule.pattern, " ", rule.stack, "\n");
  return text;
}

const std::string* StackByRule(const std::vector<StackRule>& rules, const std::string& name) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&name](const StackRule& rule) {
    return fnmatch(rule.pattern.c_str(), name.c_str(), 0) == 0;
  });
  return found == rules.end() ? nullptr : &found->stack;
}

bool SetStackRule(std::vector<StackRule>* rules, const std::string& pattern,
                  const std::optional<std::string>& stack) {
  const auto found = std::find_if(rules->begin(), rules->end(), [&pattern](const StackRule& rule) {
    return rule.pattern == pattern;
  });
  if (!stack.has_value()) {
    if (found == rules->end()) return false;
    rules->erase(found);
  } else if (found == rules->end()) {
    rules->push_back({pattern, *stack});
  } else {
    found->stack = *stack;
  }
  return true;
}

absl::Status CheckFileStack(std::string_view text, const LayerKinds& kinds, size_t servers) {
  ABACUS_ASSIGN_OR_RETURN(const Stack stack, ParseStack(text));
  ABACUS_RETURN_IF_ERROR(CheckStack(stack, kinds));
  ABACUS_ASSIGN_OR_RETURN(const size_t columns, ColumnsOf(stack));
  if (columns <= servers) return absl::OkStatus();
  return FsStatus(FsError::kInvalid,
                  absl::StrCat("the stack has ", columns, " columns, each on a server of its own; ",
                               "the volume has ", std::max<size_t>(servers, 1),
                               ": abacus volume create NAME --servers HOST:PORT,HOST:PORT,..."));
}

}  // namespace abacus::objfs
