#include "runtime/node/proto_convert.h"

#include <cmath>
#include <limits>
#include <string>

#include "abacus/v1/control.pb.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

constexpr NodeInstance kNode{7, 41};
constexpr Rid kRid{{7, 41}, 3};
constexpr Rid kOther{{1u << 31, 9}, UINT64_MAX};

// There and back over the wire's own form.
template <typename Message, typename Value>
Value RoundTrip(const Value& value) {
  Message out;
  ToProto(value, &out);
  Message in;
  EXPECT_TRUE(in.ParseFromString(out.SerializeAsString()));
  return FromProto(in);
}

TEST(ProtoConvertTest, NamesSurvive) {
  EXPECT_EQ((RoundTrip<v1::NodeInstance>(kNode)), kNode);
  EXPECT_EQ((RoundTrip<v1::Rid>(kOther)), kOther);
}

TEST(ProtoConvertTest, StatusKeepsCodeKindAndMessage) {
  EXPECT_TRUE(RoundTrip<v1::Status>(absl::OkStatus()).ok());
  const absl::Status plain = absl::AbortedError("again");
  EXPECT_EQ(RoundTrip<v1::Status>(plain), plain);
  for (int kind = 1; kind <= static_cast<int>(ErrorKind::kNodeFenced); ++kind) {
    const absl::Status status = MakeError(static_cast<ErrorKind>(kind), "why");
    EXPECT_EQ(KindOf(RoundTrip<v1::Status>(status)), static_cast<ErrorKind>(kind));
    EXPECT_EQ(RoundTrip<v1::Status>(status).code(), status.code());
  }
}

TEST(ProtoConvertTest, StatusOfAnUnknownCodeOrKindIsUnknown) {
  v1::Status status;
  status.set_code(77);
  status.set_message("from a newer build");
  EXPECT_EQ(FromProto(status).code(), absl::StatusCode::kUnknown);
  status.set_code(3);
  status.set_kind(200);
  EXPECT_FALSE(FromProto(status).ok());
  EXPECT_EQ(KindOf(FromProto(status)), ErrorKind::kNone);
}

MemberInfo SomeMember() {
  return {.instance = kNode,
          .name = "s1",
          .data_address = "unix:/run/d",
          .control_address = "[::1]:7070",
          .server = true};
}

View SomeView() {
  return {.version = 12,
          .members = {SomeMember(), MemberInfo{.instance = {9, 1}, .name = "c"}},
          .dead = {{1, 2}, {3, 4}},
          .roots = {{"text", kRid}}};
}

void ExpectEqual(const View& a, const View& b) {
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.members, b.members);
  EXPECT_EQ(a.dead, b.dead);
  EXPECT_EQ(a.roots, b.roots);
}

TEST(ProtoConvertTest, JoinAnswerSurvives) {
  const JoinAnswer answer = RoundTrip<v1::JoinReply>(JoinAnswer{SomeMember(), SomeView()});
  EXPECT_EQ(answer.server, SomeMember());
  ExpectEqual(answer.view, SomeView());
}

TEST(ProtoConvertTest, HeartbeatsSurvive) {
  HeartbeatAsk ask;
  ask.instance = kNode;
  ask.view_version = 5;
  ask.heard = {{{1, 2}, absl::Milliseconds(1500)}};
  const HeartbeatAsk asked = RoundTrip<v1::HeartbeatRequest>(ask);
  EXPECT_EQ(asked.instance, kNode);
  EXPECT_EQ(asked.view_version, 5u);
  ASSERT_EQ(asked.heard.size(), 1u);
  EXPECT_EQ(asked.heard[0].instance, (NodeInstance{1, 2}));
  EXPECT_EQ(asked.heard[0].age, absl::Milliseconds(1500));

  using Verdict = HeartbeatAnswer::Verdict;
  for (const Verdict verdict : {Verdict::kKnown, Verdict::kUnknown, Verdict::kFenced}) {
    HeartbeatAnswer answer;
    answer.verdict = verdict;
    answer.server = kNode;
    if (verdict == Verdict::kKnown) answer.view = SomeView();
    const HeartbeatAnswer answered = RoundTrip<v1::HeartbeatReply>(answer);
    EXPECT_EQ(answered.verdict, verdict);
    EXPECT_EQ(answered.server, kNode);
    ASSERT_EQ(answered.view.has_value(), verdict == Verdict::kKnown);
    if (answered.view.has_value()) ExpectEqual(*answered.view, SomeView());
  }
}

