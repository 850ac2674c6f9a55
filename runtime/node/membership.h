#ifndef ABACUS_RUNTIME_NODE_MEMBERSHIP_H_
#define ABACUS_RUNTIME_NODE_MEMBERSHIP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

struct MemberInfo {
  NodeInstance instance;
  std::string name;
  std::string data_address;
  std::string control_address;
  bool server = false;

  bool operator==(const MemberInfo&) const = default;
};

struct NamedRoot {
  std::string name;
  Rid rid;

  bool operator==(const NamedRoot&) const = default;
};

// What a server knows of the cluster.
struct View {
  uint64_t version = 0;
  std::vector<MemberInfo> members;  // alive, the server included
  std::vector<NodeInstance> dead;   // declared dead since the version that was asked for
  std::vector<NamedRoot> roots;     // what the server publishes by name
};

// "I heard it myself so long ago."
struct Heard {
  NodeInstance instance;
  absl::Duration age;
};

struct HeartbeatAsk {
  NodeInstance instance;  // not valid: the sender only asks who is there
  uint64_t view_version = 0;
  std::vector<Heard> heard;
};

struct HeartbeatAnswer {
  enum class Verdict : uint8_t {
    kKnown,
    kUnknown,  // has not joined this process
    kFenced,   // has been declared dead
  };
  Verdict verdict = Verdict::kUnknown;
  NodeInstance server;
  std::optional<View> view;
  std::vector<Heard> heard;
};

struct JoinAnswer {
  MemberInfo server;
  View view;
};

struct MembershipOptions {
  // A client that has reached none of its servers for so long stops serving by itself.
  absl::Duration lease = absl::Seconds(3);
  // A node that nobody has heard for so long is dead. Longer than the lease, so that it has stopped
  // by then.
  absl::Duration dead_after = absl::Seconds(5);
};

// Who belongs to the cluster, as one node sees it: a state machine, events in, events out, with the
// time handed in. It is driven by class Cluster and by its test.
//
// Nodes join servers and send heartbeats to them; servers join each other. A process is declared
// dead where nobody has heard it for `dead_after`, at once where a later process of its node
// appears, and where it leaves. Whoever heard it itself says so in its heartbeats: a way that is
// cut between two nodes only makes nobody dead as long as a third reaches both. What one server
// declares dead is dead for all, for good.
//
// Invariants:
// 1. An instance that was declared dead is never alive here again.
// 2. Each death is told once, after the instance was told alive, if it was.
// 3. A client stops serving before anybody may declare it dead, and serves again only where nobody
//    can have done so: a server has answered in time, or it is the only one that the client knew.
//    (What one server heard must reach another within half of dead_after - lease.)
//
// Two halves of a cluster whose servers cannot hear each other by any way declare each other dead;
// both go on (there is no quorum among servers).
// Thread-compatible. Blocking: none. Limits: kDeadMax of the dead are remembered.
class Membership {
 public:
  static constexpr size_t kDeadMax = 4096;

  struct Event {
    enum class Kind : uint8_t { kAlive, kDead, kFenced, kFencedForGood, kUnfenced };
    Kind kind;
    MemberInfo member;  // for kDead only the instance need be known
    std::string why;
    bool left = false;  // kDead: in good order
  };

  Membership(MemberInfo self, const MembershipOptions& options, absl::Time now);

  // -- as a server ---------------------------------------------------------------------------

  // Takes a node in.
  // Errors: kAlreadyExists      - a living node has its id: a client draws another one.
  //         kFailedPrecondition - that process has been declared dead, or its node has had a later
  //                               one.
  //         kNodeFenced         - this server is itself taken for dead.
  absl::StatusOr<JoinAnswer> Admit(const MemberInfo& joiner, absl::Time now);
  HeartbeatAnswer Answer(const HeartbeatAsk& ask, absl::Time now);
  // A process says that it ends.
  void Leave(NodeInstance instance);
  // Makes an object known by name to whoever joins this server.
  void Publish(std::string_view name, const Rid& rid);

  // -- as one who has joined -----------------------------------------------------------------

