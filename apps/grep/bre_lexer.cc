#include "apps/grep/bre_lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/string_view.h"

namespace abacus::apps {
namespace {

using Kind = BreTokenKind;

constexpr int kNothing = -1;        // no byte
constexpr int kRepeatMax = 0x7fff;  // RE_DUP_MAX
constexpr char kUnbalancedBracket[] = "unbalanced [";

bool IsDigit(unsigned char c) { return c >= '0' && c <= '9'; }
bool IsUpper(unsigned char c) { return c >= 'A' && c <= 'Z'; }
bool IsLower(unsigned char c) { return c >= 'a' && c <= 'z'; }
bool IsAlpha(unsigned char c) { return IsUpper(c) || IsLower(c); }
bool IsAlnum(unsigned char c) { return IsAlpha(c) || IsDigit(c); }
bool IsGraph(unsigned char c) { return c > ' ' && c < 0x7f; }
bool IsBlank(unsigned char c) { return c == ' ' || c == '\t'; }
bool IsSpace(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsCntrl(unsigned char c) { return c < ' ' || c == 0x7f; }
bool IsPrint(unsigned char c) { return c >= ' ' && c < 0x7f; }
bool IsPunct(unsigned char c) { return IsGraph(c) && !IsAlnum(c); }
bool IsXdigit(unsigned char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool IsWord(unsigned char c) { return IsAlnum(c) || c == '_'; }

// The classes of the C locale, spelled out: the process's own locale must not change a search.
struct NamedClass {
  std::string_view name;
  bool (*contains)(unsigned char);
};
constexpr std::array<NamedClass, 12> kClasses = {{{"alpha", IsAlpha},
                                                  {"upper", IsUpper},
                                                  {"lower", IsLower},
                                                  {"digit", IsDigit},
                                                  {"xdigit", IsXdigit},
                                                  {"space", IsSpace},
                                                  {"punct", IsPunct},
                                                  {"alnum", IsAlnum},
                                                  {"print", IsPrint},
                                                  {"graph", IsGraph},
                                                  {"cntrl", IsCntrl},
                                                  {"blank", IsBlank}}};

ByteSet SetOf(bool (*contains)(unsigned char)) {
  ByteSet set;
  for (int c = 0; c < 256; ++c) set[c] = contains(static_cast<unsigned char>(c));
  return set;
}

BreToken TokenOf(Kind kind) {
  BreToken token;
  token.kind = kind;
  return token;
}

BreToken SetToken(ByteSet set) {
  set['\n'] = false;
  set['\0'] = false;
  BreToken token = TokenOf(Kind::kSet);
  token.set = set;
  return token;
}

BreToken RepeatToken(int min, int max) {
  BreToken token = TokenOf(Kind::kRepeat);
  token.min = min;
  token.max = max;
  return token;
}

}  // namespace

BreToken BreLexer::Fail(std::string_view message) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::string_view(message.data(), message.size()));
  }
  at_ = text_.size();
  return TokenOf(Kind::kEnd);
}

BreToken BreLexer::Literal(unsigned char byte) {
  at_start_ = false;
  ByteSet set;
  set[byte] = true;
  return SetToken(set);
}

BreToken BreLexer::Next() {
  BreToken token = Lex();
  last_ = token.kind;
  switch (token.kind) {
    case Kind::kOr:
    case Kind::kOpen:
      at_start_ = true;
      break;
    case Kind::kSet:
    case Kind::kUnknown:
    case Kind::kClose:
      at_start_ = false;
      break;
    default:
      // Assertions leave it alone: the star of `^*` is literal and that of `x\<*` repeats.
      break;
  }
  return token;
}

BreToken BreLexer::Lex() {
  if (left() == 0) return TokenOf(Kind::kEnd);
  const unsigned char c = text_[at_++];
  switch (c) {
    case '\\':
      return LexEscape();
    case '^':
      if (last_ == Kind::kEnd || last_ == Kind::kOpen || last_ == Kind::kOr) {
        return TokenOf(Kind::kLineStart);
      }
      return Literal(c);
    case '$':
      return DollarEndsLine() ? TokenOf(Kind::kLineEnd) : Literal(c);
    case '*':
      return at_start_ ? Literal(c) : RepeatToken(0, BreNode::kNoMax);
    case '\n':
      return TokenOf(Kind::kOr);
    case '.':
      return SetToken(ByteSet().set());
    case '[':
      return LexBracket();
    default:
      return Literal(c);
  }
}

// grep looks for `\)` or `\|` behind the dollar, but takes `)` and `|` for them too.
bool BreLexer::DollarEndsLine() const {
  if (left() == 0 || text_[at_] == '\n') return true;
  if (left() == 1) return false;
  const char next = text_[at_] == '\\' ? text_[at_ + 1] : text_[at_];
  return next == ')' || next == '|';
}

