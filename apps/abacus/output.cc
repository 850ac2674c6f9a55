#include "apps/abacus/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/abacus/commands.h"
#include "apps/cli/progress.h"
#include "runtime/base/status.h"

namespace abacus::apps {

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "cannot write the output");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

namespace {

bool IsReplaced(const std::string& path) {
  // A link there (/dev/stdout) may lead to a regular file, and must stay one.
  if (path.rfind("/dev/", 0) == 0 || path.rfind("/proc/", 0) == 0) return false;
  struct stat facts;
  return stat(path.c_str(), &facts) != 0 || S_ISREG(facts.st_mode);
}

}  // namespace

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  const std::string made = absl::StrCat(path, ".", getpid(), ".tmp");
  const bool replaces = IsReplaced(path);
  const std::string& target = replaces ? made : path;
  const int fd = open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  absl::Status status = WriteAll(fd, bytes);
  close(fd);
  if (status.ok() && replaces && rename(made.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  if (!status.ok() && replaces) unlink(made.c_str());
  return status;
}

int Fail(const absl::Status& status) {
  fprintf(stderr, "abacus: %s\n", std::string(status.message()).c_str());
  return kExitError;
}

std::string ShortClassName(std::string_view class_name) {
  std::string name(class_name.substr(class_name.rfind('.') + 1));
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string HumanSeconds(double seconds) {
  const double size = std::fabs(seconds);
  if (size >= 0.1) return absl::StrFormat("%.2f s", seconds);
  if (size >= 0.001) return absl::StrFormat("%.1f ms", seconds * 1e3);
  return absl::StrFormat("%.0f us", seconds * 1e6);
}

std::string FirstSentence(std::string_view text) {
  // A point within a number or an abbreviation has no blank behind it.
  const size_t point = text.find(". ");
  return std::string(point == std::string_view::npos ? text : text.substr(0, point + 1));
}

std::string MoveLine(const runtime::MoveEvent& event) {
  std::string what;
  for (size_t i = 0; i < event.rids.size(); ++i) {
    const std::string name = i < event.class_names.size() ? event.class_names[i] : "";
    absl::StrAppend(&what, what.empty() ? "" : ", ", ShortClassName(name), " ",
                    event.rids[i].ToString());
  }
  const std::string who = event.by_engine ? "the engine" : "hand";
  const std::string way = absl::StrCat(event.from_name, " -> ", event.to_name);
  if (!event.status.ok()) {
    return absl::StrCat("not moved: ", what, ": ", way, " by ", who, ": ",
                        std::string(event.status.message()));
  }
  std::string line = absl::StrCat("moved: ", what, ": ", way, " by ", who);
  if (event.by_engine) {
    absl::StrAppend(&line, ", predicted gain ",
                    HumanSeconds(absl::ToDoubleSeconds(event.predicted_gain)), " per window, cost ",
                    HumanSeconds(absl::ToDoubleSeconds(event.predicted_cost)));
  }
  absl::StrAppend(&line, ", blackout ", HumanSeconds(absl::ToDoubleSeconds(event.blackout)),
                  ", state ", HumanBytes(static_cast<double>(event.state_bytes)));
  return line;
}

}  // namespace abacus::apps
