#ifndef ABACUS_OBJFS_STORAGE_FILE_STORE_H_
#define ABACUS_OBJFS_STORAGE_FILE_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "objfs/storage/storage_object.h"
#include "runtime/base/mutex.h"
#include "runtime/object/mobile_object.h"
#include "runtime/object/ref.h"

namespace abacus::objfs {

// What a store tells of a file.
struct FileInfo {
  std::string name;
  uint64_t bytes = 0;
  absl::Time modified;
  ABACUS_FIELDS(name, bytes, modified)
};

// A storage server's files, by name: one flat directory, and one StorageObject for each file that
// somebody has opened.
//
// Names are 1 to 255 bytes without '/' and NUL, and not "." or ".."; anything else is
// kInvalidArgument. An error names the file; kNotFound says that there is none of that name.
// Invariants:
// 1. At most one StorageObject exists for a name, and all who open the name get it.
// 2. A StorageObject whose file was removed or replaced is ended: those who hold a reference to it
//    get the runtime's "object not found", never another file's bytes.
// Limits: kOpenFilesMax storage objects at once (kResourceExhausted): each holds a descriptor.
// Thread-safety: thread-safe. Blocking: disk I/O.
class FileStore final : public runtime::AnchoredObject {
 public:
  static constexpr size_t kNameBytesMax = 255;
  static constexpr size_t kOpenFilesMax = 4096;
  static constexpr uint32_t kListMax = 4096;

  // How the store brings storage objects into the runtime and ends them, without knowing a node.
  struct Host {
    std::function<runtime::Ref<StorageObject>(std::unique_ptr<StorageObject>)> adopt;
    std::function<void(const runtime::Rid&)> end;
  };

  // A store over `directory`, which is made where it is not there.
  // Errors: those of the directory.
  static absl::StatusOr<std::unique_ptr<FileStore>> Make(const std::string& directory, Host host);

  // Makes an empty file. Errors: kAlreadyExists.
  absl::StatusOr<runtime::Ref<StorageObject>> Create(const std::string& name);
  // Errors: kNotFound.
  absl::StatusOr<runtime::Ref<StorageObject>> Open(const std::string& name);
  // Errors: kNotFound.
  absl::StatusOr<FileInfo> Stat(const std::string& name);
  // The first `max` files, but at most kListMax, whose names sort behind `after`; by name.
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& after, uint32_t max);
  // Gives a file another name, replacing the file of that name if there is one: in one step, and
  // durable on return. References to the file's StorageObject stay good. Errors: kNotFound.
  absl::Status Rename(const std::string& from, const std::string& to);
  // Errors: kNotFound.
  absl::Status Remove(const std::string& name);

  ABACUS_OBJECT(FileStore, "objfs.FileStore", 1, Create, Open, Stat, List, Rename, Remove)

 private:
  FileStore(std::string directory, Host host)
      : directory_(std::move(directory)), host_(std::move(host)) {}

  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  absl::StatusOr<runtime::Ref<StorageObject>> Keep(const std::string& name,
                                                   absl::StatusOr<File> (*open)(const std::string&))
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const Host host_;

  // Held over the file system's calls on names, so that a name and its object agree; never over a
  // read or write of data.
  runtime::Mutex mutex_;
  std::map<std::string, runtime::Ref<StorageObject>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORAGE_FILE_STORE_H_
