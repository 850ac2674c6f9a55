// What becomes of a cache's dirty blocks when it moves: carried or flushed, and never lost.

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/cache/cache_layer.h"
#include "objfs/layer/probe_layer.h"
#include "objfs/layer/testing/memory_layer.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::MigrationReport;
using runtime::MoveAhead;
using runtime::Ref;
using ::testing::HasSubstr;
using testing::MemoryLayer;
using Options = std::vector<std::pair<std::string, std::string>>;

constexpr uint64_t kPoolBytes = 4 << 20;
constexpr uint64_t kBlockBytes = 8 << 10;

class TravellingTest : public ::testing::Test {
 protected:
  static constexpr size_t kOld = 0, kNew = 1, kElsewhere = 2;

  TravellingTest() {
    runtime::testing::ClusterOptions options;
    options.nodes = 3;
    options.types = [](size_t, runtime::testing::TestPoints&, runtime::ObjectTypes& types) {
      types.Add<MemoryLayer>().Add<ErrorLayer>().Add<CacheLayer>(
          [] { return std::make_unique<CacheManager>(kPoolBytes); });
    };
    cluster_ = std::make_unique<runtime::testing::Cluster>(options);
  }

  template <typename T>
  Ref<Layer> Make(size_t at, const std::vector<Ref<Layer>>& below, const Options& options = {}) {
    return Ref<Layer>(cluster_->Create<T>(at, below, options).base());
  }
  Ref<Layer> MakeCache(const Ref<Layer>& below, size_t at = kOld) {
    return Make<CacheLayer>(at, {below}, {{"dirty", "1"}});
  }
  Version Now() { return Version::Of(++ticks_, 1); }
  absl::StatusOr<MigrationReport> Move(const Ref<Layer>& layer, size_t to) {
    return cluster_->Move(layer.rid(), *cluster_->HostOf(layer.rid()), to);
  }
  // And says how large the checkpoint was.
  uint64_t MustMove(const Ref<Layer>& layer, size_t to) {
    const auto moved = Move(layer, to);
    EXPECT_TRUE(moved.ok()) << moved.status();
    return moved.ok() ? moved->state_bytes : 0;
  }
  std::string ReadAll(const Ref<Layer>& layer, uint64_t offset = 0, uint64_t bytes = kPoolBytes) {
    const auto read = layer->Read(offset, bytes, Now());
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() ? std::string(read->bytes.view()) : "";
  }
  absl::Status Write(const Ref<Layer>& layer, uint64_t offset, const std::string& bytes) {
    return layer->Write(offset, Block::CopyOf(bytes), Now());
  }
  uint64_t DirtyBytes(const Ref<Layer>& cache) {
    const auto state = cache->Describe();
    EXPECT_TRUE(state.ok()) << state.status();
    for (const auto& [fact, value] : state->facts) {
      uint64_t bytes = 0;
      // There is an option of that name too.
      if (fact == "dirty" && absl::SimpleAtoi(value.substr(0, value.find(' ')), &bytes) &&
          value.ends_with("bytes")) {
        return bytes;
      }
    }
    ADD_FAILURE() << "no fact";
    return 0;
  }
  CacheLayer& ObjectOf(const Ref<Layer>& cache, size_t at) {
    const runtime::RefBase ref((*cluster_)[at].binding().Intern(cache.rid()));
    return static_cast<CacheLayer&>(*ref.entry()->object);
  }

  std::unique_ptr<runtime::testing::Cluster> cluster_;
  std::atomic<uint64_t> ticks_{0};
};

