#include "placement/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/chain.h"
#include "placement/explain.h"

namespace abacus::placement {
namespace {

// What one candidate moves.
struct Moved {
  size_t objects = 0;
  double checkpoint_bytes = 0;
  double into_client_bytes = 0;  // net memory; negative where more leaves than comes
  bool anchored = false;         // an object that can never move is among them
  bool pinned = false;           // one that is held by a pin is
};

Moved CompareSides(const Chain& chain, const Sides& sides) {
  Moved moved;
  for (size_t j = 0; j < sides.size(); ++j) {
    if (sides[j] == chain.present[j]) continue;
    const ObjectStatistics& object = *chain.objects[j];
    ++moved.objects;
    moved.checkpoint_bytes += static_cast<double>(object.checkpoint_bytes);
    const auto memory_bytes = static_cast<double>(object.memory_bytes);
    moved.into_client_bytes += sides[j] == Side::kClient ? memory_bytes : -memory_bytes;
    if (chain.fixed[j]) (object.mobile && object.pinned ? moved.pinned : moved.anchored) = true;
  }
  return moved;
}

bool Fits(const NodeStatistics& node, double additional_bytes) {
  return additional_bytes <= 0 || !node.memory_free_bytes ||
         additional_bytes <= *node.memory_free_bytes;
}

// The set moves as one step: one quiesce and one run of the protocol, whatever its size.
MigrationCost CostOf(const Moved& moved, const Snapshot& snapshot, const Config& config,
                     const Link& link) {
  if (moved.objects == 0) return {};
  return {
      .quiesce_s = snapshot.history.count > 0 ? snapshot.history.quiesce_s : config.quiesce_prior_s,
      .transfer_s = moved.checkpoint_bytes / link.bandwidth_bytes_s,
      .protocol_s = config.protocol_round_trips * link.round_trip_s,
      .checkpoint_bytes = moved.checkpoint_bytes};
}

Verdict VerdictOf(const Candidate& candidate, const Moved& moved, bool present_converged,
                  bool fits) {
  if (candidate.objects_moved == 0) return Verdict::kPresent;
  if (moved.anchored) return Verdict::kAnchored;
  if (moved.pinned) return Verdict::kPinned;
  if (!candidate.prediction.converged || !present_converged) return Verdict::kNotConverged;
  if (!fits) return Verdict::kNoMemory;
  if (candidate.benefit_s <= 0) return Verdict::kSlower;
  return candidate.above_threshold ? Verdict::kPays : Verdict::kBelowThreshold;
}

Candidate Evaluate(int split, const Chain& chain, const Snapshot& snapshot, const Config& config,
                   const FixedPointOptions& options, const Decision& so_far) {
  const Sides sides = SidesOfSplit(split, chain.objects.size());
  const Moved moved = CompareSides(chain, sides);
  const Prediction& present = *so_far.present;

  Candidate candidate;
  candidate.split = split;
  candidate.objects_moved = moved.objects;
  candidate.prediction = Predict(chain.stack, sides, so_far.others, options);
  candidate.cost = CostOf(moved, snapshot, config, chain.stack.link);
  candidate.benefit_s = present.response_s - candidate.prediction.response_s;
  candidate.net_benefit_s = candidate.benefit_s - candidate.cost.Total();
  candidate.threshold_s = config.b_thresh * candidate.prediction.response_s;
  candidate.above_threshold = moved.objects > 0 && present.converged &&
                              candidate.prediction.converged &&
                              candidate.net_benefit_s > candidate.threshold_s;
  const bool fits =
      Fits(*chain.client, moved.into_client_bytes) && Fits(*chain.server, -moved.into_client_bytes);
  candidate.verdict = VerdictOf(candidate, moved, present.converged, fits);
  return candidate;
}

// The highest net benefit among those that pay; of equals the smaller move, then the lower split.
std::optional<size_t> Best(const std::vector<Candidate>& candidates) {
  std::optional<size_t> best;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (candidate.verdict != Verdict::kPays) continue;
    if (!best || candidate.net_benefit_s > candidates[*best].net_benefit_s ||
        (candidate.net_benefit_s == candidates[*best].net_benefit_s &&
         candidate.objects_moved < candidates[*best].objects_moved)) {
      best = i;
    }
  }
  return best;
}

Reason ReasonToStay(const Decision& decision) {
  const auto any = [&](auto predicate) {
    return std::any_of(decision.candidates.begin(), decision.candidates.end(), predicate);
  };
  const auto with = [](Verdict verdict) {
    return [verdict](const Candidate& c) { return c.verdict == verdict; };
  };
  const auto would_pay = [](Verdict verdict) {
    return [verdict](const Candidate& c) { return c.verdict == verdict && c.above_threshold; };
  };
  if (decision.chosen) return Reason::kSuspended;
  if (!decision.present->converged) return Reason::kNotConverged;
  if (any(would_pay(Verdict::kPinned))) return Reason::kPinned;
  if (any(would_pay(Verdict::kNoMemory))) return Reason::kNoMemory;
  if (any(with(Verdict::kNotConverged))) return Reason::kNotConverged;
  if (any(with(Verdict::kBelowThreshold))) return Reason::kBelowThreshold;
  const bool fixed = !any([](const Candidate& c) {
    return c.verdict != Verdict::kPresent && c.verdict != Verdict::kAnchored;
  });
  return fixed ? Reason::kNothingMobile : Reason::kPresentIsBest;
}

void DescribeStack(const Chain& chain, Decision* decision) {
  for (size_t j = 0; j < chain.objects.size(); ++j) {
    const ObjectStatistics& object = *chain.objects[j];
    const bool pinned = object.mobile && object.pinned;
    decision->stack.push_back(
        {.id = object.id,
         .class_name = object.class_name,
         .side = chain.present[j],
         .fixed = chain.fixed[j],
         .pinned = pinned,
         .pinned_reason = pinned ? object.pinned_reason : "",
         .layer = chain.stack.layers[j],
         .below = j + 1 < chain.objects.size() ? chain.stack.flows[j] : Flow{}});
  }
  decision->client = *chain.client;
  decision->server = *chain.server;
  decision->link = *chain.link;
}

std::vector<Move> MovesTo(const Chain& chain, int split) {
  const Sides sides = SidesOfSplit(split, chain.objects.size());
  std::vector<Move> moves;
  for (size_t j = 0; j < sides.size(); ++j) {
    if (sides[j] == chain.present[j]) continue;
    const NodeId to = sides[j] == Side::kClient ? chain.client->node : chain.server->node;
    moves.push_back({.object = chain.objects[j]->id, .from = chain.objects[j]->node, .to = to});
  }
  return moves;
}

Decision Refuse(Decision decision, Reason reason, const std::string& detail) {
  decision.outcome = Outcome::kStay;
  decision.reason = reason;
  decision.explanation = absl::StrCat("Staying: ", detail, ".");
  return decision;
}

}  // namespace

