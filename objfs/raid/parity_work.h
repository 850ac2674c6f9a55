#ifndef ABACUS_OBJFS_RAID_PARITY_WORK_H_
#define ABACUS_OBJFS_RAID_PARITY_WORK_H_

#include <cstdint>
#include <functional>

namespace abacus::objfs {

// Is told after each XOR how many bytes it took in, on the thread that did it: a model of a slower
// processor takes its time there. Thread-safety: has to be thread-safe. Blocking: may block.
using ParityWork = std::function<void(uint64_t bytes)>;

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_RAID_PARITY_WORK_H_
