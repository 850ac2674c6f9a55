#ifndef ABACUS_OBJFS_ATOMICITY_TESTING_COMMIT_SIMULATOR_H_
#define ABACUS_OBJFS_ATOMICITY_TESTING_COMMIT_SIMULATOR_H_

// Transactions over three servers with a log each, with messages lost, copied and late, and all
// dying and coming back: a server with what a torn write left of its log.
//
// Checked: a transaction is applied by all of its group or by none; what was acknowledged is
// applied, and what was called off is not; the log recovers all that was durable and stays within
// its bounds; nothing is pending once a lease has gone by in peace.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/atomicity/commit_core.h"
#include "objfs/atomicity/log_core.h"
#include "objfs/atomicity/testing/sim_loop.h"

namespace abacus::objfs::testing {

inline constexpr uint64_t kCommitServers = 3;
inline constexpr uint64_t kFirstCommitClient = 1000;

struct CommitStats {
  uint64_t transactions = 0;
  uint64_t acknowledged = 0;
  uint64_t called_off = 0;
  uint64_t server_crashes = 0;
  uint64_t torn_writes = 0;
  uint64_t client_crashes = 0;
  uint64_t resolutions = 0;
  uint64_t checkpoints = 0;
  uint64_t records = 0;
  uint64_t writes = 0;
  uint64_t full = 0;
};

template <typename Policy>
class CommitWorld {
 public:
  CommitWorld(uint64_t seed, CommitStats* stats) : loop_(seed), stats_(*stats), seed_(seed) {
    options_ = {.lease_ns = 40 * kMs,
                .resend_ns = 4 * kMs,
                // Longer than the lease: then others resolve beside who began it.
                .decide_ns = seed % 2 == 0 ? 15 * kMs : 100 * kMs,
                .ceiling_step_ticks = 500,
                .refused_max = 16};
    if (seed % 4 == 0) loop_.network = {.lost = 0, .copied = 0, .late = 0};
    if (seed % 4 == 1) loop_.network = {.lost = 100, .copied = 150, .late = 200};
    for (uint64_t i = 0; i < kCommitServers; ++i) StartServer(i);
    for (size_t i = 0; i < clients_.size(); ++i) StartClient(i);
  }

  SimResult Run() {
    for (int i = 0; i < 6; ++i) {
      loop_.After(loop_.random.Between(5 * kMs, 110 * kMs),
                  [this] { CrashServer(loop_.random.Below(kCommitServers)); });
      loop_.After(loop_.random.Between(5 * kMs, 119 * kMs), [this] {
        ++stats_.client_crashes;
        StartClient(loop_.random.Below(clients_.size()));
      });
    }
    loop_.RunUntil(120 * kMs);
    calm_ = true;
    loop_.network = {.lost = 0, .copied = 0, .late = 0};
    loop_.RunUntil(600 * kMs);
    Judge();
    return {broken_, loop_.steps()};
  }

 private:
  using Driver = CommitDriver<Policy>;
  struct Server {
    uint64_t life = 0;
    std::string disk = std::string(2 * kHalfBytes, '\0');
    bool made = false;
    CommitEntries state;  // that all appended records come to
    std::unique_ptr<LogCore<Policy>> log;
    std::unique_ptr<CommitParticipant<Policy>> participant;  // null while it is down
    uint64_t base = 0;  // sequence of the participant's record 0
    std::optional<LogWrite> write;
    std::vector<std::pair<uint64_t, SimLoop::Task>> held;
    std::map<uint64_t, std::pair<Version, std::string>> store;
    std::set<CommitKey> applied;  // durable in the store
  };
  struct Client {
    uint64_t address = 0;
    std::optional<Driver> driver;
    Version id;
    Nanos timer_at = 0;
  };
  struct Transaction {
    std::vector<CommitPart> group;
    bool acknowledged = false;
    bool called_off = false;
  };

  // Small enough that it fills up.
  static constexpr uint64_t kHalfBytes = 900;
  LogOptions Log(uint64_t number) const { return {.log = number + 1, .half_bytes = kHalfBytes}; }

  void Break(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }

  // -- servers -----------------------------------------------------------------------------------

