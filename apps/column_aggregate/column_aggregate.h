#ifndef ABACUS_APPS_COLUMN_AGGREGATE_COLUMN_AGGREGATE_H_
#define ABACUS_APPS_COLUMN_AGGREGATE_COLUMN_AGGREGATE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "objfs/layer/subgraph.h"
#include "runtime/object/mobile_object.h"

namespace abacus::apps {

// Of a table in text: a line is a row, and its fields are what stands between separators, which are
// not quoted. Columns are counted from 1.
struct AggregateOptions {
  uint64_t read_bytes = 64 * 1024;  // of the file, at each call
  std::string separator = ",";      // one character
  uint64_t skip_lines = 0;          // before the first row, such as one of names
  uint64_t where_column = 0;        // rows count whose field there is `where_value`; 0: all
  std::string where_value;
  uint64_t value_column = 1;  // of numbers
  ABACUS_FIELDS(read_bytes, separator, skip_lines, where_column, where_value, value_column)
};

// Of the rows that count. `least` and `most` are 0 where there is none.
struct Aggregate {
  uint64_t rows = 0;
  double sum = 0, least = 0, most = 0;
  ABACUS_FIELDS(rows, sum, least, most)
};

struct AggregateChunk {
  Aggregate so_far;     // of whole lines
  uint64_t offset = 0;  // bytes of the file that were read
  bool done = false;    // that was all of the file, its last line too
  ABACUS_FIELDS(so_far, offset, done)
};

// Filters the rows of a file and adds a column up, a block at a time: of all that it reads it
// passes a few numbers on. It reads from the layers of the file's stack, which its caller appends
// to the graph that it is in (objfs::FileSystem::WithSubgraph). Between two chunks it may move, and
// does not know where it is: numbers are added in the order of the file wherever that is.
// Thread-safety: one activity at a time. Blocking: as the file's layers.
class ColumnAggregate final : public runtime::MobileObject {
 public:
  static constexpr bool kOneAtATime = true;
  static constexpr uint64_t kReadBytesMax = uint64_t{64} << 20;
  static constexpr uint64_t kLineBytesMax = uint64_t{1} << 20;

  // Errors: kInvalidArgument - the separator is no single character, there is no value_column, or
  //         read_bytes is 0 or more than kReadBytesMax.
  absl::Status Init(const AggregateOptions& options);

  // Goes on with the next bytes of `file`, always the same one, by whatever layers.
  // Errors: those of the layers, objfs::IsWouldBlock() among them: nothing was done, ask again.
  //         kInvalidArgument - a line, which is named, lacks a column, has no number in the one of
  //         values, or is longer than kLineBytesMax: it cannot go on.
  absl::StatusOr<AggregateChunk> Next(const objfs::Subgraph& file);

  void Checkpoint(runtime::CheckpointWriter& writer) const override;
  absl::Status Restore(runtime::CheckpointReader& reader) override;
  ABACUS_OBJECT(ColumnAggregate, "apps.ColumnAggregate", 1, Next)

 private:
  // Field `column` of a line, or what is wrong with it.
  absl::StatusOr<std::string_view> Field(std::string_view line, uint64_t column);
  absl::Status Add(std::string_view line);
  absl::Status Feed(std::string_view bytes);
  // Of the line that is looked at. Remembers it.
  absl::Status Wrong(std::string_view what);

  AggregateOptions options_;
  uint64_t offset_ = 0;
  uint64_t lines_ = 0;  // that were looked at
  std::string begun_;   // the line that the last block ended in
  std::string mistake_;
  Aggregate so_far_;
};

}  // namespace abacus::apps

#endif  // ABACUS_APPS_COLUMN_AGGREGATE_COLUMN_AGGREGATE_H_
