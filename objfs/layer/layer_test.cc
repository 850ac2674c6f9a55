// Layers against a plain model, while they are moved from node to node.

#include "objfs/layer/layer.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/layer/template_layer.h"
#include "objfs/layer/testing/memory_layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::Ref;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryLayer;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Options = std::vector<std::pair<std::string, std::string>>;

// A front end for tests: keeps what it is told.
class Listener final : public Layer {
 public:
  static constexpr LayerKind kKind = {"listener", "test.Listener", {}, 0, 1};
  absl::Status Invalidate(Range range, Version version) override {
    Told("invalidate", range, version);
    return absl::OkStatus();
  }
  absl::Status Recall(Range range, Version version) override {
    Told("recall", range, version);
    return absl::OkStatus();
  }
  ABACUS_LAYER(Listener, 1)

 private:
  void Told(const char* what, Range range, Version version) {
    runtime::MutexLock lock(mutex_);
    told_.emplace_back(what, std::to_string(range.offset) + "+" + std::to_string(range.bytes) +
                                 " " + version.ToString());
  }
  void AddFacts(Options* facts) const override {
    runtime::MutexLock lock(mutex_);
    facts->insert(facts->end(), told_.begin(), told_.end());
  }
  mutable runtime::Mutex mutex_;
  Options told_ ABSL_GUARDED_BY(mutex_);
};

class LayerTest : public ::testing::Test {
 protected:
  static constexpr size_t kNodes = 3;

  LayerTest() {
    runtime::testing::ClusterOptions options;
    options.nodes = kNodes;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<TemplateLayer>()
          .Add<ErrorLayer>()
          .Add<DelayLayer>()
          .Add<TraceLayer>()
          .Add<StatisticsLayer>()
          .Add<MemoryLayer>()
          .Add<Listener>();
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
  }

  template <typename T>
  Ref<Layer> Make(const std::vector<Ref<Layer>>& below, const Options& options = {}) {
    return Ref<Layer>(cluster_->Create<T>(0, below, options).base());
  }
  Version Now() { return Version::Of(++ticks_, 1); }
  void MoveTo(const Ref<Layer>& layer, size_t node) {
    const auto host = cluster_->HostOf(layer.rid());
    ASSERT_TRUE(host.has_value());
    if (*host == node) return;
    const auto moved = cluster_->Move(layer.rid(), *host, node);
    ASSERT_TRUE(moved.ok()) << moved.status();
    ASSERT_TRUE(moved->status.ok()) << moved->status;
  }
  Options FactsOf(const Ref<Layer>& layer) {
    const auto state = layer->Describe();
    EXPECT_TRUE(state.ok()) << state.status();
    return state.ok() ? state->facts : Options();
  }

  std::unique_ptr<runtime::testing::Cluster> cluster_;
  uint64_t ticks_ = 0;
};

TEST_F(LayerTest, StacksAreTheirModelWhereverTheirLayersAre) {
  const uint32_t seed = static_cast<uint32_t>(runtime::testing::Seed(3));
  std::mt19937 random(seed);
  std::vector<Ref<Layer>> layers = {Make<MemoryLayer>({})};
  layers.push_back(Make<StatisticsLayer>({layers.back()}));
  layers.push_back(Make<TraceLayer>({layers.back()}, {{"calls", "5"}}));
  layers.push_back(Make<ErrorLayer>({layers.back()}, {{"share", "0"}}));
  layers.push_back(Make<TemplateLayer>({layers.back()}));
  const Ref<Layer>& top = layers.back();
  std::string model;
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  const int steps = runtime::testing::kSanitized ? 200 : 1000;
  for (int i = 0; i < steps; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i));
    const uint64_t offset = draw(3000), bytes = draw(500);
    switch (random() % 7) {
      case 6: {
        const std::string text(bytes, static_cast<char>('A' + i % 26));
        const auto at = top->Append(Block::CopyOf(text), Now());
        ASSERT_TRUE(at.ok()) << at.status();
        ASSERT_EQ(*at, model.size());
        model += text;
        break;
      }
      case 0: {
        const std::string text(bytes, static_cast<char>('a' + i % 26));
        ASSERT_TRUE(top->Write(offset, Block::CopyOf(text), Now()).ok());
        model.resize(std::max(model.size(), offset + bytes));
        model.replace(offset, bytes, text);
        break;
      }
      case 1: {
        ASSERT_TRUE(top->Truncate(offset, Now()).ok());
        model.resize(offset);
        break;
      }
      case 2: {
        ASSERT_TRUE(top->Punch(Range{offset, bytes}, Now()).ok());
        for (uint64_t at = offset; at < model.size() && (bytes == 0 || at < offset + bytes); ++at) {
          model[at] = '\0';
        }
        break;
      }
      case 3:
        MoveTo(layers[draw(layers.size() - 1)], draw(kNodes - 1));
        break;
      default: {
        const auto read = top->Read(offset, bytes, Now());
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_EQ(read->bytes.view(),
                  offset < model.size() ? model.substr(offset, bytes) : std::string());
        const std::vector<Range> ranges = {{draw(3000), 1 + draw(200)}, {offset, 1 + bytes}};
        const auto several = top->ReadRanges(ranges, Now());
        ASSERT_TRUE(several.ok()) << several.status();
        ASSERT_EQ(several->size(), ranges.size());
        for (size_t at = 0; at < ranges.size(); ++at) {
          const auto& [from, count] = ranges[at];
          ASSERT_EQ((*several)[at].bytes.view(),
                    from < model.size() ? model.substr(from, count) : std::string());
        }
        const auto attributes = top->GetAttributes(Now());
        ASSERT_TRUE(attributes.ok()) << attributes.status();
        ASSERT_EQ(attributes->size, model.size());
      }
    }
  }
}

