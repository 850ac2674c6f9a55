#include "apps/grep/bre.h"

#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "apps/grep/bre_lexer.h"

namespace abacus::apps {
namespace {

using Kind = BreTokenKind;

uint64_t SaturatedProduct(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? ~uint64_t{0} / 2 : product;
}

// A repetition of "none or one", "any number" or "at least one": two of these in a row are a third.
bool IsSimple(int min, int max) { return min <= 1 && (max == BreNode::kNoMax || max == 1); }

// Recursive descent, one function a level of the grammar; the depth is bounded by kGroupDepthMax.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : lexer_(pattern) {}

  absl::StatusOr<Bre> Parse() {
    Advance();
    tree_.root = ParseAlternatives();
    if (!status_.ok()) return status_;
    if (!lexer_.status().ok()) return lexer_.status();
    if (token_.kind != Kind::kEnd) return absl::InvalidArgumentError("unbalanced )");
    return std::move(tree_);
  }

 private:
  void Advance() { token_ = status_.ok() ? lexer_.Next() : BreToken(); }

  uint32_t Add(BreNode node) {
    if (node.written_nodes > kPatternNodesMax) {
      Refuse("the pattern's repetitions make it too large");
    } else if (node.written_operators > kPatternOperatorsMax) {
      Refuse("the pattern has too many repetitions and alternatives");
    }
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }

  // Ends the parse: to all functions the pattern ends here.
  void Refuse(std::string_view why) {
    if (status_.ok()) {
      status_ = absl::ResourceExhaustedError(absl::string_view(why.data(), why.size()));
    }
    token_ = BreToken();
  }

  uint32_t AddSet(const ByteSet& set) {
    const auto [at, is_new] = set_indices_.try_emplace(set, tree_.sets.size());
    if (is_new) tree_.sets.push_back(set);
    BreNode node;
    node.op = BreOp::kSet;
    node.set = static_cast<uint32_t>(at->second);
    node.written_nodes = 1;
    return Add(std::move(node));
  }

  // A list of one is the one.
  uint32_t AddList(BreOp op, std::vector<uint32_t> children) {
    if (children.size() == 1) return children[0];
    BreNode node;
    node.op = op;
    node.written_nodes = children.size();
    node.written_operators = op == BreOp::kAlternatives ? children.size() - 1 : 0;
    for (const uint32_t child : children) {
      node.written_nodes += tree_.nodes[child].written_nodes;
      node.written_operators += tree_.nodes[child].written_operators;
    }
    node.children = std::move(children);
    return Add(std::move(node));
  }

  uint32_t AddRepeat(int min, int max, uint32_t child) {
    if (min == 1 && max == 1) return child;
    const BreNode& inner = tree_.nodes[child];
    const bool repeats_once_more = min == 0 && max == BreNode::kNoMax;
    const uint64_t copies = repeats_once_more ? 1 : max == BreNode::kNoMax ? min + 1 : max;
    BreNode node;
    node.op = BreOp::kRepeat;
    node.written_nodes = SaturatedProduct(inner.written_nodes + 1, copies);
    node.written_operators = SaturatedProduct(inner.written_operators, copies) +
                             (max == BreNode::kNoMax ? 1 : max - min);
    node.min = min;
    node.max = max;
    node.children = {child};
    // `x*\+\?` is `x*`: collapsed, so that the tree is not as deep as a run of stars is long.
    if (inner.op == BreOp::kRepeat && IsSimple(inner.min, inner.max) && IsSimple(min, max)) {
      node.min = inner.min * min;
      node.max = inner.max == BreNode::kNoMax || max == BreNode::kNoMax ? BreNode::kNoMax : 1;
      node.children = inner.children;
    }
    return Add(std::move(node));
  }

  uint32_t ParseAlternatives() {
    std::vector<uint32_t> branches = {ParseSequence()};
    while (token_.kind == Kind::kOr) {
      Advance();
      branches.push_back(ParseSequence());
    }
    return AddList(BreOp::kAlternatives, std::move(branches));
  }

