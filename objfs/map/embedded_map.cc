#include "objfs/map/embedded_map.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "objfs/volume/server_list.h"
#include "runtime/base/status.h"

namespace abacus::objfs {

using runtime::MutexLock;

absl::StatusOr<MapAnswer> EmbeddedMap::Call(const MapCall& call) {
  MutexLock lock(mutex_);
  ABACUS_ASSIGN_OR_RETURN(const std::optional<ServerList> list, ServerList::Load(path_));
  if (!list.has_value()) return absl::NotFoundError(absl::StrCat("there is no ", path_));
  MapAnswer answer{.state = MapAnswer::State::kDone, .reading = {}};
  answer.reading.row = {.key = list->key,
                        .epoch = 1,
                        .primary = 0,
                        .servers = list->servers,
                        .copies = {{.place = 0, .current = true}}};
  if (call.kind == MapCall::Kind::kSet || call.kind == MapCall::Kind::kTake) {
    if (call.revision == revision_) {
      const ServerList next{.key = call.row.key, .servers = call.row.servers};
      ABACUS_RETURN_IF_ERROR(next.Save(path_));
      ++revision_;
      answer.reading.row.servers = next.servers;
    } else {
      answer.state = MapAnswer::State::kRefused;
    }
  }
  answer.reading.revision = revision_;
  return answer;
}

absl::Status EmbeddedMap::Create(const VolumeRow& row) {
  MutexLock lock(mutex_);
  std::error_code error;
  if (std::filesystem::exists(path_, error)) {
    return absl::AlreadyExistsError(absl::StrCat("there is ", path_));
  }
  return ServerList{.key = row.key, .servers = row.servers}.Save(path_);
}

absl::Status EmbeddedMap::Remove() {
  std::error_code error;
  std::filesystem::remove(path_, error);
  return error ? absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path_))
               : absl::OkStatus();
}

}  // namespace abacus::objfs
