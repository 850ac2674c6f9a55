#ifndef ABACUS_OBJFS_SPREAD_TESTING_COLUMN_SERVER_H_
#define ABACUS_OBJFS_SPREAD_TESTING_COLUMN_SERVER_H_

// A server of columns with its log of groups, on a disk whose power can go; and what clients ask
// such a log.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "objfs/atomicity/commit_log.h"
#include "objfs/raid/shared_columns.h"
#include "objfs/spread/column_store.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"
#include "runtime/binding/binding_manager.h"

namespace abacus::objfs::testing {

class ColumnServer {
 public:
  // `number`: in groups. `change_host`: what else the host of its log is to be.
  explicit ColumnServer(runtime::BindingManager& binding, uint64_t number = 0,
                        std::function<void(CommitLog::Host* host)> change_host = nullptr)
      : binding_(binding), number_(number), change_host_(std::move(change_host)) {
    Start();
  }
  ~ColumnServer() { Stop(); }

  void LosePower(uint64_t seed) {
    disk_->CutPower();
    Stop();
    disk_->CutPower();
    disk_->PowerOn(seed);
    Start();
  }
  // Nothing that was written is lost.
  void Restart() {
    Stop();
    Start();
  }

  ColumnStore& columns() { return *local_; }
  const runtime::Ref<ColumnStore>& ref() { return columns_; }
  CommitLog& log() { return *log_here_; }
  ObjectStore& store() { return *store_; }
  uint64_t DiskCalls() { return disk_->Calls(); }
  // The columns end, and the log stays.
  void EndColumns() {
    binding_.Destroy(columns_.rid()).IgnoreError();
    columns_ = runtime::Ref<ColumnStore>();
    local_ = nullptr;
  }

  // The first byte of a block; 0: it is a hole, or there is none.
  char ByteAt(ObjectId id, uint64_t block) {
    char byte = 0;
    const auto read = store_->Read(id, block * ObjectStore::kBlockBytes, std::span<char>(&byte, 1));
    EXPECT_TRUE(read.ok()) << read.status();
    return read.ok() && *read == 1 ? byte : '\0';
  }
  // Asks the log to prepare a group of these members.
  absl::StatusOr<CommitReply> Prepare(Version id, const std::vector<uint64_t>& members,
                                      const GroupPart& part) {
    CommitMessage question{.kind = CommitKind::kPrepare, .id = id, .part = {number_, 0}};
    for (const uint64_t member : members) question.group.push_back({member, 0});
    question.payload = part.Encode();
    return log_here_->Ask(0, question);
  }
  absl::Status Tell(CommitKind kind, Version id) {
    return log_here_->Ask(0, {.kind = kind, .id = id, .part = {number_, 0}}).status();
  }

  static int64_t NowUs() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

 private:
  void Start() {
    auto store = LocalObjectStore::Open(*disk_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    // Openings have it until the cluster goes, and a store that is closed writes to its disk.
    auto both = std::make_shared<StoreOnDisk>(StoreOnDisk{disk_, *std::move(store)});
    store_ = std::shared_ptr<ObjectStore>(both, both->store.get());
    ColumnStore::Host host;
    host.adopt = [this](std::unique_ptr<ColumnLayer> layer) {
      return runtime::Ref<Layer>(binding_.Adopt(std::move(layer)).base());
    };
    host.end = [this](const runtime::Ref<Layer>& layer) {
      binding_.Destroy(layer.rid()).IgnoreError();
    };
    auto columns = std::make_unique<ColumnStore>(store_, std::move(host));
    CommitLog::Options options;
    options.server = number_;
    options.commit = ColumnGroupOptions();
    options.half_bytes = uint64_t{1} << 20;
    options.resolve_every = absl::ZeroDuration();
    CommitLog::Host log_host;
    log_host.steady_ns = [] {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::steady_clock::now().time_since_epoch())
          .count();
    };
    log_host.now_us = NowUs;
    columns->AddHooks(&log_host);
    if (change_host_) change_host_(&log_host);
    auto log = CommitLog::Open(disk_, store_, options, std::move(log_host));
    ASSERT_TRUE(log.ok()) << log.status();
    log_here_ = log->get();
    log_ = binding_.Adopt(*std::move(log));
    columns->TakeLog(log_);
    local_ = columns.get();
    columns_ = binding_.Adopt(std::move(columns));
  }
  void Stop() {
    if (columns_) EndColumns();
    if (log_) {
      log_here_->Stop();
      binding_.Destroy(log_.rid()).IgnoreError();
    }
    log_ = runtime::Ref<CommitLog>();
    log_here_ = nullptr;
    store_.reset();
  }

  struct StoreOnDisk {
    std::shared_ptr<PowerCutDisk> disk;
    std::shared_ptr<ObjectStore> store;  // goes first
  };

  runtime::BindingManager& binding_;
  const uint64_t number_;
  const std::function<void(CommitLog::Host* host)> change_host_;
  const std::shared_ptr<PowerCutDisk> disk_ = std::make_shared<PowerCutDisk>();
  std::shared_ptr<ObjectStore> store_;
  ColumnStore* local_ = nullptr;
  runtime::Ref<ColumnStore> columns_;
  CommitLog* log_here_ = nullptr;
  runtime::Ref<CommitLog> log_;
};

// A block of the file's column, full of that byte, for who has that opening.
inline GroupPart BlockFor(ObjectId id, Version opening, uint64_t block, char byte) {
  GroupPart part;
  part.fences.push_back({id, opening});
  part.writes.push_back({id, block, std::string(ObjectStore::kBlockBytes, byte)});
  return part;
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_SPREAD_TESTING_COLUMN_SERVER_H_
