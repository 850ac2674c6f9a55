// A server with memory for one of two filters (paper, section 6.7): whole nodes over slow links,
// and the objects' memory as it is counted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/node/control_client.h"
#include "runtime/node/front_end_console.h"
#include "runtime/node/node.h"
#include "runtime/node/testing/node_fixture.h"

namespace abacus::runtime {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using testing::kAsk;
using testing::MoveLog;

constexpr uint32_t kRead = 64 * 1024;
constexpr size_t kTable = size_t{8} << 20;
constexpr uint64_t kRoomForOne = kTable * 3 / 2;
constexpr std::chrono::seconds kPatienceOfEngine(60);

class Source : public AnchoredObject {
 public:
  absl::StatusOr<Block> Read() { return Block::CopyOf(std::string(kRead, 's')); }
  ABACUS_OBJECT(Source, "test.Source", 1, Read)
};

// Passes on a part of what it reads, by a table of 8 MiB that it makes anew wherever it is.
class Filter : public MobileObject {
 public:
  absl::StatusOr<Block> Pass(Ref<Source> source, uint32_t bytes) {
    const absl::StatusOr<Block> block = source->Read();
    if (!block.ok()) return block.status();
    std::call_once(made_, [this] { table_ = std::make_unique<std::string>(kTable, 't'); });
    return Block::CopyOf(std::string(bytes, 'p'));
  }
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
  ABACUS_OBJECT(Filter, "test.Filter", 1, Pass)

 private:
  std::once_flag made_;
  std::unique_ptr<std::string> table_;
};

// A client whose thread reads through its filter, until it ends.
class Reader {
 public:
  Reader(std::unique_ptr<Node> node, const Node& server, Rid source, uint32_t passes)
      : node_(std::move(node)),
        moves_(*node_),
        source_(node_->binding().RefTo<Source>(source)),
        filter_(*node_->Create<Filter>()),
        server_address_(server.control_address()) {
    thread_ = std::thread([this, passes] {
      const Console console(*node_);
      while (!stopping_) {
        const auto passed = filter_->Pass(source_, passes);
        EXPECT_TRUE(passed.ok()) << passed.status();
      }
    });
  }
  ~Reader() {
    stopping_ = true;
    thread_.join();
  }

  Rid filter() const { return filter_.rid(); }
  Node& node() { return *node_; }
  // The engine's last words on the filter.
  std::string Told() const {
    const auto decisions = ControlClient(server_address_).Explain(filter_.rid(), 32, kAsk);
    if (!decisions.ok()) return decisions.status().ToString();
    std::string told;
    for (const DecisionText& decision : *decisions) {
      absl::StrAppend(&told, decision.reason, ": ", decision.explanation, "\n");
    }
    return told;
  }
  std::vector<MoveEvent> moves() const { return moves_.events(); }

 private:
  std::unique_ptr<Node> node_;
  MoveLog moves_;
  Ref<Source> source_;
  Ref<Filter> filter_;
  const std::string server_address_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class FullServerTest : public testing::NodeFixture {
 protected:
  FullServerTest() { types_.Add<Source>().Add<Filter>(); }

  static void Slow(Config& config) {
    config.placement.enabled = true;
    config.placement.window = absl::Milliseconds(400);
    config.transport.rate_limit_mbit = 20;
  }
  std::unique_ptr<Reader> Client(const std::string& name, uint32_t passes) {
    NodeOptions options = ClientOptions(name, *server_);
    Slow(options.config);
    return std::make_unique<Reader>(Start(options), *server_, server_->Create<Source>()->rid(),
                                    passes);
  }
};

// The first filter takes 0.6 of its time at the server; for the second, which takes a hundredth
// there, it is sent home.
TEST_F(FullServerTest, TheFilterThatGainsMoreIsKeptAndTheOtherIsSentBack) {
  NodeOptions options = ServerOptions("s");
  Slow(options.config);
  options.config.placement.memory_limit = kRoomForOne;
  server_ = Start(options);
  ASSERT_NE(server_, nullptr);

  const auto first = Client("first", kRead * 6 / 10);
  ASSERT_TRUE(Eventually([&] { return Hosts(*server_, first->filter()); }, kPatienceOfEngine))
      << first->Told();
  const auto second = Client("second", 256);
  EXPECT_TRUE(Eventually([&] { return Hosts(*server_, second->filter()); }, kPatienceOfEngine))
      << second->Told();
  EXPECT_TRUE(Hosts(first->node(), first->filter())) << first->Told();
  std::cout << first->Told() << second->Told();
  EXPECT_THAT(first->Told(), HasSubstr("Making room"));
  for (const Reader* reader : {first.get(), second.get()}) {
    for (const MoveEvent& move : reader->moves()) EXPECT_TRUE(move.status.ok()) << move.status;
  }
}

}  // namespace
}  // namespace abacus::runtime
