// Three processes, one of which is killed with SIGKILL at a named point of a migration, as source,
// as target and as home of the object that is moved, while all of them call it. The harness, which
// knows who died, tells the others.
//
// What must hold then: every call ends, with its result or a typed error; at most one living
// process has the object, and which one it is (or that it is lost) follows from the point; no call
// that was answered is lost, none ran twice or out of order; and the survivors go on.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/testing/cluster.h"

namespace abacus::runtime::testing {
namespace {

// One node that runs as a process of its own.
class NodeProcess {
 public:
  NodeProcess(int node, int incarnation, const std::string& directory)
      : instance_(absl::StrCat(node, ".", incarnation)) {
    const std::string address = absl::StrCat("unix:", directory, "/", instance_, ".sock");
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "abacus_test_node";
    int to_child[2], from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) abort();
    const std::string node_text = std::to_string(node);
    const std::string incarnation_text = std::to_string(incarnation);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing is left behind, however this test ends
      if (getppid() != parent) _exit(1);
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      execl(program.c_str(), program.c_str(), node_text.c_str(), incarnation_text.c_str(),
            address.c_str(), nullptr);
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    in_ = to_child[1];
    out_ = from_child[0];
    reader_ = std::thread([this] { Read(); });
  }
  ~NodeProcess() {
    Finish();
    reader_.join();
    close(out_);
  }
  NodeProcess(const NodeProcess&) = delete;

  const std::string& instance() const { return instance_; }
  bool alive() const { return !gone_; }

  // The address, once it listens; empty where it does not.
  std::string AwaitReady() { return Await("ready"); }
  // Waits until a thread stands at the point. False where the process died or nobody came.
  bool AwaitAt(const std::string& point) { return Await("at") == point; }

  // Sends a command, and returns the tag under which its answer will come.
  std::string Send(const std::string& command) {
    const std::string tag = "t" + std::to_string(++last_tag_);
    const std::string line = tag + " " + command + "\n";
    // A process that is dead takes nothing and answers nothing.
    [[maybe_unused]] const ssize_t written = write(in_, line.data(), line.size());
    return tag;
  }
  // The answer, without its tag; "dead" where the process died first, "silent" where none came.
  std::string Await(const std::string& tag) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    MutexLock lock(mutex_);
    for (;;) {
      if (const auto it = answers_.find(tag); it != answers_.end()) {
        std::string answer = std::move(it->second);
        answers_.erase(it);
        return answer;
      }
      if (ended_) return "dead";
      if (std::chrono::steady_clock::now() >= deadline) return "silent";
      changed_.WaitUntil(mutex_, deadline);
    }
  }
  std::string Do(const std::string& command) { return Await(Send(command)); }

  // Kills it, or waits for the death that it has found by itself. Returns how it ended.
  int Bury(bool by_hand) {
    if (gone_) return status_;
    if (by_hand) kill(pid_, SIGKILL);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    gone_ = true;
    close(in_);
    return status_;
  }

 private:
  // Ends it in good order.
  void Finish() {
    if (gone_) return;
    Send("quit");
    close(in_);
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!ended_ && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    if (!ended_) kill(pid_, SIGKILL);
    EXPECT_TRUE(ended_) << "node " << instance_ << " does not end";
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    EXPECT_TRUE(WIFEXITED(status_) && WEXITSTATUS(status_) == 0)
        << "node " << instance_ << " ended with " << status_;
    gone_ = true;
  }
  void Read() {
    std::string pending;
    char buffer[4096];
    for (ssize_t n; (n = read(out_, buffer, sizeof buffer)) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) break;
      pending.append(buffer, static_cast<size_t>(n));
      for (size_t end; (end = pending.find('\n')) != std::string::npos;) {
        const std::string line = pending.substr(0, end);
        pending.erase(0, end + 1);
        const size_t space = line.find(' ');
        MutexLock lock(mutex_);
        answers_[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
        changed_.SignalAll();
      }
    }
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.SignalAll();
  }

