// The locks of two clients of a volume, and what is left of them when a client leaves or is silent.

#include "objfs/fs/file_locks.h"

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"

namespace abacus::objfs {
namespace {

using runtime::Ref;
using runtime::testing::Eventually;
using testing::FileSystemWorld;

LockRequest WantLock(uint64_t owner, bool exclusive = true) {
  return {.file = 77, .exclusive = exclusive, .range = {0, 9}, .owner = owner, .pid = 4711};
}

// One client's locks, without a file system around them.
class LockEnd {
 public:
  // `hears`: the volume's news reach it.
  LockEnd(FileSystemWorld& world, size_t node, bool hears = true)
      : volume_(world.cluster()[node].RefTo<Volume>(world.volume().rid())) {
    runtime::BindingManager& binding = world.cluster()[node].binding();
    const auto info = volume_->Join("locks", Ref<ClientEnd>());
    EXPECT_TRUE(info.ok()) << info.status();
    writer_ = info->writer;
    FileLocks::Host host;
    host.adopt = [&binding, hears](std::unique_ptr<LockClient> client) {
      if (!hears) client = std::make_unique<LockClient>([](const std::vector<uint64_t>&) {});
      return binding.Adopt(std::move(client));
    };
    host.end = [&binding](const Ref<LockClient>& client) {
      binding.Destroy(client.rid()).IgnoreError();
    };
    const auto ask_again =
        hears ? std::chrono::milliseconds(3'600'000) : std::chrono::milliseconds(20);
    locks_.emplace(volume_, writer_, host, ask_again);
    EXPECT_TRUE(locks_->Listen().ok());
  }
  ~LockEnd() { Leave(); }

  void Leave() {
    if (!locks_.has_value()) return;
    locks_.reset();
    volume_->Leave(writer_).IgnoreError();
  }
  FileLocks& locks() { return *locks_; }
  Volume::AbacusProxy const& volume() const { return *volume_.operator->(); }
  uint16_t writer() const { return writer_; }
  FsError Try(const LockRequest& request) {
    FsError error = FsError::kInputOutput;
    locks_->Lock(request, [&](const absl::Status& status) { error = FsErrorOf(status); });
    return error;
  }
  // Begins to wait.
  std::future<FsError> Wait(LockRequest request) {
    auto answer = std::make_shared<std::promise<FsError>>();
    request.ticket = ticket_ = locks_->NewTicket();
    locks_->Lock(request,
                 [answer](const absl::Status& status) { answer->set_value(FsErrorOf(status)); });
    return answer->get_future();
  }
  uint64_t ticket() const { return ticket_; }  // the last Wait()'s

