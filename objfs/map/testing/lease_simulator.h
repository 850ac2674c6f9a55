#ifndef ABACUS_OBJFS_MAP_TESTING_LEASE_SIMULATOR_H_
#define ABACUS_OBJFS_MAP_TESTING_LEASE_SIMULATOR_H_

// Servers of one volume and its map in one thread: each with a clock of its own speed, and between
// them messages that are late, lost, or arrive when nobody waits for them any more.

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "objfs/map/kept_map.h"
#include "objfs/map/lease_core_inl.h"
#include "objfs/store/model_disk.h"
#include "objfs/volume/restore_plan.h"
#include "runtime/testing/sim_random.h"

namespace abacus::objfs::testing {

struct LeaseStats {
  uint64_t acknowledged = 0, refused = 0;
  uint64_t takeovers = 0, restarts = 0;
  uint64_t unknown = 0;     // calls of the map without an answer
  uint64_t by_promise = 0;  // acknowledged without a lease
  uint64_t by_lease = 0;    // acknowledged without promises
  uint64_t rejoined = 0;    // copies that became current again
  uint64_t yielded = 0;     // beginnings that were given up
  uint64_t cut_from_map = 0;
  uint64_t moved = 0;               // copies, to another server
  uint64_t told = 0;                // to a client, for how long nobody else will serve
  uint64_t lost = 0, restored = 0;  // rows, by the map
  uint64_t map_restarts = 0;
};

// What the map of a simulated volume is.
enum class SimulatedMap : uint8_t {
  kSteady,     // is away now and then, and forgets nothing
  kLosesRows,  // and is begun anew now and then; its row is put back when all servers answer
  kKept,       // a KeptMap on a disk: its server dies, with or without its power, and comes back
};

template <typename Policy>
class LeaseWorld {
 public:
  struct Result {
    std::string broken;  // empty: all held
    uint64_t steps = 0;
  };

