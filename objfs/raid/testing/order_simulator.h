#ifndef ABACUS_OBJFS_RAID_TESTING_ORDER_SIMULATOR_H_
#define ABACUS_OBJFS_RAID_TESTING_ORDER_SIMULATOR_H_

// Clients that read and write the blocks of two stripes (two data blocks and a parity block each,
// on three servers), with messages lost, copied and late, and all of them dying and coming back.
// What is promised is checked by order_oracle.h.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "objfs/atomicity/testing/sim_loop.h"
#include "objfs/raid/small_write.h"
#include "objfs/raid/testing/order_oracle.h"
#include "objfs/raid/timestamp_order.h"

namespace abacus::objfs::testing {

inline constexpr uint64_t kFirstClient = 1000;  // addresses below are servers

struct OrderStats {
  uint64_t writes = 0;
  uint64_t whole_stripes = 0;
  uint64_t attempts = 0;
  uint64_t reads = 0;
  uint64_t blocked = 0;
  uint64_t too_old = 0;
  uint64_t server_crashes = 0;
  uint64_t client_crashes = 0;
  uint64_t resolutions = 0;
  uint64_t in_doubt = 0;
};

inline OrderOptions SimOrderOptions() {
  return {.commit = {.lease_ns = 40 * kMs,
                     .resend_ns = 4 * kMs,
                     .decide_ns = 15 * kMs,
                     .ceiling_step_ticks = 500,
                     .refused_max = 8}};
}

template <typename Policy>
class OrderWorld {
 public:
  OrderWorld(uint64_t seed, OrderStats* stats) : loop_(seed), stats_(*stats), seed_(seed) {
    for (uint64_t i = 0; i < kOrderServers; ++i) servers_.push_back(Server{});
    for (uint64_t i = 0; i < kOrderServers; ++i) StartServer(i);
    for (size_t i = 0; i < 3; ++i) StartClient(i);
    // Some runs are quiet, so that what needs two faults and not twenty happens as well.
    if (seed % 4 == 0) loop_.network = {.lost = 0, .copied = 0, .late = 0};
    if (seed % 4 == 1) loop_.network = {.lost = 60, .copied = 60, .late = 100};
  }

  SimResult Run() {
    for (int i = 0; i < 3; ++i) {
      if (seed_ % 4 != 2) PlanServerCrash();
      if (seed_ % 4 != 3) PlanClientCrash();
    }
    loop_.RunUntil(120 * kMs);
    calm_ = true;
    loop_.network = {.lost = 0, .copied = 0, .late = 0};
    loop_.RunUntil(700 * kMs);
    CheckQuiet();
    if (oracle_.broken().empty()) oracle_.AtEnd();
    return {oracle_.broken(), loop_.steps()};
  }

 private:
  using Write = SmallWrite<Policy>;
  struct Server {
    uint64_t life = 0;
    std::unique_ptr<TimestampOrder<Policy>> core;  // null while it is down
    OrderState durable;
    std::vector<CommitRecord> unflushed;
    uint64_t flushed = 0;
    bool flushing = false;
    std::vector<std::pair<uint64_t, SimLoop::Task>> held;
  };
  struct Client {
    uint64_t address = 0;
    std::unique_ptr<HybridClock> clock;
    std::optional<Write> write;
    Version last_time;
    bool acknowledged = false;
    std::optional<OrderMessage> read;
    Nanos timer_at = 0;
  };

  // -- servers -----------------------------------------------------------------------------------

