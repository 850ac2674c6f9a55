#ifndef ABACUS_RUNTIME_OBJECT_TESTING_PAYLOAD_BYTES_H_
#define ABACUS_RUNTIME_OBJECT_TESTING_PAYLOAD_BYTES_H_

// What fuzz targets and their corpora are made with: a payload as one run of bytes, and checkpoints
// whose checksum is right although the rest is not.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/block.h"
#include "runtime/base/codec.h"

namespace abacus::runtime::testing {

// A payload from a fuzzer's bytes. Every text is one: parts, each behind its length of two bytes,
// the first of them the inline bytes and the rest the blocks; the last may be cut short.
inline Payload PayloadFromBytes(std::string_view bytes) {
  const auto take_part = [&bytes] {
    uint16_t size = 0;
    const size_t head = std::min(sizeof size, bytes.size());
    std::copy_n(bytes.data(), head, reinterpret_cast<char*>(&size));
    bytes.remove_prefix(head);
    const std::string part(bytes.substr(0, size));
    bytes.remove_prefix(part.size());
    return part;
  };
  Payload payload;
  payload.inline_bytes = take_part();
  while (!bytes.empty()) payload.blocks.push_back(Block::FromString(take_part()));
  return payload;
}

// The other way. REQUIRES: no part is 64 KiB or more.
inline std::string BytesFromPayload(const Payload& payload) {
  std::string bytes;
  const auto put_part = [&bytes](std::string_view part) {
    const auto size = static_cast<uint16_t>(part.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes.append(part);
  };
  put_part(payload.inline_bytes);
  for (const Block& block : payload.blocks) put_part(block.view());
  return bytes;
}

// CRC-32C without the last inversion, bit by bit: slow, and not the library that is under test.
inline uint32_t PlainCrc32c(uint32_t crc, std::string_view bytes) {
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return crc;
}

// Gives a checkpoint the checksum that fits what it holds, so that what checks the rest is reached.
inline void SetCheckpointChecksum(Payload& checkpoint) {
  std::string& bytes = checkpoint.inline_bytes;
  if (bytes.size() < sizeof(uint32_t)) return;
  bytes.resize(bytes.size() - sizeof(uint32_t));
  uint32_t crc = PlainCrc32c(0xffffffff, bytes);
  for (const Block& block : checkpoint.blocks) {
    const uint64_t size = block.size();
    crc = PlainCrc32c(crc, {reinterpret_cast<const char*>(&size), sizeof size});
    crc = PlainCrc32c(crc, block.view());
  }
  bytes.append(reinterpret_cast<const char*>(&crc), sizeof crc);
}

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_OBJECT_TESTING_PAYLOAD_BYTES_H_
