// The cache object against a plain model: over stores that fail, on several nodes, over each other.

#include "objfs/cache/cache_layer.h"

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/layer/testing/memory_layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::Ref;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::MemoryLayer;
using ::testing::Pair;
using Options = std::vector<std::pair<std::string, std::string>>;

constexpr uint64_t kBudget = 64 << 10;

// Gives promises, as what stands for other clients too; they are versions 1, 2, ...
class PromisingLayer final : public Layer {
 public:
  static constexpr LayerKind kKind = {"promising", "objfs.PromisingLayer", {}};

  absl::StatusOr<Promise> Claim(PromiseKind kind, Version) override {
    if (refuses) return WouldBlock("somebody else");
    if (shares) return Promise{};
    return Promise{kind, Version{++given}};
  }
  ABACUS_LAYER(PromisingLayer, 1)

 public:
  static inline std::atomic<bool> refuses{false};
  static inline std::atomic<bool> shares{false};  // nothing may be kept
  static inline std::atomic<uint64_t> given{0};
};

// Whose bytes are damaged from a block on.
class DamagedLayer final : public Layer {
 public:
  static constexpr LayerKind kKind = {"damaged", "objfs.DamagedLayer", {}};
  static constexpr uint64_t kDamagedAt = 24 << 10;

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override {
    if (offset + bytes > kDamagedAt) return absl::DataLossError("a damaged block");
    return Layer::Read(offset, bytes, now);
  }
  ABACUS_LAYER(DamagedLayer, 1)
};

// Whose writes stop on their way when the test says so, before they are there.
class HeldLayer final : public Layer {
 public:
  static constexpr LayerKind kKind = {"held", "objfs.HeldLayer", {}};

  absl::Status Write(uint64_t offset, const Block& bytes, Version now) override {
    if (holds.exchange(false)) {
      held.set_value();
      may_go_on.get_future().wait();
    }
    return Layer::Write(offset, bytes, now);
  }
  static void Hold() {
    held = std::promise<void>();
    may_go_on = std::promise<void>();
    holds = true;
  }
  ABACUS_LAYER(HeldLayer, 1)

 public:
  static inline std::atomic<bool> holds{false};
  static inline std::promise<void> held, may_go_on;
};

class CacheLayerTest : public ::testing::Test {
 protected:
  static constexpr size_t kNodes = 2;

  CacheLayerTest() {
    PromisingLayer::refuses = false;
    PromisingLayer::shares = false;
    PromisingLayer::given = 0;
    runtime::testing::ClusterOptions options;
    options.nodes = kNodes;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<PromisingLayer>().Add<TraceLayer>().Add<DamagedLayer>().Add<HeldLayer>();
      types.Add<MemoryLayer>().Add<ErrorLayer>().Add<StatisticsLayer>().Add<CacheLayer>(
          [] { return std::make_unique<CacheManager>(kBudget); });
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
  std::string ReadAll(const Ref<Layer>& layer, uint64_t offset = 0, uint64_t bytes = 1 << 20) {
    const auto read = layer->Read(offset, bytes, Now());
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->bytes.view()) : "";
  }
  absl::Status Write(const Ref<Layer>& layer, uint64_t offset, const std::string& bytes) {
    return layer->Write(offset, Block::CopyOf(bytes), Now());
  }
  std::string Fact(const Ref<Layer>& layer, const std::string& name) {
    const auto state = layer->Describe();
    EXPECT_TRUE(state.ok()) << state.status();
    if (!state.ok()) return "";
    for (const auto& [fact, value] : state->facts) {
      if (fact == name) return value;
    }
    return "";
  }

  std::unique_ptr<runtime::testing::Cluster> cluster_;
  uint64_t ticks_ = 0;
};

