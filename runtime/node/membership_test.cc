#include "runtime/node/membership.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

using Kind = Membership::Event::Kind;
using Verdict = HeartbeatAnswer::Verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

absl::Time At(double seconds) { return absl::FromUnixSeconds(1000) + absl::Seconds(seconds); }

MemberInfo Info(NodeId node, uint32_t incarnation, bool server, const std::string& name = "") {
  return {.instance = {node, incarnation},
          .name = name.empty() ? absl::StrCat("n", node) : name,
          .data_address = absl::StrCat("10.0.0.", node % 100, ":7071"),
          .control_address = absl::StrCat("10.0.0.", node % 100, ":7070"),
          .server = server};
}

constexpr NodeId kClient = 1u << 30;

Membership Server(NodeId node = 1, uint32_t incarnation = 1) {
  return Membership(Info(node, incarnation, true), {}, At(0));
}
Membership Client(NodeId node = kClient) { return Membership(Info(node, 1, false), {}, At(0)); }

// Names of what happened: "alive 1.1", "dead 1.1", "fenced", ...
std::vector<std::string> Events(Membership& membership) {
  std::vector<std::string> names;
  for (const Membership::Event& event : membership.TakeEvents()) {
    const std::string instance = event.member.instance.ToString();
    switch (event.kind) {
      case Kind::kAlive:
        names.push_back("alive " + instance);
        break;
      case Kind::kDead:
        names.push_back((event.left ? "left " : "dead ") + instance);
        break;
      case Kind::kFenced:
        names.push_back("fenced");
        break;
      case Kind::kFencedForGood:
        names.push_back("fenced for good");
        break;
      case Kind::kUnfenced:
        names.push_back("unfenced");
        break;
    }
  }
  return names;
}

// Joins and beats over a network that loses nothing.
absl::Status Join(Membership& joiner, Membership& server, absl::Time now) {
  absl::StatusOr<JoinAnswer> answer = server.Admit(joiner.self(), now);
  if (!answer.ok()) return answer.status();
  return joiner.Joined(*answer, now, now);
}
HeartbeatAnswer Beat(Membership& from, Membership& server, absl::Time now) {
  const NodeInstance instance = server.self().instance;
  HeartbeatAnswer answer = server.Answer(from.Ask(instance, now), now);
  from.Answered(instance, answer, now, now);
  return answer;
}

std::vector<NodeId> Nodes(const Membership& membership) {
  std::vector<NodeId> nodes;
  for (const MemberInfo& member : membership.Members()) nodes.push_back(member.instance.node);
  return nodes;
}

TEST(MembershipTest, JoinTellsBothSidesOfEachOther) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  EXPECT_THAT(Events(server), ElementsAre(absl::StrCat("alive ", kClient, ".1")));
  EXPECT_THAT(Events(client), ElementsAre("alive 1.1"));
  EXPECT_TRUE(client.HasJoined({1, 1}));
  EXPECT_EQ(client.Find(1)->data_address, "10.0.0.1:7071");
}

TEST(MembershipTest, JoinRepeatedAfterALostAnswerIsTheSameMember) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(server.Admit(client.self(), At(0)).ok());
  ASSERT_TRUE(Join(client, server, At(1)).ok());
  EXPECT_THAT(Events(server), ElementsAre(absl::StrCat("alive ", kClient, ".1")));
}

TEST(MembershipTest, JoinTellsOfThoseWhoJoinedBeforeAndHeartbeatsOfThoseAfter) {
  Membership server = Server();
  Membership first = Client(kClient);
  Membership second = Client(kClient + 1);
  ASSERT_TRUE(Join(first, server, At(0)).ok());
  ASSERT_TRUE(Join(second, server, At(0)).ok());
  EXPECT_THAT(Nodes(second), UnorderedElementsAre(1, kClient, kClient + 1));
  EXPECT_THAT(Nodes(first), UnorderedElementsAre(1, kClient));
  EXPECT_TRUE(Beat(first, server, At(0.5)).view.has_value());
  EXPECT_THAT(Nodes(first), UnorderedElementsAre(1, kClient, kClient + 1));
  EXPECT_FALSE(Beat(first, server, At(1)).view.has_value());  // nothing new
}

