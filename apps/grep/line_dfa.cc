#include "apps/grep/line_dfa.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace abacus::apps {

// Writes the tree out as nodes, from its end to its start: each part is told what comes after it.
class LineDfa::Builder {
 public:
  Builder(const Bre& tree, LineDfa* dfa) : tree_(tree), dfa_(*dfa) {}

  void Build() {
    dfa_.sets_ = tree_.sets;
    any_set_ = static_cast<uint32_t>(dfa_.sets_.size());
    dfa_.sets_.push_back(ByteSet().set().reset('\n'));
    const uint32_t accept = Add({NodeKind::kAccept});
    dfa_.start_ = Write(tree_.root, accept);
    dfa_.seen_.resize(dfa_.nodes_.size());
  }

 private:
  uint32_t Add(Node node) {
    dfa_.nodes_.push_back(node);
    return static_cast<uint32_t>(dfa_.nodes_.size() - 1);
  }
  uint32_t AddBytes(uint32_t set, uint32_t next) {
    return Add({NodeKind::kBytes, BreOp::kEmpty, set, next});
  }
  uint32_t AddSplit(uint32_t next, uint32_t other) {
    return Add({NodeKind::kSplit, BreOp::kEmpty, 0, next, other});
  }

  uint32_t Write(uint32_t index, uint32_t next) {
    const BreNode& node = tree_.nodes[index];
    switch (node.op) {
      case BreOp::kEmpty:
        return next;
      case BreOp::kSet:
        return AddBytes(node.set, next);
      case BreOp::kUnknown: {
        const uint32_t loop = AddSplit(next, next);
        const uint32_t byte = AddBytes(any_set_, loop);
        dfa_.nodes_[loop].other = byte;
        return loop;
      }
      case BreOp::kSequence:
        for (size_t i = node.children.size(); i-- > 0;) next = Write(node.children[i], next);
        return next;
      case BreOp::kAlternatives: {
        if (node.children.empty()) return next;
        uint32_t entry = Write(node.children.back(), next);
        for (size_t i = node.children.size() - 1; i-- > 0;) {
          entry = AddSplit(Write(node.children[i], next), entry);
        }
        return entry;
      }
      case BreOp::kRepeat:
        return WriteRepeat(node, next);
      default:
        return Add({NodeKind::kAssert, node.op, 0, next});
    }
  }

  uint32_t WriteRepeat(const BreNode& node, uint32_t next) {
    const uint32_t child = node.children[0];
    uint32_t entry = next;
    int still_required = node.min;
    if (node.max == BreNode::kNoMax) {
      const uint32_t loop = AddSplit(next, next);
      const uint32_t body = Write(child, loop);
      dfa_.nodes_[loop].other = body;
      // The loop's own body serves as one of the required copies.
      entry = still_required > 0 ? body : loop;
      still_required = std::max(0, still_required - 1);
    } else {
      for (int i = node.min; i < node.max; ++i) entry = AddSplit(Write(child, entry), next);
    }
    for (; still_required > 0; --still_required) entry = Write(child, entry);
    return entry;
  }

  const Bre& tree_;
  LineDfa& dfa_;
  uint32_t any_set_ = 0;
};

LineDfa::LineDfa(const Bre& tree) {
  Builder(tree, this).Build();
  MakeClasses();
  for (const Context before : {Context::kWord, Context::kOther}) {
    BeginSet();
    may_start_inside_line_ |= Close(start_, before, nullptr) || !reached_.empty();
  }
  Reset();
}

// Bytes that no set and no assertion tells apart share a column of the table.
void LineDfa::MakeClasses() {
  class_of_.fill(0);
  int classes = 1;
  const auto split_by = [&](const ByteSet& set) {
    std::array<int, 256> inside;
    inside.fill(-1);
    std::array<bool, 256> has_outside = {};
    for (int c = 0; c < 256; ++c) {
      if (!set[c]) has_outside[class_of_[c]] = true;
    }
    for (int c = 0; c < 256; ++c) {
      const uint8_t old = class_of_[c];
      if (!set[c] || !has_outside[old]) continue;
      if (inside[old] < 0) inside[old] = classes++;
      class_of_[c] = static_cast<uint8_t>(inside[old]);
    }
  };
  split_by(ByteSet().set('\n'));
  std::vector<bool> used(sets_.size());
  bool has_assertions = false;
  for (const Node& node : nodes_) {
    if (node.kind == NodeKind::kBytes) used[node.set] = true;
    has_assertions |= node.kind == NodeKind::kAssert;
  }
  if (has_assertions) split_by(WordBytes());
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (used[i]) split_by(sets_[i]);
  }
  classes_ = static_cast<uint32_t>(classes);
}

void LineDfa::Reset() {
  states_.clear();
  rows_by_key_.clear();
  table_.assign(kSpecials, kUnmade);
  start_row_ = kUnmade;
  states_bytes_ = 0;
}

LineDfa::Context LineDfa::ContextOf(uint8_t byte) {
  if (byte == '\n') return Context::kLineEdge;
  return WordBytes()[byte] ? Context::kWord : Context::kOther;
}

LineDfa::Verdict LineDfa::Judge(BreOp assertion, Context before) {
  const bool word_before = before == Context::kWord;
  switch (assertion) {
    case BreOp::kLineStart:
      return before == Context::kLineEdge ? Verdict::kHolds : Verdict::kFails;
    case BreOp::kWordStart:
      return word_before ? Verdict::kFails : Verdict::kOpen;
    case BreOp::kWordEnd:
      return word_before ? Verdict::kOpen : Verdict::kFails;
    default:
      return Verdict::kOpen;
  }
}

