#include "runtime/resource/decision_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/resource/digest.h"

namespace abacus::runtime {
namespace {

template <typename T>
uint64_t ListBytes(const std::vector<T>& list) {
  return list.capacity() * sizeof(T);
}

uint64_t WordsBytes(const placement::NodeStatistics& node) {
  return node.name.capacity() + node.source.capacity() + node.source_missing.capacity();
}

uint64_t NodesBytes(const std::vector<placement::NodeStatistics>& nodes) {
  uint64_t bytes = ListBytes(nodes);
  for (const placement::NodeStatistics& node : nodes) bytes += WordsBytes(node);
  return bytes;
}

uint64_t BytesBeside(const placement::Snapshot& s) {
  uint64_t bytes = ListBytes(s.consoles) + NodesBytes(s.nodes) + ListBytes(s.objects) +
                   ListBytes(s.edges) + ListBytes(s.links);
  for (const placement::ObjectStatistics& object : s.objects) {
    bytes +=
        object.class_name.capacity() + object.pinned_reason.capacity() + ListBytes(object.allowed);
  }
  return bytes;
}

}  // namespace

uint64_t BytesOf(const DecisionRecord& record) {
  const placement::Decision& d = record.decision;
  uint64_t bytes = sizeof record + BytesBeside(record.snapshot) + d.explained.capacity() +
                   ListBytes(d.moves) + ListBytes(d.stack) + ListBytes(d.edges) +
                   NodesBytes(d.nodes) + WordsBytes(d.client) + WordsBytes(d.server) +
                   ListBytes(d.nodes_others) + ListBytes(d.links) + ListBytes(d.present_loads) +
                   ListBytes(d.candidates);
  for (const placement::StackObject& object : d.stack) {
    bytes += object.class_name.capacity() + object.pinned_reason.capacity();
  }
  for (const placement::Candidate& candidate : d.candidates) {
    bytes += ListBytes(candidate.moves) + ListBytes(candidate.node_loads);
  }
  return bytes;
}

const DecisionRecord* DecisionMemory::Newest(const Rid& console) const {
  const auto it = consoles_.find(console);
  if (it == consoles_.end() || it->second.decisions.empty()) return nullptr;
  return &it->second.decisions.front().record;
}

void DecisionMemory::Push(Console& of, const Rid& console, DecisionRecord record) {
  const uint64_t bytes = BytesOf(record);
  by_age_.emplace(next_age_, console);
  of.decisions.push_front({next_age_++, bytes, std::move(record)});
  bytes_ += bytes;
}

void DecisionMemory::Pop(Console& of, bool newest) {
  const Kept& goes = newest ? of.decisions.front() : of.decisions.back();
  bytes_ -= goes.bytes;
  by_age_.erase(goes.age);
  newest ? of.decisions.pop_front() : of.decisions.pop_back();
}

void DecisionMemory::Trim() {
  while (bytes_ > limits_.bytes_max) {
    const auto it = consoles_.find(by_age_.begin()->second);
    Pop(it->second, false);
    ++dropped_;
    if (it->second.decisions.empty()) consoles_.erase(it);
  }
}

void DecisionMemory::Add(const Rid& console, DecisionRecord record) {
  Console& of = consoles_[console];
  // One that was taken for ended has come back.
  if (std::exchange(of.finished, false)) std::erase(finished_, console);
  Push(of, console, std::move(record));
  if (of.decisions.size() > limits_.of_console_max) Pop(of, false);
  if (of.decisions.empty()) consoles_.erase(console);
  Trim();
}

void DecisionMemory::Replace(const Rid& console, DecisionRecord record) {
  Console& of = consoles_.at(console);
  Pop(of, true);
  Push(of, console, std::move(record));
  Trim();
}

void DecisionMemory::Finish(const Rid& console) {
  const auto it = consoles_.find(console);
  if (it == consoles_.end() || std::exchange(it->second.finished, true)) return;
  while (it->second.decisions.size() > limits_.of_finished_max) Pop(it->second, false);
  finished_.push_back(console);
  if (finished_.size() <= limits_.finished_max) return;
  const Rid oldest = finished_.front();
  finished_.pop_front();
  const auto gone = consoles_.find(oldest);
  if (gone == consoles_.end()) return;  // the limit on bytes took it
  while (!gone->second.decisions.empty()) Pop(gone->second, false);
  consoles_.erase(gone);
}

std::vector<DecisionRecord> DecisionMemory::Find(const Rid& rid, size_t max) const {
  std::vector<const Kept*> found;
  const placement::ObjectId id = ToObjectId(rid);
  for (const auto& [console, of] : consoles_) {
    for (const Kept& kept : of.decisions) {
      const auto& stack = kept.record.decision.stack;
      const bool in_stack =
          std::any_of(stack.begin(), stack.end(),
                      [&](const placement::StackObject& object) { return object.id == id; });
      if (console == rid || in_stack) found.push_back(&kept);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Kept* a, const Kept* b) { return a->age > b->age; });
  if (found.size() > max) found.resize(max);
  std::vector<DecisionRecord> records;
  records.reserve(found.size());
  for (const Kept* kept : found) records.push_back(kept->record);
  return records;
}

void DecisionMemory::SetBytesMax(uint64_t bytes_max) {
  limits_.bytes_max = bytes_max;
  Trim();
}

}  // namespace abacus::runtime
