#include "objfs/replica/replica_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace abacus::objfs {
namespace {

ReplicaOperation WriteOf(uint64_t bytes) {
  ReplicaOperation operation{.kind = ReplicaOperation::Kind::kWrite, .version = 1, .parts = {}};
  operation.parts.push_back({.id = 1, .writes = {}, .blob = std::nullopt});
  operation.parts.front().writes.push_back({0, runtime::Block::CopyOf(std::string(bytes, 'x'))});
  return operation;
}

const ObjectId kOne = 1, kTwo = 2;

TEST(ReplicaStreamTest, FlushesThatCoverTheSameGoTogether) {
  ReplicaStream stream({});
  stream.Open();
  stream.Put(WriteOf(10));
  const auto first = stream.Ask(ReplicaFlush::kThese, std::span(&kOne, 1));
  const auto second = stream.Ask(ReplicaFlush::kThese, std::span(&kTwo, 1));
  const auto taken = stream.Take();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->batch.first, 1u);
  EXPECT_EQ(taken->batch.operations.size(), 1u);
  EXPECT_EQ(taken->batch.flush, ReplicaFlush::kThese);
  EXPECT_EQ(taken->batch.ids, (std::vector<ObjectId>{kOne, kTwo}));
  // One that comes while it is under way goes with the next.
  const auto third = stream.Ask(ReplicaFlush::kAll, {});
  stream.Answered(*taken, absl::OkStatus());
  EXPECT_TRUE(stream.Await(first).ok());
  EXPECT_TRUE(stream.Await(second).ok());
  EXPECT_FALSE(third->is_done);
  const auto next = stream.Take();
  EXPECT_EQ(next->batch.first, 2u);
  EXPECT_TRUE(next->batch.operations.empty());
  EXPECT_EQ(next->batch.flush, ReplicaFlush::kAll);
  stream.Answered(*next, absl::DataLossError("no"));
  EXPECT_TRUE(absl::IsDataLoss(stream.Await(third)));
}

TEST(ReplicaStreamTest, AFlushGoesWithTheLastOperationThatItCoversAndWaitsForNoLaterOne) {
  ReplicaStream stream({.bytes_max = 1 << 20, .batch_bytes_max = 1000, .batch_bytes_min = 1});
  stream.Open();
  stream.Put(WriteOf(2000));
  stream.Put(WriteOf(2000));
  const auto covers_two = stream.Ask(ReplicaFlush::kAll, {});
  stream.Put(WriteOf(2000));
  const auto covers_three = stream.Ask(ReplicaFlush::kAll, {});
  EXPECT_NE(covers_two, covers_three);
  auto taken = stream.Take();
  EXPECT_TRUE(taken->flushes.empty());
  stream.Answered(*taken, absl::OkStatus());
  taken = stream.Take();
  EXPECT_EQ(taken->batch.first, 2u);
  ASSERT_EQ(taken->flushes.size(), 1u);
  EXPECT_EQ(taken->flushes.front(), covers_two);
  stream.Answered(*taken, absl::OkStatus());
  EXPECT_EQ(stream.put(), 3u);
  EXPECT_EQ(stream.answered(), 2u);
}

TEST(ReplicaStreamTest, IsBounded) {
  ReplicaStream stream({.bytes_max = 10'000, .batch_bytes_max = 1 << 20, .batch_bytes_min = 1});
  stream.Open();
  stream.Room();
  stream.Put(WriteOf(20'000));
  std::atomic<bool> has_room{false};
  std::thread waiter([&] {
    stream.Room();
    has_room = true;
  });
  const auto taken = stream.Take();
  EXPECT_FALSE(has_room) << "what is under way counts";
  stream.Answered(*taken, absl::OkStatus());
  waiter.join();
}

TEST(ReplicaStreamTest, ClosedItFailsAllAndTakesNothing) {
  ReplicaStream stream({.bytes_max = 10});
  EXPECT_TRUE(absl::IsUnavailable(stream.Await(stream.Ask(ReplicaFlush::kAll, {}))));
  stream.Open();
  stream.Put(WriteOf(20'000));
  const auto flush = stream.Ask(ReplicaFlush::kAll, {});
  std::thread waiter([&] { stream.Room(); });
  stream.Close(absl::AbortedError("cut"));
  waiter.join();
  EXPECT_TRUE(absl::IsAborted(stream.Await(flush)));
  EXPECT_FALSE(stream.Take().has_value());
  stream.Put(WriteOf(1));
  stream.Open();
  EXPECT_EQ(stream.put(), 0u);
  stream.Put(WriteOf(1));
  EXPECT_EQ(stream.Take()->batch.first, 1u);
}

}  // namespace
}  // namespace abacus::objfs