TEST_F(TravellingTest, DirtyBlocksTravelToWhereTheLayerBelowIs) {
  const Ref<Layer> memory = Make<MemoryLayer>(kNew, {});
  const Ref<Layer> cache = MakeCache(memory);
  const std::string text(3 * kBlockBytes, 'd');
  ASSERT_TRUE(Write(cache, 0, text).ok());
  const uint64_t state_bytes = MustMove(cache, kNew);
  EXPECT_GE(state_bytes, 3 * kBlockBytes);
  EXPECT_LE(state_bytes, 3 * kBlockBytes + kBareStateBytesMax);
  EXPECT_EQ(DirtyBytes(cache), 3 * kBlockBytes);
  EXPECT_EQ(ReadAll(memory), "") << "nothing was written back";
  EXPECT_EQ(ReadAll(cache), text);
  ASSERT_TRUE(cache->Flush(Now()).ok());
  EXPECT_EQ(ReadAll(memory), text);
}

TEST_F(TravellingTest, DirtyBlocksAreFlushedWhereTheLayerBelowStaysBehind) {
  const Ref<Layer> memory = Make<MemoryLayer>(kOld, {});
  const Ref<Layer> cache = MakeCache(memory);
  const std::string text(3 * kBlockBytes - 5, 'd');
  ASSERT_TRUE(Write(cache, 0, text).ok());
  ASSERT_TRUE(Write(cache, 0, text).ok()) << "written over, which makes no difference here";
  EXPECT_LE(MustMove(cache, kNew), kBareStateBytesMax);
  EXPECT_EQ(ReadAll(memory), text);
  EXPECT_EQ(DirtyBytes(cache), 0u);
  EXPECT_EQ(ReadAll(cache), text);
}

TEST_F(TravellingTest, BetweenOtherNodesWhatIsWrittenOverAgainTravels) {
  for (const bool again : {false, true}) {
    SCOPED_TRACE(again);
    const Ref<Layer> memory = Make<MemoryLayer>(kElsewhere, {});
    const Ref<Layer> cache = MakeCache(memory);
    const std::string text(2 * kBlockBytes, 'd');
    // In parts, each where the one before ended: this writes nothing over.
    for (uint64_t at = 0; at < text.size(); at += 1024) {
      ASSERT_TRUE(Write(cache, at, std::string(1024, 'd')).ok());
    }
    if (again) {
      ASSERT_TRUE(Write(cache, 0, text).ok());
    }
    EXPECT_EQ(MustMove(cache, kNew) > kBareStateBytesMax, again);
    EXPECT_EQ(ReadAll(memory), again ? "" : text);
    EXPECT_EQ(ReadAll(cache), text);
  }
}

TEST_F(TravellingTest, MoreThanTheStopMayTakeIsFlushedAlsoTowardsTheLayerBelow) {
  const Ref<Layer> memory = Make<MemoryLayer>(kNew, {});
  const Ref<Layer> cache = MakeCache(memory);
  const std::string text(kCarryBytesMax, 'd');
  ASSERT_TRUE(Write(cache, 0, text).ok());
  ASSERT_TRUE(Write(cache, text.size(), "more").ok());
  EXPECT_LE(MustMove(cache, kNew), kBareStateBytesMax);
  EXPECT_EQ(ReadAll(memory), text + "more");
}

TEST_F(TravellingTest, ACacheThatIsAboutToMoveCollectsNoMoreThanItMayCarry) {
  const Ref<Layer> memory = Make<MemoryLayer>(kNew, {});
  const Ref<Layer> cache = MakeCache(memory);
  CacheLayer& object = ObjectOf(cache, kOld);
  const auto there = [](const runtime::RefBase&) { return MoveAhead::Place::kThere; };
  const std::string half(kCarryBytesMax / 2, 'h');
  ASSERT_TRUE(Write(cache, 0, half).ok());
  EXPECT_FALSE(object.BeforeMove({there, false}));
  EXPECT_EQ(DirtyBytes(cache), half.size()) << "it is to be carried";
  for (uint64_t i = 1; i < 7; ++i) {
    ASSERT_TRUE(Write(cache, i * half.size(), half).ok());
    EXPECT_LE(DirtyBytes(cache), kCarryBytesMax);
  }
  ASSERT_TRUE(Write(cache, 0, half + half + half).ok());
  EXPECT_EQ(DirtyBytes(cache), 0u) << "more than that at once goes through";
  object.StaysHere();
  ASSERT_TRUE(Write(cache, 0, half + half + half).ok());
  EXPECT_EQ(DirtyBytes(cache), 3 * half.size()) << "and where it stays it collects as before";
  EXPECT_TRUE(object.BeforeMove({there, true})) << "no room: it is lighter for it";
  EXPECT_EQ(DirtyBytes(cache), 0u);
  ASSERT_TRUE(Write(cache, 0, "a few").ok());
  EXPECT_EQ(DirtyBytes(cache), 0u) << "and collects nothing at all";
  EXPECT_FALSE(object.BeforeMove({there, true})) << "it cannot be lighter still";
  object.StaysHere();
  object.StaysHere();
}

