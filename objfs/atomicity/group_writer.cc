#include "objfs/atomicity/group_writer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr int kBackoffFactorMax = 32;

// The server has not done what it was asked, whatever it was.
bool IsTurnedAway(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status);
}
// It has not even been asked.
bool IsNotSent(const absl::Status& status) { return absl::IsNotFound(status); }

absl::Status StatusOf(Refusal refusal, const std::string& why) {
  switch (refusal) {
    case Refusal::kChanged:
      return absl::AbortedError(why);
    case Refusal::kNoObject:
      return absl::NotFoundError(why);
    case Refusal::kFull:
      return absl::ResourceExhaustedError(why);
    case Refusal::kUnusable:
      return absl::DataLossError(why);
    case Refusal::kShutOut:
      return absl::UnauthenticatedError(why);
    case Refusal::kClaimed:
    case Refusal::kOld:
    case Refusal::kNone:
      break;
  }
  return absl::UnavailableError(why.empty() ? "others were always before this group" : why);
}

bool MayPass(Refusal refusal) {
  return refusal == Refusal::kNone || refusal == Refusal::kOld || refusal == Refusal::kClaimed ||
         refusal == Refusal::kFull;
}

}  // namespace

// One identifier's life.
struct GroupWriter::Attempt {
  Driver driver;
  Version id;
  std::vector<CommitPart> group;
  // Servers that may have prepared it.
  std::set<uint64_t> reached;
  absl::Status turned_away;  // by one that has not
  absl::Status error;        // the last one, for people
  Refusal refusal = Refusal::kNone;
  std::string why;

  bool HasMissedSomebody() const { return reached.size() < group.size(); }
  // What a server said to being asked to prepare it.
  void Note(uint64_t server, const absl::StatusOr<CommitReply>& reply);
};

void GroupWriter::Attempt::Note(uint64_t server, const absl::StatusOr<CommitReply>& reply) {
  if (!reply.ok()) {
    error = reply.status();
    if (IsNotSent(error)) return;
    if (!IsTurnedAway(error)) {
      reached.insert(server);
    } else if (!reached.contains(server)) {
      turned_away = error;
    }
    return;
  }
  reached.insert(server);
  // What will not pass counts, whoever else refuses.
  if (reply->message.kind != CommitKind::kRefused || !MayPass(refusal)) return;
  refusal = reply->refusal;
  why = reply->why;
}

GroupWriter::GroupWriter(const Options& options, Host host, HybridClock* clock)
    : options_(options),
      host_(std::move(host)),
      clock_(clock),
      finisher_(options.until_applied
                    ? nullptr
                    : std::make_unique<GroupFinisher>(options.commit, host_.steady_ns, host_.epoch,
                                                      host_.peers)),
      random_(options.seed) {}

absl::Status GroupWriter::Check(const std::vector<ServerPart>& parts) {
  if (parts.empty()) return absl::InvalidArgumentError("a group of no server");
  std::set<uint64_t> servers;
  for (const ServerPart& part : parts) {
    if (!servers.insert(part.server).second) {
      return absl::InvalidArgumentError("a group names a server twice");
    }
    ABACUS_RETURN_IF_ERROR(part.part.Check());
  }
  return absl::OkStatus();
}

GroupOutcome GroupWriter::Write(const std::vector<ServerPart>& parts) {
  GroupOutcome outcome{.kind = GroupOutcome::Kind::kAborted, .id = {}, .why = Check(parts)};
  if (!outcome.why.ok()) return outcome;
  std::vector<CommitPart> group;
  std::vector<std::string> payloads;
  for (const ServerPart& part : parts) {
    group.push_back({part.server, 0});
    payloads.push_back(part.part.Encode());
  }
  const Nanos give_up_at = host_.steady_ns() + absl::ToInt64Nanoseconds(options_.give_up);
  for (int attempts = 1; TryOnce(group, payloads, give_up_at, &outcome); ++attempts) {
    const absl::Duration wait = Backoff(attempts);
    if (host_.steady_ns() + absl::ToInt64Nanoseconds(wait) >= give_up_at) break;
    host_.wait(wait);
  }
  return outcome;
}

absl::Duration GroupWriter::Backoff(int attempts) {
  const double factor = std::min(1 << std::min(attempts - 1, 16), kBackoffFactorMax);
  runtime::MutexLock lock(mutex_);
  return options_.retry * factor * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
}

