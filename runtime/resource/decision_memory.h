#ifndef ABACUS_RUNTIME_RESOURCE_DECISION_MEMORY_H_
#define ABACUS_RUNTIME_RESOURCE_DECISION_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "placement/decision.h"
#include "placement/statistics.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

// A decision as it is kept: enough to explain it and to make it again.
struct DecisionRecord {
  absl::Time at;
  placement::Decision decision;
  placement::Snapshot snapshot;  // what it was made on
};

// About what a record takes in memory, its strings and lists included.
uint64_t BytesOf(const DecisionRecord& record);

// The last decisions of a server, for whoever asks why (`explain`).
//
// Bounded three ways: so many of a console, so many consoles that have ended with so many each, and
// so many bytes in all, of which the oldest go first, whoever's they are. What is dropped is mostly
// in the decision log still. Thread-safety: thread-compatible. Blocking: none.
class DecisionMemory {
 public:
  struct Limits {
    size_t of_console_max = 64;
    size_t finished_max = 64;     // consoles that have ended
    size_t of_finished_max = 16;  // decisions of each of these
    uint64_t bytes_max = uint64_t{64} << 20;
  };

  explicit DecisionMemory(const Limits& limits) : limits_(limits) {}

  // Null: none.
  const DecisionRecord* Newest(const Rid& console) const;
  void Add(const Rid& console, DecisionRecord record);
  // In place of Newest(). REQUIRES: there is one.
  void Replace(const Rid& console, DecisionRecord record);
  // The console has ended; what was decided is kept for a while.
  void Finish(const Rid& console);

  // Decisions on the object's stack, the newest first.
  std::vector<DecisionRecord> Find(const Rid& rid, size_t max) const;

  // From now on; the oldest beyond it go at once.
  void SetBytesMax(uint64_t bytes_max);

  uint64_t bytes() const { return bytes_; }
  // Records that the limit on bytes took.
  uint64_t dropped() const { return dropped_; }

 private:
  struct Kept {
    uint64_t age = 0;  // counts up over all consoles
    uint64_t bytes = 0;
    DecisionRecord record;
  };
  struct Console {
    std::deque<Kept> decisions;  // the newest first
    bool finished = false;
  };

  void Push(Console& of, const Rid& console, DecisionRecord record);
  void Pop(Console& of, bool newest);
  void Trim();

  Limits limits_;
  std::map<Rid, Console> consoles_;
  std::deque<Rid> finished_;        // the oldest first
  std::map<uint64_t, Rid> by_age_;  // every record: the oldest of all is some console's last
  uint64_t next_age_ = 0;
  uint64_t bytes_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_RESOURCE_DECISION_MEMORY_H_
