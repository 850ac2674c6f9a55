#ifndef ABACUS_OBJFS_RAID_TESTING_SHARED_SIMULATOR_H_
#define ABACUS_OBJFS_RAID_TESTING_SHARED_SIMULATOR_H_

// Clients that write rows of a file with two data columns and one of parity, on three servers, at
// once, and openings of the file that settle what they left, mend it, and let them go on: with
// messages lost, copied and late, and all of them dying at any point, clients and openings together
// with a server, too. One server at a time is down, or all are.
//
// What decides is the library's: GroupCore, CommitDriver, PrepareRound, ColumnFence,
// PlanSettlement() and EndSettlement(). What is played here is the log and the store of a server,
// in SharedServer, and what who is alone does with a file that is settled, in its least form: a
// record tells which column lacks which rows, before anything is changed; they are computed from
// the others, and then a record tells that, before others come.
//
// Checked when an opening has mended the file, and at the end: what shared_oracle.h says, and that
// parity is the XOR of data. At the end the file is open with all columns, and nothing is pending,
// claimed or held.

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
#include "objfs/atomicity/group_part.h"
#include "objfs/atomicity/testing/sim_loop.h"
#include "objfs/layer/version.h"
#include "objfs/raid/prepare_round.h"
#include "objfs/raid/striping.h"
#include "objfs/raid/testing/shared_oracle.h"
#include "objfs/raid/testing/shared_server.h"
#include "objfs/spread/settlement_inl.h"

namespace abacus::objfs::testing {

struct SharedStats {
  uint64_t writes = 0;
  uint64_t acknowledged = 0;
  uint64_t refused = 0;
  uint64_t server_crashes = 0;
  uint64_t client_crashes = 0;
  uint64_t openings = 0;
  uint64_t shared = 0;    // of them, with all columns and then together
  uint64_t degraded = 0;  // without one
  uint64_t settled = 0;   // groups
  uint64_t held = 0;
  uint64_t aborted = 0;
  uint64_t late_orders = 0;  // of an opening that is over
  uint64_t mended = 0;       // rows
  uint64_t alone = 0;        // writes
  uint64_t given_up = 0;     // runs, where two columns lack something
};

template <typename Policy>
class StripesWorld {
 public:
  StripesWorld(uint64_t seed, SharedStats* stats)
      : loop_(seed),
        stats_(*stats),
        seed_(seed),
        // Contention: often all write to one row.
        rows_(1 + seed % 3),
        oracle_(rows_),
        alone_clock_(kAloneWriter, [this] { return NowUs(0); }) {
    if (seed % 4 == 0) loop_.network = {.lost = 0, .copied = 0, .late = 0};
    // Much is late: orders of openings meet the next one.
    if (seed % 4 == 1) loop_.network = {.lost = 30, .copied = 60, .late = 250};
    loop_.network.late_max_ns = 12 * kMs;
    const CommitOptions options = {.lease_ns = 40 * kMs,
                                   .resend_ns = 4 * kMs,
                                   .decide_ns = 15 * kMs,
                                   .ceiling_step_ticks = 500,
                                   .refused_max = 64};
    options_ = options;
    for (uint64_t i = 0; i < kSharedServers; ++i) {
      servers_.push_back(std::make_unique<Server>(
          i, options, rows_, &loop_, &oracle_,
          [this](uint64_t from, uint64_t to, const CommitMessage& message) {
            loop_.Send([this, from, to, message] { Deliver(from, to, message); });
          }));
      servers_[i]->Start();
    }
    for (size_t i = 0; i < clients_.size(); ++i) StartClient(i);
  }

  SimResult Run() {
    PlanDeaths();
    PlanOpening();
    while (loop_.now() < kBusyNs && GoesOn()) loop_.RunUntil(loop_.now() + 10 * kMs);
    calm_ = true;
    loop_.network = {.lost = 0, .copied = 0, .late = 0};
    PlanOpening();
    while (loop_.now() < kEndNs && GoesOn()) loop_.RunUntil(loop_.now() + 10 * kMs);
    if (GoesOn()) Judge();
    stats_.given_up += two_lack_;
    return {oracle_.broken(), loop_.steps()};
  }

