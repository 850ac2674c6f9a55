#ifndef ABACUS_APPS_GREP_BRE_H_
#define ABACUS_APPS_GREP_BRE_H_

// Basic regular expressions with the GNU extensions, as a tree.
//
// The grammar is what GNU grep 3.8 decides lines with in the C locale. That is not always what
// glibc's regcomp makes of the same text (`x\<*` repeats the assertion for grep and is a literal
// star for glibc; `a$)` ends the line for grep), which is why there is a parser here although
// glibc's is used to check patterns first.
//
// Thread-safety: plain data and a pure function. Blocking: no.

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace abacus::apps {

using ByteSet = std::bitset<256>;

enum class BreOp : uint8_t {
  kEmpty,      // matches the empty string
  kSet,        // one byte of `set`
  kUnknown,    // a back reference, or a bracket expression that only glibc can decide
  kLineStart,  // assertions, of no width
  kLineEnd,
  kWordStart,
  kWordEnd,
  kWordEdge,
  kNotWordEdge,
  kSequence,      // all of `children`, one after the other
  kAlternatives,  // one of `children`
  kRepeat,        // children[0], `min` to `max` times
};

struct BreNode {
  static constexpr int kNoMax = -1;

  BreOp op = BreOp::kEmpty;
  int min = 0;
  int max = kNoMax;
  uint32_t set = 0;                // kSet: index in Bre::sets
  std::vector<uint32_t> children;  // indices in Bre::nodes

  // What a compiler makes of the node that writes repetitions out (glibc's does, and `\+` doubles
  // its operand): how many nodes, and how many of them are repetitions and alternatives.
  uint64_t written_nodes = 0;
  uint64_t written_operators = 0;
};

struct Bre {
  std::vector<BreNode> nodes;
  std::vector<ByteSet> sets;  // no set has '\n' or NUL: neither is ever inside a line
  uint32_t root = 0;
};

// Bounds of what a pattern may be. Compiling takes memory quadratic in the operators and
// exponential in nested repetitions, so that without bounds a pattern of 100 bytes ends the
// process.
inline constexpr size_t kPatternBytesMax = 64 * 1024;
inline constexpr int kGroupDepthMax = 250;
inline constexpr uint64_t kPatternNodesMax = uint64_t{1} << 17;  // repetitions written out
inline constexpr uint64_t kPatternOperatorsMax = 1000;  // likewise: repetitions and alternatives

// Parses `pattern`; a newline in it separates alternatives.
// Errors: kInvalidArgument   - not a pattern; the message is grep's.
//         kResourceExhausted - beyond one of the bounds above.
absl::StatusOr<Bre> ParseBre(std::string_view pattern);

// The tree of "one of these strings". They are within kPatternBytesMax together.
Bre TreeOfStrings(const std::vector<std::string>& strings);

// Whether `tree` has a node that glibc must decide.
bool HasUnknown(const Bre& tree);

// The bytes that count as parts of words: letters, digits and the underscore.
const ByteSet& WordBytes();

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_BRE_H_
