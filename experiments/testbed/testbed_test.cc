// Testbeds from C++: built, used and removed, and what is said of bad input. What builds one is
// skipped, with the reason, where namespaces or cgroups are not allowed.

#include "experiments/testbed/testbed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace abacus::experiments {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFolder[] = ABACUS_SOURCE_DIR "/experiments/testbed";
constexpr char kTiny[] = "network n bandwidth=60Mbit\nnode a network=n\nnode b network=n\n";

std::string ContentOfFile(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& said) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(said));
}

// Why testbeds cannot be made here, as testbed_test.py finds it out; empty: they can.
std::string WhyNot() {
  const std::string mark = "why not: ";
  absl::StatusOr<Output> ended =
      RunForOutput({"env", absl::StrCat("PYTHONPATH=", kFolder), "python3", "-B", "-c",
                    absl::StrCat("import testbed_test; print('", mark,
                                 "', testbed_test.WHY_NOT or '', sep='', end='')")});
  const size_t at = ended.ok() ? ended->out.find(mark) : std::string::npos;
  if (at != std::string::npos) return ended->out.substr(at + mark.size());
  ADD_FAILURE() << ended.status() << (ended.ok() ? ended->err : "");
  return "it cannot be told";
}

// What is on the machine of a testbed, by its name alone.
std::string LeftOf(const std::string& name) {
  absl::StatusOr<Output> found = RunForOutput(
      {"sh", "-c", "ip netns list | grep \"^$0\"; find /run /sys/fs/cgroup -name \"$0*\"",
       absl::StrCat("abacus-testbed-", name)});
  return found.ok() ? found->out : found.status().ToString();
}

// One testbed for all of these; some make another one.
class TestbedTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string folder = ::testing::TempDir() + "abacus-cpp-testbed-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::ofstream(folder_ / "tiny.topology") << kTiny;
    why_not_ = WhyNot();
    if (why_not_.empty()) testbed_ = Up("", {{"a", "50%"}});
  }
  static void TearDownTestSuite() {
    testbed_.reset();
    fs::remove_all(folder_);
  }
  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
    ASSERT_NE(testbed_, nullptr);
  }

  // Other runs of this test have testbeds of their own.
  static TestbedOptions Tiny(const std::string& suffix) {
    return {.topology = folder_ / "tiny.topology", .name = absl::StrCat("c", getpid(), suffix)};
  }

  static std::unique_ptr<Testbed> Up(const std::string& suffix,
                                     const decltype(TestbedOptions::cpu)& cpu = {}) {
    TestbedOptions options = Tiny(suffix);
    options.cpu = cpu;
    absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(options);
    EXPECT_TRUE(testbed.ok()) << testbed.status();
    return testbed.ok() ? *std::move(testbed) : nullptr;
  }

  // Runs a program on a node to its end.
  static Output RunOn(const Testbed& testbed, const std::string& node,
                      const std::vector<std::string>& arguments) {
    const fs::path out = folder_ / "out";
    const fs::path err = folder_ / "err";
    absl::StatusOr<Process> process =
        testbed.Start(node, arguments, {.stdout_path = out, .stderr_path = err});
    EXPECT_TRUE(process.ok()) << process.status();
    if (!process.ok()) return {};
    const int code = process->Wait();
    return {.code = code, .out = ContentOfFile(out), .err = ContentOfFile(err)};
  }

  // Starts a program that prints "ready" when it is; what it prints then comes from `out`. A pipe
  // with a name makes whoever opens it wait for the other.
  static absl::StatusOr<Process> StartReady(const Testbed& testbed, const std::string& node,
                                            const std::vector<std::string>& arguments,
                                            std::ifstream& out) {
    const fs::path pipe = folder_ / "pipe";
    fs::remove(pipe);
    if (mkfifo(pipe.c_str(), 0600) != 0) return absl::ErrnoToStatus(errno, "mkfifo");
    absl::StatusOr<Process> process = testbed.Start(node, arguments, {.stdout_path = pipe});
    if (!process.ok()) return process;
    out.open(pipe);
    std::string line;
    if (!std::getline(out, line) || line != "ready") {
      return absl::InternalError(absl::StrCat("it is not ready: ", line));
    }
    return process;
  }

  static inline fs::path folder_;
  static inline std::string why_not_;
  static inline std::unique_ptr<Testbed> testbed_;
};

