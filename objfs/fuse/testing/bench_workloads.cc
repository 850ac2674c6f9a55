#include "objfs/fuse/testing/bench_workloads.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace abacus::objfs::testing {
namespace {

constexpr size_t kSmallBytes = 4096;
constexpr size_t kLargeBytes = 1 << 20;

// -1 is a call that failed.
template <typename Result>
Result Checked(Result result, const std::string& what) {
  if (result >= 0) return result;
  throw BenchError(absl::StrCat(what, ": ", std::strerror(errno)));
}
void CheckWhole(ssize_t done, size_t bytes, const std::string& what) {
  if (Checked(done, what) == static_cast<ssize_t>(bytes)) return;
  throw BenchError(absl::StrCat(what, ": ", done, " of ", bytes, " bytes"));
}

// Closed with it.
class File {
 public:
  File(const std::string& path, int flags)
      : fd_(Checked(open(path.c_str(), flags | O_CLOEXEC, 0644), "open " + path)) {}
  explicit File(int fd) : fd_(fd) {}
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  operator int() const { return fd_; }

 private:
  const int fd_;
};

double PerSecond(double units, const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return units / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string Name(const std::string& directory, int i) { return absl::StrCat(directory, "/f", i); }

double ResidentBytes(pid_t process) {
  std::ifstream status(absl::StrCat("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atof(line.c_str() + 6) * 1024;
  }
  throw BenchError(absl::StrCat("no process ", process));
}

double WritesInOrder(const std::string& path, uint64_t file_bytes, bool synced) {
  const std::string bytes(kLargeBytes, 'x');
  return PerSecond(static_cast<double>(file_bytes), [&] {
    const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
    for (uint64_t at = 0; at < file_bytes; at += kLargeBytes) {
      CheckWhole(write(file, bytes.data(), bytes.size()), bytes.size(), "write " + path);
    }
    if (synced) Checked(fsync(file), "fsync " + path);
  });
}

// `goes_on`: whether there is one more, after so many.
double WritesAnywhere(const std::string& path, uint64_t file_bytes, bool synced,
                      const std::function<bool(int)>& goes_on) {
  const std::string bytes(kSmallBytes, 'y');
  std::minstd_rand random(19990719);
  const uint64_t places = file_bytes / kSmallBytes;
  int writes = 0;
  const double passes = PerSecond(1, [&] {
    const File file(path, O_WRONLY);
    for (; goes_on(writes); ++writes) {
      const uint64_t at = random() % places * kSmallBytes;
      CheckWhole(pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at)), bytes.size(),
                 "write " + path);
      if (synced) Checked(fdatasync(file), "fdatasync " + path);
    }
  });
  return writes * passes;
}

}  // namespace

double DirectReads(const std::string& path, uint64_t file_bytes, uint64_t bytes, int reads) {
  const File file(path, O_RDONLY | O_DIRECT);
  void* buffer = nullptr;
  if (posix_memalign(&buffer, 4096, bytes) != 0) std::abort();
  const uint64_t places = file_bytes / bytes;
  for (uint64_t i = 0; i < places; ++i) {
    CheckWhole(pread(file, buffer, bytes, static_cast<off_t>(i * bytes)), bytes, "read " + path);
  }
  const double rate = PerSecond(reads, [&] {
    for (int i = 0; i < reads; ++i) {
      const uint64_t at = static_cast<uint64_t>(i) * 7 % places * bytes;
      CheckWhole(pread(file, buffer, bytes, static_cast<off_t>(at)), bytes, "read " + path);
    }
  });
  std::free(buffer);
  return rate;
}

double SequentialWrite(const std::string& path, uint64_t file_bytes) {
  return WritesInOrder(path, file_bytes, false);
}
double SyncedWrite(const std::string& path, uint64_t file_bytes) {
  return WritesInOrder(path, file_bytes, true);
}

double SequentialRead(const std::string& path, uint64_t file_bytes) {
  std::string bytes(kLargeBytes, '\0');
  const File file(path, O_RDONLY);
  Checked(fsync(file), "fsync " + path);
  if (posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) std::abort();
  return PerSecond(static_cast<double>(file_bytes), [&] {
    for (uint64_t at = 0; at < file_bytes; at += kLargeBytes) {
      CheckWhole(read(file, bytes.data(), bytes.size()), bytes.size(), "read " + path);
    }
  });
}

