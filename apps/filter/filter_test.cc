#include "apps/filter/filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "apps/testing/file_at_server.h"

namespace abacus::apps {
namespace {

using objfs::Subgraph;
using runtime::Ref;
using ::testing::HasSubstr;

class FilterTest : public testing::FileAtServer<Filter> {
 protected:
  // `between`: after each chunk.
  static std::string All(const Ref<Filter>& filter, const Subgraph& file,
                         const std::function<void(int)>& between) {
    std::string all;
    for (int i = 0;; ++i) {
      const auto chunk = filter->Next(file);
      EXPECT_TRUE(chunk.ok()) << chunk.status();
      if (!chunk.ok()) return all;
      all += chunk->output.view();
      if (chunk->done) return all;
      between(i);
    }
  }
  static std::string Records(size_t count) {
    std::string records;
    for (size_t i = 0; i < count; ++i) {
      std::string record = absl::StrCat("record ", i);
      record.resize(Filter::kRecordBytes, '.');
      records += record;
    }
    return records;
  }
};

TEST_F(FilterTest, PassesTheShareOfRecordsThatItIsTold) {
  for (const double share : {0.0, 0.2, 0.3, 0.6, 0.8, 1.0}) {
    uint64_t passed = 0;
    for (uint64_t record = 0; record < 10'000; ++record) passed += Passes(record, share) ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(passed), share * 10'000, 1) << share;
  }
}

TEST_F(FilterTest, OutputIsTheSameWhenItMovesBetweenAllChunks) {
  const Subgraph file = Store(Records(1000));
  const FilterOptions options{.read_bytes = 4096, .pass_share = 0.3, .memory_bytes = 1 << 16};
  const Ref<Filter> still = cluster_->Create<Filter>(kClient, options);
  const std::string expected = All(still, file, [](int) {});
  EXPECT_EQ(expected.size(), 300 * Filter::kRecordBytes);
  const Ref<Filter> moving = cluster_->Create<Filter>(kClient, options);
  const std::string output = All(moving, file, [&](int i) {
    const size_t from = i % 2 == 0 ? kClient : kServer;
    ASSERT_TRUE(cluster_->Move(moving.rid(), from, 1 - from).ok());
  });
  EXPECT_EQ(output, expected);
}

TEST_F(FilterTest, SpendsTheProcessorTimeThatItIsToldForEachByte) {
  const std::string bytes(64 * 1024, 'x');
  double least_ms = INFINITY;  // a hypervisor's theft may be in the others
  for (int i = 0; i < 20 && least_ms >= 8; ++i) {
    timespec before, after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    EXPECT_NE(LookAt(bytes, 100.0 * static_cast<double>(bytes.size())), 0u);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double spent_ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                            static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
    EXPECT_GE(spent_ms, 6.5);  // 65,536 x 100 ns
    least_ms = std::min(least_ms, spent_ms);
  }
  EXPECT_LT(least_ms, 8);
}

TEST_F(FilterTest, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [this](const FilterOptions& options) {
    return std::string(Refused(options).message());
  };
  EXPECT_THAT(refused({.read_bytes = 100}), HasSubstr("multiple of 128"));
  EXPECT_THAT(refused({.read_bytes = 0}), HasSubstr("multiple of 128"));
  EXPECT_THAT(refused({.pass_share = 1.5}), HasSubstr("0 to 1"));
  EXPECT_THAT(refused({.cpu_ns_per_byte = -1}), HasSubstr("0 ns a byte"));
}

}  // namespace
}  // namespace abacus::apps
