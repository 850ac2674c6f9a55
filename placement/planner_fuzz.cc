// Makes a small cluster and a course of events from the input's bytes and lets a Planner decide on
// it, round after round: no crash, no figure that is not a number, every move from where its object
// is to another node, and no object pulled to and fro while nothing changes.
//
// The first bytes choose the cluster and the constants, every other one what happens in one round;
// past the input's end nothing does, and the same work goes on.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "placement/planner.h"
#include "placement/testing/planner_world.h"
#include "placement/testing/snapshots.h"

namespace {

using namespace abacus::placement;  // NOLINT: the whole vocabulary

constexpr int kRounds = 80;
constexpr double kTick_s = 0.2;  // 16 windows in all
// An object that two consoles want in different places would go back in every tenth round, when the
// cool-down of two windows is over: each of the two has one of its own, so in every fifth. With
// cool-downs that double it goes back at 2, 6 and 14 windows: 3 times. A tenth is 8 times.
constexpr double kReversalsShareMax = 0.1;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "planner_fuzz: %s\n", what);
  std::abort();
}

class Course {
 public:
  Course(const uint8_t* data, size_t size)
      : data_(data),
        size_(size),
        flags_(Byte()),
        random_(Seed()),
        world_(testing::RandomRound(random_, 2 + (flags_ & 3) % 3)),
        planner_(MakeConfig(), MakePlannerConfig()) {
    if (flags_ & 64) Share();
  }

  void Run() {
    for (round_ = 0; round_ < kRounds; ++round_) {
      now_s_ += kTick_s;
      Happen(Byte());
      Report();
      if (flags_ & 4) {
        for (const ObjectId& console : world_.consoles()) {
          Take(planner_.Decide(console, now_s_ + step_s_));
        }
      } else {
        for (const Planner::Decided& one :
             planner_.DecideRound(world_.consoles(), now_s_ + step_s_)) {
          Take(one.decision);
        }
      }
      EndMoves();
    }
    for (const auto& [object, came] : came_) {
      Require(came.reversals <= kReversalsShareMax * kRounds, "an object is pulled to and fro");
    }
  }

 private:
  struct Came {
    NodeId from = 0;
    int round = -1;
    int reversals = 0;
  };
  struct UnderWay {
    ObjectId console;
    std::vector<Move> moves;
    int until = 0;
    bool ok = true;
  };

  uint8_t Byte() { return at_ < size_ ? data_[at_++] : 0; }
  uint64_t Seed() {
    const uint64_t high = Byte();
    return high << 8 | Byte();
  }

  Config MakeConfig() {
    Config config;
    const uint8_t kind = Byte();
    if (kind & 1) config.b_thresh = 0.05;
    if (kind & 2) config.confidence_z = 0;
    if (kind & 4) config.cpu_share_max = 0.3;
    if (kind & 8) config.client_load_constant = true;
    return config;
  }
  PlannerConfig MakePlannerConfig() {
    PlannerConfig config;
    const uint8_t kind = Byte();
    if (kind & 1) config.settled_windows = 2;
    if (kind & 2) config.hysteresis = 1;
    if (kind & 4) config.samples_max = 8;
    if (kind & 8) config.graphs_max = 2;
    return config;
  }

  // All consoles call the first one's object, and would each rather have it beside them.
  void Share() {
    Snapshot& truth = world_.truth();
    const std::vector<ObjectId>& consoles = world_.consoles();
    const ObjectId shared{consoles[0].node, 1, 1};
    for (size_t c = 0; c < consoles.size(); ++c) {
      std::erase_if(truth.edges, [&](const EdgeStatistics& edge) {
        return edge.from == consoles[c] && edge.to == shared;
      });
      truth.edges.push_back(
          {.from = consoles[c], .to = shared, .calls = 100, .reply_bytes = 1e6 * Byte()});
      for (size_t d = 0; d < c; ++d) {
        const NodeId a = consoles[d].node;
        const NodeId b = consoles[c].node;
        std::erase_if(truth.links, [&](const LinkStatistics& link) {
          return std::minmax(link.a, link.b) == std::minmax(a, b);
        });
        truth.links.push_back({.a = a,
                               .b = b,
                               .bandwidth_bytes_s = 1e7,
                               .round_trip_s = 1e-4,
                               .measured_bytes = 1e6});
      }
    }
  }

  // What nothing can be concluded from about who pulls: reversals before it and after it differ in
  // their cause.
  void Disturb() { disturbed_ = round_; }