  const std::string instance_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  int status_ = 0;
  bool gone_ = false;
  uint64_t last_tag_ = 0;
  std::thread reader_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> answers_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// How far a migration has come at a point, as far as can be known.
enum class Progress {
  kBeforeTransfer,    // only the source has the state
  kTransferOnItsWay,  // the target may have it
  kRestored,          // the target has it; the commit has not been asked for
  kCommitOnItsWay,    // the home may have committed
  kCommitted,         // the home has committed; the source does not know
  kDeparted,          // the source knows; the target does not
  kActivateOnItsWay,  // the target may know
  kActivated,         // the target runs it
};

enum class Role { kSource, kTarget, kHome };

struct Point {
  const char* name;
  Role at;
  Progress progress;
  // Other threads go on while the one that has reached it is held or has killed the process.
  bool runs_on = false;
  // A message to the home, or from it: not reached where the home is the source.
  bool of_home = false;
};

constexpr Point kPoints[] = {
    {"move:begun", Role::kSource, Progress::kBeforeTransfer, true},
    {"receive:begin", Role::kHome, Progress::kBeforeTransfer, false, true},
    {"sent:begin_reply", Role::kHome, Progress::kBeforeTransfer, true, true},
    {"move:drained", Role::kSource, Progress::kBeforeTransfer},
    {"move:checkpointed", Role::kSource, Progress::kBeforeTransfer},
    {"sent:transfer", Role::kSource, Progress::kTransferOnItsWay, true},
    {"receive:transfer", Role::kTarget, Progress::kTransferOnItsWay},
    {"move:restoring", Role::kTarget, Progress::kTransferOnItsWay},
    {"move:restored", Role::kTarget, Progress::kRestored},
    {"sent:restored", Role::kTarget, Progress::kRestored, true},
    {"receive:restored", Role::kSource, Progress::kRestored},
    {"send:commit", Role::kSource, Progress::kRestored, false, true},
    {"sent:commit", Role::kSource, Progress::kCommitOnItsWay, true, true},
    {"receive:commit", Role::kHome, Progress::kCommitOnItsWay, false, true},
    {"send:commit_reply", Role::kHome, Progress::kCommitted, false, true},
    {"sent:commit_reply", Role::kHome, Progress::kCommitted, true, true},
    {"receive:commit_reply", Role::kSource, Progress::kCommitted, false, true},
    {"send:activate", Role::kSource, Progress::kDeparted},
    {"sent:activate", Role::kSource, Progress::kActivateOnItsWay, true},
    {"receive:activate", Role::kTarget, Progress::kActivateOnItsWay},
    {"sent:activated", Role::kTarget, Progress::kActivated},
    {"move:committed", Role::kSource, Progress::kActivated},
};

constexpr size_t kLost = 3;  // who has the object: none of the three processes

struct Case {
  size_t home, source, target;  // of the three processes
  size_t victim;
  Point point;

  size_t At() const {
    return point.at == Role::kSource ? source : point.at == Role::kTarget ? target : home;
  }
  std::string Name() const {
    std::string name = home == source   ? "HomeIsSource"
                       : home == target ? "HomeIsTarget"
                                        : "HomeApart";
    name += victim == source ? "SourceDies" : victim == target ? "TargetDies" : "HomeDies";
    name += "At";
    name += point.at == Role::kSource ? "Sources" : point.at == Role::kTarget ? "Targets" : "Homes";
    bool upper = true;
    for (const char* c = point.name; *c != '\0'; ++c) {
      const bool letter = isalpha(*c) != 0;
      if (letter) name += static_cast<char>(upper ? toupper(*c) : *c);
      upper = !letter;
    }
    return name;
  }

  // Who may have the object in the end.
  std::set<size_t> Allowed() const {
    std::set<size_t> allowed = AllowedAt(point.progress);
    for (Progress p = point.progress; point.runs_on && p < Progress::kActivated;) {
      p = static_cast<Progress>(static_cast<int>(p) + 1);
      allowed.merge(AllowedAt(p));
    }
    return allowed;
  }

 private:
  std::set<size_t> AllowedAt(Progress at) const {
    if (victim == source && victim == home) {
      // The target cannot ask whether it was committed: a stale copy must not come to life.
      if (at == Progress::kActivated) return {target};
      return at == Progress::kActivateOnItsWay ? std::set{target, kLost} : std::set{kLost};
    }
    if (victim == target && victim == home) {
      if (at < Progress::kCommitOnItsWay) return {source};
      return at < Progress::kDeparted ? std::set{source, kLost} : std::set{kLost};
    }
    if (victim == source) {
      if (at == Progress::kBeforeTransfer) return {kLost};
      return at == Progress::kTransferOnItsWay ? std::set{target, kLost} : std::set{target};
    }
    if (victim == target) {
      if (at < Progress::kCommitOnItsWay) return {source};
      return at == Progress::kCommitOnItsWay ? std::set{source, kLost} : std::set{kLost};
    }
    // The home, and nobody else.
    if (at < Progress::kCommitOnItsWay) return {source};
    return at < Progress::kDeparted ? std::set{source, target} : std::set{target};
  }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.Name(); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [home, source, target] :
       {std::tuple<size_t, size_t, size_t>{2, 0, 1}, {0, 0, 1}, {1, 0, 1}}) {
    for (const Point& point : kPoints) {
      if (point.of_home && home == source) continue;
      for (const size_t victim : std::set{home, source, target}) {
        cases.push_back({home, source, target, victim, point});
      }
    }
  }
  return cases;
}

class CrashTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "abacus_crash_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 3; ++i) {
      nodes_.push_back(std::make_unique<NodeProcess>(i + 1, 1, directory_));
    }
    Introduce();
  }
  void TearDown() override {
    nodes_.clear();
    std::filesystem::remove_all(directory_);
  }

  // Makes all living processes known to each other.
  void Introduce() {
    std::map<size_t, std::string> addresses;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i]->alive()) continue;
      if (!addresses_.contains(i)) addresses_[i] = nodes_[i]->AwaitReady();
      ASSERT_TRUE(addresses_[i].starts_with("unix:")) << addresses_[i];
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (size_t j = 0; j < nodes_.size(); ++j) {
        if (i == j || !nodes_[i]->alive() || !nodes_[j]->alive()) continue;
        ASSERT_EQ(nodes_[i]->Do(absl::StrCat("peer ", nodes_[j]->instance(), " ", addresses_[j])),
                  "ok");
      }
    }
  }
  NodeProcess& node(size_t i) { return *nodes_[i]; }
  std::vector<size_t> Survivors() const {
    std::vector<size_t> alive;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i]->alive()) alive.push_back(i);
    }
    return alive;
  }

  std::string Create(size_t at) {
    const std::string answer = node(at).Do("create");
    EXPECT_TRUE(answer.starts_with("ok ")) << answer;
    return answer.substr(3);
  }
  void Move(const std::string& rid, size_t from, size_t to) {
    ASSERT_EQ(node(from).Do(absl::StrCat("move ", rid, " ", node(to).instance())), "ok");
  }
  // The survivors that have the object.
  std::vector<size_t> Hosts(const std::string& rid) {
    std::vector<size_t> hosts;
    for (const size_t i : Survivors()) {
      std::istringstream words(node(i).Do("status"));
      for (std::string word; words >> word;) {
        if (word == rid) hosts.push_back(i);
      }
    }
    return hosts;
  }

  // Kills `victim` when `at` reaches the point, and tells the others.
  void KillAt(size_t victim, size_t at, const std::string& point, const std::string& rid,
              size_t source, size_t target) {
    const bool itself = victim == at;
    ASSERT_EQ(node(at).Do(absl::StrCat(itself ? "die-at " : "hold ", point)), "ok");
    const std::string move =
        node(source).Send(absl::StrCat("move ", rid, " ", node(target).instance()));
    if (!itself) {
      ASSERT_TRUE(node(at).AwaitAt(point)) << "the point was not reached";
    }
    const int status = node(victim).Bury(!itself);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    for (const size_t i : Survivors()) {
      ASSERT_EQ(node(i).Do("dead " + node(victim).instance()), "ok");
    }
    if (!itself) {
      ASSERT_EQ(node(at).Do("release"), "ok");
    }
    if (source != victim) {
      const std::string moved = node(source).Await(move);
      EXPECT_TRUE(moved == "ok" || moved.starts_with("error move-cancelled") ||
                  moved.starts_with("error object-lost"))
          << "the move ended with: " << moved;
    }
  }

  struct Halted {
    uint64_t sent = 0, answered = 0, unknown = 0, refused = 0;
    std::string ended_by;
  };
  // `how`: "halt", or "await" where it must end by itself.
  Halted EndStream(size_t at, uint64_t client, const char* how) {
    Halted halted;
    const std::string answer = node(at).Do(absl::StrCat(how, " ", client));
    EXPECT_TRUE(answer.starts_with("ok ")) << "node " << at + 1 << ": " << answer;
    std::istringstream words(answer.substr(std::min<size_t>(3, answer.size())));
    words >> halted.sent >> halted.answered >> halted.unknown >> halted.refused >> halted.ended_by;
    return halted;
  }
  // What the object has seen of a client fits what the client has been told.
  void CheckRow(size_t reader, const std::string& rid, uint64_t client, const Halted& halted) {
    const std::string answer = node(reader).Do(absl::StrCat("read ", rid, " ", client));
    ASSERT_TRUE(answer.starts_with("ok ")) << answer;
    std::istringstream words(answer.substr(3));
    uint64_t last = 0, calls = 0, doubled = 0, skipped = 0;
    words >> last >> calls >> doubled >> skipped;
    EXPECT_EQ(doubled, 0u) << "client " << client;
    EXPECT_GE(calls, halted.answered) << "an answered call is lost; client " << client;
    EXPECT_LE(calls, halted.answered + halted.unknown) << "client " << client;
    EXPECT_LE(skipped, halted.unknown + halted.refused) << "client " << client;
  }

  std::string directory_;
  std::vector<std::unique_ptr<NodeProcess>> nodes_;
  std::map<size_t, std::string> addresses_;
};

INSTANTIATE_TEST_SUITE_P(During, CrashTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.Name(); });

