#include "runtime/transport/frame.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

constexpr size_t kCheckedBytes = 28;       // of the header, that its own CRC covers
constexpr size_t kPieceBytes = 64 * 1024;  // inline bytes to reserve before any has come
constexpr size_t kBlocksReserved = 1024;   // likewise, entries

template <typename Number>
Number Load(const char* at) {
  Number value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename Number>
char* Store(char* at, Number value) {
  std::memcpy(at, &value, sizeof value);
  return at + sizeof value;
}

absl::Status BadFrame(const std::string& what) {
  return MakeError(ErrorKind::kBadFrame, "bad frame: " + what);
}

absl::Status CheckSizes(uint64_t inline_bytes, uint64_t block_count, uint64_t block_bytes,
                        const FrameLimits& limits) {
  if (block_count > limits.block_count_max) {
    return BadFrame(absl::StrCat("it has ", block_count, " blocks, more than the limit of ",
                                 limits.block_count_max));
  }
  // Each term is checked before it is added: the sum of what a header says can overflow.
  const uint64_t small = kFrameHeaderBytes + block_count * sizeof(uint64_t) + inline_bytes;
  if (block_bytes > limits.frame_bytes_max || small > limits.frame_bytes_max - block_bytes) {
    return BadFrame(absl::StrCat("it has ", inline_bytes, " inline bytes and ", block_bytes,
                                 " bytes in blocks, more than the limit of ",
                                 limits.frame_bytes_max, " bytes (frame_bytes_max)"));
  }
  return absl::OkStatus();
}

uint64_t BlockBytes(const Frame& frame) {
  uint64_t total = 0;
  for (const Block& block : frame.payload.blocks) total += block.size();
  return total;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t crc_so_far) {
  // ISA-L takes the length as an int, and neither inverts before nor after.
  constexpr size_t kStep = size_t{1} << 30;
  uint32_t crc = ~crc_so_far;
  while (!bytes.empty()) {
    const size_t step = std::min(bytes.size(), kStep);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(step), crc);
    bytes.remove_prefix(step);
  }
  return ~crc;
}

uint64_t FrameWireBytes(const Frame& frame) {
  return kFrameHeaderBytes + frame.payload.blocks.size() * sizeof(uint64_t) +
         frame.payload.inline_bytes.size() + BlockBytes(frame);
}

absl::Status CheckFrame(const Frame& frame, const FrameLimits& limits) {
  const size_t inline_bytes = frame.payload.inline_bytes.size();
  if (inline_bytes > UINT32_MAX) return BadFrame("its inline bytes do not fit into 32 bits");
  return CheckSizes(inline_bytes, frame.payload.blocks.size(), BlockBytes(frame), limits);
}

FrameGather::FrameGather(const Frame& frame) : frame_(frame) {
  const std::vector<Block>& blocks = frame.payload.blocks;
  head_bytes_ = kFrameHeaderBytes + blocks.size() * sizeof(uint64_t);
  char* head = head_.data();
  if (head_bytes_ > head_.size()) {
    long_head_.resize(head_bytes_);
    head = long_head_.data();
  }
  uint64_t block_bytes = 0;
  char* length = head + kFrameHeaderBytes;
  for (const Block& block : blocks) {
    length = Store<uint64_t>(length, block.size());
    block_bytes += block.size();
  }
  const std::string_view lengths(head + kFrameHeaderBytes, head_bytes_ - kFrameHeaderBytes);
  char* at = head;
  at = Store<uint32_t>(at, kFrameMagic);
  at = Store<uint16_t>(at, kWireVersion);
  at = Store<uint16_t>(at, frame.type);
  at = Store<uint32_t>(at, static_cast<uint32_t>(frame.payload.inline_bytes.size()));
  at = Store<uint32_t>(at, static_cast<uint32_t>(blocks.size()));
  at = Store<uint64_t>(at, block_bytes);
  at = Store<uint32_t>(at, Crc32c(frame.payload.inline_bytes, Crc32c(lengths)));
  Store<uint32_t>(at, Crc32c({head, kCheckedBytes}));
  const std::string& inline_bytes = frame.payload.inline_bytes;
  left_bytes_ = head_bytes_ + inline_bytes.size() + block_bytes;
  if (head_bytes_ + inline_bytes.size() <= head_.size()) {
    std::memcpy(head + head_bytes_, inline_bytes.data(), inline_bytes.size());
    head_bytes_ += inline_bytes.size();
    inline_in_head_ = true;
  }
}

