#include "apps/grep/line_finder.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "apps/grep/bre.h"

namespace abacus::apps {
namespace {

// Over that many lines, skipping with a string pays if it skips that much on average: about what
// setting up a search of a single line costs.
constexpr uint64_t kCandidatesToJudge = 256;
constexpr uint64_t kWorthwhileSkipBytes = 64;

// What is known about the strings that a part of an expression matches.
struct Required {
  bool is_exact = false;  // it matches `longest` and nothing else
  std::string longest;    // is in every match
};

const std::string& Longer(const std::string& a, const std::string& b) {
  return a.size() >= b.size() ? a : b;
}

Required RequiredBy(const Bre& tree, uint32_t index) {
  const BreNode& node = tree.nodes[index];
  switch (node.op) {
    case BreOp::kEmpty:
      return {true, ""};
    case BreOp::kSet: {
      const ByteSet& set = tree.sets[node.set];
      if (set.count() != 1) return {};
      int byte = 0;
      while (!set[byte]) ++byte;
      return {true, std::string(1, static_cast<char>(byte))};
    }
    case BreOp::kSequence: {
      Required all = {true, ""};
      std::string run;  // the exact parts that end here
      for (const uint32_t child : node.children) {
        Required part = RequiredBy(tree, child);
        all.is_exact = all.is_exact && part.is_exact;
        if (part.is_exact) {
          run += part.longest;
        } else {
          all.longest = Longer(all.longest, run);
          run.clear();
          all.longest = Longer(all.longest, part.longest);
        }
      }
      all.longest = Longer(all.longest, run);
      return all;
    }
    case BreOp::kAlternatives:
      return node.children.size() == 1 ? RequiredBy(tree, node.children[0]) : Required{};
    case BreOp::kRepeat:
      if (node.min == 0) return {};
      return {false, RequiredBy(tree, node.children[0]).longest};
    default:
      return {};
  }
}

std::vector<std::string> SplitAlternatives(std::string_view pattern) {
  std::vector<std::string> alternatives;
  std::unordered_set<std::string> seen;
  for (size_t from = 0; from <= pattern.size();) {
    const size_t end = std::min(pattern.find('\n', from), pattern.size());
    std::string one(pattern.substr(from, end - from));
    if (seen.insert(one).second) alternatives.push_back(std::move(one));
    from = end + 1;
  }
  return alternatives;
}

std::string JoinLines(const std::vector<std::string>& alternatives) {
  std::string joined;
  for (const std::string& one : alternatives) {
    if (&one != &alternatives.front()) joined += '\n';
    joined += one;
  }
  return joined;
}

// The string that an alternative stands for, if it is one. grep asks this of lists of alternatives
// only, and is then more lenient than with a single pattern: a backslash at the very end, a mistake
// elsewhere, is itself.
std::optional<std::string> AsString(std::string_view alternative, bool is_last) {
  std::string text;
  for (size_t i = 0; i < alternative.size(); ++i) {
    if (std::strchr("$*.[^", alternative[i]) != nullptr) return std::nullopt;
    if (alternative[i] == '\\') {
      if (i + 1 == alternative.size()) {
        if (!is_last) return std::nullopt;
      } else {
        ++i;
        if (std::strchr("BSW'<bsw`>123456789(+?{|)", alternative[i]) != nullptr) {
          return std::nullopt;
        }
      }
    }
    text += alternative[i];
  }
  return text;
}

std::optional<std::vector<std::string>> AsStrings(const std::vector<std::string>& alternatives) {
  std::vector<std::string> strings;
  for (const std::string& one : alternatives) {
    std::optional<std::string> text = AsString(one, &one == &alternatives.back());
    if (!text.has_value()) return std::nullopt;
    strings.push_back(*std::move(text));
  }
  return strings;
}

// grep's own quick test, which takes `[\2]` for a back reference too; it decides only how the
// alternatives are grouped for glibc.
bool MayReferBack(std::string_view alternative) {
  for (size_t i = 0; i + 1 < alternative.size(); ++i) {
    if (alternative[i] != '\\') continue;
    if (alternative[i + 1] >= '1' && alternative[i + 1] <= '9') return true;
    if (alternative[i + 1] == '\\') ++i;
  }
  return false;
}

bool HasBytes(const Bre& tree) {
  std::vector<uint32_t> todo = {tree.root};
  while (!todo.empty()) {
    const BreNode& node = tree.nodes[todo.back()];
    todo.pop_back();
    if (node.op == BreOp::kSet) return true;
    todo.insert(todo.end(), node.children.begin(), node.children.end());
  }
  return false;
}

// The regular expressions that decide together: the alternatives without back references as one,
// each of the others alone, as a reference counts the groups of its own alternative.
absl::StatusOr<std::vector<GlibcRegex>> CompileForGlibc(
    const std::vector<std::string>& alternatives) {
  std::vector<std::string> plain;
  std::vector<std::string> patterns;
  for (const std::string& one : alternatives) {
    (MayReferBack(one) ? patterns : plain).push_back(one);
  }
  if (!plain.empty()) patterns.insert(patterns.begin(), JoinLines(plain));
  std::vector<GlibcRegex> regexes;
  for (const std::string& pattern : patterns) {
    absl::StatusOr<GlibcRegex> regex = GlibcRegex::Compile(pattern);
    if (!regex.ok()) return regex.status();
    regexes.push_back(*std::move(regex));
  }
  return regexes;
}

size_t LineBegin(std::string_view lines, size_t from, size_t at) {
  const void* const newline = memrchr(lines.data() + from, '\n', at - from);
  return newline == nullptr
             ? from
             : static_cast<size_t>(static_cast<const char*>(newline) - lines.data()) + 1;
}

LineFinder::Line LineAround(std::string_view lines, size_t from, size_t at) {
  return {LineBegin(lines, from, at), lines.find('\n', at) + 1};
}

size_t FindString(std::string_view lines, size_t from, const std::string& text) {
  const void* const found =
      memmem(lines.data() + from, lines.size() - from, text.data(), text.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - lines.data());
}

}  // namespace

absl::StatusOr<LineFinder> LineFinder::Compile(std::string_view pattern) {
  if (pattern.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError("the pattern has a NUL byte");
  }
  if (pattern.size() > kPatternBytesMax) {
    return absl::ResourceExhaustedError("the pattern is longer than 64 KiB");
  }
  LineFinder finder;
  if (absl::Status status = finder.Prepare(SplitAlternatives(pattern)); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::optional<Line>> empty_line = finder.Find("\n", 0);
  if (!empty_line.ok()) return empty_line.status();
  finder.matches_empty_line_ = empty_line->has_value();
  return finder;
}

absl::Status LineFinder::Prepare(const std::vector<std::string>& alternatives) {
  if (alternatives.size() > 1) {
    if (const auto strings = AsStrings(alternatives); strings.has_value()) {
      dfa_.emplace(TreeOfStrings(*strings));
      return absl::OkStatus();
    }
  }
  absl::StatusOr<Bre> tree = ParseBre(JoinLines(alternatives));
  // The bounds come first: glibc is not to see what is beyond them.
  if (absl::IsResourceExhausted(tree.status())) return tree.status();
  for (const std::string& one : alternatives) {
    if (absl::Status status = GlibcRegex::Check(one); !status.ok()) return status;
  }
  if (!tree.ok()) return tree.status();

  Required required = RequiredBy(*tree, tree->root);
  required_ = std::move(required.longest);
  is_string_ = required.is_exact;
  if (is_string_) return absl::OkStatus();
  if (!HasUnknown(*tree)) {
    dfa_.emplace(*tree);
    return absl::OkStatus();
  }
  // Like grep, which has no automaton for an expression of references and assertions alone.
  if (HasBytes(*tree)) dfa_.emplace(*tree);
  absl::StatusOr<std::vector<GlibcRegex>> regexes = CompileForGlibc(alternatives);
  if (!regexes.ok()) return regexes.status();
  regexes_ = *std::move(regexes);
  return absl::OkStatus();
}

void LineFinder::CountSkip(size_t bytes) {
  ++candidates_;
  skipped_bytes_ += bytes;
  if (candidates_ < kCandidatesToJudge) return;
  if (skipped_bytes_ < kCandidatesToJudge * kWorthwhileSkipBytes && dfa_.has_value()) {
    required_.clear();
  }
  candidates_ = 0;
  skipped_bytes_ = 0;
}

std::optional<LineFinder::Line> LineFinder::FindPossible(std::string_view lines, size_t from) {
  while (from < lines.size()) {
    Line line = {from, lines.size()};
    if (!required_.empty()) {
      const size_t at = FindString(lines, from, required_);
      if (at == std::string_view::npos) return std::nullopt;
      line = LineAround(lines, from, at);
      if (is_string_) return line;
      CountSkip(line.begin - from);
    }
    if (is_string_ || !dfa_.has_value()) return LineAround(lines, line.begin, line.begin);
    const std::string_view candidates = lines.substr(line.begin, line.end - line.begin);
    const size_t at = dfa_->Find(candidates);
    if (at != LineDfa::kNotFound) return LineAround(lines, line.begin, line.begin + at);
    from = line.end;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<LineFinder::Line>> LineFinder::Find(std::string_view lines,
                                                                 size_t from) {
  for (;;) {
    const std::optional<Line> line = FindPossible(lines, from);
    if (!line.has_value() || regexes_.empty()) return line;
    const std::string_view text = lines.substr(line->begin, line->end - line->begin - 1);
    for (const GlibcRegex& regex : regexes_) {
      const absl::StatusOr<bool> matches = regex.Matches(text);
      if (!matches.ok()) return matches.status();
      if (*matches) return line;
    }
    from = line->end;
  }
}

}  // namespace abacus::apps
