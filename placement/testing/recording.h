#ifndef ABACUS_PLACEMENT_TESTING_RECORDING_H_
#define ABACUS_PLACEMENT_TESTING_RECORDING_H_

// What a Planner was told and what it answered, as text that can be played again.
//
// Format, version 1: lines of words between spaces; numbers as the shortest text that reads back as
// the same double, `-` for what is unknown or empty, ids as "node.incarnation.local".
//
//   abacus-planner-rounds 1
//   config NAME VALUE ...              all constants of Config and PlannerConfig
//   snapshot N WINDOW CONSOLE T_APP QUIESCE COUNT SUSPENDED CONSOLES
//   node ID RATE CORES LOAD CONTENTION MEMORY FREE LIMIT SEES_MEMORY
//   object ID CLASS NODE MOBILE PINNED GROUP ALLOWED CPU VARIANCE SAMPLES BACKGROUND BYTES STALL
//          CALLS CHECKPOINT MEMORY [THREADS BUSY]     (one line; the last two where there are any)
//   edge FROM TO CALLS REQUEST REPLY VARIANCE SAMPLES
//   link A B BANDWIDTH ROUND_TRIP MEASURED VARIANCE ROUND_TRIP_BYTES
//   end
//   observe N END NOW                  the snapshot of that number, as often as it came
//   round NOW CONSOLE ...              DecideRound(), followed by its answers:
//   decided CONSOLE OUTCOME REASON STEP T_NOW T_THEN MOVES    MOVES: OBJECT>FROM>TO,... or -
//   ended CONSOLE OK QUIESCE NOW
//   forget CONSOLE
//   suspend 0|1
//   dry-run 0|1
//
// A snapshot stands before its first use and once only. What decisions do not depend on (names,
// sources, display figures) is left out. Lines that begin with `#` are comments.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "placement/planner.h"

namespace abacus::placement::testing {

// A Planner whose calls and answers are written down. Thread-safety: thread-compatible.
class RecordingPlanner {
 public:
  RecordingPlanner(const Config& config, const PlannerConfig& planner_config);

  // As those of Planner.
  absl::Status Observe(const Snapshot& sample, double end_s, double now_s);
  std::vector<Planner::Decided> DecideRound(absl::Span<const ObjectId> consoles, double now_s);
  void OnMoveEnded(const ObjectId& console, bool ok, double quiesce_s, double now_s);
  void Forget(const ObjectId& console);
  void Suspend(bool suspended);
  void DryRun(bool dry_run);

  Planner& planner() { return planner_; }
  const std::string& text() const { return text_; }

 private:
  Planner planner_;
  std::string text_;
  absl::flat_hash_map<std::string, size_t> snapshots_;  // by their text
};

// What the replay found.
struct Replay {
  size_t rounds = 0;
  size_t decisions = 0;
  size_t moves = 0;
  // Line number and both lines of every answer that is another one than was recorded; figures may
  // differ by a millionth, as libraries round differently.
  std::vector<std::string> differences;
};

// Tells a new Planner what is recorded. Errors: kInvalidArgument names the line that is not of the
// format.
absl::StatusOr<Replay> ReplayRounds(const std::string& text);

}  // namespace abacus::placement::testing

#endif  // ABACUS_PLACEMENT_TESTING_RECORDING_H_
