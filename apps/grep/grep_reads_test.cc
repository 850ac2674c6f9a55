#include "apps/grep/grep_reads.h"

#include <gtest/gtest.h>

namespace abacus::apps {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kFull = 96 * 1024;

GrepReads WithLead(uint32_t lead_bytes) {
  GrepReads::Options options;
  options.lead_bytes = lead_bytes;
  return GrepReads(options);
}

TEST(GrepReads, FirstReadIsFullWhateverTheLead) {
  for (const uint32_t lead_bytes : {16u, 1136u, 4080u, 4096u}) {
    EXPECT_EQ(WithLead(lead_bytes).Next(0), kFull) << lead_bytes;
  }
}

TEST(GrepReads, NextIsFullAsLongAsTheKeptLineFitsTheLead) {
  GrepReads fits = WithLead(1136);
  fits.Next(0);
  EXPECT_EQ(fits.Next(1135), kFull);
  GrepReads does_not = WithLead(1136);
  does_not.Next(0);
  EXPECT_EQ(does_not.Next(1136), kFull - kPage);
  EXPECT_EQ(does_not.Next(0), kFull);
  EXPECT_EQ(does_not.Next(1136 + kPage), kFull - 2 * kPage);
}

TEST(GrepReads, BufferGrowsByHalfWhenTheKeptLineLeavesNoPage) {
  GrepReads reads = WithLead(4096);
  reads.Next(0);
  EXPECT_EQ(reads.Next(94208), kPage);
  EXPECT_EQ(reads.state().lead_bytes, 4096u);
  // 102408 bytes become 153612; in front of the read are a lead of 4080 and what is kept.
  EXPECT_EQ(reads.Next(98304), 49152u);
  EXPECT_EQ(reads.state().buffer_bytes, 153612u);
  EXPECT_EQ(reads.state().lead_bytes, 4080u);
}

TEST(GrepReads, BufferGrowsNoFurtherThanTheFileNeeds) {
  GrepReads::Options options;
  options.file_bytes = kFull + 20000;
  GrepReads reads(options);
  reads.Next(0);
  reads.Next(kFull);
  EXPECT_EQ(reads.state().buffer_bytes, 20000 + kFull + kPage + 8);
}

// grep reads over what it throws away unseen, which is a read with the same line kept.
TEST(GrepReads, NextIsTheSameAgainForTheSameLine) {
  GrepReads reads = WithLead(4096);
  reads.Next(0);
  for (const uint64_t kept : {0u, 5000u, 94208u, 98304u, 300000u}) {
    const uint64_t size = reads.Next(kept);
    const uint64_t offset = reads.state().file_offset;
    EXPECT_EQ(reads.Next(kept), size);
    EXPECT_EQ(reads.state().file_offset, offset + size);
  }
}

TEST(GrepReads, StateGoesOnWhereItWas) {
  GrepReads reads = WithLead(512);
  reads.Next(0);
  GrepReads copy(reads.state());
  for (const uint64_t kept : {100u, 600u, 95000u, 7u, 200000u}) {
    EXPECT_EQ(copy.Next(kept), reads.Next(kept));
  }
}

TEST(GrepReads, IsValidIsFalseForImpossibleStates) {
  GrepReads reads = WithLead(512);
  reads.Next(0);
  ASSERT_TRUE(GrepReads::IsValid(reads.state()));
  for (const auto spoil : {+[](GrepReads::State* s) { s->page_bytes = 0; },
                           +[](GrepReads::State* s) { s->page_bytes = 4095; },
                           +[](GrepReads::State* s) { s->page_bytes = 1u << 31; },
                           +[](GrepReads::State* s) { s->lead_bytes = 0; },
                           +[](GrepReads::State* s) { s->lead_bytes = 4097; },
                           +[](GrepReads::State* s) { s->buffer_bytes = 0; },
                           +[](GrepReads::State* s) { s->buffer_bytes = ~uint64_t{0}; },
                           +[](GrepReads::State* s) { s->fill_bytes = s->buffer_bytes + 1; },
                           +[](GrepReads::State* s) { s->read_bytes = s->buffer_bytes + 1; }}) {
    GrepReads::State state = reads.state();
    spoil(&state);
    EXPECT_FALSE(GrepReads::IsValid(state));
  }
}

}  // namespace
}  // namespace abacus::apps
