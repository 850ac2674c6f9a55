// ./dev bench resource: what a storage server spends on deciding, as it runs: the digests of 10,000
// clients come in every 50 ms, are joined into a snapshot for each console, kept as histories,
// decided on, and what was decided is recorded. CPU time of the one thread that does all of it.

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "placement/testing/snapshots.h"
#include "runtime/resource/placement_loop.h"
#include "runtime/testing/bench_report.h"

namespace abacus::runtime {
namespace {

using placement::testing::Random;

constexpr uint32_t kClients = 10'000;
constexpr double kTick_s = 0.05;
constexpr int kTicks = 21;  // a window and one more
constexpr NodeInstance kServer{1, 1};
constexpr double kServerCores = 64;

double ThreadCpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double HeapMegabytes() { return static_cast<double>(mallinfo2().uordblks) / (1 << 20); }

NodeInstance ClientOf(uint32_t c) { return {10 + c, 1}; }
// Console, filter and cache are made at the client, storage at the server.
Rid ObjectOf(uint32_t c, uint64_t j) {
  return j == 3 ? Rid{kServer, 100 + uint64_t{c}} : Rid{ClientOf(c), j};
}

// One client's stack, and what it does in a second.
struct Stack {
  double cpu_s[4];
  double calls[3];
  double reply_bytes[3];
  NodeId at[4];
};

class Cluster {
 public:
  Cluster() {
    Random random(2);
    for (uint32_t c = 0; c < kClients; ++c) {
      Stack& stack = stacks_.emplace_back();
      for (uint64_t j = 0; j < 4; ++j) {
        stack.cpu_s[j] = random.LogUniform(1e-5, 0.005);
        stack.at[j] = j == 3 ? kServer.node : ClientOf(c).node;
      }
      for (int e = 0; e < 3; ++e) {
        stack.calls[e] = random.LogUniform(1, 100);
        stack.reply_bytes[e] = random.LogUniform(2e4, 2e6);
      }
    }
  }

  // The digests of one interval, the server's last.
  std::vector<Digest> Digests() const {
    std::vector<Digest> digests;
    Digest server = Empty(kServer, kServerCores);
    for (uint32_t c = 0; c < kClients; ++c) {
      Digest client = Empty(ClientOf(c), 2);
      client.consoles = {ObjectOf(c, 0)};
      client.links = {{.a = ClientOf(c).node,
                       .b = kServer.node,
                       .bandwidth_bytes_s = 1e7,
                       .round_trip_s = 2e-4,
                       .measured_bytes = 1e6}};
      const Stack& stack = stacks_[c];
      for (uint64_t j = 0; j < 4; ++j) {
        Digest& host = stack.at[j] == kServer.node ? server : client;
        placement::ObjectStatistics& o = host.objects.emplace_back();
        o.id = ToObjectId(ObjectOf(c, j));
        o.class_name = "object";
        o.node = stack.at[j];
        o.mobile = j == 1 || j == 2;
        o.cpu_s = stack.cpu_s[j] * kTick_s;
        o.calls = j == 0 ? 0 : stack.calls[j - 1] * kTick_s;
        o.checkpoint_bytes = 65536;
        o.memory_bytes = 1 << 20;
        host.node.load += stack.cpu_s[j];
        if (j == 3) continue;
        host.edges.push_back({.from = o.id,
                              .to = ToObjectId(ObjectOf(c, j + 1)),
                              .calls = stack.calls[j] * kTick_s,
                              .reply_bytes = stack.reply_bytes[j] * kTick_s});
      }
      digests.push_back(std::move(client));
    }
    digests.push_back(std::move(server));
    return digests;
  }

  void CarryOut(const PlannedMove& move) {
    for (const Rid& rid : move.rids) stacks_[rid.home.node - 10].at[rid.local] = move.to;
  }

 private:
  static Digest Empty(NodeInstance node, double cores) {
    Digest digest{.from = node, .window_s = kTick_s};
    digest.node = {.node = node.node,
                   .is_server = node == kServer,
                   .rate = 1,
                   .cores = cores,
                   .load = 0.1,
                   .source = "benchmark"};
    return digest;
  }

  std::vector<Stack> stacks_;
};

struct Times {
  std::vector<double> accept_ms, decide_ms;
  size_t moves = 0;

  static double Median(std::vector<double> ms) {
    std::sort(ms.begin(), ms.end());
    return ms.empty() ? 0 : ms[ms.size() / 2];
  }
  static double Longest(const std::vector<double>& ms) {
    return ms.empty() ? 0 : *std::max_element(ms.begin(), ms.end());
  }
};

// So many intervals; moves are carried out at once.
Times Watch(PlacementLoop& loop, Cluster& cluster, absl::Time& now, int ticks) {
  Times times;
  for (int tick = 0; tick < ticks; ++tick) {
    now += absl::Seconds(kTick_s);
    std::vector<Digest> digests = cluster.Digests();
    double begin_ms = ThreadCpuMs();
    for (Digest& digest : digests) loop.Accept(std::move(digest), now).IgnoreError();
    times.accept_ms.push_back(ThreadCpuMs() - begin_ms);
    begin_ms = ThreadCpuMs();
    const std::vector<PlannedMove> moves = loop.Decide(now);
    times.decide_ms.push_back(ThreadCpuMs() - begin_ms);
    for (const PlannedMove& move : moves) {
      cluster.CarryOut(move);
      loop.OnMoveEnded(move, absl::OkStatus(), absl::Milliseconds(2), now);
    }
    times.moves += moves.size();
  }
  return times;
}

void AddRow(BenchReport& report, const std::string& name, double value, const std::string& unit,
            double goal) {
  report.Add({.name = name,
              .value = value,
              .unit = unit,
              .baseline_name = "the goal",
              .baseline = goal,
              .ratio = value / goal,
              .goal = absl::StrCat("<= ", goal, " ", unit),
              .met = value <= goal});
}

void Measure(BenchReport& report) {
  report.Note("CPU time of one thread; 10,000 clients with a stack of 4 on one server, each 50 ms");
  const std::string log = std::filesystem::temp_directory_path() / "abacus-bench-decisions";
  Cluster cluster;
  const double before_mb = HeapMegabytes();
  PlacementLoop loop(kServer.node, {.log_path = log});
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  const Times first = Watch(loop, cluster, now, kTicks);
  const Times then = Watch(loop, cluster, now, kTicks);
  const double heap_mb = HeapMegabytes() - before_mb;
  std::filesystem::remove_all(log);
  std::filesystem::remove_all(log + ".1");
  report.Note(absl::StrCat("moves in the first window ", first.moves, ", in the one after it ",
                           then.moves));
  AddRow(report, "an interval's digests taken in", Times::Median(then.accept_ms), "ms", 50);
  AddRow(report, "a round, in the first window: median", Times::Median(first.decide_ms), "ms", 100);
  AddRow(report, "a round, in the first window: longest", Times::Longest(first.decide_ms), "ms",
         100);
  AddRow(report, "a round, afterwards: median", Times::Median(then.decide_ms), "ms", 100);
  AddRow(report, "a round, afterwards: longest", Times::Longest(then.decide_ms), "ms", 100);
  AddRow(report, "memory of histories, digests and decisions", heap_mb, "MB", 200);
}

}  // namespace
}  // namespace abacus::runtime

int main(int argc, char** argv) {
  return abacus::runtime::BenchMain(argc, argv, "resource", abacus::runtime::Measure);
}