double RandomWrites(const std::string& path, uint64_t file_bytes, int writes) {
  return WritesAnywhere(path, file_bytes, false, [writes](int done) { return done < writes; });
}
double SyncedRandomWrites(const std::string& path, uint64_t file_bytes, int writes) {
  return WritesAnywhere(path, file_bytes, true, [writes](int done) { return done < writes; });
}
double SyncedRandomWritesWhile(const std::string& path, uint64_t file_bytes,
                               const std::function<bool()>& goes_on) {
  return WritesAnywhere(path, file_bytes, true, [&goes_on](int) { return goes_on(); });
}

double Churn(const std::string& directory, int files) {
  const std::string bytes(kSmallBytes, 'z'), path = directory + "/churn";
  return PerSecond(files, [&] {
    for (int i = 0; i < files; ++i) {
      {
        const File file(path, O_WRONLY | O_CREAT | O_EXCL);
        CheckWhole(write(file, bytes.data(), bytes.size()), bytes.size(), "write " + path);
      }
      Checked(unlink(path.c_str()), "unlink " + path);
    }
  });
}

double MakeFiles(const std::string& directory, int files) {
  Checked(mkdir(directory.c_str(), 0755), "mkdir " + directory);
  return PerSecond(files, [&] {
    for (int i = 0; i < files; ++i)
      const File file(Name(directory, i), O_WRONLY | O_CREAT | O_EXCL);
  });
}

double Stats(const std::string& directory, int files) {
  struct stat seen;
  return PerSecond(files, [&] {
    for (int i = 0; i < files; ++i) Checked(stat(Name(directory, i).c_str(), &seen), "stat");
  });
}

double Renames(const std::string& directory, int files) {
  return PerSecond(2.0 * files, [&] {
    for (const bool back : {false, true}) {
      for (int i = 0; i < files; ++i) {
        const std::string name = Name(directory, i), other = name + ".renamed";
        Checked(back ? rename(other.c_str(), name.c_str()) : rename(name.c_str(), other.c_str()),
                "rename " + name);
      }
    }
  });
}

double List(const std::string& directory, int files) {
  int seen = 0;
  const double rate = PerSecond(files, [&] {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), closedir);
    if (stream == nullptr) Checked(-1, "opendir " + directory);
    struct stat attributes;
    while (const dirent* const entry = readdir(stream.get())) {
      if (entry->d_name[0] != 'f') continue;
      Checked(fstatat(dirfd(stream.get()), entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW),
              "fstatat");
      ++seen;
    }
  });
  if (seen == files) return rate;
  throw BenchError(absl::StrCat(directory, ": ", seen, " of ", files, " entries"));
}

void RemoveFiles(const std::string& directory, int files) {
  for (int i = 0; i < files; ++i) Checked(unlink(Name(directory, i).c_str()), "unlink");
  Checked(rmdir(directory.c_str()), "rmdir " + directory);
}

double BytesOfAnOpenFile(const std::string& directory, int files, pid_t process) {
  const double before = ResidentBytes(process);
  std::vector<std::unique_ptr<File>> open_files;
  for (int i = 0; i < files; ++i) {
    open_files.push_back(std::make_unique<File>(Name(directory, i), O_RDWR));
  }
  return (ResidentBytes(process) - before) / files;
}

double LoopbackStream(uint64_t bytes) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t at_bytes = sizeof at;
  const auto socket_of_tcp = [] {
    return Checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  };
  const File listener(socket_of_tcp()), to(socket_of_tcp());
  Checked(bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at), "bind");
  Checked(listen(listener, 1), "listen");
  Checked(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &at_bytes), "getsockname");
  Checked(connect(to, reinterpret_cast<const sockaddr*>(&at), sizeof at), "connect");
  const File from(Checked(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept"));
  const std::string sent(kLargeBytes, 'x');
  std::string got(kLargeBytes, '\0');
  uint64_t arrived = 0;
  const double rate = PerSecond(static_cast<double>(bytes), [&] {
    const auto sender = std::async(std::launch::async, [&] {
      ssize_t some = 0;
      for (uint64_t left = bytes; left > 0; left -= static_cast<uint64_t>(some)) {
        some = send(to, sent.data(), std::min<uint64_t>(left, sent.size()), MSG_NOSIGNAL);
        if (some <= 0) return;
      }
    });
    while (arrived < bytes) {
      const ssize_t some = recv(from, got.data(), got.size(), 0);
      if (some <= 0) break;
      arrived += static_cast<uint64_t>(some);
    }
    shutdown(from, SHUT_RDWR);  // whoever still sends gives up
  });
  if (arrived == bytes) return rate;
  throw BenchError(absl::StrCat("loopback: ", arrived, " of ", bytes, " bytes arrived"));
}

}  // namespace abacus::objfs::testing
