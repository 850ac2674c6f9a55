#include "runtime/node/membership_agent.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/binding/worker_pool.h"

namespace abacus::runtime {
namespace {

constexpr absl::Duration kJoinDeadline = absl::Seconds(2);
constexpr absl::Duration kJoinPause = absl::Milliseconds(100);
constexpr absl::Duration kLeaveDeadline = absl::Milliseconds(500);
constexpr size_t kLeavesAtOnce = 32;

std::string ListNodes(const std::vector<MemberInfo>& members) {
  return absl::StrJoin(members, ", ", [](std::string* out, const MemberInfo& member) {
    absl::StrAppend(out, member.name, " (", member.instance.node, ")");
  });
}

}  // namespace

MembershipAgent::MembershipAgent(const MemberInfo& self, const MembershipAgentOptions& options,
                                 ControlClients* clients, MembershipListener* listener)
    : self_(self),
      options_(options),
      clients_(*clients),
      listener_(*listener),
      membership_(self, options.membership, Now()) {}

MembershipAgent::~MembershipAgent() { Stop(); }

// Leases are measured on a clock that nobody sets.
absl::Time MembershipAgent::Now() {
  return absl::FromUnixNanos(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count());
}

absl::Status MembershipAgent::Start(const std::vector<std::string>& servers) {
  events_thread_ = std::thread([this] { RunEvents(); });
  for (const std::string& address : servers) {
    Link* link = nullptr;
    {
      MutexLock lock(mutex_);
      const bool twice = std::any_of(links_.begin(), links_.end(),
                                     [&](const Link& other) { return other.address == address; });
      if (twice) continue;
      link = &links_.emplace_back(Link{.address = address, .named = true});
    }
    ABACUS_RETURN_IF_ERROR(JoinPatiently(*link));
    MutexLock lock(mutex_);
    link->thread = std::thread([this, link] { RunLink(*link); });
  }
  MutexLock lock(mutex_);
  while (delivering_ || membership_.HasEvents()) changed_.Wait(mutex_);
  return absl::OkStatus();
}

void MembershipAgent::Reach(const std::string& address) {
  MutexLock lock(mutex_);
  if (stopping_ || address == self_.control_address) return;
  for (Link& link : links_) {
    if (link.address != address || link.ended) continue;
    link.named = true;
    return;
  }
  AddLink(address, /*named=*/true);
}

void MembershipAgent::AddLink(const std::string& address, bool named) {
  Link* link = &links_.emplace_back(Link{.address = address, .named = named});
  link->thread = std::thread([this, link] {
    JoinPatiently(*link).IgnoreError();  // Probe() goes on trying
    RunLink(*link);
  });
}

void MembershipAgent::Leave() {
  {
    MutexLock lock(mutex_);
    leaving_ = true;
  }
  // Those who send heartbeats to a server must hear it from the server.
  std::vector<MemberInfo> others = self_.server ? Members() : ReachableServers();
  std::erase_if(others,
                [this](const MemberInfo& other) { return other.instance == self_.instance; });
  for (size_t begin = 0; begin < others.size(); begin += kLeavesAtOnce) {
    WorkerPool pool;
    for (size_t i = begin; i < std::min(begin + kLeavesAtOnce, others.size()); ++i) {
      pool.Run([this, &other = others[i]] {
        // One that does not hear it finds out by itself.
        clients_.To(other.control_address)->Leave(self_.instance, kLeaveDeadline).IgnoreError();
      });
    }
  }
}

void MembershipAgent::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    leaving_ = true;
    changed_.SignalAll();
  }
  // It makes links: first.
  if (events_thread_.joinable()) events_thread_.join();
  std::vector<std::thread*> threads;
  {
    MutexLock lock(mutex_);
    for (Link& link : links_) threads.push_back(&link.thread);
  }
  for (std::thread* thread : threads) {
    if (thread->joinable()) thread->join();
  }
}

// -- at servers ---------------------------------------------------------------------------------

