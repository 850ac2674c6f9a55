#include "runtime/resource/decision_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "runtime/resource/digest.h"

namespace abacus::runtime {
namespace {

constexpr NodeInstance kHome{9, 4};
constexpr Rid kOne{kHome, 1};
constexpr Rid kTwo{kHome, 2};
constexpr Rid kSharedObject{kHome, 7};

// One whose snapshot takes more than 10,000 bytes and whose explanation names it.
DecisionRecord Numbered(int number, const Rid& object = kSharedObject) {
  DecisionRecord record;
  record.at = absl::FromUnixSeconds(number);
  record.decision.explained = std::to_string(number);
  record.decision.stack.push_back({.id = ToObjectId(object)});
  record.snapshot.objects.push_back({.class_name = std::string(10'000, 's')});
  return record;
}

std::string Found(const DecisionMemory& memory, const Rid& rid) {
  std::string text;
  for (const DecisionRecord& record : memory.Find(rid, 1000)) {
    text += record.decision.explained + " ";
  }
  return text;
}

TEST(DecisionMemoryTest, OfAllConsolesTheOldestGoFirstWhereBytesAreShort) {
  // Room for three and a half.
  DecisionMemory memory({.bytes_max = BytesOf(Numbered(0)) * 7 / 2});
  memory.Add(kOne, Numbered(1));
  memory.Add(kTwo, Numbered(2));
  memory.Add(kOne, Numbered(3));
  EXPECT_EQ(Found(memory, kSharedObject), "3 2 1 ");
  EXPECT_EQ(memory.dropped(), 0u);
  memory.Add(kTwo, Numbered(4));
  EXPECT_EQ(Found(memory, kSharedObject), "4 3 2 ");
  memory.Add(kTwo, Numbered(5));
  EXPECT_EQ(Found(memory, kSharedObject), "5 4 3 ") << "the other console's goes next";
  EXPECT_EQ(memory.dropped(), 2u);
  EXPECT_EQ(Found(memory, kOne), "3 ");
  memory.SetBytesMax(BytesOf(Numbered(0)));
  EXPECT_EQ(Found(memory, kSharedObject), "5 ");
  EXPECT_EQ(memory.Newest(kOne), nullptr);
  memory.SetBytesMax(0);
  EXPECT_EQ(Found(memory, kSharedObject), "");
  EXPECT_EQ(memory.bytes(), 0u);
  memory.Add(kOne, Numbered(6));
  EXPECT_EQ(memory.bytes(), 0u) << "larger than all that may be kept";
  EXPECT_EQ(memory.dropped(), 6u);
}

TEST(DecisionMemoryTest, TheBytesAreThoseOfWhatIsKept) {
  DecisionMemory memory({.of_console_max = 3, .finished_max = 1, .of_finished_max = 2});
  const uint64_t one = BytesOf(Numbered(0));
  EXPECT_GT(one, 10'000u);
  for (int i = 1; i <= 5; ++i) memory.Add(kOne, Numbered(i));
  EXPECT_EQ(memory.bytes(), 3 * one) << "so many of a console";
  memory.Replace(kOne, Numbered(6));
  EXPECT_EQ(memory.bytes(), 3 * one);
  EXPECT_EQ(Found(memory, kOne), "6 4 3 ");
  memory.Finish(kOne);
  EXPECT_EQ(memory.bytes(), 2 * one);
  EXPECT_EQ(Found(memory, kOne), "6 4 ");
  memory.Add(kTwo, Numbered(7));
  memory.Finish(kTwo);
  EXPECT_EQ(memory.bytes(), one) << "so many that have ended";
  EXPECT_EQ(Found(memory, kSharedObject), "7 ");
  EXPECT_EQ(memory.dropped(), 0u) << "that is not the limit on bytes";
}

TEST(DecisionMemoryTest, AConsoleThatComesBackIsNoneThatHasEnded) {
  DecisionMemory memory({.finished_max = 1});
  memory.Add(kOne, Numbered(1));
  memory.Finish(kOne);
  memory.Add(kOne, Numbered(2));
  memory.Add(kTwo, Numbered(3));
  memory.Finish(kTwo);
  EXPECT_EQ(Found(memory, kSharedObject), "3 2 1 ");
}

TEST(DecisionMemoryTest, DecisionsAreFoundByConsoleAndByObject) {
  DecisionMemory memory({});
  const Rid other{kHome, 8};
  memory.Add(kOne, Numbered(1));
  memory.Add(kOne, Numbered(2, other));
  EXPECT_EQ(Found(memory, kOne), "2 1 ");
  EXPECT_EQ(Found(memory, other), "2 ");
  EXPECT_EQ(memory.Find(kOne, 1).size(), 1u);
}

}  // namespace
}  // namespace abacus::runtime
