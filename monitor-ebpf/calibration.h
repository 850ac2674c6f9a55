#ifndef ABACUS_MONITOR_EBPF_CALIBRATION_H_
#define ABACUS_MONITOR_EBPF_CALIBRATION_H_

#include <cstdint>
#include <string>

namespace abacus::monitor {

// Measures how fast one uncontended core of this machine is: 64-byte lines per second through a
// fixed kernel of integer multiplications and dependent table look-ups in 256 KiB.
//
// The kernel's time is the thread's CPU time, so neither a busy neighbour nor a CPU quota changes
// the result; a quota is accounted for by Monitor::Rate(). The median of five runs counts, after
// one that warms up. Units: work units per second. Blocking: about 50 ms of CPU; where the
// processor is contended it stops after 100 ms of wall time and one complete run.
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
}  // namespace internal

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_CALIBRATION_H_