absl::StatusOr<JoinAnswer> MembershipAgent::Admit(const MemberInfo& joiner) {
  MutexLock lock(mutex_);
  if (!self_.server) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", self_.name, " is a client: it cannot be joined"));
  }
  if (leaving_) return MakeError(ErrorKind::kNodeUnreachable, "this server is being stopped");
  absl::StatusOr<JoinAnswer> answer = membership_.Admit(joiner, Now());
  changed_.SignalAll();
  return answer;
}

absl::StatusOr<HeartbeatAnswer> MembershipAgent::Answer(const HeartbeatAsk& ask) {
  MutexLock lock(mutex_);
  if (leaving_) return MakeError(ErrorKind::kNodeUnreachable, "this server is being stopped");
  if (membership_.fenced_for_good()) {
    return MakeError(ErrorKind::kNodeFenced, "this server has been declared dead by the others");
  }
  HeartbeatAnswer answer = membership_.Answer(ask, Now());
  if (membership_.HasEvents()) changed_.SignalAll();
  return answer;
}

void MembershipAgent::OnLeave(NodeInstance instance) {
  MutexLock lock(mutex_);
  membership_.Leave(instance);
  changed_.SignalAll();
}

void MembershipAgent::Publish(std::string_view name, const Rid& rid) {
  MutexLock lock(mutex_);
  membership_.Publish(name, rid);
}

// -- links to servers ---------------------------------------------------------------------------

absl::Status MembershipAgent::JoinOnce(Link& link) {
  const absl::Time sent = Now();
  ABACUS_ASSIGN_OR_RETURN(const JoinAnswer answer,
                          clients_.To(link.address)->Join(self_, kJoinDeadline));
  MutexLock lock(mutex_);
  ABACUS_RETURN_IF_ERROR(membership_.Joined(answer, sent, Now()));
  link.server = answer.server.instance;
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status MembershipAgent::JoinPatiently(Link& link) {
  const absl::Time end = Now() + options_.join_patience;
  for (;;) {
    absl::Status status = JoinOnce(link);
    if (KindOf(status) != ErrorKind::kNodeUnreachable || Now() >= end) return status;
    if (!WaitUnlessStopped(kJoinPause)) return status;
  }
}

bool MembershipAgent::WaitUnlessStopped(absl::Duration time) {
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  MutexLock lock(mutex_);
  while (!stopping_ && std::chrono::steady_clock::now() < until) {
    changed_.WaitUntil(mutex_, until);
  }
  return !stopping_;
}

void MembershipAgent::RunLink(Link& link) {
  while (WaitUnlessStopped(options_.heartbeat_interval)) {
    NodeInstance server;
    {
      MutexLock lock(mutex_);
      if (membership_.fenced_for_good()) return;
      if (link.server.valid() && membership_.IsDead(link.server)) {
        link.server = NodeInstance();
        link.ended = !link.named;
        if (link.ended) return;
      }
      server = link.server;
    }
    if (server.valid()) {
      HeartbeatOnce(server, link.address);
    } else {
      Probe(link);
    }
  }
}

void MembershipAgent::HeartbeatOnce(NodeInstance server, const std::string& address) {
  const absl::Time sent = Now();
  HeartbeatAsk ask;
  {
    MutexLock lock(mutex_);
    ask = membership_.Ask(server, sent);
  }
  const absl::Duration deadline =
      std::max(options_.heartbeat_interval, options_.membership.lease / 3);
  const auto answer = clients_.To(address)->Heartbeat(ask, deadline);
  if (!answer.ok()) return;  // silence is what the lease measures
  MutexLock lock(mutex_);
  membership_.Answered(server, *answer, sent, Now());
  if (membership_.HasEvents()) changed_.SignalAll();
}

void MembershipAgent::Refresh() {
  for (const MemberInfo& server : ReachableServers()) {
    HeartbeatOnce(server.instance, server.control_address);
  }
}

// There was a server at the link's address: is there one again?
void MembershipAgent::Probe(Link& link) {
  const std::shared_ptr<ControlClient> client = clients_.To(link.address);
  const auto who = client->Heartbeat(HeartbeatAsk(), kJoinDeadline);
  if (!who.ok()) return;
  {
    MutexLock lock(mutex_);
    if (membership_.IsDead(who->server)) {
      membership_.DeadOneAnswered(who->server);
      changed_.SignalAll();
      return;
    }
    if (membership_.HasJoined(who->server)) {  // by another address
      if (link.named) link.server = who->server;
      return;
    }
  }
  if (JoinOnce(link).ok()) return;
  HeartbeatAsk ask;
  ask.instance = self_.instance;
  const auto verdict = client->Heartbeat(ask, kJoinDeadline);
  if (!verdict.ok() || verdict->verdict != HeartbeatAnswer::Verdict::kFenced) return;
  MutexLock lock(mutex_);
  membership_.ToldDead(verdict->server);
  changed_.SignalAll();
}

void MembershipAgent::LinkNewServers() {
  MutexLock lock(mutex_);
  if (stopping_ || membership_.fenced_for_good()) return;
  for (const MemberInfo& server : membership_.Servers()) {
    const bool linked = std::any_of(links_.begin(), links_.end(), [&](const Link& link) {
      return !link.ended &&
             (link.server == server.instance || link.address == server.control_address);
    });
    if (linked) continue;
    AddLink(server.control_address, /*named=*/false);
  }
}

// -- events -------------------------------------------------------------------------------------

void MembershipAgent::RunEvents() {
  const auto tick = absl::ToChronoNanoseconds(
      std::clamp(options_.heartbeat_interval / 4, absl::Milliseconds(5), absl::Milliseconds(250)));
  mutex_.Lock();
  while (!stopping_) {
    membership_.Tick(Now());
    const std::vector<Membership::Event> events = membership_.TakeEvents();
    if (events.empty()) {
      changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + tick);
      continue;
    }
    delivering_ = true;
    mutex_.Unlock();
    for (const Membership::Event& event : events) Deliver(event);
    LinkNewServers();
    mutex_.Lock();
    delivering_ = false;
    changed_.SignalAll();
  }
  mutex_.Unlock();
}