TEST_F(TravellingTest, WhatCannotBeFlushedTravels) {
  const Ref<Layer> memory = Make<MemoryLayer>(kOld, {});
  const Ref<Layer> full =
      Make<ErrorLayer>(kOld, {memory}, {{"calls", "write"}, {"code", "no-space"}});
  const Ref<Layer> cache = MakeCache(full);
  ASSERT_TRUE(Write(cache, 0, "kept").ok());
  CacheLayer& object = ObjectOf(cache, kOld);
  EXPECT_FALSE(object.BeforeMove({[](const auto&) { return MoveAhead::Place::kHere; }, true}));
  EXPECT_TRUE(Write(cache, kBlockBytes, "also kept").ok()) << "its writer asked for no flush";
  EXPECT_TRUE(cache->Truncate(4, Now()).ok());
  object.StaysHere();
  EXPECT_GE(MustMove(cache, kNew), kBlockBytes);
  EXPECT_EQ(ReadAll(cache), "kept");
  EXPECT_EQ(cache->Flush(Now()).code(), absl::StatusCode::kResourceExhausted)
      << "who asks for it to be durable is told";
  EXPECT_EQ(ReadAll(cache), "kept");
}

// The target's pool has as many dirty bytes as it may.
TEST_F(TravellingTest, WhereTheTargetHasNoRoomTheBlocksAreFlushedAndTheCacheMoves) {
  const Ref<Layer> others = Make<MemoryLayer>(kNew, {}), memory = Make<MemoryLayer>(kNew, {});
  const Ref<Layer> filling = MakeCache(others, kNew), cache = MakeCache(memory);
  ASSERT_TRUE(Write(filling, 0, std::string(kPoolBytes, 'f')).ok());
  ASSERT_TRUE(Write(cache, 0, std::string(3 * kBlockBytes, 'd')).ok());
  EXPECT_LE(MustMove(cache, kNew), kBareStateBytesMax);
  EXPECT_EQ(ReadAll(memory), std::string(3 * kBlockBytes, 'd'));
  EXPECT_EQ(ReadAll(cache), std::string(3 * kBlockBytes, 'd'));
  EXPECT_EQ(ReadAll(others), "") << "what fills it stays where it is";
}

// As an engine's limit of memory finds it. The source's pool is full of this very cache's blocks.
TEST_F(TravellingTest, ACacheThatFillsItsPoolIsEjectedWithoutWaitingForIt) {
  const Ref<Layer> memory = Make<MemoryLayer>(kOld, {});
  const Ref<Layer> others = Make<MemoryLayer>(kNew, {});
  const Ref<Layer> cache = MakeCache(memory), filling = MakeCache(others, kNew);
  ASSERT_TRUE(Write(cache, 0, std::string(kPoolBytes, 'd')).ok());
  ASSERT_TRUE(Write(filling, 0, std::string(kPoolBytes, 'f')).ok());
  EXPECT_LE(MustMove(cache, kNew), kBareStateBytesMax);
  EXPECT_EQ(ReadAll(memory), std::string(kPoolBytes, 'd'));
}

