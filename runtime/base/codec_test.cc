#include "runtime/base/codec.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/wrappers.pb.h>

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

enum class Colour : uint16_t { kRed = 1, kBlue = 0xbeef };

struct Empty {
  bool operator==(const Empty&) const = default;
  ABACUS_FIELDS()
};

struct Point {
  int32_t x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
  ABACUS_FIELDS(x, y)
};

// One member of every kind that can be sent.
struct Everything {
  bool flag = false;
  int8_t i8 = 0;
  uint16_t u16 = 0;
  int32_t i32 = 0;
  uint64_t u64 = 0;
  float f = 0;
  double d = 0;
  Colour colour = Colour::kRed;
  std::string text;
  Block block;
  absl::Duration duration;
  absl::Time time;
  NodeInstance node;
  Rid rid;
  ActivityId activity;
  CallId call;
  Point point;
  Empty empty;
  std::optional<std::string> maybe;
  std::pair<uint8_t, std::string> pair;
  std::tuple<int64_t, Point, bool> tuple;
  std::array<int16_t, 3> array{};
  std::vector<uint32_t> numbers;
  std::vector<bool> flags;
  std::vector<Block> blocks;
  std::vector<std::vector<std::optional<Point>>> nested;
  std::map<std::string, std::vector<std::pair<int32_t, Block>>> map;
  bool operator==(const Everything&) const = default;
  ABACUS_FIELDS(flag, i8, u16, i32, u64, f, d, colour, text, block, duration, time, node, rid,
                activity, call, point, empty, maybe, pair, tuple, array, numbers, flags, blocks,
                nested, map)
};

// Random values, of which small and empty ones are as likely as large ones.
class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  uint64_t Number() { return random_() >> (random_() % 64); }
  size_t Size() { return random_() % (size_t{1} << (random_() % 5)); }
  std::string Text(size_t size) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random_());
    return text;
  }
  Block MakeBlock() {
    // Both sides of kBlockInlineMax, and the border itself.
    constexpr size_t kSizes[] = {0, 1, 100, kBlockInlineMax - 1, kBlockInlineMax, 3000};
    return Block::FromString(Text(kSizes[random_() % std::size(kSizes)]));
  }
  Point MakePoint() { return {static_cast<int32_t>(Number()), static_cast<double>(Number()) / 3}; }
  NodeInstance MakeNode() {
    return {static_cast<NodeId>(Number()), static_cast<uint32_t>(Number())};
  }

  Everything Make() {
    Everything e;
    e.flag = random_() % 2 == 0;
    e.i8 = static_cast<int8_t>(random_());
    e.u16 = static_cast<uint16_t>(random_());
    e.i32 = static_cast<int32_t>(Number());
    e.u64 = Number();
    e.f = static_cast<float>(Number()) / 7;
    e.d = -static_cast<double>(Number()) / 7;
    e.colour = random_() % 2 == 0 ? Colour::kRed : Colour::kBlue;
    e.text = Text(Size());
    e.block = MakeBlock();
    e.duration = absl::Nanoseconds(static_cast<int64_t>(random_()));
    e.time = absl::FromUnixNanos(static_cast<int64_t>(random_()));
    e.node = MakeNode();
    e.rid = {MakeNode(), Number()};
    e.activity = {MakeNode(), Number()};
    e.call = {e.activity, static_cast<uint32_t>(Number()), Number()};
    e.point = MakePoint();
    if (random_() % 2 == 0) e.maybe = Text(Size());
    e.pair = {static_cast<uint8_t>(random_()), Text(Size())};
    e.tuple = {static_cast<int64_t>(Number()), MakePoint(), random_() % 2 == 0};
    for (int16_t& n : e.array) n = static_cast<int16_t>(random_());
    for (size_t i = Size(); i > 0; --i) e.numbers.push_back(static_cast<uint32_t>(Number()));
    for (size_t i = Size(); i > 0; --i) e.flags.push_back(random_() % 2 == 0);
    for (size_t i = Size(); i > 0; --i) e.blocks.push_back(MakeBlock());
    for (size_t i = Size(); i > 0; --i) {
      auto& inner = e.nested.emplace_back();
      for (size_t j = Size(); j > 0; --j) {
        inner.push_back(random_() % 2 == 0 ? std::optional(MakePoint()) : std::nullopt);
      }
    }
    for (size_t i = Size(); i > 0; --i) {
      auto& list = e.map[Text(Size())];
      for (size_t j = Size(); j > 0; --j) list.emplace_back(Number(), MakeBlock());
    }
    return e;
  }

 private:
  std::mt19937_64 random_;
};

template <typename T>
Payload Encoded(const T& value) {
  Writer writer;
  Encode(writer, value);
  EXPECT_EQ(writer.bytes(), Payload(Writer(writer).Finish()).bytes());
  return std::move(writer).Finish();
}

