#include "runtime/node/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {

Membership::Membership(MemberInfo self, const MembershipOptions& options, absl::Time now)
    : self_(std::move(self)), options_(options), last_tick_(now), last_contact_(now) {}

// -- as a server --------------------------------------------------------------------------------

absl::StatusOr<JoinAnswer> Membership::Admit(const MemberInfo& joiner, absl::Time now) {
  const NodeInstance instance = joiner.instance;
  if (fenced_for_good_) {
    return MakeError(ErrorKind::kNodeFenced,
                     absl::StrCat("server ", self_.name, " has been declared dead by the others"));
  }
  for (const NodeInstance& dead : dead_) {
    if (dead.node == instance.node && dead.incarnation >= instance.incarnation) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", instance.ToString(), " (", joiner.name,
                       ") cannot join: ", dead.ToString(), " has been declared dead"));
    }
  }
  const auto taken = [&](const MemberInfo& by) {
    return absl::AlreadyExistsError(absl::StrCat("node id ", instance.node, " of ", joiner.name,
                                                 " is taken by ", by.name, " (",
                                                 by.instance.ToString(), "), which is alive"));
  };
  if (instance.node == self_.instance.node) return taken(self_);
  if (const auto it = known_.find(instance.node); it != known_.end()) {
    Known& known = it->second;
    if (known.info.instance == instance) {  // its first request's answer was lost
      known.info = joiner;
      Touch(instance, now);
      return JoinAnswer{self_, MakeView(0)};
    }
    // A server keeps its id over its restarts; a client that has the same id is another one.
    const bool restarted = joiner.server && known.info.server && known.info.name == joiner.name &&
                           instance.incarnation > known.info.instance.incarnation;
    if (!restarted) return taken(known.info);
    Replaced(known.info.instance);
  }
  Add(joiner, now);
  Touch(instance, now);
  return JoinAnswer{self_, MakeView(0)};
}

HeartbeatAnswer Membership::Answer(const HeartbeatAsk& ask, absl::Time now) {
  HeartbeatAnswer answer;
  answer.server = self_.instance;
  if (!ask.instance.valid()) return answer;
  if (IsDead(ask.instance)) {
    answer.verdict = HeartbeatAnswer::Verdict::kFenced;
    return answer;
  }
  const auto it = known_.find(ask.instance.node);
  if (it == known_.end() || it->second.info.instance != ask.instance) return answer;
  answer.verdict = HeartbeatAnswer::Verdict::kKnown;
  Touch(ask.instance, now);
  TakeHeard(ask.heard, now);
  if (ask.view_version != version_) answer.view = MakeView(ask.view_version);
  answer.heard = MakeHeard(!it->second.info.server, now);
  return answer;
}

void Membership::Leave(NodeInstance instance) {
  if (instance != self_.instance) Declare(instance, "it left", true);
}

void Membership::Publish(std::string_view name, const Rid& rid) {
  ++version_;
  for (NamedRoot& root : roots_) {
    if (root.name == name) {
      root.rid = rid;
      return;
    }
  }
  roots_.push_back({std::string(name), rid});
}

// -- as one who has joined ----------------------------------------------------------------------

absl::Status Membership::Joined(const JoinAnswer& answer, absl::Time sent, absl::Time now) {
  const NodeInstance server = answer.server.instance;
  if (server.node == self_.instance.node) {
    return absl::AlreadyExistsError(absl::StrCat("server ", answer.server.name, " at ",
                                                 answer.server.control_address,
                                                 " has this node's id, ", server.node));
  }
  if (IsDead(server)) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", server.ToString(), " has been declared dead"));
  }
  TakeMember(answer.server, now);
  const auto it = known_.find(server.node);
  if (it == known_.end() || it->second.info.instance != server) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", server.ToString(), " is not the latest process of its node"));
  }
  Touch(server, now);
  JoinedServer& joined = joined_[server];
  joined.order = ++joins_;
  joined.view_version = answer.view.version;
  joined.roots = answer.view.roots;
  TakeView(answer.view, now);
  Contact(sent, now);
  return absl::OkStatus();
}

HeartbeatAsk Membership::Ask(NodeInstance server, absl::Time now) const {
  HeartbeatAsk ask;
  ask.instance = self_.instance;
  if (const auto it = joined_.find(server); it != joined_.end()) {
    ask.view_version = it->second.view_version;
  }
  ask.heard = MakeHeard(!self_.server, now);
  return ask;
}