TEST_F(TestbedTest, NodesAreToldWithNetworkAndAddress) {
  ASSERT_EQ(testbed_->nodes().size(), 2u);
  EXPECT_EQ(testbed_->nodes()[0].name, "a");
  EXPECT_EQ(testbed_->nodes()[1].name, "b");
  EXPECT_EQ(testbed_->nodes()[1].network, "n");
  EXPECT_NE(testbed_->nodes()[0].address, testbed_->nodes()[1].address);
  EXPECT_EQ(testbed_->FindNode("b"), &testbed_->nodes()[1]);
  EXPECT_EQ(testbed_->FindNode("c"), nullptr);
  EXPECT_THAT(testbed_->description(), HasSubstr("2 nodes"));
  EXPECT_THAT(testbed_->description(), HasSubstr("0.5 of a core"));
}

TEST_F(TestbedTest, AProgramRunsInItsNodesNetworkAndCgroup) {
  const Output ended =
      RunOn(*testbed_, "a", {"sh", "-c", "ip -br addr; cat /proc/self/cgroup; echo words >&2"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr(testbed_->FindNode("a")->address + "/"));
  EXPECT_THAT(ended.out, Not(HasSubstr(testbed_->FindNode("b")->address + "/")));
  EXPECT_THAT(ended.out, HasSubstr(absl::StrCat("abacus-testbed-", testbed_->name(), "-a")));
  EXPECT_EQ(ended.err, "words\n");
}

TEST_F(TestbedTest, NodesReachEachOtherBySockets) {
  constexpr char kServer[] = R"(
import socket
with socket.create_server(("", 7000)) as server:
    print("ready", flush=True)
    peer, (host, _) = server.accept()
with peer:
    print(host, peer.makefile().read(), end="", flush=True)
)";
  std::ifstream out;
  absl::StatusOr<Process> server = StartReady(*testbed_, "b", {"python3", "-c", kServer}, out);
  ASSERT_TRUE(server.ok()) << server.status();
  const Output client =
      RunOn(*testbed_, "a",
            {"bash", "-c", "echo from a >/dev/tcp/$0/7000", testbed_->FindNode("b")->address});
  EXPECT_EQ(client.code, 0) << client.err;
  std::string line;
  std::getline(out, line);
  EXPECT_EQ(line, testbed_->FindNode("a")->address + " from a");
  EXPECT_EQ(server->Wait(), 0);
}

TEST_F(TestbedTest, ArgumentsAndExitCodesAreTheProgramsOwn) {
  EXPECT_EQ(RunOn(*testbed_, "a", {"echo", "-n", "--", "a b", "--"}).out, "-- a b --");
  EXPECT_EQ(RunOn(*testbed_, "a", {"sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(RunOn(*testbed_, "a", {"sh", "-c", "kill -9 $$"}).code, 128 + 9);
  const Output missing = RunOn(*testbed_, "b", {"no-such-program"});
  EXPECT_EQ(missing.code, 127);
  EXPECT_THAT(missing.err, HasSubstr("no-such-program"));
}

TEST_F(TestbedTest, ASignalReachesTheProgramItself) {
  constexpr char kWaiter[] = R"(
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
raise SystemExit(3)
)";
  std::ifstream out;
  absl::StatusOr<Process> process = StartReady(*testbed_, "a", {"python3", "-c", kWaiter}, out);
  ASSERT_TRUE(process.ok()) << process.status();
  process->Stop(absl::Seconds(60));
  EXPECT_EQ(process->Wait(), 3);
}

TEST_F(TestbedTest, WhatCannotBeStartedIsTold) {
  ExpectError(testbed_->Start("c", {"true"}).status(), absl::StatusCode::kNotFound,
              "has no node 'c'; there are: a, b");
  ExpectError(testbed_->Start("a", {}).status(), absl::StatusCode::kInvalidArgument, "no program");
}

TEST_F(TestbedTest, ANameIsNotTakenTwice) {
  ExpectError(Testbed::Up(Tiny("")).status(), absl::StatusCode::kFailedPrecondition,
              absl::StrCat("a testbed ", testbed_->name(), " is there already"));
  EXPECT_EQ(RunOn(*testbed_, "a", {"true"}).code, 0);
}

TEST_F(TestbedTest, WhatIsOffIsTold) {
  const std::unique_ptr<Testbed> testbed = Up("o");
  ASSERT_NE(testbed, nullptr);
  // The way out of a node has a hundredth of its bandwidth.
  const Output slowed = RunOn(*testbed, "a",
                              {"tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
                               "600kbit", "burst", "3028", "limit", "65536"});
  ASSERT_EQ(slowed.code, 0) << slowed.err;
  const absl::Status status = testbed->Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), ContainsRegex("a -> b [^\n]*OFF"));
}