TEST_F(TravellingTest, WhatNeitherFitsNorCanBeFlushedStaysAndIsNotLost) {
  const Ref<Layer> memory = Make<MemoryLayer>(kNew, {}), others = Make<MemoryLayer>(kNew, {});
  const Ref<Layer> full =
      Make<ErrorLayer>(kNew, {memory}, {{"calls", "write"}, {"code", "no-space"}});
  const Ref<Layer> cache = MakeCache(full), filling = MakeCache(others, kNew);
  ASSERT_TRUE(Write(filling, 0, std::string(kPoolBytes, 'f')).ok());
  ASSERT_TRUE(Write(cache, 0, std::string(kBlockBytes, 'd')).ok());
  const auto moved = Move(cache, kNew);
  ASSERT_FALSE(moved.ok());
  EXPECT_THAT(std::string(moved.status().message()), HasSubstr("has no room"));
  EXPECT_EQ(cluster_->HostOf(cache.rid()), kOld);
  EXPECT_EQ(ReadAll(cache), std::string(kBlockBytes, 'd'));
  ASSERT_TRUE(Write(cache, 0, std::string(2 * kCarryBytesMax, 'e')).ok());
  EXPECT_EQ(DirtyBytes(cache), 2 * kCarryBytesMax) << "as if nobody had asked it to move";
}

TEST_F(TravellingTest, AMoveToADeadNodeLosesNothing) {
  const Ref<Layer> memory = Make<MemoryLayer>(kElsewhere, {});
  const Ref<Layer> cache = MakeCache(memory);
  ASSERT_TRUE(Write(cache, 0, "fresh").ok());
  cluster_->Kill(kNew);
  EXPECT_FALSE(Move(cache, kNew).ok());
  EXPECT_EQ(ReadAll(cache), "fresh");
  ASSERT_TRUE(Write(cache, 0, std::string(2 * kCarryBytesMax, 'e')).ok());
  EXPECT_EQ(DirtyBytes(cache), 2 * kCarryBytesMax);
}

// A writer that never stops, and a cache that goes round all places: of the three moves of a round
// one is towards the layer below, one away from it, and one between the others.
TEST_F(TravellingTest, IsItsModelWhileItIsWrittenAndMovedRound) {
  const auto seed = static_cast<uint32_t>(runtime::testing::Seed(31));
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  constexpr uint64_t kFileBytes = kCarryBytesMax + (kCarryBytesMax >> 1);
  const Ref<Layer> memory = Make<MemoryLayer>(kElsewhere, {});
  const Ref<Layer> cache = MakeCache(memory);
  std::string model(kFileBytes, '\0');
  ASSERT_TRUE(Write(cache, 0, model).ok());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> written{0};
  std::thread writer([&] {
    std::mt19937 random(seed);
    while (!stop) {
      const uint64_t bytes = 1 + random() % (random() % 8 == 0 ? kCarryBytesMax / 4 : 20000);
      const uint64_t offset = random() % (kFileBytes - bytes);
      const std::string text(bytes, static_cast<char>('a' + random() % 26));
      ASSERT_TRUE(Write(cache, offset, text).ok());
      model.replace(offset, bytes, text);
      ASSERT_EQ(ReadAll(cache, offset, bytes), text);
      ++written;
      written.notify_all();
    }
  });
  uint64_t carried = 0, flushed = 0;
  const int rounds = runtime::testing::kSanitized ? 5 : 40;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    for (const size_t to : {kNew, kElsewhere, kOld}) {
      written.wait(written);  // something is dirty
      const auto moved = Move(cache, to);
      // A drain may be cut short where the machine is slow; it has moved the next time.
      if (!moved.ok()) continue;
      ++(moved->state_bytes > kBareStateBytesMax ? carried : flushed);
      EXPECT_LE(moved->state_bytes, kCarryBytesMax + kCarryBytesMax / 16);
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(carried, 0u);
  EXPECT_GT(flushed + carried, static_cast<uint64_t>(rounds));
  EXPECT_EQ(ReadAll(cache) == model, true);
  ASSERT_TRUE(cache->Flush(Now()).ok());
  EXPECT_EQ(ReadAll(memory) == model, true) << "all of it is below";
}

}  // namespace
}  // namespace abacus::objfs
