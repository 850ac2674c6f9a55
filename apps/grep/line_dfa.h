#ifndef ABACUS_APPS_GREP_LINE_DFA_H_
#define ABACUS_APPS_GREP_LINE_DFA_H_

// Finds the first line of a text that an expression matches, in one pass over the bytes.
//
// A deterministic automaton whose states are made when the text first needs them, so that time is
// linear in the text whatever the pattern is (glibc's matcher starts over at each byte of a line:
// quadratic on long lines). It runs over line ends without stopping, so short lines cost nothing
// extra. Assertions (`^`, `\<`, ...) are decided when the byte behind them is known; a state
// remembers what the byte in front of it was.
//
// What it cannot decide (BreOp::kUnknown) counts as "any bytes": the lines found are then a
// superset, which the caller narrows down.
//
// Limits: the states are bounded by kDfaTableBytesMax and all dropped when they reach it, which
// costs time but no correctness.
// Thread-safety: thread-compatible; Find makes states. Blocking: no.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/grep/bre.h"

namespace abacus::apps {

inline constexpr size_t kDfaTableBytesMax = size_t{4} << 20;

class LineDfa {
 public:
  static constexpr size_t kNotFound = std::string_view::npos;

  // `tree` is within the bounds of bre.h, and is not kept.
  explicit LineDfa(const Bre& tree);

  // Searches `lines`, which is whole lines: empty, or its last byte is '\n'. Returns the position
  // of a byte (perhaps the '\n') of the first line that matches, or kNotFound.
  size_t Find(std::string_view lines);

  // How many states exist now, and how often they were dropped; for tests.
  size_t states() const { return states_.size(); }
  uint64_t resets() const { return resets_; }

 private:
  // What stands in front of a position, or behind it.
  enum class Context : uint8_t { kLineEdge, kWord, kOther };

  enum class NodeKind : uint8_t { kBytes, kSplit, kAssert, kAccept };

  // An automaton with empty moves: kBytes reads a byte of a set and goes to `next`; kSplit goes to
  // `next` and `other`; kAssert goes to `next` where its assertion holds.
  struct Node {
    NodeKind kind;
    BreOp assertion = BreOp::kEmpty;
    uint32_t set = 0;
    uint32_t next = 0;
    uint32_t other = 0;
  };

  // A state of the deterministic automaton: the kBytes and kAssert nodes that are reached, sorted.
  struct State {
    Context before;
    std::vector<uint32_t> nodes;
  };

  // Table entries: the first index of the next state's row, or one of these.
  enum : uint32_t { kUnmade = 0, kMatch = 1, kDead = 2, kSpecials = 3 };

  enum class Verdict : uint8_t { kHolds, kFails, kOpen };

  class Builder;

  static Context ContextOf(uint8_t byte);
  static bool Holds(BreOp assertion, Context before, Context after);
  // What can be said without knowing the byte behind.
  static Verdict Judge(BreOp assertion, Context before);

  void MakeClasses();
  void Reset();
  // The row of the state with the nodes in `reached_`; kDead if nothing more of the line matters.
  uint32_t Intern(Context before);
  // The row that lines start in, or kMatch or kDead.
  uint32_t StartRow();
  uint32_t MakeMove(uint32_t row, uint8_t byte);
  uint32_t ComputeMove(State state, uint8_t byte);
  void BeginSet();
  // Follows empty moves from `node`, adding to `reached_`. Assertions that need the byte behind are
  // decided by `*after` or, where that is null, reached themselves. Returns whether acceptance was
  // reached; the set is then of no further use.
  bool Close(uint32_t node, Context before, const Context* after);

  std::vector<Node> nodes_;
  uint32_t start_ = 0;
  bool may_start_inside_line_ = false;  // not so if all begins with `^`
  std::vector<ByteSet> sets_;

  std::array<uint8_t, 256> class_of_ = {};
  uint32_t classes_ = 0;  // a row's length

  std::vector<uint32_t> table_;  // kSpecials unused entries first: no row starts at a special
  std::vector<State> states_;
  std::unordered_map<std::string, uint32_t> rows_by_key_;
  uint32_t start_row_ = kUnmade;
  size_t states_bytes_ = 0;
  uint64_t resets_ = 0;

  std::vector<uint32_t> seen_;  // by node: the number of the set it was last added to
  uint32_t set_number_ = 0;
  std::vector<uint32_t> reached_;
  std::vector<uint32_t> stack_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_GREP_LINE_DFA_H_
