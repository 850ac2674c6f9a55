#include "runtime/transport/frame.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

std::string Encoded(const Frame& frame, size_t parts_max = 64, uint64_t bytes_max = UINT64_MAX) {
  FrameGather gather(frame);
  EXPECT_EQ(gather.left_bytes(), FrameWireBytes(frame));
  std::vector<std::string_view> parts(parts_max);
  std::string wire;
  while (gather.left_bytes() > 0) {
    size_t bytes = 0;
    const size_t count = gather.Next(parts, bytes_max);
    EXPECT_GT(count, 0u);
    for (size_t i = 0; i < count; ++i) {
      wire += parts[i];
      bytes += parts[i].size();
    }
    EXPECT_LE(bytes, bytes_max);
    gather.Advance(bytes);
  }
  return wire;
}

Block Bytes(size_t size, char first) {
  Block block = Block::Allocate(size);
  for (size_t i = 0; i < size; ++i) block.mutable_data()[i] = static_cast<char>(first + i % 61);
  return block;
}

Frame Sample() {
  return {
      .type = 7,
      .payload = {.inline_bytes = "some arguments",
                  .blocks = {Bytes(3000, 'a'), Bytes(0, 'b'), Bytes(1, 'c'), Bytes(200'000, 'd')}}};
}

void ExpectSame(const Frame& a, const Frame& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.payload.inline_bytes, b.payload.inline_bytes);
  ASSERT_EQ(a.payload.blocks.size(), b.payload.blocks.size());
  for (size_t i = 0; i < a.payload.blocks.size(); ++i) {
    EXPECT_TRUE(a.payload.blocks[i] == b.payload.blocks[i]) << "block " << i;
  }
}

// Feeds pieces of `piece` bytes, into the targets where there are any and `direct` says so.
absl::Status Decode(std::string_view wire, size_t piece, bool direct, FrameDecoder& decoder) {
  while (!wire.empty() && !decoder.complete()) {
    std::array<std::span<char>, 3> targets;
    const size_t count = direct ? decoder.Targets(targets) : 0;
    if (count > 0) {
      size_t filled = 0;
      for (size_t i = 0; i < count; ++i) {
        const size_t bytes = std::min({targets[i].size(), wire.size(), piece - filled});
        std::memcpy(targets[i].data(), wire.data(), bytes);
        wire.remove_prefix(bytes);
        filled += bytes;
        if (bytes < targets[i].size()) break;
      }
      decoder.Advance(filled);
      continue;
    }
    const auto taken = decoder.Feed(wire.substr(0, piece));
    if (!taken.ok()) return taken.status();
    EXPECT_GT(*taken, 0u);
    wire.remove_prefix(*taken);
  }
  return absl::OkStatus();
}

absl::Status DecodeError(std::string_view wire, const FrameLimits& limits = {}) {
  FrameDecoder decoder(limits);
  return Decode(wire, wire.size(), false, decoder);
}

template <typename Number>
std::string Patched(std::string wire, size_t at, Number value) {
  return wire.replace(at, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
}

// With a header CRC that fits again.
template <typename Number>
std::string Forged(std::string wire, size_t at, Number value) {
  wire = Patched(std::move(wire), at, value);
  return Patched(wire, 28, Crc32c(std::string_view(wire).substr(0, 28)));
}

TEST(Crc32cTest, MatchesTheKnownValueInOnePieceAndInTwo) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), 0xe3069283u);
}

TEST(FrameTest, HeaderLiesOnTheWireAsDocumented) {
  const std::string wire = Encoded({.type = 0x0102, .payload = {.inline_bytes = "xyz"}});
  ASSERT_EQ(wire.size(), kFrameHeaderBytes + 3);
  EXPECT_EQ(wire.substr(0, 4), "ABCF");
  EXPECT_EQ(wire.substr(4, 4), std::string("\x02\x00\x02\x01", 4));
  EXPECT_EQ(wire.substr(8, 4), std::string("\x03\x00\x00\x00", 4));
  EXPECT_EQ(wire.substr(12, 12), std::string(12, '\0'));
  EXPECT_EQ(wire.substr(32), "xyz");
}

TEST(FrameTest, DecodesHoweverTheStreamIsCut) {
  const Frame frame = Sample();
  const std::string wire = Encoded(frame);
  for (const bool direct : {false, true}) {
    for (const size_t piece : {1ul, 2ul, 7ul, 31ul, 33ul, 4096ul, 100'000ul, wire.size()}) {
      FrameDecoder decoder(FrameLimits{});
      ASSERT_TRUE(Decode(wire, piece, direct, decoder).ok()) << piece;
      ASSERT_TRUE(decoder.complete()) << piece;
      ExpectSame(decoder.Take(), frame);
      EXPECT_TRUE(decoder.between_frames());
    }
  }
}

TEST(FrameTest, GatherGivesTheSameBytesHoweverItIsWritten) {
  const Frame frame = Sample();
  const std::string wire = Encoded(frame);
  EXPECT_EQ(wire.size(), FrameWireBytes(frame));
  EXPECT_EQ(Encoded(frame, 1, 1000), wire);
  EXPECT_EQ(Encoded(frame, 2, 7), wire);
  EXPECT_EQ(Encoded(frame, 3), wire);
}

TEST(FrameTest, GatherPointsIntoBlocksAndCopiesNone) {
  const Frame frame = Sample();
  FrameGather gather(frame);
  std::array<std::string_view, 8> parts;
  const size_t count = gather.Next(parts, UINT64_MAX);
  EXPECT_EQ(parts[count - 1].data(), frame.payload.blocks[3].data());
}

TEST(FrameTest, FeedStopsAtTheEndOfAFrameAndTakesTheNext) {
  const Frame frame = Sample();
  const std::string one = Encoded(frame);
  const std::string wire = one + Encoded({.type = 9}) + one;
  FrameDecoder decoder(FrameLimits{});
  std::string_view left = wire;
  for (const size_t bytes : {one.size(), kFrameHeaderBytes, one.size()}) {
    const auto taken = decoder.Feed(left);
    ASSERT_TRUE(taken.ok());
    EXPECT_EQ(*taken, bytes);
    ASSERT_TRUE(decoder.complete());
    ExpectSame(decoder.Take(), bytes == one.size() ? frame : Frame{.type = 9});
    left.remove_prefix(*taken);
  }
}

TEST(FrameTest, ManyBlocksAndLongInlineBytesSurvive) {
  Frame frame{.type = 1, .payload = {.inline_bytes = std::string(1 << 20, 'i')}};
  for (size_t i = 0; i < 300; ++i) frame.payload.blocks.push_back(Bytes(1024 + i, 'm'));
  FrameDecoder decoder(FrameLimits{});
  ASSERT_TRUE(Decode(Encoded(frame), 5000, true, decoder).ok());
  ASSERT_TRUE(decoder.complete());
  ExpectSame(decoder.Take(), frame);
}

TEST(FrameTest, TruncatedFrameIsNeverComplete) {
  const std::string wire = Encoded(Sample());
  for (size_t bytes = 0; bytes < wire.size(); bytes += 1 + bytes / 7) {
    FrameDecoder decoder(FrameLimits{});
    ASSERT_TRUE(Decode(wire.substr(0, bytes), wire.size(), false, decoder).ok());
    EXPECT_FALSE(decoder.complete()) << bytes;
    EXPECT_EQ(decoder.between_frames(), bytes == 0) << bytes;
  }
}

TEST(FrameTest, GarbageIsABadFrame) {
  EXPECT_EQ(KindOf(DecodeError("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")), ErrorKind::kBadFrame);
}

TEST(FrameTest, EachFlippedBitOfHeaderLengthsAndInlineBytesIsFound) {
  const std::string wire = Encoded(Sample());
  const size_t covered = kFrameHeaderBytes + 4 * sizeof(uint64_t) + 14;
  for (size_t bit = 0; bit < covered * 8; ++bit) {
    std::string bad = wire;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const absl::Status status = DecodeError(bad);
    const bool in_version = bit / 8 == 4 || bit / 8 == 5;
    EXPECT_EQ(KindOf(status), in_version ? ErrorKind::kVersionMismatch : ErrorKind::kBadFrame)
        << "bit " << bit << ": " << status.ToString();
  }
}

TEST(FrameTest, OtherVersionIsNamedOnBothSides) {
  const absl::Status status = DecodeError(Forged<uint16_t>(Encoded(Sample()), 4, 77));
  EXPECT_EQ(KindOf(status), ErrorKind::kVersionMismatch);
  EXPECT_NE(std::string(status.message()).find("77"), std::string::npos);
  EXPECT_NE(std::string(status.message()).find(std::to_string(kWireVersion)), std::string::npos);
}

TEST(FrameTest, FrameOfExactlyTheLimitPassesAndOneByteMoreDoesNot) {
  const Frame frame = Sample();
  const uint64_t bytes = FrameWireBytes(frame);
  EXPECT_TRUE(CheckFrame(frame, {.frame_bytes_max = bytes}).ok());
  EXPECT_TRUE(DecodeError(Encoded(frame), {.frame_bytes_max = bytes}).ok());
  EXPECT_EQ(KindOf(CheckFrame(frame, {.frame_bytes_max = bytes - 1})), ErrorKind::kBadFrame);
  EXPECT_EQ(KindOf(DecodeError(Encoded(frame), {.frame_bytes_max = bytes - 1})),
            ErrorKind::kBadFrame);
  EXPECT_TRUE(CheckFrame(frame, {.block_count_max = 4}).ok());
  EXPECT_EQ(KindOf(CheckFrame(frame, {.block_count_max = 3})), ErrorKind::kBadFrame);
  EXPECT_EQ(KindOf(DecodeError(Encoded(frame), {.block_count_max = 3})), ErrorKind::kBadFrame);
}

TEST(FrameTest, SizesThatOverflowAreRefused) {
  const std::string wire = Encoded(Sample());
  EXPECT_EQ(KindOf(DecodeError(Forged<uint64_t>(wire, 16, UINT64_MAX))), ErrorKind::kBadFrame);
  EXPECT_EQ(KindOf(DecodeError(Forged<uint64_t>(wire, 16, UINT64_MAX - 100),
                               {.frame_bytes_max = UINT64_MAX})),
            ErrorKind::kBadFrame);
  EXPECT_EQ(KindOf(DecodeError(Forged<uint32_t>(wire, 12, UINT32_MAX))), ErrorKind::kBadFrame);
  // Lengths whose sum wraps around to what the header says.
  std::string wraps = Patched<uint64_t>(wire, 32, UINT64_MAX);
  EXPECT_EQ(KindOf(DecodeError(wraps)), ErrorKind::kBadFrame);
}

TEST(FrameTest, LengthsThatDoNotAddUpAreRefused) {
  const std::string wire = Encoded(Sample());
  EXPECT_EQ(KindOf(DecodeError(Patched<uint64_t>(wire, 32, 2999))), ErrorKind::kBadFrame);
  EXPECT_EQ(KindOf(DecodeError(Patched<uint64_t>(wire, 32, 3001))), ErrorKind::kBadFrame);
  const std::string no_blocks = Encoded({.payload = {.inline_bytes = "x"}});
  EXPECT_EQ(KindOf(DecodeError(Forged<uint64_t>(no_blocks, 16, 5))), ErrorKind::kBadFrame);
}

TEST(FrameTest, AnnouncedGigabyteIsNotAllocatedBeforeItComes) {
  // As a peer sends it that has nothing: a header and lengths, all CRCs right.
  constexpr uint64_t kLie = uint64_t{1} << 30;
  std::string wire = Encoded({.payload = {.inline_bytes = "", .blocks = {Bytes(1024, 'l')}}});
  wire = Patched<uint64_t>(wire.substr(0, 40), 32, kLie);
  wire = Patched<uint64_t>(wire, 16, kLie);
  wire = Patched<uint32_t>(wire, 24, Crc32c(std::string_view(wire).substr(32)));
  wire = Forged<uint32_t>(wire, 12, 1);

  size_t allocated = 0;
  FrameDecoder decoder({.frame_bytes_max = 2 * kLie}, [&](size_t bytes, uint64_t of_frame) {
    EXPECT_EQ(of_frame, kLie);
    allocated += bytes;
    return Block::Allocate(bytes);
  });
  ASSERT_TRUE(Decode(wire, wire.size(), false, decoder).ok());
  EXPECT_LE(allocated, FrameDecoder::kUntrustedBytes);
  // And grows by what has come.
  const std::string piece(FrameDecoder::kUntrustedBytes + 1, 'x');
  ASSERT_TRUE(Decode(piece, piece.size(), true, decoder).ok());
  EXPECT_LE(allocated, (1 + FrameDecoder::kGrowth) * FrameDecoder::kUntrustedBytes);
}

TEST(FrameTest, BlockLargerThanTheFirstAllocationGrowsUndamaged) {
  const Frame frame{
      .payload = {.blocks = {Bytes(FrameDecoder::kUntrustedBytes * 2 + 5, 'g'), Bytes(2000, 'h')}}};
  for (const bool direct : {false, true}) {
    FrameDecoder decoder(FrameLimits{});
    ASSERT_TRUE(Decode(Encoded(frame), 1 << 20, direct, decoder).ok());
    ASSERT_TRUE(decoder.complete());
    ExpectSame(decoder.Take(), frame);
  }
}

}  // namespace
}  // namespace abacus::runtime
