#ifndef ABACUS_OBJFS_DIRECTORY_TESTING_HASHES_H_
#define ABACUS_OBJFS_DIRECTORY_TESTING_HASHES_H_

// Hashes under which a small directory meets what a good one keeps for very large ones.

#include <cstdint>
#include <string_view>

#include "objfs/directory/directory_tree.h"

namespace abacus::objfs::testing {

using Hash = uint64_t (*)(const HashSeed& seed, std::string_view name);

// Few keys: names meet in one.
inline uint64_t CrowdedHash(const HashSeed& seed, std::string_view name) {
  return SipHash(seed, name) % 256 << 56;
}
// Keys agree in all but their last bits: leaves lie under a chain of tables.
inline uint64_t DeepHash(const HashSeed& seed, std::string_view name) {
  return uint64_t{0xabcdef0123} << 24 | SipHash(seed, name) >> 40;
}

inline DirectoryTree::Options WithHash(Hash hash) {
  DirectoryTree::Options options;
  options.make_seed = [] { return HashSeed{1, 2}; };
  options.hash = hash;
  return options;
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_DIRECTORY_TESTING_HASHES_H_