TEST_F(CacheLayerTest, IsItsModelWhileItMovesOverAnotherCache) {
  for (const bool through : {false, true}) {
    const auto seed = static_cast<uint32_t>(runtime::testing::Seed(through ? 8 : 7));
    std::mt19937 random(seed);
    const Ref<Layer> memory = Make<MemoryLayer>({});
    const Ref<Layer> lower = Make<CacheLayer>({memory}, {{"block", "1 KiB"}});
    const Ref<Layer> top = Make<CacheLayer>(
        {lower}, {{"block", "512 B"}, {"ahead", "2 KiB"}, {"through", through ? "on" : "off"}});
    std::string model;
    const auto draw = [&](uint64_t most) { return random() % (most + 1); };
    const int steps = runtime::testing::kSanitized ? 400 : 3000;
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i, ", through ", through));
      const uint64_t offset = draw(20000), bytes = draw(3000);
      switch (random() % 13) {
        case 12: {
          const std::string text(bytes, static_cast<char>('A' + i % 26));
          const auto at = top->Append(Block::CopyOf(text), Now());
          ASSERT_TRUE(at.ok()) << at.status();
          ASSERT_EQ(*at, model.size());
          model += text;
          break;
        }
        case 0:
        case 1:
        case 2: {
          std::string text(bytes, '\0');
          for (char& c : text) c = static_cast<char>('a' + random() % 26);
          ASSERT_TRUE(Write(top, offset, text).ok());
          if (text.empty()) break;
          model.resize(std::max(model.size(), offset + bytes));
          model.replace(offset, bytes, text);
          break;
        }
        case 3: {
          ASSERT_TRUE(top->Truncate(offset, Now()).ok());
          model.resize(offset);
          break;
        }
        case 4: {
          ASSERT_TRUE(top->Punch(Range{offset, bytes}, Now()).ok());
          for (uint64_t at = offset; at < model.size() && (bytes == 0 || at < offset + bytes);
               ++at) {
            model[at] = '\0';
          }
          break;
        }
        case 5:
          MoveTo(random() % 2 == 0 ? top : lower, draw(kNodes - 1));
          break;
        case 6:
          ASSERT_TRUE(top->Flush(Now()).ok());
          ASSERT_TRUE(lower->Flush(Now()).ok());
          ASSERT_EQ(ReadAll(memory), model) << "all of it is below";
          break;
        case 7:
          ASSERT_TRUE(top->Recall(Range{offset, bytes}, Now()).ok());
          break;
        case 8:
          ASSERT_TRUE(top->Invalidate(Range{offset, bytes}, Now()).ok());
          break;
        default: {
          ASSERT_EQ(ReadAll(top, offset, bytes),
                    offset < model.size() ? model.substr(offset, bytes) : std::string());
          const auto attributes = top->GetAttributes(Now());
          ASSERT_TRUE(attributes.ok()) << attributes.status();
          ASSERT_EQ(attributes->size, model.size());
        }
      }
    }
  }
}

// As another client's append would: below this cache.
TEST_F(CacheLayerTest, AnAppendFollowsWhatOthersAppendedAndShowsIt) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({memory}, {{"block", "512 B"}});
  ASSERT_TRUE(Write(cache, 0, "dirty ").ok());
  EXPECT_EQ(cache->Append(Block::CopyOf("mine "), Now()).value_or(0), 6u);
  EXPECT_EQ(ReadAll(cache), "dirty mine ");
  EXPECT_EQ(memory->Append(Block::CopyOf("theirs "), Now()).value_or(0), 11u);
  EXPECT_EQ(cache->Append(Block::CopyOf("again"), Now()).value_or(0), 18u);
  EXPECT_EQ(ReadAll(cache), "dirty mine theirs again");
}

TEST_F(CacheLayerTest, AnAppendBesideAWriteLosesNothing) {
  constexpr int kAppends = 100;
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({memory});
  ASSERT_TRUE(Write(cache, 0, "abcd").ok());
  MoveTo(cache, 1);
  std::atomic<uint64_t> ticks{1000};
  std::atomic<bool> appending{true};
  std::thread appender([&] {
    for (int i = 0; i < kAppends; ++i) {
      EXPECT_TRUE(cache->Append(Block::CopyOf("efgh"), Version::Of(++ticks, 1)).ok());
    }
    appending = false;
  });
  while (appending) {
    EXPECT_TRUE(cache->Write(0, Block::CopyOf("X"), Version::Of(++ticks, 1)).ok());
  }
  appender.join();
  EXPECT_TRUE(cache->Push(Version::Of(++ticks, 1)).ok());
  const std::string text = ReadAll(memory);
  EXPECT_EQ(text.size(), 4u + 4 * kAppends);
  EXPECT_EQ(text.find('\0'), std::string::npos) << "zeros were written over what was appended";
}

