#ifndef ABACUS_OBJFS_STORE_NUMBERS_H_
#define ABACUS_OBJFS_STORE_NUMBERS_H_

// Numbers in records of files: little-endian, as wide as their type.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace abacus::objfs {

template <typename Number>
void AppendNumber(std::string* bytes, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) {
    bytes->push_back(static_cast<char>(number >> (8 * i)));
  }
}

// REQUIRES: at + sizeof(Number) <= bytes.size().
template <typename Number>
Number NumberAt(std::string_view bytes, size_t at) {
  Number number = 0;
  for (size_t i = 0; i < sizeof number; ++i) {
    number = static_cast<Number>(number | static_cast<Number>(static_cast<uint8_t>(bytes[at + i]))
                                              << (8 * i));
  }
  return number;
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_NUMBERS_H_
