#include "objfs/volume/shard_finder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "objfs/volume/server_list.h"
#include "objfs/volume/shard.h"

namespace abacus::objfs {

using runtime::MutexLock;
using runtime::Ref;

namespace {

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ShardFinder::ShardFinder(std::string_view name, size_t own,
                         std::shared_ptr<const ServerAddresses> servers, Host host)
    : volume_(PlaceOfShard(name).volume),
      own_(own),
      servers_(std::move(servers)),
      host_(std::move(host)) {}

absl::StatusOr<Ref<Volume>> ShardFinder::OpenAt(const std::string& address,
                                                const std::string& name) {
  // By its place, whatever the cluster calls it.
  return address == servers_->At(own_) ? host_.open_here(name) : host_.open(address, name);
}

std::vector<std::string> ShardFinder::OthersFor(const std::string& name,
                                                const std::vector<std::string>& addresses) {
  std::vector<std::string> others;
  for (const std::string& asked : addresses) {
    if (asked == servers_->At(own_)) continue;
    const absl::StatusOr<std::vector<std::string>> named = host_.servers(asked, name);
    if (!named.ok()) continue;
    for (const std::string& server : *named) {
      const bool is_known =
          IsVacant(server) ||
          std::find(addresses.begin(), addresses.end(), server) != addresses.end() ||
          std::find(others.begin(), others.end(), server) != others.end();
      if (!is_known) others.push_back(server);
    }
  }
  return others;
}

absl::StatusOr<Ref<Volume>> ShardFinder::Find(uint32_t shard) {
  const int64_t now_ns = host_.steady_ns ? host_.steady_ns() : MonotonicNs();
  Found known;
  {
    MutexLock lock(mutex_);
    const auto found = found_.find(shard);
    if (found != found_.end()) known = found->second;
  }
  if (known.volume && now_ns - known.at_ns < kBelievedNs) return known.volume;

  const std::string name = ShardName(volume_, shard);
  std::vector<std::string> servers = servers_->All();
  std::erase_if(servers, [](const std::string& server) { return IsVacant(server); });
  std::stable_partition(servers.begin(), servers.end(),
                        [&](const std::string& server) { return server == known.address; });
  absl::Status why;
  for (const bool beyond : {false, true}) {
    if (beyond) servers = OthersFor(name, servers);
    for (const std::string& address : servers) {
      absl::StatusOr<Ref<Volume>> opened = OpenAt(address, name);
      why.Update(opened.status());
      if (!opened.ok()) continue;
      MutexLock lock(mutex_);
      found_[shard] = {*opened, address, now_ns};
      return opened;
    }
  }
  return absl::UnavailableError(
      absl::StrCat("shard ", shard, " of volume '", volume_,
                   "' is not to be had now: ", why.ok() ? "it has no servers" : why.message()));
}

}  // namespace abacus::objfs
