#include "runtime/transport/hello.h"

#include <string>

#include "gtest/gtest.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

Hello Sample() {
  return {.verdict = HelloVerdict::kWelcome,
          .lane = Lane::kBulk,
          .sender = {3, 30},
          .meant = {4, 40},
          .address = "127.0.0.1:7071"};
}

TEST(HelloTest, ParseReturnsWhatWasEncodedAndLeavesTheRest) {
  const std::string wire = EncodeHello(Sample());
  Hello hello;
  const auto taken = ParseHello(wire + "frames", &hello);
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  EXPECT_EQ(*taken, wire.size());
  EXPECT_EQ(hello.verdict, HelloVerdict::kWelcome);
  EXPECT_EQ(hello.lane, Lane::kBulk);
  EXPECT_EQ(hello.sender, (NodeInstance{3, 30}));
  EXPECT_EQ(hello.meant, (NodeInstance{4, 40}));
  EXPECT_EQ(hello.address, "127.0.0.1:7071");
}

TEST(HelloTest, ParseOfABeginningAsksForMore) {
  const std::string wire = EncodeHello(Sample());
  Hello hello;
  for (size_t bytes = 0; bytes < wire.size(); ++bytes) {
    const auto taken = ParseHello(wire.substr(0, bytes), &hello);
    ASSERT_TRUE(taken.ok()) << bytes;
    EXPECT_EQ(*taken, 0u) << bytes;
  }
}

TEST(HelloTest, GarbageIsRefusedByItsFirstByte) {
  Hello hello;
  EXPECT_EQ(KindOf(ParseHello("G", &hello).status()), ErrorKind::kBadFrame);
}

TEST(HelloTest, EachFlippedBitIsFound) {
  const std::string wire = EncodeHello(Sample());
  for (size_t bit = 0; bit < wire.size() * 8; ++bit) {
    std::string bad = wire;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    Hello hello;
    const auto taken = ParseHello(bad, &hello);
    const size_t byte = bit / 8;
    if (byte == 4 || byte == 5) {
      EXPECT_EQ(KindOf(taken.status()), ErrorKind::kVersionMismatch) << bit;
    } else if (taken.ok()) {
      EXPECT_EQ(*taken, 0u) << bit;  // it says that it is longer
      EXPECT_EQ(byte, 6u);
    } else {
      EXPECT_EQ(KindOf(taken.status()), ErrorKind::kBadFrame) << bit;
    }
  }
}

TEST(HelloTest, OtherVersionIsNamedOnBothSides) {
  std::string wire = EncodeHello(Sample());
  wire[4] = 99;
  Hello hello;
  const absl::Status status = ParseHello(wire, &hello).status();
  EXPECT_EQ(KindOf(status), ErrorKind::kVersionMismatch);
  EXPECT_NE(std::string(status.message()).find("99"), std::string::npos);
}

TEST(HelloTest, LongestAddressFitsAndParses) {
  Hello longest = Sample();
  longest.address = std::string(kHelloAddressBytesMax, 'a');
  const std::string wire = EncodeHello(longest);
  EXPECT_LE(wire.size(), kHelloBytesMax);
  Hello hello;
  const auto taken = ParseHello(wire, &hello);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(hello.address, longest.address);
}

}  // namespace
}  // namespace abacus::runtime