std::string_view FrameGather::Part(size_t index) const {
  if (index == 0) return {long_head_.empty() ? head_.data() : long_head_.data(), head_bytes_};
  if (index == 1) return inline_in_head_ ? "" : std::string_view(frame_.payload.inline_bytes);
  return frame_.payload.blocks[index - 2].view();
}

size_t FrameGather::Next(std::span<std::string_view> parts, uint64_t bytes_max) const {
  size_t used = 0;
  size_t offset = offset_;
  uint64_t left = std::min(left_bytes_, bytes_max);
  for (size_t index = part_; left > 0 && used < parts.size(); ++index, offset = 0) {
    const std::string_view part = Part(index).substr(offset, left);
    if (part.empty()) continue;
    parts[used++] = part;
    left -= part.size();
  }
  return used;
}

void FrameGather::Advance(size_t bytes) {
  left_bytes_ -= bytes;
  while (bytes > 0) {
    const size_t here = Part(part_).size() - offset_;
    if (bytes < here) {
      offset_ += bytes;
      return;
    }
    bytes -= here;
    offset_ = 0;
    ++part_;
  }
}

FrameDecoder::FrameDecoder(const FrameLimits& limits, BlockSource source)
    : limits_(limits), source_(std::move(source)) {}

absl::StatusOr<size_t> FrameDecoder::Feed(std::string_view bytes) {
  const size_t given = bytes.size();
  while (!complete() && !bytes.empty()) {
    size_t taken = 0;
    switch (stage_) {
      case Stage::kHead:
        taken = std::min(bytes.size(), kFrameHeaderBytes - head_filled_);
        std::memcpy(head_.data() + head_filled_, bytes.data(), taken);
        head_filled_ += taken;
        if (head_filled_ == kFrameHeaderBytes) ABACUS_RETURN_IF_ERROR(ParseHead());
        break;
      case Stage::kLengths:
        taken = std::min(bytes.size(), block_count_ * sizeof(uint64_t) - length_bytes_.size());
        length_bytes_.append(bytes.data(), taken);
        if (length_bytes_.size() == block_count_ * sizeof(uint64_t)) {
          ABACUS_RETURN_IF_ERROR(ParseLengths());
        }
        break;
      case Stage::kInline: {
        std::string& have = frame_.payload.inline_bytes;
        taken = std::min<size_t>(bytes.size(), inline_bytes_ - have.size());
        have.append(bytes.data(), taken);
        if (have.size() == inline_bytes_) ABACUS_RETURN_IF_ERROR(EndInline());
        break;
      }
      case Stage::kBlocks:
        taken = FeedBlocks(bytes);
        break;
      case Stage::kComplete:
        break;
    }
    bytes.remove_prefix(taken);
  }
  return given - bytes.size();
}

absl::Status FrameDecoder::ParseHead() {
  const char* head = head_.data();
  if (Load<uint32_t>(head) != kFrameMagic) {
    return BadFrame("it does not begin as a frame does");
  }
  // Before the CRC: another version may compute it over other bytes.
  if (const auto version = Load<uint16_t>(head + 4); version != kWireVersion) {
    return MakeError(ErrorKind::kVersionMismatch,
                     absl::StrCat("a frame of wire version ", version,
                                  " came to a process that speaks ", kWireVersion));
  }
  if (Load<uint32_t>(head + kCheckedBytes) != Crc32c({head, kCheckedBytes})) {
    return BadFrame("its header is damaged");
  }
  frame_.type = Load<uint16_t>(head + 6);
  inline_bytes_ = Load<uint32_t>(head + 8);
  block_count_ = Load<uint32_t>(head + 12);
  block_bytes_ = Load<uint64_t>(head + 16);
  body_crc_ = Load<uint32_t>(head + 24);
  ABACUS_RETURN_IF_ERROR(CheckSizes(inline_bytes_, block_count_, block_bytes_, limits_));

  frame_.payload.inline_bytes.reserve(std::min<size_t>(inline_bytes_, kPieceBytes));
  if (block_count_ > 0) {
    stage_ = Stage::kLengths;
    return absl::OkStatus();
  }
  if (block_bytes_ != 0) return BadFrame("it has bytes in blocks, and no blocks");
  if (inline_bytes_ == 0) return EndInline();
  stage_ = Stage::kInline;
  return absl::OkStatus();
}