 private:
  using Server = SharedServer<Policy>;
  using Driver = CommitDriver<FaithfulCommitPolicy>;
  using Record = typename Server::Record;
  using Stored = typename Server::Stored;
  static constexpr uint64_t kFirstClient = 1000;
  static constexpr uint16_t kAloneWriter = 0xffff;
  static constexpr Nanos kBusyNs = 150 * kMs, kEndNs = 700 * kMs;
  static constexpr Nanos kStepNs = 5 * kMs;     // so long an opening waits for answers
  static constexpr Nanos kReadNs = 6 * kMs;     // and a client for blocks
  static constexpr Nanos kGiveUpNs = 60 * kMs;  // and for a group

  struct Client {
    uint64_t address = 0;  // another one in each life
    std::unique_ptr<HybridClock> clock;
    uint64_t attempt = 0;
    Nanos begun = 0;
    Version opening;
    size_t write = 0;
    uint64_t row = 0;
    std::vector<size_t> cells;
    bool by_rest = false;            // else by what changes
    std::set<uint64_t> wanted;       // servers that are to be read
    std::map<uint64_t, Stored> old;  // by server
    std::optional<Driver> driver;
    std::optional<PrepareRound<Policy>> round;
    std::vector<CommitSend> round_sends;
    Nanos timer_at = 0;
    bool whole() const { return cells.size() == SharedOracle::kCells; }
  };
  struct Opening {
    enum class Phase { kOpening, kSettling, kRecording, kClearing };
    Phase phase = Phase::kOpening;
    uint64_t step = 0;  // late answers to earlier ones count for nothing
    std::set<uint64_t> waiting;
    std::map<uint64_t, uint64_t> lives;  // of the servers when it began
    std::map<uint64_t, ColumnAnswer> answers;
    std::map<uint64_t, Record> records;
    Settlement plan;
    std::set<uint64_t> present;
    Record record;
    std::optional<uint64_t> alone_row;  // is written to while a column is away
  };

