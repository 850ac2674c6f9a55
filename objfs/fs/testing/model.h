#ifndef ABACUS_OBJFS_FS_TESTING_MODEL_H_
#define ABACUS_OBJFS_FS_TESTING_MODEL_H_

// A file system as plain maps and strings: what each call of a superuser's has to answer.

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "objfs/fs/error.h"
#include "objfs/fs/file_system.h"

namespace abacus::objfs::testing {

struct ModelNode {
  uint32_t type = S_IFREG;
  uint32_t permissions = 0;
  std::string bytes;  // a symbolic link's target
  std::map<std::string, std::string> xattrs;
  std::map<std::string, std::shared_ptr<ModelNode>> entries;
  ModelNode* parent = nullptr;  // of a directory
  int links = 0;                // names

  bool IsDirectory() const { return type == S_IFDIR; }
  bool IsRegular() const { return type == S_IFREG; }
};
using ModelPtr = std::shared_ptr<ModelNode>;

class Model {
 public:
  Model() {
    root_->type = S_IFDIR;
    root_->permissions = 0755;
    root_->links = 1;
  }

  const ModelPtr& root() const { return root_; }

  static FsError Make(const ModelPtr& directory, const std::string& name, uint32_t mode,
                      const std::string& target, ModelPtr* made) {
    if (directory->entries.contains(name)) return FsError::kExists;
    *made = std::make_shared<ModelNode>();
    (*made)->type = mode & S_IFMT;
    (*made)->permissions = mode & 07777;
    (*made)->bytes = target;
    (*made)->parent = directory.get();
    (*made)->links = 1;
    directory->entries[name] = *made;
    return FsError::kNone;
  }

  static FsError Remove(const ModelPtr& directory, const std::string& name, bool is_directory) {
    const auto found = directory->entries.find(name);
    if (found == directory->entries.end()) return FsError::kNoEntry;
    if (is_directory && !found->second->IsDirectory()) return FsError::kNotDirectory;
    if (!is_directory && found->second->IsDirectory()) return FsError::kIsDirectory;
    if (is_directory && !found->second->entries.empty()) return FsError::kNotEmpty;
    --found->second->links;
    directory->entries.erase(found);
    return FsError::kNone;
  }

  static FsError Link(const ModelPtr& file, const ModelPtr& directory, const std::string& name) {
    if (directory->entries.contains(name)) return FsError::kExists;
    if (file->IsDirectory()) return FsError::kNotPermitted;
    if (file->links == 0) return FsError::kNoEntry;
    ++file->links;
    directory->entries[name] = file;
    return FsError::kNone;
  }

  static FsError Rename(const ModelPtr& from, const std::string& name, const ModelPtr& to,
                        const std::string& as, RenameRule rule) {
    const auto found = from->entries.find(name);
    if (found == from->entries.end()) return FsError::kNoEntry;
    const ModelPtr moved = found->second;
    const auto there = to->entries.find(as);
    const ModelPtr replaced = there == to->entries.end() ? nullptr : there->second;
    const bool exchange = rule == RenameRule::kExchange;
    if (exchange && replaced == nullptr) return FsError::kNoEntry;
    const bool moves = from != to;
    if (moved->IsDirectory() && moves && IsBelow(to.get(), moved.get())) return FsError::kInvalid;
    if (replaced != nullptr && replaced->IsDirectory() && moves &&
        IsBelow(from.get(), replaced.get())) {
      return exchange ? FsError::kInvalid : FsError::kNotEmpty;
    }
    if (replaced != nullptr && rule == RenameRule::kNoReplace) return FsError::kExists;
    if (replaced != nullptr && !exchange) {
      if (moved->IsDirectory() && !replaced->IsDirectory()) return FsError::kNotDirectory;
      if (!moved->IsDirectory() && replaced->IsDirectory()) return FsError::kIsDirectory;
    }
    if (replaced == moved) return FsError::kNone;
    if (replaced != nullptr && !exchange && !replaced->entries.empty()) return FsError::kNotEmpty;
    if (exchange) {
      from->entries[name] = replaced;
      replaced->parent = from.get();
    } else {
      from->entries.erase(name);
      if (replaced != nullptr) --replaced->links;
    }
    to->entries[as] = moved;
    moved->parent = to.get();
    return FsError::kNone;
  }

  // No value: the attribute goes.
  static FsError SetXattr(const ModelPtr& node, const std::string& name,
                          const std::optional<std::string>& value, XattrRule rule) {
    if (!node->IsRegular() && !node->IsDirectory()) return FsError::kNotPermitted;
    const bool is_there = node->xattrs.contains(name);
    if (is_there && rule == XattrRule::kMustBeNew) return FsError::kExists;
    if (!is_there && rule == XattrRule::kMustExist) return FsError::kNoAttribute;
    if (value.has_value()) {
      node->xattrs[name] = *value;
    } else {
      node->xattrs.erase(name);
    }
    return FsError::kNone;
  }

  static void Write(const ModelPtr& file, uint64_t offset, const std::string& bytes) {
    file->bytes.resize(std::max<uint64_t>(file->bytes.size(), offset + bytes.size()));
    file->bytes.replace(offset, bytes.size(), bytes);
  }

 private:
  static bool IsBelow(const ModelNode* node, const ModelNode* above) {
    for (; node != nullptr; node = node->parent) {
      if (node == above) return true;
    }
    return false;
  }

  const ModelPtr root_ = std::make_shared<ModelNode>();
};

}  // namespace abacus::objfs::testing

#endif  // ABACUS_OBJFS_FS_TESTING_MODEL_H_
