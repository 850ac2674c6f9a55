#ifndef ABACUS_APPS_ABACUS_ETCD_MAP_H_
#define ABACUS_APPS_ABACUS_ETCD_MAP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/map/map_store.h"

namespace abacus::apps {

// The members of an etcd, of "etcd://HOST:PORT[,HOST:PORT...]".
// Errors: kInvalidArgument - it is no such address; the message says how one looks.
absl::StatusOr<std::vector<std::string>> EtcdMembers(const std::string& url);

// A volume's row in etcd (its v3 API, without TLS): the keys "/abacus/volumes/NAME-KEY/row" and,
// under the primary's lease, ".../primary". Makes no connection until it is asked something.
// Errors: as EtcdMembers().
absl::StatusOr<std::unique_ptr<objfs::MapStore>> OpenEtcdMap(
    const std::string& url, const std::string& volume, uint64_t key,
    absl::Duration lease = absl::Nanoseconds(objfs::LeaseOptions().lease_ns));

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_ETCD_MAP_H_
