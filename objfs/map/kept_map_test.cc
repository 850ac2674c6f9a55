#include "objfs/map/kept_map.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "objfs/store/memory_disk.h"
#include "objfs/store/model_disk.h"
#include "runtime/testing/cluster.h"
#include "runtime/testing/sim_random.h"

namespace abacus::objfs {
namespace {

using ::testing::HasSubstr;
using Kind = MapCall::Kind;
using State = MapAnswer::State;

constexpr int64_t kKeptSecond = 1'000'000'000, kKeptLease = 5 * kKeptSecond;
constexpr char kFile[] = "home-0000000000000abc";

VolumeRow KeptRowOfEpoch(uint64_t epoch) {
  return {.key = 0xabc,
          .epoch = epoch,
          .primary = 1,
          .servers = {"127.0.0.1:7070", "s2:7070", "s3:7070"},
          .copies = {{0, false}, {1, true}},
          .former = {}};
}

KeptRow SampleKept() {
  return {.revision = 12,
          .is_there = true,
          .reading = {.revision = 12,
                      .row = KeptRowOfEpoch(7),
                      .holder = "1 7d 7994",
                      .holder_revision = 9},
          .lease = 0x1f3a};
}

std::string BytesOf(Disk& disk) {
  const auto file = disk.Open(kFile);
  if (!file.ok()) return "";
  std::string text(*(*file)->Size(), '\0');
  EXPECT_TRUE((*file)->Read(0, std::span<char>(text.data(), text.size())).ok());
  return text;
}

void PutBytes(Disk& disk, std::string_view bytes) {
  disk.Remove(kFile).IgnoreError();
  const auto file = disk.Create(kFile);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write(0, bytes).ok());
}

// What is on disks must be read by every later build.
TEST(KeptRowTest, TheTextIsThatOfVersionOne) {
  EXPECT_EQ(SampleKept().Encode(),
            "abacus kept map 1\nrevision 12\nholder 9 1f3a 1 7d 7994\nrow 12\n"
            "abacus volume map 1\nkey 0000000000000abc\nepoch 7\nprimary 1\ncopy 0 behind\n"
            "copy 1 current\nserver 127.0.0.1:7070\nserver s2:7070\nserver s3:7070\nend\n"
            "crc c8db9592\n");
  EXPECT_EQ(*KeptRow::Decode(SampleKept().Encode()), SampleKept());
  KeptRow free = SampleKept();
  free.reading.holder.clear();
  free.reading.holder_revision = 0;
  free.lease = 0;
  EXPECT_EQ(*KeptRow::Decode(free.Encode()), free);
  const KeptRow removed{.revision = 13};
  EXPECT_EQ(*KeptRow::Decode(removed.Encode()), removed);
}

TEST(KeptRowTest, WhatIsCutOffLongerOrDamagedInAnyByteIsRefused) {
  const std::string text = SampleKept().Encode();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(KeptRow::Decode(text.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(KeptRow::Decode(text + "\n").ok());
  EXPECT_FALSE(KeptRow::Decode(text + text).ok());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ (1 << bit));
      EXPECT_FALSE(KeptRow::Decode(other).ok()) << i << " " << bit;
    }
  }
  std::string later = text;
  later.replace(later.find(" 1\n"), 3, " 2\n");
  EXPECT_TRUE(absl::IsFailedPrecondition(KeptRow::Decode(later).status()));
}

class KeptMapTest : public ::testing::Test {
 protected:
  KeptMapTest() { Restart(); }

