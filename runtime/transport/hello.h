#ifndef ABACUS_RUNTIME_TRANSPORT_HELLO_H_
#define ABACUS_RUNTIME_TRANSPORT_HELLO_H_

// The first words on every connection: who calls whom, and what for. The side that connected says
// kGreeting, the other side answers; frames follow a kWelcome, everything else ends the connection.
//
//   byte  0  u32  magic, the letters "ABCH"
//         4  u16  wire version; this and the magic stay where they are for ever, so that unlike
//                 versions can tell each other what they are
//         6  u16  bytes that follow these 8
//         8  u8   verdict
//         9  u8   lane
//        10  u16  bytes of the address
//        12  u32  sender's node         16  u32  sender's incarnation
//        20  u32  node meant            24  u32  incarnation meant
//        28       address
//                 u32  CRC-32C of all before it

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

enum class HelloVerdict : uint8_t {
  kGreeting,       // not an answer
  kWelcome,        // frames may follow
  kOtherVersion,   // "I speak another wire version", to be read from the prefix
  kOtherInstance,  // "I am not whom you mean, but `sender`"
  kFenced,         // "you have been removed here, or a later incarnation of you is known"
};

struct Hello {
  HelloVerdict verdict = HelloVerdict::kGreeting;
  Lane lane = Lane::kRequest;
  NodeInstance sender;
  NodeInstance meant;
  std::string address;  // where the sender takes connections
};

// Of an address; the hello of a peer that says more is refused.
inline constexpr size_t kHelloAddressBytesMax = 256;
inline constexpr size_t kHelloBytesMax = 32 + kHelloAddressBytesMax;

// REQUIRES: hello.address.size() <= kHelloAddressBytesMax.
std::string EncodeHello(const Hello& hello);

// Reads a hello from the beginning of `bytes` and returns how many it took; 0 where it is not all
// there yet.
// Errors: kBadFrame        - not a hello, or a damaged one
//         kVersionMismatch - of another wire version; the message names both
absl::StatusOr<size_t> ParseHello(std::string_view bytes, Hello* hello);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_TRANSPORT_HELLO_H_
