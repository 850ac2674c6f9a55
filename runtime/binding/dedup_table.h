#ifndef ABACUS_RUNTIME_BINDING_DEDUP_TABLE_H_
#define ABACUS_RUNTIME_BINDING_DEDUP_TABLE_H_

// Which calls an object has run, so that none runs twice however often a message is sent.
//
// An activity has one outstanding call per nesting level, so the last call of each (activity,
// level) says of every other whether it is older (a late duplicate) or newer (to be run). The
// result is kept until the caller has it. The table belongs to the object: it travels in its
// checkpoint, never with a connection.
//
// Limits: entries and result bytes per object. A process numbers the calls that it issues. An
// evicted entry leaves a floor: a call of which there is no record, and which its process issued
// before one whose entry was evicted, is refused (kDuplicateEvicted) and not run, because nothing
// here could tell whether it had run before. Calls issued later are new. Evictions are counted.
// Thread-compatible: the protocol core's lock protects it.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/base/codec.h"
#include "runtime/base/ids.h"
#include "runtime/binding/messages.h"

namespace abacus::runtime {

struct DedupLimits {
  size_t entries_max = 1024;
  size_t result_bytes_max = size_t{8} << 20;
};

struct DedupCounters {
  uint64_t duplicates = 0;  // calls that were not run because they had been
  uint64_t entries_evicted = 0;
  uint64_t results_evicted = 0;
  uint64_t refused = 0;  // calls refused because their entry may have been evicted
};

class DedupTable {
 public:
  enum class Verdict {
    kNew,           // run it
    kUnderWay,      // it runs now
    kDone,          // it ran; the reply is kept
    kDoneNoResult,  // it ran; the caller had the result, or it was evicted
    kOlder,         // a later call of the same activity and level has come: nobody waits for it
    kEvicted,       // not decidable any more
  };

  // Which call of its process a call is: 1 for the first that was sent.
  struct Issue {
    NodeInstance by;
    uint64_t number = 0;
    ABACUS_FIELDS(by, number)
  };

  struct Kept {
    uint64_t sequence = 0;
    enum class State : uint8_t { kRunning, kDone, kResultGone } state = State::kRunning;
    uint64_t used = 0;  // for eviction of the oldest
    Issue issue;
    std::vector<Issue> issued_elsewhere;  // the last one before it of each other process
    ReplyMessage reply;
    Payload result;
  };

  Verdict Check(const CallId& id, const Issue& issue) const;
  // The same of what is recorded; kNew where nothing is.
  Verdict Recorded(const CallId& id) const;
  // The kept reply. REQUIRES: Recorded(id) == kDone.
  const Kept& Get(const CallId& id) const { return entries_.at(KeyOf(id)); }

  // Records that the call begins. REQUIRES: Check(id, issue) == kNew.
  void Begin(const CallId& id, const Issue& issue, const DedupLimits& limits,
             DedupCounters& counters);
  // Records its result; ignored where it has one, or a later call has taken its place.
  void Finish(const CallId& id, const ReplyMessage& reply, const Payload& result,
              const DedupLimits& limits, DedupCounters& counters);
  // The caller has the result: it need not be kept. That the call ran is still known.
  void Ack(const CallId& id);

  bool empty() const { return entries_.empty() && floors_.empty(); }
  size_t size() const { return entries_.size(); }
  size_t result_bytes() const { return result_bytes_; }

  // For the checkpoint. REQUIRES: no call is running.
  void Save(Writer& writer) const;
  void Load(Reader& reader);

 private:
  struct Key {
    ActivityId activity;
    uint32_t level = 0;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.activity, k.level);
    }
  };
  static Verdict Recorded(const Kept& kept, const CallId& id);
  static Key KeyOf(const CallId& id) { return {id.activity, id.level}; }
  void DropResult(Kept& kept);
  static void SetIssue(Kept& kept, const Issue& issue);
  static bool HasIssued(const Kept& kept, NodeInstance process);
  void RaiseFloor(const Issue& issue);
  void EvictEntries(const DedupLimits& limits, DedupCounters& counters);

  absl::flat_hash_map<Key, Kept> entries_;
  std::map<NodeInstance, uint64_t> floors_;  // newest evicted issue of each process
  size_t result_bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_DEDUP_TABLE_H_
