#ifndef ABACUS_OBJFS_MAP_SEALED_TEXT_H_
#define ABACUS_OBJFS_MAP_SEALED_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace abacus::objfs {

// `text` with the line "crc" behind it, which has the CRC32C of it in hexadecimal digits.
std::string Sealed(const std::string& text);
// What is before that line. nullopt: it is cut off, or damaged.
std::optional<std::string_view> Unsealed(std::string_view text);

// The line that `text` begins with, which is taken from it; "" where there is none.
std::string_view TakeLine(std::string_view* text);
// Of a line that begins with `begin`, what is behind that, as a number. False: it is none.
bool NumberBehind(std::string_view begin, std::string_view line, int64_t* number);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_MAP_SEALED_TEXT_H_
