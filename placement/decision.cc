#include "placement/decision.h"

namespace abacus::placement {

std::string_view OutcomeName(Outcome outcome) {
  return outcome == Outcome::kMove ? "move" : "stay";
}

std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kNetBenefit:
      return "net_benefit";
    case Reason::kPresentIsBest:
      return "present_is_best";
    case Reason::kBelowThreshold:
      return "below_threshold";
    case Reason::kUncertain:
      return "uncertain";
    case Reason::kPinned:
      return "pinned";
    case Reason::kNoMemory:
      return "no_memory";
    case Reason::kMemoryUnknown:
      return "memory_unknown";
    case Reason::kNoCpu:
      return "no_cpu";
    case Reason::kNothingMobile:
      return "nothing_mobile";
    case Reason::kSuspended:
      return "suspended";
    case Reason::kNotConverged:
      return "not_converged";
    case Reason::kUndo:
      return "undo";
    case Reason::kDryRun:
      return "dry_run";
    case Reason::kMoveUnderWay:
      return "move_under_way";
    case Reason::kWaitsForWindow:
      return "waits_for_window";
    case Reason::kCoolDown:
      return "cool_down";
    case Reason::kHysteresis:
      return "hysteresis";
    case Reason::kPhaseTooShort:
      return "phase_too_short";
    case Reason::kWaitsForTurn:
      return "waits_for_turn";
    case Reason::kClaimed:
      return "claimed";
    case Reason::kOthersLose:
      return "others_lose";
    case Reason::kEjected:
      return "ejected";
    case Reason::kUnknownConsole:
      return "unknown_console";
    case Reason::kUnknownObject:
      return "unknown_object";
    case Reason::kUnknownNode:
      return "unknown_node";
    case Reason::kUnknownLink:
      return "unknown_link";
    case Reason::kDuplicateEntry:
      return "duplicate_entry";
    case Reason::kConsoleAlone:
      return "console_alone";
    case Reason::kStackTooLong:
      return "stack_too_long";
    case Reason::kOneNode:
      return "one_node";
    case Reason::kNoStorage:
      return "no_storage";
    case Reason::kBadFigure:
      return "bad_figure";
    case Reason::kRateUnknown:
      return "rate_unknown";
    case Reason::kBandwidthUnknown:
      return "bandwidth_unknown";
    case Reason::kRoundTripUnknown:
      return "round_trip_unknown";
    case Reason::kWeakLinkEvidence:
      return "weak_link_evidence";
    case Reason::kTooLittleEvidence:
      return "too_little_evidence";
    case Reason::kBadConfig:
      return "bad_config";
    case Reason::kClockStepped:
      return "clock_stepped";
    case Reason::kImplausible:
      return "implausible";
  }
  return "unknown";
}

std::vector<Reason> AllReasons() {
  std::vector<Reason> reasons;
  for (int i = 0; i <= static_cast<int>(Reason::kImplausible); ++i) {
    reasons.push_back(static_cast<Reason>(i));
  }
  return reasons;
}

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPresent:
      return "present";
    case Verdict::kPays:
      return "pays";
    case Verdict::kBelowThreshold:
      return "below_threshold";
    case Verdict::kUncertain:
      return "uncertain";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kPinned:
      return "pinned";
    case Verdict::kAnchored:
      return "anchored";
    case Verdict::kNoMemory:
      return "no_memory";
    case Verdict::kMemoryUnknown:
      return "memory_unknown";
    case Verdict::kNoCpu:
      return "no_cpu";
    case Verdict::kNotConverged:
      return "not_converged";
  }
  return "unknown";
}

}  // namespace abacus::placement
