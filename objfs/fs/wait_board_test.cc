#include "objfs/fs/wait_board.h"

#include <atomic>
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

TEST(WaitBoardTest, AnAwaitedTimeIsARest) {
  WaitBoard board;
  const auto begun = steady_clock::now();
  EXPECT_TRUE(board.AwaitFor(std::chrono::milliseconds(20)));
  EXPECT_GE(steady_clock::now() - begun, std::chrono::milliseconds(20));
  board.Close();
  EXPECT_FALSE(board.AwaitFor(std::chrono::hours(1)));
}

TEST(WaitBoardTest, ErrandsAreNotAwaitedWhileACallWaitsAtAnotherBoardOfTheClient) {
  const auto waits = std::make_shared<ClientWaits>();
  WaitBoard one(waits), other(waits);
  std::atomic<bool> over{false};
  std::thread caller([&] {
    while (!over) other.Await(5, other.Seen(5));
  });
  one.AwaitErrands(WaitBoard::Begin(1));  // which nobody does
  over = true;
  other.Wake(5);
  caller.join();
}

TEST(WaitBoardTest, BoardsOfOneClientAreWokenAndClosedEachByItself) {
  const auto waits = std::make_shared<ClientWaits>();
  WaitBoard one(waits), other(waits);
  const uint64_t seen = other.Seen(5);
  one.Wake(5);
  EXPECT_EQ(other.Seen(5), seen);
  one.Close();
  EXPECT_FALSE(one.Rest(std::chrono::nanoseconds(0)));
  EXPECT_TRUE(other.Rest(std::chrono::nanoseconds(0)));
}

}  // namespace
}  // namespace abacus::objfs
