// Clients that change one directory over a link with a delay, and a server's engine that places
// their directory objects (paper, section 6.5): what nobody in the file system decides.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "apps/abacus/client_node.h"
#include "apps/abacus/testing/command.h"
#include "apps/abacus/testing/long_link.h"
#include "apps/abacus/volumes.h"
#include "runtime/node/control_client.h"
#include "runtime/node/control_types.h"
#include "runtime/testing/cluster.h"

namespace abacus::apps::testing {
namespace {

using runtime::testing::Eventually;
using ::testing::HasSubstr;

// A round trip is as long as 20 ms, so that what a machine under load adds to it is little, and
// what the blocks of a directory weigh is nothing.
constexpr std::chrono::milliseconds kDelay(10);
constexpr std::chrono::seconds kPatienceOfEngine(60);
constexpr absl::Duration kAskEngine = absl::Seconds(30);
// Gains of less than a fifth, which last for long enough, are worth a move by default. A machine
// under load makes some up; those that are asked for here are larger than a half, or none.
constexpr char kQuickEngine[] =
    "[placement]\nwindow = \"400ms\"\n[planner]\nsettled_thresh = 0.2\n";

// A client of the volume, whose threads make names in its root until it ends.
class Inserter {
 public:
  Inserter(const ClientOptions& options, const std::string& name) : name_(name) {
    auto client = ClientNode::Start(options, name);
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    auto volume = VolumeOf(node(), "shared");
    EXPECT_TRUE(volume.ok()) << volume.status();
    volume_ = *std::move(volume);
    objfs::FileSystem::Host host = HostOf(node());
    host.make_directory = [this, make = host.make_directory](const auto&... arguments) {
      auto made = make(arguments...);
      if (made.ok()) root_object_ = made->rid();
      return made;
    };
    auto files =
        objfs::FileSystem::Make(volume_, Kinds(), host, {.client = name, .file_stack = {}});
    EXPECT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    Insert("begins");  // after this the directory object is there
  }
  ~Inserter() { Stop(); }

  void Begin(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] {
        for (int n = 0; !stopping_; ++n) Insert(std::to_string(i) + "-" + std::to_string(n));
      });
    }
  }
  void Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  runtime::Node& node() { return client_->node(); }
  runtime::Rid root_object() const { return root_object_; }
  objfs::CommitCounts Commits() {
    const auto counts = volume_->Commits();
    EXPECT_TRUE(counts.ok()) << counts.status();
    return counts.value_or(objfs::CommitCounts());
  }
  uint64_t inserted() const { return inserted_; }
  bool HasItsDirectoryHere() {
    for (const auto& object : node().binding().Objects(1000)) {
      if (object.rid == root_object_ && object.hosted) return true;
    }
    return false;
  }
  // Entries of the root, by a listing.
  uint64_t Listed() {
    uint64_t listed = 0;
    for (uint64_t cookie = 0;;) {
      const auto some = files_->List({.checked = true}, files_->root(), cookie, 1000, false);
      EXPECT_TRUE(some.ok()) << some.status();
      if (!some.ok() || some->empty()) return listed - 2;  // without "." and ".."
      listed += some->size();
      cookie = some->back().cookie;
    }
  }

 private:
  void Insert(const std::string& what) {
    const auto made =
        files_->Make({.checked = true}, files_->root(), name_ + "-" + what, S_IFREG | 0644, 0, "");
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) ++inserted_;
  }

  const std::string name_;
  std::unique_ptr<ClientNode> client_;
  runtime::Ref<objfs::Volume> volume_;
  std::unique_ptr<objfs::FileSystem> files_;
  runtime::Rid root_object_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> inserted_{0};
  std::vector<std::thread> threads_;
};

class ContentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ready;
    ASSERT_EQ(pipe2(ready.data(), O_CLOEXEC), 0);
    const std::string config = folder_.Write(
        "server.toml", kQuickEngine + std::string("[node]\ncontrol_address = \"127.0.0.1:0\"\n") +
                           "data_address = \"unix:" + socket_ + "\"\nadvertised_data_address = \"" +
                           link_.address() + "\"\n");
    server_ = std::make_unique<Command>(
        std::vector<std::string>{"serve", "--config", config, "--data", folder_.Path("data"),
                                 "--name", "server", "--ready-fd", std::to_string(ready[1])},
        Command::Options{.keep_fd = ready[1]});
    close(ready[1]);
    for (char c = 0; read(ready[0], &c, 1) == 1 && c != '\n';) address_ += c;
    close(ready[0]);
    ASSERT_NE(address_, "") << server_->Wait().err;
    ASSERT_EQ(
        RunAbacus({"volume", "create", "shared"}, {.environment = {"ABACUS_SERVER=" + address_}})
            .code,
        0);
  }
  std::unique_ptr<Inserter> Client(const std::string& name) {
    ClientOptions options;
    options.config = folder_.Write(name + ".toml", kQuickEngine + std::string("[log]\nlevel = "
                                                                              "\"warning\"\n"));
    options.servers = {address_};
    return std::make_unique<Inserter>(options, name);
  }
  runtime::DecisionText LastDecision(const Inserter& client) {
    const auto decisions =
        runtime::ControlClient(address_).Explain(client.root_object(), 1, kAskEngine);
    EXPECT_TRUE(decisions.ok()) << decisions.status();
    return decisions.ok() && !decisions->empty() ? decisions->front() : runtime::DecisionText();
  }

  const Folder folder_;
  const std::string socket_ = folder_.Path("data.sock");
  const LongLink link_{socket_, kDelay};
  std::string address_;
  std::unique_ptr<Command> server_;
};

double RetriesPerCommit(const objfs::CommitCounts& from, const objfs::CommitCounts& to) {
  return static_cast<double>(to.stale - from.stale) /
         static_cast<double>(to.committed - from.committed);
}

TEST_F(ContentionTest, DirectoryObjectsOfClientsThatMeetGoToTheServerAndRetriesVanish) {
  constexpr int kThreads = 3;
  const auto one = Client("one"), two = Client("two");
  const objfs::CommitCounts begin = one->Commits();
  const absl::Time began = absl::Now();
  one->Begin(kThreads);
  two->Begin(kThreads);
  ASSERT_TRUE(Eventually([&] { return one->Commits().committed >= begin.committed + 20; }));
  const objfs::CommitCounts met = one->Commits();
  EXPECT_TRUE(Eventually([&] { return !one->HasItsDirectoryHere() && !two->HasItsDirectoryHere(); },
                         kPatienceOfEngine))
      << LastDecision(*one).explanation << "\n"
      << LastDecision(*two).explanation;
  std::cout << "both are at the server after " << absl::Now() - began << "\n";
  // Each thread's commit that was under way there has ended when it has made another name.
  const objfs::CommitCounts moved = one->Commits();
  ASSERT_TRUE(Eventually([&] { return one->Commits().committed >= moved.committed + 40; }));
  const objfs::CommitCounts settled = one->Commits();
  ASSERT_TRUE(Eventually([&] { return one->Commits().committed >= settled.committed + 200; }));
  const objfs::CommitCounts end = one->Commits();
  one->Stop();
  two->Stop();
  const double before = RetriesPerCommit(begin, met), after = RetriesPerCommit(settled, end);
  std::cout << "retries per commit: " << before << " at the clients, " << after
            << " at the server, after " << moved.committed - begin.committed << " commits\n";
  EXPECT_GT(before, 0.3);
  EXPECT_LT(after, 0.05);
  EXPECT_EQ(one->Listed(), one->inserted() + two->inserted());
}

// Every change of the directory goes to the server, wherever the object is: whether it stays is a
// matter of a tenth of the time, and nothing to rest a test on.
TEST_F(ContentionTest, AClientThatNobodyMeetsIsDecidedOnAndRetriesNothing) {
  const auto one = Client("one");
  one->Begin(1);
  // As many windows as it takes the engine to act on a small gain that lasts.
  EXPECT_TRUE(Eventually([&] { return one->inserted() >= 120; }, kPatienceOfEngine));
  const runtime::DecisionText decision = LastDecision(*one);
  std::cout << decision.outcome << ": " << decision.explanation << "\n";
  EXPECT_THAT(decision.explanation, HasSubstr("objfs.Directory"));
  EXPECT_EQ(one->Commits().stale, 0u);
  one->Stop();
  EXPECT_EQ(one->Listed(), one->inserted());
}

}  // namespace
}  // namespace abacus::apps::testing