  void Restart() {
    map_ = std::make_unique<KeptMap>(
        disk_, kFile, [this] { return now_; }, kKeptLease);
  }
  MapAnswer Call(const MapCall& call) {
    const auto answer = map_->Call(call);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or(MapAnswer());
  }
  MapReading Read() { return Call({.kind = Kind::kRead}).reading; }
  State Grant(uint64_t lease) { return Call({.kind = Kind::kGrant, .lease = lease}).state; }
  State Renew(uint64_t lease) { return Call({.kind = Kind::kRenew, .lease = lease}).state; }
  static MapCall TakeOf(const MapReading& seen, uint64_t lease) {
    MapCall call{.kind = Kind::kTake,
                 .revision = seen.revision,
                 .holder_revision = seen.holder_revision,
                 .lease = lease,
                 .holder = absl::StrCat("1 7d ", lease),
                 .row = seen.row};
    ++call.row.epoch;
    return call;
  }
  static MapCall SetOf(const MapReading& seen) {
    MapCall call{.kind = Kind::kSet, .revision = seen.revision, .row = seen.row};
    ++call.row.epoch;
    return call;
  }
  // The row is there, and who has `lease` holds it.
  void Begin(uint64_t lease) {
    ASSERT_TRUE(map_->Create(KeptRowOfEpoch(1)).ok());
    ASSERT_EQ(Grant(lease), State::kDone);
    ASSERT_EQ(Call(TakeOf(Read(), lease)).state, State::kDone);
  }

  const std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  int64_t now_ = 1000 * kKeptSecond;
  std::unique_ptr<KeptMap> map_;
};

