#ifndef ABACUS_OBJFS_VOLUME_SERVER_MAP_H_
#define ABACUS_OBJFS_VOLUME_SERVER_MAP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "objfs/map/map_store.h"
#include "objfs/raid/alarm.h"
#include "objfs/volume/volume_set.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// The map of a volume that the server at an address keeps (VolumeSet::AskMap()), and that may be
// this one.
// Blocking: a call of another server for kCallPatience, less than half of a lease, also where that
// one hangs, and before that until the data plane takes it, where much is on the way to that
// server; one of this server for its disk.
class ServerMap final : public MapStore {
 public:
  struct Host {
    // As those of VolumeSet::Host.
    std::function<void(const std::string& address)> reach;
    std::function<absl::StatusOr<runtime::Ref<VolumeSet>>(const std::string& address)> find_set;
    std::shared_ptr<Alarm> alarm;
  };
  static constexpr absl::Duration kCallPatience = absl::Seconds(1);
  static constexpr absl::Duration kChangePatience = absl::Seconds(3);  // Create(), Remove()

  ServerMap(std::string address, std::string name, uint64_t key, Host host);

  // Errors, beside those of KeptMap: kUnavailable - the server does not answer.
  absl::StatusOr<MapAnswer> Call(const MapCall& call) override;
  absl::Status Create(const VolumeRow& row) override;
  absl::Status Remove() override;

 private:
  absl::StatusOr<runtime::Ref<VolumeSet>> Find() const;
  absl::Status HasNotAnswered(absl::string_view why) const;
  // What became of a call that was answered.
  absl::Status Told(const absl::Status& answer) const;

  const std::string address_, name_;
  const uint64_t key_;
  const Host host_;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_SERVER_MAP_H_
