// Clients that read and write the columns of one file at once, over nodes, sockets and threads.

#include "objfs/raid/shared_stripes.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/raid/testing/shared_nodes.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::SharedNodes;

constexpr uint64_t kBlock = ObjectStore::kBlockBytes;

std::string Random(std::mt19937& random, size_t bytes) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class SharedStripesOfTest : public ::testing::TestWithParam<size_t> {};

TEST_P(SharedStripesOfTest, WhatOneWritesTheOtherReads) {
  constexpr uint64_t kUnit = 2 * kBlock;
  SharedNodes nodes(GetParam(), kUnit);
  const uint64_t stripe = nodes.striping().stripe_bytes(), size = 3 * stripe + kUnit + 5000;
  const std::unique_ptr<SharedStripes> clients[] = {nodes.Stripes(0, 11, size),
                                                    nodes.Stripes(1, 12, size)};
  std::mt19937 random(static_cast<uint32_t>(runtime::testing::Seed(3)));
  std::string model(size, '\0');  // no column has anything yet
  const int steps = runtime::testing::kSanitized ? 15 : 60;
  for (int i = 0; i < steps; ++i) {
    const uint64_t most = i % 4 == 0 ? 2 * stripe : i % 4 == 1 ? 20000 : 100;
    const uint64_t bytes = 1 + random() % most;
    const uint64_t at = i % 7 == 0 ? size - bytes : random() % (size - bytes + 1);
    const std::string text = Random(random, bytes);
    SCOPED_TRACE(absl::StrCat("step ", i, ": ", at, "+", bytes));
    const absl::Status written = clients[i % 2]->Write(at, Block::CopyOf(text), nodes.Now());
    ASSERT_TRUE(written.ok()) << written;
    model.replace(at, bytes, text);
    const uint64_t from = at - std::min<uint64_t>(at, 100);
    const auto read = clients[1 - i % 2]->Read(from, bytes + 200, nodes.Now());
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(read->bytes.view() == model.substr(from, bytes + 200));
    EXPECT_GT(read->version, Version());
  }
  ASSERT_NO_FATAL_FAILURE(nodes.ExpectStored(model));
  // From the end on there is nothing.
  EXPECT_EQ(clients[0]->Read(size, 10, nodes.Now())->bytes.size(), 0u);
  EXPECT_EQ(clients[0]->Read(size - 3, 10, nodes.Now())->bytes.size(), 3u);
}
INSTANTIATE_TEST_SUITE_P(Columns, SharedStripesOfTest, ::testing::Values(3, 5));

// Five columns; a file of noise.
class SharedStripesTest : public ::testing::Test {
 protected:
  explicit SharedStripesTest(uint64_t unit = 4 * kBlock) : nodes_(5, unit) {}
  void Make(uint64_t size) {
    model_ = Random(random_, size);
    stripes_ = nodes_.Stripes(0, 11, size);
    const absl::Status made = stripes_->Write(0, Block::CopyOf(model_), nodes_.Now());
    ASSERT_TRUE(made.ok()) << made;
    before_ = stripes_->counts();
    reads_before_ = nodes_.reads();
    applied_before_ = nodes_.Applied();
  }
  void Write(uint64_t at, uint64_t bytes) {
    const std::string text = Random(random_, bytes);
    const absl::Status written = stripes_->Write(at, Block::CopyOf(text), nodes_.Now());
    ASSERT_TRUE(written.ok()) << written;
    model_.replace(at, bytes, text);
    ASSERT_NO_FATAL_FAILURE(nodes_.ExpectStored(model_));
  }
  // Since Make().
  void ExpectCounts(uint64_t groups, uint64_t read, uint64_t written, uint64_t servers) {
    const SharedStripes::Counts now = stripes_->counts();
    EXPECT_EQ(now.groups - before_.groups, groups);
    EXPECT_EQ(now.read - before_.read, read);
    EXPECT_EQ(now.written - before_.written, written);
    EXPECT_EQ(nodes_.reads() - reads_before_, read);
    EXPECT_EQ(nodes_.Applied() - applied_before_, servers);
  }

  SharedNodes nodes_;
  std::mt19937 random_{7};
  std::string model_;
  std::unique_ptr<SharedStripes> stripes_;
  SharedStripes::Counts before_;
  uint64_t reads_before_ = 0, applied_before_ = 0;
};

class SharedSmallUnitsTest : public SharedStripesTest {
 protected:
  SharedSmallUnitsTest() : SharedStripesTest(kBlock) {}
};

