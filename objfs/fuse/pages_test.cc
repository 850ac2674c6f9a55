// What the kernel keeps of files goes when the file system says so, and nobody finds it meanwhile.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "objfs/fuse/testing/mock_mount.h"
#include "runtime/base/block.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::_;
using testing::Return;
using testing::SaveArg;

// A file whose bytes change, and never its attributes: the kernel cannot see it by itself.
class PagesTest : public MockMountTest {
 protected:
  static constexpr uint64_t kPages = 64, kPageBytes = 4096;
  static constexpr uint64_t kKeeper = 3;

  void SetUp() override {
    MockMountTest::SetUp();
    if (IsSkipped()) return;
    Add(kRoot, "file", MakeNode(kFile, S_IFREG | 0644, kPages * kPageBytes));
    ON_CALL(files_, Read(_, _, _))
        .WillByDefault([this](FileHandle, uint64_t offset, uint64_t bytes) {
          const char content = content_;
          if (offset == 0 && holds_first_page_) {
            holding_ = true;
            go_on_.wait();
          }
          return Block::CopyOf(std::string(bytes, content));
        });
    ON_CALL(files_, IsTold(kFile)).WillByDefault([this](ObjectId) { return is_told_.load(); });
    EXPECT_CALL(files_, AddKeeper(_))
        .WillOnce(testing::DoAll(SaveArg<0>(&forget_), Return(kKeeper)));
    EXPECT_CALL(files_, RemoveKeeper(kKeeper));
    Begin();
    fd_ = open(Path("file").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd_, 0);
    posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);  // each page is asked for by itself
  }
  void TearDown() override {
    if (fd_ >= 0) close(fd_);
  }
  char ByteOf(uint64_t page) const {
    char byte = '?';
    EXPECT_EQ(pread(fd_, &byte, 1, static_cast<off_t>(page * kPageBytes)), 1);
    return byte;
  }

  std::atomic<char> content_{'a'};
  std::atomic<bool> is_told_{true};
  std::atomic<bool> holds_first_page_{false}, holding_{false};
  std::promise<void> let_go_;
  std::shared_future<void> go_on_ = let_go_.get_future().share();
  FileSystem::Forget forget_;
  int fd_ = -1;
};

TEST_F(PagesTest, GoWhenTheyAreToBeForgotten) {
  ASSERT_EQ(ByteOf(5), 'a');
  content_ = 'b';
  ASSERT_EQ(ByteOf(5), 'a') << "the kernel keeps what it has read";
  std::promise<void> done;
  forget_(kFile, [&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_EQ(ByteOf(5), 'b');
}

TEST_F(PagesTest, WhoBeginsToReadMeanwhileDoesNotFindThem) {
  ASSERT_EQ(ByteOf(40), 'a');
  content_ = 'b';
  holds_first_page_ = true;
  std::thread first([&] { EXPECT_EQ(ByteOf(0), 'b'); });
  ASSERT_TRUE(runtime::testing::Eventually([&] { return holding_.load(); }));
  // The kernel begins at the page that is being read, and waits for it.
  std::atomic<bool> done{false};
  forget_(kFile, [&] { done = true; });
  auto second = std::async(std::launch::async, [&] { return ByteOf(40); });
  // Requests of others are served.
  struct stat seen = {};
  EXPECT_EQ(stat(Path("directory").c_str(), &seen), 0);
  EXPECT_FALSE(done);
  let_go_.set_value();
  first.join();
  EXPECT_EQ(second.get(), 'b');
  ASSERT_TRUE(runtime::testing::Eventually([&] { return done.load(); }));
}

TEST_F(PagesTest, WhatNobodyTellsOfIsReadAnewByWhoLooksNext) {
  is_told_ = false;
  ASSERT_EQ(ByteOf(5), 'a');
  content_ = 'b';
  EXPECT_EQ(ByteOf(5), 'b');
  // Of what is read from now on somebody tells.
  is_told_ = true;
  content_ = 'c';
  EXPECT_EQ(ByteOf(5), 'c') << "it was read before";
  content_ = 'd';
  EXPECT_EQ(ByteOf(5), 'c') << "the kernel keeps what it has read";
  const int writer = open(Path("file").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  ASSERT_EQ(ByteOf(5), 'd') << "who opens it reads it anew";
  is_told_ = false;
  EXPECT_CALL(files_, Write(_, 5 * kPageBytes, _)).WillOnce(Return(absl::OkStatus()));
  const std::string page(kPageBytes, 'e');
  EXPECT_EQ(pwrite(writer, page.data(), kPageBytes, 5 * kPageBytes), kPageBytes);
  content_ = 'f';
  EXPECT_EQ(ByteOf(5), 'f') << "so does who wrote it untold";
  close(writer);
}

TEST_F(PagesTest, AWriteBesideWhichThePageWasReadIsSeenWhenItReturns) {
  const int writer = open(Path("file").c_str(), O_RDWR | O_CLOEXEC);  // it drops all pages
  ASSERT_GE(writer, 0);
  ASSERT_EQ(ByteOf(5), 'a');
  EXPECT_CALL(files_, Write(_, 5 * kPageBytes, _))
      .WillOnce([&](FileHandle, uint64_t, const Block&) {
        // The kernel has what is written in its page. It drops that, and reads the bytes of before.
        std::promise<void> dropped;
        forget_(kFile, [&] { dropped.set_value(); });
        dropped.get_future().wait();
        EXPECT_EQ(ByteOf(5), 'a');
        content_ = 'b';
        return absl::OkStatus();
      });
  const std::string page(kPageBytes, 'b');
  EXPECT_EQ(pwrite(writer, page.data(), kPageBytes, 5 * kPageBytes), kPageBytes);
  EXPECT_EQ(ByteOf(5), 'b');
  close(writer);
}

TEST_F(PagesTest, WhatIsToBeForgottenByAMountThatEndsIsForgotten) {
  ASSERT_EQ(ByteOf(40), 'a');
  std::promise<void> done;
  std::thread stopper([&] { EXPECT_TRUE(mounted_->Stop().ok()); });
  forget_(kFile, [&] { done.set_value(); });
  done.get_future().wait();
  stopper.join();
}

}  // namespace
}  // namespace abacus::objfs