void Membership::Answered(NodeInstance server, const HeartbeatAnswer& answer, absl::Time sent,
                          absl::Time now) {
  if (answer.server != server) {
    if (answer.server.node != server.node || answer.server.incarnation > server.incarnation) {
      Replaced(server);
    }
    return;
  }
  const auto it = joined_.find(server);
  if (it == joined_.end()) return;  // declared dead meanwhile
  if (answer.verdict != HeartbeatAnswer::Verdict::kKnown) {
    // The very process that took this node in does not know it any more: it has forgotten even
    // that it declared it dead.
    return ToldDead(server);
  }
  Touch(server, now);
  TakeHeard(answer.heard, now);
  if (answer.view.has_value()) {
    it->second.view_version = answer.view->version;
    it->second.roots = answer.view->roots;
    TakeView(*answer.view, now);
  }
  Contact(sent, now);
}

// -- all ----------------------------------------------------------------------------------------

void Membership::Replaced(NodeInstance instance) {
  if (instance == self_.instance) return FenceForGood("a later process of this node is alive");
  Declare(instance, "its node has been started again");
}

void Membership::ToldDead(NodeInstance by) {
  FenceForGood(absl::StrCat("server ", by.ToString(), " has declared it dead"));
}

void Membership::DeadOneAnswered(NodeInstance server) {
  if (!fenced_ || !IsDead(server)) return;
  FenceForGood(absl::StrCat("server ", server.ToString(),
                            ", which this node had given up, is alive and went on without it"));
}

void Membership::Tick(absl::Time now) {
  MindLease(now);
  const absl::Duration gap = now - last_tick_;
  last_tick_ = now;
  if (gap > options_.lease / 2) {
    // This process was stopped, or its machine was: what it did not hear meanwhile says nothing.
    for (auto& [node, known] : known_) known.heard = std::min(known.heard + gap, now);
  }
  std::vector<NodeInstance> silent;
  for (const auto& [node, known] : known_) {
    const bool mine_to_say = self_.server || HasJoined(known.info.instance);
    if (mine_to_say && now - known.heard > options_.dead_after) {
      silent.push_back(known.info.instance);
    }
  }
  for (const NodeInstance& instance : silent) {
    Declare(instance,
            absl::StrCat("nobody has heard it for ", absl::FormatDuration(options_.dead_after)));
  }
}

void Membership::MindLease(absl::Time now) {
  if (self_.server || joins_ == 0 || fenced_for_good_) return;
  if (!fenced_ && now - last_contact_ > options_.lease) {
    fenced_ = true;
    servers_when_fenced_ = Servers().size();
    events_.push_back({Event::Kind::kFenced, self_,
                       absl::StrCat("it has reached none of its servers for ",
                                    absl::FormatDuration(options_.lease))});
  }
  if (fenced_ && MayBeGivenUp(now)) {
    FenceForGood(absl::StrCat("it has reached none of its ", servers_when_fenced_, " servers for ",
                              absl::FormatDuration(now - last_contact_),
                              ": one may have declared it dead"));
  }
}

bool Membership::MayBeGivenUp(absl::Time now) const {
  // A server that is alone, or comes again alone, has told nobody of a death; it says so itself.
  if (servers_when_fenced_ < 2) return false;
  return now - last_contact_ > options_.lease + (options_.dead_after - options_.lease) / 2;
}

std::vector<Membership::Event> Membership::TakeEvents() { return std::exchange(events_, {}); }

std::vector<MemberInfo> Membership::Members() const {
  std::vector<MemberInfo> members = {self_};
  for (const auto& [node, known] : known_) members.push_back(known.info);
  return members;
}

std::optional<MemberInfo> Membership::Find(NodeId node) const {
  if (node == self_.instance.node) return self_;
  const auto it = known_.find(node);
  if (it == known_.end()) return std::nullopt;
  return it->second.info;
}

std::vector<MemberInfo> Membership::Servers() const {
  std::vector<MemberInfo> servers;
  for (const auto& [node, known] : known_) {
    if (known.info.server) servers.push_back(known.info);
  }
  return servers;
}

absl::Duration Membership::HeardAge(NodeInstance instance, absl::Time now) const {
  const auto it = known_.find(instance.node);
  if (it == known_.end()) return absl::ZeroDuration();
  return std::max(now - it->second.heard, absl::ZeroDuration());
}

std::optional<Rid> Membership::Lookup(std::string_view name) const {
  const std::vector<Rid> all = LookupAll(name);
  return all.empty() ? std::nullopt : std::optional(all.front());
}

std::vector<Rid> Membership::LookupAll(std::string_view name) const {
  std::map<uint64_t, Rid> joined_roots;  // by when their server was joined
  for (const auto& [server, joined] : joined_) {
    for (const NamedRoot& root : joined.roots) {
      if (root.name == name) joined_roots.emplace(joined.order, root.rid);
    }
  }
  std::vector<Rid> found;
  for (const NamedRoot& root : roots_) {
    if (root.name == name) found.push_back(root.rid);
  }
  for (const auto& [order, rid] : joined_roots) found.push_back(rid);
  return found;
}

