#include "runtime/binding/messages.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/binding/dedup_table.h"
#include "runtime/binding/testing/all_messages.h"
#include "runtime/object/testing/payload_bytes.h"

namespace abacus::runtime {
namespace {

// Fills any message with random values, by its list of fields.
class Filler {
 public:
  explicit Filler(uint64_t seed) : random_(seed) {}

  template <typename T>
  void Fill(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = random_() % 2 == 0;
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = static_cast<T>(random_() >> (random_() % 64));
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(random_() % 3);
    } else if constexpr (internal::HasFields<T>) {
      std::apply([&](auto&... field) { (Fill(field), ...); }, value.AbacusFields());
    } else {
      FillOther(value);
    }
  }

 private:
  void FillOther(std::string& value) { value.assign(random_() % 10, 's'); }
  void FillOther(Block& value) {
    value = Block::FromString(std::string(random_() % 2 == 0 ? 20 : 2000, 'b'));
  }
  void FillOther(NodeInstance& value) {
    Fill(value.node);
    Fill(value.incarnation);
  }
  void FillOther(Rid& value) {
    Fill(value.home);
    Fill(value.local);
  }
  void FillOther(ActivityId& value) {
    Fill(value.origin);
    Fill(value.local);
  }
  void FillOther(CallId& value) {
    Fill(value.activity);
    Fill(value.level);
    Fill(value.sequence);
  }
  void FillOther(ForkPoint& value) {
    Fill(value.parent);
    Fill(value.level);
  }
  void FillOther(MigrationId& value) {
    Fill(value.source);
    Fill(value.local);
  }
  template <typename T>
  void FillOther(std::vector<T>& value) {
    value.resize(random_() % 4);
    for (T& element : value) Fill(element);
  }

  std::mt19937_64 random_;
};

template <typename Message>
Payload Encoded(const Message& message) {
  Writer writer;
  Encode(writer, message);
  return std::move(writer).Finish();
}

TEST(MessagesTest, EveryMessageComesBackFromItsFrame) {
  std::set<uint16_t> types;
  testing::ForEachMessage([&]<typename Message>(uint16_t type, const char* name, bool) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(types.insert(type).second) << "two messages of one type";
    for (uint64_t seed = 0; seed < 50; ++seed) {
      Message message;
      Filler(seed).Fill(message);
      const Frame frame = MakeFrame(static_cast<MessageType>(type), message);
      EXPECT_EQ(frame.type, type);
      const absl::StatusOr<Message> read = ParseFrame<Message>(frame);
      ASSERT_TRUE(read.ok()) << read.status();
      const Payload again = Encoded(*read);
      ASSERT_EQ(again.inline_bytes, frame.payload.inline_bytes);
      ASSERT_EQ(again.blocks, frame.payload.blocks);
    }
  });
  EXPECT_EQ(types.size(), 24u) << "a message was added: does all_messages.h have it?";
}

TEST(MessagesTest, FieldsComeBackInTheirPlaces) {
  CallMessage call;
  call.rid = {{1, 2}, 3};
  call.id = {{{4, 5}, 6}, 7, 8};
  call.root = {{9, 10}, 11};
  call.method = 12;
  call.issue = 13;
  call.hint_epoch = 14;
  call.dead_host = {15, 16};
  call.acked = {{{{17, 18}, 19}, {{{20, 21}, 22}, 23, 24}}};
  const absl::StatusOr<CallMessage> read =
      ParseFrame<CallMessage>(MakeFrame(MessageType::kCall, call));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rid, call.rid);
  EXPECT_EQ(read->id, call.id);
  EXPECT_EQ(read->root, call.root);
  EXPECT_EQ(read->method, 12u);
  EXPECT_EQ(read->issue, 13u);
  EXPECT_EQ(read->hint_epoch, 14u);
  EXPECT_EQ(read->dead_host, call.dead_host);
  ASSERT_EQ(read->acked.size(), 1u);
  EXPECT_EQ(read->acked[0].rid, call.acked[0].rid);
  EXPECT_EQ(read->acked[0].id, call.acked[0].id);
}

TEST(MessagesTest, EveryCutAndEveryByteTooManyIsABadFrame) {
  testing::ForEachMessage([]<typename Message>(uint16_t type, const char* name, bool) {
    SCOPED_TRACE(name);
    Message message;
    Filler(3).Fill(message);
    const Frame whole = MakeFrame(static_cast<MessageType>(type), message);
    for (size_t size = 0; size < whole.payload.inline_bytes.size(); ++size) {
      Frame cut = whole;
      cut.payload.inline_bytes.resize(size);
      ASSERT_EQ(KindOf(ParseFrame<Message>(cut).status()), ErrorKind::kBadFrame) << size;
      size_t tail = 0;
      ASSERT_EQ(KindOf(ParseFrame<Message>(cut, &tail).status()), ErrorKind::kBadFrame) << size;
    }
    Frame longer = whole;
    longer.payload.inline_bytes.push_back('x');
    EXPECT_EQ(KindOf(ParseFrame<Message>(longer).status()), ErrorKind::kBadFrame);
    Frame with_block = whole;
    with_block.payload.blocks.push_back(Block::CopyOf("x"));
    EXPECT_EQ(KindOf(ParseFrame<Message>(with_block).status()), ErrorKind::kBadFrame);
  });
}

