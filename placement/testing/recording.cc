#include "placement/testing/recording.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::placement::testing {
namespace {

constexpr char kFirstLine[] = "abacus-planner-rounds 1";
constexpr double kSameFigure = 1e-6;

std::string Number(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}
std::string Number(const std::optional<double>& value) { return value ? Number(*value) : "-"; }
std::string Word(const std::string& text) { return text.empty() ? "-" : text; }

// Every constant by its name; `visit` gets a reference to each.
template <typename F>
void VisitConfig(Config& c, PlannerConfig& p, F visit) {
  visit("b_thresh", c.b_thresh);
  visit("window_s", c.window_s);
  visit("min_evidence_bytes", c.min_evidence_bytes);
  visit("min_link_evidence_bytes", c.min_link_evidence_bytes);
  visit("fixed_point_iterations_max", c.fixed_point_iterations_max);
  visit("fixed_point_tolerance", c.fixed_point_tolerance);
  visit("quiesce_prior_s", c.quiesce_prior_s);
  visit("protocol_round_trips", c.protocol_round_trips);
  visit("confidence_z", c.confidence_z);
  visit("stack_objects_max", c.stack_objects_max);
  visit("candidates_max", c.candidates_max);
  visit("cpu_share_max", c.cpu_share_max);
  visit("client_load_constant", c.client_load_constant);
  visit("whole_window", p.whole_window);
  visit("fast_window", p.fast_window);
  visit("fast_gain", p.fast_gain);
  visit("fast_calls", p.fast_calls);
  visit("hysteresis", p.hysteresis);
  visit("cool_down", p.cool_down);
  visit("cool_down_max", p.cool_down_max);
  visit("forgive", p.forgive);
  visit("load_step", p.load_step);
  visit("settled_windows", p.settled_windows);
  visit("settled_thresh", p.settled_thresh);
  visit("slack_deviations", p.phases.slack_deviations);
  visit("alarm_sum", p.phases.alarm_sum);
  visit("evidence_per_sample_max", p.phases.evidence_per_sample_max);
  visit("deviation_floor", p.phases.deviation_floor);
  visit("deviation_prior", p.phases.deviation_prior);
  visit("kind_distance", p.phases.kind_distance);
  visit("kinds_max", p.phases.kinds_max);
  visit("lengths_max", p.phases.lengths_max);
  visit("horizon_windows_max", p.horizon_windows_max);
  visit("moves_per_phase", p.moves_per_phase);
  visit("undo_threshold", p.undo_threshold);
  visit("correction_max", p.correction_max);
  visit("correction_half_life", p.correction_half_life);
  visit("graphs_max", p.graphs_max);
  visit("samples_max", p.samples_max);
  visit("corrections_max", p.corrections_max);
  visit("errors_max", p.errors_max);
  visit("claim_windows_max", p.claim_windows_max);
}

std::string TextOf(Config config, PlannerConfig planner_config) {
  std::string text = "config";
  VisitConfig(config, planner_config, [&](const char* name, auto& value) {
    absl::StrAppend(&text, " ", name, " ", Number(static_cast<double>(value)));
  });
  return text + "\n";
}

// All but the first word and the number.
std::string TextOf(const Snapshot& s) {
  std::string text = absl::StrCat(Number(s.window_s), " ", ToString(s.console), " ",
                                  Number(s.measured_t_app_s), " ", Number(s.history.quiesce_s), " ",
                                  s.history.count, " ", s.options.suspended ? 1 : 0);
  for (const ObjectId& console : s.consoles) absl::StrAppend(&text, " ", ToString(console));
  text += "\n";
  for (const NodeStatistics& n : s.nodes) {
    absl::StrAppend(&text, "node ", n.node, " ", Number(n.rate), " ", Number(n.cores), " ",
                    Number(n.load), " ", Number(n.contention), " ");
    absl::StrAppend(&text, Number(n.memory_bytes), " ", Number(n.memory_free_bytes), " ",
                    Number(n.memory_limit_bytes), " ", n.sees_memory ? 1 : 0, "\n");
  }
  for (const ObjectStatistics& o : s.objects) {
    std::string allowed;
    for (const NodeId node : o.allowed) absl::StrAppend(&allowed, allowed.empty() ? "" : ",", node);
    absl::StrAppend(&text, "object ", ToString(o.id), " ", Word(o.class_name), " ", o.node, " ",
                    o.mobile ? 1 : 0, " ", o.pinned ? 1 : 0, " ");
    absl::StrAppend(&text, o.attach_group, " ", Word(allowed));
    for (const double figure : {o.cpu_s, o.cpu_s_variance, o.samples, o.background_cpu_s,
                                o.bytes_processed, o.own_stall_s, o.calls}) {
      absl::StrAppend(&text, " ", Number(figure));
    }
    absl::StrAppend(&text, " ", o.checkpoint_bytes, " ", o.memory_bytes);
    if (o.threads_s > 0) absl::StrAppend(&text, " ", Number(o.threads_s), " ", Number(o.busy_s));
    text += "\n";
  }
  for (const EdgeStatistics& e : s.edges) {
    absl::StrAppend(&text, "edge ", ToString(e.from), " ", ToString(e.to));
    for (const double figure :
         {e.calls, e.request_bytes, e.reply_bytes, e.bytes_variance, e.samples}) {
      absl::StrAppend(&text, " ", Number(figure));
    }
    text += "\n";
  }
  for (const LinkStatistics& l : s.links) {
    absl::StrAppend(&text, "link ", l.a, " ", l.b, " ", Number(l.bandwidth_bytes_s), " ",
                    Number(l.round_trip_s), " ");
    absl::StrAppend(&text, Number(l.measured_bytes), " ", Number(l.bandwidth_variance), " ",
                    Number(l.round_trip_bytes), "\n");
  }
  return text + "end\n";
}

std::string TextOf(const Planner::Decided& decided) {
  const Decision& d = decided.decision;
  const std::optional<double> now_s =
      d.present ? std::optional(d.present->response_s) : std::nullopt;
  const std::optional<double> then_s =
      d.chosen ? std::optional(d.candidates[*d.chosen].prediction.response_s) : std::nullopt;
  std::string moves;
  for (const Move& move : d.moves) {
    absl::StrAppend(&moves, moves.empty() ? "" : ",", ToString(move.object), ">", move.from, ">",
                    move.to);
  }
  const auto view = [](std::string_view text) { return std::string(text); };
  return absl::StrCat("decided ", ToString(d.console), " ", view(OutcomeName(d.outcome)), " ",
                      view(ReasonName(d.reason)), " ", decided.step) +
         absl::StrCat(" ", Number(now_s), " ", Number(then_s), " ", Word(moves), "\n");
}

// The words of one line; what is missing or no number leaves it not good().
class Words {
 public:
  explicit Words(const std::string& line) : in_(line) {}