  void StartServer(uint64_t number) {
    Server& server = servers_[number];
    ++server.life;
    server.core = std::make_unique<TimestampOrder<Policy>>(SimOrderOptions(), number,
                                                           server.durable, loop_.now());
    server.flushed = 0;
    OrderActions actions;
    server.core->Start(&actions);
    Do(number, std::move(actions));
    TickServer(number, server.life);
  }
  void TickServer(uint64_t number, uint64_t life) {
    Server& server = servers_[number];
    if (server.life != life || server.core == nullptr) return;
    OrderActions actions;
    server.core->Tick(loop_.now(), &actions);
    stats_.resolutions += server.core->participant().resolutions().size();
    Do(number, std::move(actions));
    loop_.After(4 * kMs, [this, number, life] { TickServer(number, life); });
  }
  void CrashServer(uint64_t number) {
    Server& server = servers_[number];
    if (server.core == nullptr || calm_) return;
    ++stats_.server_crashes;
    // Records are durable in their order: any number of the last ones is missing.
    const uint64_t kept = loop_.random.Below(server.unflushed.size() + 1);
    for (uint64_t i = 0; i < kept; ++i) server.durable.Apply(server.unflushed[i]);
    server.unflushed.clear();
    server.held.clear();
    server.flushing = false;
    server.core = nullptr;
    ++server.life;
    loop_.After(loop_.random.Between(kMs, 30 * kMs), [this, number] { StartServer(number); });
  }
  void Do(uint64_t number, OrderActions actions) {
    Server& server = servers_[number];
    for (CommitRecord& record : actions.commit.persist) {
      if (record.kind == CommitRecord::Kind::kCommit) oracle_.Committed(number, record.key);
      server.unflushed.push_back(std::move(record));
    }
    if (!server.unflushed.empty() && !server.flushing) Flush(number);
    for (OrderSend& send : actions.sends) SendFrom(number, std::move(send));
    for (CommitSend& send : actions.commit.sends) SendFrom(number, std::move(send));
  }
  void Flush(uint64_t number) {
    Server& server = servers_[number];
    server.flushing = true;
    loop_.After(loop_.random.Between(50 * kUs, 500 * kUs),
                [this, number, life = server.life, count = server.unflushed.size()] {
                  Server& server = servers_[number];
                  if (server.life != life) return;
                  for (size_t i = 0; i < count; ++i) server.durable.Apply(server.unflushed[i]);
                  server.unflushed.erase(server.unflushed.begin(),
                                         server.unflushed.begin() + static_cast<int64_t>(count));
                  server.flushed += count;
                  server.flushing = false;
                  std::erase_if(server.held, [&](auto& each) {
                    if (each.first > server.flushed) return false;
                    loop_.Send(each.second);
                    return true;
                  });
                  if (!server.unflushed.empty()) Flush(number);
                });
  }
  template <typename Send>
  void SendFrom(uint64_t number, Send send) {
    Server& server = servers_[number];
    SimLoop::Task deliver = [this, number, to = send.to, message = std::move(send.message)] {
      Deliver(number, to, message);
    };
    if (send.after <= server.flushed) return loop_.Send(deliver);
    server.held.emplace_back(send.after, std::move(deliver));
  }
  template <typename Message>
  void Deliver(uint64_t from, uint64_t to, const Message& message) {
    if (to >= kFirstClient) return DeliverToClient(to, message);
    if (servers_[to].core == nullptr) return;
    OrderActions actions;
    servers_[to].core->Handle(from, message, loop_.now(), &actions);
    Do(to, std::move(actions));
  }

  // -- clients -----------------------------------------------------------------------------------