TEST_F(CacheLayerTest, WhatIsCachedIsNotReadBelowAgain) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> counted = Make<StatisticsLayer>({memory});
  const Ref<Layer> cache = Make<CacheLayer>({counted});
  ASSERT_TRUE(Write(memory, 0, std::string(20000, 'x')).ok());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ReadAll(cache, 100, 5000), std::string(5000, 'x'));
  EXPECT_THAT(Fact(counted, "read"), HasSubstr("1 calls"));
  EXPECT_THAT(Fact(counted, "get-attributes"), HasSubstr("1 calls"));
}

TEST_F(CacheLayerTest, ASequentialReaderIsReadAheadOf) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> counted = Make<StatisticsLayer>({memory});
  const Ref<Layer> cache = Make<CacheLayer>({counted}, {{"ahead", "16 KiB"}});
  ASSERT_TRUE(Write(memory, 0, std::string(48 << 10, 'x')).ok());
  for (uint64_t at = 0; at < 48 << 10; at += 4096) {
    ASSERT_EQ(ReadAll(cache, at, 4096).size(), 4096u);
  }
  // Blocks 0; 1 with 2 and 3; 4 with 5 (the file ends).
  EXPECT_THAT(Fact(counted, "read"), HasSubstr("3 calls, 0 errors, 49152 bytes"));
}

TEST_F(CacheLayerTest, DamageBehindWhatIsAskedForIsForWhoAsksForIt) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> damaged = Make<DamagedLayer>({memory});
  const Ref<Layer> cache = Make<CacheLayer>({damaged}, {{"ahead", "64 KiB"}});
  ASSERT_TRUE(Write(memory, 0, std::string(48 << 10, 'x')).ok());
  for (uint64_t at = 0; at < DamagedLayer::kDamagedAt; at += 4096) {
    ASSERT_EQ(ReadAll(cache, at, 4096), std::string(4096, 'x')) << at;
  }
  EXPECT_FALSE(cache->Read(DamagedLayer::kDamagedAt, 1, Version{1}).ok());
}

TEST_F(CacheLayerTest, WritesStayHereUntilTheyAreFlushed) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({memory});
  ASSERT_TRUE(Write(cache, 0, "hello").ok());
  EXPECT_EQ(ReadAll(memory), "");
  EXPECT_EQ(cache->GetAttributes(Now())->size, 5u);
  MoveTo(memory, 1);  // towards it nothing is flushed
  MoveTo(cache, 1);   // and it is not lost on the way
  EXPECT_EQ(ReadAll(cache), "hello");
  EXPECT_EQ(ReadAll(memory), "");
  ASSERT_TRUE(cache->Flush(Now()).ok());
  EXPECT_EQ(ReadAll(memory), "hello");
  EXPECT_EQ(Fact(cache, "dirty"), "0 bytes");
}

TEST_F(CacheLayerTest, WriteThroughIsBelowWhenWriteReturns) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({memory}, {{"through", "on"}});
  ASSERT_TRUE(Write(cache, 3, "abc").ok());
  EXPECT_EQ(ReadAll(memory), std::string("\0\0\0abc", 6));
}

TEST_F(CacheLayerTest, TooMuchThatIsDirtyIsWrittenBackByTheWriter) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({memory}, {{"dirty", "0.25"}});
  for (uint64_t i = 0; i < 32; ++i) ASSERT_TRUE(Write(cache, i << 13, std::string(8192, 'x')).ok());
  EXPECT_GE(ReadAll(memory).size(), 28u << 13) << "all but a quarter of 64 KiB, and one";
}

