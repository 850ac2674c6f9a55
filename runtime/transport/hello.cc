#include "runtime/transport/hello.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

constexpr uint32_t kHelloMagic = 0x48434241;  // "ABCH"
constexpr size_t kPrefixBytes = 8;
constexpr size_t kFixedBytes = 28;  // before the address
constexpr size_t kHelloCrcBytes = 4;

template <typename Number>
void Put(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename Number>
Number Take(std::string_view& in) {
  Number value;
  std::memcpy(&value, in.data(), sizeof value);
  in.remove_prefix(sizeof value);
  return value;
}

absl::Status BadHello(std::string_view what) {
  return MakeError(ErrorKind::kBadFrame, absl::StrCat("bad hello: ", ToAbsl(what)));
}

}  // namespace

std::string EncodeHello(const Hello& hello) {
  std::string out;
  Put(out, kHelloMagic);
  Put(out, kWireVersion);
  Put(out,
      static_cast<uint16_t>(kFixedBytes - kPrefixBytes + hello.address.size() + kHelloCrcBytes));
  Put(out, hello.verdict);
  Put(out, hello.lane);
  Put(out, static_cast<uint16_t>(hello.address.size()));
  Put(out, hello.sender.node);
  Put(out, hello.sender.incarnation);
  Put(out, hello.meant.node);
  Put(out, hello.meant.incarnation);
  out += hello.address;
  Put(out, Crc32c(out));
  return out;
}

absl::StatusOr<size_t> ParseHello(std::string_view bytes, Hello* hello) {
  const std::string_view all = bytes;
  // Garbage is told by its first bytes, however few have come.
  char magic[sizeof kHelloMagic];
  std::memcpy(magic, &kHelloMagic, sizeof magic);
  if (std::memcmp(bytes.data(), magic, std::min(bytes.size(), sizeof magic)) != 0) {
    return BadHello("the peer does not speak this protocol");
  }
  if (bytes.size() < kPrefixBytes) return 0;
  Take<uint32_t>(bytes);
  if (const auto version = Take<uint16_t>(bytes); version != kWireVersion) {
    return MakeError(ErrorKind::kVersionMismatch,
                     absl::StrCat("the peer speaks wire version ", version, ", this process ",
                                  kWireVersion, ": run the same build on both"));
  }
  const size_t rest = Take<uint16_t>(bytes);
  if (rest < kFixedBytes - kPrefixBytes + kHelloCrcBytes || kPrefixBytes + rest > kHelloBytesMax) {
    return BadHello(absl::StrCat("it cannot be ", rest, " bytes long"));
  }
  if (bytes.size() < rest) return 0;
  const size_t total = kPrefixBytes + rest;
  std::string_view crc = all.substr(total - kHelloCrcBytes);
  if (Take<uint32_t>(crc) != Crc32c(all.substr(0, total - kHelloCrcBytes))) {
    return BadHello("it is damaged");
  }
  const auto verdict = Take<uint8_t>(bytes);
  const auto lane = Take<uint8_t>(bytes);
  const size_t address_bytes = Take<uint16_t>(bytes);
  if (verdict > static_cast<uint8_t>(HelloVerdict::kFenced) ||
      lane > static_cast<uint8_t>(Lane::kBulk) ||
      kFixedBytes + address_bytes + kHelloCrcBytes != total) {
    return BadHello("its fields contradict each other");
  }
  hello->verdict = static_cast<HelloVerdict>(verdict);
  hello->lane = static_cast<Lane>(lane);
  hello->sender.node = Take<uint32_t>(bytes);
  hello->sender.incarnation = Take<uint32_t>(bytes);
  hello->meant.node = Take<uint32_t>(bytes);
  hello->meant.incarnation = Take<uint32_t>(bytes);
  hello->address = bytes.substr(0, address_bytes);
  if (!hello->sender.valid()) return BadHello("its sender has no name");
  return total;
}

}  // namespace abacus::runtime
