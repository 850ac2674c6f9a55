#include "objfs/layer/stack.h"

#include <algorithm>
#include <cassert>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "runtime/base/nearest.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using runtime::ToAbsl;

// The text with a mark under the mistake. Bytes that would upset a terminal are shown as '?'.
absl::Status MistakeIn(std::string_view text, size_t at, const std::string& message) {
  std::string shown(text.substr(0, Stack::kTextBytesMax));
  for (char& c : shown) {
    if (c < ' ' || c == 0x7f) c = '?';
  }
  return absl::InvalidArgumentError(absl::StrCat("stack text, byte ", at + 1, ": ", message, "\n  ",
                                                 shown, "\n  ", std::string(at, ' '), "^"));
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

size_t LayersIn(const Stack& stack) {
  return stack.levels.size() + (stack.branch ? stack.copies * LayersIn(*stack.branch) : 0);
}

class StackParser {
 public:
  explicit StackParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Stack> Parse() {
    if (text_.size() > Stack::kTextBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("a stack's text has at most ",
                                                     Stack::kTextBytesMax, " bytes, this one has ",
                                                     text_.size()));
    }
    Stack stack;
    ABACUS_RETURN_IF_ERROR(ParseLevels(&stack, 0));
    if (at_ < text_.size()) return Fail("expected '/' or the end");
    return stack;
  }

 private:
  absl::Status Fail(const std::string& message) const { return MistakeIn(text_, at_, message); }

  char Next() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Eat(char c) {
    if (Next() != c) return false;
    ++at_;
    return true;
  }
  std::string Word() {
    Next();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  // `depth`: levels above.
  absl::Status ParseLevels(Stack* stack, size_t depth) {
    do {
      if (depth + stack->levels.size() >= Stack::kLevelsMax) {
        return Fail(absl::StrCat("a stack has at most ", Stack::kLevelsMax, " layers"));
      }
      if (Next() == '(') {
        if (stack->levels.empty()) return Fail("a branch needs a layer above it");
        return ParseBranch(stack, depth + stack->levels.size());
      }
      ABACUS_RETURN_IF_ERROR(ParseLevel(stack));
    } while (Eat('/'));
    return absl::OkStatus();
  }

  absl::Status ParseLevel(Stack* stack) {
    Next();
    StackLevel level;
    level.at = at_;
    level.kind = Word();
    if (level.kind.empty()) return Fail("expected a layer's name");
    if (Eat('(')) {
      do {
        ABACUS_RETURN_IF_ERROR(ParseOption(&level));
      } while (Eat(','));
      if (!Eat(')')) return Fail("expected ',' or ')'");
    }
    stack->levels.push_back(std::move(level));
    return absl::OkStatus();
  }

  absl::Status ParseOption(StackLevel* level) {
    Next();
    OptionText option;
    option.name_at = at_;
    option.name = Word();
    if (option.name.empty()) return Fail("expected an option's name");
    if (!Eat('=')) return Fail("expected '='");
    Next();
    option.value_at = at_;
    size_t end = std::min(text_.find_first_of(",()/", at_), text_.size());
    at_ = end;
    while (end > option.value_at && IsSpace(text_[end - 1])) --end;
    option.value = std::string(text_.substr(option.value_at, end - option.value_at));
    if (option.value.empty()) return Fail("expected a value");
    level->options.push_back(std::move(option));
    return absl::OkStatus();
  }

  absl::Status ParseBranch(Stack* stack, size_t depth) {
    stack->branch_at = at_;
    Eat('(');
    auto branch = std::make_shared<Stack>();
    ABACUS_RETURN_IF_ERROR(ParseLevels(branch.get(), depth));
    if (!Eat(')')) return Fail("expected '/' or ')'");
    if (!Eat('*')) return Fail("expected '*' and how many copies");
    Next();
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), stack->copies);
    if (error != std::errc() || stack->copies == 0 || stack->copies > Stack::kCopiesMax) {
      return Fail(absl::StrCat("expected a number of copies, 1 to ", Stack::kCopiesMax));
    }
    // Every branch inside was held to the same bound, so this cannot overflow.
    if (stack->copies * LayersIn(*branch) > Stack::kLayersMax) {
      return Fail(absl::StrCat("a stack has at most ", Stack::kLayersMax, " layers in all"));
    }
    at_ = static_cast<size_t>(end - text_.data());
    stack->branch = std::move(branch);
    if (Next() == '/') return Fail("nothing can stand under a branch");
    return absl::OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
};

absl::Status NoSuchKind(const std::string& text, const StackLevel& level, const LayerKinds& kinds) {
  std::vector<std::string> names;
  for (const LayerKind& kind : kinds.All()) names.push_back(kind.name);
  const std::string nearest = runtime::Nearest(level.kind, names);
  std::string message = absl::StrCat("no layer '", level.kind, "'");
  if (!nearest.empty()) {
    absl::StrAppend(&message, ", did you mean '", nearest, "'?");
  } else {
    absl::StrAppend(&message, "; there are:");
    for (const std::string& name : names) absl::StrAppend(&message, " ", name);
  }
  return MistakeIn(text, level.at, message);
}