// Decodes a whole payload; the error where anything is wrong or left over.
template <typename T>
absl::StatusOr<T> WholeOf(const Payload& payload) {
  Reader reader(payload);
  T value{};
  Decode(reader, value);
  if (reader.ok() && !reader.AtEnd()) return absl::OutOfRangeError("left over");
  if (!reader.ok()) return reader.status();
  return value;
}

template <typename T>
void ExpectRoundTrip(const T& value) {
  const absl::StatusOr<T> read = WholeOf<T>(Encoded(value));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == value) << Codec<T>::Name();
}

TEST(CodecTest, RandomNestedValuesComeBackEqual) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    ExpectRoundTrip(Maker(seed).Make());
    if (HasFailure()) return;
  }
}

TEST(CodecTest, EveryTruncationFailsCleanly) {
  size_t cuts = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const Payload whole = Encoded(Maker(seed).Make());
    for (size_t size = 0; size < whole.inline_bytes.size(); ++size, ++cuts) {
      const Payload cut{whole.inline_bytes.substr(0, size), whole.blocks};
      const absl::Status status = WholeOf<Everything>(cut).status();
      ASSERT_EQ(KindOf(status), ErrorKind::kBadArguments) << "cut to " << size << ": " << status;
    }
    for (size_t count = 0; count < whole.blocks.size(); ++count, ++cuts) {
      Payload cut = whole;
      cut.blocks.resize(count);
      ASSERT_EQ(KindOf(WholeOf<Everything>(cut).status()), ErrorKind::kBadArguments) << count;
    }
  }
  EXPECT_GT(cuts, 10000u);
}

TEST(CodecTest, DamagedBytesNeverDoMoreThanFail) {
  std::mt19937_64 random(1);
  size_t failed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Payload whole = Encoded(Maker(seed).Make());
    for (int round = 0; round < 300; ++round) {
      Payload damaged = whole;
      char& byte = damaged.inline_bytes[random() % damaged.inline_bytes.size()];
      byte = static_cast<char>(byte ^ (1 << (random() % 8)));
      failed += WholeOf<Everything>(damaged).ok() ? 0 : 1;
    }
  }
  // Most flips hit a number and only change a value; those that hit a count must be noticed.
  EXPECT_GT(failed, 0u);
}

TEST(CodecTest, ExtremeNumbersComeBack) {
  ExpectRoundTrip(std::numeric_limits<int64_t>::min());
  ExpectRoundTrip(std::numeric_limits<int64_t>::max());
  ExpectRoundTrip(std::numeric_limits<uint64_t>::max());
  ExpectRoundTrip(std::numeric_limits<double>::infinity());
  ExpectRoundTrip(std::numeric_limits<double>::denorm_min());
  ExpectRoundTrip(-0.0f);
  ExpectRoundTrip(char{'\x80'});
  ExpectRoundTrip(std::string("\0\xff", 2));
}

TEST(CodecTest, NumbersLieLittleEndianAndStringsAreCounted) {
  EXPECT_EQ(Encoded(uint32_t{0x01020304}).inline_bytes, "\x04\x03\x02\x01");
  EXPECT_EQ(Encoded(true).inline_bytes, "\x01");
  EXPECT_EQ(Encoded(Colour::kBlue).inline_bytes, "\xef\xbe");
  EXPECT_EQ(Encoded(std::string("ab")).inline_bytes, std::string("\2\0\0\0\0\0\0\0ab", 10));
}

TEST(CodecTest, DurationsAndTimesWithoutEndComeBack) {
  ExpectRoundTrip(absl::InfiniteDuration());
  ExpectRoundTrip(-absl::InfiniteDuration());
  ExpectRoundTrip(absl::InfiniteFuture());
  ExpectRoundTrip(absl::InfinitePast());
  ExpectRoundTrip(absl::ZeroDuration());
  ExpectRoundTrip(absl::UnixEpoch());
}

TEST(CodecTest, LargeBlockTravelsBesideAndSmallOneInside) {
  const Block large = Block::FromString(std::string(kBlockInlineMax, 'l'));
  const Block small = Block::FromString(std::string(kBlockInlineMax - 1, 's'));
  const Payload payload = Encoded(std::pair(large, small));
  ASSERT_EQ(payload.blocks.size(), 1u);
  EXPECT_EQ(payload.blocks[0].data(), large.data());
  EXPECT_LT(payload.inline_bytes.size(), small.size() + 20);

  Reader reader(payload);
  const auto read = Decoded<std::pair<Block, Block>>(reader);
  EXPECT_EQ(read.first.data(), large.data()) << "the bytes were copied";
  EXPECT_EQ(read.second, small);
}

