#include "objfs/check/report.h"

#include <sys/stat.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace abacus::objfs {

const char* NameOf(FaultKind kind) {
  constexpr std::array<const char*, kFaultKinds> kNames = {
      "store",   "table",      "inode",   "blocks",  "name",    "unreachable",
      "parent",  "links",      "entries", "data",    "target",  "column",
      "servers", "superblock", "journal", "replica", "records", "log"};
  const auto number = static_cast<size_t>(kind);
  return number < kNames.size() ? kNames[number] : "?";
}

const char* NameOfType(uint32_t type) {
  switch (type << 12) {
    case S_IFREG:
      return "file";
    case S_IFDIR:
      return "directory";
    case S_IFLNK:
      return "symbolic link";
    case S_IFIFO:
      return "pipe";
    case S_IFSOCK:
      return "socket";
    case S_IFCHR:
    case S_IFBLK:
      return "device";
    default:
      return "thing of no type";
  }
}

std::string Fault::Line() const {
  std::string line = absl::StrCat(NameOf(kind), ": ");
  if (!path.empty()) absl::StrAppend(&line, path, " ");
  if (object != 0) absl::StrAppend(&line, path.empty() ? "object " : "(", object);
  if (object != 0) absl::StrAppend(&line, path.empty() ? ": " : "): ");
  if (!place.empty()) absl::StrAppend(&line, place, ": ");
  absl::StrAppend(&line, text);
  if (repaired()) absl::StrAppend(&line, "; ", done);
  return line;
}

void CheckReport::Add(Fault fault, uint64_t faults_max) {
  ++found;
  if (fault.repaired()) ++repaired;
  if (faults.size() < faults_max) faults.push_back(std::move(fault));
}

}  // namespace abacus::objfs
