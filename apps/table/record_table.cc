#include "apps/table/record_table.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/block.h"
#include "runtime/base/status.h"

namespace abacus::apps {

absl::StatusOr<RecordTable> RecordTable::Over(objfs::FileSystem& files, objfs::FileHandle file,
                                              const TableShape& shape) {
  if (shape.record_bytes == 0 || shape.step == 0 || shape.first >= shape.records) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a table of ", shape.records, " records of ", shape.record_bytes, " bytes, of which each ",
        shape.step, "th from ", shape.first, " on is worked on: there is none"));
  }
  return RecordTable(files, file, shape);
}

std::string RecordTable::ContentsOf(uint64_t record, uint64_t version) const {
  std::string contents = absl::StrCat(record, " ", version, "\n");
  contents.resize(shape_.record_bytes, '.');
  return contents;
}

absl::Status RecordTable::Insert(uint64_t record, uint64_t version) {
  return files_->Write(file_, record * shape_.record_bytes,
                       runtime::Block::FromString(ContentsOf(record, version)));
}

absl::StatusOr<std::string> RecordTable::Read(uint64_t record) {
  ABACUS_ASSIGN_OR_RETURN(const runtime::Block block,
                          files_->Read(file_, record * shape_.record_bytes, shape_.record_bytes));
  if (block.size() != shape_.record_bytes) {
    return absl::DataLossError(absl::StrCat("record ", record, " has ", block.size(), " of ",
                                            shape_.record_bytes, " bytes"));
  }
  return std::string(block.view());
}

uint64_t RecordTable::RandomRecord(std::mt19937_64& random) const {
  const uint64_t mine = (shape_.records - shape_.first + shape_.step - 1) / shape_.step;
  return shape_.first + shape_.step * (random() % mine);
}

}  // namespace abacus::apps
