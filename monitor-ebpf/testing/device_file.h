#ifndef ABACUS_MONITOR_EBPF_TESTING_DEVICE_FILE_H_
#define ABACUS_MONITOR_EBPF_TESTING_DEVICE_FILE_H_

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
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
  // Reads `pieces` pages of it that all are under way at the same time; false where that failed.
  // REQUIRES: at most 64 pieces.
  bool ReadAtOnce(size_t pieces) const {
    constexpr size_t kPage = 4096;
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, pieces, &context) != 0) return false;
    void* memory = nullptr;
    bool ok = posix_memalign(&memory, kPage, pieces * kPage) == 0;
    std::vector<iocb> orders(pieces);
    std::vector<iocb*> to_submit;
    for (size_t i = 0; i < pieces && ok; ++i) {
      orders[i].aio_fildes = static_cast<uint32_t>(fd_);
      orders[i].aio_lio_opcode = IOCB_CMD_PREAD;
      orders[i].aio_buf = reinterpret_cast<uint64_t>(memory) + i * kPage;
      orders[i].aio_nbytes = kPage;
      orders[i].aio_offset = static_cast<int64_t>(2 * i * kPage);  // not one behind the other
      to_submit.push_back(&orders[i]);
    }
    // The kernel holds the pieces of one call back until it has all of them.
    const auto all = static_cast<long>(pieces);
    ok = ok && syscall(SYS_io_submit, context, all, to_submit.data()) == all;
    std::vector<io_event> events(pieces);
    ok = ok && syscall(SYS_io_getevents, context, all, all, events.data(), nullptr) == all;
    for (const io_event& event : events) ok = ok && event.res == static_cast<int64_t>(kPage);
    syscall(SYS_io_destroy, context);  // waits for what is under way
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
