#include "runtime/node/digest_loop.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status.h"
#include "runtime/base/steady_time.h"

namespace abacus::runtime {
namespace {

// A server that takes longer gets its next digests as one.
constexpr absl::Duration kSendDeadline = absl::Milliseconds(500);
// Digests of many clients that come one after the other are decided on together.
constexpr std::chrono::milliseconds kDecisionsApart{20};

}  // namespace

DigestLoop::DigestLoop(absl::Duration interval, absl::Duration window, ResourceManager* resources,
                       PlacementLoop* engine, MoveDesk* desk, MembershipAgent* membership,
                       ControlClients* clients)
    : resources_(*resources),
      engine_(engine),
      desk_(*desk),
      membership_(*membership),
      clients_(*clients),
      sender_([this](const std::string& address, const Digest& digest) {
        return clients_.To(address)->SendDigest(digest, kSendDeadline);
      }),
      interval_(interval),
      length_of_window_(window) {}

void DigestLoop::SetTimes(absl::Duration interval, absl::Duration window) {
  MutexLock lock(mutex_);
  interval_ = interval;
  length_of_window_ = window;
  changed_.SignalAll();
}

void DigestLoop::Start() {
  thread_ = std::thread([this] { Run(); });
}

void DigestLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  sender_.Stop();
}

absl::Status DigestLoop::Accept(Digest digest) {
  if (engine_ == nullptr) {
    return absl::FailedPreconditionError("this node is a client: it decides nothing");
  }
  if (!membership_.FindInstance(digest.from).has_value()) {
    engine_->RefuseStranger();
    return absl::FailedPreconditionError(
        absl::StrCat("node ", digest.from.ToString(), " has not joined this server"));
  }
  ABACUS_RETURN_IF_ERROR(engine_->Accept(std::move(digest), SteadyNow()));
  MutexLock lock(mutex_);
  digest_came_ = true;
  changed_.SignalAll();
  return absl::OkStatus();
}

void DigestLoop::Run() {
  Clock::time_point last_report = Clock::now();
  Clock::time_point next_decision = last_report;
  for (;;) {
    bool reports = false;
    {
      MutexLock lock(mutex_);
      for (;;) {
        if (stopping_) return;
        const Clock::time_point next_report =
            last_report +
            std::chrono::duration_cast<Clock::duration>(absl::ToChronoNanoseconds(interval_));
        const auto until = digest_came_ ? std::min(next_report, next_decision) : next_report;
        const Clock::time_point now = Clock::now();
        if (now >= until) {
          reports = now >= next_report;
          // A round that took too long delays the next one; none is made up for.
          if (reports) last_report = now - next_report < kDecisionsApart ? next_report : now;
          break;
        }
        changed_.WaitUntil(mutex_, until);
      }
      digest_came_ = false;
    }
    if (reports && before_report_) before_report_();
    if (reports) Report();
    Decide();
    next_decision = Clock::now() + kDecisionsApart;
  }
}

void DigestLoop::Report() {
  if (membership_.fenced()) return;
  const absl::Time now = SteadyNow();
  const Digest digest = resources_.TakeDigest(now);
  {
    MutexLock lock(mutex_);
    window_.Add(digest, now, length_of_window_);
  }
  if (engine_ != nullptr) engine_->Accept(digest, now).IgnoreError();  // it counts refusals
  std::vector<std::string> addresses;
  for (const MemberInfo& server : membership_.ReachableServers()) {
    addresses.push_back(server.control_address);
  }
  sender_.Post(addresses, digest);
}

Digest DigestLoop::Last() const {
  MutexLock lock(mutex_);
  return window_.Sum();
}

void DigestLoop::Decide() {
  if (engine_ == nullptr || membership_.fenced()) return;
  for (MoveStep& step : StepsOf(engine_->Decide(SteadyNow(), absl::Now()))) {
    if (step.first.empty()) {
      for (const PlannedMove& move : step.then) CarryOut(move, nullptr);
      continue;
    }
    // What others make room for comes when the room is there.
    const auto after = std::make_shared<After>();
    after->moves = std::move(step.then);
    after->waits_for = step.first.size();
    for (const PlannedMove& move : step.first) CarryOut(move, after);
  }
}

void DigestLoop::CarryOut(const PlannedMove& move, std::shared_ptr<After> after) {
  desk_.CarryOut(move, [this, after = std::move(after)](const PlannedMove& planned,
                                                        const absl::StatusOr<MoveRecord>& record) {
    engine_->OnMoveEnded(planned, record.status(),
                         record.ok() ? record->quiesce : absl::ZeroDuration(), SteadyNow());
    if (after == nullptr) return;
    if (!record.ok()) after->failed.store(true);
    if (after->waits_for.fetch_sub(1) > 1) return;
    for (const PlannedMove& waiting : after->moves) {
      if (!after->failed.load()) {
        CarryOut(waiting, nullptr);
      } else {
        engine_->OnMoveEnded(waiting, absl::AbortedError("what was to make room has not moved"),
                             absl::ZeroDuration(), SteadyNow());
      }
    }
  });
}

}  // namespace abacus::runtime
