#ifndef ABACUS_OBJFS_REPLICA_TESTING_REPLICA_WORLD_H_
#define ABACUS_OBJFS_REPLICA_TESTING_REPLICA_WORLD_H_

// Two servers of a volume in this process: a primary's store, its copy, the messages between the
// two, and the volume map.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/replica/replica_link.h"
#include "objfs/replica/replica_record.h"
#include "objfs/replica/replica_store.h"
#include "objfs/replica/replicated_store.h"
#include "objfs/store/testing/model_object.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::testing {

// What becomes of a message.
enum class Fate { kArrives, kIsLost, kAnswerIsLost };

// The messages to a copy. Thread-safe.
class Wire {
 public:
  // Asked before each message, which are counted from 0.
  std::function<Fate(uint64_t message, std::string_view call)> fate;

  uint64_t messages() const { return messages_.load(); }
  Fate Next(std::string_view call) {
    const uint64_t message = messages_++;
    if (is_cut.load()) return Fate::kIsLost;
    return fate ? fate(message, call) : Fate::kArrives;
  }
  std::atomic<bool> is_cut{false};

 private:
  std::atomic<uint64_t> messages_{0};
};

class WireLink final : public ReplicaLink {
 public:
  // `lives`: the primary that it is of.
  WireLink(std::shared_ptr<ReplicaStore> copy, Wire& wire,
           std::shared_ptr<const std::atomic<bool>> lives)
      : copy_(std::move(copy)), wire_(wire), lives_(std::move(lives)) {}
  absl::StatusOr<ReplicaState> State() override {
    return Send("state", [&] { return copy_->State(); });
  }
  absl::StatusOr<ReplicaState> Begin(uint64_t epoch, uint64_t session) override {
    return Send("begin", [&] { return copy_->Begin(epoch, session); });
  }
  absl::Status Apply(uint64_t epoch, uint64_t session, const ReplicaBatch& batch) override {
    const std::string call = batch.flush == ReplicaFlush::kFinish ? "finish"
                             : batch.flush != ReplicaFlush::kNone ? "flush"
                                                                  : "apply";
    return Send(call, [&] { return copy_->Apply(epoch, session, batch); });
  }
  absl::StatusOr<std::vector<ObjectId>> List(ObjectId after, uint64_t count_max) override {
    return Send("list", [&] { return copy_->List(after, count_max); });
  }
  absl::StatusOr<ReplicaObject> Describe(ObjectId id, uint64_t first, uint64_t count,
                                         bool digests) override {
    return Send(digests ? "digests" : "describe",
                [&] { return copy_->Describe(id, first, count, digests); });
  }
  absl::StatusOr<runtime::Block> ReadBlock(ObjectId id, uint64_t block) override {
    return Send("read", [&] { return copy_->ReadBlock(id, block); });
  }
  absl::Status PutBack(ObjectId id, uint64_t block, const runtime::Block& bytes) override {
    return Send("put back", [&] { return copy_->PutBack(id, block, bytes); });
  }

 private:
  template <typename Call>
  auto Send(const std::string& name, Call call) -> decltype(call()) {
    EXPECT_EQ(runtime::HeldLocks(), 0) << "a lock is held over a message";
    const Fate fate = *lives_ ? wire_.Next(name) : Fate::kIsLost;
    if (fate == Fate::kIsLost) return absl::UnavailableError(absl::StrCat(name, " was lost"));
    auto answer = call();
    if (fate == Fate::kArrives) return answer;
    return absl::UnavailableError(absl::StrCat("the answer to ", name, " was lost"));
  }

  const std::shared_ptr<ReplicaStore> copy_;
  Wire& wire_;
  const std::shared_ptr<const std::atomic<bool>> lives_;
};

// The map's row of the volume. Thread-safe.
class MapRow {
 public:
  std::atomic<bool> answers{true};  // it can be reached
  std::atomic<bool> lease_lasts{true};
  std::atomic<uint64_t> drops{0}, currents{0};

  bool counts() const { return counts_.load(); }
  absl::Status Drop() {
    ++drops;
    if (!answers) return absl::UnavailableError("the map does not answer");
    counts_ = false;
    return absl::OkStatus();
  }
  absl::Status Current() {
    ++currents;
    if (!answers) return absl::UnavailableError("the map does not answer");
    counts_ = true;
    return absl::OkStatus();
  }
  absl::Status MayServe() {
    return lease_lasts ? absl::OkStatus() : absl::UnavailableError("the lease is over");
  }

 private:
  std::atomic<bool> counts_{false};
};

