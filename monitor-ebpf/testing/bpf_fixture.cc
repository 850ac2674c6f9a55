#include "monitor-ebpf/testing/bpf_fixture.h"

#include <bpf/bpf.h>

namespace abacus::monitor {

std::vector<uint32_t> ProgramsNamed(const std::string& name) {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
    const int fd = bpf_prog_get_fd_by_id(id);
    if (fd < 0) continue;
    bpf_prog_info info = {};
    uint32_t bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && name == info.name) ids.push_back(id);
    close(fd);
  }
  return ids;
}

std::vector<uint32_t> MapsNamed(const std::string& name) {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; bpf_map_get_next_id(id, &id) == 0;) {
    const int fd = bpf_map_get_fd_by_id(id);
    if (fd < 0) continue;
    bpf_map_info info = {};
    uint32_t bytes = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && name == info.name) ids.push_back(id);
    close(fd);
  }
  return ids;
}

}  // namespace abacus::monitor
