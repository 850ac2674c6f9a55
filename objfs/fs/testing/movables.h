#ifndef ABACUS_OBJFS_FS_TESTING_MOVABLES_H_
#define ABACUS_OBJFS_FS_TESTING_MOVABLES_H_

// The mobile objects of a world's clients, their layers and directory objects, moved by force.

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "objfs/fs/testing/file_system_world.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::testing {

// Moves wait for the calls of the object that are under way, and an object is not ended while it
// is moved.
// Thread-safety: thread-safe.
class Movables {
 public:
  enum Kind : uint8_t { kLayer = 0, kDirectory };

  // REQUIRES: the world has no client yet, and outlives this, which outlives the clients.
  explicit Movables(FileSystemWorld& world) : world_(world) {
    world_.on_layer = [this](size_t, const runtime::Rid& rid) { Begin(kLayer, rid); };
    world_.on_layer_end = [this](const runtime::Rid& rid) { End(kLayer, rid); };
    world_.on_directory = [this](size_t, const runtime::Rid& rid) { Begin(kDirectory, rid); };
    world_.on_directory_end = [this](const runtime::Rid& rid) { End(kDirectory, rid); };
  }
  ~Movables() {
    world_.on_layer = world_.on_directory = nullptr;
    world_.on_layer_end = world_.on_directory_end = nullptr;
  }
  Movables(const Movables&) = delete;
  Movables& operator=(const Movables&) = delete;

  // Moves one of the objects that there are, if any, to any other living node.
  // Errors: those of the move: where others move objects too, it may be under way already.
  absl::Status MoveOne(uint64_t draw) {
    const std::optional<std::pair<Kind, runtime::Rid>> drawn = Draw(draw);
    if (!drawn.has_value()) return absl::OkStatus();
    const auto& [kind, rid] = *drawn;
    const absl::Status moved = Move(rid, draw / 97);
    runtime::MutexLock lock(mutex_);
    moving_.erase(rid);
    changed_.SignalAll();
    if (moved.ok()) ++moves_[kind];
    return moved;
  }

  uint64_t moves(Kind kind) {
    runtime::MutexLock lock(mutex_);
    return moves_[kind];
  }
  std::set<runtime::Rid> objects(Kind kind) {
    runtime::MutexLock lock(mutex_);
    return objects_[kind];
  }

 private:
  void Begin(Kind kind, const runtime::Rid& rid) {
    runtime::MutexLock lock(mutex_);
    objects_[kind].insert(rid);
  }
  void End(Kind kind, const runtime::Rid& rid) {
    runtime::MutexLock lock(mutex_);
    objects_[kind].erase(rid);
    while (moving_.contains(rid)) changed_.Wait(mutex_);
  }
  // One that nobody moves already; of either kind as often, where there are both.
  std::optional<std::pair<Kind, runtime::Rid>> Draw(uint64_t draw) {
    runtime::MutexLock lock(mutex_);
    Kind kind = draw / 7 % 2 == 0 ? kLayer : kDirectory;
    if (objects_[kind].empty()) kind = kind == kLayer ? kDirectory : kLayer;
    if (objects_[kind].empty()) return std::nullopt;
    auto it = objects_[kind].begin();
    std::advance(it, draw / 31 % objects_[kind].size());
    if (!moving_.insert(*it).second) return std::nullopt;
    return std::pair(kind, *it);
  }
  absl::Status Move(const runtime::Rid& rid, uint64_t draw) {
    const auto from = world_.cluster().HostOf(rid);
    if (!from.has_value()) return absl::NotFoundError("no one node has the object");
    std::vector<size_t> others;
    for (size_t node = 0; node < world_.cluster().size(); ++node) {
      if (node != *from && !world_.cluster()[node].dead()) others.push_back(node);
    }
    if (others.empty()) return absl::FailedPreconditionError("there is no other node");
    const auto moved = world_.cluster().Move(rid, *from, others[draw % others.size()]);
    return moved.ok() ? moved->status : moved.status();
  }

  FileSystemWorld& world_;
  runtime::Mutex mutex_;
  runtime::CondVar changed_;
  std::array<std::set<runtime::Rid>, 2> objects_ ABSL_GUARDED_BY(mutex_);  // by kind
  std::set<runtime::Rid> moving_ ABSL_GUARDED_BY(mutex_);
  std::array<uint64_t, 2> moves_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_MOVABLES_H_
