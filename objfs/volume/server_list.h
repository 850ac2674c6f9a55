#ifndef ABACUS_OBJFS_VOLUME_SERVER_LIST_H_
#define ABACUS_OBJFS_VOLUME_SERVER_LIST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace abacus::objfs {

// In the place of a server's address: nobody is there any more. Files name servers by their places,
// so a place stays when its server goes.
inline constexpr char kVacant[] = "-";
inline bool IsVacant(std::string_view address) { return address == kVacant; }

// The servers of a volume, as they are kept in a file (volume_set.h).
struct ServerList {
  static constexpr size_t kServersMax = 64;

  uint64_t key = 0;  // of this volume and no other
  std::vector<std::string> servers;

  // As version 1; as version 2, where a place is vacant.
  std::string Encode() const;
  // Errors: kDataLoss - it is none, or cut off; kFailedPrecondition - of a later version.
  static absl::StatusOr<ServerList> Decode(std::string_view text);

  // Durable when it returns. Errors: the disk's.
  absl::Status Save(const std::string& path) const;
  // nullopt: there is no such file. Errors: as Decode(), with the path.
  static absl::StatusOr<std::optional<ServerList>> Load(const std::string& path);

  friend bool operator==(const ServerList&, const ServerList&) = default;
};

// HOST:PORT, as servers are named.
bool IsServerAddress(const std::string& address);
// Whether a volume can be over these servers. Errors: kInvalidArgument.
// `vacancies`: places may be vacant.
absl::Status CheckServers(const std::vector<std::string>& servers, bool vacancies = false);
// The servers, as people are told of them: vacant places are none.
std::string ServersText(const std::vector<std::string>& servers);
// Whether one of the places is vacant.
bool HasVacancy(const std::vector<std::string>& servers);

// A small file, durable when it returns; a crash leaves the old one or this one.
absl::Status SaveDurably(const std::string& path, const std::string& text);
// The names of the files in a directory are durable when it returns.
absl::Status SyncNames(const std::string& directory);
// Within one directory; durable when it returns, and a crash leaves it done or not. What has that
// name already is replaced, where it is no directory with something in it.
absl::Status RenameDurably(const std::string& from, const std::string& to);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_SERVER_LIST_H_
