#ifndef ABACUS_EXPERIMENTS_LAB_RELAYED_TRANSPORT_H_
#define ABACUS_EXPERIMENTS_LAB_RELAYED_TRANSPORT_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "experiments/lab/transport_around.h"

namespace abacus::lab {

// The address at which a node dials `address`, given the beginning `ways` of the addresses that it
// dials, as "127.231.3.": of addresses with the same first two numbers the third is replaced.
// "127.231.5.5:7071" is "127.231.3.5:7071" to it, where abacus_link_relay carries on to node 5 what
// node 3 sends. All other addresses are as they are.
std::string AddressOnTheWay(std::string_view ways, std::string_view address);

// A transport around another on a testbed in user space (experiments/testbed/user_space.py): the
// nodes know each other by their own addresses, and each dials the others by way of its own links.
// Thread-safety: thread-safe.
class RelayedTransport final : public TransportAround {
 public:
  RelayedTransport(std::unique_ptr<runtime::Transport> inner, std::string ways)
      : TransportAround(std::move(inner)), ways_(std::move(ways)) {}

  void AddPeer(runtime::NodeInstance peer, const std::string& address) override {
    inner().AddPeer(peer, AddressOnTheWay(ways_, address));
  }

 private:
  const std::string ways_;
};

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_RELAYED_TRANSPORT_H_