  void StartClient(size_t index) {
    Client& client = clients_[index];
    client.write.reset();
    client.read.reset();
    client.timer_at = 0;
    client.address = kFirstClient + ++clients_started_;
    const int64_t skew_us = loop_.random.Between(0, seed_ % 8 == 7 ? 5'000'000 : 3000);
    client.clock = std::make_unique<HybridClock>(
        static_cast<uint16_t>(clients_started_),
        [this, skew_us] { return int64_t{1'600'000'000'000'000} + loop_.now() / 1000 + skew_us; });
    PlanNext(index);
  }
  void PlanNext(size_t index) {
    loop_.After(loop_.random.Between(0, 3 * kMs), [this, index, address = clients_[index].address] {
      if (clients_[index].address == address && !calm_) BeginNext(index);
    });
  }
  void BeginNext(size_t index) {
    Client& client = clients_[index];
    const uint64_t stripe = loop_.random.Below(kOrderStripes);
    if (loop_.random.Chance(400)) {
      client.read = OrderMessage{.kind = OrderKind::kRead,
                                 .time = client.clock->Next(),
                                 .block = {loop_.random.Below(kOrderServers), stripe}};
      return AskRead(index, client.read->time);
    }
    const bool whole = loop_.random.Chance(150);
    const uint64_t value = loop_.random.Next();
    const std::vector<CommitPart> blocks = OrderStripe(stripe);
    std::vector<CommitPart> group = blocks;
    if (!whole) group = {blocks[loop_.random.Below(2)], blocks[2]};
    const auto combine = [value](const std::vector<std::string>& old) {
      if (old.size() == 3) {
        return std::vector<std::string>{ToBytes(value), ToBytes(~value * 3),
                                        ToBytes(value ^ (~value * 3))};
      }
      return std::vector<std::string>{ToBytes(value),
                                      ToBytes(FromBytes(old[1]) ^ FromBytes(old[0]) ^ value)};
    };
    ++(whole ? stats_.whole_stripes : stats_.writes);
    SmallWriteOptions options{.commit = SimOrderOptions().commit,
                              .ask_again_ns = 4 * kMs,
                              .back_off_min_ns = kMs,
                              .back_off_max_ns = 16 * kMs,
                              .attempts_max = 1000};
    client.write.emplace(options, *client.clock, std::move(group), !whole, combine,
                         [this] { return loop_.random.Next(); });
    client.acknowledged = false;
    client.last_time = Version();
    TickWrite(index);
  }
  void TickWrite(size_t index) {
    typename Write::Sends sends;
    clients_[index].write->Tick(loop_.now(), &sends);
    AfterWrite(index, std::move(sends));
  }
  void AfterWrite(size_t index, typename Write::Sends sends) {
    Client& client = clients_[index];
    for (CommitSend& send : sends.commit) {
      if (send.message.kind == CommitKind::kPrepare) oracle_.Sent(send.message);
      loop_.Send([this, from = client.address, to = send.to, message = send.message] {
        Deliver(from, to, message);
      });
    }
    for (OrderSend& send : sends.order) {
      loop_.Send([this, from = client.address, to = send.to, message = send.message] {
        Deliver(from, to, message);
      });
    }
    const Version time = client.write->time();
    if (client.last_time != time && client.last_time != Version()) oracle_.Lost(client.last_time);
    if (client.last_time != time) ++stats_.attempts;
    client.last_time = time;
    if (client.write->done() && !client.acknowledged) {
      client.acknowledged = true;
      oracle_.Acknowledged(time);
    }
    if (client.write->ended()) {
      stats_.in_doubt += client.write->in_doubt();
      if (client.write->failed()) oracle_.Break("progress: a write failed");
      client.write.reset();
      return PlanNext(index);
    }
    const Nanos at = client.write->NextAt();
    if (at == INT64_MAX || (client.timer_at > loop_.now() && client.timer_at <= at)) return;
    client.timer_at = std::max(at, loop_.now() + 1);
    loop_.After(client.timer_at - loop_.now(), [this, index, address = client.address] {
      Client& client = clients_[index];
      if (client.address == address && client.write.has_value()) TickWrite(index);
    });
  }
  void AskRead(size_t index, Version time) {
    Client& client = clients_[index];
    if (!client.read.has_value() || client.read->time != time) return;
    loop_.Send([this, from = client.address, message = *client.read] {
      Deliver(from, message.block.server, message);
    });
    loop_.After(3 * kMs, [this, index, time] { AskRead(index, time); });
  }
  void DeliverToClient(uint64_t address, const OrderMessage& message) {
    for (size_t index = 0; index < clients_.size(); ++index) {
      Client& client = clients_[index];
      if (client.address != address) continue;
      stats_.blocked += message.kind == OrderKind::kWouldBlock;
      stats_.too_old += message.kind == OrderKind::kTooOld;
      if (message.kind == OrderKind::kContent) oracle_.Read(message);
      if (client.read.has_value() && client.read->time == message.time) {
        if (message.kind == OrderKind::kContent || message.kind == OrderKind::kTooOld) {
          client.clock->Observe(message.newest).IgnoreError();
          client.read.reset();
          ++stats_.reads;
          PlanNext(index);
        }
      } else if (client.write.has_value()) {
        typename Write::Sends sends;
        client.write->OnAnswer(message, loop_.now(), &sends);
        AfterWrite(index, std::move(sends));
      }
    }
  }
  void DeliverToClient(uint64_t address, const CommitMessage& message) {
    for (size_t index = 0; index < clients_.size(); ++index) {
      if (clients_[index].address != address || !clients_[index].write.has_value()) continue;
      typename Write::Sends sends;
      clients_[index].write->OnAnswer(message, loop_.now(), &sends);
      AfterWrite(index, std::move(sends));
    }
  }

  // -- faults and the end ------------------------------------------------------------------------

  void PlanServerCrash() {
    loop_.After(loop_.random.Between(5 * kMs, 110 * kMs),
                [this] { CrashServer(loop_.random.Below(kOrderServers)); });
  }
  void PlanClientCrash() {
    loop_.After(loop_.random.Between(5 * kMs, 119 * kMs), [this] {
      ++stats_.client_crashes;
      StartClient(loop_.random.Below(clients_.size()));
    });
  }
  void CheckQuiet() {
    for (const Client& client : clients_) {
      if (client.write.has_value()) oracle_.Break("progress: a write did not end");
    }
    for (const Server& server : servers_) {
      bool left = !server.core->participant().entries().empty();
      for (const auto& [number, block] : server.core->blocks()) {
        left = left || !block.reservations.empty() || !block.prewrites.empty();
      }
      if (left) oracle_.Break("bounded: something is pending after the lease");
      for (const auto& [number, block] : server.core->blocks()) {
        const auto kept = server.durable.blocks.find(number);
        const bool same = kept == server.durable.blocks.end()
                              ? block.now.written == Version()
                              : kept->second.content == block.now.content;
        if (!same) oracle_.Break("durable: the server would come back with another content");
        const auto index = static_cast<uint64_t>(&server - servers_.data());
        oracle_.Final({index, number}, block.now.written, block.now.content);
      }
    }
  }

  SimLoop loop_;
  OrderStats& stats_;
  const uint64_t seed_;
  OrderOracle oracle_;
  std::vector<Server> servers_;
  std::array<Client, 3> clients_;
  uint64_t clients_started_ = 0;
  bool calm_ = false;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_ORDER_SIMULATOR_H_