bool GroupWriter::TryOnce(const std::vector<CommitPart>& group,
                          const std::vector<std::string>& payloads, Nanos give_up_at,
                          GroupOutcome* outcome) {
  const Version id = clock_->Next();
  const Nanos begun = host_.steady_ns();
  Attempt attempt{
      .driver = Driver(options_.commit, id, group, payloads, Driver::Start::kPrepare, begun),
      .id = id,
      .group = group};
  Driver& driver = attempt.driver;
  std::vector<CommitSend> sends;
  driver.Tick(begun, &sends);
  // At the end all are told to forget it.
  while (!sends.empty() || driver.phase() != Driver::Phase::kEnded) {
    if (!sends.empty()) {
      sends = AskAll(attempt, sends, give_up_at);
      if (!attempt.turned_away.ok()) break;
      const bool is_new = driver.phase() == Driver::Phase::kCommitting && finisher_ != nullptr;
      if (is_new && finisher_->Take(driver, sends, give_up_at)) {
        *outcome = {GroupOutcome::Kind::kCommitted, id, absl::OkStatus()};
        return false;
      }
      continue;
    }
    // Who did not hear that it is called off finds out by itself.
    if (driver.aborted() || driver.in_doubt()) break;
    const Nanos until = std::min(driver.NextAt(), give_up_at);
    if (until > host_.steady_ns()) host_.wait(absl::Nanoseconds(until - host_.steady_ns()));
    const Nanos now = host_.steady_ns();
    const bool is_late = now - begun >= options_.commit.decide_ns || now >= give_up_at;
    if (driver.phase() == Driver::Phase::kPreparing && is_late && attempt.HasMissedSomebody()) {
      attempt.turned_away = absl::UnavailableError(attempt.error.message());
      break;
    }
    if (now >= give_up_at) break;
    driver.Tick(now, &sends);
  }
  outcome->id = id;
  if (driver.committed()) {
    *outcome = {GroupOutcome::Kind::kCommitted, id, absl::OkStatus()};
    return false;
  }
  if (!attempt.turned_away.ok()) {
    CallOff(attempt);
    *outcome = {GroupOutcome::Kind::kAborted, id, attempt.turned_away};
    return false;
  }
  if (driver.aborted()) {
    // The client's clock is behind what the servers have seen.
    clock_->Observe(driver.newest()).IgnoreError();
    *outcome = {GroupOutcome::Kind::kAborted, id, StatusOf(attempt.refusal, attempt.why)};
    return MayPass(attempt.refusal);
  }
  if (attempt.error.ok()) attempt.error = absl::DeadlineExceededError("servers did not answer");
  *outcome = {GroupOutcome::Kind::kInDoubt, id, attempt.error};
  return false;
}

std::vector<CommitSend> GroupWriter::AskAll(Attempt& attempt, const std::vector<CommitSend>& sends,
                                            Nanos give_up_at) {
  std::vector<CommitSend> more;
  const Nanos left = std::max<Nanos>(give_up_at - host_.steady_ns(), 1);
  const Nanos wait = std::min(options_.commit.resend_ns, left);
  const bool prepares = attempt.driver.phase() == Driver::Phase::kPreparing;
  host_.peers->Ask(host_.epoch(), sends, absl::Nanoseconds(wait),
                   [&](size_t i, const absl::StatusOr<CommitReply>& reply) {
                     if (prepares) attempt.Note(sends[i].to, reply);
                     if (!reply.ok()) return;
                     attempt.driver.OnAnswer(reply->message, host_.steady_ns(), &more);
                   });
  return more;
}

void GroupWriter::CallOff(Attempt& attempt) {
  std::vector<CommitSend> sends;
  for (const CommitPart& part : attempt.group) {
    if (!attempt.reached.contains(part.server)) continue;
    sends.push_back({.to = part.server,
                     .message = {.kind = CommitKind::kAbort, .id = attempt.id, .part = part},
                     .after = 0});
  }
  if (sends.empty()) return;
  host_.peers->Ask(host_.epoch(), sends, absl::Nanoseconds(options_.commit.resend_ns),
                   [](size_t, const absl::StatusOr<CommitReply>&) {});
}

}  // namespace abacus::objfs