void MembershipAgent::Deliver(const Membership::Event& event) {
  using Kind = Membership::Event::Kind;
  switch (event.kind) {
    case Kind::kAlive:
      return listener_.OnAlive(event.member);
    case Kind::kDead: {
      {
        MutexLock lock(mutex_);
        recent_deaths_.insert(recent_deaths_.begin(),
                              Death{event.member, event.why, event.left, absl::Now()});
        if (recent_deaths_.size() > kDeathsMax) recent_deaths_.pop_back();
      }
      if (!event.member.control_address.empty()) clients_.Forget(event.member.control_address);
      return listener_.OnDead(event.member, event.why);
    }
    case Kind::kFenced:
    case Kind::kFencedForGood: {
      {
        MutexLock lock(mutex_);
        fenced_because_ = event.why;
      }
      return listener_.OnFenced(event.why, event.kind == Kind::kFencedForGood);
    }
    case Kind::kUnfenced: {
      {
        MutexLock lock(mutex_);
        fenced_because_.clear();
      }
      return listener_.OnUnfenced();
    }
  }
}

// -- all ----------------------------------------------------------------------------------------

void MembershipAgent::Replaced(NodeInstance instance) {
  MutexLock lock(mutex_);
  membership_.Replaced(instance);
  changed_.SignalAll();
}

absl::StatusOr<Rid> MembershipAgent::Lookup(std::string_view name) {
  ABACUS_ASSIGN_OR_RETURN(const std::vector<Rid> all, LookupAll(name));
  return all.front();
}