  bool good() const { return good_; }
  bool more() {
    in_ >> std::ws;
    return !in_.eof();
  }

  std::string Text() {
    std::string word;
    if (!(in_ >> word)) good_ = false;
    return word == "-" ? std::string() : word;
  }
  double Double() { return Maybe().value_or(0); }
  std::optional<double> Maybe() {
    const std::string word = Text();
    if (word.empty()) return std::nullopt;
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    if (*end != '\0') good_ = false;
    return value;
  }
  uint64_t Count() {
    const std::string word = Text();
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) good_ = false;
    return value;
  }
  bool Flag() { return Count() != 0; }
  NodeId Node() { return static_cast<NodeId>(Count()); }
  ObjectId Id() {
    std::string word = Text();
    for (char& c : word) {
      if (c == '.') c = ' ';
    }
    std::istringstream parts(word);
    ObjectId id;
    if (!(parts >> id.node >> id.incarnation >> id.local)) good_ = false;
    return id;
  }

 private:
  std::istringstream in_;
  bool good_ = true;
};

bool ReadConfig(Words words, Config* config, PlannerConfig* planner_config) {
  absl::flat_hash_map<std::string, double> values;
  while (words.more()) {
    const std::string name = words.Text();
    values[name] = words.Double();
  }
  VisitConfig(*config, *planner_config, [&](const char* name, auto& value) {
    const auto it = values.find(name);
    if (it != values.end())
      value = static_cast<std::remove_reference_t<decltype(value)>>(it->second);
  });
  return words.good();
}