TEST(CodecTest, BlockThatDidNotComeFails) {
  Payload payload = Encoded(Block::FromString(std::string(5000, 'x')));
  payload.blocks.clear();
  EXPECT_EQ(KindOf(WholeOf<Block>(payload).status()), ErrorKind::kBadArguments);
  Payload unknown = Encoded(Block::CopyOf("abc"));
  unknown.inline_bytes[0] = 2;  // neither inside nor beside
  EXPECT_EQ(KindOf(WholeOf<Block>(unknown).status()), ErrorKind::kBadArguments);
}

TEST(CodecTest, ViewsPointIntoThePayload) {
  const Payload payload = Encoded(std::string("some longer text than fits into a short string"));
  Reader reader(payload);
  const auto view = Decoded<std::string_view>(reader);
  EXPECT_EQ(view, "some longer text than fits into a short string");
  EXPECT_GE(view.data(), payload.inline_bytes.data());
  EXPECT_LE(view.data() + view.size(), payload.inline_bytes.data() + payload.inline_bytes.size());
  EXPECT_EQ(Encoded(std::string_view("ab")).inline_bytes, Encoded(std::string("ab")).inline_bytes);
}

// A count that no memory holds must be refused before memory is asked for.
template <typename T>
void ExpectHugeCountsRefused() {
  for (const uint64_t count :
       {std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max() / 8 + 2,
        uint64_t{1} << 61, uint64_t{1} << 32, uint64_t{1000}, uint64_t{41}}) {
    Writer writer;
    writer.PutNumber(count);
    for (int i = 0; i < 40; ++i) writer.PutNumber(uint8_t{0});
    const absl::Status status = WholeOf<T>(std::move(writer).Finish()).status();
    EXPECT_EQ(KindOf(status), ErrorKind::kBadArguments) << Codec<T>::Name() << " of " << count;
  }
}

TEST(CodecTest, HugeCountsAreRefused) {
  ExpectHugeCountsRefused<std::string>();
  ExpectHugeCountsRefused<std::string_view>();
  ExpectHugeCountsRefused<std::vector<uint8_t>>();
  ExpectHugeCountsRefused<std::vector<uint64_t>>();
  ExpectHugeCountsRefused<std::vector<bool>>();
  ExpectHugeCountsRefused<std::vector<std::string>>();
  ExpectHugeCountsRefused<std::vector<std::vector<uint64_t>>>();
  ExpectHugeCountsRefused<std::vector<Everything>>();
  ExpectHugeCountsRefused<std::map<uint8_t, uint8_t>>();
  ExpectHugeCountsRefused<google::protobuf::StringValue>();
}

TEST(CodecTest, EmptySequencesOfNumbersComeBack) {
  ExpectRoundTrip(std::vector<uint64_t>());
  ExpectRoundTrip(std::vector<bool>());
  ExpectRoundTrip(std::map<int, int>());
  ExpectRoundTrip(std::string());
  ExpectRoundTrip(Block());
}

TEST(CodecTest, DecodingReplacesWhatWasThere) {
  const Payload none = Encoded(
      std::tuple<std::vector<std::string>, std::map<int, int>, std::optional<int>, std::string>());
  Reader reader(none);
  std::tuple<std::vector<std::string>, std::map<int, int>, std::optional<int>, std::string> value(
      {"old"}, {{1, 1}}, 1, "old");
  Decode(reader, value);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(value, decltype(value)());
}

TEST(CodecTest, ProtobufMessagesComeBack) {
  google::protobuf::Struct message;
  (*message.mutable_fields())["pi"].set_number_value(3.14);
  (*message.mutable_fields())["list"].mutable_list_value()->add_values()->set_string_value("x");
  const auto read = WholeOf<google::protobuf::Struct>(Encoded(message));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->DebugString(), message.DebugString());  // sorts maps, unlike the bytes

  std::map<std::string, google::protobuf::Int64Value> inside;
  inside["seven"].set_value(7);
  const auto map = WholeOf<decltype(inside)>(Encoded(inside));
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->at("seven").value(), 7);
}

TEST(CodecTest, ProtobufBytesThatDoNotParseFail) {
  const absl::Status status =
      WholeOf<google::protobuf::Struct>(Encoded(std::string("\xff\xff\xff\xff"))).status();
  EXPECT_EQ(KindOf(status), ErrorKind::kBadArguments);
}

