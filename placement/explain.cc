#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "placement/decision.h"

namespace abacus::placement {
namespace {

// Three digits that count, in the unit that keeps them readable.
std::string Scaled(double value, const char* unit) {
  return std::abs(value) >= 999.5 ? absl::StrFormat("%.0f %s", value, unit)
                                  : absl::StrFormat("%.3g %s", value, unit);
}

std::string Seconds(double s) {
  const double size = std::abs(s);
  if (size == 0 || size >= 0.01) return Scaled(s, "s");
  return size >= 1e-5 ? Scaled(s * 1e3, "ms") : Scaled(s * 1e6, "us");
}

std::string Bytes(double bytes) {
  if (bytes < 999.5) return Scaled(bytes, "B");
  if (bytes < 999.5e3) return Scaled(bytes / 1e3, "kB");
  return bytes < 999.5e6 ? Scaled(bytes / 1e6, "MB") : Scaled(bytes / 1e9, "GB");
}

std::string Calls(double calls) {
  return absl::StrCat(Scaled(calls, calls == 1 ? "call" : "calls"));
}

std::string NodeLabel(const NodeStatistics& node) {
  return node.name.empty() ? absl::StrCat("node ", node.node)
                           : absl::StrCat(node.name, " (node ", node.node, ")");
}

std::string ObjectLabel(const StackObject& object) {
  return object.class_name.empty() ? absl::StrCat("object ", ToString(object.id))
                                   : object.class_name;
}

// "a", "a and b", "a, b and c"
std::string List(std::vector<std::string> items) {
  if (items.empty()) return "nothing";
  if (items.size() == 1) return items.front();
  const std::string last = items.back();
  items.pop_back();
  return absl::StrCat(absl::StrJoin(items, ", "), " and ", last);
}

const NodeStatistics& NodeNamed(const Decision& d, NodeId id) {
  for (const NodeStatistics& node : d.nodes) {
    if (node.node == id) return node;
  }
  return d.client;  // not reached: moves are between nodes of the decision
}

// Moves in the order of the stack, as candidates list them.
const Move* MoveOf(const Candidate& candidate, const ObjectId& object) {
  for (const Move& move : candidate.moves) {
    if (move.object == object) return &move;
  }
  return nullptr;
}

// "grep from client (node 7) to server (node 1)"; a stack that is interleaved may need both ways.
// Ways away from the console first.
std::string MovesLabel(const Decision& d, const Candidate& candidate) {
  std::vector<std::pair<NodeId, NodeId>> ways;
  for (const Move& move : candidate.moves) {
    const std::pair<NodeId, NodeId> way(move.from, move.to);
    if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
  }
  std::stable_partition(ways.begin(), ways.end(),
                        [&](const auto& way) { return way.second != d.client.node; });
  std::vector<std::string> labels;
  for (const auto& [from, to] : ways) {
    std::vector<std::string> objects;
    for (const StackObject& object : d.stack) {
      const Move* move = MoveOf(candidate, object.id);
      if (move != nullptr && move->from == from && move->to == to) {
        objects.push_back(ObjectLabel(object));
      }
    }
    labels.push_back(absl::StrCat(List(objects), " from ", NodeLabel(NodeNamed(d, from)), " to ",
                                  NodeLabel(NodeNamed(d, to))));
  }
  return List(labels);
}

// "0.963 s (18 calls, 1.18 MB)": the network term and what crosses links, of a candidate or,
// without one, as the stack is placed now.
std::string NetworkLabel(const Decision& d, const Prediction& prediction,
                         const Candidate* candidate) {
  std::vector<NodeId> at;
  for (const StackObject& object : d.stack) {
    const Move* move = candidate == nullptr ? nullptr : MoveOf(*candidate, object.id);
    at.push_back(move == nullptr ? object.node : move->to);
  }
  Flow crossing;
  for (const StackEdge& edge : d.edges) {
    if (at[edge.above] == at[edge.below]) continue;
    crossing.calls += edge.flow.calls;
    crossing.bytes += edge.flow.bytes;
  }
  return absl::StrCat(Seconds(prediction.terms.network_s), " (", Calls(crossing.calls), ", ",
                      Bytes(crossing.bytes), ")");
}

const char* Verb(double from, double to) {
  if (from == to) return "stays at";
  return to < from ? "falls from" : "rises from";
}

std::string Change(const char* what, double from, double to) {
  if (from == to) return absl::StrCat(what, " stays at ", Seconds(to));
  return absl::StrCat(what, " ", Verb(from, to), " ", Seconds(from), " to ", Seconds(to));
}

// Loads are worth a word only where a node has more to run than it has cores.
std::string LoadLabel(const NodeStatistics& node, double now, double then) {
  if (std::max(now, then) <= node.cores || now == then) return "";
  return absl::StrFormat("; the load of %s (cores: %.3g) %s %.2f to %.2f", NodeLabel(node),
                         node.cores, Verb(now, then), now, then);
}

// The link, where there is only one.
std::string LinkLabel(const Decision& d) {
  if (d.nodes.size() != 2) return "";
  return absl::StrCat(" over a link of ", Bytes(d.link.bandwidth_bytes_s.value_or(0)), "/s and ",
                      Seconds(d.link.round_trip_s.value_or(0)), " a round trip");
}

std::string LoadsLabel(const Decision& d, const Candidate& candidate) {
  std::string text;
  if (candidate.node_loads.size() != d.nodes.size()) {
    return absl::StrCat(
        LoadLabel(d.client, d.present->loads.client, candidate.prediction.loads.client),
        LoadLabel(d.server, d.present->loads.server, candidate.prediction.loads.server));
  }
  for (size_t n = 0; n < d.nodes.size(); ++n) {
    absl::StrAppend(&text, LoadLabel(d.nodes[n], d.present_loads[n], candidate.node_loads[n]));
  }
  return text;
}

// "1.02 s" beside "0.0412 s": what the candidate changes, term by term.
std::string TermsLabel(const Decision& d, const Candidate& candidate) {
  const Terms& now = d.present->terms;
  const Terms& then = candidate.prediction.terms;
  std::string text =
      absl::StrCat("The network term ", Verb(now.network_s, then.network_s), " ",
                   NetworkLabel(d, *d.present, nullptr), " to ",
                   NetworkLabel(d, candidate.prediction, &candidate), LinkLabel(d), "; ",
                   Change("computing", now.client_cpu_s + now.server_cpu_s,
                          then.client_cpu_s + then.server_cpu_s));
  if (then.own_stall_s > 0) {
    absl::StrAppend(&text, "; what objects wait for by themselves stays at ",
                    Seconds(then.own_stall_s));
  }
  return absl::StrCat(text, LoadsLabel(d, candidate), ".");
}

// "net benefit 0.915 s > threshold 0.0193 s"; with what is taken off for uncertainty, if anything.
std::string CostLabel(const Decision& d, const Candidate& candidate) {
  const MigrationCost& cost = candidate.cost;
  const double unsure_s = d.confidence_z * candidate.benefit_deviation_s;
  const std::string less =
      unsure_s == 0 ? ""
                    : absl::StrCat(" less ", Seconds(unsure_s), " (", d.confidence_z, " x ",
                                   Seconds(candidate.benefit_deviation_s), " of uncertainty)");
  return absl::StrFormat(
      "The move costs %s (quiesce %s, %s of state %s, protocol %s); net benefit %s%s %s threshold "
      "%s (%.3g %% of %s).",
      Seconds(cost.Total()), Seconds(cost.quiesce_s), Bytes(cost.checkpoint_bytes),
      Seconds(cost.transfer_s), Seconds(cost.protocol_s), Seconds(candidate.net_benefit_s), less,
      candidate.above_threshold ? ">" : "<=", Seconds(candidate.threshold_s), d.b_thresh * 100,
      Seconds(candidate.prediction.response_s));
}

std::string TimesLabel(const Decision& d, const Candidate& candidate) {
  return absl::StrCat(Seconds(candidate.prediction.response_s), " instead of ",
                      Seconds(d.present->response_s), " for the work of a window of ",
                      Seconds(d.window_s));
}

std::string WhyOf(const Decision& d, const Candidate& candidate) {
  return absl::StrCat(TermsLabel(d, candidate), " ", CostLabel(d, candidate));
}

std::string ModelErrorLabel(const Decision& d) {
  if (!d.model_error) return "";
  const std::string over = d.calls_at_once > 1
                               ? absl::StrFormat(" in sum over %.3g calls at once", d.calls_at_once)
                               : "";
  return absl::StrFormat(" As placed now, %s was measured%s where %s is predicted (%+.1f %%).",
                         Seconds(*d.measured_t_app_s), over, Seconds(d.present->response_s),
                         *d.model_error * 100);
}

// The candidate that a decision to stay is explained with, or nullptr: among those with the given
// verdict one that would pay if it could, and then the highest net benefit.
const Candidate* BestWith(const Decision& d, Verdict verdict) {
  const auto rank = [](const Candidate& c) {
    return std::pair(c.above_threshold, c.net_benefit_s);
  };
  const Candidate* best = nullptr;
  for (const Candidate& candidate : d.candidates) {
    if (candidate.verdict != verdict) continue;
    if (best == nullptr || rank(candidate) > rank(*best)) best = &candidate;
  }
  return best;
}

// "grep is pinned to client (node 7) (by hand)", for every pin that the candidate would break.
std::string PinsLabel(const Decision& d, const Candidate& candidate) {
  std::vector<std::string> pins;
  for (const StackObject& object : d.stack) {
    if (!object.pinned || MoveOf(candidate, object.id) == nullptr) continue;
    pins.push_back(
        absl::StrCat(ObjectLabel(object), " is pinned to ", NodeLabel(NodeNamed(d, object.node)),
                     object.pinned_reason.empty() ? "" : absl::StrCat(": ", object.pinned_reason)));
  }
  return List(pins);
}

std::string ExplainMove(const Decision& d, const Candidate& candidate) {
  return absl::StrCat("Moving ", MovesLabel(d, candidate), ": predicted ", TimesLabel(d, candidate),
                      ". ", WhyOf(d, candidate));
}

std::string ExplainCandidate(const Decision& d, const char* opening, const Candidate& candidate) {
  return absl::StrCat("Staying: ", opening, "moving ", MovesLabel(d, candidate),
                      " is predicted to take ", TimesLabel(d, candidate), ". ",
                      WhyOf(d, candidate));
}

const char* Better(const Decision& d) {
  return d.chain ? "no other split is better; " : "no other placement is better; ";
}

std::string ExplainStay(const Decision& d) {
  switch (d.reason) {
    case Reason::kSuspended:
      return absl::StrCat("Staying: the engine is suspended. Otherwise: ",
                          ExplainMove(d, d.candidates[*d.chosen]));
    case Reason::kPinned:
      if (const Candidate* c = BestWith(d, Verdict::kPinned)) {
        return absl::StrCat("Staying: ", PinsLabel(d, *c), ". Without that, moving ",
                            MovesLabel(d, *c), " is predicted to take ", TimesLabel(d, *c), ". ",
                            WhyOf(d, *c));
      }
      break;
    case Reason::kNoMemory:
      if (const Candidate* c = BestWith(d, Verdict::kNoMemory)) {
        return ExplainCandidate(d, "what would pay does not fit into the target's free memory; ",
                                *c);
      }
      break;
    case Reason::kMemoryUnknown:
      if (const Candidate* c = BestWith(d, Verdict::kMemoryUnknown)) {
        return ExplainCandidate(d,
                                "what would pay holds memory that is not measured where it is, and "
                                "the target has a limit on memory; ",
                                *c);
      }
      break;
    case Reason::kNoCpu:
      if (const Candidate* c = BestWith(d, Verdict::kNoCpu)) {
        const std::string opening =
            absl::StrCat("the server's CPU limit, ", absl::StrFormat("%.6g", 100 * d.cpu_share_max),
                         " % of its capacity for objects that it pulls, is in the way; ");
        return ExplainCandidate(d, opening.c_str(), *c);
      }
      break;
    case Reason::kBelowThreshold:
      if (const Candidate* c = BestWith(d, Verdict::kBelowThreshold)) {
        return ExplainCandidate(d, "", *c);
      }
      break;
    case Reason::kUncertain:
      if (const Candidate* c = BestWith(d, Verdict::kUncertain)) {
        return ExplainCandidate(d, "it is not sure enough that it pays; ", *c);
      }
      break;
    case Reason::kPresentIsBest:
      for (const Verdict verdict : {Verdict::kSlower, Verdict::kPinned}) {
        if (const Candidate* c = BestWith(d, verdict)) {
          return ExplainCandidate(d, Better(d), *c);
        }
      }
      break;
    case Reason::kNotConverged:
      return absl::StrCat("Staying: equations 5 and 6 were cut off for ", d.cut_off,
                          d.cut_off == 1 ? " placement" : " placements",
                          " before they converged, and nothing else pays.");
    default:
      break;
  }
  return absl::StrCat(
      "Staying: ",
      d.reason == Reason::kNothingMobile ? "no object of the stack may move" : "nothing else pays",
      ". It is predicted to take ", Seconds(d.present->response_s), " for the work of a window of ",
      Seconds(d.window_s), ".");
}

std::string TermsLine(const Prediction& p) {
  return absl::StrFormat(
      "T_app %s = client %s + network %s + server %s + own stalls %s; loads %.2f and %.2f after %d "
      "iteration%s%s",
      Seconds(p.response_s), Seconds(p.terms.client_cpu_s), Seconds(p.terms.network_s),
      Seconds(p.terms.server_cpu_s), Seconds(p.terms.own_stall_s), p.loads.client, p.loads.server,
      p.iterations, p.iterations == 1 ? "" : "s", p.converged ? "" : ", cut off");
}

// "console | grep storage": the bar is where the split is.
std::string SplitLabel(const Decision& d, int split) {
  std::vector<std::string> names;
  for (size_t j = 0; j < d.stack.size(); ++j) {
    names.push_back(ObjectLabel(d.stack[j]));
    if (static_cast<int>(j) == split) names.push_back("|");
  }
  return absl::StrJoin(names, " ");
}

// "split 1 (console grep | storage)", or what a placement of a graph moves.
std::string PlacementLabel(const Decision& d, const Candidate& candidate) {
  if (candidate.split >= 0) {
    return absl::StrCat("split ", candidate.split, " (", SplitLabel(d, candidate.split), ")");
  }
  return candidate.moves.empty() ? "as now" : MovesLabel(d, candidate);
}

}  // namespace

std::string Decision::Explanation() const {
  if (!explained.empty() || !present) return explained;
  const std::string text =
      outcome == Outcome::kMove ? ExplainMove(*this, candidates[*chosen]) : ExplainStay(*this);
  return absl::StrCat(text, ModelErrorLabel(*this));
}

std::string Format(const Decision& decision) {
  std::string text = absl::StrCat(decision.Explanation(), "\n");
  if (!decision.present) return text;
  absl::StrAppend(&text, "  now: ", TermsLine(*decision.present), "\n");
  for (size_t i = 0; i < decision.candidates.size(); ++i) {
    const Candidate& candidate = decision.candidates[i];
    absl::StrAppend(&text, "  ", PlacementLabel(decision, candidate), ": ",
                    TermsLine(candidate.prediction));
    if (candidate.verdict != Verdict::kPresent) {
      absl::StrAppend(&text, "; cost ", Seconds(candidate.cost.Total()), ", net benefit ",
                      Seconds(candidate.net_benefit_s), ", threshold ",
                      Seconds(candidate.threshold_s));
    }
    const std::string_view verdict = VerdictName(candidate.verdict);
    absl::StrAppend(&text, ": ", absl::string_view(verdict.data(), verdict.size()),
                    decision.chosen == i ? ", chosen" : "", "\n");
  }
  const auto left_aside = [&](size_t count, const char* one, const char* more) {
    if (count == 0) return;
    absl::StrAppend(&text, "  left aside, without figures to be trusted: ", count, " ",
                    count == 1 ? one : more, "\n");
  };
  left_aside(decision.links_left_aside, "link", "links");
  left_aside(decision.nodes_left_aside, "node", "nodes");
  return text;
}

std::string Format(const RoundStep& step, const Snapshot& snapshot) {
  const auto object_label = [&](const ObjectId& id) {
    for (const ObjectStatistics& object : snapshot.objects) {
      if (object.id == id && !object.class_name.empty()) {
        return absl::StrCat(object.class_name, " ", ToString(id));
      }
    }
    return absl::StrCat("object ", ToString(id));
  };
  const auto node_label = [&](NodeId id) {
    for (const NodeStatistics& node : snapshot.nodes) {
      if (node.node == id) return NodeLabel(node);
    }
    return absl::StrCat("node ", id);
  };
  std::vector<std::string> moves;
  for (const Move& move : step.moves) {
    moves.push_back(absl::StrCat(object_label(move.object), " from ", node_label(move.from), " to ",
                                 node_label(move.to)));
  }
  return absl::StrCat("Moving ", List(moves), " gains ", Seconds(step.benefit_s),
                      " over all consoles and costs ", Seconds(step.cost.Total()), "; net benefit ",
                      Seconds(step.net_benefit_s), " > threshold ", Seconds(step.threshold_s), ".");
}

}  // namespace abacus::placement
