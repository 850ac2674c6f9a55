#ifndef ABACUS_OBJFS_FS_TESTING_CRASH_MOVES_H_
#define ABACUS_OBJFS_FS_TESTING_CRASH_MOVES_H_

// Moves of a client's objects while it works, in one of which somebody dies.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "objfs/fs/testing/crash_world.h"
#include "objfs/fs/testing/movables.h"

namespace abacus::objfs::testing {

// Who dies while an object is on its way: all servers at once, the server that it goes to or comes
// from, or its client.
enum class Victim { kAll = 0, kServer, kClient };

// One of the ways in which somebody can die in one of so many moves.
struct Strike {
  // Where a move stands.
  static constexpr const char* kPoints[] = {"move:begun",     "move:drained",  "move:checkpointed",
                                            "move:restoring", "move:restored", "move:committed"};
  static constexpr uint64_t kInAMove = 3 * std::size(kPoints);

  explicit Strike(uint64_t number)
      : move(number / kInAMove),
        point(kPoints[number % std::size(kPoints)]),
        victim(static_cast<Victim>(number / std::size(kPoints) % 3)) {}
  std::string Text() const {
    return absl::StrCat("move ", move, " at ", point, ", victim ", static_cast<int>(victim));
  }

  uint64_t move;
  std::string point;
  Victim victim;
};

// Moves objects of one kind from their client to a server, or back, between the calls of the work
// on files: layers to servers of columns, directory objects to the server with the inodes as often
// as to those. Made before the client.
class CrashMoves {
 public:
  static constexpr size_t kClient = 1;  // its node

  CrashMoves(CrashWorld& world, Movables::Kind kind, uint64_t seed)
      : world_(world), kind_(kind), movables_(*world), random_(seed) {}

  // In the move with that number from now, 0 the next one, `strike` is called when the move has
  // come to `point`; what becomes of it then is not looked at, and it is the last one.
  void StrikeIn(uint64_t move, std::string point,
                std::function<void(size_t from, size_t to)> strike) {
    moves_left_ = move;
    point_ = std::move(point);
    strike_ = std::move(strike);
  }
  void PowerIsOff(std::function<bool()> power_is_off) { power_is_off_ = std::move(power_is_off); }
  uint64_t moves() const { return moves_; }
  bool stopped() const { return stopped_; }

  // Between two calls: moves one object, or none.
  void MaybeOne() {
    const uint64_t draw = random_();
    if (stopped_ || draw % 2 == 0) return;
    const auto objects = movables_.objects(kind_);
    if (objects.empty()) return;
    const runtime::Rid rid = *std::next(objects.begin(), draw / 2 % objects.size());
    const auto from = world_->cluster().HostOf(rid);
    ASSERT_TRUE(from.has_value());
    const size_t to = *from == kClient ? ServersNode(draw / 64) : kClient;
    if (strike_ != nullptr && moves_left_-- == 0) return StrikeInThis(rid, *from, to);
    const auto moved = world_->cluster().Move(rid, *from, to);
    ++moves_;
    const bool is_done = moved.ok() && moved->status.ok();
    ASSERT_TRUE(is_done || power_is_off_()) << moved.status();
  }

 private:
  size_t ServersNode(uint64_t draw) {
    if (kind_ == Movables::kDirectory && draw / 7 % 2 == 0) return 0;
    return world_.NodeOf(world_.Server(draw));
  }
  void StrikeInThis(const runtime::Rid& rid, size_t from, size_t to) {
    stopped_ = true;
    auto& cluster = world_->cluster();
    const size_t held = point_.starts_with("move:restor") ? to : from;
    cluster[held].points().Hold(point_, 1);
    const auto moved = cluster.MoveBeside({rid}, from, to);
    ASSERT_TRUE(cluster[held].points().AwaitHeld(point_));
    strike_(from, to);
    cluster.ReleaseAll();
    moved().IgnoreError();
  }

  CrashWorld& world_;
  const Movables::Kind kind_;
  Movables movables_;
  std::mt19937_64 random_;
  uint64_t moves_ = 0, moves_left_ = 0;
  bool stopped_ = false;
  std::string point_;
  std::function<void(size_t, size_t)> strike_;
  std::function<bool()> power_is_off_ = [] { return false; };
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_CRASH_MOVES_H_
