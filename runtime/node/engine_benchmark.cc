// ./dev bench engine: what the placement engine predicts against what is then measured, over whole
// nodes and a slow link, with unlike workloads whose objects go to their data and come back.

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "monitor-ebpf/node_monitor.h"
#include "monitor-ebpf/thread_clock.h"
#include "runtime/base/status.h"
#include "runtime/node/control_client.h"
#include "runtime/node/node.h"
#include "runtime/testing/bench_report.h"
#include "runtime/testing/cpu_cgroup.h"

namespace abacus::runtime {
namespace {

// The default, as an operator has it.
const absl::Duration kWindow = Config().placement.window;
constexpr absl::Duration kAsk = absl::Seconds(30);
constexpr uint64_t kMovesMin = 40;

class Well : public AnchoredObject {
 public:
  absl::StatusOr<Block> Draw(uint32_t bytes) { return Block::CopyOf(std::string(bytes, 'w')); }
  ABACUS_OBJECT(Well, "bench.Well", 1, Draw)
};

// One turn: draws so often so much, computes so long, gives so much back.
class Valve : public MobileObject {
 public:
  absl::StatusOr<Block> Turn(Ref<Well> well, uint32_t draws, uint32_t drawn, uint32_t given,
                             uint32_t us) {
    for (uint32_t i = 0; i < draws; ++i) {
      const absl::StatusOr<Block> water = well->Draw(drawn);
      if (!water.ok()) return water.status();
    }
    const uint64_t end = monitor::MachineTime::ThreadCpuNs() + uint64_t{us} * 1000;
    while (monitor::MachineTime::ThreadCpuNs() < end) {
    }
    return Block::CopyOf(std::string(given, 'v'));
  }
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Valve, "bench.Valve", 1, Turn)
};

struct Work {
  uint32_t draws = 1;
  uint32_t drawn = 0;
  uint32_t given = 0;
  uint32_t us = 0;
};

// Belongs at the data, and the same turned around, which belongs at the client.
struct Workload {
  const char* name;
  Work there;
  Work back;
};

constexpr Workload kWorkloads[] = {
    {"small reads", {4, 4 << 10, 64, 100}, {1, 64, 32 << 10, 100}},
    {"large reads", {1, 128 << 10, 256, 200}, {1, 256, 128 << 10, 200}},
    {"much computing", {1, 64 << 10, 512, 8000}, {1, 512, 64 << 10, 8000}},
    {"little selective", {1, 64 << 10, 8 << 10, 500}, {1, 8 << 10, 64 << 10, 500}},
    {"many calls", {16, 8 << 10, 128, 300}, {1, 128, 96 << 10, 300}},
    // Back by smaller calls: while calls of a window and more drain, a move costs what it gains.
    {"calls longer than a window", {1, 1 << 20, 64, 1000}, {1, 64, 128 << 10, 1000}},
};

Config ConfigOf(const std::string& name) {
  Config config;
  config.node.name = name;
  config.transport.rate_limit_mbit = 20;
  return config;
}

absl::StatusOr<std::unique_ptr<monitor::Monitor>> NewMonitor() {
  monitor::MonitorOptions options;
  options.plain.rate = 1e9;  // both nodes are this very machine
  return monitor::NewMonitor(options);
}

void AddTypes(ObjectTypes& types) { types.Add<Well>().Add<Valve>(); }

// -- the server, a process of its own -------------------------------------------------------------

// What it says when it is there.
struct Hello {
  char control_address[64] = {};
  Rid well;
};
static_assert(std::is_trivially_copyable_v<Hello>, "it goes through a pipe");

// Shared with the client's process: when the engine's last move was done, in ns since the epoch.
using MovedAt = std::atomic<int64_t>;
static_assert(MovedAt::is_always_lock_free, "it is used by two processes");

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe(ends) != 0) return absl::ErrnoToStatus(errno, "pipe");
  return Pipe{ends[0], ends[1]};
}

