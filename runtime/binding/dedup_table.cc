#include "runtime/binding/dedup_table.h"

#include <algorithm>
#include <utility>

namespace abacus::runtime {

DedupTable::Verdict DedupTable::Check(const CallId& id, const Issue& issue) const {
  const auto it = entries_.find(KeyOf(id));
  if (it != entries_.end()) {
    const Verdict verdict = Recorded(it->second, id);
    // Later than what is recorded is not always new: the record may be of a call that came late,
    // from another process, when that of `id` had been evicted. Of a process that stands in the
    // record it is new, because a process issues an activity's calls in their order.
    if (verdict != Verdict::kNew || HasIssued(it->second, issue.by)) return verdict;
  }
  const auto floor = floors_.find(issue.by);
  const bool may_have_run = floor != floors_.end() && issue.number <= floor->second;
  return may_have_run ? Verdict::kEvicted : Verdict::kNew;
}

DedupTable::Verdict DedupTable::Recorded(const CallId& id) const {
  const auto it = entries_.find(KeyOf(id));
  return it == entries_.end() ? Verdict::kNew : Recorded(it->second, id);
}

DedupTable::Verdict DedupTable::Recorded(const Kept& kept, const CallId& id) {
  if (id.sequence > kept.sequence) return Verdict::kNew;
  if (id.sequence < kept.sequence) return Verdict::kOlder;
  switch (kept.state) {
    case Kept::State::kRunning:
      return Verdict::kUnderWay;
    case Kept::State::kDone:
      return Verdict::kDone;
    case Kept::State::kResultGone:
      return Verdict::kDoneNoResult;
  }
  return Verdict::kDoneNoResult;
}

void DedupTable::Begin(const CallId& id, const Issue& issue, const DedupLimits& limits,
                       DedupCounters& counters) {
  auto [it, added] = entries_.try_emplace(KeyOf(id));
  if (!added) DropResult(it->second);
  it->second.sequence = id.sequence;
  it->second.state = Kept::State::kRunning;
  it->second.used = ++clock_;
  SetIssue(it->second, issue);
  if (entries_.size() > limits.entries_max) EvictEntries(limits, counters);
}

void DedupTable::Finish(const CallId& id, const ReplyMessage& reply, const Payload& result,
                        const DedupLimits& limits, DedupCounters& counters) {
  const auto it = entries_.find(KeyOf(id));
  if (it == entries_.end() || it->second.sequence != id.sequence) return;
  Kept& kept = it->second;
  if (kept.state != Kept::State::kRunning) return;
  kept.state = Kept::State::kDone;
  kept.reply = reply;
  kept.result = result;
  result_bytes_ += result.bytes();
  while (result_bytes_ > limits.result_bytes_max) {
    // The newest result stays whatever its size: its caller is waiting for it now.
    Kept* oldest = nullptr;
    for (auto& [key, other] : entries_) {
      const bool holds = other.state == Kept::State::kDone && other.result.bytes() > 0;
      if (!holds || &other == &kept) continue;
      if (oldest == nullptr || other.used < oldest->used) oldest = &other;
    }
    if (oldest == nullptr) break;
    DropResult(*oldest);
    oldest->state = Kept::State::kResultGone;
    ++counters.results_evicted;
  }
}

void DedupTable::Ack(const CallId& id) {
  const auto it = entries_.find(KeyOf(id));
  if (it == entries_.end() || it->second.sequence != id.sequence) return;
  if (it->second.state != Kept::State::kDone) return;
  DropResult(it->second);
  it->second.state = Kept::State::kResultGone;
}

void DedupTable::DropResult(Kept& kept) {
  if (kept.state == Kept::State::kDone) result_bytes_ -= kept.result.bytes();
  kept.result = Payload();
  kept.reply = ReplyMessage();
}

// An activity that moves about calls from several processes: an entry stands for all of them.
void DedupTable::SetIssue(Kept& kept, const Issue& issue) {
  if (kept.issue.by.valid() && kept.issue.by != issue.by) {
    auto& others = kept.issued_elsewhere;
    std::erase_if(others, [&](const Issue& other) {
      return other.by == issue.by || other.by == kept.issue.by;
    });
    others.push_back(kept.issue);
  }
  kept.issue = issue;
}

bool DedupTable::HasIssued(const Kept& kept, NodeInstance process) {
  return kept.issue.by == process ||
         std::any_of(kept.issued_elsewhere.begin(), kept.issued_elsewhere.end(),
                     [process](const Issue& other) { return other.by == process; });
}

void DedupTable::RaiseFloor(const Issue& issue) {
  uint64_t& floor = floors_[issue.by];
  floor = std::max(floor, issue.number);
}

// Evicts the oldest eighth at once, so that the search for it is paid rarely; and more where more
// calls than the limit had been running at once.
void DedupTable::EvictEntries(const DedupLimits& limits, DedupCounters& counters) {
  std::vector<std::pair<uint64_t, Key>> idle;
  for (const auto& [key, kept] : entries_) {
    if (kept.state != Kept::State::kRunning) idle.emplace_back(kept.used, key);
  }
  const size_t excess = entries_.size() - limits.entries_max;
  const size_t count = std::min(idle.size(), std::max(excess, limits.entries_max / 8));
  std::nth_element(idle.begin(), idle.begin() + static_cast<ptrdiff_t>(count), idle.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < count; ++i) {
    const auto it = entries_.find(idle[i].second);
    RaiseFloor(it->second.issue);
    for (const Issue& issue : it->second.issued_elsewhere) RaiseFloor(issue);
    DropResult(it->second);
    entries_.erase(it);
    ++counters.entries_evicted;
  }
}

void DedupTable::Save(Writer& writer) const {
  writer.PutNumber(static_cast<uint64_t>(floors_.size()));
  for (const auto& [origin, floor] : floors_) {
    Encode(writer, origin);
    writer.PutNumber(floor);
  }
  std::vector<const decltype(entries_)::value_type*> by_use;
  for (const auto& entry : entries_) by_use.push_back(&entry);
  std::sort(by_use.begin(), by_use.end(),
            [](const auto* a, const auto* b) { return a->second.used < b->second.used; });
  writer.PutNumber(static_cast<uint64_t>(by_use.size()));
  for (const auto* entry : by_use) {
    const auto& [key, kept] = *entry;
    Encode(writer, CallId{key.activity, key.level, kept.sequence});
    Encode(writer, kept.issue);
    Encode(writer, kept.issued_elsewhere);
    Encode(writer, kept.state);
    if (kept.state != Kept::State::kDone) continue;
    Encode(writer, kept.reply);
    Encode(writer, kept.result.blocks);
    writer.PutString(kept.result.inline_bytes);
  }
}

void DedupTable::Load(Reader& reader) {
  for (size_t i = reader.TakeCount(); i > 0 && reader.ok(); --i) {
    const auto origin = Decoded<NodeInstance>(reader);
    floors_[origin] = reader.TakeNumber<uint64_t>();
  }
  for (size_t i = reader.TakeCount(); i > 0 && reader.ok(); --i) {
    const auto id = Decoded<CallId>(reader);
    const auto [it, added] = entries_.try_emplace(KeyOf(id));
    if (!added) return reader.Fail("two records of one activity and level");
    Kept& kept = it->second;
    kept.sequence = id.sequence;
    kept.used = ++clock_;
    Decode(reader, kept.issue);
    Decode(reader, kept.issued_elsewhere);
    Decode(reader, kept.state);
    if (kept.state == Kept::State::kDone) {
      Decode(reader, kept.reply);
      Decode(reader, kept.result.blocks);
      kept.result.inline_bytes = reader.TakeView();
      result_bytes_ += kept.result.bytes();
    } else {
      kept.state = Kept::State::kResultGone;
    }
  }
}

}  // namespace abacus::runtime