  void Happen(uint8_t what) {
    fails_ = false;
    spoilt_ = 0;
    noise_ = (flags_ & 32) ? 0.1 : 0;
    Snapshot& truth = world_.truth();
    const size_t which = what % 8;
    switch (what / 8) {
      case 20:
      case 21: {
        EdgeStatistics& edge = truth.edges[which % truth.edges.size()];
        edge.reply_bytes = std::min(1e9, edge.reply_bytes * (what / 8 == 20 ? 30 : 1 / 30.0));
        return Disturb();
      }
      case 22: {
        NodeStatistics& node = truth.nodes[which % truth.nodes.size()];
        node.load += which % 2 == 0 ? 4 : 0;
        return Disturb();
      }
      case 23:
        truth.objects[which % truth.objects.size()].pinned ^= true;
        return Disturb();
      case 24:
        fails_ = true;
        return Disturb();
      case 25:
        spoilt_ = 1 + static_cast<int>(which);
        return Disturb();
      case 26:
        step_s_ += which < 4 ? -3.0 * static_cast<double>(which) : 2;
        return Disturb();
      case 27: {
        const ObjectId& console = world_.consoles()[which % world_.consoles().size()];
        const bool moving =
            std::any_of(under_way_.begin(), under_way_.end(),
                        [&](const UnderWay& one) { return one.console == console; });
        if (!moving) planner_.Forget(console);
        return Disturb();
      }
      case 28:
        planner_.Suspend(which % 2 == 0);
        return Disturb();
      case 29:
        planner_.DryRun(which % 2 == 0);
        return Disturb();
      case 30:
        delay_ = static_cast<int>(which);
        return Disturb();
      case 31:
        planner_.SetConfig(MakeConfig(), MakePlannerConfig()).IgnoreError();
        return Disturb();
      default:
        return;
    }
  }

  double Noisy(double value) { return value * random_.Uniform(1 - noise_, 1 + noise_); }

  void Report() {
    for (const ObjectId& console : world_.consoles()) {
      Snapshot sample = world_.SampleOf(console, kTick_s, !(flags_ & 8));
      if (flags_ & 16) sample.measured_t_app_s = kTick_s * random_.Uniform(0.2, 1);
      if (noise_ > 0) {
        for (ObjectStatistics& object : sample.objects) object.cpu_s = Noisy(object.cpu_s);
        for (EdgeStatistics& edge : sample.edges) edge.reply_bytes = Noisy(edge.reply_bytes);
        for (NodeStatistics& node : sample.nodes) node.load = Noisy(node.load);
      }
      if (spoilt_ > 0) Spoil(&sample);
      planner_.Observe(sample, now_s_ + step_s_, now_s_ + step_s_).IgnoreError();
    }
  }

  void Spoil(Snapshot* sample) {
    const double values[] = {std::nan(""), -1, std::numeric_limits<double>::infinity(), 1e300};
    const double value = values[spoilt_ % 4];
    if (spoilt_ < 3) {
      sample->objects[0].cpu_s = value;
    } else if (spoilt_ < 5) {
      sample->edges[0].reply_bytes = value;
    } else if (spoilt_ < 7) {
      sample->nodes[0].load = value;
    } else {
      sample->edges.push_back({.from = sample->console, .to = {9, 9, 9}, .calls = value});
    }
  }

  void Check(const Decision& d) const {
    Require((d.outcome == Outcome::kMove) == !d.moves.empty(), "a move without moves");
    Require(!d.present || std::isfinite(d.present->response_s), "the present is not finite");
    for (const Candidate& c : d.candidates) {
      Require(std::isfinite(c.prediction.response_s) && std::isfinite(c.net_benefit_s) &&
                  std::isfinite(c.threshold_s),
              "a candidate is not finite");
    }
    Require(!Format(d).empty(), "no explanation");
  }

  void Take(const Decision& d) {
    Check(d);
    if (d.outcome != Outcome::kMove) return;
    for (const Move& move : d.moves) {
      Require(move.from != move.to, "a move to where the object is");
      Require(world_.NodeOf(move.object) == move.from, "a move from where the object is not");
      for (const UnderWay& other : under_way_) {
        for (const Move& same : other.moves) {
          Require(same.object != move.object, "an object is moved twice at once");
        }
      }
      Came& came = came_[move.object];
      if (came.round >= disturbed_ && came.round >= 0 && came.from == move.to) ++came.reversals;
      came.from = move.from;
      came.round = round_;
    }
    under_way_.push_back({d.console, d.moves, round_ + delay_, !fails_});
  }

  void EndMoves() {
    std::erase_if(under_way_, [&](const UnderWay& one) {
      if (one.until > round_) return false;
      if (one.ok) world_.CarryOut(one.moves);
      planner_.OnMoveEnded(one.console, one.ok, 0.002, now_s_ + step_s_);
      return true;
    });
  }

  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
  uint8_t flags_;
  testing::Random random_;
  testing::PlannerWorld world_;
  Planner planner_;
  int round_ = 0;
  int disturbed_ = 0;
  double now_s_ = 1000;
  double step_s_ = 0;  // of the clock that the planner is told
  double noise_ = 0;
  bool fails_ = false;
  int spoilt_ = 0;
  int delay_ = 0;
  std::vector<UnderWay> under_way_;
  std::map<ObjectId, Came> came_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Course(data, size).Run();
  return 0;
}