TEST(MessagesTest, TailStartsWhereTheMessageEnds) {
  const Block block = Block::FromString(std::string(5000, 'b'));
  const Payload arguments = Encoded(std::pair(std::string("first"), block));
  ReplyMessage reply;
  Filler(1).Fill(reply);
  const Frame frame = MakeFrame(MessageType::kReply, reply, arguments);
  size_t tail = 0;
  const absl::StatusOr<ReplyMessage> read = ParseFrame<ReplyMessage>(frame, &tail);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rid, reply.rid);
  EXPECT_EQ(tail, Encoded(reply).inline_bytes.size());
  Reader reader(frame.payload, nullptr, tail);
  EXPECT_EQ(Decoded<std::string>(reader), "first");
  EXPECT_EQ(Decoded<Block>(reader).data(), block.data()) << "bulk data was copied";
  EXPECT_TRUE(reader.AtEnd());

  const Frame without = MakeFrame(MessageType::kReply, reply);
  ASSERT_TRUE(ParseFrame<ReplyMessage>(without, &tail).ok());
  EXPECT_EQ(tail, without.payload.inline_bytes.size());
}

absl::Status ThroughAReply(const absl::Status& status) {
  ReplyMessage reply;
  reply.SetStatus(status);
  const absl::StatusOr<ReplyMessage> read =
      ParseFrame<ReplyMessage>(MakeFrame(MessageType::kReply, reply));
  EXPECT_TRUE(read.ok()) << read.status();
  return read->status();
}

TEST(ReplyMessageTest, StatusesOfEveryCodeComeBack) {
  EXPECT_TRUE(ThroughAReply(absl::OkStatus()).ok());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what happened");
    EXPECT_EQ(ThroughAReply(status), status);
  }
}

TEST(ReplyMessageTest, KindsComeBackAlsoOverSeveralNodes) {
  for (uint8_t kind = 1; kind <= static_cast<uint8_t>(ErrorKind::kNodeFenced); ++kind) {
    const absl::Status status = MakeError(static_cast<ErrorKind>(kind), "what happened");
    EXPECT_EQ(ThroughAReply(ThroughAReply(status)), status);
    EXPECT_EQ(KindOf(ThroughAReply(status)), static_cast<ErrorKind>(kind));
  }
}

TEST(ReplyMessageTest, CodesAndKindsOfANewerBuildAreErrorsAllTheSame) {
  ReplyMessage reply;
  reply.message = "from the future";
  for (const uint32_t code : {17u, 1000u, ~0u}) {
    reply.code = code;
    EXPECT_EQ(reply.status(), absl::UnknownError("from the future"));
  }
  reply.code = 5;
  for (const int kind : {17, 18, 200, 255}) {
    reply.kind = static_cast<ErrorKind>(kind);
    EXPECT_FALSE(reply.status().ok());
    EXPECT_EQ(KindOf(reply.status()), ErrorKind::kNone);
    EXPECT_EQ(ToStd(reply.status().message()), "from the future");
  }
}

// -- the fuzz target's corpus ---------------------------------------------------------------------

// Inputs of binding/messages_fuzz.cc, below 1 KiB each: two bytes of type, then a payload.
std::map<std::string, std::string> Corpus() {
  std::map<std::string, std::string> corpus;
  const auto add = [&](const std::string& name, uint16_t type, const Payload& payload) {
    corpus[name] = std::string(reinterpret_cast<const char*>(&type), sizeof type) +
                   testing::BytesFromPayload(payload);
  };
  testing::ForEachMessage([&]<typename Message>(uint16_t type, const char* name, bool has_tail) {
    Message message;
    Filler(5).Fill(message);
    if constexpr (std::is_same_v<Message, TransferMessage>) {
      message.objects.assign(2, {});
      for (SavedObject& object : message.objects) {
        Filler(6).Fill(object);
        object.checkpoint_blocks = {Block::CopyOf("inside")};
        object.dedup_blocks = {Block(), Block::CopyOf("inside too")};
      }
    }
    Frame frame = MakeFrame(static_cast<MessageType>(type), message);
    if (has_tail)
      frame = MakeFrame(static_cast<MessageType>(type), message, Encoded(std::string("arguments")));
    add(name, type, frame.payload);
  });

  TransferMessage beside;
  beside.objects.resize(1);
  beside.objects[0].checkpoint_blocks = {Block::Allocate(kBlockInlineMax)};
  Payload transfer = Encoded(beside);
  // A writer puts only large blocks beside; a reader takes any.
  transfer.blocks = {Block::CopyOf("beside")};
  add("transfer_beside", static_cast<uint16_t>(MigrationMessageType::kTransfer), transfer);

  DedupTable table;
  DedupLimits limits{.entries_max = 4, .result_bytes_max = 100};
  DedupCounters counters;
  for (uint64_t i = 1; i <= 6; ++i) {
    const CallId id{{{1, 2}, i}, 0, i};
    table.Begin(id, {{1, 2}, i}, limits, counters);
    table.Finish(id, ReplyMessage(), {"result", {}}, limits, counters);
  }
  table.Ack({{{1, 2}, 6}, 0, 6});
  Writer writer;
  table.Save(writer);
  add("dedup_table", testing::kDedupTableFrame, std::move(writer).Finish());
  return corpus;
}

TEST(MessagesCorpusTest, HoldsWhatThisBuildSends) {
  const std::filesystem::path folder =
      std::filesystem::path(ABACUS_SOURCE_DIR) / "runtime/binding/corpus/messages";
  const bool write = std::getenv("ABACUS_WRITE_CORPUS") != nullptr;
  for (const auto& [name, bytes] : Corpus()) {
    EXPECT_LT(bytes.size(), 1024u) << name;
    if (write) {
      std::filesystem::create_directories(folder);
      std::ofstream(folder / name, std::ios::binary) << bytes;
    }
    std::ifstream file(folder / name, std::ios::binary);
    const std::string read((std::istreambuf_iterator<char>(file)), {});
    EXPECT_TRUE(read == bytes) << name << ": ABACUS_WRITE_CORPUS=1 in the environment of this test "
                               << "writes the corpus anew";
  }
}

}  // namespace
}  // namespace abacus::runtime