TEST(MembershipTest, JoinOfAClientWithATakenIdIsRefusedAndTheLivingOneStays) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  Events(server);
  const auto answer = server.Admit(Info(kClient, 2, false, "other"), At(0));
  EXPECT_TRUE(absl::IsAlreadyExists(answer.status())) << answer.status();
  EXPECT_THAT(std::string(ToStd(answer.status().message())), HasSubstr("is taken by"));
  EXPECT_THAT(Events(server), IsEmpty());
  EXPECT_EQ(Beat(client, server, At(0.1)).verdict, Verdict::kKnown);
}

TEST(MembershipTest, JoinWithTheServersOwnIdIsRefused) {
  Membership server = Server(1, 5);
  EXPECT_TRUE(absl::IsAlreadyExists(server.Admit(Info(1, 6, true), At(0)).status()));
}

TEST(MembershipTest, JoinOfAServerOfAnotherNameWithATakenIdIsRefused) {
  Membership server = Server(1);
  ASSERT_TRUE(server.Admit(Info(2, 1, true, "two"), At(0)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(server.Admit(Info(2, 2, true, "another"), At(0)).status()));
}

TEST(MembershipTest, JoinOfALaterProcessOfAServerDeclaresTheEarlierDeadAtOnce) {
  Membership server = Server(1);
  ASSERT_TRUE(server.Admit(Info(2, 7, true), At(0)).ok());
  Events(server);
  ASSERT_TRUE(server.Admit(Info(2, 8, true), At(0)).ok());
  EXPECT_THAT(Events(server), ElementsAre("dead 2.7", "alive 2.8"));
  EXPECT_EQ(server.Find(2)->instance.incarnation, 8u);
}

TEST(MembershipTest, JoinOfAnEarlierProcessThanADeadOneIsRefused) {
  Membership server = Server(1);
  ASSERT_TRUE(server.Admit(Info(2, 7, true), At(0)).ok());
  server.Leave({2, 7});
  EXPECT_TRUE(absl::IsFailedPrecondition(server.Admit(Info(2, 7, true), At(0)).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(server.Admit(Info(2, 6, true), At(0)).status()));
  EXPECT_TRUE(server.Admit(Info(2, 8, true), At(0)).ok());
}

TEST(MembershipTest, TickDeclaresDeadExactlyAfterDeadAfterWithoutAHeartbeat) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  Beat(client, server, At(1));
  Events(server);
  for (double t = 1; t <= 6; t += 0.5) server.Tick(At(t));
  EXPECT_THAT(Events(server), IsEmpty());
  server.Tick(At(6.001));
  EXPECT_THAT(Events(server), ElementsAre(absl::StrCat("dead ", kClient, ".1")));
  server.Tick(At(12));
  EXPECT_THAT(Events(server), IsEmpty());  // once
}

TEST(MembershipTest, HeartbeatOfADeadProcessIsToldAndFencesItForGood) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  for (double t = 0; t <= 5.5; t += 0.5) server.Tick(At(t));
  Events(client);
  EXPECT_EQ(Beat(client, server, At(5.6)).verdict, Verdict::kFenced);
  EXPECT_THAT(Events(client), ElementsAre("fenced for good"));
  EXPECT_TRUE(client.fenced_for_good());
  EXPECT_FALSE(server.Find(kClient).has_value());
}

TEST(MembershipTest, LeaveIsADeathInGoodOrderAndIsSpread) {
  Membership server = Server();
  Membership leaver = Client(kClient);
  Membership other = Client(kClient + 1);
  ASSERT_TRUE(Join(leaver, server, At(0)).ok());
  ASSERT_TRUE(Join(other, server, At(0)).ok());
  Events(server);
  Events(other);
  server.Leave(leaver.self().instance);
  server.Leave(leaver.self().instance);
  EXPECT_THAT(Events(server), ElementsAre(absl::StrCat("left ", kClient, ".1")));
  Beat(other, server, At(0.5));
  EXPECT_THAT(Events(other), ElementsAre(absl::StrCat("dead ", kClient, ".1")));
  Beat(other, server, At(1));
  EXPECT_THAT(Events(other), IsEmpty());
}

