#ifndef ABACUS_OBJFS_DIRECTORY_SIPHASH_H_
#define ABACUS_OBJFS_DIRECTORY_SIPHASH_H_

#include <cstdint>
#include <string_view>

namespace abacus::objfs {

// The secret of a directory's hash: who does not know it cannot choose names that meet in one leaf.
struct HashSeed {
  uint64_t low = 0, high = 0;
  friend bool operator==(const HashSeed&, const HashSeed&) = default;
};

// SipHash-2-4 with a result of 64 bits.
// Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. No library that the
// project uses has it for C++.
uint64_t SipHash(const HashSeed& seed, std::string_view bytes);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_SIPHASH_H_
