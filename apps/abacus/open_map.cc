#include "apps/abacus/open_map.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "apps/abacus/etcd_map.h"
#include "objfs/map/map_place.h"
#include "objfs/volume/server_list.h"

namespace abacus::apps {

absl::StatusOr<std::unique_ptr<objfs::MapStore>> OpenMap(const std::string& url,
                                                         const std::string& volume, uint64_t key,
                                                         objfs::ServerMap::Host host) {
  const std::string server = objfs::MapServerOf(url);
  if (objfs::IsServerAddress(server)) {
    return std::make_unique<objfs::ServerMap>(server, volume, key, std::move(host));
  }
  const auto members = EtcdMembers(url);
  if (members.ok()) return OpenEtcdMap(url, volume, key);
  return absl::InvalidArgumentError(
      absl::StrCat(members.status().message(), " or abacus://HOST:PORT"));
}

}  // namespace abacus::apps