absl::Status CheckLevel(const std::string& text, const StackLevel& level, size_t below,
                        const LayerKinds& kinds) {
  const LayerKind* kind = kinds.Find(level.kind);
  if (kind == nullptr) return NoSuchKind(text, level, kinds);
  if (below < kind->below_least || below > kind->below_most) {
    std::string needs = absl::StrCat(kind->below_least);
    if (kind->below_most > kind->below_least) absl::StrAppend(&needs, " to ", kind->below_most);
    return MistakeIn(
        text, level.at,
        absl::StrCat("layer '", level.kind, "' stands on ", needs,
                     kind->below_most == 1 ? " layer" : " layers", ", here on ", below));
  }
  TextMistake mistake;
  if (!OptionValues::Make(kind->options, level.options, &mistake).ok()) {
    return MistakeIn(text, mistake.at, mistake.message);
  }
  return absl::OkStatus();
}

absl::Status Check(const std::string& text, const Stack& stack, const LayerKinds& kinds) {
  for (size_t i = 0; i < stack.levels.size(); ++i) {
    const bool last = i + 1 == stack.levels.size();
    const size_t below = last ? (stack.branch ? stack.copies : 0) : 1;
    ABACUS_RETURN_IF_ERROR(CheckLevel(text, stack.levels[i], below, kinds));
  }
  return stack.branch ? Check(text, *stack.branch, kinds) : absl::OkStatus();
}

class StackBuilder {
 public:
  StackBuilder(const LayerKinds& kinds, const LayerHost& host) : kinds_(kinds), host_(host) {}

  // Puts the stack's layers at `place` and after.
  absl::Status Build(const Stack& stack, size_t place, std::vector<Ref<Layer>>* layers) {
    std::vector<Ref<Layer>> below;
    if (stack.branch) {
      const size_t each = LayersIn(*stack.branch);
      for (size_t copy = 0; copy < stack.copies; ++copy) {
        const size_t at = place + stack.levels.size() + copy * each;
        ABACUS_RETURN_IF_ERROR(Build(*stack.branch, at, layers));
        below.push_back((*layers)[at]);
      }
    }
    for (size_t i = stack.levels.size(); i-- > 0;) {
      const StackLevel& level = stack.levels[i];
      std::vector<std::pair<std::string, std::string>> options;
      for (const OptionText& option : level.options) {
        options.emplace_back(option.name, option.value);
      }
      auto made = host_.make(*kinds_.Find(level.kind), below, options, place + i);
      if (!made.ok()) {
        absl::Status failed(made.status().code(),
                            absl::StrCat("layer '", level.kind, "' (number ", place + i,
                                         " of the stack): ", made.status().message()));
        made.status().ForEachPayload(
            [&](absl::string_view key, const absl::Cord& kind) { failed.SetPayload(key, kind); });
        return failed;
      }
      (*layers)[place + i] = *made;
      below = {*std::move(made)};
    }
    return absl::OkStatus();
  }

 private:
  const LayerKinds& kinds_;
  const LayerHost& host_;
};

}  // namespace

std::string Stack::ToString() const {
  std::string text;
  for (const StackLevel& level : levels) {
    if (!text.empty()) text += '/';
    text += level.kind;
    for (size_t i = 0; i < level.options.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "(" : ",", level.options[i].name, "=",
                      level.options[i].value);
    }
    if (!level.options.empty()) text += ')';
  }
  if (branch) absl::StrAppend(&text, "/(", branch->ToString(), ")*", copies);
  return text;
}

LayerKinds& LayerKinds::Add(const LayerKind& kind) {
  assert(Find(kind.name) == nullptr && "two kinds of layers have one name");
  kinds_.push_back(kind);
  return *this;
}

const LayerKind* LayerKinds::Find(std::string_view name) const {
  const auto it = std::find_if(kinds_.begin(), kinds_.end(),
                               [&](const LayerKind& kind) { return kind.name == name; });
  return it == kinds_.end() ? nullptr : &*it;
}

absl::StatusOr<Stack> ParseStack(std::string_view text) { return StackParser(text).Parse(); }

absl::Status CheckStack(const Stack& stack, const LayerKinds& kinds) {
  // Places are those of the text as it is shown, whatever white space the user's had.
  auto parsed = ParseStack(stack.ToString());
  if (!parsed.ok()) return parsed.status();
  return Check(stack.ToString(), *parsed, kinds);
}

absl::StatusOr<BuiltStack> BuildStack(const Stack& stack, const LayerKinds& kinds,
                                      const LayerHost& host) {
  ABACUS_RETURN_IF_ERROR(CheckStack(stack, kinds));
  BuiltStack built;
  built.layers.resize(LayersIn(stack));
  const absl::Status status = StackBuilder(kinds, host).Build(stack, 0, &built.layers);
  if (status.ok()) return built;
  for (const Ref<Layer>& layer : built.layers) {  // from the top: nobody calls what has ended
    if (layer) host.end(layer);
  }
  return status;
}

}  // namespace abacus::objfs
