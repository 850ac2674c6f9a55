#ifndef ABACUS_OBJFS_STORE_TABLE_PAGES_H_
#define ABACUS_OBJFS_STORE_TABLE_PAGES_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "objfs/store/disk.h"
#include "objfs/store/format.h"

namespace abacus::objfs {

// Reads the pages of a table that were ever written, rising; a sparse object has many that were
// not. Thread-safety: none. Blocking: disk I/O.
//
//   for (TablePages pages(table);;) {
//     ABACUS_ASSIGN_OR_RETURN(const bool more, pages.Next());
//     if (!more) break;
//     ... pages.page(), pages.both()
//   }
class TablePages {
 public:
  // `table` outlives this.
  explicit TablePages(DiskFile& table) : table_(table), both_(2 * kTablePageBytes, '\0') {}

  // False: there are no more. Errors: the disk's.
  absl::StatusOr<bool> Next() {
    const auto size = table_.Size();
    if (!size.ok()) return size.status();
    if (OffsetOfPage(next_, 0) >= *size) return false;
    const auto data = table_.NextData(OffsetOfPage(next_, 0));
    if (absl::IsNotFound(data.status())) return false;
    if (!data.ok()) return data.status();
    page_ = std::max(next_, *data / both_.size());
    const auto read = table_.Read(OffsetOfPage(page_, 0), std::span(both_.data(), both_.size()));
    if (!read.ok()) return UnlessUnread(read.status());
    std::fill(both_.begin() + static_cast<int64_t>(*read), both_.end(), '\0');
    next_ = page_ + 1;
    return true;
  }
  uint64_t page() const { return page_; }
  // The bytes of its two places, one after the other; zeros behind the end of the file.
  std::string_view both() const { return both_; }

 private:
  DiskFile& table_;
  std::string both_;
  uint64_t page_ = 0, next_ = 0;
};

}  // namespace abacus::objfs

#endif  // ABACUS_OBJFS_STORE_TABLE_PAGES_H_
