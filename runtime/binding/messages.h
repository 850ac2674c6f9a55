#ifndef ABACUS_RUNTIME_BINDING_MESSAGES_H_
#define ABACUS_RUNTIME_BINDING_MESSAGES_H_

// The messages of invocation. Each is a frame whose type is a MessageType and whose payload is the
// struct's fields in order; arguments and results follow as the tail of the payload, undecoded.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/codec.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"
#include "runtime/transport/transport.h"

namespace abacus::runtime {

enum class MessageType : uint16_t {
  // Invocation: caller to callee, and back.
  kCall = 1,
  kReply = 2,
  kRedirect = 3,   // the object is not here
  kProbe = 4,      // has this call come, and what of it?
  kNotSeen = 5,    // answer to a probe: send it (again)
  kUnderWay = 6,   // answer to a probe: it runs or is parked
  kAck = 7,        // results that need not be kept any longer
  kParked = 8,     // the call waits behind an object set that is being quiesced
  kDestroyed = 9,  // host to home: the object is no more
  kDestroyedAck = 10,
  // Migration: see runtime/migration/messages.h.
  kFirstOfMigration = 32,
};

// A call whose result the caller has.
struct AckedCall {
  Rid rid;
  CallId id;
  ABACUS_FIELDS(rid, id)
};

struct CallMessage {
  Rid rid;
  CallId id;
  ActivityId root;
  uint32_t method = 0;
  uint64_t issue = 0;       // number of this call among those of its sender
  uint64_t hint_epoch = 0;  // the epoch under which the caller believes the object to be here
  NodeInstance dead_host;   // where the call had been sent before that process died
  std::vector<AckedCall> acked;
  Lineage lineage;  // of the activity, where it is a branch
  ABACUS_FIELDS(rid, id, root, method, issue, hint_epoch, dead_host, acked, lineage)
};

// How long the callee had the call, and what it did meanwhile. Durations only: clocks of two nodes
// are never compared. The caller's wait minus `total_ns` is what the network of this edge took.
struct Residence {
  uint64_t total_ns = 0;
  uint64_t busy_ns = 0;
  uint64_t ready_ns = 0;
  uint64_t below_ns = 0;  // waiting for calls to further nodes
  ABACUS_FIELDS(total_ns, busy_ns, ready_ns, below_ns)
};

struct ReplyMessage {
  Rid rid;
  CallId id;
  uint64_t epoch = 0;          // under which the object is where the reply comes from
  uint64_t next_sequence = 0;  // the activity's counter after everything that the call did
  Residence residence;
  uint32_t code = 0;  // absl::StatusCode
  ErrorKind kind = ErrorKind::kNone;
  std::string message;
  ABACUS_FIELDS(rid, id, epoch, next_sequence, residence, code, kind, message)

  void SetStatus(const absl::Status& status);
  absl::Status status() const;
};

struct RedirectMessage {
  Rid rid;
  CallId id;
  NodeInstance moved_to;  // not valid: "ask home"
  uint64_t epoch = 0;
  ABACUS_FIELDS(rid, id, moved_to, epoch)
};

// kProbe, kNotSeen, kUnderWay.
struct CallStateMessage {
  Rid rid;
  CallId id;
  ABACUS_FIELDS(rid, id)
};

struct AckMessage {
  std::vector<AckedCall> acked;
  ABACUS_FIELDS(acked)
};

struct ParkedMessage {
  Rid rid;
  CallId id;
  ActivityId root;
  // Of the set that is being quiesced: orders two sets that wait for each other. Not valid: the
  // call does not wait any more.
  Rid lowest;
  ABACUS_FIELDS(rid, id, root, lowest)
};

// kDestroyed, kDestroyedAck.
struct DestroyedMessage {
  Rid rid;
  uint64_t epoch = 0;
  ABACUS_FIELDS(rid, epoch)
};

template <typename Message>
Frame MakeFrame(MessageType type, const Message& message) {
  Writer writer;
  Encode(writer, message);
  return {static_cast<uint16_t>(type), std::move(writer).Finish()};
}
template <typename Message>
Frame MakeFrame(MessageType type, const Message& message, const Payload& tail) {
  Writer writer;
  Encode(writer, message);
  writer.PutTail(tail);
  return {static_cast<uint16_t>(type), std::move(writer).Finish()};
}

// Decodes a message that fills its whole frame.
// Errors: kBadFrame where it does not decode.
template <typename Message>
absl::StatusOr<Message> ParseFrame(const Frame& frame) {
  Reader reader(frame.payload);
  auto message = Decoded<Message>(reader);
  if (reader.ok() && !reader.AtEnd()) reader.Fail("bytes are left over");
  if (!reader.ok()) {
    return MakeError(ErrorKind::kBadFrame, ToStd(reader.status().message()));
  }
  return message;
}

// Decodes a message with a tail, and says where the tail begins.
template <typename Message>
absl::StatusOr<Message> ParseFrame(const Frame& frame, size_t* tail) {
  Reader reader(frame.payload);
  auto message = Decoded<Message>(reader);
  if (!reader.ok()) {
    return MakeError(ErrorKind::kBadFrame, ToStd(reader.status().message()));
  }
  *tail = reader.position();
  return message;
}

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BINDING_MESSAGES_H_
