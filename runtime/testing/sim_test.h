#ifndef ABACUS_RUNTIME_TESTING_SIM_TEST_H_
#define ABACUS_RUNTIME_TESTING_SIM_TEST_H_

// A few simulated processes and a hand on the network, for tests of one fact each.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/migration/messages.h"
#include "runtime/testing/sim_world.h"

namespace abacus::runtime::sim {

// Three nodes on a network without faults; the oracle watches. Messages can be lost, held back or
// copied by type.
class SimTest : public testing::Test {
 protected:
  explicit SimTest(WorldOptions options = Defaults())
      : world(options, SimCoresOf<FaithfulPolicy>::Factory()) {
    world.intercept = [this](SimWorld::Message& message) { return Intercept(message); };
    for (NodeId id = 1; id <= 3; ++id) world.Start(id);
  }

  void TearDown() override {
    EXPECT_FALSE(world.oracle().failed())
        << world.oracle().check() << ": " << world.oracle().what() << "\n"
        << Trace();
  }

  static WorldOptions Defaults() {
    WorldOptions options;
    options.core = SimCoreOptions();
    options.trace = true;
    return options;
  }

  std::string Trace() const {
    std::string text;
    for (const std::string& line : world.trace()) text += line + "\n";
    return text;
  }

  // -- the network ---------------------------------------------------------------------------

  using Type = MigrationMessageType;
  static uint16_t Number(MessageType type) { return static_cast<uint16_t>(type); }
  static uint16_t Number(Type type) { return static_cast<uint16_t>(type); }

  enum class Fate { kLost, kHeld, kCopied };
  // What happens to messages of that type from now on, `times` of them.
  template <typename AnyType>
  void Let(AnyType type, Fate fate, int times = 1 << 30) {
    rules_.push_back({Number(type), fate, times});
  }
  void StopInterfering() { rules_.clear(); }
  // What was held back or copied arrives now.
  void Release() {
    for (SimWorld::Message& message : std::exchange(held_, {})) {
      world.Deliver(std::move(message), 0);
    }
    Settle();
  }
  size_t held() const { return held_.size(); }
  template <typename AnyType>
  size_t Sent(AnyType type) const {
    return static_cast<size_t>(std::count(sent_.begin(), sent_.end(), Number(type)));
  }

  // -- processes and objects -----------------------------------------------------------------

  SimNode& node(NodeId id) { return *world.node(id); }
  size_t Create(NodeId home) {
    const size_t object = node(home).CreateObject();
    world.oracle().AfterEvent(node(home));
    return object;
  }
  Rid RidOf(size_t object) { return world.oracle().object(object).rid; }
  NodeId Host(size_t object) {
    const SimNode* host = world.HostOf(object);
    return host == nullptr ? 0 : host->self().node;
  }
  uint64_t EpochAt(NodeId id, size_t object) {
    const ObjectState* state = node(id).cores().Find(RidOf(object));
    return state == nullptr ? 0 : state->epoch;
  }
  LocationRow* RowOf(size_t object) {
    return node(RidOf(object).home.node).cores().locations().FindRow(RidOf(object));
  }
  size_t CallsRun(size_t object) { return world.oracle().object(object).ran.size(); }

  // Begins a move at the object's host.
  MigrationId Begin(const std::vector<size_t>& objects, NodeId target) {
    SimNode& host = *world.HostOf(objects.front());
    const absl::StatusOr<MigrationId> id = host.Move(objects, target);
    EXPECT_TRUE(id.ok()) << id.status();
    world.oracle().AfterEvent(host);
    return id.value_or(MigrationId());
  }
  void Move(size_t object, NodeId target) {
    Begin({object}, target);
    Settle();
    ASSERT_EQ(Host(object), target);
  }
  absl::Status StatusOf(const MigrationId& id) {
    const absl::Status* status = node(id.source.node).Ended(id);
    return status == nullptr ? absl::UnavailableError("the move has not ended") : *status;
  }

  void Kill(NodeId id, bool tell = true) {
    const NodeInstance dead = node(id).self();
    world.Crash(id);
    if (tell) TellAll(dead);
  }
  void TellAll(NodeInstance dead) {
    std::vector<NodeId> living;
    world.ForEachNode([&](SimNode& observer) { living.push_back(observer.self().node); });
    for (const NodeId observer : living) world.TellDead(observer, dead);
  }

  // -- calls ---------------------------------------------------------------------------------

  static Script To(size_t object, std::vector<Script> nested = {}, Nanos work_ns = 100 * kUs) {
    Script script{.object = object, .work_ns = work_ns, .steps = {}};
    for (Script& call : nested) {
      script.steps.push_back({.work_ns = 0, .calls = {std::move(call)}});
    }
    return script;
  }
  uint64_t Start(NodeId from, Script script) { return node(from).Call(std::move(script)); }
  const CallRecord& Record(uint64_t call) { return world.oracle().call(call); }
  absl::Status Call(NodeId from, Script script) {
    const uint64_t call = Start(from, std::move(script));
    Settle();
    return Record(call).status;
  }
  absl::Status Call(NodeId from, size_t object) { return Call(from, To(object)); }
  bool Ended(uint64_t call) { return Record(call).end != CallRecord::End::kNone; }

  // Runs until nothing happens any more, but for what is held back.
  void Settle() {
    world.RunUntil([this] { return world.Quiet(); }, 3000 * kMs);
  }
  // Settles, and checks that nothing is left over.
  void ComeToRest() {
    Settle();
    EXPECT_TRUE(world.Quiet()) << Trace();
    if (!world.oracle().failed()) world.oracle().AtEnd();
  }

  SimWorld world;

 private:
  struct Rule {
    uint16_t type;
    Fate fate;
    int times;
  };

  bool Intercept(SimWorld::Message& message) {
    sent_.push_back(message.frame.type);
    for (Rule& rule : rules_) {
      if (rule.type != message.frame.type || rule.times == 0) continue;
      --rule.times;
      if (rule.fate != Fate::kLost) held_.push_back(message);
      return rule.fate != Fate::kCopied;
    }
    return false;
  }

  std::vector<Rule> rules_;
  std::vector<SimWorld::Message> held_;
  std::vector<uint16_t> sent_;
};

}  // namespace abacus::runtime::sim

#endif  // ABACUS_RUNTIME_TESTING_SIM_TEST_H_
