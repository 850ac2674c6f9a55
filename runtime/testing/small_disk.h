#ifndef ABACUS_RUNTIME_TESTING_SMALL_DISK_H_
#define ABACUS_RUNTIME_TESTING_SMALL_DISK_H_

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace abacus::runtime::testing {

// A file system in memory of so many bytes, at a directory that is emptied for it. Takes root; what
// is there when it ends is gone.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, uint64_t bytes) : path_(path) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    const std::string size = absl::StrCat("size=", bytes);
    is_there_ = mount("abacus-test", path.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (is_there_) {
      EXPECT_EQ(umount2(path_.c_str(), MNT_DETACH), 0) << path_;
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool is_there() const { return is_there_; }
  // Somebody takes what is left of it, to the last byte, and gives it back.
  std::string BrimPath() const { return path_ + "/brim"; }
  void FillBrim() const {
    for (const size_t bytes : {size_t{1} << 16, size_t{1}}) {
      std::ofstream brim(BrimPath(), std::ios::binary | std::ios::app);
      const std::string some(bytes, 'x');
      while (brim.write(some.data(), static_cast<std::streamsize>(bytes)).flush()) {
      }
    }
  }
  void EmptyBrim() const { std::filesystem::remove(BrimPath()); }

 private:
  const std::string path_;
  bool is_there_ = false;
};

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_TESTING_SMALL_DISK_H_
