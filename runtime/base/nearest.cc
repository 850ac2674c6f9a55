#include "runtime/base/nearest.h"

#include <algorithm>

namespace abacus::runtime {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string Nearest(std::string_view given, const std::vector<std::string>& names) {
  constexpr size_t kGivenMax = 64;  // nobody mistypes that much
  if (given.size() > kGivenMax) return "";
  std::string nearest;
  size_t distance = 0;
  for (const std::string& name : names) {
    const size_t d = EditDistance(given, name);
    if (3 * d > std::max(given.size(), name.size())) continue;
    if (nearest.empty() || d < distance) {
      nearest = name;
      distance = d;
    }
  }
  return nearest;
}

}  // namespace abacus::runtime
