#ifndef ABACUS_EXPERIMENTS_LAB_PAPER_NODE_H_
#define ABACUS_EXPERIMENTS_LAB_PAPER_NODE_H_

#include <cstdint>

#include "absl/time/time.h"

// The model of the paper's nodes: 300 MHz Pentium II, Linux 2.0 (section 6.1). All constants of it
// stand here, the same in all experiments; none is chosen for a figure. The paper prints none of
// them, so each is an assumption, with its arithmetic.
//
// THE PROCESSOR. A core of today does in 1 ms what the paper's node took some 50 ms for (300 MHz
// against 3 to 4 GHz, and four to five times as much done in a cycle). The testbed gives a node a
// quota of 12 % of a core, which supplies a factor of 1 / 0.12 = 8.3. So 1 s of work at the paper's
// node is 0.12 s of CPU time here, which a node gets in 1 s:
//
//   CPU time here = time at the paper's node x 0.12                                (kShare)
//
// A node of another share (the slow server's 6 %) does the same work in more time (x 0.12 / share).
// The program's own work takes a 50th of what it would have taken there, 6 times less than what the
// quota alone makes of it (50 x 0.12 = 6). That missing factor is work done by PaperTransport, and
// nowhere else: messages are what these programs spent their processor on, beside what a filter
// costs a byte, which is the experiment's own parameter.
//
// MESSAGES. A null RPC took about 0.4 ms of processor time at each side (a user-level RPC over TCP
// on Linux 2.0, with two system calls, the checksum, the interrupt and the switch of context), so
// 0.8 ms and the wire for both. Each side sends one frame and receives one:
//
//   0.4 ms / 2 frames = 0.2 ms a frame, at its sender and at its receiver          (kFrame)
//
// and each byte of a frame is copied twice and summed once, some 10 cycles: 35 ns at 300 MHz
// (28 MB/s: 100 Mbit/s Ethernet, 12.5 MB/s, takes 44 % of such a processor)        (kByteNs)
//
//   a read of 8 KiB: request 4 frame ends x 0.2 ms = 0.8 ms, and 8192 x 35 ns x 2 = 0.57 ms
//   a record of 128 B: 0.8 ms + 0.009 ms
//   the same as CPU time here: 0.2 ms x 0.12 = 24 us a frame end, 4.2 ns a byte
//
// What this program spends itself is part of that, and is not added again: 24 us a frame end, which
// is all of it, so that nothing is added for a frame (kOwnFrame); and 2.3 ns a byte at the sender,
// 6.7 at the receiver, of which the smaller one is taken off (kOwnByteNs): 1.9 ns are added.
//
// THE MACHINE. On a machine as the model has it a null call takes 0.4 ms x 0.12 = 48 us at each
// side (NULL_CALL_US of lab.py). Where it takes more, as waking up costs more on most virtual
// machines, nodes that have 12 % would be slower than the paper's. Measured on two of them, over
// loopback: 66 and 110 us. So it is measured before anything is run (measure_machine of lab.py),
// and where it is F times as much, all nodes have F times the share and all that is added here F
// times the CPU time: 1 s of work at the paper's node is 0.12 s x F of CPU time, of which a node
// gets as much in 1 s. Records tell F.
//
// PARITY. A loop of words that loads two, XORs them and stores one took some 12 cycles for 4 bytes,
// and each of its sources has to come from memory: 3 cycles a byte at 300 MHz, 10 ns, which is
// 100 MB/s (kXorByteNs). It is spent by the raid5 object, wherever that is:
//
//   a small write of 32 KiB: old data, old parity and new data, 3 x 32768 x 10 ns = 0.98 ms
//   a lost unit of 32 KiB, from the other four: 4 x 32768 x 10 ns = 1.31 ms
//
// What this program spends itself is under a tenth of the 1.2 ns a byte (objfs/raid/README.md) and
// is not taken off.
//
// THE DISK. Maxtor 84320D4: 14 MB/s, 10 ms a seek (kDiskBytesPerSecond, kDiskSeek). Before it
// stands what the paper's servers had, the kernel's page cache in 128 MB of memory, of which 96 MB
// are left to it (kPageCacheBytes), and ext2's read-ahead of a sequential reader (kReadAheadBytes):
// the paper's own insert takes 7.76 s / 1500 = 5.2 ms at the server (table 2), which has no room
// for a seek.
namespace abacus::lab {

inline constexpr double kShare = 0.12;
inline constexpr absl::Duration kFrame = absl::Microseconds(200);
inline constexpr double kByteNs = 35;
inline constexpr double kXorByteNs = 10;

inline constexpr absl::Duration kOwnFrame = absl::Microseconds(24);
inline constexpr double kOwnByteNs = 2.3;

inline constexpr double kDiskBytesPerSecond = 14e6;
inline constexpr absl::Duration kDiskSeek = absl::Milliseconds(10);
inline constexpr uint64_t kPageCacheBytes = uint64_t{96} << 20;
inline constexpr uint64_t kReadAheadBytes = uint64_t{128} << 10;

// What work costs.
struct Cost {
  absl::Duration at_paper;  // at the paper's node
  absl::Duration cpu;       // of CPU time to be spent here, beside what the program spends itself
};
// One end of a frame.
inline Cost CostOf(uint64_t frame_bytes) {
  const auto bytes = static_cast<double>(frame_bytes);
  Cost cost;
  cost.at_paper = kFrame + absl::Nanoseconds(bytes * kByteNs);
  const absl::Duration own = kOwnFrame + absl::Nanoseconds(bytes * kOwnByteNs);
  cost.cpu = cost.at_paper * kShare - own;
  if (cost.cpu < absl::ZeroDuration()) cost.cpu = absl::ZeroDuration();
  return cost;
}
// An XOR that takes in so many bytes.
inline Cost ParityCostOf(uint64_t bytes) {
  const absl::Duration at_paper = absl::Nanoseconds(static_cast<double>(bytes) * kXorByteNs);
  return {.at_paper = at_paper, .cpu = at_paper * kShare};
}

}  // namespace abacus::lab

#endif  // ABACUS_EXPERIMENTS_LAB_PAPER_NODE_H_
