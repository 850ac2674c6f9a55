#ifndef ABACUS_APPS_ABACUS_SUGGEST_H_
#define ABACUS_APPS_ABACUS_SUGGEST_H_

#include <string>
#include <string_view>
#include <vector>

namespace abacus::apps {

// The one of `names` that `given` was probably meant to be: the nearest by the number of letters
// added, left out, changed or swapped with a neighbour. Empty where none is near enough, which is
// when more than a third of the letters differ. The first where several are as near.
std::string Nearest(std::string_view given, const std::vector<std::string>& names);

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_SUGGEST_H_
