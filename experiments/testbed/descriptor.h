#ifndef ABACUS_EXPERIMENTS_TESTBED_DESCRIPTOR_H_
#define ABACUS_EXPERIMENTS_TESTBED_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace abacus::experiments {

// Owner of a file descriptor. -1: of none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace abacus::experiments

#endif  // ABACUS_EXPERIMENTS_TESTBED_DESCRIPTOR_H_