  bool GoesOn() const { return oracle_.broken().empty() && !two_lack_; }
  int64_t NowUs(int64_t skew_us) const {
    return int64_t{1'700'000'000'000'000} + loop_.now() / kUs + skew_us;
  }
  uint64_t ParityOf(uint64_t row) const { return striping_.ParityColumn(row); }
  uint64_t ServerOf(uint64_t row, size_t cell) const { return striping_.ColumnOf(row, cell); }

  // -- deaths ------------------------------------------------------------------------------------

  void PlanDeaths() {
    for (int i = 0; i < 4; ++i) {
      loop_.After(loop_.random.Between(5 * kMs, kBusyNs - 10 * kMs), [this] { KillMachine(); });
      loop_.After(loop_.random.Between(5 * kMs, kBusyNs - 10 * kMs), [this] {
        ++stats_.client_crashes;
        StartClient(loop_.random.Below(clients_.size()));
      });
    }
    if (seed_ % 4 == 3) {
      loop_.After(loop_.random.Between(20 * kMs, kBusyNs - 30 * kMs), [this] {
        for (uint64_t i = 0; i < kSharedServers; ++i) CrashServer(i);
      });
    }
  }
  // A server, and who is on the same machine; often the file is opened soon, without that server.
  void KillMachine() {
    const bool all_up = std::all_of(servers_.begin(), servers_.end(),
                                    [](const auto& server) { return server->is_up(); });
    if (!all_up || calm_ || !GoesOn()) return;
    const uint64_t number = loop_.random.Below(kSharedServers);
    CrashServer(number);
    if (loop_.random.Chance(600)) {
      ++stats_.client_crashes;
      StartClient(number % clients_.size());
    }
    if (loop_.random.Chance(300)) openings_.clear();
    if (!loop_.random.Chance(600)) return;
    loop_.After(loop_.random.Between(0, 2 * kMs), [this] { BeginOpening(); });
  }
  void CrashServer(uint64_t number) {
    if (calm_ || !servers_[number]->is_up()) return;
    ++stats_.server_crashes;
    servers_[number]->Crash();
    // Some for longer than the lease; many so that one opening misses it, and not the next one.
    const Nanos longest = seed_ % 4 == 1 ? 8 * kMs : seed_ % 3 == 0 ? 60 * kMs : 15 * kMs;
    loop_.After(loop_.random.Between(kMs, longest), [this, number] { servers_[number]->Start(); });
  }

  void Deliver(uint64_t from, uint64_t to, const CommitMessage& message) {
    if (to >= kFirstClient) return DeliverToClient(to, message);
    servers_[to]->OnMessage(from, message);
  }

  // -- clients -----------------------------------------------------------------------------------

  void StartClient(size_t index) {
    Client& client = clients_[index];
    client = Client();
    client.address = kFirstClient + ++clients_started_;
    const int64_t skew_us = loop_.random.Between(-3000, 3000);
    client.clock = std::make_unique<HybridClock>(static_cast<uint16_t>(clients_started_),
                                                 [this, skew_us] { return NowUs(skew_us); });
    PlanNext(index);
  }
  void PlanNext(size_t index) {
    clients_[index].driver.reset();
    clients_[index].round.reset();
    const uint64_t attempt = ++clients_[index].attempt;
    loop_.After(loop_.random.Between(0, 2 * kMs),
                [this, index, address = clients_[index].address, attempt] {
                  if (IsAt(index, address, attempt)) BeginNext(index);
                });
  }
  bool IsAt(size_t index, uint64_t address, uint64_t attempt) const {
    return clients_[index].address == address && clients_[index].attempt == attempt;
  }
  void BeginNext(size_t index) {
    if (calm_) return;
    if (shared_ == Version()) return PlanNext(index);
    Client& client = clients_[index];
    client.begun = loop_.now();
    client.opening = shared_;
    client.row = loop_.random.Below(rows_);
    client.cells = {loop_.random.Below(2)};
    client.by_rest = loop_.random.Chance(300);
    client.old.clear();
    client.wanted.clear();
    if (loop_.random.Chance(250)) client.cells = {0, 1};
    client.write = oracle_.Begin(client.row, client.cells);
    ++stats_.writes;
    if (client.whole()) return BeginGroup(index);
    const size_t cell = client.cells[0];
    if (client.by_rest) {
      client.wanted = {ServerOf(client.row, 1 - cell)};
    } else {
      client.wanted = {ServerOf(client.row, cell), ParityOf(client.row)};
    }
    const uint64_t address = client.address, attempt = client.attempt;
    for (const uint64_t server : client.wanted) {
      loop_.Send(
          [this, index, address, attempt, server] { ReadAt(index, address, attempt, server); });
    }
    loop_.After(kReadNs, [this, index, address, attempt] {
      if (IsAt(index, address, attempt) && !clients_[index].driver.has_value()) PlanNext(index);
    });
  }
  void ReadAt(size_t index, uint64_t address, uint64_t attempt, uint64_t server) {
    if (!IsAt(index, address, attempt)) return;
    const auto stored = servers_[server]->Read(clients_[index].opening, clients_[index].row);
    if (!stored.has_value()) return;
    loop_.Send([this, index, address, attempt, server, stored = *stored] {
      if (!IsAt(index, address, attempt)) return;
      Client& client = clients_[index];
      client.old.emplace(server, stored);
      if (client.wanted.erase(server) > 0 && client.wanted.empty()) BeginGroup(index);
    });
  }
  void BeginGroup(size_t index) {
    Client& client = clients_[index];
    const uint64_t parity = ParityOf(client.row);
    std::map<uint64_t, GroupPart> parts;
    uint64_t sum = 0;
    for (const size_t cell : client.cells) {
      const uint64_t value = SharedOracle::ValueOf(client.write, cell);
      sum ^= value;
      parts[ServerOf(client.row, cell)].writes.push_back(SharedWriteOf(client.row, value));
    }
    for (const auto& [server, old] : client.old) {
      parts[server].reads.push_back({kSharedFile, client.row, old.version});
      sum ^= old.value;  // data and parity of before, or the rest of the data
    }
    parts[parity].writes.push_back(SharedWriteOf(client.row, sum));
    std::vector<CommitPart> group;
    for (const auto& [server, part] : parts) {
      if (server != parity) group.push_back({server, 0});
    }
    group.push_back({parity, 0});
    std::vector<std::string> payloads;
    for (const CommitPart& member : group) {
      parts[member.server].fences.push_back({kSharedFile, client.opening});
      payloads.push_back(parts[member.server].Encode());
    }
    const Version id = client.clock->Next();
    oracle_.SetOrder(client.write, {client.opening.value, true, id.value});
    client.driver.emplace(options_, id, std::move(group), std::move(payloads),
                          Driver::Start::kPrepare, loop_.now());
    std::vector<CommitSend> sends;
    client.driver->Tick(loop_.now(), &sends);
    AfterDriver(index, std::move(sends));
  }
  void SendFrom(size_t index, const CommitSend& send) {
    loop_.Send([this, from = clients_[index].address, to = send.to, message = send.message] {
      Deliver(from, to, message);
    });
  }
  void SendRound(size_t index, std::vector<CommitSend> sends) {
    Client& client = clients_[index];
    if (sends.empty()) return;
    client.round.reset();
    if (client.whole()) {
      for (const CommitSend& send : sends) SendFrom(index, send);
      return;
    }
    client.round.emplace(sends);
    client.round_sends = std::move(sends);
    for (const size_t i : client.round->first()) SendFrom(index, client.round_sends[i]);
    SendLast(index);
  }
  void SendLast(size_t index) {
    Client& client = clients_[index];
    if (!client.round.has_value() || !client.round->all_have()) return;
    for (const size_t i : client.round->last()) SendFrom(index, client.round_sends[i]);
    client.round.reset();
  }
  void AfterDriver(size_t index, std::vector<CommitSend> sends) {
    Client& client = clients_[index];
    SendRound(index, std::move(sends));
    if (client.driver->phase() == Driver::Phase::kEnded) {
      if (client.driver->committed()) {
        ++stats_.acknowledged;
        oracle_.Acknowledged(client.write);
      } else {
        ++stats_.refused;
        client.clock->Observe(client.driver->newest()).IgnoreError();
      }
      return PlanNext(index);
    }
    const Nanos at = client.driver->NextAt();
    if (at == INT64_MAX || (client.timer_at > loop_.now() && client.timer_at <= at)) return;
    client.timer_at = std::max(at, loop_.now() + 1);
    loop_.After(client.timer_at - loop_.now(), [this, index, address = client.address] {
      Client& client = clients_[index];
      if (client.address != address || !client.driver.has_value()) return;
      // It is not known what becomes of it.
      if (loop_.now() - client.begun > kGiveUpNs) return PlanNext(index);
      std::vector<CommitSend> sends;
      client.driver->Tick(loop_.now(), &sends);
      AfterDriver(index, std::move(sends));
    });
  }
  void DeliverToClient(uint64_t address, const CommitMessage& message) {
    for (size_t index = 0; index < clients_.size(); ++index) {
      Client& client = clients_[index];
      if (client.address != address || !client.driver.has_value()) continue;
      if (client.round.has_value() && message.kind == CommitKind::kPrepared) {
        for (const size_t i : client.round->first()) {
          const CommitSend& send = client.round_sends[i];
          const bool is_it = send.to == message.part.server && send.message.id == message.id;
          if (is_it) client.round->Prepared(i);
        }
      }
      std::vector<CommitSend> sends;
      client.driver->OnAnswer(message, loop_.now(), &sends);
      if (client.driver->phase() == Driver::Phase::kPreparing) {
        SendLast(index);
      } else {
        client.round.reset();
      }
      AfterDriver(index, std::move(sends));
      return;
    }
  }

  // -- openings ----------------------------------------------------------------------------------

  void PlanOpening() {
    const bool soon = !calm_ && loop_.random.Chance(seed_ % 4 == 1 ? 600 : 250);
    const Nanos wait = loop_.random.Between(kMs, soon ? 5 * kMs : 25 * kMs);
    loop_.After(wait, [this, is_of_calm = calm_] {
      if (is_of_calm != calm_ || is_open_) return;
      BeginOpening();
      PlanOpening();
    });
  }
  // A call arrives once or never, at the life of the server that it is for.
  void Call(SimLoop::Task task) {
    if (loop_.random.Chance(loop_.network.lost)) return;
    const bool is_late = loop_.random.Chance(loop_.network.late);
    loop_.After(loop_.random.Between(
                    20 * kUs, is_late ? loop_.network.late_max_ns : loop_.network.delay_max_ns),
                std::move(task));
  }
  Opening* Find(uint64_t epoch) {
    const auto found = openings_.find(epoch);
    return found == openings_.end() ? nullptr : &found->second;
  }
  // Whoever began it dies, or finds that it cannot go on; a next one comes.
  void End(uint64_t epoch) { openings_.erase(epoch); }

  void BeginOpening() {
    if (!GoesOn()) return;
    ++stats_.openings;
    const uint64_t epoch = ++last_epoch_;
    Opening& opening = openings_[epoch];
    std::set<uint64_t> all;
    for (uint64_t i = 0; i < kSharedServers; ++i) {
      opening.lives[i] = servers_[i]->life();
      all.insert(i);
      Call([this, i, epoch, life = opening.lives[i]] {
        if (servers_[i]->life() == life) OpenAt(i, epoch, life);
      });
    }
    BeginStep(epoch, Opening::Phase::kOpening, std::move(all));
    if (!calm_ && loop_.random.Chance(200)) {
      loop_.After(loop_.random.Between(0, 6 * kMs), [this, epoch] { End(epoch); });
    }
  }
  void BeginStep(uint64_t epoch, typename Opening::Phase phase, std::set<uint64_t> asked) {
    Opening& opening = openings_.at(epoch);
    opening.phase = phase;
    opening.waiting = std::move(asked);
    const uint64_t step = ++opening.step;
    if (opening.waiting.empty()) return EndStep(epoch);
    loop_.After(kStepNs, [this, epoch, step] {
      const Opening* const late = Find(epoch);
      if (late != nullptr && late->step == step) EndStep(epoch);
    });
  }
  void Done(uint64_t epoch, uint64_t step, uint64_t server) {
    Opening* const opening = Find(epoch);
    if (opening == nullptr || opening->step != step) return;
    opening->waiting.erase(server);
    if (opening->waiting.empty()) EndStep(epoch);
  }
  void EndStep(uint64_t epoch) {
    Opening& opening = openings_.at(epoch);
    switch (opening.phase) {
      case Opening::Phase::kOpening:
        return Settle(epoch);
      case Opening::Phase::kSettling:
        return Settled(epoch);
      case Opening::Phase::kRecording:
        return opening.waiting.empty() ? Mend(epoch) : End(epoch);
      case Opening::Phase::kClearing:
        if (opening.waiting.empty()) {
          ++stats_.shared;
          shared_ = std::max(shared_, Version{epoch});
          // What is held goes with the next opening, which finds the records of this one; and a
          // later one that began before it was calm may go on without a column.
          is_open_ = is_open_ || (calm_ && epoch == last_epoch_ && opening.plan.groups.empty());
        }
        return End(epoch);
    }
  }

  void OpenAt(uint64_t number, uint64_t epoch, uint64_t life) {
    Server& server = *servers_[number];
    if (!server.is_up() || server.life() != life) return;
    if (!server.TryRaise(Version{epoch})) {
      // It waits for who is inside.
      loop_.After(20 * kUs, [this, number, epoch, life] { OpenAt(number, epoch, life); });
      return;
    }
    std::optional<ColumnAnswer> answer = server.AnswerTo(Version{epoch});
    Call([this, number, epoch, answer = std::move(answer), record = server.record()] {
      Opening* const opening = Find(epoch);
      if (opening == nullptr || opening->phase != Opening::Phase::kOpening) return;
      if (!answer.has_value()) return End(epoch);  // there is a later one
      opening->answers[number] = *answer;
      opening->records[number] = record;
      Done(epoch, opening->step, number);
    });
  }
  void Settle(uint64_t epoch) {
    Opening& opening = openings_.at(epoch);
    opening.plan = PlanSettlementBy<Policy>(opening.answers, {0, 1, 2});
    for (const SettledGroup& group : opening.plan.groups) {
      ++stats_.settled;
      stats_.held += group.fate == GroupFate::kCommitHeld;
      stats_.aborted += group.fate == GroupFate::kAbort;
    }
    // Nobody can make such a file whole (settlement.h).
    if (opening.plan.lacking.size() > 1) {
      two_lack_ = true;
      return;
    }
    const GroupOrders orders = OrdersOf(opening.plan);
    std::set<uint64_t> asked;
    for (const auto& [server, list] : orders) asked.insert(server);
    const uint64_t step = opening.step + 1;
    for (const auto& [server, list] : orders) Order(epoch, step, server, list);
    BeginStep(epoch, Opening::Phase::kSettling, std::move(asked));
  }
  void Order(uint64_t epoch, uint64_t step, uint64_t number,
             const std::vector<GroupOrder>& orders) {
    Call([this, epoch, step, number, orders, life = openings_.at(epoch).lives.at(number)] {
      Server& server = *servers_[number];
      if (!server.is_up() || server.life() != life) return;
      stats_.late_orders += Find(epoch) == nullptr;
      server.Settle(Version{epoch}, orders, [this, epoch, step, number] {
        Call([this, epoch, step, number] { Done(epoch, step, number); });
      });
    });
  }
  void Settled(uint64_t epoch) {
    Opening& opening = openings_.at(epoch);
    const SettlementEnd end =
        EndSettlement(opening.plan, opening.answers, {0, 1, 2}, opening.waiting);
    for (const auto& [server, list] : end.forgets) Order(epoch, 0, server, list);
    const Record* newest = nullptr;
    std::optional<uint64_t> away;
    for (uint64_t i = 0; i < kSharedServers; ++i) {
      if (!opening.answers.contains(i) || end.gone.contains(i)) {
        away = i;
        continue;
      }
      opening.present.insert(i);
      const Record& record = opening.records.at(i);
      if (newest == nullptr || newest->age() < record.age()) newest = &record;
    }
    if (opening.present.size() + 1 < kSharedServers) return End(epoch);
    Record record = *newest;
    // Of two that are not whole nobody knows what one had; nor of one, where parity is not right.
    const bool another = record.lacks.has_value() ? away.has_value() && away != record.lacks
                                                  : away.has_value() && !record.rows.empty();
    if (another) return End(epoch);
    if (away.has_value()) record.lacks = away;
    for (const Range& range : end.missed) {
      for (uint64_t at = 0; at < range.bytes; at += ObjectStore::kBlockBytes) {
        record.rows.insert((range.offset + at) / ObjectStore::kBlockBytes);
      }
    }
    if (away.has_value() && loop_.random.Chance(700)) {
      opening.alone_row = loop_.random.Below(rows_);
      record.rows.insert(*opening.alone_row);
    }
    Write(epoch, Opening::Phase::kRecording, record);
  }
  // A record at all that are there.
  void Write(uint64_t epoch, typename Opening::Phase phase, Record record) {
    Opening& opening = openings_.at(epoch);
    record.opening = Version{epoch};
    ++record.sequence;
    opening.record = record;
    const uint64_t step = opening.step + 1;
    for (const uint64_t number : opening.present) {
      Call([this, epoch, step, number, record, life = opening.lives.at(number)] {
        Server& server = *servers_[number];
        if (server.life() != life || !server.WriteRecord(record)) return;
        Call([this, epoch, step, number] { Done(epoch, step, number); });
      });
    }
    BeginStep(epoch, phase, opening.present);
  }

  // What who is alone does is whole or not there: how a RAID-5 object comes to that is tested
  // elsewhere.
  void Mend(uint64_t epoch) {
    Opening& opening = openings_.at(epoch);
    for (const uint64_t number : opening.present) {
      const Server& server = *servers_[number];
      if (!server.IsOpenTo(Version{epoch}) || server.life() != opening.lives.at(number)) {
        return End(epoch);
      }
    }
    const std::optional<uint64_t> lacks = opening.record.lacks;
    const bool is_away = lacks.has_value() && !opening.present.contains(*lacks);
    for (const uint64_t row : opening.record.rows) {
      if (is_away) break;
      ++stats_.mended;
      const uint64_t column = lacks.value_or(ParityOf(row));
      servers_[column]->Put(row, {alone_clock_.Next(), SumWithout(row, column)});
    }
    if (opening.alone_row.has_value()) WriteAlone(epoch, *opening.alone_row, *lacks);
    CheckRows(is_away ? lacks : std::nullopt);
    if (is_away) {
      ++stats_.degraded;
      return End(epoch);
    }
    Record record = opening.record;
    record.lacks.reset();
    record.rows.clear();
    Write(epoch, Opening::Phase::kClearing, record);
  }
  // The XOR of the others'.
  uint64_t SumWithout(uint64_t row, uint64_t column) const {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < kSharedServers; ++i) {
      if (i != column) sum ^= servers_[i]->At(row).value;
    }
    return sum;
  }
  void WriteAlone(uint64_t epoch, uint64_t row, uint64_t away) {
    const size_t cell = loop_.random.Below(SharedOracle::kCells);
    const uint64_t column = ServerOf(row, cell), parity = ParityOf(row);
    const uint64_t old = column == away ? SumWithout(row, away) : servers_[column]->At(row).value;
    const size_t write = oracle_.Begin(row, {cell});
    const uint64_t value = SharedOracle::ValueOf(write, cell);
    const Version version = alone_clock_.Next();
    if (parity != away) {
      servers_[parity]->Put(row, {version, servers_[parity]->At(row).value ^ old ^ value});
    }
    if (column != away) servers_[column]->Put(row, {version, value});
    oracle_.SetOrder(write, {epoch, false, write});
    oracle_.Acknowledged(write);
    ++stats_.alone;
  }

