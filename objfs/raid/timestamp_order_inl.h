#ifndef ABACUS_OBJFS_RAID_TIMESTAMP_ORDER_INL_H_
#define ABACUS_OBJFS_RAID_TIMESTAMP_ORDER_INL_H_

// The bodies of timestamp_order.h's template.

#include <algorithm>
#include <utility>

#include "objfs/atomicity/commit_core_inl.h"
#include "objfs/raid/timestamp_order.h"

namespace abacus::objfs {

template <typename Policy>
TimestampOrder<Policy>::TimestampOrder(const OrderOptions& options, uint64_t server,
                                       OrderState durable, Nanos now)
    : options_(options),
      server_(server),
      participant_(
          options.commit, server,
          Policy::kRecoverPending ? durable.commit : CommitEntries{durable.commit.ceiling, {}},
          now) {
  for (auto& [number, content] : durable.blocks) blocks_[number].now = std::move(content);
  for (const auto& [key, entry] : participant_.entries()) {
    if (!entry.committed) blocks_[key.part].prewrites.insert(key.id);
  }
}

template <typename Policy>
void TimestampOrder<Policy>::Start(OrderActions* out) {
  participant_.Start(&out->commit);
  Settle(out);
}

template <typename Policy>
bool TimestampOrder<Policy>::HasOlder(const Block& block, Version time) {
  const auto older = [time](const auto& all, Version first) {
    return !all.empty() && first < time;
  };
  return (Policy::kWaitForPrewrites && !block.prewrites.empty() &&
          older(block.prewrites, *block.prewrites.begin())) ||
         (Policy::kWaitForReservations && !block.reservations.empty() &&
          older(block.reservations, block.reservations.begin()->first));
}

template <typename Policy>
bool TimestampOrder<Policy>::IsTooOld(const Block& block, const OrderMessage& message) const {
  const Version time = message.time;
  if (time <= participant_.floor()) return true;
  const bool under_write = time <= block.now.written;
  if (message.kind == OrderKind::kRead) return under_write && Policy::kRefuseReadUnderWrites;
  // What was released, aborted or resolved does not begin again.
  if (!participant_.Admits({time, message.block.part})) return true;
  return (under_write && Policy::kRefuseUnderWrites) ||
         (time <= block.read && Policy::kRefuseUnderReads);
}

template <typename Policy>
void TimestampOrder<Policy>::OnRead(uint64_t from, const OrderMessage& message, Nanos now,
                                    OrderActions* out) {
  Block& block = blocks_[message.block.part];
  OrderMessage answer{.kind = OrderKind::kContent, .time = message.time, .block = message.block};
  const bool reserve = message.kind == OrderKind::kReserve;
  // What was reserved may be asked again, unless a newer write of the whole stripe came over it.
  const bool again =
      reserve && block.reservations.contains(message.time) && block.now.written < message.time;
  if (!again && IsTooOld(block, message)) {
    answer.kind = OrderKind::kTooOld;
    answer.newest = std::max({block.read, block.now.written, participant_.floor()});
    out->sends.push_back({.to = from, .message = std::move(answer), .after = 0});
    return;
  }
  if (HasOlder(block, message.time)) {
    if (block.waiting.size() >= options_.waiting_max) block.waiting.pop_front();
    block.waiting.emplace_back(from, message.time);
    answer.kind = OrderKind::kWouldBlock;
    out->sends.push_back({.to = from, .message = std::move(answer), .after = 0});
    return;
  }
  if (reserve ? Policy::kReservationsCount : Policy::kReadsCount) {
    block.read = std::max(block.read, message.time);
  }
  if (reserve && !again) block.reservations[message.time] = now + options_.commit.lease_ns;
  const uint64_t after =
      Policy::kReadsRaiseCeiling ? participant_.RaiseCeiling(message.time, &out->commit) : 0;
  answer.content = block.now.content;
  answer.written = block.now.written;
  out->sends.push_back({.to = from, .message = std::move(answer), .after = after});
}

template <typename Policy>
void TimestampOrder<Policy>::Handle(uint64_t from, const OrderMessage& message, Nanos now,
                                    OrderActions* out) {
  switch (message.kind) {
    case OrderKind::kRead:
    case OrderKind::kReserve:
      return OnRead(from, message, now, out);
    case OrderKind::kRelease: {
      Block& block = blocks_[message.block.part];
      if (block.reservations.erase(message.time) > 0) Wake(message.block.part, block, out);
      return;
    }
    default:
      return;  // an answer
  }
}

// Whether that prewrite, which is new here, may stand.
template <typename Policy>
bool TimestampOrder<Policy>::Votes(const Block& block, Version time, Nanos now) const {
  if (const auto found = block.reservations.find(time); found != block.reservations.end()) {
    return found->second > now || !Policy::kReservationsEnd;
  }
  // Without one, as writes of whole stripes, which read nothing.
  return (time > block.read || !Policy::kRefuseUnderReads) &&
         (time > block.now.written || !Policy::kRefuseUnderWrites) &&
         block.prewrites.size() < options_.pending_max;
}

template <typename Policy>
void TimestampOrder<Policy>::Handle(uint64_t from, const CommitMessage& message, Nanos now,
                                    OrderActions* out) {
  if (message.kind >= CommitKind::kPrepared) {
    participant_.Handle(from, message, false, now, &out->commit);
    return;
  }
  const CommitKey key{message.id, message.part.part};
  Block& block = blocks_[key.part];
  const bool vote = message.kind == CommitKind::kPrepare && Votes(block, message.id, now);
  const bool is_new = participant_.Find(key) == nullptr;
  const size_t sends = out->commit.sends.size();
  participant_.Handle(from, message, vote, now, &out->commit);
  if (is_new && participant_.Find(key) != nullptr) block.prewrites.insert(key.id);
  if (block.reservations.erase(key.id) > 0) Wake(key.part, block, out);
  for (size_t i = sends; i < out->commit.sends.size(); ++i) {
    CommitMessage& answer = out->commit.sends[i].message;
    if (answer.kind != CommitKind::kRefused) continue;
    answer.newest = std::max({answer.newest, block.read, block.now.written});
  }
  Settle(out);
}

// What the participant has decided changes the blocks.
template <typename Policy>
void TimestampOrder<Policy>::Settle(OrderActions* out) {
  for (const CommitKey& key : std::exchange(out->commit.apply, {})) {
    Block& block = blocks_[key.part];
    const auto* entry = participant_.Find(key);
    if (key.id > block.now.written || !Policy::kOnlyOverOlder) {
      block.now = {key.id, entry->payload};
    }
    block.prewrites.erase(key.id);
    participant_.Applied(key, &out->commit);
    Wake(key.part, block, out);
  }
  for (const CommitKey& key : std::exchange(out->commit.undone, {})) {
    Block& block = blocks_[key.part];
    block.prewrites.erase(key.id);
    Wake(key.part, block, out);
  }
}

template <typename Policy>
void TimestampOrder<Policy>::Wake(uint64_t number, Block& block, OrderActions* out) {
  std::erase_if(block.waiting, [&](const auto& waiter) {
    if (HasOlder(block, waiter.second)) return false;
    out->sends.push_back(
        {.to = waiter.first,
         .message = {.kind = OrderKind::kWake, .time = waiter.second, .block = {server_, number}},
         .after = 0});
    return true;
  });
}

template <typename Policy>
void TimestampOrder<Policy>::Tick(Nanos now, OrderActions* out) {
  for (auto& [number, block] : blocks_) {
    if (!Policy::kReservationsEnd) break;
    const size_t ended =
        std::erase_if(block.reservations, [now](const auto& each) { return each.second <= now; });
    if (ended > 0) Wake(number, block, out);
  }
  participant_.Tick(now, &out->commit);
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_TIMESTAMP_ORDER_INL_H_