BreToken BreLexer::LexEscape() {
  if (left() == 0) return Fail("unfinished \\ escape");
  const unsigned char c = text_[at_++];
  switch (c) {
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
      return TokenOf(Kind::kUnknown);
    case '`':
      return TokenOf(Kind::kLineStart);  // a line is the whole text that is searched
    case '\'':
      return TokenOf(Kind::kLineEnd);
    case '<':
      return TokenOf(Kind::kWordStart);
    case '>':
      return TokenOf(Kind::kWordEnd);
    case 'b':
      return TokenOf(Kind::kWordEdge);
    case 'B':
      return TokenOf(Kind::kNotWordEdge);
    case '?':
      return at_start_ ? Literal(c) : RepeatToken(0, 1);
    case '+':
      return at_start_ ? Literal(c) : RepeatToken(1, BreNode::kNoMax);
    case '{':
      return LexInterval();
    case '|':
      return TokenOf(Kind::kOr);
    case '(':
      return TokenOf(Kind::kOpen);
    case ')':
      return TokenOf(Kind::kClose);
    case 's':
      return SetToken(SetOf(IsSpace));
    case 'S':
      return SetToken(~SetOf(IsSpace));
    case 'w':
      return SetToken(WordBytes());
    case 'W':
      return SetToken(~WordBytes());
    default:
      return Literal(c);
  }
}

// Behind `\{`. Where there is nothing to repeat the brace is literal, whatever follows it.
BreToken BreLexer::LexInterval() {
  size_t at = at_;
  const auto number = [&](int none) {
    int value = none;
    for (; at < text_.size() && IsDigit(text_[at]); ++at) {
      value = std::min(kRepeatMax + 1, std::max(value, 0) * 10 + (text_[at] - '0'));
    }
    return value;
  };
  if (at_start_) return Literal('{');
  int min = number(kNothing);
  int max = min;
  if (at < text_.size() && text_[at] == ',') {
    ++at;
    min = std::max(min, 0);
    max = number(BreNode::kNoMax);
  }
  const bool closed = text_.substr(at, 2) == "\\}";
  if (!closed || min < 0 || (max >= 0 && min > max)) return Fail("invalid content of \\{\\}");
  if (max > kRepeatMax || min > kRepeatMax) return Fail("regular expression too big");
  at_ = at + 2;
  at_start_ = false;
  return RepeatToken(min, max);
}

int BreLexer::FetchInBracket() {
  if (left() == 0) {
    Fail(kUnbalancedBracket);
    return kNothing;
  }
  return static_cast<unsigned char>(text_[at_++]);
}

// Behind `[:`, `[.` or `[=` inside a bracket expression (`kind` is the second byte): reads to the
// closing pair and adds the class to `*set`. False for what only glibc can decide.
bool BreLexer::LexBracketClass(int kind, ByteSet* set) {
  std::string name;
  for (;;) {
    const int c = FetchInBracket();
    if (left() == 0 || (c == kind && text_[at_] == ']')) break;
    name.push_back(static_cast<char>(c));
  }
  FetchInBracket();
  if (kind != ':') return false;
  for (const NamedClass& named : kClasses) {
    if (named.name == name) {
      *set |= SetOf(named.contains);
      return true;
    }
  }
  Fail("invalid character class");
  return true;
}

// Behind `[`. `c` is the byte at hand and `next` the one after it, where it is known already.
BreToken BreLexer::LexBracket() {
  ByteSet set;
  bool known = true;
  int c = FetchInBracket();
  const bool invert = c == '^';
  if (invert) c = FetchInBracket();
  // For telling `[:space:]` from `[[:space:]]`, a mistake that grep does not accept.
  const bool starts_with_colon = c == ':';
  bool ends_with_colon = false;
  bool has_other_byte = false;
  bool has_range_or_class = false;
  do {
    int next = kNothing;
    ends_with_colon = false;
    if (c == '[') {
      next = FetchInBracket();
      if (next == ':' || next == '.' || next == '=') {
        known = LexBracketClass(next, &set) && known;
        has_range_or_class = true;
        c = FetchInBracket();
        continue;
      }
    }
    if (next == kNothing) next = FetchInBracket();
    if (next == '-') {
      int last = FetchInBracket();
      // A range up to a collating element: both are taken for members, and the element makes the
      // whole unknown.
      if (last == '[' && left() != 0 && text_[at_] == '.') last = ']';
      if (last == ']') {
        --at_;  // the hyphen is literal, and comes next
      } else {
        has_range_or_class = true;
        next = FetchInBracket();
        if (c != last) {
          for (int byte = std::max(c, 0); byte <= last; ++byte) set[byte] = true;
          c = next;
          continue;
        }
      }
    }
    (c == ':' ? ends_with_colon : has_other_byte) = true;
    if (c >= 0) set[c] = true;
    c = next;
  } while (c != ']' && status_.ok());
  if (!status_.ok()) return TokenOf(Kind::kEnd);
  if (starts_with_colon && ends_with_colon && has_other_byte && !has_range_or_class) {
    return Fail("character class syntax is [[:space:]], not [:space:]");
  }
  if (!known) return TokenOf(Kind::kUnknown);
  return SetToken(invert ? ~set : set);
}

const ByteSet& WordBytes() {
  static const ByteSet kWordBytes = SetOf(IsWord);
  return kWordBytes;
}

}  // namespace abacus::apps
