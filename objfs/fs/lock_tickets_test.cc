#include "objfs/fs/lock_tickets.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace abacus::objfs {
namespace {

using AtShard = LockTickets::AtShard;

TEST(LockTicketsTest, WhatWaitsIsCancelledWhereItWaits) {
  LockTickets tickets;
  const uint64_t one = tickets.New(), two = tickets.New();
  EXPECT_NE(one, 0u);
  EXPECT_NE(one, two);
  tickets.Begin(one, {2, 7});
  tickets.Begin(two, {0, 7});
  EXPECT_EQ(tickets.Cancel(one), (AtShard{2, 7}));
  EXPECT_TRUE(tickets.IsCancelled(one));
  EXPECT_FALSE(tickets.IsCancelled(two));
  EXPECT_EQ(tickets.Cancel(one), (AtShard{2, 7})) << "again: to do it twice is nothing";
}

TEST(LockTicketsTest, WhoAsksHearsOfWhatWasCancelledBefore) {
  LockTickets tickets;
  const uint64_t ticket = tickets.New();
  EXPECT_EQ(tickets.Cancel(ticket), std::nullopt);
  tickets.Begin(ticket, {1, 7});
  EXPECT_TRUE(tickets.IsCancelled(ticket));
}

TEST(LockTicketsTest, WhatWasAnsweredIsNotCancelled) {
  LockTickets tickets;
  const uint64_t ticket = tickets.New();
  tickets.Begin(ticket, {1, 7});
  tickets.End(ticket);
  EXPECT_EQ(tickets.Cancel(ticket), std::nullopt);
  EXPECT_FALSE(tickets.IsCancelled(ticket));
  tickets.End(ticket);  // again: nothing
  EXPECT_NE(tickets.New(), ticket);
}

// Whichever comes first, one of the two threads cancels it at the shard.
TEST(LockTicketsTest, NoCancellingIsLostBetweenTwoThreads) {
  LockTickets tickets;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t ticket = tickets.New();
    std::atomic<int> cancelled{0};
    std::thread canceller([&] {
      if (tickets.Cancel(ticket).has_value()) ++cancelled;
    });
    tickets.Begin(ticket, {1, 7});
    if (tickets.IsCancelled(ticket)) ++cancelled;
    canceller.join();
    EXPECT_GE(cancelled.load(), 1) << i;
    tickets.End(ticket);
  }
}

}  // namespace
}  // namespace abacus::objfs