Digest SomeDigest() {
  Digest digest;
  digest.from = kNode;
  digest.window_s = 0.75;
  digest.node = {.node = 7,
                 .name = "s1",
                 .is_server = true,
                 .rate = 1.5,
                 .cores = 2,
                 .load = 0.25,
                 .contention = 0.75,
                 .memory_bytes = 1e9,
                 .memory_free_bytes = 5e8,
                 .memory_limit_bytes = 6e8,
                 .source = "plain",
                 .sees_switches = true,
                 .sees_io = true,
                 .sees_memory = false,
                 .source_missing = "no right to better ones",
                 .lost = {.threads = 1, .io_requests = 2, .io_times = 3, .edges = 4}};
  placement::ObjectStatistics object;
  object.id = ToObjectId(kRid);
  object.class_name = "demo.Grep";
  object.node = 7;
  object.mobile = true;
  object.pinned = true;
  object.pinned_reason = "pinned";
  object.cpu_s = 0.1;
  object.bytes_processed = 65536;
  object.own_stall_s = 0.01;
  object.disk_s = 0.005;
  object.ready_s = 0.002;
  object.cpu_s_variance = 0.0625;
  object.background_cpu_s = 0.375;
  object.samples = 9.5;
  object.stall_s = 0.02;
  object.calls = 12;
  object.threads_s = 18;
  object.busy_s = 19;
  object.voluntary_switches = 13;
  object.involuntary_switches = 14;
  object.io_bytes = 15;
  object.io_requests = 16;
  object.io_s = 17;
  object.checkpoint_bytes = 777;
  object.memory_bytes = 888;
  digest.objects = {object};
  digest.edges = {{.from = ToObjectId(kOther),
                   .to = ToObjectId(kRid),
                   .calls = 3,
                   .request_bytes = 30,
                   .reply_bytes = 300,
                   .bytes_variance = 16,
                   .samples = 4}};
  digest.links = {{.a = 7,
                   .b = 9,
                   .bandwidth_bytes_s = 1e6,
                   .round_trip_s = 0.0,
                   .measured_bytes = 5,
                   .bandwidth_variance = 36,
                   .round_trip_bytes = 270},
                  {.a = 7, .b = 10}};
  digest.consoles = {kOther};
  digest.pins = {{kRid, "moved by hand"}};
  return digest;
}

TEST(ProtoConvertTest, DigestSurvivesFieldByField) {
  const Digest digest = RoundTrip<v1::Digest>(SomeDigest());
  EXPECT_EQ(digest.from, kNode);
  EXPECT_EQ(digest.window_s, 0.75);
  EXPECT_EQ(digest.node.node, 7u);
  EXPECT_EQ(digest.node.name, "s1");
  EXPECT_TRUE(digest.node.is_server);
  EXPECT_EQ(digest.node.rate, 1.5);
  EXPECT_EQ(digest.node.cores, 2);
  EXPECT_EQ(digest.node.load, 0.25);
  EXPECT_EQ(digest.node.memory_bytes, 1e9);
  EXPECT_EQ(digest.node.memory_free_bytes, 5e8);
  EXPECT_EQ(digest.node.source, "plain");
  EXPECT_TRUE(digest.node.sees_switches);
  EXPECT_TRUE(digest.node.sees_io);
  EXPECT_EQ(digest.node.contention, 0.75);
  EXPECT_EQ(digest.node.memory_limit_bytes, 6e8);
  EXPECT_FALSE(digest.node.sees_memory);
  EXPECT_EQ(digest.node.source_missing, "no right to better ones");
  EXPECT_EQ(digest.node.lost, SomeDigest().node.lost);
  ASSERT_EQ(digest.objects.size(), 1u);
  const placement::ObjectStatistics& object = digest.objects[0];
  EXPECT_EQ(object.id, ToObjectId(kRid));
  EXPECT_EQ(object.class_name, "demo.Grep");
  EXPECT_EQ(object.node, 7u);
  EXPECT_TRUE(object.mobile);
  EXPECT_TRUE(object.pinned);
  EXPECT_EQ(object.pinned_reason, "pinned");
  EXPECT_EQ(object.cpu_s, 0.1);
  EXPECT_EQ(object.bytes_processed, 65536);
  EXPECT_EQ(object.own_stall_s, 0.01);
  EXPECT_EQ(object.disk_s, 0.005);
  EXPECT_EQ(object.ready_s, 0.002);
  EXPECT_EQ(object.cpu_s_variance, 0.0625);
  EXPECT_EQ(object.background_cpu_s, 0.375);
  EXPECT_EQ(object.samples, 9.5);
  EXPECT_EQ(object.stall_s, 0.02);
  EXPECT_EQ(object.calls, 12);
  EXPECT_EQ(object.threads_s, 18);
  EXPECT_EQ(object.busy_s, 19);
  EXPECT_EQ(object.voluntary_switches, 13);
  EXPECT_EQ(object.involuntary_switches, 14);
  EXPECT_EQ(object.io_bytes, 15);
  EXPECT_EQ(object.io_requests, 16);
  EXPECT_EQ(object.io_s, 17);
  EXPECT_EQ(object.checkpoint_bytes, 777u);
  EXPECT_EQ(object.memory_bytes, 888u);
  ASSERT_EQ(digest.edges.size(), 1u);
  EXPECT_EQ(digest.edges[0].from, ToObjectId(kOther));
  EXPECT_EQ(digest.edges[0].to, ToObjectId(kRid));
  EXPECT_EQ(digest.edges[0].calls, 3);
  EXPECT_EQ(digest.edges[0].request_bytes, 30);
  EXPECT_EQ(digest.edges[0].reply_bytes, 300);
  EXPECT_EQ(digest.edges[0].bytes_variance, 16);
  EXPECT_EQ(digest.edges[0].samples, 4);
  EXPECT_EQ(digest.consoles, std::vector<Rid>{kOther});
  ASSERT_EQ(digest.pins.size(), 1u);
  EXPECT_EQ(digest.pins[0].rid, kRid);
  EXPECT_EQ(digest.pins[0].reason, "moved by hand");
}