TEST(MembershipTest, ClientWithoutAnAnswerFencesItselfAfterTheLeaseAndDeclaresLater) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  Events(client);
  for (double t = 0; t <= 3; t += 0.5) client.Tick(At(t));
  EXPECT_THAT(Events(client), IsEmpty());
  client.Tick(At(3.1));
  EXPECT_THAT(Events(client), ElementsAre("fenced"));
  EXPECT_TRUE(client.fenced());
  for (double t = 3.5; t <= 5; t += 0.5) client.Tick(At(t));
  EXPECT_THAT(Events(client), IsEmpty());
  client.Tick(At(5.1));
  EXPECT_THAT(Events(client), ElementsAre("dead 1.1"));
  EXPECT_TRUE(client.fenced());  // nobody left to be heard
}

TEST(MembershipTest, AnswerAfterTheLeaseUnfencesAClientThatWasNotGivenUp) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  for (double t = 0; t <= 4; t += 0.5) client.Tick(At(t));
  Events(client);
  Beat(client, server, At(4.2));
  EXPECT_THAT(Events(client), ElementsAre("unfenced"));
  EXPECT_FALSE(client.fenced());
}

TEST(MembershipTest, AnswerThatTookLongerThanTheLeaseDoesNotUnfence) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  const HeartbeatAsk ask = client.Ask({1, 1}, At(0.5));
  const HeartbeatAnswer answer = server.Answer(ask, At(0.5));
  for (double t = 0; t <= 4; t += 0.5) client.Tick(At(t));
  Events(client);
  client.Answered({1, 1}, answer, At(0.5), At(4));  // the server heard it 3.5 s ago
  EXPECT_THAT(Events(client), IsEmpty());
  EXPECT_TRUE(client.fenced());
}

TEST(MembershipTest, ServerThatHearsNobodyIsNotFenced) {
  Membership server = Server(1);
  Membership other = Server(2);
  ASSERT_TRUE(Join(server, other, At(0)).ok());
  Events(server);
  for (double t = 0; t <= 5.5; t += 0.5) server.Tick(At(t));
  EXPECT_THAT(Events(server), ElementsAre("dead 2.1"));
  EXPECT_FALSE(server.fenced());
}

TEST(MembershipTest, RestartedServerIsMetByItsAnswerAndJoinedAnew) {
  Membership before = Server(1, 1);
  Membership client = Client();
  ASSERT_TRUE(Join(client, before, At(0)).ok());
  Events(client);
  Membership after = Server(1, 2);
  client.Answered({1, 1}, after.Answer(client.Ask({1, 1}, At(1)), At(1)), At(1), At(1));
  EXPECT_THAT(Events(client), ElementsAre("dead 1.1"));
  EXPECT_FALSE(client.HasJoined({1, 1}));
  ASSERT_TRUE(Join(client, after, At(1.1)).ok());
  EXPECT_THAT(Events(client), ElementsAre("alive 1.2"));
  EXPECT_FALSE(client.fenced());
}

TEST(MembershipTest, AnswerOfAnEarlierProcessOfTheServerIsIgnored) {
  Membership server = Server(1, 5);
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  Events(client);
  HeartbeatAnswer stale;
  stale.server = {1, 4};
  client.Answered({1, 5}, stale, At(1), At(1));
  EXPECT_THAT(Events(client), IsEmpty());
  EXPECT_TRUE(client.HasJoined({1, 5}));
}

TEST(MembershipTest, LaterProcessOfThisNodeInAViewFencesThisOne) {
  Membership server = Server(2, 3);
  View view;
  view.version = 9;
  view.members = {Info(1, 1, true), Info(2, 4, true)};
  ASSERT_TRUE(server.Joined({Info(1, 1, true), view}, At(0), At(0)).ok());
  EXPECT_TRUE(server.fenced_for_good());
}

TEST(MembershipTest, FencedServerAdmitsNobody) {
  Membership server = Server(1);
  server.ToldDead({2, 1});
  EXPECT_EQ(KindOf(server.Admit(Info(kClient, 1, false), At(0)).status()), ErrorKind::kNodeFenced);
}