  void StartServer(uint64_t number) {
    Server& server = servers_[number];
    ++server.life;
    server.state = CommitEntries();
    const auto snapshot = [&server] { return server.state.Encode(); };
    if (!server.made) {
      server.log = std::make_unique<LogCore<Policy>>(Log(number), snapshot);
    } else {
      const uint64_t durable = server.log->durable();
      const absl::StatusOr<RecoveredLog> found = RecoverLog(Log(number), server.disk);
      if (!found.ok()) return Break(absl::StrCat("log: ", found.status().message()));
      if (found->last < durable) Break("log: a durable record is gone");
      absl::StatusOr<CommitEntries> state = CommitEntries::Decode(found->snapshot);
      if (!state.ok()) return Break("log: a snapshot is not what was written");
      server.state = *std::move(state);
      for (const std::string& bytes : found->records) {
        const absl::StatusOr<CommitRecord> record = DecodeCommitRecord(bytes);
        if (!record.ok()) return Break("log: a record is not what was written");
        server.state.Apply(*record);
      }
      server.log = std::make_unique<LogCore<Policy>>(Log(number), snapshot, &*found);
    }
    WriteLog(number);
  }
  // Once the log's first checkpoint is durable.
  void Serve(uint64_t number) {
    Server& server = servers_[number];
    server.made = true;
    server.base = server.log->appended();
    server.participant =
        std::make_unique<CommitParticipant<Policy>>(options_, number, server.state, loop_.now());
    CommitActions actions;
    server.participant->Start(&actions);
    Do(number, std::move(actions));
    TickServer(number, server.life);
  }
  void TickServer(uint64_t number, uint64_t life) {
    Server& server = servers_[number];
    if (server.life != life) return;
    CommitActions actions;
    server.participant->Tick(loop_.now(), &actions);
    stats_.resolutions += server.participant->resolutions().size();
    Do(number, std::move(actions));
    loop_.After(4 * kMs, [this, number, life] { TickServer(number, life); });
  }
  void CrashServer(uint64_t number) {
    Server& server = servers_[number];
    if (calm_ || server.participant == nullptr || !broken_.empty()) return;
    ++stats_.server_crashes;
    ++server.life;
    if (server.write.has_value()) TearWrite(server);
    server.write.reset();
    server.held.clear();
    server.participant.reset();
    // Some for longer than the lease, so that others resolve meanwhile.
    const Nanos down_ns = loop_.random.Between(kMs, seed_ % 3 == 0 ? 90 * kMs : 30 * kMs);
    loop_.After(down_ns, [this, number] { StartServer(number); });
  }
  // Of a write that was under way, any bytes may have come to the disk: the first ones, or sectors
  // (here of 8 bytes) in any order.
  void TearWrite(Server& server) {
    ++stats_.torn_writes;
    const LogWrite& write = *server.write;
    const uint64_t cut = loop_.random.Below(write.bytes.size() + 1);
    const bool in_order = loop_.random.Chance(500);
    const uint32_t kept = loop_.random.Chance(500) ? 950 : 500;
    for (uint64_t at = 0; at < write.bytes.size(); ++at) {
      if (in_order ? at >= cut : at % 8 == 0 && !loop_.random.Chance(kept)) {
        if (in_order) break;
        at += 7;
        continue;
      }
      server.disk[write.offset + at] = write.bytes[at];
    }
  }
  void Do(uint64_t number, CommitActions actions) {
    Server& server = servers_[number];
    for (const CommitRecord& record : actions.persist) {
      server.state.Apply(record);
      ++stats_.records;
      if (!server.log->Append(EncodeCommitRecord(record)).ok()) Break("log: no room");
    }
    WriteLog(number);
    for (CommitSend& send : actions.sends) {
      SimLoop::Task deliver = [this, number, to = send.to, message = std::move(send.message)] {
        Deliver(number, to, message);
      };
      if (server.base + send.after <= server.log->durable()) {
        loop_.Send(deliver);
      } else {
        server.held.emplace_back(server.base + send.after, std::move(deliver));
      }
    }
    for (const CommitKey& key : actions.apply) {
      loop_.After(loop_.random.Between(50 * kUs, kMs), [this, number, key, life = server.life] {
        if (servers_[number].life == life) Apply(number, key);
      });
    }
  }
  void Apply(uint64_t number, const CommitKey& key) {
    Server& server = servers_[number];
    const auto* entry = server.participant->Find(key);
    if (entry == nullptr) return;
    auto& block = server.store[key.part];
    if (key.id > block.first) block = {key.id, entry->payload};
    server.applied.insert(key);
    CommitActions actions;
    server.participant->Applied(key, &actions);
    Do(number, std::move(actions));
  }
  void WriteLog(uint64_t number) {
    Server& server = servers_[number];
    const uint64_t checkpoints = server.log->checkpoints();
    std::optional<LogWrite> write = server.log->NextWrite();
    if (!write.has_value()) return;
    stats_.checkpoints += server.log->checkpoints() - checkpoints;
    ++stats_.writes;
    if (write->offset + write->bytes.size() > server.disk.size()) return Break("log: unbounded");
    server.write = std::move(write);
    loop_.After(loop_.random.Between(50 * kUs, 500 * kUs), [this, number, life = server.life] {
      Server& server = servers_[number];
      if (server.life != life) return;
      server.disk.replace(server.write->offset, server.write->bytes.size(), server.write->bytes);
      server.write.reset();
      server.log->Written(absl::OkStatus());
      std::erase_if(server.held, [&](auto& each) {
        if (each.first > server.log->durable()) return false;
        loop_.Send(each.second);
        return true;
      });
      if (server.participant == nullptr) return Serve(number);
      WriteLog(number);
    });
  }
  bool Vote(Server& server, const CommitMessage& message) {
    if (message.kind != CommitKind::kPrepare) return false;
    const uint64_t bytes = EncodeCommitRecord({.kind = CommitRecord::Kind::kPrepare,
                                               .key = {message.id, message.part.part},
                                               .group = message.group,
                                               .payload = message.payload})
                               .size();
    if (server.log->IsFull(server.state.Encode().size() + bytes, bytes)) {
      ++stats_.full;
      return false;
    }
    return !loop_.random.Chance(50);
  }
  void Deliver(uint64_t from, uint64_t to, const CommitMessage& message) {
    if (to >= kFirstCommitClient) return DeliverToClient(to, message);
    Server& server = servers_[to];
    if (server.participant == nullptr) return;
    CommitActions actions;
    server.participant->Handle(from, message, Vote(server, message), loop_.now(), &actions);
    Do(to, std::move(actions));
  }