TEST_F(CacheLayerTest, AWriteBackThatFailsKeepsTheBytesAndTells) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> full = Make<ErrorLayer>(
      {memory}, {{"calls", "write"}, {"code", "no-space"}, {"share", "0.5"}, {"seed", "3"}});
  const Ref<Layer> cache = Make<CacheLayer>({full}, {{"block", "512 B"}});
  std::string model;
  for (int i = 0; i < 40; ++i) {
    // Not next to each other, so that each is a write of its own.
    const uint64_t at = static_cast<uint64_t>(i) * 1024;
    ASSERT_TRUE(Write(cache, at, "data").ok());
    model.resize(at);
    model += "data";
  }
  int failures = 0;
  absl::Status status;
  for (int i = 0; i < 1000; ++i) {
    status = cache->Flush(Now());
    if (status.ok()) break;
    ++failures;
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    ASSERT_EQ(ReadAll(cache), model);
  }
  EXPECT_GT(failures, 0);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ReadAll(memory), model);
}

TEST_F(CacheLayerTest, RecallShowsTheStoreWhatIsDirtyAndForgetsIt) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> lower = Make<CacheLayer>({memory});
  const Ref<Layer> top = Make<CacheLayer>({lower});
  ASSERT_TRUE(lower->Attach(1, top).ok());
  ASSERT_TRUE(Write(top, 0, "mine").ok());
  ASSERT_TRUE(lower->Recall(Range{0, 4}, Now()).ok());
  EXPECT_EQ(ReadAll(memory), "mine");
  ASSERT_TRUE(Write(memory, 0, "his!").ok());  // another client
  EXPECT_EQ(ReadAll(top), "his!");
}

TEST_F(CacheLayerTest, InvalidateForgetsTheSizeToo) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({memory});
  EXPECT_EQ(ReadAll(cache), "");
  ASSERT_TRUE(Write(memory, 0, "longer").ok());
  ASSERT_TRUE(cache->Invalidate(Range{0, 0}, Now()).ok());
  EXPECT_EQ(ReadAll(cache), "longer");
}

TEST_F(CacheLayerTest, AReaderSeesWholeBlocksWhileWritersAndFlushesRun) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({memory}, {{"block", "512 B"}, {"dirty", "0.05"}});
  constexpr uint64_t kBytes = 64 * 512;
  ASSERT_TRUE(Write(cache, 0, std::string(kBytes, 'a')).ok());
  const int rounds = runtime::testing::kSanitized ? 50 : 400;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> ticks{1000};
  const auto now = [&] { return Version::Of(++ticks, 1); };
  std::thread flusher([&] {
    while (!stop) EXPECT_TRUE(cache->Flush(now()).ok());
  });
  std::thread reader([&] {
    while (!stop) {
      const auto read = cache->Read(0, kBytes, now());
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(read->bytes.size(), kBytes);
      for (uint64_t at = 0; at < kBytes; at += 512) {
        const std::string_view block = read->bytes.view().substr(at, 512);
        ASSERT_EQ(block.find_first_not_of(block[0]), std::string_view::npos) << at;
      }
    }
  });
  for (int round = 0; round < rounds; ++round) {
    const char c = static_cast<char>('a' + round % 26);
    for (uint64_t at = 0; at < kBytes; at += 512) {
      ASSERT_TRUE(cache->Write(at, Block::CopyOf(std::string(512, c)), now()).ok());
    }
    if (round % 10 == 0) MoveTo(cache, static_cast<size_t>(round / 10 % 2));
  }
  stop = true;
  flusher.join();
  reader.join();
  ASSERT_TRUE(cache->Flush(now()).ok());
  EXPECT_EQ(ReadAll(memory), std::string(kBytes, static_cast<char>('a' + (rounds - 1) % 26)));
}

