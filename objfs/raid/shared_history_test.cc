// Four clients write to a few stripes at once, at random. Then parity is right, and what is there
// is what some order of the writes leaves that keeps those apart of which one had ended before the
// other began.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/raid/columns_layer.h"
#include "objfs/raid/shared_stripes.h"
#include "objfs/raid/testing/shared_nodes.h"

namespace abacus::objfs {
namespace {

using runtime::Block;
using testing::SharedNodes;

constexpr uint64_t kCell = 1024;  // writes are of whole ones
constexpr size_t kClients = 4;

struct Write {
  uint64_t first = 0, end = 0;  // cells
  uint64_t begun = 0, ended = UINT64_MAX;
  bool ok = false;  // else it may have happened

  bool Covers(uint64_t cell) const { return first <= cell && cell < end; }
};

std::string CellOf(uint64_t write) {
  const std::string word = absl::StrCat(write, ";");
  std::string text;
  while (text.size() < kCell) text += word;
  text.resize(kCell);
  return text;
}

class SharedHistoryTest : public ::testing::TestWithParam<size_t> {
 protected:
  SharedHistoryTest() : nodes_(GetParam(), ObjectStore::kBlockBytes) {}

  uint64_t cells_in_stripe() const { return nodes_.striping().stripe_bytes() / kCell; }
  uint64_t cells() const { return 2 * cells_in_stripe(); }

  // One stripe each; write 0 is what was there before.
  void Draw(size_t each) {
    std::mt19937 random(static_cast<uint32_t>(runtime::testing::Seed(5) + GetParam()));
    writes_.assign(1, Write{0, cells(), 0, 0, true});
    for (size_t i = 0; i < kClients * each; ++i) {
      const uint64_t in_stripe = cells_in_stripe();
      const bool whole = random() % 8 == 0;
      const uint64_t count = whole ? in_stripe : 1 + random() % 12;
      const uint64_t at = whole ? 0 : random() % (in_stripe - count + 1);
      const uint64_t first = random() % 2 * in_stripe + at;
      writes_.push_back({first, first + count, 0, UINT64_MAX, false});
    }
  }
  void Run(SharedStripes& stripes, size_t client, size_t each) {
    for (size_t i = 0; i < each; ++i) {
      const size_t number = 1 + client * each + i;
      Write& write = writes_[number];
      std::string bytes;
      for (uint64_t cell = write.first; cell < write.end; ++cell) bytes += CellOf(number);
      write.begun = ++clock_;
      const absl::Status status =
          stripes.Write(write.first * kCell, Block::CopyOf(bytes), nodes_.Now());
      EXPECT_TRUE(status.ok() || IsNeedsAlone(status)) << status;
      write.ok = status.ok();
      if (write.ok) write.ended = ++clock_;
    }
  }
  // Which write's bytes each cell has.
  void ReadCells() {
    ASSERT_TRUE(nodes_.NothingIsPending());
    const std::vector<std::string> columns = nodes_.Stored(cells() * kCell);
    ASSERT_NO_FATAL_FAILURE(testing::ExpectParityOf(nodes_.striping(), columns));
    const std::string file = testing::FileOf(nodes_.striping(), columns);
    for (uint64_t cell = 0; cell < cells(); ++cell) {
      const std::string bytes = file.substr(cell * kCell, kCell);
      const uint64_t write = std::strtoull(bytes.c_str(), nullptr, 10);
      ASSERT_LT(write, writes_.size());
      ASSERT_TRUE(bytes == (write == 0 ? std::string(kCell, '\0') : CellOf(write)))
          << "cell " << cell << " is of no write";
      ASSERT_TRUE(writes_[write].Covers(cell));
      last_.push_back(write);
    }
  }
  void Judge() {
    for (uint64_t cell = 0; cell < cells(); ++cell) {
      for (size_t i = 1; i < writes_.size(); ++i) {
        const bool is_later = writes_[i].ok && writes_[i].Covers(cell) &&
                              writes_[i].begun > writes_[last_[cell]].ended;
        ASSERT_FALSE(is_later) << "write " << i << " is lost in cell " << cell << ", which has "
                               << last_[cell];
      }
    }
    // In parts: each of the two is over the other one somewhere.
    for (uint64_t a = 0; a < cells(); ++a) {
      for (uint64_t b = a + 1; b < cells(); ++b) {
        const Write &x = writes_[last_[a]], &y = writes_[last_[b]];
        if (last_[a] == last_[b] || last_[a] == 0 || last_[b] == 0) continue;
        ASSERT_FALSE(x.Covers(b) && y.Covers(a))
            << "writes " << last_[a] << " and " << last_[b] << " are there in parts";
      }
    }
  }

  SharedNodes nodes_;
  std::vector<Write> writes_;
  std::vector<uint64_t> last_;
  std::atomic<uint64_t> clock_{0};
};

TEST_P(SharedHistoryTest, WritesOfSeveralClientsAreOneAfterTheOther) {
  const size_t each = runtime::testing::LongRun() ? 400 : runtime::testing::kSanitized ? 8 : 40;
  Draw(each);
  {
    std::vector<std::unique_ptr<SharedStripes>> clients;
    for (size_t i = 0; i < kClients; ++i) {
      clients.push_back(nodes_.Stripes(i % 2, static_cast<uint16_t>(11 + i), cells() * kCell));
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kClients; ++i) {
      threads.emplace_back([this, &clients, i, each] { Run(*clients[i], i, each); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ASSERT_NO_FATAL_FAILURE(ReadCells());
  ASSERT_NO_FATAL_FAILURE(Judge());
  size_t done = 0;
  for (const Write& write : writes_) done += write.ok;
  EXPECT_GT(done, writes_.size() / 2);
}

// Of one client: they do not refuse each other.
TEST_P(SharedHistoryTest, CallsOfOneClientWaitForEachOther) {
  const size_t each = runtime::testing::kSanitized ? 4 : 12;
  Draw(each);
  {
    const auto client = nodes_.Stripes(0, 11, cells() * kCell);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kClients; ++i) {
      threads.emplace_back([this, &client, i] { Run(*client, i, each); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(client->counts().again, 0u);
  }
  ASSERT_NO_FATAL_FAILURE(ReadCells());
  ASSERT_NO_FATAL_FAILURE(Judge());
}

INSTANTIATE_TEST_SUITE_P(Columns, SharedHistoryTest, ::testing::Values(3, 5));

}  // namespace
}  // namespace abacus::objfs