TEST_F(TestbedTest, TheDestructorLeavesNothing) {
  std::unique_ptr<Testbed> testbed = Up("d");
  ASSERT_NE(testbed, nullptr);
  const std::string name = testbed->name();
  std::ifstream out;
  absl::StatusOr<Process> process =
      StartReady(*testbed, "a", {"sh", "-c", "echo ready; exec sleep 1000"}, out);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE(process->Running());
  EXPECT_NE(LeftOf(name), "");
  testbed.reset();
  EXPECT_EQ(process->Wait(), 128 + 9);
  EXPECT_EQ(LeftOf(name), "");
  EXPECT_EQ(RunOn(*testbed_, "a", {"true"}).code, 0);  // another one is not touched
}

// These build nothing.

TEST(TestbedErrorsTest, BadInputIsToldAsTheCommandTellsIt) {
  constexpr auto kCode = absl::StatusCode::kInvalidArgument;
  ExpectError(Testbed::Up({.topology = "papr"}).status(), kCode,
              "no topology 'papr'; did you mean paper?");
  ExpectError(Testbed::Up({.topology = "paper", .name = "Not-One"}).status(), kCode,
              "'Not-One' is no name");
  ExpectError(Testbed::Up({.topology = "paper", .cpu = {{"s1", "2%"}}}).status(), kCode,
              "2% is not within");
  ExpectError(Testbed::Up({.topology = "paper", .cpu = {{"s9", "6%"}}}).status(), kCode,
              "no node 's9'");
}

TEST(TestbedErrorsTest, WithoutRootItSaysSo) {
  constexpr char kAsAnother[] = R"(
import os, runpy, sys
os.geteuid = lambda: 1000
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
)";
  const TestbedOptions options = {
      .topology = "paper",
      .command = {"python3", "-B", "-c", kAsAnother, absl::StrCat(kFolder, "/testbed_main.py")}};
  ExpectError(Testbed::Up(options).status(), absl::StatusCode::kFailedPrecondition,
              "the testbed takes root");
}

TEST(TestbedErrorsTest, AnotherCommandIsTold) {
  constexpr auto kCode = absl::StatusCode::kInternal;
  ExpectError(Testbed::Up({.topology = "paper", .command = {"/nowhere/testbed"}}).status(), kCode,
              "`/nowhere/testbed up paper` exited with 127");
  ExpectError(Testbed::Up({.topology = "paper", .command = {"true"}}).status(), kCode,
              "the list of testbeds");
  ExpectError(Testbed::Up({.topology = "paper", .command = {"sh", "-c", "echo []"}}).status(),
              kCode, "testbed paper was built and is not listed");
}

// Whether a real one is, depends on what else the machine does.
TEST(TestbedErrorsTest, WhereNothingIsOffCheckIsOk) {
  const std::vector<std::string> command = {
      "sh", "-c", R"(test "$0" != list || echo '[{"name": "tiny", "nodes": []}]')"};
  absl::StatusOr<std::unique_ptr<Testbed>> testbed =
      Testbed::Up({.topology = "/some/where/tiny.topology", .command = command});
  ASSERT_TRUE(testbed.ok()) << testbed.status();
  EXPECT_EQ((*testbed)->name(), "tiny");
  EXPECT_TRUE((*testbed)->Check().ok());
}

}  // namespace
}  // namespace abacus::experiments
