#include "objfs/fs/front_end.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "objfs/fs/testing/file_system_world.h"

namespace abacus::objfs {
namespace {

// Who it is that this thread works for, as a host would keep it.
class NumberedFrontEnd final : public FrontEnd {
 public:
  NumberedFrontEnd(uint32_t number, uint32_t* now) : number_(number), now_(now) {}
  uint32_t Begin() override { return std::exchange(*now_, number_); }
  void End(uint32_t outer) override { *now_ = outer; }

 private:
  const uint32_t number_;
  uint32_t* const now_;
};

// A clock that passes by hand.
LazyFrontEnd::Clock::time_point by_hand;
LazyFrontEnd::Clock::time_point ByHand() { return by_hand; }

TEST(FrontEndTest, IsMadeOnceItWasWorkedForAFewTimes) {
  uint32_t now = 0;
  int made = 0;
  const auto lazy = std::make_shared<LazyFrontEnd>(
      [&] {
        ++made;
        return std::make_unique<NumberedFrontEnd>(7, &now);
      },
      ByHand);
  for (uint32_t i = 0; i < LazyFrontEnd::kWorksBefore; ++i) {
    const FrontEndWork work(lazy);
    EXPECT_EQ(now, 0u);
  }
  EXPECT_EQ(made, 0);
  for (int i = 0; i < 3; ++i) {
    const FrontEndWork work(lazy);
    EXPECT_EQ(now, 7u);
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(now, 0u);
}

TEST(FrontEndTest, WorkWithinOthersGivesTheThreadBack) {
  uint32_t now = 0;
  const auto numbered = [&now](uint32_t number) {
    auto lazy = std::make_shared<LazyFrontEnd>(
        [&now, number] { return std::make_unique<NumberedFrontEnd>(number, &now); }, ByHand);
    for (uint32_t i = 0; i < LazyFrontEnd::kWorksBefore; ++i) {
      EXPECT_EQ(lazy->Enter(), nullptr);
      lazy->Leave();
    }
    return lazy;
  };
  const auto one = numbered(1), two = numbered(2);
  {
    const FrontEndWork outer(one);
    {
      const FrontEndWork inner(two);
      EXPECT_EQ(now, 2u);
    }
    EXPECT_EQ(now, 1u);
  }
  EXPECT_EQ(now, 0u);
}

TEST(FrontEndTest, EndsWhereItIsWorkedForSeldom) {
  uint32_t now = 0;
  int made = 0;
  const auto lazy = std::make_shared<LazyFrontEnd>(
      [&] {
        ++made;
        return std::make_unique<NumberedFrontEnd>(7, &now);
      },
      ByHand);
  const auto work = [&](uint32_t times) {
    bool is_worked_for = false;
    for (uint32_t i = 0; i < times; ++i) {
      const FrontEndWork one(lazy);
      is_worked_for = now == 7;
    }
    return is_worked_for;
  };
  EXPECT_TRUE(work(LazyFrontEnd::kWorksBefore + 1));
  lazy->Look();
  EXPECT_TRUE(work(1)) << "it was worth it until now";
  {
    const FrontEndWork under_way(lazy);
    lazy->Look();
    EXPECT_EQ(now, 7u) << "nothing ends that is worked for";
  }
  EXPECT_EQ(now, 0u);
  lazy->Look();
  EXPECT_FALSE(work(1));
  EXPECT_EQ(made, 1);
  // Works before a look do not count after it.
  lazy->Look();
  EXPECT_FALSE(work(LazyFrontEnd::kWorksBefore));
  lazy->Look();
  EXPECT_FALSE(work(LazyFrontEnd::kWorksBefore));
  EXPECT_TRUE(work(1));
  EXPECT_EQ(made, 2);
}

// What takes long is worth it however seldom it is: by their number alone works of a second each
// would never have one.
TEST(FrontEndTest, IsThereForAFewLongWorks) {
  uint32_t now = 0;
  const auto lazy = std::make_shared<LazyFrontEnd>(
      [&] { return std::make_unique<NumberedFrontEnd>(7, &now); }, ByHand);
  const auto work = [&](std::chrono::milliseconds takes) {
    const FrontEndWork one(lazy);
    by_hand += takes;
    return now == 7;
  };
  constexpr std::chrono::milliseconds kLong = LazyFrontEnd::kWorkedBefore, kNext{1};
  EXPECT_FALSE(work(kLong));
  by_hand += std::chrono::hours(1);  // nobody works
  EXPECT_FALSE(work(kNext)) << "no longer than that yet";
  EXPECT_TRUE(work(kNext));
  lazy->Look();
  EXPECT_TRUE(work(kLong + kNext));
  lazy->Look();
  EXPECT_TRUE(work(kLong)) << "it was worth it until the look";
  lazy->Look();
  EXPECT_FALSE(work(kNext));
  // Of one that is under way, what was before the look does not count after it.
  {
    const FrontEndWork under_way(lazy);
    by_hand += 2 * kLong;
    lazy->Look();
    EXPECT_FALSE(work(kNext));
    by_hand += kLong;
    EXPECT_TRUE(work(kNext)) << "beside one that is long";
  }
  EXPECT_EQ(now, 0u);
}

// Works beside each other take the time that passes, and no more.
TEST(FrontEndTest, TimeInWhichManyWorkCountsOnce) {
  uint32_t now = 0;
  const auto lazy = std::make_shared<LazyFrontEnd>(
      [&] { return std::make_unique<NumberedFrontEnd>(7, &now); }, ByHand);
  {
    const FrontEndWork one(lazy), two(lazy), three(lazy);
    by_hand += LazyFrontEnd::kWorkedBefore;
  }
  const FrontEndWork next(lazy);
  EXPECT_EQ(now, 0u);
}

TEST(FrontEndTest, ThereMayBeNone) {
  const FrontEndWork of_nobody(nullptr);
  const auto lazy = std::make_shared<LazyFrontEnd>(nullptr);
  for (uint32_t i = 0; i < 2 * LazyFrontEnd::kWorksBefore; ++i) {
    EXPECT_EQ(lazy->Enter(), nullptr);
    lazy->Leave();
  }
}

// Lets others do something after each read of a directory's blocks.
class MeddlingLayer final : public Layer {
 public:
  static constexpr bool kAnchored = true;
  static constexpr LayerKind kKind = {"meddling", "test.MeddlingLayer", {}, 1, 1, true};
  explicit MeddlingLayer(const std::function<void()>& after_read) : after_read_(after_read) {}

  absl::StatusOr<ReadResult> Read(uint64_t offset, uint64_t bytes, Version now) override {
    auto read = below()->Read(offset, bytes, now);
    after_read_();
    return read;
  }
  ABACUS_LAYER(MeddlingLayer, 1)

 private:
  const std::function<void()>& after_read_;
};

// Or nothing would be decided on a directory's object while others refuse its client's first
// change.
TEST(FrontEndTest, ADirectoryHasOneWithinAChangeThatIsRefusedAgainAndAgain) {
  testing::FileSystemWorld world(3, nullptr, nullptr, absl::Seconds(30), absl::Seconds(1),
                                 [](runtime::ObjectTypes& types) { types.Add<MeddlingLayer>(); });
  const Caller caller;
  const auto other = world.Client(1);
  uint32_t now = 0, changes = 0;
  bool made = false;
  const std::function<void()> after_read = [&] {
    if (made || changes == 3 * LazyFrontEnd::kWorksBefore) return;
    const auto changed = other->Make(caller, other->root(), absl::StrCat("others-", ++changes),
                                     S_IFREG | 0644, 0, "");
    EXPECT_TRUE(changed.ok()) << changed.status();
  };
  world.change_host = [&](size_t node, FileSystem::Host& host) {
    host.make_front_end = [&] {
      made = true;
      return std::make_unique<NumberedFrontEnd>(7, &now);
    };
    host.make_directory = [&, node, make = host.make_directory](const runtime::Ref<Volume>& volume,
                                                                const runtime::Ref<Layer>& below,
                                                                ObjectId id, uint16_t writer) {
      auto hook = std::make_unique<MeddlingLayer>(after_read);
      EXPECT_TRUE(hook->Init({below}, {}).ok());
      return make(volume,
                  runtime::Ref<Layer>(
                      world.cluster()[node].binding().Adopt<MeddlingLayer>(std::move(hook)).base()),
                  id, writer);
    };
  };
  {
    const auto mine = world.Client(2);
    const auto file = mine->Make(caller, mine->root(), "mine", S_IFREG | 0644, 0, "");
    EXPECT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(made) << "after " << changes << " changes of another client";
  }
  EXPECT_EQ(now, 0u);
}

}  // namespace
}  // namespace abacus::objfs
