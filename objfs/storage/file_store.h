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
#include "objfs/storage/file_pool.h"
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
// 3. A file that was being written under a PartName() when its server ended is gone when the next
//    one begins.
// Limits: Limits::objects_max storage objects at once (kResourceExhausted); of their files
// Limits::open_files_max are open at once, those used last.
// Thread-safety: thread-safe. Blocking: disk I/O.
class FileStore final : public runtime::AnchoredObject {
 public:
  static constexpr size_t kNameBytesMax = 255;
  static constexpr uint32_t kListMax = 4096;

  // How the store brings storage objects into the runtime and ends them, without knowing a node.
  struct Host {
    std::function<runtime::Ref<StorageObject>(std::unique_ptr<StorageObject>)> adopt;
    std::function<void(const runtime::Rid&)> end;
  };

  struct Limits {
    // A storage object stays until its file is removed or replaced: a few hundred bytes each.
    size_t objects_max = 65536;
    // Leaves a process with the usual 1024 descriptors as many again for its peers.
    size_t open_files_max = 512;
  };

  // A store over `directory`, which is made where it is not there.
  // REQUIRES: no other store is over that directory.
  // Errors: those of the directory.
  static absl::StatusOr<std::unique_ptr<FileStore>> Make(const std::string& directory, Host host,
                                                         Limits limits);
  static absl::StatusOr<std::unique_ptr<FileStore>> Make(const std::string& directory, Host host) {
    return Make(directory, std::move(host), Limits());
  }

  // A name for a file while it is written, before Rename() gives it its own: List() leaves such
  // files out, and Rename() gives no file such a name. Different for different numbers.
  static std::string PartName(uint64_t process, uint64_t number);

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
  struct OpenFile {
    runtime::Ref<StorageObject> object;
    FilePool::FileId file = 0;
  };

  FileStore(std::string directory, Host host, Limits limits)
      : directory_(std::move(directory)),
        host_(std::move(host)),
        limits_(limits),
        pool_(std::make_shared<FilePool>(limits.open_files_max)) {}

  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }
  absl::StatusOr<runtime::Ref<StorageObject>> Keep(const std::string& name,
                                                   absl::StatusOr<File> (*open)(const std::string&))
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const Host host_;
  const Limits limits_;
  const std::shared_ptr<FilePool> pool_;

  // Held over the file system's calls on names, so that a name and its object agree; never over a
  // read or write of data. Acquired before the pool's.
  runtime::Mutex mutex_;
  std::map<std::string, OpenFile> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORAGE_FILE_STORE_H_
