// Checkpoints from anywhere: each input as it is, and once more with the checksum that fits it, so
// that what lies behind the check is reached too.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/object/checkpoint.h"
#include "runtime/object/testing/payload_bytes.h"

namespace abacus::runtime {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// Restores as a class would. What was read is never more than what was there.
void ReadAll(CheckpointReader& reader, size_t bytes_max) {
  size_t bytes = 0;
  const auto read = [&]<typename T>(T value) {
    reader.Read(value);
    bytes += Codec<T>::Bytes(value);
  };
  for (int round = 0; round < 64 && reader.ok() && !reader.AtEnd(); ++round) {
    read(uint64_t{});
    read(std::string());
    read(Block());
    read(std::vector<std::string>());
    read(std::map<uint32_t, std::optional<double>>());
    read(std::vector<uint64_t>());
  }
  // A failed read gives fixed-width values too.
  Require(bytes <= bytes_max + 64 * sizeof(uint64_t));
  if (!reader.ok()) Require(KindOf(reader.status()) == ErrorKind::kBadCheckpoint);
}

bool OpenAndRead(const Payload& payload) {
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(payload, "fuzz.Class", 2, nullptr);
  if (!reader.ok()) {
    Require(KindOf(reader.status()) == ErrorKind::kBadCheckpoint);
    return false;
  }
  Require(reader->version() <= 2);
  ReadAll(*reader, payload.bytes());
  return true;
}

}  // namespace
}  // namespace abacus::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace abacus::runtime;  // NOLINT(google-build-using-namespace)
  Payload payload =
      testing::PayloadFromBytes(std::string_view(reinterpret_cast<const char*>(data), size));
  const bool accepted = OpenAndRead(payload);
  const std::string before = payload.inline_bytes;
  testing::SetCheckpointChecksum(payload);
  // Only one checksum fits: what was accepted has it already.
  Require(!accepted || payload.inline_bytes == before);
  OpenAndRead(payload);
  return 0;
}