TEST_F(SharedStripesTest, ASmallWriteIsTwoReadsAndTwoWrites) {
  Make(3 * nodes_.striping().stripe_bytes());
  Write(nodes_.striping().stripe_bytes() + 4096, 4096);
  ExpectCounts(/*groups=*/1, /*read=*/2, /*written=*/2, /*servers=*/2);
}

TEST_F(SharedStripesTest, WholeStripesReadNothingAndGoTogether) {
  const uint64_t stripe = nodes_.striping().stripe_bytes();
  Make(5 * stripe);
  Write(stripe, 3 * stripe);
  ExpectCounts(/*groups=*/1, /*read=*/0, /*written=*/3 * 5 * 4, /*servers=*/5);
}

TEST_F(SharedSmallUnitsTest, MostOfAStripeIsWrittenByReadingTheRest) {
  Make(2 * nodes_.striping().stripe_bytes());
  Write(kBlock, 3 * kBlock);
  ExpectCounts(/*groups=*/1, /*read=*/1, /*written=*/4, /*servers=*/5);
}

// Two units' ends, at other places within them: the parity changes at both.
TEST_F(SharedStripesTest, AWriteOverTwoUnitsChangesTheParityWhereBothDo) {
  Make(2 * nodes_.striping().stripe_bytes());
  const uint64_t unit = nodes_.striping().unit_bytes();
  Write(unit - 100, 200);
  ExpectCounts(/*groups=*/1, /*read=*/4, /*written=*/4, /*servers=*/3);
}

TEST_F(SharedStripesTest, AWriteOfSeveralStripesIsAGroupOfEachThatIsInPart) {
  const uint64_t stripe = nodes_.striping().stripe_bytes();
  Make(5 * stripe + 777);
  Write(stripe - 100, 3 * stripe + 200);
  const SharedStripes::Counts now = stripes_->counts();
  EXPECT_EQ(now.groups - before_.groups, 3u);
}

// What lies behind the end of the file is known to be zeros, and stays so.
TEST_F(SharedSmallUnitsTest, TheLastBlockEndsWithTheFile) {
  const uint64_t stripe = nodes_.striping().stripe_bytes();
  Make(stripe + 1000);
  Write(stripe, 1000);
  ExpectCounts(/*groups=*/1, /*read=*/0, /*written=*/2, /*servers=*/2);
  Write(stripe + 990, 10);
  ExpectCounts(/*groups=*/2, /*read=*/1, /*written=*/4, /*servers=*/4);
}

TEST_F(SharedStripesTest, WhatCannotBeDoneTogetherNeedsTheFileAlone) {
  Make(2 * nodes_.striping().stripe_bytes() - 100);
  const uint64_t size = model_.size();
  const Block bytes = Block::CopyOf("hello");
  for (const uint64_t at : {size - 4, size, size + 1, UINT64_MAX - 1}) {
    EXPECT_TRUE(IsNeedsAlone(stripes_->Write(at, bytes, nodes_.Now()))) << at;
  }
  // The first unit's column, and the parity's.
  const size_t column = nodes_.striping().ColumnOf(0, 0),
               parity = nodes_.striping().ParityColumn(0);
  for (std::atomic<bool>* const fault :
       {&nodes_.control(column).dead, &nodes_.control(column).damaged}) {
    *fault = true;
    EXPECT_TRUE(IsNeedsAlone(stripes_->Read(0, 10, nodes_.Now()).status()));
    EXPECT_TRUE(IsNeedsAlone(stripes_->Write(0, bytes, nodes_.Now())));
    *fault = false;
  }
  nodes_.control(parity).dead = true;
  EXPECT_TRUE(IsNeedsAlone(stripes_->Write(0, bytes, nodes_.Now())));
  EXPECT_TRUE(stripes_->Read(0, 10, nodes_.Now()).ok());
  nodes_.control(parity).dead = false;
  ASSERT_NO_FATAL_FAILURE(nodes_.ExpectStored(model_));
  Write(0, 5);
}

