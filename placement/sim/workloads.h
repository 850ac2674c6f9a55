#ifndef ABACUS_PLACEMENT_SIM_WORKLOADS_H_
#define ABACUS_PLACEMENT_SIM_WORKLOADS_H_

// Clusters to play: the paper's and harder ones.

#include <cstddef>
#include <cstdint>

#include "placement/sim/cluster.h"

namespace abacus::placement::sim {

// The paper's table 2: a cache between console and storage over the LAN (1.25 MB/s, 1 ms). An
// insert phase takes `insert_s` with the cache at the server and 3.4 times that at the client (7.76
// s and 26.03 s in the paper), a scan phase `scan_s` at the client and 71 times that at the server
// (0.41 s and 29.2 s). `passes` through both; the cache starts at the client.
//   An insert: 1 ms of CPU, 4 ms of disk; below the cache 2 calls and 23.8 KB: 5 + 2 + 19.03 =
//   26.03 ms at the client; above it 1 call and 2.2 KB: 5 + 1 + 1.76 = 7.76 ms at the server.
//   A scanned block: 1.025 ms of CPU; above the cache 2 calls and 87.5 KB: 1.025 + 2 + 70 = 73 ms.
Cluster InsertScan(double insert_s, double scan_s, size_t passes);

// A filter between console and storage that passes on `selectivity` of what it reads, for ever.
// `server_rate` is that of one of the server's two cores, the client's being 1.
Cluster Filter(double selectivity, double server_rate, double bandwidth_bytes_s);

// A file over four servers that is written a stripe after the other, for `stripe_s` each at the
// client: each piece is old data and old parity in and new ones out, of two columns, and the next
// stripe's are on two others. The layer that does this is mobile and starts at the client.
//   A piece of 32 KiB: 1 ms of CPU; from the client 4 calls and 131 KB over 8 MB/s and 1 ms: 21.4
//   ms. At a server 1 call and 33 KB come from there; on to the other servers, at 12.5 MB/s and 0.2
//   ms, go half of the 131 KB where one of the columns is its own, 11.7 ms, and else all, 17.4 ms.
Cluster StripedWrites(double stripe_s);

// `clients` consoles, each with a stack like Filter's on a node and link of its own, at one server
// of `cores` cores, which together could keep all of them busy or not: the fewer cores, the fewer
// may profit. Starts are `stagger_s` apart.
Cluster SharedServer(size_t clients, double cores, double stagger_s);

// The paper's section 6.7: two filters of different selectivity, each on a client of its own, and a
// server with memory for one of them. The first passes on 60 % of what it reads (60 ms a block at
// its client, 39 ms at the server), the second 10 % (60 and 13 ms) and is there only from
// `second_starts_s` to `second_ends_s`.
Cluster MemoryForOne(double second_starts_s, double second_ends_s);

// The paper's section 6.5: `clients` insert files into one directory. Each has a directory object
// of its own, which caches and checks; an insert takes it one attempt, 2 calls and 6 kB, to the
// isolation object at the server, and as many more as others were faster (retries) while it is at
// its client. LAN (1.25 MB/s, 1 ms) or SAN (12.5 MB/s, 0.2 ms).
//   At a client, alone: 0.5 ms of CPU, 0.2 + 2 ms and 4.8 ms = 7.5 ms; at the server 0.7 ms, 1 ms
//   and 0.24 ms = 1.94 ms (300 bytes to it and back).
Cluster DirectoryInserts(size_t clients, bool lan);
// The same on the LAN with one isolation object for all of them, at a server of one core.
Cluster OneDirectory(size_t clients);

// A cluster of servers, unlike nodes, and consoles of three kinds (filter, alternating cache,
// compute bound) with phases of any length, that come and go; hot spots come to servers and leave.
struct ClusterShape {
  size_t servers = 4;
  size_t consoles = 16;
  double duration_s = 60;
  double churn = 0.3;      // part of the consoles that come later or leave earlier
  double hot_spots = 0.2;  // part of the servers that get one
};
Cluster RandomCluster(const ClusterShape& shape, uint64_t seed);

}  // namespace abacus::placement::sim

#endif  // ABACUS_PLACEMENT_SIM_WORKLOADS_H_