bool ReadSnapshotPart(const std::string& kind, Words words, Snapshot* s) {
  if (kind == "node") {
    NodeStatistics& n = s->nodes.emplace_back();
    n.node = words.Node();
    for (double* figure : {&n.rate, &n.cores, &n.load, &n.contention}) *figure = words.Double();
    for (auto* figure : {&n.memory_bytes, &n.memory_free_bytes, &n.memory_limit_bytes}) {
      *figure = words.Maybe();
    }
    n.sees_memory = words.Flag();
  } else if (kind == "object") {
    ObjectStatistics& o = s->objects.emplace_back();
    o.id = words.Id();
    o.class_name = words.Text();
    o.node = words.Node();
    o.mobile = words.Flag();
    o.pinned = words.Flag();
    o.attach_group = static_cast<uint32_t>(words.Count());
    std::istringstream allowed(words.Text());
    for (std::string node; std::getline(allowed, node, ',');) {
      o.allowed.push_back(static_cast<NodeId>(std::strtoul(node.c_str(), nullptr, 10)));
    }
    for (double* figure : {&o.cpu_s, &o.cpu_s_variance, &o.samples, &o.background_cpu_s,
                           &o.bytes_processed, &o.own_stall_s, &o.calls}) {
      *figure = words.Double();
    }
    o.checkpoint_bytes = words.Count();
    o.memory_bytes = words.Count();
    if (words.more()) {
      o.threads_s = words.Double();
      o.busy_s = words.Double();
    }
  } else if (kind == "edge") {
    EdgeStatistics& e = s->edges.emplace_back();
    e.from = words.Id();
    e.to = words.Id();
    for (double* figure :
         {&e.calls, &e.request_bytes, &e.reply_bytes, &e.bytes_variance, &e.samples}) {
      *figure = words.Double();
    }
  } else if (kind == "link") {
    LinkStatistics& l = s->links.emplace_back();
    l.a = words.Node();
    l.b = words.Node();
    l.bandwidth_bytes_s = words.Maybe();
    l.round_trip_s = words.Maybe();
    for (double* figure : {&l.measured_bytes, &l.bandwidth_variance, &l.round_trip_bytes}) {
      *figure = words.Double();
    }
  } else {
    return false;
  }
  return words.good();
}

Snapshot ReadSnapshotHead(Words& words) {
  Snapshot s;
  s.window_s = words.Double();
  s.console = words.Id();
  s.measured_t_app_s = words.Maybe();
  s.history.quiesce_s = words.Double();
  s.history.count = words.Count();
  s.options.suspended = words.Flag();
  while (words.good() && words.more()) s.consoles.push_back(words.Id());
  return s;
}

bool SameAnswer(const std::string& recorded, const std::string& now) {
  std::istringstream a(recorded);
  std::istringstream b(now);
  std::string x, y;
  while (true) {
    const bool more_a = static_cast<bool>(a >> x);
    const bool more_b = static_cast<bool>(b >> y);
    if (more_a != more_b) return false;
    if (!more_a) return true;
    if (x == y) continue;
    char* end_x = nullptr;
    char* end_y = nullptr;
    const double of_x = std::strtod(x.c_str(), &end_x);
    const double of_y = std::strtod(y.c_str(), &end_y);
    if (*end_x != '\0' || *end_y != '\0') return false;
    if (!(std::abs(of_x - of_y) <= kSameFigure * std::abs(of_x))) return false;
  }
}

class Player {
 public:
  explicit Player(const std::string& text) : in_(text) {}

  absl::StatusOr<Replay> Play() {
    if (!Next() || line_ != kFirstLine) return Bad();
    while (Next()) {
      if (!One()) return Bad();
    }
    return std::move(replay_);
  }

 private:
  bool Next() {
    while (std::getline(in_, line_)) {
      ++number_;
      if (!line_.empty() && line_.front() != '#') return true;
    }
    line_.clear();
    return false;
  }

  absl::Status Bad() const {
    return absl::InvalidArgumentError(absl::StrCat("line ", number_, ": ", line_));
  }