TEST_F(CacheLayerTest, NothingIsKeptWithoutAPromise) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({memory})});
  ASSERT_TRUE(Write(memory, 0, "below").ok());
  PromisingLayer::refuses = true;
  EXPECT_TRUE(IsWouldBlock(cache->Read(0, 5, Now()).status()));
  EXPECT_TRUE(IsWouldBlock(Write(cache, 0, "mine")));
  EXPECT_TRUE(IsWouldBlock(cache->Truncate(0, Now())));
  EXPECT_TRUE(IsWouldBlock(cache->GetAttributes(Now()).status()));
  EXPECT_EQ(ReadAll(memory), "below");
  PromisingLayer::refuses = false;
  EXPECT_EQ(ReadAll(cache), "below");
  PromisingLayer::refuses = true;
  EXPECT_EQ(ReadAll(cache), "below") << "from here on without asking";
  EXPECT_TRUE(IsWouldBlock(Write(cache, 0, "mine"))) << "but a promise to share is none to write";
}

TEST_F(CacheLayerTest, APromiseHoldsUntilItIsBrokenAlsoWhereTheCacheMoves) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> promising = Make<PromisingLayer>({memory});
  const Ref<Layer> cache = Make<CacheLayer>({promising});
  ASSERT_TRUE(Write(cache, 0, "min?").ok());
  MoveTo(cache, 1);
  EXPECT_EQ(ReadAll(memory), "min?") << "flushed, which ends no promise";
  PromisingLayer::refuses = true;
  ASSERT_TRUE(Write(cache, 3, "e").ok());
  MoveTo(cache, 0);
  EXPECT_EQ(ReadAll(cache), "mine");
  ASSERT_TRUE(Write(cache, 0, "mine").ok()) << "the promise to write came with the blocks";
  PromisingLayer::refuses = false;
  EXPECT_EQ(PromisingLayer::given, 1u);
  EXPECT_EQ(ReadAll(memory), "min?") << "carried";
  ASSERT_TRUE(cache->Recall(Range(), Version{1}).ok());
  EXPECT_EQ(ReadAll(memory), "mine");
  ASSERT_TRUE(Write(memory, 0, "his, and longer").ok());
  EXPECT_EQ(ReadAll(cache), "his, and longer");
  EXPECT_EQ(PromisingLayer::given, 2u);
  ASSERT_TRUE(memory->Truncate(3, Now()).ok());
  ASSERT_TRUE(cache->Invalidate(Range(), Version{2}).ok());
  ASSERT_TRUE(Write(cache, 0, "H").ok());
  ASSERT_TRUE(cache->Recall(Range(), Version{PromisingLayer::given}).ok());
  EXPECT_EQ(ReadAll(memory), "His") << "what others cut off is not written back";
}

TEST_F(CacheLayerTest, ABreakOfAnOlderPromiseBreaksNothing) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({memory})});
  ASSERT_TRUE(cache->Recall(Range(), Version{1}).ok());
  EXPECT_EQ(ReadAll(cache), "");
  EXPECT_EQ(PromisingLayer::given, 2u) << "the first is broken already";
  ASSERT_TRUE(Write(cache, 0, "mine").ok());
  ASSERT_TRUE(cache->Recall(Range(), Version{2}).ok());
  ASSERT_TRUE(cache->Invalidate(Range(), Version{2}).ok());
  EXPECT_EQ(ReadAll(memory), "") << "it has promise 3 now";
  EXPECT_EQ(ReadAll(cache), "mine");
}

TEST_F(CacheLayerTest, WhatAnotherClientWroteBeforeIsWrittenBackInThisOnesName) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> traced = Make<TraceLayer>({memory});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({traced})});
  // Its clock is ahead.
  const Version theirs = Version::Of(1000, 9);
  ASSERT_TRUE(memory->Write(0, Block::CopyOf(std::string("theirs")), theirs).ok());
  ASSERT_TRUE(Write(cache, 0, "ours").ok());
  MoveTo(cache, 1);
  ASSERT_TRUE(cache->Recall(Range(), Version{1}).ok());
  EXPECT_EQ(ReadAll(memory), "oursrs");
  EXPECT_THAT(absl::StrCat(Fact(traced, "call 0"), Fact(traced, "call 1"), Fact(traced, "call 2")),
              HasSubstr("write 0+6 at 1000.1,"));
}

