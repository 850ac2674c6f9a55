#ifndef ABACUS_RUNTIME_TRANSPORT_FRAME_H_
#define ABACUS_RUNTIME_TRANSPORT_FRAME_H_

// How a frame lies on the wire. All numbers are little-endian.
//
//   byte  0  u32  magic, the letters "ABCF"
//         4  u16  wire version (kWireVersion); this and the magic stay where they are for ever
//         6  u16  type
//         8  u32  inline_bytes
//        12  u32  block_count
//        16  u64  block_bytes, the sum of the block lengths
//        24  u32  CRC-32C of the block lengths and the inline bytes
//        28  u32  CRC-32C of bytes 0 to 27
//        32       block lengths: block_count x u64
//                 inline bytes
//                 the blocks, one behind the other, without gaps
//
// The blocks have no CRC here: the socket's own checksum covers them, a checkpoint carries one of
// its own, and at 1 MiB a second pass over them costs as much as copying them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/block.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

inline constexpr uint32_t kFrameMagic = 0x46434241;  // "ABCF"
inline constexpr uint16_t kWireVersion = 2;
inline constexpr size_t kFrameHeaderBytes = 32;

// What `frame` takes on the wire, header and all.
uint64_t FrameWireBytes(const Frame& frame);

// OK where a decoder with these limits takes `frame`, kBadFrame otherwise.
absl::Status CheckFrame(const Frame& frame, const FrameLimits& limits);

// CRC-32C (Castagnoli) of `bytes`.
uint32_t Crc32c(std::string_view bytes, uint32_t crc_so_far = 0);

// Cuts a frame into the parts that a gathering write takes, without copying any of its blocks.
// Thread-compatible.
class FrameGather {
 public:
  // Ownership: keeps a reference to `frame`, which must outlive it unchanged.
  explicit FrameGather(const Frame& frame);
  FrameGather(const FrameGather&) = delete;
  FrameGather& operator=(const FrameGather&) = delete;

  uint64_t left_bytes() const { return left_bytes_; }
  // Fills `parts` with what comes next, at most `bytes_max` bytes, and returns how many parts it
  // used. Calling it again without Advance() gives the same.
  size_t Next(std::span<std::string_view> parts, uint64_t bytes_max) const;
  // The first `bytes` of what Next() gave have been written.
  void Advance(size_t bytes);

 private:
  // Up to here lengths and inline bytes stand beside the header: one part costs less than two.
  static constexpr size_t kHeadBytesMax = 512;

  std::string_view Part(size_t index) const;

  const Frame& frame_;
  std::array<char, kHeadBytesMax> head_;
  std::string long_head_;  // instead of head_ where even the lengths do not fit
  size_t head_bytes_ = 0;
  bool inline_in_head_ = false;
  size_t part_ = 0;    // 0: head, 1: inline bytes where not in the head, 2...: blocks
  size_t offset_ = 0;  // into that part
  uint64_t left_bytes_ = 0;
};

// Makes frames from a stream of bytes, however it is cut. Blocks can be read from the socket
// straight into their place: where Targets() returns any, the next bytes of the stream belong
// there.
//
// Memory: never more than what has arrived plus a constant (kUntrustedBytes), or what has arrived
// times a constant (kGrowth), whatever a header announces.
// Errors: kBadFrame      - garbage, a damaged header, or more than the limits allow
//         kVersionMismatch - the frame is of another wire version; the message names both
// After an error the stream has no frame boundary any more: the decoder must not be used again.
// Thread-compatible.
class FrameDecoder {
 public:
  // Makes the memory of a block of `bytes` in a frame whose blocks have `frame_block_bytes`.
  using BlockSource = std::function<Block(size_t bytes, uint64_t frame_block_bytes)>;

  static constexpr size_t kUntrustedBytes = size_t{8} << 20;
  static constexpr size_t kGrowth = 8;

  // Without `source` blocks are made by Block::Allocate.
  explicit FrameDecoder(const FrameLimits& limits, BlockSource source = {});

  // Takes bytes up to the end of the frame under way, and returns how many.
  absl::StatusOr<size_t> Feed(std::string_view bytes);

  // Fills `targets` with the places of the next bytes and returns how many it used; 0 where the
  // next bytes are not of a block.
  size_t Targets(std::span<std::span<char>> targets);
  // `bytes` bytes have been put into the targets, in order.
  void Advance(size_t bytes);

  // The stream may end here: it is not in the middle of a frame.
  bool between_frames() const { return stage_ == Stage::kHead && head_filled_ == 0; }
  bool complete() const { return stage_ == Stage::kComplete; }
  // REQUIRES: complete().
  Frame Take();

 private:
  enum class Stage : uint8_t { kHead, kLengths, kInline, kBlocks, kComplete };

  absl::Status ParseHead();
  absl::Status ParseLengths();
  absl::Status EndInline();
  size_t FeedBlocks(std::string_view bytes);
  // Makes room for at least one byte of the block under way; steps over blocks that are full.
  void OpenBlock();
  Block MakeBlock(size_t index, size_t filled);

  const FrameLimits limits_;
  const BlockSource source_;
  Stage stage_ = Stage::kHead;

  std::array<char, kFrameHeaderBytes> head_;
  size_t head_filled_ = 0;
  uint32_t inline_bytes_ = 0;
  uint32_t block_count_ = 0;
  uint64_t block_bytes_ = 0;
  uint32_t body_crc_ = 0;

  std::string length_bytes_;       // as they came
  std::vector<uint64_t> lengths_;  // of all blocks, once they are known
  Frame frame_;                    // its blocks so far; the one under way may still have to grow
  size_t block_ = 0;               // under way
  size_t block_filled_ = 0;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_FRAME_H_
