// Every message of the protocol from anywhere: two bytes of type, then a payload.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/binding/dedup_table.h"
#include "runtime/binding/testing/all_messages.h"
#include "runtime/object/testing/payload_bytes.h"

namespace abacus::runtime {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

template <typename T>
Payload Encoded(const T& value) {
  Writer writer;
  Encode(writer, value);
  return std::move(writer).Finish();
}

// What was accepted can be sent on, and says the same then.
template <typename Message>
void RequireSameWhenSentOn(uint16_t type, const Message& message) {
  const Frame sent = MakeFrame(static_cast<MessageType>(type), message);
  const absl::StatusOr<Message> read = ParseFrame<Message>(sent);
  Require(read.ok());
  const Payload again = Encoded(*read);
  Require(again.inline_bytes == sent.payload.inline_bytes);
  Require(again.blocks == sent.payload.blocks);
}

template <typename Message>
void Parse(const Frame& frame) {
  const absl::StatusOr<Message> whole = ParseFrame<Message>(frame);
  size_t tail = 0;
  const absl::StatusOr<Message> head = ParseFrame<Message>(frame, &tail);
  if (!head.ok()) {
    Require(KindOf(head.status()) == ErrorKind::kBadFrame);
    Require(KindOf(whole.status()) == ErrorKind::kBadFrame);
    return;
  }
  Require(tail <= frame.payload.inline_bytes.size());
  Require(whole.ok() || KindOf(whole.status()) == ErrorKind::kBadFrame);
  RequireSameWhenSentOn(frame.type, *head);
  if constexpr (std::is_same_v<Message, ReplyMessage>) {
    Require(head->status().ok() == (head->code == 0));
  }
}

Payload Saved(const DedupTable& table) {
  Writer writer;
  table.Save(writer);
  return std::move(writer).Finish();
}

void LoadDedupTable(const Payload& payload) {
  Reader reader(payload);
  DedupTable table;
  table.Load(reader);
  if (!reader.ok()) return;
  Require(table.result_bytes() <= payload.bytes());
  const Payload saved = Saved(table);
  Reader again(saved);
  DedupTable copy;
  copy.Load(again);
  Require(again.ok() && again.AtEnd());
  Require(Saved(copy).inline_bytes == saved.inline_bytes);
}

}  // namespace
}  // namespace abacus::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace abacus::runtime;  // NOLINT(google-build-using-namespace)
  Frame frame;
  if (size < sizeof frame.type) return 0;
  std::memcpy(&frame.type, data, sizeof frame.type);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  frame.payload = testing::PayloadFromBytes(bytes.substr(sizeof frame.type));
  if (frame.type == testing::kDedupTableFrame) LoadDedupTable(frame.payload);
  testing::ForEachMessage([&frame]<typename Message>(uint16_t type, const char*, bool) {
    if (type == frame.type) Parse<Message>(frame);
  });
  return 0;
}
