#ifndef ABACUS_OBJFS_ATOMICITY_TESTING_GROUP_WORLD_H_
#define ABACUS_OBJFS_ATOMICITY_TESTING_GROUP_WORLD_H_

// Servers with their stores and log objects on disks whose power can be cut, and clients that write
// groups there, in one thread and on one clock that only waits move on. Each message and each call
// to a disk is a point at which somebody may die.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/atomicity/group_writer.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace abacus::objfs::testing {

inline constexpr size_t kGroupServers = 3;
inline constexpr uint64_t kFromServer = 100;  // kFromServer + i: a resolution's messages

// What becomes of a message.
enum class MessageFate { kArrives, kIsLost, kAnswerIsLost, kServerDiesBefore, kServerDiesAfter };

class GroupWorld {
 public:
  struct Server {
    std::shared_ptr<PowerCutDisk> disk = std::make_shared<PowerCutDisk>();
    std::shared_ptr<ObjectStore> store;
    std::unique_ptr<CommitLog> log;  // null: it is down
  };

  GroupWorld() {
    commit.lease_ns = 30 * kSecond;
    commit.resend_ns = kSecond / 2;
    commit.decide_ns = 10 * kSecond;
    for (size_t i = 0; i < kGroupServers; ++i) Start(i);
  }
  ~GroupWorld() {
    for (Server& server : servers_) server.log.reset();
  }

  static constexpr int64_t kSecond = 1'000'000'000;
  CommitOptions commit;
  uint64_t half_bytes = LogFile::kHalfBytesMin;
  uint64_t quota_bytes = UINT64_MAX;  // of stores that are opened from now on
  // As DiskModel::fault, of the disk of a log that is opened from now on; empty: it has none.
  std::function<absl::Status(size_t server, std::string_view call)> log_fault;
  // Asked before each message, which are counted from 0; `from` is a client, or kFromServer + i.
  std::function<MessageFate(uint64_t message, uint64_t from)> fate;
  uint64_t epoch = 1;  // of the map, as all but the servers know it
  // Whether the servers look at their leases while a client waits.
  bool resolves_meanwhile = true;
  std::set<uint64_t> dead_clients;
  // What else the host of a log that is opened from now on is to be; empty: nothing.
  std::function<void(size_t server, CommitLog::Host* host)> change_host;

  Server& operator[](size_t i) { return servers_[i]; }
  uint64_t messages() const { return messages_; }
  int64_t now_ns() const { return now_ns_; }

  // After a crash or anew. It is down yet where its power goes meanwhile.
  void Start(size_t i) {
    const absl::Status started = TryStart(i);
    if (started.ok()) return;
    ASSERT_FALSE(HasPower(i)) << started;
    servers_[i].log.reset();
    servers_[i].store.reset();
  }
  // Its power goes; what is not synced may be lost.
  void Kill(size_t i) {
    Server& server = servers_[i];
    server.disk->CutPower();
    server.log.reset();
    server.store.reset();
  }
  // `seed`: of what is left. `again`: the power goes at that call of this life, too.
  void Restart(size_t i, uint64_t seed, std::optional<uint64_t> again = std::nullopt) {
    Server& server = servers_[i];
    server.log.reset();
    server.store.reset();
    server.disk->CutPower();
    server.disk->PowerOn(seed);
    if (again.has_value()) server.disk->CutPowerAfter(*again);
    Start(i);
  }
  bool IsUp(size_t i) {
    Server& server = servers_[i];
    if (server.log != nullptr && HasPower(i)) return true;
    server.log.reset();
    server.store.reset();
    return false;
  }

  std::unique_ptr<GroupWriter> Client(uint64_t number, HybridClock* clock,
                                      absl::Duration give_up = absl::Seconds(20)) {
    GroupWriter::Options options;
    options.commit = commit;
    options.give_up = give_up;
    GroupWriter::Host host;
    host.steady_ns = [this] { return now_ns_; };
    host.epoch = [this] { return epoch; };
    host.wait = [this](absl::Duration wait) { Pass(absl::ToInt64Nanoseconds(wait)); };
    host.peers = PeersOf(number);
    return std::make_unique<GroupWriter>(options, std::move(host), clock);
  }
  HybridClock Clock(uint16_t writer) {
    return HybridClock(writer, [this] { return NowUs(); });
  }
  std::shared_ptr<CommitPeers> PeersOf(uint64_t from) {
    return std::make_shared<Peers>(*this, from);
  }

  void Pass(int64_t ns) {
    now_ns_ += ns;
    if (!resolves_meanwhile) return;
    for (size_t i = 0; i < kGroupServers; ++i) {
      if (IsUp(i)) servers_[i].log->Resolve();
    }
  }
  // All servers are up, and look at their leases for the time that is promised.
  void PassALease() {
    resolves_meanwhile = true;
    Pass(commit.lease_ns);
    for (int i = 0; i < 4; ++i) Pass(commit.resend_ns);
  }

  // -- the object that all groups write to ------------------------------------------------------

