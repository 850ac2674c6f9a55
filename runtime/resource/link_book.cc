#include "runtime/resource/link_book.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace abacus::runtime {
namespace {

constexpr char kName[] = "abacus-links";
constexpr int kVersion = 1;

absl::Status Failed(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": cannot ", what, ": ", strerror(errno)));
}

bool Positive(double value) { return std::isfinite(value) && value > 0; }

// All of it, on disk. Closes the file.
absl::Status WriteAndSync(int fd, const std::string& path, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const bool written = done == text.size() && fsync(fd) == 0;
  const absl::Status status = written ? absl::OkStatus() : Failed(path, "write");
  close(fd);
  return status;
}

}  // namespace

absl::StatusOr<std::vector<KnownLink>> LinkBook::Read() const {
  std::vector<KnownLink> links;
  if (!std::filesystem::exists(path_)) return links;
  std::ifstream file(path_);
  if (!file) return Failed(path_, "read");
  std::string name;
  int version = 0;
  if (!(file >> name >> version) || name != kName) {
    return absl::DataLossError(absl::StrCat(path_, ": this is no file of links"));
  }
  if (version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": written in version ", version,
                                                      ", read in version ", kVersion,
                                                      "; links are measured anew"));
  }
  std::string word;
  while (file >> word && word != "end") {
    KnownLink link;
    std::istringstream peer(word);
    if (!(peer >> link.peer) || !(file >> link.bandwidth_bytes_s >> link.round_trip_s) ||
        !Positive(link.bandwidth_bytes_s) || !Positive(link.round_trip_s) ||
        links.size() >= kLinksMax) {
      return absl::DataLossError(absl::StrCat(path_, ": link ", links.size() + 1, " is damaged"));
    }
    links.push_back(link);
  }
  size_t count = 0;
  if (word != "end" || !(file >> count) || count != links.size()) {
    return absl::DataLossError(absl::StrCat(path_, ": cut short after ", links.size(), " links"));
  }
  return links;
}

absl::Status LinkBook::Write(const std::vector<KnownLink>& links) const {
  const size_t count = std::min(links.size(), kLinksMax);
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  text << kName << " " << kVersion << "\n";
  for (size_t i = 0; i < count; ++i) {
    text << links[i].peer << " " << links[i].bandwidth_bytes_s << " " << links[i].round_trip_s
         << "\n";
  }
  text << "end " << count << "\n";
  const std::string beside = path_ + ".new";
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(beside, "open");
  ABACUS_RETURN_IF_ERROR(WriteAndSync(fd, beside, text.str()));
  if (rename(beside.c_str(), path_.c_str()) != 0) return Failed(path_, "replace");
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  const int directory_fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd < 0) return Failed(directory, "open");
  const bool synced = fsync(directory_fd) == 0;
  const absl::Status status = synced ? absl::OkStatus() : Failed(directory, "sync");
  close(directory_fd);
  return status;
}

}  // namespace abacus::runtime
