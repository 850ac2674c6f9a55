// Feeds bytes to the decoder of frames and of hellos as a peer could. The first two bytes of an
// input steer: whether the CRCs of the first frame are made right, without which hardly any
// mutation would get behind them, and how the stream is cut.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/hello.h"

namespace abacus::runtime {
namespace {

constexpr uint8_t kRightHeader = 1;
constexpr uint8_t kRightBody = 2;
constexpr uint8_t kDirect = 4;
constexpr FrameLimits kLimits{.frame_bytes_max = uint64_t{1} << 32, .block_count_max = 1000};
// Besides what is announced and may be allocated ahead of the bytes.
constexpr size_t kBlocksAhead = 16;

void Check(bool holds) {
  if (!holds) std::abort();
}

template <typename Number>
Number Load(const std::string& from, size_t at) {
  Number number;
  std::memcpy(&number, from.data() + at, sizeof number);
  return number;
}

void MakeRight(std::string& wire, uint8_t flags) {
  if (wire.size() < kFrameHeaderBytes) return;
  const std::string_view view = wire;
  if ((flags & kRightBody) != 0) {
    const size_t body = size_t{Load<uint32_t>(wire, 12)} * 8 + Load<uint32_t>(wire, 8);
    const uint32_t crc = Crc32c(view.substr(kFrameHeaderBytes, body));
    std::memcpy(wire.data() + 24, &crc, sizeof crc);
  }
  if ((flags & kRightHeader) != 0) {
    const uint32_t crc = Crc32c(view.substr(0, 28));
    std::memcpy(wire.data() + 28, &crc, sizeof crc);
  }
}

// A frame that the decoder took must be what stood on the wire.
void CheckRoundTrip(const Frame& frame, std::string_view wire) {
  Check(FrameWireBytes(frame) == wire.size());
  FrameGather gather(frame);
  std::array<std::string_view, 3> parts;
  while (gather.left_bytes() > 0) {
    const size_t count = gather.Next(parts, UINT64_MAX);
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      Check(wire.starts_with(parts[i]));
      wire.remove_prefix(parts[i].size());
      bytes += parts[i].size();
    }
    gather.Advance(bytes);
  }
}

void DecodeFrames(const std::string& wire, uint8_t flags, size_t piece) {
  size_t allocated = 0;
  FrameDecoder decoder(kLimits, [&allocated](size_t bytes, uint64_t) {
    allocated += bytes;
    return Block::Allocate(bytes);
  });
  size_t begin = 0, at = 0;
  while (at < wire.size()) {
    const std::string_view next = std::string_view(wire).substr(at, piece);
    std::array<std::span<char>, kBlocksAhead> targets;
    if ((flags & kDirect) != 0 && decoder.Targets(targets) > 0) {
      const size_t bytes = std::min(next.size(), targets[0].size());
      std::memcpy(targets[0].data(), next.data(), bytes);
      decoder.Advance(bytes);
      at += bytes;
    } else {
      const auto taken = decoder.Feed(next);
      if (!taken.ok()) {
        Check(KindOf(taken.status()) == ErrorKind::kBadFrame ||
              KindOf(taken.status()) == ErrorKind::kVersionMismatch);
        return;
      }
      at += *taken;
      Check(*taken > 0);
    }
    // The promise of the header. Each growth allocates anew: hence twice.
    Check(allocated <= 2 * FrameDecoder::kUntrustedBytes + 2 * FrameDecoder::kGrowth * wire.size());
    if (!decoder.complete()) continue;
    CheckRoundTrip(decoder.Take(), std::string_view(wire).substr(begin, at - begin));
    begin = at;
    Check(decoder.between_frames());
  }
}

void DecodeHello(const std::string& wire) {
  Hello hello;
  const auto taken = ParseHello(wire, &hello);
  if (!taken.ok() || *taken == 0) return;
  Check(*taken <= kHelloBytesMax && hello.sender.valid());
  Check(EncodeHello(hello) == wire.substr(0, *taken));
}

}  // namespace
}  // namespace abacus::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string wire(reinterpret_cast<const char*>(data) + 2, size - 2);
  abacus::runtime::DecodeHello(wire);
  abacus::runtime::MakeRight(wire, data[0]);
  abacus::runtime::DecodeFrames(wire, data[0], size_t{1} + data[1] * size_t{17});
  return 0;
}