  static constexpr ObjectId kObject = 7;
  static std::string Contents(uint64_t tag) {
    std::string bytes(ObjectStore::kBlockBytes, static_cast<char>('a' + tag % 26));
    const std::string text = absl::StrCat(tag, ";");
    return bytes.replace(0, text.size(), text);
  }
  static GroupWrite WriteOf(uint64_t block, uint64_t tag) {
    return {.id = kObject, .block = block, .bytes = Contents(tag)};
  }
  // The same at each of the servers.
  static std::vector<ServerPart> Everywhere(const GroupPart& part) {
    std::vector<ServerPart> parts;
    for (size_t i = 0; i < kGroupServers; ++i) parts.push_back({i, part});
    return parts;
  }
  // The block's tag; 0: it is a hole.
  uint64_t TagAt(size_t server, uint64_t block) {
    std::string bytes(ObjectStore::kBlockBytes, '\0');
    const auto read = servers_[server].store->Read(kObject, block * ObjectStore::kBlockBytes,
                                                   std::span(bytes.data(), bytes.size()));
    EXPECT_TRUE(read.ok()) << read.status();
    const uint64_t tag = std::strtoull(bytes.c_str(), nullptr, 10);
    EXPECT_EQ(bytes.substr(0, read.ok() ? *read : 0),
              tag == 0 ? std::string(read.ok() ? *read : 0, '\0') : Contents(tag));
    return tag;
  }
  Version VersionAt(size_t server, uint64_t block) {
    const auto versions = servers_[server].store->ReadVersions(kObject, block, 1);
    EXPECT_TRUE(versions.ok()) << versions.status();
    return versions.ok() ? Version{(*versions)[0]} : Version();
  }
  uint64_t Pending() {
    uint64_t pending = 0;
    for (Server& server : servers_) pending += server.log->Counts()->pending;
    return pending;
  }

 private:
  absl::Status TryStart(size_t i) {
    Server& server = servers_[i];
    ABACUS_ASSIGN_OR_RETURN(server.store,
                            LocalObjectStore::Open(*server.disk, {.quota_bytes = quota_bytes}));
    const absl::Status made = server.store->CreateAs(kObject, "", 1);
    if (!absl::IsAlreadyExists(made)) {
      ABACUS_RETURN_IF_ERROR(made);
      ABACUS_RETURN_IF_ERROR(server.store->Flush(kObject));
    }
    CommitLog::Options options;
    options.server = i;
    options.commit = commit;
    options.half_bytes = half_bytes;
    options.resolve_every = absl::ZeroDuration();
    CommitLog::Host host;
    host.steady_ns = [this] { return now_ns_; };
    host.now_us = [this] { return NowUs(); };
    host.peers = PeersOf(kFromServer + i);
    if (change_host) change_host(i, &host);
    std::shared_ptr<Disk> disk = server.disk;
    if (log_fault) {
      const auto fault = [this, i](std::string_view call, const std::string&) {
        return log_fault(i, call);
      };
      disk = std::make_shared<ModelDisk>(*server.disk, DiskModel{.fault = fault});
    }
    ABACUS_ASSIGN_OR_RETURN(server.log,
                            CommitLog::Open(disk, server.store, options, std::move(host)));
    return absl::OkStatus();
  }

  class Peers final : public CommitPeers {
   public:
    Peers(GroupWorld& world, uint64_t from) : world_(world), from_(from) {}
    void Ask(uint64_t epoch, const std::vector<CommitSend>& sends, absl::Duration,
             const Take& take) override {
      EXPECT_EQ(runtime::HeldLocks(), 0) << "a lock is held over a message";
      for (size_t i = 0; i < sends.size(); ++i) {
        take(i, world_.Deliver(from_, epoch, sends[i].to, sends[i].message));
      }
    }

   private:
    GroupWorld& world_;
    const uint64_t from_;
  };

  absl::StatusOr<CommitReply> Deliver(uint64_t from, uint64_t epoch, uint64_t to,
                                      const CommitMessage& message) {
    const bool was_dead = dead_clients.contains(from);
    const MessageFate become = fate ? fate(messages_, from) : MessageFate::kArrives;
    ++messages_;
    const absl::Status silence = absl::DeadlineExceededError("no answer");
    if (was_dead || become == MessageFate::kIsLost) return silence;
    if (become == MessageFate::kServerDiesBefore && IsUp(to)) {
      Kill(to);
      return silence;
    }
    if (!IsUp(to)) return absl::NotFoundError("the server is down");
    absl::StatusOr<CommitReply> reply = servers_[to].log->Ask(epoch, message);
    if (become == MessageFate::kServerDiesAfter) Kill(to);
    // Whose power went in the middle says nothing any more.
    if (!IsUp(to) || become == MessageFate::kAnswerIsLost || dead_clients.contains(from)) {
      return silence;
    }
    return reply;
  }
  bool HasPower(size_t i) { return servers_[i].disk->Open("superblock").ok(); }
  int64_t NowUs() const { return kEpochUs + now_ns_ / 1000; }

  static constexpr int64_t kEpochUs = 1'700'000'000'000'000;
  int64_t now_ns_ = kSecond;
  uint64_t messages_ = 0;
  std::array<Server, kGroupServers> servers_;
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_ATOMICITY_TESTING_GROUP_WORLD_H_