absl::StatusOr<std::vector<Rid>> MembershipAgent::LookupAll(std::string_view name) {
  {
    MutexLock lock(mutex_);
    if (auto all = membership_.LookupAll(name); !all.empty()) return all;
  }
  Refresh();
  MutexLock lock(mutex_);
  if (auto all = membership_.LookupAll(name); !all.empty()) return all;
  const std::vector<std::string> names = membership_.RootNames();
  return absl::NotFoundError(absl::StrCat(
      "no server publishes '", ToAbsl(name), "'; ",
      names.empty() ? "none publishes anything" : "there are: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<Rid> MembershipAgent::LookupAt(const std::string& address,
                                              std::string_view name) const {
  MutexLock lock(mutex_);
  NodeInstance server;
  if (address == self_.control_address) server = self_.instance;
  for (const Link& link : links_) {
    if (link.address == address && link.server.valid()) server = link.server;
  }
  if (!server.valid() || membership_.IsDead(server)) {
    return MakeError(ErrorKind::kNodeUnreachable,
                     absl::StrCat("the server at ", address, " does not answer"));
  }
  if (const auto rid = membership_.LookupOf(server, name); rid.has_value()) return *rid;
  return absl::NotFoundError(
      absl::StrCat("the server at ", address, " publishes no '", ToAbsl(name), "'"));
}

std::vector<MemberInfo> MembershipAgent::Members() const {
  MutexLock lock(mutex_);
  return membership_.Members();
}

std::optional<MemberInfo> MembershipAgent::Find(NodeId node) const {
  MutexLock lock(mutex_);
  return membership_.Find(node);
}

absl::StatusOr<MemberInfo> MembershipAgent::Require(NodeId node) {
  if (const auto member = Find(node); member.has_value()) return *member;
  Refresh();
  MutexLock lock(mutex_);
  if (const auto member = membership_.Find(node); member.has_value()) return *member;
  return absl::NotFoundError(
      absl::StrCat("no node ", node, " is alive; there are: ", ListNodes(membership_.Members())));
}

std::optional<MemberInfo> MembershipAgent::FindInstance(NodeInstance instance) const {
  std::optional<MemberInfo> member = Find(instance.node);
  if (member.has_value() && member->instance != instance) member.reset();
  return member;
}

std::vector<MemberInfo> MembershipAgent::Servers() const {
  MutexLock lock(mutex_);
  return membership_.Servers();
}

std::vector<MemberInfo> MembershipAgent::ReachableServers() const {
  MutexLock lock(mutex_);
  std::vector<MemberInfo> reachable;
  const absl::Time now = Now();
  for (MemberInfo& server : membership_.Servers()) {
    if (Reachable(server, now)) reachable.push_back(std::move(server));
  }
  return reachable;
}

std::vector<MemberInfo> MembershipAgent::UnreachableServers() const {
  MutexLock lock(mutex_);
  std::vector<MemberInfo> unreachable;
  const absl::Time now = Now();
  for (MemberInfo& server : membership_.Servers()) {
    if (!Reachable(server, now)) unreachable.push_back(std::move(server));
  }
  return unreachable;
}

bool MembershipAgent::Reachable(const MemberInfo& server, absl::Time now) const {
  return membership_.HasJoined(server.instance) &&
         membership_.HeardAge(server.instance, now) <= options_.membership.lease;
}

absl::Duration MembershipAgent::HeardAge(NodeInstance instance) const {
  MutexLock lock(mutex_);
  return membership_.HeardAge(instance, Now());
}

bool MembershipAgent::fenced() const {
  MutexLock lock(mutex_);
  return membership_.fenced();
}

std::string MembershipAgent::fenced_because() const {
  MutexLock lock(mutex_);
  return fenced_because_;
}

std::vector<MembershipAgent::Death> MembershipAgent::RecentDeaths() const {
  MutexLock lock(mutex_);
  return recent_deaths_;
}

uint64_t MembershipAgent::deaths() const {
  MutexLock lock(mutex_);
  return membership_.deaths();
}

}  // namespace abacus::runtime