  uint32_t ParseSequence() {
    std::vector<uint32_t> parts = {ParseRepeated()};
    while (token_.kind != Kind::kClose && token_.kind != Kind::kOr && token_.kind != Kind::kEnd) {
      parts.push_back(ParseRepeated());
    }
    return AddList(BreOp::kSequence, std::move(parts));
  }

  uint32_t ParseRepeated() {
    uint32_t atom = ParseAtom();
    while (token_.kind == Kind::kRepeat) {
      const BreToken repeat = token_;
      Advance();
      if (repeat.max == 0) {
        // `x\{0\}` is as good as absent: the next atom takes its place.
        atom = ParseAtom();
        continue;
      }
      atom = AddRepeat(repeat.min, repeat.max, atom);
    }
    return atom;
  }

  uint32_t ParseAtom() {
    BreNode node;
    node.written_nodes = 1;
    switch (token_.kind) {
      case Kind::kSet: {
        const uint32_t atom = AddSet(token_.set);
        Advance();
        return atom;
      }
      case Kind::kOpen:
        return ParseGroup();
      case Kind::kUnknown:
        node.op = BreOp::kUnknown;
        break;
      case Kind::kLineStart:
        node.op = BreOp::kLineStart;
        break;
      case Kind::kLineEnd:
        node.op = BreOp::kLineEnd;
        break;
      case Kind::kWordStart:
        node.op = BreOp::kWordStart;
        break;
      case Kind::kWordEnd:
        node.op = BreOp::kWordEnd;
        break;
      case Kind::kWordEdge:
        node.op = BreOp::kWordEdge;
        break;
      case Kind::kNotWordEdge:
        node.op = BreOp::kNotWordEdge;
        break;
      case Kind::kRepeat:
      case Kind::kOr:
      case Kind::kClose:
      case Kind::kEnd:
        return Add(std::move(node));  // nothing stands here: the empty string
    }
    Advance();
    return Add(std::move(node));
  }

  uint32_t ParseGroup() {
    if (depth_ == kGroupDepthMax) {
      Refuse("groups are nested too deeply in the pattern");
      return 0;
    }
    ++depth_;
    Advance();
    const uint32_t inner = ParseAlternatives();
    --depth_;
    if (token_.kind != Kind::kClose) {
      if (status_.ok() && lexer_.status().ok()) {
        status_ = absl::InvalidArgumentError("unbalanced (");
      }
      token_ = BreToken();
      return inner;
    }
    Advance();
    return inner;
  }

  BreLexer lexer_;
  BreToken token_;
  Bre tree_;
  std::unordered_map<ByteSet, size_t> set_indices_;
  int depth_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Bre> ParseBre(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return absl::ResourceExhaustedError("the pattern is longer than 64 KiB");
  }
  return Parser(pattern).Parse();
}

Bre TreeOfStrings(const std::vector<std::string>& strings) {
  Bre tree;
  for (int c = 0; c < 256; ++c) tree.sets.push_back(ByteSet().set(c));
  BreNode any_of;
  any_of.op = BreOp::kAlternatives;
  for (const std::string& text : strings) {
    BreNode all_of;
    all_of.op = BreOp::kSequence;
    for (const char c : text) {
      BreNode byte;
      byte.op = BreOp::kSet;
      byte.set = static_cast<unsigned char>(c);
      all_of.children.push_back(static_cast<uint32_t>(tree.nodes.size()));
      tree.nodes.push_back(std::move(byte));
    }
    any_of.children.push_back(static_cast<uint32_t>(tree.nodes.size()));
    tree.nodes.push_back(std::move(all_of));
  }
  tree.root = static_cast<uint32_t>(tree.nodes.size());
  tree.nodes.push_back(std::move(any_of));
  return tree;
}

bool HasUnknown(const Bre& tree) {
  // Nodes that `\{0\}` cut off stay in the vector, so the tree is walked.
  std::vector<uint32_t> todo = {tree.root};
  while (!todo.empty()) {
    const BreNode& node = tree.nodes[todo.back()];
    todo.pop_back();
    if (node.op == BreOp::kUnknown) return true;
    todo.insert(todo.end(), node.children.begin(), node.children.end());
  }
  return false;
}

}  // namespace abacus::apps
