#ifndef ABACUS_APPS_TABLE_RECORD_TABLE_H_
#define ABACUS_APPS_TABLE_RECORD_TABLE_H_

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/fs/file_system.h"

namespace abacus::apps {

struct TableShape {
  uint64_t record_bytes = 128;
  uint64_t records = 1500;
  // A user of several: works on records first, first + step, first + 2 x step, ... only.
  uint64_t first = 0, step = 1;
};

// A table of records of one size in a file of a volume, which is written and read a record at a
// time (paper, section 6.4). It knows a file and nothing of what lies below it. Thread-safety:
// thread-compatible. Blocking: as the file.
class RecordTable {
 public:
  // `file`: an open file, for reading and writing. REQUIRES: both outlive the table.
  // Errors: kInvalidArgument - a shape without records.
  static absl::StatusOr<RecordTable> Over(objfs::FileSystem& files, objfs::FileHandle file,
                                          const TableShape& shape);

  // The contents of a record after it was inserted `version` times.
  std::string ContentsOf(uint64_t record, uint64_t version) const;
  absl::Status Insert(uint64_t record, uint64_t version);
  absl::StatusOr<std::string> Read(uint64_t record);
  // One of those that this user works on.
  uint64_t RandomRecord(std::mt19937_64& random) const;
  uint64_t bytes() const { return shape_.records * shape_.record_bytes; }

 private:
  RecordTable(objfs::FileSystem& files, objfs::FileHandle file, const TableShape& shape)
      : files_(&files), file_(file), shape_(shape) {}

  objfs::FileSystem* files_;
  objfs::FileHandle file_;
  TableShape shape_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_TABLE_RECORD_TABLE_H_