// Until nobody has the other end of `until_closed` open.
absl::Status Serve(int hello_to, int until_closed, MovedAt& moved_at) {
  std::string pattern = (std::filesystem::temp_directory_path() / "abacus-bench-XXXXXX").string();
  const std::string directory = mkdtemp(pattern.data());
  const auto serve = [&]() -> absl::Status {
    ObjectTypes types;
    AddTypes(types);
    NodeOptions options;
    options.config = ConfigOf("s");
    options.config.node.data_dir = directory;
    options.config.node.control_address = "127.0.0.1:0";
    options.config.node.data_address = "127.0.0.1:0";
    options.server = true;
    ABACUS_ASSIGN_OR_RETURN(auto monitor, NewMonitor());
    ABACUS_ASSIGN_OR_RETURN(const auto node, Node::Start(options, types, std::move(monitor)));
    node->SetMoveObserver([&](const MoveEvent& move) {
      if (move.by_engine && move.status.ok()) moved_at = absl::ToUnixNanos(absl::Now());
    });
    ABACUS_ASSIGN_OR_RETURN(const auto well, node->Create<Well>());
    Hello hello{.well = well.rid()};
    std::strncpy(hello.control_address, node->control_address().c_str(),
                 sizeof(hello.control_address) - 1);
    if (write(hello_to, &hello, sizeof(hello)) != sizeof(hello)) {
      return absl::ErrnoToStatus(errno, "cannot tell the client where the server is");
    }
    char none = 0;
    while (read(until_closed, &none, 1) < 0 && errno == EINTR) {
    }
    return absl::OkStatus();
  };
  const absl::Status status = serve();
  std::filesystem::remove_all(directory);
  return status;
}

// -- the client -----------------------------------------------------------------------------------

class Bench {
 public:
  explicit Bench(const MovedAt& moved_at) : moved_at_(moved_at) { AddTypes(types_); }
  ~Bench() {
    well_ = {};
    client_.reset();
  }

  absl::Status Start(int hello_from) {
    Hello hello;
    if (read(hello_from, &hello, sizeof(hello)) != sizeof(hello)) {
      return absl::UnavailableError("the server did not start");
    }
    server_ = hello.control_address;
    NodeOptions client;
    client.config = ConfigOf("c");
    client.servers = {server_};
    ABACUS_ASSIGN_OR_RETURN(auto monitor, NewMonitor());
    source_ = monitor->Source();
    ABACUS_ASSIGN_OR_RETURN(client_, Node::Start(client, types_, std::move(monitor)));
    well_ = client_->binding().RefTo<Well>(hello.well);
    return absl::OkStatus();
  }

  // A new object does the work there, and then back, for as long as an audit needs.
  absl::Status Run(const Workload& workload) {
    auto made = client_->Create<Valve>();
    if (!made.ok()) return made.status();
    const Ref<Valve> valve = *made;
    const Console console(*client_);
    ABACUS_RETURN_IF_ERROR(TurnUntil(false, valve, workload.name, workload.there));
    return TurnUntil(true, valve, workload.name, workload.back);
  }

  absl::StatusOr<EngineState> State() { return ControlClient(server_).SetEngine({}, kAsk); }
  size_t not_moved() const { return not_moved_; }
  // Of each workload: from changes of the work until the moves that they led to were done.
  using Answers = std::map<std::string, std::vector<absl::Duration>>;
  const Answers& answered_after() const { return answered_after_; }
  const std::string& source() const { return source_; }

 private:
  bool IsHere(const Rid& rid) const {
    for (const auto& object : client_->binding().Objects(1000)) {
      if (object.rid == rid && object.hosted) return true;
    }
    return false;
  }

