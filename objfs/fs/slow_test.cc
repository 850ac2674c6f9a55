// What programs see of a disk or of layers that take long: nothing but that it takes long. And of
// layers that fail: their errors.

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/file_system_world.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using runtime::MutexLock;
using testing::FileSystemWorld;

const Caller kPatient;
constexpr int64_t kLeaseNs = int64_t{30} * 1'000'000'000;

FileHandle MakeOpen(FileSystem& at, const std::string& name) {
  const auto made = at.Create(kPatient, at.root(), name, S_IFREG | 0644, O_RDWR, "");
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? made->handle : 0;
}
FileHandle Open(FileSystem& at, const std::string& name) {
  const auto node = at.Lookup(kPatient, at.root(), name);
  EXPECT_TRUE(node.ok()) << node.status();
  if (!node.ok()) return 0;
  const auto handle = at.Open(kPatient, node->id, O_RDWR);
  EXPECT_TRUE(handle.ok()) << handle.status();
  return handle.ok() ? *handle : 0;
}
std::string Read(FileSystem& at, FileHandle handle) {
  const auto read = at.Read(handle, 0, 1 << 20);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? std::string(read->view()) : "an error";
}

// A disk whose requests take as long as the test wants.
class SlowDiskTest : public ::testing::Test {
 protected:
  SlowDiskTest()
      : disk_(memory_, {.seek = absl::Milliseconds(1),
                        .flush = absl::Milliseconds(1),
                        .wait = [this](absl::Duration) { WaitAtTheDisk(); },
                        .fault = nullptr}),
        world_(3, &disk_, [this] {
          const auto now = std::chrono::steady_clock::now().time_since_epoch();
          return steady_ns_ + std::chrono::nanoseconds(now).count();
        }) {}
  ~SlowDiskTest() override { Stand(false); }

  void WaitAtTheDisk() {
    MutexLock lock(mutex_);
    ++waiting_;
    while (stands_) changed_.Wait(mutex_);
    --waiting_;
  }
  void Stand(bool stands) {
    MutexLock lock(mutex_);
    stands_ = stands;
    changed_.SignalAll();
  }
  bool IsWaitedFor() {
    MutexLock lock(mutex_);
    return waiting_ > 0;
  }

  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  bool stands_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> steady_ns_{0};  // by how much the clock of leases is ahead
  MemoryDisk memory_;
  ModelDisk disk_;
  FileSystemWorld world_;
};

