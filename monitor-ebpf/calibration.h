#ifndef ABACUS_MONITOR_EBPF_CALIBRATION_H_
#define ABACUS_MONITOR_EBPF_CALIBRATION_H_

#include <cstdint>
#include <functional>
#include <string>

namespace abacus::monitor {

// Measures how fast one uncontended core of this machine is: 64-byte lines per second through a
// fixed kernel of integer multiplications and dependent table look-ups in 256 KiB.
//
// The kernel's time is the thread's CPU time, so neither a busy neighbour nor a CPU quota changes
// the result; a quota is accounted for by Monitor::Rate(). But CPU time is slower beside others,
// who drive the table out of the caches, share the core's units or are taken for it by a
// hypervisor. So it is not one long mean: of 80 pieces of 0.5 ms the 90th percentile counts, that
// is, the rate of pieces that nobody disturbed, unless nine of ten were. The best one of all would
// be more often a reading of the clock that was late. Units: work units per second. Blocking: about
// 45 ms of CPU; where the processor is contended it stops after 200 ms of wall time and 20 pieces.
double CalibrateRate();

// The rate that a process of this machine and boot left in the file `path`; else calibrates and
// leaves it there. So nodes of one machine have the same R, whatever else runs when they start, and
// only the first pays for it.
//
// A file that is not there, is of another boot, processor or build of the calibration, or is
// damaged is replaced, in one step; one that cannot be written is done without. Empty `path`: no
// file. Thread-safety: thread-safe, also between processes. Blocking: as CalibrateRate() at worst.
double CachedRate(const std::string& path);

namespace internal {
// One stretch of the kernel. Returns a value that depends on all of it, so that none is optimised
// away.
uint64_t CalibrationWork(uint64_t units, uint64_t seed);

// What CalibrateRate() stands on, so that a test can play a machine. Units: nanoseconds.
struct CalibrationParts {
  std::function<uint64_t()> cpu_ns;   // of the calling thread
  std::function<uint64_t()> wall_ns;  // monotonic
  std::function<uint64_t(uint64_t units, uint64_t seed)> work;
};
double CalibrateRate(const CalibrationParts& parts);
}  // namespace internal

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_CALIBRATION_H_
