#ifndef ABACUS_MONITOR_EBPF_TESTING_DEVICE_FILE_H_
#define ABACUS_MONITOR_EBPF_TESTING_DEVICE_FILE_H_

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace abacus::monitor {

// A file of 1 MiB whose blocks are on a device, and which is read from there each time. Not good()
// where the temporary directory's file system permits no direct reads. Gone with the object.
// Thread-compatible; Read() is thread-safe and blocks.
class DeviceFile {
 public:
  static constexpr size_t kBytes = 1 << 20;

  DeviceFile() {
    path_ = std::filesystem::temp_directory_path() / "abacus_device_file_XXXXXX";
    fd_ = mkstemp(path_.data());
    const std::vector<char> bytes(kBytes, 'x');
    good_ = fd_ >= 0 &&
            write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
            fsync(fd_) == 0;
    if (fd_ >= 0) close(fd_);
    fd_ = open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  }
  ~DeviceFile() {
    if (fd_ >= 0) close(fd_);
    unlink(path_.c_str());
  }
  DeviceFile(const DeviceFile&) = delete;
  DeviceFile& operator=(const DeviceFile&) = delete;

  bool good() const { return good_ && fd_ >= 0; }
  // Reads all of it; false where that failed.
  bool Read() const {
    void* memory = nullptr;
    if (posix_memalign(&memory, 4096, kBytes) != 0) return false;
    const bool ok = pread(fd_, memory, kBytes, 0) == static_cast<ssize_t>(kBytes);
    free(memory);
    return ok;
  }

 private:
  std::string path_;
  int fd_ = -1;
  bool good_ = false;
};

}  // namespace abacus::monitor

#endif  // ABACUS_MONITOR_EBPF_TESTING_DEVICE_FILE_H_