absl::Status FrameDecoder::ParseLengths() {
  lengths_.resize(block_count_);
  std::memcpy(lengths_.data(), length_bytes_.data(), length_bytes_.size());
  uint64_t left = block_bytes_;
  for (const uint64_t length : lengths_) {
    if (length > left) return BadFrame("its blocks are longer than it says in all");
    left -= length;
  }
  if (left != 0) return BadFrame("its blocks are shorter than it says in all");
  if (inline_bytes_ == 0) return EndInline();
  stage_ = Stage::kInline;
  return absl::OkStatus();
}

absl::Status FrameDecoder::EndInline() {
  if (Crc32c(frame_.payload.inline_bytes, Crc32c(length_bytes_)) != body_crc_) {
    return BadFrame("its inline bytes or block lengths are damaged");
  }
  stage_ = Stage::kBlocks;
  frame_.payload.blocks.reserve(std::min<size_t>(block_count_, kBlocksReserved));
  OpenBlock();
  return absl::OkStatus();
}

Block FrameDecoder::MakeBlock(size_t index, size_t filled) {
  const size_t trusted = filled == 0 ? kUntrustedBytes : filled * kGrowth;
  const size_t bytes = std::min<uint64_t>(lengths_[index], trusted);
  return source_ ? source_(bytes, block_bytes_) : Block::Allocate(bytes);
}

void FrameDecoder::OpenBlock() {
  std::vector<Block>& blocks = frame_.payload.blocks;
  for (; block_ < block_count_; ++block_, block_filled_ = 0) {
    if (block_ == blocks.size()) blocks.push_back(MakeBlock(block_, 0));
    Block& block = blocks[block_];
    if (block_filled_ < block.size()) return;
    if (block_filled_ < lengths_[block_]) {
      Block larger = MakeBlock(block_, block_filled_);
      std::memcpy(larger.mutable_data(), block.data(), block_filled_);
      block = std::move(larger);
      return;
    }
  }
  stage_ = Stage::kComplete;
}

size_t FrameDecoder::FeedBlocks(std::string_view bytes) {
  Block& block = frame_.payload.blocks[block_];
  const size_t taken = std::min(bytes.size(), block.size() - block_filled_);
  std::memcpy(block.mutable_data() + block_filled_, bytes.data(), taken);
  block_filled_ += taken;
  if (block_filled_ == block.size()) OpenBlock();
  return taken;
}

size_t FrameDecoder::Targets(std::span<std::span<char>> targets) {
  if (stage_ != Stage::kBlocks || targets.empty()) return 0;
  std::vector<Block>& blocks = frame_.payload.blocks;
  Block& open = blocks[block_];
  targets[0] = {open.mutable_data() + block_filled_, open.size() - block_filled_};
  if (open.size() < lengths_[block_]) return 1;  // has to grow before the next one begins
  size_t used = 1;
  size_t ahead = targets[0].size();
  for (size_t next = block_ + 1; next < block_count_ && used < targets.size(); ++next) {
    if (ahead + lengths_[next] > kUntrustedBytes) break;
    if (next == blocks.size()) blocks.push_back(MakeBlock(next, 0));
    targets[used++] = {blocks[next].mutable_data(), blocks[next].size()};
    ahead += blocks[next].size();
  }
  return used;
}

void FrameDecoder::Advance(size_t bytes) {
  while (bytes > 0) {
    const size_t here = std::min(bytes, frame_.payload.blocks[block_].size() - block_filled_);
    block_filled_ += here;
    bytes -= here;
    if (block_filled_ == frame_.payload.blocks[block_].size()) OpenBlock();
  }
}

Frame FrameDecoder::Take() {
  Frame frame = std::move(frame_);
  frame_ = Frame();
  stage_ = Stage::kHead;
  head_filled_ = 0;
  length_bytes_.clear();
  lengths_.clear();
  block_ = 0;
  block_filled_ = 0;
  return frame;
}

}  // namespace abacus::runtime
