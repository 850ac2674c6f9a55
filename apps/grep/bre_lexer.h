#ifndef ABACUS_APPS_GREP_BRE_LEXER_H_
#define ABACUS_APPS_GREP_BRE_LEXER_H_

// Cuts a basic regular expression into tokens, by the rules of GNU grep 3.8 in the C locale.
// Part of the parser in bre.cc; nobody else needs it. Thread-compatible.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "apps/grep/bre.h"

namespace abacus::apps {

enum class BreTokenKind : uint8_t {
  kEnd,
  kSet,  // a single byte is a set too
  kUnknown,
  kLineStart,
  kLineEnd,
  kWordStart,
  kWordEnd,
  kWordEdge,
  kNotWordEdge,
  kRepeat,  // * \+ \? \{m,n\}
  kOr,
  kOpen,
  kClose,
};

struct BreToken {
  BreTokenKind kind = BreTokenKind::kEnd;
  ByteSet set;  // kSet
  int min = 0;  // kRepeat
  int max = BreNode::kNoMax;
};

class BreLexer {
 public:
  // `pattern` outlives the lexer.
  explicit BreLexer(std::string_view pattern) : text_(pattern) {}

  // The next token; kEnd at the end and after an error.
  BreToken Next();

  // OK, or the first mistake met.
  const absl::Status& status() const { return status_; }

 private:
  size_t left() const { return text_.size() - at_; }

  BreToken Lex();
  BreToken LexEscape();
  BreToken LexInterval();
  BreToken LexBracket();
  bool LexBracketClass(int kind, ByteSet* set);
  bool DollarEndsLine() const;
  int FetchInBracket();
  BreToken Literal(unsigned char byte);
  BreToken Fail(std::string_view message);

  std::string_view text_;
  size_t at_ = 0;
  BreTokenKind last_ = BreTokenKind::kEnd;
  bool at_start_ = true;  // a repetition here has nothing to repeat, and is literal
  absl::Status status_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_BRE_LEXER_H_
