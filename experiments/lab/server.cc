#include "experiments/lab/server.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "apps/abacus/volumes.h"
#include "experiments/lab/cached_disk.h"
#include "experiments/lab/paper_node.h"
#include "objfs/fs/file_system.h"
#include "runtime/base/block.h"
#include "runtime/base/status.h"

namespace abacus::lab {
namespace {

using nlohmann::json;

constexpr uint64_t kWriteBytes = uint64_t{1} << 20;
const objfs::Caller kPreparer{.checked = true};

absl::Status MakeFile(objfs::FileSystem& files, const std::string& name, uint64_t bytes) {
  ABACUS_ASSIGN_OR_RETURN(
      const auto made,
      files.Create(kPreparer, files.root(), name, S_IFREG | 0644, O_RDWR, "isolation/storage"));
  for (uint64_t at = 0; at < bytes; at += kWriteBytes) {
    const uint64_t part = std::min(kWriteBytes, bytes - at);
    ABACUS_RETURN_IF_ERROR(
        files.Write(made.handle, at, runtime::Block::FromString(std::string(part, 'a'))));
  }
  ABACUS_RETURN_IF_ERROR(files.Sync(made.handle));
  return files.Release(made.handle);
}

absl::Status Prepare(LabNode& lab, const json& what) {
  ABACUS_ASSIGN_OR_RETURN(const auto volume, apps::VolumeOf(lab.node(), kVolume));
  ABACUS_ASSIGN_OR_RETURN(const auto files,
                          objfs::FileSystem::Make(volume, apps::Kinds(), apps::HostOf(lab.node()),
                                                  {.client = "prepare"}));
  for (const json& file : what.value("files", json::array())) {
    ABACUS_RETURN_IF_ERROR(
        MakeFile(*files, file.at("name").get<std::string>(), file.at("bytes").get<uint64_t>()));
  }
  for (const json& name : what.value("directories", json::array())) {
    ABACUS_RETURN_IF_ERROR(
        files->Make(kPreparer, files->root(), name.get<std::string>(), S_IFDIR | 0755, 0, "")
            .status());
  }
  return files->SyncDirectory(files->root());
}

apps::WrapDisk DiskOf(const std::shared_ptr<PageCache>& cache) {
  if (cache == nullptr) return {};
  return [cache](std::unique_ptr<objfs::Disk> disk) {
    return std::make_unique<CachedDisk>(std::move(disk), cache);
  };
}

}  // namespace

absl::Status RunServer(const ServerOptions& options) {
  const json prepare = json::parse(options.prepare, nullptr, /*allow_exceptions=*/false);
  if (!prepare.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prepare takes a JSON object, not '", options.prepare, "'"));
  }
  std::shared_ptr<PageCache> cache;
  if (options.disk) {
    cache = std::make_shared<PageCache>(
        CacheModel{.disk = {.bytes_per_second = kDiskBytesPerSecond, .seek = kDiskSeek},
                   .memory_bytes = kPageCacheBytes,
                   .ahead_bytes = kReadAheadBytes});
  }
  ABACUS_ASSIGN_OR_RETURN(const auto lab, LabNode::Start(options.node));
  runtime::Node& node = lab->node();
  {
    ABACUS_ASSIGN_OR_RETURN(const auto volumes,
                            apps::PublishVolumes(node, lab->config().node.data_dir + "/volumes",
                                                 objfs::Volume::Options().lease, DiskOf(cache)));
    ABACUS_RETURN_IF_ERROR(volumes->Create(kVolume, 0));
    try {
      ABACUS_RETURN_IF_ERROR(Prepare(*lab, prepare));
    } catch (const json::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat("--prepare: ", error.what()));
    }
    if (cache != nullptr) cache->Drop();
    const auto echo = node.binding().Adopt(std::make_unique<Echo>());
    node.Publish(kEcho, echo.rid());
    printf("ready %s\n", node.control_address().c_str());
    fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
    }
    node.Stop();
  }
  return absl::OkStatus();
}

}  // namespace abacus::lab
