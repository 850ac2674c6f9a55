#ifndef ABACUS_OBJFS_VOLUME_INODE_H_
#define ABACUS_OBJFS_VOLUME_INODE_H_

// Inode: what the file system knows of a file beside its bytes. It is the `inode` of Attributes,
// kept with the file's object and opaque to the layers between.

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

// Times are nanoseconds since 1970.
struct Inode {
  static constexpr uint32_t kLinksMax = 65'000;
  static constexpr size_t kXattrNameBytesMax = 255;
  static constexpr uint8_t kNewestVersion = 3;  // of the bytes: the first of them

  uint32_t mode = 0;  // type and permissions, as stat(2) has them
  uint32_t uid = 0, gid = 0;
  uint32_t links = 0;  // names that lead here; of a directory also "." and its children's ".."
  uint64_t device = 0;
  int64_t accessed_ns = 0, modified_ns = 0, changed_ns = 0, born_ns = 0;
  uint64_t entries = 0;  // of a directory, without "." and ".."
  ObjectId parent = 0;   // of a directory
  std::string stack;     // the text of the file's stack; empty: the volume's default
  std::map<std::string, std::string> xattrs;
  // Of a file that is spread over servers: which of the volume's has each of its columns, under the
  // file's own number. Empty: its bytes are where the inode is.
  std::vector<uint32_t> columns;
  // Those of them, by their place in `columns`, that lack something the others have; rising. Not
  // all: of a mirrored file the rest are whole copies (raid/MIRROR.md).
  std::vector<uint32_t> lacking;

  bool IsDirectory() const { return S_ISDIR(mode); }
  bool IsRegular() const { return S_ISREG(mode); }
  bool IsSpread() const { return !columns.empty(); }

  // The bytes on disk: a version, then the fields. Version 1 is without columns, version 2 with
  // them, version 3 with those that lack something; an inode is written as the lowest that has all
  // of it. Decode: kDataLoss where they are none.
  std::string Encode() const;
  static absl::StatusOr<Inode> Decode(std::string_view bytes);
  friend bool operator==(const Inode&, const Inode&) = default;
  ABACUS_FIELDS(mode, uid, gid, links, device, accessed_ns, modified_ns, changed_ns, born_ns,
                entries, parent, stack, xattrs, columns, lacking)
};

enum class XattrRule : uint8_t { kAny = 0, kMustBeNew, kMustExist };

struct XattrChange {
  std::string name;
  std::optional<std::string> value;  // nullopt: removed
  XattrRule rule = XattrRule::kAny;
  ABACUS_FIELDS(name, value, rule)
};

// A change that is applied where the inode lives, so that changes of two clients at once are both
// in it: counts are added, times are taken from the clock of the volume.
struct InodeChange {
  std::optional<uint32_t> permissions;  // 07777
  std::optional<uint32_t> uid, gid;
  std::optional<int64_t> accessed_ns, modified_ns;
  bool touch_accessed = false, touch_modified = false, touch_changed = false;  // now
  bool drop_setid = false;  // of an executable regular file: it was written by who may not keep it
  int32_t links = 0;
  int64_t entries = 0;
  std::optional<ObjectId> parent;
  std::vector<XattrChange> xattrs;
  ABACUS_FIELDS(permissions, uid, gid, accessed_ns, modified_ns, touch_accessed, touch_modified,
                touch_changed, drop_setid, links, entries, parent, xattrs)

  bool empty() const;
};

// Applies a change, all of it or nothing.
// Errors: kAlreadyExists, kNotFound - of an extended attribute, by its rule. kResourceExhausted -
//         the attributes do not fit (ObjectStore::kBlobBytesMax of the whole inode). kOutOfRange -
//         beyond kLinksMax. kDataLoss - a count would fall below 0.
absl::Status Apply(const InodeChange& change, int64_t now_ns, Inode* inode);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_VOLUME_INODE_H_
