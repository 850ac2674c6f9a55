#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "objfs/fuse/testing/plain_servers.h"
#include "objfs/fuse/testing/plain_session.h"

namespace abacus::objfs::testing {
namespace {

constexpr fuse_ino_t kFileInode = 2;
constexpr char kFileName[] = "file";
constexpr double kValidSeconds = 1;

// The buffer is as long as the longest read, not as the file: its bytes are the same everywhere.
struct NullFile {
  uint64_t bytes = 0;
  std::vector<char> buffer;
};

NullFile& FileOf(fuse_req_t request) { return *static_cast<NullFile*>(fuse_req_userdata(request)); }

struct stat NullAttributes(fuse_ino_t inode, const NullFile& file) {
  struct stat attributes = {};
  attributes.st_ino = inode;
  attributes.st_nlink = 1;
  attributes.st_mode = inode == kFileInode ? S_IFREG | 0444 : S_IFDIR | 0755;
  if (inode == kFileInode) attributes.st_size = static_cast<off_t>(file.bytes);
  return attributes;
}

void NullLookup(fuse_req_t request, fuse_ino_t, const char* name) {
  if (std::strcmp(name, kFileName) != 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_entry_param entry = {};
  entry.ino = kFileInode;
  entry.attr = NullAttributes(kFileInode, FileOf(request));
  entry.attr_timeout = entry.entry_timeout = kValidSeconds;
  fuse_reply_entry(request, &entry);
}

void NullGetAttributes(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
  const struct stat attributes = NullAttributes(inode, FileOf(request));
  fuse_reply_attr(request, &attributes, kValidSeconds);
}

void NullOpen(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  fuse_reply_open(request, info);
}

void NullRead(fuse_req_t request, fuse_ino_t, size_t bytes, off_t offset, fuse_file_info*) {
  const NullFile& file = FileOf(request);
  const uint64_t left = file.bytes - std::min<uint64_t>(file.bytes, static_cast<uint64_t>(offset));
  fuse_reply_buf(request, file.buffer.data(), std::min<size_t>({bytes, left, file.buffer.size()}));
}

}  // namespace

int ServeSession(const fuse_lowlevel_ops& operations, void* data, const std::string& directory) {
  std::string program = "plain", option = "-o", value = "allow_other,default_permissions";
  char* arguments[] = {program.data(), option.data(), value.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, arguments);
  fuse_session* session = fuse_session_new(&args, &operations, sizeof operations, data);
  if (session == nullptr) return 1;
  int result = 1;
  if (fuse_session_mount(session, directory.c_str()) == 0) {
    fuse_loop_config* config = fuse_loop_cfg_create();
    result = fuse_session_loop_mt(session, config) == 0 ? 0 : 1;
    fuse_loop_cfg_destroy(config);
    fuse_session_unmount(session);
  }
  fuse_session_destroy(session);
  fuse_opt_free_args(&args);
  return result;
}

int ServeNull(const std::string& directory, uint64_t bytes) {
  NullFile file{.bytes = bytes, .buffer = std::vector<char>(1 << 20, 'x')};
  fuse_lowlevel_ops operations = {};
  operations.lookup = NullLookup;
  operations.getattr = NullGetAttributes;
  operations.open = NullOpen;
  operations.read = NullRead;
  return ServeSession(operations, &file, directory);
}

}  // namespace abacus::objfs::testing
