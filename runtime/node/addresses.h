#ifndef ABACUS_RUNTIME_NODE_ADDRESSES_H_
#define ABACUS_RUNTIME_NODE_ADDRESSES_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::runtime {

// Both halves of "host:port"; an IPv6 host stands in brackets, with which it is returned.
struct HostAndPort {
  std::string host;
  int port = 0;
};
absl::StatusOr<HostAndPort> SplitAddress(std::string_view address);

// True for a host that means "all of this machine's", which others cannot call: 0.0.0.0, [::].
bool IsAnyHost(std::string_view host);

// The address of this machine from which packets to `server` ("host:port") leave: where that server
// can call back. Errors: kUnavailable - the name is not known, or there is no route to it.
// Blocking: looks the name up; sends nothing.
absl::StatusOr<std::string> LocalHostTowards(std::string_view server);

// Why this process cannot listen at `address`; OK where it could at this moment.
absl::Status CheckListen(const HostAndPort& address);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_ADDRESSES_H_