TEST_P(CrashTest, Invariant1OneLiveCopyOrATypedLoss) {
  const Case& c = GetParam();
  const std::string rid = Create(c.home);
  if (c.home != c.source) Move(rid, c.home, c.source);
  for (size_t i = 0; i < 3; ++i) {
    // Where it is, is known everywhere before anything happens: a dead home cannot say it.
    ASSERT_EQ(node(i).Do(absl::StrCat("record ", rid, " ", 100 + i, " 1")), "ok 1");
    ASSERT_EQ(node(i).Do(absl::StrCat("stream ", rid, " ", i + 1)), "ok");
  }
  KillAt(c.victim, c.At(), c.point.name, rid, c.source, c.target);
  if (HasFatalFailure()) return;

  // Each survivor asks. A call waits until it is decided who has the object.
  const bool home_lives = c.home != c.victim;
  const std::vector<size_t> alive = Survivors();
  bool lost = true;
  for (const size_t i : alive) {
    const std::string calls = node(i).Do(absl::StrCat("record ", rid, " ", 200 + i, " 1"));
    lost = lost && calls != "ok 1";
    // Without the home, who has not heard of the object's place lately cannot find it.
    EXPECT_TRUE(calls == "ok 1" ||
                calls.starts_with(home_lives ? "error object-lost" : "error node-unreachable"))
        << "node " << i + 1 << ": " << calls;
  }
  const std::vector<size_t> hosts = Hosts(rid);
  ASSERT_EQ(hosts.size(), lost ? 0u : 1u);
  EXPECT_TRUE(c.Allowed().contains(lost ? kLost : hosts[0]))
      << (lost ? "lost" : absl::StrCat("at node ", hosts[0] + 1));
  for (const size_t i : alive) {
    const Halted halted = EndStream(i, i + 1, lost ? "await" : "halt");
    const std::string expected = home_lives ? "object-lost" : "node-unreachable";
    if (lost) {
      EXPECT_EQ(halted.refused, 1u);
      EXPECT_EQ(halted.ended_by, expected);
    } else {
      EXPECT_TRUE(halted.refused == 0 || (!home_lives && halted.ended_by == expected))
          << halted.ended_by;
      CheckRow(hosts[0], rid, i + 1, halted);
    }
  }

  // Things go on: the object still moves where its home is there to commit, others are made.
  if (!lost && home_lives) {
    const size_t other = alive[0] == hosts[0] ? alive[1] : alive[0];
    Move(rid, hosts[0], other);
    EXPECT_EQ(Hosts(rid), std::vector<size_t>{other});
  }
  const std::string another = Create(alive[0]);
  Move(another, alive[0], alive[1]);
  for (const size_t i : alive) {
    EXPECT_EQ(node(i).Do(absl::StrCat("record ", another, " ", i, " 1")), "ok 1");
  }
}

// The names of the dead are not used again: the same node comes back as another incarnation.
class RestartTest : public CrashTest {};
INSTANTIATE_TEST_SUITE_P(
    AsSource, RestartTest,
    ::testing::Values(
        Case{2, 0, 1, 0, {"move:checkpointed", Role::kSource, Progress::kBeforeTransfer}},
        Case{2, 0, 1, 0, {"move:restored", Role::kTarget, Progress::kRestored}}),
    [](const auto& info) { return info.param.Name(); });

TEST_P(RestartTest, RestartedNodeTakesPartAgain) {
  const Case& c = GetParam();
  const std::string rid = Create(c.home);
  Move(rid, c.home, c.source);
  ASSERT_EQ(node(1).Do(absl::StrCat("record ", rid, " 1 1")), "ok 1");
  KillAt(c.victim, c.At(), c.point.name, rid, c.source, c.target);
  if (HasFatalFailure()) return;

  nodes_[c.victim] = std::make_unique<NodeProcess>(static_cast<int>(c.victim) + 1, 2, directory_);
  addresses_.erase(c.victim);
  Introduce();
  if (HasFatalFailure()) return;
  EXPECT_TRUE(Hosts(rid).empty() || Hosts(rid) == std::vector<size_t>{c.target});
  const std::string calls = node(c.victim).Do(absl::StrCat("record ", rid, " 1 2"));
  if (c.point.progress == Progress::kBeforeTransfer) {
    EXPECT_TRUE(calls.starts_with("error object-lost")) << calls;
  } else {
    EXPECT_EQ(calls, "ok 2");
    Move(rid, c.target, c.victim);
    EXPECT_EQ(Hosts(rid), std::vector<size_t>{c.victim});
    EXPECT_EQ(node(c.target).Do(absl::StrCat("record ", rid, " 1 3")), "ok 3");
  }
}

}  // namespace
}  // namespace abacus::runtime::testing