TEST_F(KeptMapTest, ARowIsMadeOnceReadAndChangedByCompareAndSet) {
  EXPECT_TRUE(absl::IsNotFound(map_->Call({.kind = Kind::kRead}).status()));
  EXPECT_EQ(Call(SetOf({.revision = 0, .row = KeptRowOfEpoch(1)})).state, State::kRefused);
  ASSERT_TRUE(map_->Create(KeptRowOfEpoch(1)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(map_->Create(KeptRowOfEpoch(2))));
  const MapReading first = Read();
  EXPECT_EQ(first.row, KeptRowOfEpoch(1));
  EXPECT_EQ(first.holder, "");
  EXPECT_EQ(first.holder_revision, 0);

  const MapAnswer changed = Call(SetOf(first));
  EXPECT_EQ(changed.state, State::kDone);
  EXPECT_GT(changed.reading.revision, first.revision);
  EXPECT_EQ(Call(SetOf(first)).state, State::kRefused) << "the row has changed since";
  EXPECT_EQ(Read().row, KeptRowOfEpoch(2));
  EXPECT_EQ(Read().revision, changed.reading.revision);
  ASSERT_TRUE(map_->Remove().ok());
  EXPECT_TRUE(map_->Remove().ok());
  EXPECT_TRUE(absl::IsNotFound(map_->Call({.kind = Kind::kRead}).status()));
  EXPECT_EQ(Call(SetOf({.revision = changed.reading.revision, .row = KeptRowOfEpoch(2)})).state,
            State::kRefused);
}

TEST_F(KeptMapTest, ThePrimarysLeaseKeepsOthersOutUntilItIsOver) {
  ASSERT_TRUE(map_->Create(KeptRowOfEpoch(1)).ok());
  const MapReading seen = Read();
  EXPECT_EQ(Call(TakeOf(seen, 11)).state, State::kRefused) << "there is no such lease";
  EXPECT_EQ(Renew(11), State::kRefused);
  ASSERT_EQ(Grant(11), State::kDone);
  EXPECT_EQ(Grant(11), State::kRefused) << "it is in use";
  ASSERT_EQ(Grant(12), State::kDone);
  const MapAnswer taken = Call(TakeOf(seen, 11));
  ASSERT_EQ(taken.state, State::kDone);
  const MapReading held = Read();
  EXPECT_EQ(held.holder, "1 7d 11");
  EXPECT_EQ(held.revision, taken.reading.revision);
  EXPECT_EQ(held.holder_revision, taken.reading.revision);
  EXPECT_EQ(held.row, KeptRowOfEpoch(2));
  // Who has seen the row of now, and not the holder.
  MapCall late = TakeOf(held, 12);
  late.holder_revision = 0;
  EXPECT_EQ(Call(late).state, State::kRefused);

  now_ += kKeptLease - 1;
  ASSERT_EQ(Renew(11), State::kDone);
  now_ += kKeptLease - 1;
  EXPECT_EQ(Read().holder, "1 7d 11");
  EXPECT_EQ(Renew(12), State::kRefused) << "it is over";
  now_ += 1;
  const MapReading free = Read();
  EXPECT_EQ(free.holder, "");
  EXPECT_EQ(free.holder_revision, 0);
  EXPECT_EQ(free.revision, held.revision);
  EXPECT_EQ(Renew(11), State::kRefused);
  ASSERT_EQ(Grant(13), State::kDone);
  EXPECT_EQ(Call(TakeOf(held, 13)).state, State::kRefused) << "nobody holds it";
  EXPECT_EQ(Call(TakeOf(free, 13)).state, State::kDone);
  EXPECT_EQ(Read().holder, "1 7d 13");
}

TEST_F(KeptMapTest, TheHolderMayHaveAnotherLeaseAndThenThatOneCounts) {
  ASSERT_NO_FATAL_FAILURE(Begin(11));
  now_ += kKeptLease / 2;
  ASSERT_EQ(Grant(12), State::kDone);
  ASSERT_EQ(Call(TakeOf(Read(), 12)).state, State::kDone);
  now_ += kKeptLease / 2 + 1;  // that of before is over
  EXPECT_EQ(Read().holder, "1 7d 12");
  EXPECT_EQ(Call(SetOf(Read())).state, State::kDone);
  EXPECT_EQ(Read().holder, "1 7d 12") << "a change of the row leaves the holder";
}

TEST_F(KeptMapTest, MoreLeasesThanThereMayBeAreRefusedUntilSomeAreOver) {
  for (uint64_t lease = 1; lease <= KeptMap::kLeasesMax; ++lease) {
    ASSERT_EQ(Grant(lease), State::kDone);
  }
  const MapCall more{.kind = Kind::kGrant, .lease = KeptMap::kLeasesMax + 1};
  EXPECT_TRUE(absl::IsResourceExhausted(map_->Call(more).status()));
  now_ += kKeptLease;
  EXPECT_EQ(Call(more).state, State::kDone);
}

TEST_F(KeptMapTest, AfterARestartTheHoldersLeaseIsInForceForAFullOne) {
  ASSERT_NO_FATAL_FAILURE(Begin(11));
  ASSERT_EQ(Grant(12), State::kDone);
  const MapReading before = Read();
  now_ += kKeptLease - 1;
  Restart();
  EXPECT_EQ(Read(), before);
  EXPECT_EQ(Renew(12), State::kRefused) << "nobody knows it any more";
  ASSERT_EQ(Grant(13), State::kDone);
  now_ += kKeptLease - 1;
  EXPECT_EQ(Read(), before);
  MapCall early = TakeOf(before, 13);
  early.holder_revision = 0;
  EXPECT_EQ(Call(early).state, State::kRefused);
  now_ += 1;
  EXPECT_EQ(Read().holder, "");
  ASSERT_EQ(Grant(14), State::kDone);
  EXPECT_EQ(Call(TakeOf(Read(), 14)).state, State::kDone);

  Restart();
  EXPECT_EQ(Renew(14), State::kDone) << "by its number";
  now_ += kKeptLease - 1;
  EXPECT_EQ(Read().holder, "1 7d 14");
}

TEST_F(KeptMapTest, AHolderWhoseLeaseIsOverIsWrittenNoMore) {
  ASSERT_NO_FATAL_FAILURE(Begin(11));
  now_ += kKeptLease;
  ASSERT_EQ(Call(SetOf(Read())).state, State::kDone);
  Restart();
  EXPECT_EQ(Read().holder, "");
}

TEST_F(KeptMapTest, RevisionsOnlyGrowOverRestartsAndWhenTheRowIsMadeAgain) {
  int64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(map_->Create(KeptRowOfEpoch(1)).ok());
    EXPECT_GT(Read().revision, last);
    last = Call(SetOf(Read())).reading.revision;
    Restart();
    EXPECT_EQ(Read().revision, last);
    ASSERT_TRUE(map_->Remove().ok());
    if (i == 1) Restart();
    EXPECT_TRUE(absl::IsNotFound(map_->Call({.kind = Kind::kRead}).status()));
  }
}