TEST(ProtoConvertTest, UnknownFiguresOfALinkStayUnknownAndZeroRoundTripStaysZero) {
  const Digest digest = RoundTrip<v1::Digest>(SomeDigest());
  ASSERT_EQ(digest.links.size(), 2u);
  EXPECT_EQ(digest.links[0].bandwidth_bytes_s, 1e6);
  EXPECT_EQ(digest.links[0].round_trip_s, 0.0);
  EXPECT_EQ(digest.links[0].measured_bytes, 5);
  EXPECT_EQ(digest.links[0].bandwidth_variance, 36);
  EXPECT_EQ(digest.links[0].round_trip_bytes, 270);
  EXPECT_FALSE(digest.links[1].bandwidth_bytes_s.has_value());
  EXPECT_FALSE(digest.links[1].round_trip_s.has_value());
}

TEST(ProtoConvertTest, FigureThatIsNotANumberIsNotMadeIntoAnUnknownOne) {
  Digest digest = SomeDigest();
  digest.links[0].round_trip_s = std::numeric_limits<double>::quiet_NaN();
  const Digest got = RoundTrip<v1::Digest>(digest);
  ASSERT_TRUE(got.links[0].round_trip_s.has_value());
  EXPECT_TRUE(std::isnan(*got.links[0].round_trip_s));
}

TEST(ProtoConvertTest, ObjectsOfADigestAreTheSendersWhateverItSays) {
  Digest digest = SomeDigest();
  digest.objects[0].node = 1234;
  EXPECT_EQ(RoundTrip<v1::Digest>(digest).objects[0].node, kNode.node);
}

TEST(ProtoConvertTest, CommandsSurvive) {
  const MoveCommand move =
      RoundTrip<v1::MoveRequest>(MoveCommand{.rids = {kRid, kOther},
                                             .target = 9,
                                             .by_engine = true,
                                             .reason = "pays",
                                             .predicted_gain = absl::Seconds(2),
                                             .predicted_cost = absl::Seconds(1),
                                             .hops = 2});
  EXPECT_EQ(move.rids, (std::vector<Rid>{kRid, kOther}));
  EXPECT_EQ(move.target, 9u);
  EXPECT_TRUE(move.by_engine);
  EXPECT_EQ(move.reason, "pays");
  EXPECT_EQ(move.predicted_gain, absl::Seconds(2));
  EXPECT_EQ(move.predicted_cost, absl::Seconds(1));
  EXPECT_EQ(move.hops, 2u);

  const PinCommand pin = RoundTrip<v1::PinRequest>(PinCommand{
      .rid = kRid, .pinned = true, .node = 9, .hold = absl::Milliseconds(1500), .hops = 1});
  EXPECT_EQ(pin.rid, kRid);
  EXPECT_TRUE(pin.pinned);
  EXPECT_EQ(pin.node, 9u);
  EXPECT_EQ(pin.hold, absl::Milliseconds(1500));
  EXPECT_EQ(pin.hops, 1u);
}

