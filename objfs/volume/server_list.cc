#include "objfs/volume/server_list.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace abacus::objfs {
namespace {

constexpr char kFirstLine[] = "abacus servers ";
constexpr int kVersion = 1, kVersionWithVacancies = 2;

absl::Status Synced(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return synced ? absl::OkStatus()
                : absl::ErrnoToStatus(error, absl::StrCat("cannot flush ", path));
}

}  // namespace

bool HasVacancy(const std::vector<std::string>& servers) {
  return std::any_of(servers.begin(), servers.end(), IsVacant);
}

std::string ServersText(const std::vector<std::string>& servers) {
  std::vector<std::string> there = servers;
  std::erase_if(there, IsVacant);
  return absl::StrJoin(there, ", ");
}

bool IsServerAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  return colon != std::string::npos && colon > 0 &&
         address.find_first_of(" \t\r\n,/") == std::string::npos &&
         absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 && port <= 65535;
}

absl::Status CheckServers(const std::vector<std::string>& servers, bool vacancies) {
  const auto vacant = vacancies ? std::count_if(servers.begin(), servers.end(), IsVacant) : 0;
  const size_t count = servers.size() - static_cast<size_t>(vacant);
  if (count < 2 || servers.size() > ServerList::kServersMax) {
    return absl::InvalidArgumentError(absl::StrCat("a volume is spread over 2 to ",
                                                   ServerList::kServersMax, " servers, not ", count,
                                                   "; without --servers it is where it is made"));
  }
  std::set<std::string> seen;
  for (const std::string& server : servers) {
    if (vacancies && IsVacant(server)) continue;
    if (!IsServerAddress(server)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", server, "' is no server's address: HOST:PORT"));
    }
    if (!seen.insert(server).second) {
      return absl::InvalidArgumentError(absl::StrCat("server ", server, " is named twice"));
    }
  }
  return absl::OkStatus();
}

std::string ServerList::Encode() const {
  const int version = HasVacancy(servers) ? kVersionWithVacancies : kVersion;
  std::string text = absl::StrCat(kFirstLine, version, "\n", absl::Hex(key, absl::kZeroPad16));
  for (const std::string& server : servers) absl::StrAppend(&text, "\n", server);
  return text + "\nend\n";
}

absl::StatusOr<ServerList> ServerList::Decode(std::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(runtime::ToAbsl(text), '\n');
  const std::string& first = lines.front();
  int version = 0;
  if (first.rfind(kFirstLine, 0) != 0 ||
      !absl::SimpleAtoi(first.substr(sizeof(kFirstLine) - 1), &version)) {
    return absl::DataLossError("it is no list of a volume's servers");
  }
  if (version != kVersion && version != kVersionWithVacancies) {
    return absl::FailedPreconditionError(absl::StrCat("a list of servers of version ", version,
                                                      "; this build knows ", kVersion, " and ",
                                                      kVersionWithVacancies));
  }
  ServerList list;
  const bool whole = lines.size() >= 5 && lines.back().empty() && lines[lines.size() - 2] == "end";
  if (!whole || lines[1].size() != 16 || !absl::SimpleHexAtoi(lines[1], &list.key)) {
    return absl::DataLossError("a list of servers is cut off or damaged");
  }
  list.servers.assign(lines.begin() + 2, lines.end() - 2);
  const bool vacancies = version == kVersionWithVacancies;
  if (const absl::Status good = CheckServers(list.servers, vacancies); !good.ok()) {
    return absl::DataLossError(good.message());
  }
  return list;
}

absl::Status ServerList::Save(const std::string& path) const { return SaveDurably(path, Encode()); }

absl::Status SaveDurably(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", temporary));
  ABACUS_RETURN_IF_ERROR(Synced(temporary, O_RDONLY));
  return RenameDurably(temporary, path);
}

absl::Status SyncNames(const std::string& directory) {
  return Synced(directory, O_RDONLY | O_DIRECTORY);
}

absl::Status RenameDurably(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write ", to));
  return SyncNames(std::filesystem::path(to).parent_path().string());
}

absl::StatusOr<std::optional<ServerList>> ServerList::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  absl::StatusOr<ServerList> list = Decode(text);
  if (list.ok()) return std::optional<ServerList>(*std::move(list));
  return absl::Status(list.status().code(), absl::StrCat(path, ": ", list.status().message()));
}

}  // namespace abacus::objfs