  LeaseWorld(uint64_t seed, LeaseStats* stats, SimulatedMap kind = SimulatedMap::kSteady)
      : random_(seed), stats_(stats), kind_(kind) {
    map_.clock = Clock(random_);
    client_.clock = Clock(random_);
    row_.key = 1;
    row_.servers = {"a:1", "b:1", "c:1"};
    row_.copies = {{0, true}, {1, false}};
    if (random_.Chance(300)) row_.copies.push_back({2, false});
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i].place = i;
      nodes_[i].clock = Clock(random_);
      nodes_[i].remembered = row_;
      Start(i);
    }
    if (kind_ == SimulatedMap::kKept) MakeKeptMap();
    if (kind_ == SimulatedMap::kLosesRows) After(0, [this] { Restore(); });
    for (uint32_t i = 0; i < nodes_.size(); ++i) After(0, [this, i] { Turn(i); });
    After(0, [this] { Trouble(); });
  }

  Result Run() {
    Result result;
    constexpr int64_t kEnd = 150 * kSecond, kCalm = 40 * kSecond;
    while (broken_.empty() && now_ < kEnd + kCalm) {
      if (now_ > kEnd && !calm_) CalmDown();
      const auto next = events_.begin();
      now_ = next->first.first;
      const std::function<void()> event = std::move(next->second);
      events_.erase(next);
      event();
      ++result.steps;
      CheckOnePrimary();
    }
    const auto serves = [this](const Node& node) { return MayServe(node); };
    if (broken_.empty() && std::none_of(nodes_.begin(), nodes_.end(), serves)) {
      broken_ = "nobody serves though nothing is wrong any more";
    }
    result.broken = broken_.empty() ? "" : absl::StrCat(broken_, " at ", now_ / 1'000'000, " ms");
    return result;
  }

 private:
  static constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs;
  using Core = BasicLeaseCore<Policy>;

  // Runs at a speed of its own; two of them differ by less than LeaseOptions::drift_percent.
  struct Clock {
    Clock() = default;
    explicit Clock(runtime::sim::SimRandom& random)
        : begin(random.Between(0, 1000 * kSecond)), permille(1000 + 23 * random.Between(-1, 1)) {}
    int64_t begin = 0, permille = 1000;
    int64_t At(int64_t now) const { return begin + now / 1000 * permille; }
  };
  struct Node {
    uint32_t place = 0;
    Clock clock;
    std::unique_ptr<Core> core;  // null: it is down
    uint64_t life = 0;
    bool opens = true;        // what it has, as its store or its copy
    bool seems_fine = false;  // though it does not open: that is found out as the primary
    bool sees_map = true;
    uint64_t call = 0;  // of the map, that it waits for
    std::set<uint64_t> has;
    uint64_t served_epoch = 0;
    // Over restarts (remembered_row.h).
    VolumeRow remembered;
    int64_t remembered_revision = 1;
  };
  // It keeps what a server told it for as long as that one said that no other serves.
  struct Client {
    Clock clock;
    std::array<int64_t, 3> until = {INT64_MIN, INT64_MIN, INT64_MIN};  // by server
  };
  struct Map {
    Clock clock;
    bool away = false;
    std::map<uint64_t, int64_t> leases;  // until when, by its clock
    std::string holder;
    uint64_t holder_lease = 0;
    int64_t holder_revision = 0, revision = 1, row_revision = 1;
    bool has_row = true;
    uint64_t life = 0;  // calls of an earlier one are never answered
    int64_t lost_at = 0;
    int64_t waits_since = 0;                     // who is to put the row back; 0: does not wait
    std::vector<std::function<void()>> waiting;  // while it is away
  };

  void After(int64_t delay, std::function<void()> what) {
    events_.emplace(std::pair(now_ + delay, ++event_), std::move(what));
  }
  int64_t Now(const Node& node) const { return node.clock.At(now_); }
  bool MayServe(const Node& node) const { return node.core && node.core->MayServe(Now(node)); }

  void Start(uint32_t i) {
    LeaseOptions options;
    nodes_[i].core = std::make_unique<Core>(options, i, ++life_ << 20, Now(nodes_[i]));
    nodes_[i].life = life_;
    nodes_[i].call = 0;
  }

  // -- what goes wrong ----------------------------------------------------------------------------

  void Trouble() {
    if (calm_) return;
    // Mostly of those that count.
    uint32_t i = static_cast<uint32_t>(random_.Below(nodes_.size()));
    if (!random_.Chance(100)) i = row_.copies[random_.Below(row_.copies.size())].place;
    switch (random_.Below(kind_ == SimulatedMap::kSteady ? 8 : 10)) {
      case 0:
      case 1:
        if (nodes_[i].core) {
          nodes_[i].core.reset();
          ++stats_->restarts;
        }
        After(random_.Between(0, 12 * kSecond), [this, i] {
          if (!nodes_[i].core) Start(i);
          if (random_.Chance(400)) FailToOpen(i);
        });
        break;
      case 2:
      case 3:
        map_.away = true;
        After(random_.Between(0, 15 * kSecond), [this] { MapReturns(); });
        break;
      case 4:
        cut_ = i;
        break;
      case 5:
        cut_.reset();
        break;
      case 6:
        nodes_[i].sees_map = false;
        ++stats_->cut_from_map;
        After(random_.Between(0, 20 * kSecond), [this, i] { nodes_[i].sees_map = true; });
        break;
      case 7:
        FailToOpen(i);
        break;
      default:
        if (kind_ == SimulatedMap::kKept) {
          KillMap();
        } else {
          LoseRow();
        }
    }
    loss_permille_ = random_.Chance(300) ? 250 : 20;
    After(random_.Between(kSecond / 2, 7 * kSecond), [this] { Trouble(); });
  }
  void FailToOpen(uint32_t i) {
    nodes_[i].opens = false;
    nodes_[i].seems_fine = random_.Chance(700);
    After(random_.Between(0, 15 * kSecond), [this, i] { nodes_[i].opens = true; });
  }
  void LoseRow() {
    if (!map_.has_row) return;
    ++stats_->lost;
    const int64_t before = map_.row_revision;
    const Clock clock = map_.clock;
    const uint64_t life = map_.life + 1;
    map_ = Map();
    map_.clock = clock;
    map_.life = life;
    map_.has_row = false;
    map_.lost_at = now_;
    // The row that is put back may have the revision that the lost one had.
    map_.revision = random_.Chance(500) ? before - 1 : 1;
  }
  // As VolumeSet::RestoreMap() does, without force.
  void Restore() {
    After(random_.Between(50 * kMs, kSecond), [this] { Restore(); });
    const int64_t waits_since = std::exchange(map_.waits_since, 0);
    const auto is_down = [](const Node& node) { return node.core == nullptr; };
    if (map_.has_row || map_.away || cut_.has_value() || now_ < map_.lost_at + 6 * kSecond ||
        std::any_of(nodes_.begin(), nodes_.end(), is_down)) {
      return;
    }
    std::vector<ServerMemory> asked;
    for (const Node& node : nodes_) asked.push_back({row_.servers[node.place], MemoryOf(node)});
    const auto plan = PlanRestore("home", "", row_.key, asked, /*forced=*/false);
    if (!plan.ok()) {
      broken_ = absl::StrCat("a row cannot be put back: ", plan.status().message());
      return;
    }
    if (plan->waits && (waits_since == 0 || now_ < waits_since + 10 * kSecond)) {
      map_.waits_since = waits_since == 0 ? now_ : waits_since;
      return;
    }
    row_ = plan->row;
    map_.row_revision = ++map_.revision;
    map_.has_row = true;
    ++stats_->restored;
  }
  MapMemory MemoryOf(const Node& node) const {
    MapMemory memory;
    memory.keeps_names = memory.is_whole = true;
    memory.place = node.place;
    memory.row = node.remembered.Encode();
    memory.revision = node.remembered_revision;
    memory.serves_epoch = MayServe(node) ? node.core->row().epoch : 0;
    memory.has_promised = node.core->HasPromised(Now(node));
    memory.seen_epoch = std::max(node.remembered.epoch, node.served_epoch);
    return memory;
  }
  // Of the row that is acted by from now on.
  void Remember(Node& node) {
    if (node.core->revision() == 0 || node.core->row().epoch < node.remembered.epoch) return;
    node.remembered = node.core->row();
    node.remembered_revision = node.core->revision();
  }
  void MapReturns() {
    map_.away = false;
    for (auto& request : std::exchange(map_.waiting, {})) After(random_.Between(0, kMs), request);
  }
  void CalmDown() {
    calm_ = true;
    cut_.reset();
    loss_permille_ = 0;
    if (kind_ == SimulatedMap::kKept) {
      EndMap();
      StartMap();
    }
    MapReturns();
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].core) Start(i);
      nodes_[i].opens = nodes_[i].sees_map = true;
    }
  }
  bool Lost() { return random_.Chance(loss_permille_); }
  // Mostly soon; seldom when nobody waits any more.
  int64_t Delay() {
    if (!calm_ && random_.Chance(30)) return random_.Between(kSecond, 9 * kSecond);
    if (!calm_ && random_.Chance(70)) return random_.Between(100 * kMs, 900 * kMs);
    return random_.Between(kMs / 10, 30 * kMs);
  }
  bool Cut(uint32_t a, uint32_t b) const { return cut_ == a || cut_ == b; }

  // -- a server -----------------------------------------------------------------------------------

  void Turn(uint32_t i) {
    Node& node = nodes_[i];
    if (node.core) {
      node.core->SetMayStand(node.opens || node.seems_fine);
      if (auto call = node.core->NextCall(Now(node))) Ask(i, *std::move(call));
      for (const uint32_t place : node.core->NextAsks(Now(node))) AskPromise(i, place);
      Remember(node);
      Write(node);
    }
    After(random_.Between(5 * kMs, 60 * kMs), [this, i] { Turn(i); });
  }

  void Ask(uint32_t i, MapCall call) {
    const uint64_t number = nodes_[i].call = ++calls_;
    const uint64_t life = nodes_[i].life;
    const auto answer = [this, i, number, life](const MapAnswer& reply) {
      Node& node = nodes_[i];
      if (!node.core || node.life != life || node.call != number) return;
      node.call = 0;
      if (reply.state == MapAnswer::State::kUnknown) ++stats_->unknown;
      node.core->OnAnswer(Now(node), reply);
      NoteEpoch(node);
    };
    After(kSecond, [answer] { answer(MapAnswer()); });
    if (Lost() || !nodes_[i].sees_map) return;
    const auto back = [this, i, answer](const MapAnswer& reply) {
      if (nodes_[i].sees_map) answer(reply);
    };
    After(Delay(),
          [this, call = std::move(call), back, map = map_.life] { Arrive(call, map, back); });
  }
  void AskPromise(uint32_t i, uint32_t place) {
    const int64_t sent = Now(nodes_[i]);
    const uint64_t life = nodes_[i].life, epoch = nodes_[i].core->row().epoch;
    const auto answered = std::make_shared<bool>(false);
    const auto answer = [this, i, place, sent, life, answered](std::optional<PromiseAnswer> reply) {
      Node& node = nodes_[i];
      if (*answered || !node.core || node.life != life) return;
      *answered = true;
      node.core->OnPromise(Now(node), place, sent, reply);
    };
    After(2 * kSecond, [answer] { answer(std::nullopt); });
    if (Lost() || Cut(i, place)) return;
    After(Delay(), [this, place, epoch, answer] {
      Node& other = nodes_[place];
      if (!other.core) return;
      const PromiseAnswer reply = other.core->OnAsk(Now(other), epoch);
      if (!Lost()) After(Delay(), [answer, reply] { answer(reply); });
    });
  }

  // One write, to all that have to have it.
  void Write(Node& node) {
    Core& core = *node.core;
    if (!core.MayServe(Now(node))) return;
    if (random_.Chance(200)) Tell(node);
    const uint64_t value = ++values_;
    node.has.insert(value);
    VolumeRow row = core.row();
    bool everywhere = true, changes = false;
    for (const uint32_t place : core.Candidates()) {
      Node& other = nodes_[place];
      const bool takes = other.core && !Cut(node.place, place) && !Lost() &&
                         other.core->row().epoch <= core.row().epoch;
      if (takes) {
        other.has.insert(value);
      } else {
        everywhere = false;
        changes = true;
        row.SetCurrent(place, false);
      }
    }
    if (everywhere) {
      acknowledged_.insert(value);
      ++stats_->acknowledged;
      if (!core.HasLease(Now(node))) ++stats_->by_promise;
    } else {
      ++stats_->refused;
    }
    if (!changes && random_.Chance(100)) changes = CopyToOne(node, &row);
    if (!changes && random_.Chance(2)) changes = MoveOne(node, &row);
    if (changes && !core.changing()) core.Change(row);
  }
  // At the latest moment that the client may count from.
  void Tell(Node& node) {
    const int64_t told = node.core->ServesFor(Now(node));
    int64_t& until = client_.until[node.place];
    until =
        std::max(until, client_.clock.At(now_) + told / 100 * (100 - LeaseOptions().drift_percent));
    ++stats_->told;
  }
  // A server that never had a copy is to have that of another, which is behind.
  bool MoveOne(const Node& node, VolumeRow* row) {
    const std::vector<uint32_t> fresh = row->FreshPlaces();
    for (const VolumeRow::Copy& copy : row->copies) {
      if (copy.current || fresh.empty() || node.core->changing()) continue;
      row->MoveCopy(copy.place, fresh.front());
      ++stats_->moved;
      return true;
    }
    return false;
  }
  // What a copy lacks; it is current from then on.
  bool CopyToOne(const Node& node, VolumeRow* row) {
    for (const VolumeRow::Copy& copy : row->copies) {
      Node& other = nodes_[copy.place];
      if (copy.current || !other.core || Cut(node.place, copy.place) || node.core->changing()) {
        continue;
      }
      other.has = node.has;
      row->SetCurrent(copy.place, true);
      ++stats_->rejoined;
      return true;
    }
    return false;
  }

  // -- the map ------------------------------------------------------------------------------------

  void Arrive(const MapCall& call, uint64_t life,
              const std::function<void(const MapAnswer&)>& answer) {
    if (life != map_.life) return;
    if (map_.away) {
      if (map_.waiting.size() < 50) {
        map_.waiting.push_back([this, call, life, answer] { Arrive(call, life, answer); });
      }
      return;
    }
    const MapAnswer reply = Serve(call);
    if (!Lost()) After(Delay(), [answer, reply] { answer(reply); });
  }
  MapAnswer Serve(const MapCall& call) {
    if (kind_ == SimulatedMap::kKept) return ServeKept(call);
    const int64_t now = map_.clock.At(now_);
    const auto alive = [&](uint64_t lease) {
      const auto found = map_.leases.find(lease);
      return found != map_.leases.end() && now < found->second;
    };
    if (!map_.holder.empty() && !alive(map_.holder_lease)) {
      map_.holder.clear();
      map_.holder_revision = 0;
    }
    using Kind = MapCall::Kind;
    if (!map_.has_row && call.kind == Kind::kRead) return MapAnswer();
    MapAnswer answer{.state = MapAnswer::State::kDone, .reading = {}};
    bool done = true;
    switch (call.kind) {
      case Kind::kRead:
        break;
      case Kind::kGrant:
        map_.leases[call.lease] = now + LeaseOptions().lease_ns;
        break;
      case Kind::kRenew:
        done = alive(call.lease);
        if (done) map_.leases[call.lease] = now + LeaseOptions().lease_ns;
        break;
      case Kind::kTake:
        done = call.revision == map_.row_revision && alive(call.lease) &&
               call.holder_revision == map_.holder_revision;
        // A map without that comparison has none of the lease's holder either.
        if (!Policy::kWaitForTheLease) done = call.revision == map_.row_revision;
        done = done && map_.has_row;
        if (!done) break;
        row_ = call.row;
        map_.row_revision = map_.holder_revision = ++map_.revision;
        map_.holder = call.holder;
        map_.holder_lease = call.lease;
        break;
      case Kind::kSet:
        done = call.revision == map_.row_revision && map_.has_row;
        if (!done) break;
        row_ = call.row;
        map_.row_revision = ++map_.revision;
        break;
    }
    if (!done) answer.state = MapAnswer::State::kRefused;
    answer.reading = {.revision = map_.row_revision,
                      .row = row_,
                      .holder = map_.holder,
                      .holder_revision = map_.holder_revision};
    return answer;
  }

  // -- a KeptMap ----------------------------------------------------------------------------------

  MapAnswer ServeKept(const MapCall& call) {
    if (kept_ == nullptr) return MapAnswer();
    const absl::StatusOr<MapAnswer> answer = kept_->Call(call);
    if (!answer.ok()) return MapAnswer();
    CheckNothingIsTakenBack(*answer);
    const bool changes = call.kind == MapCall::Kind::kTake || call.kind == MapCall::Kind::kSet;
    if (changes && answer->state == MapAnswer::State::kDone) row_ = call.row;
    return *answer;
  }
  void CheckNothingIsTakenBack(const MapAnswer& answer) {
    if (answer.state != MapAnswer::State::kDone) return;
    if (answer.reading.revision < told_revision_) broken_ = "the map has taken back what it told";
    told_revision_ = std::max(told_revision_, answer.reading.revision);
  }
  void OpenKeptMap() {
    kept_ = std::make_unique<KeptMap>(map_disk_, "map", [this] { return map_.clock.At(now_); });
  }
  void MakeKeptMap() {
    map_disk_ = std::make_shared<PowerCutDisk>();
    OpenKeptMap();
    if (!kept_->Create(row_).ok()) broken_ = "the map cannot be made";
  }
  // At some call to its disk, as a change makes, or between changes.
  void KillMap() {
    map_disk_->CutPowerAfter(random_.Below(7));
    After(random_.Between(0, 3 * kSecond), [this] {
      if (!calm_) EndMap();
      After(random_.Between(0, 8 * kSecond), [this] { StartMap(); });
    });
  }
  void EndMap() {
    kept_.reset();
    ++map_.life;
    map_.waiting.clear();
  }
  void StartMap() {
    if (kept_ != nullptr) return;
    // Only what was synced is there for sure, or, where the power has not gone, all.
    if (random_.Chance(500)) {
      map_disk_->CutPower();
      map_disk_->PowerOn(random_.Next());
    } else {
      map_disk_->PowerOnAsOf(map_disk_->Calls());
    }
    OpenKeptMap();
    ++stats_->map_restarts;
    // As a server does when it starts; and a change that was not answered may have been made.
    const absl::StatusOr<MapAnswer> read = kept_->Call({.kind = MapCall::Kind::kRead});
    if (read.ok()) {
      CheckNothingIsTakenBack(*read);
      row_ = read->reading.row;
    } else {
      broken_ = absl::StrCat("the map cannot be read: ", read.status().message());
    }
  }

  // -- what must hold -----------------------------------------------------------------------------

  void NoteEpoch(Node& node) {
    if (node.core->role() != Core::Role::kPrimary || !MayServe(node)) return;
    const uint64_t epoch = node.core->row().epoch;
    if (node.served_epoch == epoch) return;
    if (!node.opens && node.core->Yield()) {
      node.seems_fine = false;
      ++stats_->yielded;
      return;
    }
    Remember(node);
    node.served_epoch = epoch;
    ++stats_->takeovers;
    if (!std::includes(node.has.begin(), node.has.end(), acknowledged_.begin(),
                       acknowledged_.end())) {
      broken_ = absl::StrCat("server ", node.place, " begins epoch ", epoch,
                             " without what was acknowledged");
    }
  }
  void CheckOnePrimary() {
    const int serving = static_cast<int>(
        std::count_if(nodes_.begin(), nodes_.end(), [this](const Node& n) { return MayServe(n); }));
    if (serving > 1) broken_ = "two primaries";
    for (const Node& node : nodes_) {
      if (!MayServe(node)) continue;
      for (uint32_t i = 0; i < nodes_.size(); ++i) {
        if (i == node.place || client_.clock.At(now_) >= client_.until[i]) continue;
        broken_ = absl::StrCat("server ", node.place, " serves while a client keeps what ", i,
                               " has promised");
      }
    }
  }

  runtime::sim::SimRandom random_;
  LeaseStats* const stats_;
  const SimulatedMap kind_;
  int64_t now_ = 0;
  uint64_t event_ = 0, life_ = 0, calls_ = 0, values_ = 0;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;
  std::array<Node, 3> nodes_;
  VolumeRow row_;
  Map map_;
  std::shared_ptr<PowerCutDisk> map_disk_;  // of a KeptMap, as the next
  std::unique_ptr<KeptMap> kept_;           // null: its server is down
  int64_t told_revision_ = 0;               // the greatest that it has answered
  Client client_;
  bool calm_ = false;
  uint32_t loss_permille_ = 20;
  std::optional<uint32_t> cut_;
  std::set<uint64_t> acknowledged_;
  std::string broken_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_MAP_TESTING_LEASE_SIMULATOR_H_
