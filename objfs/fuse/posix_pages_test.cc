// Two mounts of one volume, and several programs at each that read what is written at both: a read
// that begins after a write returned sees it.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "objfs/fuse/testing/real_mount.h"
#include "runtime/testing/cluster.h"

namespace abacus::objfs {
namespace {

using testing::Fd;

class PosixPagesTest : public testing::RealMountTest {
 protected:
  void SetUp() override {
    RealMountTest::SetUp();
    if (IsSkipped()) return;
    other_ = world_.Client(0, GetParam());
    ASSERT_NE(other_, nullptr);
    second_.emplace(*other_);
  }
  std::unique_ptr<FileSystem> other_;
  std::optional<Mounted> second_;
};

INSTANTIATE_TEST_SUITE_P(Stacks, PosixPagesTest,
                         ::testing::Values("cache(block=4 KiB)/isolation/storage",
                                           "isolation/storage"),
                         [](const auto& stack) { return stack.index == 0 ? "Cached" : "Plain"; });

TEST_P(PosixPagesTest, ReadsOfManyProgramsSeeWhatWasWrittenAtTheOtherMount) {
  constexpr size_t kPlaces = 2, kReadersOfEach = 3, kDigits = 16;
  constexpr off_t kOffsets[kPlaces] = {100, 40'000};
  const int writes = runtime::testing::LongRun() ? 3000 : runtime::testing::kSanitized ? 60 : 250;
  ASSERT_EQ(Put("file", std::string(64 << 10, '0')), 0);
  const std::string paths[kPlaces] = {At("file"), *second_ / "file"};
  std::array<std::atomic<int>, kPlaces> written{};
  std::atomic<int> writers{kPlaces}, reads{0};
  std::vector<std::thread> programs;
  for (size_t place = 0; place < kPlaces; ++place) {
    programs.emplace_back([&, place] {
      const Fd fd(paths[place], O_RDWR);
      for (int i = 1; i <= writes; ++i) {
        std::array<char, kDigits + 1> text = {};
        snprintf(text.data(), text.size(), "%016d", i);
        EXPECT_EQ(pwrite(fd, text.data(), kDigits, kOffsets[place]), ssize_t{kDigits});
        written[place] = i;
      }
      --writers;
    });
    for (size_t reader = 0; reader < kReadersOfEach; ++reader) {
      programs.emplace_back([&, place, reader] {
        const Fd fd(paths[place], O_RDONLY);
        for (size_t i = reader; writers > 0; ++i) {
          const size_t at = i % kPlaces;
          const int least = written[at];
          std::array<char, kDigits + 1> text = {};
          ASSERT_EQ(pread(fd, text.data(), kDigits, kOffsets[at]), ssize_t{kDigits});
          ASSERT_GE(std::atoi(text.data()), least)
              << "mount " << place << " reads what was written at " << at;
          ++reads;
        }
      });
    }
  }
  for (std::thread& program : programs) program.join();
  std::cout << kPlaces * static_cast<size_t>(writes) << " writes, " << reads << " reads\n";
  EXPECT_GT(reads, 0);
}

}  // namespace
}  // namespace abacus::objfs