MoveRecord SomeRecord() {
  MoveRecord record;
  record.event = {.rids = {kRid},
                  .class_names = {"demo.Grep"},
                  .from = 7,
                  .to = 9,
                  .from_name = "s1",
                  .to_name = "c",
                  .by_engine = true,
                  .reason = "pays",
                  .predicted_gain = absl::Milliseconds(500),
                  .predicted_cost = absl::Milliseconds(250),
                  .blackout = absl::Milliseconds(125),
                  .state_bytes = 4096,
                  .status = MakeError(ErrorKind::kMoveCancelled, "slow")};
  record.source = kNode;
  record.serial = 17;
  record.quiesce = absl::Milliseconds(62);
  record.ended = absl::FromUnixMillis(1'700'000'000'123);
  return record;
}

void ExpectEqual(const MoveRecord& a, const MoveRecord& b) {
  EXPECT_EQ(a.event.rids, b.event.rids);
  EXPECT_EQ(a.event.class_names, b.event.class_names);
  EXPECT_EQ(a.event.from, b.event.from);
  EXPECT_EQ(a.event.to, b.event.to);
  EXPECT_EQ(a.event.from_name, b.event.from_name);
  EXPECT_EQ(a.event.to_name, b.event.to_name);
  EXPECT_EQ(a.event.by_engine, b.event.by_engine);
  EXPECT_EQ(a.event.reason, b.event.reason);
  EXPECT_EQ(a.event.predicted_gain, b.event.predicted_gain);
  EXPECT_EQ(a.event.predicted_cost, b.event.predicted_cost);
  EXPECT_EQ(a.event.blackout, b.event.blackout);
  EXPECT_EQ(a.event.state_bytes, b.event.state_bytes);
  EXPECT_EQ(a.event.status, b.event.status);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.serial, b.serial);
  EXPECT_EQ(a.quiesce, b.quiesce);
  EXPECT_EQ(a.ended, b.ended);
}

TEST(ProtoConvertTest, MoveRecordSurvives) {
  ExpectEqual(RoundTrip<v1::MoveRecord>(SomeRecord()), SomeRecord());
}

TEST(ProtoConvertTest, DecisionSurvives) {
  const DecisionText text = RoundTrip<v1::DecisionRecord>(DecisionText{absl::FromUnixMillis(5),
                                                                       "move",
                                                                       "net_benefit",
                                                                       "it pays",
                                                                       "k=1 ...",
                                                                       "{\"a\":1}",
                                                                       {SomeDigest().node}});
  ASSERT_EQ(text.nodes.size(), 1u);
  EXPECT_EQ(text.nodes[0].name, "s1");
  EXPECT_EQ(text.nodes[0].source, "plain");
  EXPECT_EQ(text.nodes[0].source_missing, "no right to better ones");
  EXPECT_EQ(text.at, absl::FromUnixMillis(5));
  EXPECT_EQ(text.outcome, "move");
  EXPECT_EQ(text.reason, "net_benefit");
  EXPECT_EQ(text.explanation, "it pays");
  EXPECT_EQ(text.details, "k=1 ...");
  EXPECT_EQ(text.snapshot, "{\"a\":1}");
}