TEST_F(KeptMapTest, WhatCouldNotBeReadAgainIsNotKept) {
  ASSERT_NO_FATAL_FAILURE(Begin(11));
  MapCall set = SetOf(Read());
  set.row.servers.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(map_->Call(set).status()));
  MapCall take = TakeOf(Read(), 11);
  take.holder = "1 7d 11\nrow 5";
  EXPECT_TRUE(absl::IsInvalidArgument(map_->Call(take).status()));
  EXPECT_EQ(Call(SetOf(Read())).state, State::kDone) << "and all is as it was";
}

TEST_F(KeptMapTest, AFileThatIsCutOffIsAnErrorUntilItIsRemoved) {
  ASSERT_NO_FATAL_FAILURE(Begin(11));
  const std::string text = BytesOf(*disk_);
  ASSERT_FALSE(text.empty());
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_NO_FATAL_FAILURE(PutBytes(*disk_, text.substr(0, size)));
    Restart();
    EXPECT_TRUE(absl::IsDataLoss(map_->Call({.kind = Kind::kRead}).status())) << size;
    EXPECT_TRUE(absl::IsDataLoss(map_->Call({.kind = Kind::kGrant, .lease = 12}).status()));
    EXPECT_TRUE(absl::IsDataLoss(map_->Create(KeptRowOfEpoch(9)))) << size;
    EXPECT_TRUE(absl::IsDataLoss(map_->Remove())) << size;
  }
  EXPECT_EQ(BytesOf(*disk_), text.substr(0, text.size() - 1)) << "nothing was changed";
  ASSERT_TRUE(disk_->Remove(kFile).ok());
  EXPECT_TRUE(absl::IsNotFound(map_->Call({.kind = Kind::kRead}).status())) << "the same process";
  EXPECT_TRUE(map_->Create(KeptRowOfEpoch(9)).ok());
}

// -- a disk that fails ----------------------------------------------------------------------------

// Each call to the disk that one change makes fails in turn.
TEST(KeptMapFaultTest, AChangeThatFailsHasHappenedOrNotAndNothingIsToldBeforeItIsKnown) {
  bool failed_before = false, failed_behind = false, happened = false;
  for (int fails_at = 0;; ++fails_at) {
    ASSERT_LT(fails_at, 20) << "a change makes fewer calls";
    MemoryDisk below;
    int calls = 0;
    bool counts = false, is_broken = false;
    DiskModel model;
    model.fault = [&](std::string_view call, const std::string&) -> absl::Status {
      const bool changes = call != "open" && call != "read" && call != "remove";
      if (!changes) return absl::OkStatus();
      if (counts && calls++ == fails_at) is_broken = true;
      return is_broken ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
    };
    KeptMap map(
        std::make_shared<ModelDisk>(below, model), kFile, [] { return kKeptSecond; }, kKeptLease);
    ASSERT_TRUE(map.Create(KeptRowOfEpoch(1)).ok());
    const MapCall read{.kind = Kind::kRead};
    const int64_t before = map.Call(read)->reading.revision;
    const MapCall set{.kind = Kind::kSet, .revision = before, .row = KeptRowOfEpoch(2)};
    counts = true;
    const absl::StatusOr<MapAnswer> changed = map.Call(set);
    counts = false;
    if (changed.ok()) {  // it makes no more calls
      EXPECT_GT(fails_at, 3);
      break;
    }
    EXPECT_TRUE(absl::IsUnavailable(changed.status())) << changed.status();
    EXPECT_THAT(changed.status().ToString(), HasSubstr("is the disk full"));
    const absl::StatusOr<MapAnswer> meanwhile = map.Call(read);
    if (meanwhile.ok()) {
      EXPECT_EQ(meanwhile->reading.row, KeptRowOfEpoch(1)) << fails_at;
      failed_before = true;
    } else {
      failed_behind = true;
    }
    is_broken = false;
    const absl::StatusOr<MapAnswer> after = map.Call(read);
    ASSERT_TRUE(after.ok()) << after.status();
    if (meanwhile.ok()) {
      EXPECT_EQ(after->reading, meanwhile->reading);
    }
    const bool is_new = after->reading.revision > before;
    EXPECT_EQ(after->reading.row, KeptRowOfEpoch(is_new ? 2 : 1));
    happened = happened || is_new;
    EXPECT_EQ(map.Call(set)->state, is_new ? State::kRefused : State::kDone);
  }
  EXPECT_TRUE(failed_before && failed_behind && happened);
}

