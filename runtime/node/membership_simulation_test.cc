// Many nodes, each a Membership, on a simulated network that cuts, loses and pauses by a seed.

#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/node/membership.h"

namespace abacus::runtime {
namespace {

using Kind = Membership::Event::Kind;
using Verdict = HeartbeatAnswer::Verdict;

constexpr absl::Duration kInterval = absl::Milliseconds(500);
constexpr absl::Duration kTick = absl::Milliseconds(125);
constexpr NodeId kFirstClient = 1u << 30;

MemberInfo InfoOf(NodeId node, uint32_t incarnation, bool server) {
  return {.instance = {node, incarnation},
          .name = absl::StrCat("n", node),
          .data_address = "data",
          .control_address = "control",
          .server = server};
}

absl::Status JoinAt(Membership& joiner, Membership& server, absl::Time now) {
  absl::StatusOr<JoinAnswer> answer = server.Admit(joiner.self(), now);
  if (!answer.ok()) return answer.status();
  return joiner.Joined(*answer, now, now);
}

// Random losses, pauses, restarts and leaves on three servers and four clients: whoever is declared
// dead by anybody while its process runs has stopped serving by then, deaths are told once, and
// nobody comes back.
class MembershipSimulation {
 public:
  explicit MembershipSimulation(uint32_t seed) : random_(seed) {
    for (NodeId node = 1; node <= 3; ++node) Start(node, true);
    for (NodeId node = kFirstClient; node < kFirstClient + 4; ++node) Start(node, false);
  }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += kTick;
      if (Chance(400)) CutOrMend();
      for (auto& [node, process] : processes_) Step(node, process);
      Check();
    }
  }

  uint64_t deaths = 0;
  uint64_t fences = 0;

 private:
  struct Process {
    std::unique_ptr<Membership> membership;
    absl::Time paused_until = absl::InfinitePast();
    absl::Time next_beat;
    std::set<NodeInstance> told_alive;
    std::set<NodeInstance> told_dead;
  };

  bool Chance(int one_in) { return std::uniform_int_distribution<int>(1, one_in)(random_) == 1; }
  NodeId AnyNode() {
    auto it = processes_.begin();
    std::advance(it, std::uniform_int_distribution<size_t>(0, processes_.size() - 1)(random_));
    return it->first;
  }

  void Start(NodeId node, bool server) {
    Process& process = processes_[node];
    const uint32_t incarnation = ++incarnations_[node];
    process = Process();
    process.membership =
        std::make_unique<Membership>(InfoOf(node, incarnation, server), MembershipOptions{}, now_);
    process.next_beat = now_;
  }

  // Cuts between clients and servers only: servers that do not hear each other by any way may each
  // go on (see the class comment).
  void CutOrMend() {
    const NodeId client = kFirstClient + std::uniform_int_distribution<NodeId>(0, 3)(random_);
    const NodeId server = std::uniform_int_distribution<NodeId>(1, 3)(random_);
    if (!cut_.insert({client, server}).second) cut_.erase({client, server});
  }

  // One server at a time, for the same reason: two that sleep in turn declare each other dead.
  bool MayPause(bool server) {
    if (!server) return true;
    for (const auto& [node, process] : processes_) {
      if (process.membership->self().server && process.paused_until + absl::Seconds(8) > now_) {
        return false;
      }
    }
    return true;
  }

  void Step(NodeId node, Process& process) {
    if (process.paused_until > now_) return;
    Membership& self = *process.membership;
    if (Chance(3000) && MayPause(self.self().server)) {
      process.paused_until = now_ + absl::Seconds(8);
    }
    if (Chance(2000) || (self.fenced_for_good() && Chance(20))) {
      return Start(node, self.self().server);  // it is killed, and started again
    }
    self.Tick(now_);
    if (process.next_beat <= now_) {
      process.next_beat = now_ + kInterval;
      for (auto& [other, server] : processes_) {
        if (other != node && server.membership->self().server) Reach(node, self, other, server);
      }
    }
    Take(process);
  }

  void Reach(NodeId node, Membership& self, NodeId other, Process& server) {
    if (cut_.contains({node, other}) || server.paused_until > now_ || Chance(30)) return;
    if (self.fenced_for_good() || server.membership->fenced_for_good()) return;
    Membership& to = *server.membership;
    const NodeInstance instance = to.self().instance;
    for (const MemberInfo& known : self.Servers()) {
      if (known.instance.node == other && self.HasJoined(known.instance)) {
        self.Answered(known.instance, to.Answer(self.Ask(known.instance, now_), now_), now_, now_);
        return;
      }
    }
    if (self.IsDead(instance)) return self.DeadOneAnswered(instance);
    if (JoinAt(self, to, now_).ok()) return;
    HeartbeatAsk ask;
    ask.instance = self.self().instance;
    if (to.Answer(ask, now_).verdict == Verdict::kFenced) self.ToldDead(instance);
  }

  void Take(Process& process) {
    for (const Membership::Event& event : process.membership->TakeEvents()) {
      const NodeInstance instance = event.member.instance;
      if (event.kind == Kind::kAlive) {
        EXPECT_TRUE(process.told_alive.insert(instance).second) << instance.ToString();
        EXPECT_FALSE(process.told_dead.contains(instance)) << instance.ToString();
      } else if (event.kind == Kind::kDead) {
        ++deaths;
        EXPECT_TRUE(process.told_dead.insert(instance).second) << instance.ToString();
      } else {
        ++fences;
      }
    }
  }

  // A client that some server took for dead because it did not hear it serves nothing: it has
  // stopped by itself (Tick), or is paused, in which case it stops before it does anything else.
  void Check() {
    for (auto& [node, process] : processes_) {
      const Membership& client = *process.membership;
      if (client.self().server || process.paused_until > now_) continue;
      for (const auto& [other, server] : processes_) {
        const bool dead =
            server.membership->self().server && server.membership->IsDead(client.self().instance);
        if (dead && !server.membership->fenced()) {
          EXPECT_TRUE(client.fenced()) << "client " << client.self().instance.ToString()
                                       << " is dead to " << other << " and serves";
        }
      }
    }
  }

  std::mt19937 random_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::map<NodeId, Process> processes_;
  std::map<NodeId, uint32_t> incarnations_;
  std::set<std::pair<NodeId, NodeId>> cut_;
};

TEST(MembershipSimulationTest, NoClientServesThatAServerHasDeclaredDead) {
  uint64_t deaths = 0;
  uint64_t fences = 0;
  const uint32_t seeds = std::getenv("ABACUS_LONG") != nullptr ? 2000 : 40;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    MembershipSimulation simulation(seed);
    simulation.Run(4000);
    deaths += simulation.deaths;
    fences += simulation.fences;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(deaths, 1000u);
  EXPECT_GT(fences, 100u);
}

}  // namespace
}  // namespace abacus::runtime