TEST(ProtoConvertTest, ReportSurvives) {
  NodeReport report;
  report.self = SomeMember();
  report.health = "OK";
  report.members = {{.info = SomeMember(),
                     .heard_age = absl::Milliseconds(250),
                     .measured = true,
                     .statistics = SomeDigest().node},
                    {.info = SomeMember()}};
  report.objects = {{.rid = kRid,
                     .class_name = "demo.Grep",
                     .node = 7,
                     .mobile = true,
                     .pinned = true,
                     .pinned_reason = "pinned",
                     .cpu_share = 0.5,
                     .blocked_share = 0.25,
                     .disk_share = 0.125,
                     .ready_share = 0.0625,
                     .background_share = 0.03125,
                     .stall_share = 0.75,
                     .bytes_s = 1000,
                     .bytes_in_s = 700,
                     .bytes_out_s = 300,
                     .memory_bytes = 4096,
                     .voluntary_switches_s = 10,
                     .involuntary_switches_s = 0.0,
                     .io_bytes_s = 8192}};
  report.edges = {
      {.from = kRid, .to = {{8, 1}, 2}, .calls_s = 3, .request_bytes_s = 4, .reply_bytes_s = 5}};
  report.links = {{.node = 9,
                   .connections = 3,
                   .peer = "10.0.0.1:7071",
                   .delivered_bytes_s = 1e6,
                   .app_limited = true,
                   .round_trip = absl::Microseconds(250),
                   .bytes_sent = 10,
                   .bytes_received = 20}};
  report.objects_total = 1'000'000;
  report.moves = {SomeRecord()};
  report.counters = {{"calls.sent", 5}};
  const NodeReport got = RoundTrip<v1::StatusReply>(report);
  EXPECT_EQ(got.self, report.self);
  EXPECT_EQ(got.health, "OK");
  ASSERT_EQ(got.members.size(), 2u);
  EXPECT_EQ(got.members[0].info, SomeMember());
  EXPECT_EQ(got.members[0].heard_age, absl::Milliseconds(250));
  EXPECT_TRUE(got.members[0].measured);
  EXPECT_EQ(got.members[0].statistics.rate, 1.5);
  EXPECT_FALSE(got.members[1].measured);
  ASSERT_EQ(got.objects.size(), 1u);
  EXPECT_EQ(got.objects[0].rid, kRid);
  EXPECT_EQ(got.objects[0].class_name, "demo.Grep");
  EXPECT_EQ(got.objects[0].node, 7u);
  EXPECT_TRUE(got.objects[0].mobile);
  EXPECT_TRUE(got.objects[0].pinned);
  EXPECT_EQ(got.objects[0].pinned_reason, "pinned");
  EXPECT_EQ(got.objects[0].cpu_share, 0.5);
  EXPECT_EQ(got.objects[0].voluntary_switches_s, 10);
  EXPECT_EQ(got.objects[0].involuntary_switches_s, 0) << "known to be none";
  EXPECT_EQ(got.objects[0].io_bytes_s, 8192);
  EXPECT_EQ(got.objects[0].io_requests_s, std::nullopt);
  EXPECT_EQ(got.objects[0].io_share, std::nullopt);
  EXPECT_EQ(got.objects[0].blocked_share, 0.25);
  EXPECT_EQ(got.objects[0].disk_share, 0.125);
  EXPECT_EQ(got.objects[0].ready_share, 0.0625);
  EXPECT_EQ(got.objects[0].background_share, 0.03125);
  EXPECT_EQ(got.objects[0].stall_share, 0.75);
  EXPECT_EQ(got.objects[0].bytes_s, 1000);
  EXPECT_EQ(got.objects[0].bytes_in_s, 700);
  EXPECT_EQ(got.objects[0].bytes_out_s, 300);
  EXPECT_EQ(got.objects[0].memory_bytes, 4096u);
  ASSERT_EQ(got.edges.size(), 1u);
  EXPECT_EQ(got.edges[0].from, kRid);
  EXPECT_EQ(got.edges[0].to, (Rid{{8, 1}, 2}));
  EXPECT_EQ(got.edges[0].calls_s, 3);
  EXPECT_EQ(got.edges[0].request_bytes_s, 4);
  EXPECT_EQ(got.edges[0].reply_bytes_s, 5);
  ASSERT_EQ(got.links.size(), 1u);
  EXPECT_EQ(got.links[0].node, 9u);
  EXPECT_EQ(got.links[0].connections, 3u);
  EXPECT_EQ(got.links[0].peer, "10.0.0.1:7071");
  EXPECT_EQ(got.links[0].delivered_bytes_s, 1e6);
  EXPECT_TRUE(got.links[0].app_limited);
  EXPECT_EQ(got.links[0].round_trip, absl::Microseconds(250));
  EXPECT_EQ(got.links[0].bytes_sent, 10u);
  EXPECT_EQ(got.links[0].bytes_received, 20u);
  EXPECT_EQ(got.objects_total, 1'000'000u);
  ASSERT_EQ(got.moves.size(), 1u);
  ExpectEqual(got.moves[0], SomeRecord());
  ASSERT_EQ(got.counters.size(), 1u);
  EXPECT_EQ(got.counters[0].name, "calls.sent");
  EXPECT_EQ(got.counters[0].value, 5u);
}

}  // namespace
}  // namespace abacus::runtime
