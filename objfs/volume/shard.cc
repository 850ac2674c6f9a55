#include "objfs/volume/shard.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kShardMark[] = "~";

// "1" to "15"; 0: it is none of these.
uint32_t ShardIn(std::string_view digits) {
  if (digits.empty() || digits.size() > 2 || digits[0] == '0') return 0;
  uint32_t shard = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return 0;
    shard = 10 * shard + static_cast<uint32_t>(digit - '0');
  }
  return shard < kShardsMax ? shard : 0;
}

// FNV-1a, of 64 bits.
class NameHash {
 public:
  void Take(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }
  // Its low bits depend on the low bits of what was taken only: these depend on all of it.
  uint64_t Mixed() const {
    uint64_t mixed = hash_;
    mixed = (mixed ^ (mixed >> 33)) * 0xff51afd7ed558ccd;
    mixed = (mixed ^ (mixed >> 33)) * 0xc4ceb9fe1a85ec53;
    return mixed ^ (mixed >> 33);
  }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

std::string ShardName(std::string_view volume, uint32_t shard) {
  if (shard == 0) return std::string(volume);
  return absl::StrCat(runtime::ToAbsl(volume), kShardMark, shard);
}

ShardPlace PlaceOfShard(std::string_view name) {
  const size_t mark = name.rfind(kShardMark);
  const bool is_marked = mark != std::string_view::npos && mark > 0;
  const uint32_t shard = is_marked ? ShardIn(name.substr(mark + 1)) : 0;
  if (shard == 0) return {std::string(name), 0};
  return {std::string(name.substr(0, mark)), shard};
}

// No secret is in it: who chooses names that all come to one shard gives that one more to do, and
// nothing goes wrong. Never another one: what is made by clients of two builds would be spread by
// two rules. (Where a directory is its entry tells, and not this.)
// Source: Fowler, Noll, Vo: FNV-1a; the mixing is that of MurmurHash3 (Appleby).
uint32_t ShardForName(ObjectId parent, std::string_view name, uint32_t shards) {
  if (shards <= 1) return 0;
  NameHash hash;
  for (int bit = 0; bit < 64; bit += 8) hash.Take(static_cast<uint8_t>(parent >> bit));
  for (const char c : name) hash.Take(static_cast<uint8_t>(c));
  return static_cast<uint32_t>(hash.Mixed() % shards);
}

}  // namespace abacus::objfs