TEST_F(SharedStripesTest, WhoseOpeningIsOverIsToldSoAndWritesNothing) {
  Make(2 * nodes_.striping().stripe_bytes());
  nodes_.OpenAnew();
  const uint64_t stripe = nodes_.striping().stripe_bytes();
  for (const uint64_t bytes : {uint64_t{5}, stripe}) {
    const absl::Status written =
        stripes_->Write(stripe, Block::CopyOf(std::string(bytes, 'x')), nodes_.Now());
    EXPECT_TRUE(absl::IsUnauthenticated(written)) << written;
    EXPECT_FALSE(IsNeedsAlone(written));
  }
  ASSERT_NO_FATAL_FAILURE(nodes_.ExpectStored(model_));
  // And so says a column that is read.
  nodes_.control(nodes_.striping().ColumnOf(0, 0)).shut_out = true;
  EXPECT_TRUE(absl::IsUnauthenticated(stripes_->Read(0, 10, nodes_.Now()).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(stripes_->Write(0, Block::CopyOf("x"), nodes_.Now())));
  // Who has the columns of now goes on.
  nodes_.control(nodes_.striping().ColumnOf(0, 0)).shut_out = false;
  stripes_ = nodes_.Stripes(1, 12, model_.size());
  Write(10, 20);
}

// Of somebody whose clock runs ahead.
TEST_F(SharedSmallUnitsTest, BlocksThatAreNewerThanTheClockAreWrittenOver) {
  Make(nodes_.striping().stripe_bytes());
  HybridClock ahead(9, [] { return absl::ToUnixMicros(absl::Now() + absl::Minutes(30)); });
  for (size_t i = 0; i < 5; ++i) {
    const std::string now = nodes_.Stored(model_.size())[i];
    ASSERT_TRUE(nodes_.store(i).Write(SharedNodes::kFile, 0, now, ahead.Next().value).ok());
  }
  Write(100, 200);                             // by what changes
  Write(0, nodes_.striping().stripe_bytes());  // whole
  const auto versions = nodes_.store(0).ReadVersions(SharedNodes::kFile, 0, 1);
  ASSERT_TRUE(versions.ok());
  EXPECT_EQ(Version{(*versions)[0]}.writer(), 11);
}

TEST_F(SharedStripesTest, IdentifiersGoOnWhereTheyWereFollowed) {
  Make(1000);
  const Version newest = stripes_->NextVersion();
  const Version ahead = Version::Of(newest.ticks() + 1'000'000, 11);
  stripes_->Follow(ahead);
  EXPECT_GT(stripes_->NextVersion(), ahead);
}

TEST_F(SharedSmallUnitsTest, WhatAreNoColumnsOfSuchAFileIsRefused) {
  const SharedColumns shared = nodes_.Share(0, 11, 100);
  EXPECT_TRUE(SharedStripes::Check(nodes_.striping(), shared).ok());
  SharedColumns other = shared;
  other.columns.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(SharedStripes::Check(nodes_.striping(), other)));
  other = shared;
  other.columns[2] = runtime::Ref<Layer>();
  EXPECT_TRUE(absl::IsInvalidArgument(SharedStripes::Check(nodes_.striping(), other)));
  other = shared;
  other.servers[1] = other.servers[0];
  EXPECT_TRUE(absl::IsInvalidArgument(SharedStripes::Check(nodes_.striping(), other)));
  other = shared;
  other.id = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(SharedStripes::Check(nodes_.striping(), other)));
}

// A reader beside two who write a whole block: it is one of them.
TEST_F(SharedSmallUnitsTest, ABlockIsReadWhole) {
  Make(nodes_.striping().stripe_bytes());
  const auto other = nodes_.Stripes(1, 12, model_.size());
  ASSERT_TRUE(stripes_->Write(0, Block::CopyOf(std::string(kBlock, 'a')), nodes_.Now()).ok());
  std::atomic<int> writing{2};
  std::vector<std::thread> writers;
  SharedStripes* const who[] = {stripes_.get(), other.get()};
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&, i] {
      const Block bytes = Block::CopyOf(std::string(kBlock, static_cast<char>('b' + i)));
      for (int n = 0; n < 30; ++n) {
        const absl::Status written = who[i]->Write(0, bytes, nodes_.Now());
        EXPECT_TRUE(written.ok() || IsNeedsAlone(written)) << written;
      }
      --writing;
    });
  }
  uint64_t reads = 0;
  for (; writing > 0 || reads == 0; ++reads) {
    const auto read = stripes_->Read(0, kBlock, nodes_.Now());
    EXPECT_TRUE(read.ok()) << read.status();
    if (!read.ok()) break;
    const std::string_view bytes = read->bytes.view();
    EXPECT_EQ(bytes.find_first_not_of(bytes[0]), std::string_view::npos);
  }
  for (std::thread& writer : writers) writer.join();
  ASSERT_TRUE(nodes_.NothingIsPending());
  ASSERT_NO_FATAL_FAILURE(testing::ExpectParityOf(nodes_.striping(), nodes_.Stored(model_.size())));
}

}  // namespace
}  // namespace abacus::objfs