TEST_F(CacheLayerTest, WhatCannotBeWrittenBackForAnotherClientIsLostAndToldOnce) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> full = Make<ErrorLayer>({memory}, {{"calls", "write"}, {"code", "no-space"}});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({full})});
  ASSERT_TRUE(Write(cache, 0, "mine").ok());
  EXPECT_TRUE(cache->Recall(Range(), Version{1}).ok()) << "the other one does not wait";
  MoveTo(cache, 1);
  EXPECT_EQ(cache->Flush(Now()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(cache->Flush(Now()).ok());
  EXPECT_EQ(ReadAll(cache), "");
}

// It has forgotten what was written before, as if the call were going to succeed.
TEST_F(CacheLayerTest, WhatIsGoneThoughTheCallFailedIsToldOnce) {
  for (const char* call : {"truncate", "punch"}) {
    const Ref<Layer> memory = Make<MemoryLayer>({});
    const Ref<Layer> full = Make<ErrorLayer>({memory}, {{"calls", call}, {"code", "no-space"}});
    const Ref<Layer> cache = Make<CacheLayer>({full}, {{"block", "512 B"}});
    const auto fail = [&] {
      return call[0] == 't' ? cache->Truncate(100, Now()) : cache->Punch(Range{512, 1024}, Now());
    };
    ASSERT_TRUE(Write(cache, 0, std::string(4096, 'x')).ok());
    ASSERT_TRUE(cache->Flush(Now()).ok());
    EXPECT_EQ(fail().code(), absl::StatusCode::kResourceExhausted) << call;
    EXPECT_TRUE(cache->Flush(Now()).ok()) << call << ": the store has it all";
    ASSERT_TRUE(Write(cache, 0, std::string(4096, 'y')).ok());
    EXPECT_EQ(fail().code(), absl::StatusCode::kResourceExhausted) << call;
    EXPECT_EQ(cache->Flush(Now()).code(), absl::StatusCode::kResourceExhausted) << call;
    EXPECT_TRUE(cache->Flush(Now()).ok()) << call;
  }
}

// As with a file that several clients write at once: what the test writes to `memory` others wrote.
TEST_F(CacheLayerTest, WhereNothingMayBeKeptEachCallGoesBelow) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({memory})}, {{"block", "512 B"}});
  const auto nothing_is_kept = [&] {
    EXPECT_EQ(Fact(cache, "cached"), "0 bytes");
    EXPECT_EQ(Fact(cache, "dirty"), "0 bytes");
    EXPECT_EQ(Fact(cache, "promise"), "none");
  };
  PromisingLayer::shares = true;
  ASSERT_TRUE(Write(memory, 0, "theirs").ok());
  EXPECT_EQ(ReadAll(cache), "theirs");
  ASSERT_TRUE(Write(memory, 0, "THEIRS, longer").ok());
  EXPECT_EQ(ReadAll(cache), "THEIRS, longer");
  EXPECT_EQ(cache->GetAttributes(Now())->size, 14u);
  const auto parts = cache->ReadRanges(std::vector<Range>{{0, 6}, {8, 100}}, Now());
  ASSERT_TRUE(parts.ok() && parts->size() == 2) << parts.status();
  EXPECT_EQ((*parts)[1].bytes.view(), "longer");
  nothing_is_kept();
  ASSERT_TRUE(Write(cache, 0, "ours").ok());
  EXPECT_EQ(ReadAll(memory), "oursRS, longer") << "when it returns";
  nothing_is_kept();
  EXPECT_EQ(cache->Append(Block::CopyOf("!"), Now()).value_or(0), 14u);
  ASSERT_TRUE(cache->Punch(Range{0, 2}, Now()).ok());
  EXPECT_EQ(ReadAll(memory), std::string("\0\0rsRS, longer!", 15));
  ASSERT_TRUE(cache->Truncate(6, Now()).ok());
  EXPECT_EQ(ReadAll(memory), std::string("\0\0rsRS", 6));
  EXPECT_EQ(cache->Seek(0, /*data=*/false, Now()).value_or(0),
            memory->Seek(0, /*data=*/false, Now()).value_or(1));
  const auto committed = cache->Commit(std::vector<RangeVersion>(),
                                       std::vector<RangeWrite>{{0, Block::CopyOf("both")}}, Now());
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_EQ(ReadAll(memory), "bothRS");
  EXPECT_TRUE(cache->Push(Now()).ok());
  EXPECT_TRUE(cache->Flush(Now()).ok());
  nothing_is_kept();
  EXPECT_FALSE(cache->Read(Layer::kFileBytesMax, 1, Now()).ok()) << "no such offset, as always";
}

