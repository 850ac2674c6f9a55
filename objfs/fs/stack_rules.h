#ifndef ABACUS_OBJFS_FS_STACK_RULES_H_
#define ABACUS_OBJFS_FS_STACK_RULES_H_

// Which stack a new file has by its name: the rules of the directory that it is made in, as text in
// an extended attribute of that directory. Directories hand them down to those made in them, so
// that a rule is one on a path: a directory, and a pattern for names below it. And which stacks
// files can have at all.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/stack.h"

namespace abacus::objfs {

// A line of the text: the pattern, white space, the stack.
struct StackRule {
  std::string pattern;  // as fnmatch(3) has them, without white space
  std::string stack;    // as text (layer/stack.h); not checked here

  bool operator==(const StackRule&) const = default;
};

// Errors: kInvalidArgument - the message names the line and the way out.
absl::StatusOr<std::vector<StackRule>> ParseStackRules(std::string_view text);
// ParseStackRules() of it gives the same rules.
std::string StackRulesText(const std::vector<StackRule>& rules);
// That of the first rule whose pattern is the name's; null where none is.
const std::string* StackByRule(const std::vector<StackRule>& rules, const std::string& name);
// Sets the stack of the rule with that pattern, adds one where there is none, or with no stack
// takes it away. False: there was none to take away.
bool SetStackRule(std::vector<StackRule>* rules, const std::string& pattern,
                  const std::optional<std::string>& stack);

// Whether files can have this stack, as text, in a volume over so many servers; 0: it is over none,
// and keeps all at its own. Errors: kInvalid (FsError) or kInvalidArgument - no; the message shows
// the place of the mistake, or says how many servers it takes, and the way out.
absl::Status CheckFileStack(std::string_view text, const LayerKinds& kinds, size_t servers);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_FS_STACK_RULES_H_
