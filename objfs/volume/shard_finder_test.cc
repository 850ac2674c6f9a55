// The finder of shards, with servers that say what they are told to.

#include "objfs/volume/shard_finder.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/object/testing/fake_invoker.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ShardFinderTest : public ::testing::Test {
 protected:
  ShardFinderTest() {
    ShardFinder::Host host;
    host.open = [this](const std::string& address, const std::string& name) {
      return Open(address, name);
    };
    host.open_here = [this](const std::string& name) { return Open("here", name); };
    host.servers = [this](const std::string& address,
                          const std::string& name) -> absl::StatusOr<std::vector<std::string>> {
      const auto found = named_.find(address + "/" + name);
      if (found == named_.end()) return absl::NotFoundError("keeps nothing of it");
      return found->second;
    };
    host.steady_ns = [this] { return now_ns_; };
    finder_ = std::make_unique<ShardFinder>("home~1", /*own=*/1, addresses_, std::move(host));
  }
  absl::StatusOr<Ref<Volume>> Open(const std::string& address, const std::string& name) {
    asked_.push_back(address + "/" + name);
    const auto found = served_.find(asked_.back());
    if (found == served_.end()) return absl::NotFoundError(address + " has no such volume");
    return found->second;
  }
  // A volume of that name is served at `address` from now on, and another one than before.
  void Serve(const std::string& address, const std::string& name) {
    served_[address + "/" + name] = invoker_.Elsewhere<Volume>();
  }
  std::vector<std::string> TakeAsked() { return std::exchange(asked_, {}); }

  runtime::testing::FakeInvoker invoker_;  // before the refs
  int64_t now_ns_ = 1;
  std::map<std::string, Ref<Volume>> served_;
  std::map<std::string, std::vector<std::string>> named_;
  std::vector<std::string> asked_;
  const std::shared_ptr<ServerAddresses> addresses_ =
      std::make_shared<ServerAddresses>(std::vector<std::string>{"a:1", "b:1", kVacant, "c:1"});
  std::unique_ptr<ShardFinder> finder_;
};

TEST_F(ShardFinderTest, AsksItsServersInTurnAndItselfWithoutAMessage) {
  Serve("c:1", "home");
  const auto first = finder_->Find(0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(*first == served_["c:1/home"]);
  EXPECT_THAT(TakeAsked(), ElementsAre("a:1/home", "here/home", "c:1/home"));
  Serve("here", "home~2");
  const auto second = finder_->Find(2);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(*second == served_["here/home~2"]);
}

TEST_F(ShardFinderTest, BelievesWhatItFoundForASecondAndThenAsksThereFirst) {
  Serve("c:1", "home");
  ASSERT_TRUE(finder_->Find(0).ok());
  TakeAsked();
  now_ns_ += ShardFinder::kBelievedNs - 1;
  ASSERT_TRUE(finder_->Find(0).ok());
  EXPECT_THAT(TakeAsked(), IsEmpty());
  now_ns_ += 1;
  Serve("c:1", "home");  // it was opened anew
  const auto again = finder_->Find(0);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == served_["c:1/home"]);
  EXPECT_THAT(TakeAsked(), ElementsAre("c:1/home"));
}

TEST_F(ShardFinderTest, AShardThatHasComeToAnotherServerIsFoundThere) {
  Serve("c:1", "home");
  ASSERT_TRUE(finder_->Find(0).ok());
  served_.clear();
  Serve("a:1", "home");
  now_ns_ += ShardFinder::kBelievedNs;
  TakeAsked();
  const auto there = finder_->Find(0);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_TRUE(*there == served_["a:1/home"]);
  EXPECT_THAT(TakeAsked(), ElementsAre("c:1/home", "a:1/home"));
}

TEST_F(ShardFinderTest, AServerThatOnlyTheShardHasSoFarIsFoundByThoseThatKnowIt) {
  Serve("d:1", "home");
  named_["c:1/home"] = {"c:1", kVacant, "d:1"};
  const auto there = finder_->Find(0);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_TRUE(*there == served_["d:1/home"]);
}

TEST_F(ShardFinderTest, AShardThatNobodyHasIsUnavailableAndLookedForAgain) {
  const absl::Status away = finder_->Find(3).status();
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(away.ToString(), HasSubstr("shard 3 of volume 'home'"));
  EXPECT_THAT(away.ToString(), HasSubstr("a:1 has no such volume"));
  Serve("a:1", "home~3");
  EXPECT_TRUE(finder_->Find(3).ok()) << "at once";
}

}  // namespace
}  // namespace abacus::objfs