TEST(ReaderTest, FirstMistakeStaysAndLaterValuesAreEmpty) {
  const Payload payload = Encoded(uint16_t{5});
  Reader reader(payload);
  EXPECT_EQ(reader.TakeNumber<uint32_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  const std::string first(ToStd(reader.status().message()));
  EXPECT_EQ(reader.TakeNumber<uint8_t>(), 0u) << "read on behind a mistake";
  EXPECT_EQ(reader.TakeView(), "");
  EXPECT_TRUE(reader.TakeBlock().empty());
  EXPECT_EQ(reader.TakeCount(), 0u);
  EXPECT_FALSE((Decoded<std::optional<int>>(reader).has_value()));
  reader.Fail("something else");
  EXPECT_EQ(ToStd(reader.status().message()), first);
  EXPECT_NE(first.find("at byte 0 of 2"), std::string::npos) << first;
}

TEST(ReaderTest, StatusIsOkUntilAMistake) {
  const Payload payload = Encoded(uint16_t{5});
  Reader reader(payload);
  EXPECT_FALSE(reader.AtEnd());
  EXPECT_EQ(reader.TakeNumber<uint16_t>(), 5u);
  EXPECT_TRUE(reader.status().ok());
  EXPECT_TRUE(reader.AtEnd());
}

TEST(ReaderTest, UnusedBlockIsLeftOver) {
  Payload payload = Encoded(uint16_t{5});
  payload.blocks.push_back(Block::CopyOf("x"));
  Reader reader(payload);
  reader.TakeNumber<uint16_t>();
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_FALSE(reader.AtEnd());
}

TEST(ReaderTest, GoesOnBehindWhatSomebodyElseRead) {
  Writer writer;
  Encode(writer, uint32_t{1});
  const Block block = Block::FromString(std::string(2000, 'b'));
  writer.PutTail(Encoded(std::pair(std::string("tail"), block)));
  const Payload payload = std::move(writer).Finish();
  Reader head(payload);
  EXPECT_EQ(head.TakeNumber<uint32_t>(), 1u);
  Reader tail(payload, nullptr, head.position());
  EXPECT_EQ(Decoded<std::string>(tail), "tail");
  EXPECT_EQ(Decoded<Block>(tail).data(), block.data());
  EXPECT_TRUE(tail.AtEnd());
}

TEST(CodecTest, BytesCountsThePayload) {
  EXPECT_EQ(Codec<std::string>::Bytes("four"), 4u);
  EXPECT_EQ(Codec<Block>::Bytes(Block::Allocate(5000)), 5000u);
  EXPECT_EQ(Codec<std::vector<uint32_t>>::Bytes({1, 2, 3}), 12u);
  EXPECT_EQ((Codec<std::vector<std::string>>::Bytes({"ab", "c"})), 3u);
  EXPECT_EQ((Codec<std::map<uint8_t, std::string>>::Bytes({{1, "ab"}, {2, "c"}})), 5u);
  EXPECT_EQ((Codec<std::pair<uint8_t, std::string>>::Bytes({1, "abc"})), 4u);
  EXPECT_EQ((Codec<std::optional<uint32_t>>::Bytes(std::nullopt)), 0u);
  EXPECT_EQ((Codec<std::array<uint16_t, 3>>::Bytes({})), 6u);
  EXPECT_EQ(Codec<Point>::Bytes({}), 12u);
  google::protobuf::StringValue message;
  message.set_value("four");
  EXPECT_EQ(Codec<google::protobuf::StringValue>::Bytes(message), message.ByteSizeLong());
}

TEST(CodecTest, NamesTellTypesApart) {
  std::map<std::string, int> seen;
  for (const std::string& name : {
           Codec<bool>::Name(),
           Codec<int8_t>::Name(),
           Codec<int32_t>::Name(),
           Codec<uint32_t>::Name(),
           Codec<int64_t>::Name(),
           Codec<float>::Name(),
           Codec<double>::Name(),
           Codec<Colour>::Name(),
           Codec<std::string>::Name(),
           Codec<Block>::Name(),
           Codec<absl::Duration>::Name(),
           Codec<absl::Time>::Name(),
           Codec<NodeInstance>::Name(),
           Codec<Rid>::Name(),
           Codec<ActivityId>::Name(),
           Codec<CallId>::Name(),
           Codec<Point>::Name(),
           Codec<Empty>::Name(),
           Codec<std::optional<int32_t>>::Name(),
           Codec<std::vector<int32_t>>::Name(),
           Codec<std::vector<int64_t>>::Name(),
           Codec<std::array<int32_t, 2>>::Name(),
           Codec<std::array<int32_t, 3>>::Name(),
           Codec<std::map<int32_t, bool>>::Name(),
           Codec<std::pair<int32_t, bool>>::Name(),
           Codec<std::tuple<bool, int32_t>>::Name(),
           Codec<google::protobuf::Struct>::Name(),
           Codec<google::protobuf::Value>::Name(),
       }) {
    EXPECT_EQ(seen[name]++, 0) << name << " names two types";
  }
  EXPECT_EQ(Codec<std::string_view>::Name(), Codec<std::string>::Name());
}

}  // namespace
}  // namespace abacus::runtime
