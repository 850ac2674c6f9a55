// The bytes of an inode, damaged in any way: no crash, and what is taken is written as what says
// the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "objfs/volume/inode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using abacus::objfs::Inode;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto inode = Inode::Decode(bytes);
  if (!inode.ok()) {
    if (!absl::IsDataLoss(inode.status())) abort();
    return 0;
  }
  const std::string written = inode->Encode();
  const auto again = Inode::Decode(written);
  if (!again.ok() || *again != *inode || again->Encode() != written) abort();
  return 0;
}
