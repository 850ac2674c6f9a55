#include "objfs/store/wrong_bit.h"

#include <bit>

#include "objfs/store/format.h"

namespace abacus::objfs {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, with its bits the other way round
constexpr uint64_t kWrongBitCrcBytes = 4;

uint32_t CrcAtEnd(std::string_view sealed) {
  uint32_t crc = 0;
  for (size_t i = 0; i < kWrongBitCrcBytes; ++i) {
    const auto byte = static_cast<uint8_t>(sealed[sealed.size() - kWrongBitCrcBytes + i]);
    crc |= static_cast<uint32_t>(byte) << (8 * i);
  }
  return crc;
}

}  // namespace

std::optional<WrongBit> WrongBit::Find(uint64_t bytes, uint32_t computed, uint32_t stored) {
  const uint32_t difference = computed ^ stored;
  if (bytes > kWrongBitBytesMax) return std::nullopt;
  if (std::has_single_bit(difference)) {
    const int bit = std::countr_zero(difference);
    return WrongBit{.in_checksum = true,
                    .byte = static_cast<uint64_t>(bit / 8),
                    .mask = static_cast<uint8_t>(1u << (bit % 8))};
  }
  // What a bit adds to the checksum is as often shifted as bits follow it, itself counted. Bytes
  // are taken from their lowest bit.
  uint32_t added = 1;
  for (uint64_t behind = 1; behind <= 8 * bytes; ++behind) {
    added = (added >> 1) ^ ((added & 1) != 0 ? kPolynomial : 0);
    if (added != difference) continue;
    const uint64_t bit = 8 * bytes - behind;
    return WrongBit{.byte = bit / 8, .mask = static_cast<uint8_t>(1u << (bit % 8))};
  }
  return std::nullopt;
}

std::optional<std::string> WrongBit::SetRight(std::string_view sealed) {
  if (sealed.size() < kWrongBitCrcBytes) return std::nullopt;
  const std::string_view bytes = sealed.substr(0, sealed.size() - kWrongBitCrcBytes);
  const auto wrong = Find(bytes.size(), Crc32c(bytes), CrcAtEnd(sealed));
  if (!wrong.has_value()) return std::nullopt;
  std::string right(sealed);
  const uint64_t at = wrong->byte + (wrong->in_checksum ? bytes.size() : 0);
  right[at] = static_cast<char>(static_cast<uint8_t>(right[at]) ^ wrong->mask);
  return right;
}

}  // namespace abacus::objfs
