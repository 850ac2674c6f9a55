#include "placement/statistics.h"

#include <sstream>
#include <unordered_set>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace abacus::placement {
namespace {

TEST(ObjectIdTest, PrintsNodeIncarnationAndLocalInDecimal) {
  std::ostringstream out;
  out << ObjectId{7, 41, 18'446'744'073'709'551'615u};
  EXPECT_EQ(out.str(), "7.41.18446744073709551615");
  EXPECT_EQ(ToString(ObjectId{}), "0.0.0");
}

TEST(ObjectIdTest, OrdersByNodeThenIncarnationThenLocal) {
  EXPECT_LT((ObjectId{1, 9, 9}), (ObjectId{2, 0, 0}));
  EXPECT_LT((ObjectId{1, 1, 9}), (ObjectId{1, 2, 0}));
  EXPECT_LT((ObjectId{1, 1, 1}), (ObjectId{1, 1, 2}));
  EXPECT_EQ((ObjectId{1, 2, 3}), (ObjectId{1, 2, 3}));
}

TEST(ObjectIdTest, HashesEveryFieldForBothKindsOfTables) {
  const ObjectId ids[] = {{1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {2, 1, 3}};
  std::unordered_set<size_t> hashes;
  absl::flat_hash_set<ObjectId> flat;
  std::unordered_set<ObjectId> standard;
  for (const ObjectId& id : ids) {
    hashes.insert(std::hash<ObjectId>{}(id));
    flat.insert(id);
    flat.insert(id);
    standard.insert(id);
    standard.insert(id);
  }
  EXPECT_EQ(hashes.size(), 5u);
  EXPECT_EQ(flat.size(), 5u);
  EXPECT_EQ(standard.size(), 5u);
}

}  // namespace
}  // namespace abacus::placement
