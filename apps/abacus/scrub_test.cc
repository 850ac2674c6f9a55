#include "apps/abacus/scrub.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "apps/abacus/testing/command.h"

namespace abacus::apps {
namespace {

ScrubState Sample() {
  ScrubState state;
  state.born_ns = 17;
  state.since = absl::FromUnixSeconds(1'000'000'000);
  state.begun = absl::FromUnixSeconds(1'000'700'000);
  state.store = {.id = 12, .offset = 8192};
  state.store_done = true;
  state.next = 4711;
  state.totals = {.files = 3,
                  .stripes = 40,
                  .objects = 50,
                  .objects_failed = 6,
                  .objects_repaired = 9,
                  .blocks_repaired = 7,
                  .blocks_damaged = 8,
                  .copy_objects = 50,
                  .copy_missed = 11,
                  .copy_repaired = 15,
                  .copy_damaged = 16};
  state.last = {.files = 9,
                .stripes = 100,
                .failed = 1,
                .repaired = 2,
                .mismatched = 3,
                .damaged = 4,
                .partial = 5,
                .objects = 60,
                .objects_failed = 7,
                .objects_repaired = 10,
                .blocks_repaired = 8,
                .blocks_damaged = 9,
                .copy_objects = 61,
                .copy_missed = 12,
                .copy_repaired = 13,
                .copy_damaged = 14};
  state.every = absl::Hours(7 * 24);
  return state;
}

TEST(ScrubStateTest, IsReadAsItWasWritten) {
  ScrubState state = Sample();
  EXPECT_EQ(*ScrubState::Decode(state.Encode()), state);
  EXPECT_EQ(state.Due(), state.since + state.every) << "there was none yet";
  state.finished = state.begun;
  state.begun.reset();
  EXPECT_EQ(*ScrubState::Decode(state.Encode()), state);
  EXPECT_EQ(state.Due(), *state.finished + state.every);
}

TEST(ScrubStateTest, WhatIsCutOffLacksAKeyOrIsOfALaterVersionIsRefused) {
  const std::string text = Sample().Encode();
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(ScrubState::Decode(text.substr(0, size)).status())) << size;
  }
  for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 1)) {
    std::string other = text;
    other[at + 1] ^= 1;  // of a key or a value, or what is behind it
    const auto state = ScrubState::Decode(other);
    EXPECT_TRUE(!state.ok() || *state != Sample()) << other;
  }
  std::string later = text;
  later.replace(later.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_TRUE(absl::IsDataLoss(ScrubState::Decode(later).status()));
}

// What it had before names and inodes were scrubbed as well.
TEST(ScrubStateTest, WhatAnEarlierVersionWroteIsRead) {
  nlohmann::json json = nlohmann::json::parse(Sample().Encode());
  for (const char* key : {"store_id", "store_offset", "store_done"}) {
    ASSERT_EQ(json.erase(key), 1u) << key;
  }
  for (const char* totals : {"totals", "last"}) {
    for (const char* key :
         {"objects", "objects_failed", "objects_repaired", "blocks_repaired", "blocks_damaged",
          "copy_objects", "copy_missed", "copy_repaired", "copy_damaged"}) {
      ASSERT_EQ(json[totals].erase(key), 1u) << key;
    }
  }
  const auto state = ScrubState::Decode(json.dump());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->next, 4711u);
  EXPECT_EQ(state->store, objfs::StorePlace());
  EXPECT_FALSE(state->store_done) << "the scrub under way has not looked at them";
  EXPECT_EQ(state->totals, (ScrubTotals{.files = 3, .stripes = 40}));
  EXPECT_EQ(state->last.partial, 5u);
  EXPECT_EQ(state->last.objects, 0u);
  json["store_done"] = 1;
  EXPECT_TRUE(absl::IsDataLoss(ScrubState::Decode(json.dump()).status()));
}

TEST(ScrubTotalsTest, WhatCannotBeMadeRightIsALossAndWhatWasIsNone) {
  ScrubTotals totals{.files = 3,
                     .repaired = 2,
                     .mismatched = 1,
                     .objects = 9,
                     .objects_repaired = 5,
                     .blocks_repaired = 4};
  EXPECT_FALSE(totals.HasLoss());
  EXPECT_NE(StoreScrubText(totals).find("4 blocks put back from the copy"), std::string::npos);
  EXPECT_NE(StoreScrubText(totals).find("5 objects with damaged tables made whole"),
            std::string::npos);
  EXPECT_EQ(StoreScrubText(totals).find("log"), std::string::npos);
  EXPECT_EQ(StoreScrubText(totals).find("at the copy"), std::string::npos) << "it has none";
  totals.copy_objects = 7;
  totals.copy_missed = 2;
  totals.copy_repaired = 3;
  EXPECT_FALSE(totals.HasLoss());
  EXPECT_NE(StoreScrubText(totals).find("at the copy: 7 objects checked, 3 blocks put back"),
            std::string::npos)
      << StoreScrubText(totals);
  for (uint64_t ScrubTotals::*loss :
       {&ScrubTotals::blocks_damaged, &ScrubTotals::objects_failed, &ScrubTotals::damaged,
        &ScrubTotals::failed, &ScrubTotals::copy_damaged}) {
    ScrubTotals lost = totals;
    lost.*loss = 1;
    EXPECT_TRUE(lost.HasLoss());
  }
}

// Whatever has become of the file, it is refused or read, and what is read can be written.
TEST(ScrubStateTest, DamageIsRefusedOrRead) {
  const std::string text = Sample().Encode();
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string other = text;
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      other[random() % other.size()] = static_cast<char>(random());
    }
    const auto state = ScrubState::Decode(other);
    refused += state.ok() ? 0 : 1;
    if (state.ok()) {
      EXPECT_TRUE(ScrubState::Decode(state->Encode()).ok()) << other;
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST(ScrubStateTest, IsKeptInAFile) {
  const testing::Folder folder;
  const std::string path = folder.Path("state.json");
  EXPECT_FALSE(ScrubState::Load(path)->has_value());
  ASSERT_TRUE(Sample().Save(path).ok());
  EXPECT_EQ(*ScrubState::Load(path), Sample());
  folder.Write("state.json", "{}");
  const absl::Status damaged = ScrubState::Load(path).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged));
  EXPECT_NE(damaged.message().find(path), std::string::npos);
}

}  // namespace
}  // namespace abacus::apps
