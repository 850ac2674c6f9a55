#include "objfs/atomicity/group_finisher.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace abacus::objfs {

using runtime::MutexLock;

GroupFinisher::GroupFinisher(CommitOptions options, std::function<int64_t()> steady_ns,
                             std::function<uint64_t()> epoch, std::shared_ptr<CommitPeers> peers)
    : options_(options),
      steady_ns_(std::move(steady_ns)),
      epoch_(std::move(epoch)),
      peers_(std::move(peers)),
      worker_([this] { Work(); }) {}

GroupFinisher::~GroupFinisher() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  worker_.join();
}

bool GroupFinisher::Take(Driver& driver, std::vector<CommitSend>& sends, Nanos give_up_at) {
  MutexLock lock(mutex_);
  if (unfinished_ >= kGroupsMax) return false;
  ++unfinished_;
  taken_.push_back({std::move(driver), std::move(sends), give_up_at});
  changed_.SignalAll();
  return true;
}

void GroupFinisher::Work() {
  std::list<One> groups;
  Nanos due = INT64_MAX;
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (!stopping_ && taken_.empty()) {
        const Nanos now = steady_ns_();
        if (now >= due) break;
        if (due == INT64_MAX) {
          changed_.Wait(mutex_);
        } else {
          changed_.WaitUntil(
              mutex_, std::chrono::steady_clock::now() + std::chrono::nanoseconds(due - now));
        }
      }
      if (stopping_) return;
      groups.splice(groups.end(), taken_);
    }
    due = AskRound(groups);
    MutexLock lock(mutex_);
    unfinished_ = groups.size() + taken_.size();
  }
}

Nanos GroupFinisher::AskRound(std::list<One>& groups) {
  std::vector<CommitSend> sends;
  std::vector<One*> senders;
  for (One& one : groups) {
    one.driver.Tick(steady_ns_(), &one.sends);
    for (CommitSend& send : std::exchange(one.sends, {})) {
      sends.push_back(std::move(send));
      senders.push_back(&one);
    }
  }
  if (!sends.empty()) {
    peers_->Ask(epoch_(), sends, absl::Nanoseconds(options_.resend_ns),
                [&](size_t i, const absl::StatusOr<CommitReply>& reply) {
                  if (!reply.ok()) return;
                  senders[i]->driver.OnAnswer(reply->message, steady_ns_(), &senders[i]->sends);
                });
  }
  const Nanos now = steady_ns_();
  groups.remove_if([&](const One& one) {
    const bool is_over = one.driver.phase() == Driver::Phase::kEnded && one.sends.empty();
    return is_over || now >= one.give_up_at;
  });
  Nanos due = INT64_MAX;
  for (const One& one : groups) {
    due = std::min(due, one.sends.empty() ? one.driver.NextAt() : now);
  }
  return due;
}

}  // namespace abacus::objfs