// A way that is cut between two nodes makes nobody dead while a third reaches both.
TEST(MembershipTest, CutWayBetweenClientAndOneServerMakesNobodyDead) {
  Membership one = Server(1);
  Membership two = Server(2);
  Membership client = Client();
  ASSERT_TRUE(Join(two, one, At(0)).ok());
  ASSERT_TRUE(Join(one, two, At(0)).ok());
  ASSERT_TRUE(Join(client, one, At(0)).ok());
  ASSERT_TRUE(Join(client, two, At(0)).ok());
  for (Membership* node : {&one, &two, &client}) Events(*node);
  for (double t = 0.5; t <= 30; t += 0.5) {
    Beat(one, two, At(t));
    Beat(two, one, At(t));
    Beat(client, two, At(t));  // and not `one`
    for (Membership* node : {&one, &two, &client}) node->Tick(At(t));
  }
  for (Membership* node : {&one, &two, &client}) EXPECT_THAT(Events(*node), IsEmpty());
  EXPECT_FALSE(client.fenced());
}

TEST(MembershipTest, CutWayBetweenServersMakesNobodyDeadWhileAClientReachesBoth) {
  Membership one = Server(1);
  Membership two = Server(2);
  Membership client = Client();
  ASSERT_TRUE(Join(two, one, At(0)).ok());
  ASSERT_TRUE(Join(one, two, At(0)).ok());
  ASSERT_TRUE(Join(client, one, At(0)).ok());
  ASSERT_TRUE(Join(client, two, At(0)).ok());
  for (Membership* node : {&one, &two, &client}) Events(*node);
  for (double t = 0.5; t <= 30; t += 0.5) {
    Beat(client, one, At(t));
    Beat(client, two, At(t));
    for (Membership* node : {&one, &two, &client}) node->Tick(At(t));
  }
  for (Membership* node : {&one, &two, &client}) EXPECT_THAT(Events(*node), IsEmpty());
}

// Two servers that repeat to each other what they heard must not keep a dead node alive.
TEST(MembershipTest, HearsayIsNotPassedOn) {
  Membership one = Server(1);
  Membership two = Server(2);
  Membership client = Client();
  ASSERT_TRUE(Join(two, one, At(0)).ok());
  ASSERT_TRUE(Join(one, two, At(0)).ok());
  ASSERT_TRUE(Join(client, one, At(0)).ok());
  Beat(two, one, At(0.1));
  ASSERT_TRUE(two.Find(kClient).has_value());
  for (Membership* node : {&one, &two}) Events(*node);
  for (double t = 0.5; t <= 5.5; t += 0.5) {
    // Each message is 0.2 s under way: an age that was measured again at each stop would shrink.
    const HeartbeatAnswer to_one = two.Answer(one.Ask({2, 1}, At(t - 0.2)), At(t));
    one.Answered({2, 1}, to_one, At(t - 0.2), At(t + 0.2));
    const HeartbeatAnswer to_two = one.Answer(two.Ask({1, 1}, At(t - 0.2)), At(t));
    two.Answered({1, 1}, to_two, At(t - 0.2), At(t + 0.2));
    one.Tick(At(t));
    two.Tick(At(t));
  }
  EXPECT_FALSE(one.Find(kClient).has_value());
  EXPECT_FALSE(two.Find(kClient).has_value());
}

TEST(MembershipTest, DeathThatOneServerDeclaresIsTheOthersToo) {
  Membership one = Server(1);
  Membership two = Server(2);
  Membership client = Client();
  ASSERT_TRUE(Join(two, one, At(0)).ok());
  ASSERT_TRUE(Join(client, one, At(0)).ok());
  ASSERT_TRUE(Join(client, two, At(0)).ok());
  one.Leave(client.self().instance);
  Beat(two, one, At(0.5));
  EXPECT_TRUE(two.IsDead(client.self().instance));
  EXPECT_EQ(Beat(client, two, At(0.6)).verdict, Verdict::kFenced);
}

TEST(MembershipTest, DeadMemberInAnOlderViewStaysDead) {
  Membership one = Server(1);
  Membership two = Server(2);
  ASSERT_TRUE(two.Admit(Info(kClient, 1, false), At(0)).ok());
  const auto view_with_client = two.Admit(one.self(), At(0));
  ASSERT_TRUE(view_with_client.ok());
  one.Leave({kClient, 1});
  Events(one);
  ASSERT_TRUE(one.Joined(*view_with_client, At(0), At(0.1)).ok());
  EXPECT_FALSE(one.Find(kClient).has_value());
  EXPECT_THAT(Events(one), ElementsAre("alive 2.1"));
}

