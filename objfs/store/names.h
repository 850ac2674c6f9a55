#ifndef ABACUS_OBJFS_STORE_NAMES_H_
#define ABACUS_OBJFS_STORE_NAMES_H_

// Names of a store's files on its disk.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "objfs/store/object_store.h"

namespace abacus::objfs {

inline constexpr char kSuperblockName[] = "superblock";
inline constexpr char kNewSuperblockName[] = "superblock.new";
inline constexpr char kJournalPrefix[] = "journal.";
inline constexpr char kSpareName[] = "spare";
// Objects are spread over folders, so that calls on different objects wait less for each other in
// the local file system.
inline constexpr uint64_t kFolders = 16;

inline std::string FolderName(uint64_t number) { return absl::StrFormat("%x", number % kFolders); }
inline std::string DataPath(ObjectId id) {
  return absl::StrFormat("%x/%016x.d", id % kFolders, id);
}
inline std::string TablePath(ObjectId id) {
  return absl::StrFormat("%x/%016x.t", id % kFolders, id);
}

// The number in "<prefix><16 hexadecimal digits><suffix>", or nullopt for any other name.
inline std::optional<uint64_t> NumberIn(std::string_view name, std::string_view prefix,
                                        std::string_view suffix) {
  constexpr size_t kDigits = 16;
  uint64_t number = 0;
  const bool fits =
      name.size() == prefix.size() + kDigits + suffix.size() && name.starts_with(prefix) &&
      name.ends_with(suffix) &&
      name.find_first_not_of("0123456789abcdef", prefix.size()) >= prefix.size() + kDigits;
  if (!fits) return std::nullopt;
  const std::string digits(name.substr(prefix.size(), kDigits));
  if (!absl::SimpleHexAtoi(digits, &number)) return std::nullopt;
  return number;
}

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_NAMES_H_
