#include "placement/statistics.h"

#include <ostream>

#include "absl/strings/str_cat.h"

namespace abacus::placement {

std::string ToString(const ObjectId& id) {
  return absl::StrCat(id.node, ".", id.incarnation, ".", id.local);
}

std::ostream& operator<<(std::ostream& out, const ObjectId& id) { return out << ToString(id); }

}  // namespace abacus::placement