  // Until it is here, or not here, and then three windows more: one to audit the move on, and one
  // more for calls that are long.
  absl::Status TurnUntil(bool here, const Ref<Valve>& valve, const std::string& of,
                         const Work& work) {
    const absl::Time begin = absl::Now();
    absl::Time moved_at = absl::InfinitePast();
    const absl::Time give_up = begin + absl::Seconds(15);
    absl::Time end = absl::InfiniteFuture();
    while (absl::Now() < end) {
      ABACUS_RETURN_IF_ERROR(
          valve->Turn(well_, work.draws, work.drawn, work.given, work.us).status());
      const bool there = end != absl::InfiniteFuture() || IsHere(valve.rid()) == here;
      if (there && end == absl::InfiniteFuture()) {
        end = absl::Now() + 3 * kWindow;
        moved_at = absl::FromUnixNanos(moved_at_);
      }
      if (!there && absl::Now() > give_up) {
        ++not_moved_;
        break;
      }
    }
    // Where this process saw it before the server noted the time, that is there by now.
    if (moved_at <= begin) moved_at = absl::FromUnixNanos(moved_at_);
    if (moved_at > begin) answered_after_[of].push_back(moved_at - begin);
    return absl::OkStatus();
  }

  const MovedAt& moved_at_;
  ObjectTypes types_;
  std::string server_;
  std::unique_ptr<Node> client_;
  Ref<Well> well_;
  size_t not_moved_ = 0;
  Answers answered_after_;
  std::string source_;
};

// Tasks running and ready on this machine, over the last minute.
double LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

void Add(BenchReport& report, const std::string& of, const PlacementLoop::ModelError& error) {
  const auto row = [&](const std::string& what, double value, double goal) {
    report.Add({.name = absl::StrCat(of, ": ", what, " of ", error.count),
                .value = 100 * value,
                .unit = "%",
                .baseline_name = "goal",
                .baseline = goal,
                .ratio = 100 * value / goal,
                .goal = absl::StrCat("<= ", goal, " %"),
                .met = 100 * value <= goal});
  };
  row("median error", error.median, 10);
  row("95th percentile", error.p95, 30);
}

// Of a sorted list that is not empty.
double Quantile(const std::vector<absl::Duration>& sorted, double q) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return absl::ToDoubleSeconds(sorted[static_cast<size_t>(q * last)]);
}

void AddAnswers(BenchReport& report, const Bench::Answers& by_workload) {
  std::vector<absl::Duration> after;
  for (auto [workload, some] : by_workload) {
    std::sort(some.begin(), some.end());
    report.Note(absl::StrCat("at its new place after ", absl::ToInt64Milliseconds(some.front()),
                             " to ", absl::ToInt64Milliseconds(some.back()), " ms: ", workload));
    after.insert(after.end(), some.begin(), some.end());
  }
  if (after.empty()) return;
  std::sort(after.begin(), after.end());
  const double window_s = absl::ToDoubleSeconds(kWindow);
  const auto row = [&](const std::string& what, double seconds, const std::string& goal,
                       double goal_s) {
    report.Add({.name = absl::StrCat("from another work to the object at its new place: ", what,
                                     " of ", after.size()),
                .value = seconds * 1000,
                .unit = "ms",
                .baseline_name = "the window",
                .baseline = window_s * 1000,
                .ratio = seconds / window_s,
                .goal = goal,
                .met = seconds <= goal_s});
  };
  // All gain more than twice, which is when the engine may decide before the window is over.
  row("median", Quantile(after, 0.5), "<= 150 ms and the move", 0.16);
  row("95th percentile", Quantile(after, 0.95), "<= 1.2 x the window", 1.2 * window_s);
}