TEST_F(CacheLayerTest, WhatWasKeptBeforeAndAfterIsNotSeenBetween) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({memory})}, {{"block", "512 B"}});
  std::string text(2000, 'a');
  ASSERT_TRUE(Write(cache, 0, text).ok());
  EXPECT_EQ(ReadAll(memory), "") << "it is kept";
  ASSERT_TRUE(cache->Recall(Range(), Version{PromisingLayer::given}).ok());
  PromisingLayer::shares = true;
  EXPECT_EQ(ReadAll(memory), text);
  MoveTo(cache, 1);
  for (const char c : {'b', 'c'}) {
    ASSERT_TRUE(Write(memory, 1000, std::string(500, c)).ok());
    text.replace(1000, 500, 500, c);
    ASSERT_TRUE(Write(cache, 100, std::string(500, c)).ok());
    text.replace(100, 500, 500, c);
    EXPECT_EQ(ReadAll(cache), text);
  }
  PromisingLayer::shares = false;
  EXPECT_EQ(ReadAll(cache), text);
  ASSERT_TRUE(Write(cache, 1990, std::string(100, 'd')).ok());
  text.replace(1990, 10, 100, 'd');
  EXPECT_EQ(ReadAll(cache), text);
  ASSERT_TRUE(cache->Flush(Now()).ok());
  EXPECT_EQ(ReadAll(memory), text);
}

// It holds a promise to share; a write is to go below all the same.
TEST_F(CacheLayerTest, AWriteThatPassesLeavesNothingOldForWhoeverReads) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({memory})}, {{"block", "512 B"}});
  ASSERT_TRUE(Write(memory, 0, std::string(2000, 'a')).ok());
  EXPECT_EQ(ReadAll(cache).size(), 2000u);
  EXPECT_EQ(Fact(cache, "promise"), "to share");
  PromisingLayer::shares = true;
  ASSERT_TRUE(Write(cache, 510, "bbbb").ok());
  EXPECT_EQ(ReadAll(cache, 508, 8), "aabbbbaa");
  ASSERT_TRUE(Write(cache, 1999, "bb").ok());
  EXPECT_EQ(ReadAll(cache, 1998, 8), "abb") << "the size too";
  ASSERT_TRUE(cache->Truncate(1000, Now()).ok());
  EXPECT_EQ(ReadAll(cache, 990), std::string(10, 'a'));
  ASSERT_TRUE(cache->Punch(Range{0, 4}, Now()).ok());
  EXPECT_EQ(ReadAll(cache, 0, 6), std::string("\0\0\0\0aa", 6));
  EXPECT_EQ(cache->Append(Block::CopyOf("end"), Now()).value_or(0), 1000u);
  EXPECT_EQ(ReadAll(cache, 999), "aend");
  EXPECT_EQ(Fact(cache, "dirty"), "0 bytes");
}