 private:
  const Ref<Volume> volume_;
  uint16_t writer_ = 0;
  uint64_t ticket_ = 0;
  std::optional<FileLocks> locks_;
};

class FileLocksTest : public ::testing::Test {
 protected:
  bool AwaitCounts(uint64_t held, uint64_t waiting) {
    return Eventually([&] {
      const auto counts = world_.volume()->Locks();
      return counts.ok() && counts->held == held && counts->waiting == waiting;
    });
  }
  FileSystemWorld world_;
};

TEST_F(FileLocksTest, WhoWaitsIsToldWhenTheLockIsThere) {
  LockEnd one(world_, 1), two(world_, 2);
  EXPECT_EQ(one.Try(WantLock(5)), FsError::kNone);
  EXPECT_EQ(two.Try(WantLock(5)), FsError::kWouldBlock);
  auto first = two.Wait(WantLock(5, false)), second = two.Wait(WantLock(6, false));
  EXPECT_TRUE(AwaitCounts(1, 2));
  EXPECT_TRUE(one.locks().Unlock(WantLock(5)).ok());
  EXPECT_EQ(first.get(), FsError::kNone);
  EXPECT_EQ(second.get(), FsError::kNone);
  const auto excluding = one.locks().Excluding(WantLock(5));
  ASSERT_TRUE(excluding.ok() && excluding->has_value());
  EXPECT_EQ((*excluding)->pid, 0u);
  EXPECT_EQ((*two.locks().Excluding(WantLock(7)))->pid, 4711u);
}

TEST_F(FileLocksTest, WhereTheNewsAreLostTheWaiterAsks) {
  LockEnd one(world_, 1), deaf(world_, 2, false);
  EXPECT_EQ(one.Try(WantLock(5)), FsError::kNone);
  auto waits = deaf.Wait(WantLock(5));
  EXPECT_TRUE(AwaitCounts(1, 1));
  EXPECT_TRUE(one.locks().Unlock(WantLock(5)).ok());
  EXPECT_EQ(waits.get(), FsError::kNone);
}

TEST_F(FileLocksTest, ACancelledRequestWaitsNoMoreAndOneThatWasGrantedIsHeld) {
  LockEnd one(world_, 1), two(world_, 2);
  EXPECT_EQ(one.Try(WantLock(5)), FsError::kNone);
  auto waits = two.Wait(WantLock(5));
  two.locks().Cancel(two.ticket());
  EXPECT_EQ(waits.get(), FsError::kInterrupted);
  EXPECT_TRUE(AwaitCounts(1, 0));
  two.locks().Cancel(two.ticket());  // again: nothing
  // Before it is asked for.
  LockRequest request = WantLock(5);
  request.ticket = two.locks().NewTicket();
  two.locks().Cancel(request.ticket);
  std::promise<FsError> answer;
  two.locks().Lock(request,
                   [&](const absl::Status& status) { answer.set_value(FsErrorOf(status)); });
  EXPECT_EQ(answer.get_future().get(), FsError::kInterrupted);
  EXPECT_TRUE(one.locks().UnlockAll(77, LockKind::kRecord, 5).ok());
  auto granted = two.Wait(WantLock(5));
  EXPECT_EQ(granted.get(), FsError::kNone);
  two.locks().Cancel(two.ticket());
  EXPECT_TRUE(AwaitCounts(1, 0));
}

TEST_F(FileLocksTest, AClientThatLeavesLetsGo) {
  LockEnd one(world_, 1), two(world_, 2);
  EXPECT_EQ(one.Try(WantLock(5)), FsError::kNone);
  auto waits = two.Wait(WantLock(5));
  EXPECT_TRUE(AwaitCounts(1, 1));
  one.Leave();
  EXPECT_EQ(waits.get(), FsError::kNone);
}

TEST_F(FileLocksTest, WaitsEndWithTheirClient) {
  LockEnd one(world_, 1);
  EXPECT_EQ(one.Try(WantLock(5)), FsError::kNone);
  std::future<FsError> waits;
  {
    LockEnd two(world_, 2);
    waits = two.Wait(WantLock(5));
    EXPECT_TRUE(AwaitCounts(1, 1));
  }
  EXPECT_EQ(waits.get(), FsError::kInputOutput);
  EXPECT_TRUE(AwaitCounts(1, 0));
}

TEST_F(FileLocksTest, NobodyAsksTheVolumeToLetGoWhatWasNeverLocked) {
  LockEnd one(world_, 1);
  one.volume().Leave(one.writer()).IgnoreError();
  EXPECT_TRUE(one.locks().UnlockAll(77, LockKind::kRecord, 5).ok()) << "it would be refused";
  EXPECT_EQ(one.Try(WantLock(5)), FsError::kInputOutput);
  EXPECT_FALSE(one.locks().UnlockAll(77, LockKind::kRecord, 5).ok());
}

TEST(SilentClientTest, LosesItsLocksWithItsLease) {
  FileSystemWorld world(2, nullptr, nullptr, absl::Seconds(1));
  const Ref<Volume>& volume = world.volume();
  const auto silent = volume->Join("silent", Ref<ClientEnd>());
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_EQ(volume->Lock(silent->writer, WantLock(5)).value_or(LockState::kHeld),
            LockState::kGranted);
  // Where this process itself is held up, the other client is new as well.
  uint16_t other = 0;
  EXPECT_TRUE(Eventually([&] {
    if (other == 0 || !volume->Renew(other).ok())
      other = volume->Join("other", Ref<ClientEnd>())->writer;
    const auto state = volume->Lock(other, WantLock(5));
    return state.ok() && *state == LockState::kGranted;
  }));
  EXPECT_TRUE(IsNoClient(volume->Lock(silent->writer, WantLock(6)).status()));
}

}  // namespace
}  // namespace abacus::objfs