TEST_F(SlowDiskTest, LeasesAreRenewedWhileTheDiskTakesLongerThanThem) {
  const auto a = world_.Client(1, "cache/isolation/storage"), b = world_.Client(2);
  const FileHandle at_a = MakeOpen(*a, "f"), at_b = Open(*b, "f");
  ASSERT_TRUE(a->Write(at_a, 0, Block::CopyOf("slow")).ok());
  Stand(true);
  auto synced = std::async(std::launch::async, [&] { return a->Sync(at_a); });
  auto written = std::async(std::launch::async, [&] {
    const absl::Status status = b->Write(at_b, 4, Block::CopyOf("er"));
    return status.ok() ? b->Sync(at_b) : status;
  });
  ASSERT_TRUE(runtime::testing::Eventually([&] { return IsWaitedFor(); }));
  for (int i = 0; i < 10; ++i) {
    steady_ns_ += kLeaseNs * 6 / 10;
    for (const uint16_t client : {1, 2}) {
      const absl::StatusOr<int64_t> renewed = world_.volume()->Renew(client);
      ASSERT_TRUE(renewed.ok()) << renewed.status();
    }
  }
  EXPECT_EQ(synced.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(written.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  Stand(false);
  EXPECT_EQ(synced.get(), absl::OkStatus());
  EXPECT_EQ(written.get(), absl::OkStatus());
  EXPECT_EQ(Read(*a, at_a), "slower");
  EXPECT_EQ(Read(*b, at_b), "slower");
  const auto clients = world_.volume()->Clients();
  ASSERT_TRUE(clients.ok()) << clients.status();
  EXPECT_EQ(clients->size(), 2u) << "nobody was given up";
  EXPECT_EQ(a->Sync(at_a), absl::OkStatus()) << "and nothing lost";
}

TEST(SlowLayersTest, ADelayAddsItsTimeAndNothingElse) {
  constexpr int kRounds = 20;
  constexpr absl::Duration kEach = absl::Milliseconds(2);
  FileSystemWorld world;
  const auto a = world.Client(1, "cache(block=512 B)/delay(each=2ms)/isolation/storage");
  const auto b = world.Client(2);
  const FileHandle at_a = MakeOpen(*a, "f"), at_b = Open(*b, "f");
  const absl::Time begun = absl::Now();
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const std::string first = absl::StrCat("first ", round + 100),
                      second = absl::StrCat("other ", round + 100);
    ASSERT_TRUE(a->Write(at_a, 0, Block::CopyOf(first)).ok());
    ASSERT_EQ(Read(*b, at_b), first);
    ASSERT_TRUE(b->Write(at_b, 0, Block::CopyOf(second)).ok());
    ASSERT_EQ(Read(*a, at_a), second);
  }
  // In each round a layer asks for a promise, writes back and reads, or more. Each file's stack is
  // that of who made it, so that it is the same for both.
  EXPECT_GE(absl::Now() - begun, kRounds * 2 * kEach);
  EXPECT_EQ(a->Sync(at_a), absl::OkStatus());
  EXPECT_EQ(a->Release(at_a), absl::OkStatus());
  EXPECT_EQ(b->Release(at_b), absl::OkStatus());
}

TEST(FailingLayersTest, TheErrorOfALayerIsThatOfTheCallAndNothingIsTorn) {
  FileSystemWorld world;
  const auto full = world.Client(1, "error(calls=write,code=no-space,after=3)/isolation/storage");
  const FileHandle file = MakeOpen(*full, "f");
  std::string expected;
  for (int i = 0; i < 6; ++i) {
    const std::string text(100, static_cast<char>('a' + i));
    const absl::Status written = full->Write(file, expected.size(), Block::CopyOf(text));
    EXPECT_EQ(FsErrorOf(written), i < 3 ? FsError::kNone : FsError::kNoSpace) << written;
    if (written.ok()) expected += text;
    EXPECT_EQ(Read(*full, file), expected);
  }
  const auto damaged =
      world.Client(2, "cache/error(calls=read,code=wrong-bytes)/isolation/storage");
  const FileHandle other = MakeOpen(*damaged, "g");
  ASSERT_TRUE(damaged->Write(other, 0, Block::CopyOf("bytes")).ok());
  EXPECT_EQ(damaged->Sync(other), absl::OkStatus());
  EXPECT_EQ(damaged->Release(other), absl::OkStatus());
  // Nothing of it is in the cache any more.
  const FileHandle again = Open(*damaged, "g");
  EXPECT_EQ(FsErrorOf(damaged->Read(again, 0, 100).status()), FsError::kInputOutput);
  EXPECT_EQ(Read(*full, file), expected) << "other files are as before";
}

// What a cache could not write back stays, and is told.
TEST(FailingLayersTest, WhatALayerRefusesForAWhileIsKeptAbove) {
  FileSystemWorld world;
  const auto a = world.Client(1, "cache/error(calls=write,code=no-space)/isolation/storage");
  const FileHandle file = MakeOpen(*a, "f");
  ASSERT_TRUE(a->Write(file, 0, Block::CopyOf("kept")).ok());
  EXPECT_EQ(FsErrorOf(a->Sync(file)), FsError::kNoSpace);
  EXPECT_EQ(Read(*a, file), "kept");
  EXPECT_EQ(FsErrorOf(a->Release(file)), FsError::kNoSpace);
}

}  // namespace
}  // namespace abacus::objfs
