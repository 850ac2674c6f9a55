#ifndef ABACUS_RUNTIME_NODE_TESTING_NODE_FIXTURE_H_
#define ABACUS_RUNTIME_NODE_TESTING_NODE_FIXTURE_H_

// Whole nodes in one process, over loopback: a server and clients as programs start them.

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "monitor-ebpf/plain_monitor.h"
#include "runtime/base/status.h"
#include "runtime/node/control_client.h"
#include "runtime/node/node.h"
#include "runtime/testing/cluster.h"

namespace abacus::runtime::testing {

// A call on the control plane may take that long; only a hang reaches it.
inline constexpr absl::Duration kAsk = absl::Seconds(30);

class Counter : public MobileObject {
 public:
  absl::StatusOr<int64_t> Add(int64_t n) { return sum_ += n; }
  void Checkpoint(CheckpointWriter& writer) const override { writer.Write(sum_.load()); }
  absl::Status Restore(CheckpointReader& reader) override {
    sum_ = reader.Read<int64_t>();
    return reader.status();
  }
  ABACUS_OBJECT(Counter, "test.Counter", 1, Add)

 private:
  std::atomic<int64_t> sum_{0};
};

// Stands still at the server and yields blocks.
class Feed : public AnchoredObject {
 public:
  absl::StatusOr<Block> Read() { return Block::CopyOf(std::string(64 * 1024, 'x')); }
  ABACUS_OBJECT(Feed, "test.Feed", 1, Read)
};

// Reads much and returns little.
class Scanner : public MobileObject {
 public:
  absl::StatusOr<uint64_t> Scan(Ref<Feed> feed) {
    const absl::StatusOr<Block> block = feed->Read();
    if (!block.ok()) return block.status();
    return block->size();
  }
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Scanner, "test.Scanner", 1, Scan)
};

// Collects what a node's move observer is told.
class MoveLog {
 public:
  explicit MoveLog(Node& node) {
    node.SetMoveObserver([this](const MoveEvent& event) {
      MutexLock lock(mutex_);
      events_.push_back(event);
    });
  }
  std::vector<MoveEvent> events() const {
    MutexLock lock(mutex_);
    return events_;
  }
  bool Await(size_t count) const {
    return Eventually([&] { return events().size() >= count; });
  }

 private:
  mutable Mutex mutex_;
  std::vector<MoveEvent> events_ ABSL_GUARDED_BY(mutex_);
};

class NodeFixture : public ::testing::Test {
 protected:
  NodeFixture() {
    types_.Add<Counter>().Add<Feed>().Add<Scanner>();
    std::string pattern = (std::filesystem::temp_directory_path() / "abacus-node-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~NodeFixture() override {
    points_.ReleaseAll();
    // A server writes what it knows of links when it ends: before its directory goes.
    client_.reset();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  Config QuickConfig(const std::string& name) const {
    Config config;
    config.node.name = name;
    config.membership.heartbeat_interval = absl::Milliseconds(50);
    config.membership.lease = absl::Seconds(10);
    config.membership.dead_after = absl::Seconds(20);
    config.lifetime.grace = absl::Milliseconds(200);
    config.placement.window = absl::Milliseconds(200);
    config.placement.digest_interval = absl::Milliseconds(50);
    config.placement.enabled = false;
    return config;
  }
  NodeOptions ServerOptions(const std::string& name) const {
    NodeOptions options;
    options.config = QuickConfig(name);
    options.config.node.data_dir = absl::StrCat(directory_, "/", name);
    options.config.node.control_address = "127.0.0.1:0";
    options.config.node.data_address = "127.0.0.1:0";
    options.server = true;
    return options;
  }
  NodeOptions ClientOptions(const std::string& name, const Node& server) const {
    NodeOptions options;
    options.config = QuickConfig(name);
    options.servers = {server.control_address()};
    return options;
  }

  absl::StatusOr<std::unique_ptr<Node>> TryStart(const NodeOptions& options) {
    monitor::PlainMonitorOptions monitor;
    monitor.rate = 1e9;  // calibrating costs 50 ms
    return Node::Start(options, types_, monitor::NewPlainMonitor(monitor));
  }
  std::unique_ptr<Node> Start(const NodeOptions& options) {
    auto node = TryStart(options);
    EXPECT_TRUE(node.ok()) << node.status();
    return node.ok() ? *std::move(node) : nullptr;
  }
  // A server `s` and a client `c`.
  void StartPair() {
    server_ = Start(ServerOptions("s"));
    ASSERT_NE(server_, nullptr);
    client_ = Start(ClientOptions("c", *server_));
    ASSERT_NE(client_, nullptr);
  }

  static NodeId Id(const Node& node) { return node.instance().node; }
  static bool Knows(const Node& node, NodeInstance instance) {
    for (const Node::Member& member : node.Members()) {
      if (member.instance == instance) return true;
    }
    return false;
  }
  static bool Hosts(Node& node, const Rid& rid) {
    for (const auto& object : node.binding().Objects(1000)) {
      if (object.rid == rid && object.hosted) return true;
    }
    return false;
  }
  static std::string Message(const absl::Status& status) {
    return std::string(ToStd(status.message()));
  }
  // A command of the server's engine, as it would send it.
  static absl::Status MoveByEngine(const Node& host, const Rid& rid, NodeId target) {
    MoveCommand command;
    command.rids = {rid};
    command.target = target;
    command.by_engine = true;
    command.reason = "it pays";
    return ControlClient(host.control_address()).Move(command, kAsk).status();
  }

  std::string directory_;
  ObjectTypes types_;
  TestPoints points_;
  std::unique_ptr<Node> server_;
  std::unique_ptr<Node> client_;
};

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_NODE_TESTING_NODE_FIXTURE_H_