// The power goes at each of the calls, and once more when the row was read.
TEST(KeptMapFaultTest, WhatWasToldIsThereAfterAPowerCut) {
  bool was_lost = false, was_made = false;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto disk = std::make_shared<PowerCutDisk>();
    const auto start = [&] {
      return std::make_unique<KeptMap>(
          disk, kFile, [] { return kKeptSecond; }, kKeptLease);
    };
    std::unique_ptr<KeptMap> map = start();
    ASSERT_TRUE(map->Create(KeptRowOfEpoch(1)).ok());
    const MapCall read{.kind = Kind::kRead};
    const MapReading before = map->Call(read)->reading;
    disk->CutPowerAfter(seed % 7);
    const auto changed =
        map->Call({.kind = Kind::kSet, .revision = before.revision, .row = KeptRowOfEpoch(2)});
    disk->CutPower();
    disk->PowerOn(seed);
    map = start();
    const absl::StatusOr<MapAnswer> found = map->Call(read);
    ASSERT_TRUE(found.ok()) << seed << ": " << found.status();
    const bool is_new = found->reading.revision > before.revision;
    EXPECT_EQ(found->reading.row, KeptRowOfEpoch(is_new ? 2 : 1)) << seed;
    EXPECT_TRUE(is_new || !changed.ok()) << seed;
    was_lost = was_lost || !is_new;
    was_made = was_made || (is_new && !changed.ok());
    // A server that was killed between the change and the last sync, and told of it since.
    disk->CutPower();
    disk->PowerOn(seed + 1000);
    map = start();
    EXPECT_EQ(map->Call(read)->reading, found->reading) << seed;
  }
  EXPECT_TRUE(was_lost && was_made);
}

// It was killed after the new file had its name, and before that was synced.
TEST(KeptMapFaultTest, WhatAKilledServerLeftIsDurableBeforeItIsTold) {
  PowerCutDisk power;
  bool is_cut_off = false;
  DiskModel model;
  model.fault = [&](std::string_view call, const std::string& path) -> absl::Status {
    const bool fails = is_cut_off && call == "sync" && path.empty();
    return fails ? absl::UnavailableError("the server was killed") : absl::OkStatus();
  };
  const auto disk = std::make_shared<ModelDisk>(power, model);
  const auto start = [&] {
    return std::make_unique<KeptMap>(
        disk, kFile, [] { return kKeptSecond; }, kKeptLease);
  };
  std::unique_ptr<KeptMap> map = start();
  ASSERT_TRUE(map->Create(KeptRowOfEpoch(1)).ok());
  const MapCall read{.kind = Kind::kRead};
  const int64_t before = map->Call(read)->reading.revision;
  is_cut_off = true;
  EXPECT_FALSE(map->Call({.kind = Kind::kSet, .revision = before, .row = KeptRowOfEpoch(2)}).ok());
  is_cut_off = false;
  map = start();
  const MapReading found = map->Call(read)->reading;
  EXPECT_EQ(found.row, KeptRowOfEpoch(2));
  power.CutPower();
  power.PowerOnAsOf(0);  // of what was not synced nothing is there
  EXPECT_EQ(start()->Call(read)->reading, found);
}