Decision Decide(const Snapshot& snapshot, const Config& config) {
  Decision decision;
  decision.console = snapshot.console;
  if (const absl::Status status = Validate(config); !status.ok()) {
    return Refuse(std::move(decision), Reason::kBadConfig,
                  absl::StrCat("the configuration is not valid: ", status.message()));
  }
  decision.window_s = config.window_s;
  decision.b_thresh = config.b_thresh;

  Chain chain;
  if (const auto refusal = ReadChain(snapshot, config, &chain)) {
    return Refuse(std::move(decision), refusal->reason, refusal->detail);
  }
  DescribeStack(chain, &decision);

  const PerSide measured{chain.client->load, chain.server->load};
  decision.others = LoadOfOthers(chain.stack, chain.present, measured, config.window_s);
  if (config.client_load_constant) decision.others.client = measured.client;
  const FixedPointOptions options{.iterations_max = config.fixed_point_iterations_max,
                                  .tolerance = config.fixed_point_tolerance,
                                  .client_load_constant = config.client_load_constant};

  decision.present = Predict(chain.stack, chain.present, decision.others, options);
  const int splits = static_cast<int>(chain.objects.size()) - 1;
  for (int split = 0; split < splits; ++split) {
    decision.candidates.push_back(Evaluate(split, chain, snapshot, config, options, decision));
    const Candidate& candidate = decision.candidates.back();
    if (candidate.objects_moved > 0 && !candidate.prediction.converged) ++decision.cut_off;
  }
  if (!decision.present->converged) ++decision.cut_off;

  // Below a nanosecond the activity made no calls, and there is nothing to compare with.
  if (snapshot.measured_t_app_s && *snapshot.measured_t_app_s >= 1e-9) {
    decision.measured_t_app_s = *snapshot.measured_t_app_s * chain.scale;
    decision.model_error = decision.present->response_s / *decision.measured_t_app_s - 1;
  }

  decision.chosen = Best(decision.candidates);
  if (decision.chosen && !snapshot.options.suspended) {
    decision.outcome = Outcome::kMove;
    decision.reason = Reason::kNetBenefit;
    decision.moves = MovesTo(chain, decision.candidates[*decision.chosen].split);
  } else {
    decision.reason = ReasonToStay(decision);
  }
  decision.explanation = Explain(decision);
  return decision;
}

}  // namespace abacus::placement
