#ifndef ABACUS_OBJFS_MAP_TESTING_FAKE_MAP_H_
#define ABACUS_OBJFS_MAP_TESTING_FAKE_MAP_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "objfs/map/map_keeper.h"
#include "objfs/map/map_store.h"
#include "runtime/base/mutex.h"

namespace abacus::objfs::testing {

// A map whose changes of the row can be lost.
class FakeMap final : public MapStore {
 public:
  struct State {
    runtime::Mutex mutex;
    VolumeRow row ABSL_GUARDED_BY(mutex);
    int64_t revision ABSL_GUARDED_BY(mutex) = 1;
    std::string holder ABSL_GUARDED_BY(mutex);
    int64_t holder_revision ABSL_GUARDED_BY(mutex) = 0;
    bool loses_changes ABSL_GUARDED_BY(mutex) = false;
    int renewals ABSL_GUARDED_BY(mutex) = 0;
  };
  explicit FakeMap(std::shared_ptr<State> state) : state_(std::move(state)) {}

  absl::StatusOr<MapAnswer> Call(const MapCall& call) override {
    State& map = *state_;
    runtime::MutexLock lock(map.mutex);
    const bool changes = call.kind == MapCall::Kind::kTake || call.kind == MapCall::Kind::kSet;
    if (call.kind == MapCall::Kind::kRenew) ++map.renewals;
    if (call.kind == MapCall::Kind::kSet && map.loses_changes) {
      return absl::UnavailableError("the fake map is away");
    }
    MapAnswer answer{.state = MapAnswer::State::kDone, .reading = {}};
    if (changes && call.revision != map.revision) answer.state = MapAnswer::State::kRefused;
    if (changes && answer.state == MapAnswer::State::kDone) {
      map.row = call.row;
      ++map.revision;
      if (call.kind == MapCall::Kind::kTake) map.holder = call.holder;
      if (call.kind == MapCall::Kind::kTake) map.holder_revision = map.revision;
    }
    answer.reading = {.revision = map.revision,
                      .row = map.row,
                      .holder = map.holder,
                      .holder_revision = map.holder_revision};
    return answer;
  }
  absl::Status Create(const VolumeRow&) override { return absl::OkStatus(); }
  absl::Status Remove() override { return absl::OkStatus(); }

 private:
  const std::shared_ptr<State> state_;
};

// Of two servers, of which the first is the primary and the second is behind.
inline VolumeRow RowOfTwo() {
  return {.key = 1,
          .epoch = 1,
          .primary = 0,
          .servers = {"a:1", "b:1"},
          .copies = {{0, true}, {1, false}}};
}

// Of a server that reaches no other one.
inline MapKeeper::Host HostAlone(std::function<void()> changed = [] {}) {
  MapKeeper::Host host;
  host.ask = [](const std::string&, uint64_t) -> absl::StatusOr<PromiseAnswer> {
    return absl::UnavailableError("there is no other server");
  };
  host.may_stand = [] { return true; };
  host.changed = std::move(changed);
  return host;
}

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_MAP_TESTING_FAKE_MAP_H_