// A sync that failed may have lost what it was to keep, and one that is repeated says nothing of
// it.
TEST(KeptMapFaultTest, AFirstSyncThatFailedIsNotRepeatedButTheFileWrittenAnew) {
  MemoryDisk below;
  bool fails = false;
  int syncs = 0, renames = 0;
  DiskModel model;
  model.fault = [&](std::string_view call, const std::string& path) -> absl::Status {
    if (call == "rename") ++renames;
    if (call != "sync" || !path.empty()) return absl::OkStatus();
    ++syncs;
    return fails ? absl::UnavailableError("the disk is ill") : absl::OkStatus();
  };
  const auto disk = std::make_shared<ModelDisk>(below, model);
  const auto start = [&] {
    return std::make_unique<KeptMap>(
        disk, kFile, [] { return kKeptSecond; }, kKeptLease);
  };
  ASSERT_TRUE(start()->Create(KeptRowOfEpoch(1)).ok());
  const std::unique_ptr<KeptMap> map = start();
  const MapCall read{.kind = Kind::kRead};
  fails = true;
  syncs = renames = 0;
  EXPECT_TRUE(absl::IsUnavailable(map->Call(read).status()));
  EXPECT_EQ(syncs, 1);
  EXPECT_EQ(renames, 0);
  fails = false;
  const absl::StatusOr<MapAnswer> after = map->Call(read);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->reading.row, KeptRowOfEpoch(1));
  EXPECT_EQ(renames, 1) << "what the sync may have lost is written anew";
}

// -- what it is held against ----------------------------------------------------------------------

// An etcd that has the two keys of a volume, and forgets its leases with a restart, but for the
// holder's, which is in force for a lease from then.
class EtcdModel {
 public:
  absl::StatusOr<MapAnswer> Call(const MapCall& call, int64_t now) {
    Expire(now);
    MapAnswer answer{.state = State::kDone, .reading = {}};
    bool done = true;
    switch (call.kind) {
      case Kind::kRead:
        if (!row_.has_value()) return absl::NotFoundError("no row");
        break;
      case Kind::kGrant:
        done = leases_.try_emplace(call.lease, now + kKeptLease).second;
        break;
      case Kind::kRenew:
        done = leases_.contains(call.lease);
        if (done) leases_[call.lease] = now + kKeptLease;
        break;
      case Kind::kTake:
        done = row_.has_value() && call.revision == row_revision_ &&
               call.holder_revision == holder_revision_ && leases_.contains(call.lease);
        if (!done) break;
        Put(call.row);
        holder_ = call.holder;
        holder_lease_ = call.lease;
        holder_revision_ = row_revision_;
        Write();
        break;
      case Kind::kSet:
        done = row_.has_value() && call.revision == row_revision_;
        if (!done) break;
        Put(call.row);
        Write();
        break;
    }
    if (!done) return MapAnswer{.state = State::kRefused, .reading = {}};
    if (row_.has_value()) {
      answer.reading = {.revision = row_revision_,
                        .row = *row_,
                        .holder = holder_,
                        .holder_revision = holder_revision_};
    }
    return answer;
  }
  bool Create(const VolumeRow& row) {
    if (row_.has_value()) return false;
    Put(row);
    ForgetHolder();
    Write();
    return true;
  }
  void Remove() {
    if (row_.has_value()) ++revision_;
    row_.reset();
    ForgetHolder();
    Write();
  }
  void Restart(int64_t now) {
    leases_.clear();
    holder_ = written_holder_;
    holder_lease_ = written_lease_;
    holder_revision_ = written_revision_;
    if (!holder_.empty()) leases_[holder_lease_] = now + kKeptLease;
  }
  MapReading Reading() const {
    return {.revision = row_revision_,
            .row = row_.value_or(KeptRowOfEpoch(1)),
            .holder = holder_,
            .holder_revision = holder_revision_};
  }

 private:
  void Expire(int64_t now) {
    std::erase_if(leases_, [&](const auto& lease) { return lease.second <= now; });
    if (!holder_.empty() && !leases_.contains(holder_lease_)) ForgetHolder();
  }
  void Put(const VolumeRow& row) {
    row_ = row;
    row_revision_ = ++revision_;
  }
  void ForgetHolder() {
    holder_.clear();
    holder_lease_ = 0;
    holder_revision_ = 0;
  }
  void Write() {
    written_holder_ = holder_;
    written_lease_ = holder_lease_;
    written_revision_ = holder_revision_;
  }

