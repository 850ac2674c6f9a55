#ifndef ABACUS_RUNTIME_NODE_MEMBERSHIP_AGENT_H_
#define ABACUS_RUNTIME_NODE_MEMBERSHIP_AGENT_H_

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/node/control_client.h"
#include "runtime/node/membership.h"

namespace abacus::runtime {

// Who is told what membership finds. Called on one thread, one call at a time, in order, without
// locks; may block, and heartbeats go on meanwhile.
class MembershipListener {
 public:
  virtual ~MembershipListener() = default;
  virtual void OnAlive(const MemberInfo& member) = 0;
  // Once for each process; of one that was never told alive only the instance need be known.
  virtual void OnDead(const MemberInfo& member, const std::string& why) = 0;
  // This process may be dead to the others; `for_good`: it is.
  virtual void OnFenced(const std::string& why, bool for_good) = 0;
  virtual void OnUnfenced() = 0;
};

struct MembershipAgentOptions {
  MembershipOptions membership;
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  // How long a server that is named at the start may take to answer.
  absl::Duration join_patience = absl::Seconds(5);
};

// Drives class Membership with a clock, threads and the control plane: joins servers, sends
// heartbeats to them (one thread a server, so that one that hangs delays no other), and joins every
// server that it hears of.
//
// Thread-safety: thread-safe.
class MembershipAgent {
 public:
  // `clients` and `listener` must outlive the agent.
  MembershipAgent(const MemberInfo& self, const MembershipAgentOptions& options,
                  ControlClients* clients, MembershipListener* listener);
  ~MembershipAgent();

  // Joins the servers at these control addresses, and returns when `listener` has been told of all
  // that they know.
  // Errors: kNodeUnreachable - one does not answer; kAlreadyExists - this node's id is taken;
  //         kVersionMismatch, kFailedPrecondition - as ControlClient::Join.
  // Blocking: up to join_patience for each of them.
  absl::Status Start(const std::vector<std::string>& servers);
  // Joins the server at `address` as soon as it answers, and again whenever it was restarted; does
  // not wait for it. A second time it does nothing. After Start(). Blocking: none.
  void Reach(const std::string& address);
  // Tells the others that this process ends. Before Stop(). Blocking: up to about a second.
  void Leave();
  // Ends the threads, after ControlClients::CancelAll(). Idempotent.
  void Stop();

  // -- at servers, from the control plane ----------------------------------------------------
  absl::StatusOr<JoinAnswer> Admit(const MemberInfo& joiner);
  // Errors: kNodeFenced - this server is taken for dead itself.
  absl::StatusOr<HeartbeatAnswer> Answer(const HeartbeatAsk& ask);
  void OnLeave(NodeInstance instance);
  void Publish(std::string_view name, const Rid& rid);

  // -- all -----------------------------------------------------------------------------------
  // The transport has met a later process of that node.
  void Replaced(NodeInstance instance);
  // What servers publish under a name; asks them where it is not known yet.
  // Errors: kNotFound - the message lists the names there are.
  // Blocking: where the name is not known, up to a heartbeat's deadline for each server.
  absl::StatusOr<Rid> Lookup(std::string_view name);
  // All of them, this node's own first, then by when their servers were joined; at least one.
  absl::StatusOr<std::vector<Rid>> LookupAll(std::string_view name);
  // What the server at a control address publishes, which was named at the start or to Reach(), or
  // joined under that address. Asks nobody.
  // Errors: kNotFound - it publishes no such thing. kNodeUnreachable - there is no such server now.
  absl::StatusOr<Rid> LookupAt(const std::string& address, std::string_view name) const;

  const MemberInfo& self() const { return self_; }
  std::vector<MemberInfo> Members() const;
  std::optional<MemberInfo> Find(NodeId node) const;
  // The same; asks the servers where it is not known yet.
  // Errors: kNotFound - no such node is alive; the message lists those that are.
  // Blocking: as Lookup().
  absl::StatusOr<MemberInfo> Require(NodeId node);
  // Only where this very process is alive.
  std::optional<MemberInfo> FindInstance(NodeInstance instance) const;
  std::vector<MemberInfo> Servers() const;
  // Servers that this node has joined and somebody heard lately.
  std::vector<MemberInfo> ReachableServers() const;
  // Servers that are taken for alive and are not among those.
  std::vector<MemberInfo> UnreachableServers() const;
  absl::Duration HeardAge(NodeInstance instance) const;
  bool fenced() const;
  // Why it is; empty where it is not.
  std::string fenced_because() const;

  struct Death {
    MemberInfo member;
    std::string why;
    bool left = false;  // in good order
    absl::Time at;
  };
  // The last deaths of others, newest first.
  std::vector<Death> RecentDeaths() const;
  uint64_t deaths() const;

 private:
  static constexpr size_t kDeathsMax = 64;

  // The tie to one server: a thread that joins it, again where it was restarted, and beats.
  struct Link {
    const std::string address;
    bool named = false;   // by somebody: kept when the server is dead, as it may come again
    bool ended = false;   // protected by mutex_
    NodeInstance server;  // likewise; joined; not valid: not now
    std::thread thread;
  };

  static absl::Time Now();
  absl::Status JoinOnce(Link& link);
  absl::Status JoinPatiently(Link& link);
  void RunLink(Link& link);
  void HeartbeatOnce(NodeInstance server, const std::string& address);
  // Takes over what the servers know now.
  void Refresh();
  void Probe(Link& link);
  void RunEvents();
  void Deliver(const Membership::Event& event);
  void LinkNewServers();
  void AddLink(const std::string& address, bool named) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WaitUnlessStopped(absl::Duration time);
  bool Reachable(const MemberInfo& server, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const MemberInfo self_;
  const MembershipAgentOptions options_;
  ControlClients& clients_;
  MembershipListener& listener_;

  mutable Mutex mutex_;  // a leaf
  CondVar changed_;
  Membership membership_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  std::string fenced_because_ ABSL_GUARDED_BY(mutex_);
  std::vector<Death> recent_deaths_ ABSL_GUARDED_BY(mutex_);
  std::list<Link> links_ ABSL_GUARDED_BY(mutex_);  // elements stay where they are
  std::thread events_thread_;
};

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_NODE_MEMBERSHIP_AGENT_H_
