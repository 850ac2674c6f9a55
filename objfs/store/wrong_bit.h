#ifndef ABACUS_OBJFS_STORE_WRONG_BIT_H_
#define ABACUS_OBJFS_STORE_WRONG_BIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace abacus::objfs {

// Beyond these bytes a wrong bit is not sought: the more there are, the more often bytes that are
// wrong altogether seem to have one (see WrongBit).
inline constexpr uint64_t kWrongBitBytesMax = 16'384;

// Which one bit of some bytes, or of their checksum, is to be turned so that both fit. A CRC32C is
// linear: the difference between the checksum that there is and the one that there should be tells
// which bit it is. As no two strings that fit are nearer than 4 bits, where one bit rotted there is
// one answer, and it is what was written.
//
// Where more is wrong the answer is mostly nullopt, and by chance a wrong one: 8 x bytes / 2^32, of
// 8192 bytes 1 in 65,000. Callers look whether what comes out makes sense, and tell it.
struct WrongBit {
  // Both checksums are CRC32C, of `bytes` bytes: as computed of them, and as it stands beside them.
  // nullopt: they are the same, it is not one bit, or there are more than kWrongBitBytesMax.
  static std::optional<WrongBit> Find(uint64_t bytes, uint32_t computed, uint32_t stored);
  // Of bytes that end with their checksum, little-endian: all of them with the bit set right.
  static std::optional<std::string> SetRight(std::string_view sealed);

  bool in_checksum = false;
  uint64_t byte = 0;  // of the bytes, or of the checksum
  uint8_t mask = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_WRONG_BIT_H_