bool LineDfa::Holds(BreOp assertion, Context before, Context after) {
  const bool word_before = before == Context::kWord;
  const bool word_after = after == Context::kWord;
  switch (assertion) {
    case BreOp::kLineStart:
      return before == Context::kLineEdge;
    case BreOp::kLineEnd:
      return after == Context::kLineEdge;
    case BreOp::kWordStart:
      return !word_before && word_after;
    case BreOp::kWordEnd:
      return word_before && !word_after;
    case BreOp::kWordEdge:
      return word_before != word_after;
    default:
      return word_before == word_after;
  }
}

void LineDfa::BeginSet() {
  reached_.clear();
  if (++set_number_ == 0) {
    std::fill(seen_.begin(), seen_.end(), 0);
    set_number_ = 1;
  }
}

bool LineDfa::Close(uint32_t node, Context before, const Context* after) {
  stack_.assign(1, node);
  while (!stack_.empty()) {
    const uint32_t index = stack_.back();
    stack_.pop_back();
    if (seen_[index] == set_number_) continue;
    seen_[index] = set_number_;
    const Node& at = nodes_[index];
    switch (at.kind) {
      case NodeKind::kAccept:
        return true;
      case NodeKind::kBytes:
        reached_.push_back(index);
        break;
      case NodeKind::kSplit:
        stack_.push_back(at.other);
        stack_.push_back(at.next);
        break;
      case NodeKind::kAssert: {
        Verdict verdict = Judge(at.assertion, before);
        if (verdict == Verdict::kOpen && after != nullptr) {
          verdict = Holds(at.assertion, before, *after) ? Verdict::kHolds : Verdict::kFails;
        }
        if (verdict == Verdict::kHolds) stack_.push_back(at.next);
        if (verdict == Verdict::kOpen) reached_.push_back(index);
        break;
      }
    }
  }
  return false;
}

uint32_t LineDfa::Intern(Context before) {
  if (reached_.empty() && !may_start_inside_line_) return kDead;
  std::sort(reached_.begin(), reached_.end());
  const bool open = std::any_of(reached_.begin(), reached_.end(), [this](uint32_t node) {
    return nodes_[node].kind == NodeKind::kAssert;
  });
  if (!open) before = Context::kOther;  // nobody will ask
  std::string key(1, static_cast<char>(before));
  key.append(reinterpret_cast<const char*>(reached_.data()), reached_.size() * sizeof(uint32_t));
  if (const auto known = rows_by_key_.find(key); known != rows_by_key_.end()) return known->second;

  const size_t bytes = 2 * key.size() + classes_ * sizeof(uint32_t);
  if (states_bytes_ + bytes > kDfaTableBytesMax && !states_.empty()) {
    Reset();
    ++resets_;
  }
  states_bytes_ += bytes;
  const uint32_t row = static_cast<uint32_t>(table_.size());
  table_.resize(table_.size() + classes_, kUnmade);
  states_.push_back({before, reached_});
  rows_by_key_.emplace(std::move(key), row);
  return row;
}

uint32_t LineDfa::StartRow() {
  if (start_row_ != kUnmade) return start_row_;
  BeginSet();
  const bool accepts = Close(start_, Context::kLineEdge, nullptr);
  const uint32_t row = accepts ? static_cast<uint32_t>(kMatch) : Intern(Context::kLineEdge);
  start_row_ = row;
  return row;
}

uint32_t LineDfa::MakeMove(uint32_t row, uint8_t byte) {
  const uint64_t resets = resets_;
  const uint32_t next = ComputeMove(states_[(row - kSpecials) / classes_], byte);
  if (resets == resets_) table_[row + class_of_[byte]] = next;
  return next;
}

// `state` is a copy, since making a state may drop all others.
uint32_t LineDfa::ComputeMove(const State state, uint8_t byte) {
  const Context after = ContextOf(byte);
  BeginSet();
  for (const uint32_t node : state.nodes) {
    if (Close(node, state.before, &after)) return kMatch;
  }
  if (byte == '\n') return StartRow();
  const std::vector<uint32_t> readers = std::move(reached_);
  BeginSet();
  for (const uint32_t node : readers) {
    if (sets_[nodes_[node].set][byte] && Close(nodes_[node].next, after, nullptr)) return kMatch;
  }
  // A match may start behind any byte.
  if (Close(start_, after, nullptr)) return kMatch;
  return Intern(after);
}

size_t LineDfa::Find(std::string_view lines) {
  uint32_t row = StartRow();
  if (lines.empty() || row == kDead) return kNotFound;
  if (row == kMatch) return 0;
  const auto* const begin = reinterpret_cast<const uint8_t*>(lines.data());
  const uint8_t* const end = begin + lines.size();
  const uint8_t* at = begin;
  while (at != end) {
    const uint32_t* const table = table_.data();
    uint32_t next = table[row + class_of_[*at]];
    while (next >= kSpecials) {
      row = next;
      if (++at == end) return kNotFound;
      next = table[row + class_of_[*at]];
    }
    if (next == kUnmade) next = MakeMove(row, *at);
    if (next == kMatch) return static_cast<size_t>(at - begin);
    if (next == kDead) {
      // Nothing in the rest of this line can match.
      at = static_cast<const uint8_t*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
      if (at == nullptr) return kNotFound;
      next = StartRow();
    }
    row = next;
    ++at;
  }
  return kNotFound;
}

}  // namespace abacus::apps
