#ifndef ABACUS_APPS_TESTING_ANY_BYTES_H_
#define ABACUS_APPS_TESTING_ANY_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace abacus::apps::testing {

// Bytes of all kinds, white space of each kind often among them.
inline std::string AnyBytes(size_t bytes, uint32_t seed) {
  constexpr std::string_view kOften = " \t\n\v\f\rab.,\x01\x7f\x80\xff";
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += random() % 4 == 0 ? static_cast<char>(random()) : kOften[random() % kOften.size()];
  }
  return text;
}

}  // namespace abacus::apps::testing

#endif  // ABACUS_APPS_TESTING_ANY_BYTES_H_
