#include "objfs/fs/wait_board.h"

#include <chrono>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

using std::chrono::steady_clock;

TEST(WaitBoardTest, ARestIsAsLongAsIsSaidWhoeverIsWoken) {
  WaitBoard board;
  board.Wake(1);
  const auto begun = steady_clock::now();
  EXPECT_TRUE(board.Rest(std::chrono::milliseconds(20)));
  EXPECT_GE(steady_clock::now() - begun, std::chrono::milliseconds(20));
  EXPECT_TRUE(board.Rest(std::chrono::nanoseconds(0)));
}

TEST(WaitBoardTest, ARestEndsWithTheBoard) {
  WaitBoard board;
  std::thread closer([&] { board.Close(); });
  EXPECT_FALSE(board.Rest(std::chrono::hours(1)));
  closer.join();
  EXPECT_FALSE(board.Rest(std::chrono::nanoseconds(0)));
}

}  // namespace
}  // namespace abacus::objfs
