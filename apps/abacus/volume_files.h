#ifndef ABACUS_APPS_ABACUS_VOLUME_FILES_H_
#define ABACUS_APPS_ABACUS_VOLUME_FILES_H_

// Files of a server's volumes as commands name and use them, without a mount.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/abacus/client_node.h"
#include "objfs/fs/file_system.h"
#include "runtime/object/ref.h"

namespace abacus::apps {

// What "[VOLUME:]PATH" says.
struct FileName {
  std::string volume;  // empty: the only one that there is
  std::string path;    // from the volume's root, with or without a / before it
};
// A colon behind the first / is a part of the path.
FileName ParseFileName(const std::string& text);

// A volume that this process is a client of while the object lives.
//
// `client` outlives it. Owner-thread, but for files().
class VolumeFiles {
 public:
  // The volume that MakeFirst() makes.
  static constexpr char kFirstVolume[] = "home";

  // Joins volume `name`; where that is empty, the only one that there is.
  // Errors: kNotFound - there is no such volume, or none at all.
  static absl::StatusOr<std::unique_ptr<VolumeFiles>> Join(ClientNode& client,
                                                           const std::string& name);
  // The same, but where no name is given and there is no volume yet, one is made.
  static absl::StatusOr<std::unique_ptr<VolumeFiles>> JoinOrMakeFirst(ClientNode& client,
                                                                      const std::string& name);

  objfs::FileSystem& files() { return *files_; }
  // Who has started this process.
  const objfs::Caller& caller() const { return caller_; }
  // The node that the volume is at.
  runtime::NodeId server() const { return server_; }

  // What the path leads to, by symbolic links too.
  // Errors: as FileSystem::Lookup; kInvalid - a symbolic link whose target begins with a /: that is
  //         a path of wherever the volume is mounted.
  absl::StatusOr<objfs::Node> Find(const std::string& path);

  // A name in a directory.
  struct Place {
    objfs::Node directory;
    std::string name;
  };
  // Where the path's last name is, or would be. With `makes` directories that are missing are made.
  // Errors: as Find(); kInvalid - the path has no last name.
  absl::StatusOr<Place> PlaceOf(const std::string& path, bool makes);

 private:
  VolumeFiles(runtime::NodeId server, std::unique_ptr<objfs::FileSystem> files);
  absl::StatusOr<objfs::Node> Walk(std::vector<std::string> names, bool makes);
  absl::StatusOr<objfs::Node> Step(const objfs::Node& directory, const std::string& name,
                                   bool makes);

  const runtime::NodeId server_;
  const std::unique_ptr<objfs::FileSystem> files_;
  objfs::Caller caller_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_ABACUS_VOLUME_FILES_H_
