#ifndef ABACUS_RUNTIME_NODE_PROTO_CONVERT_H_
#define ABACUS_RUNTIME_NODE_PROTO_CONVERT_H_

// Control messages from plain values and back. Nothing is judged here: a message of a hostile or
// newer sender becomes a value whose fields are what it said.

#include <vector>

#include "absl/status/status.h"
#include "runtime/node/control_types.h"
#include "runtime/resource/digest.h"

namespace abacus::v1 {
class DecisionRecord;
class Digest;
class HeartbeatReply;
class HeartbeatRequest;
class JoinReply;
class Member;
class MoveRecord;
class MoveRequest;
class NodeInstance;
class NodeStatistics;
class PinRecord;
class PinRequest;
class Rid;
class Status;
class StatusReply;
class View;
}  // namespace abacus::v1

namespace abacus::runtime {

void ToProto(const NodeInstance& from, v1::NodeInstance* to);
void ToProto(const Rid& from, v1::Rid* to);
void ToProto(const absl::Status& from, v1::Status* to);
void ToProto(const MemberInfo& from, v1::Member* to);
void ToProto(const View& from, v1::View* to);
void ToProto(const JoinAnswer& from, v1::JoinReply* to);
void ToProto(const HeartbeatAsk& from, v1::HeartbeatRequest* to);
void ToProto(const HeartbeatAnswer& from, v1::HeartbeatReply* to);
void ToProto(const placement::NodeStatistics& from, v1::NodeStatistics* to);
void ToProto(const PinRecord& from, v1::PinRecord* to);
void ToProto(const Digest& from, v1::Digest* to);
void ToProto(const MoveCommand& from, v1::MoveRequest* to);
void ToProto(const MoveRecord& from, v1::MoveRecord* to);
void ToProto(const PinCommand& from, v1::PinRequest* to);
void ToProto(const DecisionText& from, v1::DecisionRecord* to);
void ToProto(const NodeReport& from, v1::StatusReply* to);

NodeInstance FromProto(const v1::NodeInstance& from);
Rid FromProto(const v1::Rid& from);
// A code that absl does not know becomes kUnknown.
absl::Status FromProto(const v1::Status& from);
MemberInfo FromProto(const v1::Member& from);
View FromProto(const v1::View& from);
JoinAnswer FromProto(const v1::JoinReply& from);
HeartbeatAsk FromProto(const v1::HeartbeatRequest& from);
HeartbeatAnswer FromProto(const v1::HeartbeatReply& from);
placement::NodeStatistics FromProto(const v1::NodeStatistics& from);
PinRecord FromProto(const v1::PinRecord& from);
Digest FromProto(const v1::Digest& from);
MoveCommand FromProto(const v1::MoveRequest& from);
MoveRecord FromProto(const v1::MoveRecord& from);
PinCommand FromProto(const v1::PinRequest& from);
DecisionText FromProto(const v1::DecisionRecord& from);
NodeReport FromProto(const v1::StatusReply& from);

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_PROTO_CONVERT_H_
