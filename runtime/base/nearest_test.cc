#include "runtime/base/nearest.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace abacus::runtime {
namespace {

TEST(NearestTest, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"--server", "--json", "--block", "--pin"};
  EXPECT_EQ(Nearest("--sevrer", names), "--server");
  EXPECT_EQ(Nearest("--jsno", names), "--json");
  EXPECT_EQ(Nearest("--blocks", names), "--block");
  EXPECT_EQ(Nearest("--server", names), "--server");
}

TEST(NearestTest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(Nearest("--colour", {"--server", "--json"}), "");
  EXPECT_EQ(Nearest("", {"--server"}), "");
  EXPECT_EQ(Nearest("--server", {}), "");
  EXPECT_EQ(Nearest(std::string(1000, '-'), {"--server"}), "");
}

}  // namespace
}  // namespace abacus::runtime