std::optional<Rid> Membership::LookupOf(NodeInstance server, std::string_view name) const {
  const auto joined = joined_.find(server);
  const bool own = server == self_.instance;
  if (!own && joined == joined_.end()) return std::nullopt;
  for (const NamedRoot& root : own ? roots_ : joined->second.roots) {
    if (root.name == name) return root.rid;
  }
  return std::nullopt;
}

std::vector<std::string> Membership::RootNames() const {
  std::set<std::string> names;
  for (const NamedRoot& root : roots_) names.insert(root.name);
  for (const auto& [server, joined] : joined_) {
    for (const NamedRoot& root : joined.roots) names.insert(root.name);
  }
  return {names.begin(), names.end()};
}

// -- parts --------------------------------------------------------------------------------------

View Membership::MakeView(uint64_t since) const {
  View view;
  view.version = version_;
  view.members = Members();
  for (const DeadRecord& record : dead_by_version_) {
    if (record.version > since) view.dead.push_back(record.instance);
  }
  view.roots = roots_;
  return view;
}

// Only what this node heard itself: hearsay that is passed on would grow younger on the way and
// keep a dead node alive between two servers that repeat it to each other.
std::vector<Heard> Membership::MakeHeard(bool servers_only, absl::Time now) const {
  std::vector<Heard> heard;
  for (const auto& [node, known] : known_) {
    if (known.heard_directly == absl::InfinitePast()) continue;
    if (servers_only && !known.info.server) continue;
    heard.push_back(
        {known.info.instance, std::max(now - known.heard_directly, absl::ZeroDuration())});
  }
  return heard;
}

void Membership::TakeHeard(const std::vector<Heard>& heard, absl::Time now) {
  for (const Heard& one : heard) {
    const auto it = known_.find(one.instance.node);
    if (it == known_.end() || it->second.info.instance != one.instance) continue;
    if (one.age < absl::ZeroDuration()) continue;
    it->second.heard = std::max(it->second.heard, now - one.age);
  }
}

void Membership::TakeView(const View& view, absl::Time now) {
  for (const NodeInstance& dead : view.dead) {
    if (dead == self_.instance) {
      FenceForGood("the others have declared it dead");
    } else {
      Declare(dead, "a server has declared it dead");
    }
  }
  for (const MemberInfo& member : view.members) TakeMember(member, now);
}

void Membership::TakeMember(const MemberInfo& member, absl::Time now) {
  const NodeInstance instance = member.instance;
  if (!instance.valid() || instance == self_.instance || IsDead(instance)) return;
  if (instance.node == self_.instance.node) {
    if (instance.incarnation > self_.instance.incarnation) Replaced(self_.instance);
    return;
  }
  if (const auto it = known_.find(instance.node); it != known_.end()) {
    const NodeInstance before = it->second.info.instance;
    if (before.incarnation >= instance.incarnation) return;
    Replaced(before);
  }
  Add(member, now);
}

void Membership::Touch(NodeInstance instance, absl::Time now) {
  const auto it = known_.find(instance.node);
  if (it == known_.end() || it->second.info.instance != instance) return;
  it->second.heard = std::max(it->second.heard, now);
  it->second.heard_directly = now;
}

void Membership::Add(const MemberInfo& member, absl::Time now) {
  known_[member.instance.node] = {member, now, absl::InfinitePast()};
  ++version_;
  events_.push_back({Event::Kind::kAlive, member, ""});
}

void Membership::Declare(NodeInstance instance, const std::string& why, bool left) {
  if (!dead_.insert(instance).second) return;
  ++version_;
  ++deaths_;
  dead_by_version_.push_back({instance, version_});
  if (dead_by_version_.size() > kDeadMax) {
    dead_.erase(dead_by_version_.front().instance);
    dead_by_version_.pop_front();
  }
  joined_.erase(instance);
  MemberInfo member;
  member.instance = instance;
  if (const auto it = known_.find(instance.node);
      it != known_.end() && it->second.info.instance == instance) {
    member = it->second.info;
    known_.erase(it);
  }
  events_.push_back({Event::Kind::kDead, std::move(member), why, left});
}

void Membership::FenceForGood(const std::string& why) {
  if (std::exchange(fenced_for_good_, true)) return;
  events_.push_back({Event::Kind::kFencedForGood, self_, why});
}

void Membership::Contact(absl::Time sent, absl::Time now) {
  MindLease(now);
  last_contact_ = std::max(last_contact_, sent);
  if (!fenced_ || fenced_for_good_ || now - last_contact_ > options_.lease) return;
  fenced_ = false;
  events_.push_back({Event::Kind::kUnfenced, self_, ""});
}

}  // namespace abacus::runtime
