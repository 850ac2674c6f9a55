#ifndef ABACUS_OBJFS_RAID_SMALL_WRITE_INL_H_
#define ABACUS_OBJFS_RAID_SMALL_WRITE_INL_H_

// The bodies of small_write.h's template.

#include <algorithm>
#include <utility>

#include "objfs/atomicity/commit_core_inl.h"
#include "objfs/raid/small_write.h"

namespace abacus::objfs {

template <typename Policy>
SmallWrite<Policy>::SmallWrite(const SmallWriteOptions& options, HybridClock& clock,
                               std::vector<CommitPart> group, bool reads_first, Combine combine,
                               std::function<uint64_t()> random)
    : options_(options),
      clock_(clock),
      group_(std::move(group)),
      reads_first_(reads_first),
      combine_(std::move(combine)),
      random_(std::move(random)) {}

template <typename Policy>
bool SmallWrite<Policy>::ended() const {
  return failed_ || in_doubt() ||
         (driver_.has_value() && driver_->phase() == Driver::Phase::kEnded);
}

template <typename Policy>
Nanos SmallWrite<Policy>::NextAt() const {
  if (ended()) return INT64_MAX;
  return driver_.has_value() ? driver_->NextAt() : next_at_;
}

template <typename Policy>
void SmallWrite<Policy>::Begin(Nanos now, Sends* out) {
  waiting_ = false;
  ++attempts_;
  if (Policy::kRetryNewer || attempts_ == 1) time_ = clock_.Next();
  old_.assign(group_.size(), std::nullopt);
  if (reads_first_) return Ask(now, out);
  for (auto& content : old_) content.emplace();
  Prewrite(now, out);
}

template <typename Policy>
void SmallWrite<Policy>::Ask(Nanos now, Sends* out) {
  next_at_ = now + options_.ask_again_ns;
  for (size_t i = 0; i < group_.size(); ++i) {
    if (old_[i].has_value()) continue;
    out->order.push_back(
        {.to = group_[i].server,
         .message = {.kind = OrderKind::kReserve, .time = time_, .block = group_[i]},
         .after = 0});
  }
}

template <typename Policy>
void SmallWrite<Policy>::Prewrite(Nanos now, Sends* out) {
  std::vector<std::string> contents;
  for (auto& content : old_) contents.push_back(*std::exchange(content, std::nullopt));
  driver_.emplace(options_.commit, time_, group_, combine_(contents), Driver::Start::kPrepare, now);
  driver_->Tick(now, &out->commit);
}

template <typename Policy>
void SmallWrite<Policy>::OnAnswer(const OrderMessage& answer, Nanos now, Sends* out) {
  const auto found = std::find(group_.begin(), group_.end(), answer.block);
  const bool expected = !waiting_ && !failed_ && !driver_.has_value() && answer.time == time_;
  if (!expected || found == group_.end()) return;
  const auto index = static_cast<size_t>(found - group_.begin());
  switch (answer.kind) {
    case OrderKind::kContent:
      old_[index] = answer.content;
      if (std::find(old_.begin(), old_.end(), std::nullopt) == old_.end()) Prewrite(now, out);
      return;
    case OrderKind::kWake:
      return Ask(now, out);
    case OrderKind::kTooOld:
      // A reservation of this attempt may have come late, too: all are released.
      for (const CommitPart& block : group_) {
        out->order.push_back(
            {.to = block.server,
             .message = {.kind = OrderKind::kRelease, .time = time_, .block = block},
             .after = 0});
      }
      return Lose(answer.newest, now);
    default:
      return;  // kWouldBlock: kWake comes, or it is asked again
  }
}

template <typename Policy>
void SmallWrite<Policy>::Lose(Version newest, Nanos now) {
  // A clock that is far ahead would drag ours on: then only time helps.
  if (Policy::kLearnFromRefusal) clock_.Observe(newest).IgnoreError();
  driver_.reset();
  waiting_ = true;
  failed_ = attempts_ >= options_.attempts_max;
  const int doublings = std::min(attempts_ - 1, 30);
  const Nanos limit = std::min(options_.back_off_max_ns, options_.back_off_min_ns << doublings);
  next_at_ = now + 1 + static_cast<Nanos>(random_() % static_cast<uint64_t>(limit));
}

template <typename Policy>
void SmallWrite<Policy>::AfterDriver(Nanos now) {
  // Who does not hear of the abort finds out when the lease is over.
  if (driver_->aborted()) Lose(driver_->newest(), now);
}

template <typename Policy>
void SmallWrite<Policy>::OnAnswer(const CommitMessage& answer, Nanos now, Sends* out) {
  if (!driver_.has_value()) return;
  driver_->OnAnswer(answer, now, &out->commit);
  AfterDriver(now);
}

template <typename Policy>
void SmallWrite<Policy>::Tick(Nanos now, Sends* out) {
  if (now < NextAt()) return;
  if (driver_.has_value()) {
    driver_->Tick(now, &out->commit);
    return AfterDriver(now);
  }
  if (waiting_) return Begin(now, out);
  Ask(now, out);
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_SMALL_WRITE_INL_H_
