#ifndef ABACUS_OBJFS_RAID_RAID5_MANAGER_H_
#define ABACUS_OBJFS_RAID_RAID5_MANAGER_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "objfs/raid/raid5_layer.h"
#include "runtime/object/manager.h"

namespace abacus::objfs {

// Makes raid5 objects that read round a column that is late, and whose node is told of their
// parities. Thread-safety: thread-safe.
class Raid5Manager final : public runtime::ObjectManager {
 public:
  explicit Raid5Manager(ParityWork parity_work = {}) : parity_work_(std::move(parity_work)) {}

  absl::StatusOr<std::unique_ptr<runtime::MobileObject>> CreateObj(const runtime::ClassInfo&,
                                                                   size_t) override {
    return std::make_unique<Raid5Layer>(parity_work_, alarm_);
  }

 private:
  const ParityWork parity_work_;
  const std::shared_ptr<Alarm> alarm_ = std::make_shared<Alarm>();
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_RAID5_MANAGER_H_