  // -- the judgement -----------------------------------------------------------------------------

  // `away`: a column that is known by the others.
  void CheckRows(std::optional<uint64_t> away) {
    for (uint64_t row = 0; row < rows_; ++row) {
      const uint64_t parity = ParityOf(row);
      if (!away.has_value() && SumWithout(row, parity) != servers_[parity]->At(row).value) {
        oracle_.Break(absl::StrCat("parity: of row ", row, " it is not the XOR of data"));
      }
      std::array<uint64_t, SharedOracle::kCells> values = {};
      for (size_t cell = 0; cell < SharedOracle::kCells; ++cell) {
        const uint64_t column = ServerOf(row, cell);
        values[cell] = away == column ? SumWithout(row, column) : servers_[column]->At(row).value;
      }
      oracle_.CheckRow(row, values);
    }
  }
  void Judge() {
    if (!is_open_) return oracle_.Break("bounded: the file does not open any more");
    for (const auto& server : servers_) {
      if (!server->is_idle()) oracle_.Break("bounded: something is pending, claimed or held");
    }
    for (const Client& client : clients_) {
      if (client.driver.has_value()) oracle_.Break("bounded: a write did not end");
    }
    CheckRows(std::nullopt);
  }

  SimLoop loop_;
  SharedStats& stats_;
  const uint64_t seed_;
  const uint64_t rows_;
  const Striping striping_ = *Striping::Make(kSharedServers, ObjectStore::kBlockBytes);
  CommitOptions options_;
  SharedOracle oracle_;
  HybridClock alone_clock_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::array<Client, 3> clients_;
  uint64_t clients_started_ = 0;
  std::map<uint64_t, Opening> openings_;  // by epoch; not those whose opener is dead
  uint64_t last_epoch_ = Server::kFirstEpoch;
  Version shared_{Server::kFirstEpoch};  // by which opening clients are together
  bool calm_ = false;
  bool is_open_ = false;  // with all columns, since it is calm
  bool two_lack_ = false;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_RAID_TESTING_SHARED_SIMULATOR_H_
