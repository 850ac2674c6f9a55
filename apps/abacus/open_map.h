#ifndef ABACUS_APPS_ABACUS_OPEN_MAP_H_
#define ABACUS_APPS_ABACUS_OPEN_MAP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "objfs/map/map_store.h"
#include "objfs/volume/server_map.h"

namespace abacus::apps {

// The map of a volume at "etcd://HOST:PORT[,HOST:PORT...]" (etcd_map.h), or at
// "abacus://HOST:PORT", which is a server of this program's. Makes no connection until it is asked
// something. Errors: kInvalidArgument - it is no such address; the message says how one looks.
absl::StatusOr<std::unique_ptr<objfs::MapStore>> OpenMap(const std::string& url,
                                                         const std::string& volume, uint64_t key,
                                                         objfs::ServerMap::Host host);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_OPEN_MAP_H_