inline bool SoonHolds(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class ReplicaWorld {
 public:
  ReplicaWorld(std::shared_ptr<Disk> of_primary, std::shared_ptr<Disk> of_copy)
      : primary_disk_(std::move(of_primary)), copy_disk_(std::move(of_copy)) {
    options.epoch = 1;
    options.copy_counts = false;
    options.retry = absl::Milliseconds(2);
    options.flush_wait = absl::Seconds(20);
    options.resync_share = 1;
    // No test goes by how fast the machine is.
    options.slow.late = options.slow_copy.late = absl::InfiniteDuration();
  }
  ~ReplicaWorld() { KillPrimary(); }

  MapRow map;
  Wire wire;
  ReplicatedStore::Options options;
  LocalObjectStoreOptions store_options;
  std::function<void(const absl::Status& why)> local_fails;

  absl::Status StartCopy() {
    auto opened = ReplicaStore::Open(copy_disk_, store_options);
    if (!opened.ok()) return opened.status();
    runtime::MutexLock lock(mutex_);
    copy_ = *std::move(opened);
    return absl::OkStatus();
  }
  // As a crash; what is under way there ends first.
  void KillCopy() {
    std::shared_ptr<ReplicaStore> ended;
    runtime::MutexLock lock(mutex_);
    std::swap(ended, copy_);
  }
  std::shared_ptr<ReplicaStore> copy() {
    runtime::MutexLock lock(mutex_);
    return copy_;
  }
  absl::Status StartPrimary() {
    auto opened = OpenPrimaryStore(*primary_disk_, options.epoch, store_options);
    if (!opened.ok()) return opened.status();
    local_ = *std::move(opened);
    lives_ = std::make_shared<std::atomic<bool>>(true);
    ReplicatedStore::Host host;
    host.find_copy = [this, lives = lives_]() -> absl::StatusOr<std::shared_ptr<ReplicaLink>> {
      auto copy = this->copy();
      if (copy == nullptr || !*lives) return absl::UnavailableError("the copy's server is down");
      return std::make_shared<WireLink>(std::move(copy), wire, lives);
    };
    host.drop_copy = [this] { return map.Drop(); };
    host.copy_is_current = [this] { return map.Current(); };
    host.may_serve = [this] { return map.MayServe(); };
    host.local_fails = local_fails;
    primary_ = ReplicatedStore::Make(local_, options, std::move(host));
    return absl::OkStatus();
  }
  // As a crash: what was not flushed is lost, and the copy is told nothing more, though somebody
  // may still have the store.
  void KillPrimary() {
    if (lives_ != nullptr) *lives_ = false;
    wire.is_cut = true;
    primary_.reset();
    local_.reset();
    wire.is_cut = false;
  }
  // Both begin, and are equal.
  void Start() {
    ASSERT_TRUE(StartCopy().ok());
    const absl::Status started = StartPrimary();
    ASSERT_TRUE(started.ok()) << started;
    ASSERT_TRUE(AwaitCurrent());
  }
  bool AwaitCurrent() {
    return SoonHolds([this] {
      return primary_->Report().link == ReplicationReport::Link::kCurrent && map.counts();
    });
  }
  // The copy takes over, as the server that it is on does it, and the old primary's disk is the
  // next copy's. REQUIRES: the primary is dead.
  absl::Status Promote() {
    const std::shared_ptr<ReplicaStore> copy = this->copy();
    if (copy == nullptr) return absl::UnavailableError("the copy's server is down");
    ++options.epoch;
    const absl::Status retired = copy->Retire(options.epoch);
    KillCopy();
    if (!retired.ok()) return retired;
    std::swap(primary_disk_, copy_disk_);
    map.Drop().IgnoreError();
    return StartPrimary();
  }

  ReplicatedStore& primary() { return *primary_; }
  std::shared_ptr<ReplicatedStore> shared_primary() { return primary_; }
  LocalObjectStore& local() { return *local_; }
  Disk& copy_disk() { return *copy_disk_; }

 private:
  std::shared_ptr<Disk> primary_disk_, copy_disk_;
  runtime::Mutex mutex_;
  std::shared_ptr<ReplicaStore> copy_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<std::atomic<bool>> lives_;  // the primary
  std::shared_ptr<LocalObjectStore> local_;
  std::shared_ptr<ReplicatedStore> primary_;
};

// All objects of the two are the same, byte for byte.
inline void ExpectSame(ObjectStore& a, ObjectStore& b) {
  const auto of_a = a.List(0, 1'000'000), of_b = b.List(0, 1'000'000);
  ASSERT_TRUE(of_a.ok() && of_b.ok());
  ASSERT_EQ(*of_a, *of_b);
  for (const ObjectId id : *of_a) {
    const auto one = ReadObject(a, id), other = ReadObject(b, id);
    ASSERT_TRUE(one.ok()) << id << ": " << one.status();
    ASSERT_TRUE(other.ok()) << id << ": " << other.status();
    ASSERT_EQ(one->bytes.size(), other->bytes.size()) << id;
    ASSERT_TRUE(one->bytes == other->bytes) << id;
    ASSERT_EQ(one->blob, other->blob) << id;
    ASSERT_EQ(one->version, other->version) << id;
    ASSERT_EQ(one->versions, other->versions) << id;
  }
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_REPLICA_TESTING_REPLICA_WORLD_H_
