#ifndef ABACUS_RUNTIME_BASE_BYTE_SIZE_H_
#define ABACUS_RUNTIME_BASE_BYTE_SIZE_H_

// Sizes as people write them. Thread-safety: pure functions. Blocking: no.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace abacus::runtime {

// "64 KiB" or "64KiB": a whole number of B, KiB, MiB, GiB or TiB. Nothing for any other text;
// decimal units are not known on purpose: half of their users mean the binary ones.
std::optional<uint64_t> ParseBytes(std::string_view text);

// In the largest unit of which it is a whole number: "64 KiB". ParseBytes() takes it back.
std::string FormatBytes(uint64_t bytes);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_BYTE_SIZE_H_
