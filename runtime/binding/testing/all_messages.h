#ifndef ABACUS_RUNTIME_BINDING_TESTING_ALL_MESSAGES_H_
#define ABACUS_RUNTIME_BINDING_TESTING_ALL_MESSAGES_H_

// Every message of the protocol, for tests and fuzz targets that go through all of them.

#include <cstdint>

#include "runtime/binding/messages.h"
#include "runtime/migration/messages.h"

namespace abacus::runtime::testing {

// Calls visit.operator()<Message>(type, name, has_tail) for each type of frame.
template <typename Visit>
void ForEachMessage(Visit visit) {
  const auto invocation = [&visit]<typename Message>(MessageType type, const char* name,
                                                     bool has_tail = false) {
    visit.template operator()<Message>(static_cast<uint16_t>(type), name, has_tail);
  };
  invocation.template operator()<CallMessage>(MessageType::kCall, "call", true);
  invocation.template operator()<ReplyMessage>(MessageType::kReply, "reply", true);
  invocation.template operator()<RedirectMessage>(MessageType::kRedirect, "redirect");
  invocation.template operator()<CallStateMessage>(MessageType::kProbe, "probe");
  invocation.template operator()<CallStateMessage>(MessageType::kNotSeen, "not_seen");
  invocation.template operator()<CallStateMessage>(MessageType::kUnderWay, "under_way");
  invocation.template operator()<AckMessage>(MessageType::kAck, "ack");
  invocation.template operator()<ParkedMessage>(MessageType::kParked, "parked");
  invocation.template operator()<DestroyedMessage>(MessageType::kDestroyed, "destroyed");
  invocation.template operator()<DestroyedMessage>(MessageType::kDestroyedAck, "destroyed_ack");

  using Type = MigrationMessageType;
  const auto migration = [&visit]<typename Message>(Type type, const char* name) {
    visit.template operator()<Message>(static_cast<uint16_t>(type), name, false);
  };
  migration.template operator()<BeginMessage>(Type::kBegin, "begin");
  migration.template operator()<AnswerMessage>(Type::kBeginReply, "begin_reply");
  migration.template operator()<TransferMessage>(Type::kTransfer, "transfer");
  migration.template operator()<AnswerMessage>(Type::kRestored, "restored");
  migration.template operator()<CommitMessage>(Type::kCommit, "commit");
  migration.template operator()<CommitReplyMessage>(Type::kCommitReply, "commit_reply");
  migration.template operator()<MigrationIdMessage>(Type::kActivate, "activate");
  migration.template operator()<MigrationIdMessage>(Type::kActivated, "activated");
  migration.template operator()<MigrationIdMessage>(Type::kDiscard, "discard");
  migration.template operator()<MigrationIdMessage>(Type::kDiscarded, "discarded");
  migration.template operator()<MigrationIdMessage>(Type::kQuery, "query");
  migration.template operator()<AnswerMessage>(Type::kQueryReply, "query_reply");
  migration.template operator()<MigrationIdMessage>(Type::kClaim, "claim");
  migration.template operator()<MigrationIdMessage>(Type::kNotHeld, "not_held");
}

// The frame type under which a fuzzer's input goes to DedupTable::Load(), which reads peers' bytes.
inline constexpr uint16_t kDedupTableFrame = 0xd0d0;

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_BINDING_TESTING_ALL_MESSAGES_H_