TEST_F(LayerTest, CommitIsRefusedWhereWhatWasReadHasChanged) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> top = Make<StatisticsLayer>({memory});
  ASSERT_TRUE(top->Write(0, Block::CopyOf("old"), Now()).ok());
  const auto read = top->Read(0, 3, Now());
  ASSERT_TRUE(read.ok());
  const std::vector<RangeVersion> reads = {{{0, 3}, read->version}};
  const auto first = top->Commit(reads, std::vector<RangeWrite>{{0, Block::CopyOf("new")}}, Now());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->committed);
  const auto second = top->Commit(reads, std::vector<RangeWrite>{{0, Block::CopyOf("bad")}}, Now());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(second->committed);
  EXPECT_EQ(second->stale.size(), 1u);
  EXPECT_EQ(top->Read(0, 3, Now())->bytes.view(), "new");
}

TEST_F(LayerTest, BreaksGoUpThroughLayersThatHaveMoved) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> middle = Make<TemplateLayer>({memory});
  const Ref<Layer> above = Make<StatisticsLayer>({middle});
  const Ref<Layer> front = Make<Listener>({});
  const Ref<Layer> other = Make<Listener>({});
  ASSERT_TRUE(above->Attach(1, front).ok());
  ASSERT_TRUE(above->Attach(2, other).ok());
  MoveTo(middle, 1);
  MoveTo(above, 2);
  ASSERT_TRUE(memory->Invalidate(Range{8, 4}, Version::Of(9, 3)).ok());
  ASSERT_TRUE(memory->Recall(Range{0, 0}, Version::Of(10, 3)).ok());
  // Once each, though every layer between them knows the one above for both clients.
  const auto both = ElementsAre(Pair("invalidate", "8+4 9.3"), Pair("recall", "0+0 10.3"));
  EXPECT_THAT(FactsOf(front), both);
  EXPECT_THAT(FactsOf(other), both);
  ASSERT_TRUE(above->Detach(2).ok());
  ASSERT_TRUE(memory->Invalidate(Range{0, 1}, Version::Of(11, 3)).ok());
  EXPECT_EQ(FactsOf(front).size(), 3u);
  EXPECT_THAT(FactsOf(other), both);
}

TEST_F(LayerTest, ErrorLayerFailsTheCallsThatItIsToldTo) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> top =
      Make<ErrorLayer>({memory}, {{"calls", "write"}, {"code", "no-space"}, {"after", "2"}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(top->Write(0, Block::CopyOf("x"), Now()).ok());
  }
  MoveTo(top, 1);  // and counts on there
  EXPECT_EQ(top->Write(0, Block::CopyOf("y"), Now()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(top->Read(0, 1, Now())->bytes.view(), "x");
  EXPECT_THAT(FactsOf(top), ::testing::Contains(Pair("failed", "1 of 3")));
}

TEST_F(LayerTest, TraceKeepsTheLastCallsAcrossAMove) {
  const Ref<Layer> top = Make<TraceLayer>({Make<MemoryLayer>({})}, {{"calls", "2"}});
  ASSERT_TRUE(top->Write(5, Block::CopyOf("abc"), Version::Of(1, 1)).ok());
  ASSERT_TRUE(top->Flush(Version::Of(2, 1)).ok());
  MoveTo(top, 1);
  ASSERT_TRUE(top->Truncate(4, Version::Of(3, 1)).ok());
  EXPECT_THAT(FactsOf(top), ElementsAre(Pair("calls", "2"), Pair("call 1", HasSubstr("flush")),
                                        Pair("call 2", HasSubstr("truncate 4+0 at 3.1"))));
}

TEST_F(LayerTest, StatisticsCountAcrossAMove) {
  const Ref<Layer> top = Make<StatisticsLayer>({Make<MemoryLayer>({})});
  ASSERT_TRUE(top->Write(0, Block::CopyOf("abcd"), Now()).ok());
  MoveTo(top, 1);
  ASSERT_TRUE(top->Write(4, Block::CopyOf("ef"), Now()).ok());
  ASSERT_TRUE(top->Read(0, 6, Now()).ok());
  EXPECT_THAT(FactsOf(top),
              UnorderedElementsAre(Pair("write", HasSubstr("2 calls, 0 errors, 6 bytes")),
                                   Pair("read", HasSubstr("1 calls, 0 errors, 6 bytes"))));
}

TEST_F(LayerTest, DelayLayerTakesTheTimeOfItsRate) {
  // 100 KiB at 1 MiB a second: a tenth of a second each.
  const Ref<Layer> top =
      Make<DelayLayer>({Make<MemoryLayer>({})}, {{"each", "0s"}, {"rate", "1 MiB"}});
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(top->Write(0, Block::CopyOf(std::string(102400, 'x')), Now()).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(97));
}

TEST_F(LayerTest, RefusesOptionsAndLayersThatItCannotStandOn) {
  const auto made =
      (*cluster_)[0].binding().Create<TemplateLayer>(std::vector<Ref<Layer>>{}, Options{});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("stands on 1 to 1 layers, not on 0"));
  const auto wrong = (*cluster_)[0].binding().Create<TemplateLayer>(
      std::vector<Ref<Layer>>{Make<MemoryLayer>({})}, Options{{"unti", "1 B"}});
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("did you mean 'unit'?"));
}

TEST(WouldBlockTest, IsToldFromTheRuntimesAborts) {
  EXPECT_TRUE(IsWouldBlock(WouldBlock("a lock")));
  EXPECT_FALSE(IsWouldBlock(absl::OkStatus()));
  EXPECT_FALSE(IsWouldBlock(
      runtime::MakeError(runtime::ErrorKind::kMoveCancelled, "the move did not happen")));
}

}  // namespace
}  // namespace abacus::objfs
