#include "objfs/directory/siphash.h"

#include <bit>
#include <cstring>

namespace abacus::objfs {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie in memory");

struct State {
  uint64_t v0, v1, v2, v3;

  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void Take(uint64_t word) {
    v3 ^= word;
    Rounds(2);
    v0 ^= word;
  }
};

}  // namespace

uint64_t SipHash(const HashSeed& seed, std::string_view bytes) {
  // The paper's constants: "somepseudorandomlygeneratedbytes".
  State state{seed.low ^ 0x736f6d6570736575, seed.high ^ 0x646f72616e646f6d,
              seed.low ^ 0x6c7967656e657261, seed.high ^ 0x7465646279746573};
  uint64_t last = uint64_t{bytes.size()} << 56;
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    state.Take(word);
    bytes.remove_prefix(8);
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    last |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  state.Take(last);
  state.v2 ^= 0xff;
  state.Rounds(4);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace abacus::objfs
