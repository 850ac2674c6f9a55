#include "objfs/volume/shard.h"

#include "absl/strings/str_cat.h"
#include "objfs/directory/siphash.h"
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

std::string VolumeText(std::string_view name) {
  const ShardPlace place = PlaceOfShard(name);
  const std::string volume = absl::StrCat("volume '", place.volume, "'");
  return place.shard == 0 ? volume : absl::StrCat("shard ", place.shard, " of ", volume);
}

// No secret is in it: who chooses names that all come to one shard gives that one more to do, and
// nothing goes wrong. Never another hash: what is made by clients of two builds would be spread by
// two rules. (Where a directory is its entry tells, and not this.)
uint32_t ShardForName(ObjectId parent, std::string_view name, uint32_t shards) {
  if (shards <= 1) return 0;
  return static_cast<uint32_t>(SipHash({.low = parent, .high = 0}, name) % shards);
}

}  // namespace abacus::objfs
