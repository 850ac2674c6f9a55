#include "experiments/lab/server.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/abacus/volumes.h"
#include "experiments/lab/disks.h"
#include "objfs/fs/file_system.h"
#include "runtime/base/block.h"
#include "runtime/base/status.h"

namespace abacus::lab {
namespace {

using nlohmann::json;

constexpr uint64_t kWriteBytes = uint64_t{1} << 20;
const objfs::Caller kPreparer{.checked = true};

// A line: its number and what fills it up. The last one of a file may be cut short.
std::string LineOf(uint64_t number, uint64_t line_bytes) {
  std::string line = absl::StrCat(number, " ");
  line.resize(line_bytes, kPrepared);
  line.back() = '\n';
  return line;
}

// What a file that is being prepared has from `at` on.
std::string TextOf(uint64_t at, uint64_t bytes, uint64_t line_bytes) {
  if (line_bytes == 0) return std::string(bytes, kPrepared);
  std::string text;
  for (uint64_t line = at / line_bytes; text.size() < bytes + line_bytes; ++line) {
    text += LineOf(line, line_bytes);
  }
  return text.substr(at % line_bytes, bytes);
}

absl::Status MakeFile(objfs::FileSystem& files, const std::string& name, uint64_t bytes,
                      uint64_t line_bytes, const std::string& stack) {
  ABACUS_ASSIGN_OR_RETURN(
      const auto made, files.Create(kPreparer, files.root(), name, S_IFREG | 0644, O_RDWR, stack));
  for (uint64_t at = 0; at < bytes; at += kWriteBytes) {
    const uint64_t part = std::min(kWriteBytes, bytes - at);
    ABACUS_RETURN_IF_ERROR(
        files.Write(made.handle, at, runtime::Block::FromString(TextOf(at, part, line_bytes))));
  }
  ABACUS_RETURN_IF_ERROR(files.Sync(made.handle));
  return files.Release(made.handle);
}

absl::Status MakeDirectory(objfs::FileSystem& files, const std::string& name, uint64_t names) {
  ABACUS_ASSIGN_OR_RETURN(const objfs::Node made,
                          files.Make(kPreparer, files.root(), name, S_IFDIR | 0755, 0, ""));
  for (uint64_t i = 0; i < names; ++i) {
    ABACUS_RETURN_IF_ERROR(
        files.Make(kPreparer, made.id, absl::StrCat("before-", i), S_IFREG | 0644, 0, "").status());
  }
  return absl::OkStatus();
}

absl::Status Prepare(LabNode& lab, const json& what) {
  ABACUS_ASSIGN_OR_RETURN(const auto volume, apps::VolumeOf(lab.node(), kVolume));
  ABACUS_ASSIGN_OR_RETURN(const auto files,
                          objfs::FileSystem::Make(volume, apps::Kinds(), apps::HostOf(lab.node()),
                                                  {.client = "prepare"}));
  for (const json& file : what.value("files", json::array())) {
    ABACUS_RETURN_IF_ERROR(MakeFile(*files, file.at("name").get<std::string>(),
                                    file.at("bytes").get<uint64_t>(),
                                    file.value("line_bytes", uint64_t{0}),
                                    file.value("stack", std::string("isolation/storage"))));
  }
  for (const json& directory : what.value("directories", json::array())) {
    ABACUS_RETURN_IF_ERROR(MakeDirectory(*files, directory.at("name").get<std::string>(),
                                         directory.value("names", uint64_t{0})));
  }
  return files->SyncDirectory(files->root());
}

// What the volume is over: this server's disks and `others`.
std::vector<std::string> ListOf(LabNode& lab, const Disks& disks, const ServerOptions& options) {
  std::vector<std::string> list = disks.Names(lab.node().control_address());
  list.insert(list.end(), options.others.begin(), options.others.end());
  return list;
}

absl::Status FailOne(LabNode& lab, Disks& disks, const ServerOptions& options) {
  if (!options.fails.has_value()) return absl::OkStatus();
  const std::vector<std::string> list = ListOf(lab, disks, options);
  if (*options.fails == 0 || *options.fails >= list.size()) {
    return absl::InvalidArgumentError(absl::StrCat("--fails takes a number from 1 to ",
                                                   list.size() - 1, ", not ", *options.fails,
                                                   ": the first disk has the inodes"));
  }
  disks.Fail(list[*options.fails]);
  return absl::OkStatus();
}

absl::Status PrepareVolume(LabNode& lab, Disks& disks, const ServerOptions& options,
                           const json& what) {
  const auto& volumes = disks.first();
  objfs::NewVolume volume{.name = kVolume};
  if (!options.others.empty()) volume.servers = ListOf(lab, disks, options);
  ABACUS_RETURN_IF_ERROR(volumes->Create(volume));
  try {
    ABACUS_RETURN_IF_ERROR(Prepare(lab, what));
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("--prepare: ", error.what()));
  }
  return FailOne(lab, disks, options);
}

void Serve(runtime::Node& node, Disks& disks) {
  printf("ready %s\n", node.control_address().c_str());
  fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (line != "drop") continue;
    disks.Drop();
    printf("dropped\n");
    fflush(stdout);
  }
}

}  // namespace

absl::Status RunServer(const ServerOptions& options) {
  const json prepare = json::parse(options.prepare, nullptr, /*allow_exceptions=*/false);
  if (!prepare.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prepare takes a JSON object, not '", options.prepare, "'"));
  }
  Disks disks(options.disks, options.disk,
              {.bytes_per_second = options.disk_bytes_per_second,
               .seek = absl::Seconds(options.disk_seek_s)});
  ABACUS_ASSIGN_OR_RETURN(const auto lab, LabNode::Start(options.node));
  runtime::Node& node = lab->node();
  absl::Status status = disks.Open(node, lab->config().node.data_dir, options.whole_read_sets);
  if (status.ok() && !options.columns) status = PrepareVolume(*lab, disks, options, prepare);
  if (status.ok()) {
    disks.Drop();
    const auto echo = node.binding().Adopt(std::make_unique<Echo>());
    node.Publish(kEcho, echo.rid());
    Serve(node, disks);
  }
  node.Stop();
  disks.Close();
  return status;
}

}  // namespace abacus::lab
