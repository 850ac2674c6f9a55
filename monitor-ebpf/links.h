#ifndef ABACUS_MONITOR_EBPF_LINKS_H_
#define ABACUS_MONITOR_EBPF_LINKS_H_

#include <vector>

#include "monitor-ebpf/monitor.h"

namespace abacus::monitor {

// What the kernel says (TCP_INFO) of each established TCP connection of this process; needs no
// privilege. A socket with several descriptors is told once. Sorted by peer, then by socket. Empty
// where the process's descriptors cannot be listed.
// Thread-safety: thread-safe. Blocking: no; about 2 us a descriptor.
std::vector<LinkInfo> ScanLinks();

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_LINKS_H_
