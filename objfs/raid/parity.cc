#include "objfs/raid/parity.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>

extern "C" {
#include <isa-l/raid.h>
}

namespace abacus::objfs {
namespace {

// ISA-L takes pointers of one array; so many sources at once, more in turns.
constexpr size_t kSourcesMax = 32;

bool Aligned(const char* at) { return reinterpret_cast<uintptr_t>(at) % kParityAlignment == 0; }

uint64_t Load(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Whatever the alignment. Four words a step, which compilers turn into wide instructions.
void XorUnaligned(const char* source, char* to, size_t bytes) {
  size_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    uint64_t words[4];
    for (size_t j = 0; j < 4; ++j) words[j] = Load(source + i + 8 * j) ^ Load(to + i + 8 * j);
    std::memcpy(to + i, words, sizeof words);
  }
  for (; i < bytes; ++i) to[i] = static_cast<char>(to[i] ^ source[i]);
}

}  // namespace

void XorOf(absl::Span<const char* const> sources, char* to, size_t bytes) {
  assert(!sources.empty());
  if (bytes == 0) return;
  if (sources.size() == 1) {
    std::memmove(to, sources[0], bytes);
    return;
  }
  const bool aligned = Aligned(to) && std::all_of(sources.begin(), sources.end(), Aligned);
  if (aligned && sources.size() <= kSourcesMax && bytes <= INT32_MAX) {
    std::array<void*, kSourcesMax + 1> all{};
    for (size_t i = 0; i < sources.size(); ++i) all[i] = const_cast<char*>(sources[i]);
    all[sources.size()] = to;
    const int failed =
        xor_gen(static_cast<int>(sources.size() + 1), static_cast<int>(bytes), all.data());
    assert(failed == 0);
    (void)failed;
    return;
  }
  // Where `to` is a source it is what the others are added to; else the first one's bytes are.
  const auto self = std::find(sources.begin(), sources.end(), to);
  const size_t base = self == sources.end() ? 0 : static_cast<size_t>(self - sources.begin());
  if (self == sources.end()) std::memcpy(to, sources[0], bytes);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i != base) XorInto(sources[i], to, bytes);
  }
}

void XorInto(const char* source, char* to, size_t bytes) {
  if (Aligned(source) && Aligned(to)) {
    XorOf({source, to}, to, bytes);
  } else {
    XorUnaligned(source, to, bytes);
  }
}

bool AllZero(const char* at, size_t bytes) {
  // Each byte is as the one before it, and the first is 0.
  return bytes == 0 || (*at == 0 && std::memcmp(at, at + 1, bytes - 1) == 0);
}

}  // namespace abacus::objfs
