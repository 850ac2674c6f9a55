#ifndef ABACUS_RUNTIME_MIGRATION_MESSAGES_H_
#define ABACUS_RUNTIME_MIGRATION_MESSAGES_H_

// The messages of migration. Source, target and home may be any of one, two or three nodes; a
// message to oneself takes the same way.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/codec.h"
#include "runtime/binding/location_table.h"
#include "runtime/binding/messages.h"

namespace abacus::runtime {

template <>
struct Codec<MigrationId> {
  static void Encode(Writer& w, const MigrationId& v) {
    runtime::Encode(w, v.source);
    w.PutNumber(v.local);
  }
  static void Decode(Reader& r, MigrationId& v) {
    runtime::Decode(r, v.source);
    v.local = r.TakeNumber<uint64_t>();
  }
  static size_t Bytes(const MigrationId&) { return 16; }
  static std::string Name() { return "M"; }
};

enum class MigrationMessageType : uint16_t {
  kBegin = static_cast<uint16_t>(MessageType::kFirstOfMigration),  // source -> home: I mean to
  kBeginReply,
  kTransfer,  // source -> target: the state
  kRestored,  // target -> source: restored, not admitting; or why not
  kCommit,    // source or target -> home: change the rows
  kCommitReply,
  kActivate,  // source -> target: it is yours
  kActivated,
  kDiscard,  // source -> target: it stays with me
  kDiscarded,
  kQuery,  // source -> target, the home being dead: is it yours?
  kQueryReply,
  kClaim,    // home -> target, the source being dead: do you have it?
  kNotHeld,  // target -> home: no, and I never will
};

struct BeginMessage {
  MigrationId id;
  NodeInstance target;
  std::vector<Rid> rids;
  std::vector<uint64_t> epochs;  // now; the target will have each plus one
  ABACUS_FIELDS(id, target, rids, epochs)
};

// kBeginReply, kRestored, kQueryReply: yes, or no and why.
struct AnswerMessage {
  MigrationId id;
  bool yes = false;
  std::string why_not;
  bool no_room = false;  // why not: what the objects bring along does not fit there
  ABACUS_FIELDS(id, yes, why_not, no_room)
};

// One object's state on its way.
struct SavedObject {
  Rid rid;
  uint64_t epoch = 0;  // at the source
  std::string class_name;
  std::string checkpoint_inline;
  std::vector<Block> checkpoint_blocks;
  std::string dedup_inline;
  std::vector<Block> dedup_blocks;
  ABACUS_FIELDS(rid, epoch, class_name, checkpoint_inline, checkpoint_blocks, dedup_inline,
                dedup_blocks)
};

struct TransferMessage {
  MigrationId id;
  uint64_t oldest = 0;  // the source has ended all its moves whose MigrationId::local is below this
  NodeInstance home;
  std::vector<SavedObject> objects;
  ABACUS_FIELDS(id, oldest, home, objects)
};

struct CommitMessage {
  enum class Verb : uint8_t {
    kToTarget,  // from the source: the object goes; or from the target, the source being dead
    kToSource,  // from the source: it stays; later requests for the target are to be refused
  };
  MigrationId id;
  Verb verb = Verb::kToTarget;
  NodeInstance target;
  std::vector<Rid> rids;
  std::vector<uint64_t> epochs;
  ABACUS_FIELDS(id, verb, target, rids, epochs)
};

struct CommitReplyMessage {
  enum class Outcome : uint8_t {
    kAtTarget,  // the rows say: at the target, epoch plus one
    kAtSource,  // the rows say: at the source, epoch plus one
    kRefused,   // the rows say something else: neither copy of this migration may serve
  };
  MigrationId id;
  Outcome outcome = Outcome::kRefused;
  ABACUS_FIELDS(id, outcome)
};

// kActivate, kActivated, kDiscard, kDiscarded, kQuery, kClaim, kNotHeld.
struct MigrationIdMessage {
  MigrationId id;
  ABACUS_FIELDS(id)
};

template <typename Message>
Frame MakeFrame(MigrationMessageType type, const Message& message) {
  return MakeFrame(static_cast<MessageType>(type), message);
}

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_MIGRATION_MESSAGES_H_