  bool One() {
    Words words(line_);
    const std::string kind = words.Text();
    if (kind == "config") {
      Config config;
      PlannerConfig planner_config;
      if (!ReadConfig(std::move(words), &config, &planner_config)) return false;
      planner_.emplace(config, planner_config);
      return true;
    }
    if (kind == "snapshot") return ReadSnapshot(words);
    if (!planner_) return false;
    if (kind == "round") return PlayRound(words);
    if (kind == "observe") {
      const size_t number = words.Count();
      const double end_s = words.Double();
      const double now_s = words.Double();
      if (!words.good() || number >= snapshots_.size()) return false;
      // What a planner refuses is recorded too, and refused again.
      planner_->Observe(snapshots_[number], end_s, now_s).IgnoreError();
    } else if (kind == "ended") {
      const ObjectId console = words.Id();
      const bool ok = words.Flag();
      const double quiesce_s = words.Double();
      planner_->OnMoveEnded(console, ok, quiesce_s, words.Double());
    } else if (kind == "forget") {
      planner_->Forget(words.Id());
    } else if (kind == "suspend") {
      planner_->Suspend(words.Flag());
    } else if (kind == "dry-run") {
      planner_->DryRun(words.Flag());
    } else {
      return false;
    }
    return words.good();
  }

  bool ReadSnapshot(Words& words) {
    if (words.Count() != snapshots_.size()) return false;
    snapshots_.push_back(ReadSnapshotHead(words));
    if (!words.good()) return false;
    while (Next()) {
      if (line_ == "end") return true;
      Words part(line_);
      const std::string kind = part.Text();
      if (!ReadSnapshotPart(kind, std::move(part), &snapshots_.back())) return false;
    }
    return false;
  }

  bool PlayRound(Words& words) {
    const double now_s = words.Double();
    std::vector<ObjectId> consoles;
    while (words.good() && words.more()) consoles.push_back(words.Id());
    if (!words.good()) return false;
    ++replay_.rounds;
    for (const Planner::Decided& decided : planner_->DecideRound(consoles, now_s)) {
      std::string answer = TextOf(decided);
      answer.pop_back();
      if (!Next()) return false;
      ++replay_.decisions;
      replay_.moves += decided.decision.moves.size();
      if (SameAnswer(line_, answer)) continue;
      replay_.differences.push_back(
          absl::StrCat("line ", number_, ": recorded \"", line_, "\", now \"", answer, "\""));
    }
    return true;
  }

  std::istringstream in_;
  std::string line_;
  size_t number_ = 0;
  std::optional<Planner> planner_;
  std::vector<Snapshot> snapshots_;
  Replay replay_;
};

}  // namespace

RecordingPlanner::RecordingPlanner(const Config& config, const PlannerConfig& planner_config)
    : planner_(config, planner_config),
      text_(absl::StrCat(kFirstLine, "\n", TextOf(config, planner_config))) {}

absl::Status RecordingPlanner::Observe(const Snapshot& sample, double end_s, double now_s) {
  const std::string text = TextOf(sample);
  const auto [it, first] = snapshots_.try_emplace(text, snapshots_.size());
  if (first) absl::StrAppend(&text_, "snapshot ", it->second, " ", text);
  absl::StrAppend(&text_, "observe ", it->second, " ", Number(end_s), " ", Number(now_s), "\n");
  return planner_.Observe(sample, end_s, now_s);
}

std::vector<Planner::Decided> RecordingPlanner::DecideRound(absl::Span<const ObjectId> consoles,
                                                            double now_s) {
  absl::StrAppend(&text_, "round ", Number(now_s));
  for (const ObjectId& console : consoles) absl::StrAppend(&text_, " ", ToString(console));
  text_ += "\n";
  std::vector<Planner::Decided> decided = planner_.DecideRound(consoles, now_s);
  for (const Planner::Decided& one : decided) text_ += TextOf(one);
  return decided;
}

void RecordingPlanner::OnMoveEnded(const ObjectId& console, bool ok, double quiesce_s,
                                   double now_s) {
  absl::StrAppend(&text_, "ended ", ToString(console), " ", ok ? 1 : 0, " ", Number(quiesce_s), " ",
                  Number(now_s), "\n");
  planner_.OnMoveEnded(console, ok, quiesce_s, now_s);
}

void RecordingPlanner::Forget(const ObjectId& console) {
  absl::StrAppend(&text_, "forget ", ToString(console), "\n");
  planner_.Forget(console);
}

void RecordingPlanner::Suspend(bool suspended) {
  absl::StrAppend(&text_, "suspend ", suspended ? 1 : 0, "\n");
  planner_.Suspend(suspended);
}

void RecordingPlanner::DryRun(bool dry_run) {
  absl::StrAppend(&text_, "dry-run ", dry_run ? 1 : 0, "\n");
  planner_.DryRun(dry_run);
}

absl::StatusOr<Replay> ReplayRounds(const std::string& text) { return Player(text).Play(); }

}  // namespace abacus::placement::testing
