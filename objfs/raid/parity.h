#ifndef ABACUS_OBJFS_RAID_PARITY_H_
#define ABACUS_OBJFS_RAID_PARITY_H_

// XOR over runs of bytes: what parity is made of, and what a lost unit is found again with.

#include <cstddef>

#include "absl/types/span.h"

namespace abacus::objfs {

// Runs that begin at multiples of this are computed on with ISA-L's widest instructions; others
// come out the same and take longer.
inline constexpr size_t kParityAlignment = 32;

// Sets `bytes` bytes at `to` to the XOR of those at each of `sources`. `to` may be one of them;
// apart from that nothing may overlap.
// REQUIRES: at least one source.
// Thread-safety: thread-safe over different bytes. Blocking: no.
void XorOf(absl::Span<const char* const> sources, char* to, size_t bytes);

// The same with `to` as one more source: to ^= source.
void XorInto(const char* source, char* to, size_t bytes);

// Whether all `bytes` bytes at `at` are 0: the XOR of a stripe's data and its parity.
bool AllZero(const char* at, size_t bytes);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_PARITY_H_