  // A server has taken this node in, by a request that was sent at `sent`.
  // Errors: kAlreadyExists - the server has this node's id; kFailedPrecondition - it is dead here.
  absl::Status Joined(const JoinAnswer& answer, absl::Time sent, absl::Time now);
  HeartbeatAsk Ask(NodeInstance server, absl::Time now) const;
  // The answer to an Ask(server) that was sent at `sent`. Where another process answers, `server`
  // is dead and the node has to join anew.
  void Answered(NodeInstance server, const HeartbeatAnswer& answer, absl::Time sent,
                absl::Time now);

  // -- all -----------------------------------------------------------------------------------

  // A later process of that node was met.
  void Replaced(NodeInstance instance);
  // A server says that it has declared this node dead.
  void ToldDead(NodeInstance by);
  // A server that is dead here answers after all. A client whose lease is over then knows that the
  // others went on without it.
  void DeadOneAnswered(NodeInstance server);
  // Declares dead who was not heard for too long, and sees to this node's own lease. To be called
  // several times a lease.
  void Tick(absl::Time now);
  std::vector<Event> TakeEvents();
  bool HasEvents() const { return !events_.empty(); }

  const MemberInfo& self() const { return self_; }
  bool IsDead(NodeInstance instance) const { return dead_.contains(instance); }
  bool HasJoined(NodeInstance server) const { return joined_.contains(server); }
  bool fenced() const { return fenced_ || fenced_for_good_; }
  bool fenced_for_good() const { return fenced_for_good_; }
  // Nodes that are alive, this one first, then by id.
  std::vector<MemberInfo> Members() const;
  std::optional<MemberInfo> Find(NodeId node) const;
  // Servers that are alive, by id, this node not among them.
  std::vector<MemberInfo> Servers() const;
  // Since anybody heard of a member; zero for this node. REQUIRES: it is alive.
  absl::Duration HeardAge(NodeInstance instance, absl::Time now) const;
  // What servers publish under a name: this node's own, else the first joined one's.
  std::optional<Rid> Lookup(std::string_view name) const;
  // All of them, in that order.
  std::vector<Rid> LookupAll(std::string_view name) const;
  // That of one server, or of this node.
  std::optional<Rid> LookupOf(NodeInstance server, std::string_view name) const;
  std::vector<std::string> RootNames() const;
  uint64_t deaths() const { return deaths_; }

 private:
  struct Known {
    MemberInfo info;
    absl::Time heard;           // by anybody
    absl::Time heard_directly;  // by this node
  };
  struct JoinedServer {
    uint64_t order = 0;  // of joining
    uint64_t view_version = 0;
    std::vector<NamedRoot> roots;
  };
  struct DeadRecord {
    NodeInstance instance;
    uint64_t version = 0;
  };

  View MakeView(uint64_t since) const;
  std::vector<Heard> MakeHeard(bool servers_only, absl::Time now) const;
  void TakeHeard(const std::vector<Heard>& heard, absl::Time now);
  void TakeView(const View& view, absl::Time now);
  void TakeMember(const MemberInfo& member, absl::Time now);
  void Touch(NodeInstance instance, absl::Time now);
  void Add(const MemberInfo& member, absl::Time now);
  void Declare(NodeInstance instance, const std::string& why, bool left = false);
  void FenceForGood(const std::string& why);
  void Contact(absl::Time sent, absl::Time now);
  void MindLease(absl::Time now);
  // Since its last contact so much time has passed that a server may have given this client up.
  bool MayBeGivenUp(absl::Time now) const;

  const MemberInfo self_;
  const MembershipOptions options_;
  uint64_t version_ = 1;
  std::map<NodeId, Known> known_;  // alive, without this node; one process a node
  std::map<NodeInstance, JoinedServer> joined_;
  uint64_t joins_ = 0;
  std::set<NodeInstance> dead_;
  std::deque<DeadRecord> dead_by_version_;
  uint64_t deaths_ = 0;
  std::vector<NamedRoot> roots_;
  absl::Time last_tick_;
  absl::Time last_contact_;  // when the last heartbeat that a server answered was sent
  bool fenced_ = false;
  size_t servers_when_fenced_ = 0;
  bool fenced_for_good_ = false;
  std::vector<Event> events_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_MEMBERSHIP_H_
