#ifndef ABACUS_RUNTIME_BASE_NEAREST_H_
#define ABACUS_RUNTIME_BASE_NEAREST_H_

// What somebody who mistyped a name probably meant. Thread-safety: pure functions. Blocking: no.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace abacus::runtime {

// Letters added, left out, changed or swapped with a neighbour (optimal string alignment).
// Takes time in proportion to the product of the lengths.
size_t EditDistance(std::string_view a, std::string_view b);

// The one of `names` that `given` was probably meant to be: the nearest by EditDistance. Empty
// where none is near enough, which is when more than a third of the letters differ. The first where
// several are as near.
std::string Nearest(std::string_view given, const std::vector<std::string>& names);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_NEAREST_H_
