// Random work on one file of a mount against a plain model, in the manner of fsx: reads, writes,
// truncations, holes, maps and re-openings, while the layers below are moved between the nodes.

#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "objfs/fuse/testing/real_mount.h"

namespace abacus::objfs {
namespace {

using testing::Fd;
using testing::RealMountTest;

constexpr uint64_t kSizeMax = 256 << 10;

class ExerciserTest : public RealMountTest {
 protected:
  void TearDown() override { EndMoving(); }

  // Moves cache and directory objects to and fro until it is ended.
  void BeginMoving() {
    mover_ = std::thread([this] {
      std::mt19937_64 random(5);
      while (!stop_) {
        for (const size_t at : {size_t{0}, size_t{1}}) {
          for (const auto& object : world_.cluster()[at].binding().Objects(100)) {
            const bool movable = !object.anchored && object.hosted && !object.moving;
            if (stop_ || !movable || random() % 2 == 0) continue;
            const auto moved = world_.cluster().Move(object.rid, at, 1 - at);
            if (moved.ok() && moved->status.ok()) ++moves_;
          }
        }
      }
    });
  }
  void EndMoving() {
    stop_ = true;
    if (mover_.joinable()) mover_.join();
  }

  void Exercise(uint64_t seed, int steps) {
    random_.seed(seed);
    Reopen();
    for (int i = 0; i < steps; ++i) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", step ", i, ", size ", model_.size()));
      ASSERT_NO_FATAL_FAILURE(Step());
    }
    ASSERT_NO_FATAL_FAILURE(Read(0, kSizeMax));
  }
  uint64_t moves() const { return moves_; }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  void Reopen() {
    fd_.emplace(At("exercised"), O_RDWR | O_CREAT);
    ASSERT_EQ(fd_->error(), 0);
  }
  std::string Text(uint64_t bytes) {
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>('a' + random_() % 26);
    return text;
  }
  void ModelWrite(uint64_t offset, const std::string& text) {
    model_.resize(std::max<uint64_t>(model_.size(), offset + text.size()));
    model_.replace(offset, text.size(), text);
  }

  void Step() {
    const uint64_t offset = Draw(kSizeMax), bytes = 1 + Draw(std::min<uint64_t>(20000, kSizeMax));
    switch (Draw(10)) {
      case 0:
      case 1:
        return Write(offset, Text(std::min(bytes, kSizeMax - offset)));
      case 2:
        return Truncate(offset);
      case 3:
        return Punch(offset, bytes);
      case 4:
        return MapRead(offset, bytes);
      case 5:
        return MapWrite(offset, bytes);
      case 6: {
        ASSERT_EQ(Draw(2) == 0 ? fsync(*fd_) : fdatasync(*fd_), 0);
        struct stat seen = {};
        ASSERT_EQ(fstat(*fd_, &seen), 0);
        ASSERT_EQ(static_cast<uint64_t>(seen.st_size), model_.size());
        return;
      }
      case 7:
        ASSERT_EQ(fd_->Close(), 0);
        return Reopen();
      default:
        return Read(offset, bytes);
    }
  }
  void Write(uint64_t offset, const std::string& text) {
    ASSERT_EQ(pwrite(*fd_, text.data(), text.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(text.size()));
    ModelWrite(offset, text);
  }
  void Read(uint64_t offset, uint64_t bytes) {
    std::string read(bytes, '?');
    const ssize_t got = pread(*fd_, read.data(), bytes, static_cast<off_t>(offset));
    ASSERT_GE(got, 0);
    read.resize(static_cast<size_t>(got));
    ExpectModel(offset, bytes, read);
  }
  void ExpectModel(uint64_t offset, uint64_t bytes, const std::string& seen) {
    const std::string expected = offset < model_.size() ? model_.substr(offset, bytes) : "";
    ASSERT_EQ(seen.size(), expected.size());
    const auto [a, b] = std::mismatch(seen.begin(), seen.end(), expected.begin());
    ASSERT_TRUE(a == seen.end()) << "byte " << offset + static_cast<size_t>(a - seen.begin())
                                 << " is " << int{*a} << " instead of " << int{*b};
  }
  void Truncate(uint64_t size) {
    ASSERT_EQ(ftruncate(*fd_, static_cast<off_t>(size)), 0);
    model_.resize(size);
  }
  void Punch(uint64_t offset, uint64_t bytes) {
    ASSERT_EQ(fallocate(*fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(offset), static_cast<off_t>(bytes)),
              0);
    for (uint64_t at = offset; at < std::min<uint64_t>(model_.size(), offset + bytes); ++at) {
      model_[at] = '\0';
    }
  }
  // Maps whole pages around [offset, offset + bytes), which are in the file, and returns what
  // `body` does of them, 0 to 99; at 100 begins what went wrong beside it. In a process of its own:
  // while a page fault waits for the mount nobody else of its process may change mappings or begin
  // one, as the threads that serve the mount may have to.
  template <typename Body>
  int WithMap(uint64_t offset, uint64_t bytes, Body body) {
    const uint64_t from = offset / 4096 * 4096, length = offset + bytes - from;
    const pid_t child = fork();
    if (child == 0) {
      void* map =
          mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, *fd_, static_cast<off_t>(from));
      if (map == MAP_FAILED) _exit(100);
      const int result = body(static_cast<char*>(map) + (offset - from));
      if (msync(map, length, MS_SYNC) != 0) _exit(101);
      _exit(munmap(map, length) == 0 ? result : 102);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void MapRead(uint64_t offset, uint64_t bytes) {
    const std::string expected = offset < model_.size() ? model_.substr(offset, bytes) : "";
    if (expected.empty()) return;
    ASSERT_EQ(WithMap(offset, expected.size(),
                      [&](const char* at) {
                        return std::memcmp(at, expected.data(), expected.size()) == 0 ? 0 : 1;
                      }),
              0)
        << "mapped bytes at " << offset << ", so many: " << expected.size();
  }
  void MapWrite(uint64_t offset, uint64_t bytes) {
    if (offset >= model_.size()) return;
    const std::string text = Text(std::min<uint64_t>(bytes, model_.size() - offset));
    ASSERT_EQ(WithMap(offset, text.size(),
                      [&](char* at) {
                        std::memcpy(at, text.data(), text.size());
                        return 0;
                      }),
              0);
    ModelWrite(offset, text);
  }

  std::mt19937_64 random_;
  std::string model_;
  std::optional<Fd> fd_;
  std::thread mover_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> moves_{0};
};

constexpr const char* kStacks[] = {"isolation/storage", "cache/isolation/storage",
                                   "cache(block=4 KiB)/cache(block=16 KiB)/isolation/storage",
                                   "exclusive isolation/storage"};
std::string NameOf(const ::testing::TestParamInfo<const char*>& info) {
  constexpr const char* kNames[] = {"Plain", "Cached", "CachedTwice", "Exclusive"};
  return kNames[info.index];
}
INSTANTIATE_TEST_SUITE_P(Stacks, ExerciserTest, ::testing::ValuesIn(kStacks), NameOf);

int Steps() {
  if (runtime::testing::LongRun()) return 1'000'000;
  return runtime::testing::kSanitized ? 300 : 1500;
}

TEST_P(ExerciserTest, AFileIsItsModel) { Exercise(runtime::testing::Seed(41), Steps()); }

TEST_P(ExerciserTest, AFileIsItsModelWhileItsLayersAreMoved) {
  BeginMoving();
  Exercise(runtime::testing::Seed(42), Steps());
  EndMoving();
  // A plain file has no layer that could move.
  if (std::string(GetParam()).find("cache") != std::string::npos) {
    EXPECT_GT(moves(), 0u);
  }
}

}  // namespace
}  // namespace abacus::objfs
