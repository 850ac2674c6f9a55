#include "objfs/atomicity/block_claims.h"

namespace abacus::objfs {

bool BlockClaims::Take(Version group, const GroupPart& part) {
  if (taken_.contains(group)) return true;
  std::vector<Block> reads, writes;
  for (const GroupRead& read : part.reads) reads.emplace_back(read.id, read.block);
  for (const GroupWrite& write : part.writes) {
    for (uint64_t i = 0; i < write.blocks(); ++i) writes.emplace_back(write.id, write.block + i);
  }
  for (const Block& block : reads) {
    const auto found = blocks_.find(block);
    if (found != blocks_.end() && found->second.writer != Version()) return false;
  }
  for (const Block& block : writes) {
    if (blocks_.contains(block)) return false;
  }
  for (const Block& block : reads) blocks_[block].readers.insert(group);
  for (const Block& block : writes) blocks_[block].writer = group;
  reads.insert(reads.end(), writes.begin(), writes.end());
  taken_.emplace(group, std::move(reads));
  return true;
}

void BlockClaims::Release(Version group) {
  const auto taken = taken_.find(group);
  if (taken == taken_.end()) return;
  for (const Block& block : taken->second) {
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) continue;  // read and written: it is gone already
    found->second.readers.erase(group);
    if (found->second.writer == group) found->second.writer = Version();
    if (found->second.writer == Version() && found->second.readers.empty()) blocks_.erase(found);
  }
  taken_.erase(taken);
}

}  // namespace abacus::objfs