// Were the block read, changed here and written back while that write is on its way, one of the two
// would be lost.
TEST_F(CacheLayerTest, APromiseThatComesBackWaitsForWritesThatPass) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> held = Make<HeldLayer>({memory});
  const Ref<Layer> cache = Make<CacheLayer>({Make<PromisingLayer>({held})}, {{"block", "512 B"}});
  ASSERT_TRUE(Write(memory, 0, std::string(512, 'a')).ok());
  std::atomic<uint64_t> ticks{1000};
  const auto write = [&](uint64_t offset, char c) {
    return std::thread([&, offset, c] {
      const absl::Status written =
          cache->Write(offset, Block::CopyOf(std::string(8, c)), Version::Of(++ticks, 1));
      EXPECT_TRUE(written.ok()) << written;
    });
  };
  PromisingLayer::shares = true;
  HeldLayer::Hold();
  std::thread passes = write(0, 'p');
  HeldLayer::held.get_future().wait();
  PromisingLayer::shares = false;
  std::thread keeps = write(100, 'k');
  // It has its promise when the layer below has given one.
  ASSERT_TRUE(runtime::testing::Eventually([] { return PromisingLayer::given == 1; }));
  // A break waits for both.
  std::thread recall([&] { EXPECT_TRUE(cache->Recall(Range(), Version{1}).ok()); });
  EXPECT_EQ(Fact(cache, "dirty"), "0 bytes");
  EXPECT_EQ(Fact(cache, "promise"), "none");
  HeldLayer::may_go_on.set_value();
  for (std::thread* thread : {&passes, &keeps, &recall}) thread->join();
  ASSERT_TRUE(cache->Flush(Version::Of(++ticks, 1)).ok());
  std::string text(512, 'a');
  text.replace(0, 8, 8, 'p');
  text.replace(100, 8, 8, 'k');
  EXPECT_EQ(ReadAll(memory), text);
}

TEST_F(CacheLayerTest, ACacheOnACacheThatMayKeepNothingKeepsNothing) {
  const Ref<Layer> memory = Make<MemoryLayer>({});
  const Ref<Layer> lower = Make<CacheLayer>({Make<PromisingLayer>({memory})});
  const Ref<Layer> top = Make<CacheLayer>({lower});
  ASSERT_TRUE(lower->Attach(1, top).ok());
  ASSERT_TRUE(Write(memory, 0, "below").ok());
  EXPECT_EQ(ReadAll(top), "below");  // both have a promise to share
  PromisingLayer::shares = true;
  ASSERT_TRUE(Write(top, 0, "above").ok());
  EXPECT_EQ(ReadAll(memory), "above");
  ASSERT_TRUE(lower->Recall(Range(), Version{PromisingLayer::given}).ok());
  for (const char* text : {"one", "another"}) {
    ASSERT_TRUE(Write(memory, 0, text).ok());
    EXPECT_EQ(ReadAll(top, 0, std::string(text).size()), text);
    ASSERT_TRUE(Write(top, 0, "ours").ok());
    EXPECT_EQ(ReadAll(memory, 0, 4), "ours");
  }
  for (const Ref<Layer>& cache : {lower, top}) {
    EXPECT_EQ(Fact(cache, "cached"), "0 bytes");
    EXPECT_EQ(Fact(cache, "promise"), "none");
  }
}

TEST_F(CacheLayerTest, WhereOtherFilesFillTheNodesShareAWriteGoesThrough) {
  const Ref<Layer> others = Make<MemoryLayer>({}), memory = Make<MemoryLayer>({});
  const Ref<Layer> filling = Make<CacheLayer>({others}, {{"dirty", "1"}});
  const Ref<Layer> cache = Make<CacheLayer>({memory}, {{"dirty", "1"}});
  ASSERT_TRUE(Write(cache, 0, "kept").ok());
  EXPECT_EQ(ReadAll(memory), "");
  ASSERT_TRUE(cache->Flush(Now()).ok());
  ASSERT_TRUE(Write(filling, 0, std::string(kBudget, 'f')).ok());
  ASSERT_TRUE(Write(cache, 0, "through").ok());
  EXPECT_EQ(ReadAll(memory), "through");
  EXPECT_EQ(ReadAll(others), "") << "and what fills it stays where it is";
}

}  // namespace
}  // namespace abacus::objfs