  int64_t revision_ = 0, row_revision_ = 0, holder_revision_ = 0, written_revision_ = 0;
  std::optional<VolumeRow> row_;
  std::string holder_, written_holder_;
  uint64_t holder_lease_ = 0, written_lease_ = 0;
  std::map<uint64_t, int64_t> leases_;
};

// One history of calls, by a seed.
class KeptHistory {
 public:
  explicit KeptHistory(uint64_t seed) : random_(seed) { Restart(); }

  void Step() {
    if (random_.Chance(400)) now_ += random_.Between(1, kKeptLease / 3);
    if (random_.Chance(20)) now_ += random_.Between(kKeptLease / 2, 2 * kKeptLease);
    if (random_.Chance(30)) Restart();
    if (random_.Chance(10)) {
      ASSERT_TRUE(map_->Remove().ok());
      model_.Remove();
    }
    if (random_.Chance(50)) {
      const VolumeRow row = KeptRowOfEpoch(1 + random_.Below(100));
      ASSERT_EQ(map_->Create(row).ok(), model_.Create(row));
    }
    const MapCall call = Draw();
    const absl::StatusOr<MapAnswer> expected = model_.Call(call, now_);
    const absl::StatusOr<MapAnswer> found = map_->Call(call);
    ASSERT_EQ(found.status().code(), expected.status().code()) << found.status();
    if (!expected.ok()) return;
    ASSERT_EQ(found->state, expected->state) << "kind " << static_cast<int>(call.kind);
    const bool changes = call.kind == Kind::kTake || call.kind == Kind::kSet;
    if (call.kind == Kind::kRead || (changes && found->state == State::kDone)) {
      ASSERT_EQ(found->reading, expected->reading);
    }
    if (!changes || found->state != State::kDone) return;
    ASSERT_GT(found->reading.revision, last_revision_);
    last_revision_ = found->reading.revision;
    ++changes_[static_cast<size_t>(call.kind == Kind::kTake)];
  }
  const std::array<int, 2>& changes() const { return changes_; }
  int restarts() const { return restarts_; }

 private:
  void Restart() {
    map_ = std::make_unique<KeptMap>(
        disk_, kFile, [this] { return now_; }, kKeptLease);
    map_->Call({.kind = Kind::kRead}).status().IgnoreError();  // as a server does when it starts
    model_.Restart(now_);
    ++restarts_;
  }
  MapCall Draw() {
    const MapReading seen = model_.Reading();
    const auto mostly = [&](int64_t value) {
      return random_.Chance(800) ? value : random_.Between(0, value + 2);
    };
    MapCall call;
    call.kind = static_cast<Kind>(random_.Below(5));
    call.revision = mostly(seen.revision);
    call.holder_revision = mostly(seen.holder_revision);
    call.lease = 1 + random_.Below(4);
    call.holder = absl::StrCat(random_.Below(3), " 7d ", call.lease);
    call.row = KeptRowOfEpoch(1 + random_.Below(100));
    return call;
  }

  runtime::sim::SimRandom random_;
  const std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  int64_t now_ = 1000 * kKeptSecond;
  std::unique_ptr<KeptMap> map_;
  EtcdModel model_;
  int64_t last_revision_ = 0;
  std::array<int, 2> changes_{};  // of kSet and of kTake
  int restarts_ = 0;
};

TEST(KeptMapHistoryTest, AnswersAsEtcdDoes) {
  const uint64_t first = runtime::testing::Seed(1);
  const uint64_t count = runtime::testing::LongRun() ? 2000 : 100;
  std::array<int, 2> changes{};
  int restarts = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    KeptHistory history(seed);
    for (int step = 0; step < 200; ++step) {
      ASSERT_NO_FATAL_FAILURE(history.Step()) << "seed " << seed << ", step " << step;
    }
    for (size_t i = 0; i < changes.size(); ++i) changes[i] += history.changes()[i];
    restarts += history.restarts();
  }
  // What does not happen is not tested.
  EXPECT_GE(changes[0], static_cast<int>(count));
  EXPECT_GE(changes[1], static_cast<int>(count));
  EXPECT_GE(restarts, static_cast<int>(2 * count));
}

}  // namespace
}  // namespace abacus::objfs