  // -- clients -----------------------------------------------------------------------------------

  void StartClient(size_t index) {
    Client& client = clients_[index];
    client = Client();
    client.address = kFirstCommitClient + ++clients_started_;
    PlanNext(index);
  }
  void PlanNext(size_t index) {
    loop_.After(loop_.random.Between(0, 2 * kMs), [this, index, address = clients_[index].address] {
      if (clients_[index].address == address && !calm_) BeginNext(index);
    });
  }
  void BeginNext(size_t index) {
    Client& client = clients_[index];
    std::vector<CommitPart> group;
    for (uint64_t server = 0; server < kCommitServers; ++server) {
      if (!loop_.random.Chance(200)) group.push_back({server, loop_.random.Below(2)});
    }
    if (group.empty()) return PlanNext(index);
    client.id =
        Version::Of(static_cast<uint64_t>(loop_.now() / 10'000) + 1, static_cast<uint16_t>(++ids_));
    ++stats_.transactions;
    transactions_[client.id].group = group;
    const std::vector<std::string> payloads(group.size(),
                                            std::string(loop_.random.Below(120), 'x'));
    client.driver.emplace(options_, client.id, group, payloads, Driver::Start::kPrepare,
                          loop_.now());
    std::vector<CommitSend> sends;
    client.driver->Tick(loop_.now(), &sends);
    AfterDriver(index, std::move(sends));
  }
  void AfterDriver(size_t index, std::vector<CommitSend> sends) {
    Client& client = clients_[index];
    for (CommitSend& send : sends) {
      loop_.Send([this, from = client.address, to = send.to, message = send.message] {
        Deliver(from, to, message);
      });
    }
    Transaction& transaction = transactions_[client.id];
    stats_.acknowledged += client.driver->committed() && !transaction.acknowledged;
    stats_.called_off += client.driver->aborted() && !transaction.called_off;
    transaction.acknowledged = client.driver->committed();
    transaction.called_off = client.driver->aborted();
    if (client.driver->phase() == Driver::Phase::kEnded) {
      client.driver.reset();
      return PlanNext(index);
    }
    const Nanos at = client.driver->NextAt();
    if (at == INT64_MAX || (client.timer_at > loop_.now() && client.timer_at <= at)) return;
    client.timer_at = std::max(at, loop_.now() + 1);
    loop_.After(client.timer_at - loop_.now(), [this, index, address = client.address] {
      Client& client = clients_[index];
      if (client.address != address || !client.driver.has_value()) return;
      std::vector<CommitSend> sends;
      client.driver->Tick(loop_.now(), &sends);
      AfterDriver(index, std::move(sends));
    });
  }
  void DeliverToClient(uint64_t address, const CommitMessage& message) {
    for (size_t index = 0; index < clients_.size(); ++index) {
      Client& client = clients_[index];
      if (client.address != address || !client.driver.has_value()) continue;
      std::vector<CommitSend> sends;
      client.driver->OnAnswer(message, loop_.now(), &sends);
      AfterDriver(index, std::move(sends));
    }
  }

  // -- the judgement -----------------------------------------------------------------------------

  void Judge() {
    if (!broken_.empty()) return;
    for (const auto& [id, transaction] : transactions_) {
      size_t applied = 0;
      for (const CommitPart& part : transaction.group) {
        applied += servers_[part.server].applied.contains({id, part.part});
      }
      const std::string name = "transaction " + id.ToString();
      if (applied != 0 && applied != transaction.group.size()) Break("atomic: in parts, " + name);
      if (transaction.acknowledged && applied == 0) Break("lost: acknowledged " + name);
      if (transaction.called_off && applied != 0) Break("called off, and yet applied: " + name);
    }
    for (const Server& server : servers_) {
      if (server.participant == nullptr || !server.participant->entries().empty()) {
        Break("bounded: something is pending after the lease");
      }
    }
    for (const Client& client : clients_) {
      if (client.driver.has_value()) Break("bounded: a transaction did not end");
    }
  }

  SimLoop loop_;
  CommitStats& stats_;
  const uint64_t seed_;
  CommitOptions options_;
  std::array<Server, kCommitServers> servers_;
  std::array<Client, 4> clients_;
  std::map<Version, Transaction> transactions_;
  uint64_t clients_started_ = 0;
  uint64_t ids_ = 0;
  std::string broken_;
  bool calm_ = false;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_ATOMICITY_TESTING_COMMIT_SIMULATOR_H_
