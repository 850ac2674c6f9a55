#include "experiments/lab/relayed_transport.h"

namespace abacus::lab {
namespace {

// As far as the second dot, and the dot; empty where there are fewer.
std::string_view FirstTwo(std::string_view address) {
  const size_t first = address.find('.');
  if (first == address.npos) return {};
  const size_t second = address.find('.', first + 1);
  return second == address.npos ? std::string_view() : address.substr(0, second + 1);
}

}  // namespace

std::string AddressOnTheWay(std::string_view ways, std::string_view address) {
  const std::string_view network = FirstTwo(ways);
  if (network.empty() || network != FirstTwo(address)) return std::string(address);
  const size_t third = address.find('.', network.size());
  if (third == address.npos) return std::string(address);
  return std::string(ways).append(address.substr(third + 1));
}

}  // namespace abacus::lab