// FinishBench()'s.
absl::StatusOr<int> Measure(int hello_from, const MovedAt& moved_at, const std::string& where,
                            const std::string& json, bool strict) {
  Bench bench(moved_at);
  ABACUS_RETURN_IF_ERROR(bench.Start(hello_from));
  const double load_before = LoadAverage();
  EngineState state;
  for (int round = 0; round < 8 && state.move_error.count < kMovesMin; ++round) {
    for (const Workload& workload : kWorkloads) {
      ABACUS_RETURN_IF_ERROR(bench.Run(workload));
      ABACUS_ASSIGN_OR_RETURN(state, bench.State());
      std::cerr << "round " << round + 1 << ", " << workload.name << ": moves audited "
                << state.move_error.count << ", off by " << 100 * state.move_error.median
                << " % in the median, " << 100 * state.move_error.p95
                << " % at the 95th percentile\n";
    }
  }
  BenchReport report("engine");
  report.Note(absl::StrCat("two nodes, 20 Mbit/s, windows of ", absl::FormatDuration(kWindow),
                           ", unlike workloads in turn"));
  report.Note(where);
  report.Note(absl::StrCat("figures come from ", bench.source()));
  report.Note(absl::StrCat("objects that did not go where they were expected within 15 s: ",
                           bench.not_moved()));
  report.Note(absl::StrCat(
      "load of the machine before and after: ", load_before, " and ", LoadAverage(),
      "; where it is above the cores, predictions rest on tasks", " sharing these fairly"));
  Add(report, "placement moved to", state.move_error);
  Add(report, "placement as it is", state.present_error);
  AddAnswers(report, bench.answered_after());
  return FinishBench(report, json, strict);
}

// -- the processes --------------------------------------------------------------------------------

// Forks; the child does what it is given, in the cgroup where there is one, and ends with the code
// that comes of that.
template <typename Work>
pid_t Fork(const CpuCgroup* cgroup, Work work) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const absl::Status entered = cgroup == nullptr ? absl::OkStatus() : cgroup->Enter();
  const absl::StatusOr<int> code = entered.ok() ? work() : absl::StatusOr<int>(entered);
  if (!code.ok()) std::cerr << code.status() << "\n";
  std::cout.flush();
  _exit(code.ok() ? *code : 1);
}

// Each node is a process in a cgroup of its own: what one of them uses is no load of the other.
// Returns main()'s result.
absl::StatusOr<int> Run(const std::string& json, bool strict) {
  const std::string name = absl::StrCat("abacus-bench-", getpid());
  const auto server_cgroup = CpuCgroup::Make(name + "-s");
  const auto client_cgroup = CpuCgroup::Make(name + "-c");
  const bool apart = server_cgroup.ok() && client_cgroup.ok();
  const std::string where =
      apart ? "each is a process in a cgroup of its own"
            : absl::StrCat("each sees the whole machine's load, so that few moves can be audited: ",
                           (server_cgroup.ok() ? client_cgroup : server_cgroup).status().message());
  void* shared =
      mmap(nullptr, sizeof(MovedAt), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
  auto& moved_at = *new (shared) MovedAt{0};
  ABACUS_ASSIGN_OR_RETURN(const Pipe hello, MakePipe());
  ABACUS_ASSIGN_OR_RETURN(const Pipe alive, MakePipe());
  const pid_t server = Fork(apart ? server_cgroup->get() : nullptr, [&]() -> absl::StatusOr<int> {
    close(alive.write_end);
    close(hello.read_end);
    ABACUS_RETURN_IF_ERROR(Serve(hello.write_end, alive.read_end, moved_at));
    return 0;
  });
  const pid_t client = Fork(apart ? client_cgroup->get() : nullptr, [&] {
    close(hello.write_end);
    return Measure(hello.read_end, moved_at, where, json, strict);
  });
  for (const int end : {hello.read_end, hello.write_end, alive.read_end, alive.write_end}) {
    close(end);
  }
  signal(SIGINT, SIG_IGN);  // the others end of it, and the cgroups are removed
  int code = 0;  // the client's, which has measured, unless only the server's tells of an error
  for (const pid_t pid : {client, server}) {
    int status = 0;
    const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    if (code == 0) code = ended ? WEXITSTATUS(status) : 1;
  }
  return code;
}

}  // namespace
}  // namespace abacus::runtime

int main(int argc, char** argv) {
  std::string json;
  bool strict = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--strict") == 0) {
      strict = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::cerr << "usage: abacus_engine_benchmark [--strict] [--json FILE]\n";
      return 2;
    }
  }
  const absl::StatusOr<int> code = abacus::runtime::Run(json, strict);
  if (!code.ok()) std::cerr << code.status() << "\n";
  return code.ok() ? *code : 1;
}