// A process that was stopped (SIGSTOP, a paused machine) blames nobody for its own silence.
TEST(MembershipTest, ServerThatWasStoppedGivesTheOthersTimeToBeHeard) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  server.Tick(At(0.5));
  Events(server);
  server.Tick(At(60));  // nothing ran between these
  EXPECT_THAT(Events(server), IsEmpty());
  for (double t = 60.5; t <= 66; t += 0.5) server.Tick(At(t));
  EXPECT_THAT(Events(server), ElementsAre(absl::StrCat("dead ", kClient, ".1")));
}

TEST(MembershipTest, ClientThatWasStoppedLongerThanItsLeaseIsFencedAtOnce) {
  Membership server = Server();
  Membership client = Client();
  ASSERT_TRUE(Join(client, server, At(0)).ok());
  client.Tick(At(0.5));
  Events(client);
  client.Tick(At(60));
  EXPECT_THAT(Events(client), ElementsAre("fenced"));
}

TEST(MembershipTest, DeadServerThatAnswersFencesALonelyClientForGoodOnly) {
  Membership client = Client();
  Membership one = Server(1);
  ASSERT_TRUE(Join(client, one, At(0)).ok());
  client.DeadOneAnswered({1, 1});
  EXPECT_FALSE(client.fenced());  // it is not dead here
  for (double t = 0; t <= 5.5; t += 0.5) client.Tick(At(t));
  client.DeadOneAnswered({1, 1});
  EXPECT_TRUE(client.fenced_for_good());

  Membership served = Client();
  ASSERT_TRUE(Join(served, one, At(0)).ok());
  served.Leave({1, 1});
  served.DeadOneAnswered({1, 1});
  EXPECT_FALSE(served.fenced());  // it has its lease still
}

TEST(MembershipTest, PublishReachesThoseWhoJoinBeforeAndAfter) {
  Membership server = Server();
  Membership early = Client(kClient);
  ASSERT_TRUE(Join(early, server, At(0)).ok());
  EXPECT_FALSE(early.Lookup("root").has_value());
  const Rid rid{{1, 1}, 4};
  server.Publish("root", rid);
  Beat(early, server, At(0.5));
  EXPECT_EQ(early.Lookup("root"), rid);
  Membership late = Client(kClient + 1);
  ASSERT_TRUE(Join(late, server, At(1)).ok());
  EXPECT_EQ(late.Lookup("root"), rid);
  EXPECT_THAT(late.RootNames(), ElementsAre("root"));
  server.Publish("root", Rid{{1, 1}, 5});
  Beat(late, server, At(1.5));
  EXPECT_EQ(late.Lookup("root")->local, 5u);
}

TEST(MembershipTest, LookupPrefersTheServerThatWasJoinedFirst) {
  Membership one = Server(1);
  Membership two = Server(2);
  one.Publish("root", {{1, 1}, 1});
  two.Publish("root", {{2, 1}, 1});
  Membership client = Client();
  ASSERT_TRUE(Join(client, two, At(0)).ok());
  ASSERT_TRUE(Join(client, one, At(0)).ok());
  EXPECT_EQ(client.Lookup("root")->home.node, 2u);
  ASSERT_EQ(client.LookupAll("root").size(), 2u);
  EXPECT_EQ(client.LookupAll("root")[0].home.node, 2u);
  EXPECT_EQ(client.LookupAll("root")[1].home.node, 1u);
  EXPECT_TRUE(client.LookupAll("none").empty());
  client.Leave({2, 1});  // its roots go with it
  EXPECT_EQ(client.Lookup("root")->home.node, 1u);
}

TEST(MembershipTest, RememberedDeadAreLimited) {
  Membership server = Server();
  const auto total = static_cast<uint32_t>(Membership::kDeadMax + 10);
  for (uint32_t i = 1; i <= total; ++i) server.Leave({kClient + i, 1});
  EXPECT_FALSE(server.IsDead({kClient + 10, 1}));
  EXPECT_TRUE(server.IsDead({kClient + 11, 1}));
  EXPECT_TRUE(server.IsDead({kClient + total, 1}));
  EXPECT_EQ(server.deaths(), total);
}

}  // namespace
}  // namespace abacus::runtime
