#include "runtime/node/incarnation.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

constexpr size_t kFileBytesMax = 256;

// Closes a descriptor at the end of a scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

absl::Status SystemError(const std::string& what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("node.data_dir: cannot ", what, " ", path));
}

// Of both kinds of node: evenly over [first, last].
uint32_t Draw(uint32_t first, uint32_t last) {
  std::random_device source;
  return std::uniform_int_distribution<uint32_t>(first, last)(source);
}

std::string Print(NodeInstance instance) {
  return absl::StrCat("node ", instance.node, "\nincarnation ", instance.incarnation, "\n");
}

std::optional<NodeInstance> Parse(const std::string& text) {
  NodeInstance instance;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.size() != 3 || !lines[2].empty()) return std::nullopt;
  const std::vector<std::string> node = absl::StrSplit(lines[0], ' ');
  const std::vector<std::string> incarnation = absl::StrSplit(lines[1], ' ');
  if (node.size() != 2 || node[0] != "node" || incarnation.size() != 2 ||
      incarnation[0] != "incarnation" || !absl::SimpleAtoi(node[1], &instance.node) ||
      !absl::SimpleAtoi(incarnation[1], &instance.incarnation)) {
    return std::nullopt;
  }
  if (instance.node == 0 || instance.node >= kFirstClientId || instance.incarnation == 0) {
    return std::nullopt;
  }
  return instance;
}

// The instance of the last start; nothing where there was none.
absl::StatusOr<std::optional<NodeInstance>> ReadLast(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok() && errno == ENOENT) return std::optional<NodeInstance>();
  if (!file.ok()) return SystemError("read", path);
  std::string text(kFileBytesMax, '\0');
  const ssize_t bytes = read(file.get(), text.data(), text.size());
  if (bytes < 0) return SystemError("read", path);
  text.resize(static_cast<size_t>(bytes));
  const std::optional<NodeInstance> instance = Parse(text);
  if (!instance.has_value()) {
    // A guess could give the names of an earlier process again.
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is damaged or not an incarnation file of this program; give "
                     "node.data_dir another directory, or restore the file"));
  }
  return instance;
}

// Over whatever is there: where that has as many bytes, a full disk has room for these.
absl::Status WriteOver(const std::string& path, const std::string& text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!file.ok()) return SystemError("write", path);
  const bool written =
      pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
      ftruncate(file.get(), static_cast<off_t>(text.size())) == 0 && fsync(file.get()) == 0;
  return written ? absl::OkStatus() : SystemError("write", path);
}

// Replaces the file so that after a power cut either the old or the new text is there. A file for
// the next time stays, so that a server whose disk is full starts all the same.
absl::Status WriteDurably(const std::string& directory, const std::string& path,
                          const std::string& text) {
  const std::string fresh = path + ".new";
  ABACUS_RETURN_IF_ERROR(WriteOver(fresh, text));
  if (rename(fresh.c_str(), path.c_str()) != 0) return SystemError("replace", path);
  const Descriptor parent(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent.ok() || fsync(parent.get()) != 0) return SystemError("sync", directory);
  WriteOver(fresh, text).IgnoreError();  // the next start may find room
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(const std::string& path,
                                                                   const std::string& node_name) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return SystemError("make", path);
  const std::string lock_path = path + "/lock";
  Descriptor lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.ok()) return SystemError("open", lock_path);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return SystemError("lock", lock_path);
    return absl::FailedPreconditionError(
        absl::StrCat("another process uses the data directory ", path,
                     " (node.data_dir): stop it, or give this server a directory of its own"));
  }
  std::unique_ptr<DataDirectory> directory(new DataDirectory(lock.Release()));

  const std::string file = path + "/incarnation";
  ABACUS_ASSIGN_OR_RETURN(const std::optional<NodeInstance> last, ReadLast(file));
  NodeInstance& now = directory->instance_;
  if (last.has_value()) {
    now = *last;
  } else {
    // The name alone would give all servers that are called alike one id.
    const size_t mixed =
        absl::Hash<std::pair<std::string, uint32_t>>()({node_name, Draw(0, UINT32_MAX)});
    now.node = 1 + static_cast<NodeId>(mixed % (kFirstClientId - 1));
  }
  if (now.incarnation == UINT32_MAX) {
    return absl::FailedPreconditionError(absl::StrCat(file, ": all incarnations are used up"));
  }
  ++now.incarnation;
  ABACUS_RETURN_IF_ERROR(WriteDurably(path, file, Print(now)));
  return directory;
}

DataDirectory::~DataDirectory() { close(lock_fd_); }

NodeInstance RandomClientInstance() {
  return {Draw(kFirstClientId, UINT32_MAX), Draw(1, UINT32_MAX)};
}

}  // namespace abacus::runtime
