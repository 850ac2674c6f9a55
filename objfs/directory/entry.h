#ifndef ABACUS_OBJFS_DIRECTORY_ENTRY_H_
#define ABACUS_OBJFS_DIRECTORY_ENTRY_H_

// What directories are asked and told.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "objfs/store/object_store.h"
#include "runtime/base/codec.h"

namespace abacus::objfs {

inline constexpr size_t kNameBytesMax = 255;

// What a name stands for.
struct Entry {
  ObjectId id = 0;    // not 0
  uint32_t type = 0;  // S_IFMT of its mode
  friend bool operator==(const Entry&, const Entry&) = default;
  ABACUS_FIELDS(id, type)
};

struct ListedEntry {
  std::string name;
  Entry entry;
  uint64_t cookie = 0;  // List() from here gives what follows
  friend bool operator==(const ListedEntry&, const ListedEntry&) = default;
  ABACUS_FIELDS(name, entry, cookie)
};

// A name's entry before and after. Neither: the name is to be absent and stays so.
struct EntryChange {
  std::string name;
  std::optional<Entry> before, after;
  ABACUS_FIELDS(name, before, after)
};

// Whether an error says that an entry is not what a change took it to be. Ask it before
// IsWouldBlock(), which holds as well: both mean "try again", and this one "after another look".
bool IsChanged(const absl::Status& status);

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_DIRECTORY_ENTRY_H_
