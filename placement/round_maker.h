#ifndef ABACUS_PLACEMENT_ROUND_MAKER_H_
#define ABACUS_PLACEMENT_ROUND_MAKER_H_

// The greedy round over many consoles (DecideAll() in engine.h) in the making: what round.cc and
// round_steps.cc share. Internal to the room.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "placement/engine.h"
#include "placement/graph.h"
#include "placement/limits.h"
#include "placement/model.h"
#include "placement/search.h"

namespace abacus::placement::round_internal {

inline constexpr size_t kEjectedMax = 8;   // graphs ejected for one step
inline constexpr double kProgress = 1e-9;  // least part by which a pass must lower the sum of times

// A node as all graphs together see it.
struct Place {
  const NodeStatistics* statistics = nullptr;
  NodeBase base;  // load: of those that are not decided on
  double free_bytes = std::numeric_limits<double>::infinity();
  // At the loads of the last prediction, kept up to date while steps are made.
  double load = 0;     // not floored
  double cpu_s = 0;    // of all consoles decided on
  double squares = 0;  // sum of cpu_s^2 / (T^2 c)
  double pulled = 0;   // cores that objects pulled here use; 0 without a limit on them
  double cpu_limit = std::numeric_limits<double>::infinity();  // on that
};

// One graph, where its objects are by now, and what it makes of each of its nodes.
struct Member {
  const Graph* graph = nullptr;
  std::vector<uint32_t> places;  // of Graph::nodes
  Placement at;
  uint32_t first_console = 0;
  std::vector<double> load;  // by node of the graph
  std::vector<double> cpu_s;
  std::vector<double> squares;
  std::vector<double> pulled;  // cores (limits.h)
  bool uncertain = false;
  Reason reason = Reason::kPresentIsBest;
  bool touched = false;  // in this pass
  bool seeks = true;
  bool may_be_ejected = true;
  // Of the best placement that would pay but for the others; its gain is 0 where there is none.
  double own_net_benefit_s = 0;
  double own_threshold_s = 0;
  double others_lose_s = 0;
};

// One graph's way to another placement.
struct Way {
  uint32_t member = 0;
  Placement to;
  MigrationCost cost;
  double benefit_s = 0;
  double deviation_s = 0;
  double threshold_s = 0;
  double freed = 0;  // of what it leaves for: bytes or cores
};

// Ways that are gone together: the first for its benefit, the others to make room.
struct Step {
  std::vector<Way> ways;

  double Benefit() const {
    return Sum([](const Way& w) { return w.benefit_s; });
  }
  double Net() const {
    return Sum([](const Way& w) { return w.benefit_s - w.cost.Total(); });
  }
  // Of those that it is for. What those lose that make room is in the benefit.
  double Threshold() const { return ways.front().threshold_s; }
  double Deviation() const {
    return std::sqrt(Sum([](const Way& w) { return w.deviation_s * w.deviation_s; }));
  }
  double Sure(double confidence_z) const { return Net() - confidence_z * Deviation(); }
  bool Pays(double confidence_z) const { return Sure(confidence_z) > Threshold(); }

 private:
  template <typename F>
  double Sum(F of) const {
    double sum = 0;
    for (const Way& way : ways) sum += of(way);
    return sum;
  }
};

class RoundMaker {
 public:
  RoundMaker(const Snapshot& snapshot, const Config& config, const RoundRoles* roles)
      : snapshot_(snapshot),
        config_(config),
        options_(FixedPointOptionsOf(config)),
        roles_(roles) {}

  Round Run(absl::Span<const ObjectId> consoles);

 private:
  struct Entry {
    double sure_s;
    uint32_t member;
    bool operator<(const Entry& other) const {
      return sure_s != other.sure_s ? sure_s < other.sure_s : member > other.member;
    }
  };

  void AddMembers(const SnapshotReader::Graphs& read, absl::Span<const ObjectId> consoles);
  void AssignRoles();
  uint32_t PlaceOf(const GraphNode& node);
  void FindOthers();
  void Predict();
  void Weigh(Member& member, const Trial& trial, absl::Span<const double> response_s);
  void Count(const Member& member, double sign);
  double Total() const;

  Situation SituationOf(const Member& member) const;
  struct Least {
    double response_s = 0;
    double beside_s = 0;
  };
  Least LeastOf(const Situation& situation, const Placement& to) const;
  std::optional<Step> StepOf(uint32_t m, bool final);
  double OthersLoss(const Situation& situation, const Evaluation& now,
                    const Evaluation& then) const;
  bool RefusedForOthers(Member& member, const Step& step, const Situation& situation,
                        const Evaluation& now, const Evaluation& then) const;
  std::vector<Placement> PlacementsOf(const Situation& situation) const;
  Way WayTo(uint32_t m, const Situation& situation, const Evaluation& now, const Placement& to,
            const Evaluation& then) const;
  enum class Scarce : uint8_t { kMemory, kCpu };
  bool MakeRoom(const Situation& situation, const Evaluation& then, Step& step);
  bool FreeMemory(Step& step);
  bool FreeCpu(const Evaluation& then, Step& step);
  void Eject(uint32_t place, Scarce scarce, double lack, Step* step);
  const std::vector<Way>& LeaversOf(uint32_t place, Scarce scarce);
  std::optional<Way> WayHome(uint32_t m, uint32_t place, Scarce scarce) const;
  bool CpuIsKeptTo(absl::Span<const Place> before) const;
  std::vector<Step> Pass();
  void Apply(const Step& step);
  bool Improve();
  void Report(const SnapshotReader::Graphs& read, absl::Span<const ObjectId> consoles,
              Round* round) const;

  const Snapshot& snapshot_;
  const Config& config_;
  const FixedPointOptions options_;
  const RoundRoles* const roles_;
  std::vector<Place> places_;
  absl::flat_hash_map<const NodeStatistics*, uint32_t> place_of_;
  std::vector<Member> members_;
  absl::flat_hash_map<size_t, uint32_t> member_of_;  // by index of the graph
  std::vector<double> response_s_;                   // by console of all members
  std::vector<double> first_response_s_;
  std::vector<Step> made_;
  // By place and what is scarce there, at the last prediction.
  std::map<std::pair<uint32_t, Scarce>, std::vector<Way>> leavers_;
  bool converged_ = true;
  int cut_off_ = 0;
  int passes_ = 0;
};

}  // namespace abacus::placement::round_internal

#endif  // ABACUS_PLACEMENT_ROUND_MAKER_H_
